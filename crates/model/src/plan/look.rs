//! Examines one configuration: its forecast with intervals, the part that saturates first, the next
//! purchase.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model_file::{Model, Parameter, Prediction};
use crate::storage::{BETA, Limit, Operating, balls_into_bins_limit};

use super::choices::Configuration;
use super::question::{LimitRule, Question};
use super::site::{Changes, Site};

/// The shares whose response times a forecast reports.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The last month that is examined.
const MONTHS_MAX: u32 = 1200;

/// A quantile of the response time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The share.
    pub share: f64,
    /// The time, seconds.
    pub time_s: f64,
}

/// The predicted performance of servers at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Load on all of them, requests/s.
    pub rate: f64,
    /// Number of servers.
    pub servers: u32,
    /// Share answered within the objective's time, with its 95 % interval.
    pub within: Parameter,
    /// The same by the published model; `None` if that is not stable.
    pub published: Option<f64>,
    /// Quantiles of the response time.
    pub quantiles: Vec<Quantile>,
    /// Mean response, seconds.
    pub response_mean: Parameter,
    /// Share that memory answers.
    pub hit_ratio: Parameter,
    /// Utilisation of the busiest device.
    pub utilisation_max: Parameter,
    /// The confidence limit, requests/s on all servers.
    pub confidence_limit: f64,
    /// The load up to which the model is trusted, requests/s on all servers ([`crate::Trust`]).
    pub trust_limit: f64,
    /// The load is past the confidence limit; report this wherever the forecast is shown.
    pub beyond_limit: bool,
    /// A server has a larger load than any that was fitted.
    pub beyond_fitted: bool,
    /// The load is past the one up to which the model is trusted; report this wherever the forecast
    /// is shown.
    pub beyond_trust: bool,
    /// Nothing is known of a server at the load, because no hypothesis fits ([`Model::known_to`]): the objective counts as missed.
    pub is_unknown: bool,
}

/// The prediction for a configuration with one server lost, after its replicas have filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// The forecast of the other servers; `None` if they cannot carry the load, or there are none.
    pub forecast: Option<Forecast>,
    /// Share of the requests for keys that only the lost server held. They count as too late;
    /// `forecast` includes them.
    pub unreachable: f64,
    /// Whether the objective is still met.
    pub holds: bool,
}

/// The reason why a configuration carries no more load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The objective is missed.
    Objective,
    /// A device is always busy, while the answers of memory alone still meet the objective.
    Saturation,
    /// The required limit is reached.
    Limit,
    /// The objective is missed with one server lost.
    OneLost,
    /// Nothing is known of a server with more load, because no hypothesis fits ([`Model::known_to`]).
    Unknown,
}

/// The limit that a growing load reaches first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Break {
    /// The reason.
    pub cause: Cause,
    /// The load at that limit, requests/s on all servers. Infinite if memory answers everything.
    pub rate: f64,
    /// The class of the busiest device, which would saturate first; or `link` or `workers`, if one
    /// of these does.
    pub class: String,
    /// Its utilisation at that load, with all servers.
    pub utilisation: f64,
    /// The load at which that class is always busy, requests/s on all servers.
    pub saturation: f64,
    /// `rate` is past the confidence limit; report this wherever it is shown.
    pub beyond_limit: bool,
    /// `rate` brings a server more load than any that was fitted.
    pub beyond_fitted: bool,
    /// `rate` is past the load up to which the model is trusted; report this wherever it is shown.
    pub beyond_trust: bool,
}

/// A configuration that meets the objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The configuration with its cost.
    pub configuration: Configuration,
    /// Its forecast at the design load.
    pub forecast: Forecast,
    /// With one server lost, at the same load.
    pub one_lost: Lost,
    /// The largest load that meets the objective alone, requests/s, with its 95 % interval.
    pub objective_rate: Parameter,
    /// The limit reached first: the objective, or another requirement.
    pub breaks_first: Break,
    /// The load of `breaks_first` relative to the load now.
    pub headroom: f64,
    /// The month in which the growing load reaches it; `None` without growth, or if it never does.
    pub ends_in_month: Option<u32>,
    /// Whether its servers equal the fitted one except for their number. If not, the laws of memory
    /// and devices derived them from it.
    pub like_fitted: bool,
}

