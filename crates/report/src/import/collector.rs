//! Converts requests in order of completion into the windows of a queue.
//!
//! A live queue records arrivals as they happen. A log records a request when its reply is written,
//! and its lines are not exactly in order. So all windows stay open to the end: memory use grows
//! with the number of windows, not with the number of requests.

use std::collections::BTreeMap;

use ground::window::{Dispersion, Nanos, Operation, Outcome, QueueName, SECOND, Window};

/// The largest number of windows of a queue.
pub(super) const WINDOWS_MAX: u64 = 100_000;
/// Number of parts of a window in which arrivals are counted for their dispersion, as in `Window`.
const PARTS: usize = 16;

/// A request that was answered or refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Time of completion, nanoseconds since 1970.
    pub end: Nanos,
    /// Response time.
    pub response: Nanos,
    pub operation: Operation,
    /// `None` if it was refused.
    pub outcome: Option<Outcome>,
    pub bytes: u64,
}

#[derive(Clone, Debug)]
struct Open {
    window: Window,
    arrivals: [u64; PARTS],
}

/// Collects the requests of one queue.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    queue: String,
    window_ns: Nanos,
    objectives_ms: Vec<f64>,
    /// Whether arrival times are fine enough to count them in parts of a window.
    dispersion: bool,
    open: BTreeMap<u64, Open>,
    /// At each window, the change in the number of requests that are present throughout a window.
    through: BTreeMap<u64, i64>,
    /// The windows of the first and the last completion.
    span: Option<(u64, u64)>,
}

impl Collector {
    pub fn new(
        queue: QueueName<'_>,
        window_ns: Nanos,
        objectives_ms: &[f64],
        dispersion: bool,
    ) -> Self {
        Collector {
            queue: queue.to_string(),
            window_ns: window_ns.max(1),
            objectives_ms: objectives_ms.to_vec(),
            dispersion,
            open: BTreeMap::new(),
            through: BTreeMap::new(),
            span: None,
        }
    }

    /// The number of windows from the first completion to the last.
    pub fn windows(&self) -> u64 {
        self.span.map_or(0, |(first, last)| last - first + 1)
    }

    /// Whether the number of windows is within the limit.
    pub fn fits(&self) -> bool {
        let kept = self.open.len().max(self.through.len() / 2) as u64;
        self.windows().max(kept) <= WINDOWS_MAX
    }

    /// Finds or creates a window.
    fn open(&mut self, index: u64) -> &mut Open {
        let (queue, length) = (&self.queue, self.window_ns);
        let objectives = &self.objectives_ms;
        self.open.entry(index).or_insert_with(|| {
            let start = index.saturating_mul(length) / 1000;
            let mut window = Window::new(queue, start, 0, objectives);
            window.length_s = length as f64 / SECOND as f64;
            Open { window, arrivals: [0; PARTS] }
        })
    }

    /// Records a request.
    pub fn add(&mut self, request: &Request) {
        let length = self.window_ns;
        let to = request.end / length;
        self.span = Some(self.span.map_or((to, to), |(a, b)| (a.min(to), b.max(to))));
        let Some(outcome) = request.outcome else {
            let open = self.open(to);
            open.window.refusals += 1;
            open.arrive((request.end % length) as f64 / length as f64);
            return;
        };
        let start = request.end.saturating_sub(request.response);
        let from = start / length;
        self.open(from).arrive((start % length) as f64 / length as f64);
        let seconds = |ns: Nanos| ns as f64 / SECOND as f64;
        if from == to {
            self.open(to).present(seconds(request.end - start));
        } else {
            self.open(from).present(seconds(length - start % length));
            self.open(to).present(seconds(request.end % length));
            *self.through.entry(from + 1).or_insert(0) += 1;
            *self.through.entry(to).or_insert(0) -= 1;
        }
        let window = &mut self.open(to).window;
        window.completions += 1;
        window.errors += u64::from(outcome == Outcome::Error);
        window.bytes = window.bytes.saturating_add(request.bytes);
        window.bytes_squared += (request.bytes as f64).powi(2);
        let response_ms = request.response as f64 * 1e-6;
        let within: Vec<bool> = window.objectives_ms.iter().map(|o| response_ms <= *o).collect();
        let times = window.times_mut(request.operation, outcome);
        times.response.record(request.response);
        for (count, within) in times.within.iter_mut().zip(within) {
            *count += u64::from(within);
        }
    }

    /// The windows from the first completion to the last, without gaps.
    pub fn finish(mut self) -> Vec<Window> {
        let Some((first, last)) = self.span else { return Vec::new() };
        let length_s = self.window_ns as f64 / SECOND as f64;
        let mut through: i64 = self.through.range(..first).map(|(_, n)| n).sum();
        let mut windows = Vec::new();
        for index in first..=last.min(first.saturating_add(WINDOWS_MAX)) {
            through += self.through.get(&index).copied().unwrap_or(0);
            let dispersion = self.dispersion;
            let open = self.open(index);
            let window = &mut open.window;
            window.length_integral_s += through.max(0) as f64 * length_s;
            // A log does not separate waiting from service: a request counts as in service while it
            // is present.
            window.busy_s = window.length_integral_s;
            if dispersion {
                window.interval_arrivals = open.arrivals.to_vec();
                window.dispersion = Dispersion::of(&open.arrivals);
            }
            windows.push(window.clone());
        }
        windows
    }
}

impl Open {
    fn arrive(&mut self, at: f64) {
        self.window.arrivals += 1;
        if let Some(part) = self.arrivals.get_mut((at * PARTS as f64) as usize) {
            *part += 1;
        }
    }

    fn present(&mut self, seconds: f64) {
        self.window.length_integral_s += seconds;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Little's law by construction, and nothing is lost, whatever the order.
        #[test]
        fn integrals_are_those_of_a_naive_twin(
            all in prop::collection::vec((0u64..20_000, 0u64..9_000), 1..60),
            window in 1u64..4_000,
        ) {
            let mut collector = Collector::new(QueueName::Gateway, window, &[0.002], true);
            let base = 1_000_000u64;
            for &(end, response) in &all {
                collector.add(&Request { end: base + end, response, operation: Operation::Get,
                    outcome: Some(Outcome::Unknown), bytes: 1 });
            }
            prop_assert_eq!(collector.fits(), true);
            let windows = collector.finish();
            let completions: u64 = windows.iter().map(|w| w.completions).sum();
            prop_assert_eq!(completions, all.len() as u64);
            for (index, w) in windows.iter().enumerate() {
                let from = all.iter().map(|r| base + r.0).min().unwrap_or(0) / window * window
                    + index as u64 * window;
                let present = |&(end, response): &(u64, u64)| {
                    let (start, end) = (base + end - response, base + end);
                    end.min(from + window).saturating_sub(start.max(from))
                };
                let naive = all.iter().map(present).sum::<u64>() as f64 * 1e-9;
                prop_assert!((w.length_integral_s - naive).abs() < 1e-12);
                let arrived = |&&(end, response): &&(u64, u64)| {
                    (from..from + window).contains(&(base + end - response))
                };
                prop_assert_eq!(w.arrivals, all.iter().filter(arrived).count() as u64);
                prop_assert_eq!(w.dispersion.sum, w.arrivals);
            }
        }
    }
}
