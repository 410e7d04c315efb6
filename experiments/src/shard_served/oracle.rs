//! The records, the queries on them, and the results of a plain scan of the text.
//!
//! The scan shares nothing with the index: a record ends with a blank line, a word is found by
//! comparing bytes, and an attribute's value follows its name at the start of a line.

use std::collections::HashMap;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shard::record::{Format, Schema};

use dataset::Writer;
use dataset::manifest::Manifest;
use record::zst;

use crate::kill::wire::{Ask, Client};

/// The dataset.
pub(super) const NAME: &str = "packages";
/// The attribute that is the key of a record.
pub(super) const KEY: &str = "Package";
/// The attribute whose values are looked up.
const ATTRIBUTE: &str = "Maintainer";
/// Lengths of the words that are looked up.
const WORD_LETTERS: std::ops::RangeInclusive<usize> = 5..=20;
/// Records in a page.
const LIMIT: usize = 10;
/// Bytes of an extract.
const EXTRACT_BYTES: usize = 1024;

/// The kinds of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// At most ten records that contain a rare word.
    RareWord,
    /// The same for a word of many records.
    MediumWord,
    /// The first record that contains such a word: all occurrences are located, and one record is
    /// read.
    FirstOfMedium,
    /// Ten records with a value of an attribute.
    Attribute,
    /// A record by its number.
    GetById,
    /// A record by its key.
    GetByKey,
    /// A kibibyte of the text.
    Extract,
}

impl Kind {
    /// The kinds that are measured at all rates, in this order.
    pub const ALL: [Kind; 6] = [
        Kind::GetById,
        Kind::GetByKey,
        Kind::Extract,
        Kind::RareWord,
        Kind::MediumWord,
        Kind::Attribute,
    ];

    /// The name in tables and claims.
    pub fn in_words(self) -> &'static str {
        match self {
            Kind::RareWord => "search, rare word",
            Kind::MediumWord => "search, medium word",
            Kind::FirstOfMedium => "search, medium word, first record",
            Kind::Attribute => "search, attribute",
            Kind::GetById => "get by id",
            Kind::GetByKey => "get by key",
            Kind::Extract => "extract 1 KiB",
        }
    }

    /// The name in file names.
    pub fn file(self) -> String {
        self.in_words().replace(", ", "-").replace(' ', "-")
    }

    /// The path, with `{key}` in place of the query.
    pub fn path(self) -> String {
        let below = match self {
            Kind::FirstOfMedium => "records?limit=1&query={key}".to_owned(),
            Kind::RareWord | Kind::MediumWord | Kind::Attribute => {
                format!("records?limit={LIMIT}&query={{key}}")
            }
            Kind::GetById => "records/{key}".to_owned(),
            Kind::GetByKey => format!("records?limit={LIMIT}&key={{key}}"),
            Kind::Extract => format!("extract?len={EXTRACT_BYTES}&offset={{key}}"),
        };
        format!("/datasets/{NAME}/{below}")
    }

    /// Length of every reply in bytes, if known.
    pub fn answer_bytes(self) -> Option<u64> {
        (self == Kind::Extract).then_some(EXTRACT_BYTES as u64)
    }
}

/// A query: the text that is sent, and the text that the scan looks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    kind: Kind,
    /// The text in place of `{key}`.
    sent: String,
    /// The text that the scan looks for.
    wanted: String,
}

/// The frequency of words: in how many records they occur as a whole word.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Frequencies {
    rare: [u32; 2],
    medium: [u32; 2],
}

/// The text and where its records are.
pub(super) struct Text {
    text: String,
    records: Vec<Range<usize>>,
}

