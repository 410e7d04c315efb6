//! One block: Ψ of 128 adjacent rows, and the samples of the suffix array among them.
//!
//! Ψ takes the row of a suffix to the row of the suffix one byte shorter (Sadakane, *New text indexing
//! functionalities of the compressed suffix arrays*, 2003, after Grossi and Vitter, 2000). Within one
//! symbol's column it ascends, and where the text repeats itself it ascends by one: such stretches are
//! *runs*, and a row that does not continue one is a *head*. A block stores which rows are heads, and by
//! how much more than one Ψ grows up to each head (its *jump*, a sum, so that jumps ascend) in Elias–Fano
//! code: the low bits of each as they are, the high bits in unary. Then
//!
//! `Ψ(i) = first + i + jump(heads among rows 1..=i)`
//!
//! in O(1): count heads, select a one among the high bits, add. Up to 15 heads are a list of bytes, more
//! are a bitmap; both are counted without a branch on their number.
//!
//! The rows whose suffix starts at a multiple of the sampling rate are *marked*, in the same block, and the
//! values of the marked rows follow: a walk learns at no further cache miss whether it has arrived.
//!
//! Blocks that reach into several columns (two for each symbol at most) hold Ψ as plain numbers.
//! `docs/shard-format.md` has the bytes.
//!
//! A damaged block gives wrong numbers, nothing worse: all reads are checked, all loops bounded.

use crate::bits::load::{u32_at, u64_at};
use crate::bits::packed::append;
use crate::bits::word::Word;

/// Rows of a block.
pub(crate) const ROWS: u32 = 128;

/// Heads from which on they are a bitmap.
const HEADS_BITMAP: u32 = 16;

/// Marks from which on they are a bitmap, and the number that says so.
const MARKS_BITMAP: u32 = 15;

const HEADER_BYTES: usize = 8;
const BITMAP_BYTES: usize = 16;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// A block within the stored bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    bytes: &'a [u8],
    at: usize,
    header: u64,
}

/// A run of a block: how many heads there are before its first row and it itself, and the jump up to there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    number: u32,
    jump: u32,
}

/// Entries of an ascending list that are at most `row`, of which one word holds up to eight bytes below
/// 128: those before the first that is greater, whatever follows the list's end.
#[inline(always)]
fn listed(list: u64, row: u32) -> u32 {
    let at_most = ((HIGH_BITS | (u64::from(row) * LOW_BITS)).wrapping_sub(list)) & HIGH_BITS;
    (at_most ^ HIGH_BITS).trailing_zeros() / 8
}

/// Ones of a bitmap of 128 bits at places up to `row`.
#[inline(always)]
fn ones(bitmap: (u64, u64), row: u32) -> u32 {
    let all = u64::MAX;
    let (low, high) = if row < 64 { (all >> (63 - row), 0) } else { (all, all >> (127 - row)) };
    (bitmap.0 & low).count_ones() + (bitmap.1 & high).count_ones()
}

/// Place of the first one of a bitmap past `row`, or 128.
#[inline(always)]
fn next_one(bitmap: (u64, u64), row: u32) -> u32 {
    let bits = u128::from(bitmap.0) | u128::from(bitmap.1) << 64;
    let past = bits & u128::MAX.checked_shl(row + 1).unwrap_or(0);
    past.trailing_zeros()
}

