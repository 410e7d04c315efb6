//! What the simulated origin holds.

use rand::RngExt;
use rand::rngs::SmallRng;

use super::check::{Checker, ReadResult, Version};
use super::happening::etag;
use super::settings::Settings;
use crate::Size;

/// A key's last version.
#[derive(Clone, Copy)]
pub(super) struct Object {
    pub version: Version,
    /// Number of writes that clients have begun.
    begun: Version,
    /// `None` if it was deleted.
    pub bytes: Option<u64>,
}

impl Object {
    /// The version of the object; `None` if there is none.
    pub fn present(&self) -> Option<Version> {
        self.bytes.map(|_| self.version)
    }
}

/// The contents and state of the origin.
pub(super) struct Store {
    pub objects: Vec<Object>,
    /// Number of active faults that keep it down.
    pub dead: u32,
    /// Number of active faults by which it answers errors alone.
    pub refuses: u32,
    /// Factor on its service times.
    pub factor: f64,
    /// Bytes of an object's metadata.
    metadata_bytes: u64,
}

impl Store {
    pub fn new(settings: &Settings, random: &mut SmallRng, checker: &mut Checker) -> Store {
        let (min, max) = settings.clients.bytes;
        let object = |key: u32| {
            let bytes = Some(random.random_range(min..=max));
            if settings.check {
                // The first version of each key is in the origin from the start, and acknowledged.
                checker.begin(key, bytes, 0);
                checker.landed(key, 1);
                _ = checker.acknowledged(key, 1, 0);
            }
            Object { version: 1, begun: 1, bytes }
        };
        let objects = (0..settings.clients.keys).map(object).collect();
        let metadata_bytes = settings.origin.metadata_bytes;
        Store { objects, dead: 0, refuses: 0, factor: 1.0, metadata_bytes }
    }

    /// The number of a client's next write of a key.
    pub fn number(&mut self, key: u32) -> Version {
        let Some(object) = self.objects.get_mut(key as usize) else { return 0 };
        object.begun += 1;
        object.begun
    }

    /// The origin's content of a key, as a read would return it.
    pub fn holds(&self, key: u32) -> ReadResult {
        match self.objects.get(key as usize) {
            Some(Object { version, bytes: Some(bytes), .. }) => {
                ReadResult::Version { key, version: *version, bytes: *bytes }
            }
            _ => ReadResult::Nothing,
        }
    }

    /// The stored object of a key.
    pub fn payload(&self, key: u32) -> Option<Size> {
        let object = self.objects.get(key as usize)?;
        Some(self.payload_of(key, object.version, object.bytes?))
    }

    /// A version of a key.
    pub fn payload_of(&self, key: u32, version: Version, bytes: u64) -> Size {
        let stored_bytes = bytes + self.metadata_bytes;
        Size { bytes, stored_bytes, etag: etag(key, version) }
    }
}
