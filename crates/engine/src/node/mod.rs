//! A storage server: memory tier, devices, the origin behind, coalescing of misses, order of writes.
//!
//! A read is answered by the memory tier at once, or parks as a *flight*: one piece of work for a key
//! that every later reader of that key joins. A flight goes to the device that holds the object, or to
//! the origin; what it brings fills the memory tier and a device. A write takes its turn in its key's
//! order; when it ends, whatever the result, the older version is gone from every tier and flights that
//! may carry it are *voided*: they still answer those who asked before the write ended, and fill
//! nothing. So after an acknowledged write no later read returns an older version.
//!
//! Objects that came from a device's restored segments, and any that have not been compared with the
//! origin for [`Settings::revalidate`], are checked by etag before they are served.

mod event;
mod flights;
mod settings;

pub use event::{
    Action, Checked, DeviceId, Event, Failure, Fetched, JobId, Reply, RequestId, Stages,
};
pub use settings::{DeviceSettings, OriginSettings, Settings};

use std::collections::{HashMap, VecDeque};

use model::window::{Finished, Nanos, Operation, Outcome, Recorder, Window};
use serde::{Deserialize, Serialize};

use crate::queue::Queue;
use crate::tier::{Location, Log, Memory, RECORD_OVERHEAD_BYTES};
use crate::{Etag, Key, Payload};
use flights::{Flight, Flights, Waiter};

/// An object in memory.
struct Kept<P> {
    payload: P,
    verified: Option<Nanos>,
}

/// An object on a device.
struct OnDevice {
    device: DeviceId,
    location: Location,
    etag: Etag,
    /// When the origin was known to have this version; `None` since a restart.
    verified: Option<Nanos>,
}

/// A record that is being written to a device.
struct Appending {
    device: DeviceId,
    location: Location,
    key: Key,
    etag: Etag,
    verified: Option<Nanos>,
    stored_bytes: u64,
    /// A write to the key ended since: the record is not to be indexed.
    void: bool,
}

/// A record that the disk code found on a device at start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Restored {
    /// Its key.
    pub key: Key,
    /// The object's version.
    pub etag: Etag,
    /// Where it lies.
    pub location: Location,
}

/// What a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Objects in the memory tier.
    pub memory_objects: usize,
    /// Bytes of the memory tier, overhead included.
    pub memory_bytes: u64,
    /// Objects that some device holds.
    pub device_objects: usize,
    /// Bytes on each device, replaced versions included.
    pub device_bytes: Vec<u64>,
    /// Reads that wait for a device or the origin, by key.
    pub flights: usize,
}

struct Device {
    queue: Queue<JobId>,
    log: Log,
    outcome: Outcome,
}

/// The writes of one key: the one whose turn it is, and those behind it.
struct Writers {
    current: RequestId,
    waiting: VecDeque<RequestId>,
}

/// A storage server's state. See the module.
///
/// `handle` costs well under a microsecond for a hit; nothing here iterates over all objects.
pub struct Node<P> {
    settings: Settings,
    memory: Memory<Kept<P>>,
    index: HashMap<Key, OnDevice>,
    devices: Vec<Device>,
    origin: Queue<JobId>,
    flights: Flights,
    appending: HashMap<JobId, Appending>,
    /// The newest of a key's records that are being written and not void.
    appending_of: HashMap<Key, JobId>,
    appending_bytes: u64,
    writers: HashMap<Key, Writers>,
    writes_waiting: u32,
    recorder: Recorder,
    next_job: JobId,
}

