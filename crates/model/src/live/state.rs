//! The predictions of a live model: the body of `GET /model`.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fit::Change;
use crate::model_file::Parameter;

use super::score::{Scored, Summary};
use super::station::Station;

/// How the shares of the present are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Nothing has been seen.
    #[default]
    None,
    /// The responses of the last window, at any load: no model could be fitted.
    Recent,
    /// A fitted model of the node and its devices.
    Fitted,
}

/// The requests of the sliding window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentRequests {
    /// Number of requests answered.
    pub requests: u64,
    /// Share answered within the objective.
    pub within: Option<f64>,
    /// Median response, seconds.
    pub p50_s: Option<f64>,
    /// The response that 99 % do not exceed, seconds.
    pub p99_s: Option<f64>,
    /// Share answered from memory.
    pub hit_ratio: Option<f64>,
    /// Variance over mean of the counts of arrivals: 1 for Poisson arrivals.
    pub dispersion: Option<f64>,
    /// Share of the requests that each part answered, by the outcome's name.
    pub outcomes: Vec<(String, f64)>,
}

/// What is predicted at a multiple of the present load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtLoad {
    /// The multiple.
    pub times: f64,
    /// The load, requests/s.
    pub rate: f64,
    /// P(T ≤ objective); `None` past saturation, and without a model at any other load.
    pub within: Option<Parameter>,
    /// Median response, seconds.
    pub p50_s: Option<f64>,
    /// The response that 99 % do not exceed, seconds.
    pub p99_s: Option<f64>,
    /// Whether the load is past the confidence limit. Wherever these figures are shown, mark them as extrapolated.
    pub beyond_limit: bool,
}

/// The prediction for a time to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// That time, microseconds since 1970-01-01 UTC.
    pub at_unix_us: u64,
    /// Expected load, requests/s.
    pub rate: f64,
    /// The lower end of its 95 % interval, from what earlier forecasts missed.
    pub rate_low: f64,
    /// The upper end.
    pub rate_high: f64,
    /// P(T ≤ objective); its interval covers the predictions at all loads between `rate_low` and `rate_high`.
    pub within: Parameter,
    /// Whether the objective is expected to be missed.
    pub misses: bool,
    /// Whether the upper end of the load's interval saturates a queue, so that the share may fall to 0. Say so wherever
    /// these figures are shown.
    pub may_saturate: bool,
}

/// The largest load that holds the objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// The largest load that holds the objective, as a multiple of the present one, with its 95 %
    /// interval.
    pub times: Parameter,
    /// That load in requests/s, with its 95 % interval.
    pub rate: Parameter,
    /// The confidence limit: the load up to which the model is trusted, requests/s. Headroom beyond it is
    /// extrapolated.
    pub confidence_limit: f64,
    /// Whether the largest load is past that limit.
    pub beyond_limit: bool,
    /// The load at which the first resource saturates, requests/s.
    pub saturation: f64,
    /// The queue or resource that saturates first.
    pub breaks_first: Option<String>,
}

/// A point of the response times' distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The time, seconds.
    pub t_s: f64,
    /// Measured share within it.
    pub measured: f64,
    /// Predicted share; `None` without a model.
    pub predicted: Option<f64>,
    /// The share by the published model; `None` without a model, where that is not stable, and from servers that do not report it.
    #[serde(default)]
    pub published: Option<f64>,
}

/// Why the last minute cannot be fitted, for who watches a server. The text of a fit that was asked for tells who measures what to
/// measure instead.
pub(super) fn why_not(error: &Error) -> String {
    match error {
        Error::NoCompletions | Error::NoDeviceWindows { .. } => {
            "no request of the last minute was served by a device of this process".to_owned()
        }
        Error::NoClientWindows { .. } => {
            "a part of the last minute has no answered reads".to_owned()
        }
        Error::Overloaded { .. } => {
            "a device is always busy and its queue grows, as this load is past saturation; it takes fewer requests, \
             or more devices or memory"
                .to_owned()
        }
        Error::Stalled { .. } => {
            "replies fell behind requests although no device was always busy: something before the devices \
             limits the load"
                .to_owned()
        }
        Error::DeviceCount { .. } => {
            "the number of devices changed within the last minute".to_owned()
        }
        error => error.to_string(),
    }
}

/// The predictions of a live model, with what it measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The time of the objective, seconds.
    pub objective_s: f64,
    /// The share of the objective.
    pub share: f64,
    /// The end of the data, microseconds since 1970-01-01 UTC.
    pub at_unix_us: u64,
    /// Length of the data, seconds.
    pub window_s: f64,
    /// How the shares are predicted.
    pub method: Method,
    /// Why there is no fitted model.
    pub why_not_fitted: Option<String>,
    /// When the model was fitted, microseconds since 1970-01-01 UTC.
    pub fitted_unix_us: Option<u64>,
    /// Number of fits so far.
    pub fits: u64,
    /// Present load, requests/s.
    pub rate: f64,
    /// The requests of the window.
    pub measured: RecentRequests,
    /// Predictions at 1, 1.5 and 2 times the load.
    pub loads: Vec<AtLoad>,
    /// The prediction for the time ahead.
    pub ahead: Option<Ahead>,
    /// The largest load that holds the objective; `None` without a model.
    pub headroom: Option<Headroom>,
    /// Changes that were detected, newest last: at most 16.
    pub changes: Vec<Change>,
    /// Each queue.
    pub stations: Vec<Station>,
    /// The response times' distribution.
    pub curve: Vec<CurvePoint>,
    /// The errors of past predictions.
    pub errors: Summary,
    /// Past predictions with what happened, oldest first: at most 60.
    pub scored: Vec<Scored>,
    /// Why the model's advice is withheld; `None` if it is followed.
    pub withheld: Option<String>,
    /// Warnings of the fit.
    pub warnings: Vec<String>,
}
