//! Runs of one plan with different seeds, side by side, and an interval over them.
//!
//! What is shown does not depend on the number of threads: runs count in the order of their seeds, and where runs are added until
//! the interval is narrow, those that were begun after the last that was needed do not count. Their folders stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::ensure;
use model::statistics::batch_means;
use serde::Serialize;

use super::keyed::laws;
use super::limits::{Runs, check};
use super::plan::{Plan, members};
use super::result::{RunResult, StepResult};
use super::run::run;

/// How many runs there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunCount {
    /// So many.
    Fixed(usize),
    /// As many as it takes until the interval of each step's mean response is at most this part of the mean to either side.
    Within {
        /// That part.
        part: f64,
        /// Maximum number of runs.
        most: usize,
    },
}

/// Fewer runs say too little of how runs differ.
const RUNS_MIN: usize = 3;

impl RunCount {
    fn most(self) -> usize {
        match self {
            RunCount::Fixed(count) => count,
            RunCount::Within { most, .. } => most,
        }
    }
}

/// A mean over runs, and half of its 95 % interval (Student's).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub value: f64,
    /// To either side of it; not a number with one run.
    pub half: f64,
}

impl Interval {
    fn from_values(values: &[f64]) -> Interval {
        match batch_means(values) {
            Some(estimate) => Interval { value: estimate.mean, half: estimate.half_width },
            // One run says nothing of how runs differ.
            None => {
                let value = values.iter().sum::<f64>() / values.len() as f64;
                Interval { value, half: f64::NAN }
            }
        }
    }

    /// Whether it is at most this part of its mean to either side.
    fn is_within(self, part: f64) -> bool {
        self.half <= part * self.value.abs()
    }
}

/// A step over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct StepIntervals {
    /// Requests/s.
    pub rate: f64,
    /// Runs without a reply in this step, which do not count towards its intervals.
    pub runs_without_replies: usize,
    /// Mean response, ms.
    pub mean_ms: Interval,
    /// Median, ms.
    pub p50_ms: Interval,
    /// The 0.99 quantile, ms.
    pub p99_ms: Interval,
    /// For each objective in ms, the share within it.
    pub within: Vec<(f64, Interval)>,
    /// Share of the requests that failed.
    pub errors: Interval,
}

/// The result of several runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunSet {
    /// The folder that has a run folder for each seed.
    pub dir: PathBuf,
    /// The seeds of the runs that count.
    pub seeds: Vec<u64>,
    /// The steps that all of them completed.
    pub steps: Vec<StepIntervals>,
    /// Whether the intervals became as narrow as wanted; `None` if the number of runs was given.
    pub is_narrow: Option<bool>,
    /// Simulated requests of these runs.
    pub simulated_requests: u64,
    /// Real time that all took, seconds.
    pub seconds: f64,
    /// Descriptions of consistency violations; `None` if no history was checked.
    pub violations: Option<Vec<String>>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// The file that has the intervals, beside the run folders.
const INTERVALS_FILE: &str = "intervals.json";

/// What the threads share.
struct Progress {
    next: usize,
    /// The runs that count, once it is known.
    last: Option<usize>,
    done: BTreeMap<usize, RunResult>,
    /// Completed share of each run under way.
    under_way: BTreeMap<usize, f64>,
    failed: Option<anyhow::Error>,
}

/// The seed of a run by its place.
pub(super) fn seed_of(plan: &Plan, at: usize) -> u64 {
    plan.seed.wrapping_add(at as u64)
}

/// The plan of a run by its place.
fn plan_of(plan: &Plan, at: usize) -> Plan {
    let seed = seed_of(plan, at);
    Plan { seed, out: plan.out.join(format!("seed-{seed}")), ..plan.clone() }
}

