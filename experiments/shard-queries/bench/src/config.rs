//! `config.toml` of the experiment, read and checked.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::ours::Point;

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
    /// Different patterns to count and search.
    pub patterns: usize,
    /// Patterns of a block; a multiple of this many is measured at once.
    pub block: usize,
    /// Most hits of a pattern.
    pub hits_max: usize,
    /// Mean hits of a pattern.
    pub hits_mean: usize,
    /// Most bytes of a pattern.
    pub pattern_bytes_max: usize,
    /// Queries of a batch, beside one at a time.
    pub batch: usize,
    /// Length of a timed stretch of queries, seconds.
    pub slice_s: f64,
    /// Times that everything is measured.
    pub rounds: usize,
    /// Drift of the ceiling within a round that is let pass, as a share.
    pub drift_max: f64,
    /// Rounds that are measured again because of it, at most.
    pub rounds_again_max: usize,
    /// Sampling rates (SA, ISA) of our index, one for each point.
    pub sampling: Vec<[u32; 2]>,
    /// Points that have a text layer too.
    pub text_layer: Vec<TextPoint>,
    /// The rivals' choices.
    pub rivals: Rivals,
    /// What `--short` measures.
    pub short: Short,
}

/// A point of our index with a text layer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextPoint {
    /// Sampling rate of the suffix array.
    pub sa: u32,
    /// Sampling rate of its inverse.
    pub isa: u32,
    /// Bytes of the layer at most, × the text's; without it has the whole text.
    pub most: Option<f64>,
}

/// What queries are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// Different offsets to extract from.
    pub extracts: usize,
    /// Different patterns to count and search.
    pub patterns: usize,
    /// Patterns of a block, which all have nearly the same hits.
    pub block: usize,
    /// Most hits of a pattern.
    pub hits_max: usize,
    /// Mean hits of a pattern.
    pub hits_mean: usize,
    /// Most bytes of a pattern.
    pub pattern_bytes_max: usize,
}

/// A text: files one after the other, or a table of TPC-H.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Its files, compressed by zstd.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// The scale factor of a TPC-H lineitem table (about 750 MB at 1).
    #[serde(default)]
    pub lineitem_scale: f64,
}

/// What sdsl-lite's indexes are tuned from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rivals {
    /// Values of Ψ between two that csa_sada stores in full: the densities to choose from.
    pub psi_densities: Vec<u32>,
    /// Share of the samples' bytes that go to the array that a configuration favours.
    pub share: f64,
    /// csa_wt is measured at points with a footprint below this, × input.
    pub wavelet_below: f64,
    /// Largest distance of two samples.
    pub sampling_max: u32,
}

/// The part of the measurement that takes five minutes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Short {
    /// Name of the one dataset.
    pub dataset: String,
    /// Its points.
    pub sampling: Vec<[u32; 2]>,
    /// Its points with a text layer.
    pub text_layer: Vec<TextPoint>,
    /// Ψ densities to choose from.
    pub psi_densities: Vec<u32>,
    /// Rounds.
    pub rounds: usize,
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
        let positive = [self.extracts, self.patterns, self.block, self.batch, self.hits_mean];
        ensure!(positive.iter().all(|&n| n > 0), "a number of queries or hits is 0");
        ensure!(self.patterns.is_multiple_of(self.block), "patterns: not a multiple of block");
        ensure!(self.hits_mean <= self.hits_max, "hits_mean is above hits_max");
        ensure!(self.slice_s > 0.0 && self.slice_s <= 60.0, "slice_s is not in 0 … 60");
        let share = self.rivals.share;
        ensure!((0.5..1.0).contains(&share), "rivals.share: {share} is not in 0.5 … 1");
        let densities = self.rivals.psi_densities.iter().chain(&self.short.psi_densities);
        ensure!(densities.clone().all(|&d| d > 1), "psi_densities: give numbers above 1");
        ensure!(densities.count() > 0, "psi_densities: give at least one");
        let mut rates = self.sampling.iter().chain(&self.short.sampling).flatten();
        ensure!(rates.all(|&rate| rate > 0), "sampling: a rate is 0");
        for point in self.text_layer.iter().chain(&self.short.text_layer) {
            ensure!(point.sa > 0 && point.isa > 0, "text_layer: a rate is 0");
            ensure!(point.most.is_none_or(|most| most > 0.0), "text_layer: most is not above 0");
        }
        ensure!(self.rivals.sampling_max > 0, "rivals.sampling_max is 0");
        Ok(())
    }

    /// What queries are drawn.
    pub fn draw(&self) -> Draw {
        let Config { extracts, patterns, block, hits_max, hits_mean, pattern_bytes_max, .. } =
            *self;
        Draw { extracts, patterns, block, hits_max, hits_mean, pattern_bytes_max }
    }

    /// All points of our index.
    pub fn points(&self) -> Vec<Point> {
        let sampled = self.sampling.iter().map(|&[sa, isa]| Point { sa, isa, text_layer: None });
        let with_text = self.text_layer.iter().map(|&TextPoint { sa, isa, most }| Point {
            sa,
            isa,
            text_layer: Some(most.unwrap_or(f64::INFINITY)),
        });
        sampled.chain(with_text).collect()
    }

    /// The configuration of `--short`.
    ///
    /// # Errors
    /// If the dataset is unknown.
    pub fn shortened(mut self) -> anyhow::Result<Config> {
        self.dataset.retain(|dataset| dataset.name == self.short.dataset);
        ensure!(!self.dataset.is_empty(), "there is no dataset {}", self.short.dataset);
        self.sampling.clone_from(&self.short.sampling);
        self.text_layer.clone_from(&self.short.text_layer);
        self.rivals.psi_densities.clone_from(&self.short.psi_densities);
        self.rounds = self.short.rounds;
        Ok(self)
    }
}
