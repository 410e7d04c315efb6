//! Which nodes a key belongs to.
//!
//! - [`Ring`]: consistent hashing of keys onto nodes: a primary and its replicas.
//! - [`View`]: which members are there, as the membership says.
//! - [`Health`], [`Load`], [`Policy`]: which of a key's nodes a gateway asks: those that answer, by
//!   what is known of their load and speed.

pub mod health;
mod load;
mod random;
mod ring;
mod schedule;

pub use health::Health;
pub use load::{Load, Ratio, Responses};
pub use random::SplitMix64;
pub use ring::{Member, REPLICAS_MAX, Replicas, Ring, RingError};
pub use schedule::{Candidate, Policy};

use model::window::Nanos;
use serde::{Deserialize, Serialize};

/// Index of a node in the ring's members, which are in ascending order of their names.
pub type NodeId = usize;

/// Who is a member now, as a node or gateway was told.
///
/// With a *static* membership all members are live for ever: the epoch never changes and `until` is
/// `Nanos::MAX`. A *leased* membership (etcd) takes a member that does not renew its lease out of
/// the view, and promises that whoever sees a view without it sees it after that member's own
/// `until`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Grows with each change.
    pub epoch: u64,
    /// For each member of the ring whether it is live.
    pub live: Vec<bool>,
    /// Until when, on its own clock, who was told this may act on its own place in it.
    pub until: Nanos,
}

impl View {
    /// The view of a static membership of so many members.
    pub fn fixed(members: usize) -> View {
        View { epoch: 0, live: vec![true; members], until: Nanos::MAX }
    }

    /// The primary among a key's nodes: the first that is live. Alone it orders the key's writes.
    pub fn primary(&self, replicas: &Replicas) -> Option<NodeId> {
        replicas.iter().find(|&node| self.live.get(node).copied().unwrap_or(false))
    }
}
