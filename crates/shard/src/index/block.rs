//! One block: Ψ of 128 adjacent rows, and the samples of the suffix array among them.
//!
//! Ψ maps the row of a suffix to the row of the suffix one byte shorter (Sadakane, *New text
//! indexing functionalities of the compressed suffix arrays*, 2003, after Grossi and Vitter, 2000).
//! Within one symbol's column it ascends, and where the text repeats itself it ascends by one. Such
//! stretches are *runs*, and a row that does not continue a run is a *head*. A block stores which
//! rows are heads, and for each head its *jump*, the total by which Ψ has grown by more than one
//! per row up to it. Jumps ascend, and are Elias–Fano coded: the low bits of each plain, the high
//! bits in unary. Then
//!
//! `Ψ(i) = first + i + jump(heads among rows 1..=i)`
//!
//! in O(1): count heads, select a one among the high bits, add. Up to 15 heads are stored as a list
//! of bytes, more as a bitmap; both are counted without branching on their number.
//!
//! Rows whose suffix starts at a multiple of the sampling rate are *marked* in the same block,
//! which also stores the values of the marked rows. A walk therefore learns without a further cache
//! miss whether it has arrived.
//!
//! Blocks that extend over several columns (at most two per symbol) store Ψ as plain numbers.
//! `docs/shard-format.md` describes the bytes.
//!
//! A damaged block gives wrong numbers, but cannot do worse: it is read through a window of fixed
//! length that no read can leave, and all loops are bounded.
//!
//! Walks and searches visit blocks in no particular order, so branches on a block's content are
//! unpredictable. Where Ψ depends on the content, both alternatives are computed and one is
//! selected. Before that, half of the steps mispredicted a branch (measured by cachegrind with 0.4
//! MB of package records).

use std::hint::select_unpredictable;

use crate::bits::load::u32_at;
use crate::bits::packed::append;
use crate::bits::word::{Word, leading_at_most, prefetch};

/// Rows of a block.
pub(crate) const ROWS: u32 = 128;

/// The number of heads from which on they are stored as a bitmap.
const HEADS_BITMAP: u32 = 16;

/// The number of marks from which on they are stored as a bitmap; also the count stored in that
/// case.
const MARKS_BITMAP: u32 = 15;
const _: () = assert!(MARKS_BITMAP as usize + 1 == BITMAP_BYTES);

/// The high bits of 127 jumps take at most 48 bytes: 127 ones and 253 zeros.
const JUMP_HIGHS_BITS: u32 = 384;

const HEADER_BYTES: usize = 8;
const BITMAP_BYTES: usize = 16;

/// The number of positions in a window at which reads can begin: a power of two above the size of
/// any block.
const PLACES: usize = 2048;

/// The window of bytes through which a block is read.
const WINDOW_BYTES: usize = PLACES + size_of::<u64>();

/// The bytes of all blocks, each read through a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a> {
    bytes: &'a [u8],
    end: &'a End,
}

/// For blocks near the end: the last bytes of all blocks and zeros after them, a window's length of
/// each. Copied when the index is opened.
#[derive(Clone, Debug)]
pub(crate) struct End {
    bytes: Box<[u8; 2 * WINDOW_BYTES]>,
    /// The offset of the copy among the blocks' bytes.
    start: usize,
}

impl End {
    pub fn of_blocks(blocks: &[u8]) -> Self {
        let start = blocks.len().saturating_sub(WINDOW_BYTES);
        let mut bytes = Box::new([0; 2 * WINDOW_BYTES]);
        bytes[..blocks.len() - start].copy_from_slice(&blocks[start..]);
        Self { bytes, start }
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The window that starts at byte `at` of all blocks; zeros past the end.
    #[cold]
    fn window(&self, at: usize) -> &[u8; WINDOW_BYTES] {
        let from = at.saturating_sub(self.start).min(WINDOW_BYTES);
        self.bytes[from..].first_chunk().unwrap_or(&[0; WINDOW_BYTES])
    }
}

impl<'a> Blocks<'a> {
    /// `end` must be the copy of the end of the same bytes.
    pub fn new(bytes: &'a [u8], end: &'a End) -> Self {
        Self { bytes, end }
    }

    /// Prefetches the cache line of byte `at`.
    #[inline(always)]
    pub fn ask(&self, at: usize) {
        prefetch(self.bytes, at);
    }

    /// The block that starts at byte `at`.
    #[inline(always)]
    pub fn block(&self, at: usize) -> Block<'a> {
        let window = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        let window = window.unwrap_or_else(|| self.end.window(at));
        Block { window, header: u64_in(window, 0) }
    }

    /// Ψ of the first row of the block that starts at byte `at`.
    #[inline(always)]
    pub fn first(&self, at: usize) -> u32 {
        u32_at(self.bytes, at)
    }
}

