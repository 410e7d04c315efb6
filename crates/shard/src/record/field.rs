//! A value of a record, the limits of values, and why a record cannot be read.

use std::borrow::Cow;

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

impl<'a> Field<'a> {
    pub(super) fn borrowed(name: &'a str, value: &'a [u8]) -> Self {
        Self { name: Cow::Borrowed(name), value: Cow::Borrowed(value) }
    }
}
