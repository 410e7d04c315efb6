//! Finds the offsets of rows by walking along Ψ to the next marked row.
//!
//! A row's offset is the offset of the next marked row less the number of steps to it, which is
//! less than the sampling rate, half of it on average. Adjacent rows in one run of Ψ map to
//! adjacent rows, so they walk as one *stretch* at the cost of one row, until a head of a run, a
//! marked row or the block's end divides them. Occurrences of a pattern in repetitive text stay
//! together for many steps.
//!
//! Stretches are lanes. Cost: one step per stretch. Parts that are split off wait on a stack of at
//! most as many entries as there are rows.
//!
//! While a layer is marked, a walk also stores in it the first row on its way that belongs to the
//! layer, not only the row at which it began. That walk, and all others through that row, then end
//! there, as they would with the layer complete.
//!
//! The values in layers are prefetched one turn of the lanes ahead, as blocks are; a row that a
//! layer certainly holds needs no block. Measured by `examples/rates.rs` with batches of 16
//! searches over 50 MB of Debian package records with samples of rate 64, alternating with the
//! previous version on a busy machine: 12 % more searches per CPU second with layers of rate 16
//! (two runs each), 4 % with rate 8 (three).

use std::ops::Range;

use crate::bits::word::{Job, Word};
use crate::text::Text as _;

use super::block::{Block, ROWS};
use super::parts::{LANES, Parts};
use super::psi::Prefetched;
use super::state::Index;
use super::work::Work;

/// Appends the offsets of all rows.
pub(super) fn locate(index: &Index, rows: &[Range<usize>], offsets: &mut Vec<usize>) {
    let all = index.len() + 1;
    for range in rows {
        assert!(range.end <= all || range.is_empty(), "rows {range:?} of a text with {all}");
    }
    let start = offsets.len();
    offsets.resize(start + rows.iter().map(ExactSizeIterator::len).sum::<usize>(), 0);
    let parts = index.parts();
    let ranges = rows.iter();
    let waiting = Vec::new();
    let located = (offsets.len() - start) as u64;
    let mut located_steps = 0;
    let steps = &mut located_steps;
    index.kernel.run(Locate { parts: &parts, ranges, begun: 0..0, start, offsets, waiting, steps });
    index.work.add(&Work { located, located_steps, ..Work::default() });
}

/// Adjacent rows that walk together.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// The present row of the first of them.
    row: u32,
    len: u32,
    /// The row at which the first of them started.
    origin: u32,
    steps: u32,
    /// The index in the output for the offset of the first of them.
    out: usize,
    /// The first row on the way that a marked layer lacks, and the number of steps to it; row 0,
    /// which every layer holds, if there is none.
    wanted: u32,
    wanted_steps: u32,
}

impl Stretch {
    /// The part of `len` rows from row number `skip` on.
    #[inline(always)]
    fn part(self, skip: u32, len: u32) -> Self {
        Self {
            row: self.row + skip,
            origin: self.origin + skip,
            out: self.out + skip as usize,
            len,
            ..self
        }
    }
}

struct Locate<'a> {
    parts: &'a Parts<'a>,
    ranges: std::slice::Iter<'a, Range<usize>>,
    /// The rest of the range that was begun last.
    begun: Range<usize>,
    /// The index in the output for its first offset.
    start: usize,
    offsets: &'a mut Vec<usize>,
    /// Stretches that wait for a lane.
    waiting: Vec<Stretch>,
    /// Counts steps: one for each stretch, however many rows it has.
    steps: &'a mut u64,
}

