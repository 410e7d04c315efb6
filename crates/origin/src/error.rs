//! The errors of this crate: [`Error`] of operations, and [`OpenError`] of what precedes them.
//!
//! They are apart because the error of a request is copied to all who wait for it, and the causes of the others cannot be.

use std::io;
use std::num::TryFromIntError;
use std::path::PathBuf;

use ground::origin::OriginId;
use rustix::io::Errno;

use super::marker::Unclaimed;

/// Why an operation of the origin failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No space is left for a write.
    #[error("the origin is full: {0}")]
    Full(String),
    /// The origin does not accept writes.
    #[error("the origin is read-only: {0}")]
    ReadOnly(String),
    /// The origin does not allow a read, whatever the object: retrying is useless until its operator changes that.
    #[error("the origin denies access: {0}")]
    Denied(String),
    /// The stored bytes are not those that were written.
    #[error("the origin's copy is damaged: {0}")]
    Damaged(String),
    /// The operation took too long.
    #[error("the origin timed out: {0}")]
    TimedOut(String),
    /// The client disconnected during an upload, or sent a different number of bytes than
    /// announced.
    #[error("the upload broke off: {0}")]
    Upload(String),
    /// The condition of a write does not hold.
    #[error("the condition of the write does not hold: {0}")]
    Condition(String),
    /// The origin does not support such an object; retrying is useless.
    #[error("the origin cannot store this object: {0}")]
    Refused(String),
    /// The origin cannot keep the object beside one of another key that is there; retrying is useless while it is.
    #[error("{0}")]
    Conflict(String),
    /// What is there is not the origin that was opened: it vanished, or another is in its place. What it
    /// does not hold is not known to be absent.
    #[error("the origin is not there: {0}")]
    Lost(String),
    /// The write's fence forbade it before anything was sent: it was not made.
    #[error("{0}")]
    Fenced(String),
    /// Anything else.
    #[error("the origin failed: {0}")]
    Failed(String),
}

impl Error {
    /// Whether the write was refused because of its object, so that retrying is useless.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Refused(_) | Error::Conflict(_))
    }

    /// Converts an error of the operating system; `action` describes the failed operation.
    pub fn of_io(error: &io::Error, action: &str) -> Error {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let text = format!("{action}: {error}");
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Error::Full(text),
            ReadOnlyFilesystem => Error::ReadOnly(text),
            _ => Error::Failed(text),
        }
    }
}

/// Why an origin cannot be opened, a folder not be locked, or an identity not be remembered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The origin was reached, and is not usable.
    #[error(transparent)]
    Origin(#[from] Error),
    /// A folder belongs to something else.
    #[error(transparent)]
    Unclaimed(#[from] Unclaimed),
    /// A file or folder cannot be opened or made.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The system refuses a lock.
    #[error("cannot lock {path}")]
    Lock {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Errno,
    },
    /// Another process uses a folder, a file or a device.
    #[error("{path} is in use by another process; stop it, or name another{}", if *.is_folder { " folder" } else { "" })]
    InUse {
        /// The folder, file or device.
        path: PathBuf,
        /// Whether it is a folder.
        is_folder: bool,
        /// The cause.
        source: Errno,
    },
    /// A process uses a folder that does not share it with others.
    #[error(
        "{path} is in use by a process that does not share it (a server outside a cluster); stop it, or name another folder"
    )]
    InUseAlone {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: Errno,
    },
    /// Another process does not end to open a folder.
    #[error("another process has held {path} for {waited:?}; end it")]
    Held {
        /// The file that it has locked.
        path: PathBuf,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// A folder was claimed, and its marker is gone.
    #[error(
        "{path} has lost the file .concertina since the start of this process; put it back, or empty the folder and start anew"
    )]
    NoMarker {
        /// The folder.
        path: PathBuf,
    },
    /// Two places remember different origins of one process.
    #[error(
        "{other_place} remembers the origin {other}, and {place} remembers {id}: only one of them can be this \
         process's; remove the one that is not (it holds copies only), or start once with --create-origin to \
         take the configured origin"
    )]
    Remembered {
        /// The first place.
        other_place: String,
        /// What it remembers.
        other: OriginId,
        /// The second place.
        place: String,
        /// What that remembers.
        id: OriginId,
    },
    /// The configuration lacks a part of the access key.
    #[error("origin.{key} is not set; set it, or {variable} in the environment")]
    NoAccessKey {
        /// The missing key of `[origin]`.
        key: &'static str,
        /// The environment's variable of the same meaning.
        variable: &'static str,
    },
    /// The limit of memory for uploads is beyond what this machine can address.
    #[error(transparent)]
    UploadsLimit(#[from] TryFromIntError),
    /// The threads for the files of a folder cannot be started.
    #[error("cannot start the threads that read and write the folder")]
    Start(#[source] io::Error),
    /// The thread of requests to a store cannot be started.
    #[error("cannot start the origin's thread")]
    Thread(#[source] io::Error),
    /// TLS, or the client that uses it, cannot be set up.
    #[error("cannot set up TLS to the store")]
    Client(#[source] rustls::Error),
    /// The address of a store, or the access to it, is malformed.
    #[error("invalid [origin] in the configuration: {0}")]
    Settings(String),
}

impl OpenError {
    /// What the operating system said of a file that cannot be opened or made; `None` of other errors, locks among them.
    pub(crate) fn of_file(&self) -> Option<io::ErrorKind> {
        match self {
            OpenError::File { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// The message with all its causes, in one line.
    pub(crate) fn in_full(&self) -> String {
        ground::with_causes(self)
    }
}