impl<'a> Block<'a> {
    /// The block that starts at byte `at`.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, header: u64_at(bytes, at) }
    }

    /// Ψ of the block's first row.
    #[inline(always)]
    pub fn first(self) -> u32 {
        self.header as u32
    }

    #[inline(always)]
    fn heads(self) -> u32 {
        (self.header >> 32) as u32 & 127
    }

    #[inline(always)]
    fn low_width(self) -> u32 {
        (self.header >> 39) as u32 & 31
    }

    #[inline(always)]
    fn high_bytes(self) -> usize {
        (self.header >> 44) as usize & 63
    }

    #[inline(always)]
    fn marks(self) -> u32 {
        (self.header >> 50) as u32 & 15
    }

    /// The byte that the suffixes of the block's rows start with, if they all start with one.
    #[inline(always)]
    pub fn symbol(self) -> u8 {
        (self.header >> 54) as u8
    }

    /// Whether the block reaches into several columns.
    #[inline(always)]
    pub fn is_mixed(self) -> bool {
        self.header >> 62 & 1 == 1
    }

    #[inline(always)]
    fn heads_bytes(self) -> usize {
        self.heads().min(HEADS_BITMAP) as usize
    }

    #[inline(always)]
    fn marks_at(self) -> usize {
        self.at + HEADER_BYTES + self.heads_bytes()
    }

    #[inline(always)]
    fn marks_bytes(self) -> usize {
        if self.marks() == MARKS_BITMAP { BITMAP_BYTES } else { self.marks() as usize }
    }

    /// Where the high bits start; in a mixed block, the numbers.
    #[inline(always)]
    fn high_at(self) -> usize {
        self.marks_at() + self.marks_bytes()
    }

    #[inline(always)]
    fn words(self, at: usize) -> (u64, u64) {
        (u64_at(self.bytes, at), u64_at(self.bytes, at + 8))
    }

    /// Heads among rows `1..=row`.
    #[inline(always)]
    fn heads_up_to(self, row: u32) -> u32 {
        let words = self.words(self.at + HEADER_BYTES);
        let first = listed(words.0, row);
        let second = listed(words.1, row);
        let list = (first + if first == 8 { second } else { 0 }).min(self.heads());
        let bitmap = ones(words, row);
        if self.heads() < HEADS_BITMAP { list } else { bitmap }
    }

    /// Row of head `index`; the bitmap is searched for it.
    #[inline(always)]
    fn head<W: Word>(self, index: u32, word: W) -> u32 {
        let words = self.words(self.at + HEADER_BYTES);
        if self.heads() < HEADS_BITMAP {
            let list = if index < 8 { words.0 } else { words.1 };
            return (list >> (index % 8 * 8)) as u32 & 127;
        }
        let before = words.0.count_ones();
        if index < before {
            word.select(words.0, index & 63)
        } else {
            64 + word.select(words.1, (index - before) & 63)
        }
    }

    /// The jump up to head `index`.
    #[inline(always)]
    fn jump<W: Word>(self, index: u32, word: W) -> u32 {
        let high_at = self.high_at();
        let (mut rank, mut base) = (index, 0);
        let mut bits = u64_at(self.bytes, high_at);
        // The high bits of 127 jumps are no more than 48 bytes.
        while rank >= bits.count_ones() && base < 384 {
            rank -= bits.count_ones();
            base += 64;
            bits = u64_at(self.bytes, high_at + base as usize / 8);
        }
        let high = (base + word.select(bits, rank & 63)).wrapping_sub(index);
        let width = self.low_width();
        let low_bit = index * width;
        let low_at = high_at + self.high_bytes() + low_bit as usize / 8;
        let low = (u64_at(self.bytes, low_at) >> (low_bit % 8)) & ((1 << width) - 1);
        high.wrapping_shl(width) | low as u32
    }

    /// Ψ of row `row` of the block.
    #[inline(always)]
    pub fn psi<W: Word>(self, row: u32, word: W) -> u32 {
        if self.is_mixed() {
            return u32_at(self.bytes, self.high_at() + 4 * row as usize);
        }
        let heads = self.heads_up_to(row);
        let jump = self.jump(heads.saturating_sub(1), word);
        let jump = if heads == 0 { 0 } else { jump };
        self.first().wrapping_add(row).wrapping_add(jump)
    }

    /// How many rows from `row` on are one run, `row` included: at least 1, past the block's end if no
    /// head follows.
    #[inline(always)]
    pub fn run(self, row: u32) -> u32 {
        if self.is_mixed() {
            return 1;
        }
        let words = self.words(self.at + HEADER_BYTES);
        let next = if self.heads() < HEADS_BITMAP {
            let heads = self.heads_up_to(row);
            let list = if heads < 8 { words.0 } else { words.1 };
            let next = (list >> (heads % 8 * 8)) as u32 & 127;
            if heads < self.heads() { next } else { ROWS }
        } else {
            next_one(words, row)
        };
        next.saturating_sub(row).max(1)
    }

    /// The first marked row from `row` on, and its number among the marks; [`ROWS`] if there is none.
    #[inline(always)]
    pub fn next_mark(self, row: u32) -> (u32, u32) {
        let words = self.words(self.marks_at());
        let marks = self.marks();
        if marks == MARKS_BITMAP {
            let bits = u128::from(words.0) | u128::from(words.1) << 64;
            let next = (bits & (u128::MAX << (row & 127))).trailing_zeros();
            let before = bits & !u128::MAX.checked_shl(next).unwrap_or(0);
            return (next, before.count_ones());
        }
        let (first, second) = match row {
            0 => (0, 0),
            _ => (listed(words.0, row - 1), listed(words.1, row - 1)),
        };
        let place = first + if first == 8 { second } else { 0 };
        let list = if place < 8 { words.0 } else { words.1 };
        let entry = (list >> (place % 8 * 8)) as u32 & 127;
        if place < marks { (entry, place) } else { (ROWS, 0) }
    }

    /// The value of mark number `index`, samples being `width` bits wide.
    #[inline(always)]
    pub fn sample(self, index: u32, width: u32, rows: u32) -> u64 {
        let numbers = if self.is_mixed() {
            4 * rows as usize
        } else {
            self.high_bytes() + (self.heads() * self.low_width()).div_ceil(8) as usize
        };
        let bit = index as usize * width as usize;
        let word = u64_at(self.bytes, self.high_at() + numbers + bit / 8);
        (word >> (bit % 8)) & ((1 << width) - 1)
    }

    /// The first of the block's rows `from..to` whose Ψ is at least `target`, or `to`; and the last run that starts
    /// below the target, the first one if none does. The rows are of one column. `near` is the run of a
    /// target that was no greater: the search begins there, with the runs next to it.
    #[inline(always)]
    pub fn lower_bound<W: Word>(
        self,
        target: u32,
        (from, to): (u32, u32),
        near: Option<Run>,
        word: W,
    ) -> (Run, u32) {
        let mut run = near.unwrap_or_default();
        if self.is_mixed() {
            let (mut from, mut to) = (from, to);
            while from < to {
                let middle = (from + to) / 2;
                if self.psi(middle, word) < target {
                    from = middle + 1;
                } else {
                    to = middle;
                }
            }
            return (run, from);
        }
        let above = match target.checked_sub(self.first()) {
            None | Some(0) => return (run, from),
            Some(above) => above,
        };
        // The target is in that run, or the next run starts past it.
        let mut end = self.heads() + 1;
        let mut stride = if near.is_some() { 1 } else { end / 2 };
        while end - run.number > 1 {
            let number = run.number + stride.clamp(1, end - run.number - 1);
            let (head, jump) = (self.head(number - 1, word), self.jump(number - 1, word));
            if head.wrapping_add(jump) < above {
                run = Run { number, jump };
            } else {
                end = number;
            }
            stride = (end - run.number) / 2;
        }
        let next = if run.number < self.heads() { self.head(run.number, word) } else { ROWS };
        (run, above.saturating_sub(run.jump).min(next).clamp(from, to))
    }
}

