//! Compares past predictions with what was then measured.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model_file::{Model, Parameter};
use crate::statistics::quantile;

/// Scored predictions that are remembered.
const REMEMBERED: usize = 60;
/// The fewest requests of an interval that is scored: with fewer, chance is most of the error.
const REQUESTS_MIN: u64 = 30;
/// The fewest scored predictions that say something about the predictor.
const SCORED_MIN: usize = 3;

/// A prediction that waits for its time.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// The predicted time, microseconds since 1970-01-01 UTC.
    pub at_us: u64,
    pub rate: f64,
    pub within: Parameter,
    /// The share measured when the prediction was made: the prediction of a predictor that expects no change.
    pub last: f64,
    /// Variance of the share over that of independent requests.
    pub overdispersion: f64,
    pub model: Option<Arc<Model>>,
}

/// A prediction and what happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// The predicted time, microseconds since 1970-01-01 UTC.
    pub at_unix_us: u64,
    /// Predicted arrival rate, 1/s.
    pub rate_predicted: f64,
    /// Measured arrival rate, 1/s.
    pub rate: f64,
    /// Predicted share within the objective.
    pub predicted: Parameter,
    /// Measured share.
    pub measured: f64,
    /// Requests of the interval.
    pub requests: u64,
    /// Error of the prediction, points: predicted less measured.
    pub error_points: f64,
    /// Error of the model at the rate that was then measured, so without the error of the expected
    /// rate. `None` without a model, or past its saturation.
    pub error_at_rate_points: Option<f64>,
    /// Error of predicting no change.
    pub error_unchanged_points: f64,
    /// Whether the measured share is in the predicted interval, widened by the sampling error of the
    /// measured share.
    pub covered: bool,
}

/// The errors of recent predictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of predictions that were compared, of the last 60.
    pub count: usize,
    /// Median of the errors without their signs, points.
    pub median_points: Option<f64>,
    /// Largest of them.
    pub worst_points: Option<f64>,
    /// Median error of the model at the rates that were then measured.
    pub median_at_rate_points: Option<f64>,
    /// Median error of predicting no change.
    pub median_unchanged_points: Option<f64>,
    /// Share of the predictions whose interval contained the measured share.
    pub coverage: Option<f64>,
}

/// The predictions of a live model, waiting and scored.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores {
    waiting: VecDeque<Pending>,
    scored: VecDeque<Scored>,
}

impl Scores {
    pub fn expect(&mut self, pending: Pending) {
        if self.waiting.len() < 1000 {
            self.waiting.push_back(pending);
        }
    }

    /// The next prediction whose time has come by `now_us`.
    pub fn due(&mut self, now_us: u64) -> Option<Pending> {
        if self.waiting.front()?.at_us > now_us { None } else { self.waiting.pop_front() }
    }

    /// Compares a prediction with `requests` measured ones, of which `within` were answered within `t_s`.
    pub fn score(&mut self, due: &Pending, rate: f64, within: u64, requests: u64, t_s: f64) {
        if requests < REQUESTS_MIN {
            return;
        }
        let measured = within as f64 / requests as f64;
        let at_rate = due.model.as_ref().and_then(|m| m.cdf(rate, &[t_s]).ok());
        let at_rate = at_rate.and_then(|cdf| cdf.first().copied());
        let independent = requests as f64 / due.overdispersion.max(1.0);
        let chance = |p: f64| 1.96 * (p * (1.0 - p) / independent).sqrt() + 0.5 / independent;
        let (low, high) = (due.within.low, due.within.high);
        let covered = measured >= low - chance(low) && measured <= high + chance(high);
        if self.scored.len() >= REMEMBERED {
            self.scored.pop_front();
        }
        self.scored.push_back(Scored {
            at_unix_us: due.at_us,
            rate_predicted: due.rate,
            rate,
            predicted: due.within.clone(),
            measured,
            requests,
            error_points: 100.0 * (due.within.value - measured),
            error_at_rate_points: at_rate.map(|p| 100.0 * (p - measured)),
            error_unchanged_points: 100.0 * (due.last - measured),
            covered,
        });
    }

    pub fn scored(&self) -> impl Iterator<Item = &Scored> {
        self.scored.iter()
    }

    pub fn summary(&self) -> Summary {
        let errors = |f: &dyn Fn(&Scored) -> Option<f64>| -> Vec<f64> {
            self.scored.iter().filter_map(f).map(f64::abs).collect()
        };
        let all = errors(&|s| Some(s.error_points));
        let covered = self.scored.iter().filter(|s| s.covered).count();
        let count = self.scored.len();
        Summary {
            count,
            median_points: quantile(&all, 0.5),
            worst_points: all.iter().copied().reduce(f64::max),
            median_at_rate_points: quantile(&errors(&|s| s.error_at_rate_points), 0.5),
            median_unchanged_points: quantile(&errors(&|s| Some(s.error_unchanged_points)), 0.5),
            coverage: (count > 0).then(|| covered as f64 / count as f64),
        }
    }

    /// Why advice is withheld; `None` if it is not.
    pub fn doubt(&self, error_points_max: f64) -> Option<String> {
        let summary = self.summary();
        if summary.count < SCORED_MIN {
            return Some(format!(
                "{} of {SCORED_MIN} predictions have been compared with what happened",
                summary.count
            ));
        }
        // The last ten: after a change the predictor must be able to win trust again.
        let last: Vec<f64> =
            self.scored.iter().rev().take(10).map(|s| s.error_points.abs()).collect();
        let median = quantile(&last, 0.5)?;
        (median > error_points_max).then(|| {
            format!(
                "the median error of the last {} predictions is {median:.1} points, more than \
                 {error_points_max}",
                last.len()
            )
        })
    }
}
