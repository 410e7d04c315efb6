//! The beats of nodes, for less than a message each.
//!
//! Each node asks each other for a lease several times in its term: among a thousand nodes with leases of half a second these
//! are 13 million messages in a second of virtual time, beside which the load of the clients is small. Two things make them
//! cheap, and change nothing that a run shows:
//!
//! - Where nothing can fail, no lease ever lapses: each is granted for the whole run, and nobody asks again
//!   ([`Settings::node_lent_for_ever`]).
//! - Otherwise the requests that a node sends at once, and the grants that come back, travel as one event each, if
//!   messages all take the same time (`Simulation::batches_leases`).

use ground::window::Nanos;

use super::happening::LeaseRequests;
use super::settings::{Process, Settings};
use crate::node;

/// Longer than any run: 73 years. Far from the end of the type, so that sums with it do not overflow.
const FOR_EVER: Nanos = Nanos::MAX / 8;

/// Messages about leases that are collected to travel together.
#[derive(Default)]
pub(super) struct Batch {
    pub requests: Option<LeaseRequests>,
    /// The grants of the requests that are being handled; `None` while each grant travels alone.
    pub grants: Option<Vec<(Process, Nanos)>>,
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
