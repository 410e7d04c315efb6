//! How much of an input is looked at to see its format.

use std::borrow::Cow;

use super::field::RECORD_BYTES_MAX;

/// The bytes from which the format is detected, unless records are long.
const SAMPLE_BYTES: usize = 1 << 20;
/// The most that is read to detect the format: the longest record and some others.
const SAMPLE_BYTES_MAX: usize = RECORD_BYTES_MAX + SAMPLE_BYTES;
/// Line ends in a sample that shows more than one record of most inputs.
const LINES_MIN: usize = 16;

/// The start of an input.
#[derive(Debug, Default)]
pub struct Sample {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether these are all of the input.
    pub is_whole: bool,
}

impl Sample {
    /// Reads until there are enough lines to show records. `read` makes the bytes longer, up to the length that it is given
    /// or somewhat less, and leaves them as they are at the end of the input.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn read<E>(
        mut read: impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Sample, E> {
        let mut sample = Sample::default();
        while let Some(len) = longer_sample(&sample.bytes) {
            let before = sample.bytes.len();
            read(len, &mut sample.bytes)?;
            if sample.bytes.len() == before {
                sample.is_whole = true;
                break;
            }
        }
        Ok(sample)
    }

    /// The start of a text in memory.
    pub fn of_text(text: &[u8]) -> Sample {
        let mut len = 0;
        while let Some(longer) =
            text.get(..len).and_then(longer_sample).filter(|_| len < text.len())
        {
            len = longer.min(text.len());
        }
        Sample { bytes: text.get(..len).unwrap_or_default().to_vec(), is_whole: len == text.len() }
    }

    /// The bytes, of which the last record is complete if it is the input's last: a file of two rows need not end its second.
    pub fn records(&self) -> Cow<'_, [u8]> {
        // A carriage return at the end would become a line end of another kind.
        let has_end = matches!(self.bytes.last(), None | Some(b'\n' | b'\r'));
        if self.is_whole && !has_end {
            return Cow::Owned([&self.bytes[..], b"\n"].concat());
        }
        Cow::Borrowed(&self.bytes)
    }
}

/// How long the next sample should be, if this one holds too few lines to show records: `None` once it is enough.
fn longer_sample(sample: &[u8]) -> Option<usize> {
    let mut ends = sample.iter().filter(|byte| **byte == b'\n');
    let is_enough = ends.nth(LINES_MIN - 1).is_some();
    (!is_enough && sample.len() < SAMPLE_BYTES_MAX)
        .then(|| (4 * sample.len()).clamp(SAMPLE_BYTES, SAMPLE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_grows_until_it_shows_records() {
        assert_eq!(longer_sample(b""), Some(SAMPLE_BYTES));
        assert_eq!(longer_sample("a\n".repeat(LINES_MIN).as_bytes()), None);
        let mut long = vec![b'a'; 2 * SAMPLE_BYTES];
        assert_eq!(longer_sample(&long), Some(8 * SAMPLE_BYTES));
        long.resize(SAMPLE_BYTES_MAX, b'a');
        assert_eq!(longer_sample(&long), None);
    }

    #[test]
    fn a_text_in_memory_is_looked_at_as_a_stream_is() {
        let long = "x".repeat(3 << 20) + "\n";
        for text in [String::new(), "a\nb".to_owned(), "a\n".repeat(1 << 20), long.repeat(9)] {
            let mut rest = text.as_bytes();
            let read = |len: usize, bytes: &mut Vec<u8>| {
                let (next, after) = rest.split_at(rest.len().min(len - bytes.len()));
                bytes.extend_from_slice(next);
                rest = after;
                Ok::<(), ()>(())
            };
            let streamed = Sample::read(read).unwrap();
            let sample = Sample::of_text(text.as_bytes());
            assert!(sample.bytes == streamed.bytes);
            assert_eq!(sample.records().len(), streamed.records().len());
        }
    }
}
