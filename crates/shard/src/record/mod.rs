//! Records: splitting an input, and the attributes of records.
//!
//! Splitting is lossless: the concatenated records of an input are its bytes. A record includes the
//! separator after it (its newline, the blank line after a stanza), so a record's bytes are
//! determined by its start and the next one's ([`Records`]: one Elias–Fano sequence). Only the
//! header of a CSV file and a byte-order mark are not part of any record.
//!
//! | format | a record | its attributes |
//! |---|---|---|
//! | [`JsonLines`](Format::JsonLines) | a line, an object (RFC 8259) | the leaves by path (`a.b`); an array's elements are values of one name |
//! | [`Csv`](Format::Csv) | a row (RFC 4180), quoted fields may hold line breaks | the columns |
//! | [`Stanzas`](Format::Stanzas) | lines up to a blank one (Debian control format) | `Name: value`, folded lines belong to the value |
//! | [`Lines`](Format::Lines) | a line | `line` |
//! | [`Files`](Format::Files) | a file: its path on a line of its own, then its bytes | `path`, `content` |
//!
//! A record that is malformed in its format is *bad*: it is kept byte for byte, found by searches
//! of the text, reported by line ([`Report`]), and has no attributes.
//!
//! ```
//! use shard::record::{Builder, Schema};
//!
//! let text = b"Package: ed\nSection: editors\n\nPackage: nvi\nSection: editors\n";
//! let mut builder = Builder::new(Schema::detect(text));
//! builder.push(text)?;
//! let (records, report) = builder.finish()?;
//! assert_eq!((records.len(), report.bad), (2, 0));
//! assert_eq!(records.range(1), Some(30..60));
//! assert_eq!(records.record_of(45), Some(1));
//! let fields = records.schema().fields(&text[30..60]).unwrap();
//! assert_eq!((&*fields[0].name, &*fields[0].value), ("Package", &b"nvi"[..]));
//! # Ok::<(), shard::Error>(())
//! ```

mod build;
mod csv;
pub mod detect;
#[cfg(test)]
mod detect_tests;
mod field;
mod foreign;
mod format;
mod header;
mod json;
mod number;
mod order;
mod records;
mod sample;
mod schema;
mod split;
pub(crate) mod stanza;
#[cfg(test)]
mod tests;

pub use build::{BadRecord, Builder, Report};
pub(crate) use field::FIELDS_MAX;
pub use field::{BYTE_ORDER_MARK, Field, Problem, RECORD_BYTES_MAX};
pub use format::Format;
pub use number::Number;
pub use records::Records;
pub use sample::Sample;
pub use schema::Schema;
