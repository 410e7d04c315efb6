//! Estimates the bytes per second of a link, from steps in which replies fell behind although no
//! device was saturated.
//!
//! The limit may also be the server's processor: with one mix of sizes the two cannot be told
//! apart. The limit is modelled as a link, whose load follows the sizes of replies; steps with
//! other sizes can show which it is. A step that carried less than some steady step was not limited
//! by the link but, for example, by the load generator.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::model_file::Parameter;

use super::data::StalledStep;

/// The smallest throughput of a link relative to the largest that a steady step carried.
const NEARLY: f64 = 1.001;

/// Bytes per second over all blocks of such steps, with its interval and the estimate of each of
/// `count` resamplings of the blocks. Steady steps carried up to `carried` bytes per second. `None`
/// without such steps.
pub(super) fn link(
    stalled: &[StalledStep],
    carried: f64,
    count: usize,
    seed: u64,
) -> Option<(Parameter, Vec<f64>)> {
    let blocks: Vec<(f64, f64)> = stalled.iter().flat_map(|s| s.blocks.clone()).collect();
    let rate = |blocks: &mut dyn Iterator<Item = (f64, f64)>| {
        let (bytes, seconds) = blocks.fold((0.0, 0.0), |s, b| (s.0 + b.0, s.1 + b.1));
        bytes / seconds
    };
    let value = rate(&mut blocks.iter().copied());
    if !value.is_finite() || value <= carried {
        return None;
    }
    let mut random = StdRng::seed_from_u64(seed);
    let draw = |_| {
        let mut drawn = (0..blocks.len()).map(|_| blocks[random.random_range(0..blocks.len())]);
        let rate = rate(&mut drawn);
        if rate.is_finite() { rate.max(carried * NEARLY) } else { value }
    };
    let drawn: Vec<f64> = (0..count).map(draw).collect();
    Some((Parameter::from_replicates(value, &drawn, "B/s"), drawn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_what_went_through() {
        let step =
            |blocks: &[(f64, f64)]| StalledStep { name: "a".to_owned(), blocks: blocks.to_vec() };
        assert!(link(&[], 0.0, 10, 1).is_none());
        assert!(link(&[step(&[(0.0, 5.0)]), step(&[])], 0.0, 10, 1).is_none());
        let steps = [step(&[(100.0, 1.0), (120.0, 1.0), (110.0, 1.0)]), step(&[(90.0, 1.0)])];
        // What a steady step carried, a link carries.
        assert!(link(&steps, 106.0, 10, 1).is_none());
        let (_, drawn) = link(&steps, 104.0, 200, 1).unwrap();
        assert!(drawn.iter().all(|rate| *rate > 104.0));
        let (rate, drawn) = link(&steps, 0.0, 200, 1).unwrap();
        assert_eq!((rate.value, drawn.len()), (105.0, 200));
        assert!(rate.low >= 90.0 && rate.low < 103.0 && rate.high > 107.0 && rate.high <= 120.0);
    }
}
