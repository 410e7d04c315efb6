//! A thread that generates: one event loop without a runtime.
//!
//! The loop looks at the clock after each socket event, so an arrival is at most one event (some 10 µs)
//! late as long as the thread has a processor; timers are those of epoll_pwait2, precise to the
//! nanosecond with the thread's timer slack at its least. At most [`EVENTS`] events are taken at a time,
//! because the time of a reply is the time of its read.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use model::window::{Finished, Nanos, Operation, Outcome, SECOND, Sample, Settings, is_sampled};
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::answer::Answer;
use super::keys::{KeySource, Wanted};
use super::phase::{Message, PhaseRecord};
use super::source::{Job, Pass, Share, Source};
use crate::client::{Body, Connection, Fault, Progress, ReplyError, Target};
use record::clock;

/// Socket events between two waits.
const EVENTS: usize = 16;
/// Arrivals sent between two looks at the sockets.
const ARRIVALS: usize = 32;
/// How often a request is tried again when its connection turns out to have been closed.
const RETRIES: u32 = 2;
/// How often a request of a fill is tried again.
const INSISTENCE: u32 = 5;
/// The longest wait, so that windows are rolled and a stop is seen.
const TICK: Nanos = SECOND / 20;
/// How long replies are waited for when the run is interrupted.
const FAREWELL: Nanos = SECOND / 2;
/// Room for what a socket holds; bodies that nobody looks at never touch it.
const SCRATCH: usize = 1 << 20;

/// What all threads of a run share.
pub(super) struct Shared {
    pub target: Target,
    pub keys: KeySource,
    pub settings: Settings,
    pub seed: u64,
    pub verify: bool,
    pub timeout_ns: Nanos,
    pub sample_one_in: u64,
    pub stop: Arc<AtomicBool>,
}

/// A place for a connection.
#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    /// Goes up when the connection is closed, so that events and deadlines of an earlier one are known.
    generation: u32,
    exchange: Option<Exchange>,
    watches_write: bool,
}

/// A request on its way.
#[derive(Clone, Copy)]
struct Exchange {
    job: Job,
    wanted: Wanted,
    serial: u64,
    started: Nanos,
    length_met: u64,
}

/// A request that waits for a connection.
#[derive(Clone, Copy)]
struct Waiting {
    job: Job,
    length_met: u64,
}

/// One thread's connections and what it has under way. Lives through all passes of a run.
pub(super) struct Generator {
    shared: Arc<Shared>,
    share: Share,
    connections_max: usize,
    backlog_max: usize,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    free: Vec<u32>,
    idle: Vec<u32>,
    backlog: VecDeque<Waiting>,
    deadlines: VecDeque<(Nanos, u32, u64)>,
    serial: u64,
    scratch: Vec<u8>,
    key: Vec<u8>,
}

/// The part of a generator that belongs to one pass.
struct Course<'a> {
    pass: &'a Pass,
    source: Source,
    records: Vec<State>,
    out: &'a Sender<Message>,
    /// Up to when everything was sent, if the run was interrupted: phases that end later are cut.
    stopped_at: Nanos,
}

/// Where a phase is.
enum State {
    ToCome,
    Open(Box<PhaseRecord>),
    Over,
}

impl Course<'_> {
    /// The record of a phase that is open. It learns the phase's end as soon as this is known, which of an open
    /// loop is from the start: nothing that comes late opens a window past the end.
    fn record(&mut self, phase: usize) -> Option<&mut PhaseRecord> {
        match self.records.get_mut(phase) {
            Some(State::Open(record)) => {
                record.bound(self.pass.bounds(phase).1);
                Some(record)
            }
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        self.records.iter().all(|state| matches!(state, State::Over))
    }
}

impl Generator {
    pub fn new(
        shared: Arc<Shared>,
        share: Share,
        connections: usize,
        backlog: usize,
    ) -> std::io::Result<Generator> {
        Ok(Generator {
            shared,
            share,
            connections_max: connections.max(1),
            backlog_max: backlog,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
            backlog: VecDeque::new(),
            deadlines: VecDeque::new(),
            serial: 0,
            scratch: vec![0; SCRATCH],
            key: Vec::new(),
        })
    }

