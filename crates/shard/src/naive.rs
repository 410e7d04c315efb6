//! The naive twin of the compressed index: plain bytes and a plain suffix array.
//!
//! Slow to make (`n² log n` at worst) and five to nine times the size of the text. For tests, and
//! for checking the answers of experiments.

use std::ops::Range;

use crate::error::Error;

/// A text and its suffix array, neither of them compressed. See [`crate::Text`] for an example.
#[derive(Clone, Debug)]
pub struct Text {
    bytes: Vec<u8>,
    /// The offsets of the suffixes in ascending order, the empty suffix first.
    suffixes: Vec<usize>,
}

impl Text {
    /// Sorts the suffixes of `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        let mut suffixes: Vec<usize> = (0..=bytes.len()).collect();
        suffixes.sort_unstable_by(|&a, &b| bytes[a..].cmp(&bytes[b..]));
        Self { bytes, suffixes }
    }
}

impl crate::text::Text for Text {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn rows(&self, pattern: &[u8]) -> Range<usize> {
        let start = self.suffixes.partition_point(|&offset| &self.bytes[offset..] < pattern);
        let matching = self.suffixes[start..]
            .partition_point(|&offset| self.bytes[offset..].starts_with(pattern));
        start..start + matching
    }

    fn locate(&self, rows: Range<usize>, offsets: &mut Vec<usize>) {
        offsets.extend_from_slice(&self.suffixes[rows]);
    }

    fn extract(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let range = offset.checked_add(len).and_then(|end| self.bytes.get(offset..end));
        bytes.extend_from_slice(range.ok_or(Error::OutOfRange {
            offset,
            len,
            text_len: self.bytes.len(),
        })?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text as _;

    #[test]
    fn patterns_are_found_where_they_are() {
        let text = Text::new(b"mississippi".to_vec());
        for (pattern, expected) in [
            (&b"issi"[..], &[1, 4][..]),
            (b"i", &[1, 4, 7, 10]),
            (b"mississippi", &[0]),
            (b"mississippis", &[]),
            (b"z", &[]),
        ] {
            let mut offsets = Vec::new();
            text.locate(text.rows(pattern), &mut offsets);
            offsets.sort_unstable();
            assert_eq!(offsets, expected, "{}", String::from_utf8_lossy(pattern));
        }
        assert_eq!(text.rows(b""), 0..12);
    }

    #[test]
    fn ranges_outside_the_text_are_refused() {
        let text = Text::new(b"abc".to_vec());
        let mut bytes = vec![b'-'];
        assert!(matches!(text.extract(2, 2, &mut bytes), Err(Error::OutOfRange { .. })));
        assert!(matches!(text.extract(usize::MAX, 2, &mut bytes), Err(Error::OutOfRange { .. })));
        assert!(text.extract_all(&[0..2, 1..4], &mut bytes).is_err());
        assert_eq!(bytes, b"-");
        text.extract_all(&[0..2, 3..3, 1..3], &mut bytes).unwrap();
        assert_eq!(bytes, b"-abbc");
    }
}
