//! Queues: the laws of waiting and response times from an arrival rate and a law of service times.
//!
//! These queues are first come, first served and implement [`Queue`]: utilisation, mean numbers, and
//! the *laws* of waiting and response times, not only their means.
//!
//! | queue | arrivals | service | exact? |
//! |---|---|---|---|
//! | [`Mm1`], [`Mmm`] | Poisson | exponential; one server, m servers | yes, closed formulas |
//! | [`Gim1`] | independent, any law | exponential, one server | yes, one root |
//! | [`Md1`] | Poisson | constant, one server | yes, a sum of positive terms |
//! | [`Mg1`] | Poisson | any law, one server | yes, apart from the inversion of a transform |
//! | [`Mgm`] | Poisson | any law, m servers | an approximation |
//! | [`Mmmk`] | Poisson | exponential, m servers, room for K requests: the others are refused | yes |
//! | [`LossQueue`] | Poisson | any law, m servers, nobody waits (Erlang B) | yes |
//!
//! [`Discipline::Shared`] is the exception to first come, first served: processors that all requests
//! present share. [`crate::storage::Class`] has its law. [`InOrder`] is for works that come in spells, [`Slowdown`] for servers whose
//! speed depends on how many requests are present.
//!
//! [`ArrivalLaw`] is the law of arrivals of a prediction: Poisson, in [`Bursts`] (the load alternates between two Poisson
//! rates, and each of them is a load of any of these queues), or a [`Renewal`] process.
//!
//! [`erlang_b`] and [`erlang_c`] hold for thousands of servers.

mod arrival_law;
mod branches;
mod bursts;
mod delay;
mod departures;
mod erlang;
mod finite;
mod gim1;
mod hyper;
mod in_order;
mod interpolate;
mod levels;
mod matrix;
mod md1;
mod mg1;
mod mgm;
mod mm1;
mod mmm;
mod moments;
mod phases;
mod regular;
mod renewal;
mod shared;
mod slowdown;

pub use arrival_law::ArrivalLaw;
pub use bursts::{Bursts, relaxation_s};
pub(crate) use departures::Departures;
pub use erlang::{erlang_b, erlang_c};
pub use finite::{LossQueue, Mmmk};
pub use gim1::Gim1;
pub use in_order::InOrder;
pub(crate) use in_order::InOrderQueue;
pub use md1::Md1;
pub(crate) use mg1::waiting_mean;
pub use mg1::{Evaluated, Mg1};
pub use mgm::Mgm;
pub(crate) use mgm::MgmLoads;
pub use mm1::Mm1;
pub use mmm::Mmm;
pub use renewal::Renewal;
pub use shared::Discipline;
pub(crate) use shared::SharedQueue;
pub(crate) use slowdown::SlowdownQueue;
pub use slowdown::{HORIZON_S, Slowdown};

use crate::error::{Error, check, not_negative};

/// The measures that every queue computes. Times are in seconds. Numbers are means over time (by
/// Little's law, of the requests that are accepted).
///
/// ```
/// use model::queue::{Md1, Mm1, Queue};
/// let queues: [&dyn Queue; 2] = [&Mm1::new(80.0, 100.0)?, &Md1::new(80.0, 0.01)?];
/// for queue in queues {
///     assert!((queue.utilisation() - 0.8).abs() < 1e-12);
///     let within = queue.response_quantile(0.99)?;
///     assert!((queue.response_cdf(within) - 0.99).abs() < 1e-6);
/// }
/// # Ok::<(), model::Error>(())
/// ```
pub trait Queue {
    /// Requests served per second.
    fn throughput(&self) -> f64;

    /// Share of time that a server is busy, the mean over servers.
    fn utilisation(&self) -> f64;

    /// Share of the arriving requests that are refused; 0 if the queue is unbounded.
    fn blocking(&self) -> f64 {
        0.0
    }

    /// Mean waiting time in seconds.
    fn waiting_mean(&self) -> f64;

    /// Variance of the waiting time in seconds².
    fn waiting_variance(&self) -> f64;

    /// Mean response time in seconds.
    fn response_mean(&self) -> f64;

    /// Variance of the response time in seconds².
    fn response_variance(&self) -> f64;

    /// Mean number of requests, waiting and in service.
    fn number_mean(&self) -> f64 {
        self.throughput() * self.response_mean()
    }

    /// Mean number of waiting requests.
    fn waiting_number_mean(&self) -> f64 {
        self.throughput() * self.waiting_mean()
    }

    /// P(waiting time ≤ t seconds).
    fn waiting_cdf(&self, t: f64) -> f64;

    /// P(response time ≤ t seconds).
    fn response_cdf(&self, t: f64) -> f64;

    /// P(response time ≤ t) for each of `times`, in their order; the result never falls with t.
    /// Expensive CDFs are interpolated from 17 to some hundred evaluations: within 1e-5 of
    /// [`Queue::response_cdf`] for smooth laws, and within about 1e-4 (0.01 points) for measured
    /// ones.
    fn response_cdfs(&self, times: &[f64]) -> Vec<f64> {
        times.iter().map(|&t| self.response_cdf(t)).collect()
    }

    /// The waiting time in seconds that a share `p` (0 ≤ p < 1) does not exceed. Never falls with
    /// `p`.
    fn waiting_quantile(&self, p: f64) -> Result<f64, Error> {
        quantile(p, self.waiting_mean(), |t| self.waiting_cdf(t))
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) does not exceed. Never falls with
    /// `p`.
    fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        quantile(p, self.response_mean(), |t| self.response_cdf(t))
    }
}

/// Checks that an arrival rate is at least 0 and below the saturation of its queue.
pub(crate) fn stable(rate: f64, saturation: f64) -> Result<f64, Error> {
    not_negative("the arrival rate", rate)?;
    if rate < saturation { Ok(rate) } else { Err(Error::Unstable { rate, saturation }) }
}

/// The smallest t with cdf(t) ≥ p, by bracketing from `scale` and bisection to 1e-12 of t or 1e-18
/// s.
///
/// Returns an error if p is below 0, at least 1, or above every value of the CDF. The result never
/// falls with p, even if rounding makes the CDF fall a little: the points of the search do not
/// depend on p. Cost: about 60 evaluations.
pub(crate) fn quantile(p: f64, scale: f64, cdf: impl Fn(f64) -> f64) -> Result<f64, Error> {
    check("the share of a quantile", p, 0.0..=1.0 - 1e-9, "at least 0 and below 1")?;
    if p <= cdf(0.0) {
        return Ok(0.0);
    }
    let mut high = scale.max(1e-12);
    let mut low = 0.0;
    while cdf(high) < p && high < 1e18 {
        low = high;
        high *= 2.0;
    }
    if high >= 1e18 {
        let must = "a share that the CDF reaches within its accuracy: choose a smaller share";
        return Err(Error::Invalid { what: "the share of a quantile", value: p, must });
    }
    // A time of 0 has no relative accuracy: for p near 0 only the absolute bound ends the loop.
    while high - low > 1e-12 * high && high > 1e-18 {
        let middle = 0.5 * (low + high);
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

/// The largest x in `0..high` with `holds(x)`, to 1e-12 of x. `holds` must be true below some point
/// and false above it.
pub(crate) fn bisect(high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, high);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= 1e-12 * high {
            break;
        }
    }
    low
}

#[cfg(test)]
pub(crate) mod tests;
