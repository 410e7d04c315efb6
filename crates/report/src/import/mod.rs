//! Converts the records of other services (access logs, iostat, Prometheus) into a run folder.
//!
//! `access_log`, `iostat` and `prometheus` each read one source; `collector` makes windows of
//! requests; `sense` asks whether the records can be true; `steps` cuts windows into steps, where
//! `levels` finds that the load changes; this file combines them, divides responses between memory and
//! disks, and records the resolution of the source. The resolution is written to `run.toml` ([`Imported`]); a
//! fit widens its intervals by it (`report::uncertainty`) and states its effect.
//! `docs/import.md` describes each source and what it lacks.

mod access_log;
mod breaks;
mod candidates;
mod checks;
mod collector;
mod column;
mod congestion;
mod durations;
mod entry;
mod envelope;
mod error;
mod excerpt;
mod filter;
mod iostat;
mod known;
mod layout;
mod levels;
mod names;
mod nested;
mod open;
mod options;
mod prometheus;
mod sense;
mod shown;
mod source;
mod spans;
mod split;
mod spread;
mod steps;
mod summary;
mod tally;
mod template;
mod ticks;
mod time;
mod words;

pub use crate::uncertainty::Imported;
use access_log::{Logged, TIMES_MAX};
use collector::Break;
pub use error::Error;
pub use options::Options;
pub use steps::{Cut, InStep};
pub use summary::FileSummary;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ground::window::{Histogram, Operation, Outcome, QueueName, SECOND, Settings, Times, Window};
use serde::Serialize;

use record::{FORMAT, Machine, Run, RunWriter, Step};

use crate::objective::{digits, time};
use filter::Filter;
use shown::{count, length, share};
use source::{Source, text};
use time::Unit;

/// The result of an import.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The run folder.
    pub out: PathBuf,
    /// How each log was read.
    pub files: Vec<FileSummary>,
    /// Lines of the logs.
    pub lines: u64,
    /// Lines that could not be parsed.
    pub broken: u64,
    /// Requests in the clients' windows.
    pub requests: u64,
    /// Number of windows of all queues.
    pub windows: usize,
    /// The steps.
    pub steps: Vec<Step>,
    /// Requests that arrived in each step.
    pub in_steps: Vec<InStep>,
    /// Requests that arrived in no step.
    pub left_out: u64,
    /// What speaks against the records, severe findings of a lenient import first.
    pub warnings: Vec<String>,
    /// Resolution and notes, as written to `run.toml`.
    pub imported: Imported,
}

impl Summary {
    /// The steps as a table: when, at which rate, with how many requests.
    pub fn table(&self) -> String {
        steps::table(&self.steps, &self.in_steps, self.left_out)
    }
}

/// What the fuzz targets (`fuzz/`) call: each source from memory. Errors say what is wrong with it.
#[doc(hidden)]
pub mod fuzzing {
    use super::*;

    /// The windows of a log of a format; of one that is recognised if it is empty, of `--fields` if it has a `=`.
    pub fn access_log(bytes: &[u8], format: &str, lenient: bool) -> Result<Vec<Window>, Error> {
        let given = Some(format.to_owned()).filter(|format| !format.is_empty());
        let is_fields = format.contains('=') && !format.contains(['$', '%']);
        let (format, fields) = if is_fields { (None, given) } else { (given, None) };
        let settings = access_log::Settings {
            format,
            fields,
            unit: None,
            side: None,
            filter: Filter::default(),
            window_ns: SECOND,
            objectives_ms: Settings::default().objectives_ms,
            lenient,
            hits_are_memory: lenient,
        };
        let source = Source::memory(Path::new("-"), bytes);
        let log = access_log::read(vec![source], &settings)?;
        checks::findings(&[checks::File { path: Path::new("-"), requests: &log.times }], &[]);
        times_of(log.times, log.clock_ns, log.resolution_ns, log.is_timed_apart);
        let collectors = [log.gateway, log.origin].into_iter().flatten();
        Ok(collectors.flat_map(|collector| collector.finish(&log.breaks)).collect())
    }

