//! The beats of nodes, for less than a message each.
//!
//! Each node asks each other for a lease several times in its term: among a thousand nodes with leases of half a second these
//! are 13 million messages in a second of virtual time, beside which the load of the clients is small. Two things make them
//! cheap, and change nothing that a run shows:
//!
//! - Where nothing can fail, no lease ever lapses: each is granted for the whole run, and nobody asks again
//!   ([`Settings::node_lent_for_ever`]).
//! - Otherwise the requests that a node sends at once, and the grants that come back, travel as one event each, if
//!   messages all take the same time ([`Simulation::batches_leases`]).

use ground::window::Nanos;

use super::happening::{Call, Caller, Happening, LeaseRequests};
use super::settings::Process;
use super::{Settings, Simulation};
use crate::node;

/// Longer than any run: 73 years. Far from the end of the type, so that sums with it do not overflow.
const FOR_EVER: Nanos = Nanos::MAX / 8;

/// Messages about leases that are collected to travel together.
#[derive(Default)]
pub(super) struct Batch {
    requests: Option<LeaseRequests>,
    /// The grants of the requests that are being handled; `None` while each grant travels alone.
    grants: Option<Vec<(Process, Nanos)>>,
}

impl Batch {
    /// Whether requests are collected that have not been sent.
    pub fn holds_requests(&self) -> bool {
        self.requests.is_some()
    }
}

impl Settings {
    /// The settings of a node. If nothing can disturb leases, its leases last for ever.
    pub(super) fn node_lent_for_ever(&self, node: usize) -> node::Settings {
        let mut settings = self.nodes[node].clone();
        if let (Some(cluster), false) = (&mut settings.cluster, self.disturbs_leases()) {
            cluster.lease = FOR_EVER;
        }
        settings
    }

    /// Whether a lease can lapse: something fails, members come and go, or a grant takes so long that it comes late. Messages
    /// of random times count too, since fewer draws would change the times of all others.
    fn disturbs_leases(&self) -> bool {
        let shortest = self.nodes.iter().flat_map(|node| &node.cluster).map(|it| it.lease).min();
        let delay = self.network.delay.constant_ns();
        self.is_faulty()
            || self.membership.is_some()
            || self.breakage.is_some()
            // A lease is asked for again after a third of its term.
            || delay.is_none_or(|delay| delay > shortest.unwrap_or(0) / 8)
    }
}

impl Simulation {
    /// Whether all messages of one time to one end arrive together: none is lost, late, doubled or of a random time. A trace
    /// shows each.
    pub(super) fn batches_leases(&self) -> bool {
        let network = &self.settings.network;
        let at_random = network.loss > 0.0 || network.late.0 > 0.0 || network.duplicates > 0.0;
        !at_random && network.delay.constant_ns().is_some() && self.trace.is_none()
    }

    /// Collects a node's request for a lease.
    pub(super) fn batch_lease_request(
        &mut self,
        node: usize,
        peer: usize,
        asked: Nanos,
        epoch: u64,
    ) {
        let (from, to) = (node as Process, peer as Process);
        if self.faulty && self.is_cut(from, to) {
            return;
        }
        let life = self.life(node);
        let new = || LeaseRequests { node, life, asked, epoch, peers: Vec::new() };
        self.batch.requests.get_or_insert_with(new).peers.push(to);
    }

    /// Sends the requests that were collected.
    pub(super) fn send_lease_requests(&mut self) {
        let Some(leases) = self.batch.requests.take() else { return };
        self.send_lease_batch(Happening::LeasesAsked { leases });
    }

    fn send_lease_batch(&mut self, what: Happening) {
        let delay = self.settings.network.delay.constant_ns().unwrap_or(0);
        self.schedule.push(self.now + delay, what);
    }

    /// Requests for leases arrive at peers: each is handled as if it had come alone.
    pub(super) fn leases_asked(&mut self, mut leases: LeaseRequests) {
        let LeaseRequests { node, life, asked, epoch, .. } = leases;
        self.batch.grants = Some(Vec::with_capacity(leases.peers.len()));
        for peer in std::mem::take(&mut leases.peers) {
            let from = Caller::Lease { node, life, asked, epoch };
            self.happen(Happening::Call { node: usize::from(peer), from, call: Call::Lease });
        }
        let grants = self.batch.grants.take().unwrap_or_default();
        if !grants.is_empty() {
            self.send_lease_batch(Happening::LeasesGranted { leases, grants });
        }
    }

    /// Collects a grant of a request that came with others. `false`: it is to be sent alone.
    pub(super) fn batch_grant(&mut self, at: usize, peer: usize, term: Nanos) -> bool {
        let lost = self.faulty && self.is_cut(at as Process, peer as Process);
        let Some(grants) = &mut self.batch.grants else { return false };
        if !lost {
            grants.push((at as Process, term));
        }
        true
    }

    /// The grants of requests that were sent together arrive.
    pub(super) fn leases_granted(&mut self, leases: &LeaseRequests, grants: &[(Process, Nanos)]) {
        let LeaseRequests { node, life, asked, .. } = *leases;
        for &(peer, term) in grants {
            let event = node::Event::LeaseGranted { peer: usize::from(peer), asked, term };
            self.happen(Happening::Node { node, life, event });
        }
    }
}
