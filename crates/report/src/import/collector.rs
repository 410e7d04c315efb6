//! Converts requests in order of completion into the windows of a queue.
//!
//! A live queue records arrivals as they happen. A log records a request when its reply is written,
//! and its lines are not exactly in order. So all windows stay open to the end: memory use grows
//! with the number of windows, not with the number of requests. A log of weeks has windows of
//! minutes: they double in length whenever there would be more than [`WINDOWS_MAX`].
//!
//! Windows follow the time in which there are requests. A long time without any ([`Break`]) has none: with them, two
//! tests of ten minutes on different days had windows of minutes, which joined their loads.
//!
//! A log begins and ends within a window, as does each part between two breaks. The first and the last window are as long as they were
//! observed, so that no request has to be dropped with them and no rate is too low because of them.

use std::collections::BTreeMap;

use ground::window::{Dispersion, Nanos, Operation, Outcome, QueueName, SECOND, Window};

use super::levels::{ARRIVALS_MIN, WINDOWS_MIN};

/// The largest number of windows of a queue.
pub(super) const WINDOWS_MAX: u64 = 100_000;
/// Number of parts of a window in which arrivals are counted for their dispersion, as in `Window`.
const PARTS: usize = 16;
/// Windows do not grow beyond this: a log that needs longer ones has stamps of other decades.
const WINDOW_NS_MAX: Nanos = 3_600 * SECOND;
/// A break is at least so many windows long, of the length that was asked for.
const BREAK_WINDOWS: u64 = 1_000;
/// A break is a time in which so many requests would have come at the mean rate of the whole log: e⁻³⁰ is no chance.
const BREAK_MISSED: f64 = 30.0;
/// Breaks leave at least this share of the requests in parts that are long enough for a step. Of other logs (a batch each hour) too little would
/// be left to fit.
const IN_STEPS_MIN: f64 = 0.9;

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

/// A time without requests that has no windows, from the end of the window before to the start of the one after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Break {
    pub from_us: u64,
    pub until_us: u64,
}

/// Whether a time without requests is too long to be chance, or a lull of the load.
pub(super) fn is_break(gap_s: f64, requests: u64, whole_s: f64) -> bool {
    gap_s * requests as f64 > BREAK_MISSED * whole_s
}

#[derive(Clone, Debug)]
struct Open {
    window: Window,
    arrivals: [u64; PARTS],
    /// The first arrival and the last end in it.
    first_arrival: Nanos,
    last_end: Nanos,
}

/// The windows between two breaks.
#[derive(Clone, Debug)]
struct Stretch {
    windows: Vec<Window>,
    /// The first arrival in the first window, and the last end in the last.
    first_arrival: Nanos,
    last_end: Nanos,
}

