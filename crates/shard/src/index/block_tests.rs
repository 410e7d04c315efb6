//! Blocks against plain arrays.

use proptest::prelude::*;

use super::block::{Block, Blocks, End, Gathered, ROWS};
use crate::bits::word::{Job, Kernel, Word};

/// Everything that a block answers, of plain arrays or of the block.
#[derive(Debug, PartialEq)]
struct Answers {
    psi: Vec<u32>,
    runs: Vec<u32>,
    marks: Vec<Option<(u32, u64)>>,
    bounds: Vec<u32>,
}

struct Ask<'a> {
    block: Block<'a>,
    rows: u32,
    width: u32,
    targets: &'a [u32],
}

impl Job for Ask<'_> {
    type Output = Answers;

    #[inline(always)]
    fn run<W: Word>(self, word: W) -> Answers {
        let (block, rows) = (self.block, self.rows);
        Answers {
            psi: (0..rows).map(|row| block.psi(row, word)).collect(),
            runs: (0..rows).map(|row| block.run(row, word).min(rows - row)).collect(),
            marks: (0..rows)
                .map(|row| {
                    let (next, index) = block.next_mark(row);
                    (next < ROWS).then(|| (next, block.sample(index, self.width, rows)))
                })
                .collect(),
            bounds: self
                .targets
                .iter()
                .map(|&target| {
                    let bound = block.lower_bound(target, 0, rows, word);
                    // Within a part of the rows, if it is not empty.
                    let (from, to) = (target % rows, rows - target / 7 % rows);
                    if from < to {
                        let within = block.lower_bound(target, from, to, word);
                        assert_eq!(within, bound.clamp(from, to), "{target} in {from}..{to}");
                    }
                    bound
                })
                .collect(),
        }
    }
}

fn naive(gathered: &Gathered, targets: &[u32], is_mixed: bool) -> Answers {
    let psi = gathered.psi.clone();
    let run = |row: usize| {
        let continued = |at: &usize| psi[*at] == psi[*at - 1] + 1;
        1 + (row + 1..psi.len()).take_while(continued).count() as u32
    };
    let mark = |row: usize| {
        let marks = gathered.samples.iter();
        marks.map(|&(at, value)| (at.into(), value)).find(|&(at, _): &(u32, u64)| at >= row as u32)
    };
    Answers {
        runs: (0..psi.len()).map(|row| if is_mixed { 1 } else { run(row) }).collect(),
        marks: (0..psi.len()).map(mark).collect(),
        bounds: targets
            .iter()
            .map(|&target| psi.partition_point(|&value| value < target) as u32)
            .collect(),
        psi,
    }
}

fn check(gathered: &Gathered, width: u32) {
    let mut targets: Vec<u32> =
        gathered.psi.iter().flat_map(|&psi| [psi.saturating_sub(1), psi, psi + 1]).collect();
    targets.extend([0, u32::MAX]);
    for symbol in [Some(7), None] {
        let mut bytes = vec![0xee; 3];
        gathered.encode(symbol, width, &mut bytes);
        bytes.extend_from_slice(&[0xee; 32]);
        // At the end of all blocks, and far from it.
        let end = End::of_blocks(&bytes);
        let near_end = Blocks::new(&bytes, &end).block(3);
        let longer = [&bytes[..], &[0xee; 4096]].concat();
        let end_of_longer = End::of_blocks(&longer);
        let block = Blocks::new(&longer, &end_of_longer).block(3);
        assert_eq!(block.is_mixed(), symbol.is_none());
        assert_eq!(block.symbol(), symbol.unwrap_or(0));
        assert_eq!(block.first(), gathered.psi[0]);
        let expected = naive(gathered, &targets, symbol.is_none());
        for kernel in [Kernel::detect(), Kernel::portable()] {
            let rows = gathered.psi.len() as u32;
            for block in [block, near_end] {
                let found = kernel.run(Ask { block, rows, width, targets: &targets });
                assert_eq!(found, expected);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_block_answers_as_plain_arrays_do(
        first in 0..1u32 << 20,
        grown in prop::collection::vec((any::<u16>(), any::<u16>()), 0..ROWS as usize),
        run_share in 0..=16u16,
        scale in 0..16u32,
        mark_share in 0..=16u16,
        width in 1..32u32,
    ) {
        let mut psi = vec![first];
        let mut samples = Vec::new();
        for (row, &(jump, other)) in (1..).zip(&grown) {
            let step = if other % 16 < run_share { 1 } else { 1 + (u32::from(jump) >> scale) };
            psi.push(psi[row as usize - 1] + step);
            if other / 16 % 16 < mark_share {
                samples.push((row, u64::from(other) & ((1 << width) - 1)));
            }
        }
        check(&Gathered { psi, samples }, width);
    }
}

#[test]
fn the_largest_jumps_fit() {
    let psi = vec![0, i32::MAX as u32];
    check(&Gathered { psi, samples: vec![(0, 5), (1, 6)] }, 31);
    let mut psi: Vec<u32> = (0..128).map(|row| row * 2).collect();
    psi[127] = i32::MAX as u32;
    let samples = (0..128).map(|row| (row, u64::from(row))).collect();
    check(&Gathered { psi, samples }, 31);
}

/// Where in all blocks' bytes a block is makes no difference to what it reads.
#[test]
fn a_block_near_the_end_is_what_it_is_elsewhere() {
    let bytes: Vec<u8> = (0..5000u32).map(|at| (at * 31 / 7) as u8).collect();
    for len in [0, 1, 9, 2055, 2056, 2057, 4999, 5000] {
        let end = End::of_blocks(&bytes[..len]);
        let blocks = Blocks::new(&bytes[..len], &end);
        let padded = [&bytes[..len], &[0; 5000]].concat();
        let end_of_padded = End::of_blocks(&padded);
        for at in [0, 1, len / 2, len.saturating_sub(2057), len.saturating_sub(2056), len] {
            let expected = Blocks::new(&padded, &end_of_padded).block(at);
            assert_eq!(format!("{:?}", blocks.block(at)), format!("{expected:?}"), "{at} of {len}");
        }
        assert_eq!(blocks.block(usize::MAX).first(), 0);
        assert_eq!(blocks.block(len + 1).first(), 0);
    }
}

proptest! {
    #[test]
    fn damaged_blocks_are_answered_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..1200), header: u64, targets: [u32; 8]
    ) {
        let bytes = [&header.to_le_bytes()[..], &bytes].concat();
        let end = End::of_blocks(&bytes);
        let block = Blocks::new(&bytes, &end).block(0);
        for kernel in [Kernel::detect(), Kernel::portable()] {
            let found = kernel.run(Damaged { block, targets });
            prop_assert!(found.iter().all(|&row| row <= ROWS));
        }
    }
}

struct Damaged<'a> {
    block: Block<'a>,
    targets: [u32; 8],
}

impl Job for Damaged<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run<W: Word>(self, word: W) -> Vec<u32> {
        for row in 0..ROWS {
            self.block.psi(row, word);
            self.block.run(row, word);
            let (_, index) = self.block.next_mark(row);
            self.block.sample(index, 31, ROWS);
        }
        self.targets.map(|target| self.block.lower_bound(target, 0, ROWS, word)).to_vec()
    }
}
