//! PUT and DELETE of an object. An upload is staged as it arrives, committed when the write has its
//! key's turn, and acknowledged when no node returns an older version.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use engine::node::{Event, Reply, RequestId, Stages};
use futures_util::future;
use ground::Key;
use ground::window::{Nanos, Outcome};
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    TRANSFER_ENCODING,
};
use http::{Request, Response, StatusCode};
use tokio::sync::oneshot;

use super::Shared;
use super::cluster;
use super::drive::{Answer, Asked, Drive, TIMED_OUT};
use super::objects::{
    Answered, MISDIRECTED, add_stages, busy, origin_problem, precondition_failed, too_late,
    unavailable,
};
use device::object::{META_PREFIX, Object};
use membership::Membership;
use origin::{Attributes, Error, Fence, Staged, Whole};
use record::clock;
use wire::body::{Arriving, ReplyBody, Share, Upload};
use wire::condition;
use wire::condition::Verdict;
use wire::hex::unhex;
use wire::lane::Seen;
use wire::pace::Pace;
use wire::problem::Problem;

/// Maximum bytes of user metadata, names and values together.
const META_BYTES_MAX: usize = 8 << 10;
/// Maximum bytes of a content type.
const CONTENT_TYPE_BYTES_MAX: usize = 1 << 10;
/// Maximum number of writes under way, those included that continue after their client got a
/// timeout.
const WRITES_MAX: usize = 1024;
/// The reply to a write that must not be acknowledged.
const UNCERTAIN: &str = "this node lost its place in the cluster while it wrote: the write may or \
    may not have happened; read the object, and repeat the write if needed";

fn attributes(headers: &HeaderMap) -> Result<Attributes, Problem> {
    let bad = |what: String| Problem::new(StatusCode::BAD_REQUEST, &what);
    let text = |name: &str, value: &HeaderValue| {
        let text = std::str::from_utf8(value.as_bytes()).map(str::to_owned);
        text.map_err(|_| bad(format!("the header {name} is not UTF-8")))
    };
    let content_type =
        headers.get(CONTENT_TYPE).map(|value| text("content-type", value)).transpose()?;
    if content_type.as_ref().is_some_and(|text| text.len() > CONTENT_TYPE_BYTES_MAX) {
        return Err(bad(format!("the content type is longer than {CONTENT_TYPE_BYTES_MAX} bytes")));
    }
    let mut user = Vec::new();
    for (name, value) in headers {
        if let Some(short) = name.as_str().strip_prefix(META_PREFIX) {
            user.push((short.to_owned(), text(name.as_str(), value)?));
        }
    }
    user.sort();
    let bytes: usize = user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > META_BYTES_MAX {
        return Err(bad(format!(
            "the user metadata has {bytes} bytes; at most {META_BYTES_MAX} are kept"
        )));
    }
    Ok(Attributes { content_type: content_type.filter(|text| !text.is_empty()), user })
}

