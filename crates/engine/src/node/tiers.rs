//! Filling the memory tier and the devices, and forgetting keys.

use ground::window::{Nanos, Outcome};

use super::authorities::{Authority, Verified};
use super::device::{AppendEnd, Device};
use super::event::{Action, DeviceId, JobId, RequestId};
use super::index::Place;
use super::reply::Reply;
use super::state::{Appending, MemoryEntry, Node};
use crate::Payload;
use crate::mutant::{self, Mutant};
use crate::tier::{Keyed, record_bytes};
use ground::Key;

/// Memory of an object that waits to be written to a device, beside its stored form and its key: entries here and in the device's queue, a
/// second key, and what the allocator rounds up. 240,000 objects of 203 bytes with keys of 20 took 810 bytes each where some 260 were counted
/// (2026-12-01).
const APPEND_BYTES: u64 = 550;

/// Entries for which room is kept when nothing waits any more.
const APPENDS_KEPT: usize = 1024;

/// Where a new record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To a bulk device, or to any if there are no two classes.
    Main,
    /// To a hot device.
    Hot,
}

/// A record to be written to a device.
pub(super) struct NewRecord<'a, P> {
    pub key: &'a Key,
    pub payload: &'a P,
    pub verified: Option<Verified>,
    /// The record beside which it is written; `None`: it takes the place of all others of its key.
    pub copy_of: Option<Place>,
}

impl<'a, P> NewRecord<'a, P> {
    /// A record in place of all others of its key.
    pub fn new(key: &'a Key, payload: &'a P, verified: Option<Verified>) -> NewRecord<'a, P> {
        NewRecord { key, payload, verified, copy_of: None }
    }
}

impl<P: Payload> Node<P> {
    /// Puts an object into the memory tier. Evicted objects go to a device, unless one has them
    /// already.
    pub(super) fn keep(
        &mut self,
        key: Key,
        payload: P,
        verified: Option<Verified>,
        actions: &mut Vec<Action<P>>,
    ) {
        if payload.bytes() > self.settings.object_bytes_max {
            return;
        }
        let bytes = payload.stored_bytes();
        let entry = MemoryEntry::new(payload.with_key(&key), verified, &mut self.authorities);
        let left = self.memory.insert(entry, bytes);
        self.evicted(left, actions);
    }

    /// Changes the maximum bytes of the memory tier.
    pub(super) fn set_memory_max(&mut self, bytes: u64, actions: &mut Vec<Action<P>>) {
        let left = self.memory.set_bytes_max(bytes);
        self.evicted(left, actions);
    }

    fn evicted(&mut self, left: Vec<MemoryEntry<P>>, actions: &mut Vec<Action<P>>) {
        for kept in left {
            let key = kept.key();
            if !self.index.contains_key(key) && !self.appending_of.contains_key(key) {
                let (key, verified) = (Key::from(key), kept.verified(&self.authorities));
                let record = NewRecord::new(&key, kept.payload(), verified);
                self.append(record, Target::Main, actions);
            }
        }
    }

