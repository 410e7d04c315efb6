//! [`Recorder`]: makes the windows of one queue from its events.

use super::dense::Open;
use super::dispersion::Dispersion;
use super::finished::Finished;
use super::interval::{KernelDevice, Window};
use super::operation::Outcome;
use super::time::{Nanos, SECOND};
use super::times::ServiceByNumber;

/// Length and objectives of windows. The default is one second, with objectives of 20, 50 and 100
/// ms.
///
/// ```
/// assert_eq!(ground::window::Settings::default().window_ns, ground::window::SECOND);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Length of a window.
    pub window_ns: Nanos,
    /// Objectives in milliseconds, each with an exact count of responses within it.
    pub objectives_ms: Vec<f64>,
    /// Offset from monotonic times to nanoseconds since 1970-01-01 UTC.
    pub unix_offset_ns: i128,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { window_ns: SECOND, objectives_ms: vec![20.0, 50.0, 100.0], unix_offset_ns: 0 }
    }
}

impl Settings {
    fn unix_us(&self, time: Nanos) -> u64 {
        ((i128::from(time) + self.unix_offset_ns) / 1000).max(0) as u64
    }
}

/// Sub-intervals of a window in which arrivals are counted for their dispersion.
const INTERVALS: u64 = 16;

/// Cuts the events of one queue into [`Window`]s.
///
/// Events may be reported slightly out of order (a completion becomes known some microseconds after
/// it happened); a late event counts in the open window. Cost of an event: some tens of
/// nanoseconds, of which [`Recorder::finish`] takes most.
///
/// ```
/// use ground::window::{Finished, Operation, Outcome, Recorder, Settings};
/// let mut recorder = Recorder::new("device/0", 1, Settings::default(), 0);
/// recorder.arrive(100);
/// recorder.start(100);
/// recorder.finish(5_000_100, &Finished {
///     operation: Operation::Get, outcome: Outcome::BulkDevice,
///     waiting: 0, service: 5_000_000, response: 5_000_000, bytes: 4096,
/// });
/// let windows = recorder.roll(1_000_000_000);
/// assert_eq!(windows.len(), 1);
/// assert_eq!(windows[0].completions, 1);
/// assert!((windows[0].utilisation().unwrap() - 0.005).abs() < 1e-9);
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    settings: Settings,
    window: Window,
    /// Its times.
    times: Open,
    /// Windows that were ended by a later event and not yet returned.
    ended: Vec<Window>,
    start: Nanos,
    /// The time up to which the integrals are complete.
    counted_to: Nanos,
    waiting: u64,
    in_service: u64,
}

impl Recorder {
    /// Creates a recorder whose first window starts at `now`. `servers` is 0 if their number is not
    /// limited.
    pub fn new(queue: &str, servers: u32, settings: Settings, now: Nanos) -> Self {
        let window = Window::new(queue, settings.unix_us(now), servers, &settings.objectives_ms);
        Recorder {
            settings,
            window,
            times: Open::default(),
            ended: Vec::new(),
            start: now,
            counted_to: now,
            waiting: 0,
            in_service: 0,
        }
    }

    /// Changes the number of servers, from the open window on.
    pub fn set_servers(&mut self, servers: u32) {
        self.window.servers = servers;
    }

    /// Requests waiting and in service.
    pub fn length(&self) -> u64 {
        self.waiting + self.in_service
    }

    /// Records a request that arrived at `now` and waits.
    ///
    /// `now` may lie before earlier events: a load generator that had no processor reports later
    /// which requests it should have sent. The queue length is then corrected back to `now`,
    /// because Little's law would not hold for the window otherwise.
    #[inline]
    pub fn arrive(&mut self, now: Nanos) {
        self.count_arrival(now);
        let late = self.counted_to.saturating_sub(now) as f64 / SECOND as f64;
        self.window.length_integral_s += late;
        self.waiting += 1;
    }

    /// Records a request that arrived and was refused.
    pub fn refuse(&mut self, now: Nanos) {
        self.count_arrival(now);
        self.window.refusals += 1;
    }

    /// Records a request that arrived and was joined to an earlier one for the same key.
    pub fn join(&mut self, now: Nanos) {
        self.advance(now);
        self.window.joined += 1;
    }

    /// Records the start of a waiting request's service.
    #[inline]
    pub fn start(&mut self, now: Nanos) {
        self.advance(now);
        debug_assert!(self.waiting > 0, "service began of a request that did not wait");
        self.waiting = self.waiting.saturating_sub(1);
        self.in_service += 1;
    }

    /// Records that the service of a request pauses: the request waits again. Its rest begins with
    /// [`Recorder::start`].
    pub fn pause(&mut self, now: Nanos) {
        self.advance(now);
        debug_assert!(self.in_service > 0, "a pause without a service");
        self.in_service = self.in_service.saturating_sub(1);
        self.waiting += 1;
    }

