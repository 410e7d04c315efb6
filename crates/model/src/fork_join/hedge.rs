//! Hedged requests: a second request is sent if the first is late.

use crate::distribution::{AnyLaw, Atom, Empirical, moments};
use crate::error::{Error, check, not_negative, positive};

/// Rounds of the fixed point before its root is looked for by bisection.
const ROUNDS: usize = 60;
/// Points between which a root is looked for then.
const SCAN: u32 = 200;

/// A request that is sent again, to another server, when it has not answered after a delay; the
/// first answer counts.
///
/// P(T ≤ t) = 1 − P(X₁ > t)·P(X₂ > t − d), with the first request's time X₁ and the second's X₂
/// independent; the mean is its integral. Source: J. Dean, L. A. Barroso, "The tail at scale",
/// Communications of the ACM 56 (2013); the formula is elementary. Nothing is cancelled: each
/// request sent is served to its end, so that the servers see 1 + P(X₁ > d) requests for each one
/// that arrives. Wrong where both meet the same cause of slowness (one device, one large object):
/// the times are then not independent and hedging gains less; and where what it adds is not in the
/// laws ([`Hedged::at_load`]). Cost: some 300 CDFs to make, for its moments; two for each CDF.
///
/// ```
/// use model::{distribution::Exponential, fork_join::Hedged};
/// use std::sync::Arc;
/// let read = Arc::new(Exponential::new(0.010)?);
/// let hedged = Hedged::new(read.clone(), read, 0.020)?;
/// assert!((hedged.share_hedged() - (-2.0f64).exp()).abs() < 1e-12);
/// // What is not done after 20 ms is done twice as fast.
/// let late = 0.010 * (-2.0f64).exp() / 2.0;
/// assert!((hedged.mean() - (0.010 - late)).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct Hedged {
    first: AnyLaw,
    second: AnyLaw,
    delay_s: f64,
    mean: f64,
    scv: f64,
}

/// Hedged requests at the load that they make themselves: what [`Hedged::at_load`] found, which has
/// an example.
#[derive(Clone, Debug)]
pub struct HedgedLoad {
    /// The law of an answer.
    pub requests: Hedged,
    /// Requests/s at the servers, with those sent twice.
    pub offered_rate: f64,
}

impl Hedged {
    /// Of the law of a first request, of a second, and of the delay in seconds (0: both at once).
    pub fn new(first: AnyLaw, second: AnyLaw, delay_s: f64) -> Result<Self, Error> {
        check(
            "the delay of a second request",
            delay_s,
            0.0..=1e12,
            "a time in seconds from 0 to 1e12",
        )?;
        let mut this = Hedged { first, second, delay_s, mean: 0.0, scv: 0.0 };
        (this.mean, this.scv) = moments(this.first.mean(), |t| this.cdf(t))?;
        Ok(this)
    }

    /// Hedged requests where law and load depend on each other: `law_at` gives the law of one
    /// request's response when the servers see so many requests/s, and they see `rate`·(1 + share
    /// hedged).
    ///
    /// The least such load is found, which is where a system that starts empty settles: from `rate`
    /// the load is raised to what the last law asks for, which never passes the least solution. If
    /// the law is unstable before that, so is hedging at this delay, and the error of `law_at` says
    /// at which load. A system may have a second, congested solution above it. Cost: up to 60 laws,
    /// then up to 250 more near the edge of stability.
    ///
    /// ```
    /// use model::distribution::{AnyLaw, Exponential};
    /// use model::{Error, fork_join::Hedged, queue::Mm1};
    /// use std::sync::Arc;
    /// let law_at = |rate: f64| {
    ///     let queue = Mm1::new(rate, 100.0)?;
    ///     Ok(Arc::new(Exponential::new(queue.response_mean())?) as AnyLaw)
    /// };
    /// let found = Hedged::at_load(40.0, 0.040, law_at)?;
    /// assert!((found.offered_rate - 40.0 * (1.0 + found.requests.share_hedged())).abs() < 1e-6);
    /// // At 70 requests/s it sends so much twice that nothing is left.
    /// assert!(matches!(Hedged::at_load(70.0, 0.020, law_at), Err(Error::Unstable { .. })));
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn at_load(
        rate: f64,
        delay_s: f64,
        law_at: impl Fn(f64) -> Result<AnyLaw, Error>,
    ) -> Result<HedgedLoad, Error> {
        positive("the arrival rate", rate)?;
        not_negative("the delay of a second request", delay_s)?;
        let wanted = |load: f64| -> Result<f64, Error> {
            let late = (1.0 - law_at(load)?.cdf(delay_s)).clamp(0.0, 1.0);
            Ok(rate * (1.0 + late))
        };
        let mut load = rate;
        let mut settled = false;
        for _ in 0..ROUNDS {
            let next = wanted(load)?.max(load);
            settled = next - load <= 1e-12 * load;
            load = next;
            if settled {
                break;
            }
        }
        if !settled {
            load = least_root(load, 2.0 * rate, &wanted)?;
        }
        let law = law_at(load)?;
        let requests = Hedged::new(law.clone(), law, delay_s)?;
        Ok(HedgedLoad { requests, offered_rate: load })
    }

