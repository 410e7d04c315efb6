//! What a connection's bytes go through: the kernel's socket, or TLS over it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Bytes that are decrypted at once when nothing is waited for.
const PEEKED_BYTES: usize = 4 * 1024;

/// See the module.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

fn at_once<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Stream {
    /// The kernel's socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => stream.get_ref().0,
        }
    }

    /// Waits until the kernel's socket can be read or written.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.socket().ready(interest).await
    }

    /// Reads what is there.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.try_read(into),
            Stream::Encrypted(stream) => {
                let mut into = ReadBuf::new(into);
                let mut context = Context::from_waker(Waker::noop());
                at_once(Pin::new(stream).poll_read(&mut context, &mut into))?;
                Ok(into.filled().len())
            }
        }
    }

    /// The same behind what a buffer has.
    pub fn try_read_buf(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        if let Stream::Plain(stream) = self {
            return stream.try_read_buf(buffer);
        }
        let mut part = [0; PEEKED_BYTES];
        let count = self.try_read(&mut part)?;
        buffer.extend_from_slice(&part[..count]);
        Ok(count)
    }

    /// Writes as much as is taken at once. What was taken may wait for [`Stream::try_flush`].
    pub fn try_write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.try_write_vectored(buffers),
            Stream::Encrypted(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                at_once(Pin::new(stream).poll_write_vectored(&mut context, buffers))
            }
        }
    }

    /// Gives the kernel all that was written.
    pub fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Encrypted(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                at_once(Pin::new(stream).poll_flush(&mut context))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}