/// The configuration that comes nearest to the objective, if none meets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// The configuration with its cost.
    pub configuration: Configuration,
    /// Its forecast at the load; `None` if it cannot carry the load at all.
    pub forecast: Option<Forecast>,
    /// The largest load at which it meets all requirements; 0 requests/s if there is none.
    pub breaks_first: Break,
    /// Whether its servers equal the fitted one except for their number.
    pub like_fitted: bool,
    /// Whether nothing is known of its servers at the load ([`Forecast::is_unknown`]).
    pub is_unknown: bool,
}

/// A step from one configuration to the next value of one choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    /// A description of the purchase: `servers 17 → 18`.
    pub what: String,
    /// The configuration after the purchase.
    pub configuration: Configuration,
    /// The increase of the largest load that meets all requirements, requests/s.
    pub gain: f64,
    /// Whether that load is past the one up to which the model is trusted; report this wherever it
    /// is shown.
    pub beyond_trust: bool,
    /// The additional cost.
    pub price: f64,
    /// `gain` over `price`; `None` if the purchase costs nothing.
    pub gain_per_price: Option<f64>,
}

/// A server of a configuration as a model, and the same with one server lost.
struct Looked {
    servers: u32,
    replicas: u32,
    whole: Model,
    /// A remaining server after a loss; `None` for a single server.
    lost: Option<Model>,
    changes: Changes,
}

fn look(site: &Site, digits: &[usize]) -> Result<Looked, Error> {
    let (servers, replicas) = (site.choices.servers[digits[0]], site.choices.replicas(digits));
    let (mut changes, mut after) = (Changes::default(), Changes::default());
    let n = f64::from(servers);
    // Without replicas no other server gets the lost server's keys.
    let part = if replicas > 1 && servers > 1 { n / (n - 1.0) } else { 1.0 };
    if !site.changes(digits, 1.0, &mut changes) || !site.changes(digits, part, &mut after) {
        return Err(Error::Choices("its devices cannot serve all reads".into()));
    }
    let lost = (servers > 1).then(|| site.model(&after));
    Ok(Looked { servers, replicas, whole: site.model(&changes), lost, changes })
}

/// The full report of a configuration that meets the objective.
pub(super) fn planned(
    site: &Site,
    question: &Question,
    digits: &[usize],
    rate: f64,
) -> Result<Planned, Error> {
    let looked = look(site, digits)?;
    let forecast = forecast(&looked.whole, question, looked.servers, rate)?;
    let n = f64::from(looked.servers);
    let objective = question.objective;
    let of = looked.whole.largest_rate_with_interval(question.within_s(), objective.share);
    let mut objective_rate = match of {
        Err(Error::Unattainable { .. }) => Parameter::exact(0.0, "1/s"),
        other => other?,
    };
    for end in [&mut objective_rate.value, &mut objective_rate.low, &mut objective_rate.high] {
        *end *= n;
    }
    let breaks_first = breaks(site, question, &looked)?;
    let ends_in_month = question.growth.and_then(|growth| {
        let load = |month: u32| question.rate * (1.0 + growth.per_month).powf(month.into());
        (0..=MONTHS_MAX).find(|&month| load(month) > breaks_first.rate)
    });
    Ok(Planned {
        configuration: site.choices.configuration(digits),
        forecast,
        one_lost: one_lost(&looked, question, rate)?,
        objective_rate,
        headroom: breaks_first.rate / question.rate,
        breaks_first,
        ends_in_month,
        like_fitted: site.is_fitted(&looked.changes),
    })
}

