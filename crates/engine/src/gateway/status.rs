//! What a gateway knows and did, for its operators.

use model::window::Nanos;
use serde::Serialize;

use super::{Gateway, Refusal};
use crate::route::health::State;

/// What the gateway did since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Tries after a request's first, hedges apart.
    pub retries: u64,
    /// Of them, those left out because the budget was spent.
    pub retries_left_out: u64,
    /// Second tries beside a slow one.
    pub hedges: u64,
    /// Of them, those that answered first.
    pub hedges_won: u64,
    /// Hedges that were due and left out because the budget was spent.
    pub hedges_left_out: u64,
    /// Reads from the origin by the gateway itself.
    pub origin: u64,
    /// Requests refused because of the bound, or since all nodes were busy.
    pub refused_busy: u64,
    /// Requests whose deadline passed.
    pub refused_too_late: u64,
    /// Writes refused because their primary could not be reached.
    pub refused_no_primary: u64,
    /// Requests that neither a node nor the origin could answer.
    pub refused_unavailable: u64,
    /// Writes of which it is not known whether they happened.
    pub refused_unknown: u64,
}

impl Counts {
    pub(super) fn refuse(&mut self, why: Refusal) {
        *match why {
            Refusal::Busy => &mut self.refused_busy,
            Refusal::TooLate => &mut self.refused_too_late,
            Refusal::NoPrimary => &mut self.refused_no_primary,
            Refusal::Unavailable => &mut self.refused_unavailable,
            Refusal::Unknown => &mut self.refused_unknown,
        } += 1;
    }
}

/// A node as seen from the gateway.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// What it is held for.
    pub state: State,
    /// Whether the membership says that it is there.
    pub live: bool,
    /// The share that it is given of what it would get.
    pub share: f64,
    /// Times that it failed again soon after it was taken back.
    pub relapses: u32,
    /// Requests of this gateway that are there.
    pub outstanding: u32,
    /// Requests in its queues as it last said.
    pub reported_length: u32,
    /// How long ago it said so.
    pub reported_age_ms: f64,
    /// Expected response of a request sent now.
    pub expected_response_ms: f64,
    /// After how long a read there is tried elsewhere too; `None` while not known or not wanted.
    pub hedge_after_ms: Option<f64>,
    /// After how long a read there is given up for another.
    pub timeout_ms: f64,
}

/// The gateway.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Requests under way, those being relayed included.
    pub requests: usize,
    /// Reads from the origin under way.
    pub origin_attempts: u32,
    /// Tries after a first that the budget has left.
    pub retries_left: u32,
    /// Hedges that the budget has left.
    pub hedges_left: u32,
    /// Keys of which it is known which nodes have them.
    pub hints: usize,
    /// Epoch of the membership.
    pub epoch: u64,
    /// What was done since the start.
    pub counts: Counts,
    /// The nodes, in the ring's order.
    pub nodes: Vec<NodeStatus>,
}

impl Gateway {
    /// What the gateway knows and did.
    pub fn status(&self, now: Nanos) -> Status {
        Status {
            requests: self.requests.len(),
            origin_attempts: self.origin_attempts,
            retries_left: self.retries.left(),
            hedges_left: self.hedges.left(),
            hints: self.hints.len(),
            epoch: self.view.epoch,
            counts: self.counts.clone(),
            nodes: (0..self.nodes.len()).map(|at| self.node_status(now, at)).collect(),
        }
    }

    fn node_status(&self, now: Nanos, at: usize) -> NodeStatus {
        let node = &self.nodes[at];
        let (reported_length, age) = node.load.reported(now);
        let ms = |nanos: Nanos| nanos as f64 * 1e-6;
        let prior_s = self.ratio.value_s().unwrap_or(0.0);
        NodeStatus {
            name: self.settings.ring.name(at).to_owned(),
            state: node.health.state(now, &self.settings.health),
            live: self.view.live.get(at).copied().unwrap_or(false),
            share: node.health.share(now, &self.settings.health),
            relapses: node.health.relapses(),
            outstanding: node.load.outstanding(),
            reported_length,
            reported_age_ms: ms(age),
            expected_response_ms: node.load.expected_s(now, prior_s) * 1e3,
            hedge_after_ms: (node.hedge_after < Nanos::MAX).then(|| ms(node.hedge_after)),
            timeout_ms: ms(node.timeout),
        }
    }
}
