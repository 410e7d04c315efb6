//! q(λ): the share of requests that memory answers, as a function of load.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check};

use super::hit_law::HitLaw;

/// q(λ) = q₀ − αλ, clamped to 0 to 1: the share of requests that memory answers; λ in requests/s of
/// one server, α in seconds per request.
///
/// If q *rises* with load (α < 0, as for caches that warm with traffic), the line is held at its
/// value at `held_from` requests/s, the largest fitted load; extrapolated, it would soon predict
/// that memory answers everything.
///
/// Source: R. Yanggratoke and others, "Predicting response times for the Spotify backend", CNSM
/// 2012, whose Table II has q₀ and α of three servers; clamp and hold are ours. It assumes that
/// memory and popularity stay as fitted. A line is not a law of caches: it is wrong past the fitted
/// loads, and after a change of memory or catalogue, for which a [`HitLaw`] scales it
/// ([`HitRatio::changed`]); [`crate::cache`] computes q from popularities. Cost: nanoseconds.
///
/// ```
/// use model::storage::HitRatio;
/// let falling = HitRatio::new(0.9, 0.001)?;
/// assert!((falling.at_rate(100.0) - 0.8).abs() < 1e-12);
/// // 20 of 100 requests/s miss; of 1,000 requests/s all do, for the line is below 0 there.
/// assert!((falling.rate_for_misses(20.0) - 100.0).abs() < 1e-9);
/// assert_eq!(falling.at_rate(1000.0), 0.0);
/// let rising = HitRatio::new(0.5, -0.001)?.held_from(200.0);
/// assert_eq!(rising.at_rate(400.0), rising.at_rate(200.0));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HitRatio {
    q0: f64,
    alpha: f64,
    #[serde(default = "infinite")]
    held_from: f64,
}

fn infinite() -> f64 {
    f64::INFINITY
}

impl HitRatio {
    /// Creates a line from q₀ (which may lie outside [0, 1], as in the paper's Table II) and α in
    /// seconds per request.
    pub fn new(q0: f64, alpha: f64) -> Result<Self, Error> {
        check("q0", q0, -1e3..=1e3, "a finite number")?;
        check("alpha", alpha, -1e3..=1e3, "a finite number")?;
        Ok(HitRatio { q0, alpha, held_from: f64::INFINITY })
    }

    /// The same line, held beyond `rate` requests/s if it rises.
    pub fn held_from(self, rate: f64) -> Self {
        HitRatio { held_from: if rate > 0.0 { rate } else { f64::INFINITY }, ..self }
    }

    /// The line times `factor`, for another size of memory. A line above 1 is scaled without
    /// clamping.
    pub fn scaled(self, factor: f64) -> Result<Self, Error> {
        let scaled = HitRatio::new(self.q0 * factor, self.alpha * factor)?;
        Ok(HitRatio { held_from: self.held_from, ..scaled })
    }

    /// The line after a change of the memory for each object. The law gives the factor at the hit
    /// ratio of the largest fitted load, or at load 0 if that load is unknown; the whole line is
    /// scaled by it.
    pub fn changed(self, law: &dyn HitLaw, factor: f64) -> Result<Self, Error> {
        let rate = if self.held_from.is_finite() { self.held_from } else { 0.0 };
        self.scaled(law.change(self.at_rate(rate), factor))
    }

    /// q₀.
    pub fn q0(&self) -> f64 {
        self.q0
    }

    /// α, seconds per request.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// q at `rate` requests/s, within [0, 1].
    ///
    /// ```
    /// let small = model::storage::HitRatio::new(0.946, 0.0137)?; // Table II
    /// assert!((small.at_rate(56.32) - 0.1744).abs() < 1e-4);
    /// assert_eq!(small.at_rate(70.0), 0.0); // the line would say −0.013
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn at_rate(&self, rate: f64) -> f64 {
        let rate = if self.alpha < 0.0 { rate.min(self.held_from) } else { rate };
        (self.q0 - self.alpha * rate).clamp(0.0, 1.0)
    }

    /// The smallest load in requests/s at which `misses` requests/s are not answered from memory:
    /// (1 − q(λ))·λ = misses. Infinite if there is no such load.
    pub fn rate_for_misses(&self, misses: f64) -> f64 {
        if misses.is_nan() || misses <= 0.0 {
            return 0.0;
        }
        let root = self.rate_for_misses_unclamped(misses).unwrap_or(f64::INFINITY);
        // If the clamp or the hold bends the line, the root does not apply.
        let bent = self.q0 - self.alpha * root < 0.0 || (self.alpha < 0.0 && root > self.held_from);
        if !bent {
            return root;
        }
        if self.alpha >= 0.0 {
            return misses;
        }
        let missed = 1.0 - self.at_rate(self.held_from);
        let held = if missed > 0.0 { misses / missed } else { f64::INFINITY };
        if self.q0 >= 0.0 { held } else { misses.min(held) }
    }

    /// The same for the unclamped line: the smallest positive root of αλ² + (1 − q₀)λ = misses.
    /// `None` if there is none.
    pub(crate) fn rate_for_misses_unclamped(&self, misses: f64) -> Option<f64> {
        let b = 1.0 - self.q0;
        let discriminant = b * b + 4.0 * self.alpha * misses;
        let root = if discriminant < 0.0 {
            return None;
        } else if b >= 0.0 {
            2.0 * misses / (b + discriminant.sqrt())
        } else {
            (discriminant.sqrt() - b) / (2.0 * self.alpha)
        };
        (root.is_finite() && root >= 0.0).then_some(root)
    }
}