    /// The windows of a saved response of Prometheus.
    pub fn prometheus(text: &str) -> Result<Vec<Window>, Error> {
        let objectives = Settings::default().objectives_ms;
        Ok(prometheus::read(text, Path::new("-"), &objectives, None)?.windows)
    }

    /// The windows of the output of `iostat`.
    pub fn iostat(text: &str) -> Result<Vec<Window>, Error> {
        Ok(iostat::read(text, Path::new("-"), &[])?.windows)
    }

    /// The steps that are cut of windows.
    pub fn steps(windows: &[Window], how: Cut) -> Vec<Step> {
        steps::cut(windows, &[], how).steps
    }
}

/// The resolution of iostat: it prints the time of a report in whole seconds, and `%util` with two
/// decimals.
const DEVICE_CLOCK_S: f64 = 1.0;
const UTILISATION_RESOLUTION: f64 = 1e-4;

/// With fewer requests `model::fit::work` does not look at single requests.
const FEW_FOR_FIT: u64 = 500;

/// The most requests in a line of `times`.
const TIMES_LINE: usize = 4_096;

/// The times of requests by kind, in the order of their ends, for the run folder.
fn times_of(
    mut logged: Vec<Logged>,
    clock_ns: u64,
    resolution_ns: u64,
    is_timed_apart: bool,
) -> Vec<record::Times> {
    let kind = |r: &Logged| (r.operation, r.outcome);
    // By a second first, so that a reader of a part needs a part of the file.
    let order = |r: &Logged| (r.end / SECOND, r.operation.as_str(), r.outcome.as_str(), r.end);
    logged.sort_by_key(order);
    let tick = ticks::divisor([clock_ns, resolution_ns].into_iter()).max(1);
    // Half a tick is added to durations that a format rounds down.
    let is_halved = logged.iter().any(|r| r.taken % tick != 0);
    let unit = if is_halved { (tick / 2).max(1) } else { tick };
    let mut all = Vec::new();
    for same in logged.chunk_by(|a, b| kind(a) == kind(b)) {
        for part in same.chunks(TIMES_LINE) {
            let Some(first) = part.first() else { continue };
            let mut times = record::Times::new("gateway", first.operation, first.outcome, unit);
            (times.clock_ns, times.resolution_ns) = (clock_ns, resolution_ns);
            times.is_timed_apart = is_timed_apart;
            times.extend(part.iter().map(|r| (r.end, r.taken)));
            times.bytes = part.iter().map(|r| r.bytes).collect();
            if part.iter().any(|r| r.key > 0) {
                times.keys = part.iter().map(|r| r.key).collect();
            }
            all.push(times);
        }
    }
    all
}

/// Everything read from the sources.
#[derive(Default)]
struct Sources {
    times: Vec<record::Times>,
    windows: Vec<Window>,
    breaks: Vec<Break>,
    files: Vec<FileSummary>,
    lines: u64,
    broken: u64,
    imported: Imported,
    warnings: Vec<String>,
}

impl Sources {
    fn note(&mut self, text: String) {
        self.imported.notes.push(text);
    }

