//! Where the devices hold objects: one place on a bulk device, and perhaps a second on a hot one.
//!
//! An entry is 11 bytes of a [`Table`]; it has neither key nor version. So what is found for a key
//! may be another key's record, and two records of a key may be of different versions: who reads a
//! record compares its key, and each record has a verification of its own, which only a comparison of
//! that very record gives it.
//!
//! A dropped segment's entries are not searched for: they count as gone at once, and a sweep, which
//! goes on a little with each record that is added, takes them out.

use std::collections::HashMap;

use ground::window::key_hash;

use super::authorities::Verified;
use super::event::{DeviceId, RestoredSegment};
use super::stamps::Stamps;
use crate::tier::{Item, Location, Restored, Run, Table, Work, class_bytes, length_class};

/// Entries that are swept for each record that is added: a sixteenth of the table may be entries
/// that are gone.
const SWEPT: usize = 16;
/// A sweep goes through the table in the time of so many new verifications.
const SWEPT_PART: usize = 256;

/// A record of an object. Its location has its length rounded up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub device: DeviceId,
    pub location: Location,
}

impl Place {
    /// Whether this is the same record, however its length is rounded.
    pub fn is(&self, other: &Place) -> bool {
        let place = |p: &Place| (p.device, p.location.segment(), p.location.offset());
        place(self) == place(other)
    }
}

/// A record that may be an object's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Record {
    pub place: Place,
    /// When the origin was last known to hold this version; `None` after a restart.
    pub verified: Option<Verified>,
}

/// The records that may be an object's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OnDevices {
    main: Option<Record>,
    hot: Option<Record>,
}

impl OnDevices {
    /// Its place on a bulk device, or on any device of a node without hot devices.
    pub fn main(&self) -> Option<Place> {
        self.main.map(|record| record.place)
    }

    /// Its place on a hot device.
    pub fn hot(&self) -> Option<Place> {
        self.hot.map(|record| record.place)
    }

    /// Its records, the hot one first.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.hot.into_iter().chain(self.main)
    }

    /// Its places, the hot one first.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.records().map(|record| record.place)
    }

    /// Those of its records for which something holds.
    pub fn filter(&self, holds: impl Fn(&Record) -> bool) -> OnDevices {
        OnDevices { main: self.main.filter(&holds), hot: self.hot.filter(&holds) }
    }

    /// Its record on a device.
    pub fn on(&self, device: DeviceId) -> Option<Record> {
        self.records().find(|record| record.place.device == device)
    }

    /// Its record at a place.
    pub fn record_at(&self, place: Place) -> Option<Record> {
        self.records().find(|record| record.place.is(&place))
    }

    /// Length of its record, rounded up.
    pub fn bytes(&self) -> u64 {
        self.places().next().map_or(0, |place| place.location.bytes())
    }
}

/// What of a device's log is in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    pub objects: u64,
    /// Each record's length is rounded up.
    pub bytes: u64,
    is_hot: bool,
}

/// A segment that entries are in.
struct Slot {
    device: DeviceId,
    segment: u64,
    is_hot: bool,
    /// It was dropped.
    dropped: bool,
    /// Its entries in the table.
    entries: u64,
    bytes: u64,
}

/// The segments, by the number that entries have.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    of: HashMap<(DeviceId, u64), u16>,
    /// By device; grows to the highest device seen.
    live: Vec<Live>,
}

