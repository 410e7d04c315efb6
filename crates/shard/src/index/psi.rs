//! The directory of Ψ's blocks: the start of each block, and which blocks may hold a value.
//!
//! Two small arrays that nearly fit a processor's second-level cache, so that a step of Ψ costs one
//! cache miss, that of its block:
//!
//! - *offsets*: one 32-bit offset for every 16 blocks, and 16 bits relative to it for each of them:
//!   2¼ bytes per 128 rows;
//! - *tops*: the first value of every fourth block, for the binary search of a backward step. The
//!   first values of the blocks in between are in the blocks themselves, which are adjacent and
//!   prefetched together.

use crate::bits::load::{u16_at, u32_at, u64_at};
use crate::bits::word::{Word, prefetch};

use super::block::{Block, Blocks, ROWS};

/// The number of blocks that share one full offset.
pub(crate) const BLOCKS_PER_OFFSET: u32 = 16;

/// The size of the offsets of that many blocks.
pub(crate) const OFFSET_BYTES: usize = 4 + 2 * BLOCKS_PER_OFFSET as usize;

/// The number of blocks per top.
pub(crate) const BLOCKS_PER_TOP: u32 = 4;

/// The most cache lines of a group of blocks that are prefetched at once.
const LINES_AHEAD: usize = 6;

const LINE_BYTES: usize = 64;

/// Ψ, within stored bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Psi<'a> {
    pub blocks: Blocks<'a>,
    pub offsets: &'a [u8],
    pub tops: &'a [u8],
}

/// A row's block, prefetched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prefetched {
    at: usize,
}

impl<'a> Psi<'a> {
    /// The start of block `block`.
    #[inline(always)]
    fn offset(&self, block: u32) -> usize {
        let at = (block / BLOCKS_PER_OFFSET) as usize * OFFSET_BYTES;
        let relative = at + 4 + 2 * (block % BLOCKS_PER_OFFSET) as usize;
        u32_at(self.offsets, at) as usize + u16_at(self.offsets, relative) as usize
    }

    /// Prefetches the directory entry of a row's block.
    #[inline(always)]
    pub fn ask_directory(&self, row: u32) {
        let block = row / ROWS;
        prefetch(self.offsets, (block / BLOCKS_PER_OFFSET) as usize * OFFSET_BYTES);
    }

    /// Looks up the start of a row's block, and prefetches it.
    #[inline(always)]
    pub fn ask(&self, row: u32) -> Prefetched {
        let at = self.offset(row / ROWS);
        self.blocks.ask(at);
        self.blocks.ask(at + LINE_BYTES);
        Prefetched { at }
    }

