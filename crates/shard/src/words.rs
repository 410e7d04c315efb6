//! Lists of the records that hold the most frequent words.
//!
//! An index counts occurrences at once, but to name the records that hold a word with a quarter of a
//! million occurrences it locates each of them: hundreds of milliseconds, for a count as for a first
//! page. So the words that occur most often have a list of their records, as in an inverted index, but
//! only they: a word below [`OCCURRENCES_MIN`] is located within about a millisecond. A list holds
//! every record that contains the word *anywhere*, `python` also those with `pythonic`, so that it
//! answers the same question as the index.
//!
//! Built in three passes over the text: words (runs of letters, digits, `_` and non-ASCII bytes) are
//! counted with bounded memory (G. S. Manku, R. Motwani, "Approximate Frequency Counts over Data
//! Streams", VLDB 2002: a word that occurs often enough is never lost), all occurrences of the frequent
//! ones are found with an Aho–Corasick automaton, and the records of each are packed by Elias–Fano,
//! about `2 + log₂(records / length)` bits for each. The lists of the words that occur most often come
//! first, up to one in [`BYTES_ONE_IN`] bytes of the text.
//!
//! A list is decoded when it is asked for, because decoding checks it, and opening a shard would
//! otherwise take as long as hundreds of searches. The number of records with a word or a
//! short string is kept apart ([`counts`](super::counts)); the same passes find it.

use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use crate::bits::elias_fano::EliasFano;
use crate::bits::load::{u16_at, u32_at};
use crate::boundary::is_whole;
use crate::counts::{self, Counted, Counts};
use crate::error::Error;
use crate::record::Records;

/// The version of the encoding.
const VERSION: u32 = 1;
/// The name of the section.
pub(crate) const SECTION: &str = "words";
/// The least number of occurrences of a word with a list.
const OCCURRENCES_MIN: usize = 1024;
/// The lists take at most one byte for this many of the text.
const BYTES_ONE_IN: usize = 32;
/// The lengths of words with a list, in bytes.
const WORD_BYTES: Range<usize> = 2..33;
/// The most words that are counted at a time, as one for this many bytes of the text.
const COUNTED_ONE_IN: usize = 256;
/// The same for a short text.
const COUNTED_MIN: usize = 1 << 16;
/// The most words with a list.
const WORDS_MAX: usize = 1 << 14;
/// Bytes of a word's entry, besides the word.
const ENTRY_BYTES: usize = 6;

/// How many words get a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub occurrences_min: usize,
    pub bytes_max: usize,
}

impl Bounds {
    pub fn for_text(len: usize) -> Self {
        Self { occurrences_min: OCCURRENCES_MIN, bytes_max: len / BYTES_ONE_IN }
    }
}

/// The words of a text with a list of their records, found by binary search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Ascending, each with the place of its list in the section.
    places: Vec<(Box<[u8]>, Range<usize>)>,
}

/// The words, and the section with their lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lists<'a> {
    pub words: &'a Words,
    pub section: &'a [u8],
    /// The number of records of the text.
    pub records: usize,
    /// The number of records with words and short strings.
    pub counts: Counts<'a>,
    /// The number of records with words that are no part of longer ones.
    pub whole_counts: Counts<'a>,
}

impl Lists<'_> {
    /// The records that contain `word`, ascending; `None` if it has no list.
    pub fn get(&self, word: &[u8]) -> Option<EliasFano> {
        let places = &self.words.places;
        let at = places.binary_search_by(|(other, _)| (**other).cmp(word)).ok()?;
        let list = EliasFano::decode(self.section.get(places.get(at)?.1.clone())?).ok()?;
        // A forged list must not name records that do not exist.
        let last = list.len().checked_sub(1).and_then(|last| list.get(last));
        last.is_none_or(|last| last < self.records as u64).then_some(list)
    }
}

/// What is kept of the frequent words of a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sections {
    /// The section of this module; `None` if no word is frequent.
    pub lists: Option<Vec<u8>>,
    /// The section of [`counts`].
    pub counts: Option<Vec<u8>>,
    /// The section [`counts::WHOLE_SECTION`].
    pub whole_counts: Option<Vec<u8>>,
}

