//! What-if questions of a fitted server, and of several like it: other loads, numbers of servers, memory, devices, mixes of
//! requests, and lost servers.
//!
//! [`WhatIf`] says what is different, [`WhatIf::changed`] is the model of one server then, and [`answer`] everything that a
//! person asks of it at once. `concertina predict` and the page of a server call these functions, so that both say the same to
//! the last digit. The changes of memory, devices and lost servers are those of a plan ([`crate::plan`]) with one configuration.
//!
//! Cost: that of [`Model::predict`] at one time, of one quantile with its interval, of [`LAW_POINTS`] values of a CDF, and of the
//! largest load for the objective: some tens of milliseconds for a model with a hundred replicates. A further load of the same
//! [`ChangedModel`] costs about half of that.
//!
//! Limitation: a server's speed does not depend on the number of servers, and what was not measured (a processor, a network)
//! may saturate before what the model knows of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative, positive};
use crate::model_file::{
    ClusterLoad, Limits, MixShare, Model, Nodes, NodesAt, Parameter, Prediction,
};
use crate::plan::{Choices, DeviceChoice, Memory, SizeLaw, one_configuration};
use crate::storage::{BETA, Node, NodeAt, Popularity, balls_into_bins_limit};
use ground::window::{Operation, Outcome};

/// The largest number of servers.
pub const SERVERS_MAX: u32 = 1_000_000;
/// Times of the law of response times in an [`Answer`].
pub const LAW_POINTS: usize = 49;
/// Loads of the curve of an [`Answer`].
const LOAD_POINTS: usize = 60;
/// The first and the last time of the law, as parts of the objective's time. They do not depend on what is changed, so that a
/// plot's axis stays where it is.
const LAW_FROM: f64 = 1.0 / 200.0;
const LAW_TO: f64 = 20.0;

/// A part of another mix of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixPart {
    /// What its requests do.
    pub operation: Operation,
    /// The size of its objects; absent: all sizes that the operation had.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Its share of the requests. Shares are scaled to add to 1.
    pub share: f64,
}

/// Prices of the parts of a server, in any currency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// A server without memory and devices.
    pub server: f64,
    /// The memory of the fitted server.
    pub memory: f64,
    /// A device, by its class.
    pub devices: BTreeMap<String, f64>,
}

/// What is different from the fitted server. The default changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIf {
    /// Servers like the fitted one that share the load equally.
    pub servers: u32,
    /// How many of them are lost. The others answer their requests and have filled their replicas, so that the memory of each
    /// holds a smaller part of its keys.
    pub lost: u32,
    /// Memory of a server over that of the fitted one.
    pub memory: f64,
    /// How hits follow memory: hits ∝ memory^exponent ([`Popularity`]).
    pub memory_exponent: f64,
    /// Speed of the devices over the fitted one: 0.5 is half as fast.
    pub speed: f64,
    /// Devices of a server, by class; classes that are not named stay as fitted. Hot devices hold copies of what is read
    /// most, so more of them also answer a larger share of the reads, by the same exponent as memory.
    pub devices: BTreeMap<String, u32>,
    /// Another mix of requests; empty: the fitted one.
    pub mix: Vec<MixPart>,
    /// Prices, for the cost of the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

impl Default for WhatIf {
    fn default() -> Self {
        WhatIf {
            servers: 1,
            lost: 0,
            memory: 1.0,
            memory_exponent: 1.0,
            speed: 1.0,
            devices: BTreeMap::new(),
            mix: Vec::new(),
            prices: None,
        }
    }
}

impl WhatIf {
    /// The servers that answer.
    pub fn servers_left(&self) -> u32 {
        self.servers.saturating_sub(self.lost)
    }

