//! A table from hashes of keys to places on devices, in 11 bytes an entry.
//!
//! An entry has no key: it has 34 bits of the key's hash, of which 12 name its shard and 22 are
//! stored. So a look-up may find an entry of another key, about once in 2³⁴ ÷ (number of entries)
//! look-ups; who reads the record compares the key.
//!
//! The entries lie in shards of some 512, each a sorted array without gaps. A full table is not
//! hashed anew: whenever there are more than 512 entries to a shard, the next shard in turn is split
//! in two by one more bit of the hashes (linear hashing: Litwin, "Linear hashing: a new tool for file
//! and table addressing", VLDB 1980, with shards that grow instead of overflowing). Cost of a look-up:
//! a binary search in one shard; of an insertion: moving half of a shard, some 3 KB. Memory: 11 bytes
//! an entry, some 3 % of spare room and 24 bytes a shard, of which there are at least 4,096.

pub mod fill;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 11;
/// Bits of a key's hash that tell entries apart.
pub const HASH_BITS: u32 = 34;
/// Of these, the bits that name the shard when there are fewest shards.
const SHARD_BITS: u32 = 12;
/// Mean number of entries of a shard above which the next shard is split.
const PER_SHARD: usize = 512;
/// A shard that holds more, which hashes do not do by chance, takes no further entries.
const SHARD_MAX: usize = 16 * PER_SHARD;
/// Codes of [`Item::stamp`] are below this.
pub const STAMPS: u16 = 1 << 10;

type Packed = [u8; ENTRY_BYTES];

/// What the table knows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which segment: a number that the caller gives out.
    pub slot: u16,
    /// The record's offset in the segment, bytes.
    pub offset: u32,
    /// The record's length as a [`length_class`].
    pub class: u8,
    /// A code below [`STAMPS`].
    pub stamp: u16,
}

impl Item {
    fn pack(self, rest: u32) -> Packed {
        let mut packed = [0; ENTRY_BYTES];
        packed[..4].copy_from_slice(&(rest << 10 | u32::from(self.stamp)).to_be_bytes());
        packed[4..6].copy_from_slice(&self.slot.to_be_bytes());
        packed[6..10].copy_from_slice(&self.offset.to_be_bytes());
        packed[10] = self.class;
        packed
    }

    fn unpack(packed: &Packed) -> Item {
        let [_, _, s0, s1, slot0, slot1, o0, o1, o2, o3, class] = *packed;
        Item {
            slot: u16::from_be_bytes([slot0, slot1]),
            offset: u32::from_be_bytes([o0, o1, o2, o3]),
            class,
            stamp: u16::from_be_bytes([s0, s1]) & (STAMPS - 1),
        }
    }
}

/// The stored part of an entry's hash.
fn rest_of(packed: &Packed) -> u32 {
    let [a, b, c, d, ..] = *packed;
    u32::from_be_bytes([a, b, c, d]) >> 10
}

/// The class of the shortest length that is not below `bytes`: lengths are rounded up to a multiple
/// of 16, and above 256 bytes by at most an eighth.
pub fn length_class(bytes: u64) -> u8 {
    let units = bytes.div_ceil(16);
    if units < 16 {
        return units as u8;
    }
    let shift = 60 - units.leading_zeros();
    let class = |units: u64, shift: u32| 8 * u64::from(shift) + units.div_ceil(1 << shift);
    // Rounded up to the next power of two, it is the first of the next eight classes: 16 and 8 + 8.
    class(units, shift).min(255) as u8
}

/// The longest length of a class, bytes.
pub fn class_bytes(class: u8) -> u64 {
    let class = u64::from(class);
    if class < 16 {
        return 16 * class;
    }
    let shift = class / 8 - 1;
    16 * ((8 + class % 8) << shift)
}

/// Which shard a hash belongs to.
#[derive(Clone, Copy)]
struct Layout {
    /// Bits of the hash that name a shard; shards below `split` have one more.
    level: u32,
    split: usize,
    /// Bits that named a shard at first, and bits of the hash in use: fewer only in tests.
    base: u32,
    bits: u32,
}

