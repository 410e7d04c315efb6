//! M/G/m: Poisson arrivals, any law of service, several servers: an approximation close to the
//! exact laws.

use crate::distribution::{ServiceTime, inversion};
use crate::error::Error;

use super::delay::{Delay, Line, Shape, ShapeLine, ZEROS};
use super::erlang::servers_count;
use super::interpolate;
use super::measures::{Queue, stable};

/// Times in seconds at and below which, and at and above which, a CDF needs no inversion.
const T_MIN: f64 = 1e-18;
const T_MAX: f64 = 1e18;

/// The M/G/m queue with the service law `D`.
///
/// A request that waits does so until the first of the m services in progress ends, each of which
/// has its *residual* time left, and then for a geometric number (mean ρ/(1 − ρ)) of residual times
/// of service m times as fast: H. Tijms, M. van Hoorn, A. Federgruen, "Approximations for the
/// steady-state probabilities in the M/G/c queue", Advances in Applied Probability 13 (1981), whose
/// queue length is converted to time by Little's law for distributions. The decay rate of the tail
/// is exact. The form is then corrected:
///
/// - Below an SCV of 1: the source takes the probability of waiting from M/M/m. Here, from an SCV
///   of 0.5, this probability and the mean are those of the exact M/PH/m queue with two phases and
///   the same mean and SCV. Below 0.5 they are interpolated in the SCV between these and M/D/m,
///   which is exact by the roots of Crommelin's equation.
/// - Above: the excess of an exact M/Hₖ/m queue over the same form is added, for exponential
///   branches with the same mean and SCV and the nearest residual law: two branches if they equal
///   the law; otherwise three up to 16 servers, and past them two up to 64 plus the difference of
///   three from two at 16. Exact for two branches.
/// - A queue of fewer servers represents one of more if it has the same (1 − ρ)√m, the scaling of
///   S. Halfin and W. Whitt, Operations Research 29 (1981), with time slowed down by the square
///   root of their ratio.
///
/// Accuracy: largest error of the response-time CDF in points (hundredths), at utilisations 0.3 to
/// 0.95.
///
/// | service | against | servers | off by |
/// |---|---|---|---|
/// | Erlang, SCV 0.1 | exact | 2 | 0.45 |
/// | Erlang, SCV 0.25 | exact | 2 to 4 | 0.36 |
/// | Erlang, SCV 0.5 | exact | 2 to 32 | 0.05 |
/// | hyperexponential, SCV 2 and 4 | exact | 2 to 36 | 0.00 |
/// | gamma, SCV 4 | simulation, 0.7 and 0.9 | 3 to 16 | 0.1 ± 0.1 |
/// | lognormal, SCV 1.5 to 3 | simulation, 0.8 to 0.9 | 4 to 16 | 0.3 ± 0.1 |
/// | lognormal, SCV 4 | simulation, 0.5 to 0.95 | 2 to 16 | 0.3 ± 0.1 |
/// | the same | simulation, 0.9 and 0.95 | 32 to 64 | 0.2 ± 0.1 |
/// | lognormal, SCV 6 | simulation, 0.8 | 6 | 0.3 ± 0.1 |
/// | two humps, SCV 3 and 4 | simulation, 0.7 to 0.9 | 3 to 16 | 0.6 ± 0.1 |
///
/// Nothing was fitted to simulations, except that the sum of queues past 16 servers was chosen
/// after three branches alone, scaled from 16 to 32 servers, had an error of 0.7. More cases:
/// `experiments/queue-laws`. Assumptions: Poisson arrivals, equal servers, one line, and
/// independent service times. Errors exceed the table for heavier tails, and for service far from
/// any mixture of exponential laws, such as two humps.
///
/// Service needs two finite moments, and three above an SCV of 1 or for the variance. Cost: 1 to 40
/// ms for [`Mgm::new`] (the most for 16 servers or more and an SCV above 1); for each CDF a few
/// lines of transforms (20 to 500 µs).
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
    shape: Shape,
    delay: Delay,
}

impl<D: ServiceTime> Mgm<D> {
    /// Creates a queue from arrivals per second, the number of servers and a law of service.
    /// [`Error::Unstable`] at utilisation 1 or more.
    pub fn new(arrival_rate: f64, servers: u32, service: D) -> Result<Self, Error> {
        let saturation = f64::from(servers_count(servers)?) / service.mean();
        let arrival_rate = stable(arrival_rate, saturation)?;
        let shape = Shape::new(&service, servers)?;
        let delay = Delay::new(&service, &shape, arrival_rate / saturation)?;
        Ok(Mgm { arrival_rate, servers, service, shape, delay })
    }

