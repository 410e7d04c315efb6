//! What hyper sees of a connection: its own requests, one whole request at a time.

use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use wire::refusal::{Phase, Wording, written};

use crate::socket::Socket;

/// How long a read goes on whose client has ended its side of the connection.
const ENDED_READ_MAX: Duration = Duration::from_secs(2);

/// Whose the next bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The connection's: no request is under way, or a plain read is.
    Plain,
    /// hyper's: the rest of a request, then nothing until its reply has been sent.
    Request {
        /// Bytes of the request that hyper has not been given.
        left: u64,
        /// Whether it is a GET or a HEAD.
        is_read: bool,
    },
    /// hyper's for good: only it knows where requests begin.
    Handed,
}

/// What the connection and hyper both use. They are polled in turn by one task, so that the lock is never waited for;
/// it is there because a task may move between threads for all that the compiler knows.
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) turn: Turn,
    /// Bytes received that nobody has looked at, or the beginning of a head.
    pub(super) held: Vec<u8>,
    pub(super) phase: Arc<Phase>,
    /// How the protocol words a refusal of hyper's.
    wording: Wording,
    /// What is being sent instead of what hyper wrote, and how much of it is sent.
    instead: Option<(Vec<u8>, usize)>,
    /// When the client that has ended its side is taken for one that has left.
    left_at: Option<Pin<Box<Sleep>>>,
    /// Whether hyper has begun to send its reply.
    has_begun: bool,
}

impl Link {
    pub(super) fn new(socket: Socket, turn: Turn, phase: Arc<Phase>, wording: Wording) -> Link {
        let (held, instead, left_at, has_begun) = (Vec::new(), None, None, false);
        Link { socket, turn, held, phase, wording, instead, left_at, has_begun }
    }

    /// Whether hyper's request is over, so that the connection looks at the next one.
    pub(super) fn is_answered(&self) -> bool {
        // After a reply that ends the connection hyper has it, until it is closed.
        let stays = !self.phase.is_handed();
        matches!(self.turn, Turn::Request { left: 0, .. }) && stays && !self.phase.is_replying()
    }

    /// Whether the client may still be sending the request that hyper has answered. Of one that hyper has for good only hyper knows.
    pub(super) fn may_have_unread(&self) -> bool {
        matches!(self.turn, Turn::Handed | Turn::Request { left: 1.., .. })
    }

    /// Whether hyper, which has the connection for good, waits for the client's next request. The connection's place is
    /// then another's if need be; hyper itself does not look again after a reply for which it has waited.
    pub(super) fn is_awaited(&self) -> bool {
        let is_awaited = self.phase.is_handed() && !self.phase.is_replying();
        if is_awaited {
            self.phase.wait();
        }
        is_awaited
    }

    /// Waits for the client to close, or for bytes of its next request, which are held.
    fn poll_closed(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // One request ahead is enough: what follows it stays in the kernel, whose window then closes.
        if self.held.is_empty() {
            ready!(self.socket.stream.poll_read(context, buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.held.extend_from_slice(buffer.filled());
            buffer.clear();
        }
        Poll::Pending
    }

    /// Gives hyper the turn, for a request of this many bytes.
    pub(super) fn give(&mut self, left: u64, is_read: bool) {
        self.turn = Turn::Request { left, is_read };
        self.has_begun = false;
    }

    /// Waits until the client of the request that hyper has, all of it, is gone.
    pub(super) fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.turn {
            Turn::Request { left: 0, is_read } => self.poll_gone(context, is_read),
            _ => Poll::Pending,
        }
    }

    /// Waits until the client, whose request is here, is gone.
    ///
    /// One that ends its side after a request may wait for the reply, or have left: the kernel tells no difference until bytes are sent.
    /// Most have left, so a read is given up after a while, and what it waits in has room again. A write is carried out in
    /// either case, and a client that waits for its reply gets it.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>, is_read: bool) -> Poll<()> {
        if self.left_at.is_none() {
            let mut space = [MaybeUninit::uninit(); 512];
            let closed = ready!(self.poll_closed(context, &mut ReadBuf::uninit(&mut space)));
            if closed.is_err() {
                return Poll::Ready(());
            }
            self.left_at = Some(Box::pin(sleep(ENDED_READ_MAX)));
        }
        match &mut self.left_at {
            Some(timer) if is_read && !self.has_begun => timer.as_mut().poll(context),
            _ => Poll::Pending,
        }
    }

    /// Moves held bytes to hyper's buffer, as many as it has room for.
    pub(super) fn give_held(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.held.len().min(buffer.remaining());
        buffer.put_slice(&self.held[..count]);
        self.held.drain(..count);
        if self.held.is_empty() {
            // A connection that waits keeps no buffer.
            self.held = Vec::new();
        }
    }

    /// Gives the rest of the request that hyper has begun to read, and holds what follows it.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            ready!(self.socket.stream.poll_read(context, buffer))?;
        } else {
            self.give_held(buffer);
        }
        let length = buffer.filled().len();
        let given = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        if given < length {
            // Before bytes that did not fit into the buffer.
            let surplus = buffer.filled()[given..].to_vec();
            self.held.splice(..0, surplus);
            buffer.set_filled(given);
        }
        if let Turn::Request { left, .. } = &mut self.turn {
            *left -= given as u64;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn != Turn::Plain {
            self.phase.read();
        }
        match self.turn {
            // The connection polls hyper again when there is something for it.
            Turn::Plain => Poll::Pending,
            // Whether its client is still there is not hyper's to see ([`poll_left`](Self::poll_left)).
            Turn::Request { left: 0, .. } => Poll::Pending,
            Turn::Request { left, .. } => self.poll_request(context, buffer, left),
            Turn::Handed if self.held.is_empty() => self.socket.stream.poll_read(context, buffer),
            Turn::Handed => {
                self.give_held(buffer);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.has_begun = true;
        if self.instead.is_none() {
            let refusal = self.phase.instead(buffers);
            self.instead = refusal.map(|it| (written(&(self.wording)(it.status, it.text)), 0));
        }
        while let Some((bytes, sent)) = &mut self.instead {
            let Some(left) = bytes.get(*sent..).filter(|left| !left.is_empty()) else {
                self.instead = None;
                return Poll::Ready(Ok(buffers.iter().map(|buffer| buffer.len()).sum()));
            };
            *sent += ready!(self.socket.stream.poll_write(context, left))?;
        }
        self.socket.poll_send(context, buffers)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.socket.poll_through(context))?;
        self.socket.keeps_up();
        self.phase.flushed();
        Poll::Ready(Ok(()))
    }
}

/// The connection's socket as hyper has it.
pub(super) struct HyperSide(pub(super) Arc<Mutex<Link>>);

impl HyperSide {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for HyperSide {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.link().poll_read(context, buffer)
    }
}

impl AsyncWrite for HyperSide {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.link().poll_write(context, &[IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.link().poll_write(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link().socket.stream.poll_shutdown(context)
    }
}
