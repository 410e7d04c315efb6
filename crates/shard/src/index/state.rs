//! An opened index: its sections, the layers above them, and what queries have cost.

use super::block::End;
use super::grams::Code;
use super::shape::{Places, Shape};
use super::work::Sums;
use crate::bits::word::Kernel;
use crate::format::Reader;
use crate::layers::{Layers, Reads};

/// An opened index. Shared by reference among threads.
///
/// ```
/// use shard::Text;
/// use shard::index::{self, Index, Options};
///
/// let mut file = Vec::new();
/// index::build(b"she sells sea shells by the sea shore", &Options::default(), &mut file)?;
/// let index = Index::open(file)?;
/// assert_eq!(index.count(b"sea"), 2);
/// let mut offsets = Vec::new();
/// index.locate(index.rows(b"sea"), &mut offsets);
/// offsets.sort_unstable();
/// assert_eq!(offsets, [10, 28]);
/// let mut bytes = Vec::new();
/// index.extract(4, 5, &mut bytes)?;
/// assert_eq!(bytes, b"sells");
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug)]
pub struct Index {
    pub(super) reader: Reader,
    pub(super) places: Places,
    pub(super) blocks_end: End,
    pub(super) shape: Shape,
    /// The bytes that occur, ascending.
    pub(super) symbols: Vec<u8>,
    /// Number of each byte among them, from 1 on; 0 if it does not occur.
    pub(super) codes: [Code; 256],
    /// First row of the suffixes of the end, of each symbol, and the number of rows.
    pub(super) starts: Vec<u32>,
    pub(super) kernel: Kernel,
    pub(super) layers: Layers,
    pub(super) work: Sums,
    pub(super) reads: Reads,
}