/// Runs a plan with one seed after the other, `threads` at once. `progress` receives the stage, the completed share and the
/// seconds that are left, about.
///
/// # Errors
/// If the plan is invalid, or a run folder cannot be written.
pub fn run_several(
    plan: &Plan,
    count: RunCount,
    threads: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(&str, f64, Option<f64>) + Sync),
) -> anyhow::Result<RunSet> {
    let config = members(plan)?;
    let threads = threads.clamp(1, count.most().max(1));
    let at_least = match count {
        RunCount::Fixed(runs) => runs,
        RunCount::Within { .. } => RUNS_MIN,
    };
    check(plan, &config, &laws(plan, &config)?, Runs { count: at_least, at_once: threads })?;
    let mut there = std::fs::read_dir(&plan.out).into_iter().flatten();
    ensure!(there.next().is_none(), "{} is not empty: give another --out", plan.out.display());
    let begun = Instant::now();
    let shared = Mutex::new(Progress {
        next: 0,
        last: None,
        done: BTreeMap::new(),
        under_way: BTreeMap::new(),
        failed: None,
    });
    let worker = Worker { plan, count, stop, progress, shared: &shared, begun };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| worker.work())).collect();
        // A run that panics would leave the others without their result.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
    let mut shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = shared.failed.take() {
        return Err(error);
    }
    let complete = (0..).take_while(|at| shared.done.contains_key(at)).count();
    let counted = shared.last.unwrap_or(complete);
    // Runs that were under way when the last that was needed ended: with more threads there are more of them.
    shared.done.retain(|at, _| *at < counted);
    let interrupted = stop.load(Ordering::Relaxed);
    let runs: Vec<RunResult> = shared.done.into_values().collect();
    let set = run_set(plan, count, &runs, begun.elapsed().as_secs_f64(), interrupted);
    write(&plan.out, &set)?;
    Ok(set)
}

/// What the file of intervals has: what does not depend on where the runs were made, by how many threads, and how fast.
#[derive(Serialize)]
struct IntervalsFile<'a> {
    seeds: &'a [u64],
    steps: &'a [StepIntervals],
    is_narrow: Option<bool>,
    simulated_requests: u64,
    violations: Option<&'a [String]>,
    interrupted: bool,
}

/// Writes the file of intervals. Its folder was missing or empty before the first run, or is that of a study's parts.
pub(super) fn write(dir: &Path, set: &RunSet) -> anyhow::Result<()> {
    let path = dir.join(INTERVALS_FILE);
    let file = IntervalsFile {
        seeds: &set.seeds,
        steps: &set.steps,
        is_narrow: set.is_narrow,
        simulated_requests: set.simulated_requests,
        violations: set.violations.as_deref(),
        interrupted: set.interrupted,
    };
    let text = serde_json::to_string_pretty(&file)? + "\n";
    let is_ours = |text: &str| text.starts_with("{\n  \"seeds\": [");
    Ok(report::write_whole(&path, &text, is_ours)?)
}

/// What each thread does.
struct Worker<'a> {
    plan: &'a Plan,
    count: RunCount,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(&str, f64, Option<f64>) + Sync),
    shared: &'a Mutex<Progress>,
    begun: Instant,
}

