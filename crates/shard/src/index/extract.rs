//! Extracts bytes of the text by walks along Ψ from sampled positions.
//!
//! A range of the text is cut at the positions whose rows are known, either from the index's own
//! samples or from layers. Each piece is a separate walk, from the sample at or before its first
//! byte. Pieces are lanes, so that even a single range has many memory accesses in flight. Cost:
//! one step for each byte, and one for each byte between the first sample and the start of the
//! range, half the sampling rate on average. The middle of a long range is read as whole segments
//! (`bulk`). A range that a text layer contains is read from the layer instead.

use std::ops::Range;
use std::slice;

use crate::bits::word::{Job, Word};
use crate::error::Error;
use crate::layers::Walk;
use crate::text::Text as _;

use super::block::ROWS;
use super::bulk::Segments;
use super::parts::{LANES, Parts};
use super::psi::Prefetched;
use super::state::Index;
use super::work::Work;

/// Minimum number of whole segments that are read in bulk: several for each lane. Fewer segments
/// are read as fast together with the ends of the range.
const SEGMENTS_MIN: usize = 4 * LANES;

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
    let has_text = parts.view.text_len() > 0;
    let mut work = Work::default();
    // The ranges to walk, each with the output position of its first byte.
    let mut walked = Vec::with_capacity(ranges.len());
    for range in ranges {
        index.reads.add(range);
        if has_text && parts.view.text(range.start, range.len(), bytes) {
            work.decoded_ranges += 1;
            work.decoded_bytes += range.len() as u64;
            continue;
        }
        let out = bytes.len();
        work.ranges += 1;
        work.walked_bytes += range.len() as u64;
        bytes.resize(out + range.len(), 0);
        let whole = whole_segments(&parts, range);
        let bulk = out + (whole.start - range.start)..out + (whole.end - range.start);
        walked.push((range.start..whole.start, out));
        walked.push((whole.end..range.end, bulk.end));
        if let Some(bytes) = bytes.get_mut(bulk).filter(|bytes| !bytes.is_empty()) {
            let first = whole.start / parts.index.shape.isa_sampling as usize;
            index.kernel.run(Segments { parts: &parts, first, bytes });
        }
    }
    let pieces = Pieces::new(&parts, &walked);
    index.kernel.run(Extract { parts: &parts, pieces, bytes, work: &mut work });
    index.work.add(&work);
    Ok(())
}

/// The part of a range that is read in bulk. It is empty if the range is short, or if a marked
/// layer is being filled, since it learns from every step of a walk.
fn whole_segments(parts: &Parts<'_>, range: &Range<usize>) -> Range<usize> {
    let segment = parts.index.shape.isa_sampling as usize;
    let (start, end) = (range.start.next_multiple_of(segment), range.end / segment * segment);
    if end < start + SEGMENTS_MIN * segment || parts.view.is_learning() {
        return range.start..range.start;
    }
    start..end
}

/// A walk: `skip` steps whose bytes are discarded, then `len` bytes of output.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Row of the position that the walk begins at, or the number of the sample that has it.
    from: Origin,
    /// The position.
    position: u32,
    skip: u32,
    len: u32,
    /// Output position of the first byte.
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

/// Iterator over the pieces of ranges.
struct Pieces<'a> {
    parts: &'a Parts<'a>,
    /// The remaining ranges, each with the output position of its first byte.
    ranges: slice::Iter<'a, (Range<usize>, usize)>,
    /// The rest of the current range: pieces are cut from its end.
    start: u32,
    end: u32,
    /// Output position of the current range's first byte.
    out: usize,
}

impl<'a> Pieces<'a> {
    fn new(parts: &'a Parts<'a>, ranges: &'a [(Range<usize>, usize)]) -> Self {
        Self { parts, ranges: ranges.iter(), start: 0, end: 0, out: 0 }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        while self.start == self.end {
            let (range, out) = self.ranges.next()?;
            (self.start, self.end, self.out) = (range.start as u32, range.end as u32, *out);
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

/// The state of the walk of a piece.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    row: u32,
    asked: Prefetched,
    piece: Piece,
}

struct Extract<'a> {
    parts: &'a Parts<'a>,
    pieces: Pieces<'a>,
    bytes: &'a mut [u8],
    work: &'a mut Work,
}

impl Extract<'_> {
    #[inline(always)]
    fn begin(&mut self, piece: Piece) -> Lane {
        self.work.skipped_steps += u64::from(piece.skip);
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
        let mut lanes = [(0, Prefetched::default(), 0, 0); LANES];
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
