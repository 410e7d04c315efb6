//! Histograms of the times of requests, and service times by the number in service.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::operation::{Operation, Outcome};

/// The times of the requests of one operation and outcome that completed in a window
/// ([`super::Window::times_mut`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The operation of the requests.
    pub operation: Operation,
    /// The outcome of the requests.
    pub outcome: Outcome,
    /// Waiting time: from arrival in the queue to the start of service. At the load generator: from
    /// the intended to the actual send time.
    pub waiting: Histogram,
    /// Service time: from the start to the end of service. At the load generator: from the actual
    /// send time to the end of the reply.
    pub service: Histogram,
    /// Response time: waiting and service. At the load generator: from the *intended* send time to
    /// the end of the reply, so that a stall of the service is not hidden by requests sent late.
    pub response: Histogram,
    /// Exact counts of response times at or below each of the window's objectives, in their order.
    pub within: Vec<u64>,
}

impl Times {
    /// Creates empty histograms, with counters for `objectives` objectives.
    pub fn new(operation: Operation, outcome: Outcome, objectives: usize) -> Self {
        Times {
            operation,
            outcome,
            waiting: Histogram::default(),
            service: Histogram::default(),
            response: Histogram::default(),
            within: vec![0; objectives],
        }
    }

    /// Adds the times of another window with the same objectives.
    pub fn merge(&mut self, other: &Times) {
        let Times { operation: _, outcome: _, waiting, service, response, within } = other;
        self.waiting.merge(waiting);
        self.service.merge(service);
        self.response.merge(response);
        for (mine, theirs) in self.within.iter_mut().zip(within) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

/// Service times by the number of requests in service when they ended. They show whether service
/// depends on the load; all queues of this crate assume that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceByNumber {
    /// Requests in service when the service ended, that one included; at least 1.
    pub number: u32,
    /// Number of services.
    pub count: u64,
    /// Sum of their service times in seconds.
    pub sum_s: f64,
}
