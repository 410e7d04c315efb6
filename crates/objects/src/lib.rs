//! HTTP's requests for one object, `/objects/{key}`: read into those of a [`Store`], and its results written as replies.

mod digests;
pub mod list;

use bytes::Bytes;
use engine::node::Asker;
use ground::Key;
use ground::hex;
use ground::window::Operation;
use http::header::{
    ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, RANGE, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use origin::Attributes;
use record::clock;
use std::sync::Arc;

use device::object::{META_PREFIX, headers_of};
use store::{
    self, Body, DeleteRequest, Error, FoundObject, PutRequest, ReadRequest, Recorded, Store,
    Version, WriteTerms,
};
use wire::body::{ReplyBody, RequestBody};
use wire::condition::Conditions;
use wire::headers;
use wire::lane::{RequestRecord, ThreadRecorder};
use wire::problem::{HttpResult, Problem};
use wire::range::ByteRange;

/// The process that sent a request, as far as it matters for objects.
#[derive(Clone, Copy, Default)]
pub struct Caller {
    /// Whether it is a gateway or another node, which gets additional headers.
    pub is_internal: bool,
    /// Its role in a read; `None`: a client's.
    pub asker: Option<Asker>,
}

/// The operation requested on one object.
fn operation_of<B>(request: &Request<B>) -> Result<Operation, Problem> {
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

/// The attributes of an object that headers give.
fn attributes(headers: &HeaderMap) -> Result<Attributes, Error> {
    let content_type = headers
        .get(CONTENT_TYPE)
        .map(|value| store::header_text("content-type", value))
        .transpose()?;
    let mut user = Vec::new();
    for (name, value) in headers {
        if let Some(short) = name.as_str().strip_prefix(META_PREFIX) {
            user.push((short.to_owned(), store::header_text(name.as_str(), value)?));
        }
    }
    user.sort();
    let content_type = content_type.filter(|text| !text.is_empty());
    let attributes = Attributes { content_type, user };
    store::check_attributes(&attributes)?;
    Ok(attributes)
}

/// Answers a request for one object.
pub async fn object(
    store: &dyn Store,
    lane: &Arc<ThreadRecorder>,
    key: Key,
    request: Request<Incoming>,
    caller: Caller,
) -> HttpResult {
    let operation = operation_of(&request)?;
    let mut record = lane.received(operation, &key);
    record.internal = caller.is_internal;
    record.join_trace(request.headers());
    match operation {
        Operation::Get | Operation::Head => {
            let read = match read_request(key, request.method(), request.headers(), &record) {
                Ok(read) => ReadRequest { asker: caller.asker, ..read },
                Err(problem) => return Err(problem.with_record(record)),
            };
            let found = store.get(&read, &mut record).await;
            reply((found, record), read.is_timed)
        }
        Operation::Put => put(store, key, request, record).await,
        _ => delete(store, key, request.headers(), record).await,
    }
}

/// The read that a GET or a HEAD asks for.
pub fn read_request(
    key: Key,
    method: &Method,
    headers: &HeaderMap,
    record: &RequestRecord,
) -> Result<ReadRequest, Problem> {
    let range = headers.get(RANGE).and_then(|value| ByteRange::parse(value.to_str().ok()?));
    Ok(ReadRequest {
        key,
        is_head: *method == Method::HEAD,
        range,
        conditions: conditions(headers)?,
        deadline: cluster::deadline(headers, record.received)?,
        is_timed: headers.contains_key(&headers::STAGES),
        ..ReadRequest::default()
    })
}

fn conditions(headers: &HeaderMap) -> Result<Conditions, Problem> {
    Conditions::parse(headers).map_err(|what| Problem::new(StatusCode::BAD_REQUEST, &what))
}

fn terms(headers: &HeaderMap, record: &RequestRecord) -> Result<WriteTerms, Problem> {
    Ok(WriteTerms {
        conditions: conditions(headers)?,
        deadline: cluster::deadline(headers, record.received)?,
        epoch: cluster::epoch(headers)?,
        is_timed: headers.contains_key(&headers::STAGES),
    })
}

/// The write that a PUT asks for.
fn put_request(
    key: Key,
    request: Request<Incoming>,
    record: &RequestRecord,
) -> Result<PutRequest, Problem> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let terms = terms(&headers, record)?;
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
        return Err(Problem::new(status, what));
    }
    let told = headers.get(&headers::SHA256).filter(|_| record.internal);
    let sha256 = told.and_then(|value| value.to_str().ok()).and_then(hex::decode_hash);
    let attributes = attributes(&headers).map_err(|error| store::problem_of(&error))?;
    let body = digests::verified(&headers, RequestBody::Http(body))?;
    Ok(PutRequest { key, attributes, body, sha256, terms })
}

async fn put(
    store: &dyn Store,
    key: Key,
    request: Request<Incoming>,
    mut record: RequestRecord,
) -> HttpResult {
    let put = match put_request(key, request, &record) {
        Ok(put) => put,
        Err(problem) => return Err(problem.with_record(record)),
    };
    let is_timed = put.terms.is_timed;
    match store.put(put, &mut record).await {
        Ok(etag) => {
            let mut response = Response::new(ReplyBody::empty(None));
            if let Ok(value) = HeaderValue::from_str(&format!("\"{etag}\"")) {
                response.headers_mut().insert(ETAG, value);
            }
            add_stages(&record, is_timed, response.headers_mut());
            *response.body_mut() = ReplyBody::empty(Some(record));
            Ok(response)
        }
        Err(error) => refused(error, record, is_timed),
    }
}

