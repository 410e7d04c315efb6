//! Stations: places of service, and their speed as a function of the number of customers present.

use std::sync::Arc;

use crate::distribution::{AnyLaw, Deterministic, Exponential, Gamma};
use crate::error::{Error, check, positive};
use crate::fork_join::FanOut;

/// The largest number of servers and of tabulated rates: more would only cost memory.
const RATES_MAX: usize = 1_000_000;

/// The largest squared coefficient of variation: gamma laws of more have nearly all their work in one request of thousands.
const SCV_MAX: f64 = 100.0;

/// A station of a network: a name, and its speed as a function of the number of customers present.
///
/// A class needs `demand` seconds of work at the station (visits × mean service time of one
/// server). With n customers present, the station works α(n) times as fast as one server.
/// Assumptions (BCMP: Baskett, Chandy, Muntz, Palacios, JACM 22, 1975): either service is first
/// come, first served with exponential times that are equal for all classes; or any service law
/// with processor sharing, last come first served, or a delay. If service is first come, first
/// served and far from exponential, results are approximate, and worst near saturation.
///
/// ```
/// use model::network::Station;
/// let disks = Station::servers("disks", 4)?;
/// assert_eq!(disks.rate(3), 3.0);
/// assert_eq!(disks.rate(9), 4.0);
/// let shared = Station::load_dependent("lock", &[1.0, 1.6, 1.5])?;
/// assert_eq!(shared.rate(100), 1.5);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    name: String,
    kind: Kind,
    /// The squared coefficient of variation of service, if it is not exponential.
    scv: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Servers(u32),
    Delay,
    /// α(1), α(2), …; the last rate holds for all larger numbers.
    Rates(Vec<f64>),
    /// The same, but unknown past its last rate.
    Curve(Vec<f64>),
    /// As many queues of one server as a visit has parts.
    Fork(FanOut),
}

/// α(n) for the solvers: a delay, or a table whose last rate holds for all larger numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Law {
    Delay,
    Rates(Vec<f64>),
}

impl Law {
    /// α(n), n ≥ 1.
    #[inline]
    pub(crate) fn alpha(&self, n: usize) -> f64 {
        match self {
            Law::Delay => n as f64,
            Law::Rates(rates) => rates[(n - 1).min(rates.len() - 1)],
        }
    }

    /// The number from which α is constant, if any.
    pub(crate) fn constant_from(&self) -> usize {
        match self {
            Law::Delay => usize::MAX,
            Law::Rates(rates) => rates.len(),
        }
    }

    /// The rate of a station whose speed never changes.
    pub(crate) fn fixed(&self) -> Option<f64> {
        match self {
            Law::Rates(rates) if rates.len() == 1 => Some(rates[0]),
            _ => None,
        }
    }

    /// Drops equal rates at the end; returns a delay if the table is one for up to `customers`.
    pub(crate) fn simplified(mut rates: Vec<f64>, customers: usize) -> Law {
        rates.truncate(customers.max(1));
        while rates.len() > 1 && rates[rates.len() - 1] == rates[rates.len() - 2] {
            rates.pop();
        }
        let is_delay = rates.iter().enumerate().all(|(i, r)| *r == (i + 1) as f64);
        if is_delay && rates.len() == customers && customers > 1 {
            return Law::Delay;
        }
        Law::Rates(rates)
    }
}

impl Station {
    fn new(name: &str, kind: Kind) -> Station {
        Station { name: name.to_owned(), kind, scv: None }
    }

