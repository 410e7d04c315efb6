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

    /// The text. Counters end with the last whole window.
    pub fn text(&self, contents: &Contents, waiting: usize, connections: usize) -> String {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let counters: [Counter; 8] = [
            ("arrivals", "Requests that came, refused ones included.", |w| w.arrivals as f64),
            ("completions", "Requests that were answered.", |w| w.completions as f64),
            ("errors", "Requests that were answered by an error.", |w| w.errors as f64),
            ("refusals", "Requests turned away by a full queue.", |w| w.refusals as f64),
            ("joined", "Requests joined to one under way.", |w| w.joined as f64),
            ("bytes", "Bytes of replies.", |w| w.bytes as f64),
            ("busy_seconds", "Time in service, over all servers.", |w| w.busy_s),
            ("length_seconds", "Integral of the queue length over time.", |w| w.length_integral_s),
        ];
        for (name, help, value) in counters {
            let _ = writeln!(text, "# HELP concertina_queue_{name}_total {help}");
            let _ = writeln!(text, "# TYPE concertina_queue_{name}_total counter");
            for (queue, window) in queues.iter() {
                let value = value(window);
                let _ =
                    writeln!(text, "concertina_queue_{name}_total{{queue=\"{queue}\"}} {value}");
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
        let device_bytes: u64 = contents.device_bytes.iter().sum();
        let gauges = [
            ("memory_objects", "Objects in memory.", contents.memory_objects as u64),
            ("memory_bytes", "Bytes of the memory tier.", contents.memory_bytes),
            ("device_objects", "Objects on devices.", contents.device_objects as u64),
            ("device_bytes", "Bytes on devices.", device_bytes),
            ("requests_waiting", "Requests that wait for something.", waiting as u64),
            ("connections", "Connections.", connections as u64),
        ];
        for (name, help, value) in gauges {
            let _ = writeln!(
                text,
                "# HELP concertina_{name} {help}\n# TYPE concertina_{name} gauge\n\
                 concertina_{name} {value}"
            );
        }
        text
    }
}
