//! The hot class: which objects have a second copy on a hot device, and which copy is read.
//!
//! Reads that memory did not answer are counted by key (`Popularity`). The benefit of a copy is
//! the wait that it saves in a second (its reads per second × the difference of the expected waits
//! of bulk and hot devices for its size) divided by its bytes. `Worth` says from which benefit on
//! all objects fit into the hot devices, and over which time reads are best counted at the moment. An
//! object above that benefit, times a hysteresis, is copied when its bytes are at hand: when it was read
//! from a bulk device, or when it was just written to one. So a first read is enough where few objects are
//! read more often than once in that time. Writes are limited by a bucket.
//!
//! Demotion costs nothing: a hot device is a log as any other, whose oldest segment is dropped. What
//! is still worth its bytes then is written again first (*reinsertion*): a sealed segment brings the
//! oldest one before its end, and its objects are read in the background, a few at a time. A copy
//! on a bulk device that is about to be dropped is written again when the hot copy is read, so that
//! the hot copy does not become the only one by its popularity.

use ground::window::{Nanos, Outcome, SECOND};

use super::class_state::{Hot, Hottest, MoveKind, Rescue};
use crate::Payload;
use crate::node::event::{Action, DeviceId};
use crate::node::flights::Flight;
use crate::node::index::{OnDevices, Place, Record};
use crate::node::settings::Choice;
use crate::node::state::Node;
use crate::node::tiers::{NewRecord, Target};
use crate::tier::Saved;
use ground::Key;

/// Background reads of a node at once.
const RESCUES_MAX: usize = 4;
/// Objects that wait to be read in the background.
const RESCUES_WAITING_MAX: usize = 1 << 16;
/// A part of a large object is read alone unless the object has this many decayed reads: to copy it, all
/// of it must be read.
const WHOLE_FROM: f64 = 1.5;

impl<P: Payload> Node<P> {
    /// Whether a device holds second copies.
    pub(in crate::node) fn is_hot(&self, device: DeviceId) -> bool {
        self.hot.is_some() && self.devices[device].outcome == Outcome::HotDevice
    }

    pub(in crate::node) fn is_pinned(&self, key: &[u8]) -> bool {
        self.settings.tiers.pins.iter().any(|pin| pin.holds(key))
    }

    /// The record to read an object from, among those on devices that work, but for a device: the
    /// one with the least expected wait.
    pub(in crate::node) fn choose(
        &mut self,
        on: &OnDevices,
        but: Option<DeviceId>,
        now: Nanos,
    ) -> Option<Place> {
        let mut best: Option<(bool, f64, Place)> = None;
        let (mut count, bytes) = (0u64, on.bytes());
        for place in on.places() {
            let device = &mut self.devices[place.device];
            if but == Some(place.device) || !device.health.takes(now) {
                continue;
            }
            count += 1;
            let full = device.queue.length() >= device.queue.length_max();
            let wait = match self.settings.tiers.choice {
                Choice::Wait => device.expected_s(bytes, now),
                Choice::Utilisation => device.utilisation(now),
                Choice::RoundRobin => {
                    if (self.turn + count).is_multiple_of(2) {
                        1.0
                    } else {
                        0.0
                    }
                }
            };
            if best.is_none_or(|(f, w, _)| (full, wait) < (f, w)) {
                best = Some((full, wait, place));
            }
        }
        self.turn = self.turn.wrapping_add(1);
        best.map(|(_, _, place)| place)
    }

    /// Counts a read that memory did not answer.
    pub(in crate::node) fn count_read(&mut self, key: &Key, now: Nanos) {
        let Some(hot) = &mut self.hot else { return };
        hot.counts.raise(key, 1, now);
        if let Some(on) = self.index.get(key) {
            hot.worth.add(key, on.bytes(), now);
        }
    }

    /// The mean expected response of a read of `bytes` bytes from the devices of a class, seconds.
    fn class_wait_s(&self, class: Outcome, bytes: u64, now: Nanos) -> f64 {
        let line = self.class_line(class, now);
        line.fixed_s + line.per_byte_s * bytes as f64
    }

    /// The same as a line over the bytes.
    fn class_line(&self, class: Outcome, now: Nanos) -> Saved {
        let mut sum = Saved::default();
        let mut count = 0u32;
        for device in self.devices.iter().filter(|device| device.outcome == class) {
            let (fixed_s, per_byte_s) = device.average_line(now);
            sum.fixed_s += fixed_s;
            sum.per_byte_s += per_byte_s;
            count += 1;
        }
        let count = f64::from(count.max(1));
        Saved { fixed_s: sum.fixed_s / count, per_byte_s: sum.per_byte_s / count }
    }

