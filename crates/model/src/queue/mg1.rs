//! M/G/1: Poisson arrivals, any law of service times, one server; and, marked as an approximation,
//! several servers ([`super::Mgm`] is a better one).

use crate::distribution::{Complex64, ServiceTime, inversion};
use crate::error::Error;

use super::erlang::erlang_c;
use super::interpolate;
use super::measures::{Queue, stable};
use super::moments::third_moment;
use crate::bisection::quantile;

/// The M/G/1 queue with the service law `D`.
///
/// Means are by the formulas of Pollaczek and Khinchine. The law of the waiting time is inverted
/// from their transform: W(s) = (1 − ρ) / (1 − ρ·E(s)) with E(s) = (1 − B(s)) / (s·b) the transform
/// of the residual service time. The part that does not wait (probability 1 − ρ) is separated and
/// added from the law's own CDF, so that only a continuous part is inverted. Error below 1e-9 for
/// smooth laws, up to 1e-5 near a kink of the density (see [`inversion`]); for constant service use
/// [`super::Md1`]. Cost of a CDF: [`inversion::TERMS`] transforms, microseconds for a formula, some
/// 0.05 ms for an [`crate::distribution::Empirical`] law; [`Queue::response_cdfs`] evaluates many
/// times for the cost of some 17 to 65 of them.
///
/// Assumptions: arrivals are independent of each other; service times depend neither on each other
/// nor on the queue; first come, first served. Wrong if a longer queue makes service faster (a disk
/// that sorts its requests) or slower (a shared processor), and if bursts of arrivals last long.
///
/// ```
/// use model::{distribution::Gamma, queue::Mg1};
/// let disk = Mg1::new(90.0, Gamma::new(0.01, 0.25)?)?;
/// assert!((disk.response_mean() - 0.066_25).abs() < 1e-12);
/// assert!((disk.response_cdf(0.066_25) - 0.631_801_159).abs() < 1e-8);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mg1<D> {
    arrival_rate: f64,
    service: D,
}

impl<D: ServiceTime> Mg1<D> {
    /// Creates a queue from arrivals per second and a law of service. [`Error::Unstable`] at
    /// utilisation 1 or more.
    pub fn new(arrival_rate: f64, service: D) -> Result<Self, Error> {
        Ok(Mg1 { arrival_rate: stable(arrival_rate, 1.0 / service.mean())?, service })
    }

    /// Share of time that the server is busy.
    pub fn utilisation(&self) -> f64 {
        self.arrival_rate * self.service.mean()
    }

    /// Mean waiting time in seconds: λ·E\[S²\] / (2(1 − ρ)).
    pub fn waiting_mean(&self) -> f64 {
        waiting_mean(self.arrival_rate, self.service.mean(), self.service.scv(), 1)
    }

    /// Mean response time in seconds.
    pub fn response_mean(&self) -> f64 {
        self.waiting_mean() + self.service.mean()
    }

    /// Variance of the waiting time in seconds²: λ·E\[S³\] / (3(1 − ρ)) + E\[W\]². Cost: some
    /// thousand CDFs of the law, for its third moment.
    pub(crate) fn waiting_variance(&self) -> f64 {
        let third = third_moment(&self.service);
        self.arrival_rate * third / (3.0 * (1.0 - self.utilisation())) + self.waiting_mean().powi(2)
    }

    /// Variance of the response time in seconds².
    pub(crate) fn response_variance(&self) -> f64 {
        self.waiting_variance() + self.service.scv() * self.service.mean().powi(2)
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
        let rho = self.utilisation();
        let at = Evaluated::new(&self.service, 1, t);
        if at.lines.is_empty() || rho <= 0.0 {
            return if t >= T_MAX { 1.0 } else { 1.0 - rho };
        }
        let waits = match 1.0 - rho < HEAVY {
            true => self.heavy(t),
            false => inversion::sum(|k| at.waits(k, rho, rho), t),
        };
        (1.0 - rho + rho * waits).clamp(0.0, 1.0)
    }

    /// P(the wait of a request that waits ≤ t) near saturation: exponential ([`HEAVY`]).
    fn heavy(&self, t: f64) -> f64 {
        exponential(t * (1.0 - self.utilisation()) / residual_mean(&self.service))
    }

    /// P(response time ≤ t seconds).
    pub fn response_cdf(&self, t: f64) -> f64 {
        ((1.0 - self.utilisation()) * self.service.cdf(t) + self.delayed(t)).clamp(0.0, 1.0)
    }