impl Slots {
    /// The slot of a segment; `None` if there are too many.
    fn get(&mut self, device: DeviceId, segment: u64, is_hot: bool) -> Option<u16> {
        if let Some(&number) = self.of.get(&(device, segment)) {
            return Some(number);
        }
        let slot = Slot { device, segment, is_hot, dropped: false, entries: 0, bytes: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[usize::from(number)] = slot;
                number
            }
            None => {
                let number = u16::try_from(self.slots.len()).ok()?;
                self.slots.push(slot);
                number
            }
        };
        self.of.insert((device, segment), number);
        if self.live.len() <= device {
            self.live.resize(device + 1, Live::default());
        }
        self.live[device].is_hot = is_hot;
        Some(number)
    }

    /// An item that was added.
    fn added(&mut self, item: &Item) {
        let slot = &mut self.slots[usize::from(item.slot)];
        let bytes = class_bytes(item.class);
        (slot.entries, slot.bytes) = (slot.entries + 1, slot.bytes + bytes);
        let live = &mut self.live[slot.device];
        (live.objects, live.bytes) = (live.objects + 1, live.bytes + bytes);
    }

    /// Records that were found in a segment.
    fn filled(&mut self, slot: u16, records: &[Restored]) {
        let slot = &mut self.slots[usize::from(slot)];
        let count = records.len() as u64;
        let bytes = records.iter().map(|record| class_bytes(length_class(record.bytes.into())));
        let bytes = bytes.sum::<u64>();
        (slot.entries, slot.bytes) = (slot.entries + count, slot.bytes + bytes);
        let live = &mut self.live[slot.device];
        (live.objects, live.bytes) = (live.objects + count, live.bytes + bytes);
    }

    /// An item that was removed.
    fn removed(&mut self, item: &Item) {
        let slot = &mut self.slots[usize::from(item.slot)];
        slot.entries -= 1;
        if slot.dropped {
            if slot.entries == 0 {
                self.free.push(item.slot);
            }
            return;
        }
        let bytes = class_bytes(item.class);
        slot.bytes -= bytes;
        let live = &mut self.live[slot.device];
        (live.objects, live.bytes) = (live.objects - 1, live.bytes - bytes);
    }

    /// A segment is gone; returns how many of its records counted.
    fn drop(&mut self, device: DeviceId, segment: u64) -> u64 {
        let Some(number) = self.of.remove(&(device, segment)) else { return 0 };
        let slot = &mut self.slots[usize::from(number)];
        slot.dropped = true;
        let live = &mut self.live[device];
        (live.objects, live.bytes) = (live.objects - slot.entries, live.bytes - slot.bytes);
        if slot.entries == 0 {
            self.free.push(number);
        }
        slot.entries
    }
}

/// All records on devices.
pub(super) struct Index {
    table: Table,
    slots: Slots,
    stamps: Stamps,
    bits: u32,
}

impl Index {
    /// No records. `bits` is the number of bits of a hash by which keys are told apart.
    pub fn new(bits: u32, stamps: Stamps) -> Index {
        Index { table: Table::new(bits), slots: Slots::default(), stamps, bits }
    }

    /// Records, without second copies on hot devices.
    pub fn len(&self) -> usize {
        let live = self.slots.live.iter().filter(|live| !live.is_hot);
        live.map(|live| live.objects).sum::<u64>() as usize
    }

    /// Bytes of memory that entries take.
    pub fn memory_bytes(&self) -> u64 {
        self.table.memory_bytes() as u64
    }

    /// What the index holds of a device.
    pub fn live(&self, device: DeviceId) -> Live {
        self.slots.live.get(device).copied().unwrap_or_default()
    }

    /// The records that may be a key's; `None` without any.
    pub fn get(&self, key: &[u8]) -> Option<OnDevices> {
        let mut on = OnDevices::default();
        for item in self.table.get(key_hash(key)) {
            let slot = &self.slots.slots[usize::from(item.slot)];
            if slot.dropped {
                continue;
            }
            let location =
                Location::new(slot.segment, u64::from(item.offset), class_bytes(item.class));
            let place = Place { device: slot.device, location };
            let record = Some(Record { place, verified: self.stamps.verified(item.stamp) });
            if slot.is_hot {
                on.hot = record;
            } else {
                on.main = record;
            }
        }
        (on.main.is_some() || on.hot.is_some()).then_some(on)
    }

    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Adds a record, in place of the one of its class. `counts` says whether a verification still
    /// counts.
    pub fn put(
        &mut self,
        key: &[u8],
        place: Place,
        is_hot: bool,
        verified: Option<Verified>,
        counts: &dyn Fn(&Verified) -> bool,
    ) {
        let hash = key_hash(key);
        self.remove_if(hash, |slots, item| slots.slots[usize::from(item.slot)].is_hot == is_hot);
        let (stamp, many) = self.stamps.code(verified);
        if let Some(item) = self.item(place, is_hot, stamp)
            && self.table.insert(hash, item)
        {
            self.slots.added(&item);
            self.stamps.add_record(stamp);
        }
        self.stamps.remove_record(stamp);
        if many {
            self.stamps.expire(counts);
        }
        self.sweep(if many { self.table.len() / SWEPT_PART + SWEPT } else { SWEPT });
    }

