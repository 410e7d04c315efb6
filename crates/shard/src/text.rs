//! The interface of a searchable text, implemented by the compressed index and by its naive twin.

use std::ops::Range;

use crate::error::Error;

/// A text of bytes that can be searched and read, independent of how it is stored.
///
/// A *row* is an index into the text's suffix array: the suffixes in ascending order of their
/// bytes, the empty suffix first, so that a text of `n` bytes has `n + 1` rows and row 0 is the
/// empty suffix. All suffixes that start with a pattern are adjacent rows.
///
/// ```
/// use shard::{Text, naive};
///
/// let text = naive::Text::new(b"banana".to_vec());
/// let rows = text.rows(b"ana");
/// assert_eq!(rows.len(), 2);
/// let mut offsets = Vec::new();
/// text.locate(rows, &mut offsets);
/// offsets.sort_unstable();
/// assert_eq!(offsets, [1, 3]);
/// ```
pub trait Text {
    /// Length of the text, in bytes.
    fn len(&self) -> usize;

    /// Whether the text has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows whose suffixes start with `pattern`: empty if it does not occur, and all rows
    /// (`0..len + 1`) for the empty pattern.
    fn rows(&self, pattern: &[u8]) -> Range<usize>;

    /// [`rows`](Text::rows) of many patterns, which is faster in one call than in many.
    fn rows_of_all(&self, patterns: &[&[u8]]) -> Vec<Range<usize>> {
        patterns.iter().map(|pattern| self.rows(pattern)).collect()
    }

    /// Appends the offset in the text of each row, in the order of the rows.
    ///
    /// # Panics
    ///
    /// If a row is past `len`: rows come from [`rows`](Text::rows) of the same text.
    fn locate(&self, rows: Range<usize>, offsets: &mut Vec<usize>);

    /// The number of occurrences of `pattern`, including overlapping ones.
    fn count(&self, pattern: &[u8]) -> usize {
        self.rows(pattern).len()
    }

    /// Appends `len` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the range is not within the text; nothing is appended then.
    fn extract(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) -> Result<(), Error>;

    /// [`extract`](Text::extract) of many ranges, concatenated.
    ///
    /// # Errors
    ///
    /// As [`extract`](Text::extract), of the first range that is not within the text.
    fn extract_all(&self, ranges: &[Range<usize>], bytes: &mut Vec<u8>) -> Result<(), Error> {
        let start = bytes.len();
        for range in ranges {
            if let Err(error) = self.extract(range.start, range.len(), bytes) {
                bytes.truncate(start);
                return Err(error);
            }
        }
        Ok(())
    }
}
