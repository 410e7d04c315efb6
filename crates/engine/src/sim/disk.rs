//! The contents of a simulated device.

use std::collections::VecDeque;

use ground::window::Nanos;
use rand::RngExt;
use rand::rngs::SmallRng;

use super::settings::Breakage;
use crate::Size;
use crate::node::{Failure, Restored, Unread};
use crate::tier::Location;
use ground::Key;

/// The contents of a device.
#[derive(Default)]
pub(super) struct Disk {
    /// In ascending order of their numbers.
    segments: VecDeque<Segment>,
}

struct Segment {
    number: u64,
    /// In ascending order of their offsets.
    records: Vec<Record>,
}

struct Record {
    location: Location,
    key: Key,
    payload: Size,
    /// When the record is certain to survive a crash of the process.
    durable: Nanos,
    /// Whether its checksum fails.
    damaged: bool,
}

/// A read that failed.
pub(super) fn unread() -> Unread {
    Unread::Failed(Failure::unavailable("simulated"))
}

impl Disk {
    fn segment(&self, number: u64) -> Option<usize> {
        self.segments.binary_search_by_key(&number, |segment| segment.number).ok()
    }

    pub fn write(&mut self, location: Location, key: Key, payload: Size, durable: Nanos) {
        let number = location.segment();
        if self.segments.back().is_none_or(|last| last.number < number) {
            self.segments.push_back(Segment { number, records: Vec::new() });
        }
        if let Some(index) = self.segment(number) {
            self.segments[index].records.push(Record {
                location,
                key,
                payload,
                durable,
                damaged: false,
            });
        }
    }

    /// The record of a key at a place. With [`Breakage::ChecksumIgnored`], returns a damaged record
    /// too, with wrong bytes; with [`Breakage::KeyIgnored`], another key's.
    pub fn read(
        &self,
        location: Location,
        key: &Key,
        breakage: Option<Breakage>,
    ) -> Result<Size, Unread> {
        let record = self.record(location).ok_or_else(unread)?;
        if record.damaged && breakage == Some(Breakage::ChecksumIgnored) {
            let bytes = record.payload.bytes + 1;
            return Ok(Size { bytes, ..record.payload.clone() });
        }
        if record.damaged {
            return Err(unread());
        }
        if record.key != *key && breakage != Some(Breakage::KeyIgnored) {
            return Err(Unread::OtherKey);
        }
        Ok(record.payload.clone())
    }

    /// What [`Disk::read`] of this record would return if it were whole, and whether it is damaged.
    pub fn look(&self, location: Location, key: &Key) -> Result<(Size, bool), Unread> {
        let record = self.record(location).ok_or_else(unread)?;
        if record.key != *key {
            return Err(Unread::OtherKey);
        }
        Ok((record.payload.clone(), record.damaged))
    }

    fn record(&self, location: Location) -> Option<&Record> {
        let records = &self.segments[self.segment(location.segment())?].records;
        let offset = |record: &Record| record.location.offset();
        // Starts where the record would be if all had one size: a search among millions would cost
        // microseconds.
        let guess = records.last().and_then(|last| {
            let end = last.location.offset() + last.location.bytes();
            let place =
                u128::from(location.offset()) * records.len() as u128 / u128::from(end.max(1));
            let place = place as usize;
            (offset(records.get(place)?) == location.offset()).then_some(place)
        });
        let search = || records.binary_search_by_key(&location.offset(), offset).ok();
        records.get(guess.or_else(search)?)
    }

    /// The keys of a segment's records.
    pub fn keys(&self, segment: u64) -> Vec<Key> {
        let records = self.segment(segment).map(|index| &self.segments[index].records);
        records.into_iter().flatten().map(|record| record.key.clone()).collect()
    }

    pub fn drop(&mut self, number: u64) {
        if let Some(index) = self.segment(number) {
            self.segments.remove(index);
        }
    }

    /// Each record's checksum fails from now on, with this probability.
    pub fn rot(&mut self, share: f64, random: &mut SmallRng) {
        for record in self.segments.iter_mut().flat_map(|segment| &mut segment.records) {
            record.damaged |= random.random_bool(share);
        }
    }

    /// Its process ended: records that were not durable are lost or torn, or all records are lost.
    pub fn lose(&mut self, now: Nanos, all: bool, torn: f64, random: &mut SmallRng) {
        for segment in &mut self.segments {
            segment.records.retain_mut(|record| {
                if record.durable > now && torn > 0.0 && random.random_bool(torn) {
                    record.damaged = true;
                    return !all;
                }
                !all && record.durable <= now
            });
        }
        self.segments.retain(|segment| !segment.records.is_empty());
    }

    /// The records that a restart finds.
    pub fn restored(&self) -> impl Iterator<Item = (u64, Vec<Restored>)> + '_ {
        let restored = |record: &Record| {
            let location = record.location;
            Restored::new(&record.key, location.offset(), location.bytes())
        };
        let records = move |segment: &Segment| {
            (segment.number, segment.records.iter().filter_map(restored).collect())
        };
        self.segments.iter().map(records)
    }
}
