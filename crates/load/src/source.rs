//! The next request of a thread and its send time: the thread's share of an open loop's arrivals,
//! or its clients of a closed loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ground::window::{Nanos, QueueName, SECOND};
use rand::rngs::Xoshiro256PlusPlus;

use super::arrivals::{Arrival, ArrivalStream, Pace, Phase, exponential, random};
use super::plan::{Length, Think};
use record::clock;

/// A pass: phases that follow each other without a pause. Shared by all threads.
pub(super) struct Pass {
    pub phases: Arc<[Phase]>,
    /// When the first phase starts.
    pub start: Nanos,
    /// For open loops: the end of each phase, relative to `start`.
    ends: Vec<Nanos>,
    /// For closed loops: for each phase, the number of requests begun, and its end (0: still
    /// running).
    pub tickets: Vec<(AtomicU64, AtomicU64)>,
    /// The name of the recorded queue.
    pub queue: QueueName<'static>,
    /// Whether a failed request is retried, up to a limit (a fill).
    pub retry_failed: bool,
}

impl Pass {
    /// Creates a pass that starts `lead` from now.
    ///
    /// The phase ends of an open loop are computed first, so that they are known before anything is
    /// recorded. Cost: that of [`ArrivalStream::ends`], which `stop` interrupts.
    pub fn new(
        phases: Vec<Phase>,
        lead: Nanos,
        queue: QueueName<'static>,
        retry_failed: bool,
        seed: u64,
        stop: &AtomicBool,
    ) -> Pass {
        let phases: Arc<[Phase]> = phases.into();
        let tickets = phases.iter().map(|_| Default::default()).collect();
        let ends = ArrivalStream::new(phases.clone(), seed).ends(stop);
        Pass { phases, start: clock::now() + lead, ends, tickets, queue, retry_failed }
    }

    /// The start and the end of a phase, each `None` while unknown.
    pub fn bounds(&self, phase: usize) -> (Option<Nanos>, Option<Nanos>) {
        let end = |phase: usize| match self.ends.get(phase) {
            Some(end) => Some(self.start + end),
            None => self.closed_end(phase),
        };
        (phase.checked_sub(1).map_or(Some(self.start), end), end(phase))
    }

    /// The end of a phase of a closed loop, if known.
    fn closed_end(&self, phase: usize) -> Option<Nanos> {
        match self.phases.get(phase)?.length {
            Length::Seconds(s) => Some(self.closed_start(phase)? + (s * SECOND as f64) as Nanos),
            Length::Requests(_) => {
                let at = self.tickets.get(phase)?.1.load(Ordering::Acquire);
                (at > 0).then_some(at)
            }
        }
    }

    fn closed_start(&self, phase: usize) -> Option<Nanos> {
        match phase.checked_sub(1) {
            None => Some(self.start),
            Some(before) => self.closed_end(before),
        }
    }
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub phase: usize,
    /// Its number within the phase.
    pub index: u64,
    /// The intended send time.
    pub intended: Nanos,
    /// The client that sends it, in a closed loop.
    pub client: Option<u32>,
    /// The number of earlier attempts.
    pub attempt: u32,
}

/// A thread's part of a pass's requests.
pub(super) enum Source {
    Open { stream: ArrivalStream, next: Option<Arrival>, share: Share, start: Nanos },
    Closed { pass: Arc<Pass>, clients: Clients },
}

/// Selects the arrivals of one thread.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub thread: u64,
    pub threads: u64,
}

impl Share {
    /// Whether this thread sends arrival `index`.
    ///
    /// Random arrivals are thinned at random, so that each thread's arrivals are Poisson too and
    /// the dispersions of the threads' windows add up. Regular arrivals are dealt out in turn.
    fn has(&self, index: u64, regular: bool) -> bool {
        let by = if regular { index } else { index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33 };
        by % self.threads == self.thread
    }
}

impl Source {
    pub fn new(pass: &Arc<Pass>, share: Share, seed: u64) -> Source {
        match pass.phases.first().map(|phase| &phase.pace) {
            Some(&Pace::Closed { clients, .. }) => Source::Closed {
                pass: pass.clone(),
                clients: Clients::new(pass, clients, share, seed),
            },
            _ => {
                let stream = ArrivalStream::new(pass.phases.clone(), seed);
                let mut source = Source::Open { stream, next: None, share, start: pass.start };
                source.advance();
                source
            }
        }
    }

    fn advance(&mut self) {
        if let Source::Open { stream, next, share, .. } = self {
            *next = None;
            // Terminates because the stream is finite.
            while let Some(arrival) = stream.next() {
                let regular = stream.is_regular(arrival.phase);
                if share.has(arrival.index, regular) {
                    *next = Some(arrival);
                    break;
                }
            }
        }
    }

    /// The send time of the next request, if known.
    pub fn next_at(&self) -> Option<Nanos> {
        match self {
            Source::Open { next, start, .. } => next.map(|arrival| start + arrival.at),
            Source::Closed { clients, .. } => clients.waking.peek().map(|Reverse((at, _))| *at),
        }
    }