    fn access_logs(&mut self, options: &Options) -> Result<(), Error> {
        let settings = reader_settings(options)?;
        let sources = options.logs.iter().map(|path| Source::open(path));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let log = access_log::read(sources, &settings)?;
        (self.lines, self.broken, self.files) = (log.lines, log.broken, log.files);
        log.taken.into_iter().for_each(|text| self.note(text));
        log.tally.notes(log.lines).into_iter().for_each(|text| self.note(text));
        if log.times.len() == TIMES_MAX {
            self.note(format!(
                "Times of single requests are kept of the first {}; import a shorter part of the log for the \
                 rest.",
                count(TIMES_MAX as u64, "request")
            ));
        }
        self.imported.resolution_s = log.resolution_ns as f64 / 1e9;
        self.imported.clock_s = log.clock_ns as f64 / 1e9;
        for collector in [log.gateway, log.origin].into_iter().flatten() {
            let window_s = collector.window_ns() as f64 * 1e-9;
            if window_s > options.window_s * 1.001 {
                let pause = collector.pause().filter(|pause| pause.is_mostly_empty);
                self.warnings.extend(pause.map(|pause| joined_loads(window_s, pause)));
                self.note(format!(
                    "Windows are {} long, so that they are not more than {}.",
                    length(window_s),
                    collector::WINDOWS_MAX
                ));
            }
            self.windows.extend(collector.finish(&log.breaks));
        }
        self.breaks = log.breaks;
        let files: Vec<checks::File<'_>> = log
            .parts
            .iter()
            .filter_map(|part| {
                let requests = log.times.get(part.requests.clone())?;
                Some(checks::File { path: &part.path, requests })
            })
            .collect();
        let path = log.parts.first().map(|part| part.path.clone()).unwrap_or_default();
        let (mut severe, mut mild) = (Vec::new(), Vec::new());
        for finding in checks::findings(&files, &self.windows) {
            if finding.severe { &mut severe } else { &mut mild }.push(finding.text);
        }
        if !severe.is_empty() && !options.lenient {
            return Err(Error::Senseless { path, findings: severe.join("\n") });
        }
        severe.append(&mut mild);
        self.warnings.extend(severe);
        self.times = times_of(log.times, log.clock_ns, log.resolution_ns, log.is_timed_apart);
        Ok(())
    }

    /// Says how much is in no step, and what is said against the records, in the run's notes.
    fn conclude(&mut self, steps: &steps::Steps) {
        let inside: u64 = steps.requests.iter().map(|s| s.requests).sum();
        self.imported.notes.extend(steps.notes.iter().cloned());
        if steps.left_out > 0 {
            let of = share(steps.left_out, steps.left_out + inside);
            let left_out = count(steps.left_out, "request");
            self.note(format!("{left_out} ({of}) arrived in no step and are not fitted."));
        }
        if inside < FEW_FOR_FIT {
            self.warnings.push(format!(
                "{}: too few for a fit{}. At least {FEW_FOR_FIT} are needed to tell how many servers there are, and \
                 some 10,000, at two loads or more, to predict others: import a longer log.",
                count(inside, "request"),
                if inside < model::fit::REQUESTS_MIN as u64 { "" } else { " that says much" }
            ));
        }
        for warning in &self.warnings {
            self.imported.notes.push(format!("Warning: {warning}"));
        }
    }

    fn prometheus(&mut self, path: &Path, unit: Option<Unit>) -> Result<(), Error> {
        let objectives = Settings::default().objectives_ms;
        let range = prometheus::read(&text(path)?, path, &objectives, unit)?;
        let (series, resets) = (range.series, range.resets);
        self.note(format!(
            "{series} bucket series were read; their counters were reset {resets} times. Their bounds are in {}.",
            range.unit.name()
        ));
        if range.joined > 0 {
            self.note(format!(
                "{} intervals were merged with others: a series had no sample there, or the query's step is \
                 shorter than the sampling interval.",
                range.joined
            ));
        }
        if range.bounds_left_out > 0 {
            self.note(format!(
                "{} bounds that only some of the series have were left out: the others' counts up to them are unknown.",
                range.bounds_left_out
            ));
        }
        if range.above > 0 {
            let share = range.above as f64 / range.responses.max(1) as f64 * 100.0;
            let largest = range.edges_s.last().copied().unwrap_or(0.0);
            self.note(format!(
                "{} % of the responses are above the largest bound, {}, and are \
                 treated as equal to it: means are too low, and quantiles past it are unknown.",
                digits(share, 3),
                time(largest)
            ));
        }
        self.imported.edges_s = range.edges_s;
        // A sample is the last scrape before its time.
        let step_s = range.windows.iter().map(|w| w.length_s).fold(0.0, f64::max);
        self.imported.clock_s = step_s;
        self.windows.extend(range.windows);
        Ok(())
    }