impl Worker<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(at) = self.take() {
            let outcome = run(&plan_of(self.plan, at), self.stop, &mut |_, done| {
                self.lock().under_way.insert(at, done);
                self.show();
            });
            let mut shared = self.lock();
            shared.under_way.remove(&at);
            match outcome {
                Ok(outcome) => _ = shared.done.insert(at, RunResult::new(outcome)),
                Err(error) => shared.failed = Some(error),
            }
            self.judge(&mut shared);
        }
    }

    /// The place of the next run.
    fn take(&self) -> Option<usize> {
        let mut shared = self.lock();
        let over = self.stop.load(Ordering::Relaxed) || shared.failed.is_some();
        if over || shared.last.is_some() || shared.next >= self.count.most() {
            return None;
        }
        shared.next += 1;
        Some(shared.next - 1)
    }

    /// Whether the first runs suffice.
    fn judge(&self, shared: &mut Progress) {
        let RunCount::Within { part, .. } = self.count else { return };
        let complete = (0..).take_while(|at| shared.done.contains_key(at)).count();
        for count in RUNS_MIN..=complete {
            let runs: Vec<&RunResult> = shared.done.values().take(count).collect();
            let steps = steps_of(self.plan, &runs);
            let all = steps.len() == self.plan.rates.len();
            if all && steps.iter().all(|step| step.mean_ms.is_within(part)) {
                shared.last = shared.last.or(Some(count));
                return;
            }
        }
    }

    fn show(&self) {
        let shared = self.lock();
        let done = shared.done.len() as f64 + shared.under_way.values().sum::<f64>();
        let (stage, share) = match self.count {
            RunCount::Fixed(count) => {
                (format!("{} of {count} runs", shared.done.len()), done / count as f64)
            }
            RunCount::Within { part, most } => {
                let all: Vec<&RunResult> =
                    shared.done.values().filter(|run| !run.interrupted).collect();
                let expected = runs_expected(&steps_of(self.plan, &all), all.len(), part);
                let expected = expected.min(most as f64).max(done.ceil());
                let stage = format!("{} of about {expected:.0} runs", shared.done.len());
                (stage, done / expected.max(1.0))
            }
        };
        let left_s =
            (share > 0.01).then(|| self.begun.elapsed().as_secs_f64() * (1.0 - share) / share);
        drop(shared);
        (self.progress)(&stage, share, left_s);
    }
}

/// The runs that it takes until the intervals of all steps are at most this part of their means, by those of `runs` runs: they become
/// narrower as the root of the runs.
fn runs_expected(steps: &[StepIntervals], runs: usize, part: f64) -> f64 {
    let of = |step: &StepIntervals| {
        let wide = step.mean_ms.half / (part * step.mean_ms.value.abs());
        runs as f64 * wide.powi(2)
    };
    let least = RUNS_MIN as f64;
    steps.iter().map(of).filter(|count| count.is_finite()).fold(least, f64::max)
}

/// The steps that all runs have.
fn steps_of(plan: &Plan, runs: &[&RunResult]) -> Vec<StepIntervals> {
    let common = runs.iter().map(|run| run.steps.len()).min().unwrap_or(0);
    let of = |(index, &rate): (usize, &f64)| {
        let steps: Vec<_> = runs.iter().map(|run| &run.steps[index]).collect();
        // A run in which nobody asked has no mean and no shares.
        let over = |value: &dyn Fn(&StepResult) -> f64| {
            let known = steps.iter().map(|step| value(step)).filter(|value| !value.is_nan());
            Interval::from_values(&known.collect::<Vec<f64>>())
        };
        let objectives = steps.iter().map(|step| step.within.len()).min().unwrap_or(0);
        StepIntervals {
            rate,
            runs_without_replies: steps.iter().filter(|step| step.completions == 0).count(),
            mean_ms: over(&|step| step.mean_ms),
            p50_ms: over(&|step| step.p50_ms),
            p99_ms: over(&|step| step.p99_ms),
            within: (0..objectives)
                .map(|at| (steps[0].within[at].ms, over(&|step| step.within[at].share)))
                .collect(),
            // Without completions not a number.
            errors: over(&|step| step.errors as f64 / step.completions as f64),
        }
    };
    plan.rates.iter().enumerate().take(common).map(of).collect()
}

