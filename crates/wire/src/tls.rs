//! TLS by rustls, versions 1.2 and 1.3: for clients' connections, and between the processes of a cluster, where
//! both ends show certificates. Certificates are read again when their files change.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use ground::with_causes;
use record::{file, read_roots};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};
use tracing::{info, warn};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::time::Time;

use crate::error::Error;
use configuration::Config;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often a certificate that has ended, or will soon, is warned of.
const REMIND: Duration = Duration::from_secs(24 * 3600);
/// How long before its end a certificate is warned of, but at most the last third of its time: many are renewed weeks before, and those
/// of some hours by a program.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// The certificate that clients are shown.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    /// The files when they were read at the start.
    opened: [Option<Stamp>; 3],
    current: ArcSwap<ServerConfig>,
}

type Stamp = (u64, u64, Option<SystemTime>);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.modified().ok()))
}

fn stamps(paths: [Option<&Path>; 3]) -> [Option<Stamp>; 3] {
    paths.map(|path| stamp(path?).ok())
}

fn read(certificate: &Path, key: &Path, ca: Option<&Path>) -> Result<Arc<ServerConfig>, Error> {
    let (chain, secret) = pair(certificate, key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let config = match ca {
        None => config.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(read_roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            config.with_client_cert_verifier(verifier.map_err(unusable(ca))?)
        }
    };
    let config = config.with_single_cert(chain, secret).map_err(unusable(certificate))?;
    Ok(Arc::new(config))
}

impl Tls {
    /// Reads a chain of certificates and its key, both in PEM format. With `ca`, who connects must show a
    /// certificate that one of that file's has signed.
    ///
    /// # Errors
    ///
    /// If one cannot be read or used, they do not fit each other, or others than its owner may read the key.
    pub fn open(certificate: &Path, key: &Path, ca: Option<&Path>) -> Result<Arc<Tls>, Error> {
        // Before they are read, so that a change meanwhile, or before they are looked at again, is seen.
        let opened = stamps([Some(certificate), Some(key), ca]);
        let current = ArcSwap::new(read(certificate, key, ca)?);
        let (certificate, key, ca) =
            (certificate.to_owned(), key.to_owned(), ca.map(Path::to_owned));
        Ok(Arc::new(Tls { certificate, key, ca, opened, current }))
    }

    /// Reads the files again whenever they change; never returns. Files that cannot be used leave the
    /// certificate as it was, with a warning. Connections that are open keep theirs.
    pub async fn keep_current(self: Arc<Self>) {
        let look = || stamps([Some(&*self.certificate), Some(&*self.key), self.ca.as_deref()]);
        let (mut seen, mut reminded) = (self.opened, Instant::now());
        loop {
            tokio::time::sleep(LOOK).await;
            if reminded.elapsed() >= REMIND {
                reminded = Instant::now();
                if let Some(advice) = advice(&self.certificate, SystemTime::now()) {
                    warn!("{advice}");
                }
            }
            let now = look();
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.certificate, &self.key, self.ca.as_deref()) {
                Ok(config) => {
                    self.current.store(config);
                    info!("a new certificate from {}", self.certificate.display());
                }
                Err(error) => warn!("the certificate stays as it was: {}", with_causes(&error)),
            }
        }
    }

    /// Shakes hands with a client, for at most `within`.
    ///
    /// # Errors
    ///
    /// If the client does not, or is too slow.
    pub async fn accept(
        &self,
        stream: TcpStream,
        within: Duration,
    ) -> io::Result<TlsStream<TcpStream>> {
        let accept = TlsAcceptor::from(self.current.load_full()).accept(stream);
        let timed_out = |_| Err(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(within, accept).await.unwrap_or_else(timed_out)
    }
}

/// How this process, as a client of others, checks their certificates, and which one it shows. The files are
/// looked at again whenever it connects.
#[derive(Debug)]
pub struct Dialer {
    ca: PathBuf,
    /// A chain and its key.
    own: Option<(PathBuf, PathBuf)>,
    current: Mutex<([Option<Stamp>; 3], Arc<ClientConfig>)>,
}

impl Dialer {
    /// Servers' certificates are checked against those of `ca`; `own` is a chain and its key.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or used.
    pub fn open(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<Dialer>, Error> {
        let owned = own.map(|(certificate, key)| (certificate.to_owned(), key.to_owned()));
        let current = Mutex::new((look(ca, own), connector(ca, own)?));
        Ok(Arc::new(Dialer { ca: ca.to_owned(), own: owned, current }))
    }

    /// What the files say now; if they cannot be used, what they said before.
    pub fn current(&self) -> Arc<ClientConfig> {
        let own = self.own.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = look(&self.ca, own);
        if now != current.0 {
            current.0 = now;
            match connector(&self.ca, own) {
                Ok(config) => current.1 = config,
                Err(error) => warn!("the certificate stays as it was: {}", with_causes(&error)),
            }
        }
        current.1.clone()
    }

    /// Shakes hands with a server, whose certificate must be for its IP address.
    ///
    /// # Errors
    ///
    /// If one does not trust the other.
    pub async fn shake(
        &self,
        address: SocketAddr,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let name = ServerName::IpAddress(address.ip().into());
        TlsConnector::from(self.current()).connect(name, stream).await
    }
}

/// How a process connects to the nodes of its cluster; `None`: unencrypted.
///
/// # Errors
///
/// If a certificate cannot be used.
pub fn dialer(config: &Config) -> Result<Option<Arc<Dialer>>, Error> {
    let Some((ca, own)) = config.cluster.certificates() else { return Ok(None) };
    Dialer::open(ca, Some(own)).map(Some)
}

fn look(ca: &Path, own: Option<(&Path, &Path)>) -> [Option<Stamp>; 3] {
    stamps([Some(ca), own.map(|(certificate, _)| certificate), own.map(|(_, key)| key)])
}

fn connector(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(read_roots(ca)?);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, secret) = pair(certificate, key)?;
            config.with_client_auth_cert(chain, secret).map_err(unusable(certificate))?
        }
    };
    Ok(Arc::new(config))
}

