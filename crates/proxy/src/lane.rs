//! What a thread records of its clients' requests.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ground::window::{Finished, Nanos, QueueName, Recorder, Sample, Settings, Window, is_sampled};

use crate::request::Request;

/// Most samples that wait for the observer; further ones are dropped.
const SAMPLES_MAX: usize = 1 << 18;

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
