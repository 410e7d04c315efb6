//! Searches for the saturation: a closed loop whose clients are doubled until the throughput stops
//! rising.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use model::fit::ClosedLoop;
use serde::Serialize;

use super::{At, Budget, GAIN, Settings};
use load::{Length, Load, Plan, Progress, Session};

/// Number of successive doublings without gain that end the search: a single one may be chance.
const PATIENCE: usize = 2;
/// The least that a closed loop's throughput is uncertain by, as a share: a step is short, and the machine's speed
/// differs from run to run.
const DEVIATION: f64 = 0.02;
/// The share of errors that also ends the search.
const ERRORS: f64 = 0.01;

/// A step of the search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Number of clients.
    pub clients: usize,
    /// Successful replies per second.
    pub throughput: f64,
    /// Mean response time, seconds.
    pub response_mean_s: f64,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// Its run folder.
    pub dir: PathBuf,
    /// Its steps.
    pub steps: Vec<Found>,
    /// The largest throughput, requests/s.
    pub throughput_max: f64,
    /// Whether more clients gained nothing. If not, the saturation is higher.
    pub saturated: bool,
    /// Whether all replies were 404: none of the keys exists.
    #[serde(skip)]
    pub missing: bool,
}

impl Search {
    /// The mean response time of a single client.
    pub(super) fn alone_s(&self) -> Option<f64> {
        self.steps.first().filter(|s| s.clients == 1).map(|s| s.response_mean_s)
    }

    /// What enough clients carry: the steps that none of the others gains on.
    pub fn closed_loop(&self) -> Option<ClosedLoop> {
        let enough = |s: &&Found| s.throughput * (1.0 + GAIN) >= self.throughput_max;
        let full: Vec<f64> = self.steps.iter().filter(enough).map(|s| s.throughput).collect();
        let throughput = full.iter().sum::<f64>() / full.len().max(1) as f64;
        let off = full.iter().map(|x| (x / throughput - 1.0).powi(2)).sum::<f64>();
        let deviation = (off / full.len().saturating_sub(1).max(1) as f64).sqrt();
        let deviation = deviation.max(DEVIATION);
        (self.saturated && throughput > 0.0).then_some(ClosedLoop { throughput, deviation })
    }
}

/// A search's seed is the sweep's, exclusive-or this.
const SEED: u64 = 0x5ea7_c4ed;
/// The share of the budget that a search may take.
const BUDGET: f64 = 0.5;

/// Searches with at most `clients_max` clients, and starts the budget's clock. Its steps are a
/// third as long as a repetition.
pub(super) fn search(
    settings: &Settings,
    clients_max: usize,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<(Search, Budget)> {
    let doubled = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    let numbers: Vec<usize> = doubled.take_while(|&n| n <= clients_max).collect();
    let third = |length: Option<Length>| match length {
        Some(Length::Seconds(s)) => Some(Length::Seconds(s / 3.0)),
        other => other,
    };
    let Settings { think_ms, think, .. } = *settings;
    let plan = Plan {
        load: Load::Closed { clients: numbers.clone(), think_ms, think },
        length: third(settings.plan.length),
        warmup: third(settings.plan.warmup),
        out: settings.plan.out.join("search"),
        // Keys of its own: a service with a cache would have those that the sweep asks for in memory.
        seed: settings.plan.seed ^ SEED,
        ..settings.plan.clone()
    };
    let dir = plan.out.clone();
    let mut session = Session::open(&plan, stop)?;
    session.fill(progress)?;
    let budget = Budget::new(settings.budget_s, settings.step_s());
    let mut found =
        Search { dir, steps: Vec::new(), throughput_max: 0.0, saturated: false, missing: false };
    let mut fruitless = 0;
    for clients in numbers {
        if stop.load(Ordering::Relaxed) || budget.spent() > BUDGET {
            break;
        }
        let at = At::Clients(clients);
        session.load(&settings.load(at), &mut |p: &Progress| {
            let stage = format!("search: {at}");
            progress(&Progress { stage, done: budget.spent(), ..p.clone() });
        })?;
        let Some(step) = session.summary().steps.get(found.steps.len()) else { break };
        let throughput = step.rate;
        let response_mean_s = step.response_ms.mean * 1e-3;
        found.steps.push(Found { clients, throughput, response_mean_s });
        fruitless = match throughput < (1.0 + GAIN) * found.throughput_max {
            true => fruitless + 1,
            false => 0,
        };
        found.throughput_max = found.throughput_max.max(throughput);
        found.saturated = fruitless >= PATIENCE;
        let failing = step.errors as f64 > ERRORS * step.completions as f64;
        if throughput <= 0.0 && found.throughput_max <= 0.0 {
            let faults: Vec<String> =
                step.faults.iter().map(|(fault, times)| format!("{fault} ({times})")).collect();
            let faults =
                if faults.is_empty() { "no reply came".to_owned() } else { faults.join(", ") };
            bail!(
                "not one request of a single client succeeded, so there is nothing to measure: {faults}"
            );
        }
        // Replies that are all 404 have no saturation that is worth a search.
        if found.saturated || failing || session.summary().is_all_missing(plan.multi_get) {
            break;
        }
    }
    found.missing = session.close()?.is_all_missing(plan.multi_get);
    Ok((found, budget))
}
