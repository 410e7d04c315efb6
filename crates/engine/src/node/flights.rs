//! Flights: one retrieval of a key, joined by every later reader of that key.

use std::collections::HashMap;

use ground::window::{Finished, Nanos, Operation, Outcome};

use super::authorities::{Authority, Verified};
use super::event::{DeviceId, JobId, RequestId};
use super::extent::{Part, Take};
use super::index::Record;
use super::reply::Stages;
use crate::invariant::Invariants;
use crate::mutant::{self, Mutant};
use crate::route::NodeId;
use crate::tier::Location;
use ground::{Etag, Key};

/// A reader that waits.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub request: RequestId,
    pub received: Nanos,
    pub length_met: u32,
    /// Length of all queues of the node when it came.
    pub node_length_met: u32,
    pub deadline: Option<Nanos>,
    /// The reader is a peer, which is answered from the tiers alone.
    pub peer: bool,
    /// How it takes the object's bytes.
    pub take: Take,
    /// Its reply has begun.
    pub opened: bool,
}

impl Waiter {
    /// A reader that came at `received`, when the node's queues had so many requests.
    pub fn new(
        request: RequestId,
        received: Nanos,
        node_length_met: usize,
        deadline: Option<Nanos>,
        peer: bool,
        take: Take,
    ) -> Waiter {
        let node_length_met = node_length_met as u32;
        Waiter {
            request,
            received,
            length_met: 0,
            node_length_met,
            deadline,
            peer,
            take,
            opened: false,
        }
    }
}

/// The queue in which a flight waits or is served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlightQueue {
    Device(DeviceId),
    Origin,
    Peer(NodeId),
}

/// The retrieval of a key, and the readers that wait for it.
pub(super) struct Flight {
    pub key: Key,
    /// Empty if no reader waits: a copy is made in advance.
    pub waiters: Vec<Waiter>,
    pub at: FlightQueue,
    /// The authority under which its result may be kept.
    pub authority: Option<Authority>,
    /// A node to skip.
    pub avoid: Option<NodeId>,
    /// The place of the next of the key's nodes to request it from.
    pub next_peer: u8,
    /// The record's place, if it is read from a device.
    pub location: Location,
    /// The record as the index had it when its read began.
    pub record: Option<Record>,
    /// The origin is asked which version is current instead of for the object.
    pub check: bool,
    /// It reads a hot copy in the background, to write it again.
    pub rescue: bool,
    /// The version that the origin had after its readers had begun, and the time then: they may be
    /// given it, and no other.
    pub settled: Option<(Etag, Nanos)>,
    /// A device whose record is not the object.
    pub tried: Option<DeviceId>,
    /// The part of the object that it reads, if not all.
    pub part: Option<Part>,
    /// Its first piece has been read.
    pub opened: bool,
    /// Time in service before the present piece.
    pub in_service: Nanos,
    pub queued: Nanos,
    pub started: Nanos,
    /// When service ended, and the length of the queue then.
    pub served: Option<(Nanos, u32)>,
    /// A write to the key ended, or may have, since the flight began: it fills no tier and no
    /// reader joins.
    pub void: bool,
}

impl Flight {
    /// A flight that begins now. Without an authority it is void from the start: another node may
    /// write the key without telling this one.
    pub fn new(
        key: Key,
        now: Nanos,
        waiters: Vec<Waiter>,
        authority: Option<Authority>,
        avoid: Option<NodeId>,
    ) -> Flight {
        Flight {
            key,
            waiters,
            at: FlightQueue::Origin,
            authority,
            avoid,
            next_peer: 0,
            location: Location::new(0, 0, 0),
            record: None,
            check: false,
            rescue: false,
            settled: None,
            tried: None,
            part: None,
            opened: false,
            in_service: 0,
            queued: now,
            started: now,
            served: None,
            void: authority.is_none(),
        }
    }

    /// The verification of its result, if that is the version that the origin had at a time.
    pub fn verified(&self, at: Nanos) -> Option<Verified> {
        self.authority.map(|authority| Verified { at, authority })
    }

    /// Whether all its readers have stopped waiting.
    pub fn is_abandoned(&self, now: Nanos) -> bool {
        let given_up = |waiter: &Waiter| waiter.deadline.is_some_and(|deadline| deadline <= now);
        !self.waiters.is_empty() && self.waiters.iter().all(given_up)
    }

    /// Enters a queue of a given length.
    pub fn enter(&mut self, now: Nanos, at: FlightQueue, length: u32) {
        self.at = at;
        self.queued = now;
        self.started = now;
        self.in_service = 0;
        self.served = None;
        for waiter in &mut self.waiters {
            waiter.length_met = waiter.length_met.max(length);
        }
    }

