//! The study's tables as they are kept: numbers as they were printed, under the names of their columns.

use std::path::Path;

use anyhow::{Context as _, anyhow};

/// A table.
pub(super) struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// One row of it.
pub(super) struct Row<'a> {
    table: &'a Table,
    cells: &'a [String],
}

impl Table {
    /// Reads a file of a folder.
    pub fn read(folder: &Path, name: &str) -> anyhow::Result<Table> {
        let path = folder.join(name);
        let mut reader = csv::Reader::from_path(&path).with_context(|| {
            format!(
                "cannot read {}: the study's tables are not part of the project; `tables` in config.toml says \
                 where they are",
                path.display()
            )
        })?;
        let owned = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let columns = owned(reader.headers()?);
        let rows = reader
            .records()
            .map(|record| Ok(owned(&record?)))
            .collect::<anyhow::Result<_>>()
            .with_context(|| format!("{} is no table", path.display()))?;
        Ok(Table { name: name.to_owned(), columns, rows })
    }

    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells })
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
}

/// Half a unit of the last digit that a number is printed with.
pub(super) fn rounding(printed: &str) -> f64 {
    let digits = printed.trim().split_once('.').map_or(0, |(_, digits)| digits.len());
    0.5 * 10_f64.powi(-(digits as i32))
}
