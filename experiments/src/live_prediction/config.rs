//! The configuration of the experiment.

use std::path::PathBuf;

use serde::Deserialize;

use crate::context::Context;
use crate::lab::{self, Catalogue, Server};
use record::RunFolder;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub trace: PathBuf,
    pub day_starts_s: usize,
    pub day_s: usize,
    pub objects: u64,
    pub object_bytes: u64,
    pub hit_ratio: f64,
    pub disks: u32,
    pub disk_per_s: f64,
    pub peak_utilisation: f64,
    pub objective_ms: f64,
    pub seed: u64,
    pub knee: KneeSettings,
    pub alarms: AlarmSettings,
    pub full: Part,
    pub short: Part,
}

impl Config {
    /// Requests/s at which the disks are always busy.
    pub fn capacity(&self) -> f64 {
        f64::from(self.disks) * self.disk_per_s / (1.0 - self.hit_ratio)
    }

    /// Loads a node with steps of (requests/s, seconds).
    pub fn load(
        &self,
        context: &Context,
        catalogue: &Catalogue,
        server: &Server,
        steps: &[(f64, f64)],
        name: &str,
    ) -> anyhow::Result<RunFolder> {
        let mut arguments = catalogue.uniform(1.0, (0.0, 1.0), self.seed);
        arguments.retain(|a| {
            !["--rate", "--warmup", "--duration"].iter().any(|name| a.starts_with(name))
        });
        let schedule: Vec<String> =
            steps.iter().map(|(rate, seconds)| format!("{rate:.1}:{seconds}s")).collect();
        let more = ["--schedule", &schedule.join(","), "--times", "0", "--threads", "1"];
        arguments.extend(more.map(str::to_owned));
        lab::load(server.url(), &arguments, &context.scratch.join(name), context.quiet)
    }
}

/// `[alarms]` of `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlarmSettings {
    pub keys: u32,
    pub zipf: f64,
    /// Share of the objects that fit into memory.
    pub memory: f64,
    /// Utilisation of the disks before anything changes.
    pub utilisation: f64,
    /// When the change comes, and how long the node is watched after it, seconds.
    pub at_s: f64,
    pub watched_s: f64,
    /// A change that is not told within this time is missed, seconds.
    pub within_s: f64,
    pub slow: f64,
    pub refit_s: f64,
}

/// `[knee]` of `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KneeSettings {
    /// Utilisation of the disks at which the headroom is asked for, and for how long it is held.
    pub utilisation: f64,
    pub base_s: f64,
    /// Loads as multiples of the largest that the node says it can bear, and the length of each.
    pub loads: Vec<f64>,
    pub load_s: f64,
    /// The beginning of each load, which does not count.
    pub settle_s: f64,
}

/// How fast the day passes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub replay_s: f64,
    /// Length of a step of the load. The rate is constant within a step.
    pub step_s: f64,
    pub ahead_s: f64,
    pub refit_s: f64,
    pub scored_s: f64,
    /// Runs of each kind in which alarms are counted.
    pub alarm_seeds: u64,
}
