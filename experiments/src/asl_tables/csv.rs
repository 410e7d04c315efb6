//! Reads the study's tables: CSV files whose numbers are text exactly as printed.

use std::path::Path;

use anyhow::{Context as _, anyhow};

/// One table of the study.
pub(super) struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// One row of a [`Table`].
pub(super) struct Row<'a> {
    table: &'a Table,
    cells: &'a [String],
}

impl Table {
    /// Reads `file` in `folder`.
    pub fn read(folder: &Path, name: &str) -> anyhow::Result<Table> {
        let path = folder.join(name);
        let mut reader = csv::Reader::from_path(&path).with_context(|| unread(&path))?;
        let owned = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let columns = owned(reader.headers()?);
        let rows = reader
            .records()
            .map(|record| Ok(owned(&record?)))
            .collect::<anyhow::Result<_>>()
            .with_context(|| format!("{} is not a table", path.display()))?;
        Ok(Table { name: name.to_owned(), columns, rows })
    }

    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells })
    }

    /// The first row whose `column` equals `value`.
    pub fn find(&self, column: &str, cell: &str) -> anyhow::Result<Row<'_>> {
        self.rows()
            .find(|row| row.text(column).is_ok_and(|text| text == cell))
            .with_context(|| format!("{} has no row with {cell:?} in {column}", self.name))
    }
}

impl<'a> Row<'a> {
    /// A cell as printed.
    pub fn text(&self, column: &str) -> anyhow::Result<&'a str> {
        let at = self.table.columns.iter().position(|name| name == column);
        let cell = at.and_then(|at| self.cells.get(at)).map(String::as_str);
        cell.with_context(|| format!("{} has no column {column:?}", self.table.name))
    }

    /// A cell as a number.
    pub fn number(&self, column: &str) -> anyhow::Result<f64> {
        let text = self.text(column)?;
        text.trim()
            .parse()
            .map_err(|_| anyhow!("{}: {column} is {text:?}, not a number", self.table.name))
    }

    /// A cell as a number, and half a unit of its last digit.
    pub fn number_and_half(&self, column: &str) -> anyhow::Result<(f64, f64)> {
        Ok((self.number(column)?, rounding(self.text(column)?)))
    }
}

/// The message for a file of the study that cannot be read.
pub(super) fn unread(path: &Path) -> String {
    format!(
        "cannot read {}: the study's tables are not part of the project; `tables` in config.toml says where they are",
        path.display()
    )
}

/// The number of digits printed after the decimal point; `1.7e-02` has three.
pub(super) fn digits(printed: &str) -> usize {
    let (mantissa, exponent) = printed.trim().split_once('e').unwrap_or((printed.trim(), "0"));
    let behind = mantissa.split_once('.').map_or(0, |(_, digits)| digits.len());
    let exponent: i64 = exponent.parse().unwrap_or(0);
    usize::try_from(behind as i64 - exponent).unwrap_or(0)
}

/// Half a unit of a printed number's last digit.
pub(super) fn rounding(printed: &str) -> f64 {
    0.5 * 10_f64.powi(-(digits(printed) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_behind_the_point() {
        assert_eq!(["12", "0.10", "1.7e-02", "3e2"].map(digits), [0, 2, 3, 0]);
        assert!((rounding("0.385") - 0.0005).abs() < 1e-15);
    }
}
