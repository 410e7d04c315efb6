//! Classes of customers: how they arrive, and what they demand of each station.

use crate::error::{Error, check, not_negative};

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
    pub(super) name: String,
    pub(super) load: Load,
    pub(super) demands_s: Vec<f64>,
    pub(super) visits: Vec<f64>,
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

    pub(super) fn wrong(&self, what: &str) -> Error {
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

    pub(super) fn rate(&self) -> f64 {
        match self.load {
            Load::Open { rate } => rate,
            Load::Closed { .. } => 0.0,
        }
    }

    pub(super) fn customers(&self) -> u32 {
        match self.load {
            Load::Open { .. } => 0,
            Load::Closed { customers, .. } => customers,
        }
    }

    pub(super) fn think_s(&self) -> f64 {
        match self.load {
            Load::Open { .. } => 0.0,
            Load::Closed { think_s, .. } => think_s,
        }
    }
}
