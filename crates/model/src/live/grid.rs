//! Response-time distributions at several loads, from transforms that are made once.
//!
//! A CDF at a time costs some 0.1 ms, nearly all of it for what does not depend on the load
//! ([`NodeAt`]). Quantiles by bisection would need some 60 for each load; a grid of 29 times serves all
//! loads, and a quantile between two of its times is wrong by a few per cent at most.

use crate::model_file::Model;
use crate::storage::{Node, NodeAt};
use ground::window::Histogram;

use super::state::CurvePoint;

/// Quantiles of the measured responses up to the tail, evenly spaced.
const EVEN: usize = 15;
/// Quantiles of the tail: the answers of memory and those of devices may lie far apart there.
const TAIL: [f64; 6] = [0.975, 0.985, 0.99, 0.993, 0.996, 0.999];
/// Times beyond, as multiples of that: at higher loads responses are longer.
const BEYOND: [f64; 8] = [1.3, 1.7, 2.2, 3.0, 4.5, 7.0, 12.0, 25.0];

/// The quantiles of the measured points.
fn levels() -> impl Iterator<Item = f64> {
    (0..EVEN).map(|i| (i as f64 + 0.5) / EVEN as f64).chain(TAIL)
}

/// A model at the times of a grid.
pub(super) struct Grid {
    node: Node,
    times: Vec<f64>,
    at: Vec<NodeAt>,
}

impl Grid {
    /// The grid that the measured responses suggest; `None` without any.
    pub fn suggested(model: &Model, responses: &Histogram) -> Option<Grid> {
        let node = model.node().ok()?;
        let mut times: Vec<f64> = levels().filter_map(|p| responses.quantile_s(p)).collect();
        let last = *times.last()?;
        times.extend(BEYOND.map(|factor| factor * last));
        let at = times.iter().map(|&t| node.at_time(t)).collect();
        Some(Grid { node, times, at })
    }

    /// The share within each time at a load by the published model; `None` where that is not stable.
    pub fn published(&self, model: &Model, rate: f64) -> Option<Vec<f64>> {
        model.spotify_cdf(rate, &self.times).ok()
    }

    /// The share within each time at a load; `None` past saturation.
    pub fn shares(&self, rate: f64) -> Option<Vec<f64>> {
        let operating = self.node.operating(rate).ok()?;
        Some(self.at.iter().map(|at| at.cdf(&operating)).collect())
    }

    /// The time that a share `p` does not exceed, interpolated; `None` beyond the grid.
    pub fn quantile(&self, shares: &[f64], p: f64) -> Option<f64> {
        let above = shares.iter().position(|share| *share >= p)?;
        let (Some(&t), Some(&share)) = (self.times.get(above), shares.get(above)) else {
            return None;
        };
        let Some(below) = above.checked_sub(1) else { return Some(t) };
        let (t0, share0) = (self.times[below].max(1e-9), shares[below]);
        // The logarithms of the tail and of the time: both run over orders of magnitude.
        let (left0, left1, left) =
            ((1.0 - share0).ln(), (1.0 - share).max(1e-12).ln(), (1.0 - p).ln());
        let part = if left0 > left1 { (left0 - left) / (left0 - left1) } else { 1.0 };
        Some(t0 * (t / t0).powf(part.clamp(0.0, 1.0)))
    }
}

/// The measured distribution at its quantiles, with the model's.
pub(super) fn curve_of(
    responses: &Histogram,
    predicted: Option<&[f64]>,
    published: Option<&[f64]>,
) -> Vec<CurvePoint> {
    let point = |(index, measured): (usize, f64)| {
        let of = |shares: Option<&[f64]>| shares.and_then(|shares| shares.get(index).copied());
        let (predicted, published) = (of(predicted), of(published));
        Some(CurvePoint { t_s: responses.quantile_s(measured)?, measured, predicted, published })
    };
    levels().enumerate().filter_map(point).collect()
}
