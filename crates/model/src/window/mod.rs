//! [`Window`] and [`Sample`]: all that is observed.
//!
//! A live node, the gateway, the load generator and importers write these two records and nothing
//! else; metrics, run folders, reports and fits are derived from them. A [`Recorder`] makes the
//! windows of one queue from its events; it is given the time, it never reads a clock.

mod histogram;
mod recorder;
mod sample;

pub use histogram::Histogram;
pub use recorder::{Finished, Recorder, Settings};
pub use sample::{Sample, is_sampled, key_hash};

use serde::{Deserialize, Serialize};

/// A time or a duration in nanoseconds. Times are of a monotonic clock with an arbitrary origin.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// What a request asked for. A fit of a storage node takes hits, misses and responses from [`Operation::Get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read an object, or a range of it.
    Get,
    /// Read an object's metadata.
    Head,
    /// Write an object.
    Put,
    /// Remove an object.
    Delete,
    /// List keys by prefix.
    List,
    /// Find the records of a dataset that match a query.
    Search,
    /// Count them, or the occurrences of some bytes.
    Count,
    /// Read bytes of a dataset's text.
    Extract,
    /// Append records to a dataset.
    Append,
}

/// Who answered a request, and how: what tells a hit from a miss, so that no threshold of time is needed.
///
/// ```
/// use model::window::Outcome;
/// assert_eq!(Outcome::parse("bulk_device"), Some(Outcome::BulkDevice));
/// assert!(Outcome::BulkDevice.is_device() && !Outcome::Memory.is_device());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The memory tier of the node.
    Memory,
    /// A device of class `hot`.
    HotDevice,
    /// A device of class `bulk`.
    BulkDevice,
    /// Another node's replica.
    Replica,
    /// The origin.
    Origin,
    /// A shard of a dataset.
    Shard,
    /// The key does not exist.
    Miss,
    /// The answer was an error of this service or of what is behind it.
    Error,
    /// Answered, and nobody said by whom (an imported log, another vendor's service).
    Unknown,
}

impl Outcome {
    /// The word for it in headers, metrics and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Memory => "memory",
            Outcome::HotDevice => "hot_device",
            Outcome::BulkDevice => "bulk_device",
            Outcome::Replica => "replica",
            Outcome::Origin => "origin",
            Outcome::Shard => "shard",
            Outcome::Miss => "miss",
            Outcome::Error => "error",
            Outcome::Unknown => "unknown",
        }
    }

    /// The outcome that a word of [`Outcome::as_str`] stands for.
    pub fn parse(word: &str) -> Option<Outcome> {
        use Outcome::*;
        [Memory, HotDevice, BulkDevice, Replica, Origin, Shard, Miss, Error, Unknown]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }

    /// Whether a device of the node served the request, so that it waited in that device's queue.
    pub fn is_device(self) -> bool {
        matches!(self, Outcome::HotDevice | Outcome::BulkDevice)
    }
}

/// Counts of arrivals in equal sub-intervals of a window, for their index of dispersion: variance over mean,
/// (Σc² − n·c̄²)/((n − 1)·c̄).
///
/// Source: D. Cox, P. Lewis, "The Statistical Analysis of Series of Events" (1966). Of Poisson arrivals it is
/// 1 ± √(2/(n − 1)), bursts make it larger, a clock smaller. One length of interval says nothing of longer
/// ones ([`crate::queue::Bursts`]), and a load that drifts looks like bursts. Cost: three sums.
///
/// ```
/// use model::window::Dispersion;
/// // One arrival, then three.
/// let counts = Dispersion { intervals: 2, sum: 4, sum_of_squares: 10 };
/// assert_eq!(counts.index(), Some(1.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dispersion {
    /// How many sub-intervals were counted.
    pub intervals: u64,
    /// Sum of their counts.
    pub sum: u64,
    /// Sum of the squares of their counts.
    pub sum_of_squares: u64,
}

impl Dispersion {
    /// Variance over mean of the counts: 1 for Poisson arrivals. `None` below two sub-intervals or
    /// without arrivals.
    pub fn index(&self) -> Option<f64> {
        if self.intervals < 2 || self.sum == 0 {
            return None;
        }
        let n = self.intervals as f64;
        let mean = self.sum as f64 / n;
        let variance = (self.sum_of_squares as f64 - n * mean * mean) / (n - 1.0);
        Some(variance / mean)
    }

