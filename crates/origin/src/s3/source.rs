//! The bytes of an upload as they come, within the memory that all uploads may hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pieces::{Payload, Pieces};
use crate::chunks::Chunks;
use crate::error::Error;

/// Size of all parts of an upload but the last; some stores require equal sizes. An object up to this size is one PUT.
pub const PART_BYTES: usize = 8 << 20;
/// The granularity in which memory is reserved.
const STEP_BYTES: usize = 256 << 10;

/// Memory reserved for an upload, out of the limit for all uploads.
pub struct Reservation {
    from: Arc<Semaphore>,
    /// The limit for all uploads, for messages.
    bytes_max: u64,
    permits: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Reservation {
    /// Of no bytes yet, out of `from`, KiB, which has room for `bytes_max` bytes of all uploads.
    pub fn new(from: Arc<Semaphore>, bytes_max: u64) -> Reservation {
        Reservation { from, bytes_max, permits: None, bytes: 0 }
    }

    /// Extends the reservation to at least `bytes`. Returns `false` if the limit is reached.
    fn grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let steps = (bytes - self.bytes).div_ceil(STEP_BYTES);
        let Ok(kib) = u32::try_from(steps * (STEP_BYTES >> 10)) else { return false };
        let Ok(more) = self.from.clone().try_acquire_many_owned(kib) else { return false };
        self.bytes += steps * STEP_BYTES;
        match &mut self.permits {
            Some(permits) => permits.merge(more),
            None => self.permits = Some(more),
        }
        true
    }
}

/// The body of an upload, cut into parts.
pub struct Source<'a> {
    body: &'a mut dyn Chunks,
    /// Those that have come and were not taken.
    pub pieces: Pieces,
    ended: bool,
}

impl<'a> Source<'a> {
    /// That of a body of which nothing was read.
    pub fn new(body: &'a mut dyn Chunks) -> Source<'a> {
        Source { body, pieces: Pieces::default(), ended: false }
    }

    /// Receives the next piece, if there is one. `beside` is the size of the part that is being sent meanwhile.
    pub async fn next(&mut self, held: &mut Reservation, beside: usize) -> Result<bool, Error> {
        let Some(piece) = self.body.next().await else {
            self.ended = true;
            return Ok(false);
        };
        let piece = piece?;
        if !held.grow_to(beside + self.pieces.len() + piece.len()) {
            return Err(Error::Failed(format!(
                "uploads already hold the {} bytes of memory that origin.uploads_bytes_max \
                 allows; try again later",
                held.bytes_max
            )));
        }
        self.pieces.push(piece);
        Ok(true)
    }

    /// Returns the next part: [`PART_BYTES`], or all that is left.
    pub async fn part(&mut self, held: &mut Reservation, beside: usize) -> Result<Payload, Error> {
        while !self.ended && self.pieces.len() < PART_BYTES {
            self.next(held, beside).await?;
        }
        Ok(self.pieces.take(PART_BYTES))
    }

    /// Whether all bytes have been taken.
    pub fn is_empty(&self) -> bool {
        self.ended && self.pieces.len() == 0
    }
}
