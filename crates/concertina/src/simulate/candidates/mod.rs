//! The candidates of a plan in the simulator: what the formula says beside what its servers do when less is assumed.
//!
//! Each candidate is simulated with drawn hits ([`engine::sim::drawn`]) in up to three ways, each of which assumes less:
//!
//! - [`Assumed::Equal`]: one server at its equal share of the load, as the formula sees it. What differs from the formula is
//!   what its laws of queues approximate.
//! - [`Assumed::Placed`]: all servers, with the shares that the ring gives them.
//! - [`Assumed::Failing`]: the same while something is down. Which servers and devices are down is drawn for each run, under the
//!   condition that something is, so that what happens a few hours a year takes no year to see; its weight is the part of
//!   the time in which something is down. Right where repairs take much longer than queues take to settle.
//!
//! - `failures`: what is down. `run`: the settings of one run. `work`: runs on threads.
//!
//! Limitations, said in `docs/plan.md`: reads that join another are answered as from memory, links, workers and other work of devices do not
//! exist, and devices that share their servers, or whose speed depends on what is present, are refused.

mod failures;
mod run;
pub(super) mod work;

use model::Model;
use model::plan::{Choices, Planned};
use model::statistics::batch_means;
use serde::Serialize;

use super::chance::Chance;
use super::several::Interval;

/// What is asked of the simulator.
#[derive(Clone, Debug)]
pub struct CandidateQuestion<'a> {
    /// The fitted server.
    pub model: &'a Model,
    /// What could be bought.
    pub choices: &'a Choices,
    /// The candidates, as the formula judges them.
    pub planned: &'a [Planned],
    /// Load on all servers, requests/s.
    pub rate: f64,
    /// The time of the objective at a server, seconds.
    pub within_s: f64,
    /// Times to failure and repair; without any, nothing fails.
    pub chance: Chance,
    /// Mean time of a read that only the origin can answer, seconds; `None`: it counts as late.
    pub origin_s: Option<f64>,
    /// Runs of each way to simulate a candidate.
    pub runs: usize,
    /// Requests of each run, at least; more where queues take long to settle.
    pub requests: f64,
    /// Seed of the first run.
    pub seed: u64,
    /// Runs at once.
    pub threads: usize,
}

/// What a simulation assumes of the servers, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumed {
    /// Equal shares of the load, and nothing fails.
    Equal,
    /// The ring's shares, and nothing fails.
    Placed,
    /// The ring's shares, and something is down.
    Failing,
}

/// An assumption of the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumption {
    /// Queues behave by the formula's laws.
    Queues,
    /// Each server has an equal share of the load.
    EqualShares,
    /// Nothing is down.
    NoFailures,
}

/// Smaller differences are not named, as a share: 0.05 points.
const NAMED_MIN: f64 = 0.0005;

/// What an assumption is worth: the simulated share without it less that with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The assumption.
    pub of: Assumption,
    /// The difference of the shares, with its 95 % interval.
    pub share: Interval,
}

/// A candidate beside its simulation.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedCandidate {
    /// Place in the plan, from 0.
    pub candidate: usize,
    /// The formula's share within the objective's time.
    pub formula: f64,
    /// The simulated share, with its 95 % interval over runs.
    pub simulated: Interval,
    /// The simulated share less the formula's.
    pub difference: Interval,
    /// What of the difference each assumption accounts for.
    pub effects: Vec<Effect>,
    /// The assumption that accounts for the most, if any differs from chance and matters.
    pub broke: Option<Assumption>,
    /// The simulated share while something is down; `None` if nothing fails.
    pub while_down: Option<Interval>,
    /// Part of the time in which something is down.
    pub down: f64,
    /// Simulated requests.
    pub requests: u64,
    /// The simulated responses of the candidate while nothing is down: times in seconds, and the share within each.
    pub law: Vec<(f64, f64)>,
}

/// The result of all candidates.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedPlan {
    /// The candidates that were simulated, in the order of the plan.
    pub candidates: Vec<SimulatedCandidate>,
    /// Runs of each way to simulate a candidate.
    pub runs: usize,
    /// Requests of each run, at least.
    pub requests: f64,
    /// The seed of the first run.
    pub seed: u64,
    /// Whether an interrupt ended it before all candidates were simulated.
    pub interrupted: bool,
}

/// The shares of the runs of a candidate, for each way in which it was simulated.
#[derive(Clone, Debug, Default)]
struct Shares {
    equal: Vec<f64>,
    placed: Vec<f64>,
    failing: Vec<f64>,
}

/// The sum of independent intervals, each times a factor.
fn sum(parts: &[(f64, Interval)]) -> Interval {
    let value = parts.iter().map(|(factor, of)| factor * of.value).sum();
    let half = parts.iter().map(|(factor, of)| (factor * of.half).powi(2)).sum::<f64>().sqrt();
    Interval { value, half }
}

/// Mean and 95 % interval; an infinite one of a single run.
fn interval(values: &[f64]) -> Interval {
    match batch_means(values) {
        Some(estimate) => Interval { value: estimate.mean, half: estimate.half_width },
        None => Interval {
            value: values.iter().sum::<f64>() / values.len().max(1) as f64,
            half: f64::INFINITY,
        },
    }
}

impl SimulatedCandidate {
    /// From the shares of its runs and the part of the time in which something is `down`.
    fn new(candidate: usize, formula: f64, shares: &Shares, down: f64) -> SimulatedCandidate {
        let exact = Interval { value: formula, half: 0.0 };
        let [equal, placed] = [&shares.equal, &shares.placed].map(|runs| interval(runs));
        let while_down = (!shares.failing.is_empty()).then(|| interval(&shares.failing));
        let mut effects = vec![
            Effect { of: Assumption::Queues, share: sum(&[(1.0, equal), (-1.0, exact)]) },
            Effect { of: Assumption::EqualShares, share: sum(&[(1.0, placed), (-1.0, equal)]) },
        ];
        let mut simulated = placed;
        if let Some(failing) = while_down {
            simulated = sum(&[(1.0 - down, placed), (down, failing)]);
            let share = sum(&[(down, failing), (-down, placed)]);
            effects.push(Effect { of: Assumption::NoFailures, share });
        }
        let shown = |effect: &&Effect| effect.share.value.abs() > effect.share.half.max(NAMED_MIN);
        let most = |a: &&Effect, b: &&Effect| a.share.value.abs().total_cmp(&b.share.value.abs());
        let broke = effects.iter().filter(shown).max_by(most).map(|effect| effect.of);
        SimulatedCandidate {
            candidate,
            formula,
            simulated,
            difference: sum(&[(1.0, simulated), (-1.0, exact)]),
            effects,
            broke,
            while_down,
            down,
            requests: 0,
            law: Vec::new(),
        }
    }

    /// Whether the simulated share holds an objective, misses it, or its interval lies on both sides.
    pub fn holds(&self, share: f64) -> Option<bool> {
        let Interval { value, half } = self.simulated;
        match share {
            share if value - half >= share => Some(true),
            share if value + half < share => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
