//! The sums over windows that parameters are estimated from.

use ground::window::{Histogram, Operation, Outcome, Window};

/// Sums of the services of one class of devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassSums {
    /// Services, sum of their times (s) and of the squares.
    pub n: f64,
    pub sum: f64,
    pub squares: f64,
    /// From the kernel's counters: writes; seconds that the devices were busy beyond their reads;
    /// an upper bound on the seconds that were due to writes (the busy time times their share of
    /// all I/Os); and the seconds that the counters cover.
    pub other_n: f64,
    pub other_s: f64,
    pub other_most_s: f64,
    pub watched_s: f64,
}

impl ClassSums {
    /// Adds the sums of `other`, each multiplied by `weight`.
    fn add(&mut self, other: &ClassSums, weight: f64) {
        let ClassSums { n, sum, squares, other_n, other_s, other_most_s, watched_s } = other;
        add_scaled(
            [
                (&mut self.n, n),
                (&mut self.sum, sum),
                (&mut self.squares, squares),
                (&mut self.other_n, other_n),
                (&mut self.other_s, other_s),
                (&mut self.other_most_s, other_most_s),
                (&mut self.watched_s, watched_s),
            ],
            weight,
        );
    }

    /// Adds the service times of a histogram, by its exact sums.
    pub(super) fn add_services(&mut self, times: &Histogram) {
        self.n += times.count() as f64;
        self.sum += times.sum_s();
        self.squares += sum_of_squares(times);
    }
}

/// Adds to each sum its addend times `weight`.
fn add_scaled<'a>(sums: impl IntoIterator<Item = (&'a mut f64, &'a f64)>, weight: f64) {
    sums.into_iter().for_each(|(sum, addend)| *sum += weight * addend);
}

/// Number of time scales at which arrivals are counted: sub-intervals of windows, windows, blocks.
pub(super) const SCALES: usize = 3;
/// Sub-intervals of a window, by [`Window::dispersion`].
const SUB_INTERVALS: f64 = 16.0;

/// Counts of arrivals in intervals of one length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Number of intervals, and their total length in seconds.
    pub n: f64,
    pub seconds: f64,
    /// Sum of the counts and of their squares.
    pub sum: f64,
    pub squares: f64,
}

impl Counts {
    /// Adds the counts of `other`, each multiplied by `weight`.
    pub(super) fn add(&mut self, other: &Counts, weight: f64) {
        let Counts { n, seconds, sum, squares } = other;
        add_scaled(
            [
                (&mut self.n, n),
                (&mut self.seconds, seconds),
                (&mut self.sum, sum),
                (&mut self.squares, squares),
            ],
            weight,
        );
    }

    /// The counts of a single interval.
    pub(super) fn from_interval(seconds: f64, count: f64) -> Counts {
        Counts { n: 1.0, seconds, sum: count, squares: count * count }
    }
}

/// The sums over an interval of time that parameters are estimated from.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Client side: seconds, arrivals.
    pub time: f64,
    pub arrivals: f64,
    /// Answered reads: all of them; from memory; by neither memory nor devices; with a response
    /// below 1 ms.
    pub requests: f64,
    pub memory: f64,
    pub other: f64,
    pub fast: f64,
    /// Client side, reads answered by devices: count, sum of the responses, sum of their squares.
    pub client_device_n: f64,
    pub client_device_s: f64,
    pub client_device_squares: f64,
    /// Replies: count, sum of their bytes, sum of the squares of their bytes.
    pub replies: f64,
    pub bytes: f64,
    pub bytes_squared: f64,
    /// Reads joined to others, and seconds of the node's windows.
    pub joined: f64,
    pub node_time: f64,
    /// Device queues: seconds × devices, integral of lengths, arrivals, responses, busy time.
    pub device_time: f64,
    pub length_integral: f64,
    pub reads: f64,
    pub response_n: f64,
    pub response_s: f64,
    pub response_squares: f64,
    pub busy: f64,
    pub completions: f64,
    pub classes: Vec<ClassSums>,
    /// Responses that clients had within each of [`crate::fit::data::Gathered::edges_s`].
    pub within: Vec<f64>,
    /// Arrivals at the client side, at each scale of time.
    pub counts: [Counts; SCALES],
}

