//! Backward search: finds the rows that start with a pattern.
//!
//! The suffixes that start with `cP` are those of column `c` whose Ψ is among the rows of `P`. Ψ
//! ascends within a column, so two binary searches find their rows (Sadakane, 2003). The tables
//! give the rows of the pattern's last three bytes, and each step searches only within the rows of
//! its first two symbols.
//!
//! Patterns are lanes. Each step takes three rounds: search the tops; read the directory entry and
//! prefetch the group of blocks; search within the group. If the rows are few, the second end is
//! not searched for immediately: in seven steps of ten all rows of a pattern remain (package
//! records, 1 to 1,000 hits), which one value of Ψ shows. A step costs about one cache miss,
//! overlapped with the work of the other lanes.

use std::ops::Range;

use crate::bits::word::{Job, Word};

use super::block::ROWS;
use super::grams::Code;
use super::parts::{LANES, Parts};
use super::state::Index;

/// Calls `found` with the number and the rows of each pattern, in any order.
pub(super) fn rows(index: &Index, patterns: &[&[u8]], found: impl FnMut(usize, Range<usize>)) {
    let parts = index.parts();
    index.kernel.run(Rows { parts: &parts, patterns, found });
}

/// The number of rows up to which their end is not searched for immediately: few enough to be
/// probably in one group of blocks.
const FEW: u32 = 4 * ROWS;

struct Rows<'a, F> {
    parts: &'a Parts<'a>,
    patterns: &'a [&'a [u8]],
    found: F,
}

/// A pattern being searched.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    pattern: usize,
    /// The number of pattern bytes still to be prepended.
    left: usize,
    /// The code of the last prepended byte.
    last: Code,
    /// The rows of the suffix of the pattern processed so far.
    rows: (u32, u32),
    /// The rows searched by the next step.
    within: (u32, u32),
    /// The groups of blocks in which its rows start and end; the second only if it was searched
    /// for.
    groups: (u32, Option<u32>),
}

impl Parts<'_> {
    fn code(&self, byte: u8) -> Code {
        self.index.codes[byte as usize]
    }

    /// Rows of the suffixes that start with a pattern of two symbols.
    #[inline(always)]
    fn pair(&self, first: Code, second: Code) -> (u32, u32) {
        self.grams.pair(first, second).unwrap_or_else(|| self.column(first))
    }

    #[inline(always)]
    fn column(&self, symbol: Code) -> (u32, u32) {
        let starts = &self.index.starts;
        (starts[symbol as usize], starts[symbol as usize + 1])
    }

    /// Looks up the last bytes of a pattern. Returns their number and their rows; no rows if any
    /// byte of the pattern does not occur in the text, so later steps find a code for each byte.
    fn tail(&self, pattern: &[u8]) -> (usize, (u32, u32)) {
        if pattern.iter().any(|&byte| self.code(byte) == 0) {
            return (pattern.len(), (0, 0));
        }
        if let &[.., a, b, c] = pattern {
            let codes = [a, b, c].map(|byte| self.code(byte));
            if let Some(rows) = self.grams.triple(codes) {
                return (3, rows);
            }
        }
        if let &[.., a, b] = pattern
            && let Some(rows) = self.grams.pair(self.code(a), self.code(b))
        {
            return (2, rows);
        }
        match pattern.last() {
            Some(&byte) => (1, self.column(self.code(byte))),
            None => (0, (0, self.index.shape.rows())),
        }
    }
}

impl<F: FnMut(usize, Range<usize>)> Rows<'_, F> {
    /// Starts the lane of a pattern; `None` if its rows are known already.
    fn begin(&mut self, number: usize) -> Option<Lane> {
        let pattern = self.patterns[number];
        let (taken, rows) = self.parts.tail(pattern);
        let left = pattern.len() - taken;
        if left == 0 || rows.0 >= rows.1 {
            self.finish(number, rows);
            return None;
        }
        let last = self.parts.code(pattern[left]);
        Some(Lane { pattern: number, left, last, rows, ..Lane::default() })
    }

    /// Reports the rows of a pattern, clamped to existing rows in case a section is damaged.
    #[inline(always)]
    fn finish(&mut self, number: usize, rows: (u32, u32)) {
        let end = rows.1.min(self.parts.index.shape.rows()) as usize;
        let start = (rows.0 as usize).min(end);
        (self.found)(number, start..end);
    }

    /// First round of a step. Returns whether there can be any rows.
    #[inline(always)]
    fn seek(&self, lane: &mut Lane) -> bool {
        let symbol = self.parts.code(self.patterns[lane.pattern][lane.left - 1]);
        lane.within = self.parts.pair(symbol, lane.last);
        lane.last = symbol;
        if lane.within.0 >= lane.within.1 {
            return false;
        }
        let psi = &self.parts.psi;
        let group = psi.seek(lane.within, lane.rows.0);
        let are_many = lane.rows.1 - lane.rows.0 > FEW;
        lane.groups = (group, are_many.then(|| psi.seek_from(lane.within, lane.rows.1, group)));
        true
    }

    /// Second round: prefetches the blocks.
    #[inline(always)]
    fn ask(&self, lane: &Lane) {
        let psi = &self.parts.psi;
        psi.ask_group(lane.within, psi.group(lane.groups.0));
        if let Some(end) = lane.groups.1.filter(|&end| end != lane.groups.0) {
            psi.ask_group(lane.within, psi.group(end));
        }
    }

    /// Third round: finds the rows of the pattern extended by one byte.
    #[inline(always)]
    fn find<W: Word>(&self, lane: &Lane, word: W) -> (u32, u32) {
        let psi = &self.parts.psi;
        let (first, end) = lane.rows;
        let group = psi.group(lane.groups.0);
        let start = psi.find(lane.within, first, group, word);
        let end_group = match lane.groups.1 {
            Some(end_group) => end_group,
            None => {
                // Ψ ascends, so if the last of equally many rows maps to the last previous row, all
                // rows remain.
                let last = start.saturating_add(end - first - 1);
                if last < lane.within.1 && psi.has(group, last, end - 1, word) {
                    return (start, last + 1);
                }
                psi.seek_from(lane.within, end, lane.groups.0)
            }
        };
        (start, psi.find(lane.within, end, psi.group(end_group), word))
    }
}

impl<F: FnMut(usize, Range<usize>)> Job for Rows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<W: Word>(mut self, word: W) {
        let mut lanes = [Lane::default(); LANES];
        let (mut count, mut next) = (0, 0);
        loop {
            while count < LANES && next < self.patterns.len() {
                if let Some(lane) = self.begin(next) {
                    lanes[count] = lane;
                    count += 1;
                }
                next += 1;
            }
            if count == 0 {
                return;
            }
            for lane in &mut lanes[..count] {
                if !self.seek(lane) {
                    lane.rows = (0, 0);
                }
            }
            for lane in &lanes[..count] {
                if lane.rows.0 < lane.rows.1 {
                    self.ask(lane);
                }
            }
            let mut index = 0;
            while index < count {
                let mut lane = lanes[index];
                if lane.rows.0 < lane.rows.1 {
                    lane.rows = self.find(&lane, word);
                    lane.left -= 1;
                    lanes[index] = lane;
                }
                if lane.left > 0 && lane.rows.0 < lane.rows.1 {
                    index += 1;
                    continue;
                }
                let (number, rows) = (lane.pattern, lane.rows);
                count -= 1;
                lanes[index] = lanes[count];
                self.finish(number, rows);
            }
        }
    }
}
