//! The record of one serving thread: the windows and samples of its requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::node::Stages;
use ground::window::{Finished, Nanos, Operation, Outcome, Recorder, Sample, Settings, Window};
use ground::window::{is_sampled, key_hash};
use http::{HeaderMap, HeaderValue};

use record::clock;

use super::traces::{RequestSpans, TraceIds, TraceParent, Traces};

/// Maximum number of samples held until the observer takes them; further samples are dropped.
const SAMPLES_MAX: usize = 1 << 18;

struct State {
    recorder: Recorder,
    samples: Vec<Sample>,
}

/// The record of one serving thread. Its mutex is contended once per window.
pub struct ThreadRecorder {
    state: Mutex<State>,
    sample_one_in: u64,
    unix_offset_ns: i128,
    /// Where the spans of sampled requests go; `None`: they have none.
    traces: Option<Arc<Traces>>,
}

impl ThreadRecorder {
    /// An empty record of a queue.
    pub fn new(queue: &str, settings: Settings, sample_one_in: u64, now: Nanos) -> ThreadRecorder {
        let unix_offset_ns = settings.unix_offset_ns;
        let recorder = Recorder::new(queue, 0, settings, now);
        let state = Mutex::new(State { recorder, samples: Vec::new() });
        ThreadRecorder { state, sample_one_in, unix_offset_ns, traces: None }
    }

    /// The same, whose sampled requests have spans if there is a queue for them.
    pub fn with_traces(self, traces: Option<Arc<Traces>>) -> ThreadRecorder {
        ThreadRecorder { traces, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request arrived.
    pub fn received(self: &Arc<ThreadRecorder>, operation: Operation, key: &[u8]) -> RequestRecord {
        let now = clock::now();
        {
            let mut state = self.lock();
            state.recorder.arrive(now);
            state.recorder.start(now);
        }
        let hash = self.hash_of(key);
        let is_traced = self.traces.is_some() && is_sampled(hash, self.sample_one_in);
        RequestRecord {
            lane: self.clone(),
            operation,
            hash,
            received: now,
            outcome: Outcome::Error,
            stages: None,
            size: 0,
            bytes: 0,
            internal: false,
            warm: 0,
            replier: None,
            replied: None,
            trace: is_traced.then(|| Box::new(TraceIds::draw(None))),
        }
    }

    /// The hash of a key for [`Passed::hash`].
    pub fn hash_of(&self, key: &[u8]) -> u64 {
        if self.sample_one_in > 0 { key_hash(key) } else { u64::MAX }
    }

    /// Records a request that met no queue, was answered at once, and whose reply was sent at `replied`.
    pub fn passed(&self, passed: &Passed, replied: Nanos) {
        let &Passed { operation, outcome, hash, received, size, bytes, parent } = passed;
        let response = replied.saturating_sub(received);
        let finished = Finished { operation, outcome, waiting: 0, service: 0, response, bytes };
        self.lock().recorder.pass(received, replied, &finished);
        if is_sampled(hash, self.sample_one_in) {
            let sample = Sample {
                key: hash,
                size,
                operation,
                outcome,
                received_unix_us: self.unix_us(received),
                queued_ns: 0,
                started_ns: 0,
                served_ns: 0,
                replied_ns: response,
                length_met: 0,
            };
            if let Some(traces) = &self.traces {
                let (ids, sample) = (TraceIds::draw(parent), sample.clone());
                traces.push(RequestSpans { ids, sample, replier: None });
            }
            self.keep(sample);
        }
    }

    /// A time of this process's clock, microseconds since 1970-01-01 UTC.
    fn unix_us(&self, at: Nanos) -> u64 {
        ((i128::from(at) + self.unix_offset_ns) / 1000).max(0) as u64
    }

    /// Keeps a sample until the observer takes it.
    fn keep(&self, sample: Sample) {
        let mut state = self.lock();
        if state.samples.len() < SAMPLES_MAX {
            state.samples.push(sample);
        }
    }

    /// The windows that ended by `now` (with `flush` also the open one), and the samples since the
    /// last call.
    pub fn take(&self, now: Nanos, flush: bool) -> (Vec<Window>, Vec<Sample>) {
        let mut state = self.lock();
        let windows = if flush { state.recorder.flush(now) } else { state.recorder.roll(now) };
        (windows, std::mem::take(&mut state.samples))
    }
}

/// The record of a request that was answered at once.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// The operation.
    pub operation: Operation,
    /// The source of the reply.
    pub outcome: Outcome,
    /// The hash of the key, if keys are sampled.
    pub hash: u64,
    /// When it arrived.
    pub received: Nanos,
    /// Bytes of the object.
    pub size: u64,
    /// Bytes of the reply's body.
    pub bytes: u64,
    /// The caller's place in a trace, if it names one.
    pub parent: Option<TraceParent>,
}

/// The node, or the origin, that replied to a gateway.
pub struct Replier {
    /// Its name, or `origin`.
    pub name: HeaderValue,
    /// The times of the stages there, if they are wanted.
    pub stages: Option<HeaderValue>,
}

/// A request under way. Dropping it records its end: its reply was passed to the connection, or its
/// client left.
pub struct RequestRecord {
    lane: Arc<ThreadRecorder>,
    operation: Operation,
    hash: u64,
    /// When it arrived.
    pub received: Nanos,
    /// The source of the reply.
    pub outcome: Outcome,
    /// The times of its stages, as reported by the node.
    pub stages: Option<Stages>,
    /// Bytes of the object.
    pub size: u64,
    /// Bytes of the reply.
    pub bytes: u64,
    /// Whether the sender is a gateway or another node, which gets additional headers.
    pub internal: bool,
    /// The key's nodes known to have the object, as bits of their places.
    pub warm: u8,
    /// At a gateway: who replied to it.
    pub replier: Option<Box<Replier>>,
    /// When its reply was passed to the connection, if that was not just now.
    pub replied: Option<Nanos>,
    /// The names of its spans, if it has some.
    trace: Option<Box<TraceIds>>,
}

impl RequestRecord {
    /// Joins the trace that the request's headers name. Does nothing for a request without spans.
    pub fn join_trace(&mut self, headers: &HeaderMap) {
        if self.trace.is_some() {
            self.join(TraceParent::from_headers(headers));
        }
    }

