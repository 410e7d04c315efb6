//! Tables 21 to 24: clients, the network, and the middlewares' threads as a closed network of queues,
//! solved exactly.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use model::network::{Class, Network, Station};
use serde::Deserialize;

use super::cells::{Range, Sheet};
use super::csv::{Row, Table};
use super::queues::{little, sampled};
use report::grid::Grid;

/// The tables of networks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    /// Service times and delays of every row.
    inputs: String,
    tables: Vec<MeasuredTable>,
}

/// One table of a network.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredTable {
    table: u32,
    file: String,
}

/// The result of solving all tables.
pub(super) struct Outcome {
    pub rows: Vec<Solved>,
    pub sheet: Sheet,
    pub text: String,
}

/// A row: the study's measured and modelled values, and the exact solution.
pub(super) struct Solved {
    pub table: u32,
    pub clients: u32,
    /// Requests/s: measured, printed as the model's, and ours.
    pub measured: f64,
    pub printed: f64,
    pub computed: f64,
    /// Measured means: response time at the clients, and time in a middleware's queue.
    pub response_ms: f64,
    pub queue_ms: f64,
    /// Inputs: service time, and delay outside the middlewares.
    pub service_ms: f64,
    pub delay_ms: f64,
    /// The number of the study's modelled cells that the exact solution does not reproduce.
    pub unexplained: usize,
    /// Whether the sampled queue length contradicts Little's law.
    pub breaks_little: bool,
}

impl Solved {
    /// Percent by which a throughput exceeds the measured one.
    fn error(&self, throughput: f64) -> f64 {
        (throughput / self.measured - 1.0) * 100.0
    }

    pub fn printed_error(&self) -> f64 {
        self.error(self.printed)
    }

    pub fn computed_error(&self) -> f64 {
        self.error(self.computed)
    }

    /// Percent by which N differs from X·R (there is no think time).
    pub fn interactive_error(&self) -> f64 {
        (self.measured * self.response_ms / 1e3 / f64::from(self.clients) - 1.0) * 100.0
    }
}

/// Allowed deviation of the clients' measurements from N = X·R.
const INTERACTIVE: f64 = 0.01;

/// A measured response time, ms, beside N/X.
pub(super) fn interactive(
    sheet: &mut Sheet,
    table: u32,
    name: &str,
    printed: &str,
    law: Range,
) -> String {
    sheet.check_measured(table, name, printed, "N/X", law, INTERACTIVE * law.exact)
}

const MODEL: [&str; 12] = [
    "clients",
    "ρ",
    "",
    "X/s",
    "",
    "R ms",
    "",
    "number",
    "",
    "measured/s",
    "error %",
    "exact: error %",
];
const MEASURED: [&str; 6] = ["clients", "X/s", "R ms", "N/X", "length", "λ·W"];

pub(super) fn solve(folder: &Path, printed: &Printed) -> anyhow::Result<Outcome> {
    let inputs = Table::read(folder, &printed.inputs)?;
    let mut rows = BTreeMap::new();
    for row in inputs.rows() {
        rows.insert((row.number("table")? as u32, row.number("N")? as u32), row);
    }
    let mut outcome = Outcome { rows: Vec::new(), sheet: Sheet::default(), text: String::new() };
    for MeasuredTable { table, file } in &printed.tables {
        let mut model = Grid::new("rrrrrrrrrrrr", &MODEL);
        let mut measured = Grid::new("rrrrrr", &MEASURED);
        for row in Table::read(folder, file)?.rows() {
            let clients = row.number("num_clients")? as u32;
            let input = rows
                .get(&(*table, clients))
                .with_context(|| format!("table {table} has no inputs for {clients} clients"))?;
            let case = Case::read(clients, &row, input)?;
            let is = case.ranges().with_context(|| format!("table {table}, {clients} clients"))?;
            let sheet = &mut outcome.sheet;
            let mut solved = case.solved(*table, &row, is[1].exact)?;
            let before = sheet.misprinted.len();
            let mut line = case.beside(sheet, *table, &row, is)?;
            solved.unexplained = sheet.misprinted.len() - before;
            line.push(format!("{:.1}", solved.measured));
            line.push(format!("{:+.2}", solved.printed_error()));
            line.push(format!("{:+.2}", solved.computed_error()));
            model.row(line);
            measured.row(case.laws(sheet, &mut solved, &row)?);
            outcome.rows.push(solved);
        }
        outcome.text.push_str(&format!(
            "Table {table}: a network of queues; printed beside the exact solution, R beside N/X\n{}\n\
             Table {table}: what was measured, beside N/X and λ·W\n{}\n",
            model.text(),
            measured.text()
        ));
    }
    Ok(outcome)
}

/// A row's network.
struct Case {
    clients: u32,
    middlewares: u32,
    threads: u32,
    /// Service time and delay in seconds, each with the half-width of its rounding.
    service: (f64, f64),
    delay: (f64, f64),
}

/// Recovered inputs are rounded to a microsecond; that is half of it, in ms.
const RECOVERED_MS: f64 = 0.0005;

