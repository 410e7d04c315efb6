//! Evicts the least recently used.

use std::hash::BuildHasherDefault;

use hashlink::LruCache;

use super::ENTRY_OVERHEAD_BYTES;
use ground::Key;

/// Hashes with fixed keys, so that a replay takes the same steps. (Nothing iterates in hash order.)
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

struct Entry<V> {
    value: V,
    bytes: u64,
}

/// Values by key. Each operation costs one hash look-up.
pub(super) struct Lru<V> {
    entries: LruCache<Key, Entry<V>, Hasher>,
    bytes: u64,
    bytes_max: u64,
}

impl<V> Lru<V> {
    /// An empty tier of `bytes_max` bytes; 0 holds nothing.
    pub fn new(bytes_max: u64) -> Lru<V> {
        Lru { entries: LruCache::with_hasher(usize::MAX, Hasher::default()), bytes: 0, bytes_max }
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key. Makes it the most recently used.
    pub fn get(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The value of a key, which is not read.
    pub fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entries.peek_mut(key).map(|entry| &mut entry.value)
    }

    /// Inserts a value that takes `bytes` bytes; returns the values that were evicted for it, the
    /// least recently used first. A value larger than the budget is returned itself.
    pub fn insert(&mut self, key: Key, value: V, bytes: u64) -> Vec<(Key, V)> {
        self.remove(&key);
        let bytes = bytes + key.len() as u64 + ENTRY_OVERHEAD_BYTES;
        if bytes > self.bytes_max {
            return vec![(key, value)];
        }
        let left = self.make_room(bytes);
        self.bytes += bytes;
        self.entries.insert(key, Entry { value, bytes });
        assert!(self.bytes <= self.bytes_max, "the memory tier's budget is exceeded");
        left
    }

    /// Evicts the least recently used until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) -> Vec<(Key, V)> {
        let mut left = Vec::new();
        while self.bytes + bytes > self.bytes_max {
            let Some((key, entry)) = self.entries.remove_lru() else { break };
            self.bytes -= entry.bytes;
            left.push((key, entry.value));
        }
        left
    }

    /// Maximum bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Changes the maximum bytes; returns the values that were evicted for it.
    pub fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<(Key, V)> {
        self.bytes_max = bytes_max;
        self.make_room(0)
    }

    /// The most recently used first.
    pub fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        let order = self.entries.iter().rev().skip(from).take(count);
        (order.map(|(key, _)| (key.clone(), 1)).collect(), from.saturating_add(count) >= self.len())
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &Key) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: a list in order of use.
    #[derive(Default)]
    struct Naive {
        entries: Vec<(u8, u64)>,
    }

    impl Naive {
        fn fit(&mut self, budget: u64) {
            while self.entries.iter().map(|e| e.1).sum::<u64>() > budget {
                self.entries.remove(0);
            }
        }

        fn touch(&mut self, key: u8) -> bool {
            let Some(at) = self.entries.iter().position(|e| e.0 == key) else { return false };
            let entry = self.entries.remove(at);
            self.entries.push(entry);
            true
        }

        fn insert(&mut self, key: u8, bytes: u64, budget: u64) {
            self.entries.retain(|e| e.0 != key);
            let bytes = bytes + 1 + ENTRY_OVERHEAD_BYTES;
            if bytes > budget {
                return;
            }
            while self.entries.iter().map(|e| e.1).sum::<u64>() + bytes > budget {
                self.entries.remove(0);
            }
            self.entries.push((key, bytes));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(operations in prop::collection::vec((0u8..5, 0u8..20, 0u64..500), 0..300)) {
            let mut budget = 2_000;
            let mut memory = Lru::new(budget);
            let mut naive = Naive::default();
            for (what, key, bytes) in operations {
                let name: Key = [key][..].into();
                match what {
                    0 => {
                        budget = bytes * 8;
                        memory.set_bytes_max(budget);
                        naive.fit(budget);
                    }
                    1..=2 => {
                        memory.insert(name, key, bytes);
                        naive.insert(key, bytes, budget);
                    }
                    _ => prop_assert_eq!(memory.get(&name).is_some(), naive.touch(key)),
                }
                prop_assert_eq!(memory.len(), naive.entries.len());
                prop_assert_eq!(memory.bytes(), naive.entries.iter().map(|e| e.1).sum::<u64>());
            }
        }
    }
}
