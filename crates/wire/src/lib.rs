//! What every connection needs, whatever answers on it: places of connections, TLS, the framing of HTTP/1, heads of plain reads,
//! bodies, query strings, ranges, conditions, paces, limits of clients, refusals, headers, texts of metrics, records of requests and spans of
//! sampled ones.
//!
//! No node, gateway, device or member here.

pub mod body;
pub mod browser;
pub mod condition;
pub mod connections;
pub mod date;
pub mod descriptors;
mod error;
pub mod exposition;
pub mod framing;
pub mod head;
pub mod headers;
pub mod inherited;
pub mod lane;
pub mod limits;
pub mod pace;
pub mod problem;
pub mod query;
pub mod range;
pub mod refusal;
pub mod tls;
pub mod traces;
pub mod trim;

pub use error::Error;
