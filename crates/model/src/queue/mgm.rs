//! M/G/m: Poisson arrivals, any law of service, several servers: an approximation close to the exact laws.

use crate::distribution::{ServiceTime, inversion};
use crate::error::Error;

use super::delay::{Delay, ZEROS};
use super::erlang::servers_count;
use super::{Queue, interpolate, stable};

/// Seconds at and below which, and at and above which, a CDF is not worth inverting.
const T_MIN: f64 = 1e-18;
const T_MAX: f64 = 1e18;

/// The M/G/m queue with the service law `D`.
///
/// A request that waits does so until the first end among m services under way, each of which has its
/// *residual* time left, and then for a geometric number (mean ρ/(1 − ρ)) of residual times of service m times
/// faster: H. Tijms, M. van Hoorn, A. Federgruen, "Approximations for the steady-state probabilities in the
/// M/G/c queue", Advances in Applied Probability 13 (1981); its queue length, turned into time by Little's
/// law for distributions. The rate at which its tail falls is the exact one. It is then corrected:
///
/// - Below an SCV of 1: the probability to wait, which that source takes from M/M/m, and the mean are, from an SCV
///   of 0.5, those of the exact M/PH/m queue ([`super::Mphm`]) with two phases of the same mean and SCV;
///   below, interpolated in the SCV between these and M/D/m, exact by the roots of Crommelin's equation.
/// - Above: what the law of an exact M/H₂/m queue differs from the same form is added, for two branches
///   with the same mean and SCV, and with a third moment between what the law's tail and what the sooner end of two
///   services under way ask for (calibrated on simulated lognormal service of SCV 4). Exact for such service.
/// - Past 32 servers a correction is that of 32 servers with the same (1 − ρ)√m, the scaling of S. Halfin and
///   W. Whitt, Operations Research 29 (1981).
///
/// How good: largest difference of the response-time CDF in points (hundredths), at utilisations 0.3 to 0.95.
///
/// | service | against | servers | off by |
/// |---|---|---|---|
/// | Erlang, SCV 0.1 | exact | 2 | 0.45 |
/// | Erlang, SCV 0.25 | exact | 2 to 4 | 0.36 |
/// | Erlang, SCV 0.5 | exact | 2 to 32 | 0.05 |
/// | hyperexponential, SCV 2 and 4 | exact | 2 to 32 | 0.00 |
/// | the same | exact | 48, 64 | 0.14 and 0.37 |
/// | gamma, SCV 4 | simulation, 0.7 and 0.9 | 2 to 16 | 0.4 ± 0.1 |
/// | lognormal, SCV 2 | simulation, 0.7 and 0.9 | 2 to 16 | 0.3 ± 0.1 |
/// | lognormal, SCV 4 | simulation, 0.7 and 0.9 | 2, 4 | 0.5 ± 0.1 |
/// | the same | simulation, 0.7 and 0.9 | 8, 16 | 0.6 ± 0.1 |
///
/// All of it again: `experiments/queue-laws`. It assumes Poisson arrivals, equal servers, one line and independent
/// service times. Wrong by more than is said for tails heavier than that of the last row.
///
/// It needs two finite moments of service, three above an SCV of 1 and for its variance. Cost: 0.1 to 40 ms for [`Mgm::new`] (the most
/// for 32 servers and an SCV above 1), for each CDF three to five lines of transforms (20 to 500 µs).
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
    delay: Delay,
}

impl<D: ServiceTime> Mgm<D> {
    /// With arrivals per second, servers, and a law of service. [`Error::Unstable`] at utilisation 1 or
    /// more.
    pub fn new(arrival_rate: f64, servers: u32, service: D) -> Result<Self, Error> {
        let saturation = f64::from(servers_count(servers)?) / service.mean();
        let arrival_rate = stable(arrival_rate, saturation)?;
        let delay = Delay::new(&service, servers, arrival_rate / saturation)?;
        Ok(Mgm { arrival_rate, servers, service, delay })
    }

    /// The probability that a request waits.
    pub fn waiting_probability(&self) -> f64 {
        self.delay.waits()
    }

    /// P(a request waits, and its response time ≤ t seconds).
    fn delayed(&self, t: f64) -> f64 {
        let waits = self.delay.waits();
        if t.is_nan() || t <= T_MIN {
            return 0.0;
        }
        if t >= T_MAX {
            return waits;
        }
        let (re, step) = inversion::line(t);
        let mut service = ZEROS;
        self.service.transform_line(re, step, &mut service);
        let line = self.delay.line(&self.service, t);
        // A request that waits is not faster than one that does not.
        let within = waits * self.service.cdf(t);
        inversion::sum(|k| line[k] * service[k], t).clamp(0.0, within)
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
        self.delay.moments(&self.service).0
    }
    fn waiting_variance(&self) -> f64 {
        let (mean, square) = self.delay.moments(&self.service);
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
        let line = self.delay.line(&self.service, t);
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
