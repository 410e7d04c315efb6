//! What can be wrong with a shard's bytes, or with what was asked of it.

/// An error of this crate. Each says what was wrong and where; no stored byte makes anything panic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A range that is not within the text.
    #[error("{len} bytes from offset {offset} on are not within the text of {text_len} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: usize,
        /// Bytes asked for.
        len: usize,
        /// Bytes of the text.
        text_len: usize,
    },
    /// A schema that cannot be, or an input that is not as its schema says.
    #[error("the schema: {0}")]
    Schema(String),
    /// A query that cannot be read.
    #[error("the query, at byte {at}: {what}")]
    Syntax {
        /// Offset in the query's text.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// A record that there is not.
    #[error("no record {record}: there are {records}, counted from 0")]
    NoRecord {
        /// The record asked for.
        record: usize,
        /// Records of the text.
        records: usize,
    },
    /// An attribute that no record can have.
    #[error("no attribute {name:?}: there are {known}")]
    NoAttribute {
        /// The name asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A query that would take more work than its limits allow.
    #[error("{what}: {count}, more than the limit of {max}; {remedy}")]
    TooMuchWork {
        /// What there would be too many of.
        what: &'static str,
        /// How many.
        count: usize,
        /// The limit.
        max: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// An input larger than a shard may be.
    #[error(
        "an input of {len} bytes is more than the {max} that one shard holds; split it on a record boundary"
    )]
    TooLarge {
        /// Bytes of the input.
        len: usize,
        /// The most that there may be.
        max: usize,
    },
    /// Bytes that are not a shard, or of a version that this build cannot read.
    #[error("not a shard that this version reads: {0}")]
    Unreadable(String),
    /// A section whose bytes are not what was written.
    #[error("section {section}: {what}")]
    Damaged {
        /// Name of the section.
        section: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// Layers that cannot be made, added or published.
    #[error("layers: {0}")]
    Layers(String),
    /// A section whose bytes do not match their checksum.
    #[error(
        "section {section}, from byte {offset} on: its checksum is {found:08x} instead of \
         {expected:08x}; restore the file"
    )]
    Checksum {
        /// Name of the section.
        section: String,
        /// Where it starts in the file.
        offset: usize,
        /// The checksum that was written.
        expected: u32,
        /// The checksum of the bytes that are there.
        found: u32,
    },
    /// An option that cannot be.
    #[error("option {option}: {what}")]
    Options {
        /// Name of the option.
        option: &'static str,
        /// What is wrong with it, and what it may be.
        what: String,
    },
    /// A writer's own error while a shard was written to it.
    #[error("cannot write the shard: {0}")]
    Write(#[from] std::io::Error),
}
