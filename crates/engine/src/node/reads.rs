//! Reads: answered from memory at once, or by a flight to a device, a peer or the origin.

use ground::window::{Finished, Nanos, Operation, Outcome};

use super::authorities::{Authority, Verified};
use super::event::{Action, Asker, DeviceId, JobId, RequestId, Unread};
use super::extent::{Extent, Take};
use super::flights::{self, Flight, FlightQueue, Waiter};
use super::index::{OnDevices, Place, Record};
use super::reply::{Hit, Reply, Stages};
use super::settings::Choice;
use super::state::{MemoryEntry, Node};
use crate::Payload;
use crate::mutant::{self, Mutant};
use ground::Key;

/// [`Event::Get`](super::Event::Get).
pub(super) struct ReadRequest {
    pub request: RequestId,
    pub key: Key,
    pub asker: Asker,
    pub deadline: Option<Nanos>,
    pub take: Take,
}

/// How to get an object.
enum Way {
    /// From a record that may be served.
    Read(Place),
    /// From a record that may be served because the origin does not answer.
    Stale(Place),
    /// From a record, after the origin has said which version is current.
    Compare,
    /// No device has it.
    Elsewhere,
}

impl<P: Payload> Node<P> {
    pub(super) fn get(&mut self, now: Nanos, read: ReadRequest, actions: &mut Vec<Action<P>>) {
        let ReadRequest { request, key, asker, deadline, take } = read;
        self.recorder.arrive(now);
        self.recorder.start(now);
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.is_mine(&key)) {
            self.answer_at_once(now, request, Reply::NotMine, actions);
            return;
        }
        let authority = self.authority(&key, now);
        let (peer, avoid) = match asker {
            Asker::Peer => (true, None),
            Asker::Client { avoid } => (false, avoid),
        };
        let in_memory = self.get_from_memory(now, request, &key, authority, actions)
            || self.get_from_append(now, request, &key, authority, actions);
        if !peer {
            self.count_for_hot_nodes(&key, in_memory, now);
        }
        if in_memory {
            return;
        }
        let waiter = Waiter::new(request, now, self.flights.len(), deadline, peer, take);
        // Before the way is chosen: a reader that joins a flight counts for the hot class as well.
        self.count_read(&key, now);
        let way = self.way(&key, authority, peer, now);
        if peer && !matches!(way, Way::Read(_)) {
            self.answer_at_once(now, request, Reply::NotHere, actions);
            return;
        }
        if self.join(now, &key, waiter, authority, actions) {
            return;
        }
        let mut flight = Flight::new(key, now, vec![waiter], authority, avoid);
        match way {
            Way::Read(place) => {
                // A part fills no tier and nobody joins it, so its flight is void from the start.
                if !peer && let Some(part) = self.part_of(&flight.key, place, take, now) {
                    (flight.part, flight.void) = (Some(part), true);
                }
                self.enter_device(now, place, flight, actions);
            }
            _ => self.dispatch(now, flight, actions),
        }
    }

    /// How to get an object that memory does not have, as far as the index knows.
    fn way(&mut self, key: &[u8], authority: Option<Authority>, peer: bool, now: Nanos) -> Way {
        let Some(on) = self.index.get(key) else { return Way::Elsewhere };
        let fresh = on.filter(|record| self.is_fresh(record.verified, authority, now));
        let best = self.choose(&fresh, None, now);
        if let Some(place) = best {
            let other = on.filter(|record| fresh.record_at(record.place).is_none());
            let compares = !peer && self.compared_is_sooner(&other, place, now);
            return if compares { Way::Compare } else { Way::Read(place) };
        }
        if self.origin_down.is_some() {
            let stale = on.filter(|record| self.may_be_stale(record.verified, authority, now));
            if let Some(place) = self.choose(&stale, None, now) {
                return Way::Stale(place);
            }
        }
        match self.choose(&on, None, now) {
            Some(_) => Way::Compare,
            // The devices that hold it were taken out.
            None => Way::Elsewhere,
        }
    }

    /// Whether a record that must be compared first is expected to be read sooner than one that may
    /// be served.
    fn compared_is_sooner(&mut self, other: &OnDevices, place: Place, now: Nanos) -> bool {
        if self.settings.tiers.choice != Choice::Wait || self.origin_down.is_some() {
            return false;
        }
        let Some(other) = self.choose(other, None, now) else { return false };
        let expected = |place: Place| {
            let Place { device, location } = place;
            self.devices[device].expected_s(location.bytes(), now)
        };
        expected(other) + self.comparisons.mean_s() < expected(place)
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
        let verified = kept.verified(&self.authorities);
        if !self.is_fresh(verified, authority, now) {
            if self.origin_down.is_none() || !self.may_be_stale(verified, authority, now) {
                return false;
            }
            self.probe_origin(now, key, authority, actions);
        }
        let Some(kept) = self.memory.get(key) else { return false };
        let (payload, warm, again) = kept.read();
        self.count_reuse(now, key, &payload, None);
        let warm = if again { self.offer(now, key, &payload, actions) } else { warm };
        let age = verified.map_or(0, |verified| now.saturating_sub(verified.at));
        let reply = Reply::Found { payload, outcome: Outcome::Memory, age, warm };
        self.speed.respond(now, 0, self.flights.len() as u32);
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
        let (revalidate, authorities) = (self.settings.revalidate, &self.authorities);
        let is_fresh = |kept: &MemoryEntry<P>| {
            Node::<P>::is_within(revalidate, kept.verified(authorities), authority, now)
        };
        let kept = self.memory.get_if(key, is_fresh)?;
        let (payload, warm, again) = kept.read();
        self.count_reuse(now, key, &payload, None);
        let warm = if again { self.offer(now, key, &payload, actions) } else { warm };
        self.count_for_hot_nodes(key, true, now);
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
        self.speed.respond(now, 0, self.flights.len() as u32);
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
        if waiter.peer && !matches!(flight.at, FlightQueue::Device(_)) {
            self.answer_at_once(now, waiter.request, Reply::NotHere, actions);
            return true;
        }
        let (length, length_max, queue) = match flight.at {
            FlightQueue::Device(d) => {
                let settings = &self.settings.devices[d];
                (self.devices[d].queue.length(), settings.queue_length_max, &*settings.name)
            }
            FlightQueue::Origin => {
                (self.origin.length(), self.settings.origin.queue_length_max, "origin")
            }
            FlightQueue::Peer(_) => (self.peers.length(), self.peers.length_max(), "peers"),
        };
        waiter.length_met = length;
        if flight.waiters.len() < length_max as usize {
            if !mutant::is(Mutant::ReaderLost) {
                flight.waiters.push(waiter);
            }
            self.recorder.join(now);
            self.open_late(now, key, actions);
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
        if self.memory.peek(&flight.key).is_some() {
            return self.enter_origin(now, flight, true, actions);
        }
        match self.way(&flight.key, flight.authority, false, now) {
            Way::Read(place) => self.enter_device(now, place, flight, actions),
            Way::Stale(place) => {
                self.probe_origin(now, &flight.key, None, actions);
                self.enter_device(now, place, flight, actions);
            }
            Way::Compare => self.enter_origin(now, flight, true, actions),
            Way::Elsewhere => self.go_to_peers(now, flight, actions),
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
        flight.enter(now, FlightQueue::Device(device), on.queue.length());
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

    pub(super) fn start_reads(
        &mut self,
        now: Nanos,
        device: DeviceId,
        actions: &mut Vec<Action<P>>,
    ) {
        let piece_bytes = self.devices[device].piece_bytes;
        while let Some(started) = self.devices[device].queue.start(now) {
            let job = started.job;
            let Some(flight) = self.flights.get_mut(job) else {
                self.invariants.broken();
                self.devices[device].finish(now, &flights::unserved());
                continue;
            };
            flight.started = started.start;
            if flight.opened {
                let (key, location) = (flight.key.clone(), flight.location);
                let (start, extent) = (started.start, Extent::Next { bytes: piece_bytes });
                actions.push(Action::Read { device, location, key, job, start, extent });
                continue;
            }
            if flight.is_abandoned(now) {
                let finished = flight.finished(started.start, Outcome::Error, 0);
                self.devices[device].finish(now, &finished);
                self.give_up(now, job, actions);
                continue;
            }
            let (key, authority) = (flight.key.clone(), flight.authority);
            let (chosen, void) = (Place { device, location: flight.location }, flight.void);
            let compared = flight.settled.is_some();
            // The record may have moved while the flight waited. So may another record of the same hash
            // that was chosen: a record at another place is read only if it could be chosen now. If
            // the record has gone, the read fails and the flight goes on to the origin.
            let record = self.index.get(&key).and_then(|on| on.on(device)).filter(|record| {
                let may = |verified| !void && self.may_be_served(verified, authority, now);
                record.place.is(&chosen) || compared || may(record.verified)
            });
            let Some(flight) = self.flights.get_mut(job) else { continue };
            if let Some(record) = record {
                flight.location = record.place.location;
                flight.record = Some(record);
            }
            let (location, part) = (flight.location, flight.part);
            let extent = match part.is_some() || self.devices[device].is_large(location) {
                true => Extent::First { bytes: piece_bytes, part },
                false => Extent::Record,
            };
            let start = started.start;
            actions.push(Action::Read { device, location, key, job, start, extent });
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
        result: Result<P, Unread>,
        to_the_end: bool,
        actions: &mut Vec<Action<P>>,
    ) {
        // A device ends each read once: nobody gives it up before.
        let Some(mut flight) = self.flights.remove(job) else { return self.invariants.broken() };
        let FlightQueue::Device(device) = flight.at else { return self.invariants.broken() };
        self.opened.remove(&job);
        let served = now.max(flight.started);
        let outcome = self.devices[device].outcome;
        let bytes = result.as_ref().map_or(0, Payload::bytes);
        let on = &mut self.devices[device];
        let failed = matches!(result, Err(Unread::Failed(_)));
        match &result {
            Err(Unread::Failed(_)) => on.health.failed(served),
            // The device read nothing.
            Err(Unread::Gone) => {}
            Ok(_) | Err(Unread::OtherKey) => {
                on.health.worked();
                let service = served.saturating_sub(flight.started);
                on.turn(service, served);
                // The line goes through whole records.
                if to_the_end && flight.part.is_none() {
                    on.service.add(flight.location.bytes(), flight.in_service + service, served);
                }
            }
        }
        let outcome_recorded = if failed { Outcome::Error } else { outcome };
        let finished = flight.finished(served, outcome_recorded, bytes);
        self.devices[device].finish(served, &finished);
        self.start_reads(served, device, actions);
        let rescue = flight.rescue;
        match result {
            Ok(payload) => {
                if flight.part.is_some() {
                    self.open_replies(served, device, &mut flight, &payload, actions);
                }
                self.after_read(served, device, flight, payload, actions);
            }
            Err(why) => {
                self.cut_replies(served, &mut flight, actions);
                self.after_failed_read(served, device, flight, &why, actions);
            }
        }
        if rescue {
            self.rescue_ended(served, actions);
        }
    }

    /// Fills the tiers with what was read and answers the readers, if they may have that version.
    fn after_read(
        &mut self,
        served: Nanos,
        device: DeviceId,
        mut flight: Flight,
        payload: P,
        actions: &mut Vec<Action<P>>,
    ) {
        let place = Place { device, location: flight.location };
        let mut verified = None;
        if let Some((etag, at)) = &flight.settled {
            if *etag != payload.etag() && !mutant::is(Mutant::ChangedTakenForCurrent) {
                return self.after_older_read(served, place, flight, actions);
            }
            verified = flight.verified(*at);
            if !flight.void {
                self.verify(&flight.key, place, verified);
            }
        }
        // Its segment may have been dropped meanwhile; what made the record wrong would have voided the
        // flight.
        let was = flight.record.filter(|record| record.place.is(&place) && !flight.void);
        let record = self.index.get(&flight.key).and_then(|on| on.record_at(place)).or(was);
        let verified = verified.or(record.and_then(|record| record.verified));
        let age = verified.map_or(0, |verified| served.saturating_sub(verified.at));
        self.device_served(device, &flight, served);
        if !flight.void {
            self.keep_read(served, &flight, &payload, record, verified, actions);
        }
        let outcome = self.devices[device].outcome;
        flight.served = Some((served, self.devices[device].queue.length()));
        let reply = || Reply::Found { payload: payload.clone(), outcome, age, warm: 0 };
        self.answer_all(served, flight, reply, actions);
    }

    /// The record is of another version than the origin's.
    fn after_older_read(
        &mut self,
        served: Nanos,
        place: Place,
        mut flight: Flight,
        actions: &mut Vec<Action<P>>,
    ) {
        (flight.settled, flight.rescue) = (None, false);
        if flight.void {
            self.index.remove_place(&flight.key, place);
        } else {
            self.forget(&flight.key);
        }
        self.refuse_peers(served, &mut flight, actions);
        if !flight.waiters.is_empty() {
            self.enter_origin(served, flight, false, actions);
        }
    }

    /// Sends the readers on.
    fn after_failed_read(
        &mut self,
        served: Nanos,
        device: DeviceId,
        mut flight: Flight,
        why: &Unread,
        actions: &mut Vec<Action<P>>,
    ) {
        // A rescue goes on for its readers, if some joined; it is over as a rescue.
        flight.rescue = false;
        flight.tried = Some(device);
        match why {
            // The record stays: it is another key's.
            Unread::OtherKey => self.other_keys += 1,
            Unread::Gone | Unread::Failed(_) => {
                let place = Place { device, location: flight.location };
                self.index.remove_place(&flight.key, place);
            }
        }
        if let Some(place) = self.other_place(served, &flight) {
            return self.enter_device(served, place, flight, actions);
        }
        flight.settled = None;
        self.refuse_peers(served, &mut flight, actions);
        if !flight.waiters.is_empty() {
            self.enter_origin(served, flight, false, actions);
        }
    }

    /// After a failed read: another record that the flight's readers may be given.
    fn other_place(&mut self, now: Nanos, flight: &Flight) -> Option<Place> {
        let on = self.index.get(&flight.key).filter(|_| !flight.waiters.is_empty())?;
        let may = |verified| !flight.void && self.is_fresh(verified, flight.authority, now);
        let on = on.filter(|record| flight.settled.is_some() || may(record.verified));
        self.choose(&on, flight.tried, now)
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
        record: Option<Record>,
        verified: Option<Verified>,
        actions: &mut Vec<Action<P>>,
    ) {
        if let Some(record) = record {
            self.place_again(now, &flight.key, payload, record, flight.rescue, actions);
        }
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
        let (served, _) = flight.served.unwrap_or((now, 0));
        for waiter in &flight.waiters {
            let stages = flight.stages(waiter, now);
            let reply = reply();
            if let Reply::Found { payload, outcome, .. } = &reply {
                let service = served.saturating_sub(flight.started);
                let service = (*outcome != Outcome::Memory).then_some(service);
                self.count_reuse(now, &flight.key, payload, service);
            }
            // What other nodes fetch says little of what clients wait for: a miss is refused at once.
            let is_read = matches!(reply, Reply::Found { .. } | Reply::Stream | Reply::NotFound);
            if is_read && !waiter.peer {
                let response = stages.served.saturating_sub(stages.received);
                self.speed.respond(now, response, waiter.node_length_met);
            }
            self.answer(now, waiter.request, reply, stages, actions);
        }
    }

    pub(super) fn answer_at_once(
        &mut self,
        now: Nanos,
        request: RequestId,
        reply: Reply<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        let stages = Stages::at_once(now, self.flights.len() as u32);
        self.answer(now, request, reply, stages, actions);
    }

    pub(super) fn answer(
        &mut self,
        now: Nanos,
        request: RequestId,
        reply: Reply<P>,
        mut stages: Stages,
        actions: &mut Vec<Action<P>>,
    ) {
        let (outcome, bytes) = match &reply {
            Reply::Found { payload, outcome, .. } => (*outcome, payload.bytes()),
            // It is recorded with the second reply.
            Reply::Opened { .. } => return self.invariants.broken(),
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