fn unusable<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    path: &Path,
) -> impl FnOnce(E) -> Error {
    move |cause| Error::File { path: path.to_owned(), source: cause.into() }
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A chain of certificates and its key, which nobody but its owner may read.
fn pair(certificate: &Path, key: &Path) -> Result<Pair, Error> {
    let text = file::read(certificate, file::PEM_BYTES_MAX).map_err(unusable(certificate))?;
    let chain = CertificateDer::pem_slice_iter(&text);
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(in_words);
    let chain = chain.map_err(unusable(certificate))?;
    if let Some(advice) = advice_on(certificate, &chain, SystemTime::now()) {
        warn!("{advice}");
    }
    let secret = file::read_private(key, file::PEM_BYTES_MAX, 0o077);
    let secret = secret.map_err(unusable(key))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(in_words).map_err(unusable(key))?;
    Ok((chain, secret))
}

/// What to do about the certificates in a file if they have ended, have not begun, or end soon; `None` if nothing is to be done, or
/// the file cannot be read.
pub fn advice(certificate: &Path, now: SystemTime) -> Option<String> {
    let text = file::read(certificate, file::PEM_BYTES_MAX).ok()?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().ok()?;
    advice_on(certificate, &chain, now)
}

fn advice_on(path: &Path, chain: &[CertificateDer<'_>], now: SystemTime) -> Option<String> {
    let validity = |one: &CertificateDer<'_>| {
        let one = Certificate::from_der(one).ok()?;
        let validity = one.tbs_certificate().validity();
        let at = |time: &Time| SystemTime::UNIX_EPOCH + time.to_unix_duration();
        Some((at(&validity.not_before), at(&validity.not_after)))
    };
    // A client refuses the whole chain for one of it.
    let dates: Vec<(SystemTime, SystemTime)> = chain.iter().filter_map(validity).collect();
    let begin = dates.iter().map(|(begin, _)| *begin).max()?;
    let end = dates.iter().map(|(_, end)| *end).min()?;
    let soon = SOON.min(end.duration_since(begin).unwrap_or_default() / 3);
    let what = if end <= now {
        "ended: clients refuse it"
    } else if begin > now {
        "is not valid yet by this machine's clock: clients refuse it"
    } else if end <= now + soon {
        "ends soon"
    } else {
        return None;
    };
    let (path, begin, end) =
        (path.display(), httpdate::fmt_http_date(begin), httpdate::fmt_http_date(end));
    Some(format!(
        "the certificate in {path} (valid from {begin} to {end}) {what}; put a current one there, which is taken without a restart"
    ))
}

/// An error of a file in PEM format; the library has the label of what is cut off as numbers.
fn in_words(error: pem::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(&end_marker).into_owned();
            format!("the file ends before `-----END {label}-----`").into()
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that is valid for a hundred years, from 22 November 2026 on.
    #[test]
    fn certificates_are_warned_of_outside_their_dates_and_near_their_end() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../concertina/tests/it/tls/server.pem");
        let at = |date: &str| advice(&path, httpdate::parse_http_date(date).unwrap());
        assert_eq!(at("Mon, 30 Nov 2026 00:00:00 GMT"), None);
        assert_eq!(at("Sun, 20 Oct 2126 00:00:00 GMT"), None);
        for (date, what) in [
            ("Sat, 21 Nov 2026 00:00:00 GMT", "is not valid yet"),
            ("Fri, 25 Oct 2126 00:00:00 GMT", "ends soon"),
            ("Tue, 29 Oct 2126 07:50:00 GMT", "ended"),
        ] {
            let advice = at(date).unwrap();
            assert!(advice.contains(what) && advice.contains("29 Oct 2126"), "{advice}");
            assert!(advice.contains("server.pem"), "{advice}");
        }
        assert_eq!(advice(Path::new("nothing.pem"), SystemTime::now()), None);
    }
}
