//! The choices of a plan: numbers of servers, memory, devices and replicas, with their prices.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative, positive};
use crate::storage::Popularity;
use ground::window::Outcome;

use super::curves::Curves;

/// The largest number of configurations of a plan.
pub const CONFIGURATIONS_MAX: u64 = 5_000_000;

/// The largest factor of a hit ratio: it turns any ratio above 0.2 % into 1.
const FACTOR_MAX: f64 = 500.0;

/// A share (of hits, of reads) as a function of the size of memory or devices.
///
/// ```
/// use model::plan::SizeLaw;
/// use model::storage::Popularity;
/// let zipf = SizeLaw::Power(Popularity::zipf(0.5)?);
/// assert!((zipf.factor(4.0, 1.0) - 2.0).abs() < 1e-12);
/// // Measured, or from a cache law: 64 GiB hit 50 %, 128 GiB 60 %.
/// let table = SizeLaw::Table(vec![(64.0, 0.5), (128.0, 0.6)]);
/// assert!((table.factor(96.0, 64.0) - 1.1).abs() < 1e-12);
/// assert_eq!(table.factor(1e6, 64.0), 1.2); // held: nothing is known beyond
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum SizeLaw {
    /// share ∝ size^exponent ([`Popularity`]): one parameter, correct for a full memory of similar
    /// objects.
    Power(Popularity),
    /// Sizes, ascending, and the share at each, measured or computed from a law of caches. Linear
    /// between them, and from 0 at size 0; constant beyond the last. Curves of caches are concave,
    /// so each of the three underestimates rather than overestimates.
    Table(Vec<(f64, f64)>),
}

impl SizeLaw {
    /// The share at `size` relative to the share at the fitted size. At most 500.
    pub fn factor(&self, size: f64, fitted: f64) -> f64 {
        let factor = match self {
            _ if size <= 0.0 => 0.0,
            SizeLaw::Power(popularity) => popularity.factor(size / fitted),
            SizeLaw::Table(points) => share_at(points, size) / share_at(points, fitted),
        };
        if factor.is_nan() { 0.0 } else { factor.min(FACTOR_MAX) }
    }

    pub(super) fn check(&self, fitted: f64) -> Result<(), Error> {
        let SizeLaw::Table(points) = self else { return Ok(()) };
        let mut last = (0.0, 0.0);
        for &(size, share) in points {
            check("a size of a table", size, last.0..=1e18, "finite and ascending")?;
            check("a share of a table", share, last.1..=1.0, "0 to 1 and not falling")?;
            if size <= last.0 {
                return Err(Error::Choices(format!("the table has the size {size} twice")));
            }
            last = (size, share);
        }
        positive("the share of a table at the fitted size", share_at(points, fitted)).map(|_| ())
    }
}

/// The table's share at a size.
fn share_at(points: &[(f64, f64)], size: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for &point in points {
        if size <= point.0 {
            return before.1 + (point.1 - before.1) * (size - before.0) / (point.0 - before.0);
        }
        before = point;
    }
    before.1
}

/// The choices of memory per server.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Memory of the fitted server, in any unit (such as GiB) that is the same for all sizes.
    pub fitted: f64,
    /// Sizes to choose from, ascending.
    pub sizes: Vec<f64>,
    /// Price of one unit.
    pub price: f64,
    /// The hit ratio as a function of the size.
    pub hits: SizeLaw,
}

impl Default for Memory {
    /// The memory of the fitted server, of any size.
    fn default() -> Self {
        let hits = SizeLaw::Power(Popularity::EQUAL);
        Memory { fitted: 1.0, sizes: vec![1.0], price: 0.0, hits }
    }
}

/// The choices of devices of one class per server.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceChoice {
    /// The class's name in the model.
    pub class: String,
    /// Numbers of devices to choose from, ascending.
    pub counts: Vec<u32>,
    /// Price of one device.
    pub price: f64,
    /// Capacity of one device, in the unit of [`Catalogue::size`]; `None` if unlimited.
    pub holds: Option<f64>,
    /// For a class that holds a chosen part, such as hot devices: its share of the device reads as
    /// a function of the number of devices. `None` for a class that serves the remaining reads.
    pub reads: Option<SizeLaw>,
    /// Mean service time of a device, seconds, if the fitted server has none of the class. The law
    /// is then that of the model's first class, at this mean.
    pub service_s: Option<f64>,
}

/// The class of the devices that hold copies of what is read often.
pub(super) const HOT: &str = Outcome::HotDevice.as_str();

