//! Bytes of the text: walks along Ψ from sampled positions.
//!
//! A range of the text is cut at the positions whose rows are known, by the index's own samples and by
//! layers; each piece is a walk of its own, from the sample at or before its first byte. Pieces are
//! lanes, so that even one long range has many steps on their way at once. Cost: a step for each byte, and
//! for those between the first sample and the range's start, half the sampling rate on average. A range that
//! ends within what a text layer has is read there instead.

use std::ops::Range;
use std::slice;

use crate::Error;
use crate::Text as _;
use crate::bits::word::{Job, Word};
use crate::layers::Walk;

use super::block::ROWS;
use super::parts::Parts;
use super::psi::Asked;
use super::{Index, LANES};

/// Appends the bytes of all ranges, one after the other.
pub(super) fn extract(
    index: &Index,
    ranges: &[Range<usize>],
    bytes: &mut Vec<u8>,
) -> Result<(), Error> {
    let text_len = index.len();
    for range in ranges {
        if range.start > range.end || range.end > text_len {
            return Err(Error::OutOfRange { offset: range.start, len: range.len(), text_len });
        }
    }
    let parts = index.parts();
    let layer_len = parts.view.text_len();
    let start = bytes.len();
    let mut walked = false;
    for range in ranges {
        let at = bytes.len();
        if range.end > layer_len {
            bytes.resize(at + range.len(), 0);
            walked = true;
        } else if !parts.view.text(range.start, range.len(), bytes) {
            bytes.resize(at + range.len(), 0);
            let pieces = Pieces::new(&parts, slice::from_ref(range), 0, at);
            index.kernel.run(Extract { parts: &parts, pieces, bytes });
        }
    }
    if walked {
        let pieces = Pieces::new(&parts, ranges, layer_len, start);
        index.kernel.run(Extract { parts: &parts, pieces, bytes });
    }
    Ok(())
}

/// A walk: `skip` steps that are not wanted, then `len` bytes that are.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Row of the position that the walk begins at, or the number of the sample that has it.
    from: Origin,
    /// The position.
    position: u32,
    skip: u32,
    len: u32,
    /// Where the first wanted byte goes.
    out: usize,
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    Row(u32),
    Sample(u32),
}

impl Default for Origin {
    fn default() -> Self {
        Self::Row(0)
    }
}

/// The pieces of the ranges that end past a text layer, cut as they are asked for.
struct Pieces<'a> {
    parts: &'a Parts<'a>,
    ranges: slice::Iter<'a, Range<usize>>,
    layer_len: usize,
    /// What is left of the present range, cut from its end.
    start: u32,
    end: u32,
    /// Where the present range's first byte goes, and that of the one after.
    out: usize,
    out_next: usize,
}

impl<'a> Pieces<'a> {
    fn new(parts: &'a Parts<'a>, ranges: &'a [Range<usize>], layer_len: usize, out: usize) -> Self {
        Self { parts, ranges: ranges.iter(), layer_len, start: 0, end: 0, out, out_next: out }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        while self.start == self.end {
            let range = self.ranges.next()?;
            (self.out, self.out_next) = (self.out_next, self.out_next + range.len());
            if range.end > self.layer_len {
                (self.start, self.end) = (range.start as u32, range.end as u32);
            }
        }
        let last = self.end - 1;
        let sample = last / self.parts.index.shape.isa_sampling;
        let sampled = sample * self.parts.index.shape.isa_sampling;
        // From a layer, unless the index's own sample is nearer to the last byte.
        let (position, from) = match self.parts.view.row_before(last, sampled) {
            Some((position, row)) => (position, Origin::Row(row)),
            None => {
                self.parts.isa.prefetch(sample as usize);
                (sampled, Origin::Sample(sample))
            }
        };
        let first = position.max(self.start);
        let piece = Piece {
            from,
            position,
            skip: first - position,
            len: self.end - first,
            out: self.out + (first - self.start) as usize,
        };
        self.end = first;
        Some(piece)
    }
}

/// A piece on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    row: u32,
    asked: Asked,
    piece: Piece,
}

struct Extract<'a> {
    parts: &'a Parts<'a>,
    pieces: Pieces<'a>,
    bytes: &'a mut [u8],
}

