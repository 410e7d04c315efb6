//! The time that a measurement may take, and how much of it is spent.

use ground::window::{Nanos, SECOND};
use record::clock;

/// The time budget.
pub(super) struct Budget {
    pub(super) begun: Nanos,
    end: Nanos,
    /// The length of the longest step so far, at least as planned.
    step: Nanos,
}

impl Budget {
    pub(super) fn new(seconds: f64, step_s: f64) -> Budget {
        let nanos = |s: f64| (s * SECOND as f64) as Nanos;
        let begun = clock::now();
        Budget { begun, end: begun.saturating_add(nanos(seconds)), step: nanos(step_s) }
    }

    /// Whether there is time for another step.
    pub(super) fn allows(&self) -> bool {
        clock::now().saturating_add(self.step) <= self.end
    }

    pub(super) fn took(&mut self, since: Nanos) {
        self.step = self.step.max(clock::now().saturating_sub(since));
    }

    /// The share of the budget that is spent.
    pub(super) fn spent(&self) -> f64 {
        let whole = (self.end - self.begun).max(1);
        (clock::now().saturating_sub(self.begun) as f64 / whole as f64).min(1.0)
    }
}