    /// The probability that a request waits.
    #[cfg(test)]
    pub(crate) fn waiting_probability(&self) -> f64 {
        self.delay.waits()
    }

    /// P(a request waits, and its response time ≤ t seconds).
    fn delayed(&self, t: f64) -> f64 {
        if t.is_nan() || t <= T_MIN {
            return 0.0;
        }
        if t >= T_MAX {
            return self.delay.waits();
        }
        AtTime::new(&self.service, &self.shape, t).delayed(&self.delay)
    }
}

/// The parts that do not depend on the load, at one time.
struct AtTime {
    t: f64,
    cdf: f64,
    service: Line,
    shape: ShapeLine,
}

impl AtTime {
    fn new(law: &dyn ServiceTime, shape: &Shape, t: f64) -> Self {
        let (re, step) = inversion::line(t);
        let mut service = ZEROS;
        law.transform_line(re, step, &mut service);
        AtTime { t, cdf: law.cdf(t), service, shape: shape.line(law, t) }
    }

    /// P(a request waits, and its response time ≤ t).
    fn delayed(&self, delay: &Delay) -> f64 {
        let line = delay.line(&self.shape, self.t);
        // The CDF of requests that wait cannot exceed that of requests that do not.
        let within = delay.waits() * self.cdf;
        inversion::sum(|k| line[k] * self.service[k], self.t).clamp(0.0, within)
    }
}

/// [`Mgm`] at several loads, with the common parts computed once.
#[derive(Clone, Debug)]
pub(crate) struct MgmLoads<D> {
    service: D,
    shape: Shape,
    delays: Vec<Delay>,
}

impl<D: ServiceTime> MgmLoads<D> {
    /// Creates it from the number of servers, a law of service, and utilisations below 1.
    pub(crate) fn new(servers: u32, service: D, utilisations: &[f64]) -> Result<Self, Error> {
        let shape = Shape::new(&service, servers_count(servers)?)?;
        let delay = |&rho: &f64| Delay::new(&service, &shape, stable(rho, 1.0)?);
        let delays = utilisations.iter().map(delay).collect::<Result<_, _>>()?;
        Ok(MgmLoads { service, shape, delays })
    }

    /// The mean wait in seconds at each utilisation.
    pub(crate) fn waiting_means(&self) -> impl Iterator<Item = f64> {
        self.delays.iter().map(|delay| delay.moments(&self.service, &self.shape).0)
    }

    /// P(response time ≤ t seconds) at each utilisation. Cost: that of one CDF of [`Mgm`], and some
    /// 10 to 50 µs a load.
    pub(crate) fn response_cdfs_at(&self, t: f64) -> Vec<f64> {
        if t.is_nan() || t <= T_MIN || t >= T_MAX {
            return self.delays.iter().map(|_| if t >= T_MAX { 1.0 } else { 0.0 }).collect();
        }
        let at = AtTime::new(&self.service, &self.shape, t);
        let of =
            |delay: &Delay| ((1.0 - delay.waits()) * at.cdf + at.delayed(delay)).clamp(0.0, 1.0);
        self.delays.iter().map(of).collect()
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
        self.delay.moments(&self.service, &self.shape).0
    }
    fn waiting_variance(&self) -> f64 {
        let (mean, square) = self.delay.moments(&self.service, &self.shape);
        square - mean * mean
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
        let at_once = 1.0 - self.delay.waits();
        if t <= T_MIN || t >= T_MAX {
            return if t >= T_MAX { 1.0 } else { at_once };
        }
        let line = self.delay.line(&self.shape.line(&self.service, t), t);
        (at_once + inversion::sum(|k| line[k], t)).clamp(at_once, 1.0)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        let at_once = 1.0 - self.delay.waits();
        (at_once * self.service.cdf(t) + self.delayed(t)).clamp(0.0, 1.0)
    }
    fn response_cdfs(&self, times: &[f64]) -> Vec<f64> {
        let at_once = |t: f64| (1.0 - self.delay.waits()) * self.service.cdf(t);
        interpolate::cdfs(times, at_once, |t| self.delayed(t))
    }
}
