//! Decoded blocks of the text layer that were read last, within a byte budget.
//!
//! Least recently used, in shards of a mutex each. A shard that another thread is in is passed by, as if
//! the block were not there, so that no query waits. Of use where reads come back to the same blocks
//! (Zipf): a hit saves decoding, which is most of a read; reads spread evenly over a text much larger than
//! the budget only pay for the upkeep, a copy of the block and less than a microsecond.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, TryLockError};

use hashlink::LruCache;

use super::Part;

/// Bytes that an entry takes besides its block: two pointers, a key, a box and its share of a hash table
/// that is between half and 7/8 full, rounded up.
const ENTRY_BYTES: usize = 96;

/// Fewer blocks than this for each shard are not worth sharding.
const SHARD_BLOCKS_MIN: usize = 64;

type Blocks = LruCache<u32, Box<[u8]>>;

/// See the module.
pub(super) struct Hot {
    shards: Box<[Mutex<Blocks>]>,
    shard_blocks_max: usize,
    block_bytes: usize,
}

impl Hot {
    /// Room for as many blocks as fit; `None` if none does.
    pub(super) fn new(bytes: usize, block_bytes: usize) -> Option<Self> {
        let blocks = bytes / (block_bytes + ENTRY_BYTES);
        let shards = (blocks / SHARD_BLOCKS_MIN).clamp(1, 16);
        let shard_blocks_max = blocks / shards;
        let shard = || Mutex::new(Blocks::new(shard_blocks_max));
        (blocks > 0).then(|| Self {
            shards: (0..shards).map(|_| shard()).collect(),
            shard_blocks_max,
            block_bytes,
        })
    }

    fn shard(&self, block: u32) -> Option<MutexGuard<'_, Blocks>> {
        match self.shards.get(block as usize % self.shards.len())?.try_lock() {
            Ok(blocks) => Some(blocks),
            // A panic while it was held would have left a block out at worst.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Appends a part of a block, if it is kept; says whether it is.
    pub(super) fn read(&self, block: u32, part: Range<usize>, bytes: &mut Vec<u8>) -> bool {
        let Some(mut blocks) = self.shard(block) else { return false };
        let Some(kept) = blocks.get(&block).and_then(|kept| kept.get(part)) else { return false };
        bytes.extend_from_slice(kept);
        true
    }

    /// Keeps a block, in the place of the one that was read longest ago if there is no room.
    pub(super) fn keep(&self, block: u32, decoded: &[u8]) {
        let Some(mut blocks) = self.shard(block) else { return };
        let oldest = (blocks.len() >= self.shard_blocks_max).then(|| blocks.remove_lru()).flatten();
        let kept = match oldest {
            Some((_, mut place)) if place.len() == decoded.len() => {
                place.copy_from_slice(decoded);
                place
            }
            _ => decoded.into(),
        };
        blocks.insert(block, kept);
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
    use super::*;

    #[test]
    fn the_block_read_longest_ago_makes_room() {
        let hot = Hot::new(2 * (4 + ENTRY_BYTES) + 99, 4).unwrap();
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
        assert!(Hot::new(1000, 1024).is_none());
    }
}