impl Locate<'_> {
    /// The next stretch to walk: a waiting one, or the next rows of a range within one block.
    #[inline(always)]
    fn next(&mut self) -> Option<Stretch> {
        if let Some(stretch) = self.waiting.pop() {
            return Some(stretch);
        }
        while self.begun.is_empty() {
            self.begun = self.ranges.next()?.clone();
        }
        let row = self.begun.start as u32;
        let len = (ROWS - row % ROWS).min(self.begun.len() as u32);
        let out = self.start;
        self.begun.start += len as usize;
        self.start += len as usize;
        Some(Stretch { row, len, origin: row, out, ..Stretch::default() })
    }

    /// The offset of the start of a walk that reached a row of known offset after `steps`.
    #[inline(always)]
    fn record_offset(&mut self, stretch: Stretch, offset: u32) {
        let offset = offset.saturating_sub(stretch.steps);
        if let Some(place) = self.offsets.get_mut(stretch.out) {
            *place = offset as usize;
        }
        if stretch.steps > 0 {
            self.parts.view.learn(offset, stretch.origin);
        }
        if stretch.wanted > 0 {
            let on_the_way = offset.saturating_add(stretch.wanted_steps);
            self.parts.view.learn(on_the_way, stretch.wanted);
        }
    }

    /// The first row of a stretch (within one block) with a known offset: its place in the stretch
    /// and its offset in the text.
    #[inline(always)]
    fn next_known(&self, block: Block<'_>, stretch: Stretch) -> Option<(u32, u32)> {
        let marked = self.marked(block, stretch);
        let unmarked = marked.map_or(stretch.len, |(place, _)| place);
        for place in 0..unmarked {
            if let Some(offset) = self.parts.view.offset(stretch.row + place) {
                return Some((place, offset));
            }
        }
        marked
    }

    /// The same, for the index's own samples only.
    #[inline(always)]
    fn marked(&self, block: Block<'_>, stretch: Stretch) -> Option<(u32, u32)> {
        let shape = self.parts.index.shape;
        let within = stretch.row % ROWS;
        let (marked, index) = block.next_mark(within);
        let ahead = marked.saturating_sub(within);
        if ahead >= stretch.len {
            return None;
        }
        let rows = ROWS.min(shape.rows().saturating_sub(stretch.row - within));
        let sample = block.sample(index, shape.sample_width(), rows);
        let offset = sample * u64::from(shape.sa_sampling);
        Some((ahead, offset.min(shape.len.into()) as u32))
    }

    /// Advances every row of a stretch (within one block) by one step. Returns one stretch that has
    /// farther to go, and queues the others.
    #[inline(always)]
    fn step<W: Word>(&mut self, block: Block<'_>, mut rest: Stretch, word: W) -> Option<Stretch> {
        let shape = self.parts.index.shape;
        // Walks are shorter than this unless a section is damaged.
        if rest.steps > shape.sa_sampling {
            return None;
        }
        if rest.len == 1 {
            // Most stretches soon become single rows. Layers are tried first: if one certainly
            // holds the row, its block was not prefetched.
            let of_layer = self.parts.view.offset(rest.row);
            if let Some(offset) =
                of_layer.or_else(|| self.marked(block, rest).map(|(_, offset)| offset))
            {
                self.record_offset(rest, offset);
                return None;
            }
            if rest.wanted == 0 && self.parts.view.wants_offset(rest.row) {
                (rest.wanted, rest.wanted_steps) = (rest.row, rest.steps);
            }
            *self.steps += 1;
            let row = block.psi(rest.row % ROWS, word).min(shape.len);
            return Some(Stretch { row, steps: rest.steps + 1, ..rest });
        }
        let mut next: Option<Stretch> = None;
        while rest.len > 0 {
            let known = self.next_known(block, rest);
            let mut unknown = known.map_or(rest.len, |(place, _)| place);
            let mut done = 0;
            while unknown > 0 {
                let within = (rest.row + done) % ROWS;
                let len = if unknown == 1 { 1 } else { block.run(within, word).min(unknown) };
                let mut moved = rest.part(done, len);
                moved.row = block.psi(within, word).min(shape.len);
                moved.steps += 1;
                *self.steps += 1;
                if let Some(other) = next.replace(moved) {
                    self.waiting.push(other);
                }
                (done, unknown) = (done + len, unknown - len);
            }
            if let Some((_, offset)) = known {
                self.record_offset(rest.part(done, 1), offset);
                done += 1;
            }
            rest = rest.part(done, rest.len - done);
        }
        next
    }
}

impl Job for Locate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Word>(mut self, word: W) {
        let psi = self.parts.psi;
        // A stretch, its block, and whether a layer certainly knows its one row.
        let mut lanes = [(Stretch::default(), Prefetched::default(), false); LANES];
        let mut count = 0;
        loop {
            while count < LANES {
                let Some(stretch) = self.next() else { break };
                lanes[count] = (stretch, psi.ask(stretch.row), false);
                count += 1;
            }
            if count == 0 {
                return;
            }
            let mut index = 0;
            while index < count {
                let (stretch, asked, _) = lanes[index];
                let (now, later) = self.in_block(stretch);
                self.waiting.extend(later);
                match self.step(psi.block(asked), now, word) {
                    Some(next) => {
                        let is_known = self.parts.view.ask_offset(next.row) && next.len == 1;
                        if !is_known {
                            psi.ask_directory(next.row);
                        }
                        lanes[index] = (next, asked, is_known);
                        index += 1;
                    }
                    None => {
                        count -= 1;
                        lanes[index] = lanes[count];
                    }
                }
            }
            for (stretch, asked, is_known) in &mut lanes[..count] {
                if !*is_known {
                    *asked = psi.ask(stretch.row);
                }
            }
        }
    }
}

impl Locate<'_> {
    /// Splits a stretch at the end of its first row's block; returns the first part, and the rest
    /// if any.
    #[inline(always)]
    fn in_block(&self, stretch: Stretch) -> (Stretch, Option<Stretch>) {
        let here = ROWS - stretch.row % ROWS;
        if stretch.len <= here {
            return (stretch, None);
        }
        (stretch.part(0, here), Some(stretch.part(here, stretch.len - here)))
    }
}
