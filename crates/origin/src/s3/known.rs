//! The store's own etags of what this process wrote or read last, so that a write of the same object can name what it replaces
//! without a look at the store first.
//!
//! An etag here may be out of date: another process may have written since. A write that names it is then refused by the
//! store, and the writer looks. So this saves a request where one process writes an object again that it wrote or read, which is
//! the rule (the primary of a key orders its writes and reads it for the others), and is never trusted.
//!
//! They also show what other tools rewrite and keep our metadata with: the version in it is then that of the bytes before, and
//! the store's etag is another. Such an object is that tool's ([`EtagTable::is_rewritten`]). This is known to who has seen
//! the object before, or has found that its bytes do not match; it is not stored, because metadata goes to a store before
//! the store says which etag it gives.

use std::sync::{Mutex, PoisonError};

use crate::metadata::Metadata;

/// Objects whose etags are remembered, at most: some 2 MB.
const SLOTS: usize = 16_384;
/// The longest etag that is remembered, bytes.
const ETAG_BYTES_MAX: usize = 128;

/// What in our metadata belongs to one write: its version and time, hashed. Two writes of the same bytes differ in the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal([u8; 16]);

impl Seal {
    /// That of an object's metadata.
    pub fn of_metadata(metadata: &Metadata) -> Seal {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&metadata.modified_unix_us.to_le_bytes());
        hasher.update(metadata.etag.to_string().as_bytes());
        let mut seal = [0; 16];
        hasher.finalize_xof().fill(&mut seal);
        Seal(seal)
    }
}

/// An object as it was seen last.
struct Sight {
    /// The hash of its path.
    name: [u8; 16],
    /// The store's etag.
    etag: Box<str>,
    /// Our metadata with it, if that was seen.
    seal: Option<Seal>,
    /// Whether this etag came with metadata of another one's write.
    is_rewritten: bool,
}

type Slot = Option<Sight>;

/// A table of [`SLOTS`] etags, each in the place that its path's hash says; a later one replaces it.
pub(super) struct EtagTable {
    slots: Box<[Mutex<Slot>]>,
}

impl Default for EtagTable {
    fn default() -> EtagTable {
        EtagTable { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }
}

impl EtagTable {
    fn slot(&self, path: &str) -> (&Mutex<Slot>, [u8; 16]) {
        let hash = blake3::hash(path.as_bytes());
        let mut name = [0; 16];
        name.copy_from_slice(&hash.as_bytes()[..16]);
        let at = u16::from_le_bytes([name[0], name[1]]) as usize % SLOTS;
        (&self.slots[at], name)
    }

    /// Takes the etag of an object as it was seen last, if it is known: the next write makes another.
    pub fn take(&self, path: &str) -> Option<String> {
        let (slot, name) = self.slot(path);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take_if(|sight| sight.name == name).map(|sight| sight.etag.into_string())
    }

    /// The etag of an object as it was seen last, if it is known.
    pub fn get(&self, path: &str) -> Option<String> {
        let (slot, name) = self.slot(path);
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().filter(|sight| sight.name == name).map(|sight| sight.etag.to_string())
    }

    /// Remembers the etag that the store gave a write, with the metadata that was sent.
    pub fn set(&self, path: &str, etag: String, seal: Option<Seal>) {
        if etag.len() > ETAG_BYTES_MAX {
            return;
        }
        let (slot, name) = self.slot(path);
        let sight = Sight { name, etag: etag.into_boxed_str(), seal, is_rewritten: false };
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(sight);
    }

    /// Remembers an object that was read, and tells whether another tool wrote it and kept our metadata: `None` if not,
    /// otherwise whether this is seen for the first time.
    pub fn is_rewritten(&self, path: &str, etag: &str, seal: Seal) -> Option<bool> {
        if etag.len() > ETAG_BYTES_MAX {
            return None;
        }
        let (slot, name) = self.slot(path);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let before = slot.as_ref().filter(|it| it.name == name && it.seal == Some(seal));
        let rewritten = before.and_then(|before| match *before.etag == *etag {
            true => before.is_rewritten.then_some(false),
            false => Some(true),
        });
        let is_rewritten = rewritten.is_some();
        *slot = Some(Sight { name, etag: etag.into(), seal: Some(seal), is_rewritten });
        rewritten
    }

    /// Notes that an object's bytes are not those of our metadata.
    pub fn mismatched(&self, path: &str, etag: &str, seal: Seal) {
        if etag.len() <= ETAG_BYTES_MAX {
            let (slot, name) = self.slot(path);
            let sight = Sight { name, etag: etag.into(), seal: Some(seal), is_rewritten: true };
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(sight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_taken_once_and_of_its_own_path() {
        let known = EtagTable::default();
        let paths: Vec<String> = (0..1000).map(|i| format!("o/{i}")).collect();
        for (i, path) in paths.iter().enumerate() {
            known.set(path, format!("\"{i}\""), None);
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
        known.set(&paths[0], "x".repeat(ETAG_BYTES_MAX + 1), None);
        assert_eq!(known.take(&paths[0]), None);
    }
    #[test]
    fn an_object_that_keeps_our_metadata_under_another_etag_was_rewritten() {
        let known = EtagTable::default();
        let path = "o";
        let (ours, later) = (Seal([1; 16]), Seal([2; 16]));
        assert_eq!(known.is_rewritten(path, "a", ours), None);
        assert_eq!(known.is_rewritten(path, "a", ours), None);
        assert_eq!(known.is_rewritten(path, "b", ours), Some(true));
        assert_eq!(known.is_rewritten(path, "b", ours), Some(false));
        // Another process of ours wrote it.
        assert_eq!(known.is_rewritten(path, "c", later), None);
        known.set(path, "d".to_owned(), Some(ours));
        assert_eq!(known.is_rewritten(path, "d", ours), None);
        assert_eq!(known.is_rewritten(path, "e", ours), Some(true));
        // Nothing was seen before, but the bytes differ.
        let other = "p";
        known.mismatched(other, "a", ours);
        assert_eq!(known.is_rewritten(other, "a", ours), Some(false));
    }
}
