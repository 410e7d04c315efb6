//! Spans of sampled requests, until an exporter takes them.
//!
//! A request has spans if its key is sampled, as it has a [`Sample`]: the same keys at every process, so that a trace has the
//! spans of the gateway and of the node. A process without an exporter has no [`Traces`], and a request that is not
//! sampled costs one comparison, which is made for its sample anyway.
//!
//! The queue is bounded by requests. A full one drops what comes, which is counted: an exporter that is slow, or has nobody to
//! export to, must not take memory or time from requests.

mod context;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ground::window::{Nanos, Sample};
use http::HeaderValue;
use tokio::sync::Notify;

pub use context::{TRACEPARENT, TraceParent};

/// Requests that wait from which on the exporter is woken before its time.
const WAKES_AT: usize = 256;

/// The names of a request's spans in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    /// The trace.
    pub trace: u128,
    /// The caller's span; `None` where the trace begins here.
    pub parent: Option<u64>,
    /// The span of the whole request.
    pub request: u64,
    /// The span of its service, which is what other processes are told.
    pub service: u64,
}

impl TraceIds {
    /// Draws the names of a request's spans: in the caller's trace, or in a new one.
    pub fn draw(parent: Option<TraceParent>) -> TraceIds {
        // 0 stands for none.
        let span = || rand::random::<u64>().max(1);
        TraceIds {
            trace: parent.map_or_else(|| rand::random::<u128>().max(1), |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            request: span(),
            service: span(),
        }
    }

    /// Joins the caller's trace.
    pub fn join(&mut self, parent: TraceParent) {
        (self.trace, self.parent) = (parent.trace, Some(parent.span));
    }

    /// The place in the trace of what is asked of another process.
    pub fn passed_on(&self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.service }
    }
}

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// "accept", "wait", "serve" or "reply".
    pub name: &'static str,
    /// Its span; `None`: it has no name yet.
    pub span: Option<u64>,
    /// From arrival to its start, nanoseconds.
    pub from: Nanos,
    /// From arrival to its end, nanoseconds.
    pub to: Nanos,
}

/// What is recorded of a request for its spans.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpans {
    /// The names of its spans.
    pub ids: TraceIds,
    /// The request.
    pub sample: Sample,
    /// At a gateway: the node that replied, or `origin`.
    pub replier: Option<HeaderValue>,
}

impl RequestSpans {
    /// The stages of the request, in their order, without those that took no time.
    pub fn stages(&self) -> impl Iterator<Item = Stage> + use<> {
        let Sample { queued_ns, started_ns, served_ns, replied_ns, .. } = self.sample;
        // Clocks of one process, read by several threads: a stage does not end before it starts.
        let queued = queued_ns.min(replied_ns);
        let started = started_ns.clamp(queued, replied_ns);
        let served = served_ns.clamp(started, replied_ns);
        let stage = |name, span, from, to| Stage { name, span, from, to };
        [
            stage("accept", None, 0, queued),
            stage("wait", None, queued, started),
            stage("serve", Some(self.ids.service), started, served),
            stage("reply", None, served, replied_ns),
        ]
        .into_iter()
        .filter(|stage| stage.to > stage.from)
    }

    /// Number of its spans.
    pub fn count(&self) -> u64 {
        1 + self.stages().count() as u64
    }
}

/// Counts of spans since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Spans that a collector took.
    pub exported: u64,
    /// Spans that were dropped: the queue was full, or the collector refused them.
    pub dropped: u64,
    /// Requests whose spans wait.
    pub waiting: u64,
}

/// The spans of a front that wait for the exporter.
#[derive(Debug)]
pub struct Traces {
    waiting: Mutex<VecDeque<RequestSpans>>,
    waiting_max: usize,
    wakes_at: usize,
    exported: AtomicU64,
    dropped: AtomicU64,
    many: Notify,
}

