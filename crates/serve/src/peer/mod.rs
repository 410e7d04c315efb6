//! The HTTP/1.1 client between the processes of a cluster: gateway to node, node to node.
//!
//! A [`Pool`] keeps idle connections to one address, apart for each thread (a connection belongs to the
//! runtime that opened it; used from another, each of its wake-ups would cross threads). A reply's head
//! is parsed by httparse, its body is handed on in large pieces without being copied. Everything is
//! bounded by [`Limits`]: heads, headers, bodies, idle connections, the time for connecting. All other
//! waiting is bounded by the caller: dropping a future, or an unfinished [`Incoming`], closes the
//! connection under it.
//!
//! Not a general client: no TLS, no redirects, no pipelining; a reply must say its length (what nodes
//! send does), so one with `transfer-encoding`, or one that ends with its connection, is refused.
//! hyper's client was rejected for its price: a task for each connection and a channel for each request.

mod connection;
mod incoming;
mod pool;
mod reply;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use origin::Chunks;

pub use incoming::Incoming;
pub use pool::Pool;
pub use reply::HEADERS_MAX;

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest head of a reply, in bytes.
    pub head_bytes_max: usize,
    /// The longest body of a reply, in bytes.
    pub body_bytes_max: u64,
    /// Idle connections that each thread keeps.
    pub idle_max: usize,
    /// How long a connection is kept idle. Less than the server keeps one, so that it is hardly ever
    /// used while the server closes it.
    pub idle: Duration,
    /// How long connecting may take.
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

/// Why there is no reply, or no more of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no connection: nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection ended. Whether the request was carried out is not known.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// What came is not a reply that is understood here. The request may have been carried out.
    #[error("the reply is malformed: {0}")]
    Malformed(String),
    /// The request cannot be sent: its path or its body is not what it says. Of a body a part may have
    /// been sent, never all of it.
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
    /// None.
    Empty,
    /// All there.
    Bytes(Bytes),
    /// In pieces, with their length in the head if it is known, else chunked. A source that fails ends
    /// the request with [`Fault::Request`].
    Stream(&'a mut dyn Chunks),
}

/// A reply whose head has come.
#[derive(Debug)]
pub struct Reply {
    /// Its status; never an interim one.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Incoming,
}
