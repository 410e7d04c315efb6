//! Reads the runs of an experiment from run folders. Each completed step is a run; its levels come
//! from the configurations recorded in the folders, and its response from the windows of the queue
//! `load`.

use std::path::{Path, PathBuf};

use ground::window::{Histogram, Outcome, Window};
use model::design::Run;

use crate::error::Error;
use crate::steps::{Observed, Selection, difference};
use record::{RunFolder, Step};

/// The largest number of run folders.
const FOLDERS_MAX: usize = 4096;
/// The depth to which folders are searched for run folders.
const DEPTH: usize = 4;

/// A measured figure of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Response {
    Throughput,
    ErrorShare,
    Time { service: bool, quantile: Option<f64> },
}

impl Response {
    fn parse(text: &str) -> Result<Response, Error> {
        let time = |service, figure: &str| {
            if figure == "mean" {
                return Some(Response::Time { service, quantile: None });
            }
            let digits = figure.strip_prefix('p')?;
            let plain =
                (1..=6).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            let quantile = format!("0.{digits}").parse().ok().filter(|p| plain && *p > 0.0)?;
            Some(Response::Time { service, quantile: Some(quantile) })
        };
        let known = match text {
            "throughput_per_s" => Some(Response::Throughput),
            "error_share" => Some(Response::ErrorShare),
            _ => match (text.strip_prefix("response_ms_"), text.strip_prefix("service_ms_")) {
                (Some(figure), _) => time(false, figure),
                (_, Some(figure)) => time(true, figure),
                _ => None,
            },
        };
        known.ok_or_else(|| {
            Error::input(format!(
                "unknown --response {text}: run folders have throughput_per_s, error_share, \
                 response_ms_mean, response_ms_p50 (p95, p999 …), service_ms_mean and service_ms_p50 …"
            ))
        })
    }

    /// Its value over the windows of a step; `None` if no request was answered.
    fn value(self, windows: &[Window]) -> Option<f64> {
        let (mut seconds, mut completions, mut errors) = (0.0, 0, 0);
        let mut times = Histogram::default();
        for window in windows {
            seconds += window.length_s;
            completions += window.completions;
            errors += window.errors;
            for found in window.times.iter().filter(|t| t.outcome != Outcome::Error) {
                let service = matches!(self, Response::Time { service: true, .. });
                times.merge(if service { &found.service } else { &found.response });
            }
        }
        match self {
            _ if completions == 0 || seconds <= 0.0 => None,
            Response::Throughput => Some(times.count() as f64 / seconds),
            Response::ErrorShare => Some(errors as f64 / completions as f64),
            Response::Time { .. } if times.is_empty() => None,
            Response::Time { quantile: None, .. } => Some(1e3 * times.mean_s()),
            Response::Time { quantile: Some(p), .. } => times.quantile_s(p).map(|s| 1e3 * s),
        }
    }
}

/// Runs, and reasons to doubt them.
pub(super) struct RunSet {
    /// One for each step, in order of time.
    pub runs: Vec<Run>,
    /// The folder and the step number of each run.
    pub places: Vec<(PathBuf, usize)>,
    /// Reasons to doubt the runs.
    pub warnings: Vec<String>,
}

/// The properties of a folder that are kept after its windows have been read.
struct Folder {
    dir: PathBuf,
    kind: String,
    asked: toml::Value,
    start_unix_us: u64,
    end_unix_us: u64,
}

/// A step, its response, and the index of its folder.
struct Observation {
    folder: usize,
    step: Step,
    response: f64,
}

