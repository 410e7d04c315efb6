//! The errors of imports.

use std::path::PathBuf;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is invalid by itself, or contradicts another.
    #[error("{reason}")]
    Option {
        /// Which one, what is wrong, and what to write.
        reason: String,
    },
    /// The run folder exists already, or cannot be written.
    #[error(transparent)]
    Run(#[from] record::Error),
    /// What was found cannot be written as TOML.
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
    /// A file is missing or cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The `--log-format` is invalid.
    #[error("invalid log format: {reason}")]
    Format {
        /// What is wrong, and what to write instead.
        reason: String,
    },
    /// Too many lines could not be parsed.
    #[error(
        "{path}: {broken} of {lines} lines do not match the format; the first is line {line}: {reason}; \
         {option}, or skip such lines with --lenient"
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// Lines that could not be parsed.
        broken: u64,
        /// Lines read so far.
        lines: u64,
        /// The first line that could not be parsed.
        line: u64,
        /// What is wrong with it.
        reason: String,
        /// The option that says what its values are.
        option: &'static str,
    },
    /// The records cannot be true, so every answer from them would be wrong.
    #[error("{path} is not imported:\n{findings}\nTo import it nevertheless, give --lenient")]
    Senseless {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what to do; one on each line.
        findings: String,
    },
    /// A document has unexpected content.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// The source has no usable data.
    #[error("{path} has no {what}")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is missing, and what to do.
        what: String,
    },
    /// The source covers more windows than are kept in memory.
    #[error(
        "{path} covers {windows} windows of {}, and at most {most} are imported at \
         once; give a longer --window, or less of it",
        crate::objective::time(*.window_s)
    )]
    Windows {
        /// The file.
        path: PathBuf,
        /// The number of windows that it covers.
        windows: u64,
        /// Their length, seconds.
        window_s: f64,
        /// The largest number allowed.
        most: u64,
    },
}
