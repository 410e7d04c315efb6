//! The origin: the durable store of objects. An acknowledged write is in the origin.
//!
//! [`Origin`] is a small trait implemented by a folder, by an S3-compatible store, by [`Nowhere`] (of caches) and by the
//! fault-injecting wrappers of the tests; one behaviour suite (`tests/it/origin.rs`) runs against
//! all of them.
//!
//! A write has two steps. *Staging* receives the bytes from the client, however slowly, and changes
//! nothing. *Committing* replaces the object atomically. Only the commit holds the key's lock, so a
//! slow upload delays no other request, and an aborted one leaves nothing behind.

mod damage;
mod error;
mod file;
mod folder;
mod identity;
mod identity_record;
mod listing;
mod lock;
pub mod marker;
mod metadata;
mod name;
mod nowhere;
mod pool;
mod s3;
mod settings;
mod sharing;
mod temporary;
mod tree;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ground::origin::OriginId;
use ground::{Etag, Key};

pub use error::{Error, OpenError};
pub use folder::Folder;
pub use identity_record::{IdentityRecord, Recorder, RecorderError, Recording};
pub use lock::Lock;
pub use metadata::{Attributes, KEPT_PREFIX, Metadata, VersionHasher, version_of_sha256};
pub use nowhere::Nowhere;
pub use s3::S3;
#[doc(hidden)]
pub use settings::as_secret;
pub use settings::{Checks, Kind, Mistake, Secret, Section, Settings, Size, with_short_numbers};
pub use sharing::Sharing;

/// The largest object, bytes: S3's own limit. What announces more is refused before any of it is read.
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Waits for a request to the origin for at most `timeout`; `what` names the request in the error.
///
/// # Errors
///
/// [`Error::TimedOut`] after the timeout, and what the request fails with.
pub async fn within<T>(
    timeout: Duration,
    what: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let seconds = timeout.as_secs_f64();
    let timed_out = || Error::TimedOut(format!("no answer to {what} within {seconds} s"));
    tokio::time::timeout(timeout, request).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Opens the configured origin. `sharing` states whether other processes use the folder at the same
/// time; it does not matter for an S3-compatible store.
///
/// `record` is what the process remembers of its origin; where that is missing, or another one is in its place, requests fail
/// with [`Error::Lost`] until it is there.
///
/// # Errors
///
/// If the origin cannot be opened, and is not one that may come back.
pub fn open(
    settings: &Settings,
    sharing: Sharing,
    record: Arc<IdentityRecord>,
) -> Result<Arc<dyn Origin>, OpenError> {
    Ok(match settings.kind {
        Kind::None => Arc::new(Nowhere),
        Kind::S3 => Arc::new(S3::open_recorded(settings, record)?),
        Kind::Folder => {
            Arc::new(Folder::open_recorded(&settings.path, settings.parallel, sharing, record)?)
        }
    })
}

/// Whether `text` is a valid prefix (before a slash) of object names in a store.
pub fn is_plain_prefix(text: &str) -> bool {
    text.len() <= 255 && s3::is_plain(text)
}

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// A boxed future, so that the trait can be an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A stream of bytes in pieces: an upload, or an object being read.
pub trait Chunks: Send {
    /// The next piece; `None` after the last.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>>;
    /// The number of bytes left, if known in advance.
    fn bytes_left(&self) -> Option<u64>;
    /// The SHA-256 of all bytes, if known in advance. The stream ends with an error, before its last piece, if they
    /// have another.
    fn sha256(&self) -> Option<[u8; 32]> {
        None
    }
}

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

/// A condition that must hold when a write is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key has no object.
    Absent,
    /// The object has this etag.
    Is(Etag),
}

impl Condition {
    /// Returns [`Error::Condition`] unless the condition holds for the present `object`.
    pub fn judge(&self, object: Option<&Metadata>) -> Result<(), Error> {
        match (self, object) {
            (Condition::Absent, None) => Ok(()),
            (Condition::Is(etag), Some(object)) if object.etag == *etag => Ok(()),
            (_, None) => Err(Error::Condition("the object does not exist".to_owned())),
            (_, Some(object)) => {
                Err(Error::Condition(format!("the object has the etag {}", object.etag)))
            }
        }
    }
}