/// The result of the first runs of a plan.
pub(super) fn run_set(
    plan: &Plan,
    count: RunCount,
    all: &[RunResult],
    seconds: f64,
    interrupted: bool,
) -> RunSet {
    let runs: Vec<&RunResult> = all.iter().filter(|run| !run.interrupted).collect();
    let steps = steps_of(plan, &runs);
    let is_narrow = match count {
        RunCount::Fixed(_) => None,
        RunCount::Within { part, .. } => {
            Some(!steps.is_empty() && steps.iter().all(|step| step.mean_ms.is_within(part)))
        }
    };
    let violations = all.iter().filter_map(|run| run.violations.clone());
    RunSet {
        dir: plan.out.clone(),
        seeds: (0..all.len())
            .filter(|at| !all[*at].interrupted)
            .map(|at| seed_of(plan, at))
            .collect(),
        steps,
        is_narrow,
        simulated_requests: runs.iter().map(|run| run.simulated_requests).sum(),
        seconds,
        violations: plan.check.then(|| violations.flatten().collect()),
        interrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let interval = Interval::from_values(&[1.0, 2.0, 3.0]);
        assert_eq!(interval.value, 2.0);
        // t of two degrees of freedom, times 1/√3.
        assert!((interval.half - 4.302_653 / 3f64.sqrt()).abs() < 1e-5);
        assert!(interval.is_within(1.3) && !interval.is_within(1.2));
        assert!(
            Interval::from_values(&[1.0]).half.is_nan()
                && !Interval::from_values(&[1.0]).is_within(1.0)
        );
    }

    fn plan() -> Plan {
        use crate::simulate::{LoadCourse, Messages};
        Plan {
            config: configuration::Config::default(),
            rates: vec![10.0],
            duration_s: 10.0,
            warmup_s: 0.0,
            keys: 1,
            drawn: None,
            course: LoadCourse::default(),
            chance: None,
            unstable: false,
            popularity: load::Popularity::Uniform,
            bytes: (1, 1),
            read_share: 1.0,
            network_s: 0.0,
            origin_s: 0.0,
            seed: 7,
            nodes: None,
            lost: Vec::new(),
            slow: Vec::new(),
            gateways: 1,
            messages: Messages::default(),
            faults: Vec::new(),
            drift_ppm: 0,
            check: false,
            out: PathBuf::new(),
        }
    }

    fn result(mean_ms: f64, interrupted: bool) -> RunResult {
        let step = StepResult {
            mean_ms,
            p50_ms: mean_ms,
            p99_ms: mean_ms,
            within: Vec::new(),
            completions: 100,
            errors: 0,
        };
        let (simulated_requests, seconds, violations) = (100, 1.0, None);
        RunResult { steps: vec![step], simulated_requests, seconds, violations, interrupted }
    }

    #[test]
    fn interrupted_runs_do_not_count() {
        let all = [result(1.0, false), result(9.0, true), result(3.0, false), result(9.0, true)];
        let set = run_set(&plan(), RunCount::Fixed(4), &all, 1.0, true);
        assert_eq!((set.seeds, set.simulated_requests), (vec![7, 9], 200));
        assert_eq!(set.steps[0].mean_ms.value, 2.0);
    }

    /// Nine of ten runs in which nobody asked made 9 % of what is 90 % in time, and a mean that is not a number.
    #[test]
    fn runs_without_requests_do_not_count() {
        use super::super::result::ShareWithin;
        let of = |mean_ms: f64, share: f64, completions: u64| {
            let mut run = result(mean_ms, false);
            run.steps[0].within = vec![ShareWithin { ms: 20.0, share }];
            run.steps[0].completions = completions;
            run
        };
        let none = of(f64::NAN, f64::NAN, 0);
        let all = [of(8.0, 0.8, 2), none.clone(), of(12.0, 1.0, 1), none];
        let set = run_set(&plan(), RunCount::Within { part: 3.0, most: 4 }, &all, 1.0, false);
        let step = &set.steps[0];
        assert_eq!((step.mean_ms.value, step.within[0].1.value), (10.0, 0.9));
        assert_eq!((step.runs_without_replies, step.errors.value), (2, 0.0));
        assert_eq!(set.is_narrow, Some(true));
    }

    #[test]
    fn the_runs_that_it_takes_are_estimated() {
        let all: Vec<RunResult> = [98.0, 100.0, 102.0].map(|mean| result(mean, false)).into();
        let steps = steps_of(&plan(), &all.iter().collect::<Vec<_>>());
        // The interval of three is 4.97 to either side: of 1 it takes 24.7 times as many.
        let expected = runs_expected(&steps, 3, 0.01);
        assert!((expected - 3.0 * 4.968_f64.powi(2)).abs() < 0.1, "{expected}");
        assert_eq!(runs_expected(&steps, 3, 0.5), 3.0);
        assert_eq!(runs_expected(&[], 0, 0.01), 3.0);
    }
}
