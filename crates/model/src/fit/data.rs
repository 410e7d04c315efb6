//! The counts and the histograms of steps, in blocks that are resampled.

use super::input::Options;
use super::sums::{ClassSums, Sums};
use ground::window::{Dispersion, Histogram, QueueName, Window};

/// A class of devices, over all steps.
#[derive(Clone, Debug)]
pub(super) struct ClassData {
    pub name: String,
    /// Reads at once of the device that has fewest, and of the one that has most.
    pub servers: u32,
    pub servers_max: u32,
    pub service: Histogram,
}

/// A device, over all steps.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceData {
    pub class: usize,
    pub reads: f64,
    pub service: ClassSums,
}

/// The sums of a step.
#[derive(Clone, Debug)]
pub(super) struct StepData {
    pub name: String,
    pub blocks: Vec<Sums>,
    pub total: Sums,
    /// Client side: responses of all answered reads.
    pub responses: Histogram,
    /// Objectives in seconds, each with the number of responses within it.
    pub within: Vec<(f64, u64)>,
    pub dispersion: Dispersion,
    pub device_dispersion: Dispersion,
    /// Mean delay between intended and actual send time at the load generator, seconds.
    pub lateness_s: f64,
    /// Client side: refusals, errors, and answered requests that were not reads.
    pub refusals: u64,
    pub errors: u64,
    pub not_reads: u64,
    pub utilisation_max: f64,
    /// Start of the first block and length of a block, microseconds.
    pub(super) start_us: u64,
    pub(super) block_us: f64,
    /// The numbers of the blocks, ascending.
    pub(super) block_numbers: Vec<u64>,
}

/// A step whose limit lies before the devices. Only its throughput in bytes is used.
#[derive(Clone, Debug)]
pub(super) struct StalledStep {
    pub name: String,
    /// Bytes of replies and seconds, of each block.
    pub blocks: Vec<(f64, f64)>,
}

/// The sums of all steps.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    /// Steady steps.
    pub steps: Vec<StepData>,
    /// Steps at or past saturation.
    pub saturated: Vec<SaturatedStep>,
    /// Steps whose limit lies before the devices.
    pub stalled: Vec<StalledStep>,
    pub classes: Vec<ClassData>,
    pub devices: Vec<DeviceData>,
    pub memory: Histogram,
    pub other: Histogram,
    /// The queue that was used for the client side.
    pub client_queue: QueueName<'static>,
    /// The edges between which the clients' responses are counted in each block, seconds,
    /// ascending.
    pub edges_s: Vec<f64>,
}

/// The number of the block in which a window begins.
pub(super) fn block_index(window: &Window, start_us: u64, block_us: f64) -> u64 {
    (window.start_unix_us.saturating_sub(start_us) as f64 / block_us) as u64
}

/// The start of the first window of a step and the length of its blocks, microseconds.
pub(super) fn blocks_of<'a>(
    windows: impl Iterator<Item = &'a Window> + Clone,
    options: &Options,
) -> (u64, f64) {
    let start = windows.clone().map(|w| w.start_unix_us).min().unwrap_or(0);
    let end = windows.map(Window::end_unix_us).max().unwrap_or(start);
    let span = end.saturating_sub(start) as f64 * 1e-6;
    let wanted = if options.block_s > 0.0 { options.block_s } else { f64::INFINITY };
    (start, (wanted.min(span / 8.0) * 1e6).max(1.0))
}

/// A device that was never idle during a step.
#[derive(Clone, Debug)]
pub(super) struct SaturatedDevice {
    /// Its index.
    pub device: usize,
    /// Upper bound of its idle share of time.
    pub slack: f64,
    /// Seconds × servers, and completions, for each block.
    pub blocks: Vec<(f64, f64)>,
}

/// A step past the capacity of some device. It is evidence of that capacity only.
#[derive(Clone, Debug)]
pub(super) struct SaturatedStep {
    pub name: String,
    pub devices: Vec<SaturatedDevice>,
}
