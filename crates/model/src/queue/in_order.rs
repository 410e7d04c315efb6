//! One server whose works are not independent: they come in spells.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::{Error, check};

/// Works over their mean, in the order in which a server did them: slow spells (a collector of garbage,
/// background work, a throttle) are in it as they were. Clones share them.
///
/// ```
/// use model::queue::InOrder;
/// let works = InOrder::from((0..200).map(|i| if i % 100 < 20 { 3.0 } else { 0.5 }).collect::<Vec<f64>>());
/// works.check()?;
/// assert!(InOrder::from(vec![1.0]).check().is_err());
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<f64>", into = "Vec<f64>")]
pub struct InOrder(Arc<[f64]>);

impl From<Vec<f64>> for InOrder {
    fn from(works: Vec<f64>) -> InOrder {
        InOrder(works.into())
    }
}

impl From<InOrder> for Vec<f64> {
    fn from(works: InOrder) -> Vec<f64> {
        works.0.to_vec()
    }
}

impl InOrder {
    /// The fewest works and the most.
    pub const FEWEST: usize = 100;
    /// The most works: what a model file may have.
    pub const MOST: usize = 16_384;

    /// That there are enough works, none negative, and that their mean is 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] otherwise.
    pub fn check(&self) -> Result<(), Error> {
        let (n, range) = (self.0.len() as f64, Self::FEWEST as f64..=Self::MOST as f64);
        check("the number of works in order", n, range, "100 to 16,384")?;
        for work in self.0.iter() {
            check("a work in order", *work, 0.0..=1e9, "0 or more, over their mean")?;
        }
        let mean = self.0.iter().sum::<f64>() / n;
        check("the mean of works in order", mean, 0.99..=1.01, "1").map(|_| ())
    }
}

/// The requests that are followed at each load, after those that fill the queue.
const FOLLOWED: usize = 60_000;
const FILLED: usize = 6_000;
/// The quantiles of their responses that are kept.
const KEPT: usize = 2_000;
/// Utilisations that are simulated. Beyond, responses lengthen as 1/(1 − ρ).
const RHOS: [f64; 10] = [0.1, 0.25, 0.4, 0.55, 0.66, 0.75, 0.83, 0.89, 0.93, 0.96];

/// Poisson arrivals at one server, first come, first served, that does works in their recorded order:
/// D. V. Lindley's recursion (Proc. Cambridge Phil. Soc. 48, 1952) over them, again from the first
/// after the last. Between the simulated loads the laws of T over its mean are mixed, and the mean
/// times 1 − ρ is interpolated. Assumes that spells come by the number of requests, as those of a
/// collector do, not by time. Deterministic. Accuracy: that of the recorded works, of which spells
/// are few. Cost: a tenth of a second, once; then a microsecond.
#[derive(Debug)]
pub(crate) struct InOrderQueue {
    works: InOrder,
    /// The mean response and the quantiles of the responses over it at utilisation 0 and each of [`RHOS`].
    loads: Vec<(f64, Vec<f64>)>,
}

impl InOrderQueue {
    pub(crate) fn new(works: &InOrder) -> InOrderQueue {
        let loads = std::iter::once(0.0).chain(RHOS).map(|rho| simulated(&works.0, rho)).collect();
        InOrderQueue { works: works.clone(), loads }
    }

    /// Whether it is that of these works.
    pub(crate) fn is_of(&self, works: &InOrder) -> bool {
        Arc::ptr_eq(&self.works.0, &works.0) || self.works == *works
    }

    /// The loads beside a utilisation, and the part of the second.
    fn beside(&self, rho: f64) -> (usize, usize, f64) {
        let next = RHOS.partition_point(|known| *known <= rho);
        if next >= RHOS.len() {
            return (RHOS.len(), RHOS.len(), 0.0);
        }
        let below = if next == 0 { 0.0 } else { RHOS[next - 1] };
        (next, next + 1, (rho.max(0.0) - below) / (RHOS[next] - below))
    }

    /// The mean response in mean works; infinite from utilisation 1 on.
    pub(crate) fn response_mean(&self, rho: f64) -> f64 {
        if rho.is_nan() || rho >= 1.0 {
            return f64::INFINITY;
        }
        let (before, after, part) = self.beside(rho);
        let idle = |i: usize| if i == 0 { 1.0 } else { 1.0 - RHOS[i - 1] };
        let scaled = |i: usize| self.loads[i].0 * idle(i);
        ((1.0 - part) * scaled(before) + part * scaled(after)) / (1.0 - rho)
    }

