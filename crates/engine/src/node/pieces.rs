//! Reads in pieces: a large record is read in parts of [`DeviceSettings::piece_bytes`], and a device
//! serves the other reads of its queue between two of them.
//!
//! After each piece the flight goes to the end of its device's queue. Readers get
//! [`Reply::Opened`] when the first piece has been verified, and the bytes as the driver reads them;
//! at the end a second reply follows, so that a request counts once, with the sum of its services. A
//! piece that is damaged cuts the replies that were opened: the record is dropped, and those of its
//! readers that have got nothing go on to another copy or the origin.
//!
//! A reader that wants a part of a large object gets a flight of its own, which reads that part only
//! and fills no tier. It goes first for the whole if the object is to be written again, or to a hot
//! device.

use ground::window::Nanos;

use super::event::{Action, DeviceId, JobId};
use super::extent::{Part, Take};
use super::failure::Failure;
use super::flights::{Flight, FlightQueue, Waiter};
use super::index::Place;
use super::reply::Reply;
use super::state::Node;
use crate::Payload;
use ground::Key;

#[cfg(doc)]
use super::settings::DeviceSettings;

impl<P: Payload> Node<P> {
    /// The part of a large record that a flight for one reader reads alone.
    pub(super) fn part_of(
        &mut self,
        key: &[u8],
        place: Place,
        take: Take,
        now: Nanos,
    ) -> Option<Part> {
        let Take::Part(part) = take else { return None };
        let Place { device, location } = place;
        let on = &self.devices[device];
        if !on.is_large(location) || on.log.is_ageing(location.segment()) {
            return None;
        }
        let bytes = location.bytes();
        let copied = self.index.get(key).is_some_and(|on| on.hot().is_some());
        let worth = !copied && self.whole_for_hot(key, bytes, now);
        (!worth).then_some(part)
    }

    /// Begins the reply to the reader that just joined a flight, if the flight's first piece was read.
    pub(super) fn open_late(&mut self, now: Nanos, key: &Key, actions: &mut Vec<Action<P>>) {
        let Some((job, flight)) = self.flights.joined(key) else { return };
        if !flight.opened {
            return;
        }
        let FlightQueue::Device(device) = flight.at else { return };
        let (Some(mut flight), Some(payload)) =
            (self.flights.take(job), self.opened.get(&job).cloned())
        else {
            return self.invariants.broken();
        };
        self.open_replies(now, device, &mut flight, &payload, actions);
        self.flights.put_back(job, flight);
    }

    /// A piece of a record was read that is not the last one.
    pub(super) fn read_piece(
        &mut self,
        now: Nanos,
        job: JobId,
        payload: P,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(mut flight) = self.flights.take(job) else { return self.invariants.broken() };
        let FlightQueue::Device(device) = flight.at else {
            return self.invariants.broken();
        };
        let served = now.max(flight.started);
        let service = served.saturating_sub(flight.started);
        if !flight.opened
            && let Some((etag, _)) = &flight.settled
            && *etag != payload.etag()
        {
            // Nobody may have this version: the read ends here.
            actions.push(Action::CloseRead { device, job });
            self.flights.put_back(job, flight);
            return self.read(served, job, Ok(payload), false, actions);
        }
        flight.in_service += service;
        self.devices[device].turn(service, served);
        if !flight.opened {
            flight.opened = true;
            self.devices[device].health.worked();
            self.open_replies(served, device, &mut flight, &payload, actions);
            self.opened.insert(job, payload);
        }
        self.flights.put_back(job, flight);
        self.devices[device].again(job, served);
        self.start_reads(served, device, actions);
    }

    /// Begins the replies to those of a flight's readers that take bytes as they are read.
    pub(super) fn open_replies(
        &mut self,
        now: Nanos,
        device: DeviceId,
        flight: &mut Flight,
        payload: &P,
        actions: &mut Vec<Action<P>>,
    ) {
        let length = self.devices[device].queue.length();
        let outcome = self.devices[device].outcome;
        flight.served = Some((now, length));
        for index in 0..flight.waiters.len() {
            let waiter = flight.waiters[index];
            if waiter.opened || waiter.peer || waiter.take == Take::Whole {
                continue;
            }
            let mut stages = flight.stages(&waiter, now);
            stages.node_length = self.flights.len() as u32;
            let reply = Reply::Opened { payload: payload.clone(), outcome };
            actions.push(Action::Reply { request: waiter.request, reply, stages });
            flight.waiters[index].opened = true;
        }
    }

    /// Ends the replies that were opened, because the rest of the record cannot be read.
    pub(super) fn cut_replies(
        &mut self,
        now: Nanos,
        flight: &mut Flight,
        actions: &mut Vec<Action<P>>,
    ) {
        let (opened, rest) = flight.waiters.iter().partition(|waiter| waiter.opened);
        flight.waiters = rest;
        let opened: Vec<Waiter> = opened;
        for waiter in &opened {
            let stages = flight.stages(waiter, now);
            let reply = Reply::Unavailable(Failure::unavailable(
                "the rest of the record could not be read",
            ));
            self.answer(now, waiter.request, reply, stages, actions);
        }
        (flight.opened, flight.part) = (false, None);
    }
}