impl Layout {
    /// The shard and the stored part of a hash.
    fn place(self, hash: u64) -> (usize, u32) {
        let hash = hash & ((1 << self.bits) - 1);
        let low = hash & ((1 << self.level) - 1);
        let low = match (low as usize) < self.split {
            true => hash & ((1 << (self.level + 1)) - 1),
            false => low,
        };
        (low as usize, (hash >> self.base) as u32)
    }
}

/// The table. See the module.
pub struct Table {
    shards: Vec<Vec<Packed>>,
    layout: Layout,
    len: usize,
    /// The shard that is swept next, and entries that may be swept before it is due.
    swept: usize,
    credit: usize,
}

impl Table {
    /// An empty table that tells entries apart by `bits` bits of their hashes, at most
    /// [`HASH_BITS`].
    pub fn new(bits: u32) -> Table {
        let bits = bits.min(HASH_BITS);
        let base = SHARD_BITS.min(bits / 2);
        let shards = vec![Vec::new(); 1 << base];
        let layout = Layout { level: base, split: 0, base, bits };
        Table { shards, layout, len: 0, swept: 0, credit: 0 }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory, without what the allocator adds.
    pub fn memory_bytes(&self) -> usize {
        let entries: usize = self.shards.iter().map(|shard| shard.capacity() * ENTRY_BYTES).sum();
        entries + self.shards.capacity() * size_of::<Vec<Packed>>()
    }

    /// The entries with a key's hash: its own, or another key's.
    pub fn get(&self, hash: u64) -> impl Iterator<Item = Item> + '_ {
        let (shard, rest) = self.layout.place(hash);
        let shard = &self.shards[shard];
        let from = shard.partition_point(|packed| rest_of(packed) < rest);
        let same = shard[from..].iter().take_while(move |packed| rest_of(packed) == rest);
        same.map(Item::unpack)
    }

    /// Adds an entry beside those that there are. Returns whether it was: a shard is bounded.
    pub fn insert(&mut self, hash: u64, item: Item) -> bool {
        let (at, rest) = self.layout.place(hash);
        let shard = &mut self.shards[at];
        if shard.len() >= SHARD_MAX {
            return false;
        }
        let to = shard.partition_point(|packed| rest_of(packed) <= rest);
        make_room(shard);
        shard.insert(to, item.pack(rest));
        self.len += 1;
        if self.len > self.shards.len() * PER_SHARD {
            self.split_next();
        }
        true
    }

    /// Changes the entries with a hash, and removes those for which `keep` is false.
    pub fn retain_of(&mut self, hash: u64, mut keep: impl FnMut(&mut Item) -> bool) {
        let (at, rest) = self.layout.place(hash);
        let shard = &mut self.shards[at];
        let mut index = shard.partition_point(|packed| rest_of(packed) < rest);
        while let Some(packed) = shard.get_mut(index).filter(|packed| rest_of(packed) == rest) {
            let mut item = Item::unpack(packed);
            if keep(&mut item) {
                *packed = item.pack(rest);
                index += 1;
            } else {
                shard.remove(index);
                self.len -= 1;
            }
        }
    }

    /// Goes on with a sweep through the whole table, by about so many entries: changes entries,
    /// and removes those for which `keep` is false.
    pub fn sweep(&mut self, entries: usize, mut keep: impl FnMut(&mut Item) -> bool) {
        self.credit += entries;
        for _ in 0..self.shards.len() {
            if self.swept >= self.shards.len() {
                self.swept = 0;
            }
            let shard = &mut self.shards[self.swept];
            // An empty shard costs one too.
            let cost = shard.len().max(1);
            if self.credit < cost {
                return;
            }
            self.credit -= cost;
            self.swept += 1;
            let before = shard.len();
            shard.retain_mut(|packed| {
                let (mut item, rest) = (Item::unpack(packed), rest_of(packed));
                let kept = keep(&mut item);
                *packed = item.pack(rest);
                kept
            });
            self.len -= before - shard.len();
            trim(shard);
        }
        // Once around is enough.
        self.credit = 0;
    }

