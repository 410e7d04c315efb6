//! Changes to a dataset: append, delete, seal.

use std::path::Path;
use std::sync::Arc;

use ground::with_causes;
use shard::Shard;
use shard::index::Options;
use shard::record::{Builder, Format, RECORD_BYTES_MAX, Records, Report, Schema};
use tracing::warn;

use super::chunk::{CHUNK_BYTES_MAX, Chunk, Entry};
use super::error::{Context as _, Error, Result, bail, ensure};
use super::folder::{chunk_of, is_temporary};
use super::manifest::{self, Manifest};
use super::parts::names::is_part_file;
use super::{Dataset, chunk_file, files};
use origin::Lock;

/// The log is sealed after an append if it has more bytes than this.
pub const SEAL_BYTES: usize = 32 << 20;

/// A dataset opened for writing, by this process only.
pub struct Writer {
    pub(crate) dataset: Dataset,
    options: Options,
    _lock: Lock,
}

impl Writer {
    /// Opens a dataset's folder for writing, and removes leftovers of an earlier writer.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open`]; or if another process has it open for writing.
    pub fn open(folder: &Path) -> Result<Writer> {
        // Before the lock, which makes a file.
        let is_dataset = folder.join(manifest::FILE).is_file();
        ensure!(is_dataset, Missing, "{} is not a dataset's folder", folder.display());
        let lock = Lock::take(folder)?;
        let dataset = Dataset::open(folder)?;
        remove_left_over(folder, &dataset.manifest)?;
        Ok(Writer { dataset, options: Options::default(), _lock: lock })
    }

    /// The dataset in its present state.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Appends the records in `bytes`, which need not end with a separator, and returns their ids.
    /// The records are durable when this returns.
    ///
    /// # Errors
    ///
    /// If a record cannot be read in the dataset's format, if there are more bytes than a chunk of the
    /// log holds, or if the chunk cannot be written: then nothing is appended.
    pub fn append(&mut self, bytes: &[u8]) -> Result<std::ops::Range<u64>> {
        let records = split(self.dataset.schema(), bytes)?;
        let first_id = self.dataset.end_id();
        let count = records.len() as u64;
        self.write(records.into_iter().map(Entry::Append).collect())?;
        if self.dataset.log_bytes() > SEAL_BYTES
            && let Err(error) = self.seal()
        {
            // The append itself succeeded; the next one retries the seal.
            warn!(
                "the log could not be sealed, and the next append will retry: {}",
                with_causes(&error)
            );
        }
        Ok(first_id..first_id + count)
    }

    /// Deletes records and returns how many of them existed. The deletion is durable when this
    /// returns.
    ///
    /// # Errors
    ///
    /// If an id was never assigned, or if the log cannot be written: then nothing is deleted.
    pub fn delete(&mut self, ids: &[u64]) -> Result<u64> {
        let end = self.dataset.end_id();
        if let Some(id) = ids.iter().find(|id| **id >= end) {
            bail!(Missing, "there is no record {id}: ids are less than {end}");
        }
        let mut there: Vec<u64> =
            ids.iter().copied().filter(|id| !self.dataset.deleted.contains(id)).collect();
        there.sort_unstable();
        there.dedup();
        self.write(there.iter().map(|id| Entry::Delete(*id)).collect())?;
        Ok(there.len() as u64)
    }

    fn write(&mut self, entries: Vec<Entry>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let number = self.dataset.last_chunk + 1;
        let chunk = Chunk { number, first_id: self.dataset.end_id(), entries };
        let bytes = chunk.encode()?;
        let file = chunk_file(number);
        files::write(&self.dataset.folder, &file, false, |writer| writer.write_all(&bytes))
            .context(|| format!("cannot write {file} of the log"))?;
        self.dataset.take(chunk)
    }

    /// Builds a shard from the log's records. Returns whether the log held anything to seal.
    ///
    /// # Errors
    ///
    /// If a file cannot be written; the dataset is then unchanged.
    pub fn seal(&mut self) -> Result<bool> {
        let dataset = &self.dataset;
        let folder = dataset.folder.clone();
        let mut manifest = Manifest::clone(&dataset.manifest);
        if dataset.last_chunk == manifest.sealed_chunks {
            return Ok(false);
        }
        dataset.seal_into(&folder, &mut manifest, &self.options)?;
        manifest.write(&folder)?;
        remove_left_over(&folder, &manifest)?;
        self.dataset = Dataset::from_manifest(&folder, manifest)?;
        Ok(true)
    }
}

