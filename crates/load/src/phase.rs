//! One thread's record of a phase.
//!
//! A request is counted in the phase in which it *arrived*, however late its reply: the last window
//! of a phase stays open until all of the phase's requests have completed or timed out. The windows
//! of a step therefore hold exactly the requests of the step, even if the service stalls at its
//! end.

use std::collections::BTreeMap;

use ground::window::{
    Finished, Nanos, Operation, Outcome, QueueName, Recorder, SECOND, Sample, Settings, Window,
};
use record::{Times, short_key};
use rustix::time::{ClockId, clock_gettime};

use super::listed::ListedAccounts;

/// A message from a generator thread to the writer of the run folder.
pub(super) enum Message {
    /// A window of a phase; `index` is its number within this thread's phase.
    Window { phase: usize, index: usize, window: Window },
    /// Samples, of any phase.
    Samples(Vec<Sample>),
    /// Times of requests, of any phase.
    Times(Vec<Times>),
    /// A phase is over and all its requests have completed.
    Over { phase: usize, account: Account },
}

/// A thread's own counters during a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// Start and end of the phase, monotonic.
    pub start: Nanos,
    pub end: Nanos,
    pub dropped: u64,
    pub backlogged: u64,
    pub outstanding_max: u64,
    /// Processor time from start to end; excludes the wait for late replies.
    pub cpu_ns: Nanos,
    pub mismatches: u64,
    pub retries: u64,
    /// Whether the phase was interrupted before its end.
    pub cut: bool,
    /// The number of errors by message; at most [`FAULTS_MAX`] + 1 entries.
    pub faults: BTreeMap<String, u64>,
    /// The requests of a list.
    pub listed: ListedAccounts,
}

/// The most distinct error messages that are counted separately.
const FAULTS_MAX: usize = 20;

/// The processor time that this thread has used.
pub(super) fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The record of a phase in progress.
pub(super) struct PhaseRecord {
    phase: usize,
    recorder: Recorder,
    window_ns: Nanos,
    windows: usize,
    cpu_start: Nanos,
    /// The end, once known.
    end: Option<Nanos>,
    /// Whether the phase has ended: no request of it will arrive.
    ended: bool,
    /// Whether the phase ends with its last reply, as a closed loop of a fixed number of requests does.
    until_reply: bool,
    /// When the last request completed.
    last: Nanos,
    /// Requests that arrived and have not completed, including those in the backlog.
    unanswered: u64,
    refused: u64,
    pub account: Account,
    pub samples: Vec<Sample>,
    times: TimesRecord,
    /// When they are written next, so that lines are long.
    times_at: Nanos,
}

/// Operation, outcome, when the reply had come, how long that took, the object's bytes, and its key.
type Recorded = (Operation, Outcome, u64, u64, u64, u32);

/// When requests were sent and answered, until the next time that windows are rolled.
#[derive(Default)]
struct TimesRecord {
    queue: String,
    /// Requests that may still be recorded.
    left: u64,
    offset: i128,
    all: Vec<Recorded>,
}

/// The unit of recorded times: what a clock read after a system call is good for.
const UNIT_NS: u64 = 100;
/// Requests whose times are written before a second is over.
const TIMES_MAX: usize = 1 << 14;

impl TimesRecord {
    fn add(&mut self, now: Nanos, finished: &Finished, key: u32) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let end = (i128::from(now) + self.offset).max(0) as u64;
        let Finished { operation, outcome, service, bytes, .. } = *finished;
        self.all.push((operation, outcome, end, service, bytes, key));
    }

    fn take(&mut self) -> Vec<Times> {
        let mut out: Vec<Times> = Vec::new();
        let mut all = std::mem::take(&mut self.all);
        // Stable: in the order of the replies within each kind.
        all.sort_by_key(|r| (r.0.as_str(), r.1.as_str()));
        for kind in all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let Some(first) = kind.first() else { continue };
            let mut times = Times::new(&self.queue, first.0, first.1, UNIT_NS);
            times.extend(kind.iter().map(|r| (r.2, r.3)));
            times.bytes = kind.iter().map(|r| r.4).collect();
            times.keys = kind.iter().map(|r| r.5).collect();
            out.push(times);
        }
        out
    }
}

