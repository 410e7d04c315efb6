//! Files of the folder that cannot be read: what a listing shows of them, and what a write may replace.
//!
//! A damaged object is still an object: a listing without it would have a mirror of the folder remove its only good copy. Nor does
//! a write need to read what it replaces.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::warn;

use super::error::Error;
use super::metadata::{Attributes, Metadata};
use super::write::Condition;

/// Paths that are remembered as told: some 100 KiB.
const TOLD_MAX: usize = 1_000;

/// Damaged files that the log has a line of, so that it has one for each, however often it is read.
#[derive(Default)]
pub(super) struct DamageLog(Mutex<HashSet<PathBuf>>);

impl DamageLog {
    /// Writes the line of `path` if `error` says that it is damaged, and there is none yet.
    pub(super) fn tell(&self, path: &Path, error: &Error) {
        let Error::Damaged(why) = error else { return };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX && told.insert(path.to_owned()) {
            warn!("damaged: {why}; restore the file from a copy, or write or delete the object");
        }
    }

    /// A file that was found whole is told of again when it is damaged again.
    pub(super) fn forget(&self, path: &Path) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.is_empty() {
            told.remove(path);
        }
    }
}

/// What tells a damaged file from what replaces it. A write renames another file over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl FileStamp {
    /// That of the regular file at `path`, if there is one.
    pub(super) fn of_path(path: &Path) -> Option<FileStamp> {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(FileStamp {
            inode: found.ino(),
            bytes: found.len(),
            modified_s: found.mtime(),
            modified_ns: found.mtime_nsec(),
        })
    }

    /// What a listing shows of a damaged file: its own size and time, and an etag that no object has.
    pub(super) fn metadata(&self) -> Metadata {
        let FileStamp { inode, bytes, modified_s, modified_ns } = *self;
        Metadata {
            size: bytes,
            etag: format!("damaged-{inode:x}-{bytes:x}-{modified_s:x}-{modified_ns:x}").into(),
            modified_unix_us: u64::try_from(modified_s).unwrap_or(0) * 1_000_000
                + u64::try_from(modified_ns).unwrap_or(0) / 1_000,
            attributes: Attributes::default(),
        }
    }
}

/// What a fenced write replaces, and nothing else.
#[derive(Clone, Debug)]
pub(super) enum Replaced {
    /// An object, or none.
    Object(Condition),
    /// A damaged file.
    Damaged(FileStamp),
}
