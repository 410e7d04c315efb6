//! M/G/m: Poisson arrivals, any law of service, several servers: an approximation close to the exact laws.

use crate::distribution::{Complex64, Empirical, Hyperexponential, Piece, ServiceTime, inversion};
use crate::error::Error;

use super::erlang::servers_count;
use super::moments::{integral, third_moment};
use super::mphm::Solved;
use super::{Queue, erlang_c, interpolate, stable};

/// Servers up to which probability and mean of waiting come from an exact solution.
const SOLVED_MAX: u32 = 24;

/// Seconds at and below which, and at and above which, a CDF is not worth inverting.
const T_MIN: f64 = 1e-18;
const T_MAX: f64 = 1e18;

/// The M/G/m queue with the service law `D`.
///
/// Given that it waits, a request's waiting time is the first end among m services under way, each of which has
/// its *residual* time left, and then a geometric number (mean ρ/(1 − ρ)) of residual times of service m times
/// faster: H. Tijms, M. van Hoorn, A. Federgruen, "Approximations for the steady-state probabilities in the
/// M/G/c queue", Advances in Applied Probability 13 (1981); its queue length, turned into time by Little's
/// law for distributions. The rate at which the tail falls is the exact one.
///
/// The probability to wait, which that source takes from M/M/m, and the mean are corrected: for an SCV of 0.5 and
/// more they are those of the exact M/PH/m queue ([`super::Mphm`]) with two phases of the same first moments
/// (three above an SCV of 1, two below); for less, interpolated in the SCV between these and M/D/m, exact by
/// the roots of Crommelin's equation. Past 24 servers the odds of waiting are corrected as they are at
/// 24 servers with the same (1 − ρ)√m (the scaling of Halfin and Whitt).
///
/// An approximation but for one server and for exponential service. How good: see the table in the
/// documentation of this crate's tests, and [`crate::queue`]. It needs two finite moments of service; the
/// variance of waiting needs three. Cost: some milliseconds for [`Mgm::new`], for each CDF three lines of
/// transforms (10 to 300 µs by the law).
///
/// ```
/// use model::{distribution::Gamma, queue::{Mgm, Queue}};
/// // A device that serves 3 reads at once.
/// let ssd = Mgm::new(240.0, 3, Gamma::new(0.01, 0.25)?)?;
/// assert!((ssd.utilisation() - 0.8).abs() < 1e-12);
/// // Simulated: 0.7098 ± 0.0055.
/// assert!((ssd.response_cdf(0.02) - 0.7098).abs() < 0.0055);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mgm<D> {
    arrival_rate: f64,
    servers: u32,
    service: D,
    third: f64,
    waits: f64,
    /// The time to the first end of a service, for a request that waits.
    first: Empirical,
}

impl<D: ServiceTime> Mgm<D> {
    /// With arrivals per second, servers, and a law of service. [`Error::Unstable`] at utilisation 1 or
    /// more.
    pub fn new(arrival_rate: f64, servers: u32, service: D) -> Result<Self, Error> {
        let m = f64::from(servers_count(servers)?);
        let (mean, scv) = (service.mean(), service.scv());
        let arrival_rate = stable(arrival_rate, m / mean)?;
        let rho = arrival_rate * mean / m;
        let third = third_moment(&service);
        let (waits, factor) = waiting(servers, rho, scv, third / mean.powi(3))?;
        let first = first_end(&service, servers)?;
        // The correction of the mean falls on the first part, so that the tail keeps its rate.
        let later = rho / (1.0 - rho) * mean * (1.0 + scv) / (2.0 * m);
        let own = first.mean();
        let corrected = (factor * (own + later) - later).clamp(0.3 * own, 3.0 * own);
        let first = first.with_moments(corrected, first.scv())?;
        Ok(Mgm { arrival_rate, servers, service, third, waits, first })
    }

