//! A shard: the index of a text, the boundaries of the text's records, and the lists and counts of frequent words, in one
//! container.

use std::io::Write;

use crate::counts::{self, Counts};
use crate::error::Error;
use crate::format;
use crate::index::{self, Index, Options, Progress};
use crate::query::Searcher;
use crate::record::{self, Builder, Format, Records, Schema};
use crate::words::{self, Lists, Words};

/// The name of the section with the records.
const RECORDS: &str = "records";

/// A compressed text, searchable without decompression, and the records that it consists of.
///
/// ```
/// use shard::index::Options;
/// use shard::query::Page;
/// use shard::record::Schema;
/// use shard::{Shard, Text};
///
/// let text = b"{\"name\":\"ed\"}\n{\"name\":\"nano\"}\n";
/// let mut file = Vec::new();
/// Shard::build(text, Schema::detect(text), &[], &Options::default(), &mut file, &mut |_| ())?;
/// let shard = Shard::open(file)?;
/// let answer = shard.searcher()?.search(&"name:=nano".parse()?, &Page::default())?;
/// assert_eq!(answer.records, [1]);
/// assert_eq!(shard.searcher()?.get(1)?, b"{\"name\":\"nano\"}\n");
/// assert_eq!(shard.index().count(b"name"), 2);
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug)]
pub struct Shard {
    index: Index,
    records: Records,
    words: Words,
}

/// The result of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts of records, and the invalid ones.
    pub records: record::Report,
    /// Sizes of the index's sections.
    pub index: index::Report,
    /// The schema of the records, with the attribute names that the input contained.
    pub schema: Schema,
}

impl Shard {
    /// Builds a shard of a text with records of `schema` and a table of numbers for each attribute
    /// in `orders`, and writes it to `out`. Takes [`index::build_memory_bytes`] of memory, and 8
    /// bytes per record.
    ///
    /// # Errors
    ///
    /// As [`Builder`] and [`index::build`]. Whole files are built by
    /// [`build_files`](Self::build_files).
    pub fn build(
        text: &[u8],
        schema: Schema,
        orders: &[String],
        options: &Options,
        out: impl Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let mut builder = builder(schema, orders);
        builder.push(text)?;
        write(text, builder, options, out, progress)
    }

    /// Builds a shard of whole files, each given with its path and its content.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_files(
        files: &[(String, Vec<u8>)],
        options: &Options,
        out: impl Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let mut builder = builder(Schema::new(Format::Files), &[]);
        let mut text = Vec::new();
        for (path, content) in files {
            text.extend_from_slice(&builder.push_file(path, content.len())?);
            text.extend_from_slice(content);
        }
        write(&text, builder, options, out, progress)
    }

    /// Opens a shard, given as a memory map or as bytes in memory, and verifies every byte.
    ///
    /// # Errors
    ///
    /// As [`Index::open`]; [`Error::Damaged`] if the records are missing, or those of another text.
    pub fn open(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Error> {
        Self::from_index(Index::open(bytes)?)
    }

    fn from_index(index: Index) -> Result<Self, Error> {
        let section = index.reader().section(RECORDS).ok_or_else(|| Error::Damaged {
            section: RECORDS,
            what: "missing section: this is an index without records".to_owned(),
        })?;
        let records = Records::decode(section)?;
        Searcher::new(&index, &records)?;
        // Shards of earlier versions have none, and some texts have no frequent word.
        let words = index.reader().section(words::SECTION).map(Words::decode).transpose()?;
        for section in [counts::SECTION, counts::WHOLE_SECTION] {
            counts(&index, section)?.check(records.len())?;
        }
        Ok(Self { index, records, words: words.unwrap_or_default() })
    }

    /// The index of the text.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The records of the text.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// A searcher over the records.
    ///
    /// # Errors
    ///
    /// None in practice: [`open`](Self::open) makes the same checks.
    pub fn searcher(&self) -> Result<Searcher<'_, Index>, Error> {
        let section = self.index.reader().section(words::SECTION).unwrap_or_default();
        let lists = Lists {
            words: &self.words,
            section,
            records: self.records.len(),
            counts: counts(&self.index, counts::SECTION)?,
            whole_counts: counts(&self.index, counts::WHOLE_SECTION)?,
        };
        Ok(Searcher::new(&self.index, &self.records)?.with_lists(lists))
    }
}

