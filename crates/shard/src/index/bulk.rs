//! Extracts long ranges of the text as whole segments, which lie between two adjacent samples of
//! the inverse suffix array.
//!
//! All lanes start at a sample and take the same number of steps, so that a step of a lane is only
//! a look-up and a store: nothing counts the remaining steps, and no lane ends before the others.
//! Cost: one step for each byte, as in `extract`, which reads the ends of a range and all shorter
//! ranges. Measured with `examples/rates.rs` on a busy machine, over 32.5 MB of Debian package
//! records: ranges of 1 MiB are read at 34 to 40 MB/s of CPU time, and 16 ranges of 1 KiB at a time
//! at 23 to 28 MB/s. A text of 0.5 MB, whose index fits the second-level cache, is read at 54 MB/s
//! in ranges of 1 KiB: the instructions of a step limit the rate, too.

use crate::bits::word::{Job, Word};

use super::block::ROWS;
use super::parts::{LANES, Parts};
use super::psi::Prefetched;

/// A job that reads the segments from number `first` on into `bytes`, whose length is a multiple of
/// the length of a segment.
pub(super) struct Segments<'a> {
    pub parts: &'a Parts<'a>,
    pub first: usize,
    pub bytes: &'a mut [u8],
}

impl Job for Segments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Word>(self, word: W) {
        let (psi, isa) = (self.parts.psi, self.parts.isa);
        let len = self.parts.index.shape.isa_sampling as usize;
        let mut lanes = [(0, Prefetched::default()); LANES];
        for (group, bytes) in self.bytes.chunks_mut(LANES * len).enumerate() {
            let first = self.first + group * LANES;
            let lanes = &mut lanes[..bytes.len() / len];
            for (lane, (row, asked)) in lanes.iter_mut().enumerate() {
                // The samples of the next group arrive while this one walks.
                isa.prefetch(first + LANES + lane);
                *row = isa.get(first + lane) as u32;
                *asked = psi.ask(*row);
            }
            for step in 0..len {
                for ((row, asked), place) in
                    lanes.iter_mut().zip(bytes[step..].iter_mut().step_by(len))
                {
                    let block = psi.block(*asked);
                    *place = self.parts.symbol(block, *row);
                    *row = block.psi(*row % ROWS, word);
                    psi.ask_directory(*row);
                }
                for (row, asked) in lanes.iter_mut() {
                    *asked = psi.ask(*row);
                }
            }
        }
    }
}
