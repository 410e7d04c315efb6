//! Compaction: one shard in place of several small ones, and shards without the bytes of deleted records.
//!
//! Each append that fills the log makes a shard, and every search visits all of them; deleted records stay in their
//! shard's text until it is written anew. Ids stay: a shard that lost records keeps the range of its ids, with gaps
//! ([`gaps`](super::gaps)).
//!
//! One group of adjacent shards is rewritten at a time: its new shard, then the manifest that lists it in place of the old
//! ones, then the old files are removed. A crash in between leaves the dataset as before or after that group, and a file
//! that the next writer removes. So an interrupted compaction keeps what it has done, and takes the disk space of one
//! group.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use shard::index;
use shard::record::{Builder, Format, Schema};

use super::error::{Error, Result, ensure};
use super::gaps::ranges;
use super::import::write_shard;
use super::manifest::{Manifest, ShardEntry};
use super::memory::{Counts, Machine, Plan};
use super::options::Options;
use super::part::Part;
use super::write::{build, remove_left_over};
use super::{Dataset, Writer};

/// The options of a compaction.
#[derive(Clone, Debug, Default)]
pub struct CompactOptions {
    /// A shard is rewritten for its deleted records alone if they are at least this share of its bytes, 0 to 1.
    pub deleted_share: f64,
    /// The most bytes of records in a shard that is made of several; if `None`, 256 MiB or as much as the memory allows.
    pub shard_bytes: Option<usize>,
    /// Memory limit of the process; half of the available memory if `None`.
    pub memory_bytes: Option<usize>,
}

/// A progress event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactStep {
    /// Shards are being rewritten as one.
    Build {
        /// How many.
        shards: usize,
        /// Bytes of their records that are not deleted.
        text_bytes: usize,
    },
    /// The new shard is on disk, and not listed yet.
    Built,
    /// The new shard is listed, and the old ones are not removed yet.
    Listed,
}

/// The result of a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct CompactionReport {
    /// The shards before, that of a sealed log included.
    pub shards_before: usize,
    /// The shards now.
    pub shards: usize,
    /// Size of the shards before, bytes.
    pub shard_bytes_before: u64,
    /// Size of the shards now, bytes.
    pub shard_bytes: u64,
    /// Deleted records whose bytes were left out.
    pub reclaimed: u64,
    /// Groups of shards that stayed as they were, each with the reason.
    pub skipped: Vec<String>,
}

/// The bytes of a shard's records.
#[derive(Clone, Copy, Debug)]
struct Content {
    there: u64,
    deleted: u64,
}

/// Adjacent shards to rewrite as one.
///
/// A shard of at least half of `shard_bytes` stays by itself, so that a large one is not rewritten for each small one that
/// comes. Smaller ones are joined as long as they fit: two neighbours that were joined exceed half together with the next, so
/// that a second compaction finds nothing to do.
fn groups(shards: &[Content], shard_bytes: u64, deleted_share: f64) -> Vec<Range<usize>> {
    let mut all: Vec<(Range<usize>, u64)> = Vec::new();
    let is_full = |there: u64| there.saturating_mul(2) >= shard_bytes;
    for (at, shard) in shards.iter().enumerate() {
        match all.last_mut() {
            Some((group, there))
                // One that is full is alone: of a longer group the sum may be.
                if !is_full(shard.there)
                    && (group.len() > 1 || !is_full(*there))
                    && *there + shard.there <= shard_bytes =>
            {
                (group.end, *there) = (at + 1, *there + shard.there);
            }
            _ => all.push((at..at + 1, shard.there)),
        }
    }
    let is_wanted = |group: &Range<usize>| {
        let alone = shards.get(group.start).filter(|_| group.len() == 1);
        alone.is_none_or(|Content { there, deleted }| {
            *deleted > 0 && *deleted as f64 >= deleted_share * (there + deleted) as f64
        })
    };
    all.into_iter().map(|(group, _)| group).filter(is_wanted).collect()
}

