//! A PUT that is sent while its body still arrives.
//!
//! The head of the request names the version and the SHA-256 of the body, so this is only for bodies whose hash the
//! client states in advance. The last pieces are withheld until the write is committed: without it the store has fewer
//! bytes than announced and stores nothing. So a body that does not match, a client that leaves, or a write that is not
//! to be made any more ends with a connection that is closed. The store verifies the same hash.
//!
//! Whatever fails on this way is no failure of the write, because all bytes are in memory: they are then sent as if this had
//! not been tried. A condition holds the same as elsewhere: the PUT names the etag that it replaces.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::body::RequestBody;
use super::failure::Failure;
use super::operations::{NewObject, etag_of};
use super::precondition::Precondition;
use super::store::Store;
use super::thread::Worker;

/// What came of it.
pub enum Outcome {
    /// The store has it.
    Written {
        /// The etag that the store gave it.
        etag: Option<String>,
        /// Whether the store is thereby known to be the one that was opened.
        is_proof: bool,
    },
    /// It does not, or that is not known; no request is under way.
    Failed(Failure),
    /// Nothing was sent.
    NotSent,
}

/// The write under way.
pub struct Sending {
    pieces: mpsc::UnboundedSender<Bytes>,
    complete: oneshot::Sender<()>,
    outcome: oneshot::Receiver<Outcome>,
    _worker: Worker,
    _permit: OwnedSemaphorePermit,
}

impl Sending {
    /// Begins to send an object of `length` bytes, whose payload is still to come, on the store's thread or, if it is light, on the
    /// one that asks. `None` if [`SENDINGS_MAX`] writes are sent already.
    pub fn start(
        store: &Arc<Store>,
        name: &str,
        object: NewObject,
        length: u64,
        is_light: bool,
    ) -> Option<Sending> {
        let permit = store.sendings.clone().try_acquire_owned().ok()?;
        let (send, pieces) = mpsc::unbounded_channel();
        let (complete, completed) = oneshot::channel::<()>();
        let (tell, outcome) = oneshot::channel();
        let body = RequestBody::Growing { pieces, bytes_left: length };
        let (of, to) = (store.clone(), name.to_owned());
        let write = async move {
            let completed = async { drop(completed.await) };
            let _ = tell.send(put(&of, &to, object, body, completed).await);
        };
        let worker = Worker(match is_light {
            true => tokio::spawn(write),
            false => store.thread.handle().spawn(write),
        });
        Some(Sending { pieces: send, complete, outcome, _worker: worker, _permit: permit })
    }

    /// Adds a piece.
    pub fn give(&self, piece: Bytes) {
        // If the request has ended early, its outcome says so.
        let _ = self.pieces.send(piece);
    }

    /// Adds the last pieces, with which the write is made.
    pub async fn finish(self, rest: Vec<Bytes>) -> Outcome {
        rest.into_iter().for_each(|piece| self.give(piece));
        drop(self.pieces);
        let _ = self.complete.send(());
        self.outcome.await.unwrap_or(Outcome::NotSent)
    }
}

async fn put(
    store: &Arc<Store>,
    name: &str,
    object: NewObject,
    body: RequestBody,
    complete: impl Future<Output = ()>,
) -> Outcome {
    let Ok(look) = store.look_lately().await else { return Outcome::NotSent };
    let known = store.known.get(name).filter(|_| look.conditions);
    let is_proof = known.as_ref().is_some_and(|known| known.proves(look.began));
    let precondition = match known {
        _ if !look.conditions => Precondition::None,
        Some(known) => Precondition::Is(known.etag),
        None => match store.etag(name).await {
            Ok(etag) => Precondition::unchanged(etag),
            Err(_) => return Outcome::NotSent,
        },
    };
    let sent = async {
        let request = store.client.put_request(name, object, &precondition)?;
        store.client.send_growing(&request, body, complete).await
    };
    match sent.await {
        Ok(reply) => Outcome::Written { etag: etag_of(&reply), is_proof },
        Err(failure) => Outcome::Failed(failure),
    }
}
