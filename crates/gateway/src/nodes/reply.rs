//! The reply of a node or of the origin.

use bytes::Bytes;
use engine::gateway::{Head, Status};
use engine::node::FailureKind;
use engine::route::NodeId;
use ground::window::Outcome;
use http::StatusCode;
use http::header::HeaderMap;
use origin::Chunks;

use super::super::backend::Reply;
use peer::{Fault, Incoming};
use wire::headers;

/// A body of at most this many bytes is read completely before the client is sent the head, so that
/// a node that fails meanwhile costs another attempt, not a broken reply.
pub const GATHERED_BYTES_MAX: u64 = 256 * 1024;
/// Maximum bytes of a reply that are searched for an error text.
const REASON_BYTES_MAX: usize = 4 * 1024;

/// The body of a reply.
pub enum Body {
    /// The complete body.
    Whole(Bytes),
    /// Streamed from a node.
    Node(Incoming),
    /// Streamed from the origin, with the body's length in bytes.
    Origin(Box<dyn Chunks>, u64),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Body {
        Body::Whole(Bytes::new())
    }
}

/// A reply to an attempt.
pub struct NodeReply {
    /// The node that replied; `None` for the origin.
    pub node: Option<NodeId>,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
}

impl NodeReply {
    /// Converts a node's reply; reads a small body completely.
    ///
    /// # Errors
    ///
    /// If the connection breaks while the body is read.
    pub async fn receive(node: NodeId, reply: peer::Reply) -> Result<NodeReply, Fault> {
        let peer::Reply { status, headers, body } = reply;
        let body = if body.bytes_left() <= GATHERED_BYTES_MAX {
            Body::Whole(body.gather_in_place(GATHERED_BYTES_MAX as usize).await?)
        } else {
            Body::Node(body)
        };
        Ok(NodeReply { node: Some(node), status, headers, body })
    }

    /// Bytes of the body that are still to be read.
    pub fn length(&self) -> u64 {
        match &self.body {
            Body::Whole(bytes) => bytes.len() as u64,
            Body::Node(incoming) => incoming.bytes_left(),
            Body::Origin(_, length) => *length,
        }
    }
}

impl Reply for NodeReply {
    fn head(&self) -> Head {
        let text = |name| self.headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name| text(name).and_then(|text| text.parse::<u32>().ok());
        let node_length = number(&headers::NODE_LENGTH).or_else(|| number(&headers::QUEUE_LENGTH));
        let outcome = text(&headers::OUTCOME).and_then(Outcome::parse);
        let judged = self.headers.contains_key(&headers::OUTCOME);
        let status = match self.status {
            StatusCode::MISDIRECTED_REQUEST => Status::Misdirected,
            // The node has another configuration, unless it has carried the request out: then the origin has another key.
            StatusCode::CONFLICT if !judged => Status::Misdirected,
            // It was not the client's credentials that the node refused.
            StatusCode::UNAUTHORIZED => Status::Unavailable,
            StatusCode::SERVICE_UNAVAILABLE if !judged => Status::Busy,
            StatusCode::SERVICE_UNAVAILABLE if self.headers.contains_key(&headers::BUSY) => {
                Status::Busy
            }
            StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
            | StatusCode::BAD_GATEWAY => Status::Unavailable,
            _ => Status::Final,
        };
        Head {
            status,
            outcome: outcome.unwrap_or(Outcome::Unknown),
            node_length: node_length.unwrap_or(0),
            warm: number(&headers::WARM).and_then(|warm| u8::try_from(warm).ok()).unwrap_or(0),
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self.body, Body::Whole(_))
    }

    fn failure_kind(&self) -> FailureKind {
        store::failure_kind(&self.headers)
    }

    fn reason(&self) -> Option<String> {
        let Body::Whole(bytes) = &self.body else { return None };
        let text = bytes.get(..REASON_BYTES_MAX).unwrap_or(bytes);
        let value: serde_json::Value = serde_json::from_slice(text).ok()?;
        Some(value.get("error")?.as_str()?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_conflict_that_the_node_has_judged_is_final() {
        let mut carried = HeaderMap::new();
        let status = |headers: &HeaderMap| {
            let headers = headers.clone();
            let body = Body::empty();
            NodeReply { node: None, status: StatusCode::CONFLICT, headers, body }.head().status
        };
        assert_eq!(status(&carried), Status::Misdirected);
        carried.insert(headers::OUTCOME.clone(), HeaderValue::from_static("error"));
        assert_eq!(status(&carried), Status::Final);
    }
}
