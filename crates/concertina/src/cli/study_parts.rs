//! The command line of a study in parts: progress while a part runs, and the message when it has ended.

use std::process::ExitCode;
use std::time::Instant;

use ground::number::time;
use indicatif::ProgressBar;

use super::load::{bar, interrupted};
use crate::cli::output::outln;
use crate::simulate::DonePart;

/// The progress of runs that end one by one.
pub(super) struct PartProgress {
    bar: ProgressBar,
    begun: Instant,
}

impl PartProgress {
    /// Shown from here on.
    pub(super) fn new(hidden: bool) -> PartProgress {
        PartProgress { bar: bar(hidden), begun: Instant::now() }
    }

    /// Shows how many of all runs ended.
    pub(super) fn show(&self, done: usize, all: usize) {
        let share = done as f64 / all.max(1) as f64;
        self.bar.set_position((share * 1000.0) as u64);
        self.bar.set_prefix(format!("{done} of {all} runs"));
        let left_s = self.begun.elapsed().as_secs_f64() * (1.0 - share) / share;
        self.bar.set_message(format!("about {} left", time(left_s)));
    }

    /// Removes it from the terminal.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Prints a part that is done; `None` if it was interrupted.
pub(super) fn print_part(done: Option<&DonePart>, json: bool) -> anyhow::Result<ExitCode> {
    let Some(done) = done else { return Ok(interrupted()) };
    if json {
        outln!("{}", serde_json::to_string_pretty(done)?);
    } else {
        let before = if done.was_done { ", made before" } else { "" };
        let DonePart { part, parts, runs, file, .. } = done;
        outln!("part {part} of {parts}: {runs} runs{before}; {}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}
