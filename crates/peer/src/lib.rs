//! The HTTP/1.1 client used between the processes of a cluster: gateway to node, node to node.
//!
//! A [`Pool`] keeps idle connections to one address, separately for each thread: a connection
//! belongs to the runtime that opened it, and from another thread each of its wake-ups would cross
//! threads. httparse parses the head of a reply; the body is returned in large pieces without
//! copying. [`Limits`] bounds heads, headers, bodies, idle connections and the time for connecting.
//! The caller bounds all other waiting: dropping a future, or an unfinished [`Incoming`], closes
//! its connection.
//!
//! With a `Dialer` the connections are encrypted, and both ends show certificates.
//!
//! Not a general client: no redirects, no pipelining. A reply must have a `content-length`
//! (the replies of nodes do); one with `transfer-encoding`, or one that ends with its connection,
//! is refused. hyper's client was rejected for its cost: a task per connection and a channel per
//! request.

mod connection;
mod incoming;
mod pool;
mod reply;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use origin::Chunks;

#[cfg(doc)]
use wire::tls::Dialer;

pub use incoming::Incoming;
pub use pool::{PendingGet, Pool, RequestHead, bound_idle};
pub use reply::HEADERS_MAX;

/// The limits of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a reply's head, in bytes.
    pub head_bytes_max: usize,
    /// Maximum length of a reply's body, in bytes.
    pub body_bytes_max: u64,
    /// Maximum idle connections per thread.
    pub idle_max: usize,
    /// How long an idle connection is kept. Should be shorter than the server's own limit, so that
    /// a connection is hardly ever used just when the server closes it.
    pub idle: Duration,
    /// Maximum time for connecting.
    pub connect: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 32 * 1024,
            body_bytes_max: 1 << 50,
            idle_max: 64,
            idle: Duration::from_secs(20),
            connect: Duration::from_secs(1),
        }
    }
}

/// Why a request got no reply, or only part of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Connecting failed. Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection broke. It is not known whether the request was carried out.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The reply is malformed, or of a kind that this client does not accept. The request may have
    /// been carried out.
    #[error("the reply is malformed: {0}")]
    Malformed(String),
    /// The request is invalid: its path is malformed, or its body differs from its declared length
    /// or failed. Part of the body may have been sent, never all of it.
    #[error("the request cannot be sent: {0}")]
    Request(String),
}

impl Fault {
    fn closed(when: &str) -> Fault {
        Fault::Broken(io::Error::new(io::ErrorKind::UnexpectedEof, when.to_owned()))
    }
}

/// The body of a request.
pub enum Outgoing<'a> {
    /// No body.
    Empty,
    /// A complete body.
    Bytes(Bytes),
    /// A streamed body, sent with a `content-length` if its length is known, otherwise chunked. If
    /// the source fails, the request fails with [`Fault::Request`].
    Stream(&'a mut dyn Chunks),
}

/// A reply whose head has arrived.
#[derive(Debug)]
pub struct Reply {
    /// The status; never an interim one.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, still to be read.
    pub body: Incoming,
}