    /// The entry of a record; `None` if it lies too far behind in its segment, or if there are too
    /// many segments. Such a record is as good as not written.
    fn item(&mut self, place: Place, is_hot: bool, stamp: u16) -> Option<Item> {
        let Place { device, location } = place;
        let offset = u32::try_from(location.offset()).ok()?;
        let slot = self.slots.get(device, location.segment(), is_hot)?;
        Some(Item { slot, offset, class: length_class(location.bytes()), stamp })
    }

    fn sweep(&mut self, entries: usize) {
        let Index { table, slots, stamps, .. } = self;
        table.sweep(entries, |item| {
            if slots.slots[usize::from(item.slot)].dropped {
                slots.removed(item);
                stamps.remove_record(item.stamp);
                return false;
            }
            if stamps.is_over(item.stamp) {
                stamps.remove_record(item.stamp);
                item.stamp = 0;
            }
            true
        });
    }

    /// A record at a place was compared with the origin.
    pub fn verify(
        &mut self,
        key: &[u8],
        place: Place,
        verified: Option<Verified>,
        counts: &dyn Fn(&Verified) -> bool,
    ) {
        let (stamp, many) = self.stamps.code(verified);
        let Index { table, slots, stamps, .. } = self;
        table.retain_of(key_hash(key), |item| {
            if slots.is(item, place) {
                stamps.add_record(stamp);
                stamps.remove_record(item.stamp);
                item.stamp = stamp;
            }
            true
        });
        stamps.remove_record(stamp);
        if many {
            self.stamps.expire(counts);
            self.sweep(self.table.len() / SWEPT_PART + SWEPT);
        }
    }

    /// Adds the records of segments that were found on devices, in place of none: of a key's records
    /// of one class, the last counts. Returns whether the index was empty; otherwise it does nothing.
    pub fn restore(
        &mut self,
        found: &[RestoredSegment<'_>],
        is_hot: impl Fn(DeviceId) -> bool,
        verified: Option<Verified>,
        carry_out: impl FnOnce(Vec<Work<'_>>),
    ) -> bool {
        let Index { table, slots, stamps, .. } = self;
        if !table.is_empty() {
            return false;
        }
        let (stamp, _) = stamps.code(verified);
        let mut runs = Vec::with_capacity(found.len());
        for &RestoredSegment { device, segment, records } in
            found.iter().filter(|f| !f.records.is_empty())
        {
            let Some(slot) = slots.get(device, segment, is_hot(device)) else { continue };
            slots.filled(slot, records);
            stamps.add_records(stamp, records.len());
            runs.push(Run { slot, stamp, records });
        }
        stamps.remove_record(stamp);
        let hot: Vec<bool> = slots.slots.iter().map(|slot| slot.is_hot).collect();
        let class = |item: &Item| hot[usize::from(item.slot)];
        let same = |later: &Item, earlier: &Item| class(later) == class(earlier);
        for item in table.fill(&runs, same, carry_out) {
            slots.removed(&item);
            stamps.remove_record(item.stamp);
        }
        true
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        let Index { table, slots, stamps, bits } = self;
        *table = Table::new(*bits);
        *slots = Slots::default();
        stamps.clear();
    }

    /// Removes the records of a key; returns whether there were any.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.remove_if(key_hash(key), |_, _| true)
    }

    /// Removes the record of a key at a place; returns whether it was there.
    pub fn remove_place(&mut self, key: &[u8], place: Place) -> bool {
        self.remove_if(key_hash(key), |slots, item| slots.is(item, place))
    }

    /// Removes the bulk record alone: for a mutant that keeps the hot one.
    pub fn remove_main(&mut self, key: &[u8]) {
        self.remove_if(key_hash(key), |slots, item| !slots.slots[usize::from(item.slot)].is_hot);
    }

    fn remove_if(&mut self, hash: u64, goes: impl Fn(&Slots, &Item) -> bool) -> bool {
        let Index { table, slots, stamps, .. } = self;
        let mut any = false;
        table.retain_of(hash, |item| {
            if !goes(slots, item) {
                return true;
            }
            any |= !slots.slots[usize::from(item.slot)].dropped;
            slots.removed(item);
            stamps.remove_record(item.stamp);
            false
        });
        any
    }

    /// Removes all records in a segment that was dropped; returns how many there were.
    pub fn drop_segment(&mut self, device: DeviceId, segment: u64) -> u64 {
        self.slots.drop(device, segment)
    }
}

impl Slots {
    /// Whether an item is the record at a place.
    fn is(&self, item: &Item, place: Place) -> bool {
        let slot = &self.slots[usize::from(item.slot)];
        let Place { device, location } = place;
        !slot.dropped
            && (slot.device, slot.segment) == (device, location.segment())
            && u64::from(item.offset) == location.offset()
    }
}

#[cfg(test)]
mod tests {
    use ground::window::Nanos;
    use proptest::prelude::*;

