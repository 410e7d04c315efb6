//! Memory for the appends of a process, as [`engine::dataset::Room`] divides it.

use std::sync::{Arc, Mutex, PoisonError};

use dataset::chunk::CHUNK_BYTES_MAX;

/// Maximum bytes of one append.
pub(super) const APPEND_BYTES_MAX: usize = CHUNK_BYTES_MAX / 2;
/// Maximum total bytes of the appends in progress.
pub(super) const APPENDS_BYTES_MAX: usize = 4 * APPEND_BYTES_MAX;

/// The memory, shared by all datasets.
#[derive(Clone)]
pub struct Room(Arc<Mutex<engine::dataset::Room>>);

/// An append's share, returned when it is dropped.
pub struct Reserved {
    room: Room,
    bytes: usize,
}

impl Room {
    /// Memory for appends of `bytes` together.
    pub fn new(bytes: usize) -> Room {
        Room(Arc::new(Mutex::new(engine::dataset::Room::new(bytes))))
    }

    /// Takes memory for an append; `None` if it is to be refused.
    pub fn take(&self, bytes: usize) -> Option<Reserved> {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        room.take(bytes).then(|| Reserved { room: self.clone(), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut room = self.room.0.lock().unwrap_or_else(PoisonError::into_inner);
        room.give_back(self.bytes);
    }
}