/// Whether a write may still be made. It is asked after each look at what the write replaces, and the
/// write then replaces that and nothing else: so it cannot follow the write of a process that has taken over
/// the key's order since.
pub type Fence = Arc<dyn Fn() -> bool + Send + Sync>;

/// The error of a write that its fence forbids; it was not made.
fn fenced() -> Error {
    let what = "another process orders the object's writes now; nothing was written";
    Error::Fenced(what.to_owned())
}

/// A write whose bytes have all been received. Dropping it discards the write.
pub trait Staged: Send {
    /// The metadata that the object will have.
    fn metadata(&self) -> &Metadata;
    /// Has [`Staged::commit`] without a condition ask a fence.
    fn fence(&mut self, fence: Fence) {
        let _ = fence;
    }
    /// Replaces the key's object durably, if the condition holds. The check and the replacement are
    /// atomic with respect to all writers, in this process and others.
    ///
    /// After an error the previous object is unchanged; after [`Error::Failed`] and
    /// [`Error::TimedOut`] it is unknown whether it was replaced.
    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>>;
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its metadata.
    pub metadata: Metadata,
}

/// An entry of a listing.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An object.
    Object(Listed),
    /// All objects whose keys begin with this, which ends with the delimiter (a *common prefix* of S3's listings).
    Group(Vec<u8>),
}

impl Entry {
    /// The key, or what the group's keys begin with.
    pub fn key(&self) -> &[u8] {
        match self {
            Entry::Object(listed) => &listed.key,
            Entry::Group(prefix) => prefix,
        }
    }

    /// The position after it, for [`KeyRange::after`].
    pub fn end(&self) -> Vec<u8> {
        match self {
            Entry::Object(listed) => listed.key.to_vec(),
            Entry::Group(prefix) => behind(prefix),
        }
    }
}

/// The keys of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// What the keys begin with.
    pub prefix: Vec<u8>,
    /// Only keys greater than this.
    pub after: Option<Vec<u8>>,
    /// Keys that have this behind the prefix are listed as one [`Entry::Group`], which ends with it. Empty: none are.
    pub delimiter: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with `prefix`.
    pub fn new(prefix: &[u8]) -> KeyRange {
        KeyRange { prefix: prefix.to_vec(), ..KeyRange::default() }
    }

    /// The same keys, as far as they are greater than `after`.
    pub fn after(self, after: Option<Vec<u8>>) -> KeyRange {
        KeyRange { after, ..self }
    }

    /// The same keys, grouped by a delimiter.
    pub fn grouped(self, delimiter: &[u8]) -> KeyRange {
        KeyRange { delimiter: delimiter.to_vec(), ..self }
    }

    /// Whether a key is one of them.
    pub fn holds(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix) && self.after.as_deref().is_none_or(|after| key > after)
    }

    /// The group of a key that begins with the prefix, if it is in one.
    ///
    /// ```
    /// use origin::KeyRange;
    ///
    /// let range = KeyRange::new(b"a/").grouped(b"/");
    /// assert_eq!(range.group_of(b"a/b/c"), Some(&b"a/b/"[..]));
    /// assert_eq!(range.group_of(b"a/b"), None);
    /// ```
    pub fn group_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let length = self.delimiter.len();
        let rest = key.get(self.prefix.len()..).filter(|_| length > 0)?;
        let at = rest.windows(length).position(|part| part == self.delimiter)?;
        Some(&key[..self.prefix.len() + at + length])
    }
}

/// A position after all keys that begin with `prefix`, and before all others that are greater.
///
/// ```
/// let after = origin::behind(b"a/");
/// assert!(after > b"a/\xff\xff".to_vec() && after < b"a0".to_vec());
/// ```
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    // One byte more than the longest key.
    let mut after = prefix.to_vec();
    after.resize(KEY_BYTES_MAX.max(prefix.len()) + 1, 0xff);
    after
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

/// [`Chunks`] of bytes that are all in memory.
pub struct SingleChunk(Option<Bytes>);

impl SingleChunk {
    /// A stream of one piece.
    pub fn new(bytes: Bytes) -> SingleChunk {
        SingleChunk(Some(bytes))
    }
}

impl Chunks for SingleChunk {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let next = self.0.take().filter(|bytes| !bytes.is_empty());
        Box::pin(std::future::ready(next.map(Ok)))
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

fn now_unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
