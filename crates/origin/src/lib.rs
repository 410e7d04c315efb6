//! The origin: where objects are durable. An acknowledged write is in the origin.
//!
//! [`Origin`] is a small trait so that a folder, an S3-compatible store and the faulty wrappers of the
//! tests are the same to the process; one behaviour suite (`tests/it/origin.rs`) holds for all.
//! A write has two steps: *staging* takes the bytes from the client, however slow it is, and changes
//! nothing; *committing* makes them the object at once. Only the second needs the key's turn, so a
//! slow upload holds up nobody, and one that breaks off leaves nothing.

mod file;
mod folder;
mod identity;
mod lock;
mod metadata;
mod name;
mod pool;
mod s3;
mod settings;
mod sharing;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use engine::{Etag, Key};

pub use folder::Folder;
pub use lock::Lock;
pub use metadata::{Attributes, Metadata, VersionHasher};
pub use s3::S3;
pub use settings::{Secret, Settings, Size};
pub use sharing::Sharing;

/// Opens the origin that a configuration names. `sharing` says whether other processes use a folder at
/// the same time; an S3-compatible store is shared with whoever has its keys.
pub fn open(settings: &Settings, sharing: Sharing) -> anyhow::Result<Arc<dyn Origin>> {
    Ok(match settings.kind.as_str() {
        "s3" => Arc::new(S3::open(settings)?),
        _ => Arc::new(Folder::open(&settings.path, settings.parallel, sharing)?),
    })
}

/// Whether names in a store may begin with this and a slash.
pub fn is_plain_prefix(text: &str) -> bool {
    text.len() <= 255 && s3::is_plain(text)
}

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// A boxed future, so that the trait can be an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why the origin could not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no space left for a write.
    #[error("the origin is full: {0}")]
    Full(String),
    /// The origin takes no writes.
    #[error("the origin is read-only: {0}")]
    ReadOnly(String),
    /// What it holds is not what was written.
    #[error("the origin's copy is damaged: {0}")]
    Damaged(String),
    /// It took too long.
    #[error("the origin timed out: {0}")]
    TimedOut(String),
    /// The client that was sending the bytes left, or broke its promise of their number.
    #[error("the upload broke off: {0}")]
    Upload(String),
    /// The condition of a write does not hold.
    #[error("the object is not as the write's condition says: {0}")]
    Condition(String),
    /// It cannot keep such an object, now or later.
    #[error("the origin cannot keep this: {0}")]
    Refused(String),
    /// What is there is not the origin that was opened: it vanished, or another is in its place. What it
    /// does not hold is not known to be absent.
    #[error("the origin is not there: {0}")]
    Lost(String),
    /// Anything else.
    #[error("the origin failed: {0}")]
    Failed(String),
}

impl Error {
    /// The error for what the operating system said while doing `what`.
    pub fn of_io(error: &std::io::Error, what: &str) -> Error {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let text = format!("{what}: {error}");
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Error::Full(text),
            ReadOnlyFilesystem => Error::ReadOnly(text),
            _ => Error::Failed(text),
        }
    }
}

/// Bytes that come in pieces: an upload, or an object on its way out.
pub trait Chunks: Send {
    /// The next piece; `None` after the last.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>>;
    /// How many bytes are left, where that is known beforehand.
    fn bytes_left(&self) -> Option<u64>;
}

/// An object that was found.
pub struct Found {
    /// Its metadata.
    pub metadata: Metadata,
    /// The bytes of the range that was asked for, or all.
    pub body: Box<dyn Chunks>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// What must be so when a write is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no object of the key.
    Absent,
    /// The object has this etag.
    Is(Etag),
}

impl Condition {
    /// [`Error::Condition`] unless it holds for the object that there is.
    pub fn judge(&self, object: Option<&Metadata>) -> Result<(), Error> {
        match (self, object) {
            (Condition::Absent, None) => Ok(()),
            (Condition::Is(etag), Some(object)) if object.etag == *etag => Ok(()),
            (_, None) => Err(Error::Condition("there is none".to_owned())),
            (_, Some(object)) => Err(Error::Condition(format!("it has the etag {}", object.etag))),
        }
    }
}

/// A write whose bytes are all there. Dropped, it never was.
pub trait Staged: Send {
    /// What the object will be.
    fn metadata(&self) -> &Metadata;
    /// Makes it the object of its key, durably, if the condition holds: nobody, in this process or
    /// another, writes between the look and the change. After an error the older object is still
    /// there, or (only [`Error::Failed`] and [`Error::TimedOut`]) it is not known which of the two is.
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

/// Where objects are durable.
pub trait Origin: Send + Sync {
    /// An object's metadata.
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>>;

    /// An object, or a range of its bytes. The range is cut to what is there.
    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Found>, Error>>;

    /// Takes the bytes of a write from `body` to their end, and changes nothing yet.
    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>>;

    /// Removes an object, durably; says whether it was there.
    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>>;

    /// The first `limit` objects in the order of their keys' bytes whose key begins with `prefix` and
    /// is greater than `after`.
    fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Listed>, Error>>;

    /// [`Error::Lost`] if what is there is not the origin that was opened.
    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Bytes that are all in memory.
pub struct Whole(Option<Bytes>);

impl Whole {
    /// One piece.
    pub fn new(bytes: Bytes) -> Whole {
        Whole(Some(bytes))
    }
}

impl Chunks for Whole {
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
