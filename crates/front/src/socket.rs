//! A client's socket, which sends bytes in the [`arena`] without a copy.
//!
//! The pages of buffers that lie in the arena are passed to the socket ([`crate::lending`]), in order after the buffers
//! before them (`MSG_MORE` keeps the head of a reply and its body in one segment).

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;

use device::arena;
use wire::pace::Pace;

use crate::lending;

/// Shorter buffers are copied, together with the others. Lent pages take 0.6 times a copy's
/// processor time of the server for 80 KiB (docs/decisions/0006). A receiver on the same machine
/// pays for it, most where the arena's pages are small. So a gateway or a node there gets copies.
const LENT_BYTES_MIN: usize = 16 << 10;

/// Terminal output queue: of a socket, the bytes that its peer has not acknowledged (SIOCOUTQ).
const TIOCOUTQ: rustix::ioctl::Opcode = 0x5411;

/// A socket.
///
/// While the client takes nothing, a timer runs, and at its end the client must have acknowledged what
/// [`Pace`] asks of it. What counts is what was acknowledged and not what was written: the kernel takes
/// megabytes at once and then nothing for minutes, however evenly a slow client reads.
pub struct Socket {
    pub(crate) stream: Stream,
    pace: Pace,
    /// Bytes given to the kernel.
    written: u64,
    /// What the client had when it was first waited for; `None` while it keeps up.
    delivered: Option<u64>,
    /// Whether the peer is on this machine.
    pub(crate) near: bool,
    /// Whether parts of the arena are copied like other bytes.
    pub(crate) copies: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

/// What a connection's bytes go through.
pub enum Stream {
    /// The kernel's socket.
    Plain(TcpStream),
    /// TLS over it.
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The kernel's socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => stream.get_ref().0,
        }
    }

    /// Whether bytes are encrypted on their way.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Encrypted(_))
    }

    /// Reads what is there, or waits.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    /// Writes bytes that do not lie in the arena.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// Tells the client that nothing follows.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Whether the pages of a buffer are to be lent to the socket.
fn is_lent(buffer: &[u8]) -> bool {
    let at = place(buffer).zip(arena::get());
    at.is_some_and(|(at, arena)| lending::is_possible() && arena.lend(at, buffer.len()))
}

/// Notes which of some buffers were copied to the socket, of which it took `sent` bytes.
fn copied(buffers: &[IoSlice<'_>], mut sent: usize) {
    for buffer in buffers {
        if let Some((at, arena)) = place(buffer).filter(|_| sent > 0).zip(arena::get()) {
            arena.copied(at);
        }
        sent = sent.saturating_sub(buffer.len());
    }
}

/// The offset of a buffer in the arena, if its pages are worth lending.
fn place(buffer: &[u8]) -> Option<u64> {
    if buffer.len() < LENT_BYTES_MIN {
        return None;
    }
    arena::get()?.place(buffer)
}

impl Socket {
    /// Wraps a stream.
    pub(crate) fn new(stream: Stream, pace: Pace) -> Socket {
        let near = stream.socket().peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        Socket { near, copies: false, stream, pace, written: 0, delivered: None, timer: None }
    }

    /// All that was to be sent was given to the kernel: the client is not waited for.
    pub(crate) fn keeps_up(&mut self) {
        self.delivered = None;
    }

    /// Bytes that the client has acknowledged.
    fn acknowledged(&self) -> u64 {
        #[expect(unsafe_code, reason = "an ioctl that rustix has no call for")]
        // SAFETY: SIOCOUTQ writes one `int`, which is what the getter holds.
        let queued = unsafe {
            let getter = rustix::ioctl::Getter::<TIOCOUTQ, std::ffi::c_int>::new();
            rustix::ioctl::ioctl(self.stream.socket().as_fd(), getter)
        };
        self.written.saturating_sub(queued.map_or(0, |bytes| bytes.max(0) as u64))
    }

    /// The client takes nothing more for now: an error once it is too slow.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.delivered.is_none() {
            self.delivered = Some(self.acknowledged());
            let end = Instant::now() + self.pace.stall;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(end),
                None => self.timer = Some(Box::pin(tokio::time::sleep_until(end))),
            }
        }
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            ready!(timer.as_mut().poll(context));
            timer.as_mut().reset(Instant::now() + self.pace.stall);
            let now = self.acknowledged();
            let before = self.delivered.replace(now).unwrap_or(now);
            // With TLS, what was written is counted before the kernel has it, and may fall behind what was acknowledged.
            if self.pace.is_stalled(now.saturating_sub(before)) {
                tracing::debug!("a connection is closed: its client took {}", self.pace.in_words());
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    /// Counts what was written, or waits.
    fn counted(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match result {
            Poll::Pending => self.wait(context),
            Poll::Ready(Ok(count)) => {
                self.written += count as u64;
                Poll::Ready(Ok(count))
            }
            error => error,
        }
    }

    /// Writes as much as the socket accepts: the buffers before the first one that is lent, then
    /// a part of that one.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_lent = |buffer: &IoSlice<'_>| !self.copies && is_lent(buffer);
        let first = buffers.iter().position(is_lent);
        let (plain, lent) = buffers.split_at(first.unwrap_or(buffers.len()));
        let mut sent = 0;
        if !plain.is_empty() {
            let more = if lent.is_empty() { SendFlags::empty() } else { SendFlags::MORE };
            let mut control = SendAncillaryBuffer::default();
            let flags = SendFlags::NOSIGNAL | more;
            sent = sendmsg(self.stream.socket().as_fd(), plain, &mut control, flags)?;
            copied(plain, sent);
            if sent < plain.iter().map(|buffer| buffer.len()).sum() {
                return Ok(sent);
            }
        }
        let Some(buffer) = lent.first() else { return Ok(sent) };
        match lending::send(self.stream.socket().as_fd(), buffer) {
            Ok(count) => Ok(sent + count),
            // The earlier buffers are written; the next call reports the error.
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error),
        }
    }

    /// Writes buffers, of which some may lie in the arena.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.poll_place(context, buffers);
        self.counted(context, result)
    }

    /// Gives the kernel what is encrypted of the bytes written before.
    pub fn poll_through(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stream::Encrypted(stream) = &mut self.stream
            && Pin::new(stream).poll_flush(context)?.is_pending()
        {
            return self.wait(context).map(|waited| waited.map(|_| ()));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_place(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Stream::Encrypted(stream) = &mut self.stream {
            return Pin::new(stream).poll_write_vectored(context, buffers);
        }
        loop {
            ready!(self.stream.socket().poll_write_ready(context))?;
            match self.stream.socket().try_io(Interest::WRITABLE, || self.write(buffers)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }
}