fn forecast(
    model: &Model,
    question: &Question,
    servers: u32,
    rate: f64,
) -> Result<Forecast, Error> {
    let t_s = question.within_s();
    let Prediction {
        hit_ratio,
        utilisation_max,
        mut response_mean,
        confidence_limit,
        trust_limit,
        beyond_limit,
        beyond_fitted,
        beyond_trust,
        points,
        ..
    } = model.predict_cluster(rate, servers, &[t_s])?;
    for value in [&mut response_mean.value, &mut response_mean.low, &mut response_mean.high] {
        *value += question.delay_s;
    }
    let mut quantiles = Vec::new();
    for share in QUANTILES {
        let time = model.quantile(rate / f64::from(servers), share)?;
        quantiles.push(Quantile { share, time_s: time + question.delay_s });
    }
    let point = points.into_iter().next();
    let point = point.ok_or(Error::Invalid {
        what: "the time of an objective",
        value: t_s,
        must: "a time",
    })?;
    Ok(Forecast {
        rate,
        servers,
        within: point.concertina,
        published: point.spotify.map(|p| p.value),
        quantiles,
        response_mean,
        hit_ratio,
        utilisation_max,
        confidence_limit,
        trust_limit,
        beyond_limit,
        beyond_fitted,
        beyond_trust,
        is_unknown: model.is_unknown(rate / f64::from(servers)),
    })
}

fn one_lost(looked: &Looked, question: &Question, rate: f64) -> Result<Lost, Error> {
    let n = f64::from(looked.servers);
    let unreachable = if looked.replicas > 1 { 0.0 } else { 1.0 / n };
    let Some(model) = &looked.lost else {
        return Ok(Lost { forecast: None, unreachable: 1.0, holds: false });
    };
    let left = rate * (1.0 - unreachable);
    match forecast(model, question, looked.servers - 1, left) {
        Ok(mut forecast) => {
            let answered = 1.0 - unreachable;
            let within = &mut forecast.within;
            for value in [&mut within.value, &mut within.low, &mut within.high] {
                *value *= answered;
            }
            forecast.published = forecast.published.map(|share| share * answered);
            let holds = within.value >= question.objective.share && !forecast.is_unknown;
            Ok(Lost { forecast: Some(forecast), unreachable, holds })
        }
        Err(Error::Unstable { .. }) => Ok(Lost { forecast: None, unreachable, holds: false }),
        Err(error) => Err(error),
    }
}

/// The largest load at which a server answers a share in time; 0 if it never does.
fn largest(model: &Model, t_s: f64, share: f64) -> Result<f64, Error> {
    if share > 1.0 {
        return Ok(0.0);
    }
    match model.largest_rate(t_s, share) {
        Err(Error::Unattainable { .. }) => Ok(0.0),
        other => other,
    }
}

/// The load on all servers of which something is known; also after a loss if that must hold, when the others get the lost server's keys.
fn known_to(question: &Question, looked: &Looked) -> f64 {
    let n = f64::from(looked.servers);
    let whole = looked.whole.known_to() * n;
    match &looked.lost {
        Some(lost) if question.with_one_lost && looked.replicas > 1 => {
            whole.min(lost.known_to() * (n - 1.0))
        }
        _ => whole,
    }
}

