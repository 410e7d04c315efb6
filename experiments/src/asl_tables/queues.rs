//! Tables 13 to 20, 25 and 26: M/M/1 and M/M/m, every cell computed again.

use std::path::Path;

use anyhow::Context as _;
use model::queue::{Mmm, Queue as _};
use serde::Deserialize;

use super::cells::{Range, Sheet};
use super::csv::{Row, Table};
use report::grid::Grid;

/// A table of one queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    table: u32,
    file: String,
    /// Services per second of one server, and half a unit of its last digit.
    rate: f64,
    rounding: f64,
    servers: u32,
    /// The cells that it repeats from tables of M/M/1.
    again: Option<Again>,
}

/// The cells that a table of M/M/m repeats from other tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Again {
    /// The table with the same measured rows.
    rows: u32,
    /// The table with the same service rate per thread, and the number of threads that the rate is for.
    rate: u32,
    threads: u32,
}

/// The result of comparing all tables.
pub(super) struct Outcome {
    /// Cells that the study's models computed.
    pub models: Sheet,
    /// Cells that were measured, or repeated from another table.
    pub others: Sheet,
    /// The number of rows whose sampled length was compared with Little's law.
    pub checked: usize,
    pub text: String,
}

const COLUMNS: [&str; 5] = ["rho", "E_n", "E_nq", "E_r_ms", "E_w_ms"];
const REPEATED: [&str; 5] = ["lambda", "qlen", "qlen_x2", "qtime_ms", "wtime_ms"];
const HEAD: [&str; 14] = [
    "clients", "λ", "ρ", "", "E[n]", "", "E[nq]", "", "E[r] ms", "", "E[w] ms", "", "length", "λ·W",
];

/// There are two middlewares in all of these tables, each with a queue.
const MIDDLEWARES: f64 = 2.0;

pub(super) fn compute(folder: &Path, tables: &[Printed]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        models: Sheet::default(),
        others: Sheet::default(),
        checked: 0,
        text: String::new(),
    };
    for printed in tables {
        let table = Table::read(folder, &printed.file)?;
        let columns = if printed.again.is_some() { HEAD.len() - 2 } else { HEAD.len() };
        let mut grid = Grid::new("rrrrrrrrrrrrrr", &HEAD[..columns]);
        for row in table.rows() {
            let clients = row.text("num_clients")?;
            let name = |column: &str| format!("{clients} clients, {column}");
            let mut line = vec![clients.to_owned(), row.text("lambda")?.to_owned()];
            for (column, is) in COLUMNS.into_iter().zip(printed.compute_columns(&row)?) {
                let cell = row.text(column)?;
                line.push(cell.to_owned());
                line.push(outcome.models.computed(printed.table, &name(column), cell, is));
            }
            let (length, half) = row.number_and_half("qlen")?;
            let twice = Range::around(2.0 * length, 2.0 * half);
            outcome.others.computed(printed.table, &name("qlen_x2"), row.text("qlen_x2")?, twice);
            if printed.again.is_none() {
                let (time_ms, half) = row.number_and_half("qtime_ms")?;
                let law = little(row.number("lambda")?, time_ms, half, MIDDLEWARES);
                let cell = row.text("qlen")?;
                line.push(cell.to_owned());
                line.push(sampled(&mut outcome.others, printed.table, &name("qlen"), cell, law));
                outcome.checked += 1;
            }
            grid.row(line);
        }
        let again = printed.check_again(&table, tables, folder, &mut outcome.others)?;
        let m = printed.servers;
        let what = if m == 1 { "M/M/1".to_owned() } else { format!("M/M/{m}") };
        outcome.text.push_str(&format!(
            "Table {}: {what}, µ = {}/s{again}; printed beside computed\n{}\n",
            printed.table,
            printed.rate,
            grid.text()
        ));
    }
    Ok(outcome)
}

impl Printed {
    /// Computes each column.
    fn compute_columns(&self, row: &Row) -> anyhow::Result<[Range; 5]> {
        let (rate, half) = row.number_and_half("lambda")?;
        let columns = |lambda: f64, mu: f64| -> anyhow::Result<[f64; 5]> {
            let queue = Mmm::new(lambda, mu, self.servers)
                .with_context(|| format!("table {}, {lambda}/s", self.table))?;
            let (response, waiting) = (queue.response_mean(), queue.waiting_mean());
            Ok([
                queue.utilisation(),
                lambda * response,
                lambda * waiting,
                response * 1e3,
                waiting * 1e3,
            ])
        };
        let exact = columns(rate, self.rate)?;
        // All of them rise with the load.
        let least = columns(rate - half, self.rate + self.rounding)?;
        let most = columns(rate + half, self.rate - self.rounding)?;
        Ok(std::array::from_fn(|i| Range { exact: exact[i], least: least[i], most: most[i] }))
    }

    /// Compares the cells repeated from tables of M/M/1, and describes them.
    fn check_again(
        &self,
        own: &Table,
        tables: &[Printed],
        folder: &Path,
        sheet: &mut Sheet,
    ) -> anyhow::Result<String> {
        let Some(again) = &self.again else { return Ok(String::new()) };
        let other = |table: u32| {
            let found = tables.iter().find(|printed| printed.table == table);
            found.with_context(|| {
                format!("table {} repeats {table}, which is not a queue", self.table)
            })
        };
        let (rate, threads) = (other(again.rate)?, f64::from(again.threads));
        let is = Range::around(rate.rate / threads, rate.rounding / threads);
        let by_thread = sheet.computed(self.table, "µ", &self.rate.to_string(), is);
        let rows = Table::read(folder, &other(again.rows)?.file)?;
        for row in own.rows() {
            let clients = row.text("num_clients")?;
            let same = rows.find("num_clients", clients)?;
            for column in REPEATED {
                let name = format!("{clients} clients, {column} of table {}", again.rows);
                let is = Range::around(same.number(column)?, 0.0);
                sheet.computed(self.table, &name, row.text(column)?, is);
            }
        }
        Ok(format!(
            " ({by_thread}: of table {} by {} threads), measured as in table {}",
            again.rate, again.threads, again.rows
        ))
    }
}

/// Allowed deviation from Little's law of a length sampled once a second.
const LITTLE: f64 = 0.05;

/// The mean length of each middleware's queue by Little's law, from the rate of all and the mean
/// time in a queue, ms.
pub(super) fn little(rate: f64, time_ms: f64, half: f64, middlewares: f64) -> Range {
    let each = rate / 1e3 / middlewares;
    Range::around(each * time_ms, each * half)
}

/// Compares a sampled queue length with Little's law.
pub(super) fn sampled(
    sheet: &mut Sheet,
    table: u32,
    name: &str,
    printed: &str,
    law: Range,
) -> String {
    sheet.check_measured(table, name, printed, "λ·W", law, LITTLE * law.exact)
}
