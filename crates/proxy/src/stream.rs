//! Where a socket is, and a connection of either kind.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};

use crate::tls::{Encrypted, Tls};

/// The address of a listener or of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads `host:port` or `unix:/path`. A host name is resolved once, here.
    ///
    /// # Errors
    /// The text is neither, or the host is not known.
    pub fn parse(text: &str) -> anyhow::Result<Address> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                bail!("{text:?} has no path; write it as \"unix:/run/memcached.sock\"");
            }
            return Ok(Address::Unix(path.into()));
        }
        let how =
            || format!("{text:?} is not an address; write \"127.0.0.1:11211\" or \"unix:/path\"");
        let first = text.to_socket_addrs().with_context(how)?.next();
        first.map(Address::Tcp).with_context(how)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection that never blocks.
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
    Tls(Encrypted),
}

impl Stream {
    /// Begins to connect; the socket turns writable when that has ended.
    pub(crate) fn connect(address: &Address, tls: Option<&Tls>) -> io::Result<Stream> {
        Ok(match address {
            Address::Tcp(address) => {
                let stream = mio::net::TcpStream::connect(*address)?;
                // Ignored on a socket that is not connected yet on some systems, not on Linux.
                let _ = stream.set_nodelay(true);
                match tls {
                    Some(tls) => Stream::Tls(Encrypted::new(stream, tls)?),
                    None => Stream::Tcp(stream),
                }
            }
            Address::Unix(path) => Stream::Unix(mio::net::UnixStream::connect(path)?),
        })
    }

    /// A connection that the process before has passed on.
    pub(crate) fn given(stream: std::net::TcpStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(mio::net::TcpStream::from_std(stream)))
    }

    /// Whether connecting has ended: `Ok(false)` while it has not.
    ///
    /// # Errors
    /// Why it failed.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Stream::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(|_| ())),
            Stream::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(|_| ())),
            Stream::Tls(stream) => {
                let socket = stream.socket();
                (socket.take_error()?, socket.peer_addr().map(|_| ()))
            }
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    /// Closes the connection so that bytes on their way are dropped.
    pub(crate) fn abort(self) {
        let socket = match &self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.socket(),
            Stream::Unix(_) => return,
        };
        let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
            Stream::Tls(stream) => stream.socket_mut(),
        }
    }

    /// Has `registry` report reads and writes under `token`.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

/// Directly by system calls: the C library's functions are points at which a thread can be
/// cancelled, which costs two atomic exchanges each.
impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tls(stream) => stream.read(buffer),
            _ => Ok(rustix::net::recv(&*self, buffer, RecvFlags::empty())?.0),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tls(stream) => stream.write(bytes),
            _ => Ok(rustix::net::send(&*self, bytes, SendFlags::NOSIGNAL)?),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tls(stream) => stream.write_vectored(slices),
            _ => Ok(rustix::io::writev(&*self, slices)?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.flush(),
            _ => Ok(()),
        }
    }
}

/// A listening socket.
pub(crate) enum Listener {
    Tcp(mio::net::TcpListener),
    /// With the path, which is removed at the end.
    Unix(mio::net::UnixListener, PathBuf),
}

impl Listener {
    /// A socket that listens already.
    pub(crate) fn given(listener: std::net::TcpListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(mio::net::TcpListener::from_std(listener)))
    }

    /// Listens; `key` is the key of the configuration that has the address.
    pub(crate) fn bind(address: &Address, key: &str) -> anyhow::Result<Listener> {
        match address {
            Address::Tcp(address) => {
                let bind = || -> io::Result<std::net::TcpListener> {
                    let domain = socket2::Domain::for_address(*address);
                    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
                    socket.set_reuse_address(true)?;
                    socket.bind(&(*address).into())?;
                    socket.listen(4096)?;
                    socket.set_nonblocking(true)?;
                    Ok(socket.into())
                };
                let listener = bind().with_context(|| {
                    format!(
                        "cannot listen on {address}; if another process has the port, stop it or \
                         choose another with --set {key}={}:PORT",
                        address.ip()
                    )
                })?;
                Ok(Listener::Tcp(mio::net::TcpListener::from_std(listener)))
            }
            Address::Unix(path) => {
                // A socket that nobody listens on is left from a process that was killed.
                if std::os::unix::net::UnixStream::connect(path).is_ok() {
                    bail!("cannot listen on unix:{}: another process does", path.display());
                }
                if std::fs::symlink_metadata(path).is_ok_and(|m| is_socket(&m)) {
                    let _ = std::fs::remove_file(path);
                }
                let listener = mio::net::UnixListener::bind(path)
                    .with_context(|| format!("cannot listen on unix:{}", path.display()))?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Unix(_, path) => Ok(Address::Unix(path.clone())),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Listener::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Listener::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
        })
    }
}

fn is_socket(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    metadata.file_type().is_socket()
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