/// Reads the runs of an experiment. `dirs` are run folders, or contain some.
pub(super) fn read(
    dirs: &[PathBuf],
    factors: &[String],
    response: &str,
    selection: &Selection,
) -> Result<RunSet, Error> {
    let measured = Response::parse(response)?;
    let mut paths = Vec::new();
    for dir in dirs {
        let before = paths.len();
        find(dir, DEPTH, &mut paths)?;
        if paths.len() == before {
            let dir = dir.display();
            let reason = format!("{dir} is not a run folder and contains none (no run.toml)");
            return Err(Error::experiment(reason));
        }
    }
    let (folders, mut observations) = observe(&paths, measured, response, selection)?;
    if observations.is_empty() {
        return Err(Error::experiment(format!(
            "no step of a load was completed in {}: give the folders of `concertina load` or `measure`",
            paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
        )));
    }
    observations.sort_by_key(|o| o.step.start_unix_us);
    let level = |o: &Observation, name: &String| level(&folders, o, name);
    let mut found = RunSet { runs: Vec::new(), places: Vec::new(), warnings: Vec::new() };
    for o in &observations {
        let levels = factors.iter().map(|name| level(o, name)).collect::<Result<_, Error>>()?;
        found.runs.push(Run { levels, response: o.response });
        found.places.push((folders[o.folder].dir.clone(), o.step.index));
    }
    same_loads(&folders, &observations, &found.runs)?;
    let spoilt: Vec<String> = observations
        .iter()
        .filter(|o| !o.step.generator.complaints.is_empty())
        .map(|o| place(&folders, o))
        .collect();
    if let Some(first) = spoilt.first() {
        found.warnings.push(format!(
            "the load generator disturbed {} of {} steps, the first being {first} (`concertina check` \
             reports how)",
            spoilt.len(),
            observations.len()
        ));
    }
    Ok(found)
}

/// Appends the run folders inside a folder, in order of their names. A run folder is not searched
/// further.
fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if dir.join("run.toml").exists() {
        if found.len() >= FOLDERS_MAX {
            let reason = format!("more than {FOLDERS_MAX} run folders: give fewer at a time");
            return Err(Error::experiment(reason));
        }
        found.push(dir.to_owned());
        return Ok(());
    }
    let failed = |source| Error::File { file: dir.display().to_string(), source };
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let mut inner: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    inner.sort();
    match depth.checked_sub(1) {
        Some(depth) => inner.iter().try_for_each(|dir| find(dir, depth, found)),
        None => Ok(()),
    }
}

/// Reads the folders one after the other: their configurations, and the response of each step.
fn observe(
    paths: &[PathBuf],
    measured: Response,
    name: &str,
    selection: &Selection,
) -> Result<(Vec<Folder>, Vec<Observation>), Error> {
    let mut folders: Vec<Folder> = Vec::new();
    let mut observations = Vec::new();
    let mut first = None;
    for path in paths {
        let mut run = RunFolder::read(path)?;
        run.samples = Vec::new();
        let (machine, other) = first.get_or_insert_with(|| (run.run.machine.clone(), path));
        if let (Some(what), false) =
            (difference(machine, &run.run.machine), selection.across_machines)
        {
            return Err(Error::experiment(format!(
                "{} and {} were recorded on different machines ({what}), whose effect would be mistaken for \
                 that of a factor: give runs of one machine, or add --across-machines if the machine does \
                 not matter",
                other.display(),
                path.display()
            )));
        }
        let start_unix_us = run.run.start_unix_us;
        let same = |f: &&Folder| f.start_unix_us == start_unix_us && f.kind == run.run.kind;
        if let Some(other) = folders.iter().find(same) {
            let (path, other) = (path.display(), other.dir.display());
            return Err(Error::experiment(format!(
                "{path} and {other} are the same run; list each run once (a copy is not a replication)"
            )));
        }
        folders.push(Folder {
            dir: path.clone(),
            kind: run.run.kind.clone(),
            asked: toml::Value::Table(run.run.asked.clone()),
            start_unix_us,
            end_unix_us: run.windows.iter().map(Window::end_unix_us).max().unwrap_or(start_unix_us),
        });
        if run.steps.is_empty() && run.run.kind != "load" {
            continue;
        }
        let observed = Observed::new(vec![run], selection)?;
        for seen in observed.steps {
            let folder = folders.len() - 1;
            let step = seen.step;
            let response = measured.value(&seen.windows.load).ok_or_else(|| {
                let (path, step) = (path.display(), step.index);
                let what = format!("no reply was recorded, so there is no {name}");
                Error::experiment(format!("{path}, step {step}: {what}"))
            })?;
            observations.push(Observation { folder, step, response });
        }
    }
    Ok((folders, observations))
}

