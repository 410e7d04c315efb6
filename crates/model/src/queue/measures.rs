//! The measures that every queue computes, and the condition under which they exist.

use crate::bisection::quantile;
use crate::error::{Error, is_stable, not_negative};

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
    if is_stable(rate, saturation) { Ok(rate) } else { Err(Error::Unstable { rate, saturation }) }
}
