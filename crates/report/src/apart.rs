//! Recordings of the same time by clocks that differ.

use ground::window::Window;
use record::{RunFolder, Step};

use super::error::Error;

/// Whether a window lies wholly within a step. Two processes agree on a step's start only
/// approximately, so a window may extend over either edge by half a millisecond.
pub(super) fn within(window: &Window, step: &Step) -> bool {
    let slack = 500;
    window.length_s > 0.0
        && window.start_unix_us.saturating_add(slack) >= step.start_unix_us
        && window.end_unix_us() <= step.end_unix_us.saturating_add(slack)
}

/// A run without a load of its own, of a server or of a log, of which nothing is within any step: its clock
/// differs, or it recorded another time.
pub(super) fn check<'a>(
    runs: &[RunFolder],
    steps: impl Iterator<Item = &'a Step> + Clone,
) -> Result<(), Error> {
    let recorded = |run: &&RunFolder| {
        run.run.kind != "load" && run.steps.is_empty() && !run.windows.is_empty()
    };
    for run in runs.iter().filter(recorded) {
        let inside = |window: &Window| steps.clone().any(|step| within(window, step));
        if run.windows.iter().any(inside) {
            continue;
        }
        let from = run.windows.iter().map(|w| w.start_unix_us).min().unwrap_or(0);
        let to = run.windows.iter().map(|w| w.end_unix_us()).max().unwrap_or(0);
        let begin = steps.clone().map(|step| step.start_unix_us).min().unwrap_or(0);
        let end = steps.clone().map(|step| step.end_unix_us).max().unwrap_or(0);
        let (own, others) = ((from / 2 + to / 2) as f64, (begin / 2 + end / 2) as f64);
        let direction = if own > others { "later" } else { "earlier" };
        let seconds = (own - others).abs() * 1e-6;
        return Err(Error::Apart { run: run.dir.display().to_string(), direction, seconds });
    }
    Ok(())
}
