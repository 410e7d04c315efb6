//! Selects the steps of run folders and collects the windows of each, as input for a fit.
//!
//! The load generator's run records when it measured at which rate; the server's run has the
//! windows of the queues `gateway`, `node`, `origin` and `device/N`. A step receives the windows of
//! every run that lie wholly within it. A window that crosses the edge of a step contains part of
//! the warm-up or of another rate and is excluded, as are windows in which other guests of the
//! hypervisor used the processor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ground::number::exact;
use ground::window::{QueueName, Times, Window};

use super::apart::{self, within};
use super::disturbed::Disturbed;
use super::error::Error;
use super::times::times_of;
use super::whole::one_step_each;
use record::{Host, Machine, RunFolder, Step};

/// The steps to take from runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Take the steps with these numbers; all steps if empty.
    pub indices: Vec<usize>,
    /// Take the steps with these offered rates (within 0.1 %).
    pub rates: Vec<f64>,
    /// Combine runs of different machines, whose clocks agree.
    pub across_machines: bool,
    /// Accept runs without device queues: enough for checks and reports, not for fits.
    pub any_queues: bool,
    /// Where no run has steps (a server's), take each run for one step; a load's run without steps was interrupted in its first.
    pub whole: bool,
    /// The selected steps that are held out: excluded from the fit, and used to judge it.
    pub hold_out: Vec<StepChoice>,
}

/// A choice of steps, as in `--steps`: numbers (`0,2`, `0-3`) and rates (`1500/s`).
#[derive(Clone, Debug, PartialEq)]
pub enum StepChoice {
    /// Steps by their number in the sweep.
    Indices(std::ops::RangeInclusive<usize>),
    /// The step with this rate.
    Rate(f64),
}

impl FromStr for StepChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<StepChoice, String> {
        let wrong = || {
            format!("invalid step `{text}`: write its number (`2`, `0-3`) or its rate (`1500/s`)")
        };
        if let Some(rate) = text.trim().strip_suffix("/s") {
            let rate: f64 = rate.parse().map_err(|_| wrong())?;
            return if rate > 0.0 { Ok(StepChoice::Rate(rate)) } else { Err(wrong()) };
        }
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let number = |s: &str| s.trim().parse::<usize>().map_err(|_| wrong());
        let (low, high) = (number(low)?, number(high)?);
        if low > high || high > 1_000_000 {
            Err(wrong())
        } else {
            Ok(StepChoice::Indices(low..=high))
        }
    }
}

impl StepChoice {
    fn takes(&self, step: &Step) -> bool {
        match self {
            StepChoice::Indices(range) => range.contains(&step.index),
            StepChoice::Rate(rate) => step.rate.is_some_and(|s| (s / rate - 1.0).abs() <= 1e-3),
        }
    }
}

impl std::fmt::Display for StepChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StepChoice::Indices(range) if range.start() == range.end() => {
                write!(f, "{}", range.start())
            }
            StepChoice::Indices(range) => write!(f, "{}-{}", range.start(), range.end()),
            StepChoice::Rate(rate) => write!(f, "of {}/s", exact(*rate)),
        }
    }
}

impl Selection {
    /// Makes the selection of a command line.
    pub fn new(choices: &[StepChoice], across_machines: bool) -> Selection {
        let mut selection = Selection { across_machines, ..Selection::default() };
        for choice in choices {
            match choice {
                StepChoice::Indices(range) => selection.indices.extend(range.clone()),
                StepChoice::Rate(rate) => selection.rates.push(*rate),
            }
        }
        selection
    }

    pub(crate) fn takes(&self, step: &Step) -> bool {
        let rate = |r: &f64| step.rate.is_some_and(|s| (s / r - 1.0).abs() <= 1e-3);
        let all = self.indices.is_empty() && self.rates.is_empty();
        all || self.indices.contains(&step.index) || self.rates.iter().any(rate)
    }
}

