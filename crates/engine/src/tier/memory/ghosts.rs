//! Keys that were evicted, as hashes of 32 bits, the oldest first.
//!
//! There may be as many as there are entries, so that each takes 8 bytes in the queue and 5 in a half-filled table. Of a
//! million, one new key in four thousand has the hash of another's: it enters the main queue at once, as if it had come again.

use std::collections::VecDeque;

use hashbrown::HashTable;

#[derive(Clone, Copy)]
struct Ghost {
    hash: u32,
    /// What the entry had, or the most that the number holds; 0 once it is forgotten.
    bytes: u32,
}

/// The evicted keys. See the module.
#[derive(Default)]
pub(super) struct Ghosts {
    order: VecDeque<Ghost>,
    /// Ghosts that left the order's front, ever: the number of the first one in it.
    first: u32,
    /// Numbers of ghosts, by their hashes. Numbers wrap around: the order is never as long.
    numbers: HashTable<u32>,
    bytes: u64,
}

/// Spreads the bits of a short hash over those that the table looks at.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Ghosts {
    /// The number of remembered keys.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    fn index_of(&self, number: u32) -> usize {
        number.wrapping_sub(self.first) as usize
    }

    /// Remembers a key by its hash, and forgets the oldest beyond so many bytes.
    pub fn remember(&mut self, hash: u64, bytes: u64, bytes_max: u64) {
        self.forget(hash);
        let hash = (hash >> 32) as u32;
        // An entry that has no byte is one that was forgotten.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        let number = self.first.wrapping_add(self.order.len() as u32);
        self.order.push_back(Ghost { hash, bytes });
        self.bytes += u64::from(bytes);
        let (order, first) = (&self.order, self.first);
        let hash_of = |number: &u32| {
            let ghost = order.get(number.wrapping_sub(first) as usize);
            spread(ghost.map_or(0, |ghost| ghost.hash))
        };
        self.numbers.insert_unique(spread(hash), number, hash_of);
        self.trim(bytes_max);
        if self.order.len() > 64 && self.order.len() > 2 * self.numbers.len() {
            self.drop_forgotten();
        }
    }

    /// Forgets a key; returns whether it was remembered.
    pub fn forget(&mut self, hash: u64) -> bool {
        let hash = (hash >> 32) as u32;
        let (order, first) = (&self.order, self.first);
        let is_its = |number: &u32| {
            let ghost = order.get(number.wrapping_sub(first) as usize);
            ghost.is_some_and(|ghost| ghost.hash == hash && ghost.bytes > 0)
        };
        let Ok(found) = self.numbers.find_entry(spread(hash), is_its) else { return false };
        let (number, _) = found.remove();
        let index = self.index_of(number);
        if let Some(ghost) = self.order.get_mut(index) {
            self.bytes -= u64::from(std::mem::take(&mut ghost.bytes));
        }
        true
    }

    /// Forgets the oldest beyond so many bytes.
    pub fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let Some(&Ghost { hash, bytes }) = self.order.front() else { return };
            if bytes > 0 {
                self.forget(u64::from(hash) << 32);
            }
            self.order.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Numbers the remembered ones anew. Costs O(n), after as many were forgotten.
    fn drop_forgotten(&mut self) {
        self.order.retain(|ghost| ghost.bytes > 0);
        self.numbers.clear();
        let order = &self.order;
        let hash_of = |number: &u32| spread(order.get(*number as usize).map_or(0, |g| g.hash));
        for (number, ghost) in (0u32..).zip(order) {
            self.numbers.insert_unique(spread(ghost.hash), number, hash_of);
        }
        self.first = 0;
    }
}