    /// The wait that a hot copy saves at each read.
    fn saved(&self, now: Nanos) -> Saved {
        let (bulk, hot) =
            (self.class_line(Outcome::BulkDevice, now), self.class_line(Outcome::HotDevice, now));
        Saved { fixed_s: bulk.fixed_s - hot.fixed_s, per_byte_s: bulk.per_byte_s - hot.per_byte_s }
    }

    /// The benefit (decayed reads × seconds saved ÷ bytes) of an object with `bytes` bytes on
    /// devices, if it is worth a hot copy; `again`: if it is worth one that it has.
    pub(in crate::node) fn worth_hot(
        &mut self,
        key: &[u8],
        bytes: u64,
        again: bool,
        now: Nanos,
    ) -> Option<f64> {
        let pinned = self.is_pinned(key);
        let (saved, roomy) = (self.saved(now), self.hot_is_roomy());
        let hot = self.hot.as_mut()?;
        let level = hot.level_now(saved, now);
        let benefit = hot.count(key, now) * saved.of_s(bytes) / bytes.max(1) as f64;
        // What is copied to free space puts nothing out.
        let times = match again || roomy {
            true => 1.0,
            false => hot.hysteresis(saved, bytes, self.settings.tiers.hysteresis),
        };
        let may = again || hot.copying;
        (pinned || may && benefit > 0.0 && benefit >= level * times).then_some(benefit)
    }

    /// Whether to read all of a large object although a part of it is asked for: to copy it.
    pub(in crate::node) fn whole_for_hot(&mut self, key: &[u8], bytes: u64, now: Nanos) -> bool {
        let pinned = self.is_pinned(key);
        let often = |hot: &mut Hot| pinned || hot.count(key, now) >= WHOLE_FROM;
        self.hot.as_mut().is_some_and(often) && self.worth_hot(key, bytes, false, now).is_some()
    }

    /// Whether a hot device has room without dropping a segment.
    fn hot_is_roomy(&self) -> bool {
        self.devices
            .iter()
            .any(|device| device.outcome == Outcome::HotDevice && !device.log.is_full())
    }

    /// After a read from a device: writes the object again where its record goes soon, and to a hot
    /// device if it is worth it. `rescue`: it was read because its hot record goes.
    pub(in crate::node) fn place_again(
        &mut self,
        now: Nanos,
        key: &Key,
        payload: &P,
        read: Record,
        rescue: bool,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(on) = self.index.get(key) else { return };
        let bytes = on.bytes();
        let copy_of = Some(read.place);
        let record = NewRecord { key, payload, verified: read.verified, copy_of };
        let ageing = |place: Option<Place>| {
            place.is_some_and(|place| {
                self.devices[place.device].log.is_ageing(place.location.segment())
            })
        };
        let (main, second) = (on.main(), on.hot());
        let (main_goes, second_goes) = (ageing(main), ageing(second));
        if self.hot.is_none() {
            if main_goes {
                self.append(record, Target::Main, actions);
            }
            return;
        }
        let again = second.is_some() || rescue;
        let benefit = match second.is_some() && !second_goes {
            true => None,
            false => self.worth_hot(key, bytes, again, now),
        };
        // The only copy, on a hot device that it leaves, goes back to a bulk device.
        if main_goes || main.is_none() && second_goes && benefit.is_none() {
            self.append(record, Target::Main, actions);
            return;
        }
        let Some(benefit) = benefit.filter(|_| !self.appending_of.contains_key(key)) else {
            return;
        };
        self.copy_to_hot(now, record, benefit, again, actions);
    }

    /// Records what a read from a device brought.
    pub(in crate::node) fn device_served(
        &mut self,
        device: DeviceId,
        flight: &Flight,
        served: Nanos,
    ) {
        if self.hot.is_none() || flight.waiters.is_empty() {
            return;
        }
        let reads = flight.waiters.len() as u64;
        let on_hot = self.is_hot(device);
        let Some(on) = self.index.get(&flight.key) else { return };
        let (bytes, passed_by) = (on.bytes(), !on_hot && on.hot().is_some());
        let took = served.saturating_sub(flight.queued) as f64 / SECOND as f64;
        let saved = match on_hot {
            true => (self.class_wait_s(Outcome::BulkDevice, bytes, served) - took).max(0.0),
            false => 0.0,
        };
        let pinned = self.is_pinned(&flight.key);
        let saved_s = self.saved(served).of_s(bytes);
        let Some(hot) = &mut self.hot else { return };
        if !on_hot {
            hot.bought.bulk_reads += reads;
            hot.bought.hot_passed_by += if passed_by { reads } else { 0 };
            return;
        }
        hot.bought.hot_reads += reads;
        hot.bought.saved_s += saved * reads as f64;
        let count = hot.count(&flight.key, served);
        let reads_per_s = hot.rate(count, served);
        let key = String::from_utf8_lossy(&flight.key).into_owned();
        let benefit = reads_per_s * saved_s / bytes.max(1) as f64;
        hot.list(&flight.key, Hottest { key, bytes, reads_per_s, saved_s, benefit, pinned });
    }

