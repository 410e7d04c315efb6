//! Finds the steady part of a run by cutting off its ramp-up and cool-down.

use std::ops::Range;

use crate::error::{Error, check};

/// The smallest number of batches in which a truncation is searched.
const BATCHES_MIN: usize = 10;
/// The smallest [`Truncation::gain`] that justifies a cut. (For a straight rising line the
/// statistic falls by half.)
const GAIN_MIN: f64 = 0.25;

/// The point from which a series is steady, found by [`mser`], which documents rule, source and
/// limits.
///
/// ```
/// let truncation = model::laws::mser(&[1.0; 20], 1)?;
/// assert_eq!((truncation.from, truncation.settled), (0, true));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// Index of the first kept observation.
    pub from: usize,
    /// The relative decrease of the statistic against dropping nothing. Small for noise without a
    /// ramp.
    pub gain: f64,
    /// Whether a steady part was found. If not, `from` is the middle, and the rest is not steady
    /// either: run longer, or choose another load (this one may be past saturation).
    pub settled: bool,
}

/// The Marginal Standard Error Rule: drops observations from the start such that the standard error
/// of the mean of the rest, computed as if they were independent, is smallest (White: "An effective
/// truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997). Over
/// means of `batch` = 5 observations it is MSER-5 (White, Cobb, Spratt: "A comparison of five
/// steady-state truncation heuristics", WSC 2000), which is less sensitive to outliers.
///
/// With Z_1 … Z_n the means of batches, it minimises over 0 ≤ d ≤ n/2 Σ_{i>d} (Z_i − Z̄_d)² / (n −
/// d)², where Z̄_d is the mean of the kept ones. A minimum at d = n/2 means that no steady part was
/// found. It assumes one ramp at the start, and does not detect a slow drift or a period longer
/// than the series. Observations at the end that do not fill a batch are ignored. Cost: one pass.
///
/// # Errors
/// [`Error::Invalid`] if there are fewer than ten batches, or an observation is not finite.
///
/// ```
/// // A queue that fills for 30 observations.
/// let series: Vec<f64> = (0..300).map(|i| 1.0 - (-f64::from(i) / 6.0).exp() + 0.1 * f64::from(i % 3)).collect();
/// let truncation = model::laws::mser(&series, 5)?;
/// assert!(truncation.settled && (15..=60).contains(&truncation.from), "{truncation:?}");
/// # Ok::<(), model::Error>(())
/// ```
pub fn mser(series: &[f64], batch: usize) -> Result<Truncation, Error> {
    let must = "a finite number";
    for &value in series {
        // Squares of sums must not overflow.
        check("an observation", value, -1e100..=1e100, must)?;
    }
    let batch = batch.max(1);
    let means: Vec<f64> =
        series.chunks_exact(batch).map(|c| c.iter().sum::<f64>() / batch as f64).collect();
    let n = means.len();
    let must = "at least 10: run longer, or cut shorter windows";
    check("the number of batches", n as f64, BATCHES_MIN as f64..=f64::MAX, must)?;
    let half = n / 2;
    // Welford's recurrence from the end: mean and sum of squares of all observations from d on.
    let (mut mean, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, half);
    let mut all = 0.0;
    for d in (0..n).rev() {
        let count = (n - d) as f64;
        let delta = means[d] - mean;
        mean += delta / count;
        squares += delta * (means[d] - mean);
        if d <= half {
            let statistic = squares / (count * count);
            all = statistic;
            // Among equals the first, so that nothing is dropped without a reason.
            if statistic <= best.0 {
                best = (statistic, d);
            }
        }
    }
    let gain = if all > 0.0 { 1.0 - best.0 / all } else { 0.0 };
    Ok(Truncation { from: best.1 * batch, gain, settled: best.1 < half })
}

/// The steady part of a run that is recorded in several series, found by [`steady()`].
///
/// ```
/// let steady = model::laws::steady(&[&[1.0; 30][..]]);
/// assert_eq!((steady.kept, steady.settled), (0..30, true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steady {
    /// The kept observations.
    pub kept: Range<usize>,
    /// Whether every series settled: [`Truncation::settled`].
    pub settled: bool,
}

/// Cuts off the ramp-up and the cool-down of a run that is recorded in several series: [`mser`]
/// from the start, then from the end over at most the last quarter. A cut is made only if it
/// decreases the statistic by at least a quarter; noise looks like smaller gains, and cutting costs
/// data. The latest start and the earliest end of all series count. Batches hold 5 observations if
/// there are at least 50, otherwise 1. Below ten observations, or if a series contains a number
/// that is not finite, nothing is cut and the series counts as settled.
///
/// Source: MSER as in [`mser`]; the cool-down, the threshold of a quarter and the rule for several
/// series are ours. Limitation: a slow drift is not detected. Cost: two passes over each series.
///
/// ```
/// let mut series = vec![5.0; 100];
/// series[..10].fill(0.0);
/// series[95..].fill(1.0);
/// let steady = model::laws::steady(&[&series]);
/// assert_eq!((steady.kept, steady.settled), (10..95, true));
/// ```
pub fn steady(series: &[&[f64]]) -> Steady {
    let length = series.iter().map(|s| s.len()).min().unwrap_or(0);
    let mut steady = Steady { kept: 0..length, settled: true };
    let batch = if length >= 5 * BATCHES_MIN { 5 } else { 1 };
    for values in series {
        if let Some(found) = worth(&values[..length], batch) {
            steady.kept.start = steady.kept.start.max(found.from);
            steady.settled &= found.settled;
        }
    }
    let start = steady.kept.start;
    for values in series {
        let backwards: Vec<f64> = values[start..length].iter().rev().copied().collect();
        if let Some(found) = worth(&backwards, batch) {
            // A backward minimum in the middle is not a cool-down: chance or a drift looks like
            // that.
            if found.settled && found.from <= backwards.len() / 4 {
                steady.kept.end = steady.kept.end.min(length - found.from);
            }
        }
    }
    steady
}

/// The truncation of a series, if its gain justifies the cut.
fn worth(series: &[f64], batch: usize) -> Option<Truncation> {
    mser(series, batch).ok().filter(|found| found.gain >= GAIN_MIN)
}
