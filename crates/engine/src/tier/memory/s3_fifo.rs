//! Three queues, first in, first out (Yang et al., *FIFO queues are all you need for cache eviction*,
//! SOSP 2023), by bytes.
//!
//! What is new enters the *small* queue, a tenth of the bytes. What was read at least twice there
//! goes on to the *main* queue; the rest is evicted, and its key remembered in the *ghost* queue: if
//! it comes again, it enters the main queue at once. At the head of the main queue, what was read
//! since enters it again. So reads move nothing, and a scan puts nothing out of the main queue.

use std::collections::{HashMap, VecDeque};

use super::ghosts::Ghosts;
use super::keyed::Keyed;
use super::policy::{Policy, ReadIf};
use super::slots::{ENTRIES_MAX, NO_SLOT, Slots, hash_of};
use ground::Key;

/// The small queue's part of the bytes is one in so many.
const SMALL_PART: u64 = 10;
/// Reads are counted up to this.
const READS_MAX: u32 = 3;

/// With a node's values 32 bytes, half a line of the processor's cache.
struct Entry<V> {
    value: V,
    /// The number of its element in its queue.
    element: u32,
    mark: Mark,
}

impl<V: Keyed> Keyed for Entry<V> {
    fn key(&self) -> &[u8] {
        self.value.key()
    }
}

/// What is known of an entry in 32 bits: whether it is in the main queue (the highest bit), its reads (two), and its bytes
/// (29), or [`Mark::ELSEWHERE`] if those are more.
#[derive(Clone, Copy)]
struct Mark(u32);

impl Mark {
    const MAIN: u32 = 1 << 31;
    const READ: u32 = 1 << 29;
    const READS: u32 = READS_MAX * Mark::READ;
    const ELSEWHERE: u32 = Mark::READ - 1;

    /// A mark without reads.
    fn new(main: bool, bytes: u64) -> Mark {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(Mark::ELSEWHERE);
        Mark(bytes | if main { Mark::MAIN } else { 0 })
    }

    fn is_main(self) -> bool {
        self.0 & Mark::MAIN != 0
    }

    /// 0 to [`READS_MAX`].
    fn reads(self) -> u32 {
        (self.0 & Mark::READS) / Mark::READ
    }

    fn set_reads(&mut self, reads: u32) {
        self.0 = (self.0 & !Mark::READS) | (reads * Mark::READ);
    }

    /// `None` if they are too many for the mark.
    fn bytes(self) -> Option<u64> {
        let bytes = self.0 & Mark::ELSEWHERE;
        (bytes != Mark::ELSEWHERE).then_some(u64::from(bytes))
    }
}

/// Numbers of entries in order. Each element has a number of its own, by which it is emptied when its entry is removed: numbers
/// count up from the first element's, and wrap around.
#[derive(Default)]
struct Queue {
    elements: VecDeque<u32>,
    first: u32,
    /// Of all its entries.
    bytes: u64,
}

impl Queue {
    /// Appends an entry; returns the element's number.
    fn push(&mut self, slot: u32) -> u32 {
        let element = self.first.wrapping_add(self.elements.len() as u32);
        self.elements.push_back(slot);
        element
    }

    /// Removes the first element; returns what it has, which is [`NO_SLOT`] if its entry was removed.
    fn pop(&mut self) -> Option<u32> {
        let slot = self.elements.pop_front()?;
        self.first = self.first.wrapping_add(1);
        Some(slot)
    }

    /// Empties an element.
    fn empty(&mut self, element: u32) {
        let slot = self.elements.get_mut(element.wrapping_sub(self.first) as usize);
        debug_assert!(slot.is_some(), "element {element} is not in the queue");
        if let Some(slot) = slot {
            *slot = NO_SLOT;
        }
    }

    /// Drops the empty elements; the others get new numbers, which `renumber` is told with their entries'. Costs O(n).
    fn compact(&mut self, mut renumber: impl FnMut(u32, u32)) {
        self.elements.retain(|slot| *slot != NO_SLOT);
        self.first = 0;
        for (element, slot) in (0..).zip(&self.elements) {
            renumber(*slot, element);
        }
    }
}

