//! M/M/m: Poisson arrivals, exponential service, several servers.

use crate::error::{Error, check};

use super::erlang::{erlang_b, servers_count};
use super::measures::{Queue, stable};

/// Checks a service rate.
pub(super) fn service_rate(rate: f64) -> Result<f64, Error> {
    check("the service rate", rate, 1e-12..=1e12, "1e-12 to 1e12 per second")
}

/// The M/M/m queue: one line for `servers` equal servers.
///
/// A request waits with Erlang's probability C ([`super::erlang_c`]), and then an exponential time
/// of rate mµ − λ: P(W > t) = C·exp(−(mµ − λ)t). Its service time is independent of its wait.
/// Source: any text on queues, for example R. Jain, "The Art of Computer Systems Performance
/// Analysis" (1991). Exact. Cost: `servers` divisions once (good for millions), nanoseconds for
/// each answer.
///
/// Assumptions: Poisson arrivals, exponential service, equal servers, one line for all of them. If
/// each server has its own line, use m queues of type [`super::Mm1`]; if service is not
/// exponential, [`super::Mgm`].
///
/// ```
/// use model::queue::{Mmm, Queue};
/// let pool = Mmm::new(135.0, 50.0, 3)?;
/// assert!((pool.response_mean() - 0.074_470_734_744_7).abs() < 1e-12);
/// assert!((pool.response_cdf(0.074_470_734_744_707_35) - 0.622_073_827_196).abs() < 1e-9);
/// // The 99 % quantile of the waiting time, in closed form.
/// assert!((pool.waiting_cdf(pool.waiting_quantile(0.99)?) - 0.99).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mmm {
    arrival_rate: f64,
    service_rate: f64,
    servers: u32,
    /// Erlang's B and C.
    blocked: f64,
    waits: f64,
}

impl Mmm {
    /// Creates a queue from arrivals per second, services per second of one server, and the number
    /// of servers. [`Error::Unstable`] unless arrivals are below the capacity of all servers.
    pub fn new(arrival_rate: f64, service_rate: f64, servers: u32) -> Result<Self, Error> {
        let service_rate = self::service_rate(service_rate)?;
        let m = f64::from(servers_count(servers)?);
        let arrival_rate = stable(arrival_rate, m * service_rate)?;
        let rho = arrival_rate / (m * service_rate);
        let blocked = erlang_b(servers, arrival_rate / service_rate);
        let waits = blocked / (1.0 - rho * (1.0 - blocked));
        Ok(Mmm { arrival_rate, service_rate, servers, blocked, waits })
    }

    /// Erlang's C: the probability that a request waits.
    #[cfg(test)]
    pub(crate) fn waiting_probability(&self) -> f64 {
        self.waits
    }

    /// Probability of `n` requests in the system.
    pub fn number_probability(&self, n: u32) -> f64 {
        let offered = self.arrival_rate / self.service_rate;
        let rho = self.utilisation();
        // All states up to m have Poisson weights; their sum is the weight of m over Erlang's B. If
        // the servers are nearly idle both vanish, and the sum is 1.
        let full = poisson(self.servers as usize, offered);
        let sum = if full > 1e-250 { full / self.blocked } else { 1.0 };
        let inside = n.min(self.servers);
        let beyond = f64::from(n - inside);
        poisson(inside as usize, offered) * rho.powf(beyond)
            / (sum * (1.0 + self.blocked * rho / (1.0 - rho)))
    }

    /// Rate in 1/s of the exponential wait of a request that waits.
    fn excess(&self) -> f64 {
        f64::from(self.servers) * self.service_rate - self.arrival_rate
    }

    /// P(response time > t) for `t` at least 0.
    fn response_above(&self, t: f64) -> f64 {
        let x = self.service_rate * t;
        if x.is_infinite() {
            return 0.0;
        }
        // The wait decays 1 + g times as fast as the service time.
        let g = self.excess() / self.service_rate - 1.0;
        let both = if (x * g).abs() < 1.0 {
            let part = if x * g == 0.0 { 1.0 } else { -(-x * g).exp_m1() / (x * g) };
            (-x).exp() * x * part
        } else {
            ((-x).exp() - (-x * (1.0 + g)).exp()) / g
        };
        ((-x).exp() + self.waits * both).clamp(0.0, 1.0)
    }
}

impl Queue for Mmm {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        self.arrival_rate / (f64::from(self.servers) * self.service_rate)
    }
    fn waiting_mean(&self) -> f64 {
        self.waits / self.excess()
    }
    fn waiting_variance(&self) -> f64 {
        self.waits * (2.0 - self.waits) / self.excess().powi(2)
    }
    fn response_mean(&self) -> f64 {
        self.waiting_mean() + 1.0 / self.service_rate
    }
    fn response_variance(&self) -> f64 {
        self.waiting_variance() + self.service_rate.powi(-2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 { 0.0 } else { 1.0 - self.waits * (-self.excess() * t).exp() }
    }
    fn response_cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 { 0.0 } else { 1.0 - self.response_above(t) }
    }
    fn waiting_quantile(&self, p: f64) -> Result<f64, Error> {
        waiting_quantile(p, self.waits, self.excess())
    }
}

/// The p-quantile of a time that is 0 with probability 1 − `waits` and else exponential of rate
/// `rate`.
pub(super) fn waiting_quantile(p: f64, waits: f64, rate: f64) -> Result<f64, Error> {
    check("the share of a quantile", p, 0.0..=1.0 - f64::EPSILON, "at least 0 and below 1")?;
    Ok(if 1.0 - p >= waits { 0.0 } else { (waits / (1.0 - p)).ln() / rate })
}

/// The probability of exactly `n` events where `mean` are expected. Relative error some 1e-15·|mean
/// − n|.
pub(super) fn poisson(n: usize, mean: f64) -> f64 {
    if n < 15 {
        return (1..=n).fold((-mean).exp(), |term, k| term * mean / k as f64);
    }
    if mean <= 0.0 {
        return 0.0;
    }
    // Stirling's series for n!, and the exponent as a small difference.
    let x = n as f64;
    let off = (mean - x) / x;
    let log = if off.abs() < 0.5 { off.ln_1p() } else { (mean / x).ln() };
    let correction = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5))
        - 1.0 / (1680.0 * x.powi(7));
    (x * (log - off) - correction).exp() / (std::f64::consts::TAU * x).sqrt()
}