fn place(folders: &[Folder], o: &Observation) -> String {
    format!("step {} of {}", o.step.index, folders[o.folder].dir.display())
}

/// The level of a factor in a step.
fn level(folders: &[Folder], o: &Observation, name: &str) -> Result<String, Error> {
    let missing = |what: &str| {
        Error::experiment(format!("{} was {what}; it has no {name}", place(folders, o)))
    };
    match name {
        "rate" => {
            let rate = o.step.rate.ok_or_else(|| missing("a closed loop"))?;
            return Ok(rate.to_string());
        }
        "clients" => {
            let clients = o.step.clients.ok_or_else(|| missing("an open loop"))?;
            return Ok(clients.to_string());
        }
        _ => {}
    }
    let own = &folders[o.folder];
    match name.split_once('.') {
        Some((kind, path)) if folders.iter().any(|f| f.kind == kind) => {
            configured(folders, o, kind, path).map_err(Error::content(format!("factor {name}")))
        }
        _ => named(&own.dir, name).ok_or_else(|| {
            let mut kinds: Vec<&str> = folders.iter().map(|f| &*f.kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            Error::input(format!(
                "unknown factor {name}: it is neither `rate` nor `clients`, nor in run.toml ({}), and {} \
                 has no `{name}=LEVEL` in its name",
                kinds.iter().map(|k| format!("`{k}.…`")).collect::<Vec<_>>().join(", "),
                own.dir.display()
            ))
        }),
    }
}

/// The level in a folder's path, as in `runs/threads=8,servers=2/1`; the one nearest the end counts.
fn named(dir: &Path, name: &str) -> Option<String> {
    let parts = dir.iter().rev().filter_map(|part| part.to_str());
    let mut pairs = parts.flat_map(|part| part.split(',')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value.to_owned())
}

/// The level in the configuration of a run of some kind: the step's own run, or the runs recorded
/// at the same time.
fn configured(
    folders: &[Folder],
    o: &Observation,
    kind: &str,
    path: &str,
) -> Result<String, Error> {
    let own = &folders[o.folder];
    let meanwhile = |f: &&Folder| {
        f.kind == kind
            && f.start_unix_us <= o.step.start_unix_us
            && f.end_unix_us > o.step.start_unix_us
    };
    let runs: Vec<&Folder> = match own.kind == kind {
        true => vec![own],
        false => folders.iter().filter(meanwhile).collect(),
    };
    let Some(first) = runs.first() else {
        let place = place(folders, o);
        let reason = format!("no run of kind `{kind}` was recorded during {place}");
        return Err(Error::experiment(reason));
    };
    let level = text(first, kind, path, folders)?;
    for other in &runs[1..] {
        let differs = text(other, kind, path, folders)?;
        if differs != level {
            return Err(Error::experiment(format!(
                "during {} it was {level} in {} and {differs} in {}: name a setting that is the same in both",
                place(folders, o),
                first.dir.display(),
                other.dir.display()
            )));
        }
    }
    Ok(level)
}

/// The configured value at a path, as written; `unset` if only other runs have it.
fn text(folder: &Folder, kind: &str, path: &str, folders: &[Folder]) -> Result<String, Error> {
    let there = match lookup(&folder.asked, path) {
        Ok(value) => return Ok(value_text(value)),
        Err(there) => there,
    };
    let mut others = folders.iter().filter(|f| f.kind == kind);
    if others.any(|f| lookup(&f.asked, path).is_ok()) {
        return Ok("unset".to_owned());
    }
    let dir = folder.dir.display();
    Err(Error::experiment(format!("{dir}/run.toml has no {path} under [asked]: {there}")))
}

fn value_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // Tables and lists in one line.
        value => serde_json::to_string(value).unwrap_or_default(),
    }
}

