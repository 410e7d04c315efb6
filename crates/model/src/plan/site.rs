//! Applies a configuration to the fitted server.
//!
//! [`Site::changes`] determines how memory, catalogue and devices change the server. It has two
//! users: the search, which needs one share for each of millions of configurations ([`Bench`]), and
//! the examination of a single configuration with intervals and limits ([`Site::model`]).

use std::borrow::Cow;

use crate::error::Error;
use crate::model_file::{Devices, Model};
use crate::storage::{DeviceGroup, HitRatio, Node, NodeAt, Spotify};

use super::choices::{Choices, HOT, SizedCurves};

/// A class of the model's devices as fitted.
struct Class {
    name: String,
    groups: Vec<DeviceGroup>,
    count: u32,
    share: f64,
    /// Mean service time of its devices relative to the class's.
    factor: f64,
    /// Its position among the choices.
    choice: Option<usize>,
}

/// A fitted server and the choices that change it.
pub(super) struct Site<'a> {
    /// With the classes that are added.
    model: Cow<'a, Model>,
    pub choices: &'a Choices,
    classes: Vec<Class>,
    node: Node,
    spotify: Spotify,
    devices: u32,
    /// By the curves: the fitted server's hit ratio, and the share of the other reads that its hot
    /// devices serve.
    by_curves: (f64, f64),
}

/// The changes that a configuration makes to the fitted server.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// The factor on the hit ratio.
    hits: f64,
    /// The factor on the joining.
    joining: f64,
    groups: Vec<DeviceGroup>,
    /// Number of disks of the published model.
    n_d: u32,
}

impl<'a> Site<'a> {
    pub fn new(model: &'a Model, choices: &'a Choices) -> Result<Self, Error> {
        model.check()?;
        choices.check()?;
        let mut model = Cow::Borrowed(model);
        for choice in &choices.devices {
            let known = model.classes.iter().any(|class| class.name == choice.class);
            if let Some(service_s) = choice.service_s.filter(|_| !known) {
                model = Cow::Owned(model.with_class(&choice.class, service_s));
            }
        }
        let node = model.node()?;
        let mut classes = Vec::new();
        for (index, class) in model.classes.iter().enumerate() {
            let of = || node.groups.iter().filter(move |g| g.class == index).copied();
            let count = of().map(|g| g.count).sum::<u32>();
            let mean = of().map(|g| f64::from(g.count) * g.factor).sum::<f64>() / f64::from(count);
            classes.push(Class {
                name: class.name.clone(),
                groups: of().collect(),
                count,
                share: of().map(|g| f64::from(g.count) * g.share).sum(),
                factor: if count > 0 { mean } else { 1.0 },
                choice: choices.devices.iter().position(|d| d.class == class.name),
            });
        }
        for choice in &choices.devices {
            let class = classes.iter().find(|c| c.name == choice.class);
            // Curves say what hot devices serve that the fitted server does not have.
            let curved = choices.curves.is_some() && choice.class == HOT;
            let Some(class) = class.filter(|c| c.count > 0 || curved) else {
                let known: Vec<_> = classes.iter().map(|c| c.name.as_str()).collect();
                return Err(Error::Choices(format!(
                    "the model has no devices of class {:?} (it has {}); fit a server that has them, or state `service_ms` of hot devices beside curves",
                    choice.class,
                    known.join(", ")
                )));
            };
            if let Some(law) = &choice.reads {
                law.check(f64::from(class.count))?;
            }
        }
        let listed = |class: &Class| class.choice.is_some() || class.count == 0;
        if choices.curves.is_some() && !classes.iter().filter(|c| c.name == HOT).all(listed) {
            return Err(Error::Choices(format!(
                "curves need the capacity of the fitted server's devices of class {HOT}: add the class"
            )));
        }
        let (devices, spotify) = (node.devices(), model.spotify()?);
        let mut site =
            Site { model, choices, classes, node, spotify, devices, by_curves: (0.0, 0.0) };
        let hot = site.classes.iter().find(|class| class.name == HOT).map_or(0, |c| c.count);
        let servers = choices.catalogue.servers.unwrap_or(1.0);
        if let Some(fitted) = site.served(choices.memory.fitted, hot, servers) {
            if fitted.0 <= 0.0 && site.node.hit_ratio.q0() > 0.0 {
                return Err(Error::Choices(
                    "by the curves the fitted server's memory answers nothing, but it did".into(),
                ));
            }
            site.by_curves = fitted;
        }
        Ok(site)
    }