impl Extract<'_> {
    #[inline(always)]
    fn begin(&self, piece: Piece) -> Lane {
        let row = match piece.from {
            Origin::Row(row) => row,
            Origin::Sample(sample) => self.parts.isa.get(sample as usize) as u32,
        };
        Lane { row, asked: self.parts.psi.ask(row), piece }
    }
}

impl Job for Extract<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Word>(mut self, word: W) {
        let psi = self.parts.psi;
        let learning = self.parts.view.is_learning();
        let mut lanes = [Lane::default(); LANES];
        // Pieces are cut a few ahead of their walks, so that their samples arrive meanwhile.
        let mut waiting = [Piece::default(); LANES];
        let (mut count, mut taken, mut cut) = (0, 0, 0);
        loop {
            while count < LANES {
                if taken == cut {
                    (taken, cut) = (0, 0);
                    for (place, piece) in waiting.iter_mut().zip(&mut self.pieces) {
                        *place = piece;
                        cut += 1;
                    }
                    if cut == 0 {
                        break;
                    }
                }
                lanes[count] = self.begin(waiting[taken]);
                (count, taken) = (count + 1, taken + 1);
            }
            if count == 0 {
                return;
            }
            let mut index = 0;
            while index < count {
                let lane = &mut lanes[index];
                let block = psi.block(lane.asked);
                if learning {
                    self.parts.view.learn(lane.piece.position, lane.row);
                    lane.piece.position += 1;
                }
                if lane.piece.skip > 0 {
                    lane.piece.skip -= 1;
                } else {
                    let symbol = self.parts.symbol(block, lane.row);
                    if let Some(place) = self.bytes.get_mut(lane.piece.out) {
                        *place = symbol;
                    }
                    lane.piece.out += 1;
                    lane.piece.len -= 1;
                    if lane.piece.len == 0 {
                        count -= 1;
                        lanes[index] = lanes[count];
                        continue;
                    }
                }
                lane.row = block.psi(lane.row % ROWS, word);
                psi.ask_directory(lane.row);
                index += 1;
            }
            for lane in &mut lanes[..count] {
                lane.asked = psi.ask(lane.row);
            }
        }
    }
}

/// Segments are the stretches between two samples of the inverse; the last ends with the text.
impl Walk for Index {
    fn segments(&self) -> usize {
        self.len().div_ceil(self.isa_sampling() as usize)
    }

    fn walk(&self, segments: Range<usize>, visit: &mut dyn FnMut(u32, u32)) {
        let parts = self.parts();
        let segments = segments.start..segments.end.min(self.segments());
        self.kernel.run(Sweep { parts: &parts, segments, visit });
    }
}

struct Sweep<'a> {
    parts: &'a Parts<'a>,
    segments: Range<usize>,
    visit: &'a mut dyn FnMut(u32, u32),
}

impl Job for Sweep<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Word>(mut self, word: W) {
        let (psi, shape) = (self.parts.psi, self.parts.index.shape);
        // Row, its block, position, end of the segment.
        let mut lanes = [(0, Asked::default(), 0, 0); LANES];
        let mut count = 0;
        loop {
            while count < LANES {
                let Some(segment) = self.segments.next() else { break };
                self.parts.isa.prefetch(segment + LANES);
                let row = self.parts.isa.get(segment) as u32;
                let position = segment as u32 * shape.isa_sampling;
                let end = position.saturating_add(shape.isa_sampling).min(shape.len);
                lanes[count] = (row, psi.ask(row), position, end);
                count += 1;
            }
            if count == 0 {
                return;
            }
            let mut index = 0;
            while index < count {
                let (row, asked, position, end) = &mut lanes[index];
                (self.visit)(*position, *row);
                *position += 1;
                if *position == *end {
                    count -= 1;
                    lanes[index] = lanes[count];
                    continue;
                }
                *row = psi.block(*asked).psi(*row % ROWS, word);
                psi.ask_directory(*row);
                index += 1;
            }
            for (row, asked, ..) in &mut lanes[..count] {
                *asked = psi.ask(*row);
            }
        }
    }
}
