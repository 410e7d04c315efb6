//! The positions of a text with their rows, as layers are filled with them.

use std::ops::Range;

use crate::naive;
use crate::text::Text;

/// A source of all positions of a text with their rows, in pieces, for a [`Sweep`](super::Sweep).
pub trait Walk {
    /// The number of segments into which the text is divided.
    fn segments(&self) -> usize;

    /// Calls `visit(position, row)` once for each position of the text (`0..len`) in the given
    /// segments, in any order. The end of the text, whose row is 0, may or may not be visited.
    fn walk(&self, segments: Range<usize>, visit: &mut dyn FnMut(u32, u32));
}

/// The naive walk, in segments of 16 positions: it scans all rows at each call.
impl Walk for naive::Text {
    fn segments(&self) -> usize {
        self.len().div_ceil(16)
    }

    fn walk(&self, segments: Range<usize>, visit: &mut dyn FnMut(u32, u32)) {
        let mut offsets = Vec::new();
        self.locate(0..self.len() + 1, &mut offsets);
        for (row, offset) in offsets.into_iter().enumerate() {
            if segments.contains(&(offset / 16)) {
                visit(offset as u32, row as u32);
            }
        }
    }
}
