//! Converts requests in order of completion into the windows of a queue.
//!
//! A live queue records arrivals as they happen. A log records a request when its reply is written,
//! and its lines are not exactly in order. So all windows stay open to the end: memory use grows
//! with the number of windows, not with the number of requests. A log of weeks has windows of
//! minutes: they double in length whenever there would be more than [`WINDOWS_MAX`].
//!
//! A log begins and ends within a window. The first and the last window are as long as they were
//! observed, so that no request has to be dropped with them and no rate is too low because of them.

use std::collections::BTreeMap;

use ground::window::{Dispersion, Nanos, Operation, Outcome, QueueName, SECOND, Window};

/// The largest number of windows of a queue.
pub(super) const WINDOWS_MAX: u64 = 100_000;
/// Number of parts of a window in which arrivals are counted for their dispersion, as in `Window`.
const PARTS: usize = 16;
/// Windows do not grow beyond this: a log that needs longer ones has stamps of other decades.
const WINDOW_NS_MAX: Nanos = 3_600 * SECOND;

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

/// The longest time within a log in which nothing arrived and nothing ended, in whole windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pause {
    pub from_us: u64,
    pub until_us: u64,
    /// Whether more than half of the windows are empty.
    pub is_mostly_empty: bool,
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
    observed: Observed,
}

/// When the log was written.
#[derive(Clone, Copy, Debug)]
struct Observed {
    arrival: Nanos,
    first_end: Nanos,
    last_end: Nanos,
    requests: u64,
    responses_s: f64,
}

impl Observed {
    fn new() -> Observed {
        let (arrival, first_end) = (Nanos::MAX, Nanos::MAX);
        Observed { arrival, first_end, last_end: 0, requests: 0, responses_s: 0.0 }
    }

    fn add(&mut self, arrival: Nanos, end: Nanos) {
        self.arrival = self.arrival.min(arrival);
        self.first_end = self.first_end.min(end);
        self.last_end = self.last_end.max(end);
        self.requests += 1;
        self.responses_s += (end - arrival) as f64 / SECOND as f64;
    }

    /// From when on most arrivals are in the log. If it began with the service, from its first
    /// arrival; if it continues another log, only the slow ones of the requests that came before
    /// its first line are known, so not from the first of these.
    fn start(&self) -> Nanos {
        let mean_s = self.responses_s / self.requests.max(1) as f64;
        let before = (2.0 * mean_s * SECOND as f64) as Nanos;
        self.arrival.max(self.first_end.saturating_sub(before))
    }
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
            observed: Observed::new(),
        }
    }

    /// The length of a window.
    pub fn window_ns(&self) -> Nanos {
        self.window_ns
    }

    /// The number of windows from the first completion to the last.
    pub fn windows(&self) -> u64 {
        self.span.map_or(0, |(first, last)| last - first + 1)
    }

    /// The longest time without requests; `None` if there is none.
    pub fn pause(&self) -> Option<Pause> {
        let pairs = self.open.keys().zip(self.open.keys().skip(1));
        let (before, after) = pairs.max_by_key(|(before, after)| *after - *before)?;
        let us = |window: u64| window.saturating_mul(self.window_ns) / 1000;
        (after - before > 1).then(|| Pause {
            from_us: us(before + 1),
            until_us: us(*after),
            is_mostly_empty: 2 * (self.open.len() as u64) < self.windows(),
        })
    }

    /// Whether the number of windows is within the limit.
    pub fn fits(&self) -> bool {
        let kept = self.open.len().max(self.through.len() / 2) as u64;
        self.windows().max(kept) <= WINDOWS_MAX
    }

    /// Joins each two successive windows.
    fn double(&mut self) {
        let half_s = self.window_ns as f64 / SECOND as f64;
        self.window_ns *= 2;
        self.span = self.span.map(|(first, last)| (first / 2, last / 2));
        for (index, part) in std::mem::take(&mut self.open) {
            let second = (index % 2) as usize;
            let whole = self.open(index / 2);
            let length_s = whole.window.length_s;
            whole.window.merge(&Window { start_unix_us: u64::MAX, ..part.window }, false);
            whole.window.length_s = length_s;
            for (at, pair) in part.arrivals.chunks(2).enumerate() {
                if let Some(sum) = whole.arrivals.get_mut(second * PARTS / 2 + at) {
                    *sum += pair.iter().sum::<u64>();
                }
            }
        }
        // Who is present from the second half of a window on is so throughout the next.
        for (index, change) in std::mem::take(&mut self.through) {
            let from = index.div_ceil(2);
            if index % 2 == 1 {
                self.open(index / 2).present(half_s * change as f64);
            }
            *self.through.entry(from).or_insert(0) += change;
        }
        self.through.retain(|_, change| *change != 0);
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
        self.record(request);
        while !self.fits() && self.window_ns <= WINDOW_NS_MAX / 2 {
            self.double();
        }
    }

    fn record(&mut self, request: &Request) {
        let length = self.window_ns;
        let to = request.end / length;
        self.span = Some(self.span.map_or((to, to), |(a, b)| (a.min(to), b.max(to))));
        let Some(outcome) = request.outcome else {
            self.observed.add(request.end, request.end);
            let open = self.open(to);
            open.window.refusals += 1;
            open.arrive((request.end % length) as f64 / length as f64);
            return;
        };
        let start = request.end.saturating_sub(request.response);
        let from = start / length;
        self.observed.add(start, request.end);
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
    pub fn finish(self) -> Vec<Window> {
        let observed = self.observed;
        let whole_s = self.window_ns as f64 / SECOND as f64;
        let mut windows = self.full_length();
        if let Some(first) = windows.first_mut() {
            cut(first, observed.start() / 1000, first.end_unix_us());
        }
        if let Some(last) = windows.last_mut() {
            cut(last, last.start_unix_us, observed.last_end.div_ceil(1000));
        }
        // What is left of a window is no sample of its own; joined to its neighbour it is.
        let short = |w: &Window| w.length_s < whole_s / 2.0;
        if windows.len() > 1 && windows.first().is_some_and(short) {
            let first = windows.remove(0);
            windows.iter_mut().take(1).for_each(|w| w.merge(&first, false));
        }
        if windows.len() > 1
            && let Some(last) = windows.pop_if(|w| short(w))
        {
            windows.iter_mut().rev().take(1).for_each(|w| w.merge(&last, false));
        }
        windows
    }

    /// The windows, the first and the last as long as all.
    fn full_length(mut self) -> Vec<Window> {
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
                window.dispersion = Dispersion::from_counts(&open.arrivals);
            }
            windows.push(window.clone());
        }
        windows
    }
}

