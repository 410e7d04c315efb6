//! A client's request in the form that is sent to nodes.

use bytes::Bytes;
use ground::Key;
use ground::hex;
use ground::window::Nanos;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RANGE};

use device::object::META_PREFIX;
use origin::Attributes;
use store::escaped;
use store::{DeleteRequest, PutRequest, ReadRequest};
use wire::headers;
use wire::problem::Problem;
use wire::range::ByteRange;
use wire::traces::TraceParent;

/// A request for one key.
pub struct NodeRequest {
    pub method: Method,
    pub key: Key,
    /// The percent-encoded path.
    pub path: String,
    /// What a node needs to know beside them.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, of a question that is too long for a path.
    pub body: Option<Bytes>,
    /// The read of an object that it is, which the origin could answer too.
    pub read: Option<ReadRequest>,
}

impl NodeRequest {
    fn new(method: Method, key: &Key, is_timed: bool) -> NodeRequest {
        let path = format!("/objects/{}", escaped(key));
        let mut headers = Vec::with_capacity(4);
        if is_timed {
            headers.push((headers::STAGES.clone(), HeaderValue::from_static("1")));
        }
        NodeRequest { method, key: key.clone(), path, headers, body: None, read: None }
    }

    /// A read as nodes are sent it.
    pub fn read(read: &ReadRequest) -> NodeRequest {
        let method = if read.is_head { Method::HEAD } else { Method::GET };
        let mut request = NodeRequest::new(method, &read.key, read.is_timed);
        let range = read.range.and_then(ByteRange::header);
        request.headers.extend(range.map(|range| (RANGE, range)));
        read.conditions.write(&mut request.headers);
        request.read = Some(read.clone());
        request
    }

    /// A write as nodes are sent it.
    pub fn put(put: &PutRequest) -> NodeRequest {
        let mut request = NodeRequest::new(Method::PUT, &put.key, put.terms.is_timed);
        let Attributes { content_type, user } = &put.attributes;
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
        let content_type = content_type.as_deref().and_then(value);
        request.headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        for (name, text) in user {
            let name = HeaderName::from_bytes(format!("{META_PREFIX}{name}").as_bytes()).ok();
            request.headers.extend(name.zip(value(text)));
        }
        put.terms.conditions.write(&mut request.headers);
        request
    }

    /// A removal as nodes are sent it.
    pub fn delete(delete: &DeleteRequest) -> NodeRequest {
        let mut request = NodeRequest::new(Method::DELETE, &delete.key, delete.terms.is_timed);
        delete.terms.conditions.write(&mut request.headers);
        request
    }

    /// The same as a part of a trace, if it is for a request that has spans.
    pub fn within(mut self, trace: Option<TraceParent>) -> NodeRequest {
        self.headers.extend(trace.and_then(|trace| trace.header()));
        self
    }

    /// Tells nodes the SHA-256 that the body will have.
    pub fn expect(&mut self, sha256: Option<[u8; 32]>) {
        let Some(sha256) = sha256 else { return };
        let mut digits = Vec::with_capacity(64);
        hex::push(&sha256, &mut digits);
        if let Ok(value) = HeaderValue::from_bytes(&digits) {
            self.headers.push((headers::SHA256.clone(), value));
        }
    }

    /// The headers of one attempt: those of the request, the node to avoid, and the time left.
    pub fn headers(
        &self,
        avoid: Option<&HeaderValue>,
        left: Option<Nanos>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut all = Vec::with_capacity(self.headers.len() + 2);
        all.extend_from_slice(&self.headers);
        all.extend(avoid.map(|name| (headers::AVOID.clone(), name.clone())));
        let ms = left.map(|left| HeaderValue::from((left / 1_000_000).max(1)));
        all.extend(ms.map(|ms| (headers::DEADLINE_MS.clone(), ms)));
        all
    }
}

/// How long the client waits, at most `max`, and whether the client itself set a limit.
///
/// # Errors
///
/// 400 if the header is not a whole number.
pub fn patience(given: &HeaderMap, max: Nanos) -> Result<(Nanos, bool), Problem> {
    let own = cluster::patience(given)?;
    Ok((own.unwrap_or(max).min(max), own.is_some()))
}