    /// Those of the listed objects whose hot copy is in a segment.
    pub(in crate::node) fn listed_in(&self, device: DeviceId, segment: u64) -> Vec<Key> {
        let Some(hot) = self.hot.as_ref().filter(|_| self.is_hot(device)) else {
            return Vec::new();
        };
        let there = |key: &&Key| {
            let place = self.index.get(key).and_then(|on| on.hot());
            place.is_some_and(|p| p.device == device && p.location.segment() == segment)
        };
        hot.hottest.iter().map(|(key, _)| key).filter(there).cloned().collect()
    }

    /// A segment of a hot device was dropped with so many records, among them those of the listed
    /// keys.
    pub(in crate::node) fn demoted(&mut self, now: Nanos, records: u64, listed: &[Key]) {
        let Some(hot) = &mut self.hot else { return };
        hot.moves.demoted += records;
        for key in listed.iter().take(4) {
            hot.note(now, key, MoveKind::Demoted, 0.0);
        }
        hot.hottest.retain(|(key, _)| !listed.contains(key));
    }

    /// A segment of a hot device was sealed: what of the oldest is still worth its bytes is to be
    /// written again before that one is dropped. The index has no keys: the device has them.
    pub(in crate::node) fn rescue_oldest(
        &mut self,
        device: DeviceId,
        actions: &mut Vec<Action<P>>,
    ) {
        if let Some(hot) = &mut self.hot {
            hot.level_at = 0;
        }
        if let Some(segment) = self.devices[device].log.oldest() {
            actions.push(Action::List { device, segment });
        }
    }

    /// The keys of a segment that will soon be dropped.
    pub(in crate::node) fn listed(
        &mut self,
        now: Nanos,
        device: DeviceId,
        segment: u64,
        keys: Vec<Key>,
        actions: &mut Vec<Action<P>>,
    ) {
        if device >= self.devices.len() || !self.is_hot(device) {
            return self.invariants.broken();
        }
        for key in keys {
            let Some(on) = self.index.get(&key) else { continue };
            if on.on(device).is_none_or(|record| record.place.location.segment() != segment) {
                continue;
            }
            let bytes = on.bytes();
            if self.worth_hot(&key, bytes, true, now).is_none() {
                continue;
            }
            let Some(hot) = &mut self.hot else { return };
            if hot.rescues.len() < RESCUES_WAITING_MAX {
                hot.rescues.push_back(Rescue { device, segment, key });
            }
        }
        self.start_rescues(now, actions);
    }

    /// A background read ended.
    pub(in crate::node) fn rescue_ended(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        let Some(hot) = &mut self.hot else { return };
        hot.rescues_under_way = hot.rescues_under_way.saturating_sub(1);
        self.start_rescues(now, actions);
    }

    fn start_rescues(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        loop {
            let Some(hot) = self.hot.as_mut().filter(|h| h.rescues_under_way < RESCUES_MAX) else {
                return;
            };
            let Some(Rescue { device, segment, key }) = hot.rescues.pop_front() else { return };
            let authority = self.authority(&key, now);
            let on = self.index.get(&key).and_then(|on| on.on(device));
            // Readers may join, so it must be a copy that may be served.
            let may = |record: &Record| {
                record.place.location.segment() == segment
                    && self.is_fresh(record.verified, authority, now)
            };
            let Some(Record { place, .. }) = on.filter(may) else { continue };
            let queue = &self.devices[device].queue;
            if self.flights.joinable(&key).is_some()
                || !self.devices[device].health.takes(now)
                || queue.length() >= queue.length_max()
            {
                continue;
            }
            let mut flight = Flight::new(key, now, Vec::new(), authority, None);
            flight.rescue = true;
            if let Some(hot) = &mut self.hot {
                hot.rescues_under_way += 1;
            }
            self.enter_device(now, place, flight, actions);
        }
    }
}