impl Text {
    /// Reads a text of stanzas, compressed by zstd.
    pub fn read(path: &Path) -> anyhow::Result<Text> {
        let file = std::fs::File::open(path).with_context(|| {
            format!("cannot read {}: it lies beside the project", path.display())
        })?;
        let mut bytes = Vec::new();
        zst::Decoder::new(file).read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).context("the records are not UTF-8")?;
        Ok(Text::new(text))
    }

    fn new(text: String) -> Text {
        let mut start = 0;
        let records = text.split_inclusive("\n\n").map(|record| {
            let range = start..start + record.len();
            start = range.end;
            range
        });
        let records = records.collect();
        Text { text, records }
    }

    /// The records that lie within the first so many bytes.
    pub fn first(&self, bytes: usize) -> Text {
        let count = self.records.partition_point(|record| record.end <= bytes);
        let end = self.records.get(count).map_or(self.bytes(), |record| record.start);
        Text::new(self.text.get(..end).unwrap_or_default().to_owned())
    }

    /// Writes the text into a file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, &self.text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Length of the text in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    fn record(&self, id: usize) -> &str {
        self.records.get(id).and_then(|range| self.text.get(range.clone())).unwrap_or_default()
    }

    /// Creates a dataset of the text in a folder of datasets, with `shards` shards of about equal size.
    pub fn import(&self, datasets: &Path, shards: usize) -> anyhow::Result<()> {
        let folder = datasets.join(NAME);
        std::fs::create_dir_all(&folder)?;
        let mut schema = Schema::new(Format::Stanzas);
        schema.key = Some(KEY.to_owned());
        Manifest::new(schema).write(&folder)?;
        let mut writer = Writer::open(&folder)?;
        let mut start = 0;
        for shard in 1..=shards {
            let wanted = self.bytes() * shard / shards;
            let last = self.records.partition_point(|record| record.end < wanted);
            let end = self.records.get(last).map_or(self.bytes(), |record| record.end);
            writer.append(self.text.as_bytes().get(start..end).unwrap_or_default())?;
            writer.seal()?;
            start = end;
        }
        let info = writer.dataset().info();
        ensure!(
            (info.records, info.shards.len()) == (self.records() as u64, shards),
            "{} records in {} shards were made of {} in {shards}",
            info.records,
            info.shards.len(),
            self.records()
        );
        Ok(())
    }

    /// Queries of a kind, drawn uniformly from all possible ones; the same for the same seed.
    pub fn questions(
        &self,
        kind: Kind,
        count: usize,
        words: &Words,
        seed: u64,
    ) -> anyhow::Result<Vec<Question>> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut draw = |below: usize| random.random_range(0..below.max(1));
        let of = match kind {
            Kind::RareWord => &words.rare,
            _ => &words.medium,
        };
        ensure!(!of.is_empty(), "the text has no word as frequent as config.toml says");
        let mut questions = Vec::with_capacity(count);
        while questions.len() < count {
            let wanted = match kind {
                Kind::RareWord | Kind::MediumWord | Kind::FirstOfMedium => {
                    of.get(draw(of.len())).cloned().unwrap_or_default()
                }
                Kind::GetById => draw(self.records()).to_string(),
                Kind::Extract => draw(self.bytes().saturating_sub(EXTRACT_BYTES)).to_string(),
                Kind::Attribute | Kind::GetByKey => {
                    let name = if kind == Kind::Attribute { ATTRIBUTE } else { KEY };
                    match value(self.record(draw(self.records())), name) {
                        // Values that a query would have to escape are left out.
                        Some(value) if !value.contains(['"', '\\']) => value.to_owned(),
                        _ => continue,
                    }
                }
            };
            let sent = match kind {
                Kind::Attribute => format!("{ATTRIBUTE}:=\"{wanted}\""),
                _ => wanted.clone(),
            };
            questions.push(Question { kind, sent, wanted });
        }
        Ok(questions)
    }

    /// The ids of the first records that match a search: up to one more than a page contains.
    fn matching_ids(&self, question: &Question) -> Vec<usize> {
        let is_one = |id: &usize| {
            let record = self.record(*id);
            match question.kind {
                Kind::Attribute => value(record, ATTRIBUTE) == Some(&question.wanted),
                Kind::GetByKey => value(record, KEY) == Some(&question.wanted),
                _ => record.contains(&question.wanted),
            }
        };
        (0..self.records()).filter(is_one).take(question.limit() + 1).collect()
    }

    /// Whether a body is the correct reply to a query.
    fn is_answer(&self, question: &Question, body: &[u8]) -> bool {
        let number = question.wanted.parse().unwrap_or(usize::MAX);
        match question.kind {
            Kind::GetById => body == self.record(number).as_bytes(),
            Kind::Extract => {
                let end = number.saturating_add(EXTRACT_BYTES);
                self.text.as_bytes().get(number..end) == Some(body)
            }
            _ => {
                let Ok(page) = serde_json::from_slice::<Value>(body) else { return false };
                let found = self.matching_ids(question);
                let limit = question.limit();
                let records = page["records"].as_array().map_or(&[][..], Vec::as_slice);
                let same = |(id, record): (&usize, &Value)| {
                    record["id"] == *id && record["record"] == self.record(*id)
                };
                // A full page may announce another page that is empty.
                let told = page["has_more"] == true;
                records.len() == found.len().min(limit)
                    && found.iter().zip(records).all(same)
                    && (told || found.len() <= limit)
                    && (!told || records.len() == limit)
            }
        }
    }

    /// Sends some queries, compares the replies with the scan's results, and returns the number of wrong
    /// ones.
    pub fn wrong(&self, client: &mut Client, questions: &[Question]) -> anyhow::Result<u64> {
        let mut wrong = 0;
        for question in questions {
            let sent = utf8_percent_encode(&question.sent, NON_ALPHANUMERIC).to_string();
            let path = question.kind.path().replace("{key}", &sent);
            let status = client.ask(Ask::get(&path)).with_context(|| format!("GET {path}"))?;
            if status != 200 || !self.is_answer(question, &client.body) {
                wrong += 1;
                eprintln!("wrong answer: status {status} of {path}");
            }
        }
        Ok(wrong)
    }
}