    fn iostat(&mut self, path: &Path, only: &[String]) -> Result<(), Error> {
        let devices = iostat::read(&text(path)?, path, only)?;
        for (number, name) in devices.names.iter().enumerate() {
            self.note(format!("Queue device/{number} is {name}."));
        }
        self.note(
            "iostat reports means only: service times of the devices are assumed exponential, each \
             device one server, reads and writes served alike (utilisation law, S = U/X)."
                .to_owned(),
        );
        if devices.zone_assumed {
            self.note(
                "Times of iostat had no zone and were interpreted as UTC; record with TZ=UTC or \
                 S_TIME_FORMAT=ISO."
                    .to_owned(),
            );
        }
        if devices.passed_over > 0 {
            let n = devices.passed_over;
            self.note(format!(
                "{n} reports of iostat were skipped: their times were out of order."
            ));
        }
        self.imported.device_clock_s = DEVICE_CLOCK_S;
        self.imported.utilisation_resolution = UTILISATION_RESOLUTION;
        self.windows.extend(devices.windows);
        Ok(())
    }
}

/// That loads of a log became one, because its windows are as long as the time without requests demands.
fn joined_loads(window_s: f64, pause: collector::Pause) -> String {
    format!(
        "Windows are {} long, because the log spans a long time in which most of them are empty, so that loads that lasted for less than some \
         windows are joined. Nothing arrived from {} to {}: import what is before it (--to) and what is after it (--from) into run folders of \
         their own, and fit them together.",
        length(window_s),
        shown::moment(pause.from_us),
        shown::moment(pause.until_us)
    )
}

/// How the logs are read, as the options say.
fn reader_settings(options: &Options) -> Result<access_log::Settings, Error> {
    let (from, to) = (options.from.as_deref(), options.to.as_deref());
    Ok(access_log::Settings {
        format: options.log_format.clone(),
        fields: options.fields.clone(),
        unit: options.unit()?,
        side: options.side()?,
        filter: Filter::parse(from, to, &options.paths, &options.statuses)?,
        window_ns: (options.window_s * SECOND as f64) as u64,
        objectives_ms: Settings::default().objectives_ms,
        lenient: options.lenient,
        hits_are_memory: options.iostat.is_none(),
    })
}

/// Whether it is unknown which component answered these reads.
fn unlabelled(times: &Times) -> bool {
    times.operation == Operation::Get && times.outcome == Outcome::Unknown
}

/// Divides a step's responses of unknown origin between memory and disks: the slowest, as many as
/// the disks read, are attributed to the disks. Returns the number of disk reads for each such
/// request, which may exceed 1.
fn divide(windows: &mut [Window], step: &Step) -> Option<f64> {
    let inside =
        |w: &Window| w.start_unix_us >= step.start_unix_us && w.end_unix_us() <= step.end_unix_us;
    let mut responses = Histogram::default();
    let (mut time, mut devices) = (0.0, BTreeMap::<&str, (f64, f64)>::new());
    for window in windows.iter().filter(|w| inside(w)) {
        match window.queue_name() {
            Some(QueueName::Gateway) => {
                time += window.length_s;
                let times = window.times.iter().filter(|t| unlabelled(t));
                times.for_each(|t| responses.merge(&t.response));
            }
            Some(QueueName::Origin) => {}
            _ => {
                let sums = devices.entry(&window.queue).or_default();
                *sums = (sums.0 + window.completions as f64, sums.1 + window.length_s);
            }
        }
    }
    let reads: f64 = devices.values().filter(|d| d.1 > 0.0).map(|d| d.0 / d.1).sum();
    if devices.is_empty() || responses.is_empty() || time <= 0.0 {
        return None;
    }
    let share = reads * time / responses.count() as f64;
    let threshold_s =
        if share >= 1.0 { -1.0 } else { responses.quantile_s(1.0 - share).unwrap_or(0.0) };
    for window in windows.iter_mut().filter(|w| w.is_of(QueueName::Gateway) && inside(w)) {
        let all = std::mem::take(&mut window.times);
        for times in all {
            if !unlabelled(&times) {
                window.times.push(times);
                continue;
            }
            let (quick, slow) = times.response.split_at(threshold_s);
            let count = quick.count();
            let of = |outcome, response, within| Times {
                response,
                within,
                ..Times::new(times.operation, outcome, 0)
            };
            let first = times.within.iter().map(|n| (*n).min(count)).collect();
            let rest = times.within.iter().map(|n| n.saturating_sub(count)).collect();
            let parts = [of(Outcome::Memory, quick, first), of(Outcome::BulkDevice, slow, rest)];
            window.times.extend(parts.into_iter().filter(|t| !t.response.is_empty()));
        }
    }
    Some(share)
}

