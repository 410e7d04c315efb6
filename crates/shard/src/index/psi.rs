//! The directory of Ψ's blocks: where each starts, and which may hold a value.
//!
//! Two small arrays that a processor's second-level cache nearly holds, so that a step of Ψ costs one
//! miss of memory, its block's:
//!
//! - *offsets*: for every 16 blocks one 32-bit offset, and for each of them 16 bits relative to it:
//!   2¼ bytes for 128 rows;
//! - *tops*: the first value of every fourth block, for the binary search of a step backwards; the first
//!   values of the blocks between are in the blocks, which lie side by side and are asked for together.

use crate::bits::load::{u16_at, u32_at};
use crate::bits::word::{Word, prefetch};

use super::block::{Block, Blocks, ROWS};

/// Blocks that share one full offset.
pub(crate) const BLOCKS_PER_OFFSET: u32 = 16;

/// Bytes of the offsets of so many blocks.
pub(crate) const OFFSET_BYTES: usize = 4 + 2 * BLOCKS_PER_OFFSET as usize;

/// Of so many blocks the first value of one is a top.
pub(crate) const BLOCKS_PER_TOP: u32 = 4;

/// Cache lines of a group of blocks that are asked for at once.
const LINES_AHEAD: usize = 6;

const LINE_BYTES: usize = 64;

/// Ψ, within stored bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Psi<'a> {
    pub blocks: Blocks<'a>,
    pub offsets: &'a [u8],
    pub tops: &'a [u8],
}

/// A row's block, asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    at: usize,
}

impl<'a> Psi<'a> {
    /// Where block `block` starts.
    #[inline(always)]
    fn offset(&self, block: u32) -> usize {
        let at = (block / BLOCKS_PER_OFFSET) as usize * OFFSET_BYTES;
        let relative = at + 4 + 2 * (block % BLOCKS_PER_OFFSET) as usize;
        u32_at(self.offsets, at) as usize + u16_at(self.offsets, relative) as usize
    }

    /// Asks for the directory entry of a row's block.
    #[inline(always)]
    pub fn ask_directory(&self, row: u32) {
        let block = row / ROWS;
        prefetch(self.offsets, (block / BLOCKS_PER_OFFSET) as usize * OFFSET_BYTES);
    }

    /// Looks up where a row's block is, and asks for it.
    #[inline(always)]
    pub fn ask(&self, row: u32) -> Asked {
        let at = self.offset(row / ROWS);
        self.blocks.ask(at);
        self.blocks.ask(at + LINE_BYTES);
        Asked { at }
    }

    /// The block that was asked for.
    #[inline(always)]
    pub fn block(&self, asked: Asked) -> Block<'a> {
        self.blocks.block(asked.at)
    }

    /// The tops from number `from` up to `end`.
    #[inline(always)]
    fn tops(&self, from: u32, end: u32) -> &'a [[u8; 4]] {
        self.tops.as_chunks().0.get(from as usize..end as usize).unwrap_or(&[])
    }

    /// First part of finding the first of `rows`, all of one column and at least one, with Ψ of `target`
    /// or more: the group of blocks that it is in, whose directory entry is asked for.
    #[inline(always)]
    pub fn seek(&self, rows: (u32, u32), target: u32) -> u32 {
        let group = rows.0 / ROWS / BLOCKS_PER_TOP;
        let last = (rows.1 - 1) / ROWS / BLOCKS_PER_TOP;
        // Those whose blocks start within the rows. (The same with `select_unpredictable` counted a tenth more slowly,
        // over 1 MB and over 50 MB: it waits for what a guess goes on from.)
        let tops = self.tops(group + 1, last + 1);
        let below = tops.partition_point(|&top| u32::from_le_bytes(top) < target);
        let group = group + below as u32;
        self.ask_directory(group * BLOCKS_PER_TOP * ROWS);
        group
    }

    /// As [`Self::seek`], for a target no less than the one that is in `group`: in the same, more often than not.
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

    /// Second part: asks for the blocks of a group that hold any of `rows`.
    #[inline(always)]
    pub fn ask_group(&self, rows: (u32, u32), group: u32) {
        let (first, last) = (rows.0 / ROWS, (rows.1 - 1) / ROWS);
        let start = self.offset((group * BLOCKS_PER_TOP).max(first));
        let end = self.offset((group * BLOCKS_PER_TOP + BLOCKS_PER_TOP - 1).min(last)) + LINE_BYTES;
        for line in 0..LINES_AHEAD {
            let at = start + line * LINE_BYTES;
            if at < end {
                self.blocks.ask(at);
            }
        }
    }

    /// Third part: the row, or the end of `rows`.
    #[inline(always)]
    pub fn find<W: Word>(&self, rows: (u32, u32), target: u32, group: u32, word: W) -> u32 {
        let first = (group * BLOCKS_PER_TOP).max(rows.0 / ROWS);
        let end = (group * BLOCKS_PER_TOP + BLOCKS_PER_TOP - 1).min((rows.1 - 1) / ROWS);
        // How many blocks more start below the target: all are looked at, as a guess would cost more.
        let below = |block: u32| {
            // One that was asked for, in any case.
            let start = self.blocks.first(self.offset(block.min(end)));
            u32::from(block <= end) & u32::from(start < target)
        };
        let block = first + (1..BLOCKS_PER_TOP).map(|ahead| below(first + ahead)).sum::<u32>();
        let start = block * ROWS;
        let within = (rows.0.saturating_sub(start), (rows.1 - start).min(ROWS));
        start + self.blocks.block(self.offset(block)).lower_bound(target, within, word)
    }
}