impl Question {
    fn limit(&self) -> usize {
        if self.kind == Kind::FirstOfMedium { 1 } else { LIMIT }
    }
}

/// The words that are looked up, sorted.
pub(super) struct Words {
    rare: Vec<String>,
    medium: Vec<String>,
}

impl Words {
    /// The words of a text, by the number of records in which they occur as a whole word.
    pub fn of_text(text: &Text, frequencies: Frequencies) -> Words {
        let mut seen: HashMap<&str, (usize, u32)> = HashMap::new();
        for id in 0..text.records() {
            let words = text.record(id).split(|c: char| !c.is_ascii_alphanumeric());
            let is_word = |w: &&str| {
                WORD_LETTERS.contains(&w.len()) && w.bytes().all(|b| b.is_ascii_alphabetic())
            };
            for word in words.filter(is_word) {
                let (last, count) = seen.entry(word).or_insert((usize::MAX, 0));
                *count += u32::from(*last != id);
                *last = id;
            }
        }
        let pick = |[from, to]: [u32; 2]| {
            let as_often = seen.iter().filter(|(_, (_, count))| (from..=to).contains(count));
            let mut words: Vec<String> = as_often.map(|(word, _)| (*word).to_owned()).collect();
            words.sort();
            words
        };
        Words { rare: pick(frequencies.rare), medium: pick(frequencies.medium) }
    }
}