    use super::*;
    use crate::node::authorities::Authority;
    use crate::tier::HASH_BITS;

    /// The naive twin: a list of records (key, device, number, when verified). A record of segment
    /// `number / 10`.
    type Listed = (u8, DeviceId, u64, Option<Nanos>);

    fn place(device: DeviceId, number: u64) -> Place {
        Place { device, location: Location::new(number / 10, number, 16 * (1 + number % 15)) }
    }

    fn verified(at: Nanos) -> Option<Verified> {
        Some(Verified { at, authority: Authority::ALONE })
    }

    /// Devices 2 and 3 are hot: a record takes the place of the key's other one of its class.
    fn replace(naive: &mut Vec<Listed>, new: Listed) {
        naive.retain(|r| r.0 != new.0 || (r.1 >= 2) != (new.1 >= 2));
        naive.push(new);
    }

    fn restore(
        index: &mut Index,
        naive: &mut Vec<Listed>,
        restored: Vec<(u8, DeviceId)>,
    ) -> Result<(), TestCaseError> {
        let mut segments = Vec::<(DeviceId, u64, Vec<Restored>)>::new();
        for (number, (key, device)) in (0..).zip(restored) {
            let bytes = 16 * (1 + number as u32 % 15);
            let record = Restored { hash: key_hash(&[key]), offset: number as u32, bytes };
            let segment = (device, number / 10, vec![record]);
            match segments.iter_mut().find(|s| (s.0, s.1) == (segment.0, segment.1)) {
                Some(of) => of.2.push(record),
                None => segments.push(segment),
            }
        }
        // In the order of the devices and segments, not of the numbers.
        segments.sort_by_key(|segment| (segment.0, segment.1));
        for (device, _, records) in &segments {
            for record in records {
                let key = (0u8..6).find(|key| key_hash(&[*key]) == record.hash).unwrap();
                replace(naive, (key, *device, record.offset.into(), None));
            }
        }
        let found: Vec<RestoredSegment<'_>> = segments
            .iter()
            .map(|(device, segment, records)| RestoredSegment {
                device: *device,
                segment: *segment,
                records,
            })
            .collect();
        let in_turn = |work: Vec<Work<'_>>| work.into_iter().for_each(|work| work());
        prop_assert!(index.restore(&found, |device| device >= 2, None, in_turn));
        Ok(())
    }