    /// By the curves: the hit ratio of servers with so much memory and so many hot devices each, and
    /// the share of the other reads that hot devices serve. `None` without curves.
    fn served(&self, memory: f64, hot: u32, servers: f64) -> Option<(f64, f64)> {
        let SizedCurves { curves, unit_bytes } = self.choices.curves.as_ref()?;
        let choice = self.choices.devices.iter().find(|choice| choice.class == HOT);
        let holds = choice.and_then(|choice| choice.holds).unwrap_or(0.0);
        let bytes = |size: f64| size * unit_bytes * servers;
        let (memory, hot) = (bytes(memory), bytes(holds * f64::from(hot)));
        Some((curves.shares(memory, hot).0, curves.hot_reads(memory, hot)))
    }

    /// Computes the changes of a configuration, with its servers' parts of the catalogue multiplied
    /// by `part` (more than 1 after a loss). False if its devices cannot serve all reads.
    pub fn changes(&self, digits: &[usize], part: f64, changes: &mut Changes) -> bool {
        let Choices { memory, catalogue, servers, .. } = self.choices;
        let spread = catalogue.servers.map_or(1.0, |n| f64::from(servers[digits[0]]) / n) / part;
        let size = memory.sizes[digits[1]];
        let counts = |class: &Class| match class.choice {
            Some(i) => self.choices.devices[i].counts[digits[2 + i]],
            None => class.count,
        };
        let hot = self.classes.iter().find(|class| class.name == HOT).map_or(0, counts);
        let served = self.served(size, hot, f64::from(servers[digits[0]]) / part);
        changes.hits = match served {
            Some((hits, _)) if self.by_curves.0 > 0.0 => hits / self.by_curves.0,
            Some(_) => 1.0,
            None => memory.hits.factor(size * spread, memory.fitted),
        };
        changes.joining = spread;
        changes.groups.clear();
        // The share of the reads of each class that holds a chosen part, and the weights of the
        // other classes.
        let chosen = |class: &Class| {
            if let Some((_, reads)) = served.filter(|_| class.name == HOT) {
                // What the fitted devices serve beside what the curves say they would.
                let of = class.share / self.by_curves.1;
                let known = of.is_finite() && of > 0.0;
                return Some(if known { (reads * of).min(1.0) } else { reads });
            }
            let law = self.choices.devices[class.choice?].reads.as_ref()?;
            Some(class.share * law.factor(f64::from(counts(class)), f64::from(class.count)))
        };
        let taken: f64 = self.classes.iter().filter_map(chosen).sum();
        let rest = |c: &&Class| chosen(c).is_none() && counts(c) > 0;
        let weight: f64 = self.classes.iter().filter(rest).map(|c| c.share).sum();
        let left = 1.0 - taken.min(1.0);
        if weight <= 0.0 && left > 1e-9 {
            return false;
        }
        let mut all = 0;
        for (index, class) in self.classes.iter().enumerate() {
            let count = counts(class);
            if count == 0 {
                continue;
            }
            all += count;
            let share = match chosen(class) {
                Some(share) => share / taken.max(1.0),
                None if weight > 0.0 => left * class.share / weight,
                None => 0.0,
            };
            // Unchanged devices keep their uneven loads; new devices are like the average one.
            let same = (share - class.share).abs() <= 1e-12;
            if count == class.count && class.share > 0.0 {
                let scale = if same { 1.0 } else { share / class.share };
                let scaled = |g: &DeviceGroup| DeviceGroup { share: g.share * scale, ..*g };
                changes.groups.extend(class.groups.iter().map(scaled));
            } else {
                let (share, factor) = (share / f64::from(count), class.factor);
                changes.groups.push(DeviceGroup { class: index, count, share, factor });
            }
        }
        let n_d = self.spotify.disks() * f64::from(all) / f64::from(self.devices.max(1));
        changes.n_d = n_d.round().clamp(1.0, 1e6) as u32;
        true
    }

