//! The index of dispersion of arrivals.

use serde::{Deserialize, Serialize};

/// Counts of arrivals in equal sub-intervals of a window, for their index of dispersion: variance
/// over mean, (Σc² − n·c̄²)/((n − 1)·c̄).
///
/// Source: D. Cox, P. Lewis, "The Statistical Analysis of Series of Events" (1966). For Poisson
/// arrivals the index is 1 ± √(2/(n − 1)); it is larger for bursts and smaller for regular
/// arrivals. It depends on the length of the intervals (`model::queue::Bursts`), and a drifting
/// load looks like bursts. Cost: three sums.
///
/// ```
/// use ground::window::Dispersion;
/// // One arrival, then three.
/// let counts = Dispersion { intervals: 2, sum: 4, sum_of_squares: 10 };
/// assert_eq!(counts.index(), Some(1.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dispersion {
    /// Number of sub-intervals.
    pub intervals: u64,
    /// Sum of the counts.
    pub sum: u64,
    /// Sum of the squares of the counts.
    pub sum_of_squares: u64,
}

impl Dispersion {
    /// Variance over mean of the counts: 1 for Poisson arrivals. `None` below two sub-intervals or
    /// without arrivals.
    pub fn index(&self) -> Option<f64> {
        if self.intervals < 2 || self.sum == 0 {
            return None;
        }
        let n = self.intervals as f64;
        let mean = self.sum as f64 / n;
        let variance = (self.sum_of_squares as f64 - n * mean * mean) / (n - 1.0);
        Some(variance / mean)
    }

    /// The sums of counts of equal sub-intervals.
    pub fn from_counts(counts: &[u64]) -> Dispersion {
        let sum = counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let square = |sum: u64, n: &u64| sum.saturating_add(n.saturating_mul(*n));
        let sum_of_squares = counts.iter().fold(0, square);
        Dispersion { intervals: counts.len() as u64, sum, sum_of_squares }
    }

    /// Adds the counts of another window.
    pub fn merge(&mut self, other: &Dispersion) {
        // Without `..`, so that a field that is added and not merged does not compile.
        let Dispersion { intervals, sum, sum_of_squares } = *other;
        self.intervals = self.intervals.saturating_add(intervals);
        self.sum = self.sum.saturating_add(sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(sum_of_squares);
    }
}