    fn split_next(&mut self) {
        let Layout { level, split, base, bits } = &mut self.layout;
        if *level >= *bits {
            return;
        }
        let bit = *level - *base;
        let shard = &mut self.shards[*split];
        let goes = |packed: &Packed| rest_of(packed) >> bit & 1 == 1;
        let mut new = Vec::with_capacity(shard.iter().filter(|packed| goes(packed)).count());
        new.extend(shard.iter().copied().filter(goes));
        shard.retain(|packed| !goes(packed));
        shard.shrink_to_fit();
        self.shards.push(new);
        *split += 1;
        if *split == 1 << *level {
            (*level, *split) = (*level + 1, 0);
        }
    }
}

/// Room for one more, with little to spare.
fn make_room(shard: &mut Vec<Packed>) {
    if shard.len() == shard.capacity() {
        shard.reserve_exact(spare(shard.len()));
    }
}

/// Entries for which a shard of so many has room to spare.
fn spare(entries: usize) -> usize {
    entries / 32 + 4
}

/// Gives back room that is not needed soon.
fn trim(shard: &mut Vec<Packed>) {
    if shard.capacity() > shard.len() + shard.len() / 16 + 8 {
        shard.shrink_to(shard.len() + shard.len() / 32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fill::{Restored, Run, Work};
    use super::*;

    /// What happens to a table.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, Item),
        Retain(u64, u8),
        Sweep(usize, u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let item = (0u16..8, any::<u32>(), 0u8..200, 0u16..STAMPS)
            .prop_map(|(slot, offset, class, stamp)| Item { slot, offset, class, stamp });
        prop_oneof![
            6 => (0u64..3000, item).prop_map(|(hash, item)| Step::Insert(hash, item)),
            2 => (0u64..3000, 0u8..8).prop_map(|(hash, slot)| Step::Retain(hash, slot)),
            1 => (0usize..5000, 0u8..8).prop_map(|(entries, slot)| Step::Sweep(entries, slot)),
        ]
    }

    /// A hash of which no bits are alike, from a number.
    fn hash(number: u64) -> u64 {
        ground::window::key_hash(&number.to_le_bytes())
    }

    /// Carries the last piece of work out first.
    fn in_disorder(work: Vec<Work<'_>>) {
        work.into_iter().rev().for_each(|work| work());
    }

    fn sorted(items: impl Iterator<Item = Item>) -> Vec<Item> {
        let mut items: Vec<Item> = items.collect();
        items.sort_unstable_by_key(|item| (item.slot, item.offset, item.class, item.stamp));
        items
    }

    proptest! {
        /// The naive twin: a list of hashes and items.
        #[test]
        fn agrees_with_a_list(
            steps in prop::collection::vec(step(), 0..1500), bits in 0u32..=HASH_BITS, filled in any::<bool>(),
        ) {
            let (mut table, mut naive) = (Table::new(bits), Vec::<(u64, Item)>::new());
            let id = |number: u64| hash(number) & ((1 << bits) - 1);
            if filled {
                let first = steps.iter().take(700).filter_map(|step| match step {
                    Step::Insert(number, item) => Some((*number, *item)),
                    _ => None,
                });
                let first: Vec<(u64, Item)> = first.collect();
                let restored = |&(number, item): &(u64, Item)| {
                    let bytes = class_bytes(item.class) as u32;
                    [Restored { hash: hash(number), offset: item.offset, bytes }]
                };
                let records: Vec<[Restored; 1]> = first.iter().map(restored).collect();
                let runs: Vec<Run<'_>> = records
                    .iter()
                    .zip(&first)
                    .map(|(records, (_, item))| Run { slot: item.slot, stamp: item.stamp, records })
                    .collect();
                for (number, item) in &first {
                    naive.retain(|(other, old)| *other != id(*number) || old.slot % 2 != item.slot % 2);
                    naive.push((id(*number), *item));
                }
                let removed = table.fill(&runs, |a, b| a.slot % 2 == b.slot % 2, in_disorder);
                prop_assert_eq!(first.len() - removed.len(), naive.len());
            }
            for step in steps {
                match step {
                    Step::Insert(number, item) => {
                        prop_assert!(table.insert(hash(number), item));
                        naive.push((id(number), item));
                    }
                    Step::Retain(number, slot) => {
                        table.retain_of(hash(number), |item| {
                            item.stamp = 5;
                            item.slot != u16::from(slot)
                        });
                        naive.iter_mut().filter(|n| n.0 == id(number)).for_each(|n| n.1.stamp = 5);
                        naive.retain(|n| n.0 != id(number) || n.1.slot != u16::from(slot));
                    }
                    Step::Sweep(entries, slot) => {
                        let mut gone = Vec::new();
                        table.sweep(entries, |item| {
                            let keep = item.slot != u16::from(slot);
                            if !keep { gone.push(*item) }
                            keep
                        });
                        for item in gone {
                            let index = naive.iter().position(|n| n.1 == item);
                            prop_assert!(index.is_some());
                            naive.swap_remove(index.unwrap());
                        }
                    }
                }
                prop_assert_eq!(table.len(), naive.len());
            }
            for number in (0..3000).step_by(7) {
                let expected = naive.iter().filter(|n| n.0 == id(number)).map(|n| n.1);
                prop_assert_eq!(sorted(table.get(hash(number))), sorted(expected));
            }
        }

        #[test]
        fn a_length_is_rounded_up_by_little(bytes in 0u64..1 << 33) {
            let rounded = class_bytes(length_class(bytes));
            prop_assert!(rounded >= bytes, "{bytes} to {rounded}");
            prop_assert!(rounded <= bytes + (bytes / 8).max(16), "{bytes} to {rounded}");
        }
    }

    #[test]
    fn lengths_have_ascending_classes() {
        for class in 1..=230 {
            let bytes = class_bytes(class);
            assert_eq!(length_class(bytes), class, "{bytes}");
            assert!(length_class(bytes + 1) == class + 1 && length_class(bytes - 15) == class);
        }
    }

    /// Splits many times; a sweep goes around once; one that was filled goes on to grow.
    #[test]
    fn a_table_grows_by_a_shard_at_a_time_and_stays_compact() {
        const ENTRIES: u64 = 2_500_000;
        let item = |number: u64| Item {
            slot: (number >> 16) as u16,
            offset: number as u32,
            class: 3,
            stamp: 0,
        };
        let mut table = Table::new(HASH_BITS);
        for number in 0..ENTRIES {
            assert!(table.insert(hash(number), item(number)));
        }
        let of_one = table.memory_bytes() as f64 / ENTRIES as f64;
        assert!(of_one < 11.8, "{of_one} bytes an entry");
        let found = |table: &Table, number| table.get(hash(number)).any(|i| i == item(number));
        assert!((0..ENTRIES).step_by(997).all(|number| found(&table, number)));
        // Another key's entries are found about once in 2³⁴ ÷ 2,500,000 look-ups.
        let others = (ENTRIES..ENTRIES + 100_000).filter(|&n| table.get(hash(n)).next().is_some());
        assert!(others.count() < 200);
        table.sweep(usize::MAX / 2, |item| item.slot.is_multiple_of(2));
        assert!((0..ENTRIES).step_by(997).all(|n| found(&table, n) == (n >> 16).is_multiple_of(2)));
        let of = |number| {
            let Item { offset, class, .. } = item(number);
            Restored { hash: hash(number), offset, bytes: class_bytes(class) as u32 }
        };
        let records: Vec<Restored> = (0..ENTRIES / 2).map(of).collect();
        let runs: Vec<Run<'_>> = (0u16..)
            .zip(records.chunks(1 << 16))
            .map(|(slot, records)| Run { slot, stamp: 0, records })
            .collect();
        let mut filled = Table::new(HASH_BITS);
        let removed = filled.fill(&runs, |_, _| false, in_disorder);
        assert_eq!((filled.len() as u64, removed.len()), (ENTRIES / 2, 0));
        let of_one = filled.memory_bytes() as f64 / (ENTRIES / 2) as f64;
        assert!(of_one < 11.8, "{of_one} bytes an entry");
        for number in ENTRIES / 2..ENTRIES / 2 + 100_000 {
            assert!(filled.insert(hash(number), item(number)));
        }
        let all = 0..ENTRIES / 2 + 100_000;
        assert!(all.step_by(997).all(|number| found(&filled, number)));
    }
}
