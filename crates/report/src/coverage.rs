//! Intervals of what will be *measured*, and how often measurements fell inside of them.
//!
//! The interval of a predicted share says how well the model knows the share's mean. A measurement differs
//! from it for two more reasons: its own noise (it counts a finite number of requests, which come in
//! bursts), and whatever differs from one run to the next. The latter is estimated from the steps that the
//! model was fitted to: the variance of their errors beyond their own noise, on the logit scale, on which
//! errors near 0 and near 1 compare with errors in the middle. The three are independent and add in
//! squares.
//!
//! With few fitted steps the variance between runs is poorly known; Student's quantile widens for it.

use model::Parameter;
use model::statistics::student_95;
use serde::Serialize;

use crate::compare::Row;

/// The interval in which a measurement is expected to fall, and whether it did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Lower end of the 95 % interval, a share.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the measured share lies between them.
    pub inside: bool,
}

/// The variation between runs, on the logit scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// Half the width of its 95 % interval.
    half_width: f64,
}

/// Shares are judged as if at least this far from 0 and 1: a logit is infinite there.
const SHARE_MIN: f64 = 1e-4;

impl Between {
    /// Estimates the variation from the steps that were fitted; zero if there are fewer than two.
    pub(crate) fn of(rows: &[Row]) -> Between {
        let fitted = rows.iter().filter(|row| row.used_for_fit);
        let excess: Vec<f64> = fitted.clone().filter_map(excess).collect();
        let mut steps: Vec<&str> = fitted.map(|row| row.step.as_str()).collect();
        steps.dedup();
        if steps.len() < 2 || excess.is_empty() {
            return Between { half_width: 0.0 };
        }
        let variance = excess.iter().sum::<f64>() / excess.len() as f64;
        let quantile = student_95(steps.len() - 1);
        Between { half_width: quantile * variance.max(0.0).sqrt() }
    }

    /// The interval of what a row's step will measure. `None` without a prediction.
    pub(crate) fn expected(&self, row: &Row) -> Option<Expected> {
        let predicted = row.concertina.as_ref()?;
        let slope = slope(predicted.value);
        let noise = noise(row);
        let end =
            |known: f64| (known.powi(2) + noise.powi(2) + (self.half_width * slope).powi(2)).sqrt();
        let low = (predicted.value - end(predicted.value - predicted.low)).max(0.0);
        let high = (predicted.value + end(predicted.high - predicted.value)).min(1.0);
        let inside = (low..=high).contains(&row.measured.value);
        Some(Expected { low, high, inside })
    }
}

/// The change of a share for a change of its logit.
fn slope(share: f64) -> f64 {
    let share = share.clamp(SHARE_MIN, 1.0 - SHARE_MIN);
    share * (1.0 - share)
}

/// Half the width of a measurement's own 95 % interval: from batches of its windows, and no less than
/// independent requests would give.
fn noise(row: &Row) -> f64 {
    let independent = match row.requests {
        0 => 0.0,
        n => 1.96 * (slope(row.measured.value) / n as f64).sqrt(),
    };
    row.measured.half_width.unwrap_or(0.0).max(independent)
}

/// The squared error of a fitted row beyond its own noise, on the logit scale.
fn excess(row: &Row) -> Option<f64> {
    let predicted: &Parameter = row.concertina.as_ref()?;
    let logit = |share: f64| {
        let share = share.clamp(SHARE_MIN, 1.0 - SHARE_MIN);
        (share / (1.0 - share)).ln()
    };
    let error = logit(row.measured.value) - logit(predicted.value);
    let noise = noise(row) / 1.96 / slope(row.measured.value);
    Some(error * error - noise * noise)
}

/// How many held-out rows have an expected interval, and how many of their measurements fell inside.
pub fn coverage(rows: &[Row]) -> (usize, usize) {
    let held_out = rows.iter().filter(|row| !row.used_for_fit);
    let judged: Vec<bool> = held_out.filter_map(|row| Some(row.expected?.inside)).collect();
    (judged.iter().filter(|inside| **inside).count(), judged.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Estimate;

    fn row(step: &str, fitted: bool, measured: f64, predicted: f64) -> Row {
        let unit = "1".to_owned();
        let low_high = (predicted - 0.002, predicted + 0.002);
        Row {
            step: step.to_owned(),
            rate: 100.0,
            requests: 10_000,
            utilisation: 0.5,
            within_s: 0.05,
            measured: Estimate { value: measured, half_width: Some(0.004), batches: 10 },
            concertina: Some(Parameter {
                value: predicted,
                low: low_high.0,
                high: low_high.1,
                unit,
            }),
            spotify: None,
            concertina_error_points: Some((predicted - measured) * 100.0),
            spotify_error_points: None,
            beyond_limit: false,
            beyond_fitted: false,
            beyond_trust: false,
            used_for_fit: fitted,
            expected: None,
        }
    }

    #[test]
    fn the_interval_holds_the_measurements_noise() {
        let calm = Between::of(&[row("a", true, 0.90, 0.90), row("b", true, 0.80, 0.80)]);
        assert_eq!(calm, Between { half_width: 0.0 });
        let expected = calm.expected(&row("c", false, 0.705, 0.70)).unwrap();
        // The binomial noise of 10,000 requests is larger than the batches' here: 0.9 points.
        assert!((expected.high - 0.7092).abs() < 2e-4 && expected.inside, "{expected:?}");
        assert!(!calm.expected(&row("c", false, 0.715, 0.70)).unwrap().inside);
    }

    #[test]
    fn what_differs_between_runs_widens_the_interval() {
        let rows =
            [row("a", true, 0.93, 0.90), row("b", true, 0.76, 0.80), row("c", true, 0.7, 0.7)];
        let between = Between::of(&rows);
        assert!(between.half_width > 0.5, "{between:?}");
        let near_one = between.expected(&row("d", false, 0.99, 0.995)).unwrap();
        let middle = between.expected(&row("d", false, 0.5, 0.55)).unwrap();
        assert!(middle.high - middle.low > 5.0 * (near_one.high - near_one.low));
        assert!(near_one.high <= 1.0 && middle.inside);
    }

    #[test]
    fn only_held_out_rows_count() {
        let mut rows =
            vec![row("a", true, 0.9, 0.9), row("b", false, 0.8, 0.8), row("c", false, 0.5, 0.8)];
        let between = Between::of(&rows);
        let expected: Vec<_> = rows.iter().map(|row| between.expected(row)).collect();
        rows.iter_mut().zip(expected).for_each(|(row, expected)| row.expected = expected);
        assert_eq!(coverage(&rows), (1, 2));
    }
}
