//! `Name: value` stanzas: the control format of Debian (deb-control(5), deb822(5)), and the headers
//! of mail and HTTP. Unlike there, names are case-sensitive.

use memchr::{memchr, memrchr};

use super::field::{FIELDS_MAX, Field, NAME_BYTES_MAX, Problem};
use super::split::{is_blank, line as line_of};

/// The fields of a stanza. A value is a range of the record: from the first non-blank byte after
/// the colon to the last non-blank byte of its last folded line; the folds are part of it.
pub fn fields(record: &[u8]) -> Result<Vec<Field<'_>>, Problem> {
    let mut fields: Vec<Field<'_>> = Vec::new();
    // The name and value that later lines may continue, as offsets in the record.
    let mut open: Option<(&str, usize, usize)> = None;
    let mut at = 0;
    for (number, line) in record.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let (start, end) = (at, at + line.len());
        at = end;
        if is_blank(line_of(line)) {
            continue;
        }
        if matches!(line.first(), Some(b' ' | b'\t')) {
            match &mut open {
                Some((_, _, value_end)) => *value_end = end,
                None => return Err(Problem::Line(number + 1)),
            }
            continue;
        }
        if let Some((name, from, to)) = open.take() {
            fields.push(Field::borrowed(name, trimmed(&record[from..to])));
        }
        if fields.len() >= FIELDS_MAX {
            return Err(Problem::TooManyFields);
        }
        let (name, value_start) = name(line).ok_or(Problem::Line(number + 1))?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Problem::Name);
        }
        open = Some((name, start + value_start, end));
    }
    if let Some((name, from, to)) = open {
        fields.push(Field::borrowed(name, trimmed(&record[from..to])));
    }
    if fields.is_empty() { Err(Problem::Line(1)) } else { Ok(fields) }
}

/// The field, from its name on, that is open at the end of `before`, for a valid stanza in which a
/// non-blank byte follows. `None` if it may begin before `before`, which is the start of the stanza
/// only if `is_start`.
pub(crate) fn open_field(before: &[u8], is_start: bool) -> Option<&[u8]> {
    let mut lines = before;
    loop {
        let start = match memrchr(b'\n', lines) {
            Some(end) => end + 1,
            None if is_start => 0,
            None => return None,
        };
        let field = &before[start..];
        // A folded or an empty line continues the open field.
        if !matches!(field.first(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            return Some(field);
        }
        lines = &before[..start.checked_sub(1)?];
    }
}

/// Trims blanks and line ends.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// Parses a name, which is printable ASCII without blanks and colons. Returns it with the position
/// after its colon.
fn name(line: &[u8]) -> Option<(&str, usize)> {
    let colon = memchr(b':', line)?;
    let name = line.get(..colon)?;
    let printable = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    let name = std::str::from_utf8(name).ok().filter(|_| printable)?;
    Some((name, colon + 1))
}
