//! A dataset opened for reading: its shards, its log, and the queries of both.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shard::query::Query;
use shard::record::{Format, Schema};
use shard::{Shard, Text};

use super::chunk::{CHUNK_BYTES_MAX, Chunk, Entry};
use super::error::{Context as _, Error, Result, bail, ensure};
use super::manifest::{Manifest, ShardEntry};
use super::names::chunk_file;
use super::page::{PageRequest, SearchResult};
use super::part::{Part, RUN_BYTES, Run, Work, search_log};
use super::sealable::require_sealable;

/// A dataset opened for reading. Cloning copies a few pointers.
#[derive(Clone)]
pub struct Dataset {
    pub(super) folder: PathBuf,
    pub(super) manifest: Arc<Manifest>,
    pub(super) parts: Vec<Arc<Part>>,
    /// Records of the log; the first has the id after those of the shards.
    pub(super) appended: Arc<Vec<Arc<[u8]>>>,
    /// Ids of deleted records.
    pub(super) deleted: Arc<BTreeSet<u64>>,
    /// For each deletion in the log: the number of its chunk, and the id.
    pub(super) deleted_by: Arc<Vec<(u64, u64)>>,
    /// The number of the last chunk of the log.
    pub(super) last_chunk: u64,
    /// What a query may cost.
    pub(super) work: Work,
}

/// The size and schema of a dataset.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Info {
    /// Records that are not deleted.
    pub records: u64,
    /// Deleted records whose bytes are still stored.
    pub deleted: u64,
    /// Records in the log, not yet in a shard.
    pub in_log: u64,
    /// Original size of all records of the shards, bytes.
    pub input_bytes: u64,
    /// Size of the shards, bytes.
    pub shard_bytes: u64,
    /// `shard_bytes` divided by `input_bytes`.
    pub footprint: f64,
    /// Names of the known attributes.
    pub attributes: Vec<String>,
    /// The attribute that identifies records.
    pub key: Option<String>,
    /// The shards.
    pub shards: Vec<ShardEntry>,
}

/// Attempts to open a dataset that is changed meanwhile: each takes less time than a seal.
const OPEN_TRIES: usize = 100;

impl Dataset {
    /// Opens a dataset's folder, or a single shard file, and verifies every byte.
    ///
    /// # Errors
    ///
    /// If the path is neither, or is damaged, or is changed all the time.
    pub fn open(path: &Path) -> Result<Dataset> {
        if path.is_file() {
            return Dataset::open_file(path);
        }
        // A writer may seal, compact or replace the dataset meanwhile, and remove shards and chunks of the manifest that was
        // just read. A chunk that is gone looks like the end of the log, so that what was opened counts only if its manifest is
        // still the one there: chunks go after the manifest that has sealed them is in place.
        for _ in 0..OPEN_TRIES {
            let manifest = Manifest::read(path)?;
            let opened = Dataset::from_manifest(path, manifest.clone());
            if Manifest::read(path)? == manifest {
                return opened;
            }
        }
        bail!(
            Invalid,
            "{} was changed {OPEN_TRIES} times while it was opened; try again when less is written to it",
            path.display()
        )
    }

