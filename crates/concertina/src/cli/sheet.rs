//! Reads CSV files of measurements: a line of column names, then rows. Every error names its file
//! and line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use csv::{ErrorKind, ReaderBuilder, Trim};
use ground::number::exact;

/// The largest number of rows.
const ROWS_MAX: usize = 1 << 20;

/// A CSV file in memory. Lines that begin with `#` are comments.
pub struct Sheet {
    path: PathBuf,
    head: Vec<String>,
    rows: Vec<Row>,
}

/// One row.
pub struct Row {
    line: u64,
    cells: Vec<String>,
}

impl Sheet {
    /// Reads a file.
    pub fn read(path: &Path) -> anyhow::Result<Sheet> {
        let shown = path.display();
        let text = record::file::read(path, record::file::TEXT_BYTES_MAX)
            .with_context(|| format!("cannot read {shown}"))?;
        let mut reader =
            ReaderBuilder::new().trim(Trim::All).comment(Some(b'#')).from_reader(&text[..]);
        let wrong = |error: csv::Error| {
            let line = line_of(&text, error.position());
            match error.kind() {
                ErrorKind::UnequalLengths { expected_len, len, .. } => anyhow::anyhow!(
                    "{shown}:{line}: {len} fields, but the first line has {expected_len}; separate fields by commas \
                     and quote a field that contains one"
                ),
                ErrorKind::Utf8 { .. } => anyhow::anyhow!("{shown}:{line}: this is not UTF-8 text"),
                _ => anyhow::anyhow!("{shown}:{line}: {error}"),
            }
        };
        let head: Vec<String> =
            reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
        let mut seen = BTreeSet::new();
        if let Some(twice) = head.iter().find(|name| !seen.insert(name.as_str())) {
            bail!("{shown}: two columns are named {twice:?}; give each its own name");
        }
        if head.is_empty() || head.iter().all(String::is_empty) {
            bail!(
                "{shown} is empty; its first line names the columns, like `size_bytes,read_share,throughput`"
            );
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            if rows.len() == ROWS_MAX {
                bail!("{shown} has more than {ROWS_MAX} rows");
            }
            let line = line_of(&text, record.position());
            rows.push(Row { line, cells: record.iter().map(str::to_owned).collect() });
        }
        if rows.is_empty() {
            bail!("{shown} has no rows below the column names");
        }
        Ok(Sheet { path: path.to_owned(), head, rows })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the columns.
    pub fn head(&self) -> &[String] {
        &self.head
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether there is a column with this name.
    pub fn has(&self, name: &str) -> bool {
        self.head.iter().any(|h| h == name)
    }

    /// The index of a column.
    pub fn column(&self, name: &str) -> anyhow::Result<usize> {
        match self.head.iter().position(|h| h == name) {
            Some(at) => Ok(at),
            None => bail!(
                "{} has no column {name:?}; it has {}",
                self.path.display(),
                self.head.join(", ")
            ),
        }
    }

    /// The position of a row: `FILE:LINE`.
    pub fn place(&self, row: &Row) -> String {
        format!("{}:{}", self.path.display(), row.line)
    }

    /// The text of a cell; an empty cell is an error.
    pub fn text<'a>(&self, row: &'a Row, column: usize) -> anyhow::Result<&'a str> {
        match row.cells.get(column).map(String::as_str) {
            Some(text) if !text.is_empty() => Ok(text),
            _ => bail!(
                "{}: {} is empty; fill it in, or leave the row out",
                self.place(row),
                self.head[column]
            ),
        }
    }

    /// The number in a cell, which must lie in `range`.
    pub fn number(
        &self,
        row: &Row,
        column: usize,
        range: std::ops::RangeInclusive<f64>,
    ) -> anyhow::Result<f64> {
        let text = self.text(row, column)?;
        let (place, name) = (self.place(row), &self.head[column]);
        let Ok(value) = text.parse::<f64>() else {
            bail!("{place}: {name} is not a number: {text:?}");
        };
        if value.is_finite() && range.contains(&value) {
            return Ok(value);
        }
        bail!(
            "{place}: {name} is {text}, but must lie between {} and {}",
            exact(*range.start()),
            exact(*range.end())
        )
    }
}

/// The line number of a record, from 1. Its position may be that of empty lines and comments before
/// it.
fn line_of(text: &[u8], position: Option<&csv::Position>) -> u64 {
    let Some(position) = position else { return 0 };
    let rest = text.get(position.byte() as usize..).unwrap_or_default();
    let lines = rest.split(|byte| *byte == b'\n');
    let skipped =
        lines.take_while(|line| matches!(line.first(), None | Some(b'#' | b'\r'))).count();
    position.line() + skipped as u64
}

/// Parses a confidence level, like `0.95` or `95%`.
pub fn confidence(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("invalid confidence `{text}`: it lies between 0.5 and 0.9999, like 0.95 or 95%");
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|p| p / 100.0),
        None => text.trim().parse::<f64>(),
    };
    value.ok().filter(|v| (0.5..=0.9999).contains(v)).ok_or_else(wrong)
}
