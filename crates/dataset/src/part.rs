//! Searches in one part of a dataset, a shard or the log. The dataset combines the results.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use shard::query::{Limits, Page, Query, Searcher};
use shard::record::{Format, RECORD_BYTES_MAX, Schema};
use shard::{Shard, Text};

use super::error::{Error, Result, ensure};
use super::gaps::RecordIds;
use super::manifest::ShardEntry;
use super::page::{PageRequest, SearchResult};

/// The number of deleted records read together when they are subtracted from a count.
const DELETED_AT_ONCE: usize = 32;
/// Size of a run. A gateway buffers a run before it replies, so that it can retry on another node
/// if one fails.
pub(crate) const RUN_BYTES: usize = 256 << 10;
/// The most ids covered by one run, however few of the records still exist.
const RUN_IDS: usize = 1 << 16;

/// Consecutive records as they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The bytes of the records, preceded at the start of a shard by the header of a CSV file.
    pub bytes: Vec<u8>,
    /// The number of records.
    pub records: u64,
    /// The id that the next run begins with.
    pub next: u64,
}

/// What a query may cost, and who is told of its progress.
#[derive(Clone, Default)]
pub struct Work {
    /// The limits for each shard.
    pub limits: Limits,
    /// Told the bytes of records that were read.
    pub watch: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl Work {
    fn bound<'a, T: Text + ?Sized>(&'a self, searcher: Searcher<'a, T>) -> Searcher<'a, T> {
        let watch = self.watch.as_ref().map(|watch| &**watch as &dyn Fn(usize));
        searcher.with_limits(self.limits).watched(watch)
    }
}

/// A shard with its place in the dataset.
#[derive(Debug)]
pub struct Part {
    entry: ShardEntry,
    shard: Shard,
    ids: RecordIds,
}

impl Part {
    /// Combines a shard with its manifest entry.
    ///
    /// # Errors
    ///
    /// If the number of records differs from the manifest's.
    pub(crate) fn new(entry: ShardEntry, shard: Shard) -> Result<Part> {
        let records = shard.records().len() as u64;
        ensure!(
            records == entry.records,
            Damaged,
            "{} has {records} records, and the manifest says {}",
            entry.file,
            entry.records
        );
        let ids = RecordIds::new(entry.ids(), &entry.gaps);
        Ok(Part { entry, shard, ids })
    }

    /// The manifest entry.
    pub fn entry(&self) -> &ShardEntry {
        &self.entry
    }

    /// The shard's index and records.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The ids of its records, including deleted ones.
    pub fn ids(&self) -> Range<u64> {
        self.ids.all()
    }