    /// The probability that a request waits.
    pub fn waiting_probability(&self) -> f64 {
        self.waits
    }

    /// Mean and second moment of a residual service time m times faster.
    fn residual(&self) -> (f64, f64) {
        let (mean, m) = (self.service.mean(), f64::from(self.servers));
        (mean * (1.0 + self.service.scv()) / (2.0 * m), self.third / (3.0 * mean * m * m))
    }

    /// Mean and variance of the waiting time of a request that waits.
    fn delayed(&self) -> (f64, f64) {
        let rho = self.utilisation();
        let (one, two) = self.residual();
        let many = rho / (1.0 - rho);
        let first = self.first.mean();
        let variance = self.first.scv() * first * first
            + many * (two - one * one)
            + many / (1.0 - rho) * one * one;
        (first + many * one, variance)
    }

    /// The transforms at the line for `t`: of service, of the first part of waiting, of the second.
    fn lines(&self, t: f64) -> [[Complex64; inversion::TERMS]; 3] {
        let (re, step) = inversion::line(t);
        let mut lines = [[Complex64::ZERO; inversion::TERMS]; 3];
        let [service, first, later] = &mut lines;
        let (m, rho) = (f64::from(self.servers), self.utilisation());
        self.service.transform_line(re, step, service);
        self.first.transform_line(re, step, first);
        self.service.transform_line(re / m, step / m, later);
        for (k, value) in later.iter_mut().enumerate() {
            let s = Complex64::new(re, step * k as f64) / m;
            let residual = (1.0 - *value) / (s * self.service.mean());
            *value = (1.0 - rho) / (1.0 - residual * rho);
        }
        lines
    }
}

impl<D: ServiceTime> Queue for Mgm<D> {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        self.arrival_rate * self.service.mean() / f64::from(self.servers)
    }
    fn waiting_mean(&self) -> f64 {
        self.waits * self.delayed().0
    }
    fn waiting_variance(&self) -> f64 {
        let (mean, variance) = self.delayed();
        self.waits * (variance + (1.0 - self.waits) * mean * mean)
    }
    fn response_mean(&self) -> f64 {
        self.waiting_mean() + self.service.mean()
    }
    fn response_variance(&self) -> f64 {
        self.waiting_variance() + self.service.scv() * self.service.mean().powi(2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        if t <= T_MIN || t >= T_MAX {
            return if t >= T_MAX { 1.0 } else { 1.0 - self.waits };
        }
        // What waits for the first end alone is known without inversion.
        let alone = 1.0 - self.utilisation();
        let lines = self.lines(t);
        let more = inversion::sum(|k| lines[1][k] * (lines[2][k] - alone), t);
        let delayed = alone * self.first.cdf(t) + more.clamp(0.0, 1.0 - alone);
        (1.0 - self.waits + self.waits * delayed).clamp(0.0, 1.0)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t <= T_MIN || t >= T_MAX {
            return if t >= T_MAX { 1.0 } else { 0.0 };
        }
        let within = self.service.cdf(t);
        let lines = self.lines(t);
        let delayed = inversion::sum(|k| lines[0][k] * lines[1][k] * lines[2][k], t);
        // A request that waits is not faster than one that does not.
        ((1.0 - self.waits) * within + self.waits * delayed.clamp(0.0, within)).clamp(0.0, 1.0)
    }
    fn response_cdfs(&self, times: &[f64]) -> Vec<f64> {
        interpolate::cdfs(times, |t| self.response_cdf(t))
    }
}

