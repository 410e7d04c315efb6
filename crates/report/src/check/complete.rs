//! Finds runs whose windows do not cover the steps that they are checked against.
//!
//! A law that holds over a part of a step says nothing about the rest, and a run without windows
//! has no law to break. Both would pass, so both are findings of their own.

use ground::window::{QueueName, Window};

use crate::objective::digits;
use crate::steps::run_name;
use crate::{Error, Selection};
use record::{RunFolder, Step};

/// Windows may be missing at the ends of a step for this many window lengths: the first and the
/// last window of a queue cross the edges, and a server that is killed loses the one that it was
/// recording.
const ENDS_WINDOWS: f64 = 2.0;

/// Describes each run whose windows start after one of its steps starts or stop before it ends.
///
/// The steps of a server's run are those of the load generators' runs that it overlaps in time; a
/// server's run that overlaps none of them is a finding too.
///
/// # Errors
/// If a run has no windows at all.
pub(super) fn incomplete(runs: &[RunFolder], selection: &Selection) -> Result<Vec<String>, Error> {
    let taken = |run: &RunFolder| -> Vec<Step> {
        run.steps.iter().filter(|step| selection.takes(step)).cloned().collect()
    };
    let loads: Vec<Vec<Step>> = runs.iter().map(taken).filter(|steps| !steps.is_empty()).collect();
    let mut found = Vec::new();
    for run in runs {
        let Some(span) = Span::of_run(run) else {
            return Err(Error::Empty { path: run.dir.clone() });
        };
        if !run.steps.is_empty() {
            found.extend(taken(run).iter().filter_map(|step| span.misses(run, step)));
            continue;
        }
        let apart = |steps: &&Vec<Step>| steps.iter().all(|step| !span.overlaps(step));
        if !loads.is_empty() && loads.iter().all(|steps| apart(&steps)) {
            found.push(format!(
                "{}: none of its windows lies within a step of the load; was it recorded at the same time, and do the \
                 clocks agree?",
                run_name(run)
            ));
            continue;
        }
        let its = loads.iter().filter(|steps| !apart(steps)).flatten();
        found.extend(its.filter_map(|step| span.misses(run, step)));
    }
    Ok(found)
}

/// The time from the first to the last window of a run.
struct Span {
    start_unix_us: u64,
    end_unix_us: u64,
    /// The longest window, microseconds.
    window_us: f64,
}

impl Span {
    /// The span of the windows that count: those of the clients in a load generator's run (a fill
    /// precedes every step), all in a server's.
    fn of_run(run: &RunFolder) -> Option<Span> {
        let is_load = |w: &&Window| w.is_of(QueueName::Load);
        let clients = run.windows.iter().any(|w| is_load(&w));
        let counted =
            || run.windows.iter().filter(|w| !clients || run.steps.is_empty() || is_load(w));
        Some(Span {
            start_unix_us: counted().map(|w| w.start_unix_us).min()?,
            end_unix_us: counted().map(Window::end_unix_us).max()?,
            window_us: counted().map(|w| w.length_s * 1e6).fold(0.0, f64::max),
        })
    }

    fn overlaps(&self, step: &Step) -> bool {
        self.start_unix_us < step.end_unix_us && self.end_unix_us > step.start_unix_us
    }

    /// Describes the part of a step that the windows miss; `None` if they cover it.
    fn misses(&self, run: &RunFolder, step: &Step) -> Option<String> {
        let late_us = self.start_unix_us.saturating_sub(step.start_unix_us) as f64;
        let early_us = step.end_unix_us.saturating_sub(self.end_unix_us) as f64;
        let allowed_us = ENDS_WINDOWS * self.window_us;
        let (name, index) = (run_name(run), step.index);
        let seconds = |us: f64| digits(us * 1e-6, 3);
        let length = seconds(step.end_unix_us.saturating_sub(step.start_unix_us) as f64);
        if late_us > allowed_us {
            let late = seconds(late_us);
            Some(format!("{name}: its windows start {late} s after step {index} ({length} s) does"))
        } else if early_us > allowed_us {
            let early = seconds(early_us);
            Some(format!(
                "{name}: its windows stop {early} s before step {index} ({length} s) ends"
            ))
        } else {
            None
        }
    }
}
