//! A reply, and its body.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::connection::Connection;
use super::fault::Fault;
use super::idle::IdleConnections;

/// Maximum bytes of one piece.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// The body of a reply being received. At the body's end the connection returns to its pool;
/// dropping an unfinished body closes it.
#[derive(Debug)]
pub struct Incoming {
    /// The connection; `None` after the body's end or a fault.
    connection: Option<Connection>,
    left: u64,
    /// The idle connections of its pool, which the connection returns to if it can be reused.
    pool: Option<Arc<IdleConnections>>,
}

impl Incoming {
    pub(super) fn new(
        connection: Connection,
        left: u64,
        pool: Option<Arc<IdleConnections>>,
    ) -> Incoming {
        let mut body = Incoming { connection: Some(connection), left, pool };
        body.consume(0);
        body
    }

    /// Bytes of the body not returned yet.
    pub fn bytes_left(&self) -> u64 {
        self.left
    }

    /// The next piece; `None` after the last, and after a fault. Dropping the future loses no
    /// bytes.
    pub async fn next(&mut self) -> Option<Result<Bytes, Fault>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Poll version of [`Incoming::next`].
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
        self.consume(count);
        Poll::Ready(Some(Ok(piece)))
    }

    /// Reads the whole body as one piece without copying it. The piece may keep a larger buffer of
    /// the connection alive: use this for bytes that are passed on at once.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the body has more than `max` bytes.
    pub async fn gather_in_place(mut self, max: usize) -> Result<Bytes, Fault> {
        let length = self.check(max)?;
        while let Some(connection) = &mut self.connection {
            let Some(missing) = length.checked_sub(connection.buffer.len()).filter(|m| *m > 0)
            else {
                let whole = connection.buffer.split_to(length).freeze();
                self.consume(length);
                return Ok(whole);
            };
            let filled = connection.fill(missing).await;
            if let Some(fault) = self.fault_of(filled) {
                return Err(fault);
            }
        }
        Ok(Bytes::new())
    }

    /// Reads the whole body into memory of exactly its size: use this for bytes that are kept.
    /// Bytes that arrived with the head are copied; the rest is read in place.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the body has more than `max` bytes.
    pub async fn gather(mut self, max: usize) -> Result<Bytes, Fault> {
        let length = self.check(max)?;
        let mut whole = BytesMut::with_capacity(length);
        while let Some(connection) = &mut self.connection {
            let count = connection.buffer.len().min(length - whole.len());
            whole.extend_from_slice(&connection.buffer.split_to(count));
            if whole.len() == length {
                self.consume(length);
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
        let what = || format!("the body has {} bytes, the limit here is {max}", self.left);
        length.ok_or_else(|| Fault::Malformed(what()))
    }

    fn fault_of(&mut self, filled: Result<usize, Fault>) -> Option<Fault> {
        let fault = match filled {
            Ok(0) => Fault::closed("closed before the end of the reply"),
            Ok(_) => return None,
            Err(fault) => fault,
        };
        self.connection = None;
        Some(fault)
    }

    /// Counts consumed bytes; at the body's end, returns the connection to its pool.
    fn consume(&mut self, count: usize) {
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

/// A reply whose head has arrived.
#[derive(Debug)]
pub struct Reply {
    /// The status; never an interim one.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, still to be read.
    pub body: Incoming,
}