/// Collects the requests of one queue.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    queue: String,
    /// The length of a window that was asked for, and that it has now.
    asked_ns: Nanos,
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
            asked_ns: window_ns.max(1),
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

    /// Whether the number of windows that have requests is within the limit.
    pub fn fits(&self) -> bool {
        self.open.len().max(self.through.len() / 2) as u64 <= WINDOWS_MAX
    }

    /// The breaks. Windows double in length until those between the breaks are within the limit, which [`Collector::fits_between`] tells.
    pub fn settle(&mut self) -> Vec<Break> {
        loop {
            let breaks = self.breaks();
            if self.fits_between(&breaks) || self.window_ns > WINDOW_NS_MAX / 2 {
                return breaks;
            }
            self.double();
        }
    }

    /// The same with the breaks of another queue.
    pub fn settle_between(&mut self, breaks: &[Break]) {
        while !self.fits_between(breaks) && self.window_ns <= WINDOW_NS_MAX / 2 {
            self.double();
        }
    }

    /// Whether the number of windows between breaks is within the limit.
    pub fn fits_between(&self, breaks: &[Break]) -> bool {
        let without: u64 = breaks.iter().filter_map(|b| self.within(b)).map(|(a, b)| b - a).sum();
        self.windows() - without.min(self.windows()) <= WINDOWS_MAX
    }

    /// The windows that lie within a break: the first, and the one after the last.
    fn within(&self, of: &Break) -> Option<(u64, u64)> {
        let (first, last) = self.span?;
        let index = |us: u64| us.saturating_mul(1000) / self.window_ns;
        let from = index(of.from_us.saturating_add(self.window_ns / 1000).saturating_sub(1));
        let (from, until) = (from.max(first), index(of.until_us).min(last));
        (from < until).then_some((from, until))
    }

    /// The times without requests that are no lull of the load, unless too few requests are in parts that are long enough for a step.
    fn breaks(&self) -> Vec<Break> {
        let us = |window: u64| window.saturating_mul(self.window_ns) / 1000;
        let keys: Vec<u64> = self.open.keys().copied().collect();
        let parts = keys.chunk_by(|before, after| !self.is_apart(*before, *after));
        let parts: Vec<(u64, u64)> =
            parts.filter_map(|part| Some((*part.first()?, *part.last()?))).collect();
        let (mut in_steps, mut all) = (0, 0);
        for &(first, last) in &parts {
            let arrivals = self.open.range(first..=last).map(|(_, open)| open.window.arrivals);
            let arrivals: u64 = arrivals.sum();
            all += arrivals;
            if last - first + 1 >= WINDOWS_MIN as u64 && arrivals >= ARRIVALS_MIN {
                in_steps += arrivals;
            }
        }
        if (in_steps as f64) < IN_STEPS_MIN * all as f64 {
            return Vec::new();
        }
        let gap = |two: &[(u64, u64)]| Break { from_us: us(two[0].1 + 1), until_us: us(two[1].0) };
        // A request that is present throughout a gap is counted in each of its windows.
        parts.windows(2).map(gap).filter(|gap| !self.is_occupied(gap)).collect()
    }

    /// Whether a break may be between two windows that follow each other.
    fn is_apart(&self, before: u64, after: u64) -> bool {
        let seconds = |windows: u64| windows as f64 * self.window_ns as f64 / SECOND as f64;
        let gap = after - before - 1;
        let least = BREAK_WINDOWS.saturating_mul(self.asked_ns);
        gap > 0
            && gap.saturating_mul(self.window_ns) >= least
            && is_break(seconds(gap), self.observed.requests, seconds(self.windows()))
    }

    /// Whether a request is present throughout a break.
    fn is_occupied(&self, gap: &Break) -> bool {
        let index = gap.from_us.saturating_mul(1000) / self.window_ns;
        self.through.range(..=index).map(|(_, change)| change).sum::<i64>() > 0
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
            whole.first_arrival = whole.first_arrival.min(part.first_arrival);
            whole.last_end = whole.last_end.max(part.last_end);
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
            Open { window, arrivals: [0; PARTS], first_arrival: Nanos::MAX, last_end: 0 }
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
            open.arrive(request.end, length);
            open.last_end = open.last_end.max(request.end);
            return;
        };
        let start = request.end.saturating_sub(request.response);
        let from = start / length;
        self.observed.add(start, request.end);
        self.open(from).arrive(start, length);
        let seconds = |ns: Nanos| ns as f64 / SECOND as f64;
        if from == to {
            self.open(to).present(seconds(request.end - start));
        } else {
            self.open(from).present(seconds(length - start % length));
            self.open(to).present(seconds(request.end % length));
            *self.through.entry(from + 1).or_insert(0) += 1;
            *self.through.entry(to).or_insert(0) -= 1;
        }
        let open = self.open(to);
        open.last_end = open.last_end.max(request.end);
        let window = &mut open.window;
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

    /// The windows from the first completion to the last, but for those within breaks.
    pub fn finish(self, breaks: &[Break]) -> Vec<Window> {
        let (observed, window_ns) = (self.observed, self.window_ns);
        let mut stretches = self.full_length(breaks);
        if let Some(first) = stretches.first_mut() {
            first.first_arrival = observed.start();
        }
        stretches.into_iter().flat_map(|stretch| stretch.into_windows(window_ns)).collect()
    }

    /// The windows, the first and the last as long as all.
    fn full_length(mut self, breaks: &[Break]) -> Vec<Stretch> {
        let Some((first, last)) = self.span else { return Vec::new() };
        let length_s = self.window_ns as f64 / SECOND as f64;
        let mut through: i64 = self.through.range(..first).map(|(_, n)| n).sum();
        let mut skipped = breaks.iter().filter_map(|b| self.within(b)).collect::<Vec<_>>();
        skipped.sort_unstable();
        skipped.push((last + 1, last + 1));
        let (mut stretches, mut from) = (Vec::new(), first);
        for (end, next) in skipped {
            // Of a window without arrivals or ends it is not known how much of it was observed.
            let open = |index: u64| self.open.get(&index);
            let arrival = open(from).map(|open| open.first_arrival).filter(|at| *at < Nanos::MAX);
            let ended = open(end.saturating_sub(1)).map(|open| open.last_end).filter(|at| *at > 0);
            let mut stretch = Stretch {
                windows: Vec::new(),
                first_arrival: arrival.unwrap_or(0),
                last_end: ended.unwrap_or(Nanos::MAX),
            };
            for index in from..end.min(from.saturating_add(WINDOWS_MAX + 1)) {
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
                stretch.windows.push(window.clone());
            }
            stretches.push(stretch);
            from = next;
        }
        stretches
    }
}

impl Stretch {
    /// The windows, the first and the last as long as they were observed.
    fn into_windows(self, window_ns: Nanos) -> Vec<Window> {
        let Stretch { mut windows, first_arrival, last_end } = self;
        let whole_s = window_ns as f64 / SECOND as f64;
        if let Some(first) = windows.first_mut() {
            cut(first, first_arrival / 1000, first.end_unix_us());
        }
        if let Some(last) = windows.last_mut() {
            cut(last, last.start_unix_us, last_end.div_ceil(1000));
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
    fn arrive(&mut self, at: Nanos, window_ns: Nanos) {
        self.window.arrivals += 1;
        self.first_arrival = self.first_arrival.min(at);
        let at = (at % window_ns) as f64 / window_ns as f64;
        if let Some(part) = self.arrivals.get_mut((at * PARTS as f64) as usize) {
            *part += 1;
        }
    }

    fn present(&mut self, seconds: f64) {
        self.window.length_integral_s += seconds;
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
