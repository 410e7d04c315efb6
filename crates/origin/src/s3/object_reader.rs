//! The bytes of an object as they come from the store, for a reader on another thread.
//!
//! If they break off, the rest is asked for, as long as the store still has the same object.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::client::{Attempts, Client};
use super::connections::ReplyBody;
use super::failure::Failure;
use super::operations::OpenObject;

/// The most pieces of a body that are buffered for its reader.
pub const PIECES_MAX: usize = 4;

/// Reads an object.
pub struct ObjectReader {
    pub client: Arc<Client>,
    pub name: String,
    /// The store's own.
    pub etag: Option<String>,
    pub body: ReplyBody,
    /// Which bytes are still to come.
    pub rest: Range<u64>,
    /// Those of the request whose reply this is.
    pub attempts: Attempts,
}

impl ObjectReader {
    /// Passes the pieces on until the last one, a failure, or the reader has gone.
    pub async fn pump(mut self, pieces: mpsc::Sender<Result<Bytes, Failure>>) {
        while let Some(piece) = self.next().await.transpose() {
            let is_last = piece.is_err();
            if pieces.send(piece).await.is_err() || is_last {
                return;
            }
        }
    }

    /// The next piece; `None` after the last.
    ///
    /// # Errors
    ///
    /// If the rest cannot be had.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            // The timeout applies to the store only: the reader may be slow.
            let timeout = self.client.timeout();
            let piece = tokio::time::timeout(timeout, self.body.next()).await;
            match piece.unwrap_or_else(|_| Err(Failure::late(timeout))) {
                Ok(piece) => {
                    self.rest.start += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                    return Ok(piece);
                }
                Err(failure) => self.body = self.again(failure).await?,
            }
        }
    }

    /// The body of a reply with the rest; the failure if there is none.
    async fn again(&mut self, failure: Failure) -> Result<ReplyBody, Failure> {
        let is_known = self.etag.is_some() && self.rest.start < self.rest.end;
        let pause = is_known.then(|| self.attempts.pause(self.client.timeout())).flatten();
        let Some(pause) = pause else { return Err(failure) };
        tokio::time::sleep(pause).await;
        let reply = self.client.get(&self.name, Some(&self.rest), &mut self.attempts).await?;
        let OpenObject { part, body } = reply;
        // The bytes of two versions make no object.
        if part.head.etag == self.etag { Ok(body) } else { Err(failure) }
    }
}
