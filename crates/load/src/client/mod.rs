//! A lean client of HTTP/1.1 and of memcached's text protocol for measuring: non-blocking, connections kept, one
//! request at a time on each, no runtime and no allocation for each request once a connection is warm.
//!
//! - [`Target`]: where requests go, what is spoken there, and how requests are written (`head`: those of
//!   HTTP; `s3`: the signatures of buckets; `memcached`: its commands and its replies; `tls`: https).
//! - [`ReplyReader`]: the parser of HTTP replies; bytes in, events out, no socket.
//! - [`Connection`]: a socket with the request that it sends and the reply that it reads.
//! - [`Body`]: the bytes of a generated object, a function of its key alone, so that a reply's bytes
//!   can be checked by anybody who knows the key.
//!
//! It is not a general client: no redirects, no cookies, no pipelining, and bodies are counted
//! or checked, not kept. hyper would cost several times the processor time for each request, which on
//! a small machine is taken from the server that is measured.

mod body;
mod connection;
mod head;
mod memcached;
mod reply;
mod s3;
mod target;
mod tls;

pub use body::Body;
pub use connection::{Connection, Fault, Progress};
pub use reply::{Reply, ReplyError, ReplyReader};
pub use s3::Credentials;
pub use target::{Target, TargetError};
pub use tls::Trust;

/// The reply header that says who answered; its words are those of `Outcome::as_str`.
pub const OUTCOME_HEADER: &str = "concertina-outcome";
/// The reply header with the length of the queue that the request met.
pub const QUEUE_LENGTH_HEADER: &str = "concertina-queue-length";
