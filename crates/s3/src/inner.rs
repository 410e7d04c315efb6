//! What operations need: the store behind, the buckets, the access keys.

use std::sync::Arc;
use std::time::Duration;

use ground::Key;
use origin::KEY_BYTES_MAX;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::hidden::is_hidden;
use super::host::Domain;
use super::kept_parts::Remembered;
use super::keys::Keys;
use super::messages;
use store::Store;
use wire::body::Budget;

/// A bucket: the objects whose keys begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) name: String,
    pub(super) prefix: String,
}

/// What operations need.
pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) buckets: Vec<Bucket>,
    pub(super) domain: Domain,
    pub(super) region: String,
    pub(super) keys: Arc<Keys>,
    /// Memory for small uploads that are gathered.
    pub(super) uploads: Arc<Budget>,
    pub(super) remembered: Remembered,
    pub(super) timeout: Duration,
}

impl Inner {
    pub(super) fn bucket(&self, name: &str) -> S3Result<&Bucket> {
        let found = self.buckets.iter().find(|bucket| bucket.name == name);
        found.ok_or_else(|| {
            S3Error::with_message(S3ErrorCode::NoSuchBucket, messages::NO_SUCH_BUCKET)
        })
    }

    /// The key of an object.
    pub(super) fn key(&self, bucket: &str, key: &str) -> S3Result<Key> {
        let prefix = &self.bucket(bucket)?.prefix;
        // Of a copy's source, or in a list: otherwise such an address is the bucket's.
        if key.is_empty() {
            let what = messages::EMPTY_KEY;
            return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, what));
        }
        let whole = [prefix.as_bytes(), key.as_bytes()].concat();
        if whole.len() > KEY_BYTES_MAX {
            return Err(S3Error::new(S3ErrorCode::KeyTooLongError));
        }
        // Not those of the origin's (`!key/`), which it keeps under other names: this may be the store of another Concertina,
        // which writes them.
        if is_hidden(&whole) {
            let what = "keys that begin with !s3/ are the server's own";
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, what));
        }
        Ok(Key::from(whole))
    }
}
