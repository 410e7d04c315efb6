//! The body of a reply.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};

use super::Fault;
use super::connection::Connection;
use super::pool::Pool;

/// The most that one piece holds.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// The body of a reply, on its way. At its end the connection goes back to its pool; dropped before, it
/// is closed.
#[derive(Debug)]
pub struct Incoming {
    /// Until the end, or a fault.
    connection: Option<Connection>,
    left: u64,
    /// Where the connection goes, if it can be used again.
    pool: Option<Pool>,
}

impl Incoming {
    pub(super) fn new(connection: Connection, left: u64, pool: Option<Pool>) -> Incoming {
        let mut body = Incoming { connection: Some(connection), left, pool };
        body.taken(0);
        body
    }

    /// Bytes that are still to come.
    pub fn bytes_left(&self) -> u64 {
        self.left
    }

    /// The next piece, `None` after the last. After a fault there is nothing more. Dropping the future
    /// loses nothing.
    pub async fn next(&mut self) -> Option<Result<Bytes, Fault>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same as [`Incoming::next`], for a poll of somebody else's.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        if connection.buffer.is_empty() {
            let room = self.left.min(PIECE_BYTES_MAX as u64) as usize;
            let filled = std::task::ready!(pin!(connection.fill(room)).poll(context));
            if let Some(fault) = self.fault_of(filled) {
                return Poll::Ready(Some(Err(fault)));
            }
        }
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        let count = (connection.buffer.len() as u64).min(self.left) as usize;
        let piece = connection.buffer.split_to(count).freeze();
        self.taken(count);
        Poll::Ready(Some(Ok(piece)))
    }

    /// All of it as one piece, which may be part of a larger buffer of this connection: for what is
    /// handed on at once, without a copy. A body of more than `max` bytes is a fault.
    pub async fn gather_in_place(mut self, max: usize) -> Result<Bytes, Fault> {
        let length = self.check(max)?;
        while let Some(connection) = &mut self.connection {
            let Some(missing) = length.checked_sub(connection.buffer.len()).filter(|m| *m > 0)
            else {
                let whole = connection.buffer.split_to(length).freeze();
                self.taken(length);
                return Ok(whole);
            };
            let filled = connection.fill(missing).await;
            if let Some(fault) = self.fault_of(filled) {
                return Err(fault);
            }
        }
        Ok(Bytes::new())
    }

    /// All of it, in memory of its own size: for what is kept. What had come with the head is copied,
    /// the rest is read to its place. A body of more than `max` bytes is a fault.
    pub async fn gather(mut self, max: usize) -> Result<Bytes, Fault> {
        let length = self.check(max)?;
        let mut whole = BytesMut::with_capacity(length);
        while let Some(connection) = &mut self.connection {
            let count = connection.buffer.len().min(length - whole.len());
            whole.extend_from_slice(&connection.buffer.split_to(count));
            if whole.len() == length {
                self.taken(length);
                break;
            }
            let missing = length - whole.len();
            let filled = connection.fill_other(&mut (&mut whole).limit(missing)).await;
            if let Some(fault) = self.fault_of(filled) {
                return Err(fault);
            }
        }
        Ok(whole.freeze())
    }

    fn check(&self, max: usize) -> Result<usize, Fault> {
        let length = usize::try_from(self.left).ok().filter(|length| *length <= max);
        let what = || format!("its body has {} bytes; {max} fit here", self.left);
        length.ok_or_else(|| Fault::Malformed(what()))
    }

    fn fault_of(&mut self, filled: Result<usize, Fault>) -> Option<Fault> {
        let fault = match filled {
            Ok(0) => Fault::closed("closed before the reply's end"),
            Ok(_) => return None,
            Err(fault) => fault,
        };
        self.connection = None;
        Some(fault)
    }

    /// At the end, lets go of the connection.
    fn taken(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
        if self.left > 0 {
            return;
        }
        let (connection, pool) = (self.connection.take(), self.pool.take());
        if let (Some(connection), Some(pool)) = (connection, pool) {
            pool.give_back(connection);
        }
    }
}
