//! The configuration of the experiment.

use serde::Deserialize;

use crate::again::Again;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub objects: u64,
    pub object_bytes: u64,
    pub replicas: usize,
    pub fit_utilisations: Vec<f64>,
    pub fit_s: f64,
    pub held_out_utilisations: Vec<f64>,
    pub changed_utilisations: Vec<f64>,
    pub half_width_points: f64,
    pub half_width_points_high: f64,
    pub measure_s_min: f64,
    pub measure_s_max: f64,
    pub relaxation_times: f64,
    pub warmup_s_min: f64,
    pub scale_min: f64,
    pub again: Again,
    /// `[gateway]` of the gateway's configuration.
    pub gateway: toml::Table,
    pub cluster: Vec<Scenario>,
    pub short: Short,
}

impl Config {
    /// `[gateway]` with what it does not say filled in.
    pub fn gateway(&self) -> anyhow::Result<configuration::Gateway> {
        let gateway = toml::Value::Table(self.gateway.clone());
        let text = toml::to_string(&toml::Table::from_iter([("gateway".to_owned(), gateway)]))?;
        Ok(configuration::Config::parse(&text, "config.toml", &[])?.gateway)
    }
}

/// What `--short` measures: one cluster, fewer loads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Short {
    pub cluster: String,
    pub fit_utilisations: Vec<f64>,
    pub held_out_utilisations: Vec<f64>,
    pub changed_utilisations: Vec<f64>,
}

/// A cluster of equal nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub name: String,
    pub nodes: u32,
    /// Reads/s that a disk serves, its law and squared coefficient of variation.
    pub mu_per_s: f64,
    pub kind: String,
    pub scv: f64,
    /// Disks side by side in each node.
    pub disks: u32,
    /// Share of an equal part of the catalogue that a node's memory holds.
    pub hit_ratio: f64,
}

/// Response times that are compared, seconds.
pub(super) const WITHIN_S: [f64; 3] = [0.020, 0.050, 0.100];