    /// P(a request waits, and its response time ≤ t seconds): from the transform of
    /// ρ·W⁺(s)·B(s) = ρ(1 − ρ)(1 − B)·B / (s·b − ρ(1 − B)).
    fn delayed(&self, t: f64) -> f64 {
        let (rho, mean) = (self.utilisation(), self.service.mean());
        if t.is_nan() || t <= T_MIN {
            return 0.0;
        }
        if t >= T_MAX {
            return rho;
        }
        if 1.0 - rho < HEAVY {
            return (rho * self.heavy(t)).min(rho * self.service.cdf(t));
        }
        let (re, step) = inversion::line(t);
        let mut line = [Complex64::ZERO; inversion::TERMS];
        self.service.transform_line(re, step, &mut line);
        let waits = |k: usize| {
            let (b, s) = (line[k], Complex64::new(re, step * k as f64));
            let rest = 1.0 - b;
            b * rest * (rho * (1.0 - rho)) / (s * mean - rest * rho)
        };
        // The CDF of requests that wait cannot exceed that of requests that do not.
        inversion::sum(waits, t).clamp(0.0, rho * self.service.cdf(t))
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) does not exceed.
    pub fn response_quantile(&self, p: f64) -> Result<f64, Error> {
        quantile(p, self.response_mean(), |t| self.response_cdf(t))
    }
}

impl<D: ServiceTime> Queue for Mg1<D> {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        Mg1::utilisation(self)
    }
    fn waiting_mean(&self) -> f64 {
        Mg1::waiting_mean(self)
    }
    fn waiting_variance(&self) -> f64 {
        Mg1::waiting_variance(self)
    }
    fn response_mean(&self) -> f64 {
        Mg1::response_mean(self)
    }
    fn response_variance(&self) -> f64 {
        Mg1::response_variance(self)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        Mg1::waiting_cdf(self, t)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        Mg1::response_cdf(self, t)
    }
    fn response_cdfs(&self, times: &[f64]) -> Vec<f64> {
        let rho = self.utilisation();
        let at_once = |t: f64| (1.0 - rho) * self.service.cdf(t);
        interpolate::cdfs(times, at_once, |t| self.delayed(t))
    }
}

/// Times in seconds at and below which, and at and above which, a CDF needs no inversion.
const T_MIN: f64 = 1e-18;
const T_MAX: f64 = 1e18;

/// Within this of saturation waits are taken as exponential with the mean of Pollaczek and Khinchine, which is their limit (Kingman's heavy
/// traffic): off by some 1 − ρ. The transform there is a difference of nearly equal numbers, which the inversion amplifies: its error was
/// 1e-5 at 1 − ρ = 1e-4, 1e-4 at 3e-5, and the CDF was of no use at 1e-6 (a 99th percentile below the mean).
const HEAVY: f64 = 5e-5;

/// Mean of what is left of a service at a random moment of it, seconds.
fn residual_mean(service: &dyn ServiceTime) -> f64 {
    0.5 * service.mean() * (1.0 + service.scv())
}

/// P(X ≤ x) of an exponential variable with a mean of 1.
fn exponential(x: f64) -> f64 {
    -(-x).exp_m1()
}

/// Mean waiting time in seconds with `servers` servers; infinite at saturation. Exact for one
/// server and for exponential service, Lee's and Longton's approximation otherwise.
pub(crate) fn waiting_mean(rate: f64, mean: f64, scv: f64, servers: u32) -> f64 {
    let c = f64::from(servers.max(1));
    let rho = rate * mean / c;
    if rho >= 1.0 {
        return f64::INFINITY;
    }
    erlang_c(servers.max(1), rho) * (1.0 + scv) / 2.0 * mean / c / (1.0 - rho)
}

/// The transforms of a service law at one time t, which all queues with that law share, whatever
/// their arrival rate. Creating it costs [`inversion::TERMS`] transforms; each use costs a
/// microsecond.
///
/// P(T ≤ t) = (1 − C)·F(t) + C·(the inversion at t of W⁺(s)·B(s)), with W⁺ = (1 − ρ)E/(1 − ρE) the
/// transform of the wait of a request that waits, E that of the residual service time ([`Mg1`], at
/// s/c for c servers), and C Erlang's ([`super::erlang_c`]), which is ρ for one server. Exact for
/// one server; for several the error is some points, as documented at [`Evaluated::new`]. Source,
/// assumptions and accuracy otherwise as for [`Mg1`].
///
/// ```
/// use model::{distribution::Gamma, queue::{Evaluated, Mg1}};
/// let service = Gamma::new(0.01, 0.25)?;
/// let at = Evaluated::new(&service, 1, 0.05);
/// for rate in [30.0, 60.0, 90.0] {
///     let queue = Mg1::new(rate, service)?;
///     assert!((at.response_cdf(rate) - queue.response_cdf(0.05)).abs() < 1e-8);
/// }
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Evaluated {
    t: f64,
    mean: f64,
    residual_mean: f64,
    servers: u32,
    /// P(S ≤ t), or P(D + S ≤ t).
    cdf: f64,
    /// B(s), or D(s)·B(s), and the residual's E(s/c).
    lines: Vec<(Complex64, Complex64)>,
    background: Option<BackgroundAt>,
}

/// Work of a server besides the requests, at one time t.
#[derive(Clone, Debug)]
struct BackgroundAt {
    /// Busy share of each server.
    utilisation: f64,
    /// Mean of its residual time, seconds.
    residual_mean: f64,
    /// E(s/c) of its residual time.
    residuals: Vec<Complex64>,
}

