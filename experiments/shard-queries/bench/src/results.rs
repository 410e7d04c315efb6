//! What was measured, as `measurements.json`: rates of every engine, query and round, and nothing derived.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::engine::Query;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Versions of what was compared.
    pub versions: BTreeMap<String, String>,
    /// One for each text.
    pub datasets: Vec<DatasetResult>,
}

/// What was measured on one text.
#[derive(Debug, Serialize)]
pub struct DatasetResult {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// [`crate::checksum::of_bytes`] of it, in hexadecimal digits.
    pub checksum: String,
    /// Mean hits of a pattern.
    pub hits_mean: f64,
    /// Mean bytes of a pattern.
    pub pattern_bytes_mean: f64,
    /// Accesses to memory, the median of each round.
    pub ceiling: Vec<Rates>,
    /// Drift of the ceiling within each round: (largest − smallest) / median.
    pub drift: Vec<f64>,
    /// All engines, in the order of their footprint.
    pub engines: Vec<EngineResult>,
}

/// What was measured of one index.
#[derive(Debug, Serialize)]
pub struct EngineResult {
    /// `shard`, or the rival's index.
    pub index: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// Bytes that it holds.
    pub bytes: u64,
    /// The same over the text's bytes.
    pub footprint: f64,
    /// One for each kind of query and batch.
    pub rates: Vec<Rates>,
}

/// Queries per second.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// What was asked.
    pub query: Query,
    /// So many at a time.
    pub batch: usize,
    /// Queries/s in each round.
    pub per_s: Vec<f64>,
}

impl Results {
    /// Writes `measurements.json` to a folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join("measurements.json");
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
