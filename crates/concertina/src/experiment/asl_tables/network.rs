//! Tables 21 to 24: clients, a network between, and the threads of the middlewares as a closed network of
//! queues, solved exactly.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use model::network::{Class, Network, Station};
use serde::Deserialize;

use super::csv::{Row, Table};
use crate::report::grid::Grid;

/// The tables of networks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    /// Service times and delays of every row.
    inputs: String,
    tables: Vec<Measured>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    table: u32,
    file: String,
}

/// A row: what the study measured and printed, and what the network gives.
pub(super) struct Solved {
    pub table: u32,
    pub clients: u32,
    /// Requests/s: measured, printed as the model's, and ours.
    pub measured: f64,
    pub printed: f64,
    pub computed: f64,
    /// Measured mean response time, seconds.
    pub response_s: f64,
}

impl Solved {
    /// Percent that a throughput is above the measured one.
    fn error(&self, throughput: f64) -> f64 {
        (throughput / self.measured - 1.0) * 100.0
    }

    pub fn printed_error(&self) -> f64 {
        self.error(self.printed)
    }

    pub fn computed_error(&self) -> f64 {
        self.error(self.computed)
    }

    /// Percent that N is from X·R: clients do not think.
    pub fn interactive_error(&self) -> f64 {
        (self.measured * self.response_s / f64::from(self.clients) - 1.0) * 100.0
    }
}

pub(super) fn solve(folder: &Path, printed: &Printed) -> anyhow::Result<Vec<Solved>> {
    let inputs = Table::read(folder, &printed.inputs)?;
    let mut rows = BTreeMap::new();
    for row in inputs.rows() {
        rows.insert((row.number("table")? as u32, row.number("N")? as u32), row);
    }
    let mut solved = Vec::new();
    for Measured { table, file } in &printed.tables {
        for row in Table::read(folder, file)?.rows() {
            let clients = row.number("num_clients")? as u32;
            let input = rows
                .get(&(*table, clients))
                .with_context(|| format!("table {table} has no inputs for {clients} clients"))?;
            let network = network(input, clients)
                .with_context(|| format!("table {table}, {clients} clients"))?;
            solved.push(Solved {
                table: *table,
                clients,
                measured: row.number("meas_tp")?,
                printed: row.number("model_tp")?,
                computed: network.solve()?.classes[0].throughput,
                response_s: row.number("meas_lat_ms")? / 1e3,
            });
        }
    }
    Ok(solved)
}

/// Middlewares side by side, each asked for an equal part, each with its threads; between them and the
/// clients a delay.
fn network(input: &Row, clients: u32) -> anyhow::Result<Network> {
    let middlewares = input.number("middlewares")? as u32;
    let threads = input.number("threads_per_mw")? as u32;
    let service_s = input.number("S_ms_from_util")? / 1e3;
    let delay_s = input.number("rest_ms_(RTT+net)")? / 1e3;
    let stations = (1..=middlewares).map(|i| Station::servers(&format!("middleware {i}"), threads));
    let stations = stations.collect::<Result<Vec<_>, _>>()?;
    let visits = vec![1.0 / f64::from(middlewares); stations.len()];
    let demands: Vec<f64> = visits.iter().map(|share| share * service_s).collect();
    let class = Class::closed("clients", clients, delay_s, &demands)?.with_visits(&visits)?;
    Ok(Network::new(stations, vec![class])?)
}

pub(super) fn text(solved: &[Solved]) -> String {
    let head =
        ["table", "clients", "measured/s", "printed model", "error %", "solved exactly", "error %"];
    let mut grid = Grid::new("rrrrrrr", &head);
    for row in solved {
        grid.row([
            row.table.to_string(),
            row.clients.to_string(),
            format!("{:.1}", row.measured),
            format!("{:.1}", row.printed),
            format!("{:+.2}", row.printed_error()),
            format!("{:.1}", row.computed),
            format!("{:+.2}", row.computed_error()),
        ]);
    }
    format!("Tables 21 to 24: networks of queues\n{}\n", grid.text())
}