    /// The published server after changes.
    pub fn published(&self, changes: &Changes) -> Result<Spotify, Error> {
        let hit_ratio = self.spotify.hit_ratio().scaled(changes.hits)?;
        Spotify::new(hit_ratio, self.spotify.service_rate(), f64::from(changes.n_d))
    }

    /// The model of a server after changes, with its intervals.
    pub fn model(&self, changes: &Changes) -> Model {
        let mut model = self.model.clone().into_owned();
        let (requests, spotify) = (&mut model.requests, &mut model.spotify);
        for (parameter, factor) in [
            (&mut requests.q0, changes.hits),
            (&mut requests.alpha, changes.hits),
            (&mut requests.joining, changes.joining),
            (&mut spotify.q0, changes.hits),
            (&mut spotify.alpha, changes.hits),
        ] {
            parameter.value *= factor;
            parameter.low *= factor;
            parameter.high *= factor;
        }
        spotify.n_d = changes.n_d;
        for name in ["q0", "alpha", "spotify_q0", "spotify_alpha"] {
            model.replicates.change(name, |_, value| value * changes.hits);
        }
        model.replicates.change("joining", |_, value| value * changes.joining);
        let group = |g: &DeviceGroup| Devices {
            class: self.classes[g.class].name.clone(),
            count: g.count,
            share: g.share,
            factor: g.factor,
        };
        model.devices = changes.groups.iter().map(group).collect();
        model
    }

    /// The load of one server, as it is on the bench, of which something is known, requests/s ([`Model::known_to`]).
    pub fn known_to(&self, bench: &Bench) -> f64 {
        self.model.known_to_as(&bench.node)
    }

    /// Whether a server after changes equals the fitted one.
    pub(crate) fn is_fitted(&self, changes: &Changes) -> bool {
        (changes.hits - 1.0).abs() < 1e-9
            && (changes.joining - 1.0).abs() < 1e-9
            && changes.groups == self.node.groups
    }

    /// The class of the device that saturates first after changes.
    pub fn busiest(&self, changes: &Changes) -> String {
        let load = |g: &DeviceGroup| {
            let class = &self.node.classes[g.class];
            let mean = crate::distribution::ServiceTime::mean(&class.service);
            let free = f64::from(class.servers.max(1)) - class.other_busy(g.factor);
            g.share * g.factor * mean / free.max(f64::MIN_POSITIVE)
        };
        let busiest = changes.groups.iter().max_by(|a, b| load(a).total_cmp(&load(b)));
        busiest.map_or(String::new(), |g| self.classes[g.class].name.clone())
    }

    /// Prepares the share within `t_s` seconds for many configurations.
    pub fn bench(&self, t_s: f64) -> Bench {
        let mut node = self.node.clone();
        // The laws of all devices of any configuration, here without load.
        for (class, Class { factor, .. }) in self.classes.iter().enumerate() {
            node.groups.push(DeviceGroup { class, count: 1, share: 0.0, factor: *factor });
        }
        let at = node.at_time(t_s);
        Bench { hit_ratio: node.hit_ratio, joining: node.joining, node, at }
    }
}

/// A server that is changed in place, at one time t. Cost: two microseconds for each configuration.
pub(super) struct Bench {
    hit_ratio: HitRatio,
    joining: f64,
    node: Node,
    at: NodeAt,
}

impl Bench {
    /// Applies changes to the server.
    pub fn set(&mut self, changes: &Changes) -> Result<(), Error> {
        self.node.hit_ratio = self.hit_ratio.scaled(changes.hits)?;
        self.node.joining = self.joining * changes.joining;
        self.node.groups.clone_from(&changes.groups);
        self.at.set_groups(&changes.groups);
        Ok(())
    }

    /// P(T ≤ t) at `rate` requests/s of one server, or [`Error::Unstable`].
    pub fn share(&self, rate: f64) -> Result<f64, Error> {
        self.node.operating(rate).map(|operating| self.at.cdf(&operating))
    }

    /// Our confidence limit of one server.
    pub fn confidence_limit(&self) -> f64 {
        self.node.confidence_limit()
    }
}
