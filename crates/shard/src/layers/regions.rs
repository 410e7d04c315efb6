//! Regions of a text: equal parts of it, few enough to count reads of each.
//!
//! A text layer that is smaller than its text holds the regions that queries read most. The regions of a text follow from
//! its length alone, so that whoever counts and whoever builds mean the same ones.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most regions of a text: their counters take 32 KiB.
pub const REGIONS_MAX: usize = 4096;
/// log2 of the least bytes of a region.
const SHIFT_MIN: u32 = 12;

/// How a text is divided: regions of a power of two of bytes, of which the last may be shorter.
///
/// ```
/// use shard::layers::Regions;
/// let regions = Regions::for_text(100_000_000);
/// assert_eq!((regions.bytes(), regions.count()), (32 << 10, 3052));
/// assert_eq!(regions.region_of(40_000), 1);
/// assert_eq!(regions.range(3051), 99_975_168..100_000_000);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Regions {
    text_len: usize,
    shift: u32,
}

impl Regions {
    /// The regions of a text of this length: of 4 KiB, or larger ones if there would be more than [`REGIONS_MAX`].
    pub fn for_text(text_len: usize) -> Regions {
        let shift = text_len.div_ceil(REGIONS_MAX).next_power_of_two().ilog2().max(SHIFT_MIN);
        Regions { text_len, shift }
    }

    /// The bytes of each but the last.
    pub fn bytes(&self) -> usize {
        1 << self.shift
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.text_len.div_ceil(self.bytes())
    }

    /// The region of a position.
    #[inline]
    pub fn region_of(&self, position: usize) -> usize {
        position >> self.shift
    }

    /// The positions of a region; empty if there is no such region.
    pub fn range(&self, region: usize) -> Range<usize> {
        let start = region.saturating_mul(self.bytes()).min(self.text_len);
        start..start.saturating_add(self.bytes()).min(self.text_len)
    }
}

/// Bytes that were read of each region of a text.
#[derive(Debug)]
pub(crate) struct Reads {
    regions: Regions,
    bytes: Box<[AtomicU64]>,
}

impl Reads {
    pub(crate) fn new(text_len: usize) -> Reads {
        let regions = Regions::for_text(text_len);
        Reads { regions, bytes: (0..regions.count()).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts a range; one addition, unless it crosses regions.
    #[inline]
    pub(crate) fn add(&self, range: &Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let region = self.regions.region_of(at);
            let end = self.regions.range(region).end.min(range.end);
            let Some(bytes) = self.bytes.get(region).filter(|_| end > at) else { return };
            bytes.fetch_add((end - at) as u64, Ordering::Relaxed);
            at = end;
        }
    }

    pub(crate) fn read(&self) -> Vec<u64> {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The naive twin counts byte by byte.
        #[test]
        fn reads_are_counted_as_byte_by_byte(
            text_len in 0usize..40_000_000,
            reads in prop::collection::vec((any::<prop::sample::Index>(), 0usize..60_000), 0..40),
        ) {
            let (regions, counted) = (Regions::for_text(text_len), Reads::new(text_len));
            prop_assert!(regions.count() <= REGIONS_MAX);
            let mut naive = vec![0u64; regions.count()];
            for (start, len) in reads {
                let start = start.index(text_len + 1);
                let range = start..(start + len).min(text_len);
                counted.add(&range);
                range.for_each(|position| naive[position / regions.bytes()] += 1);
            }
            prop_assert_eq!(counted.read(), naive);
            let whole: usize = (0..regions.count()).map(|region| regions.range(region).len()).sum();
            prop_assert_eq!(whole, text_len);
        }
    }

    #[test]
    fn ranges_past_the_end_are_no_loop() {
        let counted = Reads::new(10_000);
        counted.add(&(9_000..usize::MAX));
        counted.add(&(usize::MAX - 1..usize::MAX));
        assert_eq!(counted.read(), [0, 0, 1000]);
        assert_eq!(Regions::for_text(10_000).range(7), 10_000..10_000);
        assert_eq!(Regions::for_text(0).count(), 0);
    }
}
