//! The parts of a request: what every head has, and the body.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use origin::Chunks;

/// The body of a request.
pub enum Outgoing<'a> {
    /// No body.
    Empty,
    /// A complete body.
    Bytes(Bytes),
    /// A streamed body, sent with a `content-length` if its length is known, otherwise chunked. If
    /// the source fails, the request fails with [`crate::Fault::Request`].
    Stream(&'a mut dyn Chunks),
}

/// What every request to a node has in its head.
#[derive(Clone, Default)]
pub struct RequestHead {
    /// Headers that are known from the start.
    pub common: Vec<(HeaderName, HeaderValue)>,
    /// A further header line, once it is known.
    pub late: Arc<OnceLock<Vec<u8>>>,
}