impl Writer {
    /// Seals the log, makes one shard of each group of small adjacent ones, and leaves out the bytes of deleted records in
    /// these and in shards of which they are a large enough share. Records and their ids stay; a record without its format's
    /// separator, at the end of an import, gets it if others follow, as in an export.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written: the dataset is then as it was, or partly compacted.
    pub fn compact(
        &mut self,
        options: &CompactOptions,
        tell: &mut dyn FnMut(CompactStep),
    ) -> Result<CompactionReport> {
        self.seal()?;
        let plan = Plan::new(&self.import_options(options), Machine::current()?)?;
        let shard_bytes = plan.shard_bytes as u64;
        self.compact_to(options.deleted_share, shard_bytes, &plan, tell)
    }

    /// Compacts into shards of up to `shard_bytes`.
    pub(crate) fn compact_to(
        &mut self,
        deleted_share: f64,
        shard_bytes: u64,
        plan: &Plan,
        tell: &mut dyn FnMut(CompactStep),
    ) -> Result<CompactionReport> {
        let before = self.dataset.info();
        let contents: Vec<Content> =
            self.dataset.parts.iter().map(|part| content_of(part, &self.dataset.deleted)).collect();
        let mut skipped = Vec::new();
        // From the last on, so that the places of earlier groups stay what they are.
        for group in groups(&contents, shard_bytes, deleted_share).into_iter().rev() {
            if let Err(why) = self.rewrite(group.clone(), plan, tell)? {
                let files = self.dataset.manifest.shards.get(group).unwrap_or_default();
                let files: Vec<&str> = files.iter().map(|shard| shard.file.as_str()).collect();
                skipped.push(format!("{}: {why}", files.join(", ")));
            }
        }
        let now = self.dataset.info();
        Ok(CompactionReport {
            shards_before: before.shards.len(),
            shards: now.shards.len(),
            shard_bytes_before: before.shard_bytes,
            shard_bytes: now.shard_bytes,
            reclaimed: before.deleted - now.deleted,
            skipped,
        })
    }

    /// The options of an import that would build the shards.
    fn import_options(&self, options: &CompactOptions) -> Options {
        let dataset = &self.dataset;
        Options {
            format: Some(dataset.schema().format),
            header: shard::record::detect::Header::Given,
            columns: Vec::new(),
            key: None,
            orders: ordered(&dataset.parts),
            index: index_options(&dataset.parts),
            shard_bytes: options.shard_bytes,
            jobs: Some(1),
            memory_bytes: options.memory_bytes,
            replace: false,
        }
    }

    /// Rewrites adjacent shards as one, or says why they stay as they are.
    fn rewrite(
        &mut self,
        group: Range<usize>,
        plan: &Plan,
        tell: &mut dyn FnMut(CompactStep),
    ) -> Result<Result<(), String>> {
        let dataset = &self.dataset;
        let parts = dataset
            .parts
            .get(group.clone())
            .ok_or_else(|| Error::inconsistent("a group is of the dataset's shards"))?;
        let joined = Joined::new(dataset, parts)?;
        let needed = plan.memory_bytes(&joined.counts());
        if !plan.fits(&joined.counts()) {
            let mib = needed.div_ceil(1 << 20);
            return Ok(Err(format!(
                "building the shard would take {mib} MiB; allow more (--memory)"
            )));
        }
        if !joined.is_split_alike()? {
            return Ok(Err("the records would not be the same behind others".to_owned()));
        }
        tell(CompactStep::Build { shards: parts.len(), text_bytes: joined.bytes() });
        let folder = dataset.folder.clone();
        let mut manifest = Manifest::clone(&dataset.manifest);
        let ids =
            parts.first().zip(parts.last()).map(|(first, last)| first.ids().start..last.ids().end);
        let ids = ids.ok_or_else(|| Error::inconsistent("a group is not empty"))?;
        let (orders, index) = (ordered(parts), index_options(parts));
        let number = manifest.next_shard;
        let made = write_shard(&folder, number, ids.start, false, |out| match &joined.records {
            Some(records) => build(&joined.schema, records, &index, out),
            None => {
                let schema = joined.schema.clone();
                shard::Shard::build(&joined.text, schema, &orders, &index, out, &mut |_| ())
            }
        })?;
        let made = made.entry;
        let gaps = ranges(dataset.deleted.range(ids.clone()).copied());
        let gone: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        // What was checked before is checked again in what was written: nothing is removed for a shard that lacks records.
        ensure!(
            made.records == joined.count() && made.records + gone == ids.end - ids.start,
            Damaged,
            "{} would have {} records instead of {}; nothing was replaced",
            made.file,
            made.records,
            joined.count()
        );
        manifest.replace_shards(group, ShardEntry { gone, gaps, ..made });
        manifest.next_shard += 1;
        tell(CompactStep::Built);
        manifest.write(&folder)?;
        tell(CompactStep::Listed);
        remove_left_over(&folder, &manifest)?;
        self.dataset = Dataset::of_parts(&folder, manifest, &dataset.parts, |_| true)?;
        Ok(Ok(()))
    }
}

