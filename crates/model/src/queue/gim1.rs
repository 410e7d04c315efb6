//! GI/M/1: any law of the times between arrivals, exponential service, one server.

use crate::distribution::{Complex64, ServiceTime};
use crate::error::{Error, time};

use super::measures::{Queue, stable};
use super::mmm::{service_rate, waiting_quantile};
use crate::bisection::bisect;

/// Idle share of time below which the heavy-traffic limit replaces the root.
const NEAR: f64 = 1e-5;

/// The GI/M/1 queue, for arrivals burstier or more regular than Poisson's.
///
/// An arrival finds n requests in the system with probability (1 − σ)σⁿ, where σ is the root in
/// (0, 1) of σ = A(µ(1 − σ)) and A the transform of the time between arrivals. It therefore waits
/// with probability σ, and its response time is exponential of rate µ(1 − σ). Source: L. Kleinrock,
/// "Queueing Systems" I (1975), on G/M/1. Exact.
///
/// Assumptions: times between arrivals are independent (bursts of many arrivals cause longer
/// waits), and service is exponential; for other service with Poisson arrivals use [`super::Mg1`].
/// The root is bracketed as a function of 1 − σ; within 1e-5 of saturation its limit 2ρ(1 − ρ)/(1 +
/// SCV) is used. The relative error of a mean is 1e-16/(1 − ρ)², or near saturation of the order of
/// 1 − ρ. Cost: 40 transforms once.
///
/// ```
/// use model::distribution::{Deterministic, Hyperexponential};
/// use model::queue::{Gim1, Queue};
/// let bursts = Gim1::new(&Hyperexponential::balanced(0.01, 4.0)?, 125.0)?;
/// let clockwork = Gim1::new(&Deterministic::new(0.01)?, 125.0)?;
/// assert_eq!(bursts.utilisation(), 0.8);
/// assert!(bursts.response_mean() > 2.0 * clockwork.response_mean());
/// assert!((bursts.response_cdf(bursts.response_quantile(0.99)?) - 0.99).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gim1 {
    arrival_rate: f64,
    service_rate: f64,
    /// 1 − σ.
    free: f64,
}

impl Gim1 {
    /// Creates a queue from the law of the time between arrivals, and services per second.
    /// [`Error::Unstable`] at utilisation 1 or more, or so near to it that rounding decides.
    pub fn new(between: &dyn ServiceTime, service_rate: f64) -> Result<Self, Error> {
        Gim1::of_part(between, 1.0, service_rate)
    }

    /// The same queue, if it gets a random share `share` (above 0, at most 1) of arrivals with the law `between`. Times
    /// between its own arrivals are sums of a geometric number of those: their transform is pA/(1 − (1 − p)A).
    pub(crate) fn of_part(
        between: &dyn ServiceTime,
        share: f64,
        service_rate: f64,
    ) -> Result<Self, Error> {
        let service_rate = self::service_rate(service_rate)?;
        let mean = time("the mean time between arrivals", between.mean() / share)?;
        let scv = 1.0 + share * (between.scv() - 1.0);
        let arrival_rate = stable(1.0 / mean, service_rate)?;
        // With x = 1 − σ: 1 − A(µx) − x is above 0 below the root and below 0 above it, by
        // convexity.
        let above = |x: f64| {
            let all = between.transform(Complex64::new(service_rate * x, 0.0)).re;
            1.0 - share * all / (1.0 - (1.0 - share) * all) - x > 0.0
        };
        let idle = 1.0 - arrival_rate / service_rate;
        // So near saturation rounding hides the root, and the next term of its series is as small.
        let limit = 2.0 * (1.0 - idle) * idle / (1.0 + scv);
        let free = if idle < NEAR { limit } else { bisect(1.0, above) };
        if free < 1e-14 {
            return Err(Error::Unstable { rate: arrival_rate, saturation: service_rate });
        }
        Ok(Gim1 { arrival_rate, service_rate, free })
    }

    /// σ: the probability that a request waits.
    pub(crate) fn waiting_probability(&self) -> f64 {
        1.0 - self.free
    }

    /// µ(1 − σ).
    fn rate(&self) -> f64 {
        self.service_rate * self.free
    }
}

impl Queue for Gim1 {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        self.arrival_rate / self.service_rate
    }
    fn waiting_mean(&self) -> f64 {
        self.waiting_probability() / self.rate()
    }
    fn waiting_variance(&self) -> f64 {
        let sigma = self.waiting_probability();
        sigma * (2.0 - sigma) / self.rate().powi(2)
    }
    fn response_mean(&self) -> f64 {
        1.0 / self.rate()
    }
    fn response_variance(&self) -> f64 {
        self.rate().powi(-2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        if t >= 0.0 { 1.0 - self.waiting_probability() * (-self.rate() * t).exp() } else { 0.0 }
    }
    fn response_cdf(&self, t: f64) -> f64 {
        if t >= 0.0 { -(-self.rate() * t).exp_m1() } else { 0.0 }
    }
    fn waiting_quantile(&self, p: f64) -> Result<f64, Error> {
        waiting_quantile(p, self.waiting_probability(), self.rate())
    }
    fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        waiting_quantile(p, 1.0, self.rate())
    }
}
