//! M/D/1: constant service, in closed form.

use crate::error::{Error, time};

use super::measures::{Queue, stable};
use super::mg1::waiting_mean;
use crate::bisection::quantile;

/// Probabilities of the number waiting are stored up to this number. Beyond, they fall
/// geometrically, which is exact to rounding long before (it is reached at utilisations above 0.99
/// only).
const STEPS_MAX: usize = 2_000;

/// The M/D/1 queue: Poisson arrivals at one server that takes the same time for each request. Mean
/// waiting time ρD / (2(1 − ρ)), half of that of exponential service.
///
/// Source: G. J. Franx, "A simple solution for the M/D/c waiting time distribution", Operations
/// Research Letters 29 (2001), for one server: with (k−1)D ≤ x < kD, P(W ≤ x) = e^(−u) Σ_{j<k}
/// Q(k−1−j) u^j / j!, u = λ(kD − x), Q(m) = P(at most m waiting). All terms are positive, so it is
/// stable where Erlang's alternating sum loses all digits (x ≳ 20 D). Exact. Wrong if service times
/// vary at all: an SCV of 0.1 makes waits 10 % longer ([`super::Mg1`]). Cost: at most some 300,000
/// operations once for the probabilities of [`Md1::new`], 200 for each CDF.
///
/// ```
/// use model::queue::Md1;
/// let tape = Md1::new(80.0, 0.01)?;
/// assert!((tape.response_mean() - 0.03).abs() < 1e-12);
/// assert!((tape.response_cdf(0.03) - 0.634_519_936_320).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Md1 {
    arrival_rate: f64,
    service: f64,
    /// P(at most m requests wait).
    at_most_waiting: Vec<f64>,
    /// P(m + 1 in the system) / P(m in the system) for large m.
    decay: f64,
}

impl Md1 {
    /// Creates a queue from arrivals per second and the service time in seconds.
    /// [`Error::Unstable`] at utilisation 1 or more.
    pub fn new(arrival_rate: f64, service: f64) -> Result<Self, Error> {
        time("a constant service time", service)?;
        stable(arrival_rate, 1.0 / service)?;
        let rho = arrival_rate * service;
        // P(more than n arrivals in a service), summed from the small end.
        let first = (-rho).exp();
        let mut terms = vec![first];
        while terms.len() < 400 && terms[terms.len() - 1] > 1e-300 {
            terms.push(terms[terms.len() - 1] * rho / terms.len() as f64);
        }
        let mut more = vec![0.0; terms.len()];
        for n in (1..terms.len()).rev() {
            more[n - 1] = more[n] + terms[n];
        }
        let over = |n: usize| more.get(n).copied().unwrap_or(0.0);
        // Level crossings between n and n + 1 balance: all terms are positive.
        let mut p = vec![1.0 - rho];
        let mut at_most = Vec::new();
        let mut total = 1.0 - rho;
        while p.len() < STEPS_MAX && (p.len() < 3 || total < 1.0 - 1e-16) {
            let n = p.len() - 1;
            let from = n.saturating_sub(more.len());
            let up: f64 =
                p[0] * over(n) + (from.max(1)..=n).map(|i| p[i] * over(n + 1 - i)).sum::<f64>();
            let next = up / first;
            if next < 1e-18 {
                break;
            }
            total = (total + next).min(1.0);
            at_most.push(total);
            p.push(next);
        }
        let decay = match p[..] {
            [.., before, last] if before > 0.0 => (last / before).clamp(0.0, 1.0),
            _ => 0.0,
        };
        Ok(Md1 { arrival_rate, service, at_most_waiting: at_most, decay })
    }

    /// Share of time that the server is busy.
    pub fn utilisation(&self) -> f64 {
        self.arrival_rate * self.service
    }

    /// Mean waiting time in seconds.
    pub fn waiting_mean(&self) -> f64 {
        waiting_mean(self.arrival_rate, self.service, 0.0, 1)
    }

    /// Mean response time in seconds.
    pub fn response_mean(&self) -> f64 {
        self.waiting_mean() + self.service
    }

    /// Mean number of requests, waiting and in service.
    pub fn number_mean(&self) -> f64 {
        self.arrival_rate * self.response_mean()
    }

    /// P(waiting time ≤ t seconds).
    pub fn waiting_cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        let k = (t / self.service).floor() + 1.0;
        let u = self.arrival_rate * (k * self.service - t).max(0.0);
        let k = if k < 1e9 { k as usize } else { return 1.0 };
        let mut term = (-u).exp();
        let mut sum = 0.0;
        for j in 0..k {
            sum += self.at_most_waiting(k - 1 - j) * term;
            term *= u / (j + 1) as f64;
            if term < 1e-300 {
                break;
            }
        }
        sum.clamp(0.0, 1.0)
    }

    /// P(at most m requests wait).
    fn at_most_waiting(&self, m: usize) -> f64 {
        let kept = self.at_most_waiting.len();
        match (self.at_most_waiting.get(m), self.at_most_waiting.last()) {
            (Some(q), _) => *q,
            (None, Some(last)) => 1.0 - (1.0 - last) * self.decay.powf((m + 1 - kept) as f64),
            (None, None) => 1.0,
        }
    }

    /// P(response time ≤ t seconds).
    pub fn response_cdf(&self, t: f64) -> f64 {
        self.waiting_cdf(t - self.service)
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) does not exceed.
    pub fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        quantile(p, self.response_mean(), |t| self.response_cdf(t))
    }
}

impl Queue for Md1 {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        Md1::utilisation(self)
    }
    fn waiting_mean(&self) -> f64 {
        Md1::waiting_mean(self)
    }
    fn waiting_variance(&self) -> f64 {
        let third = self.arrival_rate * self.service.powi(3);
        third / (3.0 * (1.0 - self.utilisation())) + self.waiting_mean().powi(2)
    }
    fn response_mean(&self) -> f64 {
        Md1::response_mean(self)
    }
    fn response_variance(&self) -> f64 {
        self.waiting_variance()
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        Md1::waiting_cdf(self, t)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        Md1::response_cdf(self, t)
    }
}