/// The catalogue: the objects of all servers together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// Number of servers that shared the catalogue when the model was fitted. More servers then
    /// have smaller parts each, so memory holds more of a part. `None`: each server has the same
    /// part as the fitted one, whatever their number, as in the published model.
    pub servers: Option<f64>,
    /// Its size: with replicas it must fit on the devices. `None` if unlimited.
    pub size: Option<f64>,
}

/// All choices of a plan.
///
/// ```
/// use model::plan::Choices;
/// let choices = Choices { servers: (1..=40).collect(), server_price: 200.0, ..Choices::default() };
/// assert_eq!(choices.configurations()?, 40);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Numbers of servers to choose from, ascending.
    pub servers: Vec<u32>,
    /// Price of one server, without memory and devices.
    pub server_price: f64,
    /// Memory of each server.
    pub memory: Memory,
    /// Devices of each server; classes that are not listed stay as fitted.
    pub devices: Vec<DeviceChoice>,
    /// Numbers of replicas to choose from, ascending.
    pub replicas: Vec<u32>,
    /// Price of one replica of the catalogue.
    pub replica_price: f64,
    /// The catalogue.
    pub catalogue: Catalogue,
    /// What memory and hot devices serve, instead of [`Memory::hits`] and of
    /// [`DeviceChoice::reads`] of hot devices.
    pub curves: Option<SizedCurves>,
}

/// Curves, and the unit of the choices' sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizedCurves {
    /// The curves.
    pub curves: Curves,
    /// Bytes of one unit of [`Memory::sizes`] and [`DeviceChoice::holds`].
    pub unit_bytes: f64,
}

impl Default for Choices {
    /// One server like the fitted one, one replica, at no price.
    fn default() -> Self {
        Choices {
            servers: vec![1],
            server_price: 0.0,
            memory: Memory::default(),
            devices: Vec::new(),
            replicas: vec![1],
            replica_price: 0.0,
            catalogue: Catalogue::default(),
            curves: None,
        }
    }
}

/// The number of devices of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCount {
    /// The class.
    pub class: String,
    /// Number of devices in a server.
    pub count: u32,
}

/// A configuration: one value of each choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Number of servers.
    pub servers: u32,
    /// Memory of each server.
    pub memory: f64,
    /// Devices of each server, for the classes that can be chosen.
    pub devices: Vec<DeviceCount>,
    /// Replicas of each object.
    pub replicas: u32,
    /// Its cost.
    pub cost: f64,
}

/// A configuration as positions in the lists of the choices: servers, memory, devices …, replicas.
pub(super) type Digits = Vec<usize>;

impl Choices {
    /// Checks every number and list.
    pub fn check(&self) -> Result<(), Error> {
        let counts = |what: &str, list: &[u32], least: u32| match list {
            [] => Err(Error::Choices(format!("no number of {what} is given"))),
            [first, ..] if *first < least => {
                Err(Error::Choices(format!("{first} {what}: at least {least} are needed")))
            }
            _ if list.windows(2).any(|w| w[0] >= w[1]) => {
                Err(Error::Choices(format!("the numbers of {what} must ascend")))
            }
            [.., last] if *last > 1_000_000 => {
                Err(Error::Choices(format!("{last} {what}: at most 1,000,000")))
            }
            _ => Ok(()),
        };
        counts("servers", &self.servers, 1)?;
        counts("replicas", &self.replicas, 1)?;
        not_negative("the price of a server", self.server_price)?;
        not_negative("the price of a replica", self.replica_price)?;
        not_negative("the price of memory", self.memory.price)?;
        check("the memory of the fitted server", self.memory.fitted, 1e-9..=1e18, "above 0")?;
        self.memory.hits.check(self.memory.fitted)?;
        if self.memory.sizes.is_empty() || self.memory.sizes.windows(2).any(|w| w[0] >= w[1]) {
            return Err(Error::Choices("give sizes of memory, and let them ascend".into()));
        }
        for &size in &self.memory.sizes {
            check("a size of memory", size, 0.0..=1e18, "at least 0")?;
        }
        for (i, devices) in self.devices.iter().enumerate() {
            counts(&devices.class, &devices.counts, 0)?;
            not_negative("the price of a device", devices.price)?;
            positive("the capacity of a device", devices.holds.unwrap_or(1.0))?;
            if self.devices.iter().take(i).any(|d| d.class == devices.class) {
                let class = &devices.class;
                return Err(Error::Choices(format!("the class {class} is given twice")));
            }
        }
        for devices in &self.devices {
            positive("the service time of a device", devices.service_s.unwrap_or(1.0))?;
        }
        if let Some(SizedCurves { curves, unit_bytes }) = &self.curves {
            curves.check()?;
            positive("the bytes of a unit of size", *unit_bytes)?;
            if self.catalogue.servers.is_none() {
                return Err(Error::Choices(
                    "curves are of all servers together: state how many shared the catalogue"
                        .into(),
                ));
            }
            if self.devices.iter().any(|d| d.class == HOT && d.holds.is_none()) {
                return Err(Error::Choices(format!("curves need the capacity of a {HOT}")));
            }
        }
        positive("the number of servers of the catalogue", self.catalogue.servers.unwrap_or(1.0))?;
        positive("the size of the catalogue", self.catalogue.size.unwrap_or(1.0))?;
        self.configurations().map(|_| ())
    }

