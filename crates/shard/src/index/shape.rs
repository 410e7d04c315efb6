//! The sections of an index: their names, and the numbers that determine their sizes.

use std::ops::Range;

use super::block::ROWS;
use crate::bits::packed::width_of;

/// Most bytes that one shard holds: rows and offsets are signed 32-bit numbers while it is built.
pub const LEN_MAX: usize = i32::MAX as usize;

/// The largest sampling rate.
pub(crate) const SAMPLING_MAX: u32 = 1 << 16;

/// Names of the index's sections.
pub(crate) mod names {
    pub const SHAPE: &str = "index";
    pub const STARTS: &str = "index.starts";
    pub const BLOCKS: &str = "psi.blocks";
    pub const OFFSETS: &str = "psi.offsets";
    pub const TOPS: &str = "psi.tops";
    pub const ISA: &str = "isa.samples";
    pub const PAIRS: &str = "pairs.rows";
    pub const PLACES: &str = "triples.places";
    pub const THIRDS: &str = "triples.symbols";
    pub const TRIPLES: &str = "triples.rows";
    pub const ALL: [&str; 10] =
        [SHAPE, STARTS, BLOCKS, OFFSETS, TOPS, ISA, PAIRS, PLACES, THIRDS, TRIPLES];
}

/// The length of the shape section before its symbols.
pub(crate) const SHAPE_BYTES: usize = 16;

/// Zero bytes after the last block, so that reads of whole words stay within the section.
pub(crate) const BLOCKS_PADDING: usize = 32;

/// The numbers that determine the sizes of all sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Length of the text in bytes.
    pub len: u32,
    pub sa_sampling: u32,
    pub isa_sampling: u32,
}

impl Shape {
    pub fn rows(self) -> u32 {
        self.len + 1
    }

    /// Width of a row in bits.
    pub fn row_width(self) -> u32 {
        width_of(self.len.into())
    }

    /// Width of a sample in bits: that of an offset divided by the sampling rate, rounded up.
    pub fn sample_width(self) -> u32 {
        width_of(self.len.div_ceil(self.sa_sampling).into())
    }

    pub fn blocks(self) -> u32 {
        self.rows().div_ceil(ROWS)
    }

    /// The number of positions that are multiples of the sampling rate of the inverse.
    pub fn isa_samples(self) -> usize {
        (self.len / self.isa_sampling) as usize + 1
    }

    pub fn to_bytes(self) -> [u8; SHAPE_BYTES] {
        let mut bytes = [0; SHAPE_BYTES];
        for (place, value) in
            bytes.chunks_exact_mut(4).zip([self.len, self.sa_sampling, self.isa_sampling])
        {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

/// The positions of the large sections in the container.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub blocks: Range<usize>,
    pub offsets: Range<usize>,
    pub tops: Range<usize>,
    pub isa: Range<usize>,
    pub pairs: Range<usize>,
    pub places: Range<usize>,
    pub thirds: Range<usize>,
    pub triples: Range<usize>,
}
