//! Checks operational laws over run folders, to find out whether the measurements can be trusted.
//!
//! The checked intervals are the steps of the load generator's runs, each with the queues of the
//! servers' runs; without a load generator's run, the whole of a server's run is one step.
//! [`crate::laws`] chooses the laws that apply; `docs/check.md` explains how to read the output.

mod complete;
mod watch;

pub use watch::{FoundChange, Watched, watch};

use std::fmt::Write;
use std::path::PathBuf;

use ground::window::Window;
use model::laws::{Check, Verdict, steady};
use serde::Serialize;

use crate::grid::printable;
use crate::laws::{advice, laws};
use crate::objective::digits;
use crate::steps::{ObservedStep, run_name};
use crate::table::{laws_grid, points};
use crate::whole::one_step;
use crate::{Error, Observed, Selection};
use record::RunFolder;

/// A checked law with advice on its deviation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedLaw {
    /// The law.
    #[serde(flatten)]
    pub check: Check,
    /// Its formula.
    pub formula: &'static str,
    /// The unit of both sides.
    pub unit: &'static str,
    /// What to do; `None` where the law holds.
    pub advice: Option<&'static str>,
}

/// A checked step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedStep {
    /// Its name: the run's folder and its number in the sweep.
    pub name: String,
    /// Offered rate in an open loop, requests/s.
    pub rate: Option<f64>,
    /// Number of clients in a closed loop.
    pub clients: Option<usize>,
    /// Its length, seconds.
    pub seconds: f64,
    /// The checks of the laws that apply.
    pub laws: Vec<CheckedLaw>,
    /// Other reasons to doubt the step.
    pub notes: Vec<String>,
}

/// The result of checking runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// Whether no law is broken and every run covers its steps.
    pub holds: bool,
    /// Number of broken laws.
    pub broken: usize,
    /// Number of laws whose deviation may be chance.
    pub unsure: usize,
    /// The runs whose windows do not cover their steps, with what is missing.
    pub incomplete: Vec<String>,
    /// The steps.
    pub steps: Vec<CheckedStep>,
}

/// Checks run folders. `tolerance` is the relative deviation up to which a law holds.
pub fn check(dirs: &[PathBuf], selection: &Selection, tolerance: f64) -> Result<Checked, Error> {
    let selection = Selection { any_queues: true, ..selection.clone() };
    let mut runs = Vec::new();
    for dir in dirs {
        let mut run = RunFolder::read(dir)?;
        run.samples = Vec::new();
        runs.push(run);
    }
    let incomplete = complete::incomplete(&runs, &selection)?;
    let (loads, servers): (Vec<RunFolder>, Vec<RunFolder>) =
        runs.into_iter().partition(|run| !run.steps.is_empty());
    let mut steps: Vec<CheckedStep> = Vec::new();
    if servers.len() <= 1 || loads.is_empty() {
        // Without a load generator's run, a server's run is one step; with one, its queues belong
        // to the generator's steps.
        let groups: Vec<Vec<RunFolder>> = if loads.is_empty() {
            servers.into_iter().map(|run| vec![one_step(run)]).collect()
        } else {
            vec![loads.into_iter().chain(servers).collect()]
        };
        if groups.is_empty() {
            return Err(Error::NoRuns);
        }
        for group in groups {
            let observed = Observed::new(group, &selection)?;
            steps.extend(observed.steps.iter().map(|step| check_step(step, "", tolerance)));
        }
    } else {
        // Several servers have queues of the same names, so each is compared with the load
        // separately.
        let clients = Observed::new(loads.clone(), &selection)?;
        steps.extend(clients.steps.iter().map(|step| check_step(step, "", tolerance)));
        for server in servers {
            let prefix = format!("{}: ", run_name(&server));
            let unseen = |run: &RunFolder| RunFolder { windows: Vec::new(), ..run.clone() };
            let group = loads.iter().map(unseen).chain([server]).collect();
            let mut observed = Observed::new(group, &selection)?;
            observed.steps.iter_mut().for_each(|step| step.alone = false);
            for (step, observed) in steps.iter_mut().zip(&observed.steps) {
                step.laws.extend(check_step(observed, &prefix, tolerance).laws);
            }
        }
    }
    let count = |verdict: Verdict| {
        steps.iter().flat_map(|s| &s.laws).filter(|l| l.check.verdict == verdict).count()
    };
    let (broken, unsure) = (count(Verdict::Broken), count(Verdict::Unsure));
    let holds = broken == 0 && incomplete.is_empty();
    Ok(Checked { holds, broken, unsure, incomplete, steps })
}

