//! Errors of this crate: a front that does not start.

use std::io;
use std::net::{AddrParseError, SocketAddr};

/// Why nothing listens, or is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not an address and a port.
    #[error("{key} is {text:?}, which is not an address and a port such as 127.0.0.1:7070")]
    Address {
        /// The key of the configuration that has it.
        key: &'static str,
        /// The text.
        text: String,
        /// What is wrong with it.
        source: AddrParseError,
    },
    /// The port cannot be listened on.
    #[error(
        "cannot listen on {address}; if another process has the port, stop it or choose another \
         with --set {key}={}:PORT", address.ip()
    )]
    Port {
        /// The address.
        address: SocketAddr,
        /// The key of the configuration that has it.
        key: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The address that was listened on is not known.
    #[error("cannot use the socket that listens")]
    Listener(#[source] io::Error),
    /// The system has no thread for it.
    #[error("cannot start the thread {name}")]
    Thread {
        /// The thread.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// The collector of traces cannot be used as it is configured.
    #[error("cannot export traces to {address} (traces.endpoint)")]
    Collector {
        /// Where it is.
        address: String,
        /// What is wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A thread that serves has no runtime.
    #[error("a runtime did not start")]
    Runtime,
}
