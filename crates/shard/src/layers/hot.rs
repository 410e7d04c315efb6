//! A cache of recently decoded blocks of the text layer, within a byte budget.
//!
//! An LRU cache divided into shards, each with a mutex. If another thread holds a shard's mutex,
//! the access counts as a miss, so that no query waits. The cache is useful if reads return to the
//! same blocks (Zipf): a hit saves decoding, which is most of a read. Reads spread evenly over a
//! text much larger than the budget only pay for the upkeep, a copy of the block and less than a
//! microsecond.
//!
//! The blocks of a shard are stored in one map with a slot for each. The system allocates its pages
//! when they are first written, so the whole budget is counted from the start but used gradually.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, TryLockError};

use hashlink::LruCache;
use memmap2::MmapMut;

use super::memory::zeros;
use super::part::Part;
use crate::error::Error;

/// The memory of an entry besides its block: two pointers, a key, a place and its share of a hash
/// table that is between half and 7/8 full, rounded up.
const ENTRY_BYTES: usize = 72;

/// The fewest blocks per shard for which the cache is divided.
const SHARD_BLOCKS_MIN: usize = 64;

/// The cached blocks under one mutex.
struct Shard {
    /// The place of each block.
    places: LruCache<u32, Place>,
    bytes: MmapMut,
}

/// A block's offset within `Shard::bytes`, and its length.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    len: usize,
}

/// The cache; see the module.
pub(super) struct Hot {
    shards: Box<[Mutex<Shard>]>,
    shard_blocks_max: usize,
    block_bytes: usize,
}

impl Hot {
    /// Creates a cache of as many blocks as fit into `bytes`; `None` if not even one does.
    pub(super) fn new(bytes: usize, block_bytes: usize) -> Result<Option<Self>, Error> {
        let blocks = bytes / (block_bytes + ENTRY_BYTES);
        if blocks == 0 {
            return Ok(None);
        }
        let shards = (blocks / SHARD_BLOCKS_MIN).clamp(1, 16);
        let shard_blocks_max = blocks / shards;
        let shard = |_| {
            let bytes = zeros(shard_blocks_max * block_bytes)?;
            Ok(Mutex::new(Shard { places: LruCache::new(shard_blocks_max), bytes }))
        };
        let shards = (0..shards).map(shard).collect::<Result<_, Error>>()?;
        Ok(Some(Self { shards, shard_blocks_max, block_bytes }))
    }

    fn shard(&self, block: u32) -> Option<MutexGuard<'_, Shard>> {
        let mutex = self.shards.get(block as usize % self.shards.len())?;
        match mutex.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::WouldBlock) => None,
            // After a panic during a change, the places may be inconsistent: start anew.
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut shard = poisoned.into_inner();
                shard.places.clear();
                mutex.clear_poison();
                Some(shard)
            }
        }
    }

    /// Appends a part of a block if it is cached. Returns whether it was.
    pub(super) fn read(&self, block: u32, part: Range<usize>, bytes: &mut Vec<u8>) -> bool {
        let Some(mut shard) = self.shard(block) else { return false };
        let Some(&Place { start, len }) = shard.places.get(&block) else { return false };
        let kept = shard.bytes.get(start..start + len).and_then(|kept| kept.get(part));
        let Some(kept) = kept else { return false };
        bytes.extend_from_slice(kept);
        true
    }

    /// Caches a block. If the cache is full, it replaces the least recently used one.
    pub(super) fn keep(&self, block: u32, decoded: &[u8]) {
        let len = decoded.len();
        let Some(mut shard) = self.shard(block).filter(|_| len <= self.block_bytes) else { return };
        // Slots are assigned in order and only ever reused for another block. A block that another
        // thread has cached meanwhile keeps its slot.
        let start = match shard.places.remove(&block) {
            Some(place) => place.start,
            None if shard.places.len() < self.shard_blocks_max => {
                shard.places.len() * self.block_bytes
            }
            None => shard.places.remove_lru().map_or(0, |(_, place)| place.start),
        };
        let Some(place) = shard.bytes.get_mut(start..start + len) else { return };
        place.copy_from_slice(decoded);
        shard.places.insert(block, Place { start, len });
    }
}

impl Part for Hot {
    fn bytes(&self) -> usize {
        self.shards.len() * self.shard_blocks_max * (self.block_bytes + ENTRY_BYTES)
    }
}

impl fmt::Debug for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hot").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// The blocks of one shard, the one read longest ago first.
    struct Twin(VecDeque<(u32, Vec<u8>)>, usize);

    impl Twin {
        fn take(&mut self, block: u32) -> Option<Vec<u8>> {
            let place = self.0.iter().position(|(other, _)| *other == block)?;
            self.0.remove(place).map(|(_, bytes)| bytes)
        }

        fn keep(&mut self, block: u32, bytes: Vec<u8>) {
            if self.take(block).is_none() && self.0.len() == self.1 {
                self.0.pop_front();
            }
            self.0.push_back((block, bytes));
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_twin_kept(
            blocks_max in 1usize..6,
            asked in prop::collection::vec((0u32..9, 0usize..9, any::<bool>()), 0..60),
        ) {
            let hot = Hot::new(blocks_max * (8 + ENTRY_BYTES), 8).unwrap().unwrap();
            let mut twin = Twin(VecDeque::new(), blocks_max);
            for (block, len, is_kept) in asked {
                let bytes = vec![block as u8 + 1; len];
                if is_kept {
                    hot.keep(block, &bytes);
                    twin.keep(block, bytes);
                    continue;
                }
                let kept = twin.take(block);
                let expected = kept.as_ref().and_then(|kept| kept.get(..len));
                let mut read = Vec::new();
                prop_assert_eq!(hot.read(block, 0..len, &mut read), expected.is_some());
                prop_assert_eq!(&read[..], expected.unwrap_or_default());
                if let Some(kept) = kept {
                    twin.keep(block, kept);
                }
            }
        }
    }

    #[test]
    fn a_shard_that_a_thread_panicked_in_begins_anew() {
        let hot = Hot::new(10 * (4 + ENTRY_BYTES), 4).unwrap().unwrap();
        hot.keep(1, b"aaaa");
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _shard = hot.shard(1);
                panic!("in the middle of a change");
            });
            thread.join()
        });
        assert!(panicked.is_err());
        let mut bytes = Vec::new();
        assert!(!hot.read(1, 0..1, &mut bytes));
        hot.keep(1, b"bbbb");
        assert!(hot.read(1, 0..4, &mut bytes));
        assert_eq!(bytes, b"bbbb");
    }

    #[test]
    fn the_block_read_longest_ago_makes_room() {
        let hot = Hot::new(2 * (4 + ENTRY_BYTES) + 75, 4).unwrap().unwrap();
        assert_eq!(hot.bytes(), 2 * (4 + ENTRY_BYTES));
        hot.keep(1, b"aaaa");
        hot.keep(2, b"bbbb");
        let mut bytes = Vec::new();
        assert!(hot.read(1, 1..3, &mut bytes));
        hot.keep(3, b"c");
        assert!(!hot.read(2, 0..1, &mut bytes), "read longest ago");
        assert!(hot.read(1, 0..1, &mut bytes) && hot.read(3, 0..1, &mut bytes));
        assert!(!hot.read(3, 0..2, &mut bytes), "past the end of the block");
        assert_eq!(bytes, b"aaac");
    }

    #[test]
    fn a_budget_below_one_block_keeps_none() {
        assert!(Hot::new(1000, 1024).unwrap().is_none());
    }
}
