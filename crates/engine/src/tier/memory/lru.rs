//! Evicts the least recently used.

use std::hash::BuildHasherDefault;

use hashlink::LruCache;

use super::policy::Policy;
use ground::Key;

/// Hashes with fixed keys, so that a replay takes the same steps. (Nothing iterates in hash order.)
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

struct Entry<V> {
    value: V,
    bytes: u64,
}

/// Each operation costs one hash look-up.
pub(super) struct Lru<V> {
    entries: LruCache<Key, Entry<V>, Hasher>,
    bytes: u64,
    bytes_max: u64,
}

impl<V> Lru<V> {
    /// An empty tier of `bytes_max` bytes; 0 holds nothing.
    pub(super) fn new(bytes_max: u64) -> Lru<V> {
        Lru { entries: LruCache::with_hasher(usize::MAX, Hasher::default()), bytes: 0, bytes_max }
    }
}

impl<V> Policy<V> for Lru<V> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn get(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entries.peek_mut(key).map(|entry| &mut entry.value)
    }

    fn insert(&mut self, key: Key, value: V, bytes: u64) -> Vec<(Key, V)> {
        // First, so that the earlier value is not evicted for the new one and returned as if it had been current.
        self.remove(&key);
        let left = self.make_room(bytes);
        self.bytes += bytes;
        self.entries.insert(key, Entry { value, bytes });
        left
    }

    fn remove(&mut self, key: &Key) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry.value)
    }

    fn evict(&mut self) -> Option<(Key, V)> {
        let (key, entry) = self.entries.remove_lru()?;
        self.bytes -= entry.bytes;
        Some((key, entry.value))
    }

    fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<(Key, V)> {
        self.bytes_max = bytes_max;
        self.make_room(0)
    }

    /// The most recently used first; all are of one class, as LRU does not count reads.
    fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        let order = self.entries.iter().rev().skip(from).take(count);
        (order.map(|(key, _)| (key.clone(), 1)).collect(), from.saturating_add(count) >= self.len())
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::Twin;

    /// The naive twin: a list in order of use.
    #[derive(Default)]
    pub(in super::super) struct Naive {
        budget: u64,
        entries: Vec<(u8, u64)>,
    }

    impl Twin for Naive {
        fn get(&mut self, key: u8) -> bool {
            let Some(at) = self.entries.iter().position(|e| e.0 == key) else { return false };
            let entry = self.entries.remove(at);
            self.entries.push(entry);
            true
        }

        fn remove(&mut self, key: u8) {
            self.entries.retain(|e| e.0 != key);
        }

        fn insert(&mut self, key: u8, bytes: u64) -> Vec<u8> {
            self.remove(key);
            if bytes > self.budget {
                return vec![key];
            }
            let mut left = Vec::new();
            while self.bytes() + bytes > self.budget {
                left.push(self.entries.remove(0).0);
            }
            self.entries.push((key, bytes));
            left
        }

        fn set_budget(&mut self, budget: u64) -> Vec<u8> {
            self.budget = budget;
            let mut left = Vec::new();
            while self.bytes() > budget {
                left.push(self.entries.remove(0).0);
            }
            left
        }

        fn bytes(&self) -> u64 {
            self.entries.iter().map(|e| e.1).sum()
        }

        fn keys(&self) -> Vec<u8> {
            self.entries.iter().map(|e| e.0).collect()
        }
    }
}
