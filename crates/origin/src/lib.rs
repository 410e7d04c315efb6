//! The origin: the durable store of objects. An acknowledged write is in the origin.
//!
//! [`Origin`] is a small trait implemented by a folder, by an S3-compatible store, by [`Nowhere`] (of caches) and by the
//! fault-injecting wrappers of the tests; one behaviour suite (`tests/it/origin.rs`) runs against
//! all of them.
//!
//! A write has two steps. *Staging* receives the bytes from the client, however slowly, and changes
//! nothing. *Committing* replaces the object atomically. Only the commit holds the key's lock, so a
//! slow upload delays no other request, and an aborted one leaves nothing behind.

mod chunks;
mod damage;
mod error;
mod file;
mod folder;
mod folder_listing;
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
#[doc(hidden)]
pub mod section;
mod settings;
mod sharing;
mod store;
mod temporary;
mod time_limit;
mod tree;
mod write;

use std::sync::Arc;

pub use chunks::{BoxFuture, Chunks, SingleChunk};
pub use error::{Error, OpenError};
pub use folder::Folder;
pub use identity_record::{IdentityRecord, Recorder, RecorderError, Recording};
pub use listing::{Entry, KEY_BYTES_MAX, KeyRange, Listed, behind};
pub use lock::Lock;
pub use metadata::{Attributes, KEPT_PREFIX, Metadata, VersionHasher, version_of_sha256};
pub use nowhere::Nowhere;
pub use s3::{S3, is_plain_prefix};
#[doc(hidden)]
pub use section::as_secret;
pub use section::{Checks, Mistake, Secret, Section, with_short_numbers};
pub use settings::{Kind, Settings, Size};
pub use sharing::Sharing;
pub use store::{Origin, StoredObject};
pub use time_limit::{TimeLimited, within};
pub use write::{Condition, Fence, Staged};

/// The largest object, bytes: S3's own limit. What announces more is refused before any of it is read.
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;

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
