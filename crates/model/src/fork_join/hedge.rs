//! Hedged requests: a second request is sent if the first is late.

use crate::distribution::{AnyLaw, Atom, Empirical, moments};
use crate::error::{Error, check, not_negative, positive};

/// Rounds of the fixed point before a bisection searches for its root.
const ROUNDS: usize = 60;
/// Number of points at which that search scans for a root.
const SCAN: u32 = 200;

/// A request that is sent again, to another server, if it has no reply after a delay; the first
/// reply counts.
///
/// P(T ≤ t) = 1 − P(X₁ > t)·P(X₂ > t − d), with the times X₁ of the first and X₂ of the second
/// request independent; the mean is its integral. Source: J. Dean, L. A. Barroso, "The tail at
/// scale", Communications of the ACM 56 (2013); the formula is elementary. Requests are not
/// cancelled: each one sent is served to its end, so the servers get 1 + P(X₁ > d) requests for
/// each arrival. Wrong if both requests meet the same cause of slowness (one device, one large
/// object), because the times are then dependent and hedging gains less; and if the laws do not
/// include the added load ([`Hedged::at_load`]). Cost: some 300 CDFs to create, for its moments;
/// two for each CDF.
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

/// Hedged requests at the load that they cause, returned by [`Hedged::at_load`], which has an
/// example.
#[derive(Clone, Debug)]
pub struct HedgedLoad {
    /// The law of the first reply.
    pub requests: Hedged,
    /// Requests/s at the servers, including second requests.
    pub offered_rate: f64,
}

impl Hedged {
    /// Creates the law from those of a first and a second request, and the delay in seconds (0:
    /// both at once).
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

    /// Hedged requests with mutually dependent law and load: `law_at` returns the law of one
    /// request's response at a load in requests/s at the servers, and that load is `rate`·(1 +
    /// share hedged).
    ///
    /// Finds the smallest such load, at which a system that starts empty settles: from `rate` the
    /// load is raised to the one that the last law requires, which never exceeds the smallest
    /// solution. If the law is unstable before that, hedging with this delay is unstable too, and
    /// the error of `law_at` names the load. The system may have a second, congested solution
    /// above. Cost: up to 60 laws, and up to 250 more near the edge of stability.
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

    /// Hedged requests that send a share `share` (above 0, at most 1) of them twice, at the
    /// resulting load; the delay is the (1 − `share`)-quantile there. This states the budget of
    /// hedging as load.
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

    /// The delay in seconds after which the second request is sent.
    pub fn delay_s(&self) -> f64 {
        self.delay_s
    }

    /// Share of the requests that are sent twice: the relative load that hedging adds.
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

    /// P(first reply within t seconds).
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

/// The smallest load from `low` to `high` at which no further load is wanted; `wanted(low)` is
/// above `low`.
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
            // Unstable: a root, if any, is below.
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
    // The load never exceeds twice the rate.
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