/// The value at a path of names and numbers. The error lists the existing entries.
fn lookup<'a>(asked: &'a toml::Value, path: &str) -> Result<&'a toml::Value, String> {
    let mut here = asked;
    let mut before = "it".to_owned();
    for part in path.split('.') {
        let next = match here {
            toml::Value::Table(table) => table.get(part),
            toml::Value::Array(list) => part.parse().ok().and_then(|i: usize| list.get(i)),
            _ => None,
        };
        here = next.ok_or_else(|| match here {
            toml::Value::Table(table) => {
                let names: Vec<&str> = table.keys().map(String::as_str).collect();
                format!("{before} has {}", names.join(", "))
            }
            toml::Value::Array(list) => format!("{before} has 0 to {}", list.len().max(1) - 1),
            value => format!("{before} is {}", value_text(value)),
        })?;
        before = format!("`{part}`");
    }
    Ok(here)
}

/// Checks that steps with the same levels have the same load, whose effect would otherwise be
/// mistaken for noise.
fn same_loads(folders: &[Folder], all: &[Observation], runs: &[Run]) -> Result<(), Error> {
    let load = |step: &Step| match (step.rate, step.clients) {
        (Some(rate), _) => format!("{rate}/s"),
        (_, Some(clients)) => format!("{clients} clients"),
        _ => "no load".to_owned(),
    };
    let mut first = std::collections::BTreeMap::new();
    for (o, run) in all.iter().zip(runs) {
        let before: &Observation = first.entry(&run.levels).or_insert(o);
        let (a, b) = (load(&before.step), load(&o.step));
        if a != b {
            return Err(Error::experiment(format!(
                "{} had {a} and {} had {b}, although their levels are the same: make the load a factor (rate or \
                 clients), or select one with --steps",
                place(folders, before),
                place(folders, o)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_named_by_figure_and_unit() {
        let of = |text| Response::parse(text).ok();
        assert_eq!(of("throughput_per_s"), Some(Response::Throughput));
        let time = |service, quantile| Some(Response::Time { service, quantile });
        assert_eq!(of("response_ms_mean"), time(false, None));
        assert_eq!(of("service_ms_p999"), time(true, Some(0.999)));
        assert_eq!(of("response_ms_p50"), time(false, Some(0.5)));
        for wrong in
            ["", "response_ms_", "response_ms_p", "response_ms_p0", "response_ms_px", "p99"]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn levels_are_found_in_names_and_tables() {
        let dir = Path::new("runs/threads=8,servers=2/threads=16,x");
        assert_eq!(named(dir, "threads").as_deref(), Some("16"));
        assert_eq!(named(dir, "servers").as_deref(), Some("2"));
        assert_eq!((named(dir, "x"), named(dir, "thread")), (None, None));
        let asked: toml::Value = toml::from_str("a = { b = [1, { c = 'x' }], d = 0.5 }").unwrap();
        let of = |path| lookup(&asked, path).map(value_text);
        assert_eq!(of("a.b.1.c"), Ok("x".to_owned()));
        assert_eq!(of("a.d"), Ok("0.5".to_owned()));
        assert_eq!(of("a.b"), Ok("[1,{\"c\":\"x\"}]".to_owned()));
        assert_eq!(of("a.e"), Err("`a` has b, d".to_owned()));
        assert_eq!(of("a.b.2"), Err("`b` has 0 to 1".to_owned()));
        assert_eq!(of("a.d.x"), Err("`d` is 0.5".to_owned()));
    }
}