    /// Writes a record to the device of a class that is least full in proportion to its budget,
    /// beside the record that it is a copy of, or in place of all others of the key. If too many
    /// bytes are being written already, or no device takes it, it is not kept: the origin has it.
    /// Returns whether it is being written.
    pub(super) fn append(
        &mut self,
        record: NewRecord<'_, P>,
        target: Target,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let NewRecord { key, payload, verified, copy_of } = record;
        let stored_bytes = payload.stored_bytes();
        let bytes = record_bytes(key.len(), payload.bytes(), stored_bytes);
        let held_bytes = stored_bytes + key.len() as u64 + APPEND_BYTES;
        if payload.bytes() > self.settings.object_bytes_max
            || self.appending_bytes + held_bytes > self.settings.appends_bytes_max
        {
            return false;
        }
        let fullness = |d: &Device| d.log.fullness();
        let takes = |d: &Device| d.log.fits(bytes) && d.takes_writes(self.now);
        let of_class = |d: DeviceId| self.is_hot(d) == (target == Target::Hot);
        let candidates = self.devices.iter().enumerate();
        let candidates = candidates.filter(|(id, d)| of_class(*id) && takes(d));
        let least = candidates.min_by(|(_, a), (_, b)| fullness(a).total_cmp(&fullness(b)));
        // No device takes it: all are too small, or rest after a failure.
        let Some((device, _)) = least else { return false };
        let again = self.index.get(key).is_some_and(|on| on.on(device).is_some());
        let on = &mut self.devices[device];
        on.health.used(self.now);
        on.written_bytes += bytes;
        on.reinserted_bytes += if again { bytes } else { 0 };
        let (location, placed) = on.log.place(bytes);
        let sealed = placed.sealed.is_some();
        if let Some(segment) = placed.sealed {
            actions.push(Action::SealSegment { device, segment });
        }
        for segment in placed.dropped {
            self.drop_segment(device, segment, actions);
        }
        let job = self.next_job;
        self.next_job += 1;
        self.void_append(key);
        self.appending_of.insert(key.clone(), job);
        self.appending_bytes += held_bytes;
        self.appending.insert(
            job,
            Appending {
                device,
                location,
                key: key.clone(),
                payload: payload.clone(),
                verified,
                held_bytes,
                copy_of,
                then_hot: None,
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
        if sealed && target == Target::Hot {
            self.rescue_oldest(device, actions);
        }
        true
    }

    fn drop_segment(&mut self, device: DeviceId, segment: u64, actions: &mut Vec<Action<P>>) {
        let listed = self.listed_in(device, segment);
        let gone = self.index.drop_segment(device, segment);
        if self.is_hot(device) {
            self.demoted(self.now, gone, &listed);
        }
        for appending in self.appending.values_mut() {
            appending.void |= appending.device == device && appending.location.segment() == segment;
        }
        actions.push(Action::DropSegment { device, segment });
    }

    /// Answers with an object that is being written to a device, if it may be served. Without an origin it is nowhere else once it
    /// has left memory: a value that was acknowledged was a miss until its record was written.
    pub(super) fn get_from_append(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: &Key,
        authority: Option<Authority>,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let Some(job) = self.appending_of.get(key) else { return false };
        let Some(appending) = self.appending.get(job) else {
            self.invariants.broken();
            return false;
        };
        if !self.is_fresh(appending.verified, authority, now) {
            return false;
        }
        let age = appending.verified.map_or(0, |verified| now.saturating_sub(verified.at));
        let payload = appending.payload.clone();
        let reply = Reply::Found { payload, outcome: Outcome::Memory, age, warm: 0 };
        self.speed.respond(now, 0, self.flights.len() as u32);
        self.answer_at_once(now, request, reply, actions);
        true
    }

    pub(super) fn appended(
        &mut self,
        now: Nanos,
        job: JobId,
        end: AppendEnd,
        actions: &mut Vec<Action<P>>,
    ) {
        // A device ends each write once.
        let Some(appending) = self.appending.remove(&job) else {
            return self.invariants.broken();
        };
        self.appending_bytes -= appending.held_bytes;
        let Appending { device, location, key, verified, copy_of, then_hot, void, .. } = appending;
        if self.appending_of.get(&key) == Some(&job) {
            self.appending_of.remove(&key);
        }
        if self.appending.is_empty() && self.appending.capacity() > APPENDS_KEPT {
            self.appending.shrink_to(APPENDS_KEPT);
            self.appending_of.shrink_to(APPENDS_KEPT);
        }
        self.devices[device].appended(end, now.max(self.now));
        if end != AppendEnd::Written {
            if let Some(segment) = self.devices[device].log.seal_if(location.segment()) {
                actions.push(Action::SealSegment { device, segment });
            }
        } else if !void {
            let is_hot = self.is_hot(device);
            if copy_of.is_none() {
                // The other records may be of other versions.
                self.index.remove(&key);
            }
            let (settings, cluster, now) = (&self.settings, self.cluster.as_ref(), self.now);
            let counts = |verified: &Verified| Node::<P>::counts(settings, cluster, verified, now);
            let place = Place { device, location };
            self.index.put(&key, place, is_hot, verified, &counts);
            if let Some(payload) = then_hot {
                let copy_of = Some(place);
                let record = NewRecord { key: &key, payload: &payload, verified, copy_of };
                self.then_hot(self.now, record, place.location.bytes(), actions);
            }
        }
    }

    /// Forgets every copy of a key.
    pub(super) fn forget(&mut self, key: &Key) {
        self.memory.remove(key);
        if mutant::is(Mutant::HotCopyKept) {
            self.index.remove_main(key);
        } else if !mutant::is(Mutant::ForgetsMemoryOnly) {
            self.index.remove(key);
        }
        self.void_append(key);
    }

    /// Forgets every copy of every key, whether it is there, being written or being read.
    pub(super) fn clear(&mut self) {
        self.memory.clear();
        self.index.clear();
        self.appending_of.clear();
        self.appending.values_mut().for_each(|appending| appending.void = true);
        self.flights.void_all();
    }

    /// Marks a record of the key that is being written, so that it will not be indexed.
    pub(super) fn void_append(&mut self, key: &Key) {
        if mutant::is(Mutant::AppendsNotVoided) {
            return;
        }
        // Most keys have none.
        let Some(job) = self.appending_of.remove(key) else { return };
        match self.appending.get_mut(&job) {
            Some(appending) => appending.void = true,
            None => self.invariants.broken(),
        }
    }
}