async fn delete(
    store: &dyn Store,
    key: Key,
    headers: &HeaderMap,
    mut record: RequestRecord,
) -> HttpResult {
    let terms = match terms(headers, &record) {
        Ok(terms) => terms,
        Err(problem) => return Err(problem.with_record(record)),
    };
    let is_timed = terms.is_timed;
    match store.delete(DeleteRequest { key, terms }, &mut record).await {
        // Deleting an object that does not exist succeeds.
        Ok(_) => {
            let mut response = Response::new(ReplyBody::empty(None));
            *response.status_mut() = StatusCode::NO_CONTENT;
            add_stages(&record, is_timed, response.headers_mut());
            *response.body_mut() = ReplyBody::empty(Some(record));
            Ok(response)
        }
        Err(error) => refused(error, record, is_timed),
    }
}

/// Adds what every reply says of how it came about.
fn add_stages(record: &RequestRecord, is_timed: bool, to: &mut HeaderMap) {
    to.insert(headers::OUTCOME.clone(), HeaderValue::from_static(record.outcome.as_str()));
    let stages = record.stages.unwrap_or_default();
    to.insert(headers::QUEUE_LENGTH.clone(), HeaderValue::from(stages.length_left));
    if record.internal {
        to.insert(headers::NODE_LENGTH.clone(), HeaderValue::from(stages.node_length));
        if record.warm != 0 {
            to.insert(headers::WARM.clone(), HeaderValue::from(u16::from(record.warm)));
        }
    }
    if let Some(replier) = &record.replier {
        to.insert(headers::NODE.clone(), replier.name.clone());
    }
    if is_timed {
        if let Some(stages) = record.replier.as_ref().and_then(|by| by.stages.as_ref()) {
            to.insert(headers::NODE_STAGES.clone(), stages.clone());
        }
        let since = |at: u64| at.saturating_sub(record.received);
        let text = format!(
            "queued_ns={},started_ns={},served_ns={},replied_ns={},length_met={}",
            since(stages.queued),
            since(stages.started),
            since(stages.served),
            since(clock::now()),
            stages.length_met
        );
        if let Ok(value) = HeaderValue::from_str(&text) {
            to.insert(headers::STAGES.clone(), value);
        }
    }
}

/// The reply to a read.
pub fn reply((found, record): Recorded, is_timed: bool) -> HttpResult {
    match found {
        Ok(found) if found.age.is_some() => Ok(filled(record, found, is_timed)),
        Ok(found) => Ok(whole_or_part(record, found, is_timed)),
        Err(error) => refused(error, record, is_timed),
    }
}

/// The head of a reply about an object.
fn head(
    status: StatusCode,
    version: &Version,
    record: &RequestRecord,
    is_timed: bool,
) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty(None));
    *response.status_mut() = status;
    for (name, value) in headers_of(version) {
        response.headers_mut().append(name, value);
    }
    add_stages(record, is_timed, response.headers_mut());
    response
}

fn whole_or_part(record: RequestRecord, found: FoundObject, is_timed: bool) -> Response<ReplyBody> {
    let status = match found.range {
        Some(_) => StatusCode::PARTIAL_CONTENT,
        None => StatusCode::OK,
    };
    let mut response = head(status, &found.version, &record, is_timed);
    let headers = response.headers_mut();
    if let Some(range) = &found.range {
        let text = format!("bytes {}-{}/{}", range.start, range.end - 1, found.version.size);
        headers.extend(HeaderValue::try_from(text).ok().map(|value| (CONTENT_RANGE, value)));
    }
    // A HEAD is answered as the GET would be, without the bytes.
    headers.insert(CONTENT_LENGTH, HeaderValue::from(found.length()));
    *response.body_mut() = found.body.into_reply(record);
    response
}

/// The stored form, for another node that keeps a copy.
fn filled(record: RequestRecord, found: FoundObject, is_timed: bool) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty(None));
    add_stages(&record, is_timed, response.headers_mut());
    let age = HeaderValue::from(found.age.unwrap_or(0));
    response.headers_mut().insert(headers::AGE_NS.clone(), age);
    let block = Bytes::from(found.version.encode());
    *response.body_mut() = match found.body {
        Body::Bytes(bytes) => ReplyBody::two(block, bytes, Some(record)),
        // Copies are asked for as a whole.
        _ => ReplyBody::empty(Some(record)),
    };
    response
}

/// The reply to a request that was not carried out. What refuses because of the object itself tells of it.
fn refused(error: Error, record: RequestRecord, is_timed: bool) -> HttpResult {
    let (status, version) = match error {
        Error::NotModified(version) => (StatusCode::NOT_MODIFIED, version),
        Error::PreconditionFailed(Some(version)) => (StatusCode::PRECONDITION_FAILED, version),
        Error::Unsatisfiable(version) => (StatusCode::RANGE_NOT_SATISFIABLE, version),
        error => return Err(store::problem_of(&error).with_record(record)),
    };
    let mut response = head(status, &version, &record, is_timed);
    let headers = response.headers_mut();
    if status == StatusCode::RANGE_NOT_SATISFIABLE {
        let text = format!("bytes */{}", version.size);
        headers.extend(HeaderValue::try_from(text).ok().map(|value| (CONTENT_RANGE, value)));
    }
    if status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    *response.body_mut() = ReplyBody::empty(Some(record));
    Ok(response)
}

/// Refuses writes of reserved keys by clients.
pub fn refuse_reserved(method: &Method, key: &[u8], from_client: bool) -> Result<(), Problem> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match from_client && !reads {
        true => store::refuse_reserved(key).map_err(|error| store::problem_of(&error)),
        false => Ok(()),
    }
}
