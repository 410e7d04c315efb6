//! Narrower intervals from what is known: control variates.
//!
//! A simulation knows the true mean of some of its figures, for example of the service times that it drew. Where
//! a batch drew longer ones than the mean, its responses are longer too; regressing on these figures takes that
//! out (S. Lavenberg and P. Welch, "A perspective on the use of control variables to increase the efficiency of
//! Monte Carlo simulations", Management Science 27 (1981)). The estimate is the intercept at the true means, its
//! interval Student's with one degree of freedom less for each control.
//!
//! Cost: batches × controls² once, and batches × controls for each estimate. Wrong where batches depend on each
//! other (each has to last many relaxation times), are few beside the controls, or where a mean that is
//! taken for known is not.

use model::statistics::{Estimate, student_95};

/// The controls of all batches, made orthogonal.
pub struct Controls {
    /// Orthonormal columns that span the controls.
    basis: Vec<Vec<f64>>,
    /// What the controls leave of a column of ones.
    rest: Vec<f64>,
}

/// Part of a column's length below which it is taken to depend on the others.
const DEPENDENT: f64 = 1e-7;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Takes from `column` its part along `unit`.
fn take(column: &mut [f64], unit: &[f64]) {
    let along = dot(column, unit);
    column.iter_mut().zip(unit).for_each(|(x, u)| *x -= along * u);
}

impl Controls {
    /// Of columns, one for each control: each batch's figure less its true mean.
    pub fn new(columns: Vec<Vec<f64>>, batches: usize) -> Self {
        let mut basis: Vec<Vec<f64>> = Vec::with_capacity(columns.len());
        for mut column in columns {
            let length = dot(&column, &column).sqrt();
            // Twice, because once leaves what rounding makes of nearly dependent columns.
            for _ in 0..2 {
                basis.iter().for_each(|unit| take(&mut column, unit));
            }
            let left = dot(&column, &column).sqrt();
            if left > DEPENDENT * length {
                column.iter_mut().for_each(|x| *x /= left);
                basis.push(column);
            }
        }
        let mut rest = vec![1.0; batches];
        basis.iter().for_each(|unit| take(&mut rest, unit));
        Controls { basis, rest }
    }

    /// The mean of a figure of which each batch gave one value; `None` with too few batches.
    pub fn mean(&self, values: &[f64]) -> Option<Estimate> {
        let degrees = values.len().checked_sub(self.basis.len() + 1).filter(|d| *d > 0)?;
        let weight = dot(&self.rest, &self.rest);
        let mean = dot(&self.rest, values) / weight;
        let mut residual: Vec<f64> = values.iter().map(|y| y - mean).collect();
        self.basis.iter().for_each(|unit| take(&mut residual, unit));
        let variance = dot(&residual, &residual) / degrees as f64;
        let half_width = student_95(degrees) * (variance / weight).sqrt();
        let fine = mean.is_finite() && half_width.is_finite();
        fine.then_some(Estimate { mean, half_width, batches: values.len() })
    }
}

#[cfg(test)]
mod tests {
    use model::statistics::batch_means;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn without_controls_it_is_the_mean_of_batches(
            values in prop::collection::vec(-9.0f64..9.0, 2..40),
        ) {
            let plain = batch_means(&values).unwrap();
            let tested = Controls::new(Vec::new(), values.len()).mean(&values).unwrap();
            prop_assert!((tested.mean - plain.mean).abs() < 1e-12);
            prop_assert!((tested.half_width - plain.half_width).abs() < 1e-9);
        }

        #[test]
        fn what_a_control_explains_is_taken_out(
            draws in prop::collection::vec((-1.0f64..1.0, -1.0f64..1.0), 8..40),
            mean in -5.0f64..5.0, slopes in (-5.0f64..5.0, -5.0f64..5.0),
        ) {
            let columns = vec![
                draws.iter().map(|d| d.0).collect(),
                draws.iter().map(|d| d.1).collect::<Vec<f64>>(),
                // A control that says the same again must not matter.
                draws.iter().map(|d| 2.0 * d.1).collect(),
            ];
            let value = |d: &(f64, f64)| mean + slopes.0 * d.0 + slopes.1 * d.1;
            let values: Vec<f64> = draws.iter().map(value).collect();
            let controls = Controls::new(columns, values.len());
            let weight: f64 = controls.rest.iter().map(|x| x * x).sum();
            prop_assume!(weight > 1e-3);
            let tested = controls.mean(&values).unwrap();
            prop_assert!((tested.mean - mean).abs() < 1e-9, "{tested:?}");
            prop_assert!(tested.half_width < 1e-8, "{tested:?}");
        }
    }

    #[test]
    fn too_few_batches_give_no_interval() {
        let columns = vec![vec![0.1, -0.2, 0.3]];
        assert!(Controls::new(columns, 3).mean(&[1.0, 2.0, 3.0]).is_some());
        let columns = vec![vec![0.1, -0.2], vec![0.3, 0.1]];
        assert!(Controls::new(columns, 2).mean(&[1.0, 2.0]).is_none());
    }
}
