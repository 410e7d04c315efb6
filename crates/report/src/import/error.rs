//! What can be wrong with what is imported.

use std::path::PathBuf;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is missing or cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The `--log-format` cannot be used.
    #[error("the log format cannot be used: {reason}")]
    Format {
        /// What is wrong, and what to write.
        reason: String,
    },
    /// Too many lines could not be read.
    #[error(
        "{path}: {broken} of {lines} lines are not of the format, the first is line {line}: {reason}; \
         give the `log_format` of the server by --log-format, or pass over such lines by --lenient"
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// Lines that could not be read.
        broken: u64,
        /// Lines read so far.
        lines: u64,
        /// The first that could not be read.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A document that is not what it should be.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// Nothing in it.
    #[error("{path} has no {what}")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is missing, and what to do.
        what: String,
    },
    /// More windows than are kept in memory.
    #[error(
        "{path} reaches over {windows} windows of {window_s} s, and at most {most} are imported at \
         once; give a longer --window, or less of it"
    )]
    Windows {
        /// The file.
        path: PathBuf,
        /// How many there would be.
        windows: u64,
        /// Their length.
        window_s: f64,
        /// How many there may be.
        most: u64,
    },
}
