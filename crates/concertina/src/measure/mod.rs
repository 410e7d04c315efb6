//! Measures a service over a sweep of loads, each until its intervals are narrow enough.
//!
//! The load generator ([`load`]) drives any HTTP service; this module decides which load comes
//! next. If no loads are given, it first *searches* for the saturation (a closed loop whose clients
//! are doubled until the throughput stops rising) and measures at rates that are shares of it.
//! Every point is then measured in turn, as often as requested, so that a drift of the machine
//! affects all points. Then the points with wide intervals are measured again, in turn, until all
//! intervals are narrow or the budget is spent. Each repetition is a step of one run folder,
//! trimmed to its steady part, so `fit`, `report` and `check` read it like any other run.
//!
//! - `settings`: what is measured; `offered`: a load; `budget`: the time for it.
//! - `point`: the figures of a load from its repetitions, with intervals. `sweep`: which point is measured next.
//! - `search`: the saturation. `recovery`: the wait after a search that overloaded the service. `until`: the load that narrows a prediction most. `table`: the output for people, which `docs/measure.md` explains.

mod budget;
mod offered;
mod point;
mod recovery;
mod search;
mod settings;
mod sweep;
mod table;
mod until;

pub use offered::OfferedLoad;
pub use point::{Point, Quantile};
pub use search::{Recovery, Search, SearchStep};
pub use settings::{Place, Settings, Sweep, Until};
pub use sweep::Ended;
pub use until::{Pursuit, Round};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::laws::{knee, saturation_clients};
use serde::Serialize;

use budget::Budget;
use load::{Load, Progress, Session};
use offered::rounded;
use point::Repeated;
use record::clock;
use search::GAIN;
use sweep::sweep;

/// The largest throughput of the service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Saturation {
    /// The largest throughput, requests/s.
    pub rate: f64,
    /// The number of clients where the asymptotic bounds meet, N* = X·(R₁ + Z); known if a single
    /// client was measured.
    pub clients: Option<f64>,
    /// The evidence for it.
    pub basis: String,
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The run folder of the sweep.
    pub dir: PathBuf,
    /// The search for the saturation, if there was one, with its run folder.
    pub search: Option<Search>,
    /// The points in order of load.
    pub points: Vec<Point>,
    /// The saturation, if it was reached.
    pub saturation: Option<Saturation>,
    /// The index into `points` of the largest ratio of throughput to response time (Kleinrock's
    /// power).
    pub knee: Option<usize>,
    /// The requested half width, as a share.
    pub half_width: f64,
    /// Duration of the measurement, seconds.
    pub seconds: f64,
    /// Why it ended.
    pub ended: Ended,
    /// The pursuit of a goal, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Pursuit>,
    /// Whether every reply said that there is no such key (404).
    pub missing: bool,
}

impl Measurement {
    /// Whether all replies were errors.
    pub fn is_all_errors(&self) -> bool {
        !self.points.is_empty() && self.points.iter().all(|p| p.errors == p.completions)
    }

    /// Whether any reply had wrong bytes.
    pub fn is_wrong(&self) -> bool {
        self.points.iter().any(|p| p.mismatches > 0)
    }
}

