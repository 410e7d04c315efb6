//! Times that a Markov chain takes to be done, by uniformisation: sums of positive terms only.
//!
//! Source: A. Jensen (1953); W. K. Grassmann, "Transient solutions in Markovian queueing systems",
//! Computers & Operations Research 4 (1977). A chain whose fastest state is left at rate Λ changes
//! only at the events of a Poisson process of rate Λ. If it goes on after i events with probability
//! h(i), then P(T > t) = Σᵢ e^(−Λt) (Λt)ⁱ/i! · h(i).

use crate::queue::mmm::poisson;

/// Σ over i < `n` of poisson(i, mean)·value(i), for values from 1 to 0 that do not rise with i.
/// From the largest probability outwards, so that a small sum keeps its digits. `n` is at least 1.
fn poisson_sum(mean: f64, n: usize, value: impl Fn(usize) -> f64) -> f64 {
    let start = (mean as usize).min(n.saturating_sub(1));
    let top = poisson(start, mean);
    let mut sum = top * value(start);
    let mut term = top;
    for i in (0..start).rev() {
        term *= (i + 1) as f64 / mean;
        sum += term * value(i);
        if term <= 1e-18 * sum {
            break;
        }
    }
    term = top;
    for i in start + 1..n {
        term *= mean / i as f64;
        let part = term * value(i);
        sum += part;
        if part <= 1e-18 * sum {
            break;
        }
    }
    sum
}

/// The law of such a time: h(i) for i below a number, and falling geometrically from there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Uniformised {
    /// Λ, per second.
    rate: f64,
    /// h(i); never empty, never rising.
    left: Vec<f64>,
    /// h(i + 1)/h(i) from the last one on; below 1.
    decay: f64,
}

impl Uniformised {
    pub(super) fn new(rate: f64, mut left: Vec<f64>, decay: f64) -> Self {
        if left.is_empty() {
            left.push(0.0);
        }
        Uniformised { rate, left, decay: decay.clamp(0.0, 1.0) }
    }

    /// P(T > t), `t` at least 0.
    pub(super) fn above(&self, t: f64) -> f64 {
        let mean = self.rate * t;
        if mean.is_nan() || mean <= 0.0 {
            return self.left[0].min(1.0);
        }
        if mean.is_infinite() {
            return 0.0;
        }
        let n = self.left.len();
        let direct = poisson_sum(mean, n, |i| self.left[i]);
        (direct + self.geometric(mean, n)).clamp(0.0, 1.0)
    }

    /// The terms from `n` on: Σ poisson(i, mean)·h(n − 1)·decay^(i−n+1).
    fn geometric(&self, mean: f64, n: usize) -> f64 {
        let last = self.left[n - 1];
        if self.decay <= 0.0 || last <= 0.0 {
            return 0.0;
        }
        let slower = mean * self.decay;
        if slower > n as f64 {
            // All Poisson terms of mean·decay less the first n.
            let log = -mean * (1.0 - self.decay) + (1.0 - n as f64) * self.decay.ln();
            return (log + last.ln()).exp() * (1.0 - poisson_sum(slower, n, |_| 1.0)).max(0.0);
        }
        let mut term = poisson(n, mean) * last * self.decay;
        let (mut sum, mut i) = (term, n);
        while term > 1e-18 * sum {
            i += 1;
            term *= slower / i as f64;
            sum += term;
        }
        sum
    }

    /// P(T ≤ t); 0 below 0.
    pub(super) fn cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 { 0.0 } else { 1.0 - self.above(t) }
    }
}
