//! The texts and their records, split here by code that is not the shard's: what answers are compared with must
//! not share its mistakes.

use std::collections::BTreeMap;
use std::io::{BufWriter, Read as _, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use record::zst;
use serde_json::json;

use super::config::TextConfig;
use crate::texts::Texts;

/// Where texts come from.
pub struct Sources {
    /// The folder of compressed files.
    pub data: PathBuf,
    /// The folder of the experiment that generates others.
    pub generated: PathBuf,
    /// Where they are written first.
    pub scratch: PathBuf,
}

/// A text in memory.
pub struct Text {
    /// All of it.
    pub content: String,
    /// Bytes before the first record: the header of a CSV file.
    pub header: usize,
    /// Its records, in order.
    pub records: Vec<Record>,
    /// `stanzas`, `csv`, `lines` or `json`.
    pub format: String,
    /// Columns of a CSV file.
    pub columns: Vec<String>,
}

/// A record.
pub struct Record {
    /// Its bytes, without the newlines at its end.
    pub range: Range<usize>,
    /// Values of the requested attributes.
    pub values: BTreeMap<String, String>,
}

impl Text {
    /// Reads or generates a text, and splits it.
    ///
    /// # Errors
    /// If it cannot be read or generated, or is not what its format says.
    pub fn load(sources: &Sources, config: &TextConfig) -> anyhow::Result<Text> {
        let Some(file) = &config.file else { return Text::generate(sources, config) };
        let path = sources.data.join(file);
        let compressed =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut bytes = Vec::new();
        zst::Decoder::new(&compressed[..])
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot decompress {}", path.display()))?;
        let content = String::from_utf8(bytes)
            .with_context(|| format!("{}: the peers take UTF-8 alone", path.display()))?;
        // So that ripgrep's `$` and the ends of records are the same for all.
        Text::split(content.replace("\r\n", "\n"), config)
    }

    fn generate(sources: &Sources, config: &TextConfig) -> anyhow::Result<Text> {
        let out = sources.scratch.join(&config.name);
        let texts = Texts::in_folder(sources.generated.clone())?;
        texts.write(&format!("--lineitem-bytes={}", config.lineitem_bytes), &out)?;
        let content = std::fs::read_to_string(&out);
        let content = content.with_context(|| format!("cannot read {}", out.display()))?;
        Text::split(content, config)
    }

    /// Splits a text.
    ///
    /// # Errors
    /// If it is not what its format says.
    pub fn split(content: String, config: &TextConfig) -> anyhow::Result<Text> {
        let requested: Vec<&str> =
            config.equals.iter().chain(&config.contains).map(String::as_str).collect();
        let (header, columns, records) = match config.format.as_str() {
            "csv" => rows(&content, &requested)?,
            "stanzas" => (0, Vec::new(), stanzas(&content, &requested)),
            _ => (0, Vec::new(), lines(&content)),
        };
        ensure!(!records.is_empty(), "text {} has no records", config.name);
        for name in &config.contains {
            let folded =
                records.iter().any(|r| r.values.get(name).is_some_and(|v| v.contains('\n')));
            ensure!(
                !folded,
                "text {}: ripgrep cannot search only {name}, which has several lines",
                config.name
            );
        }
        Ok(Text { content, header, records, format: config.format.clone(), columns })
    }

    /// The record that a byte is in.
    pub fn record_of(&self, offset: usize) -> Option<usize> {
        let after = self.records.partition_point(|record| record.range.start <= offset);
        let number = after.checked_sub(1)?;
        self.records[number].range.contains(&offset).then_some(number)
    }

    /// The line that a byte is in, without its newline.
    pub fn line_of(&self, offset: usize) -> Range<usize> {
        let (before, after) = self.content.as_bytes().split_at(offset);
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let end = memchr::memchr(b'\n', after).map_or(self.content.len(), |at| offset + at);
        start..end
    }

    /// Writes the records for the peers that do not split them: one to a line of JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_records(&self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let file = std::fs::File::create(path).with_context(|| format!("cannot write {shown}"))?;
        let mut out = BufWriter::new(file);
        for record in &self.records {
            let text = &self.content[record.range.clone()];
            writeln!(out, "{}", json!({ "text": text, "values": record.values }))?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Stanzas are between blank lines; an attribute's value goes on in lines that begin with a blank.
fn stanzas(content: &str, requested: &[&str]) -> Vec<Record> {
    let (mut records, mut start, mut end) = (Vec::new(), 0, 0);
    let mut values = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in content.split_inclusive('\n').chain(["\n"]) {
        let bare = line.trim_end_matches('\n');
        if bare.is_empty() {
            if end > start {
                records.push(Record { range: start..end, values: std::mem::take(&mut values) });
            }
            end += line.len();
            start = end;
            last = None;
            continue;
        }
        if bare.starts_with([' ', '\t']) {
            if let Some(value) = last.as_ref().and_then(|name| values.get_mut(name)) {
                let value: &mut String = value;
                value.push('\n');
                value.push_str(bare);
            }
        } else if let Some((name, value)) = bare.split_once(':') {
            last = requested.contains(&name).then(|| name.to_owned());
            if last.is_some() {
                values.insert(name.to_owned(), value.trim_start().to_owned());
            }
        }
        end += line.len();
    }
    for record in &mut records {
        let trimmed = content[record.range.clone()].trim_end_matches('\n').len();
        record.range.end = record.range.start + trimmed;
    }
    records
}

/// Each line is a record, without attributes.
fn lines(content: &str) -> Vec<Record> {
    let mut start = 0;
    let lines = content.split_inclusive('\n').map(|line| {
        let range = start..start + line.trim_end_matches('\n').len();
        start += line.len();
        Record { range, values: BTreeMap::new() }
    });
    lines.collect()
}

type Rows = (usize, Vec<String>, Vec<Record>);

/// Rows of a CSV file, each of which is a line: ripgrep returns lines.
fn rows(content: &str, requested: &[&str]) -> anyhow::Result<Rows> {
    let mut reader = csv::Reader::from_reader(content.as_bytes());
    let columns: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let header = content.find('\n').map_or(content.len(), |at| at + 1);
    let mut lines = content[header..].split_inclusive('\n');
    let (mut start, mut records) = (header, Vec::new());
    for row in reader.records() {
        let row = row?;
        ensure!(!row.iter().any(|field| field.contains('\n')), "a row goes over several lines");
        let line = lines.next().context("there are more rows than lines")?;
        let named = columns.iter().zip(row.iter());
        let values = named
            .filter(|(name, _)| requested.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.to_owned()));
        let bare = line.trim_end_matches(['\n']).len();
        records.push(Record { range: start..start + bare, values: values.collect() });
        start += line.len();
    }
    ensure!(lines.next().is_none(), "there are more lines than rows");
    Ok((header, columns, records))
}
