//! Recordings of the same time by clocks that differ.

use ground::window::Window;
use record::RunFolder;

use super::error::Error;
use super::steps::{ObservedStep, within};

/// A run without a load of its own, of a server or of a log, of which nothing is within any step: its clock
/// differs, or it recorded another time.
pub(super) fn check(runs: &[RunFolder], steps: &[ObservedStep]) -> Result<(), Error> {
    let recorded = |run: &&RunFolder| {
        run.run.kind != "load" && run.steps.is_empty() && !run.windows.is_empty()
    };
    for run in runs.iter().filter(recorded) {
        let inside = |window: &Window| steps.iter().any(|step| within(window, &step.step));
        if run.windows.iter().any(inside) {
            continue;
        }
        let from = run.windows.iter().map(|w| w.start_unix_us).min().unwrap_or(0);
        let to = run.windows.iter().map(|w| w.end_unix_us()).max().unwrap_or(0);
        let begin = steps.iter().map(|s| s.step.start_unix_us).min().unwrap_or(0);
        let end = steps.iter().map(|s| s.step.end_unix_us).max().unwrap_or(0);
        let (own, others) = ((from / 2 + to / 2) as f64, (begin / 2 + end / 2) as f64);
        let direction = if own > others { "later" } else { "earlier" };
        let seconds = (own - others).abs() * 1e-6;
        return Err(Error::Apart { run: run.dir.display().to_string(), direction, seconds });
    }
    Ok(())
}