/// Runs a measurement. `stop` ends it early and keeps the measurements so far; `progress` receives
/// updates, and `tell` a line whenever a goal is nearer.
pub fn run(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Measurement> {
    settings.check()?;
    let mut settings = settings.clone();
    settings.plan.trim = true;
    let Offered { mut loads, mut search, mut budget } = offered_loads(&settings, stop, progress)?;
    if search.is_some() {
        // The search has already filled the service.
        settings.plan.fill = None;
    }
    loads.sort_by(OfferedLoad::order);
    loads.dedup();
    let mut points: Vec<Repeated> = loads.iter().map(|&at| Repeated::new(at)).collect();
    let mut missing = search.as_ref().is_some_and(|search| search.missing);
    let mut ended = if missing { Ended::Missing } else { Ended::Interrupted };
    let mut pursuit = None;
    if !points.is_empty() && !stop.load(Ordering::Relaxed) {
        settings.plan.load = planned_load(&settings, &loads);
        let mut session = Session::open(&settings.plan, stop)?;
        session.fill(progress)?;
        let budget =
            budget.get_or_insert_with(|| Budget::new(settings.budget_s, settings.step_s()));
        let all = &mut points;
        ended = match &settings.until {
            None => sweep(&settings, &mut session, all, budget, stop, progress)?,
            Some(goal) => {
                let mut reporter = until::Reporter { progress, tell };
                let closed_loop = search.as_ref().and_then(Search::closed_loop);
                let goal = until::PursuitGoal { until: goal, closed_loop };
                let pursued =
                    until::pursue(&settings, goal, &mut session, all, budget, stop, &mut reporter)?;
                pursuit = Some(pursued.1);
                pursued.0
            }
        };
        missing = session.close()?.is_all_missing(settings.plan.multi_get);
        if let Some(found) = &mut search {
            search::after(&settings, found, stop, progress);
        }
    }
    points.sort_by(|a, b| a.at.order(&b.at));
    let points: Vec<Point> =
        points.iter().filter(|p| p.repetitions() > 0).map(|p| p.point(&settings)).collect();
    let bends: Vec<(f64, f64)> =
        points.iter().map(|p| (p.throughput.value, p.response_mean_s.value)).collect();
    Ok(Measurement {
        dir: settings.plan.out.clone(),
        saturation: saturation(&settings, search.as_ref(), &points),
        knee: knee(&bends).ok().filter(|_| points.len() > 2),
        search,
        points,
        half_width: settings.half_width,
        seconds: budget.map_or(0.0, |b| clock::now().saturating_sub(b.begun) as f64 * 1e-9),
        ended,
        until: pursuit,
        missing,
    })
}

/// The loads of a measurement, and how they were found.
struct Offered {
    loads: Vec<OfferedLoad>,
    search: Option<Search>,
    /// The time that the search began to spend.
    budget: Option<Budget>,
}

/// The loads that the settings name, or shares of a saturation that is searched for.
fn offered_loads(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<Offered> {
    let mut budget = None;
    let mut search = None;
    let loads: Vec<OfferedLoad> = match &settings.sweep {
        Sweep::Rates(rates) => rates.iter().map(|&rate| OfferedLoad::Rate(rate)).collect(),
        Sweep::Clients(clients) => clients.iter().map(|&n| OfferedLoad::Clients(n)).collect(),
        Sweep::Shares(shares, clients_max) => {
            let (mut found, begun) = search::search(settings, *clients_max, stop, progress)?;
            recovery::wait(settings, &mut found, &begun, stop, progress)?;
            let rates =
                shares.iter().map(|share| OfferedLoad::Rate(rounded(share * found.throughput_max)));
            let known =
                |at: &OfferedLoad| !found.missing && at.rate().is_some_and(|rate| rate > 0.0);
            let rates = rates.filter(known).collect();
            (budget, search) = (Some(begun), Some(found));
            rates
        }
    };
    Ok(Offered { loads, search, budget })
}

/// The sweep as one load, for the record of the run's parameters.
fn planned_load(settings: &Settings, loads: &[OfferedLoad]) -> Load {
    let rates: Vec<f64> = loads.iter().filter_map(|at| at.rate()).collect();
    let clients: Vec<usize> = loads.iter().filter_map(|at| at.clients()).collect();
    let Settings { arrivals, think_ms, think, .. } = *settings;
    if clients.is_empty() {
        Load::Open { rates, arrivals }
    } else {
        Load::Closed { clients, think_ms, think }
    }
}

fn saturation(
    settings: &Settings,
    search: Option<&Search>,
    points: &[Point],
) -> Option<Saturation> {
    let clients = |rate: f64, alone_s: Option<f64>| {
        alone_s.and_then(|r| saturation_clients(rate, r, settings.think_ms * 1e-3).ok())
    };
    if let Some(search) = search.filter(|search| search.saturated) {
        let rate = search.throughput_max;
        let basis = "closed loop: more clients gained less than 5 %".to_owned();
        return Some(Saturation { rate, clients: clients(rate, search.alone_s()), basis });
    }
    let rate = points.iter().map(|p| p.throughput.value).fold(0.0, f64::max);
    let mut open: Vec<(f64, &Point)> =
        points.iter().filter_map(|point| Some((point.at.rate()?, point))).collect();
    open.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A loss that also occurs at the lowest load has another reason than saturation.
    let past = match &open[..] {
        [] => false,
        [(_, only)] => only.is_past_saturation(),
        [(_, lowest), .., (_, highest)] => {
            highest.is_past_saturation() && !lowest.is_past_saturation()
        }
    };
    if past && rate > 0.0 {
        let basis =
            "open loop: at the highest load, fewer requests succeeded than were sent".to_owned();
        return Some(Saturation { rate, clients: None, basis });
    }
    let closed: Vec<&Point> = points.iter().filter(|p| p.at.clients().is_some()).collect();
    let (last, before) = (closed.last()?, closed.iter().rev().nth(1)?);
    let flat = last.throughput.value < (1.0 + GAIN) * before.throughput.value;
    let alone = closed.first().filter(|p| p.at.clients() == Some(1));
    let basis = "closed loop: the largest number of clients gained less than 5 %".to_owned();
    let alone_s = alone.map(|p| p.response_mean_s.value);
    flat.then(|| Saturation { rate, clients: clients(rate, alone_s), basis })
}
