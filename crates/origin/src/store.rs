//! What a durable store of objects can do.

use std::fmt;
use std::ops::Range;

use super::chunks::{BoxFuture, Chunks};
use super::error::Error;
use super::listing::{Entry, KeyRange, Listed};
use super::metadata::{Attributes, Metadata};
use super::write::{Condition, Fence, Staged, fenced};
use ground::origin::OriginId;
use ground::{Etag, Key};

/// An object that was found.
pub struct StoredObject {
    /// Its metadata.
    pub metadata: Metadata,
    /// The bytes of the requested range, or all.
    pub body: Box<dyn Chunks>,
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredObject").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// A durable store of objects.
pub trait Origin: Send + Sync {
    /// Returns an object's metadata.
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>>;

    /// Returns an object, or a range of its bytes. The range is clamped to the object's size.
    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>>;

    /// Receives all bytes of a write from `body` without changing the object yet.
    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>>;

    /// Removes an object durably. Returns whether it existed.
    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>>;

    /// As [`Origin::delete`], if a fence allows it.
    fn delete_fenced(&self, key: &Key, fence: Fence) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        Box::pin(async move { if fence() { self.delete(&key).await } else { Err(fenced()) } })
    }

    /// Removes an object if it is of this version. Returns whether it existed; [`Error::Condition`] if it has another one.
    ///
    /// An origin whose store has no such removal compares first: another version may then come in between.
    fn delete_version(&self, key: &Key, etag: &Etag) -> BoxFuture<'_, Result<bool, Error>> {
        let (key, version) = (key.clone(), Condition::Is(etag.clone()));
        Box::pin(async move {
            let Some(found) = self.head(&key).await? else { return Ok(false) };
            version.judge(Some(&found))?;
            self.delete(&key).await
        })
    }

    /// Returns the first `limit` entries of a listing, in byte order.
    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>>;

    /// Returns the first `limit` objects, in byte order of their keys, whose key begins with
    /// `prefix` and is greater than `after`.
    fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Listed>, Error>> {
        let range = KeyRange::new(prefix).after(after.map(<[u8]>::to_vec));
        let entries = self.entries(&range, limit);
        Box::pin(async move {
            let object = |entry| match entry {
                Entry::Object(listed) => Some(listed),
                Entry::Group(_) => None,
            };
            Ok(entries.await?.into_iter().filter_map(object).collect())
        })
    }

    /// Whether it keeps what is written to it. If not, the tiers in front are all that holds an object.
    fn is_durable(&self) -> bool {
        true
    }

    /// Its identity, once this process has taken it.
    fn id(&self) -> Option<OriginId> {
        None
    }

    /// Why the origin takes no writes now, as far as that is known without a write.
    fn read_only(&self) -> Option<String> {
        None
    }

    /// When the origin was first used, microseconds since 1970-01-01 UTC, as far as it is known.
    fn created_unix_us(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(std::future::ready(None))
    }

    /// [`Error::Lost`] if what is there is not the origin that was opened.
    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
