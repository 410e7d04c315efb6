//! Where an input is cut into parts: at starts of records, about equally far from each other.
//!
//! Part `k` of `n` begins at the first cut at or after the byte `k·len/n`, so cuts depend on nothing but the text, the format and
//! the number of parts.
//!
//! Records of lines, JSON and stanzas are recognised from any position: a few lines are read at each cut, whatever the size of the
//! input. A row of a table may have quoted line breaks, so that only the rows before tell where it begins: a table is read once
//! from its start, by a scan that looks for quotes and line breaks alone.

use shard::record::{BYTE_ORDER_MARK, Format, Schema};

use super::text::Text;
use crate::error::Result;
use crate::import::Step;

/// Bytes read at a time where a few lines suffice. Few in tests, so that short texts have borders everywhere.
const LINES_BYTES: usize = if cfg!(test) { 5 } else { 16 << 10 };
/// Bytes read at a time by the scan of a table.
const SCAN_BYTES: usize = if cfg!(test) { 5 } else { 1 << 20 };

/// The starts of `count` parts and the end of the last, ascending. Parts may be empty if there are few records.
///
/// # Errors
///
/// If a file cannot be read.
pub(super) fn cuts(
    text: &mut Text<'_>,
    schema: &Schema,
    count: usize,
    tell: &mut dyn FnMut(Step),
) -> Result<Vec<u64>> {
    let len = text.len();
    let targets: Vec<u64> = targets(len, count).collect();
    let mut cuts = vec![0];
    if let Format::Csv { .. } = schema.format {
        cuts.extend(row_starts(text, schema, &targets, tell)?);
    } else {
        let first = first_line(text, schema.format)?;
        for target in targets {
            // A text with fewer bytes than parts: the first parts are empty.
            let position = if target == 0 { 0 } else { target.max(first) };
            cuts.push(record_start(text, schema.format, position)?);
        }
    }
    cuts.push(len);
    debug_assert!(cuts.is_sorted());
    Ok(cuts)
}

/// Where the parts after the first would begin if records could be cut.
pub(super) fn targets(len: u64, count: usize) -> impl Iterator<Item = u64> {
    let of = move |part| u128::from(len) * part as u128 / count.max(1) as u128;
    // At most `len`, which fits.
    (1..count).map(move |part| u64::try_from(of(part)).unwrap_or(len))
}

/// The first position at which a second record may begin: blank lines before the first line belong to the first record.
fn first_line(text: &mut Text<'_>, format: Format) -> Result<u64> {
    if format == Format::Lines {
        return Ok(0);
    }
    let mut begin = [0; BYTE_ORDER_MARK.len()];
    let has_mark = text.read_at(0, &mut begin)? == begin.len() && begin == *BYTE_ORDER_MARK;
    let mut lines = Lines::new(text, if has_mark { begin.len() as u64 } else { 0 });
    while let Some(line) = lines.next()? {
        if !line.is_blank {
            return Ok(line.start + 1);
        }
    }
    Ok(text.len())
}

/// The first start of a record at or after a position, of which the separator before is at or after it, too.
fn record_start(text: &mut Text<'_>, format: Format, position: u64) -> Result<u64> {
    if position == 0 {
        return Ok(0);
    }
    let len = text.len();
    // From the byte before: the position may be the start of a line.
    let mut lines = Lines::new(text, position - 1);
    lines.next()?;
    if format == Format::Lines {
        return Ok(lines.at);
    }
    let mut follows_blank = format != Format::Stanzas;
    while let Some(line) = lines.next()? {
        if line.is_blank {
            follows_blank = true;
        } else if follows_blank {
            return Ok(line.start);
        }
    }
    Ok(len)
}

/// For each target the first row that begins at or after it.
fn row_starts(
    text: &mut Text<'_>,
    schema: &Schema,
    targets: &[u64],
    tell: &mut dyn FnMut(Step),
) -> Result<Vec<u64>> {
    let len = text.len();
    let mut cuts = Vec::new();
    let (mut bytes, mut from, mut at) = (Vec::new(), 0, 0_u64);
    // A header has the byte-order mark; otherwise it is no part of the first row.
    let mut mark_due = !matches!(schema.format, Format::Csv { header: true, .. });
    loop {
        while targets.get(cuts.len()).is_some_and(|target| *target <= at) {
            cuts.push(at);
        }
        if cuts.len() == targets.len() {
            return Ok(cuts);
        }
        let rest: &[u8] = bytes.get(from..).unwrap_or_default();
        let is_all = at + rest.len() as u64 == len;
        let is_enough = !mark_due || is_all || rest.len() >= BYTE_ORDER_MARK.len();
        if is_enough && std::mem::take(&mut mark_due) && rest.starts_with(BYTE_ORDER_MARK) {
            from += BYTE_ORDER_MARK.len();
            at += BYTE_ORDER_MARK.len() as u64;
            continue;
        }
        let row = schema.record_len(rest, is_all).filter(|_| is_enough);
        if let Some(row) = row {
            from += row;
            at += row as u64;
        } else {
            // At the end every byte belongs to a row: there is more to read.
            bytes.drain(..from);
            let end = bytes.len();
            bytes.resize(end + SCAN_BYTES, 0);
            let position = at + end as u64;
            let count = text.read_at(position, bytes.get_mut(end..).unwrap_or_default())?;
            bytes.truncate(end + count);
            from = 0;
            tell(Step::Read(position + count as u64));
        }
    }
}

/// A line of the text.
struct Line {
    start: u64,
    /// Whether it has only blanks.
    is_blank: bool,
}

/// The lines from a position on.
struct Lines<'t, 'a> {
    text: &'t mut Text<'a>,
    /// The position of the next byte.
    at: u64,
    buffer: Vec<u8>,
    /// How many bytes of the buffer were taken.
    taken: usize,
}

impl<'t, 'a> Lines<'t, 'a> {
    fn new(text: &'t mut Text<'a>, at: u64) -> Lines<'t, 'a> {
        Lines { text, at, buffer: Vec::new(), taken: 0 }
    }

    /// The next line, or the rest of the one that the position is in; `None` at the end.
    fn next(&mut self) -> Result<Option<Line>> {
        let mut line = Line { start: self.at, is_blank: true };
        loop {
            let rest = self.buffer.get(self.taken..).unwrap_or_default();
            if rest.is_empty() {
                self.buffer.resize(LINES_BYTES, 0);
                let count = self.text.read_at(self.at, &mut self.buffer)?;
                self.buffer.truncate(count);
                self.taken = 0;
                if count == 0 {
                    return Ok((self.at > line.start).then_some(line));
                }
                continue;
            }
            let newline = rest.iter().position(|byte| *byte == b'\n');
            let content = rest.get(..newline.unwrap_or(rest.len())).unwrap_or_default();
            // As `shard` has it: what is a blank line to its records.
            line.is_blank &= content.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
            let count = newline.map_or(rest.len(), |at| at + 1);
            self.taken += count;
            self.at += count as u64;
            if newline.is_some() {
                return Ok(Some(line));
            }
        }
    }
}
