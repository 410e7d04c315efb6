//! Searches for the saturation: a closed loop whose clients are doubled until the throughput stops
//! rising.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use model::fit::{ClosedAt, ClosedLoop};
use serde::Serialize;

use super::budget::Budget;
use super::offered::OfferedLoad;
use super::settings::Settings;
use load::{Length, Load, Plan, Progress, Session, StepSummary};

/// The smallest relative gain of throughput that counts.
pub(super) const GAIN: f64 = 0.05;
/// Number of successive doublings without gain that end the search: a single one may be chance.
const PATIENCE: usize = 2;
/// The least that a closed loop's throughput is uncertain by, as a share: a step is short, and the machine's speed
/// differs from run to run.
const DEVIATION: f64 = 0.02;
/// A throughput that is less than the largest by more than this part falls with more clients.
const FALLS: f64 = 0.1;
/// A throughput below this part of the largest is a collapse: more clients would show nothing but its wreck.
const COLLAPSED: f64 = 0.5;
/// The share of errors that also ends the search.
const ERRORS: f64 = 0.01;

/// A step of the search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SearchStep {
    /// Number of clients.
    pub clients: usize,
    /// Successful replies per second.
    pub throughput: f64,
    /// Mean response time, seconds.
    pub response_mean_s: f64,
}

/// How a service whose throughput fell during the search answered a single client afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recovery {
    /// The clients of the last step before.
    pub clients: usize,
    /// Seconds from then.
    pub seconds: f64,
    /// The mean response time of a single client then, seconds; `None` without a reply.
    pub response_mean_s: Option<f64>,
    /// Whether that is about as short as at first.
    pub recovered: bool,
}

/// Why a search ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnd {
    /// More clients gained nothing, or lost.
    Saturated,
    /// No more clients were allowed.
    ClientsMax,
    /// Half of the budget was spent.
    Budget,
    /// The measurement was interrupted.
    Interrupted,
    /// Requests failed: the errors with their counts.
    Failing(String),
}

impl std::fmt::Display for SearchEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SearchEnd::Saturated => write!(f, "more clients gain nothing"),
            SearchEnd::ClientsMax => {
                write!(f, "more clients would have gained more: the saturation is higher")
            }
            SearchEnd::Budget => {
                write!(f, "half of the budget was spent: the saturation may be higher")
            }
            SearchEnd::Interrupted => write!(f, "interrupted: the saturation may be higher"),
            SearchEnd::Failing(faults) => write!(
                f,
                "the search ended because requests failed ({faults}): what the service carries without is not known"
            ),
        }
    }
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// Its run folder.
    pub dir: PathBuf,
    /// Its steps.
    pub steps: Vec<SearchStep>,
    /// A step after all loads, with as many clients as carried the largest throughput: whether the service was then
    /// as fast as before.
    pub after: Option<SearchStep>,
    /// Why that step could not be measured, if it failed for a reason of its own (a full disk, a run folder that is there).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_error: Option<String>,
    /// Whether the service recovered from the search, if its throughput fell.
    pub recovery: Option<Recovery>,
    /// The largest throughput, requests/s.
    pub throughput_max: f64,
    /// Whether more clients gained nothing.
    pub saturated: bool,
    /// Why it ended.
    pub ended: SearchEnd,
    /// Seconds that each client waits before it asks again.
    #[serde(skip)]
    pub think_s: f64,
    /// Whether all replies were 404: none of the keys exists.
    #[serde(skip)]
    pub missing: bool,
}

impl Search {
    /// A search without a step, whose run folder is `dir`.
    fn new(dir: PathBuf, think_s: f64) -> Search {
        Search {
            dir,
            steps: Vec::new(),
            after: None,
            after_error: None,
            recovery: None,
            throughput_max: 0.0,
            saturated: false,
            ended: SearchEnd::ClientsMax,
            think_s,
            missing: false,
        }
    }

    /// The mean response time of a single client.
    pub(super) fn alone_s(&self) -> Option<f64> {
        self.steps.first().filter(|s| s.clients == 1).map(|s| s.response_mean_s)
    }

    /// What enough clients carry: the steps that none of the others gains on, and the one after the loads.
    pub fn closed_loop(&self) -> Option<ClosedLoop> {
        let enough = |s: &&SearchStep| s.throughput * (1.0 + GAIN) >= self.throughput_max;
        let full: Vec<f64> = self.steps.iter().filter(enough).map(|s| s.throughput).collect();
        let (before, within) = mean_and_deviation(&full);
        // Steps one after another share the speed of that minute, so that they count as one.
        let after = self.after.map(|s| s.throughput).filter(|x| *x > 0.0);
        let each: Vec<f64> = std::iter::once(before).chain(after).collect();
        let (throughput, between) = mean_and_deviation(&each);
        let deviation = within.max(between).max(DEVIATION);
        (self.saturated && throughput > 0.0).then_some(ClosedLoop { throughput, deviation })
    }

