//! Splits a stream of bytes, in chunks of any size, into records, and reports malformed ones.
//!
//! Cost: each byte is scanned once to find the ends of records and once to parse them. Memory: 8
//! bytes per record, and the bytes of the incomplete record (at most twice [`RECORD_BYTES_MAX`],
//! and a piece of a chunk).

use memchr::memchr_iter;

use super::csv;
use super::field::{BYTE_ORDER_MARK, Field, Problem, RECORD_BYTES_MAX};
use super::format::Format;
use super::number::Number;
use super::order::{Order, key};
use super::records::Records;
use super::schema::Schema;
use super::split::{NextRecord, next_record};
use crate::error::Error;

/// The most malformed records listed in a report, which counts all of them.
const REPORTED_MAX: usize = 100;
/// The number of bytes of a chunk processed at once.
const PIECE_BYTES: usize = 1 << 20;
/// The largest text in bytes: positions and rows of a shard fit 32 bits.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - 1;

/// A malformed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The record; `None` for the header of a CSV file.
    pub record: Option<usize>,
    /// Number of the input's line at which the record starts, counted from 1.
    pub line: u64,
    /// The reason.
    pub problem: Problem,
}

impl std::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// The result of splitting an input into records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of records, invalid ones included.
    pub records: usize,
    /// Number of records that are invalid in their format. They are kept, without attributes.
    pub bad: usize,
    /// The first 100 invalid records.
    pub first_bad: Vec<BadRecord>,
}

/// Splits an input into records. See [`super`] for an example.
#[derive(Debug)]
pub struct Builder {
    schema: Schema,
    record_bytes_max: usize,
    starts: Vec<u64>,
    /// Attributes with tables of numbers: the numbers so far and their records.
    orders: Vec<(String, Vec<(u64, u32)>)>,
    report: Report,
    /// The bytes from the start of the incomplete record on.
    pending: Vec<u8>,
    /// `pending` is not scanned again before it has this many bytes. Otherwise a long record in
    /// small chunks would take time quadratic in its length.
    retry_at: usize,
    /// Offset in the text, and line of the input, of the first pending byte.
    offset: usize,
    line: u64,
    header_due: bool,
    /// Whether the first bytes may be a byte-order mark. With a header it is part of that.
    mark_due: bool,
    has_cuts: bool,
    ends_with_newline: bool,
}

impl Builder {
    /// Creates a builder for records of `schema`. Missing names of columns are taken from the
    /// header, or numbered if there is no header.
    pub fn new(schema: Schema) -> Self {
        let header_due = matches!(schema.format, Format::Csv { header: true, .. });
        Self {
            schema,
            record_bytes_max: RECORD_BYTES_MAX,
            starts: Vec::new(),
            orders: Vec::new(),
            report: Report::default(),
            pending: Vec::new(),
            retry_at: 0,
            offset: 0,
            line: 1,
            header_due,
            mark_due: !header_due,
            has_cuts: false,
            ends_with_newline: true,
        }
    }

    /// Sets the length at which records are cut, instead of [`RECORD_BYTES_MAX`].
    #[cfg(test)]
    pub(crate) fn record_bytes_max(mut self, max: usize) -> Self {
        self.record_bytes_max = max.clamp(1, TEXT_BYTES_MAX);
        self
    }

    /// Builds a table of this attribute's numbers for queries of ranges ([`Order`]). Takes 16 bytes
    /// per number while records are split. Not for whole files, whose content is not parsed.
    #[must_use]
    pub(crate) fn order_by(mut self, attribute: &str) -> Self {
        if self.orders.iter().all(|(name, _)| name != attribute) {
            self.orders.push((attribute.to_owned(), Vec::new()));
        }
        self
    }