impl Dataset {
    /// Size of the records in the log, bytes.
    pub fn log_bytes(&self) -> usize {
        self.appended.iter().map(|record| record.len()).sum()
    }

    /// Memory that the log takes, bytes: that of its records, and what each of them takes beside its own bytes.
    pub fn log_memory(&self) -> usize {
        const OF_RECORD: usize = 48;
        self.log_bytes() + OF_RECORD * self.appended.len()
    }

    /// Builds a shard from the log's records in a folder, and updates the manifest to list it.
    pub fn seal_into(
        &self,
        folder: &Path,
        manifest: &mut Manifest,
        options: &Options,
    ) -> Result<()> {
        manifest.deleted = self.deleted.iter().copied().collect();
        manifest.sealed_chunks = self.last_chunk;
        if self.appended.is_empty() {
            return Ok(());
        }
        let (number, first_id) = (manifest.next_shard, manifest.end_id());
        let built = super::import::write_shard(folder, number, first_id, false, |out| {
            build(self.schema(), &self.appended, options, out)
        })?;
        ensure!(
            built.entry.records == self.appended.len() as u64,
            Damaged,
            "{} records of the log would become {} records of a shard; nothing is sealed",
            self.appended.len(),
            built.entry.records
        );
        manifest.shards.push(built.entry);
        manifest.next_shard += 1;
        Ok(())
    }
}

pub(crate) fn build(
    schema: &Schema,
    records: &[Arc<[u8]>],
    options: &Options,
    out: &mut dyn std::io::Write,
) -> Result<shard::Report, shard::Error> {
    if schema.format == Format::Files {
        let files = records.iter().map(|record| {
            let content = schema.original(record).to_vec();
            let path = record.len() - content.len();
            let path = record.get(..path.saturating_sub(1)).unwrap_or_default();
            (String::from_utf8_lossy(path).into_owned(), content)
        });
        return Shard::build_files(&files.collect::<Vec<_>>(), options, out, &mut |_| ());
    }
    let text = records.concat();
    Shard::build(&text, schema.clone(), &[], options, out, &mut |_| ())
}

/// Splits bytes into records to append. Each is completed with the format's separator, so that it
/// stays the same record when others follow.
pub fn split(schema: &Schema, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    ensure!(
        schema.format != Format::Files,
        Invalid,
        "whole files cannot be appended: import them as a new dataset"
    );
    let all_bytes = bytes;
    let bytes = without_blank_lines(schema.format, bytes);
    let (records, mut report) = records_of(schema, bytes)?;
    let left_out = &all_bytes[..all_bytes.len() - bytes.len()];
    let lines_left_out = left_out.iter().filter(|byte| **byte == b'\n').count() as u64;
    report.first_bad.iter_mut().for_each(|bad| bad.line += lines_left_out);
    let chunk_bytes = bytes.len() as u64 + ENTRY_BYTES * records.len() as u64;
    ensure!(
        chunk_bytes <= CHUNK_BYTES_MAX as u64,
        Invalid,
        "{} records of {} bytes exceed the limit of one append; append them in parts",
        records.len(),
        bytes.len()
    );
    if let Some(bad) = report.first_bad.first() {
        let bad_records = report.bad;
        bail!(
            Invalid,
            "{bad_records} records are malformed, the first at {bad}; nothing was appended"
        );
    }
    let mut all = Vec::with_capacity(records.len());
    for record in 0..records.len() {
        let range =
            records.range(record).ok_or_else(|| Error::inconsistent("a record has a place"))?;
        let start = range.start;
        let mut record = bytes
            .get(range)
            .ok_or_else(|| Error::inconsistent("a record is within the bytes"))?
            .to_vec();
        if all.is_empty() && is_header(schema, &record) {
            continue;
        }
        ensure!(
            !all.is_empty() || !is_other_header(schema, &record),
            Invalid,
            "the first row has the names of the columns in another order or spelling: bring the columns into the order {}, or \
             leave that row out; nothing was appended",
            schema.names.join(", ")
        );
        let missing = schema.missing_separator(bytes.get(..start).unwrap_or_default(), &record);
        record.extend_from_slice(missing);
        all.push(record);
    }
    // A shard is built from their concatenation, and must split it into the same records.
    let (again, report) = records_of(schema, &all.concat())?;
    let same = (0..again.len().max(all.len()))
        .all(|at| again.range(at).map(|range| range.len()) == all.get(at).map(Vec::len));
    ensure!(
        same && report.bad == 0,
        Invalid,
        "the records would change when appended to others (one is too long, or an empty line is \
         not a record by itself); nothing was appended"
    );
    Ok(all)
}

