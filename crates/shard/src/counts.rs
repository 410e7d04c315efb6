//! In how many records the frequent strings of a text are: short strings, and words, those with a list of their records
//! ([`words`](super::words)) included, because a list takes a millisecond to decode.
//!
//! An index counts occurrences at once, but to count the records that hold a string with 30,000 occurrences it locates each:
//! 40 ms, for an answer of four bytes. A list of these records takes ten kilobytes, so that only few strings can have one;
//! their number can be kept for all strings that would take longer than half a millisecond. Every string of one or two bytes
//! is counted: `5` is in nearly each record with a number, whether it occurs as a word or not.
//!
//! A second section of the same form has the numbers of records that hold a *whole word*, `cat` but not `category`. These may be
//! few where the word is a part of many others, and each occurrence of those would be located, and looked at.
//!
//! Encoded as: version (4), number of strings (4), for each string the end of its bytes (4), for each string its records (4),
//! then the strings, ascending; numbers little-endian. Read in place, by binary search: opening a shard checks it once, and
//! allocates nothing.

use crate::bits::load::u32_at;
use crate::boundary::{is_of_words, is_whole};
use crate::error::Error;
use crate::record::Records;

/// The version of the encoding.
const VERSION: u32 = 1;
/// The name of the section.
pub(crate) const SECTION: &str = "counts";
/// The name of the section with whole words.
pub(crate) const WHOLE_SECTION: &str = "whole-counts";
/// The least number of occurrences of a string that is counted: as many are located in a quarter of a millisecond.
pub(crate) const OCCURRENCES_MIN: usize = 256;
/// The section takes at most one byte for this many of the text.
const BYTES_ONE_IN: usize = 256;
/// Of a short text, up to this many bytes if they are a 64th of it.
const BYTES_MIN: usize = 32 << 10;
/// Bytes before the table.
const HEADER_BYTES: usize = 8;
/// Bytes of a string's entries, besides the string.
const ENTRY_BYTES: usize = 8;

/// A string with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub bytes: Box<[u8]>,
    pub occurrences: usize,
    pub records: u32,
}

/// The numbers of records of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts<'a> {
    strings: usize,
    ends: &'a [u8],
    records: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Counts<'a> {
    /// The parts of a section of [`encode`], unchecked beyond their lengths: those of a shard that was opened were
    /// checked by [`check`](Counts::check).
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if they do not fit, [`Error::Unreadable`] for another version.
    pub fn read(section: &'a [u8]) -> Result<Self, Error> {
        let short = || Error::Damaged { section: SECTION, what: "truncated".to_owned() };
        let (header, rest) = section.split_at_checked(HEADER_BYTES).ok_or_else(short)?;
        let version = u32_at(header, 0);
        if version != VERSION {
            return Err(Error::Unreadable(format!(
                "counts have version {version}; this build reads version {VERSION}"
            )));
        }
        let strings = u32_at(header, 4) as usize;
        let table = strings.checked_mul(4).ok_or_else(short)?;
        let (ends, rest) = rest.split_at_checked(table).ok_or_else(short)?;
        let (records, bytes) = rest.split_at_checked(table).ok_or_else(short)?;
        Ok(Self { strings, ends, records, bytes })
    }

    /// Checks that look-ups find what is there, and that no number exceeds the text's `records`.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if not.
    pub fn check(&self, records: usize) -> Result<(), Error> {
        let damaged = |what: &str| Err(Error::Damaged { section: SECTION, what: what.to_owned() });
        for at in 0..self.strings {
            let start = at.checked_sub(1).map_or(0, |before| u32_at(self.ends, 4 * before));
            if start >= u32_at(self.ends, 4 * at) {
                return damaged("an empty string");
            }
            if at > 0 && self.string(at - 1) >= self.string(at) {
                return damaged("the strings are not ascending");
            }
            if u32_at(self.records, 4 * at) as usize > records {
                return damaged("more records than there are");
            }
        }
        let end =
            self.strings.checked_sub(1).map_or(0, |last| u32_at(self.ends, 4 * last) as usize);
        if end == self.bytes.len() { Ok(()) } else { damaged("unexpected bytes") }
    }

    fn string(&self, at: usize) -> &'a [u8] {
        let start = at.checked_sub(1).map_or(0, |before| u32_at(self.ends, 4 * before) as usize);
        self.bytes.get(start..u32_at(self.ends, 4 * at) as usize).unwrap_or_default()
    }

    /// The number of records that contain `bytes`; `None` if it is not known.
    pub fn get(&self, bytes: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.strings);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.string(middle).cmp(bytes) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(u32_at(self.records, 4 * middle) as usize),
            }
        }
        None
    }

    /// The strings.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.strings).map(|at| self.string(at))
    }
}

