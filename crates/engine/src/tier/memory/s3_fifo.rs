//! Three queues, first in, first out (Yang et al., *FIFO queues are all you need for cache eviction*,
//! SOSP 2023), by bytes.
//!
//! What is new enters the *small* queue, a tenth of the bytes. What was read at least twice there
//! goes on to the *main* queue; the rest is evicted, and its key remembered in the *ghost* queue: if
//! it comes again, it enters the main queue at once. At the head of the main queue, what was read
//! since enters it again. So reads move nothing, and a scan puts nothing out of the main queue.

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use slab::Slab;

use super::ghosts::Ghosts;
use super::policy::Policy;
use ground::Key;

/// Hashes with fixed keys, so that a replay takes the same steps. (Nothing iterates in hash order.)
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

/// The small queue's part of the bytes is one in so many.
const SMALL_PART: u64 = 10;
/// Reads are counted up to this.
const READS_MAX: u8 = 3;
/// The most entries: places are numbers of 32 bits, so that queues and the table take half of what pointers would.
const ENTRIES_MAX: usize = u32::MAX as usize;

/// Small objects are many, so that what an entry takes counts: with a node's values it fills one line of the processor's cache.
struct Entry<V> {
    /// Not shared: the two counters of a [`Key`] would take as much as many keys do.
    key: Box<[u8]>,
    value: V,
    bytes: u64,
    /// Of its element in a queue; elements of entries that were removed have another.
    stamp: u32,
    reads: u8,
    main: bool,
}

/// An entry in a queue: its place, and its stamp.
#[derive(Clone, Copy)]
struct Element {
    place: u32,
    stamp: u32,
}

pub(super) struct S3Fifo<V> {
    entries: Slab<Entry<V>>,
    /// Places of entries, by the hashes of their keys.
    places: HashTable<u32>,
    small: VecDeque<Element>,
    main: VecDeque<Element>,
    small_bytes: u64,
    main_bytes: u64,
    ghosts: Ghosts,
    bytes_max: u64,
    stamp: u32,
}

fn hash_of(key: &[u8]) -> u64 {
    Hasher::default().hash_one(key)
}

/// The entry of an element, unless that was removed or replaced meanwhile. A stamp comes again after 2^32 insertions; an
/// element that is that old would then count as its place's, which only brings the entry's turn forward.
fn entry_of<V>(entries: &Slab<Entry<V>>, element: Element) -> Option<&Entry<V>> {
    entries.get(element.place as usize).filter(|entry| entry.stamp == element.stamp)
}

impl<V> S3Fifo<V> {
    pub(super) fn new(bytes_max: u64) -> S3Fifo<V> {
        S3Fifo {
            entries: Slab::new(),
            places: HashTable::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: Ghosts::default(),
            bytes_max,
            stamp: 0,
        }
    }

    fn place(&self, key: &[u8]) -> Option<u32> {
        let is_its =
            |place: &u32| self.entries.get(*place as usize).is_some_and(|e| *e.key == *key);
        self.places.find(hash_of(key), is_its).copied()
    }

    fn entry_mut(&mut self, key: &[u8]) -> Option<&mut Entry<V>> {
        let place = self.place(key)?;
        self.entries.get_mut(place as usize)
    }

    /// Removes an entry; its element in a queue stays.
    fn remove_at(&mut self, place: u32) -> Option<Entry<V>> {
        let entry = self.entries.try_remove(place as usize)?;
        if let Ok(found) = self.places.find_entry(hash_of(&entry.key), |other| *other == place) {
            found.remove();
        }
        *(if entry.main { &mut self.main_bytes } else { &mut self.small_bytes }) -= entry.bytes;
        Some(entry)
    }

    fn take(&mut self, key: &[u8]) -> Option<Entry<V>> {
        let entry = self.remove_at(self.place(key)?)?;
        let queue = if entry.main { &mut self.main } else { &mut self.small };
        // Its element stays until it comes to the head, or until half of the queue is such.
        if queue.len() > 64 && queue.len() > 2 * self.entries.len() {
            let entries = &self.entries;
            queue.retain(|element| entry_of(entries, *element).is_some());
        }
        Some(entry)
    }

    /// Looks at the head of a queue: evicts it or moves it on.
    fn step(&mut self) -> Option<(Key, V)> {
        let much = self.small_bytes > 0 && self.small_bytes >= self.bytes_max / SMALL_PART;
        let from_small = much || self.main_bytes == 0;
        let head = if from_small { self.small.pop_front() } else { self.main.pop_front() }?;
        let entry = self.entries.get_mut(head.place as usize);
        let entry = entry.filter(|entry| entry.stamp == head.stamp)?;
        if from_small && entry.reads > 1 {
            (entry.reads, entry.main) = (0, true);
            self.small_bytes -= entry.bytes;
            self.main_bytes += entry.bytes;
            self.main.push_back(head);
            return None;
        }
        if !from_small && entry.reads > 0 {
            entry.reads -= 1;
            self.main.push_back(head);
            return None;
        }
        let entry = self.remove_at(head.place)?;
        if from_small {
            self.ghosts.remember(hash_of(&entry.key), entry.bytes, self.ghost_bytes_max());
        }
        Some((entry.key.into(), entry.value))
    }

    /// Evicted keys are remembered up to the main queue's part of the bytes.
    fn ghost_bytes_max(&self) -> u64 {
        self.bytes_max - self.bytes_max / SMALL_PART
    }
}

