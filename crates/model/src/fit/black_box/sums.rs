//! Responses of a step, counted.

use ground::window::{Dispersion, Histogram};

/// Counts over an interval of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub seconds: f64,
    pub arrivals: f64,
    pub answered: f64,
    pub hits: f64,
    /// Responses except hits, between edges.
    pub counts: Vec<f64>,
    /// Their sum, seconds, and that of their squares.
    pub sum_s: f64,
    pub squares_s2: f64,
}

impl Sums {
    pub fn add(&mut self, other: &Sums, weight: f64) {
        // Without `..`, so that a sum that is added to the struct and forgotten here does not
        // compile.
        let Sums { seconds, arrivals, answered, hits, counts, sum_s, squares_s2 } = other;
        self.seconds += weight * seconds;
        self.arrivals += weight * arrivals;
        self.answered += weight * answered;
        self.hits += weight * hits;
        self.sum_s += weight * sum_s;
        self.squares_s2 += weight * squares_s2;
        self.counts.resize(self.counts.len().max(counts.len()), 0.0);
        for (mine, theirs) in self.counts.iter_mut().zip(counts) {
            *mine += weight * theirs;
        }
    }

    pub fn hit_ratio(&self) -> f64 {
        if self.answered > 0.0 { self.hits / self.answered } else { 0.0 }
    }

    /// Requests/s that are not hits.
    pub fn rate(&self) -> f64 {
        let rate = if self.seconds > 0.0 { self.arrivals / self.seconds } else { 0.0 };
        rate * (1.0 - self.hit_ratio())
    }

    /// Responses except hits.
    pub fn responses(&self) -> f64 {
        self.counts.iter().sum()
    }
}

/// A step, summed.
pub(super) struct Data {
    pub name: String,
    pub total: Sums,
    pub blocks: Vec<Sums>,
    /// Its windows, each alone.
    pub windows: Vec<Sums>,
    /// Responses except hits.
    pub responses: Histogram,
    pub within: Vec<(f64, u64)>,
    pub dispersion: Dispersion,
}

/// Steps by index, with their sums.
pub(super) type StepDraws = Vec<(usize, Sums)>;