/// The limit reached first.
fn breaks(site: &Site, question: &Question, looked: &Looked) -> Result<Break, Error> {
    let (n, t_s) = (f64::from(looked.servers), question.within_s());
    let share = question.objective.share;
    let node = looked.whole.node()?;
    let saturation = node.saturation() * n;
    let objective = largest(&looked.whole, t_s, share)? * n;
    let mut first = match objective >= saturation * (1.0 - 1e-9) {
        true => (Cause::Saturation, saturation),
        false => (Cause::Objective, objective),
    };
    let ours = balls_into_bins_limit(node.confidence_limit(), looked.servers, BETA);
    let limit = match question.limit {
        LimitRule::None => f64::INFINITY,
        LimitRule::Ours => ours,
        LimitRule::Published => {
            site.published(&looked.changes)?.cluster_confidence_limit(looked.servers)
        }
    };
    if limit < first.1 {
        first = (Cause::Limit, limit);
    }
    if question.with_one_lost {
        let lost = match &looked.lost {
            None => 0.0,
            Some(model) if looked.replicas > 1 => largest(model, t_s, share)? * (n - 1.0),
            // The others answer (n−1)/n of all requests, and must make up for the unreachable ones.
            Some(model) => largest(model, t_s, share * n / (n - 1.0))? * n,
        };
        if lost < first.1 {
            first = (Cause::OneLost, lost);
        }
    }
    let known = known_to(question, looked);
    if known < first.1 {
        first = (Cause::Unknown, known);
    }
    let (cause, rate) = first;
    let limit = node.breaks_first().map_or(Limit::Devices, |(_, limit)| limit);
    let busy = |o: Operating| match limit {
        Limit::Devices => o.utilisation_max,
        Limit::Link => o.front.link_utilisation,
        Limit::Workers => o.front.workers_utilisation,
    };
    let class = match limit {
        Limit::Devices => site.busiest(&looked.changes),
        Limit::Link | Limit::Workers => limit.as_str().to_owned(),
    };
    let utilisation = node.operating(rate / n).map_or(1.0, busy);
    Ok(Break {
        cause,
        rate,
        class,
        utilisation,
        saturation,
        beyond_limit: rate > ours,
        beyond_fitted: rate / n > looked.whole.requests.rate_high * 1.01,
        beyond_trust: !looked.whole.trust()?.covers(rate / n),
    })
}

/// The report of the nearest configuration.
pub(super) fn reach(
    site: &Site,
    question: &Question,
    digits: &[usize],
    rate: f64,
) -> Result<Reach, Error> {
    let looked = look(site, digits)?;
    let forecast = match forecast(&looked.whole, question, looked.servers, rate) {
        Err(Error::Unstable { .. }) => None,
        other => Some(other?),
    };
    Ok(Reach {
        configuration: site.choices.configuration(digits),
        forecast,
        breaks_first: breaks(site, question, &looked)?,
        like_fitted: site.is_fitted(&looked.changes),
        is_unknown: looked.whole.is_unknown(rate / f64::from(looked.servers)),
    })
}

/// The next value of each choice, the largest gain in load per price first. Free steps come first,
/// steps without gain last.
pub(super) fn purchases(
    site: &Site,
    question: &Question,
    digits: &[usize],
) -> Result<Vec<Purchase>, Error> {
    let choices = site.choices;
    let here = choices.configuration(digits);
    let rate = breaks(site, question, &look(site, digits)?)?.rate;
    let mut all = Vec::new();
    for (place, length) in choices.lengths().into_iter().enumerate() {
        let mut next = digits.to_vec();
        next[place] += 1;
        if next[place] >= length || !choices.fits(&next) {
            continue;
        }
        let Ok(looked) = look(site, &next) else { continue };
        let breaks = breaks(site, question, &looked)?;
        let (larger, beyond_trust) = (breaks.rate, breaks.beyond_trust);
        let configuration = choices.configuration(&next);
        let gain = if larger == rate { 0.0 } else { larger - rate };
        let price = configuration.cost - here.cost;
        let what = match place {
            0 => format!("servers {} → {}", here.servers, configuration.servers),
            1 => format!("memory {} → {}", here.memory, configuration.memory),
            _ => match (here.devices.get(place - 2), configuration.devices.get(place - 2)) {
                (Some(from), Some(to)) => format!("{} {} → {}", from.class, from.count, to.count),
                _ => format!("replicas {} → {}", here.replicas, configuration.replicas),
            },
        };
        let gain_per_price = (price > 0.0).then(|| gain / price);
        all.push(Purchase { what, configuration, gain, beyond_trust, price, gain_per_price });
    }
    let worth = |p: &Purchase| match p.gain_per_price {
        Some(worth) => worth,
        None if p.gain > 0.0 => f64::INFINITY,
        None => 0.0,
    };
    all.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    Ok(all)
}
