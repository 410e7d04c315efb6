//! The bytes per second that a link lets through, from steps in which replies fell behind and no device was to
//! blame.
//!
//! What stood still may have been a link, or the server's own processor: of one mix of sizes they look alike.
//! It is taken for a link, because bytes are what a change of sizes moves; steps of other sizes tell them apart.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::model_file::Parameter;

/// Bytes per second over all blocks (bytes, seconds) of such steps, with its interval, and what each of `count`
/// resamplings of the blocks says. `None` without such steps.
pub(super) fn link(
    stalled: &[Vec<(f64, f64)>],
    count: usize,
    seed: u64,
) -> Option<(Parameter, Vec<f64>)> {
    let blocks: Vec<(f64, f64)> = stalled.concat();
    let rate = |blocks: &mut dyn Iterator<Item = (f64, f64)>| {
        let (bytes, seconds) = blocks.fold((0.0, 0.0), |s, b| (s.0 + b.0, s.1 + b.1));
        bytes / seconds
    };
    let value = rate(&mut blocks.iter().copied());
    if !value.is_finite() || value <= 0.0 {
        return None;
    }
    let mut random = StdRng::seed_from_u64(seed);
    let draw = |_| {
        let mut drawn = (0..blocks.len()).map(|_| blocks[random.random_range(0..blocks.len())]);
        let rate = rate(&mut drawn);
        if rate.is_finite() && rate > 0.0 { rate } else { value }
    };
    let drawn: Vec<f64> = (0..count).map(draw).collect();
    Some((Parameter::from_replicates(value, &drawn, "B/s"), drawn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_what_went_through() {
        assert!(link(&[], 10, 1).is_none());
        assert!(link(&[vec![(0.0, 5.0)], vec![]], 10, 1).is_none());
        let blocks = vec![vec![(100.0, 1.0), (120.0, 1.0), (110.0, 1.0)], vec![(90.0, 1.0)]];
        let (rate, drawn) = link(&blocks, 200, 1).unwrap();
        assert_eq!((rate.value, drawn.len()), (105.0, 200));
        assert!(rate.low >= 90.0 && rate.low < 103.0 && rate.high > 107.0 && rate.high <= 120.0);
    }
}
