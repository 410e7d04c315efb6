//! The store's own etags of what this process wrote or read last, so that a write of the same object can name what it replaces
//! without a look at the store first.
//!
//! An etag here may be out of date: another process may have written since. A write that names it is then refused by the
//! store, and the writer looks. So this saves a request where one process writes an object again that it wrote or read, which is
//! the rule (the primary of a key orders its writes and reads it for the others), and is never trusted.

use std::sync::{Mutex, PoisonError};

use object_store::path::Path;

/// Objects whose etags are remembered, at most: some 2 MB.
const SLOTS: usize = 16_384;
/// The longest etag that is remembered, bytes.
const ETAG_BYTES_MAX: usize = 128;

/// The path's hash and the etag.
type Slot = Option<([u8; 16], Box<str>)>;

/// A table of [`SLOTS`] etags, each in the place that its path's hash says; a later one replaces it.
pub(super) struct Known {
    slots: Box<[Mutex<Slot>]>,
}

impl Default for Known {
    fn default() -> Known {
        Known { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }
}

impl Known {
    fn slot(&self, path: &Path) -> (&Mutex<Slot>, [u8; 16]) {
        let hash = blake3::hash(path.as_ref().as_bytes());
        let mut name = [0; 16];
        name.copy_from_slice(&hash.as_bytes()[..16]);
        let at = u16::from_le_bytes([name[0], name[1]]) as usize % SLOTS;
        (&self.slots[at], name)
    }

    /// Takes the etag of an object as it was seen last, if it is known: the next write makes another.
    pub fn take(&self, path: &Path) -> Option<String> {
        let (slot, name) = self.slot(path);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take_if(|(of, _)| *of == name).map(|(_, etag)| etag.into_string())
    }

    /// The etag of an object as it was seen last, if it is known.
    pub fn get(&self, path: &Path) -> Option<String> {
        let (slot, name) = self.slot(path);
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().filter(|(of, _)| *of == name).map(|(_, etag)| etag.to_string())
    }

    /// Remembers the etag that the store gave a write or a read.
    pub fn set(&self, path: &Path, etag: String) {
        if etag.len() > ETAG_BYTES_MAX {
            return;
        }
        let (slot, name) = self.slot(path);
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, etag.into_boxed_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_taken_once_and_of_its_own_path() {
        let known = Known::default();
        let paths: Vec<Path> = (0..1000).map(|i| Path::from(format!("o/{i}"))).collect();
        for (i, path) in paths.iter().enumerate() {
            known.set(path, format!("\"{i}\""));
        }
        let mut found = 0;
        for (i, path) in paths.iter().enumerate() {
            assert_eq!(known.get(path), known.get(path));
            if let Some(etag) = known.get(path) {
                assert_eq!(known.take(path), Some(etag.clone()));
                assert_eq!(etag, format!("\"{i}\""));
                found += 1;
            }
            assert_eq!(known.take(path), None);
        }
        // Few of 1,000 share one of 16,384 places.
        assert!(found > 900, "{found}");
        known.set(&paths[0], "x".repeat(ETAG_BYTES_MAX + 1));
        assert_eq!(known.take(&paths[0]), None);
    }
}
