//! Prometheus metrics. They are derived from the windows, in this one place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::node::Contents;
use engine::status::MemoryDivision;
use ground::window::{Outcome, QueueName, Times, Window};

use wire::exposition::{Exposition, Kind};
use wire::traces::Traces;

/// Name, help text and value of a counter.
type Counter = (&'static str, &'static str, fn(&Window) -> f64);

/// The queue of a shard that had no window for so long is dropped: seals and compactions make shards and remove them, and their numbers
/// are never used again.
const SHARD_KEPT_US: u64 = 3_600_000_000;

/// The sum of all windows of a queue so far.
struct QueueSum {
    sum: Window,
    /// When the newest window began, microseconds since 1970.
    newest_unix_us: u64,
}

/// The sums of all windows so far, by queue.
#[derive(Default)]
pub struct Metrics {
    queues: Mutex<BTreeMap<String, QueueSum>>,
    broken_invariants: AtomicU64,
    traces: Option<Arc<Traces>>,
}

impl Metrics {
    /// Those of a front, with the spans of its requests if they have some.
    pub fn new(traces: Option<Arc<Traces>>) -> Metrics {
        Metrics { traces, ..Metrics::default() }
    }

    /// Adds windows.
    pub fn add(&self, windows: &[Window]) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for window in windows {
            let newest_unix_us = window.start_unix_us;
            match queues.get_mut(&window.queue) {
                Some(queue) => {
                    queue.sum.merge(window, false);
                    queue.newest_unix_us = newest_unix_us;
                }
                None => {
                    queues.retain(|name, queue| {
                        !QueueName::is_shard(name)
                            || queue.newest_unix_us + SHARD_KEPT_US >= newest_unix_us
                    });
                    let sum = window.clone();
                    queues.insert(window.queue.clone(), QueueSum { sum, newest_unix_us });
                }
            }
        }
    }

    /// Sets the number of broken invariants since the start; returns whether it has grown.
    pub fn set_broken_invariants(&self, count: u64) -> bool {
        self.broken_invariants.swap(count, Ordering::Relaxed) < count
    }

    /// A node's metrics, without those of the traffic between nodes. Counters include all windows
    /// up to the last complete one.
    pub fn node(&self, contents: &Contents, waiting: usize) -> Exposition {
        let mut page = self.queues();
        let device_bytes: u64 = contents.device_bytes.iter().sum();
        for (name, help, value) in [
            ("concertina_memory_objects", "Objects in memory.", contents.memory_objects as u64),
            ("concertina_memory_bytes", "Bytes of the memory tier.", contents.memory_bytes),
            ("concertina_device_objects", "Objects on devices.", contents.device_objects as u64),
            ("concertina_index_bytes", "Memory of the index of devices.", contents.index_bytes),
            ("concertina_device_bytes", "Bytes on devices.", device_bytes),
            (
                "concertina_appends_waiting_bytes",
                "Memory of the objects that wait to be written to devices.",
                contents.appending_bytes,
            ),
            ("concertina_requests_waiting", "Requests waiting in the node.", waiting as u64),
        ] {
            page.single(name, Kind::Gauge, help, value as f64);
        }
        page
    }

    /// Adds who may hold how much memory. Where objects and layers do not share it, only objects are listed.
    pub fn memory(
        &self,
        page: &mut Exposition,
        contents: &Contents,
        shared: Option<MemoryDivision>,
    ) {
        let name = "concertina_memory_limit_bytes";
        let help = "Bytes that may be held: by objects in memory, by layers, and those of nobody.";
        page.family(name, Kind::Gauge, help);
        page.sample(name, &[("of", "objects")], contents.memory_bytes_max as f64);
        if let Some(shared) = &shared {
            page.sample(name, &[("of", "layers")], shared.layers_bytes_max as f64);
            page.sample(name, &[("of", "nobody")], shared.free_bytes as f64);
        }
        let help = "Bytes that moved between objects and layers.";
        let moved = shared.as_ref().map_or(0, |shared| shared.moved_bytes);
        page.single("concertina_memory_moved_bytes_total", Kind::Counter, help, moved as f64);
        let help =
            "Service time that objects in memory save, seconds a second; NaN if not measured.";
        let saved = shared.as_ref().map_or(f64::NAN, |shared| shared.objects_saved_s);
        page.single("concertina_memory_saved_ratio", Kind::Gauge, help, saved);
    }

    /// The metrics of every queue, and the number of broken invariants.
    pub fn queues(&self) -> Exposition {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Exposition::default();
        for (name, help, value) in COUNTERS {
            page.family(name, Kind::Counter, help);
            for (queue, QueueSum { sum, .. }) in queues.iter() {
                page.sample(name, &[("queue", queue)], value(sum));
            }
        }
        let name = "concertina_response_seconds";
        page.family(name, Kind::Histogram, "Response times of a queue.");
        for (queue, QueueSum { sum, .. }) in queues.iter() {
            for times in &sum.times {
                let labels = [
                    ("queue", queue.as_str()),
                    ("operation", times.operation.as_str()),
                    ("outcome", times.outcome.as_str()),
                ];
                let [q, op, out] = labels;
                let bucket = format!("{name}_bucket");
                for (bound_s, count) in buckets(&sum.objectives_ms, times) {
                    let le = bound_s.to_string();
                    page.sample(&bucket, &[q, op, out, ("le", &le)], count as f64);
                }
                let (count, sum_s) = (times.response.count(), times.response.sum_s());
                page.sample(&bucket, &[q, op, out, ("le", "+Inf")], count as f64);
                page.sample(&format!("{name}_sum"), &labels, sum_s);
                page.sample(&format!("{name}_count"), &labels, count as f64);
            }
        }
        let name = "concertina_within_objective_total";
        let help = "Requests answered without an error within an objective; failures are not.";
        page.family(name, Kind::Counter, help);
        for (queue, QueueSum { sum, .. }) in queues.iter() {
            for (at, objective_ms) in sum.objectives_ms.iter().enumerate() {
                let good = sum.times.iter().filter(|times| times.outcome != Outcome::Error);
                let within: u64 = good.filter_map(|times| times.within.get(at)).sum();
                let objective = (objective_ms / 1e3).to_string();
                let labels = [("queue", queue.as_str()), ("objective", &objective)];
                page.sample(name, &labels, within as f64);
            }
        }
        page.single(
            "concertina_broken_invariants_total",
            Kind::Counter,
            "States that cannot occur; above 0, Concertina has a defect.",
            self.broken_invariants.load(Ordering::Relaxed) as f64,
        );
        self.spans(&mut page);
        page
    }

    /// Adds the counts of spans; all are 0 without traces, so that the set of metrics does not depend on the configuration.
    fn spans(&self, page: &mut Exposition) {
        let counts = self.traces.as_ref().map(|traces| traces.counts()).unwrap_or_default();
        let help = "Spans that the collector of traces took.";
        let name = "concertina_trace_spans_exported_total";
        page.single(name, Kind::Counter, help, counts.exported as f64);
        let help =
            "Spans that were dropped: too many waited for the collector, or it refused them.";
        let name = "concertina_trace_spans_dropped_total";
        page.single(name, Kind::Counter, help, counts.dropped as f64);
        let help = "Requests whose spans wait for the collector of traces.";
        page.single("concertina_trace_requests_waiting", Kind::Gauge, help, counts.waiting as f64);
    }
}

