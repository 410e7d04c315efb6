//! Prometheus metrics. They are derived from the windows, in this one place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use engine::node::Contents;
use engine::status::MemoryDivision;
use ground::window::Window;

use wire::exposition::{Exposition, Kind};

/// Name, help text and value of a counter.
type Counter = (&'static str, &'static str, fn(&Window) -> f64);

/// The sums of all windows so far, by queue.
#[derive(Default)]
pub struct Metrics {
    queues: Mutex<BTreeMap<String, Window>>,
    broken_invariants: AtomicU64,
}

impl Metrics {
    /// Adds windows.
    pub fn add(&self, windows: &[Window]) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for window in windows {
            match queues.get_mut(&window.queue) {
                Some(sum) => sum.merge(window, false),
                None => {
                    queues.insert(window.queue.clone(), window.clone());
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
            for (queue, window) in queues.iter() {
                page.sample(name, &[("queue", queue)], value(window));
            }
        }
        let name = "concertina_response_seconds";
        page.family(name, Kind::Histogram, "Response times of a queue.");
        for (queue, window) in queues.iter() {
            for times in &window.times {
                let labels = [
                    ("queue", queue.as_str()),
                    ("operation", times.operation.as_str()),
                    ("outcome", times.outcome.as_str()),
                ];
                let [q, op, out] = labels;
                let bucket = format!("{name}_bucket");
                for (objective, within) in window.objectives_ms.iter().zip(&times.within) {
                    let le = (objective / 1e3).to_string();
                    page.sample(&bucket, &[q, op, out, ("le", &le)], *within as f64);
                }
                let (count, sum) = (times.response.count(), times.response.sum_s());
                page.sample(&bucket, &[q, op, out, ("le", "+Inf")], count as f64);
                page.sample(&format!("{name}_sum"), &labels, sum);
                page.sample(&format!("{name}_count"), &labels, count as f64);
            }
        }
        page.single(
            "concertina_broken_invariants_total",
            Kind::Counter,
            "States that cannot occur; above 0, Concertina has a defect.",
            self.broken_invariants.load(Ordering::Relaxed) as f64,
        );
        page
    }
}

const COUNTERS: [Counter; 8] = [
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
    ("concertina_queue_length_seconds_total", "Integral of the queue length over time.", |w| {
        w.length_integral_s
    }),
];