    /// What precedes its first record: the header of a table, or a byte-order mark.
    pub(crate) fn header(&self) -> Result<Vec<u8>> {
        let (range, mut bytes) = (self.shard.records().header(), Vec::new());
        self.shard.index().extract(range.start, range.len(), &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of its records that are deleted.
    pub(crate) fn deleted_bytes(&self, deleted: &BTreeSet<u64>) -> u64 {
        let gone = deleted.range(self.ids()).filter_map(|id| self.ids.record_of(*id));
        let ranges = gone.filter_map(|record| self.shard.records().range(record));
        ranges.map(|range| range.len() as u64).sum()
    }

    /// Returns a page of the matching records that are not deleted.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::search`].
    pub fn search(
        &self,
        query: &Query,
        wanted: &PageRequest,
        deleted: &BTreeSet<u64>,
        work: &Work,
    ) -> Result<SearchResult> {
        let mut found = SearchResult::default();
        let ids = self.ids();
        let passed =
            wanted.after.map_or(0, |after| self.ids.records_before(after.saturating_add(1)));
        if wanted.after.is_some() && passed >= self.entry.records {
            return Ok(found);
        }
        let searcher = work.bound(self.shard.searcher()?);
        let after = usize::try_from(passed)?.checked_sub(1);
        let mut page = Page { limit: 0, after, sorted: wanted.sorted };
        // Extra room in the page for deleted records. None at first, since most matching records
        // exist.
        let gone = deleted.range(ids).count().saturating_sub(usize::try_from(self.entry.gone)?);
        let mut extra = 0;
        loop {
            page.limit = (wanted.limit - found.ids.len()).saturating_add(extra);
            let answer = searcher.search(query, &page)?;
            let of_all = answer.records.iter().map(|record| self.ids.id_of(*record));
            found.ids.extend(of_all.filter(|id| !deleted.contains(id)));
            found.located += answer.located;
            found.verified += answer.verified;
            found.has_more = answer.has_more || found.ids.len() > wanted.limit;
            found.ids.truncate(wanted.limit);
            if !found.has_more || found.ids.len() >= wanted.limit {
                return Ok(found);
            }
            match answer.next {
                // Not full: the limits of the work are reached.
                Some(next) if answer.records.len() < page.limit => {
                    found.stopped_at = Some(self.ids.id_of(next));
                    return Ok(found);
                }
                Some(next) => page.after = Some(next),
                // An unsorted page cannot be continued. If deleted records filled it, start again
                // with a larger one.
                None if extra < gone && answer.records.len() >= page.limit => found.ids.clear(),
                None => return Ok(found),
            }
            extra = (2 * extra).max(page.limit).min(gone);
        }
    }

    /// Counts the matching records that are not deleted.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::count`].
    pub fn count(&self, query: &Query, deleted: &BTreeSet<u64>, work: &Work) -> Result<u64> {
        let mut count = work.bound(self.shard.searcher()?).count(query)? as u64;
        let schema = self.shard.records().schema();
        let there = deleted.range(self.ids()).filter(|id| self.ids.record_of(**id).is_some());
        let gone: Vec<u64> = there.copied().collect();
        for some in gone.chunks(DELETED_AT_ONCE) {
            let ranges = some.iter().map(|id| self.range(*id)).collect::<Result<Vec<_>, _>>()?;
            let mut bytes = Vec::new();
            self.shard.index().extract_all(&ranges, &mut bytes)?;
            let mut rest = &bytes[..];
            for range in ranges {
                let (record, after) = rest
                    .split_at_checked(range.len())
                    .ok_or_else(|| Error::inconsistent("a record"))?;
                count -= u64::from(query.matches(schema, record));
                rest = after;
            }
        }
        Ok(count)
    }

    /// Returns a run of its records with these ids that are not deleted: up to 256 KiB, or a single
    /// larger record. `end_id` is the dataset's: a record without a separator, before which others come then, is given
    /// one. Without it the last record of an import and the first appended one would be one record to whoever reads the
    /// export.
    ///
    /// # Errors
    ///
    /// Only if the shard is inconsistent.
    pub fn run(&self, ids: Range<u64>, deleted: &BTreeSet<u64>, end_id: u64) -> Result<Run> {
        self.run_marked(ids, deleted, end_id, &mut |_| ())
    }

    /// A [`run`](Part::run); `mark` is told where each of its records starts in the run's bytes.
    pub(crate) fn run_marked(
        &self,
        ids: Range<u64>,
        deleted: &BTreeSet<u64>,
        end_id: u64,
        mark: &mut dyn FnMut(usize),
    ) -> Result<Run> {
        let mine = self.ids();
        let start = ids.start.max(mine.start);
        let mut run = Run { next: start, ..Run::default() };
        let schema = self.shard.records().schema();
        if start == mine.start {
            run.bytes = self.header()?;
            // A table without a row, whose header ends with its file.
            let is_row = matches!(schema.format, Format::Csv { header: true, .. });
            if is_row && mine.start < end_id {
                let missing = schema.missing_separator(b"", &run.bytes);
                run.bytes.extend_from_slice(missing);
            }
        }
        let (mut there, mut bytes) = (Vec::new(), run.bytes.len());
        for id in (start..mine.end.min(ids.end)).take(RUN_IDS) {
            if !deleted.contains(&id) {
                let record = self
                    .ids
                    .record_of(id)
                    .ok_or_else(|| Error::inconsistent("only deleted records are missing"))?;
                bytes += self.range(id)?.len();
                if bytes > RUN_BYTES && !there.is_empty() {
                    break;
                }
                there.push(record);
            }
            run.next = id + 1;
        }
        run.records = there.len() as u64;
        for (&number, record) in there.iter().zip(self.shard.searcher()?.get_all(&there)?) {
            mark(run.bytes.len());
            run.bytes.extend_from_slice(&record);
            let next = self.ids.id_of(number) + 1;
            // The parts of a record that was cut are joined again, even across two shards.
            let is_joined =
                !deleted.contains(&next) && (next < mine.end || record.len() >= RECORD_BYTES_MAX);
            if next < end_id && !is_joined {
                let before = self.before(number)?;
                run.bytes.extend_from_slice(schema.missing_separator(&before, &record));
            }
        }
        Ok(run)
    }

    /// The end of the line before a record.
    fn before(&self, record: usize) -> Result<Vec<u8>> {
        let range = self
            .shard
            .records()
            .range(record)
            .ok_or_else(|| Error::inconsistent("a record of the shard"))?;
        let len = range.start.min(2);
        let mut bytes = Vec::with_capacity(len);
        self.shard.index().extract(range.start - len, len, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns a record as stored in the text.
    ///
    /// # Errors
    ///
    /// If the record is not in this shard.
    pub fn stored(&self, id: u64) -> Result<Vec<u8>> {
        let range = self.range(id)?;
        let mut bytes = Vec::new();
        self.shard.index().extract(range.start, range.len(), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the first of some records as stored in the text: as many as have `bytes_max` together, and at least one.
    /// Their bytes are extracted together, which takes about a third of the time of one after the other.
    ///
    /// # Errors
    ///
    /// If one of them is not in this shard.
    pub fn stored_all(&self, ids: &[u64], bytes_max: usize) -> Result<Vec<Vec<u8>>> {
        let (mut ranges, mut len) = (Vec::with_capacity(ids.len()), 0_usize);
        for id in ids {
            let range = self.range(*id)?;
            len = len.saturating_add(range.len());
            if len > bytes_max && !ranges.is_empty() {
                break;
            }
            ranges.push(range);
        }
        let mut bytes = Vec::new();
        self.shard.index().extract_all(&ranges, &mut bytes)?;
        let (mut all, mut rest) = (Vec::with_capacity(ranges.len()), &bytes[..]);
        for range in ranges {
            let (record, after) = rest
                .split_at_checked(range.len())
                .ok_or_else(|| Error::inconsistent("a record"))?;
            all.push(record.to_vec());
            rest = after;
        }
        Ok(all)
    }

    /// The position of a record in the text.
    fn range(&self, id: u64) -> Result<Range<usize>> {
        let record = self
            .ids
            .record_of(id)
            .ok_or_else(|| Error::inconsistent("the id is not one of the shard's"))?;
        self.shard
            .records()
            .range(record)
            .ok_or_else(|| Error::inconsistent("the id is after those of the shard"))
    }
}

/// Returns a page of the matching records of a log that are not deleted. Scans the log.
pub fn search_log<'a>(
    log: impl Iterator<Item = (u64, &'a [u8])>,
    schema: &Schema,
    query: &Query,
    wanted: &PageRequest,
    deleted: &BTreeSet<u64>,
) -> SearchResult {
    let mut found = SearchResult::default();
    for (id, record) in log {
        if wanted.after.is_some_and(|after| id <= after) || deleted.contains(&id) {
            continue;
        }
        found.verified += 1;
        if query.matches(schema, record) {
            if found.ids.len() >= wanted.limit {
                found.has_more = true;
                break;
            }
            found.ids.push(id);
        }
    }
    found
}

impl Run {
    /// Appends the run of the next part.
    pub fn append(&mut self, further: Run) {
        self.bytes.extend(further.bytes);
        self.records += further.records;
        self.next = self.next.max(further.next);
    }
}

impl SearchResult {
    /// Appends the result of the next part, up to the limit. Parts must come in the order of their
    /// ids.
    pub fn append(&mut self, further: SearchResult, limit: usize) {
        let room = limit.saturating_sub(self.ids.len());
        self.has_more |= further.has_more || further.ids.len() > room;
        // A page that is full goes on after its last record.
        self.stopped_at = further.stopped_at.filter(|_| further.ids.len() < room);
        self.ids.extend(further.ids.into_iter().take(room));
        self.located += further.located;
        self.verified += further.verified;
    }

    /// Sets the start of the next page, after all parts have been appended.
    pub(crate) fn close(&mut self, wanted: &PageRequest) {
        let last = self.stopped_at.or(self.ids.last().copied());
        self.next = last.filter(|_| self.has_more && wanted.sorted);
    }
}
