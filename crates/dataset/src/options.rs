//! The options of an import.

use shard::index;
use shard::record::Format;
use shard::record::detect::{Header, Hints};

/// The options of an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format of the records; detected from the first ones if `None`.
    pub format: Option<Format>,
    /// Whether the first row of a table is a header.
    pub header: Header,
    /// Names of the columns of a table, instead of those in a header.
    pub columns: Vec<String>,
    /// The attribute that identifies records.
    pub key: Option<String>,
    /// Attributes with a sorted table for queries of number ranges.
    pub orders: Vec<String>,
    /// Sampling rates of the index.
    pub index: index::Options,
    /// Input bytes per shard; if `None`, 256 MiB or as much as the memory allows.
    pub shard_bytes: Option<usize>,
    /// Shards built concurrently; if `None`, one per core or as many as the memory allows.
    pub jobs: Option<usize>,
    /// Memory limit of the process; half of the available memory if `None`.
    pub memory_bytes: Option<usize>,
    /// Whether an existing dataset of the name is replaced.
    pub replace: bool,
}

impl Options {
    /// What they say of the format.
    pub(super) fn hints(&self) -> Hints {
        Hints { format: self.format, header: self.header, columns: self.columns.clone() }
    }
}
