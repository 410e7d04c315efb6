//! What a split and its parts say of themselves.

use std::path::PathBuf;

use serde::Serialize;
use shard::record::Schema;

/// The most parts: as many as a dataset has shards.
pub const PARTS_MAX: usize = 100_000;

/// How an input is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSize {
    /// Into this many parts.
    Count(usize),
    /// Into parts of about this many bytes.
    Bytes(u64),
}

/// What a split says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SplitSummary {
    /// The number of parts, numbered from 0.
    pub parts: usize,
    /// Bytes of the input.
    pub bytes: u64,
    /// Bytes of the largest part.
    pub part_bytes_max: u64,
    /// The format of the records.
    pub schema: Schema,
    /// Why it has this format.
    pub because: String,
    /// What to look at where the format is a mere fallback.
    pub warning: Option<String>,
    /// The folder of the parts.
    pub folder: PathBuf,
}

/// A part that is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuiltPart {
    /// Its number, from 0.
    pub part: usize,
    /// The number of all parts.
    pub parts: usize,
    /// Its records; 0 also of a part without bytes, which has no shard.
    pub records: u64,
    /// Bytes of its input.
    pub input_bytes: u64,
    /// Bytes of its shard.
    pub shard_bytes: u64,
    /// Malformed records, kept as text without attributes.
    pub bad: u64,
    /// Whether it had been built before.
    pub was_built: bool,
}
