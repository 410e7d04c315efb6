//! A client's request in the form that is sent to nodes.

use ground::Key;
use ground::window::Nanos;
use http::header::{
    CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Method, StatusCode};

use super::super::list::escaped;
use device::object::META_PREFIX;
use wire::headers;
use wire::hex::push_hex;
use wire::problem::Problem;

/// The header that requests the times of the stages of a request; the reply has them in the same
/// header.
pub const STAGES: &str = "concertina-stages";

/// A request for one key.
pub struct NodeRequest {
    pub method: Method,
    pub key: Key,
    /// The percent-encoded path.
    pub path: String,
    /// The client's headers that nodes need.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Whether nodes are sent a client's header.
pub fn is_for_nodes(name: &HeaderName) -> bool {
    static NAMES: [HeaderName; 9] = [
        RANGE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
        IF_RANGE,
        CONTENT_TYPE,
        CONTENT_ENCODING,
        CONTENT_RANGE,
    ];
    NAMES.contains(name) || name.as_str().starts_with(META_PREFIX) || name.as_str() == STAGES
}

impl NodeRequest {
    /// Converts a client's request: keeps the headers that nodes need.
    pub fn new(method: Method, key: Key, path: &str, headers: &HeaderMap) -> NodeRequest {
        let plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        let path = if plain { path.to_owned() } else { format!("/objects/{}", escaped(&key)) };
        let mut kept = Vec::with_capacity(4);
        for (name, value) in headers {
            if is_for_nodes(name) {
                kept.push((name.clone(), value.clone()));
            }
        }
        NodeRequest { method, key, path, headers: kept }
    }

    /// Tells nodes the SHA-256 that the body will have.
    pub fn expect(&mut self, sha256: Option<[u8; 32]>) {
        let Some(sha256) = sha256 else { return };
        let mut digits = Vec::with_capacity(64);
        push_hex(&sha256, &mut digits);
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

    /// The same headers as a map.
    pub fn header_map(&self) -> HeaderMap {
        self.headers.iter().cloned().collect()
    }
}

/// How long the client waits, at most `max`, and whether the client itself set a limit.
///
/// # Errors
///
/// 400 if the header is not a whole number.
pub fn patience(given: &HeaderMap, max: Nanos) -> Result<(Nanos, bool), Problem> {
    let Some(value) = given.get(&headers::DEADLINE_MS) else { return Ok((max, false)) };
    let ms = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    let bad = || {
        let what = "concertina-deadline-ms must be a whole number of milliseconds";
        Problem::new(StatusCode::BAD_REQUEST, what)
    };
    Ok((ms.ok_or_else(bad)?.saturating_mul(1_000_000).min(max), true))
}