    /// The prefetched block.
    #[inline(always)]
    pub fn block(&self, asked: Prefetched) -> Block<'a> {
        self.blocks.block(asked.at)
    }

    /// The tops `from..end`.
    #[inline(always)]
    fn tops(&self, from: u32, end: u32) -> &'a [[u8; 4]] {
        self.tops.as_chunks().0.get(from as usize..end as usize).unwrap_or(&[])
    }

    /// First part of the search for the first of `rows` with Ψ at least `target`: finds its group
    /// of blocks and prefetches their directory entry. `rows` must be of one column and not empty.
    #[inline(always)]
    pub fn seek(&self, rows: (u32, u32), target: u32) -> u32 {
        let group = rows.0 / ROWS / BLOCKS_PER_TOP;
        let last = (rows.1 - 1) / ROWS / BLOCKS_PER_TOP;
        // The tops whose blocks start within the rows. (With `select_unpredictable`, counting was a
        // tenth slower over 1 MB and over 50 MB: it waits for the comparison, where a predicted
        // branch goes on.)
        let tops = self.tops(group + 1, last + 1);
        let below = tops.partition_point(|&top| u32::from_le_bytes(top) < target);
        let group = group + below as u32;
        self.ask_directory(group * BLOCKS_PER_TOP * ROWS);
        group
    }

    /// As [`Self::seek`], for a target no less than the one found in `group`. Checks that group
    /// first, since it mostly is the same.
    #[inline(always)]
    pub fn seek_from(&self, rows: (u32, u32), target: u32, group: u32) -> u32 {
        let next = group + 1;
        let last = (rows.1 - 1) / ROWS / BLOCKS_PER_TOP;
        let is_past = |top: &[u8; 4]| u32::from_le_bytes(*top) >= target;
        if next > last || self.tops(next, next + 1).first().is_none_or(is_past) {
            return group;
        }
        self.seek((next * BLOCKS_PER_TOP * ROWS, rows.1), target)
    }

    /// The blocks of a group, from its directory entry.
    #[inline(always)]
    pub fn group(&self, number: u32) -> Group {
        let first = number * BLOCKS_PER_TOP;
        let at = (first / BLOCKS_PER_OFFSET) as usize * OFFSET_BYTES;
        let relative = at + 4 + 2 * (first % BLOCKS_PER_OFFSET) as usize;
        Group { first, offset: u32_at(self.offsets, at), relative: u64_at(self.offsets, relative) }
    }

    /// Second part: prefetches the blocks of a group that hold any of `rows`.
    #[inline(always)]
    pub fn ask_group(&self, rows: (u32, u32), group: Group) {
        let (first, last) = group.within(rows);
        let (start, end) = (group.offset(first), group.offset(last) + LINE_BYTES);
        for line in 0..LINES_AHEAD {
            // Prefetching the last line twice costs less than a branch.
            self.blocks.ask((start + line * LINE_BYTES).min(end));
        }
    }

    /// Third part: returns the row, or the end of `rows`.
    #[inline(always)]
    pub fn find<W: Word>(&self, rows: (u32, u32), target: u32, group: Group, word: W) -> u32 {
        let (first, last) = group.within(rows);
        // Counts the further blocks that start below the target. Compares all, since a mispredicted
        // exit would cost more; reads only prefetched ones.
        let below = |block: u32| {
            let start = self.blocks.first(group.offset(block.clamp(first, last)));
            u32::from(first < block) & u32::from(block <= last) & u32::from(start < target)
        };
        let block = first + (1..BLOCKS_PER_TOP).map(below).sum::<u32>();
        let start = (group.first + block) * ROWS;
        let (from, to) = (rows.0.saturating_sub(start), (rows.1 - start).min(ROWS));
        start + self.blocks.block(group.offset(block)).lower_bound(target, from, to, word)
    }

    /// Whether Ψ of a row of this group is `value`; `false` for a row of another group.
    #[inline(always)]
    pub fn has<W: Word>(&self, group: Group, row: u32, value: u32, word: W) -> bool {
        let block = (row / ROWS).wrapping_sub(group.first);
        block < BLOCKS_PER_TOP
            && self.blocks.block(group.offset(block)).psi(row % ROWS, word) == value
    }
}

/// A group of adjacent blocks; the first has a top.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The number of the first block.
    first: u32,
    /// The starts of the blocks: their shared offset, and 16 bits relative to it for each.
    offset: u32,
    relative: u64,
}

const _: () = assert!(u16::BITS * BLOCKS_PER_TOP == u64::BITS);
const _: () = assert!(BLOCKS_PER_OFFSET.is_multiple_of(BLOCKS_PER_TOP));

impl Group {
    /// The start of block `block` of the group.
    #[inline(always)]
    fn offset(self, block: u32) -> usize {
        self.offset as usize + (self.relative >> (u16::BITS * block)) as u16 as usize
    }

    /// The first and the last block of the group that hold any of `rows`.
    #[inline(always)]
    fn within(self, rows: (u32, u32)) -> (u32, u32) {
        let last = BLOCKS_PER_TOP - 1;
        let block = |row: u32| (row / ROWS).saturating_sub(self.first).min(last);
        (block(rows.0), block(rows.1 - 1))
    }
}
