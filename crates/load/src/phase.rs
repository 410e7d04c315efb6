//! What a thread records of a phase.
//!
//! Each request is counted in the phase that it *arrived* in, however late its reply: the last window
//! of a phase stays open until all of the phase's requests are answered or given up. So the windows of
//! a step hold exactly the requests of the step, and a service that stalls at its end cannot lose them.

use std::collections::BTreeMap;

use model::window::{Finished, Nanos, Recorder, Sample, Settings, Window};
use rustix::time::{ClockId, clock_gettime};

/// What a thread tells the writer of the run folder.
pub(super) enum Message {
    /// A window of a phase, the `index`th of this thread.
    Window { phase: usize, index: usize, window: Window },
    /// Samples, of any phase.
    Samples(Vec<Sample>),
    /// A phase is over and all its requests are answered.
    Over { phase: usize, account: Account },
}

/// What a thread says of itself in a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// When the phase started and ended, monotonic.
    pub start: Nanos,
    pub end: Nanos,
    pub dropped: u64,
    pub backlogged: u64,
    pub outstanding_max: u64,
    /// Processor time from start to end, without what the wait for late replies took.
    pub cpu_ns: Nanos,
    pub mismatches: u64,
    pub retries: u64,
    /// Whether it was interrupted before its end.
    pub cut: bool,
    /// Kinds of errors and how often each occurred.
    pub faults: BTreeMap<String, u64>,
}

/// The most kinds of errors that are kept apart.
const FAULTS_MAX: usize = 20;

/// What this thread has used of a processor.
pub(super) fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A phase of a thread while it is recorded.
pub(super) struct PhaseRecord {
    phase: usize,
    recorder: Recorder,
    window_ns: Nanos,
    windows: usize,
    cpu_start: Nanos,
    /// The end, once it is known.
    end: Option<Nanos>,
    /// Whether no request of the phase is to come.
    ended: bool,
    /// Requests that arrived and are not answered, those of the backlog included.
    unanswered: u64,
    refused: u64,
    pub account: Account,
    pub samples: Vec<Sample>,
}

impl PhaseRecord {
    pub fn new(phase: usize, queue: &str, settings: &Settings, start: Nanos) -> PhaseRecord {
        PhaseRecord {
            phase,
            recorder: Recorder::new(queue, 0, settings.clone(), start),
            window_ns: settings.window_ns.max(1),
            windows: 0,
            cpu_start: thread_cpu(),
            end: None,
            ended: false,
            unanswered: 0,
            refused: 0,
            account: Account { start, ..Account::default() },
            samples: Vec::new(),
        }
    }

    /// Tells when the phase ends, once that is known.
    pub fn bound(&mut self, end: Option<Nanos>) {
        self.end = self.end.or(end);
    }

    /// Times after the phase's end count as its end: its integrals stop there.
    fn within(&self, now: Nanos) -> Nanos {
        self.end.map_or(now, |end| now.min(end))
    }

    /// A request arrived; `anew` if it is one that was tried before. Returns how many it found.
    pub fn arrive(&mut self, intended: Nanos, anew: bool) -> u64 {
        let met = self.recorder.length();
        self.recorder.arrive(self.within(intended));
        self.unanswered += u64::from(!anew);
        self.account.outstanding_max = self.account.outstanding_max.max(met + 1);
        met
    }

    /// It is sent.
    pub fn start(&mut self, now: Nanos) {
        self.recorder.start(self.within(now));
    }

    /// It was never sent.
    pub fn drop_arrival(&mut self, now: Nanos) {
        self.recorder.abandon(self.within(now));
        self.unanswered = self.unanswered.saturating_sub(1);
        self.account.dropped += 1;
    }

    /// It was answered, or given up.
    pub fn finish(&mut self, now: Nanos, finished: &Finished, refused: bool) {
        self.recorder.finish(self.within(now), finished);
        self.unanswered = self.unanswered.saturating_sub(1);
        self.refused += u64::from(refused);
    }

    /// It failed and will arrive anew.
    pub fn retry(&mut self, now: Nanos, finished: &Finished) {
        self.recorder.finish(self.within(now), finished);
        self.account.retries += 1;
    }

    /// Counts an error by its words.
    pub fn fault(&mut self, words: String) {
        let faults = &mut self.account.faults;
        let full = faults.len() >= FAULTS_MAX && !faults.contains_key(&words);
        let words = if full { "other errors".to_owned() } else { words };
        *faults.entry(words).or_insert(0) += 1;
    }

    /// The windows that are over at `now`, and at the very end the account. `end` is the phase's, once
    /// all its requests were begun; `give_up` ends it although some are unanswered. Returns whether it
    /// is over.
    pub fn roll(&mut self, now: Nanos, end: Option<Nanos>, give_up: bool) -> (Vec<Message>, bool) {
        if let Some(end) = end.filter(|&end| end <= now && !self.ended) {
            self.end = Some(end);
            self.account.cut = give_up;
            self.ended = true;
            self.account.end = end;
            self.account.cpu_ns = thread_cpu().saturating_sub(self.cpu_start);
        }
        let over = self.ended && (self.unanswered == 0 || give_up);
        let windows = match self.end {
            Some(end) if over => self.recorder.flush(end),
            Some(end) if now >= end => {
                // All but the last window, which waits for the replies that are to come.
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

    use model::window::{Operation, Outcome, SECOND};

    use super::super::arrivals::{Pace, Part, Phase};
    use super::super::plan::Length;
    use super::super::source::Pass;
    use super::*;

    #[test]
    fn a_thread_that_stood_still_records_its_arrivals_within_the_phase() {
        let length = Length::Requests(50);
        let pace = Pace::Constant(300.0);
        let phase = Phase { pace, length, part: Part::Warmup, purpose: 1, step: None };
        let pass = Pass::new(vec![phase], 0, "load", false, 7, &AtomicBool::new(false));
        let (Some(start), Some(end)) = pass.bounds(0) else { panic!("an open loop has an end") };
        assert_eq!(end - start, 49 * SECOND / 300 + 1);
        let settings = Settings { window_ns: SECOND / 5, ..Settings::default() };
        let mut record = PhaseRecord::new(0, "load", &settings, start);
        record.bound(Some(end));
        let finished = Finished {
            operation: Operation::Get,
            outcome: Outcome::Memory,
            waiting: 0,
            service: 1,
            response: 1,
            bytes: 1,
        };
        // A reply, read in the window after the end, is told before the last arrival is sent.
        let late = start + 3 * settings.window_ns / 2;
        for (intended, sent) in [(start, start), (end - 1, late)] {
            record.arrive(intended, false);
            record.start(sent);
            record.finish(late, &finished, false);
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
}
