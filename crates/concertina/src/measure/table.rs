//! Formats a measurement for people.

use std::fmt::Write;

use super::{Ended, Measurement, Point, Recovery, Search};
use report::grid::{Grid, printable};
use report::laws::advice;
use report::measured::Estimate;
use report::objective::{digits, time};
use report::table::points;

/// A change of the saturation that is worth saying, as a share.
const CHANGED: f64 = 0.1;

/// The search for the saturation, as a table.
fn add_search(search: &Search, out: &mut String) {
    let mut grid = Grid::new("rrr", &["clients", "throughput/s", "mean"]);
    for step in &search.steps {
        grid.row([
            step.clients.to_string(),
            digits(step.throughput, 5),
            time(step.response_mean_s),
        ]);
    }
    *out += "search for the saturation (closed loop):\n";
    *out += &grid.text();
    if !search.saturated && !search.missing {
        let _ = writeln!(out, "{}", search.ended);
    }
    if let Some(recovery) = &search.recovery {
        add_recovery(recovery, search.alone_s(), out);
    }
    if let Some(after) = &search.after {
        let (rate, clients) = (digits(after.throughput, 5), after.clients);
        let _ = writeln!(out, "after the loads, {clients} clients carried {rate}/s");
    }
    if let Some(error) = &search.after_error {
        let _ = writeln!(
            out,
            "! The saturation was not measured again after the loads, so its interval leaves out how far the machine drifted: {}",
            printable(error)
        );
    }
    out.push('\n');
}

/// Whether the service recovered after the search.
fn add_recovery(recovery: &Recovery, alone_s: Option<f64>, out: &mut String) {
    let Recovery { clients, seconds, response_mean_s, recovered } = *recovery;
    let seconds = digits(seconds, 2);
    if recovered {
        let _ = writeln!(
            out,
            "{seconds} s after {clients} clients, one client was answered as fast as at first"
        );
        return;
    }
    let now = response_mean_s.map_or("without a reply".to_owned(), |mean| {
        let first = alone_s.map_or(String::new(), |alone| format!(", at first {}", time(alone)));
        format!("answered in {}{first}", time(mean))
    });
    let _ = writeln!(
        out,
        "! The service did not recover within {seconds} s after {clients} clients: one client was {now}. The loads below were measured \
         in that state: restart the service, and measure with fewer --clients-max, or at --rates below the saturation."
    );
}