impl PhaseRecord {
    pub fn new(
        phase: usize,
        queue: QueueName<'_>,
        settings: &Settings,
        times: u64,
        start: Nanos,
        until_reply: bool,
    ) -> PhaseRecord {
        PhaseRecord {
            phase,
            recorder: Recorder::new(&queue.to_string(), 0, settings.clone(), start),
            window_ns: settings.window_ns.max(1),
            windows: 0,
            cpu_start: thread_cpu(),
            end: None,
            ended: false,
            until_reply,
            last: start,
            unanswered: 0,
            refused: 0,
            account: Account { start, ..Account::default() },
            samples: Vec::new(),
            times: TimesRecord {
                queue: queue.to_string(),
                left: times,
                offset: settings.unix_offset_ns,
                all: Vec::new(),
            },
            times_at: start + SECOND,
        }
    }

    /// Sets the end of the phase; the first known end is kept.
    pub fn bound(&mut self, end: Option<Nanos>) {
        if !self.until_reply {
            self.end = self.end.or(end);
        }
    }

    /// Sets the end of a phase that an interrupt cuts off before its planned end, so that no window reaches beyond `now`.
    pub fn interrupt(&mut self, now: Nanos) {
        if !self.until_reply {
            self.end = Some(self.end.map_or(now, |planned| planned.min(now)));
        }
    }

    /// Clamps a time to the phase's end, where its integrals stop.
    fn within(&self, now: Nanos) -> Nanos {
        self.end.map_or(now, |end| now.min(end))
    }

    /// Records the arrival of a request. `is_retry`: it arrived before and failed. Returns the
    /// number of requests it found outstanding.
    pub fn arrive(&mut self, intended: Nanos, is_retry: bool) -> u64 {
        let met = self.recorder.length();
        self.recorder.arrive(self.within(intended));
        self.unanswered += u64::from(!is_retry);
        self.account.outstanding_max = self.account.outstanding_max.max(met + 1);
        met
    }

    /// Records that a request is sent.
    pub fn start(&mut self, now: Nanos) {
        self.recorder.start(self.within(now));
    }

    /// Records that a request was dropped before it was sent.
    pub fn drop_arrival(&mut self, now: Nanos) {
        self.recorder.abandon(self.within(now));
        self.unanswered = self.unanswered.saturating_sub(1);
        self.account.dropped += 1;
    }

    /// Records that a request for a key with this hash completed or timed out.
    pub fn finish(&mut self, now: Nanos, finished: &Finished, refused: bool, hash: u64) {
        self.recorder.finish(self.within(now), finished);
        self.last = self.last.max(now);
        self.times.add(now, finished, short_key(hash));
        self.unanswered = self.unanswered.saturating_sub(1);
        self.refused += u64::from(refused);
    }

    /// Records that a request failed and will arrive again.
    pub fn retry(&mut self, now: Nanos, finished: &Finished) {
        self.recorder.finish(self.within(now), finished);
        self.account.retries += 1;
    }

    /// Counts an error by its message.
    pub fn fault(&mut self, reason: String) {
        let faults = &mut self.account.faults;
        let full = faults.len() >= FAULTS_MAX && !faults.contains_key(&reason);
        let reason = if full { "other errors".to_owned() } else { reason };
        *faults.entry(reason).or_insert(0) += 1;
    }

