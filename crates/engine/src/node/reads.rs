//! Reads: from memory at once, or a flight to a device or the origin, and their answers.

use model::window::{Finished, Nanos, Operation, Outcome};

use super::flights::{Flight, Waiter};
use super::{
    Action, Checked, DeviceId, Failure, Fetched, JobId, Node, OnDevice, Reply, RequestId, Stages,
};
use crate::tier::Location;
use crate::{Etag, Key, Payload};

impl<P: Payload> Node<P> {
    pub(super) fn get(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        actions: &mut Vec<Action<P>>,
    ) {
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
                if !self.join(now, &key, waiter, actions) {
                    self.enter_origin(now, Flight::new(key, waiter), Some(payload.etag()), actions);
                }
            }
            None => {
                if !self.join(now, &key, waiter, actions) {
                    self.depart(now, Flight::new(key, waiter), actions);
                }
            }
        }
    }

    /// Adds a reader to the flight for its key, if there is one that is not voided; refuses it if as many
    /// wait for that key as may wait in the queue. Returns whether there is such a flight.
    pub(super) fn join(
        &mut self,
        now: Nanos,
        key: &Key,
        mut waiter: Waiter,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let Some(flight) = self.flights.joinable(key) else { return false };
        let device = flight.device;
        let (length, length_max) = match device {
            Some(d) => (self.devices[d].queue.length(), self.settings.devices[d].queue_length_max),
            None => (self.origin.length(), self.settings.origin.queue_length_max),
        };
        waiter.length_met = length;
        if flight.waiters.len() < length_max as usize {
            flight.waiters.push(waiter);
            self.recorder.join(now);
        } else {
            let queue = device.map_or("origin", |d| &self.settings.devices[d].name).to_owned();
            let stages = Stages {
                received: now,
                queued: now,
                started: now,
                served: now,
                length_met: length,
                length_left: length,
            };
            self.answer(now, waiter.request, Reply::Busy { queue }, stages, actions);
        }
        true
    }

    /// Sends a flight to where its object is: a device, or the origin.
    pub(super) fn depart(&mut self, now: Nanos, flight: Flight, actions: &mut Vec<Action<P>>) {
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

    pub(super) fn enter_device(
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

    pub(super) fn start_reads(
        &mut self,
        now: Nanos,
        device: DeviceId,
        actions: &mut Vec<Action<P>>,
    ) {
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

    pub(super) fn read(
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
        // What was compared with the origin is the index's version: another one there is not it.
        let indexed = self.index.get(&flight.key);
        let indexed = indexed.filter(|on| on.device == device && on.location == flight.location);
        let result = result.and_then(|payload| match indexed {
            Some(on) if on.etag != payload.etag() => {
                Err(Failure { reason: "the record is of another version".to_owned() })
            }
            _ => Ok(payload),
        });
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
    pub(super) fn keep_read(
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

    pub(super) fn enter_origin(
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

    pub(super) fn start_fetches(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
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

    pub(super) fn fetched(
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

    pub(super) fn checked(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Checked,
        actions: &mut Vec<Action<P>>,
    ) {
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
    pub(super) fn checked_current(
        &mut self,
        now: Nanos,
        flight: Flight,
        actions: &mut Vec<Action<P>>,
    ) {
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

    pub(super) fn leave_origin(
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

    pub(super) fn answer_all(
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

    pub(super) fn answer(
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
}
