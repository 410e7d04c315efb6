//! Why a request failed.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::reply::ReplyError;

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The connection could not be made.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// The address that was tried.
        address: SocketAddr,
        /// Why.
        error: Errno,
    },
    /// A thread that reads files could not be started.
    #[error("cannot open files: {0}")]
    Files(Errno),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(Errno),
    /// The TLS handshake or a TLS record failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// The reply is malformed.
    #[error("{0}")]
    Reply(#[from] ReplyError),
    /// The service refused a stream of HTTP/2 before it did anything about it.
    #[error("HTTP/2: the service refused the request (RST_STREAM, REFUSED_STREAM)")]
    Refused,
    /// The service closed a connection of HTTP/2 in order, before it did anything about the request.
    #[error("HTTP/2: the service closed the connection before the request (GOAWAY)")]
    Unprocessed,
    /// HTTP/2 was violated, or the service ended the request or the connection.
    #[error("HTTP/2: {0}")]
    Http2(String),
}
