//! Objects that are not in this node's tiers: requests to peers and to the origin, and their
//! results.

use ground::window::{Finished, Nanos, Outcome, SECOND};

use super::authorities::Authority;
use super::event::{Action, Checked, Fetched, JobId, PeerReply};
use super::flights::{self, Flight, FlightQueue};
use super::index::Place;
use super::reply::Reply;
use super::state::Node;
use super::tiers::{NewRecord, Target};
use crate::Payload;
use crate::mutant::{self, Mutant};
use crate::queue::Queue;
use ground::{Etag, Key};

/// How often an origin that failed is probed on behalf of readers who do not wait for the result.
const ORIGIN_PROBED_EVERY: Nanos = SECOND;

impl<P: Payload> Node<P> {
    /// Sends a flight to the next peer that may have its object, or else to the origin.
    pub(super) fn go_to_peers(
        &mut self,
        now: Nanos,
        mut flight: Flight,
        actions: &mut Vec<Action<P>>,
    ) {
        let next = self.cluster.as_ref().filter(|_| !flight.void).and_then(|cluster| {
            cluster.next_peer(&flight.key, flight.next_peer, flight.avoid, self.next_job, now)
        });
        let Some((peer, next_peer)) = next else {
            // A copy that no reader waits for is not worth a request to the origin.
            if !flight.waiters.is_empty() {
                self.enter_origin(now, flight, false, actions);
            }
            return;
        };
        flight.next_peer = next_peer;
        flight.enter(now, FlightQueue::Peer(peer), self.peers.length());
        let job = self.next_job;
        self.next_job += 1;
        match self.peers.push(job, now) {
            Ok(()) => {
                self.flights.insert(job, flight);
                self.start_peer_requests(now, actions);
            }
            Err(_) if flight.waiters.is_empty() => {}
            Err(_) => self.enter_origin(now, flight, false, actions),
        }
    }

    fn start_peer_requests(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        while let Some((job, at)) = self.start_next(now, |node| &mut node.peers, actions) {
            match (self.flights.get_mut(job), at) {
                (Some(flight), FlightQueue::Peer(peer)) => {
                    actions.push(Action::Ask { peer, key: flight.key.clone(), job });
                }
                _ => self.invariants.broken(),
            }
        }
    }

    /// Starts the service of a queue's next flight that a reader still waits for.
    fn start_next(
        &mut self,
        now: Nanos,
        queue: impl Fn(&mut Self) -> &mut Queue<JobId>,
        actions: &mut Vec<Action<P>>,
    ) -> Option<(JobId, FlightQueue)> {
        loop {
            let started = queue(self).start(now)?;
            let Some(flight) = self.flights.get_mut(started.job) else {
                self.invariants.broken();
                queue(self).finish(now, &flights::unserved());
                continue;
            };
            flight.started = started.start;
            if !flight.is_abandoned(now) {
                return Some((started.job, flight.at));
            }
            // Nobody waits any more: the server is free again at once, for a reader who does.
            let finished = flight.finished(started.start, Outcome::Error, 0);
            queue(self).finish(now, &finished);
            self.give_up(now, started.job, actions);
        }
    }

    pub(super) fn peer_replied(
        &mut self,
        now: Nanos,
        job: JobId,
        result: PeerReply<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        // Late or repeated: the driver gave the peer up before.
        let Some(mut flight) = self.flights.remove(job) else { return };
        let FlightQueue::Peer(peer) = flight.at else { return self.invariants.broken() };
        let found = matches!(result, PeerReply::Found { .. });
        if let (Some(cluster), false) = (&mut self.cluster, matches!(result, PeerReply::Failed(_)))
        {
            cluster.note_reply(peer, found);
        }
        let (outcome, bytes) = match &result {
            PeerReply::Found { payload, .. } => (Outcome::Replica, payload.bytes()),
            PeerReply::NotHere => (Outcome::Miss, 0),
            PeerReply::Failed(_) => (Outcome::Error, 0),
        };
        let finished = flight.finished(now, outcome, bytes);
        self.peers.finish(now, &finished);
        self.start_peer_requests(now, actions);
        let PeerReply::Found { payload, age } = result else {
            return self.go_to_peers(now, flight, actions);
        };
        flight.served = Some((now, self.peers.length()));
        // The peer compared it `age` before it replied, which was after the request began: dated from the beginning it looks
        // older than it is, never newer.
        let compared = flight.started.saturating_sub(age);
        if !flight.void || mutant::is(Mutant::StalePeerFillKept) {
            let verified = flight.verified(compared);
            self.append(NewRecord::new(&flight.key, &payload, verified), Target::Main, actions);
            // A copy that nobody reads yet must not evict from memory what is read now.
            if !flight.waiters.is_empty() || self.devices.is_empty() {
                self.first_read(&flight.key, &payload, now);
                self.keep(flight.key.clone(), payload.clone(), verified, actions);
            }
        }
        let age = now.saturating_sub(compared);
        let reply = || Reply::Found { payload: payload.clone(), outcome, age, warm: 0 };
        self.answer_all(now, flight, reply, actions);
    }

