//! The one error of the crate.

use thiserror::Error;

/// Why a law, a queue, a fit or a prediction could not be made. Messages say what to do.
///
/// What a formula does not hold for is refused as one of these, where it is built or asked.
///
/// ```
/// use model::{Error, queue::Mm1};
/// let error = Mm1::new(120.0, 100.0).unwrap_err();
/// assert_eq!(error, Error::Unstable { rate: 120.0, saturation: 100.0 });
/// assert!(error.to_string().contains("saturates at 100.0"));
/// ```
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A number that must be finite and in a range was not.
    #[error("{what} is {value}: it must be {must}")]
    Invalid {
        /// What the number stands for.
        what: &'static str,
        /// What it was.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// The load is at or past what the devices, the link or the workers can serve, so queues grow without bound.
    #[error(
        "{rate:.1} requests/s is not stable: the service saturates at {saturation:.1} requests/s; \
         ask for less, or add servers, or what breaks first (devices, memory; a link, workers)"
    )]
    Unstable {
        /// The load that was asked for, requests/s.
        rate: f64,
        /// The load at which what breaks first is always busy, requests/s.
        saturation: f64,
    },
    /// No load, however small, keeps that share within that time.
    #[error(
        "no load keeps {:.3} % within {:.3} ms: even an idle system keeps {:.3} %; \
         relax the objective or make the service faster",
        share * 100.0, within_s * 1e3, best * 100.0
    )]
    Unattainable {
        /// The share that was asked for.
        share: f64,
        /// Within this many seconds.
        within_s: f64,
        /// The share that an idle system keeps.
        best: f64,
    },
    /// No step is steady, and in this one replies fell behind arrivals though no device was saturated.
    #[error(
        "step {step}: replies fell behind arrivals though no device was saturated, so the limit is before them; \
         measure a lighter load as well"
    )]
    Stalled {
        /// The step's name.
        step: String,
    },
    /// A fit without steps.
    #[error("nothing to fit: no steps; give at least one steady interval of windows")]
    NoSteps,
    /// A step without the windows of any queue that sees clients.
    #[error(
        "step {step}: no windows of `load`, `gateway` or `node` with answered reads; measure one of them"
    )]
    NoClientWindows {
        /// The step's name.
        step: String,
    },
    /// A step without device windows.
    #[error(
        "step {step}: no windows of any `device/N`; record the node's device queues in the run"
    )]
    NoDeviceWindows {
        /// The step's name.
        step: String,
    },
    /// Device windows in which nothing was served.
    #[error("no device completed a read in any step; raise the load or lower the hit ratio")]
    NoCompletions,
    /// Steps of different systems.
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
    /// A device queue without a stated number of servers.
    #[error(
        "queue {queue}: its number of servers is not limited, so it is no queue; set the device's parallel reads"
    )]
    Unlimited {
        /// The queue's name.
        queue: String,
    },
    /// A fitted step was not stable, so it is not a steady interval.
    #[error(
        "step {step}: utilisation {utilisation:.3} of its devices is no steady state; fit loads below saturation"
    )]
    Overloaded {
        /// The step's name.
        step: String,
        /// Busy share of the busiest device.
        utilisation: f64,
    },
    /// Two servers of a cluster with one name.
    #[error("the cluster has two servers {name:?}: give each a name of its own")]
    NodeTwice {
        /// The name.
        name: String,
    },
    /// A server that the cluster does not have.
    #[error("the cluster has no server {name:?}; it has {known}")]
    NoSuchNode {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Shares for another number of servers.
    #[error(
        "{got} shares for {expected} servers: give each its share of the requests, in their order"
    )]
    Shares {
        /// Servers.
        expected: usize,
        /// Shares.
        got: usize,
    },
    /// A part of a network of queues that is not right.
    #[error("{place}: {what}")]
    Network {
        /// The station, class or matrix.
        place: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Open classes alone bring more work to a station than it can do.
    #[error(
        "station {station:?}: open classes bring {load:.4} times what one server does and it does \
         {limit:.4} times that at most, so its queue grows without bound; lower their rates or demands, or \
         add servers"
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
        "station {station:?}: its throughput was measured with up to {measured} inside, and {customers} \
         may be; measure further, or ask for fewer customers: a curve is not extrapolated"
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
        /// What was to be done.
        what: &'static str,
        /// How many steps it takes.
        steps: f64,
        /// How many are taken at most.
        limit: f64,
        /// What to do.
        advice: &'static str,
    },
    /// A fixed point was not reached.
    #[error(
        "the approximation did not settle in {rounds} rounds; solve exactly with smaller populations, or \
         look for demands that differ by many orders of magnitude"
    )]
    NoConvergence {
        /// Rounds that were made.
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
    /// Measurements that no system of the assumed kind can give.
    #[error("{what} contradict each other: {why}")]
    Contradictory {
        /// Which measurements.
        what: String,
        /// What is wrong with them, and what to do.
        why: String,
    },
    /// A size that was not measured, and nothing that says what lies between sizes.
    #[error(
        "{size_bytes} bytes were not measured (measured: {known}); measure that size, or two sizes or more \
         so that a cost affine in size can be fitted"
    )]
    SizeNotMeasured {
        /// The size that was asked for, bytes.
        size_bytes: f64,
        /// The sizes that were measured, bytes.
        known: String,
    },
    /// A design of experiments that is malformed.
    #[error("{what}: {why}")]
    Design {
        /// The part of the design.
        what: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// Combinations of levels without a run.
    #[error(
        "{missing} of the {cells} combinations of levels have no run, the first being {first}; run them, \
         or leave a factor out"
    )]
    MissingCells {
        /// A combination without a run.
        first: String,
        /// Combinations without a run.
        missing: usize,
        /// All combinations.
        cells: usize,
    },
    /// Cells with different numbers of replications.
    #[error(
        "{cell} has {got} runs where {other} has {expected}; repeat every combination of levels equally often"
    )]
    Unbalanced {
        /// The cell.
        cell: String,
        /// Its runs.
        got: usize,
        /// The cell that it is compared with.
        other: String,
        /// The runs of that one.
        expected: usize,
    },
    /// Observations that do not vary.
    #[error(
        "all {count} observations are {value}: there is no variation to explain; check the response column"
    )]
    NoVariation {
        /// Observations.
        count: usize,
        /// What each of them is.
        value: f64,
    },
    /// A hit ratio that is not reached.
    #[error(
        "a hit ratio of {:.2} % is not reached: at most {:.2} % of these requests find their object; \
         ask for less, or give memory more room or requests",
        hit_ratio * 100.0, best * 100.0
    )]
    HitRatio {
        /// What was asked for.
        hit_ratio: f64,
        /// The highest there is.
        best: f64,
    },
    /// Choices of a plan that make no sense.
    #[error("choices: {0}")]
    Choices(String),
    /// A model file that is not one.
    #[error("model file: {0}")]
    File(String),
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

/// Checks that a number is finite and above 0.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, Error> {
    check(what, value, f64::MIN_POSITIVE..=f64::MAX, "a finite number above 0")
}

/// Checks that a number is finite and at least 0.
pub(crate) fn not_negative(what: &'static str, value: f64) -> Result<f64, Error> {
    check(what, value, 0.0..=f64::MAX, "a finite number, at least 0")
}

/// Checks that a number can be a service time in seconds: 1 ps to 30,000 years, so that no formula
/// leaves the range of f64.
pub(crate) fn time(what: &'static str, value: f64) -> Result<f64, Error> {
    check(what, value, 1e-12..=1e12, "a time in seconds from 1e-12 to 1e12")
}
