//! The cheapest configuration that meets an objective at a load.
//!
//! The input is a [`Question`] ("99 % within 50 ms at 12,000 requests/s, growing 5 % a month") and
//! [`Choices`] (servers, memory, devices and replicas with their prices). The result is a [`Plan`]:
//! the configurations that meet the objective, cheapest first, and the next purchase. Each
//! configuration comes with its predicted distribution and intervals, its headroom, the part that
//! saturates first, and a prediction with one server lost.
//!
//! Every server is the fitted one with changes, as in [`crate::storage::Change`]:
//!
//! - *Servers* share the load equally. The shares of a real ring differ slightly; the confidence
//!   limit (balls into bins) bounds the effect and marks each prediction.
//! - *Memory* multiplies the line q₀ − αλ by the factor of a [`SizeLaw`]. If the number of servers
//!   that shared the catalogue when the model was fitted is known ([`Catalogue::servers`]), more
//!   servers mean more memory for each object.
//! - *Devices* of a class share its reads equally. The speed of a device does not depend on their
//!   number. A class with its own law ([`DeviceChoice::reads`], for hot devices) serves the share
//!   of reads that the law gives; the other classes serve the rest.
//! - *Curves* ([`Curves`]), instead of these laws, say what memory and hot devices of all servers
//!   together serve, from recorded requests. Hot devices may then be added to a fitted server that
//!   has none ([`DeviceChoice::service_s`]).
//! - *Replicas* do not spread reads: the primary of a key answers. If a server is lost, the others
//!   answer its keys, and their parts of the catalogue grow by n/(n−1). With a single replica its
//!   keys are at the origin, which counts as too late.
//!
//! Limitations: a resource that the model lacks may saturate first (a processor, the origin; a link
//! or workers unless `[front]` has them). A configuration may be far from the fitted server:
//! [`Planned::like_fitted`] says which is not, and the marks of [`Forecast`] say which loads are
//! past the measured ones.
//!
//! Cost: two microseconds for each configuration examined, in the order of cost until enough meet
//! the objective, and about 0.1 s for each one reported; 25 times as much with a link or workers.

mod choices;
mod curves;
mod look;
mod search;
mod site;

pub use choices::{
    CONFIGURATIONS_MAX, Catalogue, Choices, Configuration, DeviceChoice, DeviceCount, Memory,
    SizeLaw, SizedCurves,
};
pub use curves::Curves;
pub use look::{Break, Cause, Forecast, Lost, Planned, Purchase, Quantile, Reach};

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative, positive};
use crate::model_file::Model;

use choices::Digits;
use search::{by_cost, cheapest};
use site::Site;

/// An objective: a share of the requests within a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The share, 0 to 1.
    pub share: f64,
    /// The time, seconds.
    pub within_s: f64,
}

/// Growth of the load by a constant factor each month.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Relative growth in a month: 0.05 for 5 %.
    pub per_month: f64,
    /// Number of months for which the objective must hold.
    pub months: u32,
}

/// A limit that the load of a configuration must not pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitRule {
    /// No limit: a configuration past the confidence limit is marked, but valid.
    #[default]
    None,
    /// Our confidence limit of the servers (balls into bins).
    Ours,
    /// The published one: dimensioning as in the Spotify paper.
    Published,
}

/// The question that a plan answers.
///
/// ```
/// use model::plan::{Growth, Objective, Question};
/// let objective = Objective { share: 0.99, within_s: 0.05 };
/// let question = Question { growth: Some(Growth { per_month: 0.05, months: 12 }),
///     ..Question::new(objective, 12_000.0) };
/// assert!((question.design_rate() - 21_550.3).abs() < 0.1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The objective.
    pub objective: Objective,
    /// Load now, requests/s on all servers.
    pub rate: f64,
    /// Growth of the load, if any.
    pub growth: Option<Growth>,
    /// The limit that the load must not pass.
    pub limit: LimitRule,
    /// Whether the objective must hold with one server lost as well.
    pub with_one_lost: bool,
    /// Delay that gateway and network add to every response, seconds, if the model does not contain
    /// it.
    pub delay_s: f64,
    /// Number of configurations to report.
    pub top: usize,
}

impl Question {
    /// Asks for the ten cheapest configurations that meet an objective at a load.
    pub fn new(objective: Objective, rate: f64) -> Self {
        Question {
            objective,
            rate,
            growth: None,
            limit: LimitRule::None,
            with_one_lost: false,
            delay_s: 0.0,
            top: 10,
        }
    }

    /// The largest load until the end of the growth, requests/s, which a configuration must carry: that of today where the
    /// load shrinks.
    pub fn design_rate(&self) -> f64 {
        let grown = |g: Growth| self.rate * (1.0 + g.per_month).powf(g.months.into());
        self.growth.map_or(self.rate, |growth| grown(growth).max(self.rate))
    }

    /// The objective's time less the delay, seconds: the time left for a server.
    fn within_s(&self) -> f64 {
        self.objective.within_s - self.delay_s
    }

