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
mod fault;
mod idle;
mod incoming;
mod limits;
mod pool;
mod reply;
mod request;
mod stream;
#[cfg(test)]
mod tests;

#[cfg(doc)]
use wire::tls::Dialer;

pub use fault::Fault;
pub use idle::bound_idle;
pub use incoming::{Incoming, Reply};
pub use limits::Limits;
pub use pool::{PendingGet, Pool};
pub use reply::HEADERS_MAX;
pub use request::{Outgoing, RequestHead};
