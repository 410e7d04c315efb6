//! A PUT that is sent while its body still arrives.
//!
//! The head of the request names the version and the SHA-256 of the body, so this is only for bodies whose hash the
//! client states in advance. The last pieces are withheld until the write is committed: without it the store has fewer
//! bytes than announced and stores nothing. So a body that does not match, a client that leaves, or a write that is not
//! to be made any more ends with a connection that is closed. The store verifies the same hash.
//!
//! Whatever fails on this way is no failure of the write, because all bytes are in memory: they are then sent as if this had
//! not been tried. A condition holds the same as elsewhere: the PUT names the etag that it replaces.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};
use object_store::path::Path;
use object_store::{ObjectStore, PutOptions, PutPayload, PutResult};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::Store;
use super::crypto::PAYLOAD;
use super::http::{Late, Worker, failed};
use super::precondition::Precondition;
use super::reply::Expected;

/// The most writes that are sent while they arrive. Those beyond are sent when all their bytes are there.
pub const SENDINGS_MAX: usize = 64;
/// The longest reply to a PUT.
const REPLY_BYTES_MAX: usize = 1 << 20;

tokio::task_local! {
    /// The body of the task's next request, in place of the empty one that `object_store` has.
    pub static BODY: Cell<Option<Growing>>;
}

/// A body of which pieces are still to come.
pub struct Growing {
    // Bounded by the object's size: the pieces are kept for a second attempt anyway.
    pieces: mpsc::UnboundedReceiver<Bytes>,
    left: u64,
    /// Ends when no piece will come any more.
    complete: oneshot::Receiver<()>,
}

impl Body for Growing {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(self.pieces.poll_recv(context));
        Poll::Ready(Some(match piece.filter(|piece| piece.len() as u64 <= self.left) {
            Some(piece) => {
                self.left -= piece.len() as u64;
                Ok(Frame::data(piece))
            }
            None => Err(std::io::Error::other("the write is not made")),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Sends a request with a growing body. The timeout begins when the body is complete: the client may be slow, and the
/// store decides how long it waits.
pub async fn send(
    client: &reqwest::Client,
    request: HttpRequest,
    mut body: Growing,
    timeout: Duration,
) -> Result<HttpResponse, HttpError> {
    // Of a kind that is not tried again: the pieces are gone.
    let unknown = |error: reqwest::Error| HttpError::new(HttpErrorKind::Unknown, error);
    let (_, never) = oneshot::channel();
    let complete = std::mem::replace(&mut body.complete, never);
    let (mut parts, _) = request.into_parts();
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.left));
    let request = http::Request::from_parts(parts, reqwest::Body::wrap(body));
    let request = reqwest::Request::try_from(request).map_err(unknown)?;
    let exchange = async {
        let reply: http::Response<reqwest::Body> =
            client.execute(request).await.map_err(unknown)?.into();
        let (parts, body) = reply.into_parts();
        Expected::Write.check(&parts)?;
        let body = Limited::new(body, REPLY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| failed(HttpErrorKind::Unknown, &error.to_string()))?;
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(body.to_bytes())))
    };
    let late = async {
        let _ = complete.await;
        tokio::time::sleep(timeout).await;
    };
    tokio::select! {
        reply = exchange => reply,
        () = late => Err(HttpError::new(HttpErrorKind::Timeout, Late(timeout))),
    }
}

/// What came of it.
pub enum Outcome {
    /// The store has it.
    Written(PutResult),
    /// It does not, or that is not known; no request is under way.
    Failed(object_store::Error),
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
    /// Begins to send `length` bytes with this hash. `None` if [`SENDINGS_MAX`] writes are sent already.
    pub fn start(
        store: &Arc<Store>,
        path: &Path,
        attributes: object_store::Attributes,
        sha256: [u8; 32],
        length: u64,
    ) -> Option<Sending> {
        let permit = store.sendings.clone().try_acquire_owned().ok()?;
        let (send, pieces) = mpsc::unbounded_channel();
        let (complete, completed) = oneshot::channel();
        let (tell, outcome) = oneshot::channel();
        let body = Growing { pieces, left: length, complete: completed };
        let (of, to) = (store.clone(), path.clone());
        let worker = Worker(store.thread.handle().spawn(async move {
            let _ = tell.send(put(&of, &to, attributes, sha256, body).await);
        }));
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
    path: &Path,
    attributes: object_store::Attributes,
    sha256: [u8; 32],
    body: Growing,
) -> Outcome {
    let precondition = match store.look_lately().await.map(|known| known.conditions) {
        Ok(false) => Precondition::None,
        Err(_) => return Outcome::NotSent,
        Ok(true) => match store.known.get(path) {
            Some(etag) => Precondition::Is(etag),
            None => match store.etag(path).await {
                Ok(etag) => Precondition::unchanged(etag),
                Err(_) => return Outcome::NotSent,
            },
        },
    };
    let options = PutOptions { mode: precondition.mode(), attributes, ..PutOptions::default() };
    let put = store.client.put_opts(path, PutPayload::default(), options);
    let put = PAYLOAD.scope(Cell::new(Some(sha256)), put);
    match BODY.scope(Cell::new(Some(body)), put).await {
        Ok(put) => Outcome::Written(put),
        Err(error) => Outcome::Failed(error),
    }
}