/// A step of a load with everything observed in it.
#[derive(Clone, Debug)]
pub struct ObservedStep {
    /// The step as the generator wrote it.
    pub step: Step,
    /// The run of the generator, as an index into [`Observed::runs`].
    pub run: usize,
    /// The input of a fit. Its name is `FOLDER#INDEX@START`, by which a report recognises fitted
    /// steps.
    pub windows: model::fit::Step,
    /// Windows of the origin.
    pub origin: Vec<Window>,
    /// Host records within the step, for each run that has them.
    pub hosts: Vec<(String, Vec<Host>)>,
    /// Mean think time of a closed loop, seconds.
    pub think_s: f64,
    /// Whether the clients sent all requests to the one server whose windows these are.
    pub alone: bool,
    /// Whether the step is held out: excluded from the fit, and used to judge it.
    pub held_out: bool,
    /// Seconds of the client's queue that are excluded because other guests used the processor.
    pub disturbed_s: f64,
}

impl ObservedStep {
    /// The name without the start time.
    pub fn name(&self) -> &str {
        short_name(&self.windows.name)
    }
}

/// A step's name without its start time.
pub(crate) fn short_name(name: &str) -> &str {
    match name.rsplit_once('@') {
        Some((short, start)) if start.parse::<u64>().is_ok() => short,
        _ => name,
    }
}

/// Whether two names denote the same step, even if its folder was renamed in between.
pub(crate) fn same_step(a: &str, b: &str) -> bool {
    let start = |s: &str| s.rsplit_once('@').and_then(|(_, start)| start.parse::<u64>().ok());
    a == b || matches!((start(a), start(b)), (Some(x), Some(y)) if x == y)
}

/// Runs and their steps.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The run folders, without their samples and windows.
    pub runs: Vec<RunFolder>,
    /// The steps in order of rate.
    pub steps: Vec<ObservedStep>,
}

/// The name of a run: the name of its folder.
pub fn run_name(run: &RunFolder) -> String {
    let name = run.dir.file_name().map(|n| n.to_string_lossy().into_owned());
    name.unwrap_or_else(|| run.dir.display().to_string())
}

impl Observed {
    /// Reads run folders and collects their steps.
    pub fn read(dirs: &[PathBuf], selection: &Selection) -> Result<Observed, Error> {
        let runs = dirs.iter().map(|dir| read_run(dir)).collect::<Result<_, _>>()?;
        Observed::new(runs, selection)
    }

    /// Collects the steps of runs in memory.
    pub fn new(mut runs: Vec<RunFolder>, selection: &Selection) -> Result<Observed, Error> {
        // A load's run without steps may have ended in its warm-up.
        let is_whole = |run: &RunFolder| run.steps.is_empty() && run.run.kind != "load";
        if selection.whole && runs.iter().all(is_whole) {
            runs = one_step_each(runs)?;
        }
        check_runs(&runs, selection)?;
        let mut chosen: Vec<(usize, Step)> = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            chosen.extend(
                run.steps.iter().filter(|s| selection.takes(s)).map(|s| (index, s.clone())),
            );
        }
        check_choice(&runs, selection, &chosen)?;
        let mut steps = Vec::new();
        for (run, step) in chosen {
            let held_out = selection.hold_out.iter().any(|choice| choice.takes(&step));
            let observed = observe(&runs, run, step, selection.any_queues)?;
            steps.push(ObservedStep { held_out, ..observed });
        }
        apart::check(&runs, steps.iter().map(|step| &step.step))?;
        if steps.iter().all(|step| step.held_out) {
            return Err(Error::AllHeldOut);
        }
        let rate = |s: &ObservedStep| s.step.rate.unwrap_or(s.step.clients.unwrap_or(0) as f64);
        steps.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        for run in &mut runs {
            (run.windows, run.times) = (Vec::new(), Vec::new());
        }
        Ok(Observed { runs, steps })
    }

    /// The input of a fit: the windows of the steps that are not held out.
    pub fn fit_steps(&self) -> Vec<model::fit::Step> {
        self.steps.iter().filter(|s| !s.held_out).map(|s| s.windows.clone()).collect()
    }

    /// The distinct emulation notes of the runs.
    pub fn laboratory(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for note in self.runs.iter().filter_map(|r| r.run.laboratory.clone()) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }

    /// The provenance that is stored in a model.
    pub fn about(&self, title: &str) -> model::About {
        let notes = self.laboratory();
        model::About {
            title: title.to_owned(),
            runs: self.runs.iter().map(run_name).collect(),
            laboratory: (!notes.is_empty()).then(|| notes.join(" · ")),
        }
    }
}

