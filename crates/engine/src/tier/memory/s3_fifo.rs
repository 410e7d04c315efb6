//! Three queues, first in, first out (Yang et al., *FIFO queues are all you need for cache eviction*,
//! SOSP 2023), by bytes.
//!
//! What is new enters the *small* queue, a tenth of the bytes. What was read at least twice there
//! goes on to the *main* queue; the rest is evicted, and its key remembered in the *ghost* queue: if
//! it comes again, it enters the main queue at once. At the head of the main queue, what was read
//! since enters it again. So reads move nothing, and a scan puts nothing out of the main queue.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault};

use super::ENTRY_OVERHEAD_BYTES;
use ground::Key;

/// Hashes with fixed keys, so that a replay takes the same steps. (Nothing iterates in hash order.)
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

/// The small queue's part of the bytes is one in so many.
const SMALL_PART: u64 = 10;
/// Reads are counted up to this.
const READS_MAX: u8 = 3;

struct Entry<V> {
    value: V,
    bytes: u64,
    reads: u8,
    main: bool,
    /// Of its element in a queue; elements of entries that were removed have another.
    stamp: u64,
}

pub(super) struct S3Fifo<V> {
    entries: HashMap<Key, Entry<V>, Hasher>,
    small: VecDeque<(Key, u64)>,
    main: VecDeque<(Key, u64)>,
    small_bytes: u64,
    main_bytes: u64,
    /// Hashes of evicted keys, with the bytes that they had.
    ghosts: HashMap<u64, (u64, u64), Hasher>,
    ghost_order: VecDeque<(u64, u64)>,
    ghost_bytes: u64,
    bytes_max: u64,
    stamp: u64,
}

impl<V> S3Fifo<V> {
    pub fn new(bytes_max: u64) -> S3Fifo<V> {
        S3Fifo {
            entries: HashMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: HashMap::default(),
            ghost_order: VecDeque::new(),
            ghost_bytes: 0,
            bytes_max,
            stamp: 0,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&mut self, key: &[u8]) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        entry.reads = (entry.reads + 1).min(READS_MAX);
        Some(&mut entry.value)
    }

    pub fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    pub fn insert(&mut self, key: Key, value: V, bytes: u64) -> Vec<(Key, V)> {
        let replaced = self.take(&key);
        let bytes = bytes + key.len() as u64 + ENTRY_OVERHEAD_BYTES;
        if bytes > self.bytes_max {
            return vec![(key, value)];
        }
        let mut left = Vec::new();
        while self.bytes() + bytes > self.bytes_max {
            self.step(&mut left);
        }
        let known = self.forget_ghost(self.entries.hasher().hash_one(&key));
        let main = known || replaced.is_some_and(|entry| entry.main);
        self.stamp += 1;
        let stamp = self.stamp;
        if main {
            self.main.push_back((key.clone(), stamp));
            self.main_bytes += bytes;
        } else {
            self.small.push_back((key.clone(), stamp));
            self.small_bytes += bytes;
        }
        self.entries.insert(key, Entry { value, bytes, reads: 0, main, stamp });
        assert!(self.bytes() <= self.bytes_max, "the memory tier's budget is exceeded");
        left
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<(Key, V)> {
        self.bytes_max = bytes_max;
        let mut left = Vec::new();
        while self.bytes() > self.bytes_max {
            self.step(&mut left);
        }
        self.trim_ghosts();
        left
    }

    /// The main queue from its end, then the small one: what came to them last is the hottest. What was never read in the
    /// small queue is left out.
    pub fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        let order = self.main.iter().rev().chain(self.small.iter().rev());
        let ends = from.saturating_add(count) >= self.main.len() + self.small.len();
        let class = |(key, stamp): &(Key, u64)| {
            let entry = self.entries.get(key).filter(|entry| entry.stamp == *stamp)?;
            let class = match (entry.main, entry.reads) {
                (true, 1..) => 0,
                (true, 0) | (false, 2..) => 1,
                (false, 1) => 2,
                (false, 0) => return None,
            };
            Some((key.clone(), class))
        };
        (order.skip(from).take(count).filter_map(class).collect(), ends)
    }

