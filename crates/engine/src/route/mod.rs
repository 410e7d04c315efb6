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

pub(crate) use budget::Budget;
pub use budget::Hedge;
pub use health::Health;
pub use load::{Load, Ratio, Responses};
pub use prequal::{Pool, PoolSettings, Probe, c3_score, hot_cold};
pub use random::SplitMix64;
pub use ring::{Member, REPLICAS_MAX, Replicas, Ring, RingError};
pub use schedule::{Candidate, Policy};

use model::window::Nanos;
use serde::{Deserialize, Serialize};

/// Index of a node among the ring's members, which are in ascending order of their names.
pub type NodeId = usize;

/// The present members, as last reported to a node or gateway.
///
/// With a *static* membership all members are always live: the epoch never changes and `until` is
/// `Nanos::MAX`. A *leased* membership (etcd) removes a member that does not renew its lease, and
/// guarantees that no process gets a view without that member before the member's own `until` has
/// passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Increases with each change.
    pub epoch: u64,
    /// For each member of the ring whether it is live.
    pub live: Vec<bool>,
    /// The time, on the recipient's clock, until which the recipient may act on its own place in
    /// the view.
    pub until: Nanos,
}

impl View {
    /// The view of a static membership with this number of members.
    pub fn fixed(members: usize) -> View {
        View { epoch: 0, live: vec![true; members], until: Nanos::MAX }
    }

    /// The primary among a key's nodes: the first that is live. Only the primary orders the key's
    /// writes.
    pub fn primary(&self, replicas: &Replicas) -> Option<NodeId> {
        replicas.iter().find(|&node| self.live.get(node).copied().unwrap_or(false))
    }
}
