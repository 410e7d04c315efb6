//! What a thread sends next, and when: its share of an open loop's arrivals, or its clients of a closed
//! loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::window::{Nanos, SECOND};
use rand::rngs::Xoshiro256PlusPlus;

use super::arrivals::{Arrival, ArrivalStream, Pace, Phase, exponential, random};
use super::plan::{Length, Think};
use record::clock;

/// What all threads share of a pass: phases that follow each other without a pause.
pub(super) struct Pass {
    pub phases: Arc<[Phase]>,
    /// When the first phase starts.
    pub start: Nanos,
    /// For open loops: when each phase ends, from the start.
    ends: Vec<Nanos>,
    /// For closed loops: of each phase, how many requests were begun, and when it ended (0: not yet).
    pub tickets: Vec<(AtomicU64, AtomicU64)>,
    /// The name of the recorded queue.
    pub queue: &'static str,
    /// Whether requests that fail are tried again until they succeed (a fill).
    pub insist: bool,
}

impl Pass {
    /// A pass that starts `lead` from when the ends of its phases are known, which of an open loop is before
    /// anything is recorded (cost: [`ArrivalStream::ends`], which `stop` ends).
    pub fn new(
        phases: Vec<Phase>,
        lead: Nanos,
        queue: &'static str,
        insist: bool,
        seed: u64,
        stop: &AtomicBool,
    ) -> Pass {
        let phases: Arc<[Phase]> = phases.into();
        let tickets = phases.iter().map(|_| Default::default()).collect();
        let ends = ArrivalStream::new(phases.clone(), seed).ends(stop);
        Pass { phases, start: clock::now() + lead, ends, tickets, queue, insist }
    }

    /// When a phase starts and ends, as far as that is known.
    pub fn bounds(&self, phase: usize) -> (Option<Nanos>, Option<Nanos>) {
        let end = |phase: usize| match self.ends.get(phase) {
            Some(end) => Some(self.start + end),
            None => self.closed_end(phase),
        };
        (phase.checked_sub(1).map_or(Some(self.start), end), end(phase))
    }

    /// When a phase of a closed loop ends, if that is known.
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

/// A request to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub phase: usize,
    /// Its number within the phase.
    pub index: u64,
    /// When it was to be sent.
    pub intended: Nanos,
    /// The client that sends it, in a closed loop.
    pub client: Option<u32>,
    /// How often it was tried before.
    pub attempt: u32,
}

/// A thread's part of a pass's requests.
pub(super) enum Source {
    Open { stream: ArrivalStream, next: Option<Arrival>, share: Share, start: Nanos },
    Closed { pass: Arc<Pass>, clients: Clients },
}

/// Which arrivals are a thread's.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub thread: u64,
    pub threads: u64,
}

impl Share {
    /// Thinned at random where arrivals are, so that each thread's are Poisson too and the dispersion
    /// of its windows adds up; in turn where they are regular.
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
            // The stream ends, so this does.
            while let Some(arrival) = stream.next() {
                let regular = stream.is_regular(arrival.phase);
                if share.has(arrival.index, regular) {
                    *next = Some(arrival);
                    break;
                }
            }
        }
    }

    /// When the next request is to be sent, if that is known.
    pub fn next_at(&self) -> Option<Nanos> {
        match self {
            Source::Open { next, start, .. } => next.map(|arrival| start + arrival.at),
            Source::Closed { clients, .. } => clients.waking.peek().map(|Reverse((at, _))| *at),
        }
    }

    /// Takes a request that is due at `now`.
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

    /// Whether no request is to come. Clients that wait for a reply may come back: the caller knows.
    pub fn is_exhausted(&self) -> bool {
        self.next_at().is_none()
    }

    /// A client has its reply. It thinks, then goes on; after an error it pauses, so that a service
    /// that fails at once is not asked in a tight loop.
    pub fn replied(&mut self, client: u32, now: Nanos, failed: bool) {
        if let Source::Closed { clients, .. } = self {
            let pause = if failed { ERROR_PAUSE } else { 0 };
            let think = clients.think().max(pause);
            clients.wake(now + think, client);
        }
    }

    /// A client tries the same again later.
    pub fn again(&mut self, job: Job, now: Nanos) {
        if let (Source::Closed { clients, .. }, Some(client)) = (self, job.client) {
            let pause = ERROR_PAUSE << job.attempt.min(6);
            clients.retry.push((client, Job { attempt: job.attempt + 1, ..job }));
            clients.wake(now + pause, client);
        }
    }

    /// No more requests.
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

/// How long a client of a closed loop waits after an error.
const ERROR_PAUSE: Nanos = SECOND / 100;

/// The clients of a thread that think.
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
                        // Read after the last request was taken, by whomever.
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
        // All phases are over: the client goes home.
        None
    }
}