    /// Takes the next request if it is due at `now`.
    pub fn take(&mut self, now: Nanos) -> Option<Job> {
        match self {
            Source::Open { next, start, .. } => {
                let arrival = next.filter(|arrival| *start + arrival.at <= now)?;
                let intended = *start + arrival.at;
                self.advance();
                let Arrival { phase, index, .. } = arrival;
                Some(Job { phase, index, intended, client: None, attempt: 0 })
            }
            Source::Closed { pass, clients } => clients.take(pass, now),
        }
    }

    /// Whether no request is scheduled. A client that waits for a reply may still schedule one; the
    /// caller knows whether any does.
    pub fn is_exhausted(&self) -> bool {
        self.next_at().is_none()
    }

    /// Records that a client received its reply: it thinks, then sends again. After an error it
    /// pauses at least [`ERROR_PAUSE`], so that a service that fails at once is not called in a
    /// tight loop.
    pub fn replied(&mut self, client: u32, now: Nanos, failed: bool) {
        if let Source::Closed { clients, .. } = self {
            let pause = if failed { ERROR_PAUSE } else { 0 };
            let think = clients.think().max(pause);
            clients.wake(now + think, client);
        }
    }

    /// Schedules a retry of the client's failed request, with exponential back-off.
    pub fn retry(&mut self, job: Job, now: Nanos) {
        if let (Source::Closed { clients, .. }, Some(client)) = (self, job.client) {
            let pause = ERROR_PAUSE << job.attempt.min(6);
            clients.retry.push((client, Job { attempt: job.attempt + 1, ..job }));
            clients.wake(now + pause, client);
        }
    }

    /// Cancels all requests that are not sent yet.
    pub fn stop(&mut self) {
        match self {
            Source::Open { next, .. } => *next = None,
            Source::Closed { clients, .. } => {
                clients.waking.clear();
                clients.stopped = true;
            }
        }
    }
}

/// The least pause of a closed loop's client after an error.
const ERROR_PAUSE: Nanos = SECOND / 100;

/// The closed-loop clients of one thread that are thinking, ordered by wake-up time.
pub(super) struct Clients {
    waking: BinaryHeap<Reverse<(Nanos, u32)>>,
    retry: Vec<(u32, Job)>,
    phase: usize,
    think_ns: f64,
    think: Think,
    rng: Xoshiro256PlusPlus,
    stopped: bool,
}

impl Clients {
    fn new(pass: &Pass, clients: usize, share: Share, seed: u64) -> Clients {
        let (think_ns, think) = match pass.phases.first().map(|phase| &phase.pace) {
            Some(&Pace::Closed { think_ns, think, .. }) => (think_ns, think),
            _ => (0.0, Think::Constant),
        };
        let purpose = pass.phases.first().map_or(0, |phase| phase.purpose);
        let mut made = Clients {
            waking: BinaryHeap::new(),
            retry: Vec::new(),
            phase: 0,
            think_ns,
            think,
            rng: random(seed ^ share.thread.rotate_left(48), purpose),
            stopped: false,
        };
        for client in (0..clients as u64).filter(|c| c % share.threads == share.thread) {
            let at = pass.start + made.think();
            made.waking.push(Reverse((at, client as u32)));
        }
        made
    }

    fn wake(&mut self, at: Nanos, client: u32) {
        if !self.stopped {
            self.waking.push(Reverse((at, client)));
        }
    }

    fn think(&mut self) -> Nanos {
        match self.think {
            _ if self.think_ns <= 0.0 => 0,
            Think::Constant => self.think_ns as Nanos,
            Think::Exponential => exponential(&mut self.rng, self.think_ns) as Nanos,
        }
    }

    fn take(&mut self, pass: &Pass, now: Nanos) -> Option<Job> {
        let &Reverse((at, client)) = self.waking.peek()?;
        if at > now {
            return None;
        }
        self.waking.pop();
        if let Some(found) = self.retry.iter().position(|(c, _)| *c == client) {
            return Some(self.retry.swap_remove(found).1);
        }
        while let Some(phase) = pass.phases.get(self.phase) {
            let (begun, ended) = pass.tickets.get(self.phase)?;
            let over = match phase.length {
                Length::Seconds(_) => pass.closed_end(self.phase).is_none_or(|end| at >= end),
                Length::Requests(_) => ended.load(Ordering::Acquire) > 0,
            };
            if !over {
                let index = begun.fetch_add(1, Ordering::AcqRel);
                match phase.length {
                    Length::Requests(n) if index >= n => {
                        // The thread that first finds the tickets used up sets the phase's end.
                        let _ = ended.compare_exchange(
                            0,
                            clock::now().max(1),
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        );
                    }
                    _ => {
                        let (phase, client) = (self.phase, Some(client));
                        return Some(Job { phase, index, intended: at, client, attempt: 0 });
                    }
                }
            }
            self.phase += 1;
        }
        // All phases are over: the client is done.
        None
    }
}
