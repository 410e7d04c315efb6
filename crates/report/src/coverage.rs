//! Intervals of what will be *measured*, and how often measurements fell inside of them.
//!
//! The interval of a predicted share says how well the model knows the share's mean. A measurement differs
//! from it for two more reasons: its own noise (it counts a finite number of requests, which come in
//! bursts), and whatever differs from one run to the next (other keys are popular, a device is slower). The
//! latter acts like another load: it is estimated from the steps that the model was fitted to, as the
//! variance of (measured / predicted utilisation), and carried into a share by predicting at loads that
//! differ by as much. The three are independent and add in squares.
//!
//! With few fitted steps the variance between runs is poorly known; Student's quantile widens for it. The mean
//! of n fitted steps, on which the model rests, varies likewise by 1/n of that variance.

use model::Model;
use model::statistics::student_95;

use crate::error::Error;
use crate::row::Row;

pub use crate::row::Expected;

/// Shares are taken as at least this far from 0 and 1 where their noise is computed.
const SHARE_MIN: f64 = 1e-4;

/// The variation between runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// Half the width of the 95 % interval of (load that acts / load that was offered).
    half_width: f64,
}

impl Between {
    /// The variation between the steps that models were fitted to: of one server, or of the nodes of a cluster,
    /// whose utilisations add up.
    pub(crate) fn of_models<'a>(models: impl IntoIterator<Item = &'a Model>) -> Between {
        let mut sums: Vec<(f64, f64)> = Vec::new();
        for model in models {
            sums.resize(sums.len().max(model.fitted.len()), (0.0, 0.0));
            for (sum, step) in sums.iter_mut().zip(&model.fitted) {
                sum.0 += step.utilisation;
                sum.1 += step.utilisation_predicted;
            }
        }
        Between::from_utilisations(&sums)
    }

    /// Estimates the variation from measured and predicted utilisations of the fitted steps; zero if there
    /// are fewer than two.
    fn from_utilisations(utilisations: &[(f64, f64)]) -> Between {
        let known =
            utilisations.iter().filter(|(measured, predicted)| *measured > 0.0 && *predicted > 0.0);
        let ratios: Vec<f64> = known.map(|(measured, predicted)| measured / predicted).collect();
        if ratios.len() < 2 {
            return Between { half_width: 0.0 };
        }
        // About 1, the fit's own mean: one degree of freedom went into it.
        let degrees = ratios.len() - 1;
        let variance = ratios.iter().map(|r| (r - 1.0).powi(2)).sum::<f64>() / degrees as f64;
        // A further run varies, and so does the mean of the fitted ones, which the model resamples within
        // steps only.
        let both = variance * (1.0 + 1.0 / ratios.len() as f64);
        Between { half_width: student_95(degrees) * both.sqrt() }
    }

    /// The loads that `rate` may act like.
    fn rates(&self, rate: f64) -> [f64; 2] {
        [rate * (1.0 + self.half_width), rate * (1.0 - self.half_width).max(0.0)]
    }
}

/// Sets the interval in which the measurement of each of a step's rows is expected. `predict` gives the shares of
/// the rows at another load, zeros where it is unstable.
pub(crate) fn expect(
    rows: &mut [Row],
    between: &Between,
    rate: f64,
    mut predict: impl FnMut(f64) -> Result<Vec<f64>, Error>,
) -> Result<(), Error> {
    let [more, less] = between.rates(rate);
    let (more, less) = (predict(more)?, predict(less)?);
    for (row, (more, less)) in rows.iter_mut().zip(more.into_iter().zip(less)) {
        row.expected = expected(row, [more, less]);
    }
    Ok(())
}

/// The interval of what a row's step measures. `shifted` are the shares predicted for [`Between::rates`],
/// the larger load first. `None` without a prediction.
fn expected(row: &Row, shifted: [f64; 2]) -> Option<Expected> {
    let predicted = row.concertina.as_ref()?;
    let noise = noise(row, predicted.value);
    let end = |known: f64, between: f64| (known.powi(2) + noise.powi(2) + between.powi(2)).sqrt();
    let value = predicted.value;
    let low = (value - end(value - predicted.low, value - shifted[0])).max(0.0);
    let high = (value + end(predicted.high - value, shifted[1] - value)).min(1.0);
    let inside = (low..=high).contains(&row.measured.value);
    Some(Expected { low, high, inside })
}

/// The variance of one request's being within the time.
fn variance(share: f64) -> f64 {
    let share = share.clamp(SHARE_MIN, 1.0 - SHARE_MIN);
    share * (1.0 - share)
}

/// Half the width of a measurement's own 95 % interval: from batches of its windows, and no less than
/// independent requests would give, of the measured share or of the predicted one. (Where one request in a
/// thousand is late, a measurement may well have met none, and its own interval then knows nothing of them.)
fn noise(row: &Row, predicted: f64) -> f64 {
    let independent = match row.requests {
        0 => 0.0,
        n => {
            let of_one = variance(row.measured.value).max(variance(predicted));
            1.96 * (of_one / n as f64).sqrt()
        }
    };
    row.measured.half_width.unwrap_or(0.0).max(independent)
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
    use model::Parameter;

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
            marks: Vec::new(),
            expected: None,
        }
    }

    #[test]
    fn the_interval_holds_the_measurements_noise() {
        let expected = |measured| expected(&row("c", false, measured, 0.70), [0.70, 0.70]).unwrap();
        // The noise of 10,000 independent requests is larger than that of the batches here: 0.9 points.
        assert!((expected(0.705).high - 0.7092).abs() < 2e-4 && expected(0.705).inside);
        assert!(!expected(0.715).inside);
    }

    #[test]
    fn a_measurement_without_late_requests_may_have_met_none_by_chance() {
        // Of 4,000 requests 3 would be late on average, and none was.
        let mut none = row("d", false, 1.0, 0.9992);
        none.measured.half_width = Some(0.0003);
        none.concertina.iter_mut().for_each(|p| (p.low, p.high) = (0.9987, 0.9996));
        none.requests = 4_000;
        let at = [0.9992, 0.9992];
        assert!(!expected(&Row { requests: 1_000_000, ..none.clone() }, at).unwrap().inside);
        assert!(expected(&none, at).unwrap().inside, "{:?}", expected(&none, at));
    }

    #[test]
    fn what_differs_between_runs_widens_the_interval() {
        assert_eq!(Between::from_utilisations(&[(0.5, 0.5)]), Between { half_width: 0.0 });
        let between =
            Between::from_utilisations(&[(0.51, 0.5), (0.588, 0.6), (0.707, 0.7), (0.8, 0.8)]);
        let [more, less] = between.rates(1000.0);
        assert!(
            (more - 1061.6).abs() < 0.5 && (more + less - 2000.0).abs() < 1e-9,
            "{more} {less}"
        );
        let wide = expected(&row("d", false, 0.55, 0.60), [0.50, 0.68]).unwrap();
        assert!(wide.inside && wide.low < 0.501 && wide.high > 0.679, "{wide:?}");
        let at_one = expected(&row("d", false, 1.0, 0.999), [0.99, 1.0]).unwrap();
        assert!(at_one.high <= 1.0 && at_one.inside);
    }

    #[test]
    fn only_held_out_rows_count() {
        let mut rows =
            vec![row("a", true, 0.9, 0.9), row("b", false, 0.8, 0.8), row("c", false, 0.5, 0.8)];
        for row in &mut rows {
            let same = row.concertina.as_ref().map_or(0.0, |p| p.value);
            row.expected = expected(row, [same, same]);
        }
        assert_eq!(coverage(&rows), (1, 2));
    }
}