    fn check(&self) -> Result<(), Error> {
        check("the share of an objective", self.objective.share, 0.0..=1.0, "0 to 1")?;
        not_negative("the time of an objective", self.objective.within_s)?;
        not_negative("the delay of gateway and network", self.delay_s)?;
        check("the time of an objective less the delay", self.within_s(), 0.0..=1e12, "above 0")?;
        positive("the request rate", self.rate)?;
        if let Some(growth) = self.growth {
            check("the growth of a month", growth.per_month, -0.99..=100.0, "-0.99 to 100")?;
            check("the months of growth", growth.months.into(), 0.0..=1200.0, "at most 1200")?;
            check("the load after the growth", self.design_rate(), 0.0..=1e15, "at most 1e15")?;
        }
        check("the number of configurations to show", self.top as f64, 1.0..=1e4, "1 to 10,000")
            .map(|_| ())
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The question.
    pub question: Question,
    /// The load after the growth, requests/s.
    pub design_rate: f64,
    /// Number of configurations that the choices allow.
    pub configurations: u64,
    /// Number of configurations that were examined.
    pub evaluated: u64,
    /// The configurations that meet the objective at the design load, cheapest first; at equal
    /// cost, those with the larger share in time first. Empty if none meets it.
    pub ranked: Vec<Planned>,
    /// With growth: the cheapest configuration for the load of today, if it differs.
    pub now: Option<Planned>,
    /// If no configuration meets the objective: the one that comes nearest.
    pub nearest: Option<Reach>,
    /// The next purchases from the cheapest valid configuration (or the nearest, if none is valid),
    /// the largest gain in load per price first.
    pub purchases: Vec<Purchase>,
}

/// Finds the cheapest configurations that meet an objective. See the [module](self).
///
/// # Errors
/// [`Error::Choices`] and [`Error::Invalid`] name the invalid list or number, and its valid range.
///
/// ```
/// # fn of(model: &model::Model) -> Result<(), model::Error> {
/// use model::plan::{Choices, Objective, Question, plan};
/// let question = Question::new(Objective { share: 0.99, within_s: 0.05 }, 12_000.0);
/// let choices = Choices { servers: (1..=40).collect(), server_price: 200.0, ..Choices::default() };
/// let plan = plan(model, &question, &choices)?;
/// if let Some(best) = plan.ranked.first() {
///     println!("{} servers; {:?}", best.configuration.servers, best.breaks_first);
/// }
/// # Ok(())
/// # }
/// ```
pub fn plan(model: &Model, question: &Question, choices: &Choices) -> Result<Plan, Error> {
    question.check()?;
    let site = Site::new(model, choices)?;
    let all = by_cost(&site)?;
    let design_rate = question.design_rate();
    let found = cheapest(&site, question, &all, design_rate, question.top);
    let mut evaluated = found.evaluated;
    let mut digits = Digits::new();
    let mut ranked = Vec::new();
    for &index in &found.ranked {
        choices.digits(index.into(), &mut digits);
        ranked.push(look::planned(&site, question, &digits, design_rate)?);
    }
    let mut now = None;
    if question.growth.is_some() {
        let today = cheapest(&site, question, &all, question.rate, 1);
        evaluated += today.evaluated;
        if let Some(&index) = today.ranked.first().filter(|i| found.ranked.first() != Some(i)) {
            choices.digits(index.into(), &mut digits);
            now = Some(look::planned(&site, question, &digits, question.rate)?);
        }
    }
    let mut nearest = None;
    if let (true, Some((index, _))) = (found.ranked.is_empty(), found.nearest) {
        choices.digits(index.into(), &mut digits);
        nearest = Some(look::reach(&site, question, &digits, design_rate)?);
    }
    let from = found.ranked.first().copied().or(found.nearest.map(|n| n.0));
    let purchases = match from {
        Some(index) => {
            choices.digits(index.into(), &mut digits);
            look::purchases(&site, question, &digits)?
        }
        None => Vec::new(),
    };
    let configurations = choices.configurations()?;
    Ok(Plan {
        question: *question,
        design_rate,
        configurations,
        evaluated,
        ranked,
        now,
        nearest,
        purchases,
    })
}

/// The model of one server of a configuration of `choices`, while `lost` of its servers are lost: the others have their parts
/// of the catalogue, if there are replicas. Cost: that of reading a model.
///
/// # Errors
/// [`Error::Choices`] if the configuration is not one of the choices, or all of its servers are lost.
pub fn server_of(
    model: &Model,
    choices: &Choices,
    configuration: &Configuration,
    lost: u32,
) -> Result<Model, Error> {
    let Configuration { servers, memory, devices, replicas, .. } = configuration;
    if lost >= *servers {
        return Err(Error::Choices(format!("{lost} of {servers} servers are lost: none is left")));
    }
    let mut one = choices.clone();
    one.servers.retain(|count| count == servers);
    one.memory.sizes.retain(|size| size == memory);
    one.replicas.retain(|count| count == replicas);
    for (choice, chosen) in one.devices.iter_mut().zip(devices) {
        choice.counts.retain(|count| *count == chosen.count);
    }
    let left = f64::from(servers - lost);
    // Without replicas no other server gets a lost server's keys.
    one_configuration(model, &one, if *replicas > 1 { f64::from(*servers) / left } else { 1.0 })
}

/// The model of a server of the first configuration of `choices`, whose part of the catalogue is `catalogue` times the fitted
/// one: more than 1 where lost servers' keys came to it.
pub(crate) fn one_configuration(
    model: &Model,
    choices: &Choices,
    catalogue: f64,
) -> Result<Model, Error> {
    positive("the part of the catalogue", catalogue)?;
    let site = Site::new(model, choices)?;
    let mut digits = Digits::new();
    choices.digits(0, &mut digits);
    let mut changes = site::Changes::default();
    if !site.changes(&digits, catalogue, &mut changes) {
        return Err(Error::Choices("its devices cannot serve all reads".into()));
    }
    Ok(site.model(&changes))
}

#[cfg(test)]
mod tests;
