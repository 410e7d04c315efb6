//! The distribution of the response time of a visit in a closed network.

use crate::bisection::quantile;
use crate::error::{Error, check};
use crate::queue::Departures;

use super::class::Load;
use super::system::Network;

/// The distribution of the response time of one visit to a station with m servers (first come,
/// first served, exponential service) in a closed network of one class. Exact: an arriving customer
/// finds the state of the network with one customer less (arrival theorem: Sevcik and Mitrani, JACM
/// 28, 1981; Lavenberg and Reiser, 1980). If it finds n ≥ m customers, it waits for n − m + 1
/// departures at rate mµ before its own service.
///
/// In the machine repairman's network (M/M/m//N: think time and one station, visited once) this is
/// the distribution of the whole response time. The time through several stations is in general not
/// a sum of independent times: their means add up, but their variances need not.
///
/// ```
/// use model::network::{Class, Network, Station};
/// // 100 clients think 50 ms; 4 workers take 2 ms.
/// let network = Network::new(
///     vec![Station::servers("workers", 4)?],
///     vec![Class::closed("clients", 100, 0.050, &[0.002])?],
/// )?;
/// let response = network.sojourn(0)?;
/// let mean = network.solve()?.classes[0].response_s;
/// assert!((response.mean() / mean - 1.0).abs() < 1e-9);
/// assert!((response.cdf(response.quantile(0.99)?) - 0.99).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sojourn(Departures);

impl Network {
    /// The distribution of the response time of a visit to a station of servers, in a network of
    /// one closed class. Cost: that of the solution with one customer less.
    pub fn sojourn(&self, station: usize) -> Result<Sojourn, Error> {
        let wrong = |what: &str| {
            let place = match self.stations.get(station) {
                Some(station) => format!("station {:?}", station.name()),
                None => format!("station number {station}"),
            };
            Err(Error::Network { place, what: what.to_owned() })
        };
        let (Some(of), [class]) = (self.stations.get(station), &self.classes[..]) else {
            return wrong(
                "response-time distributions are for a station of a network of one class",
            );
        };
        let Load::Closed { customers, .. } = class.load else {
            return wrong("response-time distributions here are for a closed class");
        };
        let Some(servers) = of.server_count() else {
            return wrong("response-time distributions are for stations of one or more servers");
        };
        if customers == 0 || class.demands_s[station] == 0.0 {
            return wrong("no customer visits it; give the class customers and a demand there");
        }
        let met = self.with_customers(0, customers - 1)?.distribution(station)?;
        let servers_here = servers as usize;
        let mut ahead = vec![met[..met.len().min(servers_here)].iter().sum()];
        ahead.extend(met.iter().skip(servers_here));
        let service_s = class.demands_s[station] / class.visits[station];
        Ok(Sojourn(Departures { service_s, servers: f64::from(servers), ahead }))
    }
}

impl Sojourn {
    /// Mean in seconds.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Variance in seconds².
    pub fn variance(&self) -> f64 {
        self.0.variance()
    }

    /// P(T ≤ t seconds), to some 1e-12. O(customers + m + t·m/service time).
    pub fn cdf(&self, t: f64) -> f64 {
        self.0.cdf(t)
    }

    /// The time in seconds that a share `p` (0 ≤ p < 1) does not exceed. Cost: some 60 evaluations
    /// of the CDF.
    pub fn quantile(&self, p: f64) -> Result<f64, Error> {
        check("the share of a quantile", p, 0.0..=1.0 - 1e-9, "at least 0 and below 1")?;
        quantile(p, self.mean(), |t| self.cdf(t))
    }
}
