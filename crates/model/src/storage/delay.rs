//! The law of the delay between clients and devices: gateway, network, and the server's own
//! threads.

use crate::distribution::{Empirical, Gamma, ServiceTime};
use crate::error::{Error, check, not_negative};

/// The quantiles at which a law is cut into slices: dense in the tail, which affects responses
/// most.
const CUTS: [f64; 9] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.998, 1.0];

/// The largest supported SCV: the slices cannot represent more.
pub(crate) const SCV_MAX: f64 = 40.0;

/// A mean in seconds below which the delay counts as none.
const NONE: f64 = 1e-9;

/// The law of δ in seconds: the time that gateway, network and the server's own threads add to a
/// device's response.
///
/// A response of a device is δ + W + S: every request passes δ, then waits W and is served S at the
/// device. The law is stored as a few times with their shares (the middles of slices; the last one
/// keeps the mean exact), because a sum with it is then a few shifts: for a CDF, Σ shareᵢ·F(t −
/// δᵢ); for a transform, Σ shareᵢ·e^(−s·δᵢ).
///
/// Source: ours. It assumes that δ does not depend on the load, on W or on S. Wrong at times of the
/// order of δ, where eight slices are steps (a CDF is off by a point there), for a tail heavier
/// than an SCV of 40, and if the front queues ([`super::Link`] and workers do). Cost: eight
/// quantiles to create; each time and share costs an exponential or a CDF where it is used.
///
/// ```
/// use model::distribution::Exponential;
/// use model::storage::Delay;
/// let network = Delay::from_law(&Exponential::new(0.0004)?)?;
/// assert!((network.mean() - 0.0004).abs() < 1e-12);
/// assert_eq!(Delay::constant(0.0003).mean(), 0.0003);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    /// Times in seconds, ascending, with their shares.
    slices: Vec<(f64, f64)>,
}

impl Default for Delay {
    fn default() -> Self {
        Delay::constant(0.0)
    }
}

impl Delay {
    /// The same delay for every request.
    pub fn constant(seconds: f64) -> Self {
        Delay { slices: vec![(seconds, 1.0)] }
    }

