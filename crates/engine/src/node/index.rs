//! Where the devices hold objects: one place on a bulk device, and perhaps a second on a hot one.

use std::collections::HashMap;

use super::cluster::Verified;
use super::event::DeviceId;
use crate::tier::Location;
use crate::{Etag, Key};

/// A record of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub device: DeviceId,
    pub location: Location,
}

/// An object on devices. Its records hold the same version.
pub(super) struct OnDevices {
    main: Option<Place>,
    /// Most objects have none.
    hot: Option<Box<Place>>,
    pub etag: Etag,
    /// When the origin was last known to hold this version; `None` after a restart.
    pub verified: Option<Verified>,
}

impl OnDevices {
    /// Its place on a bulk device, or on any device of a node without hot devices.
    pub fn main(&self) -> Option<Place> {
        self.main
    }

    /// Its place on a hot device.
    pub fn hot(&self) -> Option<Place> {
        self.hot.as_deref().copied()
    }

    /// Its places, the hot one first.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.hot().into_iter().chain(self.main)
    }

    /// Its place on a device.
    pub fn on(&self, device: DeviceId) -> Option<Place> {
        self.places().find(|place| place.device == device)
    }

    /// Length of its record.
    pub fn bytes(&self) -> u64 {
        self.places().next().map_or(0, |place| place.location.bytes())
    }
}

/// What of a device's log is in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    pub objects: u64,
    pub bytes: u64,
}

/// All objects on devices, by key.
#[derive(Default)]
pub(super) struct Index {
    objects: HashMap<Key, OnDevices>,
    /// By device; grows to the highest device seen.
    live: Vec<Live>,
}

impl Index {
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// What the index holds of a device.
    pub fn live(&self, device: DeviceId) -> Live {
        self.live.get(device).copied().unwrap_or_default()
    }

    pub fn get(&self, key: &[u8]) -> Option<&OnDevices> {
        self.objects.get(key)
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut OnDevices> {
        self.objects.get_mut(key)
    }

    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.objects.contains_key(key)
    }

    /// Adds a record. A record of another version takes the place of all that there is of the key;
    /// of two verifications of one version, the later counts.
    pub fn put(
        &mut self,
        key: Key,
        place: Place,
        is_hot: bool,
        etag: Etag,
        verified: Option<Verified>,
    ) {
        count(&mut self.live, place, true);
        let Some(on) = self.objects.get_mut(&key) else {
            let (main, hot) =
                if is_hot { (None, Some(Box::new(place))) } else { (Some(place), None) };
            self.objects.insert(key, OnDevices { main, hot, etag, verified });
            return;
        };
        let other = on.etag != etag;
        let replaced = match (other, is_hot) {
            (true, _) => [on.main.take(), on.hot.take().map(|place| *place)],
            (false, true) => [None, on.hot.take().map(|place| *place)],
            (false, false) => [on.main.take(), None],
        };
        replaced.into_iter().flatten().for_each(|place| count(&mut self.live, place, false));
        if is_hot {
            on.hot = Some(Box::new(place));
        } else {
            on.main = Some(place);
        }
        on.verified = match (on.verified.take().filter(|_| !other), verified) {
            (Some(before), Some(now)) if before.at > now.at => Some(before),
            (before, now) => now.or(before),
        };
        on.etag = etag;
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        *self = Index::default();
    }

    /// Removes a key; returns whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let Some(on) = self.objects.remove(key) else { return false };
        on.places().for_each(|place| count(&mut self.live, place, false));
        true
    }

    /// Removes the record of a key on a device if it is one of those asked for; returns whether it
    /// was.
    pub fn remove_place(
        &mut self,
        key: &[u8],
        device: DeviceId,
        is: impl Fn(Location) -> bool,
    ) -> bool {
        let Some(on) = self.objects.get_mut(key) else { return false };
        let Some(place) = on.on(device).filter(|place| is(place.location)) else { return false };
        if on.hot() == Some(place) {
            on.hot = None;
        } else {
            on.main = None;
        }
        if on.main.is_none() && on.hot.is_none() {
            self.objects.remove(key);
        }
        count(&mut self.live, place, false);
        true
    }

    /// Removes the bulk record alone: for a mutant that keeps the hot one.
    pub fn remove_main(&mut self, key: &[u8]) {
        if let Some(main) = self.get(key).and_then(OnDevices::main) {
            self.remove_place(key, main.device, |location| location == main.location);
        }
    }
}

fn count(live: &mut Vec<Live>, place: Place, more: bool) {
    if live.len() <= place.device {
        live.resize(place.device + 1, Live::default());
    }
    let live = &mut live[place.device];
    let bytes = place.location.bytes();
    (live.objects, live.bytes) = match more {
        true => (live.objects + 1, live.bytes + bytes),
        false => (live.objects.saturating_sub(1), live.bytes.saturating_sub(bytes)),
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node::cluster::Authority;

    /// The naive twin: a list of records.
    type Record = (u8, DeviceId, u64, u8);

    proptest! {
        #[test]
        fn agrees_with_a_list_of_records(
            steps in prop::collection::vec((0u8..5, 0u8..6, 0usize..4, 0u8..2), 0..200),
        ) {
            let (mut index, mut naive) = (Index::default(), Vec::<Record>::new());
            for (number, (what, key, device, version)) in steps.into_iter().enumerate() {
                let (name, number) = ([key], number as u64);
                match what {
                    0..=2 => {
                        let location = Location::new(number / 10, number, 10 + number);
                        let (is_hot, etag) = (device >= 2, format!("{version}").into());
                        let verified = Verified { at: number, authority: Authority::ALONE };
                        let place = Place { device, location };
                        index.put(name[..].into(), place, is_hot, etag, Some(verified));
                        naive.retain(|r| r.0 != key || r.3 == version && (r.1 >= 2) != is_hot);
                        naive.push((key, device, number, version));
                    }
                    3 => {
                        let there = naive.iter().any(|r| r.0 == key);
                        prop_assert_eq!(index.remove(&name), there);
                        naive.retain(|r| r.0 != key);
                    }
                    _ => {
                        index.remove_place(&name, device, |l| l.segment() % 2 == 0);
                        naive.retain(|r| r.0 != key || r.1 != device || r.2 / 10 % 2 != 0);
                    }
                }
                for key in 0u8..6 {
                    let mut expected: Vec<_> =
                        naive.iter().filter(|r| r.0 == key).map(|r| (r.1, r.2)).collect();
                    expected.sort_unstable();
                    let on = index.get(&[key]);
                    let places = on.into_iter().flat_map(OnDevices::places);
                    let mut places: Vec<_> =
                        places.map(|p| (p.device, p.location.offset())).collect();
                    places.sort_unstable();
                    prop_assert_eq!(places, expected);
                }
                for device in 0..4 {
                    let of = naive.iter().filter(|r| r.1 == device);
                    let (objects, bytes) = of.fold((0, 0), |(n, b), r| (n + 1, b + 10 + r.2));
                    prop_assert_eq!(index.live(device), Live { objects, bytes });
                }
            }
        }
    }
}
