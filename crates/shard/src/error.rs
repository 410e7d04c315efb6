//! Errors of this crate: invalid shard bytes, invalid input, and queries that cannot be answered.

/// An error of this crate. Each message says what is wrong and where. Stored bytes, valid or not,
/// never cause a panic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested range is not within the text.
    #[error("range of {len} bytes at offset {offset} is outside the text of {text_len} bytes")]
    OutOfRange {
        /// Offset of the first requested byte.
        offset: usize,
        /// Length of the requested range, in bytes.
        len: usize,
        /// Length of the text, in bytes.
        text_len: usize,
    },
    /// The schema is invalid, does not allow the operation, or does not describe the input.
    #[error("schema: {0}")]
    Schema(String),
    /// The query has a syntax error.
    #[error("syntax error in the query at byte {at}: {what}")]
    Syntax {
        /// Offset of the error in the text of the query, in bytes.
        at: usize,
        /// The reason.
        what: String,
    },
    /// The record does not exist.
    #[error("no record {record}: there are {records} records, numbered from 0")]
    NoRecord {
        /// Number of the requested record.
        record: usize,
        /// Number of records in the text.
        records: usize,
    },
    /// The records have no attribute of this name.
    #[error("no attribute {name:?}; the attributes are: {known}")]
    NoAttribute {
        /// The requested name.
        name: String,
        /// The names of the existing attributes.
        known: String,
    },
    /// The query takes more work than the limits allow.
    #[error("{what}: {count}, more than the limit of {max}; {remedy}")]
    TooMuchWork {
        /// The limited quantity.
        what: &'static str,
        /// The amount that the query takes, as far as it is known.
        count: usize,
        /// The limit.
        max: usize,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The input is larger than the maximum size of a shard.
    #[error(
        "the input of {len} bytes exceeds the limit of {max} bytes; split it at a record boundary"
    )]
    TooLarge {
        /// Length of the input, in bytes.
        len: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// The bytes are not a shard, or a shard of a version that this build cannot read.
    #[error("not a readable shard: {0}")]
    Unreadable(String),
    /// The contents of a section are invalid.
    #[error("section {section}: {what}")]
    Damaged {
        /// Name of the section.
        section: &'static str,
        /// The reason.
        what: String,
    },
    /// Layers cannot be built, added or published.
    #[error("layers: {0}")]
    Layers(String),
    /// The bytes of a section do not match their checksum.
    #[error(
        "section {section} at byte {offset}: checksum is {found:08x}, expected {expected:08x}; \
         restore the file"
    )]
    Checksum {
        /// Name of the section.
        section: String,
        /// Offset of the section in the file, in bytes.
        offset: usize,
        /// The stored checksum.
        expected: u32,
        /// The checksum computed from the bytes.
        found: u32,
    },
    /// The value of an option is invalid.
    #[error("option {option}: {what}")]
    Options {
        /// Name of the option.
        option: &'static str,
        /// The reason, and the valid values.
        what: String,
    },
    /// Writing the shard failed with an I/O error.
    #[error("cannot write the shard: {0}")]
    Write(#[from] std::io::Error),
}