    /// A peer offers an object that was read twice: copies it, unless it is here or under way.
    pub(super) fn offered(&mut self, now: Nanos, key: Key, actions: &mut Vec<Action<P>>) {
        let authority = self.authority(&key, now);
        let mine = self.cluster.as_ref().is_some_and(|cluster| cluster.is_mine(&key));
        let here = self.memory.peek(&key).is_some() || self.index.contains_key(&key);
        if !mine || here || authority.is_none() || self.flights.joinable(&key).is_some() {
            return;
        }
        self.go_to_peers(now, Flight::new(key, now, Vec::new(), authority, None), actions);
    }

    pub(super) fn enter_origin(
        &mut self,
        now: Nanos,
        mut flight: Flight,
        check: bool,
        actions: &mut Vec<Action<P>>,
    ) {
        flight.enter(now, FlightQueue::Origin, self.origin.length());
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
        while let Some((job, _)) = self.start_next(now, |node| &mut node.origin, actions) {
            let Some(flight) = self.flights.get_mut(job) else {
                self.invariants.broken();
                continue;
            };
            let key = flight.key.clone();
            actions.push(match flight.check {
                true => Action::Check { key, job },
                false => Action::Fetch { key, job },
            });
        }
    }

    /// A scrub found a damaged record: drops it, and fetches the object again if this was the key's
    /// and no other record is left.
    pub(super) fn damaged(
        &mut self,
        now: Nanos,
        place: Place,
        key: Key,
        actions: &mut Vec<Action<P>>,
    ) {
        if let Some(device) = self.devices.get_mut(place.device) {
            device.damaged += 1;
        }
        let was_there = self.index.remove_place(&key, place);
        let here = self.memory.peek(&key).is_some() || self.index.contains_key(&key);
        let authority = self.authority(&key, now);
        let mine = self.cluster.as_ref().is_none_or(|cluster| cluster.is_mine(&key));
        let full = self.origin.length() >= self.settings.origin.queue_length_max / 2;
        if !was_there
            || here
            || !mine
            || full
            || authority.is_none()
            || self.flights.joinable(&key).is_some()
        {
            return;
        }
        self.enter_origin(now, Flight::new(key, now, Vec::new(), authority, None), false, actions);
    }

    /// Probes an origin that failed, on behalf of a reader who is answered meanwhile.
    pub(super) fn probe_origin(
        &mut self,
        now: Nanos,
        key: &Key,
        authority: Option<Authority>,
        actions: &mut Vec<Action<P>>,
    ) {
        if self.origin_down.is_none_or(|at| now < at) {
            return;
        }
        // Void if a flight for the key is under way: there is one that others join.
        let authority = authority.filter(|_| self.flights.joinable(key).is_none());
        let flight = Flight::new(key.clone(), now, Vec::new(), authority, None);
        self.origin_down = Some(now + ORIGIN_PROBED_EVERY);
        self.enter_origin(now, flight, true, actions);
    }

    /// Records whether the origin answers.
    fn origin_answered(&mut self, now: Nanos, failed: bool) {
        self.origin_down = failed.then_some(now + ORIGIN_PROBED_EVERY);
    }