    /// Returns the windows that are over at `now`, followed by the account once the phase is over,
    /// and whether it is over.
    ///
    /// `end` is the phase's end, passed once all its requests have begun. `give_up` closes the
    /// phase even if some requests have not completed.
    pub fn roll(&mut self, now: Nanos, end: Option<Nanos>, give_up: bool) -> (Vec<Message>, bool) {
        if let Some(end) = end.filter(|&end| end <= now && !self.ended) {
            self.bound(Some(end));
            self.account.cut = give_up;
            self.ended = true;
            self.account.end = self.end.map_or(end, |known| known.min(end));
            self.account.cpu_ns = thread_cpu().saturating_sub(self.cpu_start);
        }
        let over = self.ended && (self.unanswered == 0 || give_up);
        if over && self.until_reply {
            self.account.end = self.account.end.max(self.last);
            self.end = Some(self.account.end);
        }
        let windows = match self.end {
            Some(end) if over => self.recorder.flush(end),
            Some(end) if now >= end => {
                // All but the last window, which stays open for late replies.
                let whole = end.saturating_sub(self.account.start + 1) / self.window_ns;
                self.recorder.roll(self.account.start + whole * self.window_ns)
            }
            _ => self.recorder.roll(now),
        };
        let mut messages = Vec::new();
        for mut window in windows {
            window.refusals += std::mem::take(&mut self.refused);
            messages.push(Message::Window { phase: self.phase, index: self.windows, window });
            self.windows += 1;
        }
        if !self.samples.is_empty() {
            messages.push(Message::Samples(std::mem::take(&mut self.samples)));
        }
        if !self.times.all.is_empty()
            && (over || self.times.all.len() >= TIMES_MAX || now >= self.times_at)
        {
            messages.push(Message::Times(self.times.take()));
            self.times_at = now + SECOND;
        }
        if over {
            let account = std::mem::take(&mut self.account);
            messages.push(Message::Over { phase: self.phase, account });
        }
        (messages, over)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::arrivals::{Pace, Part, Phase};
    use super::super::plan::Length;
    use super::super::source::Pass;
    use super::*;

    #[test]
    fn a_thread_that_stood_still_records_its_arrivals_within_the_phase() {
        let length = Length::Requests(50);
        let pace = Pace::Constant(300.0);
        let phase = Phase { pace, length, part: Part::Warmup, purpose: 1, step: None };
        let pass = Pass::new(vec![phase], 0, QueueName::Load, false, 7, &AtomicBool::new(false));
        let (Some(start), Some(end)) = pass.bounds(0) else { panic!("an open loop has an end") };
        assert_eq!(end - start, 49 * SECOND / 300 + 1);
        let settings = Settings { window_ns: SECOND / 5, ..Settings::default() };
        let mut record = PhaseRecord::new(0, QueueName::Load, &settings, 0, start, false);
        record.bound(Some(end));
        let finished = Finished {
            operation: Operation::Get,
            outcome: Outcome::Memory,
            waiting: 0,
            service: 1,
            response: 1,
            bytes: 1,
        };
        // A reply read in the window after the end is recorded before the last arrival is sent.
        let late = start + 3 * settings.window_ns / 2;
        for (intended, sent) in [(start, start), (end - 1, late)] {
            record.arrive(intended, false);
            record.start(sent);
            record.finish(late, &finished, false, 0);
            assert!(record.roll(late, None, false).0.is_empty());
        }
        let (messages, over) = record.roll(late, Some(end), false);
        let [Message::Window { window, .. }, Message::Over { account, .. }] = &messages[..] else {
            panic!("one window, then the end")
        };
        assert!(over && account.end == end);
        assert_eq!((window.arrivals, window.completions), (2, 2));
        assert!((window.length_s - (end - start) as f64 * 1e-9).abs() < 1e-9);
    }

    /// The window that is open at an interrupt would otherwise last to the planned end, in the future, and dilute the load.
    #[test]
    fn windows_of_an_interrupted_phase_end_at_the_interrupt() {
        for until_reply in [false, true] {
            let settings = Settings::default();
            let (start, queue) = (7 * SECOND, QueueName::Load);
            let mut record = PhaseRecord::new(0, queue, &settings, 0, start, until_reply);
            record.bound(Some(start + 300 * SECOND));
            record.arrive(start + SECOND / 2, false);
            record.start(start + SECOND / 2);
            let interrupted = start + 5 * SECOND / 2;
            let (mut messages, over) = record.roll(interrupted, None, false);
            assert!(!over);
            record.interrupt(interrupted);
            // The replies that are still waited for belong to the same window.
            messages.extend(record.roll(interrupted + SECOND / 4, None, true).0);
            let left = interrupted + SECOND / 2;
            let (last, over) = record.roll(left, Some(left), true);
            messages.extend(last);
            let end = if until_reply { left } else { interrupted };
            let Some(Message::Over { account, .. }) = messages.last() else { panic!("not over") };
            assert!(over && account.cut && account.end == end);
            let lengths = messages.iter().filter_map(|message| match message {
                Message::Window { window, .. } => Some(window.length_s),
                _ => None,
            });
            let lengths: Vec<f64> = lengths.collect();
            let rest = (end - start) as f64 * 1e-9 - 2.0;
            assert_eq!(lengths.len(), 3);
            assert!(lengths.iter().zip([1.0, 1.0, rest]).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
