//! Designs of experiments: which factors matter, how much, and with what confidence.
//!
//! Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), part IV; each type
//! names its chapter. The steps of an analysis:
//!
//! 1. [`Table`] sorts runs (levels of each factor, one response) into cells, and reports missing
//!    cells.
//! 2. [`Advice`] decides whether effects add or multiply ([`Form`]), with reasons.
//! 3. [`Factorial`] analyses two levels of each factor with 2^k·r runs. [`Fraction`] describes
//!    2^(k−p)·r runs and the effects that they confound. [`Anova`] analyses any number of levels.
//! 4. [`Residuals`] tests whether the residuals look like noise. If not, intervals and F tests are
//!    invalid.
//! 5. [`Bootstrap`] computes intervals without assuming normal errors, also for the allocation of
//!    variation.
//!
//! All analyses assume that runs are independent (run them in random order, because a trend in time
//! looks like a factor), that every cell has equally many runs, and that the variance of the noise
//! is constant (in logarithms: constant in percent).

mod advice;
mod anova;
mod bootstrap;
mod factorial;
mod fraction;
mod residuals;
mod table;

pub use advice::{Advice, FormFigures};
pub use anova::{Anova, LevelEffect, Term};
pub use bootstrap::{Bootstrap, BootstrapInterval};
pub use factorial::{Effect, Factorial, IntervalBasis};
pub use fraction::{Fraction, Word, roman};
pub use residuals::{Judged, Residuals};
pub use table::{Cell, Factor, Run, Table};

use serde::Serialize;

use crate::error::{Error, check, positive};

/// Largest number of factors of a design: 2^16 cells and effects.
pub(crate) const FACTORS_MAX: usize = 16;

/// Largest number of observations, and of effects, of an analysis.
pub(crate) const CELLS_MAX: usize = 1 << 20;

/// How the effects of factors combine. [`Advice`] chooses a form.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), section 18.8.
///
/// ```
/// use model::design::{Factorial, Form};
/// // One factor, low 10 and 10.1, high 20 and 20.2: it doubles.
/// let cells = [vec![10.0, 10.1], vec![20.0, 20.2]];
/// let found = Factorial::new(&cells, Form::Multiplicative, 0.95)?;
/// assert!((found.effects[0].low_to_high.value - 2.0).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// y = q₀ + q_A·x_A + …: each factor adds a term.
    Additive,
    /// ln y = q₀ + q_A·x_A + …: each factor multiplies. The analysis takes the natural logarithm of
    /// each observation, not of their means.
    Multiplicative,
}

impl Form {
    /// An observation in the units of the analysis.
    fn apply(self, y: f64) -> Result<f64, Error> {
        match self {
            Form::Additive => check("an observation", y, -1e100..=1e100, "from -1e100 to 1e100"),
            Form::Multiplicative => {
                positive("an observation of the multiplicative model", y)?;
                Ok(y.ln())
            }
        }
    }
}

/// The letters of factors; I is the identity.
const LETTERS: &[u8] = b"ABCDEFGHJKLMNOPQ";

/// The letter of a factor by its index from 0: A, B, C … without I, which is the identity; `?` past
/// Q.
///
/// ```
/// assert_eq!((model::design::letter(2), model::design::letter(8)), ('C', 'J'));
/// ```
pub fn letter(factor: usize) -> char {
    LETTERS.get(factor).map_or('?', |byte| char::from(*byte))
}

/// The letters of a set of factors, one bit for each; `I` for the empty set.
fn letters(mask: u32) -> String {
    if mask == 0 {
        return "I".to_owned();
    }
    (0..u32::BITS as usize).filter(|i| mask >> i & 1 == 1).map(letter).collect()
}

/// The cells in the units of a form, and the number of replications, which is equal for all cells.
fn prepared(cells: &[Vec<f64>], form: Form) -> Result<(Vec<Vec<f64>>, usize), Error> {
    let expected = cells.first().map_or(0, Vec::len);
    let observations = cells.len().saturating_mul(expected);
    if !(1..=CELLS_MAX).contains(&observations) {
        let why =
            format!("it has {observations} observations where 1 to {CELLS_MAX} can be analysed");
        return Err(Error::Design { what: "the table".to_owned(), why });
    }
    let odd = cells.iter().position(|cell| cell.len() != expected);
    if let Some(at) = odd {
        let (cell, other) = (format!("cell {}", at + 1), "cell 1".to_owned());
        return Err(Error::Unbalanced { cell, got: cells[at].len(), other, expected });
    }
    let apply = |cell: &Vec<f64>| cell.iter().map(|&y| form.apply(y)).collect();
    let values: Vec<Vec<f64>> = cells.iter().map(apply).collect::<Result<_, _>>()?;
    Ok((values, expected))
}

/// The mean of values, without overflow of their sum.
fn mean(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let first = values.iter().map(|y| y / n).sum::<f64>();
    // A second pass removes the rounding error of the first.
    first + values.iter().map(|y| (y - first) / n).sum::<f64>()
}

/// Observations that are all smaller have squares without digits.
const SMALLEST: f64 = 1e-140;

/// Sum of squares about the mean of all; an error if nothing varies beyond rounding.
fn total_variation(values: &[Vec<f64>]) -> Result<f64, Error> {
    let all: Vec<f64> = values.iter().flatten().copied().collect();
    let centre = mean(&all);
    let largest = all.iter().fold(0.0f64, |m, y| m.max(y.abs()));
    let total: f64 = all.iter().map(|y| (y - centre).powi(2)).sum();
    // Squares below the least number are 0, and observations that differ would be called equal.
    if largest > 0.0 && largest < SMALLEST && all.iter().any(|y| *y != all[0]) {
        let why = format!(
            "its largest observation is {largest:e}, whose square is no number; give the response in a smaller unit"
        );
        return Err(Error::Design { what: "the table".to_owned(), why });
    }
    let rounding = all.len() as f64 * (4.0 * f64::EPSILON * largest).powi(2);
    if total <= rounding.max(f64::MIN_POSITIVE) {
        return Err(Error::NoVariation { count: all.len(), value: all[0] });
    }
    Ok(total)
}

/// Whether a sum of squares is so small that it may be rounding alone.
fn is_rounding(sum_of_squares: f64, values: &[Vec<f64>]) -> bool {
    let square: f64 = values.iter().flatten().map(|y| (8.0 * f64::EPSILON * y).powi(2)).sum();
    sum_of_squares <= square
}

#[cfg(test)]
mod tests;