    /// Removes all keys, and forgets the evicted ones.
    pub fn clear(&mut self) {
        *self = S3Fifo::new(self.bytes_max);
    }

    pub fn remove(&mut self, key: &Key) -> Option<V> {
        self.take(key).map(|entry| entry.value)
    }

    fn take(&mut self, key: &Key) -> Option<Entry<V>> {
        let entry = self.entries.remove(key)?;
        let queue = if entry.main { &mut self.main } else { &mut self.small };
        *(if entry.main { &mut self.main_bytes } else { &mut self.small_bytes }) -= entry.bytes;
        // Its element stays until it comes to the head, or until half of the queue is such.
        if queue.len() > 64 && queue.len() > 2 * self.entries.len() {
            let entries = &self.entries;
            queue.retain(|(key, stamp)| entries.get(key).is_some_and(|e| e.stamp == *stamp));
        }
        Some(entry)
    }

    /// Looks at the head of a queue: evicts it or moves it on.
    fn step(&mut self, left: &mut Vec<(Key, V)>) {
        let much = self.small_bytes > 0 && self.small_bytes >= self.bytes_max / SMALL_PART;
        let from_small = much || self.main_bytes == 0;
        let head = if from_small { self.small.pop_front() } else { self.main.pop_front() };
        let Some((key, stamp)) = head else { return };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.stamp == stamp) else {
            return;
        };
        if from_small && entry.reads > 1 {
            (entry.reads, entry.main) = (0, true);
            self.small_bytes -= entry.bytes;
            self.main_bytes += entry.bytes;
            return self.main.push_back((key, stamp));
        }
        if !from_small && entry.reads > 0 {
            entry.reads -= 1;
            return self.main.push_back((key, stamp));
        }
        let Some(entry) = self.entries.remove(&key) else { return };
        if from_small {
            self.small_bytes -= entry.bytes;
            self.remember_ghost(self.entries.hasher().hash_one(&key), entry.bytes, stamp);
        } else {
            self.main_bytes -= entry.bytes;
        }
        left.push((key, entry.value));
    }

    fn remember_ghost(&mut self, hash: u64, bytes: u64, stamp: u64) {
        self.forget_ghost(hash);
        self.ghosts.insert(hash, (bytes, stamp));
        self.ghost_order.push_back((hash, stamp));
        self.ghost_bytes += bytes;
        self.trim_ghosts();
        if self.ghost_order.len() > 64 && self.ghost_order.len() > 2 * self.ghosts.len() {
            let ghosts = &self.ghosts;
            self.ghost_order
                .retain(|(hash, stamp)| ghosts.get(hash).is_some_and(|g| g.1 == *stamp));
        }
    }

    /// Forgets the oldest evicted keys beyond the main queue's part of the bytes.
    fn trim_ghosts(&mut self) {
        while self.ghost_bytes > self.bytes_max - self.bytes_max / SMALL_PART {
            let Some((hash, stamp)) = self.ghost_order.pop_front() else { return };
            if self.ghosts.get(&hash).is_some_and(|ghost| ghost.1 == stamp) {
                self.forget_ghost(hash);
            }
        }
    }

    fn forget_ghost(&mut self, hash: u64) -> bool {
        let Some((bytes, _)) = self.ghosts.remove(&hash) else { return false };
        self.ghost_bytes -= bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUDGET: u64 = 4_000;

    /// The naive twin: lists that are searched.
    #[derive(Default)]
    struct Naive {
        budget: u64,
        /// Key, bytes, reads.
        small: Vec<(u8, u64, u8)>,
        main: Vec<(u8, u64, u8)>,
        ghosts: Vec<(u8, u64)>,
    }

    fn sum<T>(list: &[T], bytes: impl Fn(&T) -> u64) -> u64 {
        list.iter().map(bytes).sum()
    }

    impl Naive {
        fn bytes(&self) -> u64 {
            sum(&self.small, |e| e.1) + sum(&self.main, |e| e.1)
        }

        fn get(&mut self, key: u8) -> bool {
            let found = self.small.iter_mut().chain(&mut self.main).find(|e| e.0 == key);
            found.map(|e| e.2 = (e.2 + 1).min(3)).is_some()
        }

        fn remove(&mut self, key: u8) -> bool {
            let main = self.main.iter().any(|e| e.0 == key);
            self.small.retain(|e| e.0 != key);
            self.main.retain(|e| e.0 != key);
            main
        }

        fn insert(&mut self, key: u8, bytes: u64) -> Vec<u8> {
            let main = self.remove(key);
            let bytes = bytes + 1 + ENTRY_OVERHEAD_BYTES;
            if bytes > self.budget {
                return vec![key];
            }
            let left = self.make_room(bytes);
            let known = self.ghosts.iter().any(|g| g.0 == key);
            self.ghosts.retain(|g| g.0 != key);
            let queue = if main || known { &mut self.main } else { &mut self.small };
            queue.push((key, bytes, 0));
            left
        }

        fn make_room(&mut self, bytes: u64) -> Vec<u8> {
            let mut left = Vec::new();
            while self.bytes() + bytes > self.budget {
                let much = !self.small.is_empty() && sum(&self.small, |e| e.1) >= self.budget / 10;
                if much || self.main.is_empty() {
                    let (key, bytes, reads) = self.small.remove(0);
                    if reads > 1 {
                        self.main.push((key, bytes, 0));
                        continue;
                    }
                    left.push(key);
                    self.ghosts.retain(|g| g.0 != key);
                    self.ghosts.push((key, bytes));
                    self.trim_ghosts();
                } else {
                    let (key, bytes, reads) = self.main.remove(0);
                    match reads {
                        0 => left.push(key),
                        _ => self.main.push((key, bytes, reads - 1)),
                    }
                }
            }
            left
        }

        fn trim_ghosts(&mut self) {
            while sum(&self.ghosts, |g| g.1) > self.budget - self.budget / 10 {
                self.ghosts.remove(0);
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_lists(
            operations in prop::collection::vec((0u8..40, 0u8..40, 0u64..600), 0..400),
        ) {
            let mut memory = S3Fifo::new(BUDGET);
            let mut naive = Naive { budget: BUDGET, ..Naive::default() };
            for (what, key, bytes) in operations {
                let name: Key = [key][..].into();
                match what {
                    0..=4 => {
                        memory.remove(&name);
                        naive.remove(key);
                    }
                    5 => {
                        naive.budget = bytes * 8;
                        let left = memory.set_bytes_max(naive.budget);
                        let left: Vec<u8> = left.into_iter().map(|l| l.1).collect();
                        prop_assert_eq!(left, naive.make_room(0));
                        naive.trim_ghosts();
                    }
                    6..=20 => {
                        let left: Vec<u8> =
                            memory.insert(name, key, bytes).into_iter().map(|l| l.1).collect();
                        prop_assert_eq!(left, naive.insert(key, bytes));
                    }
                    _ => prop_assert_eq!(memory.get(&name).is_some(), naive.get(key)),
                }
                prop_assert_eq!(memory.bytes(), naive.bytes());
                prop_assert_eq!(memory.len(), naive.small.len() + naive.main.len());
                prop_assert_eq!(memory.ghosts.len(), naive.ghosts.len());
            }
        }
    }

    #[test]
    fn a_scan_leaves_what_is_read_often() {
        let mut memory = S3Fifo::new(100 * 1200);
        let name = |what: &str, i: u32| -> Key { format!("{what}{i}").into_bytes().into() };
        for _ in 0..4 {
            for i in 0..50 {
                if memory.get(&name("often", i)).is_none() {
                    memory.insert(name("often", i), (), 1000);
                }
            }
        }
        for i in 0..10_000 {
            memory.insert(name("once", i), (), 1000);
        }
        let there = (0..50).filter(|i| memory.peek(&name("often", *i)).is_some()).count();
        assert_eq!(there, 50);
        assert!(memory.small.len() + memory.main.len() <= 2 * memory.len() + 64);
    }
}