    /// Any law, in eight slices. Cost: eight quantiles.
    pub fn from_law(law: &dyn ServiceTime) -> Result<Self, Error> {
        let mut slices = Vec::with_capacity(CUTS.len());
        let mut left = law.mean();
        for cut in CUTS.windows(2) {
            let share = cut[1] - cut[0];
            let middle = law.quantile(0.5 * (cut[0] + cut[1]))?;
            // The last slice takes what is left of the mean, which keeps the mean exact.
            let time = if cut[1] < 1.0 { middle.min(left / share) } else { left / share };
            left = (left - share * time).max(0.0);
            slices.push((time, share));
        }
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Delay { slices })
    }

    /// A delay with a mean in seconds and an SCV, given the law of memory's responses, which pass
    /// the same way but no device. The excess over memory's law is a gamma law of its own. If there
    /// is no excess, or more than the SCV allows, memory's law is stretched to the moments. An SCV
    /// of 0 gives a constant. A negative mean is a constant too: replies leave so long before the
    /// server is free again.
    pub fn beside(memory: Option<&Empirical>, mean: f64, scv: f64) -> Result<Self, Error> {
        check("the front delay", mean, -1e9..=1e9, "a number of seconds")?;
        not_negative("the SCV of the front delay", scv)?;
        if mean <= NONE || scv < 1e-4 {
            return Ok(Delay::constant(mean));
        }
        let scv = scv.min(SCV_MAX);
        let alone = || Delay::from_law(&Gamma::new(mean, scv)?);
        let Some(memory) = memory else { return alone() };
        let more = mean - memory.mean();
        let variance = scv * mean * mean - memory.scv() * memory.mean().powi(2);
        let found = match more > 1e-6 * mean && variance > 0.0 {
            true => Delay::sum(memory, more, variance / (more * more))?,
            false => Delay::from_law(&memory.with_moments(mean, scv)?)?,
        };
        // A stretched law, or one with little excess over memory's, need not have the required
        // variance.
        if (found.scv() / scv - 1.0).abs() < 0.3 { Ok(found) } else { alone() }
    }

    /// The sum of memory's law and a gamma law.
    fn sum(memory: &Empirical, more: f64, scv: f64) -> Result<Self, Error> {
        let others = Delay::from_law(&Gamma::new(more, scv.clamp(1e-4, 1e3))?)?;
        let memory = Delay::from_law(memory)?;
        let pairs = memory
            .slices
            .iter()
            .flat_map(|a| others.slices.iter().map(move |b| (a.0 + b.0, a.1 * b.1)));
        let mut slices: Vec<(f64, f64)> = pairs.collect();
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Delay { slices }.coarser())
    }

    /// Joins nearly equal times, and keeps the mean.
    fn coarser(self) -> Self {
        let mut slices: Vec<(f64, f64)> = Vec::new();
        for (time, share) in self.slices {
            match slices.last_mut() {
                Some(last) if time <= 1.2 * last.0 => {
                    last.0 = (last.0 * last.1 + time * share) / (last.1 + share);
                    last.1 += share;
                }
                _ => slices.push((time, share)),
            }
        }
        Delay { slices }
    }

    /// Times in seconds, ascending, with their shares.
    pub fn slices(&self) -> &[(f64, f64)] {
        &self.slices
    }

    /// Mean, seconds.
    pub fn mean(&self) -> f64 {
        self.slices.iter().map(|s| s.0 * s.1).sum()
    }

    /// Squared coefficient of variation of the slices.
    pub(super) fn scv(&self) -> f64 {
        let mean = self.mean();
        let square: f64 = self.slices.iter().map(|s| s.1 * s.0 * s.0).sum();
        if mean > 0.0 { (square / (mean * mean) - 1.0).max(0.0) } else { 0.0 }
    }

    /// Times divided by `factor`, with their shares.
    pub(super) fn over(&self, factor: f64) -> Vec<(f64, f64)> {
        self.slices.iter().map(|s| (s.0 / factor, s.1)).collect()
    }

    /// Checks all times and shares.
    pub fn check(&self) -> Result<(), Error> {
        let mut total = 0.0;
        for (i, (time, share)) in self.slices.iter().enumerate() {
            let before = if i == 0 { f64::MIN } else { self.slices[i - 1].0 };
            check("the front delay", *time, before..=f64::MAX, "a number of seconds, ascending")?;
            total += not_negative("the share of a front delay", *share)?;
        }
        check("the sum of the shares of a front delay", total, 1.0 - 1e-6..=1.0 + 1e-6, "1")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::distribution::{Exponential, Piece};

    use super::*;

    fn memory() -> Empirical {
        let piece = |centre, share| Piece { centre, half_width: centre / 4.0, share };
        let pieces = vec![piece(80e-6, 0.6), piece(150e-6, 0.3), piece(1e-3, 0.1)];
        Empirical::from_pieces(pieces).unwrap()
    }

    #[test]
    fn means_are_exact_and_times_ascend() {
        proptest!(|(mean in prop_oneof![1e-6..0.1f64, 1.9e-4..2.4e-4f64], scv in 0.0..200.0f64, some in any::<bool>())| {
            let memory = memory();
            let delay = Delay::beside(some.then_some(&memory), mean, scv).unwrap();
            delay.check().unwrap();
            prop_assert!((delay.mean() / mean - 1.0).abs() < 1e-9, "{} {:?}", mean, delay);
            prop_assert!(delay.slices.windows(2).all(|s| s[0].0 <= s[1].0), "{:?}", delay);
            prop_assert!(delay.slices.len() <= 64);
            let held = delay.scv() / scv.min(SCV_MAX);
            prop_assert!(scv < 0.1 || (0.4..2.0).contains(&held), "{} of {}: {:?}", held, scv, delay);
        });
    }

    #[test]
    fn most_requests_of_a_law_with_a_long_tail_are_hardly_delayed() {
        let memory = memory();
        let delay = Delay::beside(Some(&memory), 5e-4, 12.0).unwrap();
        let early: f64 = delay.slices.iter().filter(|s| s.0 < 3e-4).map(|s| s.1).sum();
        assert!(early > 0.7, "{delay:?}");
        assert_eq!(Delay::beside(Some(&memory), 5e-4, 0.0).unwrap(), Delay::constant(5e-4));
        // A reply may leave before its server is free, by a constant.
        assert_eq!(Delay::beside(None, -1.0, 1.0).unwrap(), Delay::constant(-1.0));
        for (mean, scv) in [(f64::NAN, 1.0), (-1e12, 1.0), (1.0, -1.0), (1.0, f64::INFINITY)] {
            assert!(Delay::beside(None, mean, scv).is_err(), "{mean} {scv}");
        }
    }

    #[test]
    fn slices_stand_for_their_law_in_a_sum() {
        let law = Exponential::new(1.0).unwrap();
        let delay = Delay::from_law(&law).unwrap();
        // P(D + S ≤ t) with S exponential too: 1 − (1 + t)·exp(−t).
        for t in [0.3f64, 1.0, 2.0, 4.0] {
            let sum: f64 = delay.slices.iter().map(|s| s.1 * law.cdf(t - s.0)).sum();
            let exact = 1.0 - (1.0 + t) * (-t).exp();
            assert!((sum - exact).abs() < 0.012, "{t}: {sum} {exact}");
        }
    }
}