impl Case {
    /// Inputs were recovered from print: S = m·c·ρ/X and Z = (N − m·n)/X, with n at each of m middlewares of
    /// c threads.
    fn read(clients: u32, row: &Row, input: &Row) -> anyhow::Result<Case> {
        let middlewares = input.number("middlewares")? as u32;
        let (busy, busy_half) = row.number_and_half("model_mw_util")?;
        let (rate, rate_half) = row.number_and_half("model_tp")?;
        let (_, number_half) = row.number_and_half("model_qlen")?;
        let service_ms = input.number("S_ms_from_util")?;
        let delay_ms = input.number("rest_ms_(RTT+net)")?;
        let service_half = service_ms * (busy_half / busy + rate_half / rate) + RECOVERED_MS;
        let number_half = f64::from(middlewares) * number_half / rate * 1e3;
        let delay_half = delay_ms * rate_half / rate + number_half + RECOVERED_MS;
        Ok(Case {
            clients,
            middlewares,
            threads: input.number("threads_per_mw")? as u32,
            service: (service_ms / 1e3, service_half / 1e3),
            delay: (delay_ms / 1e3, delay_half / 1e3),
        })
    }

    /// Solves parallel middlewares with equal shares of the load, each a station with one server per thread, and a
    /// delay between them and the clients. Returns a middleware's utilisation, requests/s, and the mean number in it.
    fn solve(&self, service_s: f64, delay_s: f64) -> anyhow::Result<[f64; 3]> {
        let stations = (1..=self.middlewares)
            .map(|i| Station::servers(&format!("middleware {i}"), self.threads))
            .collect::<Result<Vec<_>, _>>()?;
        let visits = vec![1.0 / f64::from(self.middlewares); stations.len()];
        let demands: Vec<f64> = visits.iter().map(|share| share * service_s).collect();
        let class =
            Class::closed("clients", self.clients, delay_s, &demands)?.with_visits(&visits)?;
        let solution = Network::new(stations, vec![class])?.solve()?;
        let middleware = &solution.stations[0];
        Ok([middleware.utilisation, solution.classes[0].throughput, middleware.number])
    }

    /// The same, with the range that the rounding of the inputs allows.
    fn ranges(&self) -> anyhow::Result<[Range; 3]> {
        let at = |service: f64, delay: f64| {
            self.solve(
                self.service.0 + service * self.service.1,
                self.delay.0 + delay * self.delay.1,
            )
        };
        let exact = at(0.0, 0.0)?;
        // Throughput falls with both inputs; utilisation and number rise with service and fall with delay.
        let (slow, fast) = (at(1.0, 1.0)?, at(-1.0, -1.0)?);
        let (light, heavy) = (at(-1.0, 1.0)?, at(1.0, -1.0)?);
        let least = [light[0], slow[1], light[2]];
        let most = [heavy[0], fast[1], heavy[2]];
        Ok(std::array::from_fn(|i| Range { exact: exact[i], least: least[i], most: most[i] }))
    }

    fn solved(&self, table: u32, row: &Row, computed: f64) -> anyhow::Result<Solved> {
        Ok(Solved {
            table,
            clients: self.clients,
            measured: row.number("meas_tp")?,
            printed: row.number("model_tp")?,
            computed,
            response_ms: row.number("meas_lat_ms")?,
            queue_ms: row.number("meas_qtime_ms")?,
            service_ms: self.service.0 * 1e3,
            delay_ms: self.delay.0 * 1e3,
            unexplained: 0,
            breaks_little: false,
        })
    }

    /// Compares the study's modelled values with the exact solution.
    fn beside(
        &self,
        sheet: &mut Sheet,
        table: u32,
        row: &Row,
        [busy, rate, number]: [Range; 3],
    ) -> anyhow::Result<Vec<String>> {
        let (throughput, half) = row.number_and_half("model_tp")?;
        let response = Range::over(f64::from(self.clients) * 1e3, throughput, half);
        let cells = [
            ("model_mw_util", busy),
            ("model_tp", rate),
            ("model_lat_ms", response),
            ("model_qlen", number),
        ];
        let mut line = vec![self.clients.to_string()];
        for (column, is) in cells {
            let (name, cell) = (format!("{} clients, {column}", self.clients), row.text(column)?);
            line.push(cell.to_owned());
            line.push(sheet.computed(table, &name, cell, is));
        }
        Ok(line)
    }

    /// Compares the measured values with the laws that they should obey.
    fn laws(
        &self,
        sheet: &mut Sheet,
        solved: &mut Solved,
        row: &Row,
    ) -> anyhow::Result<Vec<String>> {
        let name = |column: &str| format!("{} clients, {column}", self.clients);
        let (rate, half) = row.number_and_half("meas_tp")?;
        let response = Range::over(f64::from(self.clients) * 1e3, rate, half);
        let cell = row.text("meas_lat_ms")?;
        let response = interactive(sheet, solved.table, &name("meas_lat_ms"), cell, response);
        let before = sheet.broken.len();
        let middlewares = f64::from(self.middlewares);
        let (time_ms, half) = row.number_and_half("meas_qtime_ms")?;
        let law = little(solved.measured, time_ms, half, middlewares);
        let length = row.text("meas_qlen")?;
        let law = sampled(sheet, solved.table, &name("meas_qlen"), length, law);
        solved.breaks_little = sheet.broken.len() > before;
        Ok(vec![
            self.clients.to_string(),
            row.text("meas_tp")?.to_owned(),
            cell.to_owned(),
            response,
            length.to_owned(),
            law,
        ])
    }
}
