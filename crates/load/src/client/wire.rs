//! The sockets of connections; that of HTTP/2 as `h2` has it, and its first words without TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
    sockopt,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fault::Fault;
use super::tls::Session;

/// The preface of a client and an empty frame of settings: RFC 9113, sections 3.4 and 6.5.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The type of a frame of settings.
const SETTINGS: u8 = 4;

/// A socket that begins to connect, and whether it is connected already.
pub(super) fn connect_to(address: SocketAddr) -> Result<(OwnedFd, bool), Fault> {
    let failed = |error| Fault::Connect { address, error };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
    match connect(&socket, &address) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((socket, false)),
        Err(error) => Err(failed(error)),
    }
}

/// Finds out whether a service speaks HTTP/2 without TLS, over a blocking connection whose timeouts are
/// set: its first frame must be one of settings.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn greet(mut stream: &TcpStream) -> Result<(), String> {
    let mut frame = [0; 9];
    let spoken = stream.write_all(PREFACE).and_then(|()| stream.read_exact(&mut frame));
    let why = match spoken {
        Ok(()) if frame[3] == SETTINGS => return Ok(()),
        Ok(()) if frame.starts_with(b"HTTP/1") => "it replied in HTTP/1".to_owned(),
        Ok(()) => "it replied in another protocol".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("the service does not speak HTTP/2 without TLS ({why}); leave out --http2"))
}

/// A socket as `h2` has it: it never waits, and its readiness is the event loop's to know.
pub(super) struct Wire {
    pub socket: Arc<OwnedFd>,
    pub session: Option<Session>,
    /// Set when the socket accepted less than it was given.
    pub blocked: Arc<AtomicBool>,
}

impl Wire {
    fn wait_to_write<T>(&self) -> Poll<io::Result<T>> {
        self.blocked.store(true, Ordering::Relaxed);
        Poll::Pending
    }
}

/// A fault of TLS or of the socket as `h2` passes it on.
fn as_io(fault: Fault) -> io::Error {
    match fault {
        Fault::Socket(errno) => errno.into(),
        other => io::Error::other(other.to_string()),
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        let bytes = room.initialize_unfilled();
        let count = match &mut wire.session {
            None => match recv(&wire.socket, &mut *bytes, RecvFlags::empty()) {
                Ok((count, _)) => count,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error.into())),
            },
            Some(session) => {
                let received = session.receive(&wire.socket, bytes).map_err(as_io)?;
                if session.is_h2() == Some(false) {
                    let why = "the service did not choose HTTP/2";
                    return Poll::Ready(Err(io::Error::other(why)));
                }
                // The handshake may have ended: its last message, and what waited for it, are sent.
                session.flush(&wire.socket).map_err(as_io)?;
                if session.wants_write() {
                    wire.blocked.store(true, Ordering::Relaxed);
                }
                let Some(count) = received else { return Poll::Pending };
                count
            }
        };
        room.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        let count = match &mut wire.session {
            None => match send(&wire.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => 0,
                Err(error) => return Poll::Ready(Err(error.into())),
            },
            Some(session) => session.send(&wire.socket, bytes).map_err(as_io)?,
        };
        if count == 0 { wire.wait_to_write() } else { Poll::Ready(Ok(count)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        if let Some(session) = &mut wire.session {
            session.flush(&wire.socket).map_err(as_io)?;
            if session.wants_write() {
                return wire.wait_to_write();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket closes with the connection; nobody waits for the peer's end.
        Poll::Ready(Ok(()))
    }
}
