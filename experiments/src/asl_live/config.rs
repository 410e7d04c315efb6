//! The configuration of the experiment.

use anyhow::ensure;
use serde::Deserialize;

use super::rows::{Levels, Points};

/// `config.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub seed: u64,
    pub repetitions: u32,
    pub value_bytes: u64,
    pub keys: u64,
    pub filled_share: f64,
    pub think_ms: f64,
    pub distance_ms: f64,
    pub multi_get_clients: u32,
    pub batches: String,
    pub batch_rows: usize,
    pub links: Links,
    pub times: Times,
    pub curve: CurvePoints,
    pub full: Points,
    pub design: Levels,
    pub short: Points,
    pub short_times: Times,
}

/// Bandwidths of what leaves a machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Links {
    /// Mbit/s.
    pub server: f64,
    /// Mbit/s.
    pub client: f64,
    /// Mbit/s.
    pub middleware: f64,
    pub burst_bytes: u32,
    pub middleware_burst_bytes: u32,
}

/// How long to measure, seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Times {
    pub ramp: f64,
    /// A row is measured until so many requests are expected …
    pub requests: f64,
    /// … but so long at least …
    pub shortest: f64,
    /// … and at most.
    pub longest: f64,
    pub curve_ramp: f64,
    pub curve: f64,
    pub bandwidth: f64,
    pub light: f64,
}

/// Clients of the curves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CurvePoints {
    pub clients: Vec<u32>,
    pub machine: Vec<u32>,
}

/// What all parts need of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub seed: u64,
    pub repetitions: u32,
    pub value_bytes: u64,
    pub keys: u64,
    pub filled_share: f64,
    pub think_ms: f64,
    pub distance_ms: f64,
    pub links: Links,
    pub curve: CurvePoints,
}

impl Config {
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let rows = [&self.full, &self.short].into_iter();
        let clients = rows.flat_map(|p| p.middleware_clients.iter().chain(&p.clients));
        let clients = clients.chain([&self.design.clients, &self.multi_get_clients]);
        for &n in clients.chain(&self.curve.clients) {
            ensure!(n > 0 && n % 2 == 0, "config.toml: {n} clients: an even number expected");
        }
        ensure!(self.think_ms > 0.0, "config.toml: think_ms: above 0 expected");
        ensure!((0.5..=1.0).contains(&self.filled_share), "config.toml: filled_share: 0.5 to 1");
        Ok(Settings {
            seed: self.seed,
            repetitions: self.repetitions,
            value_bytes: self.value_bytes,
            keys: self.keys,
            filled_share: self.filled_share,
            think_ms: self.think_ms,
            distance_ms: self.distance_ms,
            links: self.links.clone(),
            curve: self.curve.clone(),
        })
    }
}