    /// Adds the counts of another window.
    pub fn merge(&mut self, other: &Dispersion) {
        self.intervals = self.intervals.saturating_add(other.intervals);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
    }
}

/// The times of the requests of one operation and outcome that completed in a window. [`Window::times_mut`]
/// makes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// What was asked.
    pub operation: Operation,
    /// Who answered.
    pub outcome: Outcome,
    /// Waiting time: from arrival in the queue to the start of service. At the load generator: from
    /// the intended to the actual send time.
    pub waiting: Histogram,
    /// Service time: from its start to its end. At the load generator: from the actual send to the
    /// end of the reply.
    pub service: Histogram,
    /// Response time: waiting and service. At the load generator: from the *intended* send time to
    /// the end of the reply, so that a stalled service is not measured by fewer requests.
    pub response: Histogram,
    /// Exact counts of response times at or below each of the window's objectives, in their order.
    pub within: Vec<u64>,
}

impl Times {
    /// No times yet, for as many objectives as are given.
    pub fn new(operation: Operation, outcome: Outcome, objectives: usize) -> Self {
        Times {
            operation,
            outcome,
            waiting: Histogram::default(),
            service: Histogram::default(),
            response: Histogram::default(),
            within: vec![0; objectives],
        }
    }

    /// Adds the times of another window with the same objectives.
    pub fn merge(&mut self, other: &Times) {
        self.waiting.merge(&other.waiting);
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        for (mine, theirs) in self.within.iter_mut().zip(&other.within) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

/// How long services took that ended with a given number of requests in service (themselves included): whether
/// service depends on the load, which all queues here assume that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceByNumber {
    /// Requests in service at the end, at least 1.
    pub number: u32,
    /// How many services ended so.
    pub count: u64,
    /// Sum of their service times in seconds.
    pub sum_s: f64,
}

/// What the kernel says of a device over a window (`/proc/diskstats`). Its utilisation is the share of time with
/// something to do, which of a device that serves several requests at once says little: 1 is not saturation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelDevice {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Mean time of a read and of a write in the kernel's queue and the device, milliseconds.
    pub await_ms: f64,
    /// Share of the window in which the device had something to do.
    pub utilisation: f64,
}

/// One interval (a second unless configured) of one queue.
///
/// Windows of the same queue can be merged; every figure is a sum, an integral or a histogram, so the
/// merged window is what one longer window would have been.
///
/// Mean length is `length_integral_s / length_s`, throughput `completions / length_s`, utilisation
/// `busy_s / (length_s · servers)`: what [`crate::laws`] checks against each other. A request that is under
/// way at an end counts in the integrals of both windows, and in the completions of one: windows that are short
/// against response times are off by that. Cost: the histograms, some kilobytes a window.
///
/// ```
/// use model::window::Window;
/// let mut window = Window::new("device/0", 0, 2, &[20.0]);
/// (window.length_s, window.arrivals, window.busy_s) = (10.0, 500, 8.0);
/// assert_eq!((window.arrival_rate(), window.utilisation()), (50.0, Some(0.4)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The queue's name: `load`, `gateway`, `node`, `origin`, `device/0` …
    pub queue: String,
    /// Start, in microseconds since 1970-01-01 UTC.
    pub start_unix_us: u64,
    /// Length in seconds.
    pub length_s: f64,
    /// How many requests the queue can serve at once; 0 if that is not limited.
    pub servers: u32,
    /// Requests that came, refused ones included.
    pub arrivals: u64,
    /// Requests that were answered, errors included.
    pub completions: u64,
    /// Of the completions, those answered by an error.
    pub errors: u64,
    /// Requests that were turned away because the queue was full.
    pub refusals: u64,
    /// Requests that were joined to one already on its way for the same key, and so caused no work here.
    pub joined: u64,
    /// Sum of the bytes of the replies.
    pub bytes: u64,
    /// Sum of the squares of the bytes of each reply.
    pub bytes_squared: f64,
    /// Counts of arrivals in sub-intervals of 1/16 of the window.
    pub dispersion: Dispersion,
    /// Sum of the queue lengths (waiting and in service) that arrivals met; over `arrivals`, their mean.
    pub length_met_sum: u64,
    /// Integral of the queue length over time, in request-seconds; over `length_s`, the mean length.
    pub length_integral_s: f64,
    /// Integral of the number in service over time, in server-seconds; over `length_s` × `servers`, the
    /// utilisation.
    pub busy_s: f64,
    /// Service time by the number in service, ascending.
    pub service_by_number: Vec<ServiceByNumber>,
    /// The objectives in milliseconds that [`Times::within`] counts at.
    pub objectives_ms: Vec<f64>,
    /// Histograms for each operation and outcome that occurred.
    pub times: Vec<Times>,
    /// The kernel's figures, where the queue is a device and the kernel knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelDevice>,
}

