//! Which nodes a key belongs to.
//!
//! - [`Ring`]: consistent hashing of keys onto nodes: a primary and its replicas.
//! - [`View`]: which members are live, according to the membership.
//! - [`Health`], [`Load`], [`Policy`]: which of a key's nodes a gateway sends a request to, by
//!   their health and their estimated load and speed.
//! - [`Hedge`]: when a slow read is also sent to a second node.

mod budget;
pub mod health;
mod load;
mod prequal;
mod random;
mod ring;
mod schedule;
mod view;

pub(crate) use budget::Budget;
pub use budget::Hedge;
pub use health::{Health, Outage};
pub(crate) use load::stale;
pub use load::{Load, LoadReport, Ratio, Responses, Speed};
pub use prequal::{Pool, PoolSettings, Probe, c3_score, hot_cold};
pub use random::SplitMix64;
pub use ring::{HOT_NODES_MAX, Member, NodeId, PLACEMENT, REPLICAS_MAX, Replicas, Ring, RingError};
pub use schedule::{Candidate, Policy};
pub use view::View;
