//! Splitting a stream: bytes in, in chunks of any size; record starts, and a report of bad records,
//! out.
//!
//! Cost: each byte is looked at once to find the ends of records and once to read them. In memory:
//! 8 bytes for each record, and the bytes of the record that has not ended yet (at most twice
//! [`RECORD_BYTES_MAX`], and a piece of a chunk).

use memchr::memchr_iter;

use super::order::{Order, key};
use super::split::{forced_len, record_len};
use super::{Field, Format, Number, Problem, RECORD_BYTES_MAX, Records, Schema, csv};
use crate::Error;

/// Bad records that a report names; it counts them all.
const REPORTED_MAX: usize = 100;
/// Bytes of a chunk that are taken up at once.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of the largest text: positions and rows of a shard fit 32 bits.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - 1;

/// A record that is invalid in its format.
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

/// Counts from splitting an input into records.
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
    /// Attributes to order records by, with the numbers so far and their records.
    orders: Vec<(String, Vec<(u64, u32)>)>,
    report: Report,
    /// The bytes from the start of the unfinished record on.
    pending: Vec<u8>,
    /// Not looked at again before `pending` has so many bytes: else a long record that comes in
    /// small chunks would cost the square of its length.
    retry_at: usize,
    /// Offset in the text, and line of the input, of the first pending byte.
    offset: usize,
    line: u64,
    header_due: bool,
    has_cuts: bool,
    ends_with_newline: bool,
}

impl Builder {
    /// A builder of records as `schema` says. Names of columns that it does not have are taken from
    /// the header, or numbered where there is none.
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
            has_cuts: false,
            ends_with_newline: true,
        }
    }

    /// Cuts records at `max` bytes instead of [`RECORD_BYTES_MAX`].
    #[cfg(test)]
    pub(crate) fn record_bytes_max(mut self, max: usize) -> Self {
        self.record_bytes_max = max.clamp(1, TEXT_BYTES_MAX);
        self
    }

    /// Makes a table of this attribute's numbers, so that ranges of it are looked up ([`Order`]).
    /// Takes 16 bytes for each number while records are split. Not for whole files, whose content
    /// is not read.
    #[must_use]
    pub(crate) fn order_by(mut self, attribute: &str) -> Self {
        if self.orders.iter().all(|(name, _)| name != attribute) {
            self.orders.push((attribute.to_owned(), Vec::new()));
        }
        self
    }

    /// The next bytes of the input, which are also the next bytes of the text.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] past the size of a shard; [`Error::Schema`] for whole files, which come
    /// by [`push_file`](Self::push_file).
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

    /// Adds a file of `content_len` bytes; returns what the text must hold before its content.
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
        // Not known without the content: then nothing is derived from it.
        self.ends_with_newline = false;
        Ok(before)
    }

    /// Takes the last record, which need not end with a newline.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`] for a schema that cannot be.
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

    /// Takes every record that has ended out of `pending`.
    fn split(&mut self, last: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while !rest.is_empty() {
            // One byte more than a record may have decides whether it is cut: with all that are at
            // hand, the chunks would.
            let fits = rest.len() <= self.record_bytes_max;
            let window = rest.get(..=self.record_bytes_max).unwrap_or(rest);
            let (len, is_cut) = match record_len(self.schema.format, window, last && fits) {
                Some(len) if len <= self.record_bytes_max => (len, false),
                None if fits => break,
                _ => (forced_len(self.schema.format, rest, self.record_bytes_max), true),
            };
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

    /// The header names the columns where they are not given.
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
            // Without header and names, the first row says how many columns there are.
            if self.schema.names.is_empty() && !is_cut {
                let columns = csv::values(delimiter, record).map_or(0, |values| values.len());
                self.schema.names = (0..columns).map(csv::column_name).collect();
            }
        }
        // Of columns that are not known yet: of a first row that is cut.
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
            // Blank lines that a record starts with are not where its problem is.
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
