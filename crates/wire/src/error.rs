//! Errors of this crate: certificates that cannot be used.

use std::path::PathBuf;

/// Why the certificates of a server or a client cannot be used. With its causes it says which file is meant, and what is
/// wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A chain of certificates, or a key, cannot be read, or they do not fit each other.
    #[error("cannot use {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificates of authorities cannot be read.
    #[error(transparent)]
    Authorities(#[from] record::Error),
    /// The TLS library refuses the versions of the protocol.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}