/// The eight bytes from position `at` of the window on.
#[inline(always)]
fn u64_in(window: &[u8; WINDOW_BYTES], at: usize) -> u64 {
    // The mask shows the compiler that they are within the window, so it omits the bounds check.
    let at = at % PLACES;
    window[at..at + 8].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A block within the stored bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    window: &'a [u8; WINDOW_BYTES],
    header: u64,
}

/// The position of the one bit number `rank` of a bitmap of 128 bits.
#[inline(always)]
fn selected<W: Word>(bitmap: (u64, u64), rank: u32, word: W) -> u32 {
    let before = bitmap.0.count_ones();
    let is_first = rank < before;
    let bits = select_unpredictable(is_first, bitmap.0, bitmap.1);
    let rank = rank.wrapping_sub(select_unpredictable(is_first, 0, before));
    select_unpredictable(is_first, 0, u64::BITS) + word.select(bits, rank & 63)
}

/// The number of one bits of a bitmap of 128 bits up to position `row`.
#[inline(always)]
fn ones<W: Word>(bitmap: (u64, u64), row: u32, word: W) -> u32 {
    let (low, high) = (row + 1, (row + 1).saturating_sub(u64::BITS));
    word.lowest(bitmap.0, low).count_ones() + word.lowest(bitmap.1, high).count_ones()
}

/// The position of the first one bit of a bitmap past `row`, or 128.
#[inline(always)]
fn next_one(bitmap: (u64, u64), row: u32) -> u32 {
    let bits = u128::from(bitmap.0) | u128::from(bitmap.1) << 64;
    let past = bits & u128::MAX.checked_shl(row + 1).unwrap_or(0);
    past.trailing_zeros()
}

impl<'a> Block<'a> {
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

    /// The first byte of the suffixes of the block's rows, if it is the same for all.
    #[inline(always)]
    pub fn symbol(self) -> u8 {
        (self.header >> 54) as u8
    }

