//! Filling the memory tier and the devices, and forgetting keys.

use super::{
    APPEND_PAUSE, Action, Appending, Device, DeviceId, JobId, Kept, Node, OnDevice, Verified,
};
use crate::mutant::{self, Mutant};
use crate::tier::RECORD_OVERHEAD_BYTES;
use crate::{Key, Payload};

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
        let left = self.memory.insert(key, Kept { payload, verified, hits: 0, warm: 0 }, bytes);
        for (key, kept) in left {
            if !self.index.contains_key(&key) && !self.appending_of.contains_key(&key) {
                self.append(&key, &kept.payload, kept.verified, actions);
            }
        }
    }

    /// Writes an object to the device that is least full in proportion to its budget. If too many
    /// bytes are being written already, or no device takes it, it is not kept: the origin has it.
    pub(super) fn append(
        &mut self,
        key: &Key,
        payload: &P,
        verified: Option<Verified>,
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
        let takes = |d: &Device| d.log.fits(bytes) && d.paused_until <= self.now;
        let candidates = self.devices.iter().enumerate().filter(|(_, d)| takes(d));
        let least = candidates.min_by(|(_, a), (_, b)| fullness(a).total_cmp(&fullness(b)));
        // No device takes it: all are too small, or rest after a failure.
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

    pub(super) fn drop_segment(
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

    pub(super) fn appended(&mut self, job: JobId, written: bool, actions: &mut Vec<Action<P>>) {
        // A device ends each write once.
        let Some(appending) = self.appending.remove(&job) else {
            return self.invariants.broken();
        };
        self.appending_bytes -= appending.stored_bytes;
        let Appending { device, location, key, etag, verified, void, .. } = appending;
        if self.appending_of.get(&key) == Some(&job) {
            self.appending_of.remove(&key);
        }
        if !written {
            self.devices[device].paused_until = self.now + APPEND_PAUSE;
            if let Some(segment) = self.devices[device].log.seal_if(location.segment()) {
                actions.push(Action::SealSegment { device, segment });
            }
        } else if !void {
            self.index.insert(key, OnDevice { device, location, etag, verified });
        }
    }

    /// Forgets every copy of a key.
    pub(super) fn forget(&mut self, key: &Key) {
        self.memory.remove(key);
        if !mutant::is(Mutant::ForgetsMemoryOnly) {
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
