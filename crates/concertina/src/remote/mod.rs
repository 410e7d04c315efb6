//! The client side of a server's `/datasets`, as `concertina data --server` uses it.
//!
//! [`server`] sends requests; [`served`] operates on one dataset; [`export`] reads all of its
//! records, with retries; [`copy`] pushes a local dataset to a server and pulls one back.

pub(crate) mod copy;
pub(crate) mod export;
pub(crate) mod served;
pub(crate) mod server;
