//! Order statistics of independent times.

use statrs::function::gamma::ln_gamma;

use crate::distribution::{AnyLaw, Atom, Empirical, moments};
use crate::error::{Error, check};

/// Largest product of the number of requests with different laws and the rank: the cost of one CDF.
const STEPS_MAX: f64 = 1e7;

/// The time at which `k` of `n` independent requests have answered: the slowest (k = n), the
/// fastest (k = 1) or any in between; laws may differ.
///
/// P(T ≤ t) = P(at least k have X ≤ t): a binomial tail for equal laws, the product of CDFs for the
/// slowest, one minus that of the complements for the fastest, and the Poisson-binomial recursion
/// in between (H. A. David, H. N. Nagaraja, "Order Statistics", 2003, sections 2.1 and 5.2). All
/// exact. Mean and variance by integrating the CDF (1e-8). Wrong if requests meet at queues,
/// because those that arrive together wait together: see [`super::ForkJoin`]. Cost of a CDF: one of
/// each different law, and n·k additions for different laws with a rank in between.
///
/// ```
/// use model::{distribution::Exponential, fork_join::OrderStatistic};
/// use std::sync::Arc;
/// let read = Arc::new(Exponential::new(0.010)?);
/// let slowest = OrderStatistic::of_equal(read, 3, 3)?;
/// // 10 ms · (1 + 1/2 + 1/3)
/// assert!((slowest.mean() - 0.018_333).abs() < 1e-6);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct OrderStatistic {
    /// The different laws, and the number of requests with each.
    groups: Vec<(AnyLaw, u32)>,
    n: u32,
    k: u32,
    mean: f64,
    scv: f64,
}

impl OrderStatistic {
    /// Creates it from laws, each with its number of requests, and the rank `k`: from 1 (the
    /// fastest) to all of them (the slowest). At most a million requests; with different laws and a
    /// rank in between, requests times rank at most ten million.
    pub fn new(groups: Vec<(AnyLaw, u32)>, k: u32) -> Result<Self, Error> {
        let groups: Vec<_> = groups.into_iter().filter(|g| g.1 > 0).collect();
        let n: f64 = groups.iter().map(|g| f64::from(g.1)).sum();
        check("the number of requests", n, 1.0..=1e6, "1 to 1,000,000")?;
        check(
            "the rank of an order statistic",
            f64::from(k),
            1.0..=n,
            "from 1 to the number of requests",
        )?;
        let n = n as u32;
        if groups.len() > 1 && k > 1 && k < n {
            let must = "at most ten million; take one law, the fastest or the slowest";
            check(
                "requests of different laws times rank",
                f64::from(n) * f64::from(k),
                1.0..=STEPS_MAX,
                must,
            )?;
        }
        let mut this = OrderStatistic { groups, n, k, mean: 0.0, scv: 0.0 };
        let scale = this.groups.iter().map(|g| g.0.mean()).fold(0.0, f64::max);
        (this.mean, this.scv) = moments(scale, |t| this.cdf(t))?;
        Ok(this)
    }

    /// The k-th to finish of `n` requests of one law.
    pub fn of_equal(law: AnyLaw, n: u32, k: u32) -> Result<Self, Error> {
        Self::new(vec![(law, n)], k)
    }

    /// The last to finish of one request of each law.
    pub fn slowest(laws: Vec<AnyLaw>) -> Result<Self, Error> {
        let n = laws.len().min(u32::MAX as usize) as u32;
        Self::new(laws.into_iter().map(|l| (l, 1)).collect(), n)
    }

    /// The first to finish of one request of each law.
    pub fn fastest(laws: Vec<AnyLaw>) -> Result<Self, Error> {
        Self::new(laws.into_iter().map(|l| (l, 1)).collect(), 1)
    }

    /// Mean in seconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Squared coefficient of variation.
    pub fn scv(&self) -> f64 {
        self.scv
    }

    /// P(at least k have answered within t seconds).
    pub fn cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        let shares = self.groups.iter().map(|(law, n)| (law.cdf(t).clamp(0.0, 1.0), *n));
        if let [(law, n)] = &self.groups[..] {
            return binomial_tail(*n, self.k, law.cdf(t).clamp(0.0, 1.0));
        }
        if self.k == self.n {
            return shares.map(|(p, n)| p.powf(f64::from(n))).product();
        }
        if self.k == 1 {
            return -shares.map(|(p, n)| f64::from(n) * (-p).ln_1p()).sum::<f64>().exp_m1();
        }
        // P(j have answered) for j < k; probability that reaches k is dropped.
        let mut counts = vec![0.0; self.k as usize];
        counts[0] = 1.0;
        let mut done = 0.0;
        for (p, n) in shares {
            for _ in 0..n {
                done += p * counts[counts.len() - 1];
                for j in (1..counts.len()).rev() {
                    counts[j] = counts[j] * (1.0 - p) + counts[j - 1] * p;
                }
                counts[0] *= 1.0 - p;
            }
        }
        f64::clamp(done, 0.0, 1.0)
    }

    /// The time in seconds that a share `p` (0 ≤ p < 1) does not exceed.
    pub fn quantile(&self, p: f64) -> Result<f64, Error> {
        crate::queue::quantile(p, self.mean, |t| self.cdf(t))
    }

    /// As a law with a transform, for sums and queues: 400 pieces ([`Empirical::from_cdf`]). Atoms
    /// of the parts are kept.
    pub fn law(&self) -> Result<Empirical, Error> {
        let mut times: Vec<f64> =
            self.groups.iter().flat_map(|g| g.0.atoms()).map(|a| a.at).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let jump = |t: f64| self.cdf(t) - if t > 0.0 { self.cdf(t * (1.0 - 1e-12)) } else { 0.0 };
        let atoms: Vec<Atom> = times.iter().map(|&at| Atom { at, share: jump(at) }).collect();
        Empirical::from_cdf(self.mean, &atoms, |t| self.cdf(t))
    }
}

/// P(a binomial count of `n` tries with probability `p` is at least `k`): the smaller tail is
/// summed from its largest term, so both tails keep their digits (1e-9 of themselves at a million
/// tries).
pub(super) fn binomial_tail(n: u32, k: u32, p: f64) -> f64 {
    let (all, rank) = (f64::from(n), f64::from(k));
    if k == 0 || p >= 1.0 {
        return 1.0;
    }
    if p <= 0.0 {
        return 0.0;
    }
    if k >= n {
        return p.powf(all);
    }
    if k == 1 {
        return -(all * (-p).ln_1p()).exp_m1();
    }
    let chance = |j: f64| {
        let ways = ln_gamma(all + 1.0) - ln_gamma(j + 1.0) - ln_gamma(all - j + 1.0);
        (ways + j * p.ln() + (all - j) * (-p).ln_1p()).exp()
    };
    let odds = p / (1.0 - p);
    let above = rank > all * p;
    let mut j = if above { rank } else { rank - 1.0 };
    let (mut term, mut sum) = (chance(j), 0.0);
    while term > sum * 1e-17 && (0.0..=all).contains(&j) {
        sum += term;
        if above {
            term *= (all - j) / (j + 1.0) * odds;
            j += 1.0;
        } else {
            term *= j / (all - j + 1.0) / odds;
            j -= 1.0;
        }
    }
    f64::clamp(if above { sum } else { 1.0 - sum }, 0.0, 1.0)
}

impl std::fmt::Debug for OrderStatistic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderStatistic")
            .field("n", &self.n)
            .field("k", &self.k)
            .field("mean", &self.mean)
            .field("scv", &self.scv)
            .finish_non_exhaustive()
    }
}
