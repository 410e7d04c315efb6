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
//!
//! And they show that a bucket is the one that was opened: the object that it had is still there if a write that names its etag is made. This
//! holds for what was seen before a look that found the bucket, and for acknowledged writes ([`Proof`]).

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ground::Etag;

use crate::metadata::Metadata;

/// Objects whose etags are remembered, at most: some 2 MB.
const SLOTS: usize = 16_384;
/// The longest etag that is remembered, bytes.
const ETAG_BYTES_MAX: usize = 128;

/// What in our metadata belongs to one write: its version and time, hashed, and its length. Two writes of the same bytes differ
/// in the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    hash: [u8; 16],
    size: u64,
}

impl Seal {
    /// That of an object's metadata.
    pub fn of_metadata(metadata: &Metadata) -> Seal {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&metadata.modified_unix_us.to_le_bytes());
        hasher.update(metadata.etag.to_string().as_bytes());
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        Seal { hash, size: metadata.size }
    }
}

/// Where the object was seen, so that a store that still has it under this etag is known to be the one that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// In the bucket that was opened.
    Acknowledged,
    /// In the bucket that was there at this time.
    Since(Instant),
}

/// An etag to be named by a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownEtag {
    /// The store's etag.
    pub etag: String,
    proof: Proof,
}

impl KnownEtag {
    /// Whether a bucket that has it is the one that was opened, if a look that began at `look` found that one.
    pub fn proves(&self, look: Instant) -> bool {
        match self.proof {
            Proof::Acknowledged => true,
            Proof::Since(seen) => seen <= look,
        }
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
    /// The version that its bytes have, where that was found to be another than our metadata says.
    found: Option<Etag>,
    proof: Proof,
}

impl Sight {
    /// One of now.
    fn new(name: [u8; 16], etag: Box<str>, seal: Option<Seal>, is_rewritten: bool) -> Sight {
        let proof = Proof::Since(Instant::now());
        Sight { name, etag, seal, is_rewritten, found: None, proof }
    }
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
    pub fn take(&self, path: &str) -> Option<KnownEtag> {
        let (slot, name) = self.slot(path);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let sight = slot.take_if(|sight| sight.name == name)?;
        Some(KnownEtag { etag: sight.etag.into_string(), proof: sight.proof })
    }

    /// The etag of an object as it was seen last, if it is known.
    pub fn get(&self, path: &str) -> Option<KnownEtag> {
        let (slot, name) = self.slot(path);
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let sight = slot.as_ref().filter(|sight| sight.name == name)?;
        Some(KnownEtag { etag: sight.etag.to_string(), proof: sight.proof })
    }

    /// Whether [`KnownEtag::proves`] holds of the object's etag.
    pub fn proves(&self, path: &str, look: Instant) -> bool {
        self.get(path).is_some_and(|known| known.proves(look))
    }

    /// Notes that a write with this seal is in the bucket that was opened.
    pub fn acknowledge(&self, path: &str, seal: Seal) {
        let (slot, name) = self.slot(path);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let written = slot.as_mut().filter(|it| it.name == name && it.seal == Some(seal));
        if let Some(sight) = written {
            sight.proof = Proof::Acknowledged;
        }
    }

    /// Forgets what is not known to be in the bucket that was opened: another one was found in its place.
    pub fn distrust(&self) {
        for slot in &self.slots {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.take_if(|sight| sight.proof != Proof::Acknowledged);
        }
    }

    /// Remembers the etag that the store gave a write, with the metadata that was sent.
    pub fn set(&self, path: &str, etag: String, seal: Option<Seal>) {
        if etag.len() > ETAG_BYTES_MAX {
            return;
        }
        let (slot, name) = self.slot(path);
        let sight = Sight::new(name, etag.into_boxed_str(), seal, false);
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(sight);
    }

    /// Whether an object was seen under this etag with another length: an etag stands for the bytes, so one of the two replies
    /// was wrong.
    pub fn had_other_size(&self, path: &str, etag: &str, size: u64) -> bool {
        let (slot, name) = self.slot(path);
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let same = slot.as_ref().filter(|it| it.name == name && *it.etag == *etag);
        same.and_then(|it| it.seal).is_some_and(|seal| seal.size != size)
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
        // What was acknowledged stays so while it is seen again.
        let same = before.filter(|before| *before.etag == *etag);
        let mut sight = Sight::new(name, etag.into(), Some(seal), rewritten.is_some());
        if let Some(before) = same {
            (sight.proof, sight.found) = (before.proof, before.found.clone());
        }
        *slot = Some(sight);
        rewritten
    }

    /// The version that an object's bytes have, if they were found not to be those of our metadata, and twice the same: another
    /// tool's.
    pub fn version_of_bytes(&self, path: &str, etag: &str) -> Option<Etag> {
        let (slot, name) = self.slot(path);
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let known = slot.as_ref().filter(|it| it.name == name && *it.etag == *etag);
        known.filter(|it| it.is_rewritten).and_then(|it| it.found.clone())
    }

