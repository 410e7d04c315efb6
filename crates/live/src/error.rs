//! Errors of this crate: a live model that cannot start.

use std::io;
use std::path::PathBuf;

/// Why a live model, or the division of memory, does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file of the journal cannot be read or appended to, or is another kind of file.
    #[error("cannot use the journal {}", .path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The settings of the model contradict each other.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The system has no thread for it.
    #[error("cannot start the thread {name:?}")]
    Thread {
        /// The thread.
        name: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
