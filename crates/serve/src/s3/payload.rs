//! Whether the body of a request in XML has the SHA-256 that its signature covers.
//!
//! `s3s` verifies it too, but answers 500 if it differs. So a body is hashed on its way to `s3s`, and the reply is replaced.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use ring::digest;

use crate::hex::unhex;

/// Set once a body has another hash than its request says.
#[derive(Clone, Default)]
pub struct Differs(Arc<AtomicBool>);

impl Differs {
    /// Whether it has.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body that is hashed as it passes.
pub struct Hashed<B> {
    body: B,
    left: u64,
    said: [u8; 32],
    context: digest::Context,
    differs: Differs,
}

impl<B: Body> Hashed<B> {
    /// The body of a request with these headers; the body itself if they state no hash, or its length is not known.
    pub fn new(body: B, headers: &HeaderMap, differs: Differs) -> Result<Hashed<B>, B> {
        let said = headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        let (Some(said), Some(left)) = (said.and_then(unhex), body.size_hint().exact()) else {
            return Err(body);
        };
        let context = digest::Context::new(&digest::SHA256);
        let mut hashed = Hashed { body, left, said, context, differs };
        hashed.judge();
        Ok(hashed)
    }

    fn judge(&mut self) {
        if self.left == 0 && self.context.clone().finish().as_ref() != self.said {
            self.differs.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Hashed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.left = self.left.saturating_sub(bytes.len() as u64);
            self.context.update(bytes);
            self.judge();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