    /// Records the end of a request in service.
    pub fn finish(&mut self, now: Nanos, finished: &Finished) {
        self.advance(now);
        debug_assert!(self.in_service > 0, "an answer without a service");
        let number = self.in_service as u32;
        self.in_service = self.in_service.saturating_sub(1);
        self.count_finished(finished, number);
    }

    /// Records a request that arrived and whose service started at `from`, and ended at `to`: the
    /// same as [`Recorder::arrive`], [`Recorder::start`] and [`Recorder::finish`] one after the
    /// other, for less.
    pub fn pass(&mut self, from: Nanos, to: Nanos, finished: &Finished) {
        self.arrive(from);
        self.waiting -= 1;
        self.in_service += 1;
        self.finish(to, finished);
    }

    /// Records a waiting request that left without service (its client disconnected, its deadline
    /// passed).
    pub fn abandon(&mut self, now: Nanos) {
        self.advance(now);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Adds the kernel's counters to the open window.
    pub fn kernel(&mut self, kernel: KernelDevice) {
        self.window.kernel = Some(kernel);
    }

    /// Returns the windows that ended by `now`, oldest first. A time without events makes empty
    /// windows, up to 60; a longer one becomes a single long window.
    pub fn roll(&mut self, now: Nanos) -> Vec<Window> {
        self.end_before(now.saturating_add(1));
        std::mem::take(&mut self.ended)
    }

    /// Ends the windows whose end lies before `now`.
    fn end_before(&mut self, now: Nanos) {
        let length = self.settings.window_ns.max(1);
        while now > self.start.saturating_add(length) {
            let behind = (now - self.start) / length;
            let take = if behind > 60 { behind * length } else { length };
            let window = self.close(self.start + take);
            self.ended.push(window);
        }
    }

    /// Ends the open window at `now`, however short it is.
    pub fn flush(&mut self, now: Nanos) -> Vec<Window> {
        let mut ended = self.roll(now);
        if now > self.start {
            ended.push(self.close(now));
        } else if self.window.completions + self.window.arrivals > 0 {
            // Events before `now` were reported after one past it: they belong to the last window.
            let rest = self.close(self.start);
            match ended.last_mut() {
                Some(last) => last.merge(&rest, true),
                None => ended.push(rest),
            }
        }
        ended
    }

    fn close(&mut self, end: Nanos) -> Window {
        self.integrate(end);
        // A window that ends early has fewer sub-intervals; the one that it cuts is not counted.
        let length = self.settings.window_ns.max(1);
        let whole = (end - self.start).min(length) * INTERVALS / length;
        self.window.interval_arrivals.resize(whole as usize, 0);
        let next = Window::new(
            &self.window.queue,
            self.settings.unix_us(end),
            self.window.servers,
            &self.settings.objectives_ms,
        );
        let mut window = std::mem::replace(&mut self.window, next);
        window.times = self.times.take(&self.settings.objectives_ms);
        window.dispersion = Dispersion::from_counts(&window.interval_arrivals);
        window.length_s = (end - self.start) as f64 / SECOND as f64;
        self.start = end;
        self.counted_to = self.counted_to.max(end);
        window
    }

    fn count_arrival(&mut self, now: Nanos) {
        self.advance(now);
        self.window.arrivals += 1;
        self.window.length_met_sum += self.length();
        let length = self.settings.window_ns.max(1);
        let at = now.saturating_sub(self.start).min(length - 1);
        let index = (at * INTERVALS / length) as usize;
        let counts = &mut self.window.interval_arrivals;
        if counts.len() <= index {
            counts.resize(index + 1, 0);
        }
        counts[index] += 1;
    }

    fn count_finished(&mut self, finished: &Finished, number: u32) {
        let window = &mut self.window;
        window.completions += 1;
        window.errors += u64::from(finished.outcome == Outcome::Error);
        window.bytes += finished.bytes;
        window.bytes_squared += (finished.bytes as f64).powi(2);
        let service_s = finished.service as f64 / SECOND as f64;
        match window.service_by_number.binary_search_by_key(&number, |s| s.number) {
            Ok(i) => {
                window.service_by_number[i].count += 1;
                window.service_by_number[i].sum_s += service_s;
            }
            Err(i) => window
                .service_by_number
                .insert(i, ServiceByNumber { number, count: 1, sum_s: service_s }),
        }
        self.times.record(finished, &self.settings.objectives_ms);
    }

    /// Advances the integrals to `now`. An event past the end of
    /// the open window ends it, so that windows are exact however late [`Recorder::roll`] is
    /// called; an event exactly at the end still belongs to it.
    #[inline]
    fn advance(&mut self, now: Nanos) {
        if now == self.counted_to {
            // As at the last event: drivers read the clock once for many.
            return;
        }
        self.end_before(now);
        self.integrate(now);
    }

    #[inline]
    fn integrate(&mut self, now: Nanos) {
        if now > self.counted_to {
            let seconds = (now - self.counted_to) as f64 / SECOND as f64;
            self.window.length_integral_s += self.length() as f64 * seconds;
            self.window.busy_s += self.in_service as f64 * seconds;
            self.counted_to = now;
        }
    }
}