/// A section of counts. Shards of earlier versions have none, and some texts no frequent string.
fn counts<'a>(index: &'a Index, section: &str) -> Result<Counts<'a>, Error> {
    let section = index.reader().section(section).map(Counts::read).transpose()?;
    Ok(section.unwrap_or_default())
}

fn builder(schema: Schema, orders: &[String]) -> Builder {
    orders.iter().fold(Builder::new(schema), |builder, attribute| builder.order_by(attribute))
}

fn write(
    text: &[u8],
    builder: Builder,
    options: &Options,
    out: impl Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    let (records, report) = builder.finish()?;
    let mut writer = format::Writer::new(out)?;
    let index = index::write_sections(text, options, &mut writer, progress)?;
    writer.section(RECORDS, &records.encode())?;
    let frequent = words::encode(text, &records, words::Bounds::for_text(text.len()))?;
    if let Some(lists) = frequent.lists {
        writer.section(words::SECTION, &lists)?;
    }
    if let Some(counts) = frequent.counts {
        writer.section(counts::SECTION, &counts)?;
    }
    if let Some(counts) = frequent.whole_counts {
        writer.section(counts::WHOLE_SECTION, &counts)?;
    }
    writer.finish()?;
    Ok(Report { records: report, index, schema: records.schema().clone() })
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod words_tests;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Text as _;
    use crate::query::{Page, Query};

    fn build(text: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let (schema, options) = (Schema::detect(text), Options::default());
        Shard::build(text, schema, &[], &options, &mut file, &mut |_| ()).unwrap();
        file
    }

    #[test]
    fn files_are_records_with_a_path() {
        let files = [("a.txt".to_owned(), b"one\n".to_vec()), ("b".to_owned(), Vec::new())];
        let mut file = Vec::new();
        Shard::build_files(&files, &Options::default(), &mut file, &mut |_| ()).unwrap();
        let shard = Shard::open(file).unwrap();
        let searcher = shard.searcher().unwrap();
        assert_eq!(searcher.get_by_key(b"b").unwrap(), Some(1));
        assert_eq!(searcher.get(0).unwrap(), b"one\n");
        assert_eq!(searcher.get(1).unwrap(), b"");
    }

    #[test]
    fn an_index_without_records_is_no_shard() {
        let mut file = Vec::new();
        index::build(b"abc", &Options::default(), &mut file).unwrap();
        let error = Shard::open(file).unwrap_err();
        assert!(error.to_string().contains("without records"), "{error}");
    }

    #[test]
    fn every_changed_byte_is_found() {
        let file = build(b"name,size\ned,90\nnano,2900\n");
        Shard::open(file.clone()).unwrap();
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            assert!(Shard::open(changed).is_err(), "byte {at}");
            assert!(Shard::open(file[..at].to_vec()).is_err(), "cut at {at}");
        }
    }

    /// Records of few symbols and of every byte, runs of one, with a newline at the end or without.
    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            3 => "[a-c:,{}\" ]{0,12}".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..20),
            1 => (any::<u8>(), 0..200usize).prop_map(|(byte, len)| vec![byte; len]),
        ];
        (proptest::collection::vec(line, 0..20), any::<bool>()).prop_map(|(lines, is_ended)| {
            let mut text = lines.join(&b'\n');
            text.extend(is_ended.then_some(b'\n'));
            text
        })
    }

    /// A change of a file or a section.
    #[derive(Clone, Debug)]
    enum Change {
        Set(Vec<u8>),
        Insert(Vec<u8>),
        Remove(usize),
        Repeat(usize),
    }

    fn any_changes() -> impl Strategy<Value = Vec<(prop::sample::Index, Change)>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 1..9);
        let change = prop_oneof![
            3 => bytes().prop_map(Change::Set),
            1 => bytes().prop_map(Change::Insert),
            1 => (1..100usize).prop_map(Change::Remove),
            1 => (1..100usize).prop_map(Change::Repeat),
        ];
        proptest::collection::vec((any::<prop::sample::Index>(), change), 1..5)
    }

    fn changed(bytes: &[u8], changes: &[(prop::sample::Index, Change)]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (at, change) in changes {
            let at = at.index(bytes.len() + 1);
            let to = |len: usize| (at + len).min(bytes.len());
            match change {
                Change::Set(new) => {
                    let range = at..to(new.len());
                    let len = range.len();
                    bytes[range].copy_from_slice(&new[..len]);
                }
                Change::Insert(new) => drop(bytes.splice(at..at, new.iter().copied())),
                Change::Remove(len) => drop(bytes.drain(at..to(*len))),
                Change::Repeat(len) => {
                    let part = bytes[at..to(*len)].to_vec();
                    drop(bytes.splice(at..at, part));
                }
            }
        }
        bytes
    }

    /// Asks for what a damaged shard may answer wrongly; only that it ends and does not panic
    /// counts.
    fn ask(shard: &Shard) {
        let Ok(searcher) = shard.searcher() else { return };
        let page = Page::default();
        for query in ["a", "a:b", "column1=c", "line^a", "line~a.*b", "NOT b", "a OR line:c"] {
            let query: Query = query.parse().unwrap();
            if let Ok(found) = searcher.search(&query, &page) {
                let _ = searcher.get_all(&found.records);
            }
        }
        let _ = searcher.get_by_key(b"a");
        (0..shard.records().len().min(30)).for_each(|record| drop(searcher.get(record)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn arbitrary_bytes_are_no_shard(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Shard::open(bytes.clone()).is_err());
            prop_assert!(Index::open_unchecked(bytes).is_err());
        }

        #[test]
        fn changed_files_are_refused(text in any_text(), changes in any_changes()) {
            let file = build(&text);
            let other = changed(&file, &changes);
            prop_assert_eq!(Shard::open(other.clone()).is_ok(), other == file);
        }

        /// As a wrong writer would make them: whatever the sections hold, their checksums are
        /// right.
        #[test]
        fn forged_shards_are_refused_or_asked_without_panic(
            text in any_text(),
            section in any::<prop::sample::Index>(),
            changes in any_changes(),
        ) {
            let reader = format::Reader::open(build(&text)).unwrap();
            let forged = section.index(reader.sections().len());
            let mut writer = format::Writer::new(Vec::new()).unwrap();
            for (number, section) in reader.sections().iter().enumerate() {
                let bytes = reader.section(&section.name).unwrap();
                let changes = if number == forged { &changes[..] } else { &[] };
                writer.section(&section.name, &changed(bytes, changes)).unwrap();
            }
            if let Ok(shard) = Shard::open(writer.finish().unwrap()) {
                ask(&shard);
            }
        }

        #[test]
        fn every_record_comes_back(text in any_text()) {
            let shard = Shard::open(build(&text)).unwrap();
            let searcher = shard.searcher().unwrap();
            let all: Vec<usize> = (0..shard.records().len()).collect();
            let header = shard.records().header();
            let mut bytes = Vec::new();
            shard.index().extract(header.start, header.len(), &mut bytes).unwrap();
            bytes.extend(searcher.get_all(&all).unwrap().concat());
            prop_assert_eq!(bytes, text);
            let page = Page { limit: usize::MAX, ..Page::default() };
            prop_assert_eq!(searcher.search(&Query::All, &page).unwrap().records, all);
        }
    }
}
