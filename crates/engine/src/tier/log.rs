//! The segments of one device: filled in order, reclaimed first-in-first-out.
//!
//! A device is a log of large segments. Records are placed one after another. When the byte budget
//! is exceeded, the oldest segment is dropped as a whole; records that were still being read have
//! by then been written again at the head (*reinsertion*: a caller that reads a record from an old
//! segment appends it again while it has the bytes). So there is no compaction and no free-space
//! map, and devices see large sequential writes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::mutant::{self, Mutant};

/// Bytes of a record in addition to its key and stored payload: the header of the driver's format.
pub const RECORD_OVERHEAD_BYTES: u64 = 32;
/// Bytes of a block: the part of an object that has a checksum of its own on a device, if the object
/// is larger than one block.
pub const BLOCK_BYTES: u64 = 64 << 10;

/// Bytes of the record of an object of `bytes` bytes that has `stored_bytes` with its metadata.
pub fn record_bytes(key_bytes: usize, bytes: u64, stored_bytes: u64) -> u64 {
    let checksums = if bytes > BLOCK_BYTES { 4 * bytes.div_ceil(BLOCK_BYTES) } else { 0 };
    RECORD_OVERHEAD_BYTES + key_bytes as u64 + stored_bytes + checksums
}

/// Where a record lies on its device. Opaque outside the tier and the driver's disk code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    segment: u64,
    offset: u64,
    bytes: u64,
}

impl Location {
    /// The place of a record that the disk code found in an existing segment.
    pub fn new(segment: u64, offset: u64, bytes: u64) -> Location {
        Location { segment, offset, bytes }
    }
    /// Number of the segment; newer segments have higher numbers.
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
}

/// Side effects of placing a record.
#[derive(Default)]
pub struct Placed {
    /// The segment that gets no further records, if one was sealed.
    pub sealed: Option<u64>,
    /// Segments to remove.
    pub dropped: Vec<u64>,
}

/// Decides where records are placed on one device, and which segments are dropped.
///
/// Bytes are counted when a record is placed, so the budget holds while its write is still under
/// way.
pub struct Log {
    segments: VecDeque<Segment>,
    bytes: u64,
    bytes_max: u64,
    segment_bytes: u64,
    segments_max: usize,
    next: u64,
    /// Whether the last segment accepts further records.
    open: bool,
}

impl Log {
    /// An empty log. A segment is at most half of the budget, so that dropping one does not empty
    /// the device, and at most 4 GiB, because the index has 32 bits for an offset. A device with a place
    /// for each segment has at most `segments_max` of them, however full they are; 0: without a bound.
    pub fn new(bytes_max: u64, segment_bytes: u64, segments_max: u64) -> Log {
        let segment_bytes = segment_bytes.min(bytes_max / 2).clamp(1, u64::from(u32::MAX));
        let segments_max = match segments_max {
            0 => usize::MAX,
            n => usize::try_from(n).unwrap_or(usize::MAX),
        };
        let segments = VecDeque::new();
        Log { segments, bytes: 0, bytes_max, segment_bytes, segments_max, next: 0, open: false }
    }

    /// Bytes of all records placed and not dropped.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Number of segments, the open one included, and how many there may be if that is bounded.
    pub fn segments(&self) -> (u64, Option<u64>) {
        let bound = (self.segments_max < usize::MAX).then_some(self.segments_max as u64);
        (self.segments.len() as u64, bound)
    }

    /// The part of the device that is taken: of its bytes, or of its segments if that is more. What is left
    /// free of a sealed segment counts as taken where segments are bounded.
    pub fn fullness(&self) -> f64 {
        let of_bytes = self.bytes as f64 / self.bytes_max as f64;
        if self.segments_max == usize::MAX {
            return of_bytes;
        }
        let open = self.segments.back().filter(|_| self.open).map_or(0, |head| head.bytes);
        let sealed = (self.segments.len() - usize::from(self.open)) as f64;
        let of_segments =
            (sealed + open as f64 / self.segment_bytes as f64) / self.segments_max as f64;
        of_bytes.max(of_segments)
    }

