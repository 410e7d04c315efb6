//! What was measured and predicted.

use record::Step;
use serde::Serialize;
use serde_json::Value;

use super::measured::{Figure, Foretold, Queue};
use super::oracle::Kind;
use crate::marks::Mark;

/// The measurement of one load.
#[derive(Serialize)]
pub(super) struct Row {
    pub system: String,
    pub kind: Kind,
    /// Requests/s in a closed loop.
    pub capacity_per_s: f64,
    /// The rate as a share of the throughput in the closed loop.
    pub share: f64,
    pub rate_per_s: f64,
    pub requests: u64,
    /// Answers other than 200, requests given up or never sent.
    pub failed: u64,
    pub p50_ms: Figure,
    pub p99_ms: Figure,
    /// Processor time of each process for a request, µs.
    pub cpu_us: Vec<(String, f64)>,
    /// Share of the processor that other guests of the hypervisor had.
    pub stolen: f64,
    /// Warnings of the generator, and from the host's counters.
    pub marks: Vec<Mark>,
    #[serde(skip)]
    pub step: Step,
    pub queues: Vec<Queue>,
    /// Predictions for the first shard's queue, from the service times of the lightest load.
    pub foretold: Vec<Foretold>,
    /// The same from the service times of this load: the remaining error is that of the law.
    pub foretold_by_own: Vec<Foretold>,
}

/// Layers on and off at the same rate.
#[derive(Serialize)]
pub(super) struct LayersRow {
    pub layers_bytes: u64,
    pub rate_per_s: f64,
    pub requests: u64,
    pub failed: u64,
    pub p50_ms: Figure,
    pub p99_ms: Figure,
    pub queue_length_mean: Figure,
    pub queues: Vec<Queue>,
    /// `changes` and the layers of each part, as the node reported them after the load.
    pub told: Value,
}

/// The recorded result.
#[derive(Default, Serialize)]
pub(super) struct Findings {
    pub records: usize,
    pub text_bytes: usize,
    pub checked: u64,
    pub wrong: u64,
    pub rows: Vec<Row>,
    pub layers: Vec<LayersRow>,
}

impl Row {
    pub fn in_words(&self) -> String {
        let Row { system, kind, rate_per_s, p50_ms, p99_ms, failed, .. } = self;
        let cpu: f64 = self.cpu_us.iter().map(|(_, us)| us).sum();
        format!(
            "{system}, {}: {rate_per_s:.0}/s, p50 {:.2} ms, p99 {:.2} ms, {cpu:.0} µs of CPU each, \
             {failed} failed",
            kind.in_words(),
            p50_ms.value,
            p99_ms.value
        )
    }
}
