//! The bodies of requests: bytes that are there, or that still arrive.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::pieces::Payload;

/// See the module.
pub enum RequestBody {
    /// Of which all is there.
    Ready {
        payload: Payload,
        /// The pieces that were taken.
        taken: usize,
        bytes_left: usize,
    },
    /// Of which pieces are still to come.
    Growing {
        // Bounded by the object's size: the pieces are kept for a second attempt anyway.
        pieces: mpsc::UnboundedReceiver<Bytes>,
        bytes_left: u64,
    },
}

impl From<Payload> for RequestBody {
    fn from(payload: Payload) -> RequestBody {
        let bytes_left = payload.len();
        RequestBody::Ready { payload, taken: 0, bytes_left }
    }
}

impl RequestBody {
    fn bytes_left(&self) -> u64 {
        match self {
            RequestBody::Ready { bytes_left, .. } => *bytes_left as u64,
            RequestBody::Growing { bytes_left, .. } => *bytes_left,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match &mut *self {
            RequestBody::Ready { payload, taken, bytes_left } => {
                let Some(piece) = payload.pieces().get(*taken).cloned() else {
                    return Poll::Ready(None);
                };
                (*taken, *bytes_left) = (*taken + 1, *bytes_left - piece.len());
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            RequestBody::Growing { bytes_left: 0, .. } => Poll::Ready(None),
            RequestBody::Growing { pieces, bytes_left } => {
                let piece = ready!(pieces.poll_recv(context));
                Poll::Ready(Some(match piece.filter(|piece| piece.len() as u64 <= *bytes_left) {
                    Some(piece) => {
                        *bytes_left -= piece.len() as u64;
                        Ok(Frame::data(piece))
                    }
                    None => Err(std::io::Error::other("the write is not made")),
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left())
    }
}
