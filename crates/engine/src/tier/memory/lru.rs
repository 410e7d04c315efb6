//! Evicts the least recently used.

use super::keyed::Keyed;
use super::policy::{Policy, ReadIf};
use super::slots::{ENTRIES_MAX, NO_SLOT, Slots};
use ground::Key;

/// An entry, and its neighbours in the order of use.
struct Entry<V> {
    value: V,
    bytes: u64,
    /// The one that was used next after it; [`NO_SLOT`] for the last.
    later: u32,
    /// The one that was used just before it; [`NO_SLOT`] for the first.
    earlier: u32,
}

impl<V: Keyed> Keyed for Entry<V> {
    fn key(&self) -> &[u8] {
        self.value.key()
    }
}

/// Each operation costs one hash look-up.
pub(super) struct Lru<V> {
    entries: Slots<Entry<V>>,
    /// The most recently used, and the least.
    latest: u32,
    earliest: u32,
    bytes: u64,
    bytes_max: u64,
}

impl<V: Keyed> Lru<V> {
    /// An empty tier of `bytes_max` bytes; 0 holds nothing.
    pub(super) fn new(bytes_max: u64) -> Lru<V> {
        let entries = Slots::new();
        Lru { entries, latest: NO_SLOT, earliest: NO_SLOT, bytes: 0, bytes_max }
    }

    /// Takes an entry out of the order of use.
    fn unlink(&mut self, slot: u32) {
        let Some(&Entry { later, earlier, .. }) = self.entries.get(slot) else { return };
        match self.entries.get_mut(later) {
            Some(entry) => entry.earlier = earlier,
            None => self.latest = earlier,
        }
        match self.entries.get_mut(earlier) {
            Some(entry) => entry.later = later,
            None => self.earliest = later,
        }
    }

    /// Makes an entry that is not in the order of use its latest.
    fn link(&mut self, slot: u32) {
        let before = std::mem::replace(&mut self.latest, slot);
        if let Some(entry) = self.entries.get_mut(slot) {
            (entry.later, entry.earlier) = (NO_SLOT, before);
        }
        match self.entries.get_mut(before) {
            Some(entry) => entry.later = slot,
            None => self.earliest = slot,
        }
    }

    fn remove_at(&mut self, slot: u32) -> Option<V> {
        self.unlink(slot);
        let entry = self.entries.remove(slot)?;
        self.bytes -= entry.bytes;
        Some(entry.value)
    }
}

impl<V: Keyed> ReadIf<V> for Lru<V> {
    fn get_if(&mut self, key: &[u8], is: impl FnOnce(&V) -> bool) -> Option<&mut V> {
        let slot = self.entries.find(key)?;
        self.entries.get(slot).filter(|entry| is(&entry.value))?;
        if slot != self.latest {
            self.unlink(slot);
            self.link(slot);
        }
        self.entries.get_mut(slot).map(|entry| &mut entry.value)
    }
}

impl<V: Keyed> Policy<V> for Lru<V> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        let slot = self.entries.find(key)?;
        self.entries.get_mut(slot).map(|entry| &mut entry.value)
    }

    fn insert(&mut self, value: V, bytes: u64) -> Vec<V> {
        // First, so that the earlier value is not evicted for the new one and returned as if it had been current.
        self.remove(value.key());
        let mut left = self.make_room(bytes);
        if self.entries.len() >= ENTRIES_MAX {
            left.extend(self.evict());
        }
        self.bytes += bytes;
        let entry = Entry { value, bytes, later: NO_SLOT, earlier: NO_SLOT };
        let slot = self.entries.insert(entry);
        self.link(slot);
        left
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        self.remove_at(self.entries.find(key)?)
    }

    fn evict(&mut self) -> Option<V> {
        self.remove_at(self.earliest)
    }

    fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<V> {
        self.bytes_max = bytes_max;
        self.make_room(0)
    }

    /// The most recently used first; all are of one class, as LRU does not count reads.
    fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        let entry = |slot| self.entries.get(slot);
        let order = std::iter::successors(entry(self.latest), |it| entry(it.earlier));
        let order = order.skip(from).take(count);
        let ends = from.saturating_add(count) >= self.len();
        (order.map(|entry| (Key::from(entry.key()), 1)).collect(), ends)
    }

    fn clear(&mut self) {
        *self = Lru::new(self.bytes_max);
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
