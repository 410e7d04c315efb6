//! A part of a dataset: a shard, or the log. What one of them answers; the dataset puts them together.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, ensure};
use shard::query::{Page, Query};
use shard::record::Schema;
use shard::{Shard, Text};

use super::manifest::ShardEntry;
use super::{Found, Wanted};

/// Deleted records that are read together, to be left out of a count.
const DELETED_AT_ONCE: usize = 32;

/// A shard with its place in the dataset.
#[derive(Debug)]
pub struct Part {
    entry: ShardEntry,
    shard: Shard,
}

impl Part {
    /// A shard that the manifest names so.
    ///
    /// # Errors
    ///
    /// If it has another number of records than the manifest says.
    pub fn new(entry: ShardEntry, shard: Shard) -> anyhow::Result<Part> {
        let records = shard.records().len() as u64;
        ensure!(
            records == entry.records,
            "{} has {records} records, and the manifest says {}",
            entry.file,
            entry.records
        );
        Ok(Part { entry, shard })
    }

    /// Its place.
    pub fn entry(&self) -> &ShardEntry {
        &self.entry
    }

    /// Its index and records.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The ids of its records, deleted ones included.
    pub fn ids(&self) -> Range<u64> {
        self.entry.first_id..self.entry.first_id + self.entry.records
    }

    /// A page of its records that match and are not among the deleted.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::search`].
    pub fn search(
        &self,
        query: &Query,
        wanted: &Wanted,
        deleted: &BTreeSet<u64>,
    ) -> anyhow::Result<Found> {
        let mut found = Found::default();
        let ids = self.ids();
        if wanted.after.is_some_and(|after| after.saturating_add(1) >= ids.end) {
            return Ok(found);
        }
        let searcher = self.shard.searcher()?;
        let after = wanted.after.and_then(|after| after.checked_sub(ids.start));
        let mut page = Page { limit: 0, after: after.map(|a| a as usize), sorted: wanted.sorted };
        // Room for records that were deleted: none at first, since most that match are there.
        let (mut extra, gone) = (0, deleted.range(ids.clone()).count());
        loop {
            page.limit = (wanted.limit - found.ids.len()).saturating_add(extra);
            let answer = searcher.search(query, &page)?;
            let of_all = answer.records.iter().map(|record| ids.start + *record as u64);
            found.ids.extend(of_all.filter(|id| !deleted.contains(id)));
            found.located += answer.located;
            found.verified += answer.verified;
            found.has_more = answer.has_more || found.ids.len() > wanted.limit;
            found.ids.truncate(wanted.limit);
            if !found.has_more || found.ids.len() >= wanted.limit {
                return Ok(found);
            }
            match answer.next {
                Some(next) => page.after = Some(next),
                // From the start: what is not sorted cannot be continued. If it was full, deleted records took room.
                None if extra < gone && answer.records.len() >= page.limit => found.ids.clear(),
                None => return Ok(found),
            }
            extra = (2 * extra).max(page.limit).min(gone);
        }
    }

    /// How many of its records match and are not among the deleted.
    ///
    /// # Errors
    ///
    /// As [`shard::query::Searcher::count`].
    pub fn count(&self, query: &Query, deleted: &BTreeSet<u64>) -> anyhow::Result<u64> {
        let mut count = self.shard.searcher()?.count(query)? as u64;
        let schema = self.shard.records().schema();
        let gone: Vec<u64> = deleted.range(self.ids()).copied().collect();
        for some in gone.chunks(DELETED_AT_ONCE) {
            let ranges = some.iter().map(|id| self.range(*id)).collect::<Result<Vec<_>, _>>()?;
            let mut bytes = Vec::new();
            self.shard.index().extract_all(&ranges, &mut bytes)?;
            let mut rest = &bytes[..];
            for range in ranges {
                let (record, after) = rest.split_at_checked(range.len()).context("a record")?;
                count -= u64::from(query.matches(schema, record));
                rest = after;
            }
        }
        Ok(count)
    }

    /// A record as it stands in the text.
    ///
    /// # Errors
    ///
    /// If it is not one of this shard.
    pub fn stored(&self, id: u64) -> anyhow::Result<Vec<u8>> {
        let range = self.range(id)?;
        let mut bytes = Vec::new();
        self.shard.index().extract(range.start, range.len(), &mut bytes)?;
        Ok(bytes)
    }

    /// Where it stands.
    fn range(&self, id: u64) -> anyhow::Result<Range<usize>> {
        let record = id.checked_sub(self.entry.first_id).context("a shard has its own records")?;
        let range = self.shard.records().range(usize::try_from(record)?);
        range.context("a shard has the records that it says")
    }
}

/// A page of the records of a log that match and are not among the deleted. Reads all of it.
pub fn search_log<'a>(
    log: impl Iterator<Item = (u64, &'a [u8])>,
    schema: &Schema,
    query: &Query,
    wanted: &Wanted,
    deleted: &BTreeSet<u64>,
) -> Found {
    let mut found = Found::default();
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

impl Found {
    /// Puts what a further part has found behind what earlier parts have, up to the limit. Parts come in the
    /// order of their ids.
    pub fn append(&mut self, further: Found, limit: usize) {
        let room = limit.saturating_sub(self.ids.len());
        self.has_more |= further.has_more || further.ids.len() > room;
        self.ids.extend(further.ids.into_iter().take(room));
        self.located += further.located;
        self.verified += further.verified;
    }

    /// Says after which record the next page begins, once all parts are put together.
    pub fn close(&mut self, wanted: &Wanted) {
        self.next = self.ids.last().copied().filter(|_| self.has_more && wanted.sorted);
    }
}