    /// Whether the block extends over several columns.
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
        HEADER_BYTES + self.heads_bytes()
    }

    #[inline(always)]
    fn marks_bytes(self) -> usize {
        // The count 15 means a bitmap of 16 bytes.
        (self.marks() + (self.marks() + 1) / BITMAP_BYTES as u32) as usize
    }

    /// The start of the high bits; in a mixed block, of the numbers.
    #[inline(always)]
    fn high_at(self) -> usize {
        self.marks_at() + self.marks_bytes()
    }

    #[inline(always)]
    fn words(self, at: usize) -> (u64, u64) {
        (u64_in(self.window, at), u64_in(self.window, at + 8))
    }

    /// The number of heads among rows `1..=row`.
    #[inline(always)]
    fn heads_up_to<W: Word>(self, row: u32, word: W) -> u32 {
        let words = self.words(HEADER_BYTES);
        let at_most = u64::from(word.at_most(words, row));
        let list = word.lowest(at_most, self.heads()).count_ones();
        select_unpredictable(self.heads() < HEADS_BITMAP, list, ones(words, row, word))
    }

    /// The row of head `index`, by a search of the bitmap.
    #[inline(always)]
    fn head<W: Word>(self, index: u32, word: W) -> u32 {
        let words = self.words(HEADER_BYTES);
        let list = select_unpredictable(index < 8, words.0, words.1);
        let listed = (list >> (index % 8 * 8)) as u32 & 127;
        let mapped = selected(words, index, word);
        select_unpredictable(self.heads() < HEADS_BITMAP, listed, mapped)
    }

    /// The position of the one bit number `rank` of the high bits, or of the zero bit if `flip` is
    /// all ones. If there are too few, some position past the jumps' high bits: in the bits after
    /// them, or from [`JUMP_HIGHS_BITS`] on.
    #[inline(always)]
    fn place<W: Word>(self, rank: u32, flip: u64, word: W) -> u32 {
        let high_at = self.high_at();
        let words = self.words(high_at);
        let words = (words.0 ^ flip, words.1 ^ flip);
        let mut before = words.0.count_ones();
        if rank < before + words.1.count_ones() {
            // True at least eight times in ten for package records.
            return selected(words, rank, word);
        }
        let (mut base, mut bits) = (u64::BITS, words.1);
        while rank - before >= bits.count_ones() && base < JUMP_HIGHS_BITS {
            before += bits.count_ones();
            base += u64::BITS;
            bits = u64_in(self.window, high_at + base as usize / 8) ^ flip;
        }
        base + word.select(bits, (rank - before) & 63)
    }

    /// The jump up to head `index`.
    #[inline(always)]
    fn jump<W: Word>(self, index: u32, word: W) -> u32 {
        let high = self.place(index, 0, word).wrapping_sub(index);
        let width = self.low_width();
        let low_bit = index * width;
        let low_at = self.high_at() + self.high_bytes() + low_bit as usize / 8;
        let low = (u64_in(self.window, low_at) >> (low_bit % 8)) & ((1 << width) - 1);
        high.wrapping_shl(width) | low as u32
    }

    /// The number of jumps whose high bits are less than `high`.
    #[inline(always)]
    fn jumps_below<W: Word>(self, high: u32, word: W) -> u32 {
        // Zero number `high - 1` follows the last of them. High bits are less than twice the number
        // of heads, because the width of the low bits is that of the mean jump. A position found
        // past all zeros is past all jumps too.
        let high = high.min(2 * self.heads());
        let zero = high.saturating_sub(1);
        let jumps = self.place(zero, u64::MAX, word).wrapping_sub(zero).min(self.heads());
        select_unpredictable(high == 0, 0, jumps)
    }

    /// Ψ of row `row` of the block.
    #[inline(always)]
    pub fn psi<W: Word>(self, row: u32, word: W) -> u32 {
        if self.is_mixed() {
            return u64_in(self.window, self.high_at() + 4 * row as usize) as u32;
        }
        let heads = self.heads_up_to(row, word);
        let jump = self.jump(heads.saturating_sub(1), word);
        let jump = select_unpredictable(heads == 0, 0, jump);
        self.first().wrapping_add(row).wrapping_add(jump)
    }

    /// The length of the run from `row` on, including `row`: at least 1, and past the block's end
    /// if no head follows.
    #[inline(always)]
    pub fn run<W: Word>(self, row: u32, word: W) -> u32 {
        if self.is_mixed() {
            return 1;
        }
        let words = self.words(HEADER_BYTES);
        let next = if self.heads() < HEADS_BITMAP {
            let heads = self.heads_up_to(row, word);
            let list = if heads < 8 { words.0 } else { words.1 };
            let next = (list >> (heads % 8 * 8)) as u32 & 127;
            if heads < self.heads() { next } else { ROWS }
        } else {
            next_one(words, row)
        };
        next.saturating_sub(row).max(1)
    }

    /// The first marked row from `row` on, and its number among the marks; [`ROWS`] if there is
    /// none.
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
            _ => (leading_at_most(words.0, row - 1), leading_at_most(words.1, row - 1)),
        };
        let place = first + if first == 8 { second } else { 0 };
        let list = if place < 8 { words.0 } else { words.1 };
        let entry = (list >> (place % 8 * 8)) as u32 & 127;
        if place < marks { (entry, place) } else { (ROWS, 0) }
    }

    /// The value of mark number `index`, for samples of `width` bits.
    #[inline(always)]
    pub fn sample(self, index: u32, width: u32, rows: u32) -> u64 {
        let numbers = if self.is_mixed() {
            4 * rows as usize
        } else {
            self.high_bytes() + (self.heads() * self.low_width()).div_ceil(8) as usize
        };
        let bit = index as usize * width as usize;
        let word = u64_in(self.window, self.high_at() + numbers + bit / 8);
        (word >> (bit % 8)) & ((1 << width) - 1)
    }

    /// The first of the block's rows `from..to`, which must be of one column, with Ψ at least
    /// `target`; `to` if there is none.
    #[inline(always)]
    pub fn lower_bound<W: Word>(self, target: u32, from: u32, to: u32, word: W) -> u32 {
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
            return from;
        }
        let above = match target.checked_sub(self.first()) {
            None | Some(0) => return from,
            Some(above) => above,
        };
        // The row is in the last run that starts below the target, or directly after it. A run
        // starts at the block's first value plus its head plus its jump, and a head is below 128.
        // So a run whose jump is at least 128 below the difference starts below the target,
        // and one whose jump is not smaller does not. If jumps are far apart, comparing their high
        // bits leaves few runs in between.
        let width = self.low_width();
        let mut run = self.jumps_below(above.saturating_sub(ROWS - 1) >> width, word);
        let mut end = self.jumps_below(((above - 1) >> width) + 1, word);
        while run < end {
            let middle = (run + end) / 2;
            let start = self.head(middle, word).wrapping_add(self.jump(middle, word));
            let is_below = start < above;
            run = select_unpredictable(is_below, middle + 1, run);
            end = select_unpredictable(is_below, end, middle);
        }
        let jump = self.jump(run.saturating_sub(1), word);
        let jump = select_unpredictable(run == 0, 0, jump);
        let next = select_unpredictable(run < self.heads(), self.head(run, word), ROWS);
        above.saturating_sub(jump).min(next).clamp(from, to)
    }
}

/// A block whose rows are being collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    /// Ψ of each row.
    pub psi: Vec<u32>,
    /// The marked rows of the block and their samples, rows ascending.
    pub samples: Vec<(u8, u64)>,
}

impl Gathered {
    /// Appends the encoded block: of one column with this symbol, or of several columns.
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
