//! 2^k·r factorial designs: two levels of each factor, all combinations, r runs each. [`Factorial`]
//! has the formulas.

use serde::Serialize;

use super::form::Form;
use super::letters::{FACTORS_MAX, letters};
use super::variation::{is_rounding, mean, prepared, total_variation};
use crate::error::{Error, check};
use crate::regression::Estimated;
use crate::statistics::{quantile, student};

/// The basis of the intervals of effects ([`Factorial::intervals`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IntervalBasis {
    /// The scatter between replications.
    Replications,
    /// The spread of the small effects (Lenth), with one run for each cell.
    Lenth,
    /// No basis, and no intervals.
    None,
}

/// The effect of a factor or of an interaction, in [`Factorial::effects`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Letters of the factors, like `AC`.
    pub name: String,
    /// The factors, one bit for each; the first factor's bit is the lowest.
    pub factors: u32,
    /// q: half of the change of the response from low to high, in the units of the form.
    pub effect: Estimated,
    /// The effect of going from low to high: adds 2q, or multiplies by e^(2q).
    pub low_to_high: Estimated,
    /// SS: the variation that it explains.
    pub sum_of_squares: f64,
    /// SS/SST: the explained part of the variation.
    pub fraction: f64,
    /// In a fraction of a design: the effects that are confounded with this one, with a `-` if
    /// subtracted.
    pub aliases: Vec<String>,
    /// The index of the contrast of the cells, and whether its sign is reversed.
    #[serde(skip)]
    pub(super) contrast: (usize, bool),
}

/// The analysis of a 2^k·r design, or of a fraction of one.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), chapters 17 and 18.
/// With x = −1 at the low and +1 at the high level,
///
///   y = q₀ + Σ q_S·Π x + e;   q_S = Σ(±ȳ)/2^k;   SS_S = 2^k·r·q_S²;   SST = Σ SS_S + SSE;
///   s_e² = SSE/(2^k(r − 1));   s_q = s_e/√(2^k·r);   interval q ± t(2^k(r − 1))·s_q.
///
/// The allocation of variation is SS_S/SST, with SSE/SST unexplained. (The ASL report's eq. 3 has
/// 4·q² where 2^k·r·q² = 24·q² is correct, so its unexplained parts are six times too large.)
/// Without replications there is no SSE: Lenth's method (Technometrics 31, 1989) takes the spread
/// of the small effects as noise, which is correct if most effects are 0.
///
/// It assumes independent runs and noise of equal variance ([`super::Residuals`] tests both), in
/// the units of the form. Between the two levels the response is assumed linear, which two levels
/// cannot test. Cost: [`Factorial::new`].
///
/// ```
/// use model::design::{Factorial, Form};
/// // Jain, example 18.1: memory (A) and cache (B), three runs each.
/// let cells = [[15., 18., 12.], [45., 48., 51.], [25., 28., 19.], [75., 75., 81.]];
/// let cells: Vec<Vec<f64>> = cells.iter().map(|c| c.to_vec()).collect();
/// let found = Factorial::new(&cells, Form::Additive, 0.90)?;
/// let q: Vec<f64> = found.effects.iter().map(|e| e.effect.value).collect();
/// assert_eq!((found.mean.value, &q[..]), (41.0, &[21.5, 9.5, 5.0][..]));
/// assert!((found.error_fraction - 0.0145).abs() < 1e-4);
/// assert!((found.effects[0].effect.low.unwrap() - 19.58).abs() < 0.01);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Factorial {
    /// k: number of factors.
    pub factor_count: usize,
    /// r: number of replications.
    pub replications: usize,
    /// Whether effects add or multiply.
    pub form: Form,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// q₀, in the units of the form.
    pub mean: Estimated,
    /// All effects in standard order: A, B, AB, C, AC, …
    pub effects: Vec<Effect>,
    /// SST: variation about the mean.
    pub total_sum_of_squares: f64,
    /// SSE: variation between replications.
    pub error_sum_of_squares: f64,
    /// SSE/SST: the unexplained part.
    pub error_fraction: f64,
    /// 2^k(r − 1): degrees of freedom of the error.
    pub error_degrees: usize,
    /// s_e: standard deviation of the error; `None` with one replication.
    pub error_deviation: Option<f64>,
    /// The basis of the intervals.
    pub intervals: IntervalBasis,
    /// The mean of each cell, in the units of the form.
    pub fitted: Vec<f64>,
    /// The deviation of each observation from its cell's mean.
    pub residuals: Vec<Vec<f64>>,
    /// Warnings about the validity of the results.
    pub warnings: Vec<String>,
}

