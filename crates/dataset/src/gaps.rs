//! Which record of a shard has which id. Ids follow each other without gaps until a compaction takes deleted records out
//! of the shard's text: from then on the shard has ranges of ids without a record, its gaps.
//!
//! Both directions are a binary search over the gaps, and a subtraction where there are none.

use std::ops::Range;

/// The ids of a shard's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordIds {
    ids: Range<u64>,
    gaps: Vec<Gap>,
}

/// A range of ids without a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gap {
    ids: Range<u64>,
    /// The number of the shard's records before it.
    records: u64,
}

impl RecordIds {
    /// The ids of a shard whose ids are `ids`, of which those in `gaps` have no record. The gaps are ascending, not
    /// empty and within `ids`, as [`Manifest::parse`](super::manifest::Manifest::parse) checks.
    pub(crate) fn new(ids: Range<u64>, gaps: &[Range<u64>]) -> RecordIds {
        let mut before = 0;
        let gaps = gaps.iter().map(|gap| {
            let records = gap.start - ids.start - before;
            before += gap.end - gap.start;
            Gap { ids: gap.clone(), records }
        });
        RecordIds { gaps: gaps.collect(), ids }
    }

    /// All ids, those without a record included.
    pub(crate) fn all(&self) -> Range<u64> {
        self.ids.clone()
    }

    /// The number of records with a smaller id.
    pub(crate) fn records_before(&self, id: u64) -> u64 {
        let id = id.clamp(self.ids.start, self.ids.end);
        let after = self.gaps.partition_point(|gap| gap.ids.start < id);
        match after.checked_sub(1).and_then(|at| self.gaps.get(at)) {
            // Past the gap as far as `id` is behind its end, which it may not be.
            Some(gap) => gap.records + id.saturating_sub(gap.ids.end),
            None => id - self.ids.start,
        }
    }

    /// The record with an id; `None` if there is none.
    pub(crate) fn record_of(&self, id: u64) -> Option<usize> {
        if !self.ids.contains(&id) {
            return None;
        }
        let record = self.records_before(id);
        (self.records_before(id + 1) > record).then(|| usize::try_from(record).ok()).flatten()
    }

    /// The id of a record.
    pub(crate) fn id_of(&self, record: usize) -> u64 {
        let record = record as u64;
        let after = self.gaps.partition_point(|gap| gap.records <= record);
        match after.checked_sub(1).and_then(|at| self.gaps.get(at)) {
            Some(gap) => gap.ids.end + (record - gap.records),
            None => self.ids.start + record,
        }
    }
}

/// The ranges of consecutive ids among ascending ones.
pub(crate) fn ranges(ids: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for id in ids {
        match all.last_mut().filter(|last| last.end == id) {
            Some(last) => last.end = id + 1,
            None => all.push(id..id + 1),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The twin is the list of the ids that have a record.
        #[test]
        fn records_and_ids_are_those_of_a_list(
            first in 0_u64..20, has_record in proptest::collection::vec(any::<bool>(), 0..40),
        ) {
            let ids = first..first + has_record.len() as u64;
            let split = |there: bool| -> Vec<u64> {
                ids.clone().zip(&has_record).filter(|(_, has)| **has == there).map(|(id, _)| id).collect()
            };
            let (twin, gone) = (split(true), split(false));
            let gaps = ranges(gone.into_iter());
            prop_assert!(gaps.windows(2).all(|two| two[0].end < two[1].start), "{gaps:?}");
            let of = RecordIds::new(ids.clone(), &gaps);
            for (record, id) in twin.iter().enumerate() {
                prop_assert_eq!(of.id_of(record), *id);
            }
            for id in 0..ids.end + 3 {
                prop_assert_eq!(of.record_of(id), twin.iter().position(|there| *there == id));
                let before = twin.iter().filter(|there| **there < id).count() as u64;
                prop_assert_eq!(of.records_before(id), before);
            }
        }
    }
}