/// A block while its rows are gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    /// Ψ of each row.
    pub psi: Vec<u32>,
    /// Marked rows of the block and their samples, rows ascending.
    pub samples: Vec<(u8, u64)>,
}

impl Gathered {
    /// Appends the block as it is stored: of one column with this symbol, or else of several.
    pub fn encode(&self, symbol: Option<u8>, width: u32, out: &mut Vec<u8>) {
        debug_assert!((1..=ROWS as usize).contains(&self.psi.len()));
        let first = self.psi.first().copied().unwrap_or(0);
        let marks = (self.samples.len() as u32).min(MARKS_BITMAP);
        let header = u64::from(first) | u64::from(marks) << 50;
        match symbol {
            Some(symbol) => self.encode_runs(header | u64::from(symbol) << 54, out),
            None => {
                out.extend_from_slice(&(header | 1 << 62).to_le_bytes());
                self.encode_marks(out);
                out.extend(self.psi.iter().flat_map(|psi| psi.to_le_bytes()));
            }
        }
        append(self.samples.iter().map(|&(_, value)| (value, width)), out);
    }

    fn encode_runs(&self, header: u64, out: &mut Vec<u8>) {
        let mut heads = [0; ROWS as usize];
        let mut jumps = [0; ROWS as usize];
        let (mut count, mut jump) = (0, 0);
        for (row, pair) in self.psi.windows(2).enumerate() {
            let grown = u64::from(pair[1] - pair[0]);
            if grown != 1 {
                jump += grown - 1;
                (heads[count], jumps[count]) = (row as u8 + 1, jump);
                count += 1;
            }
        }
        let (heads, jumps) = (&heads[..count], &jumps[..count]);
        let width = (jump / count.max(1) as u64).max(1).ilog2();
        let high_bits = if count == 0 { 0 } else { (jump >> width) as usize + count };
        let high_bytes = high_bits.div_ceil(8);
        let fields = (count as u64) << 32 | u64::from(width) << 39 | (high_bytes as u64) << 44;
        out.extend_from_slice(&(header | fields).to_le_bytes());
        if count < HEADS_BITMAP as usize {
            out.extend_from_slice(heads);
        } else {
            out.extend_from_slice(&bitmap(heads.iter().copied()));
        }
        self.encode_marks(out);
        let high_at = out.len();
        out.resize(high_at + high_bytes, 0);
        for (index, jump) in jumps.iter().enumerate() {
            let bit = (jump >> width) as usize + index;
            out[high_at + bit / 8] |= 1 << (bit % 8);
        }
        append(jumps.iter().map(|jump| (jump & ((1 << width) - 1), width)), out);
    }

    fn encode_marks(&self, out: &mut Vec<u8>) {
        let rows = self.samples.iter().map(|&(row, _)| row);
        if self.samples.len() < MARKS_BITMAP as usize {
            out.extend(rows);
        } else {
            out.extend_from_slice(&bitmap(rows));
        }
    }
}

fn bitmap(places: impl Iterator<Item = u8>) -> [u8; BITMAP_BYTES] {
    let bits = places.fold(0u128, |bits, place| bits | 1 << place);
    bits.to_le_bytes()
}
