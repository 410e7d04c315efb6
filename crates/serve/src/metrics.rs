//! Prometheus metrics, derived from the windows in this one place.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use engine::node::Contents;
use model::window::Window;

/// Name, explanation and value of a counter.
type Counter = (&'static str, &'static str, fn(&Window) -> f64);

/// The sum of all windows so far, by queue.
#[derive(Default)]
pub struct Metrics {
    queues: Mutex<BTreeMap<String, Window>>,
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

    /// The text of a node. Counters end with the last whole window.
    pub fn text(&self, contents: &Contents, waiting: usize, connections: usize) -> String {
        let mut text = self.queues();
        let device_bytes: u64 = contents.device_bytes.iter().sum();
        let gauges = [
            ("concertina_memory_objects", "Objects in memory.", contents.memory_objects as u64),
            ("concertina_memory_bytes", "Bytes of the memory tier.", contents.memory_bytes),
            ("concertina_device_objects", "Objects on devices.", contents.device_objects as u64),
            ("concertina_device_bytes", "Bytes on devices.", device_bytes),
            ("concertina_requests_waiting", "Requests that wait for something.", waiting as u64),
            ("concertina_connections", "Connections.", connections as u64),
        ];
        for (name, help, value) in gauges {
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} gauge\n\
                 {name} {value}"
            );
        }
        text
    }

    /// What all queues have.
    pub fn queues(&self) -> String {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let counters: [Counter; 8] = [
            (
                "concertina_queue_arrivals_total",
                "Requests that came, refused ones included.",
                |w| w.arrivals as f64,
            ),
            ("concertina_queue_completions_total", "Requests that were answered.", |w| {
                w.completions as f64
            }),
            ("concertina_queue_errors_total", "Requests that were answered by an error.", |w| {
                w.errors as f64
            }),
            ("concertina_queue_refusals_total", "Requests turned away by a full queue.", |w| {
                w.refusals as f64
            }),
            ("concertina_queue_joined_total", "Requests joined to one under way.", |w| {
                w.joined as f64
            }),
            ("concertina_queue_bytes_total", "Bytes of replies.", |w| w.bytes as f64),
            ("concertina_queue_busy_seconds_total", "Time in service, over all servers.", |w| {
                w.busy_s
            }),
            (
                "concertina_queue_length_seconds_total",
                "Integral of the queue length over time.",
                |w| w.length_integral_s,
            ),
        ];
        for (name, help, value) in counters {
            let _ = writeln!(text, "# HELP {name} {help}");
            let _ = writeln!(text, "# TYPE {name} counter");
            for (queue, window) in queues.iter() {
                let value = value(window);
                let _ = writeln!(text, "{name}{{queue=\"{queue}\"}} {value}");
            }
        }
        let _ = writeln!(text, "# HELP concertina_response_seconds Response times of a queue.");
        let _ = writeln!(text, "# TYPE concertina_response_seconds histogram");
        for (queue, window) in queues.iter() {
            for times in &window.times {
                let operation = format!("{:?}", times.operation).to_lowercase();
                let outcome = times.outcome.as_str();
                let labels =
                    format!("queue=\"{queue}\",operation=\"{operation}\",outcome=\"{outcome}\"");
                for (objective, within) in window.objectives_ms.iter().zip(&times.within) {
                    let le = objective / 1e3;
                    let _ = writeln!(
                        text,
                        "concertina_response_seconds_bucket{{{labels},le=\"{le}\"}} {within}"
                    );
                }
                let (count, sum) = (times.response.count(), times.response.sum_s());
                let _ = writeln!(
                    text,
                    "concertina_response_seconds_bucket{{{labels},le=\"+Inf\"}} {count}\n\
                     concertina_response_seconds_sum{{{labels}}} {sum}\n\
                     concertina_response_seconds_count{{{labels}}} {count}"
                );
            }
        }
        text
    }
}