/// Writes queries as a trace that the load generator replays in order.
pub(super) fn write_trace(path: PathBuf, questions: &[Question]) -> anyhow::Result<PathBuf> {
    let mut text = format!("{}\n", record::trace::HEADER);
    for question in questions {
        let key = question.sent.replace('"', "%22").replace(',', "%2C");
        text.push_str(&format!("0,{key},,get\n"));
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The value of an attribute, if it is on one line.
fn value<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    let after = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    let mut lines = record.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(value) = after(line) {
            let is_folded = lines.peek().is_some_and(|next| next.starts_with([' ', '\t']));
            return Some(value.trim()).filter(|value| !value.is_empty() && !is_folded);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Text {
        let record = |i: usize| {
            let word = ["common", "seldom"][usize::from(i == 7)];
            format!("Package: p{i}\nMaintainer: \"M\" {}, x\nDescription: {word}\n a b\n\n", i % 3)
        };
        Text::new((0..30).map(record).collect())
    }

    fn ask(kind: Kind, wanted: &str) -> Question {
        Question { kind, sent: wanted.to_owned(), wanted: wanted.to_owned() }
    }

    #[test]
    fn the_scan_finds_what_is_there() {
        let text = text();
        assert_eq!(text.records(), 30);
        assert_eq!(text.matching_ids(&ask(Kind::RareWord, "seldom")), [7]);
        assert_eq!(text.matching_ids(&ask(Kind::MediumWord, "common")).len(), LIMIT + 1);
        assert_eq!(text.matching_ids(&ask(Kind::FirstOfMedium, "common")), [0, 1]);
        assert_eq!(text.matching_ids(&ask(Kind::GetByKey, "p1")), [1], "not p10");
        assert_eq!(text.matching_ids(&ask(Kind::Attribute, "\"M\" 2, x"))[..2], [2, 5]);
        assert_eq!(value(text.record(3), "Description"), None, "it is folded");
        let frequencies = Frequencies { rare: [1, 5], medium: [20, 29] };
        let words = Words::of_text(&text, frequencies);
        assert_eq!(
            (words.rare, words.medium),
            (vec!["seldom".to_owned()], vec!["common".to_owned()])
        );
    }

    #[test]
    fn other_answers_are_wrong() {
        let text = text();
        let seven = text.record(7);
        let rare = ask(Kind::RareWord, "seldom");
        let page = |id: usize, record: &str, more: bool| {
            let records = serde_json::json!([{ "id": id, "record": record }]);
            serde_json::json!({ "records": records, "has_more": more }).to_string()
        };
        assert!(text.is_answer(&rare, page(7, seven, false).as_bytes()));
        for wrong in [page(8, seven, false), page(7, "x", false), page(7, seven, true)] {
            assert!(!text.is_answer(&rare, wrong.as_bytes()), "{wrong}");
        }
        assert!(!text.is_answer(&rare, b"{\"records\": [], \"has_more\": false}"));
        let first = ask(Kind::FirstOfMedium, "common");
        assert!(text.is_answer(&first, page(0, text.record(0), true).as_bytes()));
        assert!(
            !text.is_answer(&first, page(0, text.record(0), false).as_bytes()),
            "there is more"
        );
        let get = ask(Kind::GetById, "7");
        assert!(text.is_answer(&get, seven.as_bytes()) && !text.is_answer(&get, b"x"));
        let extract = ask(Kind::Extract, "5");
        let bytes = text.text.as_bytes();
        assert!(text.is_answer(&extract, &bytes[5..5 + EXTRACT_BYTES]));
        assert!(!text.is_answer(&extract, &bytes[6..6 + EXTRACT_BYTES]));
    }

    #[test]
    fn the_shards_hold_all_records() {
        let (text, folder) = (text(), tempfile::tempdir().unwrap());
        text.import(folder.path(), 4).unwrap();
        let dataset = dataset::Dataset::open(&folder.path().join(NAME)).unwrap();
        let mut all = Vec::new();
        dataset.export(&mut all).unwrap();
        assert_eq!(all, text.text.as_bytes());
        assert_eq!(dataset.get(7).unwrap(), text.record(7).as_bytes());
    }

    #[test]
    fn traces_are_read_as_they_were_meant() {
        let folder = tempfile::tempdir().unwrap();
        let question = ask(Kind::Attribute, "Maintainer:=\"a, b\" %2x");
        let path =
            write_trace(folder.path().join("t.csv"), std::slice::from_ref(&question)).unwrap();
        let trace = record::trace::Trace::open(&path, None, false).unwrap();
        assert_eq!(trace.key(0), question.sent.as_bytes());
    }
}
