//! TLS connections for the load generator, by rustls.
//!
//! Certificates are verified against the system's roots or those of a file. Sessions are resumed if
//! the server allows it, so that connections after the first are cheaper, as with browsers.
//! Compared with plain HTTP, bytes are copied twice more and bodies cannot be discarded in the
//! kernel, so loads of large objects need more processor time.

use std::error::Error as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::fault::Fault;
use super::reply::ReplyError;

/// The name of HTTP/2 over TLS: RFC 9113, section 3.2.
const H2: &[u8] = b"h2";
/// The service did not choose HTTP/2.
const NO_H2: &str = "the service does not offer the requested version of HTTP; leave out --http2, \
                     or give it";

/// The trusted root certificates.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// The system's roots.
    System,
    /// The certificates in this PEM file.
    File(&'a Path),
}

/// The TLS settings for a host.
#[derive(Clone)]
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secure {
    /// Creates the settings for a host, whose port is ignored; `http2`: for HTTP/2 alone. The error
    /// describes what is wrong with the host name or the roots.
    pub fn new(host: &str, trust: Trust<'_>, http2: bool) -> Result<Secure, String> {
        let bare = match host.rsplit_once(':') {
            Some((before, _)) if !before.contains(':') || before.ends_with(']') => before,
            _ => host,
        };
        let bare = bare.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare).map_err(|_| format!("invalid host name `{host}`"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        let mut config = config.with_root_certificates(roots(trust)?).with_no_client_auth();
        // Only what was asked for: a load that is half HTTP/2 would be neither.
        config.alpn_protocols = vec![if http2 { H2.to_vec() } else { b"http/1.1".to_vec() }];
        Ok(Secure { config: Arc::new(config), name })
    }

    /// Makes a handshake over a blocking connection, whose timeouts are set, so that a wrong name, an
    /// unknown certificate or a missing protocol is told before a load begins.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn try_handshake(&self, mut stream: &TcpStream) -> Result<(), String> {
        let mut tls = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(|error| error.to_string())?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|error| {
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
                let hint = cause.map_or("does the service speak TLS at this port?", hint);
                format!("{error}; {hint}")
            })?;
        }
        let wants_h2 = self.config.alpn_protocols.iter().any(|name| name == H2);
        if wants_h2 && tls.alpn_protocol() != Some(H2) {
            return Err(NO_H2.to_owned());
        }
        Ok(())
    }

    /// A new session.
    pub fn session(&self) -> Result<Session, Fault> {
        let made = ClientConnection::new(self.config.clone(), self.name.clone());
        Ok(Session { tls: made.map_err(|error| Fault::Tls(error.to_string()))? })
    }
}

/// What to do about a failed handshake.
fn hint(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription, CertificateError, Error};
    match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "--sni NAME asks for another name",
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "--ca-file FILE trusts another root certificate"
        }
        // rustls has no name for what webpki says there.
        Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "the certificate is one of an authority (CA:TRUE), which cannot be a server's: make it with \
             `-addext basicConstraints=critical,CA:FALSE`, or have it signed"
        }
        Error::InvalidCertificate(_) => "is it the right service?",
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => NO_H2,
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the service does not know that name; --sni NAME asks for another"
        }
        Error::AlertReceived(_) => "the service refused the handshake",
        _ => "does the service speak TLS at this port?",
    }
}

fn roots(trust: Trust<'_>) -> Result<RootCertStore, String> {
    let roots = match trust {
        Trust::System => record::system_roots(),
        Trust::File(path) => record::read_roots(path).map_err(|error| match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        })?,
    };
    match roots.is_empty() {
        true => Err("there are no root certificates to verify the service's certificate with; \
                     name a file of them"
            .to_owned()),
        false => Ok(roots),
    }
}

/// The TLS session of a connection.
pub(super) struct Session {
    tls: ClientConnection,
}

impl Session {
    /// Whether bytes wait for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether the handshake is under way; written bytes wait for its end.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether HTTP/2 was agreed on; `None` during the handshake.
    pub fn is_h2(&self) -> Option<bool> {
        (!self.is_handshaking()).then(|| self.tls.alpn_protocol() == Some(H2))
    }

    /// Accepts bytes and sends as much as the socket accepts. Returns the number of bytes accepted;
    /// 0 means that the caller must wait for the socket or the peer.
    pub fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Fault> {
        self.flush(socket)?;
        if self.tls.wants_write() {
            return Ok(0);
        }
        let taken = self.tls.writer().write(bytes).map_err(|e| Fault::Tls(e.to_string()))?;
        self.flush(socket)?;
        Ok(taken)
    }

    /// Sends encrypted bytes, as far as the socket accepts them.
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

    /// Receives into `room`. Returns `None` if no bytes are available now, and 0 when the peer has
    /// closed the session.
    pub fn receive(&mut self, socket: &OwnedFd, room: &mut [u8]) -> Result<Option<usize>, Fault> {
        loop {
            match self.tls.reader().read(room) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    // Without close_notify, somebody other than the service may have cut the
                    // connection.
                    return Err(Fault::Reply(ReplyError::Closed("without a TLS close_notify")));
                }
                Err(_) => {}
            }
            match self.tls.read_tls(&mut Socket(socket)) {
                Ok(_) => {
                    if let Err(error) = self.tls.process_new_packets() {
                        // Sends the alert that tells the peer why.
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

/// Adapts a socket to the traits that rustls uses.
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
            (none, "has no certificate in PEM format"),
            (bad, "cannot read certificates of"),
            (dir.path().join("missing"), "cannot read certificates of"),
        ] {
            let error = Secure::new("localhost:1", Trust::File(&path), false).err().unwrap();
            assert!(error.contains(words), "{error}");
        }
        let error = Secure::new("a b", Trust::System, false).err().unwrap();
        assert!(error.contains("invalid host name"), "{error}");
    }
}
