//! Reads from the origin, for requests that no node can serve.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::gateway::Failed;
use ground::window::Outcome;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use origin::{Found, Origin};

use super::super::backend::Failure;
use super::super::request::NodeRequest;
use super::reply::{Body, NodeReply};
use crate::drive;
use crate::objects::{self, content_range, selected};
use device::object::headers_of;
use wire::headers;

/// Reads from the origin, as a node would.
pub async fn read(
    origin: &Arc<dyn Origin>,
    timeout: Duration,
    request: &NodeRequest,
) -> Result<NodeReply, Failure> {
    let broken = |reason: String| Failure { kind: Failed::Broken, reason };
    let failed = |error: origin::Error| broken(format!("the origin: {error}"));
    if !request.path.starts_with("/objects/") {
        return Err(broken("the origin: it stores shards but cannot search them".to_owned()));
    }
    let given = request.header_map();
    let key = &request.key;
    for _ in 0..3 {
        let whole = within(timeout, origin.get(key, None)).await.map_err(failed)?;
        let Some(Found { metadata, mut body }) = whole else { return Ok(not_found(&given)) };
        let (status, range) = selected(&metadata, &given);
        if let Some(range) = range.clone().filter(|_| request.method == Method::GET) {
            let part = within(timeout, origin.get(key, Some(range))).await;
            match part.map_err(failed)? {
                Some(part) if part.metadata.etag == metadata.etag => body = part.body,
                // The object was replaced between the two reads.
                _ => continue,
            }
        }
        let mut headers: HeaderMap = headers_of(&metadata).into_iter().collect();
        headers.insert(headers::OUTCOME.clone(), HeaderValue::from_static("origin"));
        let length = match (&range, status) {
            (Some(range), _) => range.end - range.start,
            (None, StatusCode::OK) => metadata.size,
            _ => 0,
        };
        if let Some(value) = content_range(status, range.as_ref(), metadata.size) {
            headers.insert(CONTENT_RANGE, value);
        }
        if status != StatusCode::NOT_MODIFIED {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let body = match length {
            0 => Body::Whole(Bytes::new()),
            _ if request.method == Method::HEAD => Body::Whole(Bytes::new()),
            _ => Body::Origin(body, length),
        };
        return Ok(NodeReply { node: None, status, headers, body });
    }
    Err(broken("the origin: the object was replaced during each of 3 reads".to_owned()))
}

async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, origin::Error>>,
) -> Result<T, origin::Error> {
    drive::within(timeout, "a read", request).await
}

fn not_found(given: &HeaderMap) -> NodeReply {
    let response = objects::not_found(given).plain();
    let (status, text) = response;
    let mut headers = HeaderMap::new();
    headers.insert(headers::OUTCOME.clone(), HeaderValue::from_static(Outcome::Miss.as_str()));
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    NodeReply { node: None, status, headers, body: Body::Whole(text) }
}