    pub(super) fn fetched(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Fetched<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        // Late or repeated: the driver gave the origin up before.
        let Some(mut flight) = self.flights.remove(job) else { return };
        let (outcome, bytes) = match &result {
            Fetched::Found(payload) => (Outcome::Origin, payload.bytes()),
            Fetched::TooLarge => (Outcome::Origin, 0),
            Fetched::NotFound => (Outcome::Miss, 0),
            Fetched::Unavailable(_) => (Outcome::Error, 0),
        };
        self.origin_answered(now, matches!(result, Fetched::Unavailable(_)));
        self.leave_origin(now, &mut flight, outcome, bytes, actions);
        match result {
            Fetched::Found(payload) => {
                if !flight.void || mutant::is(Mutant::StaleOriginFillKept) {
                    // Verified when the fetch began: a change after that may have been missed.
                    let verified = flight.verified(flight.started);
                    self.append(
                        NewRecord::new(&flight.key, &payload, verified),
                        Target::Main,
                        actions,
                    );
                    // A copy that nobody reads yet must not evict from memory what is read now.
                    if !flight.waiters.is_empty() {
                        self.first_read(&flight.key, &payload, now);
                        self.keep(flight.key.clone(), payload.clone(), verified, actions);
                    }
                }
                let age = now.saturating_sub(flight.started);
                let reply = || Reply::Found { payload: payload.clone(), outcome, age, warm: 0 };
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
        // Late or repeated, as a fetch's result.
        let Some(mut flight) = self.flights.remove(job) else { return };
        let failed = matches!(result, Checked::Unavailable(_));
        self.origin_answered(now, failed);
        let outcome = if failed { Outcome::Error } else { Outcome::Origin };
        self.leave_origin(now, &mut flight, outcome, 0, actions);
        if !failed {
            self.comparisons.add(0, now.saturating_sub(flight.started), now);
        }
        flight.served = None;
        match result {
            Checked::Version(etag) => self.checked_version(now, flight, etag, actions),
            Checked::Missing => self.changed(now, flight, actions),
            Checked::Unavailable(failure) => self.serve_stale(now, flight, &failure, actions),
        }
    }

    /// What the tiers hold is not the origin's version: forgets it.
    fn changed(&mut self, now: Nanos, flight: Flight, actions: &mut Vec<Action<P>>) {
        if !flight.void {
            self.forget(&flight.key);
        }
        if !flight.waiters.is_empty() {
            self.enter_origin(now, flight, false, actions);
        }
    }

    /// The version was current after every waiting reader had begun, so they may have it if the
    /// tiers hold it; later readers may too, unless the flight is void.
    fn checked_version(
        &mut self,
        now: Nanos,
        mut flight: Flight,
        etag: Etag,
        actions: &mut Vec<Action<P>>,
    ) {
        let verified = flight.verified(flight.started);
        if let Some(kept) = self.memory.get(&flight.key) {
            if kept.payload().etag() != etag && !mutant::is(Mutant::ChangedTakenForCurrent) {
                return self.changed(now, flight, actions);
            }
            if !flight.void {
                kept.verify(verified, &mut self.authorities);
            }
            let payload = kept.payload().clone();
            let (age, outcome) = (now.saturating_sub(flight.started), Outcome::Memory);
            let reply = || Reply::Found { payload: payload.clone(), outcome, age, warm: 0 };
            return self.answer_all(now, flight, reply, actions);
        }
        if flight.waiters.is_empty() {
            return;
        }
        let on = self.index.get(&flight.key);
        match on.and_then(|on| self.choose(&on, flight.tried, now)) {
            Some(place) => {
                // Whether the record has this version will be seen when it is read.
                flight.settled = Some((etag, flight.started));
                self.enter_device(now, place, flight, actions);
            }
            None => self.enter_origin(now, flight, false, actions),
        }
    }

    /// The origin did not answer a check: serves the copy as it is if [`Settings::stale_if_error`]
    /// allows it and no write can have been missed.
    fn serve_stale(
        &mut self,
        now: Nanos,
        flight: Flight,
        failure: &super::Failure,
        actions: &mut Vec<Action<P>>,
    ) {
        let authority = flight.authority.filter(|_| !flight.void);
        let kept = self.memory.get(&flight.key);
        let kept = kept.map(|kept| (kept.payload().clone(), kept.verified(&self.authorities)));
        if let Some((payload, verified)) = kept
            && authority.is_some()
            && self.may_be_stale(verified, authority, now)
        {
            let age = verified.map_or(0, |verified| now.saturating_sub(verified.at));
            let outcome = Outcome::Memory;
            let reply = || Reply::Found { payload: payload.clone(), outcome, age, warm: 0 };
            return self.answer_all(now, flight, reply, actions);
        }
        let may = authority.is_some() && !flight.waiters.is_empty();
        let on = self
            .index
            .get(&flight.key)
            .filter(|_| may)
            .map(|on| on.filter(|record| self.may_be_stale(record.verified, authority, now)));
        match on.and_then(|on| self.choose(&on, flight.tried, now)) {
            Some(place) => self.enter_device(now, place, flight, actions),
            _ => self.answer_all(now, flight, || Reply::Unavailable(failure.clone()), actions),
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
        let finished: Finished = flight.finished(now, outcome, bytes);
        self.origin.finish(now, &finished);
        self.start_fetches(now, actions);
        flight.served = Some((now, self.origin.length()));
    }
}
