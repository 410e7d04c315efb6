//! Finds the ends of records. Each format's rule is a function of the bytes from the record's start
//! on, so the result does not depend on the chunks of a stream.

use memchr::{memchr, memrchr};

use super::csv::{RowEnd, row_end};
use super::format::Format;

/// The record at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRecord {
    /// Its bytes, with its separator.
    pub len: usize,
    /// Whether it is longer, and was cut.
    pub is_cut: bool,
}

/// The record at the start of `bytes`, cut where it has more than `max` bytes; `None` if more bytes are needed. `last`: no more
/// bytes follow. `bytes` must not be empty.
pub fn next_record(format: Format, bytes: &[u8], max: usize, last: bool) -> Option<NextRecord> {
    // Looks at most one byte past the limit of a record, so that cuts do not depend on the chunks.
    let fits = bytes.len() <= max;
    let window = bytes.get(..=max).unwrap_or(bytes);
    match record_len(format, window, last && fits) {
        Some(len) if len <= max => Some(NextRecord { len, is_cut: false }),
        None if fits => None,
        _ => Some(NextRecord { len: forced_len(format, bytes, max), is_cut: true }),
    }
}

/// The length of the record at the start of `bytes`, including its separator; `None` if more bytes
/// are needed. `last`: no more bytes follow. `bytes` must not be empty.
pub fn record_len(format: Format, bytes: &[u8], last: bool) -> Option<usize> {
    match format {
        Format::Lines => match memchr(b'\n', bytes) {
            Some(newline) => Some(newline + 1),
            None => last.then_some(bytes.len()),
        },
        Format::JsonLines => {
            let start = after_blank_lines(bytes, 0, is_blank, last)?;
            let newline = memchr(b'\n', &bytes[start..]).map(|at| start + at);
            end_of_line(bytes, newline, is_blank, last)
        }
        Format::Csv { delimiter, .. } => {
            let start = after_blank_lines(bytes, 0, is_empty_line, last)?;
            let newline = match row_end(delimiter, &bytes[start..]) {
                RowEnd::At(at) => Some(start + at),
                // Quotes that are never closed: the row is its first line.
                RowEnd::InQuotes if last => memchr(b'\n', &bytes[start..]).map(|at| start + at),
                RowEnd::InQuotes | RowEnd::Later => None,
            };
            end_of_line(bytes, newline, is_empty_line, last)
        }
        Format::Stanzas => stanza_len(bytes, last),
        Format::Files => Some(bytes.len()),
    }
}

/// The position at which an overlong record is cut: a CSV row, whose quotes are presumably never closed, after its first line, so that the
/// rows after it are read; others after as many lines as fit.
pub fn forced_len(format: Format, bytes: &[u8], max: usize) -> usize {
    let head = &bytes[..bytes.len().min(max)];
    let newline = match format {
        Format::Csv { .. } => {
            let start = after_blank_lines(head, 0, is_empty_line, true).unwrap_or(0);
            memchr(b'\n', &head[start..]).map(|at| start + at)
        }
        _ => memrchr(b'\n', head),
    };
    newline.map_or(head.len(), |at| at + 1)
}

fn end_of_line(
    bytes: &[u8],
    newline: Option<usize>,
    blank: fn(&[u8]) -> bool,
    last: bool,
) -> Option<usize> {
    match newline {
        Some(at) => after_blank_lines(bytes, at + 1, blank, last),
        None => last.then_some(bytes.len()),
    }
}

/// The start of the first non-blank line at or after `at`. If all lines are blank, the end of the
/// bytes, once no more follow.
fn after_blank_lines(
    bytes: &[u8],
    mut at: usize,
    blank: fn(&[u8]) -> bool,
    last: bool,
) -> Option<usize> {
    loop {
        let rest = &bytes[at..];
        match memchr(b'\n', rest) {
            Some(newline) if blank(&rest[..newline]) => at += newline + 1,
            Some(_) => return Some(at),
            None if !blank(rest) => return Some(at),
            None => return last.then_some(bytes.len()),
        }
    }
}

fn stanza_len(bytes: &[u8], last: bool) -> Option<usize> {
    let mut line = after_blank_lines(bytes, 0, is_blank, last)?;
    loop {
        let Some(newline) = memchr(b'\n', &bytes[line..]) else {
            return last.then_some(bytes.len());
        };
        line += newline + 1;
        let next = after_blank_lines(bytes, line, is_blank, last)?;
        if next > line || next == bytes.len() {
            return Some(next);
        }
    }
}

/// Whether a line has only blanks; such a line separates stanzas and JSON records.
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

/// The bytes that `record` lacks of its format's separator, after the bytes `before`: empty if it has all of it. Only the
/// last record of an input can lack any. Lines end as the record's own lines do, or else as the line before.
pub fn missing_separator(format: Format, before: &[u8], record: &[u8]) -> &'static [u8] {
    let is_crlf = match memchr(b'\n', record) {
        Some(newline) => record[..newline].ends_with(b"\r"),
        None => before.ends_with(b"\r\n"),
    };
    let lines = match format {
        Format::Files => 0,
        Format::Stanzas => match record.strip_suffix(b"\n") {
            None => 2,
            Some(lines) => match memrchr(b'\n', lines) {
                Some(newline) if is_blank(&lines[newline + 1..]) => 0,
                _ => 1,
            },
        },
        _ => usize::from(!record.ends_with(b"\n")),
    };
    // The half of a line end that a cut left.
    let is_half = record.ends_with(b"\r");
    match (lines, is_crlf || is_half, is_half) {
        (0, ..) => b"",
        (1, false, _) | (1, true, true) => b"\n",
        (1, true, false) => b"\r\n",
        (_, false, _) => b"\n\n",
        (_, true, true) => b"\n\r\n",
        (_, true, false) => b"\r\n\r\n",
    }
}

/// Whether a line is empty; blanks would be a field of a CSV row.
fn is_empty_line(line: &[u8]) -> bool {
    line.iter().all(|&byte| byte == b'\r')
}

/// The line without its end, `\n` or `\r\n`.
pub fn line(record: &[u8]) -> &[u8] {
    let line = record.strip_suffix(b"\n").unwrap_or(record);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The path and the content of a file's record. Without a line for the path, all bytes are content.
pub fn file(record: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b'\n', record) {
        Some(newline) => (&record[..newline], &record[newline + 1..]),
        None => (&[], record),
    }
}
