//! Datasets: records in compressed shards that are searched as they are, and a log of what was appended
//! and deleted since.
//!
//! A dataset is a folder. `dataset.json` (the [`Manifest`]) names the shards, which never change; a chunk
//! of the log ([`chunk`]) is one acknowledged call of [`Writer::append`] or [`Writer::delete`]; sealing
//! makes a shard of the log's records and replaces the manifest. Every file is there whole or not at all
//! ([`files`]), so a crash at any moment loses nothing that was acknowledged: what the manifest does not
//! name is left over and is removed by the next writer. Ids of records are given once, ascending, and
//! never again: a deleted record leaves a gap.
//!
//! One process writes at a time; any number read, and see the dataset as it was when they opened it.

pub mod chunk;
pub mod files;
mod import;
pub mod manifest;
mod write;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use shard::query::{Page, Query};
use shard::record::Schema;
use shard::{Shard, Text};

use chunk::{Chunk, Entry};
pub use import::{Imported, Options, Step, import};
use manifest::{Manifest, ShardEntry};
pub use write::Writer;

/// A dataset, open to be read.
pub struct Dataset {
    folder: PathBuf,
    manifest: Manifest,
    shards: Vec<OpenShard>,
    /// Records of the log, the first with the id that follows those of the shards.
    appended: Vec<Vec<u8>>,
    /// Ids of deleted records.
    deleted: BTreeSet<u64>,
    /// Number of the last chunk of the log.
    last_chunk: u64,
}

struct OpenShard {
    entry: ShardEntry,
    shard: Shard,
}

/// Which part of an answer is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Records at most.
    pub limit: usize,
    /// Only records with a greater id.
    pub after: Option<u64>,
    /// By id; if not, the first that are found.
    pub sorted: bool,
}

/// Records that match a query.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Found {
    /// Their ids.
    pub ids: Vec<u64>,
    /// What the next page is after; `None` if there is no more, or if it was not sorted.
    pub next: Option<u64>,
    /// Whether there may be more.
    pub has_more: bool,
    /// Occurrences that were located in the shards.
    pub located: usize,
    /// Records that were read to be certain.
    pub verified: usize,
}

/// What a dataset takes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// Records that are not deleted.
    pub records: u64,
    /// Deleted records whose bytes are still there.
    pub deleted: u64,
    /// Records of the log, which are in no shard yet.
    pub in_log: u64,
    /// Bytes of all records of the shards as they came.
    pub input_bytes: u64,
    /// Bytes that the shards take.
    pub shard_bytes: u64,
    /// The second over the first.
    pub footprint: f64,
    /// Names of attributes that are known.
    pub attributes: Vec<String>,
    /// The attribute that records are got by.
    pub key: Option<String>,
    /// Its shards.
    pub shards: Vec<ShardEntry>,
}

impl Dataset {
    /// Opens a dataset's folder, or a file that is a shard by itself, and verifies every byte of it.
    ///
    /// # Errors
    ///
    /// If it is neither, or damaged.
    pub fn open(path: &Path) -> anyhow::Result<Dataset> {
        if path.is_file() {
            return Dataset::open_file(path);
        }
        // A writer may seal meanwhile, and remove what the manifest named that was just read.
        for _ in 0..3 {
            let manifest = Manifest::read(path)?;
            match Dataset::of(path, manifest.clone()) {
                Err(_) if Manifest::read(path).is_ok_and(|now| now != manifest) => {}
                result => return result,
            }
        }
        Dataset::of(path, Manifest::read(path)?)
    }

    fn open_file(path: &Path) -> anyhow::Result<Dataset> {
        let shard = open_shard(path)?;
        let entry = ShardEntry {
            file: path.display().to_string(),
            first_id: 0,
            records: shard.records().len() as u64,
            input_bytes: shard.index().len() as u64,
            file_bytes: shard.index().reader().len_bytes() as u64,
        };
        let mut manifest = Manifest::new(shard.records().schema().clone());
        manifest.shards.push(entry.clone());
        Ok(Dataset {
            folder: path.to_owned(),
            manifest,
            shards: vec![OpenShard { entry, shard }],
            appended: Vec::new(),
            deleted: BTreeSet::new(),
            last_chunk: 0,
        })
    }

    fn of(folder: &Path, manifest: Manifest) -> anyhow::Result<Dataset> {
        let mut shards = Vec::new();
        for entry in &manifest.shards {
            let shard = open_shard(&folder.join(&entry.file))?;
            let records = shard.records().len() as u64;
            ensure!(
                records == entry.records,
                "{} has {records} records, and the manifest says {}",
                entry.file,
                entry.records
            );
            shards.push(OpenShard { entry: entry.clone(), shard });
        }
        let mut dataset = Dataset {
            folder: folder.to_owned(),
            shards,
            appended: Vec::new(),
            deleted: manifest.deleted.iter().copied().collect(),
            last_chunk: manifest.sealed_chunks,
            manifest,
        };
        while let Some(chunk) = dataset.read_chunk(dataset.last_chunk + 1)? {
            dataset.take(chunk)?;
        }
        Ok(dataset)
    }

