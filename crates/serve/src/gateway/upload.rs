//! The body of a write. A small one is read completely, so that it can be sent again; a large one
//! is streamed.

use bytes::{Bytes, BytesMut};
use origin::{BoxFuture, Chunks, Error};

use super::backend;
use super::nodes::reply::GATHERED_BYTES_MAX;
use crate::body::{Arriving, Budget, GivenAt, Upload};
use crate::http::Problem;
use crate::objects::origin_problem;
use crate::pace::Pace;

/// The body of a write.
pub enum Source {
    /// The complete body, which can be sent again.
    Whole(Bytes),
    /// Streamed from the client.
    Stream(Box<Streamed>),
}

/// A streamed upload that records whether some of it was sent.
pub struct Streamed {
    /// Bytes read before the body proved to be large.
    begun: Bytes,
    upload: Upload,
    /// When the client last gave bytes.
    pub given_at: GivenAt,
    taken: bool,
    /// Why the client's body ended early.
    pub failed: Option<Error>,
}

impl Chunks for Streamed {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        self.taken = true;
        let begun = std::mem::take(&mut self.begun);
        Box::pin(async move {
            if !begun.is_empty() {
                return Some(Ok(begun));
            }
            let next = self.upload.next().await;
            if let Some(Err(error)) = &next {
                self.failed = Some(error.clone());
            }
            next
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        self.upload.bytes_left().map(|left| left + self.begun.len() as u64)
    }
}

impl Source {
    /// The body of a request; a small one is read whole.
    pub async fn of(incoming: Arriving, pace: Pace) -> Result<Source, Problem> {
        // No copy is kept: only nodes have tiers to fill.
        let mut upload = Upload::new(incoming, pace, 0, Budget::new(0));
        let stream = |begun: Bytes, upload: Upload| {
            let given_at = upload.given_at();
            Source::Stream(Box::new(Streamed {
                begun,
                upload,
                given_at,
                taken: false,
                failed: None,
            }))
        };
        // A body of unknown length is read until it proves large: only a complete body can be given
        // a time limit and sent again.
        if upload.bytes_left().is_some_and(|bytes| bytes > GATHERED_BYTES_MAX) {
            return Ok(stream(Bytes::new(), upload));
        }
        let mut all = BytesMut::new();
        let mut first = Bytes::new();
        while let Some(piece) = upload.next().await {
            let piece = piece.map_err(|error| origin_problem(&error))?;
            if first.is_empty() && all.is_empty() {
                first = piece;
                continue;
            }
            if all.is_empty() {
                let left = upload.bytes_left().unwrap_or(0) as usize;
                all.reserve(first.len() + piece.len() + left);
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&piece);
            if all.len() as u64 > GATHERED_BYTES_MAX {
                return Ok(stream(all.freeze(), upload));
            }
        }
        Ok(Source::Whole(if all.is_empty() { first } else { all.freeze() }))
    }

    /// Reads and drops the rest of the client's upload, so that the client gets to reading its
    /// reply.
    pub async fn discard(self) {
        if let Source::Stream(streamed) = self {
            streamed.upload.discard().await;
        }
    }
}

impl backend::Body for Source {
    fn is_consumed(&self) -> bool {
        matches!(self, Source::Stream(streamed) if streamed.taken)
    }
}
