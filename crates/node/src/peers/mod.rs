//! The cluster side of a node: connections to peers, calls it makes, requests it serves for them.
//!
//! All decisions are made in `engine::node`. This module sends the requests to other nodes that the
//! engine decides on ([`calls`]), serves the requests of other processes ([`endpoints`]), passes
//! ticks and views to the engine ([`beat`]).

mod beat;
mod calls;
pub(crate) mod connections;
mod endpoints;
mod metrics;
mod outages;

pub use beat::Beat;
pub use connections::{Counts, Peers};
pub use endpoints::{Sender, answer, asker, reads_told, sender};
pub use metrics::add_metrics;