    fn open_file(path: &Path) -> Result<Dataset> {
        let shard = open_shard(path)?;
        let entry = ShardEntry {
            file: path.display().to_string(),
            first_id: 0,
            records: shard.records().len() as u64,
            input_bytes: shard.index().len() as u64,
            file_bytes: shard.index().reader().len_bytes() as u64,
            gone: 0,
            gaps: Vec::new(),
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
            work: Work::default(),
        })
    }

    pub(super) fn from_manifest(folder: &Path, manifest: Manifest) -> Result<Dataset> {
        let mut dataset = Dataset::of_parts(folder, manifest, &[], |_| true)?;
        while let Some(chunk) = dataset.read_chunk(dataset.last_chunk + 1)? {
            dataset.take(chunk)?;
        }
        Ok(dataset)
    }

    /// Opens those shards of a manifest that are `wanted`, from the folder; ignores the log. Reuses
    /// the shards in `open`.
    pub fn of_parts(
        folder: &Path,
        manifest: Manifest,
        open: &[Arc<Part>],
        wanted: impl Fn(&ShardEntry) -> bool,
    ) -> Result<Dataset> {
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
            work: Work::default(),
            manifest: Arc::new(manifest),
        })
    }

    fn read_chunk(&self, number: u64) -> Result<Option<Chunk>> {
        let path = self.folder.join(chunk_file(number));
        let bytes = match record::file::read(&path, CHUNK_BYTES_MAX as u64) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).context(|| format!("cannot read {}", path.display()));
            }
        };
        let chunk = Chunk::decode(&bytes)
            .context(|| format!("{} is damaged; restore it", path.display()))?;
        ensure!(
            chunk.number == number && chunk.first_id == self.end_id(),
            Damaged,
            "{} does not follow the previous chunk of the log; restore it",
            path.display()
        );
        Ok(Some(chunk))
    }

    /// Applies the next chunk of the log. Copies the list of appended records if a clone shares it.
    ///
    /// # Errors
    ///
    /// If it does not follow, or appends or deletes what cannot be: nothing of it is applied then, except
    /// that a deletion of a record that does not exist ends it midway.
    pub fn take(&mut self, chunk: Chunk) -> Result<()> {
        ensure!(
            chunk.number == self.last_chunk + 1 && chunk.first_id == self.end_id(),
            Damaged,
            "chunk {} of the log does not follow chunk {}",
            chunk.number,
            self.last_chunk
        );
        let appended: Vec<&[u8]> = chunk.entries.iter().filter_map(Entry::appended).collect();
        require_sealable(self.schema(), &appended).context(|| {
            format!(
                "chunk {} of the log is not of this dataset; restore or remove it",
                chunk.number
            )
        })?;
        self.last_chunk = chunk.number;
        for entry in chunk.entries {
            match entry {
                Entry::Append(record) => Arc::make_mut(&mut self.appended).push(record.into()),
                Entry::Delete(id) => {
                    ensure!(
                        id < self.end_id(),
                        Damaged,
                        "the log deletes record {id}, which does not exist"
                    );
                    if Arc::make_mut(&mut self.deleted).insert(id) {
                        Arc::make_mut(&mut self.deleted_by).push((self.last_chunk, id));
                    }
                }
            }
        }
        Ok(())
    }

    /// The shards as of an earlier chunk of the log: later deletions are undone.
    pub fn shards_as_of(&self, chunk: u64) -> Dataset {
        let mut earlier = self.clone();
        for (by, id) in self.deleted_by.iter().rev().take_while(|(by, _)| *by > chunk) {
            debug_assert!(*by > chunk);
            Arc::make_mut(&mut earlier.deleted).remove(id);
        }
        earlier
    }

    /// Sets what a query may cost.
    #[must_use]
    pub fn with_work(mut self, work: Work) -> Dataset {
        self.work = work;
        self
    }

    /// What a query may cost.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The open shards.
    pub fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    /// Ids of deleted records.
    pub fn deleted(&self) -> &Arc<BTreeSet<u64>> {
        &self.deleted
    }

    /// The number of the last chunk of the log.
    pub fn last_chunk(&self) -> u64 {
        self.last_chunk
    }

    /// The id that the next record will get.
    pub fn end_id(&self) -> u64 {
        self.manifest.end_id() + self.appended.len() as u64
    }

    /// The format and attributes of the records.
    pub fn schema(&self) -> &Schema {
        &self.manifest.schema
    }

    /// The names in the header that the table was imported with, where the first shard is open here. The columns have others if those
    /// were given.
    ///
    /// # Errors
    ///
    /// Only if the shard is inconsistent.
    pub fn header_names(&self) -> Result<Option<Vec<String>>> {
        let first = self.parts.first().filter(|part| part.ids().start == 0);
        let Some(part) = first else { return Ok(None) };
        let schema = part.shard().records().schema();
        let has_header = matches!(schema.format, Format::Csv { header: true, .. });
        let header = if has_header { part.header()? } else { Vec::new() };
        Ok(if header.is_empty() { None } else { schema.format.header_names(&header) })
    }

    /// The size and schema of the dataset.
    pub fn info(&self) -> Info {
        let sum = |of: fn(&ShardEntry) -> u64| self.manifest.shards.iter().map(of).sum::<u64>();
        let (input_bytes, shard_bytes) = (sum(|s| s.input_bytes), sum(|s| s.file_bytes));
        Info {
            records: self.end_id() - self.deleted.len() as u64,
            deleted: self.deleted.len() as u64 - sum(|s| s.gone),
            in_log: self.appended.len() as u64,
            input_bytes,
            shard_bytes,
            footprint: shard_bytes as f64 / (input_bytes as f64).max(1.0),
            attributes: self.schema().names.clone(),
            key: self.schema().key.clone(),
            shards: self.manifest.shards.clone(),
        }
    }

    /// Returns a page of the matching records of all shards and the log. Costs a
    /// [`shard::query::Searcher::search`] on each shard until the page is full, and a scan of the
    /// log.
    ///
    /// # Errors
    ///
    /// As the search of a shard.
    pub fn search(&self, query: &Query, wanted: &PageRequest) -> Result<SearchResult> {
        let mut found = SearchResult::default();
        for part in &self.parts {
            if found.stopped_at.is_some() {
                break;
            }
            if found.ids.len() >= wanted.limit {
                found.has_more |=
                    wanted.after.is_none_or(|after| after.saturating_add(1) < part.ids().end);
                break;
            }
            let limit = wanted.limit - found.ids.len();
            let further =
                part.search(query, &PageRequest { limit, ..*wanted }, &self.deleted, &self.work)?;
            found.append(further, wanted.limit);
        }
        let limit = wanted.limit.saturating_sub(found.ids.len());
        if found.stopped_at.is_some() {
            found.close(wanted);
            return Ok(found);
        }
        found.append(self.search_log(query, &PageRequest { limit, ..*wanted }), wanted.limit);
        found.close(wanted);
        Ok(found)
    }

    /// Returns a page of the matching records of the log.
    pub fn search_log(&self, query: &Query, wanted: &PageRequest) -> SearchResult {
        search_log(self.log(), self.schema(), query, wanted, &self.deleted)
    }

    /// Counts the matching records.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::count`].
    pub fn count(&self, query: &Query) -> Result<u64> {
        let mut count = self.count_log(query);
        for part in &self.parts {
            count += part.count(query, &self.deleted, &self.work)?;
        }
        Ok(count)
    }

    /// Counts the matching records of the log.
    pub fn count_log(&self, query: &Query) -> u64 {
        let there = self.log().filter(|(id, _)| !self.deleted.contains(id));
        there.filter(|(_, record)| query.matches(self.schema(), record)).count() as u64
    }

    /// Counts the occurrences of a byte string in the shards, including deleted records.
    pub fn occurrences(&self, bytes: &[u8]) -> u64 {
        self.parts.iter().map(|part| part.shard().index().count(bytes) as u64).sum()
    }

    /// Returns a record, byte for byte as it was added.
    ///
    /// # Errors
    ///
    /// If no record has this id.
    pub fn get(&self, id: u64) -> Result<Vec<u8>> {
        ensure!(!self.deleted.contains(&id), Missing, "record {id} was deleted");
        let stored = self.stored(id)?;
        Ok(self.schema().original(&stored).to_vec())
    }

    /// Returns the id of the first record with a key.
    ///
    /// # Errors
    ///
    /// If the records have no key.
    pub fn id_of(&self, key: &str) -> Result<Option<u64>> {
        let query = key_query(self.schema(), key)?;
        let wanted = PageRequest { limit: 1, after: None, sorted: true };
        Ok(self.search(&query, &wanted)?.ids.first().copied())
    }

    /// Returns bytes of the concatenated texts of the shards.
    ///
    /// # Errors
    ///
    /// If the range is not within them.
    pub fn extract(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let all: u64 = self.manifest.shards.iter().map(|shard| shard.input_bytes).sum();
        ensure!(
            range.start <= range.end && range.end <= all,
            Invalid,
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

    /// Writes every record that is not deleted, as it was added, preceded by the header of a CSV
    /// file if there is one. A record that came without its format's separator, at the end of a file, gets it if
    /// others follow: what is written is read as the same records.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn export(&self, out: &mut dyn Write) -> Result<u64> {
        let mut written = 0;
        self.runs(&mut |run| {
            out.write_all(&run.bytes)?;
            written += run.records;
            Ok::<(), Error>(())
        })?;
        Ok(written)
    }

    /// Passes the bytes of [`export`](Dataset::export) to `take`, one run at a time.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    pub fn runs<E: From<Error>>(
        &self,
        take: &mut dyn FnMut(&Run) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in &self.parts {
            let mut ids = part.ids();
            // Runs once even without records: the shard may have a header.
            loop {
                let run = part.run(ids.clone(), &self.deleted, self.end_id())?;
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

    /// Returns a run of the log's records with these ids; see [`Part::run`].
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

    /// Iterates over the records of the log with their ids.
    pub(super) fn log(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.manifest.end_id();
        self.appended.iter().enumerate().map(move |(i, record)| (first + i as u64, &record[..]))
    }

    /// Returns a record as stored in the text, even if it is deleted.
    pub fn stored(&self, id: u64) -> Result<Vec<u8>> {
        let end = self.end_id();
        ensure!(
            id < end,
            Missing,
            "there is no record {id}: ids are 0 to {}",
            end.saturating_sub(1)
        );
        if let Some(record) = id.checked_sub(self.manifest.end_id()) {
            let record = self.appended.get(usize::try_from(record)?);
            return Ok(record
                .ok_or_else(|| Error::inconsistent("ids of the log have no gaps"))?
                .to_vec());
        }
        let after = self.parts.partition_point(|part| part.entry().first_id <= id);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
        part.filter(|part| part.ids().contains(&id))
            .ok_or_else(|| Error::inconsistent("the shard of this record is not open here"))?
            .stored(id)
    }
}

/// Returns the query for the record with a key.
///
/// # Errors
///
/// If the records have no key.
pub fn key_query(schema: &Schema, key: &str) -> Result<Query> {
    let Some(attribute) = schema.key.clone() else {
        bail!(Invalid, "the dataset has no key attribute; search for an attribute instead");
    };
    let condition = shard::query::Condition::Equals(key.as_bytes().to_vec());
    Ok(Query::Test(shard::query::Test { attribute: Some(attribute), condition }))
}

fn open_shard(path: &Path) -> Result<Shard> {
    let shown = path.display();
    let file = record::file::open(path);
    let file = file.context(|| format!("cannot open {shown}"))?;
    #[expect(unsafe_code, reason = "mapping a file")]
    // SAFETY: a shard's file is written once, under another name, and never changed. Only
    // truncation by another program could remove mapped pages.
    let map = unsafe { memmap2::Mmap::map(&file) };
    let map = map.context(|| format!("cannot map {shown}"))?;
    Shard::open(map).context(|| format!("cannot read {shown}"))
}