/// Answers a PUT.
pub async fn put(
    shared: &Arc<Shared>,
    mut seen: Seen,
    key: Key,
    request: Request<Arriving>,
) -> Answered {
    let (parts, incoming) = request.into_parts();
    let headers = parts.headers;
    let refused = if headers.contains_key(CONTENT_RANGE) {
        Some((StatusCode::BAD_REQUEST, "PUT of a part is not supported: send the whole object"))
    } else if headers.contains_key(CONTENT_ENCODING) {
        Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the object without content encoding"))
    } else if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
        Some((StatusCode::LENGTH_REQUIRED, "send Content-Length (0 for an empty object) or chunks"))
    } else {
        None
    };
    if let Some((status, what)) = refused {
        return Err(Problem::new(status, what).of(seen));
    }
    let bounds = Bounds::of(&headers, seen.received);
    let (bounds, attributes) = match (bounds, attributes(&headers)) {
        (Ok(bounds), Ok(attributes)) => (bounds, attributes),
        (Err(problem), _) | (_, Err(problem)) => return Err(problem.of(seen)),
    };
    let config = &shared.config;
    let object_bytes_max = config.node.object_bytes_max.0;
    let pace = Pace::of(&config.serve);
    let mut upload = Upload::new(incoming, pace, object_bytes_max, shared.uploads.clone());
    let told = headers.get(&wire::headers::SHA256).filter(|_| seen.internal);
    if let Some(sha256) = told.and_then(|value| value.to_str().ok()).and_then(unhex) {
        upload.expect(sha256);
    }
    let staged = tokio::select! {
        staged = stage(shared, &key, attributes, &mut upload) => Some(staged),
        () = shared.drive.handover.begun() => None,
    };
    let Some(staged) = staged else {
        // It would be refused its turn. A gateway that still has the beginning sends it elsewhere.
        upload.discard().await;
        let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED);
        return Err(problem.of(seen));
    };
    let staged = match staged {
        Ok(staged) => staged,
        Err(error) => {
            if !matches!(error, Error::Upload(_)) {
                upload.discard().await;
            }
            return Err(origin_problem(&error).of(seen));
        }
    };
    let copy = upload.into_copy();
    seen.size = staged.metadata().size;
    let conditional = condition::is_conditional(&headers).then(|| headers.clone());
    let work = Work::Put { staged, copy };
    let (result, stages) = in_turn(shared, key, work, conditional, bounds).await;
    seen.stages = stages;
    match result {
        Ok(Done { etag, .. }) => {
            seen.outcome = Outcome::Origin;
            let mut response = Response::new(ReplyBody::empty(None));
            if let Some(value) = etag.and_then(|e| HeaderValue::from_str(&format!("\"{e}\"")).ok())
            {
                response.headers_mut().insert(ETAG, value);
            }
            add_stages(&seen, &headers, response.headers_mut());
            *response.body_mut() = ReplyBody::empty(Some(seen));
            Ok(response)
        }
        Err(problem) => Err(problem.of(seen)),
    }
}

/// Stages the upload at the origin. The timeout applies to the origin's acceptance of each piece,
/// not to the client's sending.
async fn stage(
    shared: &Arc<Shared>,
    key: &Key,
    attributes: Attributes,
    upload: &mut Upload,
) -> Result<Box<dyn Staged>, Error> {
    let given_at = upload.given_at();
    let timeout = shared.drive.timeout();
    let mut staging = shared.drive.origin().stage(key, attributes, upload);
    loop {
        match tokio::time::timeout(timeout, &mut staging).await {
            Ok(result) => return result,
            Err(_) => {
                let given = given_at.load(Ordering::Relaxed);
                if given > 0 && u128::from(clock::now() - given) >= timeout.as_nanos() {
                    let seconds = timeout.as_secs_f64();
                    let what = format!("an upload's bytes were not accepted within {seconds} s");
                    return Err(Error::TimedOut(what));
                }
            }
        }
    }
}

/// Answers a DELETE.
pub async fn delete(
    shared: &Arc<Shared>,
    mut seen: Seen,
    key: Key,
    headers: &HeaderMap,
) -> Answered {
    let conditional = condition::is_conditional(headers).then(|| headers.clone());
    let bounds = match Bounds::of(headers, seen.received) {
        Ok(bounds) => bounds,
        Err(problem) => return Err(problem.of(seen)),
    };
    let (result, stages) = in_turn(shared, key, Work::Delete, conditional, bounds).await;
    seen.stages = stages;
    match result {
        Ok(Done { there, .. }) => {
            // Deleting an object that does not exist succeeds.
            seen.outcome = if there { Outcome::Origin } else { Outcome::Miss };
            let mut response = Response::new(ReplyBody::empty(None));
            *response.status_mut() = StatusCode::NO_CONTENT;
            add_stages(&seen, headers, response.headers_mut());
            *response.body_mut() = ReplyBody::empty(Some(seen));
            Ok(response)
        }
        Err(problem) => Err(problem.of(seen)),
    }
}

