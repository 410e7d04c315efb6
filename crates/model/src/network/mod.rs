//! Networks of queues: stations, and the classes of customers that visit them.
//!
//! A customer of a *closed* class thinks, visits stations, and starts again, like a client that
//! waits for each reply before it sends the next request. Customers of an *open* class arrive from
//! outside and leave. Each class has a **demand** D = V·S seconds at each station: the number of
//! visits times the mean service time. A solution computes throughputs, response times, numbers of
//! customers and utilisations from populations, think times and demands.
//!
//! Three laws hold for any system, whatever its distributions (Denning and Buzen, 1978), and so for
//! every solution here: **Little's law** N = X·R, the **utilisation law** U = X·D/m, and the
//! **interactive response-time law** R = N/X − Z. All other results assume the product form of BCMP
//! (see [`Station`]).
//!
//! | network | solved by | exact |
//! |---|---|---|
//! | one closed class, constant speeds | mean value analysis ([`Method::Mva`]) | yes |
//! | one closed class, any speeds (servers, rates, measured curves) | tilted convolution ([`Method::Convolution`]) | yes |
//! | several closed classes, constant speeds | multi-class mean value analysis, while populations are few | yes |
//! | several closed classes, any speeds | convolution over populations, while they are few | yes |
//! | several large closed classes | [`Method::Linearizer`], with very many customers [`Method::Schweitzer`] | no |
//! | open classes | M/M/m and its special cases at each station ([`Method::Open`]) | yes |
//! | open classes, stations that fork | fork-join queues ([`Method::Fork`], [`Station::fork`]) | no |
//! | open classes, stations whose service is not exponential | M/G/m at each ([`Method::Decomposition`], [`Station::with_scv`]) | no |
//! | open and closed | closed classes get the capacity that open classes leave at each station | as the closed |
//!
//! Load-dependent mean value analysis is deliberately missing: it subtracts, and published solvers
//! return negative throughputs from a few dozen servers on. Convolution adds positive terms only;
//! the tests compare it with 120-digit arithmetic.
//!
//! [`Network::bounds`] needs no solution and holds for every load.
//! [`bottleneck`](Network::bottleneck) names the limiting station, and
//! [`sectors`](Network::sectors) shows how it changes with the mix of two classes.
//! [`Station::flow_equivalent`] replaces a measured system by one station. [`Network::sojourn`] is
//! the distribution of the response time at one station, [`Network::cycle_time`] that through all
//! of them, and [`Network::path_time`] that of an open class.
//!
//! ```
//! use model::network::{Class, Network, Station};
//! // 192 clients, 2 ms away, and two middlewares with 64 threads each, 11.6 ms for each request.
//! let network = Network::new(
//!     vec![Station::servers("middleware 1", 64)?, Station::servers("middleware 2", 64)?],
//!     vec![Class::closed("clients", 192, 0.002_093, &[0.0058, 0.0058])?],
//! )?;
//! let solution = network.solve()?;
//! assert!((solution.classes[0].throughput - 10_854.523).abs() < 1e-3);
//! assert!(solution.method.is_exact());
//! # Ok::<(), model::Error>(())
//! ```

mod approximate;
mod bounds;
mod convolution;
mod cycle;
mod fork;
mod general;
mod lattice;
mod mva;
mod open;
mod path;
mod response;
mod solution;
mod solve;
mod station;
mod visits;

pub use bounds::{Bottleneck, Bounds, Limits, Sector};
pub use cycle::CycleTime;
pub use open::{flows, visits};
pub use path::PathTime;
pub use response::Sojourn;
pub use solution::{ClassResult, ForkResult, Method, Share, Solution, StationResult};
pub use station::Station;

use crate::error::{Error, check, not_negative};

/// The largest number of stations, and of classes.
const PARTS_MAX: usize = 10_000;

/// How the customers of a class arrive.
///
/// A client of a closed class sends its next request after the reply and a think time, so the
/// throughput is X = N/(R + Z) and falls as R rises. An open class sends λ requests/s whatever the
/// response time, and its queues grow without bound near saturation. For the errors caused by
/// confusing the two see B. Schroeder, A. Wierman, M. Harchol-Balter, "Open versus closed: a
/// cautionary tale", NSDI 2006.
///
/// ```
/// use model::network::{Class, Load};
/// assert_eq!(Class::open("reads", 50.0, &[0.01])?.load(), Load::Open { rate: 50.0 });
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A fixed number of customers, each of whom thinks between a reply and the next request.
    Closed {
        /// Number of customers.
        customers: u32,
        /// Mean think time in seconds.
        think_s: f64,
    },
    /// Poisson arrivals from outside.
    Open {
        /// Arrival rate in requests/s.
        rate: f64,
    },
}

/// A class of customers: its load, and its demand at each station in seconds, D = V·S (visits times
/// mean service time). Demands are assumed not to change with the load.
///
/// ```
/// use model::network::Class;
/// // Ten visits of 5 ms to the disk for each request, and 20 ms of the processor.
/// let class = Class::closed("readers", 12, 1.0, &[0.050, 0.020])?.with_visits(&[10.0, 1.0])?;
/// assert_eq!(class.name(), "readers");
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    name: String,
    load: Load,
    demands_s: Vec<f64>,
    visits: Vec<f64>,
}

