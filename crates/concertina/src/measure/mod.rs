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
//! - `point`: the figures of a load from its repetitions, with intervals.
//! - `search`: the saturation. `table`: the output for people, which `docs/measure.md` explains.

mod point;
mod search;
mod table;
mod until;

pub use point::{OfferedLoad, Point, Quantile};
pub use search::{Search, SearchStep};
pub use until::{Place, Pursuit, Round, Until};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{bail, ensure};
use ground::window::{Nanos, SECOND};
use model::laws::{knee, saturation_clients};
use serde::Serialize;

use load::{Arrivals, Length, Load, Plan, Progress, Session, Think};
use point::Repeated;
use record::clock;

/// The loads of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub enum Sweep {
    /// Open loops of these rates (requests/s).
    Rates(Vec<f64>),
    /// Closed loops of these numbers of clients.
    Clients(Vec<usize>),
    /// Open loops at these shares of the saturation, which is searched for with at most this many
    /// clients.
    Shares(Vec<f64>, usize),
}

/// The loads to measure, and the required precision.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The parameters that all steps share: the service, the keys, the warm-up, the length of a
    /// repetition, the run folder. The load comes from the sweep.
    pub plan: Plan,
    /// The loads.
    pub sweep: Sweep,
    /// The distribution of gaps between arrivals of open loops.
    pub arrivals: Arrivals,
    /// Mean think time of closed loops, and the distribution of think times.
    pub think_ms: f64,
    /// The distribution of think times.
    pub think: Think,
    /// The smallest number of repetitions of every point.
    pub repeat: usize,
    /// Target half width of the 95 % interval of mean and quantile, relative to the value.
    pub half_width: f64,
    /// The quantile, 0 to 1.
    pub quantile: f64,
    /// The largest time for measuring, seconds, without the fill.
    pub budget_s: f64,
    /// How well a prediction is to be known, instead of the points: loads are then chosen for it.
    pub until: Option<Until>,
}

impl Settings {
    fn load(&self, at: OfferedLoad) -> Load {
        match at {
            OfferedLoad::Rate(rate) => Load::Open { rates: vec![rate], arrivals: self.arrivals },
            OfferedLoad::Clients(clients) => {
                Load::Closed { clients: vec![clients], think_ms: self.think_ms, think: self.think }
            }
        }
    }

    /// Planned length of a step, including its warm-up, seconds.
    fn step_s(&self) -> f64 {
        let seconds = |length: Option<Length>| match length {
            Some(Length::Seconds(s)) => s,
            _ => 0.0,
        };
        seconds(self.plan.warmup) + seconds(self.plan.length)
    }

    fn check(&self) -> anyhow::Result<()> {
        let share = |x: f64| x > 0.0 && x < 1.0;
        ensure!(self.repeat >= 1, "--repeat 0: measure every point at least once");
        ensure!(share(self.half_width), "invalid half width {}: 0 to 1 expected", self.half_width);
        ensure!(share(self.quantile), "invalid quantile {}: 0 to 1 expected", self.quantile);
        ensure!(
            self.budget_s.is_finite() && self.budget_s > 0.0,
            "invalid budget {} s: above 0 expected",
            self.budget_s
        );
        let points = match &self.sweep {
            Sweep::Rates(rates) => rates.len(),
            Sweep::Clients(clients) => clients.len(),
            Sweep::Shares(shares, _) => {
                let fine = |x: &&f64| !(x.is_finite() && **x > 0.0 && **x <= 2.0);
                if let Some(wrong) = shares.iter().find(fine) {
                    bail!(
                        "invalid share {wrong} of the saturation: above 0 and at most 2 expected"
                    );
                }
                shares.len()
            }
        };
        ensure!(points > 0, "no load given");
        let (step_s, points) = (self.step_s(), points as f64);
        ensure!(
            points * step_s <= self.budget_s,
            "{points} points of {step_s} s each (warm-up included) take longer than the budget of {} s: give \
             a larger --budget, fewer points, or a shorter --duration",
            self.budget_s
        );
        let taken = self.plan.out.join("run.toml").exists();
        ensure!(!taken, "{} already contains a run; name another folder", self.plan.out.display());
        Ok(())
    }
}