/// Stores bytes that are all in memory, if the conditions hold; returns the etag.
pub async fn store(
    shared: &Arc<Shared>,
    key: Key,
    attributes: Attributes,
    bytes: Bytes,
    conditional: Option<HeaderMap>,
) -> (Result<Option<ground::Etag>, Problem>, Option<Stages>) {
    let mut whole = Whole::new(bytes.clone());
    let staging = shared.drive.origin().stage(&key, attributes, &mut whole);
    let staged = match shared.drive.within("a write", staging).await {
        Ok(staged) => staged,
        Err(error) => return (Err(origin_problem(&error)), None),
    };
    let work = Work::Put { staged, copy: Some((bytes, None)) };
    let (result, stages) = in_turn(shared, key, work, conditional, Bounds::default()).await;
    (result.map(|done| done.etag), stages)
}

/// Removes an object, if the conditions hold; returns whether it was there.
pub async fn remove(
    shared: &Arc<Shared>,
    key: Key,
    conditional: Option<HeaderMap>,
) -> (Result<bool, Problem>, Option<Stages>) {
    let (result, stages) = in_turn(shared, key, Work::Delete, conditional, Bounds::default()).await;
    (result.map(|done| done.there), stages)
}

enum Work {
    Put { staged: Box<dyn Staged>, copy: Option<(Bytes, Option<Share>)> },
    Delete,
}

struct Done {
    etag: Option<ground::Etag>,
    /// Whether the deleted object existed.
    there: bool,
}

/// Until when, and since when this node orders the key, a write may begin.
#[derive(Clone, Copy, Default)]
struct Bounds {
    deadline: Option<Nanos>,
    epoch: Option<u64>,
}

impl Bounds {
    fn of(headers: &HeaderMap, received: Nanos) -> Result<Bounds, Problem> {
        let deadline = cluster::deadline(headers, received)?;
        Ok(Bounds { deadline, epoch: cluster::epoch(headers)? })
    }
}

type Written = (Result<Done, Problem>, Option<Stages>);

/// Performs a write when its turn has come. The turn is held until the write's outcome at the
/// origin is certain, even after its client got a timeout: otherwise the write could land after the
/// next one and undo it.
async fn in_turn(
    shared: &Arc<Shared>,
    key: Key,
    work: Work,
    conditional: Option<HeaderMap>,
    Bounds { deadline, epoch }: Bounds,
) -> Written {
    let (send, receive) = oneshot::channel();
    let left = deadline.map(|at| Duration::from_nanos(at.saturating_sub(clock::now())));
    if left.is_some_and(|left| left.is_zero()) {
        return (Err(too_late()), None);
    }
    let timeout = left.map_or(shared.drive.timeout(), |left| left.min(shared.drive.timeout()));
    // Writes continue after their client got a timeout, and keep their bytes in memory until they
    // end.
    if shared.writes.load(Ordering::Relaxed) >= WRITES_MAX {
        return (Err(busy("writes")), None);
    }
    let shared = shared.clone();
    let task = async move {
        let _writing = shared.writing();
        let request = shared.drive.request();
        let mut send = send;
        let received = clock::now();
        let answer = match shared.drive.write_begin(received, request, key.clone(), epoch) {
            Asked::Now(answer) => Some(answer),
            Asked::Later(turn) => tokio::select! {
                answer = turn => answer.ok(),
                () = send.closed() => None,
            },
        };
        let written: Written = match answer {
            Some(Answer::Reply(Reply::Busy { queue }, stages)) => (Err(busy(&queue)), Some(stages)),
            Some(Answer::Reply(Reply::NotPrimary, stages)) => {
                let what = Problem::new(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED);
                (Err(what), Some(stages))
            }
            Some(Answer::Turn) if !send.is_closed() => {
                let started = clock::now();
                let turn = (request, conditional);
                let (result, payload) = write(&shared, &key, work, turn).await;
                let served = clock::now();
                let done = match shared.drive.write_end(served, request, key, payload) {
                    Asked::Now(answer) => Some(answer),
                    Asked::Later(done) => {
                        let done = done.await.ok();
                        if let Some(peers) = shared.drive.peers() {
                            peers.held(clock::now() - served);
                        }
                        done
                    }
                };
                let result = match done {
                    Some(Answer::Done { certain: true }) => result,
                    _ => result.and(Err(unavailable(UNCERTAIN))),
                };
                let stages =
                    Stages { received, queued: received, started, served, ..Stages::default() };
                (result, Some(stages))
            }
            // The client left while the write waited for its turn.
            _ => {
                let end = Event::WriteEnd { request, key, payload: None };
                shared.drive.tell(clock::now(), end);
                (Err(Problem::stopping()), None)
            }
        };
        let _ = send.send(written);
    };
    tokio::spawn(task);
    match tokio::time::timeout(timeout, receive).await {
        Ok(Ok(written)) => written,
        Ok(Err(_)) => (Err(Problem::stopping()), None),
        Err(_) => {
            let seconds = timeout.as_secs_f64();
            let what = format!("{TIMED_OUT}: the write took over {seconds} s and may still happen");
            (Err(unavailable(&what)), None)
        }
    }
}