fn bytes_max(text_bytes: usize) -> usize {
    (text_bytes / BYTES_ONE_IN).max(BYTES_MIN.min(text_bytes / 64))
}

/// Encodes those strings that occur most often, as many as there is room for in a shard of `text_bytes`. `None` if there is
/// none.
pub(crate) fn encode(mut strings: Vec<Counted>, text_bytes: usize) -> Option<Vec<u8>> {
    strings.sort_by(|a, b| b.occurrences.cmp(&a.occurrences).then_with(|| a.bytes.cmp(&b.bytes)));
    let bytes_max = bytes_max(text_bytes);
    let mut bytes = HEADER_BYTES;
    let kept = strings.iter().take_while(|counted| {
        bytes += ENTRY_BYTES + counted.bytes.len();
        bytes <= bytes_max
    });
    let kept = kept.count();
    strings.truncate(kept);
    if strings.is_empty() {
        return None;
    }
    strings.sort_by(|a, b| a.bytes.cmp(&b.bytes));
    let mut section = VERSION.to_le_bytes().to_vec();
    section.extend_from_slice(&(strings.len() as u32).to_le_bytes());
    let mut end = 0_u32;
    for counted in &strings {
        end += counted.bytes.len() as u32;
        section.extend_from_slice(&end.to_le_bytes());
    }
    strings.iter().for_each(|counted| section.extend_from_slice(&counted.records.to_le_bytes()));
    strings.iter().for_each(|counted| section.extend_from_slice(&counted.bytes));
    Some(section)
}

/// The letters, digits and `_` of ASCII that occur often, each with the records in which it is a word by itself.
pub(crate) fn whole_bytes(text: &[u8], records: &Records) -> Vec<Counted> {
    let mut counted = [(0_usize, 0_u32, None); 1 << 7];
    for number in 0..records.len() {
        let Some(range) = records.range(number) else { continue };
        let record = text.get(range.clone()).unwrap_or_default();
        for (at, byte) in (range.start..).zip(record) {
            if !is_of_words(*byte) {
                continue;
            }
            let Some((occurrences, in_records, last)) = counted.get_mut(usize::from(*byte)) else {
                continue;
            };
            *occurrences += 1;
            if *last != Some(number) && is_whole(text, range.clone(), at..at + 1) {
                *last = Some(number);
                *in_records += 1;
            }
        }
    }
    let all = (0_u8..).zip(counted);
    let often = all.filter(|(_, (occurrences, ..))| *occurrences >= OCCURRENCES_MIN);
    often
        .map(|(byte, (occurrences, records, _))| Counted {
            bytes: [byte].into(),
            occurrences,
            records,
        })
        .collect()
}

