//! The memory tier: keeps objects within a byte budget.
//!
//! S3-FIFO is the policy unless the settings say otherwise, because on recorded requests it missed
//! less than LRU at nearly every size (`docs/decisions/0008-memory-tier.md` has the table). LRU is
//! the policy that the curves of reuse distances and Che's approximation describe.

mod lru;
mod s3_fifo;

use serde::{Deserialize, Serialize};

use ground::Key;
use lru::Lru;
use s3_fifo::S3Fifo;

/// Bytes of an entry in addition to its key and object: map node, counters, metadata.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 160;

/// Which objects leave the memory tier first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// Those that were not read again soon after they came, and then those not read since they were
    /// last looked at: a scan passes through a tenth of the memory.
    #[default]
    S3Fifo,
    /// The least recently used.
    Lru,
}

/// Values by key. Some are evicted when the bytes exceed the budget. Each operation costs one or
/// two hash look-ups.
pub struct Memory<V>(Kind<V>);

enum Kind<V> {
    S3Fifo(S3Fifo<V>),
    Lru(Lru<V>),
}

impl<V> Memory<V> {
    /// An empty tier of `bytes_max` bytes; 0 holds nothing.
    pub fn new(eviction: Eviction, bytes_max: u64) -> Memory<V> {
        Memory(match eviction {
            Eviction::S3Fifo => Kind::S3Fifo(S3Fifo::new(bytes_max)),
            Eviction::Lru => Kind::Lru(Lru::new(bytes_max)),
        })
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Kind::S3Fifo(kept) => kept.bytes(),
            Kind::Lru(kept) => kept.bytes(),
        }
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::S3Fifo(kept) => kept.len(),
            Kind::Lru(kept) => kept.len(),
        }
    }

    /// Whether the tier is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, which counts as read.
    pub fn get(&mut self, key: &[u8]) -> Option<&mut V> {
        match &mut self.0 {
            Kind::S3Fifo(kept) => kept.get(key),
            Kind::Lru(kept) => kept.get(key),
        }
    }

    /// The value of a key; nobody reads it.
    pub fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        match &mut self.0 {
            Kind::S3Fifo(kept) => kept.peek(key),
            Kind::Lru(kept) => kept.peek(key),
        }
    }

    /// Inserts a value that takes `bytes` bytes; returns the values that were evicted for it, the
    /// first first. A value larger than the budget is returned itself.
    pub fn insert(&mut self, key: Key, value: V, bytes: u64) -> Vec<(Key, V)> {
        match &mut self.0 {
            Kind::S3Fifo(kept) => kept.insert(key, value, bytes),
            Kind::Lru(kept) => kept.insert(key, value, bytes),
        }
    }

    /// Maximum bytes.
    pub fn bytes_max(&self) -> u64 {
        match &self.0 {
            Kind::S3Fifo(kept) => kept.bytes_max(),
            Kind::Lru(kept) => kept.bytes_max(),
        }
    }

    /// Changes the maximum bytes; returns the values that were evicted for it, the first first. Cost: that
    /// of their evictions.
    pub fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<(Key, V)> {
        match &mut self.0 {
            Kind::S3Fifo(kept) => kept.set_bytes_max(bytes_max),
            Kind::Lru(kept) => kept.set_bytes_max(bytes_max),
        }
    }

    /// Keys in about the order in which they are read most, from a place in this order on, each with its class: 0 for those
    /// that are read more. Looks at `count` elements, of which some may be of keys that have left; the second value says
    /// whether these were the last. Cost: O(`count`), and of LRU O(`from`) more.
    pub fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        match &self.0 {
            Kind::S3Fifo(kept) => kept.hottest(from, count),
            Kind::Lru(kept) => kept.hottest(from, count),
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        match &mut self.0 {
            Kind::S3Fifo(kept) => kept.clear(),
            Kind::Lru(kept) => kept.clear(),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &Key) -> Option<V> {
        match &mut self.0 {
            Kind::S3Fifo(kept) => kept.remove(key),
            Kind::Lru(kept) => kept.remove(key),
        }
    }
}