/// Shortens a window that was not observed throughout. Its dispersion is unknown then.
fn cut(window: &mut Window, from_us: u64, to_us: u64) {
    let from_us = from_us.clamp(window.start_unix_us, window.end_unix_us());
    let to_us = to_us.clamp(from_us, window.end_unix_us());
    let length_s = (to_us - from_us).max(1) as f64 * 1e-6;
    if length_s < window.length_s {
        (window.start_unix_us, window.length_s) = (from_us, length_s);
        (window.interval_arrivals, window.dispersion) = (Vec::new(), Dispersion::default());
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
            let windows = collector.full_length();
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

    fn get(end: Nanos, response: Nanos) -> Request {
        let (operation, outcome) = (Operation::Get, Some(Outcome::Unknown));
        Request { end, response, operation, outcome, bytes: 1 }
    }

    proptest! {
        /// Windows that double in length are those that would have been made of that length.
        #[test]
        fn doubled_windows_are_those_of_twice_the_length(
            all in prop::collection::vec((0u64..20_000, 0u64..9_000), 1..60),
            window in 1u64..40,
            times in 0u32..5,
        ) {
            let window = 50 * window;
            let long = window << times;
            let [mut doubled, mut exact] =
                [window, long].map(|ns| Collector::new(QueueName::Gateway, ns, &[0.002], true));
            for (i, &(end, response)) in all.iter().enumerate() {
                // In the middle of the log, as it happens.
                if i == all.len() / 2 {
                    (0..times).for_each(|_| doubled.double());
                }
                doubled.record(&get(1_000_000 + end, response));
                exact.record(&get(1_000_000 + end, response));
            }
            let (doubled, exact) = (doubled.full_length(), exact.full_length());
            prop_assert_eq!(doubled.len(), exact.len());
            for (a, b) in doubled.iter().zip(&exact) {
                prop_assert!((a.length_integral_s - b.length_integral_s).abs() < 1e-12);
                prop_assert_eq!(&a.interval_arrivals, &b.interval_arrivals);
                let of = |w: &Window| (w.start_unix_us, w.arrivals, w.completions, w.bytes);
                prop_assert_eq!(of(a), of(b));
                let of = |w: &Window| -> Vec<_> {
                    let times = w.times.iter();
                    times.map(|t| (t.response.count(), t.response.max_s(), t.within.clone())).collect()
                };
                prop_assert_eq!(of(a), of(b));
            }
        }
    }

    #[test]
    fn the_first_and_the_last_window_are_as_long_as_they_were_observed() {
        let ms = 1_000_000u64;
        let windows = |ends: &[u64]| {
            let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
            ends.iter().for_each(|end| collector.add(&get(end * ms, 10 * ms)));
            let windows = collector.finish();
            let arrivals: u64 = windows.iter().map(|w| w.arrivals).sum();
            assert_eq!(arrivals as usize, ends.len());
            windows
                .iter()
                .map(|w| (w.start_unix_us / 1000, (w.length_s * 1e3).round() as u64))
                .collect::<Vec<_>>()
        };
        assert_eq!(windows(&[5_210, 6_500, 7_800]), [(5_200, 800), (6_000, 1_000), (7_000, 800)]);
        // Too little of a second is part of the next, or of the one before.
        assert_eq!(windows(&[5_910, 6_500, 7_100]), [(5_900, 1_200)]);
        assert_eq!(windows(&[5_910]), [(5_900, 10)]);
        assert!(Collector::new(QueueName::Gateway, SECOND, &[], true).finish().is_empty());
    }

    #[test]
    fn pauses_are_the_longest_times_without_requests() {
        let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
        (0..9).for_each(|i| collector.add(&get(i * SECOND + SECOND / 2, SECOND / 100)));
        assert_eq!(collector.pause(), None);
        collector.add(&get(50 * SECOND + SECOND / 2, SECOND / 100));
        let pause = collector.pause().unwrap();
        assert_eq!((pause.from_us, pause.until_us), (9_000_000, 50_000_000));
        assert!(pause.is_mostly_empty);
    }

    #[test]
    fn a_log_of_weeks_has_longer_windows() {
        let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
        let all = 30 * 86_400 / 7;
        (0..all).for_each(|i| collector.add(&get(7 * i * SECOND, SECOND / 100)));
        assert!(collector.fits() && collector.window_ns() == 32 * SECOND);
        let windows = collector.finish();
        assert!(windows.len() as u64 <= WINDOWS_MAX);
        assert_eq!(windows.iter().map(|w| w.completions).sum::<u64>(), all);
    }
}
