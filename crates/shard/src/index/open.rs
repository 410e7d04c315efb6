//! Opens an index: checks its sections before it is used.

use crate::bits::load::u32_at;
use crate::bits::packed::bytes_of;
use crate::bits::word::Kernel;
use crate::error::Error;
use crate::format::Reader;
use crate::layers::{Base, Layers, Reads};

use super::block::End;
use super::psi::{BLOCKS_PER_OFFSET, BLOCKS_PER_TOP, OFFSET_BYTES};
use super::shape::{BLOCKS_PADDING, LEN_MAX, Places, SAMPLING_MAX, SHAPE_BYTES, Shape, names};
use super::state::Index;
use super::work::Sums;

fn damaged(section: &'static str, what: impl Into<String>) -> Error {
    Error::Damaged { section, what: what.into() }
}

fn require(section: &'static str, holds: bool, what: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(damaged(section, what)) }
}

fn section<'a>(reader: &'a Reader, name: &'static str) -> Result<&'a [u8], Error> {
    reader.section(name).ok_or_else(|| damaged(name, "missing section"))
}

fn of_length(name: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(damaged(name, format!("expected {expected} bytes, found {found}")))
}

impl Index {
    /// The index that the container holds.
    pub(crate) fn from_container(reader: Reader) -> Result<Self, Error> {
        let (shape, symbols) = read_shape(section(&reader, names::SHAPE)?)?;
        let starts = read_starts(section(&reader, names::STARTS)?, shape, symbols.len())?;
        check_lengths(&reader, shape, symbols.len())?;
        let mut codes = [0; 256];
        for (code, &symbol) in symbols.iter().enumerate() {
            codes[symbol as usize] = code as u16 + 1;
        }
        let place = |name| reader.place(name);
        let places = Places {
            blocks: place(names::BLOCKS),
            offsets: place(names::OFFSETS),
            tops: place(names::TOPS),
            isa: place(names::ISA),
            pairs: place(names::PAIRS),
            places: place(names::PLACES),
            thirds: place(names::THIRDS),
            triples: place(names::TRIPLES),
        };
        let base = Base { sa_rate: shape.sa_sampling, isa_rate: shape.isa_sampling };
        let layers = Layers::over(shape.rows() as usize, base);
        let kernel = Kernel::detect();
        let blocks_end = End::of_blocks(section(&reader, names::BLOCKS)?);
        let (work, reads) = (Sums::default(), Reads::new(shape.len as usize));
        Ok(Self {
            reader,
            places,
            blocks_end,
            shape,
            symbols,
            codes,
            starts,
            kernel,
            layers,
            work,
            reads,
        })
    }
}

fn read_shape(bytes: &[u8]) -> Result<(Shape, Vec<u8>), Error> {
    let name = names::SHAPE;
    let Some((numbers, symbols)) = bytes.split_at_checked(SHAPE_BYTES) else {
        return Err(damaged(name, format!("unexpected length of {} bytes", bytes.len())));
    };
    let [len, sa_sampling, isa_sampling] = [0, 4, 8].map(|at| u32_at(numbers, at));
    require(name, len as usize <= LEN_MAX, "the text is longer than the limit of a shard")?;
    let rates = 1..=SAMPLING_MAX;
    let in_range = rates.contains(&sa_sampling) && rates.contains(&isa_sampling);
    require(name, in_range, "a sampling rate is 0 or too large")?;
    let ascending = symbols.windows(2).all(|pair| pair[0] < pair[1]);
    require(name, ascending, "the symbols do not ascend")?;
    Ok((Shape { len, sa_sampling, isa_sampling }, symbols.to_vec()))
}

fn read_starts(bytes: &[u8], shape: Shape, symbols: usize) -> Result<Vec<u32>, Error> {
    let name = names::STARTS;
    of_length(name, bytes.len(), 4 * (symbols + 2))?;
    let starts: Vec<u32> = (0..symbols + 2).map(|index| u32_at(bytes, 4 * index)).collect();
    let ends = starts[..2] == [0, 1] && starts[symbols + 1] == shape.rows();
    let ascending = starts.windows(2).all(|pair| pair[0] < pair[1]);
    require(
        name,
        ends && ascending,
        "the first rows of the symbols do not ascend from 0 to the last",
    )?;
    Ok(starts)
}

/// Checks that each section has the length that follows from the shape.
fn check_lengths(reader: &Reader, shape: Shape, symbols: usize) -> Result<(), Error> {
    let len = |name| section(reader, name).map(<[u8]>::len);
    let blocks = shape.blocks();
    let offsets = blocks.div_ceil(BLOCKS_PER_OFFSET) as usize * OFFSET_BYTES;
    of_length(names::OFFSETS, len(names::OFFSETS)?, offsets)?;
    of_length(names::TOPS, len(names::TOPS)?, 4 * blocks.div_ceil(BLOCKS_PER_TOP) as usize)?;
    of_length(names::ISA, len(names::ISA)?, bytes_of(shape.isa_samples(), shape.row_width()))?;
    let least = 8 * blocks as usize + BLOCKS_PADDING;
    require(
        names::BLOCKS,
        len(names::BLOCKS)? >= least,
        "the section is too short for its blocks",
    )?;

    let pairs = 4 * (symbols * (symbols + 1) + 1);
    let (pairs_len, places_len) = (len(names::PAIRS)?, len(names::PLACES)?);
    require(
        names::PAIRS,
        [0, pairs].contains(&pairs_len),
        "the table is neither empty nor complete",
    )?;
    require(
        names::PLACES,
        [0, pairs].contains(&places_len),
        "the table is neither empty nor complete",
    )?;
    require(names::PLACES, places_len <= pairs_len, "there are triples without pairs")?;
    of_length(names::TRIPLES, len(names::TRIPLES)?, 4 * len(names::THIRDS)?)?;
    let places = section(reader, names::PLACES)?;
    let listed = u32_at(places, places.len().saturating_sub(4)) as usize;
    of_length(names::THIRDS, len(names::THIRDS)?, listed)
}