    /// Sends all requests of a pass and waits for their replies; windows go to `out`.
    pub fn run(&mut self, pass: &Arc<Pass>, out: &Sender<Message>) {
        clock::precise_thread();
        clock::raise_thread();
        let source = Source::new(pass, self.share, self.shared.seed);
        let mut course = Course {
            pass,
            source,
            records: pass.phases.iter().map(|_| State::ToCome).collect(),
            out,
            stopped_at: Nanos::MAX,
        };
        let mut give_up_at = Nanos::MAX;
        let mut tick_at = 0;
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS];
        loop {
            let now = clock::now();
            if give_up_at == Nanos::MAX && self.shared.stop.load(Ordering::Relaxed) {
                course.stopped_at = course.source.next_at().map_or(now, |at| at.min(now));
                course.source.stop();
                give_up_at = now + FAREWELL;
            }
            let now = self.send_due(&mut course, now);
            self.expire(&mut course, now);
            if now >= tick_at || course.source.is_exhausted() {
                self.roll(&mut course, now, now >= give_up_at);
                tick_at = now + TICK;
            }
            let stopped = give_up_at < Nanos::MAX && (now >= give_up_at || self.is_quiet());
            if course.is_over() || stopped {
                break;
            }
            let wake = course.source.next_at().unwrap_or(Nanos::MAX).min(tick_at);
            let wake = wake.min(self.deadlines.front().map_or(Nanos::MAX, |d| d.0));
            let timeout = clock::timespec(wake.saturating_sub(now));
            let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) {
                Ok((ready, _)) => ready,
                Err(_) => &mut [],
            };
            for event in ready.iter() {
                self.handle(&mut course, event.data.u64(), event.flags);
                let now = clock::now();
                if course.source.next_at().is_some_and(|at| at <= now) {
                    self.send_due(&mut course, now);
                }
            }
        }
        self.leave(&mut course);
    }

    /// After an interrupt: requests without a reply are given up, phases are closed where they are.
    fn leave(&mut self, course: &mut Course<'_>) {
        let now = clock::now();
        for phase in 0..course.records.len() {
            if let Some(record) = course.record(phase) {
                let (messages, _) = record.roll(now, Some(now), true);
                messages.into_iter().for_each(|m| drop(course.out.send(m)));
                course.records[phase] = State::Over;
            }
        }
        self.backlog.clear();
        self.deadlines.clear();
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].exchange.take().is_some() {
                self.close(slot);
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.backlog.is_empty() && self.slots.iter().all(|slot| slot.exchange.is_none())
    }

    /// Opens the records of phases that have begun, and writes out what is over.
    fn roll(&mut self, course: &mut Course<'_>, now: Nanos, give_up: bool) {
        for phase in 0..course.records.len() {
            let (start, end) = course.pass.bounds(phase);
            let Some(start) = start.filter(|&start| start <= now) else { return };
            if let State::ToCome = course.records[phase] {
                self.open_record(course, phase, start);
            }
            let late = course.source.next_at();
            let is_whole =
                |&end: &Nanos| end <= course.stopped_at && late.is_none_or(|at| at >= end);
            let end = end.filter(is_whole);
            let Some(record) = course.record(phase) else { continue };
            let (messages, over) = record.roll(now, end, give_up);
            // The writer is gone only when the run has failed already.
            messages.into_iter().for_each(|m| drop(course.out.send(m)));
            if over {
                course.records[phase] = State::Over;
            }
        }
    }

    fn open_record(&mut self, course: &mut Course<'_>, phase: usize, start: Nanos) {
        let settings = &self.shared.settings;
        let record = PhaseRecord::new(phase, course.pass.queue, settings, start);
        course.records[phase] = State::Open(Box::new(record));
    }

    /// Sends what is due, at most [`ARRIVALS`]; returns the time after that.
    fn send_due(&mut self, course: &mut Course<'_>, mut now: Nanos) -> Nanos {
        for _ in 0..ARRIVALS {
            let Some(job) = course.source.take(now) else { break };
            if let State::ToCome = course.records[job.phase] {
                let start = course.pass.bounds(job.phase).0.unwrap_or(now);
                self.open_record(course, job.phase, start);
            }
            self.arrive(course, job, now);
            now = clock::now();
        }
        now
    }

    fn arrive(&mut self, course: &mut Course<'_>, job: Job, now: Nanos) {
        let Some(record) = course.record(job.phase) else { return };
        let length_met = record.arrive(job.intended, job.attempt > 0);
        let full = self.idle.is_empty()
            && self.free.is_empty()
            && self.slots.len() >= self.connections_max;
        if self.backlog.is_empty() && !full {
            return self.start(course, Waiting { job, length_met }, now);
        }
        record.account.backlogged += 1;
        if self.backlog.len() < self.backlog_max {
            self.backlog.push_back(Waiting { job, length_met });
            return self.serve_backlog(course, now);
        }
        record.drop_arrival(now);
        if let Some(client) = job.client {
            course.source.replied(client, now, true);
        }
    }

    /// Sends what waits, as far as there are connections for it.
    fn serve_backlog(&mut self, course: &mut Course<'_>, now: Nanos) {
        while !self.backlog.is_empty() {
            let room = !self.idle.is_empty()
                || !self.free.is_empty()
                || self.slots.len() < self.connections_max;
            if !room {
                return;
            }
            let Some(waiting) = self.backlog.pop_front() else { return };
            self.start(course, waiting, now);
        }
    }

    /// Sends a request for the first time.
    fn start(&mut self, course: &mut Course<'_>, waiting: Waiting, now: Nanos) {
        let Waiting { job, length_met } = waiting;
        let Some(record) = course.record(job.phase) else { return };
        record.start(now);
        let part = course.pass.phases[job.phase].part;
        let wanted = self.shared.keys.request(part, self.shared.seed, job.index, &mut self.key);
        self.serial += 1;
        let exchange = Exchange { job, wanted, serial: self.serial, started: now, length_met };
        self.send(course, exchange, true);
    }

    /// Sends a request over an idle connection, or over a new one.
    fn send(&mut self, course: &mut Course<'_>, exchange: Exchange, reuse: bool) {
        let idle = if reuse { self.idle.pop() } else { None };
        let slot = match idle.map_or_else(|| self.open(), Ok) {
            Ok(slot) => slot,
            Err(fault) => {
                let answer = Answer::none(fault.to_string());
                return self.finish(course, exchange, answer, clock::now());
            }
        };
        let shared = self.shared.clone();
        let place = &mut self.slots[slot as usize];
        place.exchange = Some(exchange);
        let Exchange { wanted, serial, started, .. } = exchange;
        self.deadlines.push_back((started + shared.timeout_ns, slot, serial));
        let Some(connection) = &mut place.connection else { return };
        let body = Body { key: wanted.hash, size: wanted.size };
        connection.begin(&shared.target, wanted.operation, &self.key, body, shared.verify);
        let sent = if idle.is_some() { connection.write() } else { Ok(()) };
        match sent.and_then(|()| self.watch(slot)) {
            Ok(()) => {}
            Err(fault) => self.broken(course, slot, &fault),
        }
    }

    fn open(&mut self) -> Result<u32, Fault> {
        let connection = Connection::open(&self.shared.target)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        let data = EventData::new_u64(u64::from(place.generation) << 32 | u64::from(slot));
        let flags = EventFlags::IN | EventFlags::OUT;
        match epoll::add(&self.epoll, connection.socket(), data, flags) {
            Ok(()) => {
                place.connection = Some(connection);
                place.watches_write = true;
                Ok(slot)
            }
            Err(error) => {
                self.free.push(slot);
                Err(Fault::Socket(error))
            }
        }
    }

    /// Has the kernel say when the socket can be written to, if something is left to write.
    fn watch(&mut self, slot: u32) -> Result<(), Fault> {
        let place = &mut self.slots[slot as usize];
        let Some(connection) = &place.connection else { return Ok(()) };
        let wants = connection.wants_write();
        if wants != place.watches_write {
            let data = EventData::new_u64(u64::from(place.generation) << 32 | u64::from(slot));
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, connection.socket(), data, flags).map_err(Fault::Socket)?;
            place.watches_write = wants;
        }
        Ok(())
    }

    /// Forgets a connection; its socket is closed.
    fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if place.connection.take().is_some() {
            place.generation = place.generation.wrapping_add(1);
            place.exchange = None;
            self.free.push(slot);
        }
    }

    fn handle(&mut self, course: &mut Course<'_>, data: u64, flags: EventFlags) {
        let slot = data as u32;
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        if place.generation != (data >> 32) as u32 {
            return;
        }
        let Some(connection) = &mut place.connection else { return };
        if place.exchange.is_none() {
            // Nothing was asked: the service closed an idle connection, or talks out of turn.
            self.idle.retain(|&other| other != slot);
            return self.close(slot);
        }
        let writable = EventFlags::OUT | EventFlags::ERR | EventFlags::HUP;
        if flags.intersects(writable) && connection.wants_write() {
            if let Err(fault) = connection.write() {
                return self.broken(course, slot, &fault);
            }
            if let Err(fault) = self.watch(slot) {
                return self.broken(course, slot, &fault);
            }
        }
        if !flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            return;
        }
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        match connection.read(&mut self.scratch) {
            Ok(Progress::Pending) => {
                // With TLS, what was read may have something to be written.
                if let Err(fault) = self.watch(slot) {
                    self.broken(course, slot, &fault);
                }
            }
            Ok(Progress::Complete) => self.complete(course, slot),
            Err(fault) => self.broken(course, slot, &fault),
        }
    }

    /// A reply is complete.
    fn complete(&mut self, course: &mut Course<'_>, slot: u32) {
        let now = clock::now();
        let place = &mut self.slots[slot as usize];
        let (Some(exchange), Some(connection)) = (place.exchange.take(), &place.connection) else {
            return;
        };
        let wrong = self.shared.verify && is_wrong(&exchange.wanted, connection);
        let answer = Answer::of(connection.reply(), connection.words(), wrong);
        if connection.is_reusable() {
            self.idle.push(slot);
        } else {
            self.close(slot);
        }
        if let Some(record) = course.record(exchange.job.phase) {
            record.account.mismatches += u64::from(wrong);
        }
        self.finish(course, exchange, answer, now);
        self.serve_backlog(course, now);
    }

    fn finish(&mut self, course: &mut Course<'_>, exchange: Exchange, answer: Answer, now: Nanos) {
        let Exchange { job, wanted, started, .. } = exchange;
        let insist = course.pass.insist;
        let Some(record) = course.record(job.phase) else { return };
        let finished = Finished {
            operation: wanted.operation,
            outcome: answer.outcome,
            waiting: started.saturating_sub(job.intended),
            service: now.saturating_sub(started),
            response: now.saturating_sub(job.intended),
            bytes: answer.bytes,
        };
        let failed = answer.outcome == Outcome::Error;
        if failed && insist && job.attempt < INSISTENCE {
            record.retry(now, &finished);
            return course.source.again(job, now);
        }
        record.finish(now, &finished, answer.refused);
        if !insist && is_sampled(wanted.hash, self.shared.sample_one_in) {
            let offset = self.shared.settings.unix_offset_ns;
            record.samples.push(sample_of(&exchange, &answer, &finished, offset));
        }
        if let Some(words) = answer.fault {
            record.fault(words);
        }
        if let Some(client) = job.client {
            course.source.replied(client, now, failed);
        }
    }

    /// A connection failed in the middle of an exchange.
    fn broken(&mut self, course: &mut Course<'_>, slot: u32, fault: &Fault) {
        let place = &mut self.slots[slot as usize];
        let Some(exchange) = place.exchange.take() else { return self.close(slot) };
        let stale = place.connection.as_ref().is_some_and(|c| c.is_used() && c.is_unanswered());
        self.close(slot);
        let closed = matches!(fault, Fault::Socket(_) | Fault::Reply(ReplyError::Closed(_)));
        if stale && closed && exchange.job.attempt < RETRIES {
            // A connection may be closed by the other side just as a request is sent over it: every
            // client tries that again on another. The time goes on from the first attempt.
            if let Some(record) = course.record(exchange.job.phase) {
                record.account.retries += 1;
            }
            let part = course.pass.phases[exchange.job.phase].part;
            let (seed, index) = (self.shared.seed, exchange.job.index);
            self.shared.keys.request(part, seed, index, &mut self.key);
            let job = Job { attempt: exchange.job.attempt + 1, ..exchange.job };
            return self.send(course, Exchange { job, ..exchange }, false);
        }
        let now = clock::now();
        self.finish(course, exchange, Answer::none(fault.to_string()), now);
        self.serve_backlog(course, now);
    }

    /// Gives up requests that take too long, and backlog that is too old.
    fn expire(&mut self, course: &mut Course<'_>, now: Nanos) {
        while let Some(&(deadline, slot, serial)) = self.deadlines.front() {
            let current = self.slots[slot as usize].exchange.filter(|e| e.serial == serial);
            if current.is_some() && deadline > now {
                break;
            }
            self.deadlines.pop_front();
            if let Some(exchange) = current {
                self.close(slot);
                let seconds = self.shared.timeout_ns as f64 / SECOND as f64;
                let answer = Answer::none(format!("no reply within {seconds} s"));
                self.finish(course, exchange, answer, now);
            }
        }
        while let Some(waiting) = self.backlog.front() {
            if waiting.job.intended + self.shared.timeout_ns > now {
                break;
            }
            let job = waiting.job;
            self.backlog.pop_front();
            if let Some(record) = course.record(job.phase) {
                record.drop_arrival(now);
            }
            if let Some(client) = job.client {
                course.source.replied(client, now, true);
            }
        }
        self.serve_backlog(course, now);
    }
}

fn sample_of(exchange: &Exchange, answer: &Answer, finished: &Finished, offset: i128) -> Sample {
    let Exchange { job, wanted, length_met, .. } = exchange;
    Sample {
        key: wanted.hash,
        size: match wanted.operation {
            Operation::Put => wanted.size,
            Operation::Head => answer.announced.unwrap_or(0),
            _ => answer.bytes,
        },
        operation: wanted.operation,
        outcome: answer.outcome,
        received_unix_us: ((i128::from(job.intended) + offset) / 1000).max(0) as u64,
        queued_ns: 0,
        started_ns: finished.waiting,
        served_ns: finished.response,
        replied_ns: finished.response,
        length_met: answer.length_met.unwrap_or_else(|| (*length_met).min(1 << 31) as u32),
    }
}

/// Whether a reply has other bytes, or another number of them, than the key says.
fn is_wrong(wanted: &Wanted, connection: &Connection) -> bool {
    let reply = connection.reply();
    let short = || wanted.expected.is_some_and(|size| size != reply.body_bytes);
    wanted.operation == Operation::Get && (connection.is_wrong() || reply.status == 200 && short())
}