/// Bounds of the buckets of response times beside the objectives, seconds: a cache in memory answers in tens of microseconds, a
/// disk in tens of milliseconds.
const BOUNDS_S: [f64; 16] = [
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1,
    0.25, 0.5, 1.0,
];

/// The number of responses at or below each bound, ascending. Those at objectives are counted; the others are read off the
/// histogram, to the width of its buckets, and never contradict the counted ones.
fn buckets(objectives_ms: &[f64], times: &Times) -> Vec<(f64, u64)> {
    let counted = objectives_ms.iter().zip(&times.within).map(|(ms, n)| (ms / 1e3, *n));
    let mut counted: Vec<(f64, u64)> = counted.collect();
    counted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = times.response.count();
    let mut all = counted.clone();
    for bound_s in BOUNDS_S {
        if counted.iter().any(|(objective_s, _)| (objective_s / bound_s - 1.0).abs() < 1e-9) {
            continue;
        }
        let share = times.response.share_within(bound_s).unwrap_or(0.0);
        // The product of what was divided before may lack a little.
        let read = (share * count as f64 + 1e-6) as u64;
        let at = counted.partition_point(|(objective_s, _)| *objective_s < bound_s);
        let low = at.checked_sub(1).and_then(|at| counted.get(at)).map_or(0, |(_, n)| *n);
        let high = counted.get(at).map_or(count, |(_, n)| *n);
        all.push((bound_s, read.clamp(low, high.max(low))));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// The sum, 0 of nothing, of which `Iterator::sum` makes −0: a counter that begins at `-0`.
fn sum_of(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(0.0, |sum, value| sum + value)
}

const COUNTERS: [Counter; 11] = [
    ("concertina_queue_arrivals_total", "Requests that arrived, including refused ones.", |w| {
        w.arrivals as f64
    }),
    ("concertina_queue_completions_total", "Requests answered.", |w| w.completions as f64),
    ("concertina_queue_errors_total", "Requests answered with an error.", |w| w.errors as f64),
    ("concertina_queue_refusals_total", "Requests refused because the queue was full.", |w| {
        w.refusals as f64
    }),
    ("concertina_queue_joined_total", "Requests that joined one in progress.", |w| w.joined as f64),
    ("concertina_queue_bytes_total", "Bytes of replies.", |w| w.bytes as f64),
    ("concertina_queue_busy_seconds_total", "Time in service, over all servers.", |w| w.busy_s),
    ("concertina_queue_waiting_seconds_total", "Time that answered requests waited.", |w| {
        sum_of(w.times.iter().map(|times| times.waiting.sum_s()))
    }),
    ("concertina_queue_service_seconds_total", "Time that answered requests were served.", |w| {
        sum_of(w.times.iter().map(|times| times.service.sum_s()))
    }),
    (
        "concertina_queue_observed_seconds_total",
        "Time that the other sums of the queue cover.",
        |w| w.length_s,
    ),
    ("concertina_queue_length_seconds_total", "Integral of the queue length over time.", |w| {
        w.length_integral_s
    }),
];

#[cfg(test)]
mod tests {
    use ground::window::{Operation, Recorder, Settings};
    use proptest::prelude::*;

    use super::*;

    /// The times of the responses, nanoseconds.
    fn times_of(responses: &[u64]) -> (Settings, Times) {
        let settings = Settings { objectives_ms: vec![50.0, 0.3, 20.0], ..Settings::default() };
        let mut recorder = Recorder::new("gateway", 0, settings.clone(), 0);
        for &response in responses {
            let finished = ground::window::Finished {
                operation: Operation::Get,
                outcome: Outcome::Memory,
                waiting: 0,
                service: response,
                response,
                bytes: 0,
            };
            recorder.arrive(0);
            recorder.start(0);
            recorder.finish(0, &finished);
        }
        let windows = recorder.flush(1);
        let times = windows.into_iter().flat_map(|window| window.times).next();
        (settings, times.unwrap_or(Times::new(Operation::Get, Outcome::Memory, 3)))
    }

    #[test]
    fn counters_of_a_queue_without_requests_are_zero() {
        let window = Window::new("device/0", 0, 1, &[50.0]);
        for (name, _, value) in COUNTERS {
            assert!(value(&window).is_sign_positive(), "{name}");
        }
    }

    #[test]
    fn shards_that_are_gone_leave_no_metrics() {
        const MINUTE_US: u64 = 60_000_000;
        let metrics = Metrics::default();
        for minute in 0..600 {
            let queues = ["device/0".to_owned(), format!("shard/a/{minute:06}")];
            // The device is idle from the second hour on.
            let idle = usize::from(minute > 60);
            let window = |queue: &String| Window::new(queue, minute * MINUTE_US, 1, &[]);
            metrics.add(&queues[idle..].iter().map(window).collect::<Vec<_>>());
        }
        let queues = metrics.queues.lock().unwrap();
        assert!(queues.len() <= 63 && queues.contains_key("device/0"), "{}", queues.len());
    }

    proptest! {
        /// Buckets ascend, those of objectives are exact, and the others are off by what is in one bucket of the histogram.
        #[test]
        fn buckets_are_cumulative(responses in prop::collection::vec(1_000_u64..5_000_000_000, 0..200)) {
            let (settings, times) = times_of(&responses);
            let all = buckets(&settings.objectives_ms, &times);
            prop_assert_eq!(all.len(), BOUNDS_S.len() + 2);
            prop_assert!(all.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{:?}", all);
            for (bound_s, count) in all {
                let within = |bound_s: f64| {
                    responses.iter().filter(|&&r| r as f64 * 1e-9 <= bound_s).count() as u64
                };
                if settings.objectives_ms.contains(&(bound_s * 1e3)) {
                    prop_assert_eq!(count, within(bound_s));
                }
                prop_assert!(within(bound_s * 0.98) <= count && count <= within(bound_s * 1.02));
            }
        }
    }
}
