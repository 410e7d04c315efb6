//! M/M/m and M/M/∞: Poisson arrivals, exponential service, several servers or no limit to them.

use crate::error::{Error, check, not_negative};

use super::erlang::servers_count;
use super::uniformised::poisson;
use super::{Queue, erlang_b, quantile, stable};

/// Checks a service rate.
pub(super) fn service_rate(rate: f64) -> Result<f64, Error> {
    check("the service rate", rate, 1e-12..=1e12, "1e-12 to 1e12 per second")
}

/// The M/M/m queue: one line before `servers` equal servers.
///
/// A request waits with Erlang's probability C ([`super::erlang_c`]), and then an exponential time of rate
/// mµ − λ: P(W > t) = C·exp(−(mµ − λ)t); its service comes on top, independent of that. Source: any text on
/// queues, for example R. Jain, "The Art of Computer Systems Performance Analysis" (1991). Exact. Cost: `servers`
/// divisions once (good for millions), nanoseconds for each answer.
///
/// It assumes Poisson arrivals, exponential service, equal servers, and one line before all of them. Wrong where each
/// server has a line of its own (then it is m times [`super::Mm1`] at best), and where service is not
/// exponential: [`super::Mgm`].
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
    /// With arrivals per second, services per second of one server, and servers. [`Error::Unstable`]
    /// unless the first is below the product of the others.
    pub fn new(arrival_rate: f64, service_rate: f64, servers: u32) -> Result<Self, Error> {
        let service_rate = self::service_rate(service_rate)?;
        let m = f64::from(servers_count(servers)?);
        let arrival_rate = stable(arrival_rate, m * service_rate)?;
        let rho = arrival_rate / (m * service_rate);
        let blocked = erlang_b(servers, arrival_rate / service_rate);
        let waits = blocked / (1.0 - rho * (1.0 - blocked));
        Ok(Mmm { arrival_rate, service_rate, servers, blocked, waits })
    }

    /// Servers of different speeds, taken for as many of their mean speed. An *approximation* (G. Bolch,
    /// S. Greiner, H. de Meer, K. Trivedi, "Queueing Networks and Markov Chains"): good where
    /// most servers are busy; at light load the truth depends on which free server is taken.
    ///
    /// ```
    /// use model::queue::{Mmm, Queue};
    /// let pool = Mmm::of_unlike_servers(73.0, &[10.0, 15.0, 20.0, 20.0, 25.0])?;
    /// assert!((pool.number_mean() - 6.527_818_832_1).abs() < 1e-9);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn of_unlike_servers(arrival_rate: f64, service_rates: &[f64]) -> Result<Self, Error> {
        for &rate in service_rates {
            service_rate(rate)?;
        }
        let servers = u32::try_from(service_rates.len()).unwrap_or(u32::MAX);
        servers_count(servers)?;
        Self::new(arrival_rate, service_rates.iter().sum::<f64>() / f64::from(servers), servers)
    }

    /// Erlang's C: the probability that a request waits.
    pub fn waiting_probability(&self) -> f64 {
        self.waits
    }

    /// Probability of `n` requests in the system.
    pub fn number_probability(&self, n: u32) -> f64 {
        let offered = self.arrival_rate / self.service_rate;
        let rho = self.utilisation();
        // All states up to m weigh as Poisson's; the sum of these is that of m over Erlang's B. Where
        // all are rarely busy both vanish, and the sum is 1.
        let full = poisson(self.servers as usize, offered);
        let sum = if full > 1e-250 { full / self.blocked } else { 1.0 };
        let inside = n.min(self.servers);
        let beyond = f64::from(n - inside);
        poisson(inside as usize, offered) * rho.powf(beyond)
            / (sum * (1.0 + self.blocked * rho / (1.0 - rho)))
    }

    /// Rate in 1/s at which the time of a request that waits runs out.
    fn excess(&self) -> f64 {
        f64::from(self.servers) * self.service_rate - self.arrival_rate
    }

    /// P(response time > t) for `t` at least 0.
    fn response_above(&self, t: f64) -> f64 {
        let x = self.service_rate * t;
        if x.is_infinite() {
            return 0.0;
        }
        // Waiting runs out 1 + g times as fast as service.
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

/// The p-quantile of a time that is 0 with probability 1 − `waits` and else exponential of rate `rate`.
pub(super) fn waiting_quantile(p: f64, waits: f64, rate: f64) -> Result<f64, Error> {
    check("the share of a quantile", p, 0.0..=1.0 - f64::EPSILON, "at least 0 and below 1")?;
    Ok(if 1.0 - p >= waits { 0.0 } else { (waits / (1.0 - p)).ln() / rate })
}

/// The M/M/∞ station: every request is served at once (a delay, "think time").
///
/// The number in the system is Poisson's with mean λ/µ, and nobody waits. Source: any text on queues. Exact, and the
/// number's law for any law of service with that mean; the response time's law is the service time's, here
/// exponential. Wrong as soon as there is a limit: with m servers use [`Mmm`]. Cost: nanoseconds.
///
/// ```
/// use model::queue::{Mminf, Queue};
/// let users = Mminf::new(120.0, 0.5)?;
/// assert_eq!(users.number_mean(), 240.0);
/// assert_eq!(users.waiting_cdf(0.0), 1.0);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mminf {
    arrival_rate: f64,
    service_rate: f64,
}

impl Mminf {
    /// With arrivals per second and services per second of one server. Always stable.
    pub fn new(arrival_rate: f64, service_rate: f64) -> Result<Self, Error> {
        not_negative("the arrival rate", arrival_rate)?;
        let service_rate = self::service_rate(service_rate)?;
        check("the offered load", arrival_rate / service_rate, 0.0..=1e300, "at most 1e300")?;
        Ok(Mminf { arrival_rate, service_rate })
    }

    /// Probability of `n` requests in the system (Poisson's).
    pub fn number_probability(&self, n: u32) -> f64 {
        poisson(n as usize, self.arrival_rate / self.service_rate)
    }
}

impl Queue for Mminf {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    /// 0: each of infinitely many servers is idle. The mean number of busy ones is the number in the
    /// system.
    fn utilisation(&self) -> f64 {
        0.0
    }
    fn waiting_mean(&self) -> f64 {
        0.0
    }
    fn waiting_variance(&self) -> f64 {
        0.0
    }
    fn response_mean(&self) -> f64 {
        1.0 / self.service_rate
    }
    fn response_variance(&self) -> f64 {
        self.service_rate.powi(-2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        if t >= 0.0 { 1.0 } else { 0.0 }
    }
    fn response_cdf(&self, t: f64) -> f64 {
        if t >= 0.0 { -(-t * self.service_rate).exp_m1() } else { 0.0 }
    }
    fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        quantile(p, self.response_mean(), |t| self.response_cdf(t))
    }
}
