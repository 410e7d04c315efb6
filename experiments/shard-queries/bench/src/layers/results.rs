//! What was measured of layers, as `measurements.json`: nothing derived, but for percentiles.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::engine::Query;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Version of the crate `shard`.
    pub version: String,
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
    /// Bytes that the index holds without layers.
    pub index_bytes: u64,
    /// Sampling rates (SA, ISA) of the shard itself.
    pub sampling: [u32; 2],
    /// Rates (SA, ISA) of the pair that was added and dropped.
    pub swept: [u32; 2],
    /// Rates (SA, ISA) of the pair that was marked.
    pub marked: [u32; 2],
    /// Share of a processor that a sweep was given while queries ran.
    pub sweep_share: f64,
    /// A pair added and dropped, nothing else running.
    pub alone: Vec<Changed>,
    /// A pair added and dropped while queries ran.
    pub meanwhile: Vec<Changed>,
    /// Stretches of queries without a change, one before, between and after those of `meanwhile`.
    pub undisturbed: Vec<Vec<Times>>,
    /// Stretches of queries meanwhile.
    pub disturbed: Vec<Vec<Times>>,
    /// Curves of queries that fill a marked pair.
    pub curves: Vec<Curve>,
}

/// A pair that was added by a sweep and dropped.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// CPU seconds of the sweep's thread.
    pub cpu_s: f64,
    /// Seconds of the clock that it took.
    pub wall_s: f64,
    /// Bytes of the pair.
    pub bytes: u64,
    /// What the process held more in memory, bytes, with the pair.
    pub resident_added_bytes: i64,
    /// The same after the pair was freed.
    pub resident_left_bytes: i64,
    /// Microseconds to unpublish both layers.
    pub unpublish_us: f64,
    /// Microseconds to free them, after the last reader had left.
    pub free_us: f64,
}

/// Response times of one kind of query.
#[derive(Clone, Debug, Serialize)]
pub struct Times {
    /// What was asked.
    pub query: Query,
    /// How many.
    pub count: u64,
    /// Their median, microseconds.
    pub us_p50: f64,
    /// Their 99th percentile.
    pub us_p99: f64,
    /// Their 99.9th percentile.
    pub us_p999: f64,
}

/// Throughput of one kind of query, one thread, over time.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What was asked.
    pub query: Query,
    /// Length of a window, seconds.
    pub window_s: f64,
    /// Queries/s of the windows before the pair was marked.
    pub before_per_s: Vec<f64>,
    /// Those after.
    pub after: Vec<Window>,
    /// Queries/s with the same pair whole.
    pub whole_per_s: Vec<f64>,
}

/// A window of a curve.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Window {
    /// Its end, seconds after the mark.
    pub at_s: f64,
    /// Queries/s.
    pub per_s: f64,
    /// Share of the SA layer's values that are known at its end.
    pub known_sa: f64,
    /// The same of the ISA layer.
    pub known_isa: f64,
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