pub(super) struct S3Fifo<V> {
    entries: Slots<Entry<V>>,
    small: Queue,
    main: Queue,
    /// Bytes of entries whose marks do not have them, by the entries' numbers.
    large: HashMap<u32, u64>,
    ghosts: Ghosts,
    bytes_max: u64,
}

impl<V: Keyed> S3Fifo<V> {
    pub(super) fn new(bytes_max: u64) -> S3Fifo<V> {
        S3Fifo {
            entries: Slots::new(),
            small: Queue::default(),
            main: Queue::default(),
            large: HashMap::new(),
            ghosts: Ghosts::default(),
            bytes_max,
        }
    }

    fn queue(&mut self, main: bool) -> &mut Queue {
        if main { &mut self.main } else { &mut self.small }
    }

    fn entry_mut(&mut self, key: &[u8]) -> Option<&mut Entry<V>> {
        let slot = self.entries.find(key)?;
        self.entries.get_mut(slot)
    }

    fn bytes_of(&self, slot: u32, mark: Mark) -> u64 {
        mark.bytes().or_else(|| self.large.get(&slot).copied()).unwrap_or(0)
    }

    /// Removes an entry and returns it with its bytes; its element in a queue stays.
    fn remove_at(&mut self, slot: u32) -> Option<(Entry<V>, u64)> {
        let entry = self.entries.remove(slot)?;
        let bytes = self.bytes_of(slot, entry.mark);
        if entry.mark.bytes().is_none() {
            self.large.remove(&slot);
        }
        self.queue(entry.mark.is_main()).bytes -= bytes;
        Some((entry, bytes))
    }

    fn take(&mut self, key: &[u8]) -> Option<Entry<V>> {
        let (entry, _) = self.remove_at(self.entries.find(key)?)?;
        let queue = if entry.mark.is_main() { &mut self.main } else { &mut self.small };
        queue.empty(entry.element);
        // The empty element stays until it comes to the head, or until half of the queue is such.
        if queue.elements.len() > 64 && queue.elements.len() > 2 * self.entries.len() {
            let entries = &mut self.entries;
            queue.compact(|slot, element| {
                if let Some(entry) = entries.get_mut(slot) {
                    entry.element = element;
                }
            });
        }
        Some(entry)
    }

    /// Looks at the head of a queue: evicts it or moves it on.
    fn step(&mut self) -> Option<V> {
        let much = self.small.bytes > 0 && self.small.bytes >= self.bytes_max / SMALL_PART;
        let from_small = much || self.main.bytes == 0;
        let slot = self.queue(!from_small).pop()?;
        let mark = self.entries.get(slot)?.mark;
        if from_small && mark.reads() > 1 {
            let bytes = self.bytes_of(slot, mark);
            self.small.bytes -= bytes;
            self.main.bytes += bytes;
            self.push_to_main(slot, Mark::new(true, bytes));
            return None;
        }
        if !from_small && mark.reads() > 0 {
            let mut mark = mark;
            mark.set_reads(mark.reads() - 1);
            self.push_to_main(slot, mark);
            return None;
        }
        let (entry, bytes) = self.remove_at(slot)?;
        if from_small {
            self.ghosts.remember(hash_of(entry.key()), bytes, self.ghost_bytes_max());
        }
        Some(entry.value)
    }

    /// Appends an entry, which is in no queue, to the main one.
    fn push_to_main(&mut self, slot: u32, mark: Mark) {
        let element = self.main.push(slot);
        if let Some(entry) = self.entries.get_mut(slot) {
            (entry.element, entry.mark) = (element, mark);
        }
    }

    /// Evicted keys are remembered up to the main queue's part of the bytes.
    fn ghost_bytes_max(&self) -> u64 {
        self.bytes_max - self.bytes_max / SMALL_PART
    }
}

impl<V: Keyed> ReadIf<V> for S3Fifo<V> {
    fn get_if(&mut self, key: &[u8], is: impl FnOnce(&V) -> bool) -> Option<&mut V> {
        let entry = self.entry_mut(key).filter(|entry| is(&entry.value))?;
        entry.mark.set_reads((entry.mark.reads() + 1).min(READS_MAX));
        Some(&mut entry.value)
    }
}