    /// Checks every number.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the first that is out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let most = f64::from(SERVERS_MAX);
        check("the number of servers", self.servers.into(), 1.0..=most, "1 to 1,000,000")?;
        let left = f64::from(self.servers) - 1.0;
        check("the number of lost servers", self.lost.into(), 0.0..=left, "fewer than all")?;
        check("the factor of the memory", self.memory, 1e-3..=1e3, "0.001 to 1000")?;
        check("the factor of the speed", self.speed, 1e-3..=1e3, "0.001 to 1000")?;
        for count in self.devices.values() {
            check("the number of devices", f64::from(*count), 0.0..=1e4, "0 to 10,000")?;
        }
        Popularity::new(self.memory_exponent).map(|_| ())
    }

    /// The model of one of the servers that are left.
    ///
    /// # Errors
    /// Those of [`WhatIf::check`], [`Model::with_mix`] and [`Choices::check`].
    ///
    /// ```
    /// # fn of(model: &model::Model) -> Result<(), model::Error> {
    /// use model::what_if::WhatIf;
    /// let slower = WhatIf { speed: 0.5, ..WhatIf::default() }.changed(model)?;
    /// assert!(slower.limits()?.saturation.value < model.limits()?.saturation.value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn changed(&self, fitted: &Model) -> Result<Model, Error> {
        self.check()?;
        let mut model = match &self.mix[..] {
            [] => fitted.clone(),
            parts => fitted.with_mix(&parts.iter().map(MixPart::to_share).collect::<Vec<_>>())?,
        };
        if self.speed != 1.0 {
            model = model.with_speed(self.speed)?;
        }
        if self.memory == 1.0 && self.lost == 0 && self.devices.is_empty() {
            return Ok(model);
        }
        let catalogue = f64::from(self.servers) / f64::from(self.servers_left());
        one_configuration(&model, &self.choices(&model)?, catalogue)
    }

    /// Servers, memory and devices as the choices of a plan, one of each.
    fn choices(&self, model: &Model) -> Result<Choices, Error> {
        let popularity = Popularity::new(self.memory_exponent)?;
        let fitted = |class: &str| -> u32 {
            let of_class = model.devices.iter().filter(|devices| devices.class == class);
            of_class.map(|devices| devices.count).sum()
        };
        let prices = self.prices.clone().unwrap_or_default();
        let devices = model.classes.iter().filter(|class| fitted(&class.name) > 0).map(|class| {
            let count = self.devices.get(&class.name).copied();
            let is_hot = class.name == Outcome::HotDevice.as_str();
            DeviceChoice {
                class: class.name.clone(),
                counts: vec![count.unwrap_or_else(|| fitted(&class.name))],
                price: prices.devices.get(&class.name).copied().unwrap_or(0.0),
                holds: None,
                reads: (is_hot && count.is_some()).then_some(SizeLaw::Power(popularity)),
                service_s: None,
            }
        });
        let devices: Vec<DeviceChoice> = devices.collect();
        let known = |name: &String| devices.iter().any(|choice| choice.class == *name);
        if let Some(name) = self.devices.keys().find(|name| !known(name)) {
            let all: Vec<&str> = devices.iter().map(|choice| choice.class.as_str()).collect();
            let all = all.join(", ");
            return Err(Error::Choices(format!("no devices of class {name:?}, only {all}")));
        }
        let hits = SizeLaw::Power(popularity);
        let memory = Memory { fitted: 1.0, sizes: vec![self.memory], price: prices.memory, hits };
        let choices = Choices {
            servers: vec![self.servers],
            server_price: prices.server,
            memory,
            devices,
            ..Choices::default()
        };
        choices.check()?;
        Ok(choices)
    }

    /// The cost of all servers, lost ones too; `None` without prices.
    fn cost(&self, model: &Model) -> Result<Option<f64>, Error> {
        let Some(_) = &self.prices else { return Ok(None) };
        Ok(Some(self.choices(model)?.first_cost()))
    }
}

impl MixPart {
    fn to_share(&self) -> MixShare {
        MixShare { operation: self.operation, bytes: self.bytes, share: self.share }
    }
}

impl Model {
    /// The model of the same server with devices `factor` times as fast.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the factor is not above 0.
    pub fn with_speed(&self, factor: f64) -> Result<Model, Error> {
        positive("the factor of the speed", factor)?;
        let mut model = self.clone();
        model.devices.iter_mut().for_each(|devices| devices.factor /= factor);
        let rate = &mut model.spotify.mu_d;
        for end in [&mut rate.value, &mut rate.low, &mut rate.high] {
            *end *= factor;
        }
        model.replicates.change("spotify_mu_d", |_, value| value * factor);
        Ok(model)
    }
}

/// The prediction at one load.
#[derive(Clone, Debug, PartialEq)]
pub enum AtLoad {
    /// Below saturation.
    Stable {
        /// The prediction.
        prediction: Box<Prediction>,
        /// The response that 99 % do not exceed.
        p99: Parameter,
    },
    /// At or past saturation: queues grow without bound.
    Saturated {
        /// The reason, a sentence.
        statement: String,
        /// The load at which the first resource saturates, requests/s on all servers.
        saturation: f64,
    },
}

/// The prediction of `servers` servers that share `rate` requests/s equally, with the shares within each of `within_s` seconds.
///
/// # Errors
/// Those of [`Model::predict_cluster`] but for [`Error::Unstable`].
pub fn at_load(model: &Model, rate: f64, servers: u32, within_s: &[f64]) -> Result<AtLoad, Error> {
    positive("the number of servers", f64::from(servers))?;
    for time in within_s {
        not_negative("the time of an objective", *time)?;
    }
    let nodes = model.nodes()?;
    let times: Vec<NodesAt> = within_s.iter().map(|t_s| nodes.at_time(*t_s)).collect();
    at_load_by(model, &nodes, &times, ClusterLoad { rate, servers })
}

