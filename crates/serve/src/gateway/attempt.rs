//! One try of a read: at a node, or at the origin.

use std::time::Duration;

use bytes::Bytes;
use engine::gateway::{Head, Status};
use engine::route::NodeId;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use model::window::{Nanos, Outcome};

use super::super::object::headers_of;
use super::super::objects::{content_range, selected};
use super::super::{drive, headers};
use super::Access;
use super::wanted::Wanted;
use crate::peer::{Fault, Incoming, Outgoing, Reply};
use origin::{Chunks, Found};
use record::clock;

/// Answers of at most so many bytes are gathered whole before the client hears of them: a node that
/// dies meanwhile costs another try, not a broken reply.
pub const GATHERED_BYTES_MAX: u64 = 256 * 1024;
/// The longest text of an error that is shown.
const WORDS_BYTES_MAX: usize = 4 * 1024;

/// The body of an answer.
pub enum Body {
    /// All there.
    Whole(Bytes),
    /// On its way from a node.
    Node(Incoming),
    /// On its way from the origin.
    Origin(Box<dyn Chunks>, u64),
}

/// An answer to a try.
pub struct Answer {
    /// Which node's; none: the origin's.
    pub node: Option<NodeId>,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
}

impl Answer {
    /// Of a node's reply: small ones are gathered.
    pub async fn of(node: NodeId, reply: Reply) -> Result<Answer, Fault> {
        let Reply { status, headers, body } = reply;
        let body = if body.bytes_left() <= GATHERED_BYTES_MAX {
            Body::Whole(body.gather_in_place(GATHERED_BYTES_MAX as usize).await?)
        } else {
            Body::Node(body)
        };
        Ok(Answer { node: Some(node), status, headers, body })
    }

    /// What decisions need of it.
    pub fn head(&self) -> Head {
        let text = |name| self.headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name| text(name).and_then(|text| text.parse::<u32>().ok());
        let node_length = number(&headers::NODE_LENGTH).or_else(|| number(&headers::QUEUE_LENGTH));
        let outcome = text(&headers::OUTCOME).and_then(Outcome::parse);
        let judged = self.headers.contains_key(&headers::OUTCOME);
        let status = match self.status {
            StatusCode::MISDIRECTED_REQUEST | StatusCode::CONFLICT => Status::Misdirected,
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

    /// The words of an error.
    pub fn words(&self) -> Option<String> {
        let Body::Whole(bytes) = &self.body else { return None };
        let text = bytes.get(..WORDS_BYTES_MAX).unwrap_or(bytes);
        let value: serde_json::Value = serde_json::from_slice(text).ok()?;
        Some(value.get("error")?.as_str()?.to_owned())
    }

    /// Bytes of the body.
    pub fn length(&self) -> u64 {
        match &self.body {
            Body::Whole(bytes) => bytes.len() as u64,
            Body::Node(incoming) => incoming.bytes_left(),
            Body::Origin(_, length) => *length,
        }
    }
}

/// Why a try has no answer, in words.
pub type Failure = (engine::gateway::Failed, String);

/// What a fault means to the engine.
pub fn failure_of(fault: &Fault, name: &str) -> Failure {
    let why = match fault {
        Fault::Connect(_) => engine::gateway::Failed::Connect,
        _ => engine::gateway::Failed::Broken,
    };
    (why, format!("{name}: {fault}"))
}

/// Reads from a node.
pub async fn from_node(
    access: &Access,
    wanted: &Wanted,
    node: NodeId,
    avoid: Option<NodeId>,
    deadline: Nanos,
) -> Result<Answer, Failure> {
    let named = |fault: Fault| failure_of(&fault, access.name(node));
    let Some(pool) = access.pools.get(node) else {
        return Err(named(Fault::Request("there is no such node".to_owned())));
    };
    let left = deadline.saturating_sub(clock::now());
    let headers = wanted.headers(avoid.and_then(|node| access.names.get(node)), Some(left));
    let sent = pool.send(&wanted.method, &wanted.path, &headers, Outgoing::Empty).await;
    Answer::of(node, sent.map_err(named)?).await.map_err(named)
}

/// Reads from the origin, as a node would.
pub async fn from_origin(access: &Access, wanted: &Wanted) -> Result<Answer, Failure> {
    let failed =
        |error: origin::Error| (engine::gateway::Failed::Broken, format!("the origin: {error}"));
    if !wanted.path.starts_with("/objects/") {
        let what = "the origin: it holds shards, and does not search".to_owned();
        return Err((engine::gateway::Failed::Broken, what));
    }
    let asked = wanted.header_map();
    let (origin, key) = (&access.origin, &wanted.key);
    for _ in 0..3 {
        let whole = within(access.origin_timeout, origin.get(key, None)).await.map_err(failed)?;
        let Some(Found { metadata, mut body }) = whole else { return Ok(not_found(&asked)) };
        let (status, range) = selected(&metadata, &asked);
        if let Some(range) = range.clone().filter(|_| wanted.method == Method::GET) {
            let part = within(access.origin_timeout, origin.get(key, Some(range))).await;
            match part.map_err(failed)? {
                Some(part) if part.metadata.etag == metadata.etag => body = part.body,
                // It was written in between.
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
            _ if wanted.method == Method::HEAD => Body::Whole(Bytes::new()),
            _ => Body::Origin(body, length),
        };
        return Ok(Answer { node: None, status, headers, body });
    }
    let what = "the origin: the object is written faster than it can be read".to_owned();
    Err((engine::gateway::Failed::Broken, what))
}

async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, origin::Error>>,
) -> Result<T, origin::Error> {
    drive::within(timeout, "a read", request).await
}

fn not_found(asked: &HeaderMap) -> Answer {
    let response = super::super::objects::not_found(asked).plain();
    let (status, text) = response;
    let mut headers = HeaderMap::new();
    headers.insert(headers::OUTCOME.clone(), HeaderValue::from_static(Outcome::Miss.as_str()));
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Answer { node: None, status, headers, body: Body::Whole(text) }
}
