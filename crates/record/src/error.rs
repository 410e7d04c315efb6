//! The errors of this crate.

use std::io;
use std::path::PathBuf;

/// Why a run folder, a trace or a file of certificates could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is missing, cannot be read, or is not compressed although its name ends in `.zst`.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no run at this place.
    #[error(
        "{path} is not a run folder: {reason}; `concertina load`, `measure`, `import` and `serve` write such \
         folders"
    )]
    NotARun {
        /// The place.
        path: PathBuf,
        /// What is there instead.
        reason: &'static str,
    },
    /// `run.toml` is invalid.
    #[error("{path} is not a valid description of a run: {reason}")]
    Run {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A complete line is malformed.
    #[error("{path}, line {line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// The selected rows of a trace do not exist.
    #[error("{path} has {rows} requests, but rows {from}..{to} were selected")]
    Rows {
        /// The file.
        path: PathBuf,
        /// The number of requests in the file.
        rows: u64,
        /// The first selected row, from 0.
        from: u64,
        /// The row after the last selected one.
        to: u64,
    },
    /// A folder holds a run already.
    #[error("{path} holds a run already; name another folder, or remove it first")]
    HoldsARun {
        /// The folder.
        path: PathBuf,
    },
    /// A file has the name of one that is to be written.
    #[error("{path} exists, and is not overwritten; name another folder for the run")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The description of a run cannot be written as TOML.
    #[error("run.toml cannot be written as TOML")]
    Description(#[source] toml::ser::Error),
    /// A run folder or one of its files cannot be written.
    #[error("cannot {action} {path}")]
    Write {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of certificates cannot be read, or one in it is invalid.
    #[error("cannot read certificates of {path}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file has no certificate.
    #[error("{path} has no certificate in PEM format")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
}
