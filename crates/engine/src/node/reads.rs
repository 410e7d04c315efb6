//! Reads: answered from memory at once, or by a flight to a device, a peer or the origin.

use model::window::{Finished, Nanos, Operation, Outcome};

use super::flights::{self, At, Flight, Waiter};
use super::index::Place;
use super::{
    Action, Asker, Authority, DeviceId, Failure, Hit, JobId, Node, Reply, RequestId, Stages,
};
use crate::mutant::{self, Mutant};
use crate::{Key, Payload};

impl<P: Payload> Node<P> {
    pub(super) fn get(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        asker: Asker,
        deadline: Option<Nanos>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.recorder.arrive(now);
        self.recorder.start(now);
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.is_mine(&key)) {
            self.answer_at_once(now, request, Reply::NotMine, actions);
            return;
        }
        let authority = self.authority(&key, now);
        if self.get_from_memory(now, request, &key, authority, actions) {
            return;
        }
        let (peer, avoid) = match asker {
            Asker::Peer => (true, None),
            Asker::Client { avoid } => (false, avoid),
        };
        let waiter = Waiter { request, received: now, length_met: 0, deadline, peer };
        self.count_read(&key, now);
        let fresh =
            self.index.get(&key).is_some_and(|on| self.is_fresh(on.verified, authority, now));
        let on_device = if fresh { self.choose(&key, now) } else { None };
        if peer && on_device.is_none() {
            self.answer_at_once(now, request, Reply::NotHere, actions);
            return;
        }
        if self.join(now, &key, waiter, authority, actions) {
            return;
        }
        let flight = Flight::new(key, now, vec![waiter], authority, avoid);
        match on_device {
            Some(place) => self.enter_device(now, place, flight, actions),
            None => self.dispatch(now, flight, actions),
        }
    }

    /// Answers from memory, if it holds a copy that may be served.
    fn get_from_memory(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: &Key,
        authority: Option<Authority>,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let Some(kept) = self.memory.peek(key) else { return false };
        let verified = kept.verified;
        if !self.is_fresh(verified, authority, now) {
            if self.origin_down.is_none() || !self.may_be_stale(verified, authority, now) {
                return false;
            }
            self.probe_origin(now, key, authority, actions);
        }
        let Some(kept) = self.memory.get(key) else { return false };
        let (payload, warm, again) = kept.read();
        let warm = if again { self.offer(now, key, &payload, actions) } else { warm };
        let age = verified.map_or(0, |verified| now.saturating_sub(verified.at));
        let reply = Reply::Found { payload, outcome: Outcome::Memory, age, warm };
        self.answer_at_once(now, request, reply, actions);
        true
    }

    /// Serves a read whose object is in memory and may be served as it is. The effect equals that
    /// of [`Event::Get`](super::Event::Get) from a client, without an action for the reply and
    /// without an allocation. `None` otherwise: the request is still to be handled by an event.
    pub fn hit(&mut self, now: Nanos, key: &[u8], actions: &mut Vec<Action<P>>) -> Option<Hit<P>> {
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.is_mine(key)) {
            return None;
        }
        let authority = self.authority(key, now);
        let revalidate = self.settings.revalidate;
        let kept = self.memory.peek(key)?;
        if !Node::<P>::is_within(revalidate, kept.verified, authority, now) {
            return None;
        }
        let kept = self.memory.get(key)?;
        let (payload, warm, again) = kept.read();
        let warm = if again { self.offer(now, key, &payload, actions) } else { warm };
        self.now = self.now.max(now);
        let finished = Finished {
            operation: Operation::Get,
            outcome: Outcome::Memory,
            waiting: 0,
            service: 0,
            response: 0,
            bytes: payload.bytes(),
        };
        self.recorder.pass(now, now, &finished);
        Some(Hit { payload, warm, length: self.flights.len() as u32 })
    }

    /// Offers an object on its second read to the key's other nodes, within the budget.
    fn offer(&mut self, now: Nanos, key: &[u8], payload: &P, actions: &mut Vec<Action<P>>) -> u8 {
        let Some(cluster) = &mut self.cluster else { return 0 };
        let (peers, warm) = cluster.offer_to(key, payload.stored_bytes(), now);
        actions.extend(peers.into_iter().map(|peer| Action::Offer { peer, key: key.into() }));
        if warm != 0
            && let Some(kept) = self.memory.peek(key)
        {
            kept.warm = warm;
        }
        warm
    }

    /// Adds a reader to the flight of its key, if there is one that it may join. Refuses the reader
    /// if as many wait for the key as may wait in the queue. Returns whether there is such a
    /// flight.
    fn join(
        &mut self,
        now: Nanos,
        key: &Key,
        mut waiter: Waiter,
        authority: Option<Authority>,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let Some(flight) = self.flights.joinable(key) else { return false };
        let is_old = flight.authority != authority || authority.is_none();
        if is_old && !mutant::is(Mutant::JoinsOldFlight) {
            // Its result belongs to a lease or view that is over: no reader may join any more.
            self.flights.void(key);
            return false;
        }
        // Two nodes that requested a key from each other would wait for each other.
        if waiter.peer && !matches!(flight.at, At::Device(_)) {
            self.answer_at_once(now, waiter.request, Reply::NotHere, actions);
            return true;
        }
        let (length, length_max, queue) = match flight.at {
            At::Device(d) => {
                let settings = &self.settings.devices[d];
                (self.devices[d].queue.length(), settings.queue_length_max, &*settings.name)
            }
            At::Origin => (self.origin.length(), self.settings.origin.queue_length_max, "origin"),
            At::Peer(_) => (self.peers.length(), self.peers.length_max(), "peers"),
        };
        waiter.length_met = length;
        if flight.waiters.len() < length_max as usize {
            if !mutant::is(Mutant::ReaderLost) {
                flight.waiters.push(waiter);
            }
            self.recorder.join(now);
        } else {
            let reply = Reply::Busy { queue: queue.to_owned() };
            let mut stages = Stages::at_once(now, self.flights.len() as u32);
            (stages.length_met, stages.length_left) = (length, length);
            self.answer(now, waiter.request, reply, stages, actions);
        }
        true
    }

    /// Sends a flight to where its object is: a device, a peer or the origin. If the tiers hold a
    /// copy that may be out of date, the origin is asked whether it is current.
    pub(super) fn dispatch(&mut self, now: Nanos, flight: Flight, actions: &mut Vec<Action<P>>) {
        if let Some(kept) = self.memory.peek(&flight.key) {
            let etag = kept.payload.etag();
            return self.enter_origin(now, flight, Some(etag), actions);
        }
        let Some(on) = self.index.get(&flight.key) else {
            return self.go_to_peers(now, flight, actions);
        };
        let (verified, etag) = (on.verified, on.etag.clone());
        let stale =
            self.origin_down.is_some() && self.may_be_stale(verified, flight.authority, now);
        if self.is_fresh(verified, flight.authority, now) || stale {
            if stale {
                self.probe_origin(now, &flight.key, None, actions);
            }
            match self.choose(&flight.key, now) {
                Some(place) => self.enter_device(now, place, flight, actions),
                // The devices that hold it were taken out.
                None => self.go_to_peers(now, flight, actions),
            }
        } else {
            self.enter_origin(now, flight, Some(etag), actions);
        }
    }

    pub(super) fn enter_device(
        &mut self,
        now: Nanos,
        place: Place,
        mut flight: Flight,
        actions: &mut Vec<Action<P>>,
    ) {
        let Place { device, location } = place;
        let on = &mut self.devices[device];
        flight.enter(now, At::Device(device), on.queue.length());
        flight.location = location;
        let job = self.next_job;
        self.next_job += 1;
        match on.push(job, now) {
            Ok(()) => {
                self.flights.insert(job, flight);
                self.start_reads(now, device, actions);
            }
            Err(_) => {
                let queue = self.settings.devices[device].name.clone();
                if let Some(hot) = self.hot.as_mut().filter(|_| flight.rescue) {
                    hot.rescue_refused();
                }
                self.answer_all(now, flight, || Reply::Busy { queue: queue.clone() }, actions);
            }
        }
    }

    fn start_reads(&mut self, now: Nanos, device: DeviceId, actions: &mut Vec<Action<P>>) {
        while let Some(started) = self.devices[device].queue.start(now) {
            let job = started.job;
            let Some(flight) = self.flights.get_mut(job) else {
                self.invariants.broken();
                self.devices[device].finish(now, &flights::unserved());
                continue;
            };
            flight.started = started.start;
            if flight.is_abandoned(now) {
                let finished = flight.finished(started.start, Outcome::Error, 0);
                self.devices[device].finish(now, &finished);
                self.give_up(now, job, actions);
                continue;
            }
            let key = flight.key.clone();
            // The record may have moved while the flight waited. If it has gone, the read fails and
            // the flight goes on to the origin.
            if let Some(place) = self.index.get(&key).and_then(|on| on.on(device)) {
                flight.location = place.location;
            }
            let location = flight.location;
            actions.push(Action::Read { device, location, key, job, start: started.start });
        }
    }

    /// Ends a flight whose readers have all stopped waiting.
    pub(super) fn give_up(&mut self, now: Nanos, job: JobId, actions: &mut Vec<Action<P>>) {
        match self.flights.remove(job) {
            Some(flight) => {
                if let Some(hot) = self.hot.as_mut().filter(|_| flight.rescue) {
                    hot.rescue_refused();
                }
                self.answer_all(now, flight, || Reply::TooLate, actions);
            }
            None => self.invariants.broken(),
        }
    }

    pub(super) fn read(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Result<P, Failure>,
        actions: &mut Vec<Action<P>>,
    ) {
        // A device ends each read once: nobody gives it up before.
        let Some(flight) = self.flights.remove(job) else { return self.invariants.broken() };
        let At::Device(device) = flight.at else { return self.invariants.broken() };
        let served = now.max(flight.started);
        let outcome = self.devices[device].outcome;
        // The index's version is the one that was verified: a record of another version is a
        // failure.
        let indexed = self.index.get(&flight.key);
        let there = Place { device, location: flight.location };
        let indexed = indexed.filter(|on| on.on(device) == Some(there));
        let right = |payload: &P| {
            indexed.is_none_or(|on| on.etag == payload.etag())
                && flight.settled.as_ref().is_none_or(|settled| *settled == payload.etag())
        };
        let result = result.and_then(|payload| match right(&payload) {
            true => Ok(payload),
            false => Err(Failure { reason: "the record is of another version".to_owned() }),
        });
        let age = indexed.and_then(|on| on.verified).map_or(0, |v| served.saturating_sub(v.at));
        let bytes = result.as_ref().map_or(0, Payload::bytes);
        let on = &mut self.devices[device];
        match &result {
            Ok(_) => {
                on.health.worked();
                let service = served.saturating_sub(flight.started);
                on.service.add(flight.location.bytes(), service);
            }
            Err(_) => on.health.failed(served),
        }
        let outcome_recorded = if result.is_ok() { outcome } else { Outcome::Error };
        let finished = flight.finished(served, outcome_recorded, bytes);
        self.devices[device].finish(served, &finished);
        self.start_reads(served, device, actions);
        let rescue = flight.rescue;
        self.after_read(served, device, flight, result, age, actions);
        if rescue {
            self.rescue_ended(served, actions);
        }
    }

    /// Fills the tiers with what was read and answers the readers, or sends them on.
    fn after_read(
        &mut self,
        served: Nanos,
        device: DeviceId,
        mut flight: Flight,
        result: Result<P, Failure>,
        age: Nanos,
        actions: &mut Vec<Action<P>>,
    ) {
        let outcome = self.devices[device].outcome;
        match result {
            Ok(payload) => {
                self.device_served(device, &flight, served);
                if !flight.void {
                    self.keep_read(served, &flight, &payload, actions);
                }
                flight.served = Some((served, self.devices[device].queue.length()));
                let reply = || Reply::Found { payload: payload.clone(), outcome, age, warm: 0 };
                self.answer_all(served, flight, reply, actions);
            }
            Err(_) => {
                // A rescue goes on for its readers, if some joined; it is over as a rescue.
                flight.rescue = false;
                self.index.remove_place(&flight.key, device, |at| at == flight.location);
                if let Some(place) = self.other_place(served, &flight) {
                    return self.enter_device(served, place, flight, actions);
                }
                self.refuse_peers(served, &mut flight, actions);
                if !flight.waiters.is_empty() {
                    self.enter_origin(served, flight, None, actions);
                }
            }
        }
    }

    /// After a failed read: another copy that the flight's readers may be given.
    fn other_place(&mut self, now: Nanos, flight: &Flight) -> Option<Place> {
        let on = self.index.get(&flight.key).filter(|_| !flight.waiters.is_empty())?;
        let may = match &flight.settled {
            Some(settled) => *settled == on.etag,
            None => !flight.void && self.is_fresh(on.verified, flight.authority, now),
        };
        if may { self.choose(&flight.key, now) } else { None }
    }

    /// Answers waiting peers that the object is not in the tiers after all: they fill from tiers
    /// alone.
    fn refuse_peers(&mut self, now: Nanos, flight: &mut Flight, actions: &mut Vec<Action<P>>) {
        let (peers, clients) = flight.waiters.iter().partition(|waiter| waiter.peer);
        flight.waiters = clients;
        let peers: Vec<Waiter> = peers;
        for peer in &peers {
            let stages = flight.stages(peer, now);
            self.answer(now, peer.request, Reply::NotHere, stages, actions);
        }
    }

    /// Fills the memory tier with a record that was read, and writes it again if its segment goes
    /// soon, or if it is worth a hot copy.
    fn keep_read(
        &mut self,
        now: Nanos,
        flight: &Flight,
        payload: &P,
        actions: &mut Vec<Action<P>>,
    ) {
        let on = self.index.get(&flight.key).filter(|on| on.etag == payload.etag());
        let verified = on.and_then(|on| on.verified);
        self.place_again(now, &flight.key, payload, flight.rescue, actions);
        // What nobody reads must not evict from memory what is read.
        if !flight.waiters.is_empty() {
            self.keep(flight.key.clone(), payload.clone(), verified, actions);
        }
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

    fn answer_at_once(
        &mut self,
        now: Nanos,
        request: RequestId,
        reply: Reply<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        let stages = Stages::at_once(now, self.flights.len() as u32);
        self.answer(now, request, reply, stages, actions);
    }

    fn answer(
        &mut self,
        now: Nanos,
        request: RequestId,
        reply: Reply<P>,
        mut stages: Stages,
        actions: &mut Vec<Action<P>>,
    ) {
        let (outcome, bytes) = match &reply {
            Reply::Found { payload, outcome, .. } => (*outcome, payload.bytes()),
            Reply::Stream => (Outcome::Origin, 0),
            Reply::NotFound | Reply::NotHere => (Outcome::Miss, 0),
            _ => (Outcome::Error, 0),
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
        stages.node_length = self.flights.len() as u32;
        actions.push(Action::Reply { request, reply, stages });
    }
}