impl<P: Payload> Node<P> {
    /// An empty node at time `now`.
    pub fn new(settings: Settings, now: Nanos) -> Node<P> {
        let devices = settings.devices.iter().map(|d| Device {
            queue: Queue::new(
                &d.name,
                d.servers,
                d.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            log: Log::new(d.bytes_max, d.segment_bytes),
            outcome: d.outcome,
        });
        let origin = &settings.origin;
        Node {
            memory: Memory::new(settings.memory_bytes_max),
            index: HashMap::new(),
            devices: devices.collect(),
            origin: Queue::new(
                "origin",
                origin.servers,
                origin.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            flights: Flights::default(),
            appending: HashMap::new(),
            appending_of: HashMap::new(),
            appending_bytes: 0,
            writers: HashMap::new(),
            writes_waiting: 0,
            recorder: Recorder::new("node", 0, settings.windows.clone(), now),
            next_job: 0,
            settings,
        }
    }

    /// Takes over a segment that the disk code found on a device, in ascending order of segments. Its
    /// objects are checked against the origin before they are served.
    pub fn restore(&mut self, device: DeviceId, segment: u64, records: Vec<Restored>) {
        let Some(on) = self.devices.get_mut(device) else { return };
        let bytes = records.iter().map(|r| r.location.bytes()).sum();
        let keys = records.iter().map(|r| r.key.clone()).collect();
        on.log.restore(segment, bytes, keys);
        for Restored { key, etag, location } in records {
            self.index.insert(key, OnDevice { device, location, etag, verified: None });
        }
    }

    /// Takes in what happened at `now` and adds to `actions` what is to be done. Times may run back by
    /// as much as a completion is late in being told.
    pub fn handle(&mut self, now: Nanos, event: Event<P>, actions: &mut Vec<Action<P>>) {
        match event {
            Event::Get { request, key } => self.get(now, request, key, actions),
            Event::WriteBegin { request, key } => self.write_begin(now, request, key, actions),
            Event::WriteEnd { request, key, payload } => {
                self.write_end(now, request, key, payload, actions);
            }
            Event::Read { job, result } => self.read(now, job, result, actions),
            Event::Appended { job, written } => self.appended(job, written, actions),
            Event::Fetched { job, result } => self.fetched(now, job, result, actions),
            Event::Checked { job, result } => self.checked(now, job, result, actions),
        }
    }

    /// The windows of all queues that ended by `now`.
    pub fn windows(&mut self, now: Nanos) -> Vec<Window> {
        let mut windows = self.recorder.roll(now);
        windows.extend(self.origin.windows(now));
        windows.extend(self.devices.iter_mut().flat_map(|d| d.queue.windows(now)));
        windows
    }

    /// The windows of all queues that ended by `now`, and the open ones.
    pub fn flush_windows(&mut self, now: Nanos) -> Vec<Window> {
        let mut windows = self.recorder.flush(now);
        windows.extend(self.origin.flush(now));
        windows.extend(self.devices.iter_mut().flat_map(|d| d.queue.flush(now)));
        windows
    }

    /// What the node holds.
    pub fn contents(&self) -> Contents {
        Contents {
            memory_objects: self.memory.len(),
            memory_bytes: self.memory.bytes(),
            device_objects: self.index.len(),
            device_bytes: self.devices.iter().map(|d| d.log.bytes()).collect(),
            flights: self.flights.len(),
        }
    }

    /// Requests waiting and in service at a device.
    pub fn device_length(&self, device: DeviceId) -> Option<u32> {
        self.devices.get(device).map(|d| d.queue.length())
    }

    fn is_fresh(&self, verified: Option<Nanos>, now: Nanos) -> bool {
        match (verified, self.settings.revalidate) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(at), Some(bound)) => now.saturating_sub(at) < bound,
        }
    }

    // ---- reads -------------------------------------------------------------------------------------

    fn get(&mut self, now: Nanos, request: RequestId, key: Key, actions: &mut Vec<Action<P>>) {
        self.recorder.arrive(now);
        self.recorder.start(now);
        let waiter = Waiter { request, received: now, length_met: 0 };
        let kept = self.memory.get(&key).map(|kept| (kept.payload.clone(), kept.verified));
        match kept {
            Some((payload, verified)) if self.is_fresh(verified, now) => {
                let stages = Stages {
                    received: now,
                    queued: now,
                    started: now,
                    served: now,
                    ..Stages::default()
                };
                self.answer(
                    now,
                    request,
                    Reply::Found { payload, outcome: Outcome::Memory },
                    stages,
                    actions,
                );
            }
            Some((payload, _)) => {
                if !self.join(now, &key, waiter) {
                    self.enter_origin(now, Flight::new(key, waiter), Some(payload.etag()), actions);
                }
            }
            None => {
                if !self.join(now, &key, waiter) {
                    self.depart(now, Flight::new(key, waiter), actions);
                }
            }
        }
    }