impl Factorial {
    /// Analyses 2^k cells in standard order (the first factor changes fastest, low before high),
    /// all with the same number of observations. Cost: k·2^k + 2^k·r operations.
    pub fn new(cells: &[Vec<f64>], form: Form, confidence: f64) -> Result<Self, Error> {
        check("the confidence", confidence, 0.5..=0.9999, "from 0.5 to 0.9999")?;
        let factor_count = cells.len().max(1).ilog2() as usize;
        if !cells.len().is_power_of_two() || !(1..=FACTORS_MAX).contains(&factor_count) {
            let why = format!("{} where 2, 4, 8 … 2^{FACTORS_MAX} are needed", cells.len());
            return Err(Error::Design { what: "cells of a two-level design".to_owned(), why });
        }
        let (values, replications) = prepared(cells, form)?;
        let total = total_variation(&values)?;
        let fitted: Vec<f64> = values.iter().map(|cell| mean(cell)).collect();
        let off = |(cell, centre): (&Vec<f64>, &f64)| cell.iter().map(|y| y - centre).collect();
        let residuals: Vec<Vec<f64>> = values.iter().zip(&fitted).map(off).collect();
        let mut error: f64 = residuals.iter().flatten().map(|e| e * e).sum();
        let mut warnings = Vec::new();
        if replications > 1 && is_rounding(error, &values) {
            error = 0.0;
            let words =
                "replications are equal: no noise was measured; are they copies of each other?";
            warnings.push(words.to_owned());
        }
        let mut q = fitted.clone();
        contrasts(&mut q);
        let error_degrees = cells.len() * (replications - 1);
        let observations = (cells.len() * replications) as f64;
        let deviation = (error_degrees > 0).then(|| (error / error_degrees as f64).sqrt());
        let (half, intervals) = match deviation {
            Some(s) => {
                let t = student(confidence, error_degrees as f64)?;
                (Some(t * s / observations.sqrt()), IntervalBasis::Replications)
            }
            None => {
                let half = lenth(&q[1..], confidence)?;
                let basis = half.map_or(IntervalBasis::None, |_| IntervalBasis::Lenth);
                warnings.push(one_replication(basis).to_owned());
                (half, basis)
            }
        };
        let mean_half = half.filter(|_| intervals == IntervalBasis::Replications);
        let effect = |mask: usize| {
            let effect = Estimated::around(q[mask], half);
            let low_to_high = match form {
                Form::Additive => effect.map(|q| 2.0 * q),
                Form::Multiplicative => effect.map(|q| (2.0 * q).exp()),
            };
            let sum_of_squares = observations * q[mask] * q[mask];
            Effect {
                name: letters(mask as u32),
                factors: mask as u32,
                effect,
                low_to_high,
                sum_of_squares,
                fraction: sum_of_squares / total,
                aliases: Vec::new(),
                contrast: (mask, false),
            }
        };
        Ok(Factorial {
            factor_count,
            replications,
            form,
            confidence,
            mean: Estimated::around(q[0], mean_half),
            effects: (1..cells.len()).map(effect).collect(),
            total_sum_of_squares: total,
            error_sum_of_squares: error,
            error_fraction: error / total,
            error_degrees,
            error_deviation: deviation,
            intervals,
            fitted,
            residuals,
            warnings,
        })
    }

    /// The effect of a set of factors, one bit for each.
    pub fn effect(&self, factors: u32) -> Option<&Effect> {
        self.effects.iter().find(|e| e.factors == factors)
    }
}

fn one_replication(basis: IntervalBasis) -> &'static str {
    match basis {
        IntervalBasis::Lenth => {
            "one run for each cell: noise was not measured and is inside the effects; intervals \
             take the small effects for noise (Lenth): repeat the runs to know"
        }
        _ => "one run for each cell: noise was not measured, so no intervals; repeat the runs",
    }
}

/// Contrasts over 2^k from the means of cells, in place: the transform of Yates, or Walsh and
/// Hadamard.
pub(super) fn contrasts(values: &mut [f64]) {
    let mut step = 1;
    while step < values.len() {
        for block in values.chunks_exact_mut(2 * step) {
            let (low, high) = block.split_at_mut(step);
            for (low, high) in low.iter_mut().zip(high) {
                // Halves at once, so that sums do not overflow.
                (*low, *high) = (0.5 * *low + 0.5 * *high, 0.5 * *high - 0.5 * *low);
            }
        }
        step *= 2;
    }
}

/// Half the width of the intervals of effects without replications: t[m/3] times the pseudo
/// standard error 1.5·median of those |q| below 2.5·1.5·median |q|. `None` for fewer than three
/// effects.
fn lenth(effects: &[f64], confidence: f64) -> Result<Option<f64>, Error> {
    if effects.len() < 3 {
        return Ok(None);
    }
    let sizes: Vec<f64> = effects.iter().map(|q| q.abs()).collect();
    let first = 1.5 * quantile(&sizes, 0.5).unwrap_or(0.0);
    let small: Vec<f64> = sizes.into_iter().filter(|q| *q < 2.5 * first).collect();
    let error = 1.5 * quantile(&small, 0.5).unwrap_or(0.0);
    let t = student(confidence, effects.len() as f64 / 3.0)?;
    Ok((error > 0.0).then_some(t * error))
}
