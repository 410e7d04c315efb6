//! A node's reply to a request for an object as the store's result: the status and the headers that a node's front writes,
//! read back.

use engine::node::FailureKind;
use http::StatusCode;
use http::header::{CONTENT_RANGE, HeaderMap};

use super::backend::Reply as _;
use super::nodes::reply::NodeReply;
use device::object::metadata_of;
use store::Error;
use wire::headers;

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

/// The part of the object that a reply has: 206.
pub fn range_of(reply: &NodeReply) -> Option<std::ops::Range<u64>> {
    if reply.status != StatusCode::PARTIAL_CONTENT {
        return None;
    }
    let range = text(&reply.headers, &CONTENT_RANGE)?.strip_prefix("bytes ")?;
    let (first, last) = range.split_once('/')?.0.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
}

/// Why a node refused a request for good.
pub fn error_of(reply: &NodeReply) -> Error {
    let reason = || {
        let canonical = reply.status.canonical_reason().unwrap_or("refused");
        reply.reason().unwrap_or_else(|| canonical.to_owned())
    };
    let version = metadata_of(&reply.headers).map(Into::into);
    match (reply.status, version) {
        (StatusCode::NOT_FOUND, _) => return Error::NotFound,
        (StatusCode::PRECONDITION_FAILED, version) => return Error::PreconditionFailed(version),
        (StatusCode::NOT_MODIFIED, Some(version)) => return Error::NotModified(version),
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(version)) => {
            return Error::Unsatisfiable(version);
        }
        _ => {}
    }
    match reply.status {
        StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge(reason()),
        StatusCode::CONFLICT => Error::Conflict(reason()),
        StatusCode::INSUFFICIENT_STORAGE if reply.failure_kind() == FailureKind::Denied => {
            Error::Denied(reason())
        }
        StatusCode::INSUFFICIENT_STORAGE => Error::Full(reason()),
        status if status.is_client_error() => Error::Invalid(reason()),
        // Of a write: a read is asked of another node.
        StatusCode::GATEWAY_TIMEOUT => Error::TimedOut(reason()),
        StatusCode::SERVICE_UNAVAILABLE if reply.headers.contains_key(&headers::BUSY) => {
            Error::Busy(text(&reply.headers, &headers::BUSY).map(str::to_owned), reason())
        }
        _ => Error::Unavailable(reason()),
    }
}

/// How long the queue was that served the request.
pub fn queue_length_of(headers: &HeaderMap) -> u32 {
    text(headers, &headers::QUEUE_LENGTH).and_then(|length| length.parse().ok()).unwrap_or(0)
}
