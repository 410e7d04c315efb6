//! `experiments/shard-peers/config.toml`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Folder of the texts, relative to the experiment's folder.
    pub data: PathBuf,
    /// The experiment that generates others.
    pub generated: PathBuf,
    rounds: u32,
    /// The queries of a cell are repeated until they took this many seconds in total.
    pub slice_s: f64,
    /// Largest number of repetitions.
    pub repeats_max: u32,
    /// Seed for drawing queries.
    pub seed: u64,
    /// Number of records that match a query of each class.
    pub classes: PerClass<(u64, u64)>,
    questions: PerClass<usize>,
    short: Short,
    /// Our datasets.
    pub shard: Vec<ShardForm>,
    /// The packages of the peers.
    pub peers: Packages,
    /// The texts.
    pub text: Vec<TextConfig>,
    /// The goals.
    pub goals: Goals,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    rounds: u32,
    questions: PerClass<usize>,
}

/// A value for each class of queries.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerClass<T> {
    rare: T,
    medium: T,
    frequent: T,
}

/// The class of a query: the number of records that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A few.
    Rare,
    /// Some hundreds.
    Medium,
    /// Thousands.
    Frequent,
}

/// One of our datasets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardForm {
    /// Its name in tables.
    pub name: String,
    /// Sampling rates for searching and for reading.
    pub sampling: (u32, u32),
    /// Whether it also builds a text layer in memory when it is opened.
    #[serde(default)]
    pub text_layer: bool,
}

/// Packages to install.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// From PyPI.
    pub python: Vec<String>,
}

/// A text and the queries on it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// Its name in tables.
    pub name: String,
    /// Its compressed file; without one the text is TPC-H's lineitem.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Bytes of lineitem.
    #[serde(default)]
    pub lineitem_bytes: u64,
    /// `stanzas`, `csv`, `lines` or `json` (an object to a line).
    pub format: String,
    /// The attribute that serves as the key.
    #[serde(default)]
    pub key: Option<String>,
    /// Attributes that are searched by their whole value.
    pub equals: Vec<String>,
    /// Attributes that are searched by a word of their value.
    pub contains: Vec<String>,
    /// Regular expressions that are searched for.
    pub regexes: Vec<String>,
}

/// The goals; `config.toml` explains each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub disk_max: f64,
    pub memory_max: f64,
    pub substring_index_over_ours_min: f64,
    pub ripgrep_over_library_min: f64,
    pub ripgrep_over_command_min: f64,
    pub zstd_ripgrep_over_command_min: f64,
    pub trigram_over_library_min: f64,
    pub count_ripgrep_over_library_min: f64,
    pub build_over_trigram_max: f64,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 3] = [Class::Rare, Class::Medium, Class::Frequent];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Rare => "rare",
            Class::Medium => "medium",
            Class::Frequent => "frequent",
        }
    }
}

impl<T: Copy> PerClass<T> {
    /// The value for a class.
    pub fn for_class(&self, class: Class) -> T {
        match class {
            Class::Rare => self.rare,
            Class::Medium => self.medium,
            Class::Frequent => self.frequent,
        }
    }
}

impl Config {
    /// Rounds that are timed.
    pub fn rounds(&self, short: bool) -> u32 {
        if short { self.short.rounds } else { self.rounds }
    }

    /// Number of different queries of a kind and class.
    pub fn questions(&self, short: bool) -> &PerClass<usize> {
        if short { &self.short.questions } else { &self.questions }
    }

    /// The class of a query by the number of records that match it.
    pub fn class_of(&self, records: u64) -> Option<Class> {
        Class::ALL.into_iter().find(|class| {
            let (from, to) = self.classes.for_class(*class);
            RangeInclusive::new(from, to).contains(&records)
        })
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// If a setting is invalid or contradicts another.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.rounds.min(self.short.rounds) >= 2, "an interval takes two rounds or more");
        ensure!(!self.shard.is_empty() && !self.text.is_empty(), "there is nothing to measure");
        for text in &self.text {
            let known = ["stanzas", "csv", "lines", "json"].contains(&text.format.as_str());
            ensure!(known, "text {}: the format is stanzas, csv, lines or json", text.name);
            let has_attributes = ["stanzas", "csv"].contains(&text.format.as_str());
            ensure!(
                has_attributes || text.equals.is_empty() && text.contains.is_empty(),
                "text {}: only attributes of stanzas and csv are asked for",
                text.name
            );
            ensure!(
                text.file.is_some() != (text.lineitem_bytes > 0),
                "text {}: it has either a file or lineitem_bytes",
                text.name
            );
            let key = text.key.as_ref();
            ensure!(
                key.is_none_or(|key| text.equals.contains(key)),
                "text {}: the key is one of the attributes of `equals`",
                text.name
            );
        }
        Ok(())
    }
}