    /// The number of configurations. An error past [`CONFIGURATIONS_MAX`].
    pub fn configurations(&self) -> Result<u64, Error> {
        let product = self
            .lengths()
            .iter()
            .try_fold(1u64, |product, &length| product.checked_mul(length as u64));
        match product {
            Some(product) if product <= CONFIGURATIONS_MAX => Ok(product),
            _ => Err(Error::Choices(format!(
                "they make more than {CONFIGURATIONS_MAX} configurations; give fewer numbers in each list"
            ))),
        }
    }

    /// The lengths of the lists, in the order of [`Digits`].
    pub(super) fn lengths(&self) -> Vec<usize> {
        let devices = self.devices.iter().map(|d| d.counts.len());
        let first = [self.servers.len(), self.memory.sizes.len()];
        first.into_iter().chain(devices).chain([self.replicas.len()]).collect()
    }

    /// The configuration of a number below [`Choices::configurations`].
    pub(super) fn digits(&self, mut index: u64, digits: &mut Digits) {
        digits.clear();
        for length in self.lengths() {
            let length = length.max(1) as u64;
            digits.push((index % length) as usize);
            index /= length;
        }
    }

    /// The counts of the chosen classes.
    pub(super) fn counts<'a>(&'a self, digits: &'a [usize]) -> impl Iterator<Item = u32> + 'a {
        let places = digits.get(2..).unwrap_or_default();
        self.devices.iter().zip(places).map(|(d, &i)| d.counts[i])
    }

    /// The cost of a configuration.
    pub(super) fn cost(&self, digits: &[usize]) -> f64 {
        let devices = self.devices.iter().zip(self.counts(digits));
        let devices: f64 = devices.map(|(d, count)| d.price * f64::from(count)).sum();
        let memory = self.memory.price * self.memory.sizes[digits[1]];
        let servers = f64::from(self.servers[digits[0]]);
        servers * (self.server_price + memory + devices)
            + self.replica_price * f64::from(self.replicas(digits))
    }

    /// The cost of the first configuration, for choices that allow one only.
    pub(crate) fn first_cost(&self) -> f64 {
        let mut digits = Digits::new();
        self.digits(0, &mut digits);
        self.cost(&digits)
    }

    /// The replicas of a configuration.
    pub(super) fn replicas(&self, digits: &[usize]) -> u32 {
        digits.last().map_or(1, |&i| self.replicas[i])
    }

    /// Whether there are enough servers for the replicas, and enough room on the devices.
    pub(super) fn fits(&self, digits: &[usize]) -> bool {
        let (servers, replicas) = (self.servers[digits[0]], self.replicas(digits));
        let Some(size) = self.catalogue.size else { return replicas <= servers };
        let of = || self.devices.iter().zip(self.counts(digits));
        let bulk = || of().filter(|d| !self.selects(d.0));
        let holds: f64 = bulk().map(|(d, n)| d.holds.unwrap_or(0.0) * f64::from(n)).sum();
        let unlimited = bulk().next().is_none() || bulk().any(|(d, _)| d.holds.is_none());
        replicas <= servers
            && (unlimited || f64::from(servers) * holds >= size * f64::from(replicas))
    }

    /// Whether the devices of a class hold a selected part of the objects.
    fn selects(&self, devices: &DeviceChoice) -> bool {
        devices.reads.is_some() || self.curves.is_some() && devices.class == HOT
    }

    /// A configuration in full.
    pub(super) fn configuration(&self, digits: &[usize]) -> Configuration {
        let devices = self.devices.iter().zip(self.counts(digits));
        Configuration {
            servers: self.servers[digits[0]],
            memory: self.memory.sizes[digits[1]],
            devices: devices
                .map(|(d, count)| DeviceCount { class: d.class.clone(), count })
                .collect(),
            replicas: self.replicas(digits),
            cost: self.cost(digits),
        }
    }
}
