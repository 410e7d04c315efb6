//! What a thread records of its clients' requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ground::window::{
    Finished, Nanos, Operation, Outcome, QueueName, Recorder, Sample, Settings, Window, is_sampled,
};

use crate::request::Request;

/// Most samples that wait for the observer; further ones are dropped.
const SAMPLES_MAX: usize = 1 << 18;

/// A count that one thread increases and others read.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // One writer: a locked addition is not needed.
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What `stats` reports, by thread.
#[derive(Default)]
pub(crate) struct Counters {
    /// Requests that the protocol does not have, or that were malformed.
    pub(crate) refused: Count,
    /// Keys of gets: those that were found, and those that were not.
    pub(crate) gets: Count,
    /// Keys of gets that were found, and that were not.
    pub(crate) hits: Count,
    pub(crate) misses: Count,
    /// Requests that store, change or delete.
    pub(crate) writes: Count,
    /// Requests whose reply is an error of a server or of the proxy. They count as nothing else.
    pub(crate) failed: Count,
    /// Bytes of replies.
    pub(crate) bytes_written: Count,
}

/// The counts of all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) refused: u64,
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) writes: u64,
    pub(crate) failed: u64,
    pub(crate) bytes_written: u64,
}

impl Totals {
    fn combine(&self, other: &Totals, with: fn(u64, u64) -> u64) -> Totals {
        Totals {
            refused: with(self.refused, other.refused),
            gets: with(self.gets, other.gets),
            hits: with(self.hits, other.hits),
            misses: with(self.misses, other.misses),
            writes: with(self.writes, other.writes),
            failed: with(self.failed, other.failed),
            bytes_written: with(self.bytes_written, other.bytes_written),
        }
    }

    pub(crate) fn plus(&self, other: &Totals) -> Totals {
        self.combine(other, u64::wrapping_add)
    }

    pub(crate) fn since(&self, before: &Totals) -> Totals {
        self.combine(before, u64::saturating_sub)
    }
}

impl Counters {
    /// Counts a request that has its reply, of so many bytes.
    pub(crate) fn finish(&self, request: &Request, bytes: usize) {
        self.bytes_written.add(bytes as u64);
        if request.outcome == Outcome::Error {
            return self.failed.add(1);
        }
        if !matches!(request.operation, Operation::Get | Operation::MultiGet) {
            return self.writes.add(1);
        }
        // By key, as memcached counts: hits and misses add up to them.
        let keys = request.keys.len() as u64;
        let hits = u64::from(request.hits).min(keys);
        self.gets.add(keys);
        self.hits.add(hits);
        self.misses.add(keys - hits);
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            refused: self.refused.get(),
            gets: self.gets.get(),
            hits: self.hits.get(),
            misses: self.misses.get(),
            writes: self.writes.get(),
            failed: self.failed.get(),
            bytes_written: self.bytes_written.get(),
        }
    }
}

struct State {
    recorder: Recorder,
    samples: Vec<Sample>,
}

/// The record of one thread. Its mutex is contended once a window.
pub(crate) struct Lane {
    state: Mutex<State>,
    one_in: u64,
    unix_offset_ns: i128,
}

impl Lane {
    pub(crate) fn new(settings: Settings, one_in: u64, now: Nanos) -> Lane {
        let unix_offset_ns = settings.unix_offset_ns;
        let recorder = Recorder::new(&QueueName::Gateway.to_string(), 0, settings, now);
        let state = Mutex::new(State { recorder, samples: Vec::new() });
        Lane { state, one_in, unix_offset_ns }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn arrive(&self, now: Nanos) {
        let mut state = self.lock();
        state.recorder.arrive(now);
        state.recorder.start(now);
    }

    /// Records that a client left before its request had a reply.
    pub(crate) fn abandon(&self, now: Nanos) {
        self.lock().recorder.abandon(now);
    }

    /// Records that a request has its reply, of so many bytes.
    pub(crate) fn finish(&self, now: Nanos, request: &Request, bytes: usize) {
        let since = |at: Nanos| at.saturating_sub(request.received);
        let started = if request.started == 0 { now } else { request.started };
        let served = if request.served == 0 { now } else { request.served };
        let finished = Finished {
            operation: request.operation,
            outcome: request.outcome,
            waiting: since(started),
            service: served.saturating_sub(started),
            response: since(now),
            bytes: bytes as u64,
        };
        let mut state = self.lock();
        state.recorder.finish(now, &finished);
        if is_sampled(request.hash, self.one_in) && state.samples.len() < SAMPLES_MAX {
            let unix_ns = i128::from(request.received) + self.unix_offset_ns;
            state.samples.push(Sample {
                key: request.hash,
                size: bytes as u64,
                operation: request.operation,
                outcome: request.outcome,
                received_unix_us: (unix_ns / 1000).max(0) as u64,
                queued_ns: 0,
                started_ns: since(started),
                served_ns: since(served),
                replied_ns: since(now),
                length_met: request.length_met,
            });
        }
    }

    /// The windows that ended by `now` (with `flush` also the open one), and the samples since the
    /// last call.
    pub(crate) fn take(&self, now: Nanos, flush: bool) -> (Vec<Window>, Vec<Sample>) {
        let mut state = self.lock();
        let windows = if flush { state.recorder.flush(now) } else { state.recorder.roll(now) };
        (windows, std::mem::take(&mut state.samples))
    }
}
