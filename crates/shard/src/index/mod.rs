//! The compressed suffix array: stores a text in less space than the plain text, searchable and
//! readable.
//!
//! All operations use Ψ, the permutation from the row of a suffix to the row of the suffix one byte
//! shorter: a walk along Ψ spells the text. Sources: Grossi and Vitter (2000); Sadakane (2003), for
//! the backward search. This implementation stores run heads and Elias–Fano coded jumps in blocks
//! of 128 rows (`block`), with a directory that costs no further cache miss (`psi`).
//!
//! - **count** ([`Text::rows`]): looks the last three bytes of a pattern up in a table (`grams`),
//!   then takes one step per further byte, each of one or two binary searches of Ψ (`count`).
//! - **locate**: walks from each row along Ψ to the next marked one, in less than `sa_sampling`
//!   steps; rows that stay adjacent walk together (`locate`).
//! - **extract**: walks from the nearest sampled position at or before the first byte, one step per
//!   byte, with a separate walk for every stretch between samples (`extract`).
//!
//! **Cost.** A step of Ψ costs one cache miss. The walks of a query are independent, so up to 32 of
//! them run in turn as *lanes*, and the memory of a lane's next step is prefetched while the others
//! take theirs: even a single query overlaps its cache misses. [`Index::footprint`] returns the
//! size. 50 MB of Debian package records take 0.38 of their size for Ψ, its directory and the
//! tables, and `3.7/sa_sampling` and `3.3/isa_sampling` of it for the samples: 0.596 with both
//! rates 32, 0.432 with 128.
//!
//! **When not to use it.** For text that fits into memory uncompressed and is scanned anyway; for
//! incompressible bytes (it takes 1.6 times their size); for inputs of 2 GiB or more, which must be
//! split.
//!
//! Layers ([`crate::layers`]) make it faster while memory allows. Every look-up tries them first.

mod block;
#[cfg(test)]
mod block_tests;
mod build;
mod bulk;
mod count;
mod extract;
mod footprint;
mod grams;
mod locate;
mod open;
mod parts;
mod psi;
mod shape;
mod state;
#[cfg(test)]
mod tests;
mod work;

use std::ops::Range;

pub(crate) use build::write_sections;
pub use build::{Options, Progress, Report, build, build_memory_bytes};
pub use footprint::Footprint;
pub use shape::LEN_MAX;
pub use state::Index;
pub use work::Work;

use crate::error::Error;
use crate::format::Reader;
use crate::layers::Layers;
use crate::text::Text;

impl Index {
    /// Opens a shard and verifies every byte of it: a memory map, or a `Vec` that was read whole.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] if it is not a shard of this version, or not whole;
    /// [`Error::Checksum`] if a section is not what was written; [`Error::Damaged`] if its sections
    /// do not fit one another.
    pub fn open(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Error> {
        Self::from_container(Reader::open(bytes)?)
    }

    /// Opens a shard without reading all of it: for one that was just written, or that is verified
    /// later by `Reader::verify`. Damaged bytes then give wrong answers, but cannot do worse.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for the checksums.
    pub fn open_unchecked(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Error> {
        Self::from_container(Reader::open_unchecked(bytes)?)
    }

    /// The container, for sections that are not the index's own.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The layers that this index asks before it walks.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The work of all queries since the index was opened.
    pub fn work(&self) -> Work {
        self.work.read()
    }

    /// The bytes that queries have extracted of each region of the text ([`crate::layers::Regions`]) since the index was opened.
    pub fn reads(&self) -> Vec<u64> {
        self.reads.read()
    }

    /// Offsets in the text that are multiples of this are sampled: a walk from any row to one of
    /// them takes fewer steps.
    pub fn sa_sampling(&self) -> u32 {
        self.shape.sa_sampling
    }

    /// The rows of the offsets that are multiples of this are stored.
    pub fn isa_sampling(&self) -> u32 {
        self.shape.isa_sampling
    }

    /// Appends the offsets of the rows of all ranges, one range after the other: faster than one by
    /// one.
    ///
    /// # Panics
    ///
    /// If a row is past the length of the text.
    pub fn locate_all(&self, rows: &[Range<usize>], offsets: &mut Vec<usize>) {
        locate::locate(self, rows, offsets);
    }

    /// Answers with portable code, for tests that both ways of computing agree.
    #[cfg(test)]
    fn portable(mut self) -> Self {
        self.kernel = crate::bits::word::Kernel::portable();
        self
    }
}

impl Text for Index {
    fn len(&self) -> usize {
        self.shape.len as usize
    }

    fn rows(&self, pattern: &[u8]) -> Range<usize> {
        let mut rows = 0..0;
        count::rows(self, &[pattern], |_, found| rows = found);
        rows
    }

    fn rows_of_all(&self, patterns: &[&[u8]]) -> Vec<Range<usize>> {
        let mut rows = vec![0..0; patterns.len()];
        count::rows(self, patterns, |index, found| rows[index] = found);
        rows
    }

    fn locate(&self, rows: Range<usize>, offsets: &mut Vec<usize>) {
        locate::locate(self, std::slice::from_ref(&rows), offsets);
    }

    fn extract(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let error = Error::OutOfRange { offset, len, text_len: self.len() };
        let range = offset..offset.checked_add(len).ok_or(error)?;
        self.extract_all(std::slice::from_ref(&range), bytes)
    }

    fn extract_all(&self, ranges: &[Range<usize>], bytes: &mut Vec<u8>) -> Result<(), Error> {
        extract::extract(self, ranges, bytes)
    }
}
