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
mod foreign;
mod header;
mod json;
mod number;
mod order;
mod records;
mod split;
pub(crate) mod stanza;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use build::{BadRecord, Builder, Report};
pub use number::Number;
pub(crate) use order::Order;
pub use records::Records;

use crate::error::Error;

/// The byte-order mark that some programs write at the start of a text. It is no character of it.
pub const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Values that one record may have; one with more is bad.
pub(crate) const FIELDS_MAX: usize = 16_384;
/// Bytes of an attribute's name, paths of nested JSON included; a record with a longer one is bad.
pub(crate) const NAME_BYTES_MAX: usize = 512;
/// How deep JSON may nest; a deeper record is bad.
pub(crate) const DEPTH_MAX: usize = 64;
/// Bytes of a record; a longer one is cut, and its parts reported as bad.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// How an input is split into records, and how a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Format {
    /// One JSON object a line. Blank lines belong to the record before.
    JsonLines,
    /// Rows of fields. Blank lines belong to the record before.
    Csv {
        /// The byte between fields: `,`, a tab, `;`, `|`.
        delimiter: u8,
        /// Whether the first row names the columns, and is no record.
        header: bool,
    },
    /// `Name: value` lines, a blank line between records, lines that start with a blank go on with
    /// the value.
    Stanzas,
    /// Lines of text.
    Lines,
    /// Whole files, each with its path.
    Files,
}

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonLines => "json",
            Self::Csv { delimiter: b'\t', .. } => "tsv",
            Self::Csv { .. } => "csv",
            Self::Stanzas => "stanzas",
            Self::Lines => "lines",
            Self::Files => "files",
        }
    }

    /// The names in a table's header, as they are once its quotes and line end are taken off: two headers with the same names name
    /// the same columns. `None` if `row` is not all of a row, as where a quoted line break follows; and if this is not a table.
    pub fn header_names(self, row: &[u8]) -> Option<Vec<String>> {
        match self {
            Self::Csv { delimiter, .. } => csv::header(delimiter, row).ok(),
            _ => None,
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    /// The names of the command line: `json`, `csv` (comma, header), `tsv` (tab, header),
    /// `stanzas`, `lines`, `files`.
    fn from_str(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "json" | "jsonl" => Self::JsonLines,
            "csv" => Self::Csv { delimiter: b',', header: true },
            "tsv" => Self::Csv { delimiter: b'\t', header: true },
            "stanzas" => Self::Stanzas,
            "lines" => Self::Lines,
            "files" => Self::Files,
            _ => {
                return Err(Error::Schema(format!(
                    "no format {name:?}: json, csv, tsv, stanzas, lines or files"
                )));
            }
        })
    }
}

/// What the records of a dataset are: found by [`detect`](Schema::detect), or given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// How records are split and read.
    pub format: Format,
    /// Names of attributes: for CSV the columns in order; for JSON and stanzas those that a sample
    /// had, others may occur; `line`, or `path` and `content`, for the rest.
    pub names: Vec<String>,
    /// The attribute that [`get_by_key`](crate::query::Searcher::get_by_key) looks in.
    pub key: Option<String>,
}

/// One value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name of the attribute.
    pub name: Cow<'a, str>,
    /// Its value: of a JSON string and a quoted CSV field what it stands for, of everything else
    /// the bytes as they stand in the record, without blanks around them.
    pub value: Cow<'a, [u8]>,
}

/// Why a record cannot be read as its format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// JSON, but no object.
    #[error("JSON, but not an object")]
    NotAnObject,
    /// JSON that nests too deep.
    #[error("nests deeper than {DEPTH_MAX}")]
    TooDeep,
    /// A CSV row with another number of fields than there are columns.
    #[error("{got} fields in a row of {expected} columns")]
    Columns {
        /// The columns.
        expected: usize,
        /// The fields.
        got: usize,
    },
    /// A quoted CSV field that does not end with its quote.
    #[error("field {0}: unbalanced quotes")]
    Quotes(usize),
    /// A line of a stanza that is neither `Name: value` nor starts with a blank.
    #[error("line {0} of the stanza is not `Name: value`")]
    Line(usize),
    /// A name that is too long.
    #[error("an attribute's name has more than {NAME_BYTES_MAX} bytes")]
    Name,
    /// More values than a record may have.
    #[error("more than {FIELDS_MAX} values")]
    TooManyFields,
    /// A record that was cut.
    #[error("longer than {0} bytes: cut into several records")]
    TooLong(usize),
}

