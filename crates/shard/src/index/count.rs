//! Which rows start with a pattern: the search backwards.
//!
//! The suffixes that start with `cP` are those of column `c` whose Ψ is among the rows of `P`; Ψ ascends
//! within a column, so that two binary searches give their rows (Sadakane, 2003). The pattern's last
//! three bytes come from the tables, and each step looks only within the rows of the pair that it begins.
//!
//! Patterns are lanes, and take each step in three rounds: both searches of the tops; what of the directory
//! they lead to, which asks for their groups of blocks; then both within those. The second search of the tops begins
//! where the first one ended: the rows of a pattern are few before long, and both of their ends in one
//! group. Cost of a step: about one cache miss, shared by what the other lanes do meanwhile.

use std::ops::Range;

use crate::bits::word::{Job, Word};

use super::grams::Code;
use super::parts::Parts;
use super::{Index, LANES};

/// Calls `found` with the number of each pattern and its rows, in any order.
pub(super) fn rows(index: &Index, patterns: &[&[u8]], found: impl FnMut(usize, Range<usize>)) {
    let parts = index.parts();
    index.kernel.run(Rows { parts: &parts, patterns, found });
}

struct Rows<'a, F> {
    parts: &'a Parts<'a>,
    patterns: &'a [&'a [u8]],
    found: F,
}

/// A pattern on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    pattern: usize,
    /// Bytes of the pattern that are still to be prepended.
    left: usize,
    /// Code of the byte that was prepended last.
    last: Code,
    /// Rows of what was prepended so far.
    rows: (u32, u32),
    /// Rows that the next step looks in, and what it found in its first round.
    within: (u32, u32),
    groups: (u32, u32),
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

    /// The last bytes of a pattern: how many are answered at once, and their rows. No rows if a byte of
    /// the pattern does not occur, so that all others have a code.
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
    /// The lane of a pattern, or none if its rows are found already.
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

    /// Reports the rows of a pattern: rows that there are, whatever a damaged section says.
    #[inline(always)]
    fn finish(&mut self, number: usize, rows: (u32, u32)) {
        let end = rows.1.min(self.parts.index.shape.rows()) as usize;
        let start = (rows.0 as usize).min(end);
        (self.found)(number, start..end);
    }

    /// First round of a step; whether there can be rows.
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
        lane.groups = (group, psi.seek_from(lane.within, lane.rows.1, group));
        true
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
                    self.parts.psi.ask_group(lane.within, lane.groups.0);
                    if lane.groups.1 != lane.groups.0 {
                        self.parts.psi.ask_group(lane.within, lane.groups.1);
                    }
                }
            }
            let mut index = 0;
            while index < count {
                let lane = &mut lanes[index];
                if lane.rows.0 < lane.rows.1 {
                    let psi = &self.parts.psi;
                    let find = |row, group| psi.find(lane.within, row, group, word);
                    lane.rows =
                        (find(lane.rows.0, lane.groups.0), find(lane.rows.1, lane.groups.1));
                    lane.left -= 1;
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