    /// What each number of clients carried: a service that carries less with more clients may tip over.
    pub fn closed_loops(&self) -> Vec<ClosedAt> {
        let at = |step: &SearchStep| ClosedAt {
            clients: u32::try_from(step.clients).unwrap_or(u32::MAX),
            think_s: self.think_s,
            throughput: step.throughput,
        };
        self.steps.iter().map(at).collect()
    }

    /// Whether the last step carried less than the largest throughput by more than a part.
    pub(super) fn fell(&self) -> bool {
        let last = self.steps.last().map_or(0.0, |step| step.throughput);
        last * (1.0 + FALLS) < self.throughput_max
    }

    /// Whether the last step carried less than half of the largest throughput, which one disturbed step may do, too.
    fn collapsed(&self) -> bool {
        let last = self.steps.last().map_or(0.0, |step| step.throughput);
        last <= 0.0 || self.saturated && last < COLLAPSED * self.throughput_max
    }

    /// Whether the last doubling took something off the throughput, by which the service is known where it collapses.
    fn still_falls(&self) -> bool {
        match &self.steps[..] {
            [.., before, last] => {
                let less = last.throughput * (1.0 + GAIN) < before.throughput;
                less && last.throughput * (1.0 + FALLS) < self.throughput_max
            }
            _ => false,
        }
    }

    /// The clients that carried the largest throughput.
    fn most(&self) -> Option<usize> {
        let steps = self.steps.iter();
        steps.max_by(|a, b| a.throughput.total_cmp(&b.throughput)).map(|s| s.clients)
    }

    /// How much more the service carried after the loads than before them, as a share of that.
    pub(super) fn change(&self) -> Option<f64> {
        self.after.map(|after| after.throughput / self.throughput_max - 1.0)
    }
}

/// The mean, and the standard deviation as a part of it.
fn mean_and_deviation(all: &[f64]) -> (f64, f64) {
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    let off = all.iter().map(|x| (x / mean - 1.0).powi(2)).sum::<f64>();
    (mean, (off / all.len().saturating_sub(1).max(1) as f64).sqrt())
}

/// The seeds of the search and of the step after the loads are the sweep's, exclusive-or these: each asks for keys of its
/// own, because a service with a cache would have those of the others in memory.
const SEED: u64 = 0x5ea7_c4ed;
const SEED_AFTER: u64 = 0x5ea7_af7e;
/// The share of the budget that a search may take.
const BUDGET: f64 = 0.5;

/// A closed loop with these numbers of clients, one after another. Its steps are a third as long as a repetition.
pub(super) fn plan(settings: &Settings, clients: Vec<usize>, name: &str, seed: u64) -> Plan {
    let third = |length: Option<Length>| match length {
        Some(Length::Seconds(s)) => Some(Length::Seconds(s / 3.0)),
        other => other,
    };
    let Settings { think_ms, think, .. } = *settings;
    Plan {
        load: Load::Closed { clients, think_ms, think },
        length: third(settings.plan.length),
        warmup: third(settings.plan.warmup),
        out: settings.plan.out.join(name),
        seed: settings.plan.seed ^ seed,
        ..settings.plan.clone()
    }
}

