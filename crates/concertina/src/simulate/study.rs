//! Seeds and loads as the units of a study that is simulated in parts.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::keyed::laws;
use super::limits::{Runs, check};
use super::parts::{StudyPart, is_done, on_threads, read_parts, study_id, write_part};
use super::plan::{Plan, members};
use super::result::RunResult;
use super::run::{VIOLATIONS_MAX, run};
use super::several::{RunCount, RunSet, run_set, seed_of, write};

/// Attempts at one part that leave run folders.
const ATTEMPTS_MAX: usize = 1000;

/// A part that was simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DonePart {
    /// Its number, from 0.
    pub part: usize,
    /// The number of all parts.
    pub parts: usize,
    /// Its runs.
    pub runs: usize,
    /// The file with their results.
    pub file: PathBuf,
    /// Whether it had been simulated before.
    pub was_done: bool,
}

impl DonePart {
    /// What is printed for a part that has ended: `runs` runs, and its file in `folder`. `was_done`: an earlier command made it.
    pub fn new(part: StudyPart, runs: usize, folder: &Path, was_done: bool) -> DonePart {
        let StudyPart { part: number, parts } = part;
        DonePart { part: number, parts, runs, file: part.file(folder), was_done }
    }
}

/// The name of a study: whatever does not change its results is left out.
fn id_of(plan: &Plan, runs: usize) -> String {
    study_id(&("simulate", Plan { out: PathBuf::new(), ..plan.clone() }, runs))
}

/// A unit of a study: the runs of a load follow each other.
#[derive(Clone, Copy)]
struct Unit {
    load: usize,
    run: usize,
}

impl Unit {
    fn new(at: usize, runs: usize) -> Unit {
        Unit { load: at / runs.max(1), run: at % runs.max(1) }
    }

    fn plan(self, plan: &Plan, folder: &Path) -> Option<Plan> {
        let (seed, rate) = (seed_of(plan, self.run), *plan.rates.get(self.load)?);
        let out = folder.join(format!("seed-{seed}-load-{}", self.load));
        Some(Plan { seed, rates: vec![rate], out, ..plan.clone() })
    }
}

/// Simulates the units of a part of a study of `runs` seeds, `threads` at once: a run folder for each in a folder of the part, and
/// a file with the results. A part whose file is there is not simulated again. `None` if it was interrupted: nothing is
/// written then but run folders.
///
/// # Errors
/// If the plan is invalid, or a file cannot be written.
pub fn simulate_part(
    plan: &Plan,
    runs: usize,
    part: StudyPart,
    threads: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> anyhow::Result<Option<DonePart>> {
    let config = members(plan)?;
    let study = id_of(plan, runs);
    let count = runs.checked_mul(plan.rates.len()).context("too many runs for one study")?;
    let units: Vec<usize> = part.units(count).collect();
    let done = |was_done| Ok(Some(DonePart::new(part, units.len(), &plan.out, was_done)));
    if is_done(&plan.out, part, &study) {
        return done(true);
    }
    let laws = laws(plan, &config)?;
    let shared = Runs { count: units.len().max(1), at_once: threads };
    for &rate in &plan.rates {
        // All loads, so that no part is simulated of a study that another part refuses.
        check(&Plan { rates: vec![rate], ..plan.clone() }, &config, &laws, shared)?;
    }
    let folder = attempt_folder(&plan.out, part)?;
    let work = |at: &usize| {
        let plan = Unit::new(*at, runs).plan(plan, &folder).context("a run has a load")?;
        let outcome = run(&plan, stop, &mut |_, _| ())?;
        Ok((!outcome.summary.interrupted).then(|| RunResult::new(outcome)))
    };
    let found = on_threads(&units, threads, stop, &work, progress)?;
    if found.len() < units.len() {
        return Ok(None);
    }
    let results = found.into_iter().filter_map(|(at, result)| Some((*units.get(at)?, result)));
    write_part(&plan.out, part, &study, results.collect())?;
    done(false)
}

/// A new folder for the run folders of a part: those of attempts that were interrupted stay.
fn attempt_folder(out: &Path, part: StudyPart) -> anyhow::Result<PathBuf> {
    let shown = out.display();
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {shown}"))?;
    for attempt in 1..=ATTEMPTS_MAX {
        let name = match attempt {
            1 => part.name(),
            again => format!("{}-attempt-{again}", part.name()),
        };
        let folder = out.join(name);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made.with_context(|| format!("cannot create {}", folder.display()))?;
                return Ok(folder);
            }
        }
    }
    bail!("{shown} has the runs of {ATTEMPTS_MAX} attempts at {}: remove them", part.name())
}

/// Joins the parts of a study that is in the plan's folder, and writes its intervals there.
///
/// # Errors
/// If a part is missing or of another study, or the file cannot be written.
pub fn join_runs(plan: &Plan, runs: usize) -> anyhow::Result<RunSet> {
    members(plan)?;
    let count = runs.checked_mul(plan.rates.len()).context("too many runs for one study")?;
    let units: Vec<RunResult> = read_parts(&plan.out, &id_of(plan, runs), count)?;
    let mut all: Vec<RunResult> = Vec::new();
    for (at, unit) in units.into_iter().enumerate() {
        let place = Unit::new(at, runs).run;
        match all.get_mut(place) {
            None => all.push(unit),
            Some(run) => append(run, unit),
        }
    }
    let seconds = all.iter().map(|run| run.seconds).sum();
    let set = run_set(plan, RunCount::Fixed(runs), &all, seconds, false);
    write(&plan.out, &set)?;
    Ok(set)
}

/// Adds the next load to a run, as if it had been simulated behind the others.
fn append(run: &mut RunResult, load: RunResult) {
    run.steps.extend(load.steps);
    run.simulated_requests += load.simulated_requests;
    run.seconds += load.seconds;
    if let (Some(all), Some(more)) = (&mut run.violations, load.violations) {
        all.extend(more);
        all.truncate(VIOLATIONS_MAX);
    }
}