/// [`at_load`] by the model's nodes, and their laws at the times of the objectives.
fn at_load_by(
    model: &Model,
    nodes: &Nodes,
    times: &[NodesAt],
    load: ClusterLoad,
) -> Result<AtLoad, Error> {
    not_negative("the request rate", load.rate)?;
    match model.at_load_of(nodes, load) {
        Ok(at) => {
            let prediction = Box::new(model.prediction(&at, load, times)?);
            Ok(AtLoad::Stable { prediction, p99: model.quantile_at(&at, 0.99)? })
        }
        Err(error @ Error::Unstable { .. }) => {
            let statement = error.to_string();
            let Error::Unstable { saturation, .. } = error else { return Err(error) };
            Ok(AtLoad::Saturated { statement, saturation })
        }
        Err(error) => Err(error),
    }
}

/// The limits of all servers, requests/s: the confidence limits are bounds for the busiest of them (balls into bins).
pub fn cluster_limits(limits: &Limits, servers: u32) -> Limits {
    let bins = |limit: &Parameter| each(limit, |one| balls_into_bins_limit(one, servers, BETA));
    Limits {
        spotify_single: bins(&limits.spotify_single),
        mg1: bins(&limits.mg1),
        saturation: each(&limits.saturation, |one| one * f64::from(servers)),
        breaks_first: limits.breaks_first,
    }
}

/// A function of the value and of both ends of the interval.
fn each(of: &Parameter, f: impl Fn(f64) -> f64) -> Parameter {
    Parameter { value: f(of.value), low: f(of.low), high: f(of.high), unit: of.unit.clone() }
}

/// A what-if question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What is different.
    pub what_if: WhatIf,
    /// The load on all servers, requests/s.
    pub rate: f64,
    /// The time of the objective, seconds.
    pub objective_s: f64,
    /// The share of the objective.
    pub share: f64,
}

/// The shares within a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LawPoint {
    /// The time, seconds.
    pub t_s: f64,
    /// The predicted share.
    pub predicted: f64,
    /// The share by the published model; `None` where that is not stable.
    pub published: Option<f64>,
}

/// The share within the objective at a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadPoint {
    /// The load on all servers, requests/s.
    pub rate: f64,
    /// The share.
    pub within: f64,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The question's load, requests/s.
    pub rate: f64,
    /// The servers that answer.
    pub servers: u32,
    /// Their cost with the lost ones; `None` without prices.
    pub cost: Option<f64>,
    /// The prediction; `None` at or past saturation.
    pub prediction: Option<Box<Prediction>>,
    /// The response that 99 % do not exceed, seconds.
    pub response_p99: Option<Parameter>,
    /// Why there is no prediction.
    pub statement: Option<String>,
    /// The limits of all servers.
    pub limits: Limits,
    /// The class of devices that saturates first, if devices do.
    pub busiest: Option<String>,
    /// The largest load that holds the objective, requests/s on all servers; 0 if none does.
    pub largest_rate: Parameter,
    /// That over the question's load; `None` at a load of 0.
    pub headroom: Option<Parameter>,
    /// The load up to which the model was checked, requests/s on all servers.
    pub trust_limit: f64,
    /// The law of response times at the load; empty at or past saturation.
    pub law: Vec<LawPoint>,
    /// The share within the objective, from no load to saturation.
    pub loads: Vec<LoadPoint>,
}

/// Answers a question.
///
/// # Errors
/// [`Error::Invalid`] for numbers out of their ranges, and those of [`WhatIf::changed`].
pub fn answer(fitted: &Model, question: &Question) -> Result<Answer, Error> {
    let Question { what_if, rate, objective_s, share } = question;
    ChangedModel::new(fitted, what_if, *objective_s, *share)?.answer(*rate)
}

/// A model with changes, and what is the same at every load: to answer one question at several loads.
#[derive(Clone, Debug)]
pub struct ChangedModel {
    model: Model,
    nodes: Nodes,
    /// At the time of the objective, alone.
    times: [NodesAt; 1],
    servers: u32,
    cost: Option<f64>,
    limits: Limits,
    busiest: Option<String>,
    largest_rate: Parameter,
    trust_limit: f64,
    loads: Vec<LoadPoint>,
}

