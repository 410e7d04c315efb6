//! `/objects/{key}`: GET, HEAD, PUT, DELETE; and the listing at `/objects`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use engine::Key;
use engine::node::{Event, Reply, Stages};
use http::header::{
    ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, RANGE, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use model::window::{Operation, Outcome};
use serde::Serialize;
use tokio::sync::oneshot;

use super::Shared;
use super::body::{ReplyBody, Share, Upload};
use super::condition::{self, Verdict};
use super::drive::{Answer, Asked, TIMED_OUT};
use super::http::{Problem, json};
use super::lane::{Lane, Seen};
use super::object::{META_PREFIX, Object, headers_of};
use super::range;
use crate::clock;
use crate::origin::{Attributes, Error, Found, KEY_BYTES_MAX, Metadata, Staged};

type Answered = Result<Response<ReplyBody>, Problem>;

/// Bytes of user metadata, names and values.
const META_BYTES_MAX: usize = 8 << 10;
/// Longest content type.
const CONTENT_TYPE_BYTES_MAX: usize = 1 << 10;
/// Writes under way at once, those included whose client was told that they took too long.
const WRITES_MAX: usize = 1024;
/// Most objects of a page of a listing.
const LIST_MAX: usize = 1000;

/// The key of a path below `/objects/`.
pub fn key_of(encoded: &str) -> Result<Key, Problem> {
    let bad = |what: &str| Problem::new(StatusCode::BAD_REQUEST, what);
    let bytes = encoded.as_bytes();
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = bytes.get(index + 1..index + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(bad("the key has a % that is not followed by two hexadecimal digits; \
                write % itself as %25"));
        }
    }
    let key: Vec<u8> = percent_encoding::percent_decode_str(encoded).collect();
    if key.is_empty() {
        return Err(bad(
            "the key is empty; write it after /objects/, or list with /objects?prefix=",
        ));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(bad(&format!(
            "the key has {} bytes; at most {KEY_BYTES_MAX} are taken",
            key.len()
        )));
    }
    Ok(Key::from(key))
}

/// Answers a request for one object.
pub async fn object(
    shared: &Arc<Shared>,
    lane: &Arc<Lane>,
    key: Key,
    request: Request<Incoming>,
) -> Answered {
    if request.uri().query().is_some() {
        let what = "an object's address has no query; write ? in a key as %3F";
        return Err(Problem::new(StatusCode::BAD_REQUEST, what));
    }
    let operation = match *request.method() {
        Method::GET => Operation::Get,
        Method::HEAD => Operation::Head,
        Method::PUT => Operation::Put,
        Method::DELETE => Operation::Delete,
        _ => {
            let what = "an object takes GET, HEAD, PUT and DELETE";
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, what);
            return Err(problem.with(ALLOW, HeaderValue::from_static("GET, HEAD, PUT, DELETE")));
        }
    };
    let seen = lane.received(operation, &key);
    match operation {
        Operation::Put => put(shared, seen, key, request).await,
        Operation::Delete => delete(shared, seen, key, request.headers()).await,
        _ => get(shared, seen, key, request.headers()).await,
    }
}

/// Adds what every reply says of how it came about.
fn add_stages(seen: &Seen, asked: &HeaderMap, to: &mut HeaderMap) {
    to.insert("concertina-outcome", HeaderValue::from_static(seen.outcome.as_str()));
    let stages = seen.stages.unwrap_or_default();
    to.insert("concertina-queue-length", HeaderValue::from(stages.length_left));
    if asked.contains_key("concertina-stages") {
        let since = |at: u64| at.saturating_sub(seen.received);
        let text = format!(
            "queued_ns={},started_ns={},served_ns={},replied_ns={},length_met={}",
            since(stages.queued),
            since(stages.started),
            since(stages.served),
            since(clock::now()),
            stages.length_met
        );
        if let Ok(value) = HeaderValue::from_str(&text) {
            to.insert("concertina-stages", value);
        }
    }
}

async fn get(shared: &Arc<Shared>, mut seen: Seen, key: Key, headers: &HeaderMap) -> Answered {
    let answer = match shared.drive.get(seen.received, key.clone()) {
        Asked::Now(answer) => answer,
        Asked::Later(receive) => receive.await.map_err(|_| Problem::stopping())?,
    };
    let Answer::Reply(reply, stages) = answer else { return Err(Problem::stopping()) };
    seen.stages = Some(stages);
    match reply {
        Reply::Found { payload, outcome } => {
            seen.outcome = outcome;
            Ok(found(seen, &payload, headers))
        }
        Reply::Stream => {
            seen.outcome = Outcome::Origin;
            stream(shared, seen, &key, headers).await
        }
        Reply::NotFound => {
            seen.outcome = Outcome::Miss;
            Err(not_found(headers).of(seen))
        }
        Reply::Busy { queue } => Err(busy(&queue).of(seen)),
        Reply::Unavailable(failure) => Err(unavailable(&failure.reason).of(seen)),
    }
}