impl<V: Keyed> Policy<V> for S3Fifo<V> {
    fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        self.entry_mut(key).map(|entry| &mut entry.value)
    }

    fn insert(&mut self, value: V, bytes: u64) -> Vec<V> {
        // Before room is made: a new version of an object that is read often stays in the main queue, and the earlier value
        // must not be evicted for the new one, which would leave a ghost of a key that is here.
        let replaced = self.take(value.key());
        let mut left = self.make_room(bytes);
        if self.entries.len() >= ENTRIES_MAX {
            left.extend(self.evict());
        }
        // After room is made, as evictions forget the oldest ghosts.
        let known = self.ghosts.forget(hash_of(value.key()));
        let main = known || replaced.is_some_and(|entry| entry.mark.is_main());
        let mark = Mark::new(main, bytes);
        let slot = self.entries.insert(Entry { value, element: 0, mark });
        let queue = self.queue(main);
        queue.bytes += bytes;
        let element = queue.push(slot);
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.element = element;
        }
        if mark.bytes().is_none() {
            self.large.insert(slot, bytes);
        }
        left
    }

    /// Looks at the heads of the queues until one is evicted. Ends: each look at a head that stays takes one of its at most
    /// [`READS_MAX`] reads, or moves it to the main queue for good.
    fn evict(&mut self) -> Option<V> {
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

    fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<V> {
        self.bytes_max = bytes_max;
        let left = self.make_room(0);
        self.ghosts.trim(self.ghost_bytes_max());
        left
    }

    /// The main queue from its end, then the small one: what came to them last is the hottest. What was never read in the
    /// small queue is left out.
    fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        let (main, small) = (&self.main.elements, &self.small.elements);
        let order = main.iter().rev().chain(small.iter().rev());
        let ends = from.saturating_add(count) >= main.len() + small.len();
        let class = |slot: &u32| {
            let entry = self.entries.get(*slot)?;
            let class = match (entry.mark.is_main(), entry.mark.reads()) {
                (true, 1..) => 0,
                (true, 0) | (false, 2..) => 1,
                (false, 1) => 2,
                (false, 0) => return None,
            };
            Some((Key::from(entry.key()), class))
        };
        (order.skip(from).take(count).filter_map(class).collect(), ends)
    }

    /// Removes all keys, and forgets the evicted ones.
    fn clear(&mut self) {
        *self = S3Fifo::new(self.bytes_max);
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        self.take(key).map(|entry| entry.value)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::Twin;
    use super::super::{AnyPolicy, Eviction, Memory, WithKey};
    use super::Entry;
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

        fn agrees_with(&self, memory: &Memory<WithKey<u8>>) -> bool {
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

    /// Half a line of the processor's cache with a node's value, which is a pointer and 16 bytes.
    #[test]
    fn an_entry_takes_eight_bytes_beside_its_value() {
        assert_eq!(size_of::<Entry<(Box<u8>, u64, u32)>>(), 32);
    }

    #[test]
    fn a_scan_leaves_what_is_read_often() {
        let mut memory = Memory::new(Eviction::S3Fifo, 100 * 1200);
        let name = |what: &str, i: u32| -> Key { format!("{what}{i}").into_bytes().into() };
        let value = |what: &str, i: u32| WithKey { key: name(what, i), value: () };
        for _ in 0..4 {
            for i in 0..50 {
                if memory.get(&name("often", i)).is_none() {
                    memory.insert(value("often", i), 1000);
                }
            }
        }
        for i in 0..10_000 {
            memory.insert(value("once", i), 1000);
        }
        let there = (0..50).filter(|i| memory.peek(&name("often", *i)).is_some()).count();
        assert_eq!(there, 50);
        let AnyPolicy::S3Fifo(policy) = &memory.0 else { panic!("another policy") };
        assert!(
            policy.small.elements.len() + policy.main.elements.len()
                <= 2 * policy.entries.len() + 64
        );
    }
}
