//! Values by number. A free place is reused; a number never is.

/// Values by number. Inserting, finding and removing cost one index operation each.
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

struct Entry<T> {
    /// The number of times that the place was used; the upper half of a value's number.
    turn: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> u64 {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return u64::from(entry.turn) << 32 | u64::from(index);
        }
        self.entries.push(Entry { turn: 1, value: Some(value) });
        1 << 32 | (self.entries.len() - 1) as u64
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry<T>> {
        let entry = self.entries.get_mut(number as u32 as usize)?;
        (entry.turn == (number >> 32) as u32).then_some(entry)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.entry(number)?.value.as_mut()
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.entry(number)?;
        let value = entry.value.take()?;
        entry.turn += 1;
        self.free.push(number as u32);
        Some(value)
    }

    /// The numbers of the values of which something holds, in order of their places.
    pub fn numbers_of(&self, holds: impl Fn(&T) -> bool) -> Vec<u64> {
        let entries = (0u64..).zip(&self.entries);
        let found = entries.filter(|(_, entry)| entry.value.as_ref().is_some_and(&holds));
        found.map(|(index, entry)| u64::from(entry.turn) << 32 | index).collect()
    }

    /// All values, in order of their places.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }

    /// Removes all values. Their numbers are not used again.
    pub fn clear(&mut self) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.value.take().is_some() {
                entry.turn += 1;
                self.free.push(index as u32);
            }
        }
    }
}