    /// Adds a reader to the flight for its key, if there is one that is not voided.
    fn join(&mut self, now: Nanos, key: &Key, mut waiter: Waiter) -> bool {
        let Some(flight) = self.flights.joinable(key) else { return false };
        let length = flight.device.and_then(|d| self.devices.get(d)).map(|d| d.queue.length());
        waiter.length_met = length.unwrap_or_else(|| self.origin.length());
        flight.waiters.push(waiter);
        self.recorder.join(now);
        true
    }

    /// Sends a flight to where its object is: a device, or the origin.
    fn depart(&mut self, now: Nanos, flight: Flight, actions: &mut Vec<Action<P>>) {
        match self.index.get(&flight.key) {
            Some(on) if self.is_fresh(on.verified, now) => {
                let (device, location) = (on.device, on.location);
                self.enter_device(now, device, location, flight, actions);
            }
            Some(on) => {
                let etag = on.etag.clone();
                self.enter_origin(now, flight, Some(etag), actions);
            }
            None => self.enter_origin(now, flight, None, actions),
        }
    }

    fn enter_device(
        &mut self,
        now: Nanos,
        device: DeviceId,
        location: Location,
        mut flight: Flight,
        actions: &mut Vec<Action<P>>,
    ) {
        let queue = &mut self.devices[device].queue;
        flight.enter(now, Some(device), queue.length());
        flight.location = location;
        let job = self.next_job;
        self.next_job += 1;
        match queue.push(job, now) {
            Ok(()) => {
                self.flights.insert(job, flight);
                self.start_reads(now, device, actions);
            }
            Err(_) => {
                let queue = self.settings.devices[device].name.clone();
                self.answer_all(now, flight, || Reply::Busy { queue: queue.clone() }, actions);
            }
        }
    }

    fn start_reads(&mut self, now: Nanos, device: DeviceId, actions: &mut Vec<Action<P>>) {
        while let Some(started) = self.devices[device].queue.start(now) {
            let job = started.job;
            let flight = self.flights.get_mut(job).expect("a queued job has a flight");
            flight.started = started.start;
            let key = flight.key.clone();
            // The record may have moved while the flight waited. If it has gone, the read fails and
            // the flight goes on to the origin.
            if let Some(on) = self.index.get(&key).filter(|on| on.device == device) {
                flight.location = on.location;
            }
            let location = flight.location;
            actions.push(Action::Read { device, location, key, job, start: started.start });
        }
    }

    fn read(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Result<P, Failure>,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(mut flight) = self.flights.remove(job) else { return };
        let Some(device) = flight.device else { return };
        let served = now.max(flight.started);
        let outcome = self.devices[device].outcome;
        let bytes = result.as_ref().map_or(0, Payload::bytes);
        let outcome_recorded = if result.is_ok() { outcome } else { Outcome::Error };
        let finished = flight.finished(served, outcome_recorded, bytes);
        self.devices[device].queue.finish(served, &finished);
        self.start_reads(served, device, actions);
        match result {
            Ok(payload) => {
                if !flight.void {
                    self.keep_read(device, &flight, &payload, actions);
                }
                flight.served = Some((served, self.devices[device].queue.length()));
                let reply = || Reply::Found { payload: payload.clone(), outcome };
                self.answer_all(served, flight, reply, actions);
            }
            Err(_) => {
                let there = |on: &OnDevice| on.device == device && on.location == flight.location;
                if self.index.get(&flight.key).is_some_and(there) {
                    self.index.remove(&flight.key);
                }
                self.enter_origin(served, flight, None, actions);
            }
        }
    }