fn check_step(observed: &ObservedStep, prefix: &str, tolerance: f64) -> CheckedStep {
    let checked = |mut check: Check| {
        check.queue.insert_str(0, prefix);
        let (formula, unit) = (check.law.formula(), check.law.unit());
        CheckedLaw { formula, unit, advice: advice(&check), check }
    };
    let step = &observed.step;
    CheckedStep {
        name: observed.name().to_owned(),
        rate: step.rate,
        clients: step.clients,
        seconds: step.end_unix_us.saturating_sub(step.start_unix_us) as f64 * 1e-6,
        laws: laws(observed, true, tolerance).into_iter().map(checked).collect(),
        notes: notes(observed),
    }
}

/// Other reasons to doubt a step.
fn notes(observed: &ObservedStep) -> Vec<String> {
    let (step, windows) = (&observed.step, &observed.windows.load);
    let mut notes = step.generator.complaints.clone();
    let length: Vec<f64> = windows.iter().map(Window::length_mean).collect();
    if !steady(&[&length]).settled {
        notes.push(
            "the number of pending requests had not settled (MSER): the step includes a warm-up, or the \
             load is past saturation"
                .to_owned(),
        );
    }
    let errors: u64 = windows.iter().map(|w| w.errors).sum();
    if errors > 0 {
        notes.push(format!(
            "{errors} replies were errors; clients of a closed loop pause after one"
        ));
    }
    notes
}

impl Checked {
    /// Formats a table for each step, advice on deviations, and the result.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for step in &self.steps {
            let asked = match (step.rate, step.clients) {
                (Some(rate), _) => format!("offered rate {} requests/s, ", digits(rate, 5)),
                (None, Some(clients)) => format!("{clients} clients, "),
                (None, None) => String::new(),
            };
            let name = printable(&step.name);
            let _ = writeln!(out, "{name}: {asked}{} s", digits(step.seconds, 4));
            out += &laws_grid(step.laws.iter().map(|law| &law.check)).text();
            if step.laws.is_empty() {
                out += "no request was completed, so no law can be checked\n";
            }
            for law in &step.laws {
                if let Some(advice) = law.advice {
                    let off = points(Some(law.check.deviation_percent));
                    let title = printable(&law.check.title());
                    let _ = writeln!(out, "  {title} ({off} %): {advice}.");
                }
            }
            for note in &step.notes {
                let _ = writeln!(out, "  note: {}.", printable(note));
            }
            out.push('\n');
        }
        for missing in &self.incomplete {
            let _ = writeln!(out, "INCOMPLETE: {}.", printable(missing));
        }
        let all: usize = self.steps.iter().map(|s| s.laws.len()).sum();
        let _ = match self.broken == 0 {
            true if !self.incomplete.is_empty() => writeln!(
                out,
                "No law is broken where there are windows, but runs are incomplete: do not trust or fit them; record \
                 the load and the server again, at the same time."
            ),
            true if self.unsure == 0 => writeln!(out, "All {all} checks hold."),
            true => writeln!(out, "No law is broken; {} of {all} checks are unsure.", self.unsure),
            false => writeln!(
                out,
                "{} of {all} checks are BROKEN: do not trust or fit these steps before the cause is known.",
                self.broken
            ),
        };
        out
    }
}
