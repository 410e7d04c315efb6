//! The exporter of spans: a thread of low priority that takes what fronts have queued and sends it to a collector.
//!
//! A request never waits for it: [`wire::traces::Traces`] is bounded, and what does not fit is dropped and counted. A collector
//! that fails for a while is asked again, at most every [`PAUSE_MAX`], with the same body, so that what it took without telling
//! so is not stored twice under other names. At the end of the process the collector has [`FLUSH_MAX`] for what is left.
//!
//! The log has one line for an outage of the collector and one for its end.

mod client;
mod otlp;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use configuration::{Collector, Config};
use ground::outage::OutageLine;
use ground::window::Nanos;
use record::clock;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Front;
use crate::error::Error;
use crate::observe::Observed;
use client::{CollectorClient, Reply};
use otlp::SpanSource;
use wire::traces::{RequestSpans, Traces};

/// Time between two exports where few requests have spans.
const EVERY: Duration = Duration::from_secs(1);
/// Requests of one export: some 600 KB.
const BATCH_MAX: usize = 512;
/// The first pause after a failure; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time that the collector has at the end of the process.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The exporting thread.
pub struct TraceExporter {
    ending: watch::Sender<Option<Instant>>,
    thread: JoinHandle<()>,
}

/// The spans of one front.
struct Source {
    traces: Arc<Traces>,
    of: SpanSource,
}

impl Source {
    fn new(front: &Front, traces: &Arc<Traces>) -> Source {
        let config = &front.config;
        let address =
            if config.is_gateway() { &*config.serve.listen } else { config.node_address() };
        let of = SpanSource {
            service: config.traces.service.clone(),
            instance: config.cluster.name.clone().unwrap_or_else(|| address.to_owned()),
            queue: front.queue.clone(),
        };
        Source { traces: traces.clone(), of }
    }
}

impl TraceExporter {
    /// Starts the thread; `None` without traces.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up, or the thread cannot be started.
    pub fn start(
        config: &Config,
        observed: &[Arc<dyn Observed>],
    ) -> Result<Option<TraceExporter>, Error> {
        let Some(endpoint) = &config.traces.endpoint else { return Ok(None) };
        let collector = Collector::parse(endpoint)
            .map_err(|what| Error::Collector { address: endpoint.clone(), source: what.into() })?;
        let fronts = observed.iter().map(|observed| observed.front());
        let sources = fronts.filter_map(|it| Some(Source::new(it, it.traces.as_ref()?))).collect();
        let (ending, is_ending) = watch::channel(None);
        let export = Export {
            sources,
            client: CollectorClient::new(collector, &config.traces)?,
            timeout: Duration::from_secs_f64(config.traces.timeout_s),
            waiting_max: config.traces.waiting_max,
            ending: is_ending,
            outage: OutageLine::default(),
            dropped_before: 0,
        };
        let name = "traces".to_owned();
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || run(export));
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        Ok(Some(TraceExporter { ending, thread }))
    }

    /// Exports what is left, for at most [`FLUSH_MAX`], and ends the thread.
    pub fn stop(self) {
        let _ = self.ending.send(Some(Instant::now() + FLUSH_MAX));
        let _ = self.thread.join();
    }
}

fn run(export: Export) {
    // Requests have priority. If lowering the priority fails, they share the processor.
    let _ = rustix::process::nice(10);
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(export.run()),
        Err(error) => warn!("no spans are exported: cannot start a runtime: {error}"),
    }
}

struct Export {
    sources: Vec<Source>,
    client: CollectorClient,
    timeout: Duration,
    waiting_max: u32,
    /// Until when what is left is exported, once the process ends.
    ending: watch::Receiver<Option<Instant>>,
    outage: OutageLine,
    /// Spans that had been dropped when the outage under way began.
    dropped_before: u64,
}

/// What became of an attempt.
enum Attempt {
    Done(Reply),
    /// There was no reply, with the reason.
    Failed(String),
}

impl Export {
    async fn run(mut self) {
        loop {
            self.wait(EVERY).await;
            let ends = self.ends();
            self.export_all().await;
            if ends {
                break;
            }
        }
        let left: u64 = self.sources.iter().map(|it| discard(&it.traces)).sum();
        if left > 0 {
            let address = self.client.address();
            warn!("the collector of traces at {address} did not take the last {left} spans");
        }
    }

