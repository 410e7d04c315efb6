//! A client's connection, which sends bytes in the [`arena`] without a copy.
//!
//! To hyper it is an ordinary socket that accepts buffers. Buffers that are parts of the arena's
//! file are passed to the kernel as such, in order after the buffers before them (`MSG_MORE` keeps
//! the head of a reply and its body in one segment).

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::arena;

/// Shorter buffers are written together with the others: a system call of their own would cost more
/// than a copy.
const SENDFILE_BYTES_MIN: usize = 8 << 10;

/// A connection.
pub struct Socket(TcpStream);

impl Socket {
    /// Wraps a stream.
    pub fn new(stream: TcpStream) -> Socket {
        Socket(stream)
    }

    /// The offset of a buffer in the arena's file, if it is worth sending from there.
    fn place(buffer: &[u8]) -> Option<u64> {
        if buffer.len() < SENDFILE_BYTES_MIN {
            return None;
        }
        arena::get()?.place(buffer)
    }

    /// Writes as much as the socket accepts: the buffers before the first part of the file, then
    /// that part.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = buffers.iter().position(|buffer| Socket::place(buffer).is_some());
        let (plain, file) = buffers.split_at(first.unwrap_or(buffers.len()));
        let mut sent = 0;
        if !plain.is_empty() {
            let more = if file.is_empty() { SendFlags::empty() } else { SendFlags::MORE };
            let mut control = SendAncillaryBuffer::default();
            let flags = SendFlags::NOSIGNAL | more;
            sent = sendmsg(self.0.as_fd(), plain, &mut control, flags)?;
            if sent < plain.iter().map(|buffer| buffer.len()).sum() {
                return Ok(sent);
            }
        }
        let (Some(buffer), Some(arena)) = (file.first(), arena::get()) else { return Ok(sent) };
        let Some(mut at) = Socket::place(buffer) else { return Ok(sent) };
        match sendfile(self.0.as_fd(), arena.file(), Some(&mut at), buffer.len()) {
            Ok(count) => Ok(sent + count),
            // The earlier buffers are written; the next call reports the error.
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !buffers.iter().any(|buffer| Socket::place(buffer).is_some()) {
            return Pin::new(&mut self.0).poll_write_vectored(context, buffers);
        }
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_io(Interest::WRITABLE, || self.write(buffers)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
