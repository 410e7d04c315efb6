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
mod question;
mod search;
mod site;

pub use choices::{
    CONFIGURATIONS_MAX, Catalogue, Choices, Configuration, DeviceChoice, DeviceCount, Memory,
    SizeLaw, SizedCurves,
};
pub use curves::Curves;
pub use look::{Break, Cause, Forecast, Lost, Planned, Purchase, Quantile, Reach};
pub use question::{Growth, LimitRule, Objective, Question};

use serde::{Deserialize, Serialize};

use crate::error::{Error, positive};
use crate::model_file::Model;

use choices::Digits;
use search::{by_cost, cheapest};
use site::Site;

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
