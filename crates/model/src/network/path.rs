//! The distribution of the response time of an open class: the sum of its times at the stations.

use std::sync::Arc;

use crate::bisection::quantile;
use crate::distribution::{AnyLaw, Complex64, Empirical, Exponential, ServiceTime, inversion};
use crate::error::{Error, check};
use crate::fork_join::ForkJoin;
use crate::queue::{Mgm, Mmm, Queue};

use super::class::{Class, Load};
use super::station::{Kind, service_law};
use super::system::Network;

/// Visits above which a class has no distribution here: the sum of so many times is nearly constant, and its transform
/// loses digits.
const VISITS_MAX: f64 = 1_000.0;
/// Largest relative difference of two classes' service times that counts as none.
const SAME_SERVICE: f64 = 1e-9;

/// The distribution of the response time of an open class, from [`Network::path_time`].
///
/// The time at each station (M/M/m, M/G/m, a delay of exponential times, a fork) is independent of those at the others, so that the
/// transform of the sum is the product. A class that visits a station V times on average spends ⌊V⌋ or ⌊V⌋ + 1 such times
/// there, with the probabilities that give V: a station with 0.2 visits is visited by a fifth of the requests.
///
/// Exact ([`PathTime::is_exact`]) for one class that visits each station once, in their order, if only the first and
/// the last have several servers or none wait there (E. Reich, Annals of Mathematical Statistics 28, 1957; P. Burke, Operations
/// Research 16, 1968), and for one station that is visited once. Otherwise an approximation: a request may
/// overtake another, so that its times depend on each other (B. Simon, R. Foley, Management Science 25, 1979: by little);
/// visits may have another law than the one above. The mean is exact in all cases but with forks. Cost of a CDF:
/// [`inversion::TERMS`] products.
///
/// ```
/// use model::network::{Class, Network, Station};
/// // Two M/M/1 queues in a row, each with response times of rate 100 − 50.
/// let stations = vec![Station::queue("front"), Station::queue("disk")];
/// let network = Network::new(stations, vec![Class::open("reads", 50.0, &[0.01, 0.01])?])?;
/// let path = network.path_time(0)?;
/// assert!(path.is_exact());
/// let erlang = |t: f64| 1.0 - (1.0 + 50.0 * t) * (-50.0 * t).exp();
/// assert!((path.cdf(0.04) - erlang(0.04)).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct PathTime {
    parts: Vec<Part>,
    mean: f64,
    exact: bool,
}

/// Visits to a station.
#[derive(Clone)]
struct Part {
    visits: f64,
    time: StationTime,
}

/// The response time of one visit.
#[derive(Clone)]
enum StationTime {
    /// M/M/m: with probability `waits` an exponential wait of rate `excess`, then service of rate `service`.
    Servers { waits: f64, excess: f64, service: f64 },
    /// M/G/1: the transform of Pollaczek and Khinchine.
    Single { service: AnyLaw, utilisation: f64 },
    /// Any law with a transform.
    Law(AnyLaw),
}

impl StationTime {
    fn transform(&self, s: Complex64) -> Complex64 {
        match self {
            StationTime::Servers { waits, excess, service } => {
                let wait = (1.0 - waits) + waits * excess / (s + *excess);
                wait * *service / (s + *service)
            }
            StationTime::Single { service, utilisation } => {
                let work = service.transform(s);
                let rest = (Complex64::new(1.0, 0.0) - work) / (s * service.mean());
                work * (1.0 - utilisation) / (Complex64::new(1.0, 0.0) - rest * *utilisation)
            }
            StationTime::Law(law) => law.transform(s),
        }
    }
}

impl Network {
    /// The distribution of the response time of an open class.
    ///
    /// # Errors
    /// [`Error::Network`] where it is not known: for closed classes ([`Network::sojourn`], [`Network::cycle_time`]) and
    /// beside them, at stations whose speed depends on the number present, and where classes have different service times at
    /// a station with a queue; [`Error::StationUnstable`] past saturation.
    pub fn path_time(&self, class: usize) -> Result<PathTime, Error> {
        let Some(of) = self.classes.get(class) else { return Err(self.no_closed(class)) };
        if let Some(closed) = self.classes.iter().find(|c| matches!(c.load, Load::Closed { .. })) {
            let what = "is closed: response-time distributions along a path are for networks of open classes alone";
            return Err(closed.wrong(what));
        }
        let mean = self.solve()?.classes[class].response_s;
        let visited: Vec<usize> =
            (0..self.stations.len()).filter(|&k| of.demands_s[k] > 0.0).collect();
        let mut parts = Vec::new();
        for &k in &visited {
            let visits = of.visits[k];
            if visits > VISITS_MAX {
                let station = self.stations[k].name();
                let what = format!(
                    "visits {station:?} {visits} times: no distribution past {VISITS_MAX} visits"
                );
                return Err(of.wrong(&what));
            }
            parts.push(Part { visits, time: self.station_time(k)? });
        }
        Ok(PathTime { parts, mean, exact: self.is_exact_path(of, &visited) })
    }