    /// Whether a record of this length can ever be placed.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.segment_bytes
    }

    /// Whether a segment is among the oldest eighth of a log that is nearly full: records read from
    /// it should be written again before it is dropped.
    pub fn is_ageing(&self, segment: u64) -> bool {
        if self.bytes + 2 * self.segment_bytes < self.bytes_max
            && self.segments.len() + 1 < self.segments_max
        {
            return false;
        }
        let old = self.segments.len().div_ceil(8);
        self.segments.get(old.saturating_sub(1)).is_some_and(|last| segment <= last.number)
            && self.segments.back().is_some_and(|head| segment != head.number)
    }

    /// Whether the next segment that is filled puts out the oldest.
    pub fn is_full(&self) -> bool {
        self.bytes + self.segment_bytes > self.bytes_max || self.segments.len() >= self.segments_max
    }

    /// The oldest segment, if the next segment that is filled drops it.
    pub fn oldest(&self) -> Option<u64> {
        let oldest = self.segments.front()?;
        let goes = self.is_full() && self.segments.len() > 1;
        goes.then_some(oldest.number)
    }

    /// Adds a segment that is already on the device, as sealed. Segments must be added in ascending
    /// order; new records are placed after them.
    pub fn restore(&mut self, number: u64, bytes: u64) {
        self.bytes += bytes;
        self.next = self.next.max(number + 1);
        self.segments.push_back(Segment { number, bytes });
        self.open = false;
    }

    /// Places a record, for which [`Log::fits`] must hold, and drops the oldest segments until the
    /// log is within its budget.
    pub fn place(&mut self, bytes: u64) -> (Location, Placed) {
        assert!(self.fits(bytes), "a record of {bytes} bytes does not fit a segment");
        let mut placed = Placed::default();
        if self.open && self.segments.back().is_some_and(|h| h.bytes + bytes > self.segment_bytes) {
            placed.sealed = self.seal();
        }
        if !self.open {
            self.segments.push_back(Segment { number: self.next, bytes: 0 });
            self.next += 1;
            self.open = true;
        }
        self.bytes += bytes;
        let head = self.segments.back_mut().expect("a segment is open");
        let location = Location { segment: head.number, offset: head.bytes, bytes };
        head.bytes += bytes;
        while (self.bytes > self.bytes_max || self.segments.len() > self.segments_max)
            && self.segments.len() > 1
            && !mutant::is(Mutant::BudgetIgnored)
        {
            let oldest = self.segments.pop_front().expect("more than one segment");
            self.bytes -= oldest.bytes;
            placed.dropped.push(oldest.number);
        }
        assert!(self.bytes <= self.bytes_max, "the device's budget is exceeded");
        (location, placed)
    }

    /// Takes less than the budget from now on, since the file system had no room for a record: what is there less a segment, which
    /// leaves room for indexes and for others. The next record drops the oldest segments then: without this a device that was given
    /// more than its file system has kept what it first got for ever.
    pub fn shrink(&mut self) {
        let least = self.bytes_max.min(2 * self.segment_bytes);
        self.bytes_max = self.bytes.saturating_sub(self.segment_bytes).clamp(least, self.bytes_max);
    }

    /// Ends the open segment, so that the next record opens a new one: the segment is full, or a
    /// write to it failed and the rest of it is not trusted. Returns its number if there was one.
    pub fn seal(&mut self) -> Option<u64> {
        let open = std::mem::take(&mut self.open);
        self.segments.back().filter(|_| open).map(|head| head.number)
    }
}

impl Log {
    /// Seals the open segment if it is this one; see [`Log::seal`].
    pub fn seal_if(&mut self, segment: u64) -> Option<u64> {
        let open = self.segments.back().is_some_and(|head| head.number == segment);
        if open { self.seal() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_budget_holds_and_places_never_overlap(
            sizes in prop::collection::vec(1u64..120, 1..400),
            segment_bytes in 100u64..300,
            segments_max in prop_oneof![Just(0u64), 1u64..8],
        ) {
            let mut log = Log::new(1_000, segment_bytes, segments_max);
            let mut held: Vec<Location> = Vec::new();
            for size in sizes {
                if !log.fits(size) {
                    continue;
                }
                let (location, placed) = log.place(size);
                for number in &placed.dropped {
                    held.retain(|l| l.segment != *number);
                }
                prop_assert!(held.iter().all(|l| l.segment != location.segment
                    || l.offset + l.bytes <= location.offset));
                held.push(location);
                prop_assert_eq!(log.bytes(), held.iter().map(|l| l.bytes).sum::<u64>());
                prop_assert!(log.bytes() <= 1_000);
                let segments: BTreeSet<u64> = held.iter().map(|l| l.segment).collect();
                prop_assert_eq!(log.segments().0, segments.len() as u64);
                prop_assert!(log.segments().0 <= segments_max || segments_max == 0);
                prop_assert!(log.fullness() <= 1.0);
            }
        }
    }

    #[test]
    fn a_log_that_found_no_room_drops_its_oldest() {
        let mut log = Log::new(10_000, 100, 0);
        (0..20).for_each(|_| _ = log.place(50));
        log.shrink();
        assert_eq!(log.bytes_max(), 900);
        let (_, placed) = log.place(50);
        assert_eq!(placed.dropped, [0, 1]);
        assert!(log.bytes() <= 900);
        // Never so small that one segment is all there is.
        (0..20).for_each(|_| log.shrink());
        assert_eq!(log.bytes_max(), 750);
        (0..40).for_each(|_| {
            log.place(50);
            log.shrink();
        });
        assert_eq!(log.bytes_max(), 200);
    }

    #[test]
    fn new_records_go_behind_restored_segments() {
        let mut log = Log::new(1_000, 100, 0);
        log.restore(7, 60);
        let (location, placed) = log.place(10);
        assert_eq!((location.segment(), location.offset()), (8, 0));
        assert!(placed.sealed.is_none());
    }

    /// Segments that are not full take their places all the same.
    #[test]
    fn a_log_of_few_places_drops_the_oldest_for_the_next() {
        let mut log = Log::new(1_000, 100, 3);
        let mut place = |bytes| {
            let (location, placed) = log.place(bytes);
            let state = (log.is_full(), log.oldest(), log.is_ageing(0));
            (location.segment(), placed.sealed, placed.dropped, state)
        };
        assert_eq!(place(60), (0, None, vec![], (false, None, false)));
        assert_eq!(place(60), (1, Some(0), vec![], (false, None, true)));
        assert_eq!(place(60), (2, Some(1), vec![], (true, Some(0), true)));
        assert_eq!(place(40), (2, None, vec![], (true, Some(0), true)));
        assert_eq!(place(40), (3, Some(2), vec![0], (true, Some(1), true)));
        assert_eq!(log.segments(), (3, Some(3)));
    }
}