/// Searches with at most `clients_max` clients, and starts the budget's clock.
pub(super) fn search(
    settings: &Settings,
    clients_max: usize,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<(Search, Budget)> {
    let doubled = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    let numbers: Vec<usize> = doubled.take_while(|&n| n <= clients_max).collect();
    let plan = plan(settings, numbers.clone(), "search", SEED);
    let dir = plan.out.clone();
    let mut session = Session::open(&plan, stop)?;
    session.fill(progress)?;
    let budget = Budget::new(settings.budget_s, settings.step_s());
    let mut found = Search::new(dir, settings.think_ms * 1e-3);
    let (mut fruitless, mut level) = (0, 0);
    for clients in numbers {
        if stop.load(Ordering::Relaxed) {
            found.ended = SearchEnd::Interrupted;
            break;
        }
        if budget.spent() > BUDGET {
            found.ended = SearchEnd::Budget;
            break;
        }
        let at = OfferedLoad::Clients(clients);
        session.load(&settings.load(at), &mut |p: &Progress| {
            let stage = format!("search: {at}");
            progress(&Progress { stage, done: budget.spent(), ..p.clone() });
        })?;
        let Some(step) = session.summary().steps.get(found.steps.len()) else { break };
        let (throughput, response_mean_s) = (step.rate, step.response_ms.mean.max(0.0) * 1e-3);
        found.steps.push(SearchStep { clients, throughput, response_mean_s });
        fruitless = match throughput < (1.0 + GAIN) * found.throughput_max {
            true => fruitless + 1,
            false => 0,
        };
        found.throughput_max = found.throughput_max.max(throughput);
        found.saturated = fruitless >= PATIENCE;
        let failing = step.errors as f64 > ERRORS * step.completions as f64;
        let faults = faults_of(step);
        if throughput <= 0.0 && found.throughput_max <= 0.0 {
            bail!(
                "not one request of a single client succeeded, so there is nothing to measure: {faults}"
            );
        }
        // A throughput that falls is followed until it falls no more: past that load the service does not come back.
        level = if found.still_falls() { 0 } else { level + 1 };
        let level_again = found.saturated && (!found.fell() || level >= PATIENCE);
        found.saturated |= !failing && found.collapsed();
        let enough = level_again || found.saturated && found.collapsed();
        // Replies that are all 404 have no saturation that is worth a search.
        if enough || failing || session.summary().is_all_missing(plan.multi_get) {
            found.ended =
                if found.saturated { SearchEnd::Saturated } else { SearchEnd::Failing(faults) };
            break;
        }
    }
    found.missing = session.close()?.is_all_missing(plan.multi_get);
    Ok((found, budget))
}

/// The errors of a step with their counts.
fn faults_of(step: &StepSummary) -> String {
    let each: Vec<String> =
        step.faults.iter().map(|(fault, times)| format!("{fault} ({times})")).collect();
    if each.is_empty() { "no reply came".to_owned() } else { each.join(", ") }
}

/// Measures the clients that carried the most once more. A service that no longer answers leaves this out: its points
/// say so. What else fails here does not take the measured points with it; the search says why the step is missing.
pub(super) fn after(
    settings: &Settings,
    found: &mut Search,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) {
    let Some(clients) = found.most().filter(|_| found.saturated && !found.missing) else { return };
    let plan = plan(settings, vec![clients], "search-after", SEED_AFTER);
    let mut measured = || -> anyhow::Result<Option<SearchStep>> {
        let mut session = Session::open(&plan, stop)?;
        let at = OfferedLoad::Clients(clients);
        session.load(&settings.load(at), &mut |p: &Progress| {
            progress(&Progress {
                stage: format!("saturation again: {at}"),
                done: 1.0,
                ..p.clone()
            });
        })?;
        let steps = session.close()?.steps;
        let step = steps.first().filter(|step| step.rate > 0.0);
        Ok(step.map(|step| SearchStep {
            clients,
            throughput: step.rate,
            response_mean_s: step.response_ms.mean.max(0.0) * 1e-3,
        }))
    };
    let step = measured();
    if stop.load(Ordering::Relaxed) {
        return;
    }
    match step {
        Ok(step) => found.after = step,
        Err(error) => found.after_error = Some(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_changed_between_the_closed_loops_is_known_less_well() {
        let found = |clients: usize, throughput: f64| SearchStep {
            clients,
            throughput,
            response_mean_s: 0.1,
        };
        let mut search = Search {
            steps: vec![found(1, 500.0), found(2, 990.0), found(4, 1000.0), found(8, 1010.0)],
            throughput_max: 1010.0,
            saturated: true,
            ended: SearchEnd::Saturated,
            ..Search::new(PathBuf::new(), 0.0)
        };
        let before = search.closed_loop().unwrap();
        assert!((before.throughput - 1000.0).abs() < 1e-9 && before.deviation == DEVIATION);
        assert_eq!((search.most(), search.change()), (Some(8), None));
        search.after = Some(found(8, 1200.0));
        let both = search.closed_loop().unwrap();
        assert!((both.throughput - 1100.0).abs() < 1e-9, "{both:?}");
        // Of 1000 and 1200.
        assert!((both.deviation - 0.1 * 2f64.sqrt() / 1.1).abs() < 1e-9, "{both:?}");
        assert!(search.change().is_some_and(|change| change > 0.18));
        search.saturated = false;
        assert!(search.closed_loop().is_none());
    }

    #[test]
    fn a_throughput_that_falls_with_more_clients_is_followed() {
        let step = |(clients, throughput)| SearchStep { clients, throughput, response_mean_s: 0.1 };
        let all = [(1, 114.0), (4, 128.0), (8, 121.0), (16, 89.0), (32, 88.0), (64, 72.0)];
        let after = |n: usize| Search {
            steps: all[..n].iter().copied().map(step).collect(),
            throughput_max: 128.0,
            saturated: true,
            ended: SearchEnd::Saturated,
            ..Search::new(PathBuf::new(), 0.25)
        };
        let falls: Vec<bool> = (1..=6).map(|n| after(n).still_falls()).collect();
        assert_eq!(falls, [false, false, false, true, false, true]);
        assert!(!after(6).collapsed());
        let collapsed = |throughput: f64, saturated: bool| {
            let mut search = Search { saturated, ..after(5) };
            search.steps.push(step((64, throughput)));
            search.collapsed()
        };
        assert!(collapsed(63.0, true) && !collapsed(65.0, true));
        // A single slow step may be chance; none without a reply is.
        assert!(!collapsed(63.0, false) && collapsed(0.0, false));
        let loops = after(6).closed_loops();
        assert_eq!((loops.len(), loops[5].clients, loops[5].throughput), (6, 64, 72.0));
        assert_eq!(loops[0].think_s, 0.25);
    }
}
