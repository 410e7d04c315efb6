//! `/objects/{key}`: GET, HEAD, PUT, DELETE; and the listing at `/objects`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::node::{Asker, Part, Reply, Take};
use ground::Key;
use ground::window::{Nanos, Operation, Outcome};
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, IF_RANGE, RANGE, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use http::{Method, Request, Response, StatusCode};

use super::Shared;
use super::cluster::{self, Sender};
use super::drive::{Answer, Asked, TIMED_OUT};
use super::writes;
use device::object::{Object, headers_of};
use front::http::resumed;
use origin::{Error, Found, KEY_BYTES_MAX, Metadata};
use record::clock;
use wire::body::{Arriving, ReplyBody};
use wire::condition;
use wire::condition::Verdict;
use wire::headers;
use wire::lane::{Lane, Seen};
use wire::problem::Problem;
use wire::range;

pub(super) use wire::problem::HttpResult as Answered;

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

/// How the keys begin that are the server's own: parts of uploads, and the origin's names of keys that a bucket cannot have.
const RESERVED: [&[u8]; 2] = [b"!s3/", b"!key/"];

/// Refuses writes of reserved keys by clients of HTTP and of memcached's protocol. Reading them shows nothing that a client with the token could not have. The
/// cluster's processes write them: a gateway stores parts of uploads on nodes.
pub fn refuse_reserved(method: &Method, key: &[u8], from_client: bool) -> Result<(), Problem> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if from_client && !reads && RESERVED.iter().any(|start| key.starts_with(start)) {
        let what = "keys that begin with !s3/ or !key/ are the server's own; choose another key";
        return Err(Problem::new(StatusCode::FORBIDDEN, what));
    }
    Ok(())
}

const TOO_LATE: &str = "the deadline passed before the request could be served";
pub(super) const MISDIRECTED: &str = "the key, or the order of its writes, is another node's: ask a gateway, or compare the \
    members of both configurations";

/// What a request for one object wants.
pub(super) fn operation_of<B>(request: &Request<B>) -> Result<Operation, Problem> {
    if request.uri().query().is_some() {
        let what = "an object's address has no query; write ? in a key as %3F";
        return Err(Problem::new(StatusCode::BAD_REQUEST, what));
    }
    Ok(match *request.method() {
        Method::GET => Operation::Get,
        Method::HEAD => Operation::Head,
        Method::PUT => Operation::Put,
        Method::DELETE => Operation::Delete,
        _ => {
            let what = "an object takes GET, HEAD, PUT and DELETE";
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, what);
            return Err(problem.with(ALLOW, HeaderValue::from_static("GET, HEAD, PUT, DELETE")));
        }
    })
}

/// Answers a request for one object.
pub async fn object(
    shared: &Arc<Shared>,
    lane: &Arc<Lane>,
    key: Key,
    mut request: Request<Arriving>,
    sender: Sender,
) -> Answered {
    if let Some(waiting) = resumed::<Shared, _>(&mut request) {
        return answer(shared, waiting, key, request.headers()).await;
    }
    let operation = operation_of(&request)?;
    let mut seen = lane.received(operation, &key);
    seen.internal = sender != Sender::Client;
    if let Err(what) = condition::check(request.headers()) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, &what).of(seen));
    }
    match operation {
        Operation::Put => writes::put(shared, seen, key, request).await,
        Operation::Delete => writes::delete(shared, seen, key, request.headers()).await,
        _ => {
            let asker = cluster::asker(shared, sender, request.headers());
            get(shared, seen, key, request.headers(), asker).await
        }
    }
}

/// Adds what every reply says of how it came about.
pub(super) fn add_stages(seen: &Seen, asked: &HeaderMap, to: &mut HeaderMap) {
    to.insert(headers::OUTCOME.clone(), HeaderValue::from_static(seen.outcome.as_str()));
    let stages = seen.stages.unwrap_or_default();
    to.insert(headers::QUEUE_LENGTH.clone(), HeaderValue::from(stages.length_left));
    if seen.internal {
        to.insert(headers::NODE_LENGTH.clone(), HeaderValue::from(stages.node_length));
        if seen.warm != 0 {
            to.insert(headers::WARM.clone(), HeaderValue::from(u16::from(seen.warm)));
        }
    }
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

async fn get(
    shared: &Arc<Shared>,
    seen: Seen,
    key: Key,
    headers: &HeaderMap,
    asker: Asker,
) -> Answered {
    let deadline = match cluster::deadline(headers, seen.received) {
        Ok(deadline) => deadline,
        Err(problem) => return Err(problem.of(seen)),
    };
    // The time that the engine is told is that at which the request had come: nothing is awaited
    // between, so a lease that holds then makes what it answers the newest that the client may expect.
    let take = take_of(&seen, headers, asker);
    let asked = Some(shared.drive.get(seen.received, key.clone(), (asker, deadline, take)));
    answer(shared, Waiting { seen, asker, deadline, asked }, key, headers).await
}

/// A read that the engine was asked for.
pub struct Waiting {
    /// The request.
    pub seen: Seen,
    /// Who asked.
    pub asker: Asker,
    /// When nobody waits for it any more.
    pub deadline: Option<Nanos>,
    /// The engine's answer; `None` if there will be none because the process stops.
    pub asked: Option<Asked>,
}

/// The reply to a read, once the engine has answered.
async fn answer(shared: &Arc<Shared>, waiting: Waiting, key: Key, headers: &HeaderMap) -> Answered {
    let Waiting { mut seen, asker, deadline, asked } = waiting;
    let answer = match asked.ok_or_else(Problem::stopping)? {
        Asked::Now(answer) => answer,
        Asked::Later(receive) => match until(deadline, receive).await {
            Some(answer) => answer.map_err(|_| Problem::stopping())?,
            None => return Err(too_late().of(seen)),
        },
    };
    let Answer::Reply(reply, stages) = answer else { return Err(Problem::stopping()) };
    seen.stages = Some(stages);
    match reply {
        Reply::Found { payload, outcome, age, .. } if asker == Asker::Peer => {
            seen.outcome = outcome;
            Ok(filled(seen, &payload, age, headers))
        }
        Reply::Found { payload, outcome, warm, .. } => {
            (seen.outcome, seen.warm) = (outcome, warm);
            Ok(found(seen, &payload, headers))
        }
        Reply::Opened { payload, outcome } => {
            seen.outcome = outcome;
            Ok(found(seen, &payload, headers))
        }
        Reply::NotHere => {
            seen.outcome = Outcome::Miss;
            Err(Problem::new(StatusCode::NOT_FOUND, "this node does not have it").of(seen))
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
        Reply::TooLate => Err(too_late().of(seen)),
        Reply::NotMine | Reply::NotPrimary => {
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED).of(seen))
        }
    }
}