    /// Fills the memory tier with what a device gave, and writes it again if its segment goes soon.
    fn keep_read(
        &mut self,
        device: DeviceId,
        flight: &Flight,
        payload: &P,
        actions: &mut Vec<Action<P>>,
    ) {
        let on = self.index.get(&flight.key);
        let verified = on.and_then(|on| on.verified);
        let ageing = on.is_some_and(|on| self.devices[device].log.is_ageing(on.location.segment()));
        if ageing {
            self.append(&flight.key, payload, verified, actions);
        }
        self.keep(flight.key.clone(), payload.clone(), verified, actions);
    }

    fn enter_origin(
        &mut self,
        now: Nanos,
        mut flight: Flight,
        check: Option<Etag>,
        actions: &mut Vec<Action<P>>,
    ) {
        flight.enter(now, None, self.origin.length());
        flight.check = check;
        let job = self.next_job;
        self.next_job += 1;
        match self.origin.push(job, now) {
            Ok(()) => {
                self.flights.insert(job, flight);
                self.start_fetches(now, actions);
            }
            Err(_) => {
                self.answer_all(now, flight, || Reply::Busy { queue: "origin".into() }, actions);
            }
        }
    }

    fn start_fetches(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        while let Some(started) = self.origin.start(now) {
            let job = started.job;
            let flight = self.flights.get_mut(job).expect("a queued job has a flight");
            flight.started = started.start;
            let key = flight.key.clone();
            actions.push(match flight.check.clone() {
                Some(etag) => Action::Check { key, etag, job },
                None => Action::Fetch { key, job },
            });
        }
    }

    fn fetched(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Fetched<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(mut flight) = self.flights.remove(job) else { return };
        let (outcome, bytes) = match &result {
            Fetched::Found(payload) => (Outcome::Origin, payload.bytes()),
            Fetched::TooLarge => (Outcome::Origin, 0),
            Fetched::NotFound => (Outcome::Miss, 0),
            Fetched::Unavailable(_) => (Outcome::Error, 0),
        };
        self.leave_origin(now, &mut flight, outcome, bytes, actions);
        match result {
            Fetched::Found(payload) => {
                if !flight.void {
                    // Compared with the origin when the fetch began: what came later was not seen.
                    let verified = Some(flight.started);
                    self.append(&flight.key, &payload, verified, actions);
                    self.keep(flight.key.clone(), payload.clone(), verified, actions);
                }
                let reply = || Reply::Found { payload: payload.clone(), outcome };
                self.answer_all(now, flight, reply, actions);
            }
            Fetched::TooLarge => self.answer_all(now, flight, || Reply::Stream, actions),
            Fetched::NotFound => self.answer_all(now, flight, || Reply::NotFound, actions),
            Fetched::Unavailable(failure) => {
                self.answer_all(now, flight, || Reply::Unavailable(failure.clone()), actions);
            }
        }
    }

    fn checked(&mut self, now: Nanos, job: JobId, result: Checked, actions: &mut Vec<Action<P>>) {
        let Some(mut flight) = self.flights.remove(job) else { return };
        let outcome = match result {
            Checked::Unavailable(_) => Outcome::Error,
            _ => Outcome::Origin,
        };
        self.leave_origin(now, &mut flight, outcome, 0, actions);
        flight.served = None;
        match result {
            Checked::Current if !flight.void => self.checked_current(now, flight, actions),
            Checked::Unavailable(failure) => {
                self.answer_all(now, flight, || Reply::Unavailable(failure.clone()), actions);
            }
            // Changed, or a write ended meanwhile. A voided flight must still bring an answer that is
            // no older than its readers' questions: the origin's.
            Checked::Current | Checked::Changed => {
                if !flight.void {
                    self.forget(&flight.key);
                }
                self.enter_origin(now, flight, None, actions);
            }
        }
    }