/// The law of the first end of `servers` services, each with its residual time left: P(> t) =
/// (∫ₜ(1 − F)/b)^m, in pieces that carry 1/200 of the probability each, and less in the tail.
fn first_end(law: &dyn ServiceTime, servers: u32) -> Result<Empirical, Error> {
    let (mean, m) = (law.mean(), f64::from(servers));
    let above = |t: f64| (1.0 - law.cdf(t)).max(0.0);
    // The share of residual times, and of first ends, beyond t.
    let (mut t, mut residual, mut left) = (0.0f64, 1.0f64, 1.0f64);
    let mut pieces = Vec::new();
    while left > 1e-9 && pieces.len() < 2_000 {
        let now = above(t);
        if now < 1e-12 {
            break;
        }
        // First ends come at the rate m(1 − F(t)) / (b·residual); the step is to hold `share` of them.
        let share = (left / 8.0).min(1.0 / 200.0);
        let step = share / left * mean * residual / (m * now);
        let spent = integral(&above, t, t + step, 1e-9 * mean / m);
        let next = (residual - spent / mean).max(0.0);
        let next_left = next.powf(m);
        if next_left >= left {
            break;
        }
        let (centre, half_width) = (t + 0.5 * step, 0.5 * step);
        pieces.push(Piece { centre, half_width, share: left - next_left });
        (t, residual, left) = (t + step, next, next_left);
    }
    Empirical::from_pieces(pieces)
}

/// The probability that a request waits, and the factor of the mean wait of those that do: over that of the
/// first end and a geometric number of residual times. `third` is E\[S³\]/b³.
fn waiting(servers: u32, rho: f64, scv: f64, third: f64) -> Result<(f64, f64), Error> {
    if servers == 1 || rho <= 0.0 {
        return Ok((rho, 1.0));
    }
    let erlang = erlang_c(servers, rho);
    let solved = servers.min(SOLVED_MAX);
    let near = 1.0 - (1.0 - rho) * (f64::from(servers) / f64::from(solved)).sqrt();
    let near_erlang = erlang_c(solved, near);
    // Too rare for a correction to be seen, or to be computed.
    if near_erlang < 1e-9 {
        return Ok((erlang, 1.0));
    }
    let (waits, factor) = solve(solved, near, scv, third)?;
    if solved == servers {
        return Ok((waits, factor));
    }
    let odds = |p: f64| p / (1.0 - p).max(1e-15);
    let corrected = odds(erlang) * odds(waits) / odds(near_erlang);
    Ok((corrected / (1.0 + corrected), factor))
}

/// [`waiting`] for few servers.
fn solve(servers: u32, rho: f64, scv: f64, third: f64) -> Result<(f64, f64), Error> {
    if (scv - 1.0).abs() < 1e-3 {
        return Ok((erlang_c(servers, rho), 1.0));
    }
    if scv > 1.0 {
        let branches = branches(scv, third);
        let [(p, x), (q, y)] = branches;
        let law = Hyperexponential::new(&branches)?;
        return two_phases(servers, rho, &law, [p, q], [[-1.0 / x, 0.0], [0.0, -1.0 / y]]);
    }
    let mixed = |scv: f64| {
        let law = MixedErlang::new(scv);
        let (p, rate) = (law.one, law.rate);
        two_phases(servers, rho, &law, [1.0 - p, p], [[-rate, rate], [0.0, -rate]])
    };
    if scv >= 0.5 {
        return mixed(scv);
    }
    let (some, none) = (mixed(0.5)?, constant(servers, rho));
    let between = |a: f64, b: f64| b + (a - b) * scv / 0.5;
    Ok((between(some.0, none.0), between(some.1, none.1)))
}

/// [`waiting`] of a law of two phases, of mean 1.
fn two_phases(
    servers: u32,
    rho: f64,
    law: &dyn ServiceTime,
    start: [f64; 2],
    generator: [[f64; 2]; 2],
) -> Result<(f64, f64), Error> {
    let rate = rho * f64::from(servers);
    let rows = [&generator[0][..], &generator[1][..]];
    let (waits, mean) = Solved::new(rate, servers, &start, &rows)?.waiting();
    Ok((waits, factor(mean / waits, rho, law, servers)?))
}

