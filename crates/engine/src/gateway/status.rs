//! A gateway's state and counters, for its operators.

use serde::{Deserialize, Serialize};

use super::event::Refusal;
use crate::attempts::AttemptCounts;
use crate::route::health::State;

/// Counters since the gateway started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Attempts after a request's first.
    #[serde(flatten)]
    pub attempts: AttemptCounts,
    /// Reads from the origin by the gateway itself.
    pub origin: u64,
    /// Reads that hot nodes answered.
    pub hot_reads: u64,
    /// Requests refused because of the limit on requests, or because all nodes were busy.
    pub refused_busy: u64,
    /// Requests whose deadline passed.
    pub refused_too_late: u64,
    /// Writes refused because their primary was unreachable.
    pub refused_no_primary: u64,
    /// Requests that neither a node nor the origin could answer.
    pub refused_unavailable: u64,
    /// Writes whose outcome is unknown.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its assumed state.
    pub state: State,
    /// Why it does not answer, as its driver knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether it is live according to the membership.
    pub live: bool,
    /// The share of its normal load that it gets.
    pub share: f64,
    /// How often it failed again soon after it was taken back.
    pub relapses: u32,
    /// This gateway's requests at the node.
    pub outstanding: u32,
    /// Requests in its queues according to its last report.
    pub reported_length: u32,
    /// Age of that report.
    pub reported_age_ms: f64,
    /// Expected response time of a request sent now.
    pub expected_response_ms: f64,
    /// Time after which a read is hedged; `None` if unknown or if hedging is off.
    pub hedge_after_ms: Option<f64>,
    /// Time after which a read's attempt is replaced by one at another node.
    pub timeout_ms: f64,
}

/// The gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Requests under way, those being relayed included.
    pub requests: usize,
    /// The largest number that may be.
    pub requests_bound: u32,
    /// Mean response while as many are under way, seconds, where the bound is found by itself.
    pub response_at_bound_s: Option<f64>,
    /// Reads from the origin under way.
    pub origin_attempts: u32,
    /// Retries left in the budget.
    pub retries_left: u32,
    /// Hedges left in the budget.
    pub hedges_left: u32,
    /// Number of keys for which the nodes that have them are known.
    pub hints: usize,
    /// Number of keys for which hot nodes are known.
    pub hot_keys: usize,
    /// Epoch of the membership.
    pub epoch: u64,
    /// Counters since the start.
    pub counts: Counts,
    /// The nodes, in the ring's order.
    pub nodes: Vec<NodeStatus>,
}
