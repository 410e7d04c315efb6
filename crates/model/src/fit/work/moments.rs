//! Sums over works and steps: means, variances, rates.

use rand::RngExt;
use rand::rngs::StdRng;

use super::judge::{Point, Sums};
use super::line::Line;

impl Point {
    /// Mean and SCV of the works of sums, less what the clock and a time outside that varies made of them.
    pub fn moments(&self, sums: Sums, blur: f64, varies: f64) -> (f64, f64) {
        let Some(correction) = &self.correction else { return moments(sums, blur + varies) };
        let (mean, scv) = moments(sums, correction.blur + varies);
        (mean * correction.factor, scv)
    }
}

pub(super) fn sum<'a>(blocks: impl Iterator<Item = &'a Sums>) -> Sums {
    blocks.fold((0.0, 0.0, 0.0), |s, b| (s.0 + b.0, s.1 + b.1, s.2 + b.2))
}

/// Mean and SCV of sums, less the variance that the resolution adds.
pub(super) fn moments((n, sum, square): Sums, blur: f64) -> (f64, f64) {
    let mean = sum / n.max(1.0);
    let variance = (square / n.max(1.0) - mean * mean - blur).max(0.0);
    (mean, variance / (mean * mean).max(f64::MIN_POSITIVE))
}

/// The share of judged requests that passed by, with a weight for each step.
pub(super) fn bypass_of(lines: &[Line], weight: impl Fn(usize) -> f64) -> f64 {
    let (mut passed, mut all) = (0.0, 0.0);
    for (i, line) in lines.iter().enumerate() {
        passed += weight(i) * line.bypassed.len() as f64;
        all += weight(i) * (line.bypassed.len() + line.counted()) as f64;
    }
    if all > 0.0 { passed / all } else { 0.0 }
}

/// A normal law by twelve uniform ones.
pub(super) fn normal(random: &mut StdRng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Judged requests per second.
pub(super) fn rate(line: &Line) -> f64 {
    let (from, to) = line.span();
    line.counted() as f64 / (to - from).max(1e-9)
}
