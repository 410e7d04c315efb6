//! TLS for clients' connections, by rustls: versions 1.2 and 1.3. The certificate is read again when its file
//! changes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The certificate that clients are shown.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<ServerConfig>,
}

type Stamp = (u64, u64, Option<SystemTime>);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.modified().ok()))
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let wrong = |path: &Path| format!("cannot use {}", path.display());
    let mode = std::fs::metadata(key).with_context(|| wrong(key))?.mode();
    ensure!(
        mode & 0o077 == 0,
        "others than its owner may read or write {} (mode {:03o}); chmod 600 it",
        key.display(),
        mode & 0o777
    );
    let chain = CertificateDer::pem_file_iter(certificate).with_context(|| wrong(certificate))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().with_context(|| wrong(certificate))?;
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| wrong(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .with_context(|| wrong(certificate))?;
    Ok(Arc::new(config))
}

impl Tls {
    /// Reads a chain of certificates and its key, both in PEM format.
    ///
    /// # Errors
    ///
    /// If one cannot be read or used, they do not fit each other, or others than its owner may read the key.
    pub fn open(certificate: &Path, key: &Path) -> anyhow::Result<Arc<Tls>> {
        let current = ArcSwap::new(read(certificate, key)?);
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Arc::new(Tls { certificate, key, current }))
    }

    /// Reads the files again whenever they change; never returns. Files that cannot be used leave the
    /// certificate as it was, with a warning. Connections that are open keep theirs.
    pub async fn keep_current(self: Arc<Self>) {
        let look = || (stamp(&self.certificate).ok(), stamp(&self.key).ok());
        let mut seen = look();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = look();
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    self.current.store(config);
                    info!("a new certificate from {}", self.certificate.display());
                }
                Err(error) => warn!("the certificate stays as it was: {error:#}"),
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