    /// The flight's times in the queue that it leaves.
    pub fn finished(&self, served: Nanos, outcome: Outcome, bytes: u64) -> Finished {
        let service = self.in_service + served.saturating_sub(self.started);
        let response = served.saturating_sub(self.queued);
        // Of a read in pieces: with the time between them.
        let waiting = response.saturating_sub(service);
        Finished { operation: Operation::Get, outcome, waiting, service, response, bytes }
    }

    /// One reader's times. A reader that joined late entered the queue, or the service, when it
    /// came.
    pub fn stages(&self, waiter: &Waiter, now: Nanos) -> Stages {
        let (served, length_left) = self.served.unwrap_or((now, 0));
        Stages {
            received: waiter.received,
            queued: self.queued.max(waiter.received).min(served),
            started: self.started.max(waiter.received).min(served),
            served,
            length_met: waiter.length_met,
            length_left,
            node_length: 0,
        }
    }
}

/// The record of a job in a queue that no flight belongs to: it frees its server and served nobody.
pub(super) fn unserved() -> Finished {
    let (operation, outcome) = (Operation::Get, Outcome::Error);
    Finished { operation, outcome, waiting: 0, service: 0, response: 0, bytes: 0 }
}

/// All flights, by job and by key.
#[derive(Default)]
pub(super) struct Flights {
    by_job: HashMap<JobId, Flight>,
    by_key: HashMap<Key, JobId>,
    /// Keys whose flight is missing.
    pub invariants: Invariants,
}

impl Flights {
    pub fn len(&self) -> usize {
        self.by_job.len()
    }

    /// Readers that wait for any flight. Looks at all flights.
    pub fn readers(&self) -> usize {
        self.by_job.values().map(|flight| flight.waiters.len()).sum()
    }

    pub fn insert(&mut self, job: JobId, flight: Flight) {
        if !flight.void {
            let before = self.by_key.insert(flight.key.clone(), job);
            assert!(before.is_none(), "two flights for one key");
        }
        self.by_job.insert(job, flight);
    }

    pub fn get_mut(&mut self, job: JobId) -> Option<&mut Flight> {
        self.by_job.get_mut(&job)
    }

    /// The flight that a reader of this key can join.
    pub fn joinable(&mut self, key: &Key) -> Option<&mut Flight> {
        self.by_job.get_mut(self.by_key.get(key)?)
    }

    /// The flight that the last reader of this key joined.
    pub fn joined(&self, key: &Key) -> Option<(JobId, &Flight)> {
        let job = *self.by_key.get(key)?;
        Some((job, self.by_job.get(&job)?))
    }

    /// Takes a flight out for a change; [`Flights::put_back`] must follow. Its key stays taken meanwhile: a reader that came in
    /// between would begin a second flight for it.
    pub fn take(&mut self, job: JobId) -> Option<Flight> {
        self.by_job.remove(&job)
    }

    /// Puts a flight back that [`Flights::take`] took out.
    pub fn put_back(&mut self, job: JobId, flight: Flight) {
        // A flight that was voided while it was out has lost its key; put back unvoided it would fill tiers with an old version.
        if !flight.void && self.by_key.get(&flight.key) != Some(&job) {
            self.invariants.broken();
        }
        if self.by_job.insert(job, flight).is_some() {
            self.invariants.broken();
        }
    }

    pub fn remove(&mut self, job: JobId) -> Option<Flight> {
        let flight = self.by_job.remove(&job)?;
        // A void flight left its key when it was voided: that entry may be a later flight's.
        if !flight.void && self.by_key.remove(&flight.key) != Some(job) {
            self.invariants.broken();
        }
        Some(flight)
    }

    /// Voids all flights.
    pub fn void_all(&mut self) {
        self.by_key.clear();
        self.by_job.values_mut().for_each(|flight| flight.void = true);
    }

    /// Voids the flight for a key: later readers start their own.
    pub fn void(&mut self, key: &Key) {
        // Most keys have none.
        let Some(job) = self.by_key.remove(key) else { return };
        if mutant::is(Mutant::OpenedFlightJoined)
            && self.by_job.get(&job).is_some_and(|flight| flight.opened)
        {
            self.by_key.insert(key.clone(), job);
            return;
        }
        match self.by_job.get_mut(&job) {
            Some(flight) => flight.void = true,
            None => self.invariants.broken(),
        }
    }
}