    /// Hedged requests that send a share `share` (above 0, at most 1) of them twice, at the load
    /// that this makes: the delay is the (1 − `share`)-quantile there. A budget for hedging stated
    /// as load.
    pub fn with_share(
        rate: f64,
        share: f64,
        law_at: impl Fn(f64) -> Result<AnyLaw, Error>,
    ) -> Result<HedgedLoad, Error> {
        positive("the arrival rate", rate)?;
        check("the share of hedged requests", share, 1e-9..=1.0, "above 0, at most 1")?;
        let offered_rate = rate * (1.0 + share);
        let law = law_at(offered_rate)?;
        let delay_s = law.quantile(1.0 - share)?;
        Ok(HedgedLoad { requests: Hedged::new(law.clone(), law, delay_s)?, offered_rate })
    }

    /// After how many seconds the second is sent.
    pub fn delay_s(&self) -> f64 {
        self.delay_s
    }

    /// Share of the requests that are sent twice: what hedging adds to the load.
    pub fn share_hedged(&self) -> f64 {
        (1.0 - self.first.cdf(self.delay_s)).clamp(0.0, 1.0)
    }

    /// Mean time to the first answer in seconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Squared coefficient of variation of the time to the first answer.
    pub fn scv(&self) -> f64 {
        self.scv
    }

    /// P(an answer within t seconds).
    pub fn cdf(&self, t: f64) -> f64 {
        let first = self.first.cdf(t);
        if t.is_nan() || t < self.delay_s {
            return first;
        }
        let second = self.second.cdf(t - self.delay_s);
        (1.0 - (1.0 - first) * (1.0 - second)).clamp(0.0, 1.0)
    }

    /// The time in seconds that a share `p` (0 ≤ p < 1) does not exceed.
    pub fn quantile(&self, p: f64) -> Result<f64, Error> {
        crate::queue::quantile(p, self.mean, |t| self.cdf(t))
    }

    /// As a law with a transform, for sums and queues: 400 pieces ([`Empirical::from_cdf`]). Atoms
    /// of the parts are kept.
    pub fn law(&self) -> Result<Empirical, Error> {
        let later = self.second.atoms().into_iter().map(|a| a.at + self.delay_s);
        let mut times: Vec<f64> = self.first.atoms().iter().map(|a| a.at).chain(later).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let jump = |t: f64| self.cdf(t) - if t > 0.0 { self.cdf(t * (1.0 - 1e-12)) } else { 0.0 };
        let atoms: Vec<Atom> = times.iter().map(|&at| Atom { at, share: jump(at) }).collect();
        Empirical::from_cdf(self.mean, &atoms, |t| self.cdf(t))
    }
}

/// The least load from `low` to `high` at which no more is wanted; `wanted(low)` is more.
fn least_root(
    low: f64,
    high: f64,
    wanted: &dyn Fn(f64) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let mut below = low;
    for i in 1..=SCAN {
        let at = low + (high - low) * f64::from(i) / f64::from(SCAN);
        match wanted(at) {
            Ok(more) if more > at => {
                below = at;
                continue;
            }
            Ok(_) => {}
            // Unstable: the root, if there is one, is before it.
            Err(error) if at - below <= 1e-9 * at => return Err(error),
            Err(_) => return least_root(below, at, wanted),
        }
        let mut above = at;
        while above - below > 1e-12 * above {
            let middle = 0.5 * (below + above);
            if wanted(middle)? > middle {
                below = middle;
            } else {
                above = middle;
            }
        }
        return Ok(above);
    }
    // More than twice the rate is never wanted.
    Ok(high)
}

impl std::fmt::Debug for Hedged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hedged")
            .field("delay_s", &self.delay_s)
            .field("mean", &self.mean)
            .field("scv", &self.scv)
            .finish_non_exhaustive()
    }
}