/// Why the measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The intervals of all steady points are narrow enough.
    Narrow,
    /// No point was steady, and only steady points have intervals.
    Unsteady,
    /// The prediction is known as well as was wanted.
    Known,
    /// The budget was spent.
    Budget,
    /// The user interrupted it; the measurements so far are kept.
    Interrupted,
    /// Every reply to the search was 404.
    Missing,
}

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

/// The time budget.
struct Budget {
    begun: Nanos,
    end: Nanos,
    /// The length of the longest step so far, at least as planned.
    step: Nanos,
}

impl Budget {
    fn new(seconds: f64, step_s: f64) -> Budget {
        let nanos = |s: f64| (s * SECOND as f64) as Nanos;
        let begun = clock::now();
        Budget { begun, end: begun.saturating_add(nanos(seconds)), step: nanos(step_s) }
    }

    /// Whether there is time for another step.
    fn allows(&self) -> bool {
        clock::now().saturating_add(self.step) <= self.end
    }

    fn took(&mut self, since: Nanos) {
        self.step = self.step.max(clock::now().saturating_sub(since));
    }

    /// The share of the budget that is spent.
    fn spent(&self) -> f64 {
        let whole = (self.end - self.begun).max(1);
        (clock::now().saturating_sub(self.begun) as f64 / whole as f64).min(1.0)
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
            let (found, begun) = search::search(settings, *clients_max, stop, progress)?;
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

/// Rounds a rate to three digits, the precision of a search.
fn rounded(rate: f64) -> f64 {
    format!("{rate:.2e}").parse().unwrap_or(rate)
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

/// Measures every point as often as requested, then those with wide intervals again and again.
fn sweep(
    settings: &Settings,
    session: &mut Session,
    points: &mut [Repeated],
    budget: &mut Budget,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<Ended> {
    let mut turn = 0;
    loop {
        let next = if turn < points.len() * settings.repeat {
            Some(turn % points.len())
        } else {
            next_wide(settings, points)
        };
        let Some(next) = next else {
            let steady = points.iter().any(|repeated| repeated.point(settings).steady);
            return Ok(if steady { Ended::Narrow } else { Ended::Unsteady });
        };
        // The first round was planned to fit the budget, but its steps may have taken longer.
        if turn >= points.len() && !budget.allows() || budget.spent() >= 1.0 {
            return Ok(Ended::Budget);
        }
        turn += 1;
        measure_once(settings, session, points, next, budget, progress)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
    }
}

/// Measures one point once more.
fn measure_once(
    settings: &Settings,
    session: &mut Session,
    points: &mut [Repeated],
    number: usize,
    budget: &mut Budget,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<()> {
    let Some(point) = points.get_mut(number) else { return Ok(()) };
    let stage = format!("{}, repetition {}", point.at, point.repetitions() + 1);
    let (begun, before) = (clock::now(), session.summary().steps.len());
    session.load(&settings.load(point.at), &mut |p: &Progress| {
        progress(&Progress { stage: stage.clone(), done: budget.spent(), ..p.clone() });
    })?;
    budget.took(begun);
    let windows = session.take_windows();
    if let Some(step) = session.summary().steps.get(before) {
        point.add(step, windows);
    }
    Ok(())
}

/// The next point to repeat: the least often measured one that is steady and not narrow enough, so
/// that a point that never becomes narrow does not use the whole budget.
fn next_wide(settings: &Settings, points: &[Repeated]) -> Option<usize> {
    let wide = points.iter().enumerate().filter(|(_, repeated)| {
        let point = repeated.point(settings);
        point.steady && !point.narrow
    });
    wide.min_by_key(|(_, repeated)| repeated.repetitions()).map(|(i, _)| i)
}

/// The smallest relative gain of throughput that counts.
const GAIN: f64 = 0.05;

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
