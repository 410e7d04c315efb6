//! Works that change within a step: a deploy, a cache that fills, a neighbour that comes or goes. The model of such a step is of neither of
//! the two services that it saw, however well it fits their mixture.
//!
//! The ranks of works in the order of arrivals are cut into blocks, and the blocks into two parts where these differ most. The noise is that
//! of the differences of successive blocks (J. von Neumann, 1941), so that works that are alike in spells do not look like a change, and
//! ranks, so that one long work does not.

use ground::number::{digits, time};

/// Blocks of a step's works, and the fewest works of a block.
const BLOCKS: usize = 40;
const BLOCK_MIN: usize = 15;
/// Blocks that a part has at least.
const PART_MIN: usize = 3;
/// Parts that differ by more standard errors than these differ by no chance, wherever they are cut.
const ERRORS: f64 = 5.5;
/// Mean works that differ by less, as a share, are not worth saying.
const MATTERS: f64 = 0.1;

/// A change of the mean work within a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump {
    /// The load of the step, requests/s.
    rate: f64,
    /// When it was, seconds from the begin of the step.
    at_s: f64,
    /// Mean works before and after, seconds.
    before_s: f64,
    after_s: f64,
}

impl Jump {
    /// By how much the two parts differ from their mean, as a share.
    pub fn spread(&self) -> f64 {
        (self.after_s - self.before_s).abs() / (self.after_s + self.before_s)
    }

    /// A sentence.
    pub fn text(&self) -> String {
        format!(
            "The mean work at {} requests/s changed from {} to {} about {} s after the begin of the step: the service is not the one that it was \
             (a deploy, a cache that filled, a neighbour), and the model is of both together. Fit the time since by itself \
             (`concertina import --from`).",
            digits(self.rate, 4),
            time(self.before_s),
            time(self.after_s),
            digits(self.at_s, 3)
        )
    }
}

/// The change of works in the order of arrivals, which came at these times from the begin of a step of `rate` requests/s.
pub(super) fn jump(rate: f64, works: &[f64], arrivals_s: &[f64]) -> Option<Jump> {
    let at = cut(works)?;
    let mean = |works: &[f64]| works.iter().sum::<f64>() / works.len() as f64;
    let (before, after) = works.split_at(at);
    let at_s = arrivals_s.get(at).copied()?;
    let jump = Jump { rate, at_s, before_s: mean(before), after_s: mean(after) };
    (2.0 * jump.spread() > MATTERS).then_some(jump)
}

/// Where works change by more than chance, if they do.
fn cut(works: &[f64]) -> Option<usize> {
    let size = works.len() / BLOCKS;
    if size < BLOCK_MIN {
        return None;
    }
    let mut sorted = works.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = |work: &f64| {
        let (below, above) =
            (sorted.partition_point(|w| w < work), sorted.partition_point(|w| w <= work));
        (below + above) as f64
    };
    // What does not fill a block at the end is left out.
    let blocks: Vec<f64> = works
        .chunks_exact(size)
        .take(BLOCKS)
        .map(|block| block.iter().map(rank).sum::<f64>() / size as f64)
        .collect();
    let squares: f64 = blocks.windows(2).map(|two| (two[1] - two[0]).powi(2)).sum();
    let deviation = (squares / (2.0 * (blocks.len() - 1) as f64)).sqrt();
    let total: f64 = blocks.iter().sum();
    let (mut left, mut best) = (0.0, (0.0, 0));
    for (i, block) in blocks.iter().enumerate().take(blocks.len() - PART_MIN) {
        left += block;
        let (n, m) = ((i + 1) as f64, (blocks.len() - i - 1) as f64);
        let off = (left / n - (total - left) / m).abs() / (1.0 / n + 1.0 / m).sqrt();
        if i + 1 >= PART_MIN && off > best.0 {
            best = (off, i + 1);
        }
    }
    (best.0 > ERRORS * deviation && deviation > 0.0).then_some(best.1 * size)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use rand_distr::Exp1;

    use super::*;

    #[test]
    fn a_change_is_found_where_it_is_and_chance_is_none() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut work = |mean: f64| mean * random.sample::<f64, _>(Exp1);
            let same: Vec<f64> = (0..3_000).map(|_| work(0.02)).collect();
            assert_eq!(cut(&same), None, "{seed}");
            let changed: Vec<f64> =
                (0..3_000).map(|i| work(if i < 1_000 { 0.02 } else { 0.01 })).collect();
            let at = cut(&changed).unwrap();
            assert!((800..=1_200).contains(&at), "{seed}: {at}");
            // In spells of 50 requests, four times as slow: alike, and no change.
            let spells: Vec<f64> =
                (0..4_000).map(|i| work(if i / 50 % 7 == 0 { 0.04 } else { 0.01 })).collect();
            assert_eq!(cut(&spells), None, "{seed}");
        }
        assert_eq!(cut(&[0.01; 4_000]), None);
        assert_eq!(cut(&[0.01; 100]), None);
    }
}