    /// Adds the next bytes of the input, which are also the next bytes of the text.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] past the size of a shard; [`Error::Schema`] for whole files, which are
    /// added by `push_file`.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        if self.schema.format == Format::Files {
            return Err(Error::Schema("whole files are added one by one, with their paths".into()));
        }
        let len = self.offset.saturating_add(self.pending.len()).saturating_add(chunk.len());
        if len > TEXT_BYTES_MAX {
            return Err(Error::TooLarge { len, max: TEXT_BYTES_MAX });
        }
        if let Some(&byte) = chunk.last() {
            self.ends_with_newline = byte == b'\n';
        }
        for piece in chunk.chunks(PIECE_BYTES) {
            self.pending.extend_from_slice(piece);
            if self.pending.len() >= self.retry_at {
                self.split(false);
                self.retry_at = 2 * self.pending.len();
            }
        }
        Ok(())
    }

    /// Adds a file of `content_len` bytes. Returns the bytes that must precede its content in the
    /// text.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`] for another format, or a path with a line break; [`Error::TooLarge`] past
    /// the size of a record or a shard.
    pub(crate) fn push_file(&mut self, path: &str, content_len: usize) -> Result<Vec<u8>, Error> {
        if self.schema.format != Format::Files {
            return Err(Error::Schema("only records that are whole files have a path".into()));
        }
        if path.contains('\n') {
            return Err(Error::Schema(format!("path {path:?} contains a line break")));
        }
        let before = format!("{path}\n").into_bytes();
        let len = before.len().saturating_add(content_len);
        if len > self.record_bytes_max {
            return Err(Error::TooLarge { len, max: self.record_bytes_max });
        }
        if self.offset + len > TEXT_BYTES_MAX {
            return Err(Error::TooLarge { len: self.offset + len, max: TEXT_BYTES_MAX });
        }
        self.starts.push(self.offset as u64);
        self.report.records += 1;
        self.offset += len;
        // Unknown without the content, so nothing is derived from it.
        self.ends_with_newline = false;
        Ok(before)
    }

    /// Completes the last record, which need not end with a newline, and returns the records and
    /// the report.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`] for an invalid schema.
    pub fn finish(mut self) -> Result<(Records, Report), Error> {
        self.split(true);
        self.schema.check()?;
        let whole_lines = self.ends_with_newline && !self.has_cuts;
        let all_good = self.schema.format != Format::Files && self.report.bad == 0;
        let mut records =
            Records::new(self.schema, &self.starts, self.offset, whole_lines, all_good)?;
        if records.schema().format != Format::Files {
            for (attribute, entries) in self.orders {
                records.add_order(attribute, Order::new(entries, self.starts.len())?);
            }
        }
        Ok((records, self.report))
    }

    /// Leaves the last record out, which may go on in bytes that are not here yet. Returns the schema with the attributes of the
    /// others, and where that record starts.
    pub fn leave_last(mut self) -> (Schema, usize) {
        self.split(false);
        (self.schema, self.offset)
    }

    /// Removes every complete record from `pending`.
    fn split(&mut self, last: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        if self.mark_due {
            if !last && rest.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(rest) {
                self.pending = pending;
                return;
            }
            self.mark_due = false;
            if let Some(after) = rest.strip_prefix(BYTE_ORDER_MARK) {
                self.offset += BYTE_ORDER_MARK.len();
                rest = after;
            }
        }
        while !rest.is_empty() {
            let next = next_record(self.schema.format, rest, self.record_bytes_max, last);
            let Some(NextRecord { len, is_cut }) = next else { break };
            let (record, after) = rest.split_at(len);
            self.has_cuts |= is_cut;
            self.take(record, is_cut);
            rest = after;
        }
        self.pending = rest.to_vec();
    }

    fn take(&mut self, record: &[u8], is_cut: bool) {
        if self.header_due {
            self.header_due = false;
            self.take_header(record);
        } else {
            self.starts.push(self.offset as u64);
            self.report.records += 1;
            let problem = self.problem(record, is_cut);
            let cut = is_cut.then_some(Problem::TooLong(self.record_bytes_max));
            if let Some(problem) = cut.or(problem) {
                self.report(Some(self.starts.len() - 1), record, problem);
            }
        }
        self.offset += record.len();
        self.line += memchr_iter(b'\n', record).count() as u64;
    }

    /// Takes the names of columns from the header, unless they are given.
    fn take_header(&mut self, record: &[u8]) {
        let Format::Csv { delimiter, .. } = self.schema.format else { return };
        match csv::header(delimiter, record) {
            Ok(names) if self.schema.names.is_empty() => self.schema.names = names,
            Ok(names) if names.len() != self.schema.names.len() => {
                let expected = self.schema.names.len();
                self.report(None, record, Problem::Columns { expected, got: names.len() });
            }
            Ok(_) => {}
            Err(problem) => self.report(None, record, problem),
        }
    }

    fn problem(&mut self, record: &[u8], is_cut: bool) -> Option<Problem> {
        if let Format::Csv { delimiter, .. } = self.schema.format {
            // Without header and names, the first row determines the number of columns.
            if self.schema.names.is_empty() && !is_cut {
                let columns = csv::values(delimiter, record).map_or(0, |values| values.len());
                self.schema.names = (0..columns).map(csv::column_name).collect();
            }
        }
        // The columns are unknown if the first row is cut.
        let is_unknown =
            matches!(self.schema.format, Format::Csv { .. }) && self.schema.names.is_empty();
        match self.schema.fields(record) {
            Ok(_) if is_unknown => None,
            Ok(fields) => {
                take_numbers(&mut self.orders, &fields, self.starts.len() - 1);
                None
            }
            Err(problem) => Some(problem),
        }
    }

    fn report(&mut self, index: Option<usize>, record: &[u8], problem: Problem) {
        if index.is_some() {
            self.report.bad += 1;
        }
        if self.report.first_bad.len() < REPORTED_MAX {
            // Report the first line after leading blank lines.
            let blank = record.iter().take_while(|byte| byte.is_ascii_whitespace());
            let line = self.line + blank.filter(|&&byte| byte == b'\n').count() as u64;
            self.report.first_bad.push(BadRecord { record: index, line, problem });
        }
    }
}

fn take_numbers(orders: &mut [(String, Vec<(u64, u32)>)], fields: &[Field<'_>], record: usize) {
    for (attribute, entries) in orders {
        for field in fields.iter().filter(|field| field.name == *attribute) {
            entries.extend(Number::parse(&field.value).map(|n| (key(n), record as u32)));
        }
    }
}