impl Traces {
    /// An empty queue for the spans of at most `waiting_max` requests.
    pub fn new(waiting_max: usize) -> Traces {
        Traces {
            waiting: Mutex::default(),
            waiting_max,
            wakes_at: WAKES_AT.min(waiting_max.div_ceil(2)),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            many: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RequestSpans>> {
        // A push or a drain leaves the queue whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the spans of a request that has ended; drops them if the queue is full. Never waits for the exporter.
    pub fn push(&self, spans: RequestSpans) {
        let count = {
            let mut waiting = self.lock();
            if waiting.len() >= self.waiting_max {
                drop(waiting);
                self.drop_spans(spans.count());
                return;
            }
            waiting.push_back(spans);
            waiting.len()
        };
        // Once for each time that it fills: the exporter that is woken takes all.
        if count == self.wakes_at {
            self.many.notify_one();
        }
    }

    /// Returns when many requests wait.
    pub async fn many(&self) {
        self.many.notified().await;
    }

    /// Takes the spans of the `most` requests that have waited longest.
    pub fn take(&self, most: usize) -> Vec<RequestSpans> {
        let mut waiting = self.lock();
        let count = most.min(waiting.len());
        waiting.drain(..count).collect()
    }

    /// Counts spans that a collector took.
    pub fn note_exported(&self, spans: u64) {
        self.exported.fetch_add(spans, Ordering::Relaxed);
    }

    /// Counts spans that were dropped.
    pub fn drop_spans(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            exported: self.exported.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            waiting: self.lock().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use ground::window::{Operation, Outcome};
    use proptest::prelude::*;

    use super::*;

    fn spans(times: [Nanos; 4]) -> RequestSpans {
        let [queued_ns, started_ns, served_ns, replied_ns] = times;
        let sample = Sample {
            key: 1,
            size: 2,
            operation: Operation::Get,
            outcome: Outcome::Memory,
            received_unix_us: 3,
            queued_ns,
            started_ns,
            served_ns,
            replied_ns,
            length_met: 0,
        };
        RequestSpans { ids: TraceIds::draw(None), sample, replier: None }
    }

    #[test]
    fn stages_of_a_hit_of_a_device_and_of_a_gateway() {
        let names = |times| spans(times).stages().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names([0, 0, 0, 9]), ["reply"]);
        assert_eq!(names([1, 3, 8, 9]), ["accept", "wait", "serve", "reply"]);
        assert_eq!(names([0, 0, 8, 9]), ["serve", "reply"]);
        assert_eq!(names([0, 0, 9, 9]), ["serve"]);
        assert_eq!(names([0, 0, 0, 0]), [""; 0]);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_then_takes_again() {
        let traces = Traces::new(2);
        (0..5).for_each(|_| traces.push(spans([1, 3, 8, 9])));
        assert_eq!(traces.counts(), SpanCounts { exported: 0, dropped: 15, waiting: 2 });
        assert_eq!(traces.take(1).len(), 1);
        traces.push(spans([0, 0, 0, 9]));
        assert_eq!(traces.take(9).len(), 2);
        assert!(traces.take(9).is_empty());
        traces.note_exported(7);
        assert_eq!(traces.counts(), SpanCounts { exported: 7, dropped: 15, waiting: 0 });
    }

    #[test]
    fn a_joined_trace_is_the_callers() {
        let parent = TraceParent { trace: 5, span: 6 };
        let mut ids = TraceIds::draw(None);
        assert!(ids.parent.is_none() && ids.trace > 0);
        ids.join(parent);
        assert_eq!((ids.trace, ids.parent), (5, Some(6)));
        assert_eq!(ids.passed_on(), TraceParent { trace: 5, span: ids.service });
        let drawn = TraceIds::draw(Some(parent));
        assert_eq!((drawn.trace, drawn.parent), (5, Some(6)));
        assert_ne!(drawn.request, drawn.service);
    }

    proptest! {
        /// Whatever the clocks read: stages follow each other without a gap and end with the reply.
        #[test]
        fn stages_cover_the_request(times in prop::array::uniform4(0u64..20)) {
            let of = spans(times);
            let mut at = 0;
            for stage in of.stages() {
                prop_assert!(stage.from == at && stage.to >= stage.from, "{:?}", stage);
                at = stage.to;
            }
            prop_assert_eq!(at, times[3]);
            prop_assert_eq!(of.count(), 1 + of.stages().count() as u64);
        }
    }
}
