//! Reads from the origin, for requests that no node can serve.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::gateway::Failed;
use ground::window::Outcome;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue};
use origin::Origin;

use super::super::backend::Failure;
use super::super::request::NodeRequest;
use super::reply::{Body, NodeReply};
use device::object::headers_of;
use store::origin_reads;
use store::problem_of;
use store::{Error, FoundObject};
use wire::headers;

/// Reads from the origin, as a node would.
pub async fn read(
    origin: &Arc<dyn Origin>,
    timeout: Duration,
    request: &NodeRequest,
) -> Result<NodeReply, Failure> {
    let broken = |reason: String| Failure { kind: Failed::Broken, reason };
    let Some(read) = &request.read else {
        return Err(broken("the origin: it stores shards but cannot search them".to_owned()));
    };
    let (status, version, length, found) =
        match origin_reads::read(origin, timeout, read, None).await {
            Ok(found) => {
                let whole = found.range.is_none();
                let status = if whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
                (status, found.version.clone(), Some(found.length()), Some(found))
            }
            Err(Error::NotModified(version)) => (StatusCode::NOT_MODIFIED, version, None, None),
            Err(Error::PreconditionFailed(Some(version))) => {
                (StatusCode::PRECONDITION_FAILED, version, Some(0), None)
            }
            Err(Error::Unsatisfiable(version)) => {
                (StatusCode::RANGE_NOT_SATISFIABLE, version, Some(0), None)
            }
            Err(error @ (Error::NotFound | Error::PreconditionFailed(None))) => {
                return Ok(reply_of(&error, Outcome::Miss));
            }
            // A reply, as a node's: its header says that the origin has failed for good.
            Err(error @ (Error::Damaged(_) | Error::Unreadable(_))) => {
                return Ok(reply_of(&error, Outcome::Error));
            }
            Err(error) => return Err(broken(format!("the origin: {}", error.text()))),
        };
    let mut headers: HeaderMap = headers_of(&version).into_iter().collect();
    headers.insert(headers::OUTCOME.clone(), HeaderValue::from_static(Outcome::Origin.as_str()));
    let range = match (&found, status) {
        (Some(FoundObject { range: Some(range), .. }), _) => {
            Some(format!("bytes {}-{}/{}", range.start, range.end - 1, version.size))
        }
        (_, StatusCode::RANGE_NOT_SATISFIABLE) => Some(format!("bytes */{}", version.size)),
        _ => None,
    };
    let range = range.and_then(|text| HeaderValue::try_from(text).ok());
    headers.extend(range.map(|value| (CONTENT_RANGE, value)));
    headers.extend(length.map(|length| (CONTENT_LENGTH, HeaderValue::from(length))));
    let body = match (found, length) {
        (Some(found), Some(length @ 1..)) if !read.is_head => {
            Body::Origin(found.body.into_chunks(), length)
        }
        _ => Body::empty(),
    };
    Ok(NodeReply { node: None, status, headers, body })
}

/// The reply that a node gives for an error.
fn reply_of(error: &Error, outcome: Outcome) -> NodeReply {
    let problem = problem_of(error);
    let (status, text): (StatusCode, Bytes) = problem.plain();
    let mut headers: HeaderMap = problem.headers().iter().cloned().collect();
    headers.insert(headers::OUTCOME.clone(), HeaderValue::from_static(outcome.as_str()));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    NodeReply { node: None, status, headers, body: Body::Whole(text) }
}