impl ChangedModel {
    /// Makes the changes for an objective: a share of requests within a time in seconds.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an objective out of its range, and those of [`WhatIf::changed`].
    pub fn new(
        fitted: &Model,
        what_if: &WhatIf,
        objective_s: f64,
        share: f64,
    ) -> Result<ChangedModel, Error> {
        check("the time of an objective", objective_s, 1e-6..=1e4, "1 us to 10,000 s")?;
        check("the share of an objective", share, 1e-3..=0.99999, "0.001 to 0.99999")?;
        let model = what_if.changed(fitted)?;
        let servers = what_if.servers_left();
        let n = f64::from(servers);
        let nodes = model.nodes()?;
        let at = nodes.at_time(objective_s);
        let largest = match model.largest_rate_by(&nodes, &at, share) {
            Err(Error::Unattainable { .. }) => Parameter::exact(0.0, "1/s"),
            other => other?,
        };
        let limits = cluster_limits(&model.limits_of(&nodes)?, servers);
        Ok(ChangedModel {
            servers,
            cost: what_if.cost(fitted)?,
            busiest: busiest(&model, &nodes.node),
            largest_rate: each(&largest, |one| one * n),
            trust_limit: model.trust()?.limit * n,
            loads: loads(&nodes.node, &at.node, &limits, servers),
            limits,
            model,
            nodes,
            times: [at],
        })
    }

    /// The answer at `rate` requests/s on all servers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rate out of its range, and those of [`at_load`].
    pub fn answer(&self, rate: f64) -> Result<Answer, Error> {
        check("the request rate", rate, 0.0..=1e12, "0 to 1e12")?;
        let load = ClusterLoad { rate, servers: self.servers };
        let (prediction, response_p99, statement) =
            match at_load_by(&self.model, &self.nodes, &self.times, load)? {
                AtLoad::Stable { prediction, p99 } => (Some(prediction), Some(p99), None),
                AtLoad::Saturated { statement, .. } => (None, None, Some(statement)),
            };
        let headroom = (rate > 0.0).then(|| Parameter {
            unit: "1".to_owned(),
            ..each(&self.largest_rate, |largest| largest / rate)
        });
        let law = match prediction {
            Some(_) => self.law(load.of_server())?,
            None => Vec::new(),
        };
        Ok(Answer {
            rate,
            servers: self.servers,
            cost: self.cost,
            prediction,
            response_p99,
            statement,
            limits: self.limits.clone(),
            busiest: self.busiest.clone(),
            largest_rate: self.largest_rate.clone(),
            headroom,
            trust_limit: self.trust_limit,
            law,
            loads: self.loads.clone(),
        })
    }

    /// The law of one server's responses at `rate` requests/s.
    fn law(&self, rate: f64) -> Result<Vec<LawPoint>, Error> {
        let [NodesAt { t_s: objective_s, .. }] = &self.times;
        let step = (LAW_TO / LAW_FROM).ln() / (LAW_POINTS - 1) as f64;
        let times: Vec<f64> =
            (0..LAW_POINTS).map(|i| objective_s * LAW_FROM * (step * i as f64).exp()).collect();
        let predicted = match self.nodes.node.cdf(rate, &times) {
            // Past the saturation of a hypothesis that does not fit: the prediction says that nothing is known.
            Err(Error::Unstable { .. }) => return Ok(Vec::new()),
            found => found?,
        };
        let published = self.model.spotify_cdf(rate, &times).ok();
        let published = |index: usize| published.as_ref()?.get(index).copied();
        let point =
            |(index, (t_s, predicted))| LawPoint { t_s, predicted, published: published(index) };
        Ok(times.into_iter().zip(predicted).enumerate().map(point).collect())
    }
}

/// The share within the objective at loads up to saturation, by the node and its laws at the time of the objective.
fn loads(node: &Node, at: &NodeAt, limits: &Limits, servers: u32) -> Vec<LoadPoint> {
    let most = limits.saturation.value;
    if !most.is_finite() {
        return Vec::new();
    }
    let point = |index: usize| {
        let rate = most * index as f64 / LOAD_POINTS as f64;
        let operating = node.operating(rate / f64::from(servers)).ok()?;
        Some(LoadPoint { rate, within: at.cdf(&operating) })
    };
    (0..LOAD_POINTS).filter_map(point).collect()
}

/// The class of the device with the most work for a request.
fn busiest(model: &Model, node: &Node) -> Option<String> {
    let load = |group: &crate::storage::DeviceGroup| {
        let class = node.classes.get(group.class)?;
        let free = f64::from(class.servers.max(1)) - class.other_busy(group.factor);
        Some(group.share * group.factor * class.mean() / free.max(f64::MIN_POSITIVE))
    };
    let busiest =
        node.groups.iter().max_by(|a, b| load(a).unwrap_or(0.0).total_cmp(&load(b).unwrap_or(0.0)));
    Some(model.classes.get(busiest?.class)?.name.clone())
}

#[cfg(test)]
mod tests;
