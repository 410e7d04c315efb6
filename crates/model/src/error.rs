//! The error type of the crate.

use ground::number::{self, digits, exact};
use thiserror::Error;

/// The reason why a law, a queue, a fit or a prediction could not be computed. Each message says
/// what to do.
///
/// Arguments for which a formula does not hold are rejected when the value is constructed or
/// evaluated.
///
/// ```
/// use model::{Error, queue::Mm1};
/// let error = Mm1::new(120.0, 100.0).unwrap_err();
/// assert_eq!(error, Error::Unstable { rate: 120.0, saturation: 100.0 });
/// assert!(error.to_string().contains("saturates at 100 requests/s"));
/// ```
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A number is not finite or not within its range.
    #[error("{what} is {}: it must be {must}", in_words(*value))]
    Invalid {
        /// The quantity.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The condition that it must meet.
        must: &'static str,
    },
    /// The load is at or past the saturation of the devices, the link or the workers, so queues
    /// grow without bound.
    #[error(
        "{} requests/s is not stable: the service saturates at {} requests/s; \
         lower the rate, or add servers, or add what saturates first (devices, memory, link, workers)",
        digits(*rate, 4), digits(*saturation, 4)
    )]
    Unstable {
        /// The load in requests/s.
        rate: f64,
        /// The smallest load at which a device, the link or the workers are always busy,
        /// requests/s.
        saturation: f64,
    },
    /// No load, however small, meets the objective.
    #[error(
        "no load keeps {} % within {}: even an idle system keeps {} %; \
         relax the objective or make the service faster",
        digits(share * 100.0, 6), number::time(*within_s), digits(best * 100.0, 4)
    )]
    Unattainable {
        /// The share of the objective.
        share: f64,
        /// The time of the objective in seconds.
        within_s: f64,
        /// The share that an idle system answers within that time.
        best: f64,
    },
    /// No step is steady: in this one, replies fell behind arrivals although no device was
    /// saturated.
    #[error(
        "step {step}: replies fell behind arrivals although no device was saturated, so something before \
         the devices limits the load; measure a lighter load as well"
    )]
    Stalled {
        /// The step's name.
        step: String,
    },
    /// The fit has no steps.
    #[error("nothing to fit: no steps; give at least one steady interval of windows")]
    NoSteps,
    /// A step has no windows of a queue on the clients' side.
    #[error(
        "step {step}: no windows of `load`, `gateway` or `node` with answered reads; measure one of them"
    )]
    NoClientWindows {
        /// The step's name.
        step: String,
    },
    /// A step has no recorded times of arrival and departure, or too few.
    #[error(
        "step {step}: too few recorded times of arrival and departure (a run's `times`) of requests that were answered without an \
         error; measure longer, or fit the response times alone"
    )]
    NoTimes {
        /// The step's name.
        step: String,
    },
    /// A step has no device windows.
    #[error(
        "step {step}: no windows of any `device/N`; record the node's device queues in the run"
    )]
    NoDeviceWindows {
        /// The step's name.
        step: String,
    },
    /// No device completed a read.
    #[error("no device completed a read in any step; raise the load or lower the hit ratio")]
    NoCompletions,
    /// The steps have different numbers of devices.
    #[error(
        "step {step}: {got} device queues where the first step has {expected}; fit one configuration at a time"
    )]
    DeviceCount {
        /// The step's name.
        step: String,
        /// Devices of the first step.
        expected: usize,
        /// Devices of this step.
        got: usize,
    },
    /// A device queue has an unlimited number of servers.
    #[error(
        "queue {queue}: its number of servers is not limited, so requests never wait; set the device's \
         parallel reads"
    )]
    Unlimited {
        /// The queue's name.
        queue: String,
    },
    /// A fitted step was saturated, so it is not a steady interval.
    #[error(
        "step {step}: device utilisation {utilisation:.3} is not a steady state; fit loads below saturation"
    )]
    Overloaded {
        /// The step's name.
        step: String,
        /// Busy share of the busiest device.
        utilisation: f64,
    },
    /// Two servers of a cluster have the same name.
    #[error("the cluster has two servers named {name:?}; give each server a different name")]
    NodeTwice {
        /// The name.
        name: String,
    },
    /// The cluster has no server of this name.
    #[error("the cluster has no server {name:?}; it has {known}")]
    NoSuchNode {
        /// The name.
        name: String,
        /// The names of its servers.
        known: String,
    },
    /// The number of shares differs from the number of servers.
    #[error(
        "{got} shares for {expected} servers; give one share of the requests for each server, in order"
    )]
    Shares {
        /// Number of servers.
        expected: usize,
        /// Number of shares.
        got: usize,
    },
    /// A part of a network of queues is invalid.
    #[error("{place}: {what}")]
    Network {
        /// The station, class or matrix.
        place: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Open classes alone bring more work to a station than it can do.
    #[error(
        "station {station:?}: open classes bring {load:.4} seconds of work per second, but the station \
         does at most {limit:.4}, so its queue grows without bound; lower their rates or demands, or add \
         servers"
    )]
    StationUnstable {
        /// The station.
        station: String,
        /// Work that arrives each second, in seconds of one server.
        load: f64,
        /// The most it can do.
        limit: f64,
    },
    /// More customers than a measured throughput curve reaches.
    #[error(
        "station {station:?}: its throughput was measured with up to {measured} inside, but {customers} \
         customers are possible; measure more, or use fewer customers (a curve is not extrapolated)"
    )]
    PastCurve {
        /// The station.
        station: String,
        /// The last measured number.
        measured: usize,
        /// The number that may be inside.
        customers: usize,
    },
    /// An exact solution that would take too long.
    #[error("{what} would take {steps:.1e} steps, more than {limit:.0e}; {advice}")]
    TooMuchWork {
        /// The computation.
        what: &'static str,
        /// The number of steps that it takes.
        steps: f64,
        /// The largest allowed number of steps.
        limit: f64,
        /// What to do instead.
        advice: &'static str,
    },
    /// An iteration did not converge.
    #[error(
        "the approximation did not converge in {rounds} rounds; solve exactly with smaller populations, or \
         look for demands that differ by many orders of magnitude"
    )]
    NoConvergence {
        /// Number of rounds.
        rounds: usize,
    },
    /// Fewer observations than parameters, or not enough different ones.
    #[error("{what}: {got} of the {need} that are needed; {todo}")]
    TooFew {
        /// What was counted.
        what: String,
        /// How many there are.
        got: usize,
        /// How many are needed.
        need: usize,
        /// What to measure.
        todo: &'static str,
    },
    /// Measurements that contradict the assumptions of the model.
    #[error("{what} contradict each other: {why}")]
    Contradictory {
        /// The measurements.
        what: String,
        /// What is wrong with them, and what to do.
        why: String,
    },
    /// A size was not measured, and there are too few sizes to interpolate.
    #[error(
        "{size_bytes} bytes were not measured (measured: {known}); measure that size, or at least two \
         sizes so that a cost affine in size can be fitted"
    )]
    SizeNotMeasured {
        /// The requested size in bytes.
        size_bytes: f64,
        /// The sizes that were measured, bytes.
        known: String,
    },
    /// A design of experiments is malformed.
    #[error("{what}: {why}")]
    Design {
        /// The part of the design.
        what: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// Combinations of levels have no run.
    #[error(
        "{missing} of the {cells} combinations of levels have no run, the first being {first}; run them, \
         or leave a factor out"
    )]
    MissingCells {
        /// The first combination without a run.
        first: String,
        /// Number of combinations without a run.
        missing: usize,
        /// Number of combinations.
        cells: usize,
    },
    /// Cells have different numbers of replications.
    #[error(
        "{cell} has {got} runs where {other} has {expected}; repeat every combination of levels equally often"
    )]
    Unbalanced {
        /// The cell.
        cell: String,
        /// The number of its runs.
        got: usize,
        /// A cell with another number of runs.
        other: String,
        /// The number of runs of `other`.
        expected: usize,
    },
    /// All observations are equal.
    #[error(
        "all {count} observations are {value}: there is no variation to explain; check the response column"
    )]
    NoVariation {
        /// Number of observations.
        count: usize,
        /// Their value.
        value: f64,
    },
    /// A hit ratio cannot be reached.
    #[error(
        "a hit ratio of {:.2} % cannot be reached: at most {:.2} % of these requests find their object; \
         lower the hit ratio, or use more memory or more requests",
        hit_ratio * 100.0, best * 100.0
    )]
    HitRatio {
        /// The requested hit ratio.
        hit_ratio: f64,
        /// The highest possible hit ratio.
        best: f64,
    },
    /// The choices of a plan are invalid.
    #[error("choices: {0}")]
    Choices(String),
    /// A what-if question that needs what the model does not have.
    #[error("{0}")]
    WhatIf(String),
    /// A model file is malformed or inconsistent.
    #[error("model file: {0}")]
    File(String),
}

