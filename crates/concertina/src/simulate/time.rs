//! Times of a plan as the simulator has them.

use ground::window::{Nanos, SECOND};

/// Nanoseconds of a time in seconds.
pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// The time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Time that is not counted, seconds.
    pub warmup_s: f64,
    /// Time that is, seconds.
    pub duration_s: f64,
}

impl Span {
    /// The end of the step.
    pub fn end(self) -> Nanos {
        nanos(self.warmup_s + self.duration_s)
    }
}
