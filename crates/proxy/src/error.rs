//! The errors of this crate.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::InvalidDnsNameError;

/// Why a proxy could not be configured or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of a Unix socket has no path.
    #[error("{text:?} has no path; write it as \"unix:/run/memcached.sock\"")]
    NoPath {
        /// The address.
        text: String,
    },
    /// The text is not an address, or the host is not known.
    #[error("{text:?} is not an address; write \"127.0.0.1:11211\" or \"unix:/path\"")]
    Address {
        /// The text.
        text: String,
        /// The cause; absent for a host without an address.
        source: Option<io::Error>,
    },
    /// The port cannot be listened on.
    #[error(
        "cannot listen on {address}; if another process has the port, stop it or choose another with --set \
         {key}={}:PORT", address.ip()
    )]
    Port {
        /// The address.
        address: std::net::SocketAddr,
        /// The key of the configuration that has it.
        key: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The Unix socket cannot be listened on.
    #[error("cannot listen on unix:{path}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process listens on the Unix socket.
    #[error("cannot listen on unix:{path}: another process does")]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// Other settings for a running proxy listen elsewhere.
    #[error(
        "memcached.listen is another address; it changes only when the process is started again"
    )]
    ListenChanged,
    /// The system does not let a thread wait for sockets.
    #[error("cannot wait for connections")]
    Poll(#[source] io::Error),
    /// A thread or a socket of the proxy failed at the start.
    #[error(transparent)]
    Start(#[from] io::Error),
    /// The certificates that servers are checked with cannot be read.
    #[error(transparent)]
    Certificates(#[from] record::Error),
    /// The name in a server's certificate cannot be one of a host.
    #[error("{name:?} is not the name of a host")]
    HostName {
        /// The name.
        name: String,
        /// The cause.
        source: InvalidDnsNameError,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}
