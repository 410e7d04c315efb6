//! Changes to a dataset: append, delete, seal.

use std::path::Path;
use std::sync::Arc;

use ground::with_causes;
use shard::Shard;
use shard::index::Options;
use shard::record::{Format, Schema};
use tracing::warn;

use super::chunk::{Chunk, Entry};
use super::dataset::Dataset;
use super::error::{Context as _, Result, bail, ensure};
use super::files;
use super::folder::{chunk_of, is_temporary};
use super::import::write_shard;
use super::manifest::{self, BYTES_MAX, Manifest, ShardEntry};
use super::names::chunk_file;
use super::parts::names::is_part_file;
use super::sealable::split;
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
        let header = self.dataset.header_names()?;
        let records = split(self.dataset.schema(), header.as_deref(), bytes)?;
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
        ensure!(
            self.dataset.has_room_for_deletions(there.len()),
            Invalid,
            "the manifest has no room for more than the {} deleted records that it lists: export the dataset, and import it anew",
            self.dataset.deleted.len()
        );
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

    /// Memory that the log takes, bytes: that of its records, what each of them takes beside its own bytes, and that of its
    /// deletions.
    pub fn log_memory(&self) -> usize {
        const OF_RECORD: usize = 48;
        // A number in a tree of numbers, and with that of its chunk in a list.
        const OF_DELETION: usize = 40;
        self.log_bytes() + OF_RECORD * self.appended.len() + OF_DELETION * self.deleted_by.len()
    }

    /// Whether a manifest has room for this number of further deleted records. One that has not could never be sealed.
    pub fn has_room_for_deletions(&self, more: usize) -> bool {
        // A shard's line with its numbers, and the ends of a gap.
        const OF_SHARD: u64 = 512;
        let of_id = u64::from(self.end_id().saturating_sub(1).max(1).ilog10()) + 2;
        let of_shard = |shard: &ShardEntry| OF_SHARD + 4 * of_id * shard.gaps.len() as u64;
        let shards: u64 = self.manifest().shards.iter().map(of_shard).sum();
        let deleted = (self.deleted.len() as u64).saturating_add(more as u64);
        shards.saturating_add(deleted.saturating_mul(of_id)) <= BYTES_MAX
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
        let built = write_shard(folder, number, first_id, false, |out| {
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
