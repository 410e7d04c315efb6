//! The right results, by scans of the plain text: records, and lines for ripgrep, which prints those.
//!
//! Regular expressions are matched by the crate that the shard uses too; only the selection of records is
//! independent.

use std::collections::HashSet;

use super::protocol::{FIRST, Form, Kind, Question, Reply};
use super::text::{Record, Text};

/// The matches of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Records, ascending.
    pub records: Vec<usize>,
    /// Where lines begin, ascending.
    pub lines: Vec<usize>,
    /// Number of occurrences.
    pub occurrences: u64,
}

/// The right result of a query.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Number of matches.
    pub count: u64,
    bytes: u64,
    sum: u64,
    sums: HashSet<u32>,
}

impl Hits {
    /// Hits at ascending offsets; `None` if one is in no record.
    pub fn at_offsets(text: &Text, offsets: impl IntoIterator<Item = usize>) -> Option<Hits> {
        let mut hits = Hits::default();
        for offset in offsets {
            hits.records.push(text.record_of(offset)?);
            hits.lines.push(text.line_of(offset).start);
            hits.occurrences += 1;
        }
        hits.records.dedup();
        hits.lines.dedup();
        Some(hits)
    }

    /// The records themselves.
    pub fn expected_records(&self, text: &Text, kind: Kind) -> Expected {
        let records =
            self.records.iter().map(|&number| &text.content[text.records[number].range.clone()]);
        self.expected(records, kind)
    }

    /// The lines themselves.
    pub fn expected_lines(&self, text: &Text, kind: Kind) -> Expected {
        let lines = self.lines.iter().map(|&start| &text.content[text.line_of(start)]);
        self.expected(lines, kind)
    }

    fn expected<'t>(&self, parts: impl Iterator<Item = &'t str>, kind: Kind) -> Expected {
        let mut expected = Expected::default();
        for part in parts {
            let sum = crc32fast::hash(part.as_bytes());
            expected.count += 1;
            expected.bytes += part.len() as u64;
            expected.sum += u64::from(sum);
            expected.sums.insert(sum);
        }
        if kind == Kind::Occurrences {
            expected.count = self.occurrences;
        }
        expected
    }
}

impl Expected {
    /// Whether a reply is right. The first ten may be any; several lines can be one match of ripgrep's, and then
    /// there are more.
    pub fn is(&self, form: Form, reply: &Reply) -> bool {
        match form {
            Form::Count => reply.count == self.count,
            Form::First => {
                let enough = (self.count.min(FIRST)..=self.count).contains(&reply.count);
                let shown = reply.some.len() as u64 == reply.count.min(FIRST);
                enough && shown && reply.some.iter().all(|sum| self.sums.contains(sum))
            }
            Form::All => {
                (reply.count, reply.bytes, reply.sum) == (self.count, self.bytes, self.sum)
            }
        }
    }
}

/// A reply's sums of records that were returned.
pub fn summed<'r>(records: impl IntoIterator<Item = &'r [u8]>) -> Reply {
    let mut reply = Reply::default();
    for record in records {
        let end = record.iter().rposition(|byte| *byte != b'\n').map_or(0, |at| at + 1);
        let sum = crc32fast::hash(&record[..end]);
        reply.count += 1;
        reply.bytes += end as u64;
        reply.sum += u64::from(sum);
        if (reply.some.len() as u64) < FIRST {
            reply.some.push(sum);
        }
    }
    reply
}

/// Records that hold some bytes, not overlapping.
pub fn substring(text: &Text, value: &str) -> Option<Hits> {
    Hits::at_offsets(text, memchr::memmem::find_iter(text.content.as_bytes(), value))
}

/// Records that hold a word of ASCII letters and digits; `None` if it depends on what a word is: on upper and
/// lower case, on `_`, on letters past ASCII. `folded` is the text in lower case.
pub fn word(text: &Text, folded: &[u8], value: &str) -> Option<Hits> {
    Hits::at_offsets(text, word_offsets(text.content.as_bytes(), folded, value)?)
}

fn word_offsets(bytes: &[u8], folded: &[u8], value: &str) -> Option<Vec<usize>> {
    let mut offsets = Vec::new();
    for at in memchr::memmem::find_iter(folded, &value.to_ascii_lowercase()) {
        let end = at + value.len();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let sides = [before, bytes.get(end)];
        if sides.into_iter().flatten().any(|byte| *byte == b'_' || !byte.is_ascii()) {
            return None;
        }
        if sides.into_iter().flatten().any(u8::is_ascii_alphanumeric) {
            continue;
        }
        if bytes[at..end] != *value.as_bytes() {
            return None;
        }
        offsets.push(at);
    }
    Some(offsets)
}

/// Records of which an attribute has a value.
pub fn equals(text: &Text, attribute: &str, value: &str) -> Option<Hits> {
    of_attribute(text, attribute, |found| Some(found == value))
}

/// Records of which an attribute contains a word; `None` if it depends on whether a part of a word is one.
pub fn contains(text: &Text, attribute: &str, word: &str) -> Option<Hits> {
    of_attribute(text, attribute, |found| {
        let folded = found.to_ascii_lowercase();
        let whole = !word_offsets(found.as_bytes(), folded.as_bytes(), word)?.is_empty();
        (whole == found.contains(word)).then_some(whole)
    })
}

/// Records of which a line matches.
pub fn regex(text: &Text, matches: impl Fn(&[u8]) -> bool) -> Option<Hits> {
    let mut offsets = Vec::new();
    for record in &text.records {
        let mut start = record.range.start;
        for line in text.content[record.range.clone()].split_inclusive('\n') {
            if matches(line.trim_end_matches('\n').as_bytes()) {
                offsets.push(start);
            }
            start += line.len();
        }
    }
    Hits::at_offsets(text, offsets)
}

fn of_attribute(
    text: &Text,
    attribute: &str,
    holds: impl Fn(&str) -> Option<bool>,
) -> Option<Hits> {
    let mut offsets = Vec::new();
    for record in &text.records {
        if let Some(value) = record.values.get(attribute)
            && holds(value)?
        {
            offsets.push(line_of_attribute(text, record, attribute)?);
        }
    }
    Hits::at_offsets(text, offsets)
}

/// Where the line begins that has an attribute.
fn line_of_attribute(text: &Text, record: &Record, attribute: &str) -> Option<usize> {
    if text.format == "csv" {
        return Some(record.range.start);
    }
    let mut start = record.range.start;
    for line in text.content[record.range.clone()].split_inclusive('\n') {
        if line.strip_prefix(attribute).is_some_and(|rest| rest.starts_with(": ")) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

/// The result that a reply is compared with.
pub fn check(question: &Question, expected: &Expected, reply: &Reply) -> bool {
    reply.cannot.is_none() && expected.is(question.form, reply)
}
