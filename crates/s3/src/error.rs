//! Errors of this crate at a start, or of a command: access keys that cannot be used. What clients are told is in `errors`.

use std::io;
use std::path::PathBuf;

use crate::seal::{MasterKeyError, SealError};

/// Why a file of access keys cannot be used. No message repeats a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server's file of access keys cannot be used.
    #[error("the access keys in {}", .path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// The file cannot be read or replaced.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// It has another form.
    #[error("line {line} is not as docs/s3.md says: [[key]] with id, secret, scopes")]
    Malformed {
        /// The line of the mistake, from 1; 0: not known.
        line: usize,
    },
    /// The master key cannot be used.
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    /// A sealed secret cannot be opened.
    #[error("the secret of {id:?}")]
    Secret {
        /// The id of its access key.
        id: String,
        /// Why not.
        source: SealError,
    },
    /// A secret can be guessed.
    #[error("the secret of {id:?} is shorter than {least} characters")]
    ShortSecret {
        /// The id of its access key.
        id: String,
        /// The fewest characters.
        least: usize,
    },
    /// An id that clients cannot send.
    #[error("invalid id {0:?}; write 1 to 128 letters, digits, `-`, `_` or `.`")]
    Id(String),
    /// An access key that opens nothing.
    #[error("{0:?} has no scopes, such as \"photos:read\"")]
    NoScopes(String),
    /// Two access keys have one id.
    #[error("the id {0:?} is there twice")]
    Duplicate(String),
    /// A scope of another form.
    #[error("invalid scope {0:?}; write BUCKET:read, :write or :admin, or *:read")]
    Scope(String),
    /// The file cannot be replaced where it is.
    #[error("it is in no folder")]
    NoFolder,
}
