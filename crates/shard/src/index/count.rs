//! Which rows start with a pattern: the search backwards.
//!
//! The suffixes that start with `cP` are those of column `c` whose Ψ is among the rows of `P`; Ψ
//! ascends within a column, so that two binary searches give their rows (Sadakane, 2003). The
//! pattern's last three bytes come from the tables, and each step looks only within the rows of the
//! pair that it begins.
//!
//! Patterns are lanes, and take each step in three rounds: the search of the tops; what of the
//! directory it leads to, which asks for its group of blocks; then the search within that. Where
//! rows are few the second end is not searched for at once: seven steps in ten leave a pattern with
//! all of its rows (of package records, 1 to 1,000 hits), and one value of Ψ tells. Cost of a step:
//! about one cache miss, shared by what the other lanes do meanwhile.

use std::ops::Range;

use crate::bits::word::{Job, Word};

use super::block::ROWS;
use super::grams::Code;
use super::parts::Parts;
use super::{Index, LANES};

/// Calls `found` with the number of each pattern and its rows, in any order.
pub(super) fn rows(index: &Index, patterns: &[&[u8]], found: impl FnMut(usize, Range<usize>)) {
    let parts = index.parts();
    index.kernel.run(Rows { parts: &parts, patterns, found });
}

/// Rows that may well be in one group of blocks: that are few enough for their end not to be
/// searched for at once.
const FEW: u32 = 4 * ROWS;

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
    /// Rows that the next step looks in.
    within: (u32, u32),
    /// The groups of blocks that its rows start and end in; the second if it was looked for.
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

    /// The last bytes of a pattern: how many are answered at once, and their rows. No rows if a
    /// byte of the pattern does not occur, so that all others have a code.
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
        let are_many = lane.rows.1 - lane.rows.0 > FEW;
        lane.groups = (group, are_many.then(|| psi.seek_from(lane.within, lane.rows.1, group)));
        true
    }

    /// Second round: asks for the blocks.
    #[inline(always)]
    fn ask(&self, lane: &Lane) {
        let psi = &self.parts.psi;
        psi.ask_group(lane.within, psi.group(lane.groups.0));
        if let Some(end) = lane.groups.1.filter(|&end| end != lane.groups.0) {
            psi.ask_group(lane.within, psi.group(end));
        }
    }

    /// Third round: the rows of the pattern with one byte more.
    #[inline(always)]
    fn find<W: Word>(&self, lane: &Lane, word: W) -> (u32, u32) {
        let psi = &self.parts.psi;
        let (first, end) = lane.rows;
        let group = psi.group(lane.groups.0);
        let start = psi.find(lane.within, first, group, word);
        let end_group = match lane.groups.1 {
            Some(end_group) => end_group,
            None => {
                // All rows as before, if the last of as many leads to the last of those: Ψ ascends.
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
