//! Which part of a run is steady: ramp-up and cool-down are cut off.

use std::ops::Range;

use crate::error::{Error, check};

/// The fewest batches that a truncation is looked for in.
const BATCHES_MIN: usize = 10;
/// The least [`Truncation::gain`] that is worth a cut: the statistic of a straight line up falls by
/// half.
const GAIN_MIN: f64 = 0.25;

/// Where a series becomes steady: what [`mser`] found, whose page has rule, source and limits.
///
/// ```
/// let truncation = model::laws::mser(&[1.0; 20], 1)?;
/// assert_eq!((truncation.from, truncation.settled), (0, true));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// The first observation that is kept.
    pub from: usize,
    /// By what share the statistic is smaller than if nothing were dropped. Of noise without a ramp
    /// it is small.
    pub gain: f64,
    /// Whether a steady part was found. If not, `from` is the middle, and what follows is no steady
    /// state either: run longer, or the load has none (it is past saturation).
    pub settled: bool,
}

/// The Marginal Standard Error Rule: drops so many of the first observations that the standard
/// error of the mean of the rest, as if they were independent, is smallest (White: "An effective
/// truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997). Over
/// means of `batch` = 5 observations it is MSER-5 (White, Cobb, Spratt: "A comparison of five
/// steady-state truncation heuristics", WSC 2000), which outliers mislead less.
///
/// With Z_1 … Z_n the means of batches, it minimises over 0 ≤ d ≤ n/2 Σ_{i>d} (Z_i − Z̄_d)² / (n −
/// d)², Z̄_d the mean of those kept. A minimum at d = n/2 means that no steady part was found. It
/// assumes one ramp at the start; it does not see a slow drift, or a period longer than the series.
/// Observations at the end that do not fill a batch are not looked at. Cost: one pass.
///
/// # Errors
/// [`Error::Invalid`] below ten batches, and for observations that are not finite.
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
        // Squares of sums must stay in the range of f64.
        check("an observation", value, -1e100..=1e100, must)?;
    }
    let batch = batch.max(1);
    let means: Vec<f64> =
        series.chunks_exact(batch).map(|c| c.iter().sum::<f64>() / batch as f64).collect();
    let n = means.len();
    let must = "at least 10: run longer, or cut shorter windows";
    check("the number of batches", n as f64, BATCHES_MIN as f64..=f64::MAX, must)?;
    let half = n / 2;
    // Backwards by Welford's recurrence: mean and sum of squares of all from d on.
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
            // Of equals the first: nothing is dropped without a reason.
            if statistic <= best.0 {
                best = (statistic, d);
            }
        }
    }
    let gain = if all > 0.0 { 1.0 - best.0 / all } else { 0.0 };
    Ok(Truncation { from: best.1 * batch, gain, settled: best.1 < half })
}

/// The steady part of a run that several series were recorded of: what [`steady()`] found.
///
/// ```
/// let steady = model::laws::steady(&[&[1.0; 30][..]]);
/// assert_eq!((steady.kept, steady.settled), (0..30, true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steady {
    /// The observations that are kept.
    pub kept: Range<usize>,
    /// Whether every series settled: [`Truncation::settled`].
    pub settled: bool,
}

/// Cuts off the ramp-up of several series of one run, and its cool-down: [`mser`] forwards, then
/// backwards over at most the last quarter, each where it gains a quarter of its statistic at least
/// (less is what noise looks like, and cutting that costs data); the latest start and the earliest
/// end of all series count. Batches of 5 where there are 50 observations, else of 1; below ten
/// observations, and where a series has a number that is not finite, nothing is cut and nothing is
/// said to be unsettled.
///
/// Source: MSER as [`mser`] names it; cool-down, the quarter and the rule for several series are
/// ours. Wrong as [`mser`] is: a slow drift is not seen. Cost: two passes over each series.
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
            // A backward minimum in the middle is no cool-down: it is what chance, or a drift,
            // looks like.
            if found.settled && found.from <= backwards.len() / 4 {
                steady.kept.end = steady.kept.end.min(length - found.from);
            }
        }
    }
    steady
}

/// The truncation of a series, if it has one that is worth it.
fn worth(series: &[f64], batch: usize) -> Option<Truncation> {
    mser(series, batch).ok().filter(|found| found.gain >= GAIN_MIN)
}
