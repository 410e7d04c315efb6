//! Tables 13 to 20, 25 and 26: M/M/1 and M/M/m, every cell computed again.

use std::path::Path;

use anyhow::Context as _;
use model::queue::{Mmm, Queue as _};
use serde::Deserialize;

use super::csv::{Row, Table, digits, rounding};
use crate::report::grid::Grid;

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
}

/// How a printed cell compares with the computed one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Equal as printed.
    Same,
    /// Explained by the rounding of the printed inputs.
    Inputs,
    /// The last digit was cut off, not rounded.
    Truncated,
    /// Not explained.
    Different,
}

/// What came of all tables.
pub(super) struct Outcome {
    pub cells: u64,
    /// Cells that neither their own rounding nor that of their inputs explains.
    pub misprinted: Vec<String>,
    /// Those of them that are not merely cut off.
    pub unexplained: u64,
    /// Rows in which sampled lengths break Little's law, of how many.
    pub broken: u64,
    pub checked: u64,
    pub text: String,
}

const COLUMNS: [&str; 5] = ["rho", "E_n", "E_nq", "E_r_ms", "E_w_ms"];

pub(super) fn compute(folder: &Path, tables: &[Printed]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        cells: 0,
        misprinted: Vec::new(),
        unexplained: 0,
        broken: 0,
        checked: 0,
        text: String::new(),
    };
    for printed in tables {
        let table = Table::read(folder, &printed.file)?;
        let head = ["clients", "λ", "ρ", "", "E[n]", "", "E[nq]", "", "E[r] ms", "", "E[w] ms", ""];
        let mut grid = Grid::new("rrrrrrrrrrrr", &head);
        for row in table.rows() {
            let clients = row.text("num_clients")?;
            let mut line = vec![clients.to_owned(), row.text("lambda")?.to_owned()];
            let computed = printed.at(&row)?;
            for (index, column) in COLUMNS.into_iter().enumerate() {
                let cell = row.text(column)?;
                let verdict = verdict(cell, computed[index]);
                outcome.cells += 1;
                if matches!(verdict, Verdict::Truncated | Verdict::Different) {
                    let value = computed[index][0];
                    let name = format!(
                        "Table {}, {clients} clients, {column}: printed {cell}, is {value:.5}",
                        printed.table
                    );
                    outcome.misprinted.push(name);
                    outcome.unexplained += u64::from(verdict == Verdict::Different);
                }
                line.push(cell.to_owned());
                let mark = match verdict {
                    Verdict::Same => "=",
                    Verdict::Inputs => "≈",
                    Verdict::Truncated | Verdict::Different => "!",
                };
                let digits = digits(cell);
                line.push(format!("{mark} {:.digits$}", computed[index][0]));
            }
            grid.row(line);
            if printed.servers == 1 {
                outcome.checked += 1;
                outcome.broken += u64::from(breaks_little(&row)?);
            }
        }
        let m = printed.servers;
        let what = if m == 1 { "M/M/1".to_owned() } else { format!("M/M/{m}") };
        outcome.text.push_str(&format!(
            "Table {}: {what}, µ = {}/s; printed beside computed\n{}\n",
            printed.table,
            printed.rate,
            grid.text()
        ));
    }
    Ok(outcome)
}

impl Printed {
    /// Each column computed: with the inputs as printed, and the least and most within their rounding.
    fn at(&self, row: &Row) -> anyhow::Result<[[f64; 3]; 5]> {
        let text = row.text("lambda")?;
        let (rate, half) = (row.number("lambda")?, rounding(text));
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
        Ok(std::array::from_fn(|i| [exact[i], least[i], most[i]]))
    }
}

fn verdict(printed: &str, [exact, least, most]: [f64; 3]) -> Verdict {
    let (half, slack) = (rounding(printed), 1e-9);
    let Ok(value) = printed.trim().parse::<f64>() else { return Verdict::Different };
    let within = |low: f64, high: f64| value >= low - half - slack && value <= high + half + slack;
    if within(exact, exact) {
        Verdict::Same
    } else if within(least, most) {
        Verdict::Inputs
    } else if value <= exact && exact < value + 2.0 * half {
        Verdict::Truncated
    } else {
        Verdict::Different
    }
}

/// Deviation from Little's law that sampling once a second may have.
const LITTLE_PERCENT: f64 = 5.0;

/// Whether the sampled length of the queues is not λ times the mean time in them, by more than
/// [`LITTLE_PERCENT`] and more than rounding explains.
fn breaks_little(row: &Row) -> anyhow::Result<bool> {
    let half = |column: &str| row.text(column).map(rounding);
    let (rate, time) = (row.number("lambda")?, row.number("qtime_ms")?);
    // One queue for each of two middlewares; the sampled length is printed with one digit.
    let sampled = 2.0 * row.number("qlen")?;
    let expected = rate * time / 1e3;
    let slack = 2.0 * half("qlen")? + rate * half("qtime_ms")? / 1e3;
    let off = (sampled - expected).abs();
    Ok(off > slack && off > LITTLE_PERCENT / 100.0 * expected)
}
