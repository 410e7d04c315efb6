//! Which members there are, as a node or a gateway knows it.

use std::sync::Arc;

use ground::window::Nanos;
use serde::{Deserialize, Serialize};

use super::ring::{NodeId, Replicas, Ring};

/// The present members, as last reported to a node or gateway.
///
/// With a *static* membership all members are always live: the epoch never changes and `until` is
/// `Nanos::MAX`. In a *leased* membership (etcd) members come, are lost, get other weights and leave.
/// There is one sequence of views, each with the epoch of the one before plus 1, and a process learns
/// with each confirmation that no later view existed when it asked: it may act on its own place until
/// a fixed time after it asked. So a process that knows a new view needs to wait that long (longer by
/// what clocks' rates may differ) before it acts on what the view changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Increases by 1 with each change.
    pub epoch: u64,
    /// For each member of the ring whether it is live.
    pub live: Vec<bool>,
    /// The time, on the recipient's clock, until which the recipient may act on its own place in
    /// the view.
    pub until: Nanos,
    /// The ring; `None`: that of the recipient's settings, as in a static membership. A member keeps
    /// its [`NodeId`] from ring to ring ([`Ring::listed`]).
    pub ring: Option<Arc<Ring>>,
    /// For each member whether it handed over before it ceased to be live: it does nothing any more that
    /// others would have to wait for. Empty: none.
    #[serde(default)]
    pub handed_over: Vec<bool>,
}

impl View {
    /// The view of a static membership with this number of members.
    pub fn fixed(members: usize) -> View {
        View { live: vec![true; members], until: Nanos::MAX, ..View::unknown(members) }
    }

    /// What a process of a leased membership knows before its first view: nothing.
    pub fn unknown(members: usize) -> View {
        let live = vec![false; members];
        View { epoch: 0, live, until: 0, ring: None, handed_over: Vec::new() }
    }

    /// Whether a member is live.
    pub fn is_live(&self, node: NodeId) -> bool {
        self.live.get(node).copied().unwrap_or(false)
    }

    /// Whether a member handed over before it ceased to be live.
    pub fn has_handed_over(&self, node: NodeId) -> bool {
        !self.is_live(node) && self.handed_over.get(node).copied().unwrap_or(false)
    }

    /// The primary among a key's nodes: the first that is live. Only the primary orders the key's
    /// writes.
    pub fn primary(&self, replicas: &Replicas) -> Option<NodeId> {
        replicas.iter().find(|&node| self.is_live(node))
    }
}
