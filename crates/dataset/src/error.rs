//! Errors of this crate: datasets that are not there, are damaged or do not take what they are given.

use std::io;
use std::num::TryFromIntError;

use origin::OpenError;
use origin::marker::Unclaimed;
use record::compressed::Unreadable;

/// Why an operation on a dataset failed. Stored bytes, valid or not, never cause a panic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dataset does not take this: a name, an id, options, or records of another format. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// No dataset, shard or record has this name or id, or it was deleted.
    #[error("{0}")]
    Missing(String),
    /// What is stored contradicts its checksum, the manifest or itself. It is reported, and never skipped.
    #[error("{0}")]
    Damaged(String),
    /// A folder holds what is not part of a dataset. Nothing in it was changed.
    #[error("{0}")]
    Foreign(String),
    /// The file system or the system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A shard refuses a query or its bytes.
    #[error(transparent)]
    Shard(#[from] shard::Error),
    /// The origin refuses, or does not answer.
    #[error(transparent)]
    Origin(#[from] origin::Error),
    /// A folder belongs to somebody else.
    #[error(transparent)]
    Folder(#[from] Unclaimed),
    /// A folder cannot be locked.
    #[error(transparent)]
    Lock(#[from] OpenError),
    /// A number exceeds what this machine can address.
    #[error(transparent)]
    Number(#[from] TryFromIntError),
    /// An input is compressed in a way that is not read here.
    #[error(transparent)]
    Input(#[from] Unreadable),
    /// The manifest is not the JSON of one.
    #[error(transparent)]
    Manifest(#[from] serde_json::Error),
    /// Another error, with what was being done.
    #[error("{what}")]
    Context {
        /// What was being done, and with which file.
        what: String,
        /// Why it failed.
        source: Box<Error>,
    },
}

/// The result of an operation on a dataset.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says of an error what was being done.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Context { what: what(), source: Box::new(error.into()) })
    }
}

impl Error {
    /// The error itself, without what was being done.
    pub fn cause(&self) -> &Error {
        match self {
            Error::Context { source, .. } => source.cause(),
            error => error,
        }
    }

    /// A promise of the code about what it stored is not kept.
    pub(crate) fn inconsistent(what: &str) -> Error {
        Error::Damaged(what.to_owned())
    }
}

/// Returns an error of a kind with a message.
macro_rules! bail {
    ($kind:ident, $($message:tt)+) => {
        return Err($crate::error::Error::$kind(format!($($message)+)))
    };
}

/// Returns an error of a kind with a message, unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $kind:ident, $($message:tt)+) => {
        if !$condition {
            return Err($crate::error::Error::$kind(format!($($message)+)));
        }
    };
}

pub(crate) use {bail, ensure};
