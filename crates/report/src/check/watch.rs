//! Detects whether a fitted model still describes a run, by feeding its windows in order of time to
//! [`model::fit::Watch`].
//!
//! The documentation of that type describes the test and its rate of false alarms; `docs/check.md`
//! explains how to read the table.

use std::fmt::Write;
use std::path::PathBuf;

use model::Model;
use model::fit::{Change, Watch, WatchOptions};
use serde::Serialize;

use crate::grid::{Grid, printable};
use crate::objective::digits;
use crate::steps::ObservedStep;
use crate::{Error, Observed, Selection};
use record::RunFolder;

use crate::whole::one_step;

/// A change, and the position in the runs where it began.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundChange {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// The name of the changed parameter.
    pub title: String,
    /// The step in which the change began.
    pub step: String,
    /// Seconds from the start of that step.
    pub since_s: f64,
}

/// The result of comparing a model with a stream of windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Watched {
    /// Whether no change was found.
    pub holds: bool,
    /// The names of the watched parameters.
    pub watched: Vec<String>,
    /// The number of intervals examined.
    pub intervals: u64,
    /// The mean number of intervals between false alarms, at least.
    pub false_alarm_intervals: f64,
    /// The changes found.
    pub changes: Vec<FoundChange>,
}

/// Compares a model with the steps of runs in order of time. A server's run without a load
/// generator's counts as one step.
pub fn watch(
    dirs: &[PathBuf],
    selection: &Selection,
    model: &Model,
    options: WatchOptions,
) -> Result<Watched, Error> {
    let selection = Selection { any_queues: true, ..selection.clone() };
    let mut runs = Vec::new();
    for dir in dirs {
        let mut run = RunFolder::read(dir)?;
        run.samples = Vec::new();
        runs.push(run);
    }
    if runs.iter().all(|run| run.steps.is_empty()) {
        runs = runs.into_iter().map(one_step).collect();
    }
    let observed = Observed::new(runs, &selection)?;
    let mut steps: Vec<&ObservedStep> = observed.steps.iter().collect();
    steps.sort_by_key(|step| step.step.start_unix_us);
    let mut watch = Watch::new(model, options)?;
    for step in &steps {
        watch.push_step(&step.windows);
    }
    let found = |change: Change| {
        let begun = |s: &&&ObservedStep| s.step.start_unix_us <= change.since_unix_us + 1_000;
        let step = steps.iter().rev().find(begun).or(steps.first());
        let since_us =
            step.map_or(0, |s| change.since_unix_us.saturating_sub(s.step.start_unix_us));
        FoundChange {
            title: change.parameter.to_string(),
            step: step.map_or(String::new(), |s| s.name().to_owned()),
            since_s: since_us as f64 * 1e-6,
            change,
        }
    };
    let changes: Vec<FoundChange> = watch.changes().into_iter().map(found).collect();
    Ok(Watched {
        holds: changes.is_empty(),
        watched: watch.watched().map(ToString::to_string).collect(),
        intervals: watch.intervals(),
        false_alarm_intervals: options.intervals,
        changes,
    })
}

impl Watched {
    /// Formats the changes as a table, followed by the result.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if !self.changes.is_empty() {
            let head = ["parameter", "fitted", "now", "±", "change %", "since"];
            let mut grid = Grid::new("lrrrrl", &head);
            for found in &self.changes {
                let (fitted, now) = (found.change.fitted, &found.change.now);
                grid.row([
                    found.title.clone(),
                    digits(fitted, 4),
                    digits(now.value, 4),
                    digits(now.high - now.value, 2),
                    format!("{:+.1}", (now.value / fitted - 1.0) * 100.0),
                    format!("{} s into {}", digits(found.since_s, 4), printable(&found.step)),
                ]);
            }
            out += &grid.text();
        }
        let watched: Vec<String> = self.watched.iter().map(|w| printable(w)).collect();
        let looked = format!(
            "{} intervals, {}; at most one false alarm in {} intervals on average",
            self.intervals,
            watched.join(", "),
            digits(self.false_alarm_intervals, 6),
        );
        let _ = match self.holds {
            true => writeln!(out, "The model still describes what was measured ({looked})."),
            false => writeln!(
                out,
                "The model does NOT describe what was measured any more: fit again ({looked})."
            ),
        };
        out
    }
}