/// Encodes the section of a text: version (4), number of words (4), for each word its length (2), the
/// length of its list (4) and the word, then the lists (`EliasFano::encode`); words ascending, numbers
/// little-endian. Beside it, the section of [`counts`]: of short strings and of words, with or without a list.
pub(crate) fn encode(text: &[u8], records: &Records, bounds: Bounds) -> Result<Sections, Error> {
    let words = frequent(text, bounds.occurrences_min.min(counts::OCCURRENCES_MIN));
    let mut counted = counts::short_strings(text, records);
    let mut whole = counts::whole_bytes(text, records);
    let mut lists = lists(text, records, words, bounds.occurrences_min)?;
    let often = lists.iter().filter(|list| list.occurrences >= counts::OCCURRENCES_MIN);
    let numbers = |list: &List<'_>, records| Counted {
        bytes: list.word.into(),
        occurrences: list.occurrences,
        records,
    };
    let long = often.clone().filter(|list| list.word.len() > 2);
    counted.extend(long.map(|list| numbers(list, list.in_records.count)));
    whole.extend(often.map(|list| numbers(list, list.in_records_whole.count)));
    lists.retain(|list| list.is_listed && list.occurrences >= bounds.occurrences_min);
    lists.sort_by(|a, b| b.occurrences.cmp(&a.occurrences).then_with(|| a.word.cmp(b.word)));
    let mut bytes = 0;
    let mut kept: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for list in lists {
        let encoded = EliasFano::new(&list.records)?.encode();
        bytes += encoded.len() + list.word.len() + ENTRY_BYTES;
        if bytes > bounds.bytes_max {
            break;
        }
        kept.push((list.word, encoded));
    }
    kept.sort();
    let counts = counts::encode(counted, text.len());
    let whole_counts = counts::encode(whole, text.len());
    if kept.is_empty() {
        return Ok(Sections { lists: None, counts, whole_counts });
    }
    let mut section = VERSION.to_le_bytes().to_vec();
    section.extend_from_slice(&(kept.len() as u32).to_le_bytes());
    for (word, list) in &kept {
        section.extend_from_slice(&(word.len() as u16).to_le_bytes());
        section.extend_from_slice(&(list.len() as u32).to_le_bytes());
        section.extend_from_slice(word);
    }
    kept.iter().for_each(|(_, list)| section.extend_from_slice(list));
    Ok(Sections { lists: Some(section), counts, whole_counts })
}

impl Words {
    /// Reads the words of a section of [`encode`].
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if it is malformed, [`Error::Unreadable`] for another version.
    pub fn decode(section: &[u8]) -> Result<Self, Error> {
        let damaged = |what: &str| Error::Damaged { section: SECTION, what: what.to_owned() };
        let header = section.get(..8).ok_or_else(|| damaged("no header"))?;
        let version = u32_at(header, 0);
        if version != VERSION {
            return Err(Error::Unreadable(format!(
                "words have version {version}; this build reads version {VERSION}"
            )));
        }
        let count = u32_at(header, 4) as usize;
        let mut entries = Vec::with_capacity(count.min(WORDS_MAX));
        let mut rest = section.get(8..).unwrap_or_default();
        for _ in 0..count {
            let (entry, after) =
                rest.split_at_checked(ENTRY_BYTES).ok_or_else(|| damaged("an entry is cut"))?;
            let (word, list) = (u16_at(entry, 0) as usize, u32_at(entry, 2) as usize);
            let (word, after) =
                after.split_at_checked(word).ok_or_else(|| damaged("a word is cut"))?;
            if entries.last().is_some_and(|(before, _): &(Box<[u8]>, usize)| **before >= *word) {
                return Err(damaged("the words are not ascending"));
            }
            entries.push((Box::from(word), list));
            rest = after;
        }
        let mut start = section.len() - rest.len();
        let mut places = Vec::with_capacity(entries.len());
        for (word, len) in entries {
            let end = start.checked_add(len).filter(|end| *end <= section.len());
            let end = end.ok_or_else(|| damaged("a list is cut"))?;
            places.push((word, start..end));
            start = end;
        }
        if start != section.len() {
            return Err(damaged("unexpected bytes after the last list"));
        }
        Ok(Self { places })
    }

