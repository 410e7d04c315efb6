//! A lean measuring client for HTTP/1.1, HTTP/2 and memcached's text protocol: non-blocking, with
//! persistent connections and no runtime. But for HTTP/2, a connection has one request at a time, and
//! plain reads and writes of keys allocate nothing once it is warm.
//!
//! - `Target`: the address, its protocol, and the encoding of requests (`head`: HTTP; `s3`:
//!   signatures; `memcached`: commands and replies; `tls`: https). `address`: all addresses of a name.
//! - `settings`, `header`, `requests`: what a user says about HTTP requests; `template`, `forms`: the
//!   same, ready to be written.
//! - [`ReplyReader`]: the parser of HTTP replies; bytes in, events out, no socket.
//! - `files`: files in the place of a service, by threads of this process.
//! - `Connection`: a socket with the request that it sends and the reply that it reads. `http2`: a
//!   connection of many requests; `wire`: sockets.
//! - `parts`: what is sent and compared; `fault`: why a request failed.
//! - [`Body`]: the bytes of a generated object. They are a function of the key, so that any reader
//!   who knows the key can check them.
//!
//! It is not a general client: no redirects, kept cookies or pipelining, and bodies are counted or
//! checked, not kept. hyper would cost several times the processor time per request, which on a
//! small machine is taken from the server under test.

mod address;
mod body;
mod connection;
mod fault;
mod files;
mod forms;
mod head;
mod header;
mod http2;
pub(crate) mod memcached;
mod parts;
mod reply;
mod requests;
mod s3;
mod settings;
mod target;
mod template;
mod tls;
mod wire;

pub use body::Body;
pub use header::{Header, cookies};
pub use reply::{Reply, ReplyError, ReplyReader};
pub use requests::{BODY_BYTES_MAX, HttpRequest, RequestBody, parse_requests};
pub use s3::Credentials;
pub use settings::{HttpSettings, STREAMS};

pub(crate) use address::Failures;
pub(crate) use connection::{Connection, Progress};
pub(crate) use fault::Fault;
pub(crate) use http2::{Http2Connection, Http2Stream};
pub(crate) use parts::RequestParts;
pub(crate) use target::{Access, Target, TargetError};
pub(crate) use tls::Trust;
