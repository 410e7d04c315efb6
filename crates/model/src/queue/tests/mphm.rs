//! M/PH/m: the exact queue that the approximation of M/G/m is tested against.

use crate::error::Error;

use crate::queue::Queue;
use crate::queue::matrix::Matrix;
use crate::queue::phases::Solved;

use super::uniformised::Uniformised;

/// Number of steps after which the tail of the waiting time is taken as geometric at the latest.
const STEPS_MAX: usize = 200_000;

/// The M/PH/m queue, solved exactly: the reference for approximations of M/G/m.
///
/// A service time is a walk through k phases, each exponential, until it ends. A state is how many
/// of the busy servers are in each phase: with all busy there are C(m + k − 1, k − 1) of them, and
/// the number waiting falls geometrically with a matrix R (M. Neuts, "Matrix-Geometric Solutions in
/// Stochastic Models", 1981), found by logarithmic reduction (G. Latouche, V. Ramaswami, Journal of
/// Applied Probability 30 (1993)); below, level by level. Waiting times by uniformisation; moments
/// from E\[L(L−1)…\] = λʲE\[Wʲ\] of the number waiting L. Cost: about 150 d³ operations for d
/// states (at most 500), and d³ for each step of the waiting time's tail: milliseconds for 2 phases
/// and 30 servers, seconds for 200 states.
///
/// It assumes Poisson arrivals, equal servers, first come first served, and a law that is
/// phase-type: an SCV below 1/k needs more than k phases, a lognormal tail more than any. For any
/// other law use [`crate::queue::Mgm`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mphm {
    arrival_rate: f64,
    servers: u32,
    service_mean: f64,
    service_variance: f64,
    waits: f64,
    waiting_mean: f64,
    waiting_variance: f64,
    waiting: Uniformised,
    response: Uniformised,
}

impl Mphm {
    /// With arrivals per second, servers, and the law of service: the probabilities of the first
    /// phase, and the generator, whose row i has the rates from phase i to each other one and, on
    /// the diagonal, minus the rate of leaving i; what a row lacks to 0 is the rate at which
    /// service ends there. [`Error::Unstable`] at utilisation 1 or more; [`Error::Invalid`] for
    /// more than 500 states.
    pub(crate) fn new(
        arrival_rate: f64,
        servers: u32,
        start: &[f64],
        generator: &[&[f64]],
    ) -> Result<Self, Error> {
        let solved = Solved::new(arrival_rate, servers, start, generator)?;
        let (waits, waiting_mean) = solved.wait_and_mean();
        let square = solved.waiting_square();
        let (waiting, response) = solved.times();
        Ok(Mphm {
            arrival_rate,
            servers,
            service_mean: solved.phases.mean,
            service_variance: solved.phases.variance.max(0.0),
            waits,
            waiting_mean,
            waiting_variance: (square - waiting_mean * waiting_mean).max(0.0),
            waiting,
            response,
        })
    }

    /// The probability that a request waits.
    pub(crate) fn waiting_probability(&self) -> f64 {
        self.waits
    }
}

impl Solved<'_> {
    /// The second moment of the waiting time.
    fn waiting_square(&self) -> f64 {
        let mut pairs = vec![1.0; self.r.rows()];
        (0..3).for_each(|_| pairs = self.sums.before(&pairs));
        (0..2).for_each(|_| pairs = self.r.before(&pairs));
        if self.rate > 0.0 { 2.0 * self.total(&pairs) / self.rate.powi(2) } else { 0.0 }
    }

    /// The laws of waiting and response times. With Z₀ = (I − R)⁻¹ and Zᵢ₊₁ = ZᵢP₀ + RZᵢP₁ (no end,
    /// an end in the next event of rate Λ), a request still waits after i events with probability
    /// πZᵢ1.
    fn times(&self) -> (Uniformised, Uniformised) {
        let (phases, n) = (&self.phases, self.r.rows());
        let waits = self.wait_and_mean().0;
        let one = Matrix::identity(n);
        let rate = (0..n).map(|i| -self.within[(i, i)]).fold(0.0, f64::max);
        // Transposed, so that the sparse factors stand on the left.
        let stay = one.plus(1.0 / rate, &self.within).transposed();
        let end = Matrix::zero(n, n).plus(1.0 / rate, &self.replaced).transposed();
        let r = self.r.transposed();
        let k = phases.start.len();
        // The request's own service at the same events.
        let mut own = Matrix::identity(k);
        for i in 0..k {
            for j in 0..k {
                own[(i, j)] += phases.generator[i][j] / rate;
            }
        }
        let mut serving: Vec<f64> = phases.start.iter().map(|p| p * (1.0 - waits)).collect();
        let mut z = self.sums.transposed();
        let still = |z: &Matrix| z.before(&self.all_busy).iter().sum::<f64>();
        let mut left = still(&z);
        let (mut waiting, mut response) = (Vec::new(), Vec::new());
        let mut ratio = (0.0f64, 0usize);
        while left > 1e-18 && waiting.len() < STEPS_MAX && ratio.1 < 5 {
            waiting.push(left);
            response.push(left + serving.iter().sum::<f64>());
            z = stay.times(&z).plus(1.0, &end.times(&z).times(&r));
            let next = still(&z).clamp(0.0, left);
            serving = own.after(&serving);
            serving.iter_mut().zip(phases.start).for_each(|(s, p)| *s += p * (left - next));
            let now = next / left;
            ratio = if (now - ratio.0).abs() < 1e-13 { (now, ratio.1 + 1) } else { (now, 0) };
            left = next;
        }
        // From here on the wait decays by a constant ratio; the response continues until it does so
        // too.
        let decay = if ratio.1 >= 5 { ratio.0 } else { 0.0 };
        let mut fall = (0.0f64, 0usize);
        let mut total = left + serving.iter().sum::<f64>();
        while total > 1e-18 && response.len() < STEPS_MAX && fall.1 < 5 {
            response.push(total);
            serving = own.after(&serving);
            let next = left * decay;
            serving.iter_mut().zip(phases.start).for_each(|(s, p)| *s += p * (left - next));
            left = next;
            let after = (left + serving.iter().sum::<f64>()).min(total);
            let now = after / total;
            fall = if (now - fall.0).abs() < 1e-13 { (now, fall.1 + 1) } else { (now, 0) };
            total = after;
        }
        let slow = if fall.1 >= 5 { fall.0 } else { 0.0 };
        (Uniformised::new(rate, waiting, decay), Uniformised::new(rate, response, slow))
    }
}

impl Queue for Mphm {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        self.arrival_rate * self.service_mean / f64::from(self.servers)
    }
    fn waiting_mean(&self) -> f64 {
        self.waiting_mean
    }
    fn waiting_variance(&self) -> f64 {
        self.waiting_variance
    }
    fn response_mean(&self) -> f64 {
        self.waiting_mean + self.service_mean
    }
    fn response_variance(&self) -> f64 {
        self.waiting_variance + self.service_variance
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        self.waiting.cdf(t)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        self.response.cdf(t)
    }
}
