//! When the requests of a step came and were answered.

use ground::window::{Operation, Outcome};

/// The most requests of a fit; of more, each step's first are taken.
pub const REQUESTS_MAX: usize = 400_000;

/// The fewest: with less, response times alone are fitted. Fifty works tell their mean to a third and exclude hardly a hypothesis, so that the
/// intervals are wide; of response times alone, intervals of so few excluded the truth.
pub const REQUESTS_MIN: usize = 50;

/// A resolution coarser than so many mean responses leaves nothing to compare.
pub(super) const COARSEST: f64 = 2.0;

/// A request, as its client or a log saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it was sent, seconds from any origin of the step.
    pub arrival_s: f64,
    /// When its reply had come.
    pub departure_s: f64,
    /// What it did.
    pub operation: Operation,
    /// How it was answered.
    pub outcome: Outcome,
    /// Bytes of its object; 0 if they are not known.
    pub bytes: u64,
    /// What decides in which line it waits: a hash of its key, or of the server that a proxy chose; 0 if
    /// it is not known.
    pub key: u32,
    /// Whether it is judged. Those before and after the step, which the others may have met, are
    /// not.
    pub counted: bool,
}

/// When the requests of a step came and were answered, all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The requests, in any order.
    pub requests: Vec<Request>,
    /// Resolution of the times of departure, seconds; they are rounded down to it. 0 if exact.
    pub clock_s: f64,
    /// Resolution of the response times, seconds.
    pub resolution_s: f64,
    /// Whether response times were measured by themselves. Otherwise, where both resolutions are the same, they are differences of two
    /// readings of the clock.
    pub is_timed_apart: bool,
    /// Whether arrivals do not wait for replies.
    pub open: bool,
}