    /// The version that was asked about is the origin's: it may be served.
    fn checked_current(&mut self, now: Nanos, flight: Flight, actions: &mut Vec<Action<P>>) {
        let verified = Some(flight.started);
        let current = flight.check.clone();
        if let Some(on) = self.index.get_mut(&flight.key)
            && Some(&on.etag) == current.as_ref()
        {
            on.verified = verified;
        }
        let kept = self.memory.get(&flight.key);
        let kept = kept.filter(|kept| Some(kept.payload.etag()) == current);
        let payload = kept.map(|kept| {
            kept.verified = verified;
            kept.payload.clone()
        });
        match payload {
            Some(payload) => {
                let reply = || Reply::Found { payload: payload.clone(), outcome: Outcome::Memory };
                self.answer_all(now, flight, reply, actions);
            }
            // A bound shorter than the check itself would ask for ever: serve from the origin then.
            None if !self.is_fresh(verified, now) => self.enter_origin(now, flight, None, actions),
            None => self.depart(now, flight, actions),
        }
    }

    fn leave_origin(
        &mut self,
        now: Nanos,
        flight: &mut Flight,
        outcome: Outcome,
        bytes: u64,
        actions: &mut Vec<Action<P>>,
    ) {
        let finished = flight.finished(now, outcome, bytes);
        self.origin.finish(now, &finished);
        self.start_fetches(now, actions);
        flight.served = Some((now, self.origin.length()));
    }

    fn answer_all(
        &mut self,
        now: Nanos,
        flight: Flight,
        reply: impl Fn() -> Reply<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        for waiter in &flight.waiters {
            let stages = flight.stages(waiter, now);
            self.answer(now, waiter.request, reply(), stages, actions);
        }
    }

    fn answer(
        &mut self,
        now: Nanos,
        request: RequestId,
        reply: Reply<P>,
        stages: Stages,
        actions: &mut Vec<Action<P>>,
    ) {
        let (outcome, bytes) = match &reply {
            Reply::Found { payload, outcome } => (*outcome, payload.bytes()),
            Reply::Stream => (Outcome::Origin, 0),
            Reply::NotFound => (Outcome::Miss, 0),
            Reply::Busy { .. } | Reply::Unavailable(_) => (Outcome::Error, 0),
        };
        let finished = Finished {
            operation: Operation::Get,
            outcome,
            waiting: stages.started.saturating_sub(stages.received),
            service: stages.served.saturating_sub(stages.started),
            response: stages.served.saturating_sub(stages.received),
            bytes,
        };
        self.recorder.finish(now, &finished);
        actions.push(Action::Reply { request, reply, stages });
    }

    // ---- tiers -------------------------------------------------------------------------------------

    /// Puts an object into the memory tier. What has to leave goes to a device, if none has it.
    fn keep(
        &mut self,
        key: Key,
        payload: P,
        verified: Option<Nanos>,
        actions: &mut Vec<Action<P>>,
    ) {
        if payload.bytes() > self.settings.object_bytes_max {
            return;
        }
        let bytes = payload.stored_bytes();
        let left = self.memory.insert(key, Kept { payload, verified }, bytes);
        for (key, kept) in left {
            if !self.index.contains_key(&key) && !self.appending_of.contains_key(&key) {
                self.append(&key, &kept.payload, kept.verified, actions);
            }
        }
    }

    /// Writes an object to the device that is least full, in proportion to its budget. With too much
    /// being written already, or no device that takes it, it is not kept: the origin has it.
    fn append(
        &mut self,
        key: &Key,
        payload: &P,
        verified: Option<Nanos>,
        actions: &mut Vec<Action<P>>,
    ) {
        let stored_bytes = payload.stored_bytes();
        let bytes = stored_bytes + key.len() as u64 + RECORD_OVERHEAD_BYTES;
        if payload.bytes() > self.settings.object_bytes_max
            || self.appending_bytes + stored_bytes > self.settings.appends_bytes_max
        {
            return;
        }
        let fullness = |d: &Device| d.log.bytes() as f64 / d.log.bytes_max() as f64;
        let candidates = self.devices.iter().enumerate().filter(|(_, d)| d.log.fits(bytes));
        let least = candidates.min_by(|(_, a), (_, b)| fullness(a).total_cmp(&fullness(b)));
        let Some((device, _)) = least else { return };
        let (location, placed) = self.devices[device].log.place(key, bytes);
        if let Some(segment) = placed.sealed {
            actions.push(Action::SealSegment { device, segment });
        }
        for (segment, keys) in placed.dropped {
            self.drop_segment(device, segment, &keys, actions);
        }
        let job = self.next_job;
        self.next_job += 1;
        self.void_append(key);
        self.appending_of.insert(key.clone(), job);
        self.appending_bytes += stored_bytes;
        let etag = payload.etag();
        self.appending.insert(
            job,
            Appending {
                device,
                location,
                key: key.clone(),
                etag,
                verified,
                stored_bytes,
                void: false,
            },
        );
        actions.push(Action::Append {
            device,
            location,
            key: key.clone(),
            payload: payload.clone(),
            job,
        });
    }

