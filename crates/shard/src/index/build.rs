//! Builds an index: suffix array, Ψ and samples, written section by section.
//!
//! The suffix array is built by libsais (induced sorting, linear time). Ψ needs no inverse of it:
//! row `r` of the suffix at `p` is Ψ of the row of the suffix at `p - 1`, which is the next row of
//! the column of byte `text[p - 1]`. One pass over the suffix array thus gives every column its
//! values of Ψ in ascending order, with the offsets to sample, and a column encodes a block
//! whenever it has 128 rows.
//!
//! **Cost.** 50 MB of Debian package records took 4.1 to 4.8 CPU seconds on one thread of a busy
//! machine (`examples/rates`), mostly in libsais, and 5.9 times the text in memory.
//! [`build_memory_bytes`] returns an upper bound in advance. **When not to use it**: for inputs
//! whose suffix array does not fit into memory; split them into shards.

use std::collections::BTreeMap;
use std::io::Write;

use libsais::SuffixArrayConstruction;

use crate::bits::packed::PackedVec;
use crate::bits::word::prefetch;
use crate::error::Error;
use crate::format::Writer;

use super::block::{Gathered, ROWS};
use super::grams::{self, Code};
use super::psi::{BLOCKS_PER_OFFSET, BLOCKS_PER_TOP};
use super::shape::{BLOCKS_PADDING, LEN_MAX, SAMPLING_MAX, Shape, names};

/// The number of rows between progress reports.
const PROGRESS_ROWS: usize = 1 << 20;

/// How many rows ahead the bytes before the suffixes are prefetched.
const ROWS_AHEAD: usize = 24;

/// The options of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sampling rate of the suffix array, 1 to 65,536: the rows of offsets that are multiples of it
    /// are marked. `locate` takes half as many steps on average, and the samples take about `4 /
    /// sa_sampling` of the text.
    pub sa_sampling: u32,
    /// Sampling rate of the inverse, 1 to 65,536: the rows of offsets that are multiples of it are
    /// stored. `extract` takes half as many additional steps on average, and the samples take about
    /// `3.5 / isa_sampling` of the text.
    pub isa_sampling: u32,
}

impl Default for Options {
    /// Both rates are 32.
    fn default() -> Self {
        Self { sa_sampling: 32, isa_sampling: 32 }
    }
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        for (option, rate) in
            [("sa_sampling", self.sa_sampling), ("isa_sampling", self.isa_sampling)]
        {
            if !(1..=SAMPLING_MAX).contains(&rate) {
                let what = format!("{rate} is out of range; use a value from 1 to {SAMPLING_MAX}");
                return Err(Error::Options { option, what });
            }
        }
        Ok(())
    }
}

/// The progress of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The suffixes are being sorted. This takes most of the time; its progress is unknown.
    Sorting,
    /// Rows of the suffix array are being encoded.
    Encoding {
        /// Rows done.
        done: usize,
        /// Rows in all.
        all: usize,
    },
    /// The sections are being written.
    Writing,
}

/// The sizes of a built index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes of the text.
    pub text_bytes: usize,
    /// Bytes of each section of the index, in the order in which they were written.
    pub sections: Vec<(String, usize)>,
    /// Bytes of the section `psi.blocks` in blocks that extend over several columns.
    pub mixed_bytes: usize,
}

