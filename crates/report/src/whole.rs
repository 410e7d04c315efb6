//! Runs that nobody divided into steps.

use ground::window::Window;
use record::{Generator, RunFolder, Step};

use super::error::Error;

/// Takes each run for one step.
///
/// # Errors
/// [`Error::Empty`] if a run has no windows.
pub(crate) fn one_step_each(runs: Vec<RunFolder>) -> Result<Vec<RunFolder>, Error> {
    match runs.iter().find(|run| run.windows.is_empty()) {
        Some(empty) => Err(Error::Empty { path: empty.dir.clone() }),
        None => Ok(runs.into_iter().map(one_step).collect()),
    }
}

/// Takes a run for one step from its first to its last window.
pub(crate) fn one_step(mut run: RunFolder) -> RunFolder {
    let start = run.windows.iter().map(|w| w.start_unix_us).min();
    let end = run.windows.iter().map(Window::end_unix_us).max();
    if let (Some(start_unix_us), Some(end_unix_us)) = (start, end) {
        let generator = Generator::default();
        let (index, rate, clients) = (0, None, None);
        run.steps.push(Step { index, rate, clients, start_unix_us, end_unix_us, generator });
    }
    run
}