impl Error {
    /// What is wrong with one of `servers` that share a load, in terms of all of them.
    pub(crate) fn of_servers(self, servers: f64) -> Error {
        match self {
            Error::Unstable { rate, saturation } => {
                Error::Unstable { rate: rate * servers, saturation: saturation * servers }
            }
            other => other,
        }
    }
}

/// Checks that a number is finite and within `low..=high`.
pub(crate) fn check(
    what: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    must: &'static str,
) -> Result<f64, Error> {
    if value.is_finite() && range.contains(&value) {
        Ok(value)
    } else {
        Err(Error::Invalid { what, value, must })
    }
}

/// A number in a sentence.
fn in_words(value: f64) -> String {
    if value.is_nan() { "not a number".to_owned() } else { exact(value) }
}

/// Checks that a number is finite and above 0.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, Error> {
    check(what, value, f64::MIN_POSITIVE..=f64::MAX, "a finite number above 0")
}

/// How near to its saturation a load, relatively, is that load: the saturation is computed from means and numbers of servers,
/// each rounded (two servers of 10 ms were stable at 200/s, with responses of a million hours).
const ROUNDING: f64 = 1e-13;

/// Whether a load is below a saturation in the same unit.
pub(crate) fn is_stable(rate: f64, saturation: f64) -> bool {
    rate < saturation * (1.0 - ROUNDING)
}

/// Checks that a number is finite and at least 0.
pub(crate) fn not_negative(what: &'static str, value: f64) -> Result<f64, Error> {
    check(what, value, 0.0..=f64::MAX, "a finite number, at least 0")
}

/// Checks that a number is a valid time in seconds: from 1 ps to 30,000 years, so that no formula
/// overflows an f64.
pub(crate) fn time(what: &'static str, value: f64) -> Result<f64, Error> {
    check(what, value, 1e-12..=1e12, "a time in seconds from 1e-12 to 1e12")
}