    fn read_chunk(&self, number: u64) -> anyhow::Result<Option<Chunk>> {
        let path = self.folder.join(chunk_file(number));
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let chunk = Chunk::decode(&bytes)
            .with_context(|| format!("{} is damaged; restore it", path.display()))?;
        ensure!(
            chunk.number == number && chunk.first_id == self.end_id(),
            "{} is not the chunk that follows the one before it; restore it",
            path.display()
        );
        Ok(Some(chunk))
    }

    /// Applies the next chunk of the log.
    fn take(&mut self, chunk: Chunk) -> anyhow::Result<()> {
        self.last_chunk = chunk.number;
        for entry in chunk.entries {
            match entry {
                Entry::Append(record) => self.appended.push(record),
                Entry::Delete(id) => {
                    ensure!(id < self.end_id(), "the log deletes record {id}, which there is not");
                    self.deleted.insert(id);
                }
            }
        }
        Ok(())
    }

    /// The id that the next record gets.
    pub fn end_id(&self) -> u64 {
        self.manifest.end_id() + self.appended.len() as u64
    }

    /// What its records are.
    pub fn schema(&self) -> &Schema {
        &self.manifest.schema
    }

    /// What it takes.
    pub fn info(&self) -> Info {
        let sum = |of: fn(&ShardEntry) -> u64| self.manifest.shards.iter().map(of).sum::<u64>();
        let (input_bytes, shard_bytes) = (sum(|s| s.input_bytes), sum(|s| s.file_bytes));
        Info {
            records: self.end_id() - self.deleted.len() as u64,
            deleted: self.deleted.len() as u64,
            in_log: self.appended.len() as u64,
            input_bytes,
            shard_bytes,
            footprint: shard_bytes as f64 / (input_bytes as f64).max(1.0),
            attributes: self.schema().names.clone(),
            key: self.schema().key.clone(),
            shards: self.manifest.shards.clone(),
        }
    }

    /// A page of the records that match, over all shards and the log. Costs what
    /// [`shard::query::Searcher::search`] costs on each shard that it reaches, and reading the log.
    ///
    /// # Errors
    ///
    /// As the search of a shard.
    pub fn search(&self, query: &Query, wanted: &Wanted) -> anyhow::Result<Found> {
        let mut found = Found::default();
        for open in &self.shards {
            let (first, end) = (open.entry.first_id, open.entry.first_id + open.entry.records);
            if wanted.after.is_some_and(|after| after + 1 >= end) {
                continue;
            }
            if found.ids.len() >= wanted.limit {
                found.has_more = true;
                break;
            }
            let searcher = open.shard.searcher()?;
            let after = wanted.after.and_then(|after| after.checked_sub(first));
            let mut page =
                Page { limit: 0, after: after.map(|a| a as usize), sorted: wanted.sorted };
            loop {
                page.limit = wanted.limit.saturating_sub(found.ids.len());
                let answer = searcher.search(query, &page)?;
                let ids = answer.records.iter().map(|record| first + *record as u64);
                found.ids.extend(ids.filter(|id| !self.deleted.contains(id)));
                found.located += answer.located;
                found.verified += answer.verified;
                found.has_more = answer.has_more;
                match answer.next {
                    Some(next) if found.ids.len() < wanted.limit => page.after = Some(next),
                    _ => break,
                }
            }
        }
        for (id, record) in self.log() {
            if wanted.after.is_some_and(|after| id <= after) || self.deleted.contains(&id) {
                continue;
            }
            if query.matches(self.schema(), record) {
                if found.ids.len() >= wanted.limit {
                    found.has_more = true;
                    break;
                }
                found.ids.push(id);
            }
        }
        found.next = found.ids.last().copied().filter(|_| found.has_more && wanted.sorted);
        Ok(found)
    }

    /// How many records match.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::count`].
    pub fn count(&self, query: &Query) -> anyhow::Result<u64> {
        let mut count = 0;
        for open in &self.shards {
            count += open.shard.searcher()?.count(query)? as u64;
        }
        for id in self.deleted.range(..self.manifest.end_id()) {
            let record = self.stored(*id)?;
            count -= u64::from(query.matches(self.schema(), &record));
        }
        let log = self.log().filter(|(id, record)| {
            !self.deleted.contains(id) && query.matches(self.schema(), record)
        });
        Ok(count + log.count() as u64)
    }

    /// How often a string of bytes occurs in the shards, deleted records included.
    pub fn occurrences(&self, bytes: &[u8]) -> u64 {
        self.shards.iter().map(|open| open.shard.index().count(bytes) as u64).sum()
    }

