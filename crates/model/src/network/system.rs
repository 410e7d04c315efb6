//! A network: its stations, and the classes that visit them.

use super::class::{Class, Load};
use super::station::Station;
use crate::error::Error;

/// The largest number of stations, and of classes.
pub(super) const PARTS_MAX: usize = 10_000;

/// A network: stations and classes. The [module](super) lists the results, the method that computes
/// each of them, and its accuracy; [`Station`] states the assumptions, and [`super::Method`] the sources.
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
    pub(super) stations: Vec<Station>,
    pub(super) classes: Vec<Class>,
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

    pub(super) fn no_closed(&self, class: usize) -> Error {
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
