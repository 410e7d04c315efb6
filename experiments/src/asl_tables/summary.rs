//! Tables 2 and 4 to 6: checks their figures against each other and against the tables that repeat the same runs.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::cells::{Range, Sheet};
use super::csv::Table;
use super::network::{Solved, interactive};
use super::queues::{little, sampled};
use report::grid::Grid;

/// The tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    bandwidth: Bandwidth,
    /// Runs measured both at the middlewares and at the clients.
    loads: Vec<Loads>,
    threads: Threads,
}

/// Table 2.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bandwidth {
    table: u32,
    file: String,
    /// The fraction of the bandwidth that the table's first row calls effective.
    effective: f64,
}

/// Table 4 or 5.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loads {
    table: u32,
    file: String,
    /// Number of clients in the read run and in the write run.
    reads: u32,
    writes: u32,
}

/// Table 6.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Threads {
    table: u32,
    file: String,
    columns: Vec<Column>,
}

/// A column of Table 6, and the table of M/M/1 that repeats the same run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    name: String,
    clients: u32,
    again: String,
}

/// Allowed relative difference between the middlewares' and the clients' measurement of one figure.
const PLACES: f64 = 0.01;

/// The number of middlewares in Table 6; each has a queue.
const MIDDLEWARES: f64 = 2.0;

pub(super) fn compare(
    folder: &Path,
    printed: &Printed,
    solved: &[Solved],
) -> anyhow::Result<(Sheet, String)> {
    let mut sheet = Sheet::default();
    let mut text = printed.bandwidth.compare(folder, &mut sheet)?;
    for loads in &printed.loads {
        text.push_str(&loads.compare(folder, solved, &mut sheet)?);
    }
    text.push_str(&printed.threads.compare(folder, &mut sheet)?);
    Ok((sheet, text))
}

impl Bandwidth {
    fn compare(&self, folder: &Path, sheet: &mut Sheet) -> anyhow::Result<String> {
        let head = ["machine", "Mbit/s", "MB/s", "", "effective", ""];
        let mut grid = Grid::new("lrrrrr", &head);
        for row in Table::read(folder, &self.file)?.rows() {
            let machine = row.text("machine")?;
            let mut line = vec![machine.to_owned(), row.text("mbps")?.to_owned()];
            let cells = [
                ("mbytes_per_s", row.number("mbps")? / 8.0),
                ("effective_mbytes_per_s", row.number("mbytes_per_s")? * self.effective),
            ];
            for (column, is) in cells {
                let (name, cell) = (format!("{machine}, {column}"), row.text(column)?);
                line.push(cell.to_owned());
                line.push(sheet.computed(self.table, &name, cell, Range::around(is, 0.0)));
            }
            grid.row(line);
        }
        Ok(format!(
            "Table {}: bandwidths; effective are {} of each, as in the first row\n{}\n",
            self.table,
            self.effective,
            grid.text()
        ))
    }
}

const LOADS: [&str; 12] = [
    "load",
    "clients",
    "X/s inside",
    "at clients",
    "R ms",
    "N/X",
    "outside",
    "recovered",
    "served",
    "recovered",
    "misses inside",
    "at clients",
];