impl Measurement {
    /// Formats the points as a table, then the saturation, the knee and reasons for doubt.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if let Some(search) = &self.search {
            add_search(search, &mut out);
        }
        if !self.points.is_empty() {
            out += "response times from the intended send time, ± half of the 95 % interval:\n";
            out += &self.grid().text();
        }
        if let Some(saturation) = &self.saturation {
            let clients = saturation
                .clients
                .map_or(String::new(), |n| format!(", reached by about {} clients", digits(n, 3)));
            let _ = writeln!(
                out,
                "Saturation: {} requests/s{clients} ({}).",
                digits(saturation.rate, 4),
                saturation.basis
            );
        }
        if let Some(knee) = self.knee.and_then(|i| self.points.get(i)) {
            let _ = writeln!(
                out,
                "Knee: {} (of the loads measured, the largest throughput for its response time).",
                knee.at
            );
        }
        self.points.iter().for_each(|point| doubts(point, &mut out));
        let change = self.search.as_ref().and_then(Search::change);
        if let Some(change) = change.filter(|change| change.abs() > CHANGED) {
            let _ = writeln!(
                out,
                "! The service was {:.0} % {} after the loads than before them: predictions near the saturation are as \
                 uncertain. A cache that fills, other work on its machine, or a process that was just started: measure again.",
                100.0 * change.abs(),
                if change > 0.0 { "faster" } else { "slower" }
            );
        }
        self.add_end(&mut out);
        let dir = match (&self.search, self.points.is_empty()) {
            (Some(search), true) => &search.dir,
            _ => &self.dir,
        };
        let _ = writeln!(out, "run folder: {}", dir.display());
        out
    }

    /// Why the measurement ended, in a line.
    fn add_end(&self, out: &mut String) {
        let wide = self.points.iter().filter(|p| p.steady && !p.narrow).count();
        let asked = digits(self.half_width * 100.0, 3);
        let seconds = digits(self.seconds, 3);
        let _ = match self.ended {
            Ended::Narrow => writeln!(
                out,
                "Measured {seconds} s: all intervals of steady points are within {asked} %."
            ),
            Ended::Unsteady => writeln!(
                out,
                "Ended after {seconds} s: no point was steady, so the figures have no intervals."
            ),
            Ended::Known => writeln!(out, "Measured {seconds} s: the goal is reached."),
            Ended::Budget => writeln!(
                out,
                "The budget is spent ({seconds} s); {wide} steady points have intervals wider than {asked} %."
            ),
            Ended::Interrupted => {
                writeln!(out, "Interrupted after {seconds} s: the measurements so far are kept.")
            }
            Ended::Missing => writeln!(out, "Ended after {seconds} s: every reply was 404."),
        };
    }

    fn grid(&self) -> Grid {
        let quantiles = self.points.first().map(|p| p.quantiles.clone()).unwrap_or_default();
        let names = quantiles.iter().map(|q| format!("p{}", digits(q.p * 100.0, 6)));
        let mut grid = Grid {
            head: ["load", "times", "throughput/s", "mean"].map(str::to_owned).to_vec(),
            align: "",
            rows: Vec::new(),
        };
        grid.head.extend(names);
        grid.head.extend(["errors", "laws", ""].map(str::to_owned));
        for point in &self.points {
            let throughput = point.throughput;
            let half = throughput.half_width.map_or("?".to_owned(), |h| digits(h, 2));
            let mut row = vec![
                point.at.to_string(),
                point.repetitions.to_string(),
                format!("{} ± {half}", digits(throughput.value, 5)),
                with_width(&point.response_mean_s),
            ];
            row.extend(point.quantiles.iter().map(|q| with_width(&q.response_s)));
            row.push(point.errors.to_string());
            row.push(point.worst_law().map_or("–".to_owned(), |law| {
                format!("{} {} %", law.law.name(), points(Some(law.deviation_percent)))
            }));
            row.push(match (point.steady, point.narrow) {
                (false, _) => "not steady".to_owned(),
                (true, false) => "wide".to_owned(),
                (true, true) => String::new(),
            });
            grid.row(row);
        }
        // Only the last column is text; the number of quantiles varies.
        grid.align = if grid.head.len() == 10 { "rrrrrrrrrl" } else { "rrrrrrrrrrl" };
        grid
    }
}

/// Formats a time with the half width of its interval in percent.
fn with_width(estimate: &Estimate) -> String {
    let relative = estimate.half_width.filter(|_| estimate.value > 0.0);
    let half =
        relative.map_or("?".to_owned(), |h| format!("{} %", digits(h / estimate.value * 100.0, 2)));
    format!("{} ± {half}", time(estimate.value))
}

/// Formats the reasons to doubt a point.
fn doubts(point: &Point, out: &mut String) {
    if point.is_failing() {
        let errors = 100.0 * point.errors as f64 / point.completions.max(1) as f64;
        let _ = writeln!(out, "{}: {} % of the replies were errors.", point.at, digits(errors, 2));
    } else if point.is_past_saturation() {
        let _ = writeln!(
            out,
            "{}: fewer requests were completed than sent: past the saturation.",
            point.at
        );
    }
    for law in &point.laws {
        if let Some(advice) = advice(law) {
            let off = points(Some(law.deviation_percent));
            let _ = writeln!(out, "{}: {} ({off} %): {advice}.", point.at, law.title());
        }
    }
    for note in &point.notes {
        let _ = writeln!(out, "{}: note: {}.", point.at, printable(note));
    }
    if point.mismatches > 0 {
        let _ = writeln!(out, "{}: WRONG BYTES in {} replies", point.at, point.mismatches);
    }
}
