//! `measurements.json` as `shard-queries-bench layers` writes it.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// All that was measured.
#[derive(Debug, Deserialize)]
pub struct Measurements {
    /// One for each text.
    pub datasets: Vec<Dataset>,
}

/// What was measured on one text.
#[derive(Debug, Deserialize)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
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
    /// The same while queries ran.
    pub meanwhile: Vec<Changed>,
    /// Response times without a change, before, between and after those of `disturbed`.
    pub undisturbed: Vec<Vec<Times>>,
    /// Response times meanwhile.
    pub disturbed: Vec<Vec<Times>>,
    /// Throughput of queries that fill a marked pair.
    pub curves: Vec<Curve>,
}

/// A pair that was added by a sweep and dropped.
#[derive(Debug, Deserialize)]
pub struct Changed {
    /// CPU seconds of the sweep's thread.
    pub cpu_s: f64,
    /// Bytes of the pair.
    pub bytes: u64,
    /// What the process held more in memory with the pair, bytes.
    pub resident_added_bytes: f64,
    /// The same after the pair was freed.
    pub resident_left_bytes: f64,
    /// Microseconds to unpublish both layers.
    pub unpublish_us: f64,
    /// Microseconds to free them.
    pub free_us: f64,
}

/// Response times of one kind of query, microseconds.
#[derive(Debug, Deserialize)]
pub struct Times {
    /// What was asked.
    pub query: Query,
    /// Their 99th percentile.
    pub us_p99: f64,
}

/// Throughput of one kind of query over time.
#[derive(Debug, Deserialize)]
pub struct Curve {
    /// What was asked.
    pub query: Query,
    /// Length of a window, seconds.
    pub window_s: f64,
    /// Queries/s of the windows before the mark.
    pub before_per_s: Vec<f64>,
    /// Those after.
    pub after: Vec<Window>,
    /// Queries/s with the same pair whole.
    pub whole_per_s: Vec<f64>,
}

/// A window of a curve.
#[derive(Debug, Deserialize)]
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

/// A kind of query that reads layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Query {
    /// 64 bytes from an offset.
    #[serde(rename = "extract-64")]
    Extract64,
    /// 1024 bytes from an offset.
    #[serde(rename = "extract-1024")]
    Extract1024,
    /// Where a pattern occurs.
    #[serde(rename = "search")]
    Search,
}

impl Query {
    /// All of them.
    pub const ALL: [Query; 3] = [Query::Search, Query::Extract64, Query::Extract1024];

    /// Its name for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Query::Extract64 => "extract 64 B",
            Query::Extract1024 => "extract 1 KiB",
            Query::Search => "search",
        }
    }
}

impl Measurements {
    /// Reads `measurements.json` of a folder.
    pub fn read(folder: &Path) -> anyhow::Result<Measurements> {
        let path = folder.join("measurements.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let measured: Measurements = serde_json::from_str(&text)
            .with_context(|| format!("{} is not as expected", path.display()))?;
        ensure!(!measured.datasets.is_empty(), "{}: no dataset was measured", path.display());
        Ok(measured)
    }
}

impl Dataset {
    /// For each round, the 99th percentile of a kind of query while layers change over the mean of those
    /// before and after it. Empty where it was not measured.
    pub fn p99_ratios(&self, query: Query) -> Vec<f64> {
        let p99 = |times: &Vec<Times>| {
            times.iter().find(|times| times.query == query).map(|times| times.us_p99)
        };
        let ratio = |(times, around): (&Vec<Times>, &[Vec<Times>])| {
            let [before, after] = around else { return None };
            Some(2.0 * p99(times)? / (p99(before)? + p99(after)?))
        };
        self.disturbed.iter().zip(self.undisturbed.windows(2)).filter_map(ratio).collect()
    }
}

impl Curve {
    /// For each of the last windows after the mark, as many as there are before it, its throughput over
    /// that of a window before.
    pub fn gains(&self) -> Vec<f64> {
        let last = self.after.len().saturating_sub(self.before_per_s.len());
        let after = self.after.iter().skip(last);
        after.zip(&self.before_per_s).map(|(after, before)| after.per_s / before).collect()
    }

    /// The same of the windows with the whole pair.
    pub fn gains_whole(&self) -> Vec<f64> {
        self.whole_per_s
            .iter()
            .zip(&self.before_per_s)
            .map(|(whole, before)| whole / before)
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two rounds of a pair of 1 MB that takes 3.3 CPU s on 110 MB, and one curve.
    pub fn dataset() -> Dataset {
        let changed = |unpublish_us: f64| Changed {
            cpu_s: 3.3,
            bytes: 1_000_000,
            resident_added_bytes: 1_000_000.0,
            resident_left_bytes: 5_000.0,
            unpublish_us,
            free_us: 300.0,
        };
        let times = |us_p99: f64| vec![Times { query: Query::Search, us_p99 }];
        let window = |at_s: f64, per_s: f64| Window { at_s, per_s, known_sa: 0.1, known_isa: 0.2 };
        Dataset {
            name: "d".into(),
            bytes: 110_000_000,
            index_bytes: 60_000_000,
            sampling: [64, 64],
            swept: [16, 16],
            marked: [8, 8],
            sweep_share: 0.5,
            alone: vec![changed(4.0), changed(5.0)],
            meanwhile: vec![changed(4.0), changed(90.0)],
            undisturbed: vec![times(100.0), times(300.0), times(200.0)],
            disturbed: vec![times(300.0), times(250.0)],
            curves: vec![Curve {
                query: Query::Search,
                window_s: 1.0,
                before_per_s: vec![10.0, 20.0],
                after: vec![window(1.0, 15.0), window(2.0, 20.0), window(3.0, 60.0)],
                whole_per_s: vec![40.0, 80.0],
            }],
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_gains_at_the_end() {
        let dataset = dataset();
        assert_eq!(dataset.p99_ratios(Query::Search), [1.5, 1.0]);
        assert!(dataset.p99_ratios(Query::Extract64).is_empty());
        assert_eq!(dataset.curves[0].gains(), [2.0, 3.0]);
        assert_eq!(dataset.curves[0].gains_whole(), [4.0, 4.0]);
    }
}
