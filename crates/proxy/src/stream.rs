//! Where a socket is, and a connection of either kind.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};

use crate::error::Error;
use crate::tls::{Encrypted, Tls};

/// The address of a listener or of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix domain socket.
    Unix(PathBuf),
    /// A host name and a port, looked up for each connection. Of servers only.
    Name(String),
}

impl Address {
    /// Reads `host:port` or `unix:/path` as a server's address: a host name stays one.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse_server(text: &str) -> Result<Address, Error> {
        if text.starts_with("unix:") || text.parse::<SocketAddr>().is_ok() {
            return Address::parse(text);
        }
        let invalid = || Error::Address { text: text.to_owned(), source: None };
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let is_host = (1..=253).contains(&host.len()) && host.bytes().all(plain);
        // `10.0.0.300` is a mistake rather than the name of a host.
        let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
        let is_number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
        match port.parse::<u16>() {
            Ok(1..) if is_host && !is_number => Ok(Address::Name(text.to_owned())),
            _ => Err(invalid()),
        }
    }

    /// Reads `host:port` or `unix:/path`. A host name is resolved once, here.
    ///
    /// # Errors
    /// The text is neither, or the host is not known.
    pub fn parse(text: &str) -> Result<Address, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(Error::NoPath { text: text.to_owned() });
            }
            return Ok(Address::Unix(path.into()));
        }
        let invalid = |source| Error::Address { text: text.to_owned(), source };
        let first = text.to_socket_addrs().map_err(|error| invalid(Some(error)))?.next();
        first.map(Address::Tcp).ok_or_else(|| invalid(None))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Name(name) => f.write_str(name),
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
        match address {
            Address::Tcp(address) => Stream::connect_tcp(*address, tls),
            Address::Unix(path) => Ok(Stream::Unix(mio::net::UnixStream::connect(path)?)),
            Address::Name(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Closes the sending half: the other end sees that nothing follows, and what it sends is read on.
    pub(crate) fn close_sending(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, rustix::net::Shutdown::Write)?)
    }

    /// As [`Stream::connect`], by TCP.
    pub(crate) fn connect_tcp(address: SocketAddr, tls: Option<&Tls>) -> io::Result<Stream> {
        let stream = mio::net::TcpStream::connect(address)?;
        // Ignored on a socket that is not connected yet on some systems, not on Linux.
        let _ = stream.set_nodelay(true);
        Ok(match tls {
            Some(tls) => Stream::Tls(Encrypted::new(stream, tls)?),
            None => Stream::Tcp(stream),
        })
    }

    /// The address of the other end, of TCP.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Tls(stream) => stream.socket().peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// A connection that the process before has passed on.
    pub(crate) fn from_std(stream: std::net::TcpStream) -> io::Result<Stream> {
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

    /// Has `registry` report nothing any more, so that another can.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
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
    /// With the path, which is removed at the end, and the socket's device and inode.
    Unix(mio::net::UnixListener, PathBuf, Inode),
}

impl Listener {
    /// A socket that listens already.
    pub(crate) fn from_std(listener: std::net::TcpListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(mio::net::TcpListener::from_std(listener)))
    }

    /// Listens; `key` is the key of the configuration that has the address.
    pub(crate) fn bind(address: &Address, key: &'static str) -> Result<Listener, Error> {
        match address {
            Address::Name(text) => Err(Error::Address { text: text.clone(), source: None }),
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
                let listener =
                    bind().map_err(|source| Error::Port { address: *address, key, source })?;
                Ok(Listener::Tcp(mio::net::TcpListener::from_std(listener)))
            }
            Address::Unix(path) => {
                remove_dead(path)?;
                let failed = |source| Error::Socket { path: path.clone(), source };
                let listener = mio::net::UnixListener::bind(path).map_err(failed)?;
                let own = inode_of(path).map_err(failed)?;
                Ok(Listener::Unix(listener, path.clone(), own))
            }
        }
    }

    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Unix(_, path, _) => Ok(Address::Unix(path.clone())),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Listener::Unix(listener, ..) => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// Has `registry` report nothing any more, so that another can.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => registry.deregister(listener),
            Listener::Unix(listener, ..) => registry.deregister(listener),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Listener::Unix(listener, ..) => Stream::Unix(listener.accept()?.0),
        })
    }
}

/// What tells a file from another of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

fn inode_of(path: &Path) -> io::Result<Inode> {
    let found = std::fs::symlink_metadata(path)?;
    Ok(Inode { device: found.dev(), number: found.ino() })
}

/// Removes a socket that nobody listens on: it is left from a process that was killed, and has no content. Nothing else is removed: a
/// file, or a socket that does not say that it is dead, makes binding fail.
fn remove_dead(path: &Path) -> Result<(), Error> {
    let Err(error) = std::os::unix::net::UnixStream::connect(path) else {
        return Err(Error::InUse { path: path.to_owned() });
    };
    let is_socket = || std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if error.kind() == io::ErrorKind::ConnectionRefused && is_socket() {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A process that started meanwhile may have put its own in the place.
        if let Listener::Unix(_, path, own) = self
            && inode_of(path).is_ok_and(|there| there == *own)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &Path) -> Result<Listener, Error> {
        Listener::bind(&Address::Unix(path.to_owned()), "memcached.listen")
    }

    #[test]
    fn the_name_of_a_server_stays_one() {
        let parse = |text: &str| Address::parse_server(text).ok();
        let name = |text: &str| Some(Address::Name(text.to_owned()));
        assert_eq!(parse("cache-1.example:11211"), name("cache-1.example:11211"));
        assert_eq!(parse("127.0.0.1:1"), Some(Address::Tcp("127.0.0.1:1".parse().unwrap())));
        assert_eq!(parse("[::1]:1"), Some(Address::Tcp("[::1]:1".parse().unwrap())));
        assert_eq!(parse("unix:/a"), Some(Address::Unix("/a".into())));
        for text in ["a", "a:", ":1", "a:0", "a:65536", "10.0.0.300:1", "a b:1", "a:1:2", "unix:"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_a_dead_socket_is_removed_and_only_the_own_one_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::write(&path, "precious").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        // Left by a process that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = bind(&path).unwrap();
        let error = bind(&path).err().expect("it is in use").to_string();
        assert!(error.contains("another process does"), "{error}");
        // Another's that took the name.
        std::fs::remove_file(&path).unwrap();
        let second = bind(&path).unwrap();
        drop(first);
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }
}
