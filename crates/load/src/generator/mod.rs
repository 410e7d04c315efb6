//! A generator thread: one event loop over epoll, without a runtime.
//!
//! The loop reads the clock after each socket event, so an arrival is at most one event (some 10
//! µs) late as long as the thread has a processor. The timeout is that of epoll_pwait2, with the
//! thread's timer slack at its minimum. At most [`EVENTS`] events are taken at a time, because a
//! reply is timed when it is read.
//!
//! Bounds: `connections_max` slots, `backlog_max` waiting requests; `deadlines` holds at most the
//! requests sent within one timeout.
//!
//! A slot is a place for a request: a connection of its own, or with HTTP/2 a stream of one that it
//! shares (`links`). `channel` is what is the same of both.

mod channel;
mod course;
mod exchange;
mod links;
mod multiplex;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use ground::window::{Finished, Nanos, Outcome, SECOND, Settings, is_sampled};
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::arrivals::Pace;
use super::completion::Completion;
use super::keys::{KeySource, draw};
use super::phase::{Message, PhaseRecord};
use super::plan::Length;
use super::source::{Job, Pass, Share, Source};
use crate::client::{Connection, Fault, Progress, ReplyError, Target};
use channel::{Channel, is_wrong, sample_of};
use course::{Course, State};
use exchange::{Exchange, parts_of};
use links::{LINK, Links};
use record::clock;

/// The most socket events taken in one wait.
const EVENTS: usize = 16;
/// The most arrivals sent before the sockets are polled again.
const ARRIVALS: usize = 32;
/// The most retries of a request whose connection turns out to have been closed.
const RETRIES: u32 = 2;
/// The most retries of a request that the service says it did not begin (HTTP/2). A service that ends
/// each connection after a few requests says so of all others on it.
const UNPROCESSED_RETRIES: u32 = 20;
/// The most retries of a failed request of a fill.
const FILL_RETRIES: u32 = 5;
/// The longest wait, so that windows are rolled and a stop is noticed.
const TICK: Nanos = SECOND / 20;
/// How long to wait for replies after the run is interrupted.
const STOP_GRACE: Nanos = SECOND / 2;
/// Size of the read buffer. Bodies that are not verified bypass it.
const SCRATCH: usize = 1 << 20;

/// State shared by all threads of a run.
pub(super) struct Shared {
    pub target: Target,
    pub keys: KeySource,
    pub settings: Settings,
    pub seed: u64,
    pub verify: bool,
    pub timeout_ns: Nanos,
    pub sample_one_in: u64,
    /// Requests of a phase whose times each thread records.
    pub times: u64,
    pub stop: Arc<AtomicBool>,
}

/// A slot for a request.
#[derive(Default)]
struct Slot {
    channel: Option<Channel>,
    /// Incremented when the connection is closed, so that events and deadlines of an earlier
    /// connection are recognised.
    generation: u32,
    exchange: Option<Exchange>,
    watches_write: bool,
}

/// A request that waits for a connection.
#[derive(Clone, Copy)]
struct WaitingRequest {
    job: Job,
    length_met: u64,
}

/// One thread's connections and requests in flight. Kept through all passes of a run.
pub(super) struct Generator {
    shared: Arc<Shared>,
    share: Share,
    connections_max: usize,
    backlog_max: usize,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    /// Connections of HTTP/2.
    links: Links,
    free: Vec<u32>,
    idle: Vec<u32>,
    backlog: VecDeque<WaitingRequest>,
    deadlines: VecDeque<(Nanos, u32, u64)>,
    serial: u64,
    scratch: Vec<u8>,
    key: Vec<u8>,
}

