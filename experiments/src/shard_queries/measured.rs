//! `measurements.json` as `shard-queries-bench` writes it.

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
    /// Mean hits of a pattern.
    pub hits_mean: f64,
    /// Accesses to memory per second.
    pub ceiling: Vec<Rates>,
    /// Every index.
    pub engines: Vec<Engine>,
}

/// What was measured of one index.
#[derive(Debug, Deserialize)]
pub struct Engine {
    /// `shard`, or the rival's index.
    pub index: String,
    /// Its parameters in words.
    pub parameters: String,
    /// What it holds, × input.
    pub footprint: f64,
    /// Queries/s.
    pub rates: Vec<Rates>,
}

/// Queries per second of one kind.
#[derive(Debug, Deserialize)]
pub struct Rates {
    /// Asked.
    pub query: Query,
    /// So many at a time.
    pub batch: usize,
    /// Queries/s of each round.
    pub per_s: Vec<f64>,
}

/// A kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Query {
    /// 64 bytes from an offset.
    #[serde(rename = "extract-64")]
    Extract64,
    /// 1024 bytes from an offset.
    #[serde(rename = "extract-1024")]
    Extract1024,
    /// How often a pattern occurs.
    #[serde(rename = "count")]
    Count,
    /// Where a pattern occurs.
    #[serde(rename = "search")]
    Search,
    /// A dependent access to memory: the ceiling.
    #[serde(rename = "access")]
    Access,
}

impl Query {
    /// All queries that an index answers.
    pub const ALL: [Query; 4] = [Query::Extract64, Query::Extract1024, Query::Count, Query::Search];

    /// Its name for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Query::Extract64 => "extract 64 B",
            Query::Extract1024 => "extract 1 KiB",
            Query::Count => "count",
            Query::Search => "search",
            Query::Access => "access",
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

impl Engine {
    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        self.index == "shard"
    }

    /// Queries/s of each round.
    pub fn rounds(&self, query: Query, batch: usize) -> Option<&[f64]> {
        let rates = self.rates.iter().find(|r| r.query == query && r.batch == batch)?;
        Some(&rates.per_s)
    }

    /// Mean queries/s.
    pub fn mean(&self, query: Query, batch: usize) -> Option<f64> {
        let rounds = self.rounds(query, batch).filter(|rounds| !rounds.is_empty())?;
        Some(rounds.iter().sum::<f64>() / rounds.len() as f64)
    }
}
