//! What a process knows of the members, and until when a node may act on its place among them.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use engine::route::{NodeId, Ring, View};
use ground::window::Nanos;

use super::roster::{Roster, State};

/// What a process knows of the members, by number.
pub struct Members {
    /// Which view it is; 0 in a static membership.
    pub epoch: u64,
    /// Where keys belong.
    pub ring: Arc<Ring>,
    /// Where each listens.
    pub addresses: Vec<SocketAddr>,
    /// What each does.
    pub states: Vec<State>,
    /// Whether each lives.
    pub live: Vec<bool>,
    /// Whether each handed over before it ceased to live.
    pub(super) handed_over: Vec<bool>,
    pub(super) shares: OnceLock<Vec<f64>>,
}

impl Members {
    /// The primary of a key; `None` if none of its nodes lives.
    pub fn primary(&self, key: &[u8]) -> Option<NodeId> {
        self.ring.replicas(key).iter().find(|&node| self.live[node])
    }

    /// The share of all keys whose primary each is. Passes over the whole ring when it is asked for first.
    pub(super) fn shares(&self) -> &[f64] {
        self.shares.get_or_init(|| self.ring.shares_of(&self.live))
    }

    pub(super) fn from_roster(roster: &Roster, ring: Arc<Ring>) -> Members {
        let of = &roster.members;
        Members {
            epoch: roster.epoch,
            ring,
            addresses: of.iter().map(|entry| entry.address).collect(),
            states: of.iter().map(|entry| entry.state).collect(),
            live: of.iter().map(|entry| entry.live).collect(),
            handed_over: of.iter().map(|entry| entry.handed_over).collect(),
            shares: OnceLock::new(),
        }
    }
}

/// The members, and until when a node may act on its place among them.
#[derive(Clone)]
pub struct MembersView {
    /// The members.
    pub known: Arc<Members>,
    /// The time, a reading of [`record::clock::now`].
    pub until: Nanos,
}

impl MembersView {
    /// The view for a node's engine.
    pub fn view(&self) -> View {
        let Members { epoch, ring, live, handed_over, .. } = &*self.known;
        View {
            epoch: *epoch,
            live: live.clone(),
            until: self.until,
            ring: Some(ring.clone()),
            handed_over: handed_over.clone(),
        }
    }

    /// The view for a gateway's engine, which acts on no place of its own.
    pub fn of_gateway(&self) -> View {
        View { until: Nanos::MAX, ..self.view() }
    }
}
