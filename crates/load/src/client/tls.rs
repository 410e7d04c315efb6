//! TLS for measuring, by rustls: what a socket carries is enciphered, all else is as without it.
//!
//! Certificates are checked against the system's roots or those of a file. A session is resumed where the server
//! allows, so connections after the first cost it less, as with browsers. Bytes are copied twice more than
//! without TLS and bodies cannot be dropped in the kernel: a generator of large objects needs more processor.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{Fault, ReplyError};

/// Whose certificates are believed.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that the system trusts.
    System,
    /// Those that go back to a certificate of this PEM file.
    File(&'a Path),
}

/// How to speak TLS with a host.
#[derive(Clone)]
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secure {
    /// For a host, whose port does not matter. The error says what is wrong with it or with the roots.
    pub fn new(host: &str, trust: Trust<'_>) -> Result<Secure, String> {
        let bare = match host.rsplit_once(':') {
            Some((before, _)) if !before.contains(':') || before.ends_with(']') => before,
            _ => host,
        };
        let bare = bare.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare).map_err(|_| format!("`{host}` is no host"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        let mut config = config.with_root_certificates(roots(trust)?).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Secure { config: Arc::new(config), name })
    }

    /// A new session.
    pub fn session(&self) -> Result<Session, Fault> {
        let made = ClientConnection::new(self.config.clone(), self.name.clone());
        Ok(Session { tls: made.map_err(|error| Fault::Tls(error.to_string()))? })
    }
}

fn roots(trust: Trust<'_>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match trust {
        Trust::System => {
            // Some that every system has are of kinds that rustls does not take.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::File(path) => {
            let wrong =
                |error: String| format!("cannot read certificates of {}: {error}", path.display());
            let found = CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
                store.add(certificate).map_err(|e| wrong(e.to_string()))?;
            }
        }
    }
    match store.is_empty() {
        true => Err("there are no certificates to check the service's against".to_owned()),
        false => Ok(store),
    }
}

/// The TLS of a connection.
pub(super) struct Session {
    tls: ClientConnection,
}

impl Session {
    /// Whether bytes wait for the socket to be ready for writing.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether it is not agreed yet how to speak: what is written waits.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Takes bytes to be sent and sends what the socket takes. Returns how many were taken; 0 means that
    /// nothing more is until the socket, or the other side, is ready.
    pub fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Fault> {
        self.flush(socket)?;
        if self.tls.wants_write() {
            return Ok(0);
        }
        let taken = self.tls.writer().write(bytes).map_err(|e| Fault::Tls(e.to_string()))?;
        self.flush(socket)?;
        Ok(taken)
    }

    /// Sends what is enciphered, as far as the socket takes it.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<(), Fault> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(())
    }

    /// Receives into `room`; `None` if nothing is there now, 0 when the other side has said that it ends.
    pub fn receive(&mut self, socket: &OwnedFd, room: &mut [u8]) -> Result<Option<usize>, Fault> {
        loop {
            match self.tls.reader().read(room) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    // Whoever cut the connection may not have been the service.
                    return Err(Fault::Reply(ReplyError::Closed("without TLS's farewell")));
                }
                Err(_) => {}
            }
            match self.tls.read_tls(&mut Socket(socket)) {
                Ok(_) => {
                    if let Err(error) = self.tls.process_new_packets() {
                        // The other side is told why.
                        let _ = self.flush(socket);
                        return Err(Fault::Tls(error.to_string()));
                    }
                }
                Err(error) if is_later(&error) => return Ok(None),
                Err(error) => return Err(fault(&error)),
            }
        }
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

fn fault(error: &std::io::Error) -> Fault {
    match Errno::from_io_error(error) {
        Some(errno) => Fault::Socket(errno),
        None => Fault::Tls(error.to_string()),
    }
}

/// A socket as rustls wants it.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        Ok(recv(self.0, room, RecvFlags::empty())?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_roots_are_checked_before_anything_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let (none, bad) = (dir.path().join("none"), dir.path().join("bad"));
        std::fs::write(&none, "no certificate\n").unwrap();
        std::fs::write(&bad, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            .unwrap();
        for (path, words) in [
            (none, "no certificates to check"),
            (bad, "cannot read certificates of"),
            (dir.path().join("missing"), "cannot read certificates of"),
        ] {
            let error = Secure::new("localhost:1", Trust::File(&path)).err().unwrap();
            assert!(error.contains(words), "{error}");
        }
        let error = Secure::new("a b", Trust::System).err().unwrap();
        assert!(error.contains("is no host"), "{error}");
    }
}
