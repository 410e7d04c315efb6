//! The observations of a table in the units of a form, and how much they vary.

use super::form::Form;
use crate::error::Error;

/// Largest number of observations, and of effects, of an analysis.
pub(crate) const CELLS_MAX: usize = 1 << 20;

/// The cells in the units of a form, and the number of replications, which is equal for all cells.
pub(super) fn prepared(cells: &[Vec<f64>], form: Form) -> Result<(Vec<Vec<f64>>, usize), Error> {
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
pub(super) fn mean(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let first = values.iter().map(|y| y / n).sum::<f64>();
    // A second pass removes the rounding error of the first.
    first + values.iter().map(|y| (y - first) / n).sum::<f64>()
}

/// Observations that are all smaller have squares without digits.
const SMALLEST: f64 = 1e-140;

/// Sum of squares about the mean of all; an error if nothing varies beyond rounding.
pub(super) fn total_variation(values: &[Vec<f64>]) -> Result<f64, Error> {
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
pub(super) fn is_rounding(sum_of_squares: f64, values: &[Vec<f64>]) -> bool {
    let square: f64 = values.iter().flatten().map(|y| (8.0 * f64::EPSILON * y).powi(2)).sum();
    sum_of_squares <= square
}