impl Window {
    /// An empty window of a queue.
    pub fn new(queue: &str, start_unix_us: u64, servers: u32, objectives_ms: &[f64]) -> Self {
        Window {
            queue: queue.to_owned(),
            start_unix_us,
            length_s: 0.0,
            servers,
            arrivals: 0,
            completions: 0,
            errors: 0,
            refusals: 0,
            joined: 0,
            bytes: 0,
            bytes_squared: 0.0,
            dispersion: Dispersion::default(),
            length_met_sum: 0,
            length_integral_s: 0.0,
            busy_s: 0.0,
            service_by_number: Vec::new(),
            objectives_ms: objectives_ms.to_vec(),
            times: Vec::new(),
            kernel: None,
        }
    }

    /// End, in microseconds since 1970-01-01 UTC.
    pub fn end_unix_us(&self) -> u64 {
        self.start_unix_us.saturating_add((self.length_s * 1e6).round() as u64)
    }

    /// Adds another window of the same kind of queue: a later one of the same queue, or the same
    /// interval as seen by another thread when `parallel` (then the length does not add up).
    ///
    /// The kernel's figures are not merged; objectives must be the same, which the caller ensures.
    pub fn merge(&mut self, other: &Window, parallel: bool) {
        self.start_unix_us = self.start_unix_us.min(other.start_unix_us);
        self.length_s = if parallel {
            self.length_s.max(other.length_s)
        } else {
            self.length_s + other.length_s
        };
        self.arrivals = self.arrivals.saturating_add(other.arrivals);
        self.completions = self.completions.saturating_add(other.completions);
        self.errors = self.errors.saturating_add(other.errors);
        self.refusals = self.refusals.saturating_add(other.refusals);
        self.joined = self.joined.saturating_add(other.joined);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.bytes_squared += other.bytes_squared;
        self.dispersion.merge(&other.dispersion);
        self.length_met_sum = self.length_met_sum.saturating_add(other.length_met_sum);
        self.length_integral_s += other.length_integral_s;
        self.busy_s += other.busy_s;
        for theirs in &other.service_by_number {
            match self.service_by_number.binary_search_by_key(&theirs.number, |s| s.number) {
                Ok(i) => {
                    let mine = &mut self.service_by_number[i];
                    mine.count = mine.count.saturating_add(theirs.count);
                    self.service_by_number[i].sum_s += theirs.sum_s;
                }
                Err(i) => self.service_by_number.insert(i, *theirs),
            }
        }
        for theirs in &other.times {
            self.times_mut(theirs.operation, theirs.outcome).merge(theirs);
        }
        self.kernel = None;
    }

    /// The histograms of an operation and outcome, made if they are not there yet.
    pub fn times_mut(&mut self, operation: Operation, outcome: Outcome) -> &mut Times {
        let found =
            self.times.iter().position(|t| t.operation == operation && t.outcome == outcome);
        let index = found.unwrap_or_else(|| {
            self.times.push(Times::new(operation, outcome, self.objectives_ms.len()));
            self.times.len() - 1
        });
        &mut self.times[index]
    }

    /// Arrivals per second.
    pub fn arrival_rate(&self) -> f64 {
        if self.length_s > 0.0 { self.arrivals as f64 / self.length_s } else { 0.0 }
    }

    /// Mean queue length over time (waiting and in service); 0 for an empty window.
    pub fn length_mean(&self) -> f64 {
        if self.length_s > 0.0 { self.length_integral_s / self.length_s } else { 0.0 }
    }

    /// Share of its servers' time that was spent serving; `None` where servers are not limited.
    pub fn utilisation(&self) -> Option<f64> {
        (self.servers > 0 && self.length_s > 0.0)
            .then(|| self.busy_s / (self.length_s * f64::from(self.servers)))
    }
}

#[cfg(test)]
mod tests;
