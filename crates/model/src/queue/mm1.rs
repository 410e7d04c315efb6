//! M/M/1: Poisson arrivals, exponential service, one server. All formulas are closed.

use crate::error::{Error, check};

use super::measures::{Queue, stable};
use super::mmm;

/// The M/M/1 queue.
///
/// With ρ = λ/µ: P(n in the system) = (1 − ρ)ρⁿ; the response time is exponential of rate µ − λ,
/// and a request waits longer than t with probability ρ·exp(−(µ − λ)t). Source: any text on queues,
/// for example R. Jain, "The Art of Computer Systems Performance Analysis" (1991). Exact. Cost:
/// nanoseconds.
///
/// Assumptions: independent arrivals, exponential service, first come first served, an unbounded
/// queue. Predicted times are too long if service is more regular than exponential, as for a disk
/// (use [`super::Mg1`]), and too short if arrivals come in bursts ([`super::Gim1`]). If each client
/// waits for a reply before it sends the next request, use [`crate::network`].
///
/// ```
/// use model::queue::Mm1;
/// let disk = Mm1::new(90.0, 100.0)?;
/// assert!((disk.utilisation() - 0.9).abs() < 1e-12);
/// assert!((disk.response_mean() - 0.1).abs() < 1e-12);
/// assert!((disk.response_cdf(0.1) - 0.632_120_558_8).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mm1 {
    arrival_rate: f64,
    service_rate: f64,
}

impl Mm1 {
    /// Creates a queue from arrivals and services per second. [`Error::Unstable`] unless arrivals
    /// are below services.
    pub fn new(arrival_rate: f64, service_rate: f64) -> Result<Self, Error> {
        check("the service rate", service_rate, 1e-12..=1e12, "1e-12 to 1e12 per second")?;
        Ok(Mm1 { arrival_rate: stable(arrival_rate, service_rate)?, service_rate })
    }

    /// Share of time that the server is busy.
    pub fn utilisation(&self) -> f64 {
        self.arrival_rate / self.service_rate
    }

    /// Mean response time in seconds.
    pub fn response_mean(&self) -> f64 {
        1.0 / (self.service_rate - self.arrival_rate)
    }

    /// Mean waiting time in seconds.
    pub fn waiting_mean(&self) -> f64 {
        self.utilisation() * self.response_mean()
    }

    /// Mean number of requests, waiting and in service.
    pub fn number_mean(&self) -> f64 {
        self.arrival_rate * self.response_mean()
    }

    /// Probability of `n` requests in the system.
    pub fn number_probability(&self, n: u32) -> f64 {
        let rho = self.utilisation();
        (1.0 - rho) * rho.powf(f64::from(n))
    }

    /// P(waiting time ≤ t seconds).
    pub fn waiting_cdf(&self, t: f64) -> f64 {
        if t >= 0.0 { 1.0 - self.utilisation() * (-t / self.response_mean()).exp() } else { 0.0 }
    }

    /// P(response time ≤ t seconds).
    pub fn response_cdf(&self, t: f64) -> f64 {
        if t >= 0.0 { -(-t / self.response_mean()).exp_m1() } else { 0.0 }
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) does not exceed.
    pub fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        check("the share of a quantile", p, 0.0..=1.0 - f64::EPSILON, "at least 0 and below 1")?;
        Ok(-(-p).ln_1p() * self.response_mean())
    }
}

impl Queue for Mm1 {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        Mm1::utilisation(self)
    }
    fn waiting_mean(&self) -> f64 {
        Mm1::waiting_mean(self)
    }
    fn waiting_variance(&self) -> f64 {
        let rho = self.utilisation();
        rho * (2.0 - rho) * self.response_mean().powi(2)
    }
    fn response_mean(&self) -> f64 {
        Mm1::response_mean(self)
    }
    fn response_variance(&self) -> f64 {
        self.response_mean().powi(2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        Mm1::waiting_cdf(self, t)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        Mm1::response_cdf(self, t)
    }
    fn waiting_quantile(&self, p: f64) -> Result<f64, Error> {
        mmm::waiting_quantile(p, self.utilisation(), 1.0 / self.response_mean())
    }
    fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        Mm1::response_quantile(self, p)
    }
}
