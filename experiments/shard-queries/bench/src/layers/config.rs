//! `config.toml` of `experiments/shard-layers`, read and checked.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use shard::layers::Rates;

use crate::config::{Dataset, Draw};

/// What is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Folder of the datasets' files, from the experiment's.
    pub data: PathBuf,
    /// The texts.
    pub dataset: Vec<Dataset>,
    /// Different offsets to extract from.
    pub extracts: usize,
    /// Different patterns to search.
    pub patterns: usize,
    /// Patterns of a block.
    pub block: usize,
    /// Most hits of a pattern.
    pub hits_max: usize,
    /// Mean hits of a pattern.
    pub hits_mean: usize,
    /// Most bytes of a pattern.
    pub pattern_bytes_max: usize,
    /// Sampling rates (SA, ISA) of the shard itself.
    pub sampling: [u32; 2],
    /// Rates (SA, ISA) of the pair that a sweep adds.
    pub swept: [u32; 2],
    /// Rates (SA, ISA) of the pair that is marked for queries to fill.
    pub marked: [u32; 2],
    /// Times that a pair is added and dropped alone, and again while queries run.
    pub rounds: usize,
    /// Share of a processor that a sweep takes at most while queries run.
    pub sweep_share: f64,
    /// Segments of a sweep between two looks at the clock then.
    pub step_segments: usize,
    /// Length of a stretch of queries alone, seconds.
    pub alone_s: f64,
    /// Exponent of the popularity of queries that fill a marked pair.
    pub zipf: f64,
    /// Length of a window of the curve, seconds.
    pub window_s: f64,
    /// Windows before the pair is marked, and again with the same pair whole.
    pub windows_before: usize,
    /// Windows after it was marked.
    pub windows_after: usize,
    /// What `--short` measures.
    pub short: Short,
}

/// The part of the measurement that takes five minutes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Short {
    /// Name of the one dataset.
    pub dataset: String,
    /// Rounds.
    pub rounds: usize,
    /// Windows after the mark.
    pub windows_after: usize,
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// If it cannot be read, is not as expected, or asks for what cannot be measured.
    pub fn read(path: &Path) -> anyhow::Result<Config> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let config: Config = toml::from_str(&text)
            .with_context(|| format!("{} is not as expected", path.display()))?;
        config.check().with_context(|| format!("{} is not as expected", path.display()))?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        let positive = [self.extracts, self.patterns, self.block, self.hits_mean];
        ensure!(positive.iter().all(|&n| n > 0), "a number of queries or hits is 0");
        ensure!(self.hits_mean <= self.hits_max, "hits_mean is above hits_max");
        ensure!(self.sampling.iter().all(|&rate| rate > 0), "sampling: a rate is 0");
        let share = self.sweep_share;
        ensure!(share > 0.0 && share <= 1.0, "sweep_share: {share} is not in 0 … 1");
        ensure!(self.step_segments > 0, "step_segments is 0");
        for (name, seconds) in [("alone_s", self.alone_s), ("window_s", self.window_s)] {
            ensure!(seconds > 0.0 && seconds <= 600.0, "{name} is not in 0 … 600");
        }
        ensure!(self.zipf > 0.0 && self.zipf <= 3.0, "zipf is not in 0 … 3");
        let rounds = self.rounds.min(self.short.rounds).min(self.windows_before);
        ensure!(rounds > 1, "rounds, windows_before: an interval needs two at least");
        let after = self.windows_after.min(self.short.windows_after);
        ensure!(after >= self.windows_before, "windows_after is below windows_before");
        Ok(())
    }

    /// What queries are drawn.
    pub fn draw(&self) -> Draw {
        let Config { extracts, patterns, block, hits_max, hits_mean, pattern_bytes_max, .. } =
            *self;
        Draw { extracts, patterns, block, hits_max, hits_mean, pattern_bytes_max }
    }

    /// The configuration of `--short`.
    ///
    /// # Errors
    /// If the dataset is unknown.
    pub fn shortened(mut self) -> anyhow::Result<Config> {
        self.dataset.retain(|dataset| dataset.name == self.short.dataset);
        ensure!(!self.dataset.is_empty(), "config.toml has no dataset {}", self.short.dataset);
        (self.rounds, self.windows_after) = (self.short.rounds, self.short.windows_after);
        Ok(self)
    }
}

/// One layer of each array.
pub fn rates([sa, isa]: [u32; 2]) -> Rates {
    Rates { sa: vec![sa], isa: vec![isa] }
}