async fn deleted(drive: &Drive, key: &Key, fence: Fence, leased: bool) -> Result<bool, Error> {
    match leased {
        true => drive.origin().delete_fenced(key, fence).await,
        false => drive.origin().delete(key).await,
    }
}

/// Performs the write itself; the caller holds the key's turn.
async fn write(
    shared: &Arc<Shared>,
    key: &Key,
    work: Work,
    (request, conditional): (RequestId, Option<HeaderMap>),
) -> (Result<Done, Problem>, Option<Object>) {
    let drive = &shared.drive;
    let fence: Fence = {
        let (drive, key) = (drive.clone(), key.clone());
        Arc::new(move || drive.may_write(request, &key))
    };
    let leased = shared.membership().is_some_and(Membership::is_leased);
    if let Some(headers) = conditional {
        match drive.head(key).await {
            Ok(object) => {
                if condition::judge(&headers, object.as_ref(), false) != Verdict::Proceed {
                    return (Err(precondition_failed()), None);
                }
            }
            Err(error) => return (Err(origin_problem(&error)), None),
        }
    }
    match work {
        Work::Delete if !drive.is_durable() => match drive.head(key).await {
            Ok(object) => (Ok(Done { etag: None, there: object.is_some() }), None),
            Err(error) => (Err(origin_problem(&error)), None),
        },
        Work::Delete => match deleted(drive, key, fence, leased).await {
            Ok(there) => (Ok(Done { etag: None, there }), None),
            Err(error) => (Err(origin_problem(&error)), None),
        },
        Work::Put { mut staged, copy } => {
            // A static member's place is its own for good.
            if leased {
                staged.fence(fence);
            }
            let metadata = staged.metadata().clone();
            let etag = Some(metadata.etag.clone());
            let kept = copy.is_some() && metadata.size <= drive.object_bytes_max();
            if !kept && !drive.is_durable() {
                let what = "the object is too large for this cache: see node.object_bytes_max";
                return (Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what)), None);
            }
            let whole = copy.filter(|(bytes, _)| bytes.len() as u64 == metadata.size);
            // The copy for memory is made while the origin works, not between its reply and the client's. Until then the
            // share of uploads' memory stays taken.
            let object =
                async { whole.map(|(bytes, share)| (Object::new(metadata, bytes), share)) };
            match future::join(staged.commit(None), object).await {
                (Ok(()), object) => {
                    (Ok(Done { etag, there: true }), object.map(|(object, _)| object))
                }
                (Err(error), _) => (Err(origin_problem(&error)), None),
            }
        }
    }
}
