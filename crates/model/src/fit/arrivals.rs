//! Estimates the variability of arrivals and its time scale.

use crate::model_file::{Arrivals, DispersionAt, Parameter};
use crate::queue::Bursts;

use super::data::Gathered;
use super::resample::Replicate;
use super::sums::{Counts, SCALES, Sums};

/// The smallest number of intervals of an index of dispersion.
const INTERVALS_MIN: f64 = 16.0;
/// Number of standard errors, and smallest excess, from which a dispersion differs from a Poisson
/// stream's.
const CERTAIN: f64 = 4.0;
const EXCESS_MIN: f64 = 0.1;

/// An index of dispersion with the step's load, the time scale, and the number of intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index {
    pub rate: f64,
    pub scale_s: f64,
    pub index: f64,
    pub intervals: f64,
}

impl Index {
    fn from_counts(counts: &Counts) -> Option<Index> {
        let (n, rate) = (counts.n, counts.sum / counts.seconds);
        if n < INTERVALS_MIN || counts.sum <= 0.0 || counts.seconds <= 0.0 {
            return None;
        }
        let mean = counts.sum / n;
        let index = (counts.squares - n * mean * mean) / (n - 1.0) / mean;
        let scale_s = counts.seconds / n;
        let fine = index.is_finite() && index >= 0.0 && scale_s > 0.0 && scale_s.is_finite();
        fine.then_some(Index { rate, scale_s, index, intervals: n })
    }

    /// Standard error for independent normal counts.
    fn error(&self) -> f64 {
        self.index.max(1.0) * (2.0 / self.intervals).sqrt()
    }

    fn is_burst(&self) -> bool {
        self.index - 1.0 > EXCESS_MIN.max(CERTAIN * (2.0 / self.intervals).sqrt())
    }
}

fn indices<'a>(steps: impl Iterator<Item = &'a Sums>) -> Vec<Vec<Index>> {
    let mut scales = vec![Vec::new(); SCALES];
    for step in steps {
        for (scale, counts) in scales.iter_mut().zip(&step.counts) {
            scale.extend(Index::from_counts(counts));
        }
    }
    scales
}

/// Mean over steps, weighted by their numbers of intervals.
fn mean(of: &[Index]) -> Option<(f64, f64)> {
    let n: f64 = of.iter().map(|i| i.intervals).sum();
    let average =
        |f: &dyn Fn(&Index) -> f64| of.iter().map(|i| f(i) * i.intervals).sum::<f64>() / n;
    (n > 0.0).then(|| (average(&|i| i.scale_s), average(&|i| i.index)))
}

/// c² and ω of the two-state process whose indices of dispersion are nearest to the measured ones:
/// least squares weighted by precision, with ω on a grid of 20 values a decade. Indices not above
/// Poisson's give c² = 0.
pub(super) fn bursts(of: &[Index]) -> Option<(f64, f64)> {
    let mut best: Option<(f64, f64, f64)> = None;
    for i in 0..=100 {
        let change_rate = 10f64.powf(f64::from(i) / 20.0 - 3.0);
        let (variation, left) = variation_at(of, change_rate)?;
        if left.is_finite() && best.is_none_or(|b| left < b.2) {
            best = Some((variation, change_rate, left));
        }
    }
    best.map(|(variation, change_rate, _)| (variation, change_rate))
}

/// c² for one ω by least squares, at least 0, and the weighted squares that it leaves.
fn variation_at(of: &[Index], change_rate: f64) -> Option<(f64, f64)> {
    let unit = Bursts::new(1.0, change_rate).ok()?;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for index in of {
        let weight = index.error().powi(-2);
        let x = unit.dispersion(index.rate, index.scale_s) - 1.0;
        let y = index.index - 1.0;
        xx += weight * x * x;
        xy += weight * x * y;
        yy += weight * y * y;
    }
    let variation = if xx > 0.0 { (xy / xx).max(0.0) } else { 0.0 };
    Some((variation, yy - 2.0 * variation * xy + variation * variation * xx))
}

/// Number of standard errors by which the fitted process may exceed the indices of the longest scale.
const CONTRADICTED: f64 = 2.0;

/// c² and ω of the process that queues see, from the indices of each scale.
///
/// The indices of a two-state process only grow with the scale. Where a sender or a machine stands still and then catches
/// up, they fall: a short interval has a burst, and the interval around it has as many requests as without. A queue near
/// saturation averages over a time in which that has evened out (on the records of `experiments/spotify-cluster`, bursts
/// fitted to counts of 62 ms cost 2 points of P(T ≤ 50 ms) at 88 % utilisation, where counts of 1 s were Poisson's). So the
/// longest scale decides how large c² is, if it contradicts the shorter ones.
fn process(scales: &[Vec<Index>]) -> Option<(f64, f64)> {
    let (variation, change_rate) = bursts(&scales.concat())?;
    let longest = scales.iter().rev().find(|of| !of.is_empty())?;
    let fitted = Bursts::new(variation, change_rate).ok()?;
    let (mut surplus, mut weights) = (0.0, 0.0);
    for index in longest {
        let weight = index.error().powi(-2);
        surplus += weight * (fitted.dispersion(index.rate, index.scale_s) - index.index);
        weights += weight;
    }
    if surplus <= CONTRADICTED * weights.sqrt() {
        return Some((variation, change_rate));
    }
    if !longest.iter().any(Index::is_burst) {
        return Some((0.0, change_rate));
    }
    let lasting = variation_at(longest, change_rate)?.0;
    Some((lasting.min(variation), change_rate))
}

/// The variability of the clients' arrivals, and c² and ω of each resampling (if arrivals come in
/// bursts). `None` if no step has enough intervals.
pub(super) fn arrivals(
    gathered: &Gathered,
    replicates: &[Replicate],
) -> Option<(Arrivals, Vec<(f64, f64)>)> {
    let found = indices(gathered.steps.iter().map(|s| &s.total));
    let drawn: Vec<Vec<Vec<Index>>> =
        replicates.iter().map(|r| indices(r.steps.iter().map(|s| &s.1))).collect();
    let mut dispersion = Vec::new();
    for (scale, of) in found.iter().enumerate() {
        if let Some((scale_s, value)) = mean(of) {
            let others: Vec<f64> =
                drawn.iter().filter_map(|d| mean(d.get(scale)?)).map(|m| m.1).collect();
            let index = Parameter::from_replicates(value, &others, "1");
            dispersion.push(DispersionAt { scale_s, index });
        }
    }
    let scv = dispersion.last()?.index.clone();
    let all: Vec<Index> = found.concat();
    let fitted = all.iter().any(Index::is_burst).then(|| process(&found)).flatten();
    let Some((variation, change_rate)) = fitted.filter(|f| f.0 > 0.0) else {
        return Some((
            Arrivals { dispersion, scv, variation: None, change_rate: None },
            Vec::new(),
        ));
    };
    let of = |d: &Vec<Vec<Index>>| process(d).unwrap_or((variation, change_rate));
    let others: Vec<(f64, f64)> = drawn.iter().map(of).collect();
    let column = |f: &dyn Fn(&(f64, f64)) -> f64| others.iter().map(f).collect::<Vec<f64>>();
    let variation = Some(Parameter::from_replicates(variation, &column(&|o| o.0), "1"));
    let change_rate = Some(Parameter::from_replicates(change_rate, &column(&|o| o.1), "1/s"));
    Some((Arrivals { dispersion, scv, variation, change_rate }, others))
}

#[cfg(test)]
mod tests;
