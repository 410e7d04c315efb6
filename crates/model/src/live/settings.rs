//! Settings of a [`Live`](super::Live) model.

use crate::error::{Error, check};

/// What a live model predicts, from how much data, and when its advice counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The response time of the objective, seconds.
    pub objective_s: f64,
    /// The share of requests that must be answered within it, above 0 and below 1.
    pub share: f64,
    /// Length of the sliding window that is fitted, seconds.
    pub window_s: f64,
    /// Time between two fits, seconds.
    pub refit_s: f64,
    /// How far ahead predictions are made, seconds.
    pub ahead_s: f64,
    /// Length of the interval over which a past prediction is compared with what happened, seconds.
    /// It ends at the predicted time.
    pub scored_s: f64,
    /// The median error, in points, above which advice is withheld.
    pub error_points_max: f64,
    /// Number of resamplings of a fit, for its intervals.
    pub replicates: usize,
}

impl Default for Settings {
    /// 95 % within 50 ms; a fit of the last minute every ten seconds; a minute ahead.
    fn default() -> Self {
        Settings {
            objective_s: 0.05,
            share: 0.95,
            window_s: 60.0,
            refit_s: 10.0,
            ahead_s: 60.0,
            scored_s: 10.0,
            error_points_max: 5.0,
            replicates: 12,
        }
    }
}

impl Settings {
    /// Checks the settings. [`Error::Invalid`] names the first that is out of its range.
    pub fn check(&self) -> Result<(), Error> {
        for (name, value, range, must) in [
            ("the time of the objective", self.objective_s, 1e-6..=1e4, "1 us to 10,000 s"),
            ("the share of the objective", self.share, 1e-3..=0.99999, "0.001 to 0.99999"),
            ("the window of the live model", self.window_s, 0.1..=86_400.0, "0.1 s to a day"),
            ("the time between fits", self.refit_s, 0.1..=86_400.0, "0.1 s to a day"),
            ("the time ahead", self.ahead_s, 0.1..=3600.0, "0.1 s to an hour"),
            ("the scored interval", self.scored_s, 0.1..=3600.0, "0.1 s to an hour"),
            ("the largest error", self.error_points_max, 0.0..=100.0, "0 to 100 points"),
            ("the replicates", self.replicates as f64, 0.0..=1000.0, "at most 1000"),
        ] {
            check(name, value, range, must)?;
        }
        Ok(())
    }
}