    fn drop_segment(
        &mut self,
        device: DeviceId,
        segment: u64,
        keys: &[Key],
        actions: &mut Vec<Action<P>>,
    ) {
        for key in keys {
            let there = |on: &OnDevice| on.device == device && on.location.segment() == segment;
            if self.index.get(key).is_some_and(there) {
                self.index.remove(key);
            }
        }
        for appending in self.appending.values_mut() {
            appending.void |= appending.device == device && appending.location.segment() == segment;
        }
        actions.push(Action::DropSegment { device, segment });
    }

    fn appended(&mut self, job: JobId, written: bool, actions: &mut Vec<Action<P>>) {
        let Some(appending) = self.appending.remove(&job) else { return };
        self.appending_bytes -= appending.stored_bytes;
        let Appending { device, location, key, etag, verified, void, .. } = appending;
        if self.appending_of.get(&key) == Some(&job) {
            self.appending_of.remove(&key);
        }
        if !written {
            if let Some(segment) = self.devices[device].log.seal_if(location.segment()) {
                actions.push(Action::SealSegment { device, segment });
            }
        } else if !void {
            self.index.insert(key, OnDevice { device, location, etag, verified });
        }
    }

    /// Forgets every copy of a key.
    fn forget(&mut self, key: &Key) {
        self.memory.remove(key);
        self.index.remove(key);
        self.void_append(key);
    }

    /// Sees to it that no record of a key that is being written is indexed.
    fn void_append(&mut self, key: &Key) {
        let job = self.appending_of.remove(key);
        if let Some(appending) = job.and_then(|job| self.appending.get_mut(&job)) {
            appending.void = true;
        }
    }

    // ---- writes ------------------------------------------------------------------------------------

    fn write_begin(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        actions: &mut Vec<Action<P>>,
    ) {
        match self.writers.get_mut(&key) {
            None => {
                let writers = Writers { current: request, waiting: VecDeque::new() };
                self.writers.insert(key, writers);
                actions.push(Action::WriteTurn { request });
            }
            Some(_) if self.writes_waiting >= self.settings.writes_waiting_max => {
                let reply = Reply::Busy { queue: "writes".into() };
                let stages = Stages {
                    received: now,
                    queued: now,
                    started: now,
                    served: now,
                    ..Stages::default()
                };
                actions.push(Action::Reply { request, reply, stages });
            }
            Some(writers) => {
                writers.waiting.push_back(request);
                self.writes_waiting += 1;
            }
        }
    }

    fn write_end(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        payload: Option<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(writers) = self.writers.get_mut(&key) else { return };
        if writers.current != request {
            // It waited for its turn and its client left.
            let before = writers.waiting.len();
            writers.waiting.retain(|&waiting| waiting != request);
            self.writes_waiting -= (before - writers.waiting.len()) as u32;
            return;
        }
        match writers.waiting.pop_front() {
            Some(next) => {
                writers.current = next;
                self.writes_waiting -= 1;
                actions.push(Action::WriteTurn { request: next });
            }
            None => {
                self.writers.remove(&key);
            }
        }
        self.forget(&key);
        self.flights.void(&key);
        if let Some(payload) = payload {
            self.append(&key, &payload, Some(now), actions);
            self.keep(key, payload, Some(now), actions);
        }
    }
}