    fn is_exact_path(&self, class: &Class, visited: &[usize]) -> bool {
        let once = visited.iter().all(|&k| (class.visits[k] - 1.0).abs() < 1e-9);
        let fork = visited.iter().any(|&k| matches!(self.stations[k].inner(), Kind::Fork(_)));
        let middle = visited.get(1..visited.len().saturating_sub(1)).unwrap_or_default();
        let in_order = middle.iter().all(|&k| matches!(self.stations[k].inner(), Kind::Servers(1)));
        let alone = self.classes.len() == 1 || visited.len() == 1;
        // What leaves such a station is not Poisson: only where nothing follows is anything known.
        let general = visited.iter().any(|&k| self.stations[k].scv().is_some());
        let queue =
            || matches!(visited, [k] if matches!(self.stations[*k].inner(), Kind::Servers(1)));
        once && !fork && in_order && alone && (!general || self.classes.len() == 1 && queue())
    }

    /// The law of a visit to a station.
    fn station_time(&self, k: usize) -> Result<StationTime, Error> {
        let station = &self.stations[k];
        let wrong =
            |what: String| Error::Network { place: format!("station {:?}", station.name()), what };
        let visitors: Vec<&Class> = self.classes.iter().filter(|c| c.demands_s[k] > 0.0).collect();
        let service_s = |class: &Class| class.demands_s[k] / class.visits[k];
        let Some(service) = visitors.first().map(|class| service_s(class)) else {
            return Err(wrong("has no visitors".to_owned()));
        };
        if visitors.iter().any(|class| (service_s(class) / service - 1.0).abs() > SAME_SERVICE) {
            return Err(wrong(
                "classes have different service times there, and then the law of its waits is not known; give all the same"
                    .to_owned(),
            ));
        }
        let rate: f64 = visitors.iter().map(|class| class.rate() * class.visits[k]).sum();
        match (station.inner(), station.scv()) {
            (Kind::Servers(m), Some(scv)) => {
                let law = service_law(service, scv)?;
                if *m == 1 {
                    return Ok(StationTime::Single { service: law, utilisation: rate * service });
                }
                let queue = Mgm::new(rate, *m, law)?;
                let mean = queue.response_mean();
                let law = Empirical::from_cdf(mean, &[], |t| queue.response_cdf(t))?;
                Ok(StationTime::Law(Arc::new(law)))
            }
            (Kind::Servers(m), None) => {
                let queue = Mmm::new(rate, 1.0 / service, *m)?;
                let waits = 1.0 - queue.waiting_cdf(0.0);
                let excess = f64::from(*m) / service - rate;
                Ok(StationTime::Servers { waits, excess, service: 1.0 / service })
            }
            (Kind::Delay, _) => Ok(StationTime::Law(Arc::new(Exponential::new(service)?))),
            (Kind::Fork(fan_out), _) => {
                let (parts, needed) = (fan_out.parts(), fan_out.needed());
                let law = ForkJoin::new(rate, Arc::new(Exponential::new(service)?), parts, parts)?;
                let mean = law.kth_mean(needed);
                let law = Empirical::from_cdf(mean, &[], |t| law.kth_cdf(needed, t))?;
                Ok(StationTime::Law(Arc::new(law)))
            }
            (Kind::Rates(_) | Kind::Curve(_), _) => Err(wrong(
                "its speed depends on the number present, for which the law of responses is not known".to_owned(),
            )),
        }
    }
}

impl PathTime {
    /// Mean in seconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Whether it is exact, up to the inversion of a transform (1e-9).
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Probability that the request visits no station.
    fn none(&self) -> f64 {
        self.parts.iter().map(|part| (1.0 - part.visits).max(0.0)).product()
    }

    /// P(T ≤ t seconds). Cost: 81 transforms of each station.
    pub fn cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        let none = self.none();
        if t < 1e-18 {
            return none;
        }
        if t > 1e18 {
            return 1.0;
        }
        let transform = |s: Complex64| {
            let mut product = Complex64::new(1.0, 0.0);
            for part in &self.parts {
                let one = part.time.transform(s);
                let whole = part.visits.floor();
                let rest = part.visits - whole;
                product *= one.powi(whole as i32) * ((1.0 - rest) + one * rest);
            }
            product - none
        };
        (none + inversion::cdf(transform, t)).clamp(none, 1.0)
    }

    /// The time in seconds that a share `p` (0 ≤ p < 1) does not exceed. Cost: some 60 CDFs.
    pub fn quantile(&self, p: f64) -> Result<f64, Error> {
        check("the share of a quantile", p, 0.0..=1.0 - 1e-9, "at least 0 and below 1")?;
        quantile(p, self.mean, |t| self.cdf(t))
    }
}

#[cfg(test)]
mod tests;
