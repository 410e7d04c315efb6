//! What is kept of a run for the intervals over several, and written by a part of a study.

use serde::{Deserialize, Deserializer, Serialize};

use super::run::Outcome;

/// What counts of one step of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepResult {
    /// Mean response, ms.
    #[serde(deserialize_with = "number")]
    pub mean_ms: f64,
    /// Median, ms.
    #[serde(deserialize_with = "number")]
    pub p50_ms: f64,
    /// The 0.99 quantile, ms.
    #[serde(deserialize_with = "number")]
    pub p99_ms: f64,
    /// The shares within the objectives.
    pub within: Vec<ShareWithin>,
    /// Replies and timeouts.
    pub completions: u64,
    /// Completions that were errors.
    pub errors: u64,
}

/// A share of the requests of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareWithin {
    /// The time of the objective.
    pub ms: f64,
    /// The share of the requests that were answered within it.
    #[serde(deserialize_with = "number")]
    pub share: f64,
}

/// Reads a number that is NaN if it is null: JSON has no NaN.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// What counts of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunResult {
    /// Its steps, as far as it came.
    pub steps: Vec<StepResult>,
    /// Simulated requests, including warm-ups.
    pub simulated_requests: u64,
    /// Real time that it took, seconds.
    pub seconds: f64,
    /// Descriptions of consistency violations; `None` if the history was not checked.
    pub violations: Option<Vec<String>>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

impl RunResult {
    /// Of the outcome of a run.
    pub fn new(outcome: Outcome) -> RunResult {
        let step = |step: load::StepSummary| StepResult {
            mean_ms: step.response_ms.mean,
            p50_ms: step.response_ms.p50,
            p99_ms: step.response_ms.p99,
            within: step.within.iter().map(|&(ms, share)| ShareWithin { ms, share }).collect(),
            completions: step.completions,
            errors: step.errors,
        };
        RunResult {
            interrupted: outcome.summary.interrupted,
            steps: outcome.summary.steps.into_iter().map(step).collect(),
            simulated_requests: outcome.simulated_requests,
            seconds: outcome.seconds,
            violations: outcome.violations,
        }
    }
}