/// Reads one run and drops its samples, which no report needs.
fn read_run(dir: &Path) -> Result<RunFolder, Error> {
    let mut run = RunFolder::read(dir)?;
    run.samples = Vec::new();
    Ok(run)
}

fn names<'a>(runs: impl IntoIterator<Item = &'a RunFolder>) -> String {
    runs.into_iter().map(|r| r.dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn is_device(queue: &str) -> bool {
    QueueName::parse(queue).is_some_and(QueueName::is_device)
}

/// Whether it is a device of a member of a simulated cluster: `a/device/0`.
fn is_device_of_member(queue: &str) -> bool {
    let of_member = queue.split_once('/').is_some_and(|(_, own)| is_device(own));
    of_member && QueueName::parse(queue).is_none()
}

fn check_runs(runs: &[RunFolder], selection: &Selection) -> Result<(), Error> {
    let first = runs.first().ok_or(Error::NoRuns)?;
    for (i, run) in runs.iter().enumerate() {
        let same = |r: &&RunFolder| {
            r.run.start_unix_us == run.run.start_unix_us && r.run.kind == run.run.kind
        };
        if let Some(other) = runs[..i].iter().find(same) {
            return Err(Error::Twice { path: run.dir.clone(), other: other.dir.clone() });
        }
        for (line, window) in run.windows.iter().enumerate() {
            if let Some(what) = damage(window) {
                let what = format!("window {} of queue `{}`: {what}", line + 1, window.queue);
                return Err(Error::Damaged { run: run.dir.display().to_string(), what });
            }
        }
        if let Some(step) = run.steps.iter().find(|s| s.start_unix_us >= s.end_unix_us) {
            let what = format!("step {} ends before it begins", step.index);
            return Err(Error::Damaged { run: run.dir.display().to_string(), what });
        }
    }
    if runs.iter().all(|r| r.steps.is_empty()) {
        let loads: Vec<_> = runs.iter().filter(|r| r.run.kind == "load").collect();
        return Err(if loads.is_empty() {
            Error::NoLoad { runs: names(runs) }
        } else {
            Error::NoSteps { runs: names(loads) }
        });
    }
    let devices = runs.iter().any(|r| r.windows.iter().any(|w| is_device(&w.queue)));
    if !devices && !selection.any_queues {
        let imported = runs.iter().all(|run| run.run.kind == "import");
        let runs = names(runs);
        return Err(if imported { Error::NoDevices { runs } } else { Error::NoServer { runs } });
    }
    let other =
        runs.iter().find_map(|r| Some((r, difference(&first.run.machine, &r.run.machine)?)));
    match other {
        Some((other, difference)) if !selection.across_machines => Err(Error::Machines {
            a: first.dir.display().to_string(),
            b: other.dir.display().to_string(),
            difference,
        }),
        _ => Ok(()),
    }
}

/// Describes how two machines differ; `None` if they do not.
pub(crate) fn difference(a: &Machine, b: &Machine) -> Option<String> {
    if a.processor != b.processor {
        return Some(format!("processor {:?} and {:?}", a.processor, b.processor));
    }
    if a.cores != b.cores {
        return Some(format!("{} and {} cores", a.cores, b.cores));
    }
    if a.kernel != b.kernel {
        return Some(format!("kernel {:?} and {:?}", a.kernel, b.kernel));
    }
    (a.memory_bytes != b.memory_bytes)
        .then(|| format!("{} and {} bytes of memory", a.memory_bytes, b.memory_bytes))
}

/// The largest plausible count: sums of larger ones could overflow.
const COUNT_MAX: u64 = 1 << 50;

/// Describes the first impossible value of a window read from a file; `None` if all are plausible.
fn damage(window: &Window) -> Option<&'static str> {
    let counts = [
        window.arrivals,
        window.completions,
        window.errors,
        window.refusals,
        window.joined,
        window.bytes,
        window.length_met_sum,
        window.dispersion.intervals,
        window.dispersion.sum,
        window.dispersion.sum_of_squares,
    ];
    let sums = [window.length_integral_s, window.busy_s, window.bytes_squared];
    let too_many = |t: &Times| {
        [&t.waiting, &t.service, &t.response].iter().any(|h| h.count() > COUNT_MAX)
            || t.within.iter().any(|&n| n > COUNT_MAX)
    };
    if !(window.length_s >= 0.0 && window.length_s <= 1e7) {
        Some("its length is invalid")
    } else if window.start_unix_us > COUNT_MAX << 6 {
        Some("its start time is invalid")
    } else if counts.iter().any(|&c| c > COUNT_MAX) || window.times.iter().any(too_many) {
        Some("a count is impossibly large")
    } else if sums.iter().any(|s| !(0.0..1e30).contains(s)) {
        Some("a sum is negative or too large")
    } else if window.times.iter().any(|t| t.within.len() != window.objectives_ms.len()) {
        Some("its counts do not match its objectives")
    } else if window.kernel.is_some_and(|k| {
        k.reads.max(k.writes) > COUNT_MAX || !(0.0..1e30).contains(&(k.await_ms + k.utilisation))
    }) {
        Some("the kernel's figures are invalid")
    } else if window.objectives_ms.iter().any(|&t| !(t > 0.0 && t < 1e9)) {
        Some("an objective is not a valid time")
    } else {
        None
    }
}

fn check_choice(
    runs: &[RunFolder],
    selection: &Selection,
    chosen: &[(usize, Step)],
) -> Result<(), Error> {
    let all: Vec<&Step> = runs.iter().flat_map(|r| &r.steps).collect();
    let available = || {
        let shown = all.iter().map(|s| match (s.rate, s.clients) {
            (Some(rate), _) => format!("{} ({}/s)", s.index, exact(rate)),
            (None, Some(clients)) => format!("{} ({clients} clients)", s.index),
            (None, None) => s.index.to_string(),
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let missing = |asked: String| Err(Error::NoSuchStep { asked, available: available() });
    for index in &selection.indices {
        if !chosen.iter().any(|(_, s)| s.index == *index) {
            return missing(index.to_string());
        }
    }
    for rate in &selection.rates {
        let one = Selection { rates: vec![*rate], ..Selection::default() };
        if !chosen.iter().any(|(_, s)| one.takes(s)) {
            return missing(format!("of {}/s", exact(*rate)));
        }
    }
    for choice in &selection.hold_out {
        if !chosen.iter().any(|(_, step)| choice.takes(step)) {
            return missing(choice.to_string());
        }
    }
    Ok(())
}

/// Collects everything observed within a step.
fn observe(
    runs: &[RunFolder],
    run: usize,
    step: Step,
    any_queues: bool,
) -> Result<ObservedStep, Error> {
    let load = &runs[run];
    let name = format!("{}#{}@{}", run_name(load), step.index, step.start_unix_us);
    let reached = |h: &&Host| {
        let length_us = (h.length_s.clamp(0.0, 1e6) * 1e6) as u64;
        h.unix_us >= step.start_unix_us && h.unix_us <= step.end_unix_us.saturating_add(length_us)
    };
    let disturbed = Disturbed::new(runs.iter().flat_map(|r| r.host.iter().filter(reached)));
    let mut queues = queues_within(runs, run, &step, &name)?;
    let mut left_out = BTreeMap::new();
    for (queue, windows) in &mut queues {
        let length_s = |windows: &[Window]| windows.iter().map(|w| w.length_s).sum::<f64>();
        *windows = parallel(std::mem::take(windows));
        let before = length_s(windows);
        disturbed.leave_out(windows);
        left_out.insert(queue.clone(), 1.0 - length_s(windows) / before);
    }
    let disturbed = QueueName::REQUESTS.iter().find_map(|queue| left_out.get(&queue.to_string()));
    let length_s = step.end_unix_us.saturating_sub(step.start_unix_us) as f64 * 1e-6;
    let disturbed_s = length_s * disturbed.unwrap_or(&0.0);
    let mut take = |queue: QueueName<'_>| queues.remove(&queue.to_string()).unwrap_or_default();
    let mut windows = model::fit::Step {
        load: take(QueueName::Load),
        gateway: take(QueueName::Gateway),
        node: take(QueueName::Node),
        times: None,
        name,
        ..model::fit::Step::default()
    };
    windows.times = times_of(load, &step, &windows);
    let origin = take(QueueName::Origin);
    // A fit with device queues is of one server, so that those of a cluster's members are none of them.
    let is_wanted = |queue: &str| is_device(queue) || any_queues && is_device_of_member(queue);
    let mut devices: Vec<(String, Vec<Window>)> =
        queues.into_iter().filter(|(queue, _)| is_wanted(queue)).collect();
    // Sort by number, not by text: device/10 follows device/9.
    devices.sort_by_key(|(queue, _)| (queue.len(), queue.clone()));
    windows.devices = devices.into_iter().map(|d| d.1).collect();
    check_windows(runs, &step, &windows, any_queues)?;
    let hosts = runs.iter().map(|folder| {
        let inside = |h: &&Host| (step.start_unix_us..=step.end_unix_us).contains(&h.unix_us);
        let name = format!("{} ({})", run_name(folder), folder.run.kind);
        (name, folder.host.iter().filter(inside).cloned().collect::<Vec<_>>())
    });
    let hosts = hosts.filter(|h| !h.1.is_empty()).collect();
    let think_ms = find_number(&toml::Value::Table(load.run.asked.clone()), "think_ms", 8);
    let think_s = think_ms.unwrap_or(0.0) * 1e-3;
    let alone = is_alone(runs, run, &step);
    Ok(ObservedStep {
        step,
        run,
        windows,
        origin,
        hosts,
        think_s,
        alone,
        held_out: false,
        disturbed_s,
    })
}

/// The windows of each queue that lie within a step of the run `run`, which was called `name`.
fn queues_within(
    runs: &[RunFolder],
    run: usize,
    step: &Step,
    name: &str,
) -> Result<BTreeMap<String, Vec<Window>>, Error> {
    let mut queues: BTreeMap<String, (usize, Vec<Window>)> = BTreeMap::new();
    for (index, folder) in runs.iter().enumerate() {
        // Windows of another generator's requests do not belong to this step.
        let other_load = index != run && !folder.steps.is_empty();
        if other_load && is_next(folder, step) {
            continue;
        }
        for window in folder.windows.iter().filter(|w| within(w, step)) {
            if other_load && window.is_of(QueueName::Load) {
                continue;
            }
            let entry = queues.entry(window.queue.clone()).or_insert((index, Vec::new()));
            if entry.0 != index {
                let (a, b) = (run_name(&runs[entry.0]), run_name(folder));
                let (step, queue) = (short_name(name).to_owned(), window.queue.clone());
                return Err(Error::TwoServers { step, a, b, queue });
            }
            entry.1.push(window.clone());
        }
    }
    Ok(queues.into_iter().map(|(queue, (_, windows))| (queue, windows)).collect())
}

/// Whether a run with steps of its own was recorded before or after a step and shares one window of time with it: logs of loads that
/// followed each other do, where stamps are of whole seconds. What is in that window belongs to the run's own step.
fn is_next(folder: &RunFolder, step: &Step) -> bool {
    let starts = |windows: &mut dyn Iterator<Item = &Window>| {
        windows.map(|w| w.start_unix_us).collect::<BTreeSet<u64>>().len()
    };
    let shared = starts(&mut folder.windows.iter().filter(|w| within(w, step)));
    shared <= 1 && starts(&mut folder.windows.iter()) > 2
}

/// Whether there is exactly one server, it is not a member of a cluster, and no other load
/// overlaps.
fn is_alone(runs: &[RunFolder], run: usize, step: &Step) -> bool {
    let mut servers = runs.iter().filter(|r| r.steps.is_empty());
    let (Some(server), None) = (servers.next(), servers.next()) else { return false };
    let members = server.run.asked.get("member").and_then(toml::Value::as_array);
    let overlaps =
        |s: &Step| s.start_unix_us < step.end_unix_us && s.end_unix_us > step.start_unix_us;
    let others = runs.iter().enumerate().filter(|(i, _)| *i != run).flat_map(|(_, r)| &r.steps);
    members.is_none_or(|m| m.is_empty()) && !others.into_iter().any(overlaps)
}

/// Merges the windows that several threads wrote for the same interval of one queue.
fn parallel(mut windows: Vec<Window>) -> Vec<Window> {
    windows.sort_by_key(|w| w.start_unix_us);
    let mut joined: Vec<Window> = Vec::new();
    for window in windows {
        match joined.last_mut() {
            Some(last)
                if (window.start_unix_us.abs_diff(last.start_unix_us) as f64)
                    < last.length_s * 1e5
                    && window.objectives_ms == last.objectives_ms =>
            {
                last.merge(&window, true);
            }
            _ => joined.push(window),
        }
    }
    joined
}

fn check_windows(
    runs: &[RunFolder],
    step: &Step,
    windows: &model::fit::Step,
    any_queues: bool,
) -> Result<(), Error> {
    let length_s = step.end_unix_us.saturating_sub(step.start_unix_us) as f64 * 1e-6;
    let missing = |queues: &str, of: &dyn Fn(&str) -> bool| {
        let all = || runs.iter().flat_map(|r| &r.windows).filter(|w| of(&w.queue));
        let start = all().map(|w| w.start_unix_us).min();
        let end = all().map(Window::end_unix_us).max();
        let away = |us: u64| us as f64 * 1e-6;
        let hint = match (start, end) {
            (Some(start), _) if start >= step.end_unix_us => format!(
                "they begin {:.1} s after it: was this run recorded at the same time, and do the \
                 clocks agree?",
                away(start - step.end_unix_us)
            ),
            (_, Some(end)) if end <= step.start_unix_us => format!(
                "they end {:.1} s before it: was the server's recording ended too early, or is this \
                 the run of another load?",
                away(step.start_unix_us - end)
            ),
            (Some(_), _) => "make the step longer than two windows".to_owned(),
            _ => "give the run folder that has them".to_owned(),
        };
        let (step, queues) = (short_name(&windows.name).to_owned(), queues.to_owned());
        Err(Error::NoWindows { step, queues, length_s, hint })
    };
    let client =
        |q: &str| QueueName::parse(q).is_some_and(|name| QueueName::REQUESTS.contains(&name));
    let clients = [&windows.load, &windows.gateway, &windows.node].iter().any(|w| !w.is_empty());
    if any_queues {
        let some = clients || !windows.devices.is_empty();
        return if some { Ok(()) } else { missing("any queue", &|_| true) };
    }
    if !clients {
        return missing("clients (`load`, `gateway` or `node`)", &client);
    }
    if windows.devices.is_empty() {
        return missing("device queues", &is_device);
    }
    Ok(())
}

/// Finds the number stored under a key anywhere in a table, up to `depth` levels down.
fn find_number(value: &toml::Value, key: &str, depth: usize) -> Option<f64> {
    let table = value.as_table().filter(|_| depth > 0)?;
    let here = table.get(key).and_then(|v| v.as_float().or(v.as_integer().map(|i| i as f64)));
    here.or_else(|| table.values().find_map(|v| find_number(v, key, depth - 1)))
}

#[cfg(test)]
mod tests;
