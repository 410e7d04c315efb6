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
            runs: (0..rows).map(|row| block.run(row).min(rows - row)).collect(),
            marks: (0..rows)
                .map(|row| {
                    let (next, index) = block.next_mark(row);
                    (next < ROWS).then(|| (next, block.sample(index, self.width, rows)))
                })
                .collect(),
            bounds: self
                .targets
                .iter()
                .map(|&target| block.lower_bound(target, (0, rows), word))
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
        let end = End::of(&bytes);
        let near_end = Blocks::new(&bytes, &end).block(3);
        let longer = [&bytes[..], &[0xee; 4096]].concat();
        let end_of_longer = End::of(&longer);
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