    /// The same with the caller's place in a trace.
    pub fn join(&mut self, parent: Option<TraceParent>) {
        if let (Some(ids), Some(parent)) = (&mut self.trace, parent) {
            ids.join(parent);
        }
    }

    /// The place in the trace of what is asked of another process for this request; `None` for one without spans.
    pub fn passed_on(&self) -> Option<TraceParent> {
        self.trace.as_ref().map(|ids| ids.passed_on())
    }

    /// Whether only the head of the reply is requested.
    pub fn is_head(&self) -> bool {
        self.operation == Operation::Head
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let replied = self.replied.unwrap_or_else(clock::now);
        let since = |at: Nanos| at.saturating_sub(self.received);
        let stages = self.stages.unwrap_or(Stages {
            received: self.received,
            queued: self.received,
            started: self.received,
            served: replied,
            ..Stages::default()
        });
        let finished = Finished {
            operation: self.operation,
            outcome: self.outcome,
            waiting: since(stages.started),
            service: stages.served.saturating_sub(stages.started),
            response: since(replied),
            bytes: self.bytes,
        };
        self.lane.lock().recorder.finish(replied, &finished);
        if is_sampled(self.hash, self.lane.sample_one_in) {
            let sample = Sample {
                key: self.hash,
                size: self.size,
                operation: self.operation,
                outcome: self.outcome,
                received_unix_us: self.lane.unix_us(self.received),
                queued_ns: since(stages.queued),
                started_ns: since(stages.started),
                served_ns: since(stages.served),
                replied_ns: since(replied),
                length_met: stages.length_met,
            };
            if let (Some(traces), Some(ids)) = (&self.lane.traces, self.trace.take()) {
                let replier = self.replier.take().map(|replier| replier.name);
                traces.push(RequestSpans { ids: *ids, sample: sample.clone(), replier });
            }
            self.lane.keep(sample);
        }
    }
}
