//! A measured share beside its predictions, and the interval in which it was expected.

use model::Parameter;
use serde::Serialize;

use super::measured::Estimate;

/// One measured share with its predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The step's name.
    pub step: String,
    /// Measured load, requests/s. The predictions are for this load.
    pub rate: f64,
    /// Reads that were measured.
    pub requests: u64,
    /// Measured mean utilisation of the devices, or the predicted one where the runs have no device
    /// queues.
    pub utilisation: f64,
    /// The time, seconds.
    pub within_s: f64,
    /// The share that was answered in time.
    pub measured: Estimate,
    /// Prediction of Concertina's model; `None` if the model considers the load unstable.
    pub concertina: Option<Parameter>,
    /// Prediction of the Spotify model; `None` if unstable.
    pub spotify: Option<Parameter>,
    /// Our model minus the measurement, in points (hundredths).
    pub concertina_error_points: Option<f64>,
    /// The Spotify model minus the measurement, in points.
    pub spotify_error_points: Option<f64>,
    /// Whether the load is past our confidence limit.
    pub beyond_limit: bool,
    /// Whether the load is larger than every fitted load.
    pub beyond_fitted: bool,
    /// Whether the load is past the load up to which the model is trusted.
    pub beyond_trust: bool,
    /// Whether the model was fitted to this step; otherwise the step was held out.
    pub used_for_fit: bool,
    /// The disturbances of the step by the generator or its machine ([`super::measured::StepFigures::marks`]).
    pub marks: Vec<String>,
    /// The interval in which the measurement was expected; `None` without a prediction.
    pub expected: Option<Expected>,
}

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
