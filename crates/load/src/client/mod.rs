//! A lean measuring client for HTTP/1.1 and memcached's text protocol: non-blocking, with
//! persistent connections, one request at a time on each, no runtime, and no allocation per request
//! once a connection is warm.
//!
//! - `Target`: the address, its protocol, and the encoding of requests (`head`: HTTP; `s3`:
//!   signatures; `memcached`: commands and replies; `tls`: https).
//! - [`ReplyReader`]: the parser of HTTP replies; bytes in, events out, no socket.
//! - `files`: files in the place of a service, by threads of this process.
//! - `Connection`: a socket with the request that it sends and the reply that it reads.
//! - [`Body`]: the bytes of a generated object. They are a function of the key, so that any reader
//!   who knows the key can check them.
//!
//! It is not a general client: no redirects, cookies or pipelining, and bodies are counted or
//! checked, not kept. hyper would cost several times the processor time per request, which on a
//! small machine is taken from the server under test.

mod body;
mod connection;
mod files;
mod head;
mod memcached;
mod reply;
mod s3;
mod target;
mod tls;

pub use body::Body;
pub use reply::{Reply, ReplyError, ReplyReader};
pub use s3::Credentials;

pub(crate) use connection::{Connection, Fault, Progress};
pub(crate) use target::{Target, TargetError};
pub(crate) use tls::Trust;

/// The reply header with the outcome of the request; its values are those of `Outcome::as_str`.
const OUTCOME_HEADER: &str = "concertina-outcome";
/// The reply header with the length of the queue that the request met.
const QUEUE_LENGTH_HEADER: &str = "concertina-queue-length";
