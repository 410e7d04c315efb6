//! The body of a write. A small one is read completely, so that it can be sent again; a large one
//! is streamed, and kept meanwhile up to a size, for the case that its node refuses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use origin::{BoxFuture, Chunks, Error};

use super::backend;
use super::nodes::reply::GATHERED_BYTES_MAX;
use record::clock;
use wire::body::{Budget, GivenAt, RequestBody, Share, Upload};
use wire::pace::Pace;

/// Maximum bytes of a streamed body that can be sent again.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Bytes of a piece that is sent again.
const PIECE_BYTES: usize = 64 << 10;

/// The body of a write.
pub enum Source {
    /// The complete body, which can be sent again.
    Whole(Bytes),
    /// Streamed from the client.
    Stream(Box<Streamed>),
}

/// A streamed upload, with what was sent of it as long as that can be sent again.
pub struct Streamed {
    /// Bytes read before the body proved to be large.
    begun: Bytes,
    upload: Upload,
    /// What was taken so far; `None`: it is too large, or there is no memory for it.
    kept: Option<BytesMut>,
    shares: Option<Share>,
    budget: Arc<Budget>,
    /// How much of `kept` this attempt was given.
    given: usize,
    /// When the client last gave bytes.
    pub given_at: GivenAt,
    taken: bool,
    ended: bool,
    /// Why the client's body ended early.
    pub failed: Option<Error>,
}

impl Chunks for Streamed {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        self.taken = true;
        Box::pin(async move {
            if let Some(piece) = self.again() {
                self.given_at.store(clock::now(), Ordering::Relaxed);
                return Some(Ok(piece));
            }
            if self.ended {
                return None;
            }
            let next = match std::mem::take(&mut self.begun) {
                begun if begun.is_empty() => self.upload.next().await,
                begun => Some(Ok(begun)),
            };
            match &next {
                Some(Ok(piece)) => self.keep(piece),
                Some(Err(error)) => self.failed = Some(error.clone()),
                None => self.ended = true,
            }
            next
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        let again = self.kept.as_ref().map_or(0, |kept| kept.len() - self.given);
        self.upload.bytes_left().map(|left| left + (self.begun.len() + again) as u64)
    }
}

impl Streamed {
    /// The next piece of what was sent before.
    fn again(&mut self) -> Option<Bytes> {
        let left = self.kept.as_ref()?.get(self.given..).filter(|left| !left.is_empty())?;
        let piece = Bytes::copy_from_slice(&left[..left.len().min(PIECE_BYTES)]);
        self.given += piece.len();
        Some(piece)
    }

    /// Keeps a piece that is sent, if all before it was kept.
    fn keep(&mut self, piece: &Bytes) {
        let Some(kept) = &mut self.kept else { return };
        let fits = kept.len() + piece.len() <= KEPT_BYTES_MAX;
        let Some(share) = self.budget.take(piece.len() as u64).filter(|_| fits) else {
            (self.kept, self.shares) = (None, None);
            return;
        };
        kept.extend_from_slice(piece);
        self.given = kept.len();
        match &mut self.shares {
            Some(shares) => shares.join(share),
            None => self.shares = Some(share),
        }
    }

    /// The next attempt sends all from the beginning.
    pub fn rewind(&mut self) {
        self.given = 0;
    }
}

impl Source {
    /// The body of a request; a small one is read whole. Of others what is sent is kept, within the budget.
    pub async fn receive(
        incoming: RequestBody,
        pace: Pace,
        budget: &Arc<Budget>,
    ) -> Result<Source, store::Error> {
        // No copy is kept: only nodes have tiers to fill.
        let mut upload = Upload::new(incoming, pace, 0, Budget::new(0));
        let stream = |begun: Bytes, upload: Upload| {
            let given_at = upload.given_at();
            let declared = begun.len() as u64 + upload.bytes_left().unwrap_or(0);
            let kept = (declared <= KEPT_BYTES_MAX as u64).then(BytesMut::new);
            Source::Stream(Box::new(Streamed {
                begun,
                upload,
                given_at,
                kept,
                shares: None,
                budget: budget.clone(),
                given: 0,
                taken: false,
                ended: false,
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
            let piece = piece?;
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
        matches!(self, Source::Stream(streamed) if streamed.kept.is_none() && streamed.taken)
    }
}
