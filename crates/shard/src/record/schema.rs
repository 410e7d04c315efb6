//! What the records of a dataset are, and how one is read.

use serde::{Deserialize, Serialize};

use super::csv;
use super::field::{FIELDS_MAX, Field, NAME_BYTES_MAX, Problem, RECORD_BYTES_MAX};
use super::format::Format;
use super::json;
use super::split;
use super::stanza;
use crate::error::Error;

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

impl Schema {
    /// A schema of no names and no key, which a [`super::Builder`] completes.
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

    /// The length of the record at the start of `bytes`, as a [`super::Builder`] splits it, its separator included; `None` if more bytes are
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

impl Format {
    /// The names in a table's header, as they are once its quotes and line end are taken off: two headers with the same names name
    /// the same columns. `None` if `row` is not all of a row, as where a quoted line break follows; and if this is not a table.
    pub fn header_names(self, row: &[u8]) -> Option<Vec<String>> {
        match self {
            Self::Csv { delimiter, .. } => csv::header(delimiter, row).ok(),
            _ => None,
        }
    }
}
