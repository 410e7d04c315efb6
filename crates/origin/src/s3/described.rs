//! The metadata of objects that were listed before, so that listing them again needs no HEAD for each.
//!
//! A store's listing lacks our metadata, which a HEAD returns. What a HEAD returned stays true while the store lists the object with
//! the same etag, size and time of modification. Two writes of the same bytes with other metadata could share all three if they
//! came within the resolution of that time (a second, at some stores). So only objects older than [`SETTLED_S`] are
//! remembered: a later write has a later time.

use chrono::DateTime;
use http::HeaderMap;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::stored::StoredHead;
use crate::metadata::Metadata;

/// The least age of an object that is remembered, seconds. It exceeds by far the resolution of a store's times and the difference
/// between synchronised clocks.
const SETTLED_S: u64 = 60;
/// The memory of an entry beside its texts, bytes: both keys, the metadata's fixed part, and the cache's own.
const ENTRY_BYTES: u64 = 192;
/// The memory of a typical entry, bytes.
const TYPICAL_BYTES: u64 = 256;

/// What a listing of the store says of an object.
pub(super) struct ListingEntry {
    mark: [u8; 16],
    etag: String,
    size: u64,
    modified: String,
}

impl ListingEntry {
    /// From the fields of a listing's entry.
    pub fn new(name: &str, etag: String, size: u64, modified: &str) -> ListingEntry {
        let mut hasher = blake3::Hasher::new();
        for text in [name, &etag, modified] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.update(&size.to_le_bytes());
        let mut mark = [0; 16];
        hasher.finalize_xof().fill(&mut mark);
        ListingEntry { mark, etag, size, modified: modified.to_owned() }
    }

    /// The object as far as the listing describes it.
    pub fn stored(&self) -> StoredHead {
        let modified = DateTime::parse_from_rfc3339(&self.modified).ok();
        let modified = modified.and_then(|time| u64::try_from(time.timestamp_micros()).ok());
        StoredHead {
            size: self.size,
            etag: Some(self.etag.clone()),
            modified_unix_us: modified.unwrap_or(0),
            headers: HeaderMap::new(),
        }
    }

    /// Whether a HEAD's reply is of the same version, and that version is settled at the time `now_unix_s`.
    fn is_settled(&self, head: &StoredHead, now_unix_s: u64) -> bool {
        let same = head.etag.as_deref().is_some_and(|etag| bare(etag) == bare(&self.etag));
        let age_s = now_unix_s.saturating_sub(head.modified_unix_us / 1_000_000);
        same && head.size == self.size && age_s >= SETTLED_S
    }
}

/// An etag without its quotes, which some stores leave out in listings.
fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}

/// Weighs entries by the memory that they take.
#[derive(Clone)]
struct Weight;

impl Weighter<[u8; 16], Metadata> for Weight {
    fn weight(&self, _: &[u8; 16], metadata: &Metadata) -> u64 {
        let attributes = &metadata.attributes;
        let user = attributes.user.iter().map(|(name, value)| 48 + name.len() + value.len());
        let texts = metadata.etag.len()
            + attributes.content_type.as_ref().map_or(0, String::len)
            + user.sum::<usize>();
        ENTRY_BYTES + texts as u64
    }
}

/// Metadata by what a listing says of the object, within a bound in bytes.
pub(super) struct Described(Option<Cache<[u8; 16], Metadata, Weight>>);

impl Described {
    /// Remembers as many objects as fit in `bytes_max`; none if it is less than one takes.
    pub fn new(bytes_max: u64) -> Described {
        let items = usize::try_from(bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        Described((items > 0).then(|| Cache::with_weighter(items, bytes_max, Weight)))
    }

    /// The metadata of an object, if it was remembered under what the listing says now.
    pub fn get(&self, seen: &ListingEntry) -> Option<Metadata> {
        self.0.as_ref()?.get(&seen.mark)
    }

    /// Remembers what a HEAD returned, unless the object was written since the listing, or lately.
    pub fn set(
        &self,
        seen: &ListingEntry,
        head: &StoredHead,
        metadata: &Metadata,
        now_unix_s: u64,
    ) {
        if let Some(cache) = &self.0
            && seen.is_settled(head, now_unix_s)
        {
            cache.insert(seen.mark, metadata.clone());
        }
    }
}