/// How a reader takes an object that memory does not have.
fn take_of(seen: &Seen, headers: &HeaderMap, asker: Asker) -> Take {
    if asker == Asker::Peer {
        return Take::Whole;
    }
    if seen.is_head() {
        return Take::Part(Part::Metadata);
    }
    // Whether `If-Range` holds shows with the metadata.
    let range = headers.get(RANGE).filter(|_| !headers.contains_key(IF_RANGE));
    let part = range.and_then(|range| range::part(range.to_str().ok()?));
    part.map_or(Take::Pieces, Take::Part)
}

/// What comes before the deadline; `None` if it does not.
async fn until<T>(deadline: Option<Nanos>, future: impl Future<Output = T>) -> Option<T> {
    let Some(deadline) = deadline else { return Some(future.await) };
    let left = Duration::from_nanos(deadline.saturating_sub(clock::now()));
    tokio::time::timeout(left, future).await.ok()
}

pub(super) fn too_late() -> Problem {
    Problem::new(StatusCode::GATEWAY_TIMEOUT, TOO_LATE)
}

/// The stored form, for another node that keeps a copy.
fn filled(mut seen: Seen, object: &Object, age: Nanos, headers: &HeaderMap) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty(None));
    add_stages(&seen, headers, response.headers_mut());
    response.headers_mut().insert(headers::AGE_NS.clone(), HeaderValue::from(age));
    seen.size = object.metadata().size;
    seen.bytes = seen.size;
    let block = Bytes::copy_from_slice(object.block());
    *response.body_mut() = ReplyBody::two(block, object.body().clone(), Some(seen));
    response
}

pub(super) fn not_found(headers: &HeaderMap) -> Problem {
    // `If-Match` of what is not there fails before its absence is told.
    match condition::judge(headers, None, true) {
        Verdict::Failed => precondition_failed(),
        _ => Problem::new(StatusCode::NOT_FOUND, "there is no object of this key"),
    }
}

pub(super) fn precondition_failed() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "the object is not as the request's condition says",
    )
}

pub(super) fn busy(queue: &str) -> Problem {
    let what = format!("the queue `{queue}` is full; try again later");
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, &what)
        .with(RETRY_AFTER, HeaderValue::from_static("1"));
    match HeaderValue::from_str(queue) {
        Ok(queue) => problem.with(headers::BUSY.clone(), queue),
        Err(_) => problem,
    }
}

pub(super) fn unavailable(reason: &str) -> Problem {
    let status = if reason.starts_with(TIMED_OUT) {
        StatusCode::GATEWAY_TIMEOUT
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Problem::new(status, reason).with(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// The reply to an error of the origin.
pub(super) fn origin_problem(error: &Error) -> Problem {
    let status = match error {
        Error::Full(_) | Error::ReadOnly(_) => StatusCode::INSUFFICIENT_STORAGE,
        Error::Upload(_) | Error::Refused(_) => StatusCode::BAD_REQUEST,
        Error::Fenced(_) => StatusCode::MISDIRECTED_REQUEST,
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
    if let Some(assembly) = object.assembly() {
        let wanted = match (&range, status) {
            (Some(range), _) => range.clone(),
            (None, StatusCode::OK) => 0..seen.size,
            _ => 0..0,
        };
        let reader = assembly.reader(&wanted);
        close_head(&mut seen, &mut response, range, object.metadata().size);
        *response.body_mut() = match seen.bytes {
            0 => ReplyBody::empty(Some(seen)),
            left => ReplyBody::pieces(reader, left, seen),
        };
        return response;
    }
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
pub(super) fn selected(
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

/// Which part of an object a reply has.
pub(super) fn content_range(
    status: StatusCode,
    range: Option<&std::ops::Range<u64>>,
    size: u64,
) -> Option<HeaderValue> {
    let text = match (range, status) {
        (Some(range), _) => format!("bytes {}-{}/{size}", range.start, range.end - 1),
        (None, StatusCode::RANGE_NOT_SATISFIABLE) => format!("bytes */{size}"),
        _ => return None,
    };
    HeaderValue::from_str(&text).ok()
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
    if let Some(value) = content_range(status, range.as_ref(), size) {
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

/// Refuses a PUT that does not say how its bytes end.
pub(super) fn no_length(headers: &HeaderMap) -> Option<Problem> {
    let said = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    let what = "send Content-Length (0 for an empty object) or chunks";
    (!said).then(|| Problem::new(StatusCode::LENGTH_REQUIRED, what))
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