fn content_of(part: &Part, deleted: &BTreeSet<u64>) -> Content {
    let deleted = part.deleted_bytes(deleted);
    Content { there: part.entry().input_bytes.saturating_sub(deleted), deleted }
}

/// The attributes of which one of the shards has a table of numbers.
fn ordered(parts: &[Arc<Part>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in parts.iter().flat_map(|part| part.shard().records().ordered()) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// The sampling rates of the largest shard, as the import chose them: those of a sealed log are the default.
fn index_options(parts: &[Arc<Part>]) -> index::Options {
    let largest = parts.iter().max_by_key(|part| part.entry().input_bytes);
    largest.map_or_else(index::Options::default, |part| {
        let index = part.shard().index();
        index::Options { sa_sampling: index.sa_sampling(), isa_sampling: index.isa_sampling() }
    })
}

/// The records of several shards that are not deleted.
struct Joined {
    schema: Schema,
    /// The text of a shard of them; empty for whole files.
    text: Vec<u8>,
    /// Where they start in the text.
    starts: Vec<usize>,
    /// Whole files as they are stored, each with its path.
    records: Option<Vec<Arc<[u8]>>>,
}

impl Joined {
    fn new(dataset: &Dataset, parts: &[Arc<Part>]) -> Result<Joined> {
        let (mut text, mut starts) = (Vec::new(), Vec::new());
        // Only the first shard of a table has a header.
        let first = parts
            .first()
            .ok_or_else(|| Error::inconsistent("at least one shard"))?
            .shard()
            .records()
            .schema();
        let schema = Schema { format: first.format, ..dataset.schema().clone() };
        if schema.format == Format::Files {
            let mut records: Vec<Arc<[u8]>> = Vec::new();
            for part in parts {
                for id in part.ids().filter(|id| !dataset.deleted.contains(id)) {
                    records.push(part.stored(id)?.into());
                }
            }
            return Ok(Joined { schema, text, starts, records: Some(records) });
        }
        for part in parts {
            let mut ids = part.ids();
            // Once even without records: the shard may have a header.
            loop {
                let base = text.len();
                let mut mark = |start: usize| starts.push(base + start);
                let run =
                    part.run_marked(ids.clone(), &dataset.deleted, dataset.end_id(), &mut mark)?;
                text.extend_from_slice(&run.bytes);
                ids.start = run.next;
                if ids.is_empty() {
                    break;
                }
            }
        }
        Ok(Joined { schema, text, starts, records: None })
    }

    fn count(&self) -> u64 {
        self.records.as_ref().map_or(self.starts.len(), Vec::len) as u64
    }

    fn bytes(&self) -> usize {
        let files = self.records.iter().flatten().map(|record| record.len());
        self.text.len() + files.sum::<usize>()
    }

    fn counts(&self) -> Counts {
        match &self.records {
            Some(records) => Counts { bytes: self.bytes(), lines: records.len(), commas: 0 },
            None => Counts::from_text(&self.text),
        }
    }

    /// Whether the text is split into the same records. A record that was cut for its length may be cut elsewhere, and
    /// the rest of an invalid one may join the next.
    fn is_split_alike(&self) -> Result<bool> {
        if self.records.is_some() {
            return Ok(true);
        }
        let mut builder = Builder::new(self.schema.clone());
        builder.push(&self.text)?;
        let (records, _) = builder.finish()?;
        let start = |record: usize| records.range(record).map(|range| range.start);
        Ok(records.len() == self.starts.len()
            && self.starts.iter().enumerate().all(|(record, there)| start(record) == Some(*there)))
    }
}

#[cfg(test)]
mod tests;