impl Report {
    /// Bytes of all sections of the index.
    pub fn index_bytes(&self) -> usize {
        self.sections.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// An upper bound on the memory of a build in bytes, including the text: five times the text for it
/// and its suffix array, and the encoded sections before they are written. Texts of records take
/// less than 6 times their length; the bound allows for random bytes.
pub fn build_memory_bytes(len: usize, options: &Options) -> usize {
    let samples = len / options.sa_sampling.max(1) as usize * 6;
    let inverse = len / options.isa_sampling.max(1) as usize * 4;
    len * 5 + len * 2 + samples + inverse + (16 << 20)
}

/// Builds a shard that contains only the index of `text`, and writes it to `out`.
///
/// # Errors
///
/// [`Error::TooLarge`] for a text of more than [`LEN_MAX`] bytes; [`Error::Options`] for rates out
/// of range; [`Error::Write`] if writing to `out` fails.
pub fn build(text: &[u8], options: &Options, out: &mut impl Write) -> Result<Report, Error> {
    let mut writer = Writer::new(out)?;
    let report = write_sections(text, options, &mut writer, &mut |_| ())?;
    writer.finish()?;
    Ok(report)
}

/// Builds an index of `text` and writes its sections into a shard that may have other sections.
/// Calls `progress` at the start of each phase and at most once for every million rows.
///
/// # Errors
///
/// As [`build`].
pub(crate) fn write_sections(
    text: &[u8],
    options: &Options,
    writer: &mut Writer<impl Write>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    options.check()?;
    if text.len() > LEN_MAX {
        return Err(Error::TooLarge { len: text.len(), max: LEN_MAX });
    }
    let alphabet = Alphabet::of_text(text);
    let grams = grams::tables(text, &alphabet.codes, &alphabet.starts);
    let shape = Shape {
        len: text.len() as u32,
        sa_sampling: options.sa_sampling,
        isa_sampling: options.isa_sampling,
    };
    progress(Progress::Sorting);
    let suffixes = suffix_array(text);
    let (columns, isa) = encode(text, &suffixes, shape, &alphabet, progress);
    drop(suffixes);
    progress(Progress::Writing);

    let first_section = writer.sections().len();
    let mut bytes = shape.to_bytes().to_vec();
    bytes.extend_from_slice(&alphabet.symbols);
    writer.section(names::SHAPE, &bytes)?;
    let starts: Vec<u8> = alphabet.starts.iter().flat_map(|start| start.to_le_bytes()).collect();
    writer.section(names::STARTS, &starts)?;
    let mixed_bytes = columns.write(writer)?;
    writer.section(names::ISA, &isa.into_bytes())?;
    writer.section(names::PAIRS, &grams.pairs)?;
    writer.section(names::PLACES, &grams.places)?;
    writer.section(names::THIRDS, &grams.thirds)?;
    writer.section(names::TRIPLES, &grams.starts)?;
    let sections = writer.sections()[first_section..]
        .iter()
        .map(|section| (section.name.clone(), section.range.len()))
        .collect();
    Ok(Report { text_bytes: text.len(), sections, mixed_bytes })
}

/// The offsets of the suffixes in ascending order, without the empty suffix.
fn suffix_array(text: &[u8]) -> Vec<i32> {
    if text.is_empty() {
        return Vec::new();
    }
    let built = SuffixArrayConstruction::for_text(text).in_owned_buffer32().single_threaded().run();
    built.expect("a text of less than 2 GiB has a suffix array, given its memory").into_vec()
}

/// The bytes that occur in a text, and their columns.
struct Alphabet {
    symbols: Vec<u8>,
    codes: [Code; 256],
    starts: Vec<u32>,
}

impl Alphabet {
    fn of_text(text: &[u8]) -> Self {
        let mut counts = [0u32; 256];
        for &byte in text {
            counts[byte as usize] += 1;
        }
        let (mut symbols, mut codes, mut starts) = (Vec::new(), [0; 256], vec![0, 1]);
        let mut end = 1;
        for (byte, &count) in (0..=u8::MAX).zip(&counts) {
            if count > 0 {
                symbols.push(byte);
                codes[byte as usize] = symbols.len() as Code;
                end += count;
                starts.push(end);
            }
        }
        Self { symbols, codes, starts }
    }
}

/// The column of a symbol being filled.
struct Column {
    symbol: u8,
    /// The next row.
    row: u32,
    /// The first row of its first block within the column, and the row after its last.
    own: (u32, u32),
    gathered: Gathered,
    blocks: Vec<u8>,
    /// The length in bytes and the first value of Ψ of each block.
    directory: Vec<(u16, u32)>,
}

/// All columns, and the blocks that extend over several.
struct Columns {
    shape: Shape,
    columns: Vec<Column>,
    mixed: BTreeMap<u32, Gathered>,
}

impl Columns {
    fn new(shape: Shape, alphabet: &Alphabet) -> Self {
        let column = |(index, &symbol): (usize, &u8)| {
            let (start, end) = (alphabet.starts[index + 1], alphabet.starts[index + 2]);
            let own_start = start.next_multiple_of(ROWS);
            // The last block of all may be short.
            let own_end = if end == shape.rows() { end } else { end - end % ROWS };
            Column {
                symbol,
                row: start,
                own: (own_start, own_end.max(own_start)),
                gathered: Gathered::default(),
                blocks: Vec::new(),
                directory: Vec::new(),
            }
        };
        let columns = alphabet.symbols.iter().enumerate().map(column).collect();
        Self { shape, columns, mixed: BTreeMap::new() }
    }

    /// Adds a row to a block of several columns. The rows of a column arrive in order, but
    /// interleaved with those of other columns.
    fn push_mixed(&mut self, row: u32, psi: u32, sample: Option<u64>) {
        let start = row - row % ROWS;
        let rows = ROWS.min(self.shape.rows() - start);
        let gathered = self.mixed.entry(row / ROWS).or_default();
        gathered.psi.resize(rows as usize, 0);
        gathered.psi[(row - start) as usize] = psi;
        gathered.samples.extend(sample.map(|sample| ((row - start) as u8, sample)));
    }

    /// Adds the next row of a column: its Ψ, and its sample if it is marked.
    #[inline(always)]
    fn push(&mut self, column: usize, psi: u32, sample: Option<u64>) {
        let column = &mut self.columns[column];
        let row = column.row;
        column.row += 1;
        if row < column.own.0 || row >= column.own.1 {
            return self.push_mixed(row, psi, sample);
        }
        column.gathered.psi.push(psi);
        if let Some(sample) = sample {
            column.gathered.samples.push(((row % ROWS) as u8, sample));
        }
        if column.row.is_multiple_of(ROWS) || column.row == column.own.1 {
            column.flush(self.shape);
        }
    }

    /// Writes blocks, offsets and tops. Returns the size of the mixed blocks.
    fn write(self, writer: &mut Writer<impl Write>) -> Result<usize, Error> {
        let width = self.shape.sample_width();
        let mut directory: Vec<(u16, u32)> = Vec::with_capacity(self.shape.blocks() as usize);
        let (mut mixed, mut mixed_bytes) = (self.mixed.into_iter().peekable(), 0);
        writer.begin(names::BLOCKS);
        let mut columns = self.columns.into_iter();
        let mut bytes = Vec::new();
        loop {
            while let Some((_, mut gathered)) =
                mixed.next_if(|&(block, _)| block as usize == directory.len())
            {
                gathered.samples.sort_unstable();
                bytes.clear();
                gathered.encode(None, width, &mut bytes);
                directory.push((bytes.len() as u16, gathered.psi[0]));
                mixed_bytes += bytes.len();
                writer.write(&bytes)?;
            }
            let Some(column) = columns.next() else { break };
            writer.write(&column.blocks)?;
            directory.extend_from_slice(&column.directory);
        }
        assert_eq!(directory.len(), self.shape.blocks() as usize, "blocks of {:?}", self.shape);
        writer.write(&[0; BLOCKS_PADDING])?;
        writer.end()?;

        let mut offset = 0u64;
        writer.begin(names::OFFSETS);
        for group in directory.chunks(BLOCKS_PER_OFFSET as usize) {
            let base = u32::try_from(offset).map_err(|_| Error::Options {
                option: "sa_sampling",
                what: format!(
                    "with {} the blocks take more than 4 GiB; choose a larger rate",
                    self.shape.sa_sampling
                ),
            })?;
            writer.write(&base.to_le_bytes())?;
            let mut relative = [0u16; BLOCKS_PER_OFFSET as usize];
            for (place, (len, _)) in relative.iter_mut().zip(group) {
                *place = (offset - u64::from(base)) as u16;
                offset += u64::from(*len);
            }
            writer.write(&relative.map(u16::to_le_bytes).concat())?;
        }
        writer.end()?;
        writer.begin(names::TOPS);
        for (_, first) in directory.iter().step_by(BLOCKS_PER_TOP as usize) {
            writer.write(&first.to_le_bytes())?;
        }
        writer.end()?;
        Ok(mixed_bytes)
    }
}

impl Column {
    fn flush(&mut self, shape: Shape) {
        if self.blocks.capacity() - self.blocks.len() < 2048 {
            // Grows by an eighth at a time: doubling could make the columns take twice their
            // length.
            self.blocks.reserve_exact(self.blocks.len() / 8 + 4096);
        }
        let before = self.blocks.len();
        self.gathered.encode(Some(self.symbol), shape.sample_width(), &mut self.blocks);
        let first = self.gathered.psi[0];
        self.directory.push(((self.blocks.len() - before) as u16, first));
        self.gathered.psi.clear();
        self.gathered.samples.clear();
    }
}

/// Computes the blocks of all columns, and the samples of the inverse, in one pass over the suffix
/// array.
fn encode(
    text: &[u8],
    suffixes: &[i32],
    shape: Shape,
    alphabet: &Alphabet,
    progress: &mut dyn FnMut(Progress),
) -> (Columns, PackedVec) {
    let mut columns = Columns::new(shape, alphabet);
    let mut isa = PackedVec::new(shape.isa_samples(), shape.row_width());
    let (sa_rate, isa_rate) =
        (Multiples::of_rate(shape.sa_sampling), Multiples::of_rate(shape.isa_sampling));
    // The row of the empty suffix comes first; its Ψ is the row of the whole text, which is found
    // later.
    let end = shape.len;
    let sample_of_end = Some(u64::from(end.div_ceil(shape.sa_sampling)));
    let mut row_of_text = 0;
    let rows = shape.rows() as usize;
    for row in 0..rows {
        if row % PROGRESS_ROWS == 0 {
            progress(Progress::Encoding { done: row, all: rows });
        }
        let offset = if row == 0 { end } else { suffixes[row - 1] as u32 };
        if let Some(&ahead) = suffixes.get(row + ROWS_AHEAD) {
            prefetch(text, (ahead as usize).wrapping_sub(1));
        }
        if let Some(sample) = isa_rate.divide(offset) {
            isa.set(sample as usize, row as u64);
        }
        if offset == 0 {
            row_of_text = row as u32;
            continue;
        }
        let code = alphabet.codes[text[offset as usize - 1] as usize];
        let sample = sa_rate.divide(offset - 1).map(u64::from);
        columns.push(code as usize - 1, row as u32, sample);
    }
    columns.push_mixed(0, row_of_text, sample_of_end);
    progress(Progress::Encoding { done: rows, all: rows });
    (columns, isa)
}

/// Division by a sampling rate.
#[derive(Clone, Copy)]
struct Multiples {
    rate: u32,
    /// Its logarithm, if it is a power of two: a shift is faster than a division.
    log2: Option<u32>,
}

impl Multiples {
    fn of_rate(rate: u32) -> Self {
        Self { rate, log2: rate.is_power_of_two().then(|| rate.ilog2()) }
    }

    /// `offset / rate` if the division has no remainder.
    #[inline(always)]
    fn divide(self, offset: u32) -> Option<u32> {
        match self.log2 {
            Some(log2) => (offset & (self.rate - 1) == 0).then(|| offset >> log2),
            None => offset.is_multiple_of(self.rate).then(|| offset / self.rate),
        }
    }
}
