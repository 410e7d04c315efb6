//! The entries of a policy, found by their keys or by their numbers.
//!
//! Small objects are many, so what is beside each of them counts: an entry has its key in its value alone, and the table and
//! the policy's order have numbers of 32 bits, half of what pointers would take.

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use slab::Slab;

use super::keyed::Keyed;

/// Hashes with fixed keys, so that a replay takes the same steps. (Nothing iterates in hash order.)
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

/// No entry's number.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Maximum number of entries: twice as many, and a few, have numbers of 32 bits.
pub(super) const ENTRIES_MAX: usize = (1 << 31) - 64;

/// The hash of a key.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    Hasher::default().hash_one(key)
}

/// Entries with a number each, which an entry has until it is removed.
pub(super) struct Slots<E> {
    entries: Slab<E>,
    /// Numbers by the hashes of the keys.
    numbers: HashTable<u32>,
}

impl<E: Keyed> Slots<E> {
    pub fn new() -> Slots<E> {
        Slots { entries: Slab::new(), numbers: HashTable::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of a key's entry.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let is_its = |slot: &u32| self.get(*slot).is_some_and(|entry| entry.key() == key);
        self.numbers.find(hash_of(key), is_its).copied()
    }

    pub fn get(&self, slot: u32) -> Option<&E> {
        self.entries.get(slot as usize)
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut E> {
        self.entries.get_mut(slot as usize)
    }

    /// Adds an entry whose key has none; there must be fewer than [`ENTRIES_MAX`].
    pub fn insert(&mut self, entry: E) -> u32 {
        let hash = hash_of(entry.key());
        let slot = self.entries.insert(entry) as u32;
        let entries = &self.entries;
        self.numbers.insert_unique(hash, slot, |slot| hash_of(entries[*slot as usize].key()));
        slot
    }

    pub fn remove(&mut self, slot: u32) -> Option<E> {
        let entry = self.entries.try_remove(slot as usize)?;
        if let Ok(found) = self.numbers.find_entry(hash_of(entry.key()), |other| *other == slot) {
            found.remove();
        }
        Some(entry)
    }
}