    /// Notes that an object's bytes are not those of our metadata, and which version they have. What is found twice was written
    /// so, by another tool. What is found once may have been damaged on its way: were it taken for that tool's, the
    /// next damaged reply would be served, and kept.
    pub fn mismatched(&self, path: &str, etag: &str, seal: Seal, found: Etag) {
        if etag.len() > ETAG_BYTES_MAX {
            return;
        }
        let (slot, name) = self.slot(path);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let known = slot.as_ref().filter(|it| it.name == name && *it.etag == *etag);
        if known.is_some_and(|it| it.is_rewritten && it.found.is_some()) {
            return;
        }
        let is_found_again = known.is_some_and(|it| it.found.as_ref() == Some(&found));
        let mut sight = Sight::new(name, etag.into(), Some(seal), is_found_again);
        sight.found = Some(found);
        *slot = Some(sight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(of: u8) -> Seal {
        Seal { hash: [of; 16], size: 7 }
    }

    #[test]
    fn an_etag_has_one_length() {
        let known = EtagTable::default();
        known.set("o", "a".to_owned(), Some(seal(1)));
        assert!(!known.had_other_size("o", "a", 7));
        assert!(known.had_other_size("o", "a", 6));
        // Another version, another object, and one of which no length is known.
        assert!(!known.had_other_size("o", "b", 6) && !known.had_other_size("p", "a", 6));
        known.set("p", "a".to_owned(), None);
        assert!(!known.had_other_size("p", "a", 6));
    }

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
                assert_eq!(etag.etag, format!("\"{i}\""));
                found += 1;
            }
            assert_eq!(known.take(path), None);
        }
        // Few of 1,000 share one of 16,384 places.
        assert!(found > 900, "{found}");
        known.set(&paths[0], "x".repeat(ETAG_BYTES_MAX + 1), None);
        assert_eq!(known.take(&paths[0]), None);
    }

    /// What was seen before a look that found the bucket was in it, and so is an acknowledged write; what was seen later may be another
    /// bucket's.
    #[test]
    fn an_etag_proves_the_bucket_if_it_is_older_than_a_look_or_acknowledged() {
        let known = EtagTable::default();
        let (ours, others, long_ago) = (seal(1), seal(2), Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(2));
        known.set("o", "a".to_owned(), Some(ours));
        assert!(known.proves("o", Instant::now()));
        assert!(!known.proves("o", long_ago) && !known.proves("p", Instant::now()));
        known.acknowledge("o", others);
        assert!(!known.proves("o", long_ago), "another write's");
        known.acknowledge("o", ours);
        assert!(known.proves("o", long_ago));
        assert_eq!(known.is_rewritten("o", "a", ours), None);
        assert!(known.proves("o", long_ago), "read again");
        assert_eq!(known.is_rewritten("o", "b", others), None);
        assert!(!known.proves("o", long_ago), "read, with another etag");
        known.acknowledge("o", others);
        known.set("p", "c".to_owned(), None);
        known.distrust();
        assert!(known.proves("o", long_ago) && known.get("p").is_none());
        known.mismatched("o", "b", others, "1".into());
        assert!(!known.proves("o", long_ago));
    }

    #[test]
    fn an_object_that_keeps_our_metadata_under_another_etag_was_rewritten() {
        let known = EtagTable::default();
        let path = "o";
        let (ours, later) = (seal(1), seal(2));
        assert_eq!(known.is_rewritten(path, "a", ours), None);
        assert_eq!(known.is_rewritten(path, "a", ours), None);
        assert_eq!(known.is_rewritten(path, "b", ours), Some(true));
        assert_eq!(known.is_rewritten(path, "b", ours), Some(false));
        // Another process of ours wrote it.
        assert_eq!(known.is_rewritten(path, "c", later), None);
        known.set(path, "d".to_owned(), Some(ours));
        assert_eq!(known.is_rewritten(path, "d", ours), None);
        assert_eq!(known.is_rewritten(path, "e", ours), Some(true));
    }

    #[test]
    fn bytes_that_differ_twice_alike_are_another_tools() {
        let (known, ours) = (EtagTable::default(), seal(1));
        let damaged = |found: &str| known.mismatched("p", "a", ours, found.into());
        damaged("1");
        assert_eq!(known.is_rewritten("p", "a", ours), None);
        damaged("2");
        assert_eq!(known.is_rewritten("p", "a", ours), None, "damaged on the way, twice");
        assert_eq!(known.version_of_bytes("p", "a"), None);
        damaged("2");
        assert_eq!(known.is_rewritten("p", "a", ours), Some(false));
        assert_eq!(known.version_of_bytes("p", "a").as_deref(), Some("2"));
        // From then on they are held against what they were.
        damaged("3");
        assert_eq!(known.is_rewritten("p", "a", ours), Some(false));
        assert_eq!(known.version_of_bytes("p", "a").as_deref(), Some("2"));
        assert_eq!(known.version_of_bytes("p", "b"), None);
    }
}