impl Loads {
    /// Compares the middlewares' measurements with the clients', and splits the response time into its parts. If a
    /// table of a network of queues repeats the run, its measured cells must be equal, and the inputs recovered from
    /// it are printed beside the parts.
    fn compare(
        &self,
        folder: &Path,
        solved: &[Solved],
        sheet: &mut Sheet,
    ) -> anyhow::Result<String> {
        let table = Table::read(folder, &self.file)?;
        let mut grid = Grid::new("lrrrrrrrrrrr", &LOADS);
        for (load, clients) in [("Reads", self.reads), ("Writes", self.writes)] {
            let inside = table.find("row", &format!("{load}: Meas. on mw"))?;
            let outside = table.find("row", &format!("{load}: Meas. on clients"))?;
            let name = |column: &str| format!("{load}, {column}");
            let mut both = |column: &str| -> anyhow::Result<[String; 2]> {
                let (cell, (is, half)) = (inside.text(column)?, outside.number_and_half(column)?);
                let law = Range::around(is, half);
                let name = format!("{} on mw", name(column));
                let mark =
                    sheet.check_measured(self.table, &name, cell, CLIENTS_COUNT, law, PLACES * is);
                Ok([cell.to_owned(), mark])
            };
            let rates = both("tp")?;
            // Writes do not miss.
            let misses = match inside.text("miss_rate")? {
                "" => [String::new(), String::new()],
                _ => both("miss_rate")?,
            };
            let (rate, half) = outside.number_and_half("tp")?;
            let law = Range::over(f64::from(clients) * 1e3, rate, half);
            let cell = outside.text("resp_ms")?;
            let response = interactive(sheet, self.table, &name("resp_ms"), cell, law);
            let same = solved
                .iter()
                .find(|row| row.clients == clients && (row.measured - rate).abs() < 1e-6);
            if let Some(same) = same {
                let figures =
                    [("resp_ms", &outside, same.response_ms), ("qtime_ms", &inside, same.queue_ms)];
                for (column, row, is) in figures {
                    let name = format!("{} of table {}", name(column), same.table);
                    let is = Range::around(is, 0.0);
                    sheet.computed(self.table, &name, row.text(column)?, is);
                }
            }
            let in_middleware = inside.number("resp_ms")?;
            let recovered = |input: fn(&Solved) -> f64| {
                same.map_or_else(String::new, |same| format!("{:.3}", input(same)))
            };
            let [inside_rate, outside_rate] = rates;
            let [inside_misses, outside_misses] = misses;
            grid.row([
                load.to_lowercase(),
                clients.to_string(),
                inside_rate,
                outside_rate,
                cell.to_owned(),
                response,
                format!("{:.3}", outside.number("resp_ms")? - in_middleware),
                recovered(|same| same.delay_ms),
                format!("{:.3}", in_middleware - inside.number("qtime_ms")?),
                recovered(|same| same.service_ms),
                inside_misses,
                outside_misses,
            ]);
        }
        Ok(format!(
            "Table {}: as the middlewares and as the clients measured; R beside N/X, its parts outside the \
             middlewares and served within, beside the inputs recovered from the network of the same run, ms\n{}\n",
            self.table,
            grid.text()
        ))
    }
}

const THREADS: [&str; 11] = [
    "column",
    "clients",
    "X/s inside",
    "at clients",
    "R ms inside",
    "Z ms",
    "± rounding",
    "derived X/s",
    "with one Z",
    "length",
    "λ·W",
];

/// Times recovered from a column of Table 6, ms: value and half-width of the rounding.
struct Times {
    /// R: time in the middlewares.
    inside: (f64, f64),
    /// Z = N/X − R: time outside.
    think: (f64, f64),
}

impl Threads {
    /// Throughput derived from the time in the middlewares is N/(R + Z). The table does not print Z, the time
    /// outside. It is recovered from each column, and all columns are checked against one Z that most of them allow.
    fn compare(&self, folder: &Path, sheet: &mut Sheet) -> anyhow::Result<String> {
        let table = Table::read(folder, &self.file)?;
        let times = self.columns.iter().map(|column| column.times(&table));
        let times: Vec<Times> = times.collect::<anyhow::Result<_>>()?;
        let ends = |of: &Times| (of.think.0 - of.think.1, of.think.0 + of.think.1);
        let thinks: Vec<(f64, f64)> = times.iter().map(ends).collect();
        let (low, high) = shared(&thinks).context("Table 6 has no columns")?;
        let mut grid = Grid::new("lrrrrrrrrrr", &THREADS);
        for (column, times) in self.columns.iter().zip(&times) {
            grid.row(column.compare(&table, self.table, sheet, times, low, high)?);
            column.check_again(&table, self.table, folder, sheet)?;
        }
        Ok(format!(
            "Table {}: writes; R is time in the queue and for memcached, Z = N/X - R of the derived X; one Z is \
             {low:.3} to {high:.3} ms\n{}\n",
            self.table,
            grid.text()
        ))
    }
}

const RATE: &str = "Throughput (Middleware)";
const RATE_DERIVED: &str = "Throughput (Derived from MW response time)";
const RATE_CLIENTS: &str = "Throughput (Client)";
/// The law of a throughput as the middlewares counted it.
const CLIENTS_COUNT: &str = "clients' count";
const QUEUE_TIME: &str = "Average time in queue";
const QUEUE_LENGTH: &str = "Average length of queue";
const SERVED_TIME: &str = "Average time waiting for mem-cached";

