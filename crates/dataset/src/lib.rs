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
mod jobs;
pub mod manifest;
mod memory;
pub mod part;
mod read;
pub mod remote;
mod write;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use shard::query::Query;
use shard::record::Schema;
use shard::{Shard, Text};

use chunk::{Chunk, Entry};
pub use import::{Imported, Options, Step, discard, import};
use manifest::{Manifest, ShardEntry};
use part::{Part, RUN_BYTES, Run, search_log};
pub use write::Writer;
pub use write::{SEAL_BYTES, split};

/// A dataset, open to be read. Cloning it costs a few pointers.
#[derive(Clone)]
pub struct Dataset {
    folder: PathBuf,
    manifest: Arc<Manifest>,
    parts: Vec<Arc<Part>>,
    /// Records of the log, the first with the id that follows those of the shards.
    appended: Arc<Vec<Arc<[u8]>>>,
    /// Ids of deleted records.
    deleted: Arc<BTreeSet<u64>>,
    /// Of those that the log deletes the chunk that does, and the id.
    deleted_by: Arc<Vec<(u64, u64)>>,
    /// Number of the last chunk of the log.
    last_chunk: u64,
}

/// Which part of an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
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
            manifest: Arc::new(manifest),
            parts: vec![Arc::new(Part::new(entry, shard)?)],
            appended: Arc::default(),
            deleted: Arc::default(),
            deleted_by: Arc::default(),
            last_chunk: 0,
        })
    }

    fn of(folder: &Path, manifest: Manifest) -> anyhow::Result<Dataset> {
        let mut dataset = Dataset::of_parts(folder, manifest, &[], |_| true)?;
        while let Some(chunk) = dataset.read_chunk(dataset.last_chunk + 1)? {
            dataset.take(chunk)?;
        }
        Ok(dataset)
    }

    /// The dataset of a manifest, with those of its shards that are `wanted`, which are in the folder, and
    /// without its log. Shards that are open already are not opened again.
    pub fn of_parts(
        folder: &Path,
        manifest: Manifest,
        open: &[Arc<Part>],
        wanted: impl Fn(&ShardEntry) -> bool,
    ) -> anyhow::Result<Dataset> {
        let mut parts = Vec::new();
        for entry in manifest.shards.iter().filter(|entry| wanted(entry)) {
            parts.push(match open.iter().find(|part| part.entry() == entry) {
                Some(part) => part.clone(),
                None => {
                    let shard = open_shard(&folder.join(&entry.file))?;
                    Arc::new(Part::new(entry.clone(), shard)?)
                }
            });
        }
        Ok(Dataset {
            folder: folder.to_owned(),
            parts,
            appended: Arc::default(),
            deleted: Arc::new(manifest.deleted.iter().copied().collect()),
            deleted_by: Arc::default(),
            last_chunk: manifest.sealed_chunks,
            manifest: Arc::new(manifest),
        })
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

    /// Applies the next chunk of the log. Costs a copy of the list of what was appended if others hold it.
    pub fn take(&mut self, chunk: Chunk) -> anyhow::Result<()> {
        ensure!(
            chunk.number == self.last_chunk + 1 && chunk.first_id == self.end_id(),
            "chunk {} of the log is not the one that follows {}",
            chunk.number,
            self.last_chunk
        );
        self.last_chunk = chunk.number;
        for entry in chunk.entries {
            match entry {
                Entry::Append(record) => Arc::make_mut(&mut self.appended).push(record.into()),
                Entry::Delete(id) => {
                    ensure!(id < self.end_id(), "the log deletes record {id}, which there is not");
                    if Arc::make_mut(&mut self.deleted).insert(id) {
                        Arc::make_mut(&mut self.deleted_by).push((self.last_chunk, id));
                    }
                }
            }
        }
        Ok(())
    }

    /// The shards as they were after an earlier chunk of the log: without what was deleted since.
    pub fn shards_as_of(&self, chunk: u64) -> Dataset {
        let mut earlier = self.clone();
        for (by, id) in self.deleted_by.iter().rev().take_while(|(by, _)| *by > chunk) {
            debug_assert!(*by > chunk);
            Arc::make_mut(&mut earlier.deleted).remove(id);
        }
        earlier
    }

    /// What it consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The shards that are open.
    pub fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    /// Ids of deleted records.
    pub fn deleted(&self) -> &Arc<BTreeSet<u64>> {
        &self.deleted
    }

    /// Number of the last chunk of the log.
    pub fn last_chunk(&self) -> u64 {
        self.last_chunk
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
        for part in &self.parts {
            if found.ids.len() >= wanted.limit {
                found.has_more |= wanted.after.is_none_or(|after| after + 1 < part.ids().end);
                break;
            }
            let limit = wanted.limit - found.ids.len();
            let further = part.search(query, &Wanted { limit, ..*wanted }, &self.deleted)?;
            found.append(further, wanted.limit);
        }
        let limit = wanted.limit.saturating_sub(found.ids.len());
        found.append(self.search_log(query, &Wanted { limit, ..*wanted }), wanted.limit);
        found.close(wanted);
        Ok(found)
    }

    /// A page of the records of the log that match.
    pub fn search_log(&self, query: &Query, wanted: &Wanted) -> Found {
        search_log(self.log(), self.schema(), query, wanted, &self.deleted)
    }

    /// How many records match.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::count`].
    pub fn count(&self, query: &Query) -> anyhow::Result<u64> {
        let mut count = self.count_log(query);
        for part in &self.parts {
            count += part.count(query, &self.deleted)?;
        }
        Ok(count)
    }

    /// How many records of the log match.
    pub fn count_log(&self, query: &Query) -> u64 {
        let there = self.log().filter(|(id, _)| !self.deleted.contains(id));
        there.filter(|(_, record)| query.matches(self.schema(), record)).count() as u64
    }

    /// How often a string of bytes occurs in the shards, deleted records included.
    pub fn occurrences(&self, bytes: &[u8]) -> u64 {
        self.parts.iter().map(|part| part.shard().index().count(bytes) as u64).sum()
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
        let query = key_query(self.schema(), key)?;
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
        for part in &self.parts {
            let end = start + part.entry().input_bytes;
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                let (offset, len) = ((from - start) as usize, (to - from) as usize);
                part.shard().index().extract(offset, len, &mut bytes)?;
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
        let mut written = 0;
        self.runs(&mut |run| {
            out.write_all(&run.bytes)?;
            written += run.records;
            Ok(())
        })?;
        Ok(written)
    }

    /// Hands the same on, a run at a time.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    pub fn runs(&self, take: &mut dyn FnMut(&Run) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for part in &self.parts {
            let mut ids = part.ids();
            // One without records may have a header.
            loop {
                let run = part.run(ids.clone(), &self.deleted)?;
                take(&run)?;
                ids.start = run.next;
                if ids.is_empty() {
                    break;
                }
            }
        }
        let mut ids = self.manifest.end_id()..self.end_id();
        while !ids.is_empty() {
            let run = self.run_of_log(ids.clone());
            take(&run)?;
            ids.start = run.next;
        }
        Ok(())
    }

    /// Those of the log's records with these ids, as [`Part::run`] gives those of a shard.
    pub fn run_of_log(&self, ids: Range<u64>) -> Run {
        let first = self.manifest.end_id();
        let mut run = Run { next: ids.start.max(first), ..Run::default() };
        let passed = usize::try_from(run.next - first).unwrap_or(usize::MAX);
        for (id, record) in self.log().skip(passed).take_while(|(id, _)| *id < ids.end) {
            if !self.deleted.contains(&id) {
                let original = self.schema().original(record);
                if run.records > 0 && run.bytes.len() + original.len() > RUN_BYTES {
                    break;
                }
                run.bytes.extend_from_slice(original);
                run.records += 1;
            }
            run.next = id + 1;
        }
        run
    }

    /// Records of the log with their ids.
    fn log(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.manifest.end_id();
        self.appended.iter().enumerate().map(move |(i, record)| (first + i as u64, &record[..]))
    }

    /// A record as it stands in the text, deleted or not.
    pub fn stored(&self, id: u64) -> anyhow::Result<Vec<u8>> {
        let end = self.end_id();
        ensure!(id < end, "there is no record {id}: ids are 0 to {}", end.saturating_sub(1));
        if let Some(record) = id.checked_sub(self.manifest.end_id()) {
            let record = self.appended.get(usize::try_from(record)?);
            return Ok(record.context("ids of the log have no gaps")?.to_vec());
        }
        let after = self.parts.partition_point(|part| part.entry().first_id <= id);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
        part.filter(|part| part.ids().contains(&id)).context("the shard is not here")?.stored(id)
    }
}

/// What asks for the record with a key.
///
/// # Errors
///
/// If the records have no key.
pub fn key_query(schema: &Schema, key: &str) -> anyhow::Result<Query> {
    let Some(attribute) = schema.key.clone() else {
        bail!("its records have no key; search for an attribute instead");
    };
    let condition = shard::query::Condition::Equals(key.as_bytes().to_vec());
    Ok(Query::Test(shard::query::Test { attribute: Some(attribute), condition }))
}

/// Whether a dataset may have this name.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=100).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

/// The name of a chunk's file.
pub fn chunk_file(number: u64) -> String {
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
