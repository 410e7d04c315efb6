//! The configuration of the experiment.

use std::path::PathBuf;

use serde::Deserialize;

use super::oracle::Frequencies;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub text: PathBuf,
    pub shards: usize,
    pub words: Frequencies,
    pub system: SystemConfig,
    pub load: LoadConfig,
    pub layers: LayersConfig,
    pub goals: Goals,
    pub short: Short,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SystemConfig {
    pub nodes: usize,
    pub replicas: u32,
    pub window_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadConfig {
    pub questions: usize,
    pub checked: usize,
    pub capacity_clients: usize,
    pub capacity_s: f64,
    pub shares: Vec<f64>,
    pub warmup_s: f64,
    pub measure_s: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayersConfig {
    pub bytes: u64,
    pub share: f64,
    pub warmup_s: f64,
    pub measure_s: f64,
}

/// The goals.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goals {
    pub node_p99_ms: f64,
    pub gateway_p99_ms: f64,
    pub foretold_points: f64,
    pub layers_p99_ratio: f64,
    pub layers_length_ratio: f64,
}

/// The changes of `--short`: fewer and shorter loads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Short {
    pub checked: usize,
    pub capacity_s: f64,
    pub shares: Vec<f64>,
    pub warmup_s: f64,
    pub measure_s: f64,
    pub layers_warmup_s: f64,
    pub layers_measure_s: f64,
}

impl Config {
    pub fn shorten(&mut self) {
        let (short, load) = (&self.short, &mut self.load);
        load.checked = short.checked;
        load.capacity_s = short.capacity_s;
        load.shares = short.shares.clone();
        (load.warmup_s, load.measure_s) = (short.warmup_s, short.measure_s);
        self.layers.warmup_s = short.layers_warmup_s;
        self.layers.measure_s = short.layers_measure_s;
    }
}
