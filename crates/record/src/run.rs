//! The content of `run.toml` and of the `steps` file: what a run was, and its steady intervals.

use serde::{Deserialize, Serialize};

use super::host::Machine;

/// Version of the run folder's format.
pub const FORMAT: u32 = 1;

/// The content of `run.toml`: the description of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the program that wrote it.
    pub version: String,
    /// The command that wrote it: `load` or `serve`.
    pub kind: String,
    /// Start, in microseconds since 1970-01-01 UTC.
    pub start_unix_us: u64,
    /// The laboratory conditions of the run, as text (profiled devices, a generated origin); `None`
    /// if everything was real. Shown in every output derived from the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laboratory: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The configuration or the load, as a table.
    #[serde(default)]
    pub asked: toml::Table,
}

/// A steady interval of a load: one step of a sweep, after its warm-up.
///
/// Written to the `steps` file of a load's run folder at the end of the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The position in the sweep, from 0.
    pub index: usize,
    /// The intended rate, requests/s; `None` in a closed loop.
    pub rate: Option<f64>,
    /// The number of clients of a closed loop.
    pub clients: Option<usize>,
    /// When measuring began (after the warm-up), in microseconds since 1970-01-01 UTC.
    pub start_unix_us: u64,
    /// When measuring ended.
    pub end_unix_us: u64,
    /// The generator's own performance: lateness, drops, CPU.
    pub generator: Generator,
}

/// The load generator's report on its own performance, which tells whether it was the bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Mean of actual minus intended send time, microseconds.
    pub lateness_us_mean: f64,
    /// The 99th percentile of the lateness, microseconds.
    pub lateness_us_p99: f64,
    /// The largest lateness, microseconds.
    pub lateness_us_max: f64,
    /// Arrivals dropped because too many requests were outstanding.
    pub dropped: u64,
    /// The most requests outstanding at once.
    pub outstanding_max: u64,
    /// Share of one core that the generator used.
    pub cpu: f64,
    /// Complaints for the user; empty if the generator kept up.
    pub complaints: Vec<String>,
}
