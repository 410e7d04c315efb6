//! Streams of bytes in pieces.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use super::error::Error;

/// A boxed future, so that the trait can be an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A stream of bytes in pieces: an upload, or an object being read.
pub trait Chunks: Send {
    /// The next piece; `None` after the last.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>>;
    /// The number of bytes left, if known in advance.
    fn bytes_left(&self) -> Option<u64>;
    /// The SHA-256 of all bytes, if known in advance. The stream ends with an error, before its last piece, if they
    /// have another.
    fn sha256(&self) -> Option<[u8; 32]> {
        None
    }
}

/// [`Chunks`] of bytes that are all in memory.
pub struct SingleChunk(Option<Bytes>);

impl SingleChunk {
    /// A stream of one piece.
    pub fn new(bytes: Bytes) -> SingleChunk {
        SingleChunk(Some(bytes))
    }
}

impl Chunks for SingleChunk {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let next = self.0.take().filter(|bytes| !bytes.is_empty());
        Box::pin(std::future::ready(next.map(Ok)))
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
