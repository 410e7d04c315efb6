//! TLS to servers, by rustls.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::error::Error;

/// How connections to a server are encrypted, and which name its certificate must have.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Trusts the certificates of a file in PEM format, or those of the system without one; `name` is
    /// the host name or the address in the server's certificate.
    ///
    /// # Errors
    /// The file cannot be read or has no certificate, or the name is not one of a host.
    pub fn new(ca: Option<&Path>, name: &str) -> Result<Tls, Error> {
        let roots = match ca {
            Some(path) => record::read_roots(path)?,
            None => record::system_roots(),
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|source| Error::HostName { name: name.to_owned(), source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Tls { config: Arc::new(config), name })
    }
}

/// An encrypted connection over a socket that never blocks.
///
/// A read goes on until the socket is empty or the buffer full, as edge-triggered readiness requires
/// of every read that returns less than there was room for.
pub(crate) struct Encrypted {
    socket: mio::net::TcpStream,
    session: Box<ClientConnection>,
}

impl Encrypted {
    pub(crate) fn new(socket: mio::net::TcpStream, tls: &Tls) -> io::Result<Encrypted> {
        let session = ClientConnection::new(tls.config.clone(), tls.name.clone());
        let session = Box::new(session.map_err(io::Error::other)?);
        Ok(Encrypted { socket, session })
    }

    pub(crate) fn socket(&self) -> &mio::net::TcpStream {
        &self.socket
    }

    pub(crate) fn socket_mut(&mut self) -> &mut mio::net::TcpStream {
        &mut self.socket
    }

    /// Sends what the session has to send: the handshake, or what was written.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for Encrypted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.session.reader().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
            match self.session.read_tls(&mut self.socket) {
                // The reader says whether the session was closed as it should be.
                Ok(0) if self.session.is_handshaking() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if filled > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            if let Err(error) = self.session.process_new_packets() {
                // Tells the server why, as far as it listens.
                let _ = self.push();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            self.push()?;
        }
        Ok(filled)
    }
}

impl Write for Encrypted {
    /// Takes as much as the session has room for; what the socket does not take at once is sent when
    /// it is writable.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // First what it has from before: it may have no room only because of that, and a socket that
        // is writable now is not reported again.
        self.push()?;
        let count = self.session.writer().write(bytes)?;
        self.push()?;
        match count {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}
