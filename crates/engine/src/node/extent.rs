//! Which bytes a reader takes, and which of a record a device is asked for.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// What a reader takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Take {
    /// All bytes at once.
    #[default]
    Whole,
    /// All bytes, as they are read.
    Pieces,
    /// Some bytes, as they are read.
    Part(Part),
}

/// A part of an object whose size is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// None of its bytes: its metadata alone.
    Metadata,
    /// From one byte to another, both included, or to the end.
    Bytes {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: Option<u64>,
    },
    /// So many at the end.
    Last(u64),
}

impl Part {
    /// The part of an object of `size` bytes; empty if it has none of these bytes.
    pub fn range_in(&self, size: u64) -> Range<u64> {
        match *self {
            Part::Metadata => 0..0,
            Part::Last(count) => size.saturating_sub(count)..size,
            Part::Bytes { first, last } => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                first.min(end)..end
            }
        }
    }
}

/// What [`Action::Read`](super::Action::Read) reads of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// All of it.
    #[default]
    Record,
    /// What precedes the object, and the object's first bytes or those of a part. A record that can
    /// only be verified as a whole is read as a whole.
    First {
        /// Maximum bytes of the object, but at least one block.
        bytes: u64,
        /// The part; `None`: the whole object.
        part: Option<Part>,
    },
    /// What follows the bytes that this job has read.
    Next {
        /// Maximum bytes, but at least one block.
        bytes: u64,
    },
}
