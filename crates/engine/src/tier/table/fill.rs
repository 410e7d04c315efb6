//! Filling an empty table with all entries of a start at once.
//!
//! Inserting them one at a time costs a binary search and a move of half a shard for each. Here the
//! entries of each shard are counted, written behind each other and sorted once. The shards are
//! divided into pieces of work that do not depend on each other; each piece reads all records and
//! keeps those of its shards. So the caller may carry the pieces out in as many threads as it has,
//! and the result is the same.

use ground::window::key_hash;
use serde::{Deserialize, Serialize};

use super::{ENTRY_BYTES, Item, Layout, Packed, SHARD_MAX, Table, length_class, rest_of, spare};

/// Pieces of work: a multiple of the threads that a node may have for a start. Each reads all
/// records; on the other hand, the shards of one are few enough for the processor's page tables.
const PIECES: usize = 8;

/// A record that the disk code found on a device at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// [`key_hash`] of its key.
    pub hash: u64,
    /// Offset in its segment, bytes.
    pub offset: u32,
    /// Length of the whole record, bytes.
    pub bytes: u32,
}

impl Restored {
    /// A record with this key; `None` if it lies where no index can name it, above 4 GiB.
    pub fn new(key: &[u8], offset: u64, bytes: u64) -> Option<Restored> {
        let (offset, bytes) = (u32::try_from(offset).ok()?, u32::try_from(bytes).ok()?);
        Some(Restored { hash: key_hash(key), offset, bytes })
    }
}

/// Records of one segment.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// [`Item::slot`] of all of them.
    pub slot: u16,
    /// [`Item::stamp`] of all of them.
    pub stamp: u16,
    /// The records, the oldest first.
    pub records: &'a [Restored],
}

/// A piece of work. Pieces may be carried out in any order and at the same time.
pub type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Shards of a table that one piece of work fills.
struct Piece<'a> {
    layout: Layout,
    first: usize,
    shards: &'a mut [Vec<Packed>],
    removed: Vec<Item>,
}

impl Table {
    /// Fills an empty table with the entries of all runs; `carry_out` must carry out all pieces of
    /// work. Of two entries with the same hash for which `replaces(later, earlier)` holds, the
    /// earlier is left out. Returns the entries that were left out, in no particular order. Cost:
    /// some 100 ns an entry.
    ///
    /// # Panics
    ///
    /// If the table is not empty.
    pub fn fill(
        &mut self,
        runs: &[Run<'_>],
        replaces: impl Fn(&Item, &Item) -> bool + Sync,
        carry_out: impl FnOnce(Vec<Work<'_>>),
    ) -> Vec<Item> {
        assert!(self.is_empty(), "only an empty table is filled");
        self.expect(runs.iter().map(|run| run.records.len()).sum());
        let (layout, each) = (self.layout, self.shards.len().div_ceil(PIECES));
        let shards = self.shards.chunks_mut(each).enumerate();
        let mut pieces: Vec<Piece<'_>> = shards
            .map(|(i, shards)| Piece { layout, first: i * each, shards, removed: Vec::new() })
            .collect();
        let replaces = &replaces;
        let work =
            pieces.iter_mut().map(|piece| Box::new(|| piece.fill(runs, replaces)) as Work<'_>);
        carry_out(work.collect());
        let removed = pieces.into_iter().flat_map(|piece| piece.removed).collect();
        self.len = self.shards.iter().map(Vec::len).sum();
        removed
    }

    /// Makes as many shards as so many entries need, so that filling the table splits none.
    fn expect(&mut self, entries: usize) {
        let wanted = entries / super::PER_SHARD;
        if wanted <= self.shards.len() {
            return;
        }
        let level = wanted.ilog2().min(self.layout.bits);
        let split = (wanted - (1 << level)).min(1 << level);
        (self.layout.level, self.layout.split) = (level, split);
        self.shards = vec![Vec::new(); (1 << level) + split];
    }
}

impl Piece<'_> {
    fn fill(&mut self, runs: &[Run<'_>], replaces: &impl Fn(&Item, &Item) -> bool) {
        let mut counts = vec![0usize; self.shards.len()];
        let (layout, first) = (self.layout, self.first);
        for record in runs.iter().flat_map(|run| run.records) {
            let (shard, _) = layout.place(record.hash);
            if let Some(count) = counts.get_mut(shard.wrapping_sub(first)) {
                *count += 1;
            }
        }
        for (shard, count) in self.shards.iter_mut().zip(counts) {
            shard.reserve_exact((count + spare(count)).min(SHARD_MAX));
        }
        for &Run { slot, stamp, records } in runs {
            for &Restored { hash, offset, bytes } in records {
                let (shard, rest) = layout.place(hash);
                let Some(shard) = self.shards.get_mut(shard.wrapping_sub(first)) else { continue };
                let item = Item { slot, offset, class: length_class(bytes.into()), stamp };
                if shard.len() < SHARD_MAX {
                    shard.push(item.pack(rest));
                } else {
                    self.removed.push(item);
                }
            }
        }
        let (mut order, mut unsorted) = (Vec::new(), Vec::<Packed>::new());
        for shard in &mut *self.shards {
            // Of equal hashes, the later is behind.
            order.clear();
            order.extend((0u32..).zip(&*shard).map(|(at, packed)| (rest_of(packed), at)));
            order.sort_unstable();
            unsorted.clone_from(shard);
            shard.clear();
            for &(rest, at) in &order {
                let packed = unsorted[at as usize];
                let mut before = shard.len();
                while before > 0 && rest_of(&shard[before - 1]) == rest {
                    before -= 1;
                    let earlier = Item::unpack(&shard[before]);
                    if replaces(&Item::unpack(&packed), &earlier) {
                        self.removed.push(earlier);
                        shard.remove(before);
                    }
                }
                shard.push(packed);
            }
        }
    }
}

const _: () = assert!(size_of::<Packed>() == ENTRY_BYTES);
