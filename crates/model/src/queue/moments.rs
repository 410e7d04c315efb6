//! The third moment of a law, computed from its transform: variances of waiting times need it.

use crate::distribution::ServiceTime;

/// An SCV within this of 1 counts as exponential.
pub(super) const NEARLY: f64 = 1e-3;

/// Largest number of evaluations of the law for one interval.
const EVALUATIONS_MAX: usize = 4_000;

/// E\[S³\] = 3∫t²(1 − F(t))dt by adaptive Simpson over intervals that double. Relative error below
/// 1e-7 for laws with an exponential tail and for measured ones. The part beyond the quantile of 1
/// − 1e-15 is ignored: 1e-4 of the moment for a lognormal law of SCV 4. Cost: some thousand CDFs.
pub(super) fn third_moment(law: &dyn ServiceTime) -> f64 {
    let mean = law.mean();
    // The lower bound that the first two moments imply.
    let least = mean.powi(3) * (1.0 + law.scv()).powi(2);
    if law.scv() <= 0.0 {
        return least;
    }
    let above = |t: f64| 1.0 - law.cdf(t);
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
    total.max(least)
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