impl Evaluated {
    /// The transforms of a law at `t` seconds, for queues with `servers` servers (0 counts as 1).
    ///
    /// More than one server is an *approximation*: a request waits with Erlang's probability C, and
    /// then like a request that waits in an M/G/1 queue c times as fast. Exact for M/M/c.
    /// [`super::Mgm`] is more accurate for other laws, but is created for a single arrival rate.
    pub fn new(service: &dyn ServiceTime, servers: u32, t: f64) -> Self {
        let (mean, servers) = (service.mean(), servers.max(1));
        let (cdf, lines) = (service.cdf(t), Vec::new());
        let residual_mean = residual_mean(service);
        let at = Evaluated { t, mean, residual_mean, servers, cdf, lines, background: None };
        // At times beyond any service time the law's own CDF is used.
        if t.is_nan() || t <= T_MIN || t >= T_MAX {
            return at;
        }
        let (re, step) = inversion::line(t);
        let mut whole = [Complex64::ZERO; inversion::TERMS];
        service.transform_line(re, step, &mut whole);
        let mut faster = whole;
        let c = f64::from(servers);
        if servers > 1 {
            service.transform_line(re / c, step / c, &mut faster);
        }
        let lines = whole.iter().zip(&faster).enumerate();
        let lines = lines.map(|(k, (&b, &f))| {
            let s = Complex64::new(re, step * k as f64) / c;
            (b, (1.0 - f) / (s * mean))
        });
        Evaluated { lines: lines.collect(), ..at }
    }

    /// The same with a delay D before every request, which occupies no server: times in seconds and
    /// their shares. Cost: an exponential for each of them and each point.
    pub fn after(mut self, service: &dyn ServiceTime, delays: &[(f64, f64)]) -> Self {
        if matches!(delays, [(0.0, _)] | []) {
            return self;
        }
        self.cdf = delays.iter().map(|(time, share)| share * service.cdf(self.t - time)).sum();
        let (re, step) = inversion::line(self.t);
        for (k, line) in self.lines.iter_mut().enumerate() {
            let s = Complex64::new(re, step * k as f64);
            line.0 *=
                delays.iter().map(|(time, share)| (-s * *time).exp() * *share).sum::<Complex64>();
        }
        self
    }

    /// The same if the servers also do other work, first come first served with the requests:
    /// `rate` operations per second of this law. Requests wait for it, but no response includes it.
    pub fn beside(mut self, rate: f64, law: &dyn ServiceTime) -> Self {
        let (c, mean) = (f64::from(self.servers), law.mean());
        let utilisation = rate * mean / c;
        if utilisation.is_nan() || utilisation <= 0.0 {
            return self;
        }
        let mut residuals = vec![Complex64::ZERO; self.lines.len()];
        if !residuals.is_empty() {
            let (re, step) = inversion::line(self.t);
            law.transform_line(re / c, step / c, &mut residuals);
            for (k, value) in residuals.iter_mut().enumerate() {
                let s = Complex64::new(re, step * k as f64) / c;
                *value = (1.0 - *value) / (s * mean);
            }
        }
        self.background =
            Some(BackgroundAt { utilisation, residual_mean: residual_mean(law), residuals });
        self
    }

    /// Transform of the waiting time of a request that waits, at point k. The requests use a share
    /// `own` of each server, and all work together `rho`.
    fn waits(&self, k: usize, own: f64, rho: f64) -> Complex64 {
        let mut busy = self.lines[k].1 * own;
        if let Some(background) = &self.background {
            busy += background.residuals[k] * background.utilisation;
        }
        busy * (1.0 - rho) / rho / (1.0 - busy)
    }

    /// P(the response of a request that waits ≤ t) near saturation: exponential ([`HEAVY`]).
    fn heavy(&self, own: f64, rho: f64) -> f64 {
        let other = self.background.as_ref().map_or(0.0, |b| b.utilisation * b.residual_mean);
        let residual = (own * self.residual_mean + other) / rho / f64::from(self.servers);
        exponential(self.t * (1.0 - rho) / residual)
    }

    /// P(response time ≤ t) at an arrival rate per second; 0 at or past saturation.
    pub fn response_cdf(&self, rate: f64) -> f64 {
        if self.t.is_nan() || self.t <= 0.0 {
            return 0.0;
        }
        let own = rate * self.mean / f64::from(self.servers);
        let rho = own + self.background.as_ref().map_or(0.0, |b| b.utilisation);
        if rho.is_nan() || rho >= 1.0 {
            return 0.0;
        }
        if self.lines.is_empty() {
            return if self.t >= T_MAX { 1.0 } else { 0.0 };
        }
        if rho <= 0.0 {
            return self.cdf;
        }
        let waiting = erlang_c(self.servers, rho);
        let delayed = match 1.0 - rho < HEAVY {
            true => self.heavy(own, rho),
            false => inversion::sum(|k| self.waits(k, own, rho) * self.lines[k].0, self.t),
        };
        // The CDF of requests that wait cannot exceed that of requests that do not.
        ((1.0 - waiting) * self.cdf + waiting * delayed.clamp(0.0, self.cdf)).clamp(0.0, 1.0)
    }
}