/// Whether appended records can be sealed: whether each is one record of the dataset, whatever stands before and
/// behind it. [`split`] makes such records; a log that something else wrote may have others, and would never be
/// sealed.
///
/// # Errors
///
/// If one is not.
pub(super) fn require_sealable(schema: &Schema, records: &[&[u8]]) -> Result<()> {
    let Some(first) = records.first() else { return Ok(()) };
    ensure!(schema.format != Format::Files, Damaged, "it appends to whole files");
    if let Some(long) = records.iter().find(|record| record.len() > RECORD_BYTES_MAX) {
        bail!(
            Damaged,
            "it appends a record of {} bytes; a record has at most {RECORD_BYTES_MAX}",
            long.len()
        );
    }
    let (split, report) = records_of(schema, &records.concat())?;
    let alone = without_blank_lines(schema.format, first).len() == first.len();
    let ended = records.iter().all(|record| schema.missing_separator(b"", record).is_empty());
    let same = split.len() == records.len()
        && records
            .iter()
            .enumerate()
            .all(|(at, record)| split.range(at).is_some_and(|range| range.len() == record.len()));
    ensure!(
        alone && ended && same && report.bad == 0,
        Damaged,
        "it appends what is not a record of this dataset by itself"
    );
    Ok(())
}

/// The overhead of an appended record in a chunk, bytes.
const ENTRY_BYTES: u64 = 5;

fn records_of(schema: &Schema, bytes: &[u8]) -> Result<(Records, Report), shard::Error> {
    let mut builder = Builder::new(schema.clone());
    builder.push(bytes)?;
    builder.finish()
}

/// Strips blank lines at the start, which would become part of the previous record.
fn without_blank_lines(format: Format, bytes: &[u8]) -> &[u8] {
    let blank: &[u8] = match format {
        Format::JsonLines | Format::Stanzas => b" \t\r",
        Format::Csv { .. } => b"\r",
        _ => return bytes,
    };
    let mut rest = bytes;
    while let Some(newline) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = rest.split_at(newline + 1);
        if !line[..newline].iter().all(|byte| blank.contains(byte)) {
            break;
        }
        rest = after;
    }
    // A last line without a line break may be blank too.
    if rest.iter().all(|byte| blank.contains(byte)) { &[] } else { rest }
}

/// Whether a row of a CSV file is its header, which appended bytes may include.
fn is_header(schema: &Schema, record: &[u8]) -> bool {
    matches!(schema.format, Format::Csv { .. })
        && schema
            .fields(record)
            .is_ok_and(|fields| fields.iter().all(|field| *field.value == *field.name.as_bytes()))
}

/// Whether a row of a table has the names of all of its columns, in another order or in other letters: the header of a file
/// whose rows would get into the wrong columns. A table of a single column may well have its name as a value.
fn is_other_header(schema: &Schema, record: &[u8]) -> bool {
    if !matches!(schema.format, Format::Csv { .. }) || schema.names.len() < 2 {
        return false;
    }
    let plain = |text: &[u8]| text.trim_ascii().to_ascii_lowercase();
    let Ok(fields) = schema.fields(record) else { return false };
    let mut values: Vec<_> = fields.iter().map(|field| plain(&field.value)).collect();
    let mut names: Vec<_> = schema.names.iter().map(|name| plain(name.as_bytes())).collect();
    values.sort_unstable();
    names.sort_unstable();
    values == names
}

/// Removes sealed chunks, shards that the manifest does not list, reports of parts, and temporary files.
pub(crate) fn remove_left_over(folder: &Path, manifest: &Manifest) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let sealed = chunk_of(name).is_some_and(|number| number <= manifest.sealed_chunks);
        // A seal or a compaction builds the next shard, and a compaction takes others off the list: these alone are
        // shards of this dataset that are not listed.
        let is_ours = manifest::shard_number(name).is_some_and(|n| n <= manifest.next_shard);
        let unnamed = is_ours && manifest.shards.iter().all(|shard| shard.file != name);
        if sealed || unnamed || is_part_file(name) || is_temporary(name, files::WRITING) {
            let path = folder.join(name);
            std::fs::remove_file(&path).context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    debug_assert!(folder.join(manifest::FILE).exists());
    Ok(())
}