impl Generator {
    pub fn new(
        shared: Arc<Shared>,
        share: Share,
        connections: usize,
        backlog: usize,
    ) -> std::io::Result<Generator> {
        let (connections, streams) = (connections.max(1), shared.target.streams());
        Ok(Generator {
            share,
            connections_max: connections.saturating_mul(streams.unwrap_or(1)),
            links: Links::new(connections, streams),
            shared,
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

    /// Sends all requests of a pass and waits for their replies. Sends the recorded windows to
    /// `out`.
    pub fn run(&mut self, pass: &Arc<Pass>, out: &Sender<Message>) {
        clock::precise_thread();
        clock::raise_thread();
        let source = Source::new(pass, self.share, self.shared.seed);
        let mut course = Course {
            pass,
            source,
            records: pass.phases.iter().map(|_| State::NotStarted).collect(),
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
                course.interrupt();
                give_up_at = now + STOP_GRACE;
            }
            let now = self.send_due(&mut course, now);
            self.expire(&mut course, now);
            if now >= tick_at || course.source.is_exhausted() {
                self.roll(&mut course, now, now >= give_up_at);
                tick_at = now + TICK;
            }
            self.drive(&mut course);
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

    /// After an interrupt: drops the requests without a reply and closes each phase at the present
    /// time.
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

    /// Opens the records of phases that have begun, and sends the windows that are over to the
    /// writer.
    fn roll(&mut self, course: &mut Course<'_>, now: Nanos, give_up: bool) {
        for phase in 0..course.records.len() {
            let (start, end) = course.pass.bounds(phase);
            let begun = now.min(course.stopped_at);
            let Some(start) = start.filter(|&start| start <= begun) else { return };
            if let State::NotStarted = course.records[phase] {
                self.open_record(course, phase, start);
            }
            let late = course.source.next_at();
            let is_whole =
                |&end: &Nanos| end <= course.stopped_at && late.is_none_or(|at| at >= end);
            let end = end.filter(is_whole);
            let Some(record) = course.record(phase) else { continue };
            let (messages, over) = record.roll(now, end, give_up);
            // The receiver is gone only if the run has already failed.
            messages.into_iter().for_each(|m| drop(course.out.send(m)));
            if over {
                course.records[phase] = State::Over;
            }
        }
    }

    fn open_record(&mut self, course: &mut Course<'_>, phase: usize, start: Nanos) {
        let settings = &self.shared.settings;
        let times = if course.pass.retry_failed { 0 } else { self.shared.times };
        let until_reply = course.pass.phases.get(phase).is_some_and(|it| {
            matches!((&it.pace, it.length), (Pace::Closed { .. }, Length::Requests(_)))
        });
        let queue = course.pass.queue;
        let record = PhaseRecord::new(phase, queue, settings, times, start, until_reply);
        course.records[phase] = State::Open(Box::new(record));
    }

    /// Sends the requests that are due, at most [`ARRIVALS`]; returns the time afterwards.
    fn send_due(&mut self, course: &mut Course<'_>, mut now: Nanos) -> Nanos {
        for _ in 0..ARRIVALS {
            let Some(job) = course.source.take(now) else { break };
            if let State::NotStarted = course.records[job.phase] {
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
        if self.backlog.is_empty() && self.has_room() {
            return self.start(course, WaitingRequest { job, length_met }, now);
        }
        record.account.backlogged += 1;
        if self.backlog.len() < self.backlog_max {
            self.backlog.push_back(WaitingRequest { job, length_met });
            return self.serve_backlog(course, now);
        }
        record.drop_arrival(now);
        if let Some(client) = job.client {
            course.source.replied(client, now, true);
        }
    }

    /// Whether a request can be sent now.
    fn has_room(&mut self) -> bool {
        if self.links.is_used() {
            return self.links.has_room();
        }
        !self.idle.is_empty() || !self.free.is_empty() || self.slots.len() < self.connections_max
    }

    /// Sends requests from the backlog while connections are available.
    fn serve_backlog(&mut self, course: &mut Course<'_>, now: Nanos) {
        while !self.backlog.is_empty() && self.has_room() {
            let Some(waiting) = self.backlog.pop_front() else { return };
            self.start(course, waiting, now);
        }
    }

    /// Sends a request for the first time.
    fn start(&mut self, course: &mut Course<'_>, waiting: WaitingRequest, now: Nanos) {
        let WaitingRequest { job, length_met } = waiting;
        let Some(record) = course.record(job.phase) else { return };
        record.start(now);
        let phase = &course.pass.phases[job.phase];
        let seed = phase.key_seed(self.shared.seed);
        let mut request = self.shared.keys.request(phase.part, seed, job.index, &mut self.key);
        let target = &self.shared.target;
        if let Some(form) = target.choose(|| draw(seed, job.index)) {
            request.form = Some(form);
            request.operation = target.operation_of(form).unwrap_or(request.operation);
        }
        self.serial += 1;
        let exchange = Exchange { job, request, serial: self.serial, started: now, length_met };
        self.send(course, exchange, true);
    }

    /// Sends a request over an idle connection (if `reuse`) or a new one.
    fn send(&mut self, course: &mut Course<'_>, exchange: Exchange, reuse: bool) {
        if self.links.is_used() {
            return self.send_on_link(course, exchange);
        }
        let idle = if reuse { self.idle.pop() } else { None };
        let slot = match idle.map_or_else(|| self.open(), Ok) {
            Ok(slot) => slot,
            Err(fault) => return self.unsent(course, exchange, &fault),
        };
        let shared = self.shared.clone();
        self.hold(slot, exchange);
        let parts = parts_of(&exchange.request, &self.key, shared.verify);
        let Some(Channel::Own(connection)) = &mut self.slots[slot as usize].channel else { return };
        connection.begin(&shared.target, &parts);
        let sent = if idle.is_some() { connection.write() } else { Ok(()) };
        match sent.and_then(|()| self.watch(slot)) {
            Ok(()) => {}
            Err(fault) => self.broken(course, slot, &fault),
        }
    }

    /// Puts a request into a slot, and its deadline into their queue.
    fn hold(&mut self, slot: u32, exchange: Exchange) {
        self.slots[slot as usize].exchange = Some(exchange);
        let deadline = exchange.started + self.shared.timeout_ns;
        self.deadlines.push_back((deadline, slot, exchange.serial));
    }

    /// A slot without a channel.
    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        })
    }

    fn open(&mut self) -> Result<u32, Fault> {
        let connection = Connection::open(&self.shared.target)?;
        let slot = self.free_slot();
        let place = &mut self.slots[slot as usize];
        let data = EventData::new_u64(u64::from(place.generation) << 32 | u64::from(slot));
        let flags = EventFlags::IN | EventFlags::OUT;
        match epoll::add(&self.epoll, connection.socket(), data, flags) {
            Ok(()) => {
                place.channel = Some(Channel::Own(Box::new(connection)));
                place.watches_write = true;
                Ok(slot)
            }
            Err(error) => {
                self.free.push(slot);
                Err(Fault::Socket(error))
            }
        }
    }

    /// Registers for write events if, and only if, unsent bytes are left.
    fn watch(&mut self, slot: u32) -> Result<(), Fault> {
        let place = &mut self.slots[slot as usize];
        let Some(Channel::Own(connection)) = &place.channel else { return Ok(()) };
        let wants = connection.wants_write();
        if wants != place.watches_write {
            let data = EventData::new_u64(u64::from(place.generation) << 32 | u64::from(slot));
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, connection.socket(), data, flags).map_err(Fault::Socket)?;
            place.watches_write = wants;
        }
        Ok(())
    }

    /// Closes a connection, or gives up a stream, and frees its slot.
    fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(channel) = place.channel.take() else { return };
        place.generation = place.generation.wrapping_add(1);
        place.exchange = None;
        self.free.push(slot);
        if let Channel::Stream { link, .. } = channel {
            self.links.leave(link);
        }
    }

    fn handle(&mut self, course: &mut Course<'_>, data: u64, flags: EventFlags) {
        let slot = data as u32;
        if slot & LINK != 0 {
            self.links.mark(slot & !LINK, (data >> 32) as u32);
            return self.drive(course);
        }
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        if place.generation != (data >> 32) as u32 {
            return;
        }
        let Some(Channel::Own(connection)) = &mut place.channel else { return };
        if place.exchange.is_none() {
            // No request is in flight: the service closed an idle connection, or sent unsolicited
            // bytes.
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
        let Some(Channel::Own(connection)) = &mut self.slots[slot as usize].channel else { return };
        match connection.read(&mut self.scratch) {
            Ok(Progress::Pending) => {
                // With TLS, a read may produce bytes to write.
                if let Err(fault) = self.watch(slot) {
                    self.broken(course, slot, &fault);
                }
            }
            Ok(Progress::Complete) => self.complete(course, slot),
            Err(fault) => self.broken(course, slot, &fault),
        }
    }

    /// Handles a complete reply.
    fn complete(&mut self, course: &mut Course<'_>, slot: u32) {
        let now = clock::now();
        let place = &mut self.slots[slot as usize];
        let (Some(exchange), Some(channel)) = (place.exchange.take(), &place.channel) else {
            return;
        };
        let wrong = self.shared.verify && is_wrong(&exchange.request, channel);
        let operation = exchange.request.operation;
        let completion =
            Completion::from_reply(operation, channel.reply(), channel.error_text(), wrong);
        if channel.is_reusable() {
            self.idle.push(slot);
        } else {
            self.close(slot);
        }
        if let Some(record) = course.record(exchange.job.phase) {
            record.account.mismatches += u64::from(wrong);
        }
        self.finish(course, exchange, completion, now);
        self.serve_backlog(course, now);
    }

    fn finish(
        &mut self,
        course: &mut Course<'_>,
        exchange: Exchange,
        completion: Completion,
        now: Nanos,
    ) {
        let Exchange { job, request, started, .. } = exchange;
        let retry_failed = course.pass.retry_failed;
        let Some(record) = course.record(job.phase) else { return };
        let finished = Finished {
            operation: request.operation,
            outcome: completion.outcome,
            waiting: started.saturating_sub(job.intended),
            service: now.saturating_sub(started),
            response: now.saturating_sub(job.intended),
            bytes: completion.bytes,
        };
        let failed = completion.outcome == Outcome::Error;
        if failed && retry_failed && job.attempt < FILL_RETRIES {
            record.retry(now, &finished);
            return course.source.retry(job, now);
        }
        record.finish(now, &finished, completion.refused, request.hash);
        if let Some(form) = request.form
            && let Some(label) = self.shared.target.label_of(form)
        {
            record.account.listed.add(form, label, &finished);
        }
        if !retry_failed && is_sampled(request.hash, self.shared.sample_one_in) {
            let offset = self.shared.settings.unix_offset_ns;
            record.samples.push(sample_of(&exchange, &completion, &finished, offset));
        }
        if let Some(reason) = completion.fault {
            let name = request.form.and_then(|form| self.shared.target.name_of(form));
            record.fault(name.map_or_else(|| reason.clone(), |name| format!("{name}: {reason}")));
        }
        if let Some(client) = job.client {
            course.source.replied(client, now, failed);
        }
    }

    /// Handles a connection or a stream that failed during an exchange.
    fn broken(&mut self, course: &mut Course<'_>, slot: u32, fault: &Fault) {
        let place = &mut self.slots[slot as usize];
        let Some(exchange) = place.exchange.take() else { return self.close(slot) };
        let links = &self.links;
        let stale = place.channel.as_ref().is_some_and(|channel| channel.is_stale(links));
        self.close(slot);
        // The service may close an idle connection just as a request is sent over it. Every
        // client retries that on another connection; the response time counts from the first
        // attempt. With HTTP/2 the service says by GOAWAY what it has not begun.
        let closed = matches!(fault, Fault::Socket(_) | Fault::Reply(ReplyError::Closed(_)));
        let retries = match fault {
            Fault::Unprocessed => UNPROCESSED_RETRIES,
            _ if stale && closed => RETRIES,
            _ => 0,
        };
        if exchange.job.attempt < retries {
            return self.again(course, exchange);
        }
        self.unsent(course, exchange, fault);
        self.serve_backlog(course, clock::now());
    }

    /// Handles a request that has no connection: it is tried at the next address of the service, if
    /// that is what failed and there is one, and has failed otherwise.
    fn unsent(&mut self, course: &mut Course<'_>, exchange: Exchange, fault: &Fault) {
        if let Fault::Connect { address, .. } = fault {
            let addresses = &self.shared.target.addresses;
            addresses.failed(*address);
            if addresses.len() > 1 && exchange.job.attempt < addresses.len() as u32 {
                return self.again(course, exchange);
            }
        }
        let mut completion = Completion::failed(fault.to_string());
        completion.refused = *fault == Fault::Refused;
        self.finish(course, exchange, completion, clock::now());
    }

    /// Sends a request once more, on another connection. Its time goes on.
    fn again(&mut self, course: &mut Course<'_>, exchange: Exchange) {
        if let Some(record) = course.record(exchange.job.phase) {
            record.account.retries += 1;
        }
        let phase = &course.pass.phases[exchange.job.phase];
        let seed = phase.key_seed(self.shared.seed);
        self.shared.keys.request(phase.part, seed, exchange.job.index, &mut self.key);
        let job = Job { attempt: exchange.job.attempt + 1, ..exchange.job };
        self.send(course, Exchange { job, ..exchange }, false);
    }

    /// Fails the requests in flight, and drops those in the backlog, that are past the timeout.
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
                let completion = Completion::failed(format!("no reply within {seconds} s"));
                self.finish(course, exchange, completion, now);
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