    fn ends(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Whether the process ends and the time for the last exports is over.
    fn is_over(&self) -> bool {
        self.ending.borrow().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits for a time, until many requests wait, or until the process ends.
    async fn wait(&self, time: Duration) {
        let mut ending = self.ending.clone();
        let mut many: Vec<_> = self.sources.iter().map(|it| Box::pin(it.traces.many())).collect();
        let many = poll_fn(|context| {
            let is_ready = many.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = many => {}
            _ = ending.wait_for(Option::is_some) => {}
        }
    }

    /// Exports what waits.
    async fn export_all(&mut self) {
        for at in 0..self.sources.len() {
            while !self.is_over() {
                let batch = self.sources[at].traces.take(BATCH_MAX);
                if batch.is_empty() {
                    break;
                }
                self.export(at, &batch).await;
            }
        }
    }

    /// Exports the spans of some requests: again and again until the collector has taken or refused them, or the process ends.
    async fn export(&mut self, source: usize, batch: &[RequestSpans]) {
        let Source { traces, of } = &self.sources[source];
        let traces = traces.clone();
        let spans: u64 = batch.iter().map(RequestSpans::count).sum();
        let body = serde_json::to_vec(&otlp::export(of, batch)).unwrap_or_default();
        let body = Bytes::from(body);
        let mut pause = PAUSE_MIN;
        loop {
            let sent = clock::now();
            let (reason, after) = match self.attempt(body.clone()).await {
                Attempt::Done(Reply::Taken { rejected, reason }) => {
                    let rejected = rejected.min(spans);
                    traces.note_exported(spans - rejected);
                    traces.drop_spans(rejected);
                    return match rejected {
                        0 => self.note_answer(sent),
                        n => self.note_failure(&format!("refuses {n} of {spans} spans: {reason}")),
                    };
                }
                Attempt::Done(Reply::Refused(reason)) => {
                    traces.drop_spans(spans);
                    return self.note_failure(&format!("refuses spans: {reason}"));
                }
                Attempt::Done(Reply::Busy { reason, after }) => (reason, after),
                Attempt::Failed(reason) => (reason, None),
            };
            self.note_failure(&reason);
            if self.ends() {
                return self.give_up(&traces, spans);
            }
            self.pause(after.map_or(pause, |after| after.min(PAUSE_MAX))).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Drops the spans of an export that failed at the end of the process, and all that wait: nobody is there to try again.
    fn give_up(&self, traces: &Traces, spans: u64) {
        traces.drop_spans(spans);
        let waiting: u64 = self.sources.iter().map(|it| discard(&it.traces)).sum();
        let (address, left) = (self.client.address(), spans + waiting);
        warn!("the collector of traces at {address} did not take the last {left} spans");
    }

    /// Waits for a time, or until the process ends.
    async fn pause(&self, time: Duration) {
        let mut ending = self.ending.clone();
        let _ = tokio::time::timeout(time, ending.wait_for(Option::is_some)).await;
    }

    async fn attempt(&mut self, body: Bytes) -> Attempt {
        let mut ending = self.ending.clone();
        let over = async {
            let deadline = ending.wait_for(Option::is_some).await.map(|it| *it).ok().flatten();
            tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)).await;
        };
        let seconds = self.timeout.as_secs_f64();
        tokio::select! {
            posted = tokio::time::timeout(self.timeout, self.client.post(body)) => match posted {
                Ok(Ok(reply)) => Attempt::Done(reply),
                Ok(Err(reason)) => Attempt::Failed(reason),
                Err(_) => Attempt::Failed(format!("no reply within {seconds} s (traces.timeout_s)")),
            },
            () = over => Attempt::Failed("no reply before the end of the process".to_owned()),
        }
    }

    fn dropped(&self) -> u64 {
        self.sources.iter().map(|it| it.traces.counts().dropped).sum()
    }

    /// Notes a failure; the log has its first.
    fn note_failure(&mut self, reason: &str) {
        if !self.outage.is_out() {
            self.dropped_before = self.dropped();
        }
        if let Some(start) = self.outage.fail(clock::now()) {
            let (address, most) = (self.client.address(), self.waiting_max);
            warn!(
                "the collector of traces at {address}: {reason}{start}; spans of at most {most} requests wait for it, and \
                 further ones are dropped"
            );
        }
    }

    /// Notes that what was sent at a time was taken.
    fn note_answer(&mut self, sent: Nanos) {
        let dropped = self.dropped().saturating_sub(self.dropped_before);
        if let Some(seconds) = self.outage.answer(sent, clock::now()) {
            let address = self.client.address();
            info!(
                "the collector of traces at {address} takes spans again after {seconds:.1} s; {dropped} spans were dropped"
            );
        }
    }
}

/// Drops the spans that wait; returns their number.
fn discard(traces: &Traces) -> u64 {
    let spans = traces.take(usize::MAX).iter().map(RequestSpans::count).sum();
    traces.drop_spans(spans);
    spans
}