impl Schema {
    /// A schema of no names and no key, which a [`Builder`] completes.
    pub fn new(format: Format) -> Self {
        let names: &[&str] = match format {
            Format::Lines => &["line"],
            Format::Files => &["path", "content"],
            _ => &[],
        };
        let key = (format == Format::Files).then(|| "path".to_owned());
        Self { format, names: names.iter().map(|&name| name.to_owned()).collect(), key }
    }

    /// The attributes of a record in the order of its bytes. A name may come more than once.
    ///
    /// Cost: one pass over the record; of JSON one for each level of nesting.
    ///
    /// # Errors
    ///
    /// What makes it a bad record.
    pub fn fields<'a>(&'a self, record: &'a [u8]) -> Result<Vec<Field<'a>>, Problem> {
        match self.format {
            Format::JsonLines => json::fields(record),
            Format::Csv { delimiter, .. } => csv::fields(delimiter, &self.names, record),
            Format::Stanzas => stanza::fields(record),
            Format::Lines => Ok(vec![Field::borrowed("line", split::line(record))]),
            Format::Files => {
                let (path, content) = split::file(record);
                Ok(vec![Field::borrowed("path", path), Field::borrowed("content", content)])
            }
        }
    }

    /// What was put in: the record itself, and of a file its content.
    pub fn original<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        match self.format {
            Format::Files => split::file(record).1,
            _ => record,
        }
    }

    /// The bytes that `record`, which follows the bytes `before`, lacks of the separator of its format. They belong between
    /// it and a record that did not follow it in its text. Empty for all records but the last of an input without a final
    /// newline or blank line.
    pub fn missing_separator(&self, before: &[u8], record: &[u8]) -> &'static [u8] {
        split::missing_separator(self.format, before, record)
    }

    /// The length of the record at the start of `bytes`, as a [`Builder`] splits it, its separator included; `None` if more bytes are
    /// needed. `is_all`: no more bytes follow. A byte-order mark and a header are not told from a record. Reads no fields, so
    /// that it is several times as fast as a builder.
    pub fn record_len(&self, bytes: &[u8], is_all: bool) -> Option<usize> {
        if bytes.is_empty() {
            return None;
        }
        split::next_record(self.format, bytes, RECORD_BYTES_MAX, is_all).map(|next| next.len)
    }

    /// Whether [`names`](Schema::names) is all the attributes that records can have.
    pub fn is_closed(&self) -> bool {
        !matches!(self.format, Format::JsonLines | Format::Stanzas)
    }

    /// Collects what cannot be right, whoever made it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |what: String| Err(Error::Schema(what));
        if let Format::Csv { delimiter: delimiter @ (b'"' | b'\n' | b'\r'), .. } = self.format {
            return bad(format!("invalid field delimiter {:?}", char::from(delimiter)));
        }
        if self.names.len() > FIELDS_MAX {
            return bad(format!(
                "{} attribute names exceed the limit of {FIELDS_MAX}",
                self.names.len()
            ));
        }
        if let Some(long) = self.names.iter().chain(&self.key).find(|n| n.len() > NAME_BYTES_MAX) {
            return bad(format!(
                "an attribute name of {} bytes exceeds the limit of {NAME_BYTES_MAX}",
                long.len()
            ));
        }
        match &self.key {
            Some(key)
                if self.is_closed() && !self.names.is_empty() && !self.names.contains(key) =>
            {
                bad(format!(
                    "unknown key attribute {key:?}; the attributes are: {}",
                    self.names.join(", ")
                ))
            }
            _ => Ok(()),
        }
    }
}

impl<'a> Field<'a> {
    fn borrowed(name: &'a str, value: &'a [u8]) -> Self {
        Self { name: Cow::Borrowed(name), value: Cow::Borrowed(value) }
    }
}