/// The frequent strings of one and two bytes. Tables of all of them (1.5 MiB) are filled in one pass, about 2 ns a byte.
pub(crate) fn short_strings(text: &[u8], records: &Records) -> Vec<Counted> {
    const ONES: usize = 1 << 8;
    // One byte, then two: as numbers, the latter behind the former.
    let mut occurrences = vec![0_u32; ONES + (1 << 16)];
    let mut in_records = occurrences.clone();
    let mut last = vec![u32::MAX; occurrences.len()];
    let mut count = |string: usize, record: u32| {
        if let (Some(occurrences), Some(in_records), Some(last)) =
            (occurrences.get_mut(string), in_records.get_mut(string), last.get_mut(string))
        {
            *occurrences += 1;
            *in_records += u32::from(*last != record);
            *last = record;
        }
    };
    for number in 0..records.len() {
        let record = records.range(number).and_then(|range| text.get(range)).unwrap_or_default();
        let mut before = None;
        for &byte in record {
            count(usize::from(byte), number as u32);
            if let Some(before) = before {
                count(ONES + usize::from(u16::from_be_bytes([before, byte])), number as u32);
            }
            before = Some(byte);
        }
    }
    let string = |at: usize| match at.checked_sub(ONES) {
        None => Box::from([at as u8]),
        Some(two) => Box::from((two as u16).to_be_bytes()),
    };
    let all = occurrences.iter().zip(&in_records).enumerate();
    let frequent = all.filter(|(_, (occurrences, _))| **occurrences as usize >= OCCURRENCES_MIN);
    frequent
        .map(|(at, (occurrences, records))| Counted {
            bytes: string(at),
            occurrences: *occurrences as usize,
            records: *records,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memchr::memmem;
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Builder, Format, Schema};

    proptest! {
        #[test]
        fn what_is_encoded_is_found(
            strings in proptest::collection::btree_map("[a-c]{1,4}", (1_usize..50, 0_u32..9), 0..40),
            text_bytes in 0_usize..200_000,
        ) {
            let counted: Vec<Counted> = strings.iter().map(|(bytes, (occurrences, records))| {
                Counted { bytes: bytes.as_bytes().into(), occurrences: *occurrences, records: *records }
            }).collect();
            let Some(section) = encode(counted, text_bytes) else { return Ok(()) };
            prop_assert!(section.len() <= bytes_max(text_bytes));
            let counts = Counts::read(&section).unwrap();
            counts.check(9).unwrap();
            let kept: BTreeMap<&[u8], usize> =
                counts.iter().map(|bytes| (bytes, counts.get(bytes).unwrap())).collect();
            let least = strings.iter().filter(|(bytes, _)| kept.contains_key(bytes.as_bytes()));
            let least = least.map(|(_, (occurrences, _))| *occurrences).min();
            for (bytes, (occurrences, records)) in &strings {
                match kept.get(bytes.as_bytes()) {
                    Some(found) => prop_assert_eq!(*found, *records as usize),
                    None => prop_assert!(Some(*occurrences) <= least, "{bytes}"),
                }
            }
            prop_assert_eq!(counts.get(b"z"), None);
            prop_assert_eq!(counts.get(b""), None);
        }

        #[test]
        fn arbitrary_sections_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), strings in 0..6_u32,
        ) {
            let mut section = VERSION.to_le_bytes().to_vec();
            section.extend(strings.to_le_bytes());
            section.extend(bytes);
            if let Ok(counts) = Counts::read(&section) {
                let is_right = counts.check(7).is_ok();
                for string in counts.iter() {
                    let found = counts.get(string);
                    prop_assert!(!is_right || found.is_some_and(|records| records <= 7));
                }
            }
        }

        /// The twin searches every record.
        #[test]
        fn short_strings_are_counted_in_records(lines in proptest::collection::vec("[ab]{0,40}", 1..200)) {
            let text = lines.join("\n").into_bytes();
            let mut builder = Builder::new(Schema::new(Format::Lines));
            builder.push(&text).unwrap();
            let records = builder.finish().unwrap().0;
            let found = short_strings(&text, &records);
            for bytes in ["a", "b", "\n", "ab", "bb", "a\n", "\na", "z"] {
                let of_record = |record| {
                    let range = records.range(record).unwrap();
                    (0..range.len()).filter(|at| text[range.clone()][*at..].starts_with(bytes.as_bytes())).count()
                };
                let each: Vec<usize> = (0..records.len()).map(of_record).collect();
                let occurrences: usize = each.iter().sum();
                let expected = (occurrences >= OCCURRENCES_MIN).then(|| Counted {
                    bytes: bytes.as_bytes().into(),
                    occurrences,
                    records: each.iter().filter(|count| **count > 0).count() as u32,
                });
                let counted = found.iter().find(|counted| *counted.bytes == *bytes.as_bytes());
                prop_assert_eq!(counted, expected.as_ref());
                prop_assert_eq!(memmem::find(&text, b"z"), None);
            }
        }
    }
}