/// A mean wait over that of the first end and a geometric number of residual times.
fn factor(wait: f64, rho: f64, law: &dyn ServiceTime, servers: u32) -> Result<f64, Error> {
    let later = rho / (1.0 - rho) * law.mean() * (1.0 + law.scv()) / (2.0 * f64::from(servers));
    let factor = wait / (first_end(law, servers)?.mean() + later);
    Ok(if factor.is_finite() { factor } else { 1.0 })
}

/// Two exponential branches (probability, mean) of mean 1 with an SCV above 1 and, if it can be, a third moment.
fn branches(scv: f64, third: f64) -> [(f64, f64); 2] {
    let (second, third) = ((1.0 + scv) / 2.0, third / 6.0);
    // The branches' means are the roots of x² − sum·x + product.
    let sum = (third - second) / (second - 1.0);
    let product = sum - second;
    let apart = sum * sum - 4.0 * product;
    if product > 1e-6 && apart > 0.0 {
        let x = 0.5 * (sum + apart.sqrt());
        let y = product / x;
        let p = (1.0 - y) / (x - y);
        if p > 1e-9 && p < 1.0 {
            return [(p, x), (1.0 - p, y)];
        }
    }
    let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
    [(p, 0.5 / p), (1.0 - p, 0.5 / (1.0 - p))]
}

/// Mean 1 and an SCV from 0.5 to 1: one exponential phase with probability `one`, else two, of one rate.
#[derive(Clone, Copy, Debug)]
struct MixedErlang {
    one: f64,
    rate: f64,
    scv: f64,
}

impl MixedErlang {
    fn new(scv: f64) -> Self {
        let one = (2.0 * scv - (2.0 - 2.0 * scv).max(0.0).sqrt()) / (1.0 + scv);
        MixedErlang { one, rate: 2.0 - one, scv }
    }
}

impl ServiceTime for MixedErlang {
    fn mean(&self) -> f64 {
        1.0
    }
    fn scv(&self) -> f64 {
        self.scv
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let phase = self.rate / (self.rate + s);
        phase * (self.one + (1.0 - self.one) * phase)
    }
    fn cdf(&self, t: f64) -> f64 {
        let x = self.rate * t.max(0.0);
        1.0 - (-x).exp() * (1.0 + (1.0 - self.one) * x)
    }
}

/// [`waiting`] of constant service (M/D/m), exactly: C. Crommelin (1932). With the roots zₖ of zᵐ =
/// exp(mρ(z − 1)) inside the unit circle, P(no wait) = m(1 − ρ)/Π(1 − zₖ), and the mean number waiting is
/// Σ1/(1 − zₖ) + ((mρ)² − m(m − 1))/(2m(1 − ρ)).
fn constant(servers: u32, rho: f64) -> (f64, f64) {
    let m = f64::from(servers);
    let (mut product, mut sum) = (Complex64::new(1.0, 0.0), Complex64::ZERO);
    for k in 1..servers {
        let turn = Complex64::from_polar(1.0, std::f64::consts::TAU * f64::from(k) / m);
        let mut z = Complex64::ZERO;
        let value = |z: Complex64| turn * (rho * (z - 1.0)).exp();
        // A contraction, and then Newton.
        (0..8).for_each(|_| z = value(z));
        for _ in 0..8 {
            let f = value(z);
            z -= (z - f) / (1.0 - rho * f);
        }
        product *= 1.0 - z;
        sum += 1.0 / (1.0 - z);
    }
    let waits = 1.0 - m * (1.0 - rho) / product.re;
    let offered = m * rho;
    let waiting = sum.re + (offered * offered - m * (m - 1.0)) / (2.0 * m * (1.0 - rho));
    if waits < 1e-9 {
        return (waits.max(0.0), 1.0);
    }
    let later = rho / (1.0 - rho) / (2.0 * m);
    (waits.min(1.0), waiting / offered / waits / (1.0 / (m + 1.0) + later))
}