    /// The words.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|(word, _)| &**word)
    }
}

fn is_of_words(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// How often a word of this length occurs by itself where it may occur `min` times in other words, too: `917` is in 15 words
/// of its own and in 2,151 numbers of Debian's package records, `python` in few words but `pythonic`.
fn least_alone(min: usize, len: usize) -> usize {
    match len {
        ..=3 => min.div_ceil(32),
        4 => min.div_ceil(8),
        _ => min,
    }
}

/// All words that occur at least `min` times by themselves (short ones less often), each with how often, and few others.
fn frequent(text: &[u8], min: usize) -> Vec<(&[u8], usize)> {
    let counted_max = (text.len() / COUNTED_ONE_IN).max(COUNTED_MIN);
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    // What a word may have lost: one in each round.
    let mut rounds = 0;
    for word in text.split(|byte| !is_of_words(*byte)) {
        if !WORD_BYTES.contains(&word.len()) {
            continue;
        }
        *counts.entry(word).or_insert(0) += 1;
        if counts.len() > counted_max {
            rounds += 1;
            counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }
    let mut words: Vec<(&[u8], usize)> =
        counts.into_iter().map(|(word, count)| (word, count + rounds)).collect();
    words.retain(|(word, count)| *count >= least_alone(min, word.len()));
    words.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    words.truncate(WORDS_MAX);
    words
}

/// A number of records, counted in their order.
#[derive(Clone, Copy, Debug, Default)]
struct RecordCount {
    count: u32,
    last: Option<usize>,
}

impl RecordCount {
    /// Counts a record; returns whether it was not counted before.
    fn add(&mut self, record: usize) -> bool {
        let is_new = self.last != Some(record);
        self.last = Some(record);
        self.count += u32::from(is_new);
        is_new
    }
}

/// The records that contain a word.
struct List<'a> {
    word: &'a [u8],
    /// Also as a part of other words.
    occurrences: usize,
    in_records: RecordCount,
    /// Those with the word by itself.
    in_records_whole: RecordCount,
    /// Whether they are collected: of the words that are frequent by themselves.
    is_listed: bool,
    records: Vec<u64>,
}

/// The lists of some words that occur `listed_min` times, and the numbers of all. No lists if they would take more memory
/// than the index took before: in texts of few symbols words contain each other.
fn lists<'a>(
    text: &[u8],
    records: &Records,
    words: Vec<(&'a [u8], usize)>,
    listed_min: usize,
) -> Result<Vec<List<'a>>, Error> {
    let entries_max = text.len() / 4;
    let automaton = AhoCorasick::builder()
        .match_kind(MatchKind::Standard)
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(words.iter().map(|(word, _)| word))
        .map_err(|error| Error::Damaged { section: SECTION, what: error.to_string() })?;
    let new = |(word, count): (&'a [u8], usize)| List {
        word,
        occurrences: 0,
        in_records: RecordCount::default(),
        in_records_whole: RecordCount::default(),
        is_listed: count >= listed_min,
        records: Vec::new(),
    };
    let mut lists: Vec<List<'a>> = words.into_iter().map(new).collect();
    let (mut record, mut range) = (0, records.range(0).unwrap_or_default());
    let (mut entries, mut has_lists) = (0, true);
    for found in automaton.find_overlapping_iter(text) {
        while found.end() > range.end {
            record += 1;
            let Some(next) = records.range(record) else { return Ok(lists) };
            range = next;
        }
        let Some(list) = lists.get_mut(found.pattern().as_usize()) else { continue };
        // Within the record, and not in a header before the first.
        if found.start() < range.start {
            continue;
        }
        list.occurrences += 1;
        if list.in_records.add(record) && list.is_listed && has_lists {
            list.records.push(record as u64);
            entries += 1;
            has_lists = entries <= entries_max;
        }
        if is_whole(text, range.clone(), found.range()) {
            list.in_records_whole.add(record);
        }
    }
    if !has_lists {
        lists.iter_mut().for_each(|list| list.is_listed = false);
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use memchr::memmem;
    use proptest::prelude::*;
    use regex_automata::meta::Regex;

    use super::*;
    use crate::record::{Builder, Format, Schema};

    fn records_of(schema: Schema, text: &[u8]) -> Records {
        let mut builder = Builder::new(schema);
        builder.push(text).unwrap();
        builder.finish().unwrap().0
    }

    fn lists_of<'a>(words: &'a Words, section: &'a [u8], records: usize) -> Lists<'a> {
        let (counts, whole_counts) = Default::default();
        Lists { words, section, records, counts, whole_counts }
    }

    /// The twin searches every record for every word.
    fn check(format: Format, text: &[u8], bounds: Bounds) -> usize {
        let records = records_of(Schema::new(format), text);
        let Sections { lists, counts, whole_counts } = encode(text, &records, bounds).unwrap();
        let has = |word: &[u8], record: u64| {
            let range = records.range(record as usize).unwrap();
            memmem::find(&text[range], word).is_some()
        };
        let with = |word: &[u8]| (0..records.len() as u64).filter(|at| has(word, *at)).count();
        let with_whole = |word: &[u8]| {
            let word = format!(r"\b{}\b", std::str::from_utf8(word).unwrap());
            let regex = Regex::new(&word).unwrap();
            let range = |record| records.range(record).unwrap();
            (0..records.len()).filter(|record| regex.is_match(&text[range(*record)])).count()
        };
        let check = |counts: Option<&Vec<u8>>, with: &dyn Fn(&[u8]) -> usize| {
            let Some(counts) = counts else { return };
            let counts = Counts::read(counts).unwrap();
            counts.check(records.len()).unwrap();
            for word in counts.iter() {
                let found = counts.get(word);
                assert_eq!(found, Some(with(word)), "{:?}", String::from_utf8_lossy(word));
            }
        };
        check(counts.as_ref(), &with);
        check(whole_counts.as_ref(), &with_whole);
        let Some(section) = lists else { return 0 };
        assert!(section.len() <= bounds.bytes_max + 8);
        let words = Words::decode(&section).unwrap();
        let lists = lists_of(&words, &section, records.len());
        for word in words.iter() {
            let found: Vec<u64> = lists.get(word).unwrap().iter().collect();
            let all = 0..records.len() as u64;
            let expected: Vec<u64> = all.filter(|record| has(word, *record)).collect();
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(word));
        }
        assert!(lists.get(b"!").is_none());
        words.places.len()
    }

    proptest! {
        #[test]
        fn lists_name_every_record_with_the_word(
            text in "([a-c]{1,4}[ ,\n\"]){0,200}",
            occurrences_min in 1..20_usize,
            bytes_max in 0..3000_usize,
            format in proptest::sample::select(&[
                Format::Lines,
                Format::Stanzas,
                Format::Csv { delimiter: b',', header: true },
            ][..]),
        ) {
            check(format, text.as_bytes(), Bounds { occurrences_min, bytes_max });
        }

        #[test]
        fn arbitrary_sections_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), count in 0..4_u32,
        ) {
            let mut section = VERSION.to_le_bytes().to_vec();
            section.extend(count.to_le_bytes());
            section.extend(bytes);
            if let Ok(words) = Words::decode(&section) {
                let lists = lists_of(&words, &section, 3);
                words.iter().for_each(|word| drop(lists.get(word)));
            }
        }
    }

    #[test]
    fn frequent_words_are_never_lost_among_many_others() {
        let word =
            |n: usize| if n.is_multiple_of(7) { "often".to_owned() } else { format!("w{n}") };
        let text: String = (0..300_000).map(|n| word(n) + "\n").collect();
        let found: Vec<&[u8]> =
            frequent(text.as_bytes(), 10_000).into_iter().map(|(word, _)| word).collect();
        assert_eq!(found, [b"often"]);
        assert_eq!(check(Format::Lines, text.as_bytes(), Bounds::for_text(text.len())), 1);
    }

    #[test]
    fn words_within_words_are_refused_rather_than_kept_without_bound() {
        let text: String = (0..20_000).map(|n| "a".repeat(2 + n % 31) + " ").collect();
        let bounds = Bounds { occurrences_min: 10, bytes_max: 1 << 20 };
        check(Format::Lines, text.replace(' ', "\n").as_bytes(), bounds);
    }
}
