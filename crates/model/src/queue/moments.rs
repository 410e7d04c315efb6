//! The third moment of a law: variances of waiting times need it.

use crate::distribution::ServiceTime;

/// An SCV within this of 1 counts as exponential.
pub(super) const NEARLY: f64 = 1e-3;

/// Largest number of evaluations of the law for one interval.
const EVALUATIONS_MAX: usize = 4_000;

/// E\[S³\], where the law does not know it 3∫t²(1 − F(t))dt by adaptive Simpson over intervals that double. Relative error below
/// 1e-7 for laws with an exponential tail and for measured ones. The part beyond the quantile of 1
/// − 1e-15 is ignored: 1e-4 of the moment for a lognormal law of SCV 4. Cost: some thousand CDFs.
pub(super) fn third_moment(law: &dyn ServiceTime) -> f64 {
    let mean = law.mean();
    // The lower bound that the first two moments imply.
    let least = mean.powi(3) * (1.0 + law.scv()).powi(2);
    if law.scv() <= 0.0 {
        return least;
    }
    // A measured law has hundreds of pieces, and its CDF at some thousand points took four fifths of the time of a report.
    law.third_moment().unwrap_or_else(|| integrated(law, least)).max(least)
}

/// The third moment of a law by its CDF; `least` is a lower bound.
fn integrated(law: &dyn ServiceTime, least: f64) -> f64 {
    let above = |t: f64| 1.0 - law.cdf(t);
    let mean = law.mean();
    let mut total = 0.0;
    let (mut low, mut high) = (0.0, mean / 16.0);
    for _ in 0..80 {
        for part in 0..4 {
            let at = |k: i32| low + (high - low) * f64::from(k) / 4.0;
            total += integral(&|t| 3.0 * t * t * above(t), at(part), at(part + 1), 1e-10 * least);
        }
        if above(high) < 1e-15 {
            break;
        }
        (low, high) = (high, 2.0 * high);
    }
    total
}

/// ∫f from `low` to `high` to about `tolerance`, by Simpson's rule, halving where halving changes
/// it.
pub(super) fn integral(f: &dyn Fn(f64) -> f64, low: f64, high: f64, tolerance: f64) -> f64 {
    struct Piece {
        low: f64,
        high: f64,
        values: [f64; 3],
        depth: u32,
    }
    let simpson = |width: f64, v: [f64; 3]| width / 6.0 * (v[0] + 4.0 * v[1] + v[2]);
    let whole = [f(low), f(0.5 * (low + high)), f(high)];
    let mut open = vec![Piece { low, high, values: whole, depth: 0 }];
    let (mut total, mut evaluations) = (0.0, 3);
    while let Some(piece) = open.pop() {
        let Piece { low, high, values, depth } = piece;
        let (width, middle) = (high - low, 0.5 * (low + high));
        let left = [values[0], f(0.5 * (low + middle)), values[1]];
        let right = [values[1], f(0.5 * (middle + high)), values[2]];
        evaluations += 2;
        let finer = simpson(0.5 * width, left) + simpson(0.5 * width, right);
        let change = (finer - simpson(width, values)).abs();
        let allowed = 15.0 * tolerance * 0.5f64.powi(depth as i32) + 1e-15 * finer.abs();
        if (depth > 0 && change <= allowed) || depth > 30 || evaluations > EVALUATIONS_MAX {
            total += finer;
        } else {
            open.push(Piece { low, high: middle, values: left, depth: depth + 1 });
            open.push(Piece { low: middle, high, values: right, depth: depth + 1 });
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Empirical, Piece};

    /// The closed form of a measured law beside its twin, also where pieces overlap, are constant, or reach below 0.
    #[test]
    fn a_measured_law_knows_its_third_moment() {
        let piece = |centre, half_width, share| Piece { centre, half_width, share };
        for pieces in [
            vec![piece(0.01, 0.01, 1.0)],
            vec![piece(0.002, 0.001, 0.3), piece(0.0025, 0.002, 0.5), piece(0.3, 0.1, 0.2)],
            vec![piece(0.001, 0.003, 0.5), piece(0.02, 0.005, 0.5)],
            (0..200).map(|i| piece(0.001 * f64::from(i), 0.0005, 0.97f64.powi(i))).collect(),
        ] {
            let law = Empirical::from_pieces(pieces).unwrap();
            let known = ServiceTime::third_moment(&law).unwrap();
            let twin = integrated(&law, law.mean().powi(3));
            assert!((known / twin - 1.0).abs() < 1e-6, "{known} {twin}");
            assert!((third_moment(&law) / known - 1.0).abs() < 1e-12);
        }
    }
}
