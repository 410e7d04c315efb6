//! [`Window`]: the record of one interval of one queue.

use serde::{Deserialize, Serialize};

use super::dispersion::Dispersion;
use super::operation::{Operation, Outcome};
use super::queue_name::QueueName;
use super::times::{ServiceByNumber, Times};

/// The kernel's counters of a device over a window (`/proc/diskstats`).
///
/// The kernel's utilisation is the share of time with at least one request at the device. A device
/// that serves several requests at once is not saturated at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelDevice {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Mean time of a read and of a write in the kernel's queue and the device, milliseconds.
    pub await_ms: f64,
    /// Share of the window in which the device had at least one request.
    pub utilisation: f64,
}

/// One interval (a second unless configured) of one queue.
///
/// Windows of the same queue can be merged: every field is a sum, an integral or a histogram, so
/// the result equals one longer window.
///
/// Mean length is `length_integral_s / length_s`, throughput `completions / length_s`, utilisation
/// `busy_s / (length_s · servers)`; `model::laws` checks them against each other. A request in
/// progress at the end of a window counts in the integrals of both windows but in the completions
/// of one. Windows that are short compared with response times are inaccurate for this reason.
/// Size: some kilobytes, mostly histograms.
///
/// ```
/// use ground::window::Window;
/// let mut window = Window::new("device/0", 0, 2, &[20.0]);
/// (window.length_s, window.arrivals, window.busy_s) = (10.0, 500, 8.0);
/// assert_eq!((window.arrival_rate(), window.utilisation()), (50.0, Some(0.4)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The queue's name; [`QueueName`] lists the names and what each records.
    pub queue: String,
    /// Start, in microseconds since 1970-01-01 UTC.
    pub start_unix_us: u64,
    /// Length in seconds.
    pub length_s: f64,
    /// Number of requests that the queue can serve at once; 0 if it is not limited.
    pub servers: u32,
    /// Requests that arrived, refused ones included.
    pub arrivals: u64,
    /// Requests that were answered, errors included.
    pub completions: u64,
    /// Completions whose reply was an error.
    pub errors: u64,
    /// Requests that were refused because the queue was full.
    pub refusals: u64,
    /// Requests that were joined to an earlier one for the same key and caused no work of their
    /// own.
    pub joined: u64,
    /// Sum of the bytes of the replies.
    pub bytes: u64,
    /// Sum of the squares of the sizes of the replies, bytes².
    pub bytes_squared: f64,
    /// Counts of arrivals in sub-intervals of 1/16 of the window.
    pub dispersion: Dispersion,
    /// The arrivals in each of those sub-intervals. Empty if unknown, and in a window merged from
    /// successive ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interval_arrivals: Vec<u64>,
    /// Sum of the queue lengths (waiting and in service) found by arrivals. Divided by `arrivals`
    /// it is the mean length found.
    pub length_met_sum: u64,
    /// Integral of the queue length over time, in request-seconds. Divided by `length_s` it is the
    /// mean length.
    pub length_integral_s: f64,
    /// Integral of the number in service over time, in server-seconds. Divided by `length_s` ×
    /// `servers` it is the utilisation.
    pub busy_s: f64,
    /// Service time by the number in service, ascending.
    pub service_by_number: Vec<ServiceByNumber>,
    /// The objectives in milliseconds of the counters [`Times::within`].
    pub objectives_ms: Vec<f64>,
    /// Histograms for each operation and outcome that occurred.
    pub times: Vec<Times>,
    /// The kernel's counters, if the queue is a device that the kernel knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelDevice>,
}

impl Window {
    /// The queue's name as a type; `None` for a name that [`QueueName`] does not list.
    pub fn queue_name(&self) -> Option<QueueName<'_>> {
        QueueName::parse(&self.queue)
    }

    /// Whether this is a window of the queue `name`.
    pub fn is_of(&self, name: QueueName<'_>) -> bool {
        self.queue_name() == Some(name)
    }

    /// Creates an empty window of a queue.
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
            interval_arrivals: Vec::new(),
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

    /// Adds another window of the same queue: a later one or, if `parallel`, one of the same
    /// interval recorded by another thread (the length is then the longer of the two, not the sum).
    ///
    /// The dispersion of parallel windows is that of the sums of their
    /// [`Window::interval_arrivals`]. If one of the two has none, the dispersion is unknown.
    ///
    /// The kernel's counters are dropped, since they cannot be merged. Both windows must have the
    /// same objectives; this is not checked.
    pub fn merge(&mut self, other: &Window, parallel: bool) {
        // Without `..`, so that a field that is added and not merged does not compile.
        let Window {
            queue: _,
            start_unix_us,
            length_s,
            servers: _,
            arrivals,
            completions,
            errors,
            refusals,
            joined,
            bytes,
            bytes_squared,
            dispersion: _,
            interval_arrivals: _,
            length_met_sum,
            length_integral_s,
            busy_s,
            service_by_number,
            objectives_ms: _,
            times,
            kernel: _,
        } = other;
        self.start_unix_us = self.start_unix_us.min(*start_unix_us);
        self.length_s =
            if parallel { self.length_s.max(*length_s) } else { self.length_s + length_s };
        for (mine, theirs) in [
            (&mut self.arrivals, arrivals),
            (&mut self.completions, completions),
            (&mut self.errors, errors),
            (&mut self.refusals, refusals),
            (&mut self.joined, joined),
            (&mut self.bytes, bytes),
            (&mut self.length_met_sum, length_met_sum),
        ] {
            *mine = mine.saturating_add(*theirs);
        }
        self.bytes_squared += bytes_squared;
        self.merge_dispersion(other, parallel);
        self.length_integral_s += length_integral_s;
        self.busy_s += busy_s;
        service_by_number.iter().for_each(|theirs| self.merge_service(theirs));
        for theirs in times {
            self.times_mut(theirs.operation, theirs.outcome).merge(theirs);
        }
        self.kernel = None;
    }

    /// Threads that share a queue's requests unequally have counts with different means. Pooling
    /// these counts would show bursts where there are none, so they are added instead.
    fn merge_dispersion(&mut self, other: &Window, parallel: bool) {
        if !parallel {
            self.interval_arrivals.clear();
            self.dispersion.merge(&other.dispersion);
        } else if self.dispersion.intervals == 0 {
            self.interval_arrivals.clone_from(&other.interval_arrivals);
            self.dispersion = other.dispersion;
        } else if other.dispersion.intervals > 0 {
            self.interval_arrivals.truncate(other.interval_arrivals.len());
            for (mine, theirs) in self.interval_arrivals.iter_mut().zip(&other.interval_arrivals) {
                *mine = mine.saturating_add(*theirs);
            }
            self.dispersion = Dispersion::from_counts(&self.interval_arrivals);
        }
    }

    /// Adds services that ended with one number in service; the numbers stay ascending.
    fn merge_service(&mut self, theirs: &ServiceByNumber) {
        let ServiceByNumber { number, count, sum_s } = *theirs;
        match self.service_by_number.binary_search_by_key(&number, |s| s.number) {
            Ok(i) => {
                let mine = &mut self.service_by_number[i];
                mine.count = mine.count.saturating_add(count);
                mine.sum_s += sum_s;
            }
            Err(i) => self.service_by_number.insert(i, *theirs),
        }
    }

    /// The histograms of an operation and outcome, created if missing.
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

    /// Share of the servers' time spent serving; `None` if the number of servers is not limited.
    pub fn utilisation(&self) -> Option<f64> {
        (self.servers > 0 && self.length_s > 0.0)
            .then(|| self.busy_s / (self.length_s * f64::from(self.servers)))
    }
}