    /// The same servers with another law of service: one with this squared coefficient of variation (variance over mean²; 0 is
    /// constant, 1 exponential), a gamma law. Only for networks of open classes, all with the same service time here. The station is
    /// then an M/G/m queue by itself ([`crate::queue::Mgm`]): an approximation, because what leaves a station whose
    /// service is not exponential does not arrive at the next as Poisson does. Exact for one server that is the only station.
    ///
    /// ```
    /// use model::network::{Class, Network, Station};
    /// let disk = Station::queue("disk").with_scv(0.25)?;
    /// let network = Network::new(vec![disk], vec![Class::open("reads", 90.0, &[0.01])?])?;
    /// // Pollaczek and Khinchine.
    /// assert!((network.solve()?.classes[0].response_s - 0.066_25).abs() < 1e-9);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn with_scv(self, scv: f64) -> Result<Station, Error> {
        check("the scv of service", scv, 0.0..=SCV_MAX, "a number from 0 to 100")?;
        if self.server_count().is_none() {
            let what = "has an scv, which is for stations with servers and a queue".to_owned();
            return Err(Error::Network { place: format!("station {:?}", self.name), what });
        }
        Ok(Station { scv: (scv != 1.0).then_some(scv), ..self })
    }

    /// The squared coefficient of variation of service; `None` if it is exponential, or any.
    pub fn scv(&self) -> Option<f64> {
        self.scv
    }

    /// One server with a queue: α(n) = 1.
    pub fn queue(name: &str) -> Station {
        Station::new(name, Kind::Servers(1))
    }

    /// m servers with one queue: α(n) = min(n, m).
    pub fn servers(name: &str, servers: u32) -> Result<Station, Error> {
        let must = "a number from 1 to 1,000,000";
        check("the number of servers", f64::from(servers), 1.0..=RATES_MAX as f64, must)?;
        Ok(Station::new(name, Kind::Servers(servers)))
    }

    /// A delay: nobody waits, α(n) = n.
    pub fn delay(name: &str) -> Station {
        Station::new(name, Kind::Delay)
    }

    /// A station with any rates α(1), α(2), …: its speed relative to one server with 1, 2, …
    /// customers present. The last rate is assumed to hold for all larger numbers.
    pub fn load_dependent(name: &str, rates: &[f64]) -> Result<Station, Error> {
        Ok(Station::new(name, Kind::Rates(checked(name, rates)?)))
    }

    /// A flow-equivalent server: a whole system as one station, given its measured throughputs X(n)
    /// in requests/s with n requests inside (pairs in ascending order of n). Classes must have a
    /// demand of 1 s there; α(n) is then X(n) per second. Between measured numbers X is
    /// interpolated linearly, starting from X(0) = 0. Past the last one solutions return
    /// [`crate::Error::PastCurve`], because a curve is not extrapolated.
    ///
    /// Source: Norton's theorem for queueing networks (Chandy, Herzog, Woo, IBM J. R&D 19, 1975).
    /// Exact if the system inside is a product-form network, approximate otherwise.
    ///
    /// ```
    /// use model::network::{Class, Network, Station};
    /// // A system of one worker and a link of 10 ms, measured in a closed loop without think time …
    /// let inner = Network::new(
    ///     vec![Station::queue("worker"), Station::delay("link")],
    ///     vec![Class::closed("clients", 8, 0.0, &[0.005, 0.010])?],
    /// )?;
    /// let curve: Vec<(u32, f64)> = (1..=8)
    ///     .map(|n| Ok((n, inner.with_customers(0, n)?.solve()?.classes[0].throughput)))
    ///     .collect::<Result<_, model::Error>>()?;
    /// // … behaves as one station inside a larger one.
    /// let outer = Network::new(
    ///     vec![Station::flow_equivalent("system", &curve)?],
    ///     vec![Class::closed("clients", 8, 0.1, &[1.0])?],
    /// )?;
    /// let whole = Network::new(
    ///     vec![Station::queue("worker"), Station::delay("link")],
    ///     vec![Class::closed("clients", 8, 0.1, &[0.005, 0.010])?],
    /// )?;
    /// let (a, b) = (outer.solve()?.classes[0].throughput, whole.solve()?.classes[0].throughput);
    /// assert!((a / b - 1.0).abs() < 1e-12);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn flow_equivalent(name: &str, curve: &[(u32, f64)]) -> Result<Station, Error> {
        let place = || format!("station {name:?}");
        let mut rates: Vec<f64> = Vec::new();
        let mut before = 0.0;
        for &(n, x) in curve {
            positive("a measured throughput", x)?;
            let known = rates.len();
            let n = n as usize;
            if n <= known {
                let what = "the measured throughputs are not in rising order of customers; sort them, \
                            and average those of the same number";
                return Err(Error::Network { place: place(), what: what.to_owned() });
            }
            if n > RATES_MAX {
                let what = format!("a curve to {n} customers is too long; give it up to 1,000,000");
                return Err(Error::Network { place: place(), what });
            }
            let step = (x - before) / (n - known) as f64;
            rates.extend((known + 1..n).map(|i| before + step * (i - known) as f64));
            rates.push(x);
            before = x;
        }
        Ok(Station::new(name, Kind::Curve(checked(name, &rates)?)))
    }

    /// Equal queues of one server each, into which every visit forks: one part for each queue, at the same moment. The
    /// visit ends when the needed parts have answered; the others are served too. A demand is that of one part. Only
    /// for networks of open classes, all with the same service time here. [`crate::fork_join::ForkJoin`] has the law
    /// and its accuracy: an approximation, exact only for the mean of two parts.
    ///
    /// ```
    /// use model::{fork_join::FanOut, network::{Class, Network, Station}};
    /// // Multi-gets of 2 keys, a key on each of two servers: 700/s, 1 ms a key. The exact mean is (12 − ρ)/8 of one's.
    /// let network = Network::new(
    ///     vec![Station::fork("caches", FanOut::new(2, 2)?)],
    ///     vec![Class::open("multi-gets", 700.0, &[0.001])?],
    /// )?;
    /// let response_s = network.solve()?.classes[0].response_s;
    /// assert!((response_s / (11.3 / 8.0 * 0.001 / 0.3) - 1.0).abs() < 1e-3);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn fork(name: &str, fan_out: FanOut) -> Station {
        Station::new(name, Kind::Fork(fan_out))
    }

    /// The station's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A short description of its kind.
    pub fn kind(&self) -> String {
        let scv = self.scv.map(|scv| format!(", scv {}", ground::number::exact(scv)));
        let kind = match &self.kind {
            Kind::Servers(1) => "queue".to_owned(),
            Kind::Servers(m) => format!("{m} servers"),
            Kind::Delay => "delay".to_owned(),
            Kind::Rates(_) => "load-dependent".to_owned(),
            Kind::Curve(_) => "measured curve".to_owned(),
            Kind::Fork(fan_out) => format!("fork: {fan_out}"),
        };
        kind + &scv.unwrap_or_default()
    }

    /// α(n): its speed relative to one server with `n` customers present; 0 if `n` is 0.
    pub fn rate(&self, n: u32) -> f64 {
        if n == 0 {
            return 0.0;
        }
        match &self.kind {
            Kind::Servers(m) => f64::from(n.min(*m)),
            Kind::Delay => f64::from(n),
            Kind::Fork(_) => 1.0,
            Kind::Rates(rates) | Kind::Curve(rates) => rates[(n as usize - 1).min(rates.len() - 1)],
        }
    }

    /// The limit of α(n) for large n; infinite for a delay.
    pub(crate) fn rate_limit(&self) -> f64 {
        match &self.kind {
            Kind::Servers(m) => f64::from(*m),
            Kind::Delay => f64::INFINITY,
            Kind::Fork(_) => 1.0,
            Kind::Rates(rates) | Kind::Curve(rates) => rates[rates.len() - 1],
        }
    }

    /// The largest α(n); infinite for a delay.
    pub fn rate_max(&self) -> f64 {
        match &self.kind {
            Kind::Servers(_) | Kind::Delay | Kind::Fork(_) => self.rate_limit(),
            Kind::Rates(rates) | Kind::Curve(rates) => rates.iter().copied().fold(0.0, f64::max),
        }
    }

    pub(crate) fn inner(&self) -> &Kind {
        &self.kind
    }

    /// Number of servers, for a kind that has servers.
    pub(crate) fn server_count(&self) -> Option<u32> {
        match self.kind {
            Kind::Servers(m) => Some(m),
            _ => None,
        }
    }

    pub(crate) fn is_delay(&self) -> bool {
        matches!(self.kind, Kind::Delay)
    }

    /// The law for solvers with at most `customers` inside.
    pub(crate) fn law(&self, customers: usize) -> Result<Law, Error> {
        Ok(match &self.kind {
            Kind::Delay => Law::Delay,
            Kind::Servers(m) => {
                let m = (*m as usize).min(customers.max(1));
                Law::simplified((1..=m).map(|n| n as f64).collect(), customers)
            }
            // Of each queue: all parts of a visit are served.
            Kind::Fork(_) => Law::Rates(vec![1.0]),
            Kind::Rates(rates) => Law::simplified(rates.clone(), customers),
            Kind::Curve(rates) if rates.len() < customers => {
                let station = self.name.clone();
                return Err(Error::PastCurve { station, measured: rates.len(), customers });
            }
            Kind::Curve(rates) => Law::simplified(rates.clone(), customers),
        })
    }
}

fn checked(name: &str, rates: &[f64]) -> Result<Vec<f64>, Error> {
    if rates.is_empty() || rates.len() > RATES_MAX {
        let what = format!("{} rates; give 1 to 1,000,000, for 1, 2, … present", rates.len());
        return Err(Error::Network { place: format!("station {name:?}"), what });
    }
    for &rate in rates {
        check("a rate of a station", rate, 1e-12..=1e12, "a number from 1e-12 to 1e12")?;
    }
    Ok(rates.to_vec())
}

/// The law of service with this mean, seconds, and squared coefficient of variation: a gamma law, of which the constant
/// and the exponential one are cases.
pub(crate) fn service_law(mean_s: f64, scv: f64) -> Result<AnyLaw, Error> {
    Ok(match scv {
        0.0 => Arc::new(Deterministic::new(mean_s)?),
        1.0 => Arc::new(Exponential::new(mean_s)?),
        scv => Arc::new(Gamma::new(mean_s, scv)?),
    })
}