fn not_found(headers: &HeaderMap) -> Problem {
    // `If-Match` of what is not there fails before its absence is told.
    match condition::judge(headers, None, true) {
        Verdict::Failed => precondition_failed(),
        _ => Problem::new(StatusCode::NOT_FOUND, "there is no object of this key"),
    }
}

fn precondition_failed() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "the object is not as the request's condition says",
    )
}

fn busy(queue: &str) -> Problem {
    let what = format!("the queue `{queue}` is full; try again later");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, &what)
        .with(RETRY_AFTER, HeaderValue::from_static("1"))
}

fn unavailable(reason: &str) -> Problem {
    let status = if reason.starts_with(TIMED_OUT) {
        StatusCode::GATEWAY_TIMEOUT
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Problem::new(status, reason).with(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// The reply to an error of the origin.
fn origin_problem(error: &Error) -> Problem {
    let status = match error {
        Error::Full(_) | Error::ReadOnly(_) => StatusCode::INSUFFICIENT_STORAGE,
        Error::Upload(_) | Error::Refused(_) => StatusCode::BAD_REQUEST,
        _ => return unavailable(&error.to_string()),
    };
    Problem::new(status, &error.to_string())
}

fn found(mut seen: Seen, object: &Object, headers: &HeaderMap) -> Response<ReplyBody> {
    let (status, range) = selected(object.metadata(), headers);
    seen.size = object.metadata().size;
    let mut response = Response::new(ReplyBody::empty(None));
    *response.status_mut() = status;
    object.add_headers(response.headers_mut());
    add_stages(&seen, headers, response.headers_mut());
    let body = match (&range, status) {
        (Some(range), _) => object.body().slice(range.start as usize..range.end as usize),
        (None, StatusCode::OK) => object.body().clone(),
        _ => Bytes::new(),
    };
    close_head(&mut seen, &mut response, range, object.metadata().size);
    if status.is_success() && seen.bytes > 0 {
        *response.body_mut() = ReplyBody::bytes(body, Some(seen));
    } else {
        *response.body_mut() = ReplyBody::empty(Some(seen));
    }
    response
}

/// What a read is answered: status, and the range if it is a part. Conditions come before the range.
fn selected(
    metadata: &Metadata,
    headers: &HeaderMap,
) -> (StatusCode, Option<std::ops::Range<u64>>) {
    match condition::judge(headers, Some(metadata), true) {
        Verdict::Failed => return (StatusCode::PRECONDITION_FAILED, None),
        Verdict::NotModified => return (StatusCode::NOT_MODIFIED, None),
        Verdict::Proceed => {}
    }
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some(asked) = asked.filter(|_| condition::range_holds(headers, metadata)) else {
        return (StatusCode::OK, None);
    };
    match range::parse(asked, metadata.size) {
        range::Asked::Whole => (StatusCode::OK, None),
        range::Asked::Part(range) => (StatusCode::PARTIAL_CONTENT, Some(range)),
        range::Asked::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, None),
    }
}

/// Sets the length and the range of a reply, and counts its bytes. A HEAD is answered as the GET would
/// be, without the bytes.
fn close_head(
    seen: &mut Seen,
    response: &mut Response<ReplyBody>,
    range: Option<std::ops::Range<u64>>,
    size: u64,
) {
    let status = response.status();
    let headers = response.headers_mut();
    let mut length = match status {
        StatusCode::OK => size,
        _ => range.as_ref().map_or(0, |range| range.end - range.start),
    };
    let content_range = match (&range, status) {
        (Some(range), _) => Some(format!("bytes {}-{}/{size}", range.start, range.end - 1)),
        (None, StatusCode::RANGE_NOT_SATISFIABLE) => Some(format!("bytes */{size}")),
        _ => None,
    };
    if let Some(value) = content_range.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(CONTENT_RANGE, value);
    }
    if status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if seen.is_head() {
        length = 0;
    }
    seen.bytes = length;
}

/// An object that no tier keeps, straight from the origin.
async fn stream(shared: &Arc<Shared>, mut seen: Seen, key: &Key, headers: &HeaderMap) -> Answered {
    let drive = &shared.drive;
    // The range needs the size, which the first answer brings; a second is asked for a part.
    for _ in 0..3 {
        let whole = drive.within("a read", drive.origin().get(key, None)).await;
        let Found { metadata, mut body } = match whole {
            Ok(Some(found)) => found,
            Ok(None) => {
                seen.outcome = Outcome::Miss;
                return Err(not_found(headers).of(seen));
            }
            Err(error) => return Err(origin_problem(&error).of(seen)),
        };
        let (status, range) = selected(&metadata, headers);
        if let Some(range) = range.clone() {
            let part = drive.within("a read", drive.origin().get(key, Some(range))).await;
            match part {
                Ok(Some(part)) if part.metadata.etag == metadata.etag => body = part.body,
                // It was written in between.
                Ok(_) => continue,
                Err(error) => return Err(origin_problem(&error).of(seen)),
            }
        }
        let mut response = Response::new(ReplyBody::empty(None));
        *response.status_mut() = status;
        for (name, value) in headers_of(&metadata) {
            response.headers_mut().append(name, value);
        }
        seen.size = metadata.size;
        add_stages(&seen, headers, response.headers_mut());
        close_head(&mut seen, &mut response, range, metadata.size);
        let (left, timeout) = (seen.bytes, drive.timeout());
        *response.body_mut() = match left {
            0 => ReplyBody::empty(Some(seen)),
            _ => ReplyBody::stream(body, left, timeout, seen),
        };
        return Ok(response);
    }
    Err(unavailable("the object is written faster than it can be read").of(seen))
}

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

async fn put(
    shared: &Arc<Shared>,
    mut seen: Seen,
    key: Key,
    request: Request<Incoming>,
) -> Answered {
    let (parts, incoming) = request.into_parts();
    let headers = parts.headers;
    let refused = if headers.contains_key(CONTENT_RANGE) {
        Some((StatusCode::BAD_REQUEST, "a PUT of a part is not taken: send the whole object"))
    } else if headers.contains_key(CONTENT_ENCODING) {
        Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "a content encoding is not kept: send it plain"))
    } else if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
        Some((StatusCode::LENGTH_REQUIRED, "send Content-Length (0 for an empty object) or chunks"))
    } else {
        None
    };
    if let Some((status, what)) = refused {
        return Err(Problem::new(status, what).of(seen));
    }
    let attributes = match attributes(&headers) {
        Ok(attributes) => attributes,
        Err(problem) => return Err(problem.of(seen)),
    };
    let config = &shared.config;
    let object_bytes_max = config.node.object_bytes_max.0;
    let idle = std::time::Duration::from_secs_f64(config.serve.idle_s);
    let mut upload = Upload::new(incoming, idle, object_bytes_max, shared.uploads.clone());
    let staged = match stage(shared, &key, attributes, &mut upload).await {
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
    let (result, stages) = in_turn(shared, key, work, conditional).await;
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

/// Hands the upload to the origin. However long the client takes, the origin must take each piece in
/// time.
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
                    let what = format!("it did not take an upload's bytes within {seconds} s");
                    return Err(Error::TimedOut(what));
                }
            }
        }
    }
}