impl Column {
    fn times(&self, table: &Table) -> anyhow::Result<Times> {
        let (rate, half) = table.find("row", RATE_DERIVED)?.number_and_half(&self.name)?;
        let (queue, queue_half) = table.find("row", QUEUE_TIME)?.number_and_half(&self.name)?;
        let (served, served_half) = table.find("row", SERVED_TIME)?.number_and_half(&self.name)?;
        let inside = (queue + served, queue_half + served_half);
        let whole = f64::from(self.clients) * 1e3 / rate;
        let think = (whole - inside.0, whole * half / rate + inside.1);
        Ok(Times { inside, think })
    }

    fn compare(
        &self,
        table: &Table,
        number: u32,
        sheet: &mut Sheet,
        &Times { inside, think }: &Times,
        low: f64,
        high: f64,
    ) -> anyhow::Result<Vec<String>> {
        let name = |what: &str| format!("{}, {what}", self.name);
        let cell = |row: &str| -> anyhow::Result<String> {
            Ok(table.find("row", row)?.text(&self.name)?.to_owned())
        };
        let rate = table.find("row", RATE)?.number(&self.name)?;
        let (clients_rate, half) = table.find("row", RATE_CLIENTS)?.number_and_half(&self.name)?;
        let law = Range::around(clients_rate, half);
        let within = PLACES * clients_rate;
        let at_clients =
            sheet.check_measured(number, &name(RATE), &cell(RATE)?, CLIENTS_COUNT, law, within);
        let clients = f64::from(self.clients) * 1e3;
        let derived = Range {
            exact: clients / (inside.0 + f64::midpoint(low, high)),
            least: clients / (inside.0 + inside.1 + high),
            most: clients / (inside.0 - inside.1 + low),
        };
        let derived = sheet.computed(number, &name(RATE_DERIVED), &cell(RATE_DERIVED)?, derived);
        let (time_ms, half) = table.find("row", QUEUE_TIME)?.number_and_half(&self.name)?;
        let law = little(rate, time_ms, half, MIDDLEWARES);
        let length = sampled(sheet, number, &name(QUEUE_LENGTH), &cell(QUEUE_LENGTH)?, law);
        Ok(vec![
            self.name.clone(),
            self.clients.to_string(),
            cell(RATE)?,
            at_clients,
            format!("{:.3}", inside.0),
            format!("{:.3}", think.0),
            format!("{:.3}", think.1),
            cell(RATE_DERIVED)?,
            derived,
            cell(QUEUE_LENGTH)?,
            length,
        ])
    }

    /// Checks the same run in a table of M/M/1, which prints fewer digits.
    fn check_again(
        &self,
        table: &Table,
        number: u32,
        folder: &Path,
        sheet: &mut Sheet,
    ) -> anyhow::Result<()> {
        let again = Table::read(folder, &self.again)?;
        let again = again.find("num_clients", &self.clients.to_string())?;
        let columns = [
            (RATE, "lambda"),
            (QUEUE_TIME, "qtime_ms"),
            (QUEUE_LENGTH, "qlen"),
            (SERVED_TIME, "wtime_ms"),
        ];
        for (row, column) in columns {
            let (is, half) = again.number_and_half(column)?;
            let name = format!("{}, {row} of {}", self.name, self.again);
            let cell = table.find("row", row)?.text(&self.name)?;
            sheet.computed(number, &name, cell, Range::around(is, half));
        }
        Ok(())
    }
}

/// The intersection of the largest set of intervals that overlap at one point.
fn shared(intervals: &[(f64, f64)]) -> Option<(f64, f64)> {
    let over = |x: f64| intervals.iter().filter(move |(low, high)| (*low..=*high).contains(&x));
    let low = intervals.iter().map(|(low, _)| *low).max_by_key(|low| over(*low).count())?;
    Some((low, over(low).map(|(_, high)| *high).fold(f64::INFINITY, f64::min)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_intervals_have_this_in_common() {
        let intervals = [(1.87, 1.98), (1.99, 2.09), (1.93, 2.03), (2.0, 2.1)];
        assert_eq!(shared(&intervals), Some((2.0, 2.03)));
        assert_eq!(shared(&[]), None);
    }
}