    fn compare(index: &mut Index, naive: &[Listed]) -> Result<(), TestCaseError> {
        for key in 0u8..6 {
            let mut expected: Vec<_> =
                naive.iter().filter(|r| r.0 == key).map(|r| (r.1, r.2, r.3)).collect();
            expected.sort_unstable();
            let records = index.get(&[key]).into_iter();
            let mut records: Vec<_> = records
                .flat_map(|on| on.records().collect::<Vec<_>>())
                .map(|r| (r.place.device, r.place.location.offset(), r.verified.map(|v| v.at)))
                .collect();
            records.sort_unstable();
            prop_assert_eq!(records, expected);
        }
        for device in 0..4 {
            let of = naive.iter().filter(|r| r.1 == device);
            let (objects, bytes) = of.fold((0, 0), |(n, b), r| (n + 1, b + 16 * (1 + r.2 % 15)));
            let live = index.live(device);
            prop_assert_eq!((live.objects, live.bytes), (objects, bytes));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_records(
            restored in prop::collection::vec((0u8..6, 0usize..4), 0..60),
            steps in prop::collection::vec((0u8..9, 0u8..6, 0usize..4), 0..300),
        ) {
            // Times are rounded to 100.
            let mut index = Index::new(HASH_BITS, Stamps::new(Some(6400), 1));
            let mut naive = Vec::<Listed>::new();
            let before = restored.len() as u64;
            restore(&mut index, &mut naive, restored)?;
            for (number, (what, key, device)) in (before..).zip(steps) {
                let counts = |verified: &Verified| verified.at + 6400 > number * 100;
                match what {
                    0..=3 => {
                        let verified = verified(number * 100 + 7);
                        index.put(&[key], place(device, number), device >= 2, verified, &counts);
                        replace(&mut naive, (key, device, number, Some(number * 100)));
                    }
                    4 => {
                        let there = naive.iter().any(|r| r.0 == key);
                        prop_assert_eq!(index.remove(&[key]), there);
                        naive.retain(|r| r.0 != key);
                    }
                    5 => {
                        let of = naive.iter().find(|r| r.0 == key && r.1 == device).copied();
                        let gone = place(device, of.map_or(number, |r| r.2));
                        prop_assert_eq!(index.remove_place(&[key], gone), of.is_some());
                        naive.retain(|r| Some(*r) != of);
                    }
                    6 => {
                        let segment = number / 10 - u64::from(key).min(number / 10);
                        let goes = |r: &Listed| r.1 == device && r.2 / 10 == segment;
                        let there = naive.iter().filter(|r| goes(r)).count();
                        prop_assert_eq!(index.drop_segment(device, segment), there as u64);
                        naive.retain(|r| !goes(r));
                    }
                    _ => {
                        let now = Some(number * 100);
                        let of = naive.iter_mut().find(|r| r.0 == key && r.1 == device);
                        let at = of.as_ref().map_or(number, |r| r.2);
                        index.verify(&[key], place(device, at), verified(number * 100), &counts);
                        of.into_iter().for_each(|r| r.3 = now);
                    }
                }
                compare(&mut index, &naive)?;
            }
            // Codes and slots are given back.
            for key in 0u8..6 {
                index.remove(&[key]);
            }
            index.sweep(10_000);
            prop_assert!(index.table.is_empty());
            prop_assert!(index.slots.slots.iter().all(|slot| slot.entries == 0));
        }
    }

    /// A sweep brings codes back while ever new verifications come, and none comes to count again.
    #[test]
    fn verifications_come_and_go() {
        let mut index = Index::new(HASH_BITS, Stamps::new(Some(6400), 1));
        for step in 0u64..200_000 {
            let now = step * 10;
            let counts = |verified: &Verified| verified.at + 6400 > now;
            let key = (step * 7919 % 10_000).to_le_bytes();
            index.put(&key, place(0, step), false, verified(now), &counts);
            let of = index.get(&key).and_then(|on| on.main).and_then(|record| record.verified);
            assert!(of.is_some_and(|of| of.at <= now && of.at + 100 > now), "{of:?} at {now}");
            if step >= 10_000 {
                let old = ((step - 900) * 7919 % 10_000).to_le_bytes();
                let of = index.get(&old).and_then(|on| on.main).and_then(|record| record.verified);
                assert!(of.is_none_or(|of| of.at <= now - 9000), "{of:?} at {now}");
            }
        }
    }
}