impl<V> Policy<V> for S3Fifo<V> {
    fn bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn get(&mut self, key: &[u8]) -> Option<&mut V> {
        let entry = self.entry_mut(key)?;
        entry.reads = (entry.reads + 1).min(READS_MAX);
        Some(&mut entry.value)
    }

    fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entry_mut(key).map(|entry| &mut entry.value)
    }

    fn insert(&mut self, key: Key, value: V, bytes: u64) -> Vec<(Key, V)> {
        // Before room is made: a new version of an object that is read often stays in the main queue, and the earlier value
        // must not be evicted for the new one, which would leave a ghost of a key that is here.
        let replaced = self.take(&key);
        let mut left = self.make_room(bytes);
        if self.entries.len() >= ENTRIES_MAX {
            left.extend(self.evict());
        }
        let hash = hash_of(&key);
        // After room is made, as evictions forget the oldest ghosts.
        let known = self.ghosts.forget(hash);
        let main = known || replaced.is_some_and(|entry| entry.main);
        self.stamp = self.stamp.wrapping_add(1);
        let (key, stamp) = (Box::from(&*key), self.stamp);
        let place = self.entries.insert(Entry { key, value, bytes, stamp, reads: 0, main }) as u32;
        let entries = &self.entries;
        self.places.insert_unique(hash, place, |place| hash_of(&entries[*place as usize].key));
        let element = Element { place, stamp };
        if main {
            self.main.push_back(element);
            self.main_bytes += bytes;
        } else {
            self.small.push_back(element);
            self.small_bytes += bytes;
        }
        left
    }

    /// Looks at the heads of the queues until one is evicted. Ends: each look at a head that stays takes one of its at most
    /// [`READS_MAX`] reads, or moves it to the main queue for good.
    fn evict(&mut self) -> Option<(Key, V)> {
        while !self.entries.is_empty() {
            if let Some(evicted) = self.step() {
                return Some(evicted);
            }
        }
        None
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<(Key, V)> {
        self.bytes_max = bytes_max;
        let left = self.make_room(0);
        self.ghosts.trim(self.ghost_bytes_max());
        left
    }

    /// The main queue from its end, then the small one: what came to them last is the hottest. What was never read in the
    /// small queue is left out.
    fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        let order = self.main.iter().rev().chain(self.small.iter().rev());
        let ends = from.saturating_add(count) >= self.main.len() + self.small.len();
        let class = |element: &Element| {
            let entry = entry_of(&self.entries, *element)?;
            let class = match (entry.main, entry.reads) {
                (true, 1..) => 0,
                (true, 0) | (false, 2..) => 1,
                (false, 1) => 2,
                (false, 0) => return None,
            };
            Some((Key::from(&*entry.key), class))
        };
        (order.skip(from).take(count).filter_map(class).collect(), ends)
    }

    /// Removes all keys, and forgets the evicted ones.
    fn clear(&mut self) {
        *self = S3Fifo::new(self.bytes_max);
    }

    fn remove(&mut self, key: &Key) -> Option<V> {
        self.take(key).map(|entry| entry.value)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::Twin;
    use super::super::{AnyPolicy, Eviction, Memory};
    use ground::Key;

    /// The naive twin: lists that are searched.
    #[derive(Default)]
    pub(in super::super) struct Naive {
        budget: u64,
        /// Key, bytes, reads.
        small: Vec<(u8, u64, u8)>,
        main: Vec<(u8, u64, u8)>,
        ghosts: Vec<(u8, u64)>,
    }

    fn sum<T>(list: &[T], bytes: impl Fn(&T) -> u64) -> u64 {
        list.iter().map(bytes).sum()
    }

    impl Twin for Naive {
        fn bytes(&self) -> u64 {
            sum(&self.small, |e| e.1) + sum(&self.main, |e| e.1)
        }

        fn keys(&self) -> Vec<u8> {
            self.small.iter().chain(&self.main).map(|e| e.0).collect()
        }

        fn get(&mut self, key: u8) -> bool {
            let found = self.small.iter_mut().chain(&mut self.main).find(|e| e.0 == key);
            found.map(|e| e.2 = (e.2 + 1).min(3)).is_some()
        }

        fn remove(&mut self, key: u8) {
            self.small.retain(|e| e.0 != key);
            self.main.retain(|e| e.0 != key);
        }

        fn insert(&mut self, key: u8, bytes: u64) -> Vec<u8> {
            let main = self.main.iter().any(|e| e.0 == key);
            self.remove(key);
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

        fn set_budget(&mut self, budget: u64) -> Vec<u8> {
            self.budget = budget;
            let left = self.make_room(0);
            self.trim_ghosts();
            left
        }

        fn agrees_with(&self, memory: &Memory<u8>) -> bool {
            matches!(&memory.0, AnyPolicy::S3Fifo(policy) if policy.ghosts.len() == self.ghosts.len())
        }
    }

    impl Naive {
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

    #[test]
    fn a_scan_leaves_what_is_read_often() {
        let mut memory = Memory::new(Eviction::S3Fifo, 100 * 1200);
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
        let AnyPolicy::S3Fifo(policy) = &memory.0 else { panic!("another policy") };
        assert!(policy.small.len() + policy.main.len() <= 2 * policy.entries.len() + 64);
    }
}
