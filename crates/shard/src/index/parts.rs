//! The parts of an index that a query borrows: its arrays within the stored bytes, located once at
//! the start of the query.

use crate::bits::packed::Packed;
use crate::layers::View;

use super::block::{Block, Blocks};
use super::grams::Grams;
use super::psi::Psi;
use super::state::Index;

/// Walks that take their steps in turn, so that their cache misses overlap.
pub(super) const LANES: usize = 32;

/// An index during one query, with the layers that existed when the query started.
pub(crate) struct Parts<'a> {
    pub index: &'a Index,
    pub psi: Psi<'a>,
    pub isa: Packed<'a>,
    pub grams: Grams<'a>,
    pub view: View,
}

impl Index {
    pub(crate) fn parts(&self) -> Parts<'_> {
        let bytes = self.reader.bytes();
        let part = |range: &std::ops::Range<usize>| bytes.get(range.clone()).unwrap_or(&[]);
        let places = &self.places;
        Parts {
            index: self,
            psi: Psi {
                blocks: Blocks::new(part(&places.blocks), &self.blocks_end),
                offsets: part(&places.offsets),
                tops: part(&places.tops),
            },
            isa: Packed::new(part(&places.isa), self.shape.row_width()),
            grams: Grams {
                symbols: self.symbols.len() as u32,
                pairs: part(&places.pairs),
                places: part(&places.places),
                thirds: part(&places.thirds),
                starts: part(&places.triples),
            },
            view: self.layers.view(),
        }
    }
}

impl Parts<'_> {
    /// The first byte of the suffix of a row. `block` must be the row's block.
    #[inline(always)]
    pub fn symbol(&self, block: Block<'_>, row: u32) -> u8 {
        if !block.is_mixed() {
            return block.symbol();
        }
        let column = self.index.starts.partition_point(|&start| start <= row);
        // Column 0 is that of the text's end, which is not a symbol.
        let symbol = column.checked_sub(2).and_then(|symbol| self.index.symbols.get(symbol));
        symbol.copied().unwrap_or(0)
    }
}
