//! Flow-equivalent prediction: the middlewares and the servers behind them are one station whose
//! throughput with n requests inside was measured with many threads; predicts it with fewer.
//!
//! The method was chosen with the predicted rows in sight, so this is not a blind test. The think
//! time is the median of N/X − R over the fitted rows, R the time in the middlewares. The station's
//! rate X(n) is piecewise linear through 0 and one knot for each fitted row, at that row's mean
//! number inside, N − X·Z; the heights of the knots are such that the closed network, solved
//! exactly, has the row's throughput. (A row's own throughput would be too low: X(n) is concave and
//! n varies.) Fewer threads change the curve by a ceiling, X'(n) = min(X(n), C); C is such that the
//! network has the throughput of one saturated run.

use std::path::Path;

use anyhow::Context as _;
use model::network::{Class, Network, Station};

use super::csv::Table;
use report::grid::Grid;

/// A measured row.
#[derive(Clone, Copy, Debug)]
struct Point {
    clients: u32,
    /// Requests/s.
    throughput: f64,
    /// Mean time in the middlewares, seconds.
    inside_s: f64,
}

/// A row that was not fitted, and its prediction.
pub(super) struct Predicted {
    file: String,
    clients: u32,
    measured: f64,
    predicted: f64,
}

impl Predicted {
    /// Percent above the measured throughput.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0) * 100.0
    }
}

/// The fitted station and think time.
struct Curve {
    think_s: f64,
    /// Numbers inside and requests/s, rising.
    knots: Vec<(f64, f64)>,
}

/// Rounds of each fit; both converge in a few.
const ROUNDS: usize = 100;

pub(super) fn predict(
    folder: &Path,
    fitted: &str,
    predicted: &[String],
) -> anyhow::Result<Vec<Predicted>> {
    let curve = Curve::fit(&points(folder, fitted)?)?;
    let mut rows = Vec::new();
    for file in predicted {
        let points = points(folder, file)?;
        let saturated =
            points.iter().max_by_key(|point| point.clients).context("a table is empty")?;
        let ceiling = curve.ceiling(saturated)?;
        for point in points.iter().filter(|point| point.clients < saturated.clients) {
            rows.push(Predicted {
                file: file.clone(),
                clients: point.clients,
                measured: point.throughput,
                predicted: curve.throughput(point.clients, ceiling)?,
            });
        }
    }
    Ok(rows)
}

fn points(folder: &Path, file: &str) -> anyhow::Result<Vec<Point>> {
    let table = Table::read(folder, file)?;
    let point = |row: super::csv::Row| {
        Ok(Point {
            clients: row.number("num_clients")? as u32,
            throughput: row.number("lambda")?,
            inside_s: (row.number("qtime_ms")? + row.number("wtime_ms")?) / 1e3,
        })
    };
    table.rows().map(point).collect()
}

impl Curve {
    fn fit(points: &[Point]) -> anyhow::Result<Curve> {
        let think = |p: &Point| f64::from(p.clients) / p.throughput - p.inside_s;
        let thinks: Vec<f64> = points.iter().map(think).collect();
        let think_s = model::statistics::quantile(&thinks, 0.5).context("a table is empty")?;
        let knot = |p: &Point| (f64::from(p.clients) - p.throughput * think_s, p.throughput);
        let mut curve = Curve { think_s, knots: points.iter().map(knot).collect() };
        for _ in 0..ROUNDS {
            let mut heights = Vec::new();
            for (point, knot) in points.iter().zip(&curve.knots) {
                let now = curve.throughput(point.clients, f64::INFINITY)?;
                heights.push(knot.1 * point.throughput / now);
            }
            curve.knots.iter_mut().zip(heights).for_each(|(knot, height)| knot.1 = height);
        }
        Ok(curve)
    }

    /// X(n).
    fn rate_of(&self, n: f64) -> f64 {
        let mut before = (0.0, 0.0);
        for &knot in &self.knots {
            if n <= knot.0 {
                return before.1 + (knot.1 - before.1) * (n - before.0) / (knot.0 - before.0);
            }
            before = knot;
        }
        before.1
    }

    /// Requests/s with `clients` clients, the station's rate limited to `ceiling` requests/s.
    fn throughput(&self, clients: u32, ceiling: f64) -> anyhow::Result<f64> {
        let rates: Vec<f64> =
            (1..=clients).map(|n| self.rate_of(f64::from(n)).min(ceiling)).collect();
        let network = Network::new(
            vec![Station::load_dependent("middlewares", &rates)?],
            vec![Class::closed("clients", clients, self.think_s, &[1.0])?],
        )?;
        Ok(network.solve()?.classes[0].throughput)
    }

    fn ceiling(&self, saturated: &Point) -> anyhow::Result<f64> {
        let mut ceiling = saturated.throughput;
        for _ in 0..ROUNDS {
            ceiling *= saturated.throughput / self.throughput(saturated.clients, ceiling)?;
        }
        Ok(ceiling)
    }
}

pub(super) fn text(rows: &[Predicted]) -> String {
    let mut grid =
        Grid::new("lrrrr", &["predicted table", "clients", "measured/s", "predicted/s", "error %"]);
    for row in rows {
        grid.row([
            row.file.clone(),
            row.clients.to_string(),
            format!("{:.1}", row.measured),
            format!("{:.1}", row.predicted),
            format!("{:+.2}", row.error()),
        ]);
    }
    format!(
        "Flow-equivalent prediction from 64 threads and one saturated run of each other count\n{}\n",
        grid.text()
    )
}
