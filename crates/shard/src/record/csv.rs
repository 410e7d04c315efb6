//! Comma-separated values, after RFC 4180, with `csv-core`. A row ends with `\n` or `\r\n` (a lone
//! `\r` is data). Stricter than `csv-core`, which reads anything: quotes must enclose a field
//! whole, because a stray one most often means that a row was damaged, and because the index could
//! not find `ab` in `"a"b`.

use std::borrow::Cow;

use csv_core::{ReadFieldResult, ReaderBuilder, Terminator};
use memchr::{memchr, memchr2, memchr3, memrchr};

use super::field::{BYTE_ORDER_MARK, FIELDS_MAX, Field, NAME_BYTES_MAX, Problem};

/// Where a row ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowEnd {
    /// At the newline at this offset.
    At(usize),
    /// Past the bytes.
    Later,
    /// Past the bytes, within quotes that are not closed in them.
    InQuotes,
}

/// Where the row ends, ignoring newlines in quotes.
///
/// Quotes over several lines whose closing one stands before something else than a delimiter or the end of the line were most likely never
/// closed: that quote is another field's opening one. The row is its first line then, so that the rows between are read.
pub fn row_end(delimiter: u8, bytes: &[u8]) -> RowEnd {
    let mut at = 0;
    loop {
        // A quote opens only at the start of a field.
        if bytes.get(at) == Some(&b'"') {
            let opened = at;
            at += 1;
            loop {
                let Some(quote) = bytes.get(at..).and_then(|rest| memchr(b'"', rest)) else {
                    return RowEnd::InQuotes;
                };
                at += quote + 1;
                if bytes.get(at) != Some(&b'"') {
                    break;
                }
                at += 1;
            }
            let is_end = |byte: &u8| *byte == delimiter || b"\n\r \t".contains(byte);
            if bytes.get(at).is_some_and(|next| !is_end(next))
                && let Some(newline) = memchr(b'\n', &bytes[opened..at])
            {
                return RowEnd::At(opened + newline);
            }
        }
        match bytes.get(at..).and_then(|rest| memchr2(delimiter, b'\n', rest)) {
            None => return RowEnd::Later,
            Some(end) => at += end,
        }
        if bytes.get(at) == Some(&b'\n') {
            return RowEnd::At(at);
        }
        at += 1;
    }
}

/// The fields of a row, named by its columns. See [`super::Schema::fields`].
pub fn fields<'a>(
    delimiter: u8,
    names: &'a [String],
    record: &'a [u8],
) -> Result<Vec<Field<'a>>, Problem> {
    let values = values(delimiter, record)?;
    if !names.is_empty() && names.len() != values.len() {
        return Err(Problem::Columns { expected: names.len(), got: values.len() });
    }
    let name = |column: usize| match names.get(column) {
        Some(name) => Cow::Borrowed(name.as_str()),
        None => Cow::Owned(column_name(column)),
    };
    Ok(values
        .into_iter()
        .enumerate()
        .map(|(column, value)| Field { name: name(column), value })
        .collect())
}

/// The name of an unnamed column.
pub fn column_name(column: usize) -> String {
    format!("column{}", column + 1)
}

/// The names in a header, without a leading byte order mark; unnamed columns are numbered.
pub fn header(delimiter: u8, record: &[u8]) -> Result<Vec<String>, Problem> {
    let record = record.strip_prefix(BYTE_ORDER_MARK).unwrap_or(record);
    let values = values(delimiter, record)?;
    let names = values.iter().enumerate().map(|(column, value)| match value.trim_ascii() {
        [] => column_name(column),
        name => String::from_utf8_lossy(name).into_owned(),
    });
    let names: Vec<String> = names.collect();
    if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        Err(Problem::Name)
    } else {
        Ok(names)
    }
}

/// The values of a row's fields.
pub fn values(delimiter: u8, record: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, Problem> {
    let is_line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    // Strips blank lines before the row, and line ends after it.
    let blank = record.iter().position(|byte| !is_line_end(byte)).unwrap_or(record.len());
    let start = memrchr(b'\n', &record[..blank]).map_or(0, |newline| newline + 1);
    let end = record.iter().rposition(|byte| !is_line_end(byte)).map_or(start, |last| last + 1);
    let row = &record[start..end];
    if memchr3(b'"', b'\n', b'\r', row).is_none() {
        // Without quotes and line breaks, as in most rows, a plain split suffices.
        let values = row.split(|&byte| byte == delimiter).map(Cow::Borrowed);
        // No more are kept than it takes to refuse them: a row of 16 MiB may have as many fields.
        let values: Vec<_> = values.take(FIELDS_MAX + 1).collect();
        return if values.len() > FIELDS_MAX { Err(Problem::TooManyFields) } else { Ok(values) };
    }
    quoted_values(delimiter, row)
}

fn quoted_values(delimiter: u8, row: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, Problem> {
    let mut reader =
        ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
    // One byte more than the longest field, so that the reader never runs out of space.
    let mut decoded = vec![0; row.len() + 1];
    let mut values = Vec::new();
    let mut rest = row;
    loop {
        let (result, read, written) = reader.read_field(rest, &mut decoded);
        let problem = Problem::Quotes(values.len() + 1);
        let (Some((raw, after)), Some(value)) =
            (rest.split_at_checked(read), decoded.get(..written))
        else {
            return Err(problem);
        };
        let (raw, is_last) = match result {
            ReadFieldResult::Field { record_end: false } => {
                (raw.strip_suffix(&[delimiter]).unwrap_or(raw), false)
            }
            // The row ends without a terminator, or with a delimiter followed by an empty field.
            ReadFieldResult::InputEmpty => (raw, true),
            ReadFieldResult::Field { record_end: true } if rest.is_empty() => (raw, true),
            _ => return Err(problem),
        };
        values.push(checked(raw, value).ok_or(problem)?);
        if values.len() > FIELDS_MAX {
            return Err(Problem::TooManyFields);
        }
        if is_last {
            return Ok(values);
        }
        rest = after;
    }
}

/// The value of a correctly written field: either it does not start with a quote, or it is enclosed
/// in quotes, with inner quotes doubled.
fn checked<'a>(raw: &'a [u8], value: &[u8]) -> Option<Cow<'a, [u8]>> {
    if raw.first() != Some(&b'"') {
        return (raw == value).then_some(Cow::Borrowed(raw));
    }
    let inner = raw.get(1..)?.strip_suffix(b"\"")?;
    let quotes = value.iter().filter(|&&byte| byte == b'"').count();
    let regular = inner.len() == value.len() + quotes;
    match (regular, quotes) {
        (true, 0) => Some(Cow::Borrowed(inner)),
        (true, _) => Some(Cow::Owned(value.to_vec())),
        (false, _) => None,
    }
}