impl Class {
    /// Creates a closed class from the number of customers, their think time, and the demand at
    /// each station in seconds, in the order of the network's stations (0 for a station that the
    /// class does not visit).
    pub fn closed(
        name: &str,
        customers: u32,
        think_s: f64,
        demands_s: &[f64],
    ) -> Result<Class, Error> {
        check("a think time", think_s, 0.0..=1e12, "0 to 1e12 seconds")?;
        let class = Class::new(name, Load::Closed { customers, think_s }, demands_s)?;
        if think_s + demands_s.iter().sum::<f64>() < 1e-12 {
            let what = "has no demand and no think time, so its throughput is unbounded; give it a demand or a \
                        think time";
            return Err(class.wrong(what));
        }
        Ok(class)
    }

    /// Creates an open class from its arrival rate in requests/s and the demand at each station in
    /// seconds.
    pub fn open(name: &str, rate: f64, demands_s: &[f64]) -> Result<Class, Error> {
        check("an arrival rate", rate, 0.0..=1e15, "0 to 1e15 requests/s")?;
        Class::new(name, Load::Open { rate }, demands_s)
    }

    fn new(name: &str, load: Load, demands_s: &[f64]) -> Result<Class, Error> {
        for &demand in demands_s {
            if demand != 0.0 {
                check("a demand", demand, 1e-12..=1e12, "0, or 1e-12 to 1e12 seconds")?;
            }
        }
        let visits = vec![1.0; demands_s.len()];
        Ok(Class { name: name.to_owned(), load, demands_s: demands_s.to_vec(), visits })
    }

    /// Sets the visits to each station per request (default 1). Demands do not change; the service
    /// time of a visit is demand / visits.
    pub fn with_visits(mut self, visits: &[f64]) -> Result<Class, Error> {
        if visits.len() != self.demands_s.len() {
            let what = format!("{} visits for {} demands", visits.len(), self.demands_s.len());
            return Err(self.wrong(&what));
        }
        for (visits, demand) in visits.iter().zip(&self.demands_s) {
            not_negative("a number of visits", *visits)?;
            if *visits == 0.0 && *demand > 0.0 {
                return Err(self.wrong("has a demand at a station that it does not visit"));
            }
            check("a number of visits", *visits, 0.0..=1e12, "0 to 1e12")?;
        }
        self.visits = visits.to_vec();
        Ok(self)
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Network { place: format!("class {:?}", self.name), what: what.to_owned() }
    }

    /// The class's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its customers arrive.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Demand at each station, seconds.
    pub fn demands_s(&self) -> &[f64] {
        &self.demands_s
    }

    /// Visits to each station per request.
    pub fn visits(&self) -> &[f64] {
        &self.visits
    }

    fn rate(&self) -> f64 {
        match self.load {
            Load::Open { rate } => rate,
            Load::Closed { .. } => 0.0,
        }
    }

    fn customers(&self) -> u32 {
        match self.load {
            Load::Open { .. } => 0,
            Load::Closed { customers, .. } => customers,
        }
    }

    fn think_s(&self) -> f64 {
        match self.load {
            Load::Open { .. } => 0.0,
            Load::Closed { think_s, .. } => think_s,
        }
    }
}

/// A network: stations and classes. The [module](self) lists the results, the method that computes
/// each of them, and its accuracy; [`Station`] states the assumptions, and [`Method`] the sources.
///
/// ```
/// use model::network::{Class, Network, Station};
/// let network = Network::new(
///     vec![Station::queue("cpu"), Station::queue("disk")],
///     vec![Class::closed("clients", 3, 15.0, &[0.605, 2.1])?],
/// )?;
/// assert_eq!(network.bottleneck(0)?.station, 1);
/// let more = network.with_customers(0, 300)?.solve()?;
/// assert!((more.classes[0].throughput - 1.0 / 2.1).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    stations: Vec<Station>,
    classes: Vec<Class>,
}

impl Network {
    /// Creates a network of at least one station and one class. Names must differ, and each class
    /// must have one demand for each station.
    pub fn new(stations: Vec<Station>, classes: Vec<Class>) -> Result<Network, Error> {
        let wrong = |what: String| Error::Network { place: "the network".to_owned(), what };
        for (count, of) in [(stations.len(), "station"), (classes.len(), "class")] {
            if count == 0 || count > PARTS_MAX {
                return Err(wrong(format!("has {count} of kind {of}; give it 1 to {PARTS_MAX}")));
            }
        }
        if let Some(name) = twice(stations.iter().map(Station::name)) {
            return Err(wrong(format!("has two stations {name:?}; give each a name of its own")));
        }
        if let Some(name) = twice(classes.iter().map(Class::name)) {
            return Err(wrong(format!("has two classes {name:?}; give each a name of its own")));
        }
        for class in &classes {
            if class.demands_s.len() != stations.len() {
                let (got, expected) = (class.demands_s.len(), stations.len());
                return Err(class.wrong(&format!(
                    "has {got} demands for {expected} stations; give one for each, 0 where it does not go"
                )));
            }
        }
        Ok(Network { stations, classes })
    }

    /// The stations.
    pub fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// The classes.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The same network with another number of customers in a closed class.
    pub fn with_customers(&self, class: usize, customers: u32) -> Result<Network, Error> {
        let mut network = self.clone();
        match network.classes.get_mut(class).map(|c| &mut c.load) {
            Some(Load::Closed { customers: old, .. }) => *old = customers,
            _ => return Err(self.no_closed(class)),
        }
        Ok(network)
    }

    fn no_closed(&self, class: usize) -> Error {
        let place = match self.classes.get(class) {
            Some(class) => format!("class {:?}", class.name),
            None => format!("class number {class}"),
        };
        Error::Network { place, what: "is not a closed class of this network; name one".to_owned() }
    }
}

fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests;
