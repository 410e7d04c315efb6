//! The segments of one device: filled in order, reclaimed first-in-first-out.
//!
//! A device is a log of large segments. Records are placed one behind the other; when the byte
//! budget is exceeded, the oldest segment goes as a whole, and what was still read in it had been
//! written again at the head (*reinsertion*: the caller appends what it reads from an old segment,
//! while the bytes are in hand). So there is no compaction and no free-space map, and devices see
//! large sequential writes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::Key;
use crate::mutant::{self, Mutant};

/// Bytes of a record beside its key and its stored payload: the header of the driver's format.
pub const RECORD_OVERHEAD_BYTES: u64 = 32;

/// Where a record lies on its device. Opaque to all but the tier and the driver's disk code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    segment: u64,
    offset: u64,
    bytes: u64,
}

impl Location {
    /// A place that the disk code found in an existing segment.
    pub fn new(segment: u64, offset: u64, bytes: u64) -> Location {
        Location { segment, offset, bytes }
    }
    /// Number of the segment; ascending with age going down.
    pub fn segment(&self) -> u64 {
        self.segment
    }
    /// Offset of the record in the segment, bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// Length of the whole record (header, key, metadata, object), bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

struct Segment {
    number: u64,
    bytes: u64,
    /// Keys of its records in order, so that dropping it finds what was in it.
    keys: Vec<Key>,
}

/// What placing a record did to the log.
#[derive(Default)]
pub struct Placed {
    /// Segments that will get no further record.
    pub sealed: Option<u64>,
    /// Segments to remove, with the keys of their records (some may have moved on since).
    pub dropped: Vec<(u64, Vec<Key>)>,
}

/// Decides where records go on one device, and which segments go.
///
/// Bytes are counted when a record is placed, so the budget holds while its write is still under
/// way.
pub struct Log {
    segments: VecDeque<Segment>,
    bytes: u64,
    bytes_max: u64,
    segment_bytes: u64,
    next: u64,
    /// Whether the last segment takes further records.
    open: bool,
}

impl Log {
    /// An empty log. A segment is at most half of the budget, so that dropping one leaves
    /// something.
    pub fn new(bytes_max: u64, segment_bytes: u64) -> Log {
        let segment_bytes = segment_bytes.min(bytes_max / 2).max(1);
        Log { segments: VecDeque::new(), bytes: 0, bytes_max, segment_bytes, next: 0, open: false }
    }

    /// Bytes of all records placed and not dropped.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether a record of this length can ever be placed.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.segment_bytes
    }

    /// Whether a segment is among the oldest eighth of a log that is nearly full: what is read
    /// there should be written again before it goes.
    pub fn is_ageing(&self, segment: u64) -> bool {
        if self.bytes + 2 * self.segment_bytes < self.bytes_max {
            return false;
        }
        let old = self.segments.len().div_ceil(8);
        self.segments.get(old.saturating_sub(1)).is_some_and(|last| segment <= last.number)
            && self.segments.back().is_some_and(|head| segment != head.number)
    }

    /// Takes over a segment that is on the device already, all of it sealed. Segments are given in
    /// ascending order; new records go behind them.
    pub fn restore(&mut self, number: u64, bytes: u64, keys: Vec<Key>) {
        self.bytes += bytes;
        self.next = self.next.max(number + 1);
        self.segments.push_back(Segment { number, bytes, keys });
        self.open = false;
    }

    /// Finds the place of a record that [`Log::fits`], dropping the oldest segments as the budget
    /// asks.
    pub fn place(&mut self, key: &Key, bytes: u64) -> (Location, Placed) {
        assert!(self.fits(bytes), "a record of {bytes} bytes does not fit a segment");
        let mut placed = Placed::default();
        if self.open && self.segments.back().is_some_and(|h| h.bytes + bytes > self.segment_bytes) {
            placed.sealed = self.seal();
        }
        if !self.open {
            self.segments.push_back(Segment { number: self.next, bytes: 0, keys: Vec::new() });
            self.next += 1;
            self.open = true;
        }
        self.bytes += bytes;
        let head = self.segments.back_mut().expect("a segment is open");
        let location = Location { segment: head.number, offset: head.bytes, bytes };
        head.bytes += bytes;
        head.keys.push(key.clone());
        while self.bytes > self.bytes_max
            && self.segments.len() > 1
            && !mutant::is(Mutant::BudgetIgnored)
        {
            let oldest = self.segments.pop_front().expect("more than one segment");
            self.bytes -= oldest.bytes;
            placed.dropped.push((oldest.number, oldest.keys));
        }
        assert!(self.bytes <= self.bytes_max, "the device's budget is exceeded");
        (location, placed)
    }

    /// Ends the open segment, so that the next record opens a new one: it is full, or a write to it
    /// failed and its rest is not trusted. Returns its number if there was one.
    pub fn seal(&mut self) -> Option<u64> {
        let open = std::mem::take(&mut self.open);
        self.segments.back().filter(|_| open).map(|head| head.number)
    }
}

impl Log {
    /// [`Log::seal`], if the open segment is this one.
    pub fn seal_if(&mut self, segment: u64) -> Option<u64> {
        let open = self.segments.back().is_some_and(|head| head.number == segment);
        if open { self.seal() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_budget_holds_and_places_never_overlap(
            sizes in prop::collection::vec(1u64..120, 1..400),
            segment_bytes in 100u64..300,
        ) {
            let mut log = Log::new(1_000, segment_bytes);
            let mut held: Vec<Location> = Vec::new();
            for size in sizes {
                let key: Key = size.to_string().as_bytes().into();
                if !log.fits(size) {
                    continue;
                }
                let (location, placed) = log.place(&key, size);
                for (number, keys) in &placed.dropped {
                    let there = held.iter().filter(|l| l.segment == *number).count();
                    prop_assert_eq!(keys.len(), there);
                    held.retain(|l| l.segment != *number);
                }
                prop_assert!(held.iter().all(|l| l.segment != location.segment
                    || l.offset + l.bytes <= location.offset));
                held.push(location);
                prop_assert_eq!(log.bytes(), held.iter().map(|l| l.bytes).sum::<u64>());
                prop_assert!(log.bytes() <= 1_000);
            }
        }
    }

    #[test]
    fn new_records_go_behind_restored_segments() {
        let mut log = Log::new(1_000, 100);
        log.restore(7, 60, vec![]);
        let (location, placed) = log.place(&b"k"[..].into(), 10);
        assert_eq!((location.segment(), location.offset()), (8, 0));
        assert!(placed.sealed.is_none());
    }
}