impl Sums {
    pub fn new(classes: usize) -> Self {
        Sums { classes: vec![ClassSums::default(); classes], ..Sums::default() }
    }

    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &Sums) {
        self.add_weighted(other, 1.0);
    }

    /// Adds the sums of `other`, each multiplied by `weight`: as if it had been `weight` times as
    /// long.
    pub fn add_weighted(&mut self, other: &Sums, weight: f64) {
        // Without `..`, so that a sum that is added to the struct and forgotten here does not
        // compile.
        let Sums {
            time,
            arrivals,
            requests,
            memory,
            other,
            fast,
            client_device_n,
            client_device_s,
            client_device_squares,
            replies,
            bytes,
            bytes_squared,
            joined,
            node_time,
            device_time,
            length_integral,
            reads,
            response_n,
            response_s,
            response_squares,
            busy,
            completions,
            classes,
            within,
            counts,
        } = other;
        add_scaled(
            [
                (&mut self.time, time),
                (&mut self.arrivals, arrivals),
                (&mut self.requests, requests),
                (&mut self.memory, memory),
                (&mut self.other, other),
                (&mut self.fast, fast),
                (&mut self.client_device_n, client_device_n),
                (&mut self.client_device_s, client_device_s),
                (&mut self.client_device_squares, client_device_squares),
                (&mut self.replies, replies),
                (&mut self.bytes, bytes),
                (&mut self.bytes_squared, bytes_squared),
                (&mut self.joined, joined),
                (&mut self.node_time, node_time),
                (&mut self.device_time, device_time),
                (&mut self.length_integral, length_integral),
                (&mut self.reads, reads),
                (&mut self.response_n, response_n),
                (&mut self.response_s, response_s),
                (&mut self.response_squares, response_squares),
                (&mut self.busy, busy),
                (&mut self.completions, completions),
            ],
            weight,
        );
        for (mine, theirs) in self.classes.iter_mut().zip(classes) {
            mine.add(theirs, weight);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(counts) {
            mine.add(theirs, weight);
        }
        self.within.resize(self.within.len().max(within.len()), 0.0);
        add_scaled(self.within.iter_mut().zip(within), weight);
    }

    /// Arrivals per second.
    pub fn rate(&self) -> f64 {
        if self.time > 0.0 { self.arrivals / self.time } else { 0.0 }
    }

    pub(super) fn add_client(&mut self, window: &Window) {
        self.time += window.length_s;
        self.arrivals += window.arrivals as f64;
        self.replies += window.completions as f64;
        self.bytes += window.bytes as f64;
        self.bytes_squared += window.bytes_squared;
        let dispersion = &window.dispersion;
        let n = dispersion.intervals as f64;
        let sub_intervals = Counts {
            n,
            seconds: n * window.length_s / SUB_INTERVALS,
            sum: dispersion.sum as f64,
            squares: dispersion.sum_of_squares as f64,
        };
        self.counts[0].add(&sub_intervals, 1.0);
        for times in window.times.iter().filter(|t| t.operation == Operation::Get) {
            let (n, sum) = (times.response.count() as f64, times.response.sum_s());
            let squares = sum_of_squares(&times.response);
            self.requests += n;
            self.fast += n * times.response.share_within(1e-3).unwrap_or(0.0);
            if times.outcome == Outcome::Memory {
                self.memory += n;
            } else if times.outcome.is_device() {
                self.client_device_n += n;
                self.client_device_s += sum;
                self.client_device_squares += squares;
            } else {
                self.other += n;
            }
        }
    }

    pub(super) fn add_device(&mut self, window: &Window, class: usize) {
        self.device_time += window.length_s;
        self.length_integral += window.length_integral_s;
        self.reads += (window.arrivals - window.refusals.min(window.arrivals)) as f64;
        self.busy += window.busy_s;
        self.completions += window.completions as f64;
        for times in &window.times {
            self.response_n += times.response.count() as f64;
            self.response_s += times.response.sum_s();
            self.response_squares += sum_of_squares(&times.response);
            self.classes[class].add_services(&times.service);
        }
        if let (Some(kernel), Some(sums)) = (&window.kernel, self.classes.get_mut(class)) {
            // Parallel reads keep a device busy for at most the sum of their services, so `busy_s`
            // bounds the busy time of reads from above. The difference is signed: the counters are
            // read at another instant than the window's end, and an excess in one window is a
            // deficit in the next.
            let busy_s = kernel.utilisation.clamp(0.0, 1.0) * window.length_s;
            let (reads, writes) = (kernel.reads as f64, kernel.writes as f64);
            sums.other_n += writes;
            sums.other_s += busy_s - window.busy_s;
            sums.other_most_s += busy_s * writes / (reads + writes).max(1.0);
            sums.watched_s += window.length_s;
        }
    }
}

/// The sum of the squares of the times of a histogram, seconds², from its exact moments.
fn sum_of_squares(times: &Histogram) -> f64 {
    let (n, mean) = (times.count() as f64, times.mean_s());
    times.variance_s2() * (n - 1.0).max(0.0) + n * mean * mean
}
