//! What an access log alone still tells of a service, at several resolutions.
//!
//! The log is that of the fitted loads, one file each, as a proxy before the service would write it:
//! made of the recorded times, read by `concertina import`'s reader, fitted and judged on the same
//! fresh runs.

use std::fmt::Write as _;
use std::path::Path;

use record::RunFolder;
use report::import::{self, Cut, Options};
use report::{Comparison, Observed, Selection};
use serde::Serialize;

use super::loads::{Loads, worst};

/// Digits after the point of a second of the completion and of the duration, with a name.
const RESOLUTIONS: [(&str, usize, usize); 3] = [
    ("in microseconds", 6, 6),
    ("in milliseconds", 3, 3),
    ("in seconds, durations in milliseconds", 0, 3),
];

/// What a log of one resolution told.
#[derive(Debug, Serialize)]
pub(super) struct FromLog {
    pub resolution: String,
    /// The likeliest hypothesis, in words with its score; the number of servers where responses alone
    /// were left.
    pub found: String,
    /// Why nothing could be fitted.
    pub failed: Option<String>,
    /// Saturation, requests/s.
    pub saturation: Option<f64>,
    /// The worst error up to 80 % and above, points.
    pub worst_points: Option<[f64; 2]>,
    /// Mean width of the intervals in which measurements are expected, points.
    pub width_points: Option<f64>,
    /// Share of the judged rows within them.
    pub inside: Option<f64>,
}

/// All resolutions.
pub(super) fn from_logs(
    fit: &[RunFolder],
    judge: &[RunFolder],
    within: &[f64],
    loads: &Loads,
    scratch: &Path,
) -> anyhow::Result<Vec<FromLog>> {
    let mut all = Vec::new();
    for (name, clock, taken) in RESOLUTIONS {
        let mut one = FromLog {
            resolution: name.to_owned(),
            found: "nothing".to_owned(),
            failed: None,
            saturation: None,
            worst_points: None,
            width_points: None,
            inside: None,
        };
        let folder = scratch.join(format!("logs-{clock}-{taken}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        if let Err(error) = judged(&mut one, fit, judge, within, loads, &folder, (clock, taken)) {
            one.failed = Some(format!("{error:#}"));
        }
        all.push(one);
    }
    Ok(all)
}

fn judged(
    one: &mut FromLog,
    fit: &[RunFolder],
    judge: &[RunFolder],
    within: &[f64],
    loads: &Loads,
    folder: &Path,
    digits: (usize, usize),
) -> anyhow::Result<()> {
    let mut imported = Vec::new();
    for (number, run) in fit.iter().enumerate() {
        let log = folder.join(format!("{number}.log"));
        std::fs::write(&log, lines(run, digits.0, digits.1))?;
        let out = folder.join(format!("{number}"));
        import::import(&Options {
            out: out.clone(),
            logs: vec![log],
            steps: Cut::One,
            log_format: Some("$msec $status $request_time".to_owned()),
            window_s: if digits.0 == 0 { 1.0 } else { 0.25 },
            ..Options::default()
        })?;
        imported.push(RunFolder::read(&out)?);
    }
    let selection = Selection { any_queues: true, across_machines: true, ..Selection::default() };
    let observed = Observed::new(imported, &selection)?;
    let fitted = report::fit_service(&observed, "log", report::ServiceFacts::default())?;
    let first = fitted.worked.as_ref().and_then(|w| w.hypotheses.first());
    one.found = match (first, fitted.servers.likeliest) {
        (Some(h), _) => format!(
            "{}: score {:.2}, work {:.4} ms, outside {:.4} ms",
            h.title(),
            h.score,
            h.work.value * 1e3,
            h.outside.value * 1e3
        ),
        (None, Some(n)) => format!("{n} servers, from responses alone"),
        (None, None) => "no limit, from responses alone".to_owned(),
    };
    one.saturation = Some(fitted.model.node()?.saturation()).filter(|s| s.is_finite());
    let observed = Observed::new(judge.to_vec(), &selection)?;
    let comparison = Comparison::new(&observed, &fitted.model, within, &[])?;
    let rows = &comparison.rows;
    one.worst_points = Some(worst(&loads.of_rows(rows.iter())));
    let widths: Vec<f64> =
        rows.iter().filter_map(|r| r.expected.map(|e| 100.0 * (e.high - e.low))).collect();
    one.width_points = Some(widths.iter().sum::<f64>() / widths.len().max(1) as f64);
    let inside = rows.iter().filter(|r| r.expected.is_some_and(|e| e.inside)).count();
    one.inside = Some(inside as f64 / rows.len().max(1) as f64);
    Ok(())
}

/// The lines of a run, as nginx writes them: times are cut off after so many digits, and a duration is the difference of two readings of
/// its clock. (Durations that were cut off by themselves are half a tick too short in the mean, which is no fault of nginx.)
fn lines(run: &RunFolder, clock_digits: usize, taken_digits: usize) -> String {
    let mut all: Vec<(u64, u64)> =
        run.times.iter().filter(|t| t.queue == "load").flat_map(|t| t.iter()).collect();
    all.sort_unstable();
    let cut = |ns: u64, digits: usize| {
        let unit = 10u64.pow(9 - digits as u32);
        let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000 / unit);
        match digits {
            0 => whole.to_string(),
            _ => format!("{whole}.{rest:0digits$}"),
        }
    };
    let mut text = String::new();
    for (end, took) in all {
        let tick = 10u64.pow(9 - taken_digits as u32);
        let taken = end / tick * tick - end.saturating_sub(took) / tick * tick;
        let _ = writeln!(text, "{} 200 {}", cut(end, clock_digits), cut(taken, taken_digits));
    }
    text
}

impl FromLog {
    pub fn text(&self) -> String {
        let points = |p: Option<f64>| p.map_or("–".to_owned(), |p| format!("{p:.1}"));
        match &self.failed {
            Some(why) => format!("  log {}: {why}\n", self.resolution),
            None => format!(
                "  log {}: {}; worst error {} points up to 80 %, {} at 90 %; intervals {} points wide, {} inside\n",
                self.resolution,
                self.found,
                points(self.worst_points.map(|w| w[0])),
                points(self.worst_points.map(|w| w[1])),
                points(self.width_points),
                points(self.inside.map(|i| 100.0 * i)) + " %"
            ),
        }
    }
}