async fn delete(shared: &Arc<Shared>, mut seen: Seen, key: Key, headers: &HeaderMap) -> Answered {
    let conditional = condition::is_conditional(headers).then(|| headers.clone());
    let (result, stages) = in_turn(shared, key, Work::Delete, conditional).await;
    seen.stages = stages;
    match result {
        Ok(Done { there, .. }) => {
            // Removing what is not there leaves what was asked for.
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

enum Work {
    Put { staged: Box<dyn Staged>, copy: Option<(Bytes, Vec<Share>)> },
    Delete,
}

struct Done {
    etag: Option<engine::Etag>,
    /// What was deleted was there.
    there: bool,
}

type Written = (Result<Done, Problem>, Option<Stages>);

/// Does a write when its turn has come. The turn is held until the origin's answer is certain, even when
/// the client has been told that it took too long: a write that ended later would undo the next one.
async fn in_turn(
    shared: &Arc<Shared>,
    key: Key,
    work: Work,
    conditional: Option<HeaderMap>,
) -> Written {
    let (send, receive) = oneshot::channel();
    let timeout = shared.drive.timeout();
    // Writes whose client was told that they took too long go on, and hold what they write.
    if shared.writes.load(Ordering::Relaxed) >= WRITES_MAX {
        return (Err(busy("writes")), None);
    }
    let shared = shared.clone();
    let task = async move {
        let _writing = shared.writing();
        let request = shared.drive.request();
        let mut send = send;
        let received = clock::now();
        let answer = match shared.drive.write_begin(received, request, key.clone()) {
            Asked::Now(answer) => Some(answer),
            Asked::Later(turn) => tokio::select! {
                answer = turn => answer.ok(),
                () = send.closed() => None,
            },
        };
        let written: Written = match answer {
            Some(Answer::Reply(Reply::Busy { queue }, stages)) => (Err(busy(&queue)), Some(stages)),
            Some(Answer::Turn) if !send.is_closed() => {
                let started = clock::now();
                let (result, payload) = write(&shared, &key, work, conditional).await;
                let served = clock::now();
                shared.drive.tell(served, Event::WriteEnd { request, key, payload });
                let stages =
                    Stages { received, queued: received, started, served, ..Stages::default() };
                (result, Some(stages))
            }
            // The client left while it waited.
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
            let what = format!("{TIMED_OUT}: the write did not end within {seconds} s; it may yet");
            (Err(unavailable(&what)), None)
        }
    }
}

/// The write itself, in its turn.
async fn write(
    shared: &Arc<Shared>,
    key: &Key,
    work: Work,
    conditional: Option<HeaderMap>,
) -> (Result<Done, Problem>, Option<Object>) {
    let drive = &shared.drive;
    if let Some(headers) = conditional {
        match drive.within("a condition", drive.origin().head(key)).await {
            Ok(object) => {
                if condition::judge(&headers, object.as_ref(), false) != Verdict::Proceed {
                    return (Err(precondition_failed()), None);
                }
            }
            Err(error) => return (Err(origin_problem(&error)), None),
        }
    }
    match work {
        Work::Delete => match drive.origin().delete(key).await {
            Ok(there) => (Ok(Done { etag: None, there }), None),
            Err(error) => (Err(origin_problem(&error)), None),
        },
        Work::Put { staged, copy } => {
            let metadata = staged.metadata().clone();
            let etag = Some(metadata.etag.clone());
            match staged.commit(None).await {
                Ok(()) => {
                    let whole = copy.filter(|(bytes, _)| bytes.len() as u64 == metadata.size);
                    let object = whole.map(|(bytes, _)| Object::new(metadata, bytes));
                    (Ok(Done { etag, there: true }), object)
                }
                Err(error) => (Err(origin_problem(&error)), None),
            }
        }
    }
}

#[derive(Serialize)]
struct Page {
    objects: Vec<PageObject>,
    /// What to give as `after` for the next page; none at the end.
    next: Option<String>,
}

#[derive(Serialize)]
struct PageObject {
    /// The key, percent-encoded as it stands in its address.
    key: String,
    size: u64,
    etag: String,
    modified_unix_us: u64,
    content_type: Option<String>,
}

const KEY_ESCAPED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

fn escaped(key: &[u8]) -> String {
    percent_encoding::percent_encode(key, KEY_ESCAPED).to_string()
}

/// `GET /objects?prefix=&after=&limit=`.
pub async fn list(shared: &Arc<Shared>, lane: &Arc<Lane>, query: &str) -> Answered {
    let mut seen = lane.received(Operation::List, b"");
    let bad = |what: String| Problem::new(StatusCode::BAD_REQUEST, &what);
    let (mut prefix, mut after, mut limit) = (Vec::new(), None, LIST_MAX);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(value).collect();
        match name {
            "prefix" => prefix = decoded,
            "after" => after = Some(decoded),
            "limit" => {
                limit =
                    value.parse().ok().filter(|n| (1..=LIST_MAX).contains(n)).ok_or_else(|| {
                        bad(format!("limit must be a number from 1 to {LIST_MAX}, not {value:?}"))
                    })?;
            }
            _ => return Err(bad(format!("{name:?} is none of prefix, after and limit"))),
        }
    }
    let origin = shared.drive.origin();
    let listing = origin.list(&prefix, after.as_deref(), limit);
    let listed = shared.drive.within("a listing", listing).await.map_err(|e| origin_problem(&e))?;
    let next = (listed.len() == limit).then(|| listed.last().map(|last| escaped(&last.key)));
    let objects = listed.into_iter().map(|listed| PageObject {
        key: escaped(&listed.key),
        size: listed.metadata.size,
        etag: listed.metadata.etag.to_string(),
        modified_unix_us: listed.metadata.modified_unix_us,
        content_type: listed.metadata.attributes.content_type,
    });
    let page = Page { objects: objects.collect(), next: next.flatten() };
    seen.outcome = Outcome::Origin;
    Ok(json(StatusCode::OK, &page, Some(seen)))
}