    /// A record, byte for byte as it came.
    ///
    /// # Errors
    ///
    /// If there is none of this id.
    pub fn get(&self, id: u64) -> anyhow::Result<Vec<u8>> {
        ensure!(!self.deleted.contains(&id), "record {id} was deleted");
        let stored = self.stored(id)?;
        Ok(self.schema().original(&stored).to_vec())
    }

    /// The id of the first record with a key.
    ///
    /// # Errors
    ///
    /// If the records have no key.
    pub fn id_of(&self, key: &str) -> anyhow::Result<Option<u64>> {
        let Some(attribute) = self.schema().key.clone() else {
            bail!("its records have no key; search for an attribute instead");
        };
        let condition = shard::query::Condition::Equals(key.as_bytes().to_vec());
        let query = Query::Test(shard::query::Test { attribute: Some(attribute), condition });
        let wanted = Wanted { limit: 1, after: None, sorted: true };
        Ok(self.search(&query, &wanted)?.ids.first().copied())
    }

    /// Bytes of the text of the shards, one after the other.
    ///
    /// # Errors
    ///
    /// If they are not all there.
    pub fn extract(&self, range: Range<u64>) -> anyhow::Result<Vec<u8>> {
        let all: u64 = self.manifest.shards.iter().map(|shard| shard.input_bytes).sum();
        ensure!(
            range.start <= range.end && range.end <= all,
            "bytes {} to {} are not within the {all} bytes of the shards",
            range.start,
            range.end
        );
        let (mut bytes, mut start) = (Vec::new(), 0);
        for open in &self.shards {
            let end = start + open.entry.input_bytes;
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                let (offset, len) = ((from - start) as usize, (to - from) as usize);
                open.shard.index().extract(offset, len, &mut bytes)?;
            }
            start = end;
        }
        Ok(bytes)
    }

    /// Writes every record that is not deleted, as it came, and what precedes the first (the header of a
    /// CSV file).
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn export(&self, out: &mut dyn Write) -> anyhow::Result<u64> {
        const RECORDS_AT_ONCE: usize = 1024;
        let mut written = 0;
        for open in &self.shards {
            let mut header = Vec::new();
            let place = open.shard.records().header();
            open.shard.index().extract(place.start, place.len(), &mut header)?;
            out.write_all(&header)?;
            let searcher = open.shard.searcher()?;
            let first = open.entry.first_id;
            let there: Vec<usize> = (0..open.entry.records)
                .filter(|record| !self.deleted.contains(&(first + record)))
                .map(|record| record as usize)
                .collect();
            for records in there.chunks(RECORDS_AT_ONCE) {
                for record in searcher.get_all(records)? {
                    out.write_all(&record)?;
                }
            }
            written += there.len() as u64;
        }
        for (id, record) in self.log() {
            if !self.deleted.contains(&id) {
                out.write_all(self.schema().original(record))?;
                written += 1;
            }
        }
        Ok(written)
    }

    /// Records of the log with their ids.
    fn log(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.manifest.end_id();
        self.appended.iter().enumerate().map(move |(i, record)| (first + i as u64, &record[..]))
    }

    /// A record as it stands in the text, deleted or not.
    fn stored(&self, id: u64) -> anyhow::Result<Vec<u8>> {
        let end = self.end_id();
        ensure!(id < end, "there is no record {id}: ids are 0 to {}", end.saturating_sub(1));
        if let Some(record) = id.checked_sub(self.manifest.end_id()) {
            let record =
                self.appended.get(record as usize).context("ids of the log have no gaps")?;
            return Ok(record.clone());
        }
        let after = self.shards.partition_point(|open| open.entry.first_id <= id);
        let open = after.checked_sub(1).and_then(|at| self.shards.get(at));
        let open = open.context("ids of shards have no gaps")?;
        let range = open.shard.records().range((id - open.entry.first_id) as usize);
        let range = range.context("a shard has the records that it says")?;
        let mut bytes = Vec::new();
        open.shard.index().extract(range.start, range.len(), &mut bytes)?;
        Ok(bytes)
    }
}

/// The name of a chunk's file.
fn chunk_file(number: u64) -> String {
    format!("{number:012}.log")
}

fn open_shard(path: &Path) -> anyhow::Result<Shard> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    #[expect(unsafe_code, reason = "mapping a file")]
    // SAFETY: a shard's file is written once, under another name, and never changed: only somebody who
    // truncates it behind our back could take the pages away.
    let map = unsafe { memmap2::Mmap::map(&file) };
    let map = map.with_context(|| format!("cannot map {shown}"))?;
    Shard::open(map).with_context(|| format!("cannot read {shown}"))
}

#[cfg(test)]
mod tests;