/// Reads the sources and writes the run folder.
///
/// # Errors
/// Those of [`Error`], with the file and the line; contradictory options; a run folder that already
/// exists.
pub fn import(options: &Options) -> Result<Summary, Error> {
    options.check()?;
    // Before a long log is read in vain.
    RunWriter::check_free(&options.out)?;
    let mut sources = Sources::default();
    if !options.logs.is_empty() {
        sources.access_logs(options)?;
    }
    if let Some(path) = &options.prometheus {
        sources.prometheus(path, options.unit()?)?;
    }
    if let Some(path) = &options.iostat {
        sources.iostat(path, &options.devices)?;
    }
    let cut = steps::cut(&sources.windows, &sources.breaks, options.steps);
    sources.conclude(&cut);
    let steps = cut.steps;
    let client: Vec<f64> = steps.iter().filter_map(|s| divide(&mut sources.windows, s)).collect();
    let reads = client.iter().fold(0.0, |a: f64, b| a.max(*b));
    if !client.is_empty() {
        sources.note(format!(
            "It is unknown which requests read a disk: the slowest are assumed to, as many as the \
             disks read (at most {} reads for each request of a step).",
            digits(reads, 3)
        ));
    }
    if reads > 1.0 {
        sources.note(
            "In a step the disks read more often than requests arrived: a request makes several reads, or \
             other processes read as well. All its requests are treated as reads of a disk."
                .to_owned(),
        );
    }
    let run = describe(options, &sources)?;
    let mut writer = RunWriter::create(&options.out, &run)?;
    writer.windows(&sources.windows)?;
    writer.times(&sources.times)?;
    for step in &steps {
        writer.step(step)?;
    }
    writer.flush()?;
    let client = sources.windows.iter().filter(|w| w.is_of(QueueName::Gateway));
    Ok(Summary {
        out: options.out.clone(),
        files: sources.files,
        lines: sources.lines,
        broken: sources.broken,
        requests: client.map(|w| w.completions + w.refusals).sum(),
        windows: sources.windows.len(),
        steps,
        in_steps: cut.requests,
        left_out: cut.left_out,
        warnings: sources.warnings,
        imported: sources.imported,
    })
}

fn describe(options: &Options, sources: &Sources) -> Result<Run, Error> {
    let mut asked = toml::Table::new();
    let mut put = |name: &str, value: &Option<PathBuf>| {
        if let Some(path) = value {
            asked.insert(name.to_owned(), path.display().to_string().into());
        }
    };
    put("iostat", &options.iostat);
    put("prometheus", &options.prometheus);
    if !options.logs.is_empty() {
        let logs: Vec<String> = options.logs.iter().map(|p| p.display().to_string()).collect();
        asked.insert("logs".to_owned(), logs.into());
        asked.insert("window_s".to_owned(), options.window_s.into());
    }
    let texts = [
        ("log_format", &options.log_format),
        ("fields", &options.fields),
        ("unit", &options.unit),
        ("stamp", &options.stamp),
        ("from", &options.from),
        ("to", &options.to),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            asked.insert(name.to_owned(), text.clone().into());
        }
    }
    for (name, all) in [("path", &options.paths), ("status", &options.statuses)] {
        if !all.is_empty() {
            asked.insert(name.to_owned(), all.clone().into());
        }
    }
    asked.insert("steps".to_owned(), options.steps.to_string().into());
    let imported = toml::Value::try_from(&sources.imported)?;
    asked.insert("imported".to_owned(), imported);
    Ok(Run {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: "import".to_owned(),
        start_unix_us: sources.windows.iter().map(|w| w.start_unix_us).min().unwrap_or(0),
        laboratory: None,
        // Nothing is known about the machine that was observed.
        machine: Machine { processor: "not known (imported)".to_owned(), ..Machine::default() },
        asked,
    })
}