    /// P(response time ≤ `t` mean works) at a utilisation; 0 from 1 on.
    pub(crate) fn response_cdf(&self, t: f64, rho: f64) -> f64 {
        if rho.is_nan() || t.is_nan() || rho >= 1.0 || t < 0.0 {
            return 0.0;
        }
        let over = t / self.response_mean(rho);
        let (before, after, part) = self.beside(rho);
        let share = |i: usize| share_within(&self.loads[i].1, over);
        (1.0 - part) * share(before) + part * share(after)
    }
}

/// The share of a law below a value, by its quantiles at the middles of equal shares.
fn share_within(quantiles: &[f64], value: f64) -> f64 {
    let above = quantiles.partition_point(|q| *q <= value);
    let n = quantiles.len() as f64;
    let (low, high) = match (above.checked_sub(1), quantiles.get(above)) {
        (_, None) => return 1.0,
        (None, Some(_)) => return 0.0,
        (Some(i), Some(high)) => (quantiles[i], *high),
    };
    let part = if high > low { (value - low) / (high - low) } else { 0.0 };
    (above as f64 - 0.5 + part) / n
}

/// The mean response at a utilisation, in mean works, and the quantiles of the responses over it.
fn simulated(works: &[f64], rho: f64) -> (f64, Vec<f64>) {
    let mut random = StdRng::seed_from_u64(53);
    let (mut left, mut all) = (0.0f64, Vec::with_capacity(FOLLOWED));
    for (i, work) in works.iter().cycle().take(FILLED + FOLLOWED).enumerate() {
        if rho > 0.0 {
            left = (left + (1.0 - random.random::<f64>()).ln() / rho).max(0.0);
        } else {
            left = 0.0;
        }
        left += work;
        if i >= FILLED {
            all.push(left);
        }
    }
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    all.sort_by(f64::total_cmp);
    let at = |k: usize| all[((k as f64 + 0.5) / KEPT as f64 * all.len() as f64) as usize] / mean;
    (mean, (0..KEPT).map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Gamma, ServiceTime};
    use crate::queue::Mg1;

    fn exponential(n: usize, seed: u64) -> Vec<f64> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut works: Vec<f64> = (0..n).map(|_| -(1.0 - random.random::<f64>()).ln()).collect();
        let mean = works.iter().sum::<f64>() / n as f64;
        works.iter_mut().for_each(|w| *w /= mean);
        works
    }

    /// Independent works are those of M/G/1.
    #[test]
    fn works_in_no_order_are_an_mg1_queue() {
        let queue = InOrderQueue::new(&exponential(InOrder::MOST, 3).into());
        let law = Gamma::new(1.0, 1.0).unwrap();
        assert!((law.mean() - 1.0).abs() < 1e-12);
        for rho in [0.05, 0.3, 0.6, 0.8] {
            let exact = Mg1::new(rho, law).unwrap();
            let mean = queue.response_mean(rho);
            assert!((mean / exact.response_mean() - 1.0).abs() < 0.06, "{rho}: {mean}");
            for t in [0.3, 1.0, 2.0, 5.0] {
                let off = queue.response_cdf(t, rho) - exact.response_cdf(t);
                assert!(off.abs() < 0.02, "{rho} {t}: {off}");
            }
        }
        assert_eq!(queue.response_cdf(1e9, 1.0), 0.0);
        assert_eq!(queue.response_mean(1.0), f64::INFINITY);
        assert!(queue.response_cdf(1e9, 0.98) == 1.0 && queue.response_cdf(-1.0, 0.5) == 0.0);
    }

    /// Spells let many wait at once: the tail is longer at the same mean and variance of works.
    #[test]
    fn works_in_spells_let_more_wait() {
        let mut works = exponential(InOrder::MOST, 4);
        let plain = InOrderQueue::new(&works.clone().into());
        // The same works, so that fifty short ones follow fifty long ones.
        for part in works.chunks_mut(100) {
            part.sort_by(f64::total_cmp);
        }
        let works = InOrder::from(works);
        works.check().unwrap();
        let spells = InOrderQueue::new(&works);
        assert!(spells.is_of(&works) && !plain.is_of(&works));
        let (more, less) = (spells.response_mean(0.7), plain.response_mean(0.7));
        assert!(more > 2.0 * less, "{more} {less}");
        assert!(spells.response_cdf(8.0, 0.7) < plain.response_cdf(8.0, 0.7) - 0.1);
    }
}
