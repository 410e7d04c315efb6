//! Converts the records of other services (access logs, iostat, Prometheus) into a run folder.
//!
//! `access_log`, `iostat` and `prometheus` each read one source; `collector` makes windows of
//! requests; this file combines them, cuts steps, divides responses between memory and disks, and
//! records the resolution of the source. The resolution is written to `run.toml` ([`Imported`]); a
//! fit widens its intervals by it (`report::uncertainty`) and states its effect.
//! `docs/import.md` describes each source and what it lacks.

mod access_log;
mod collector;
mod error;
mod iostat;
mod prometheus;
mod spread;
mod time;

pub use crate::uncertainty::Imported;
use access_log::{COMBINED, Format, Logged, TIMES_MAX};
pub use error::Error;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ground::window::{Histogram, Operation, Outcome, QueueName, SECOND, Settings, Times, Window};
use serde::Serialize;

use record::{FORMAT, Generator, Machine, Run, RunWriter, Step, zst};

/// The options of an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The run folder to write.
    pub out: PathBuf,
    /// An access log. `-` is the standard input; `.zst` files are decompressed.
    pub access_log: Option<PathBuf>,
    /// The log's format as an nginx `log_format`, or `json`; default `combined`.
    pub log_format: Option<String>,
    /// The output of `iostat -x -t`.
    pub iostat: Option<PathBuf>,
    /// Devices to take from it; if empty, all disks with reads.
    pub devices: Vec<String>,
    /// A saved response of Prometheus.
    pub prometheus: Option<PathBuf>,
    /// Length of a window made from the access log, seconds.
    pub window_s: f64,
    /// Length of a step, seconds; `None` makes one step.
    pub steps_s: Option<f64>,
    /// Skip any number of lines that cannot be parsed.
    pub lenient: bool,
}

/// The result of an import.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The run folder.
    pub out: PathBuf,
    /// Lines of the access log.
    pub lines: u64,
    /// Lines that could not be parsed.
    pub broken: u64,
    /// Requests in the clients' windows.
    pub requests: u64,
    /// Number of windows of all queues.
    pub windows: usize,
    /// Number of steps.
    pub steps: Vec<Step>,
    /// Resolution and notes, as written to `run.toml`.
    pub imported: Imported,
}

/// What the fuzz targets (`fuzz/`) call: each source from memory. Errors say what is wrong with it.
#[doc(hidden)]
pub mod fuzzing {
    use super::*;

    /// The windows of an access log of a format.
    pub fn access_log(bytes: &[u8], format: &str, lenient: bool) -> Result<Vec<Window>, Error> {
        let settings = access_log::Settings {
            format: Format::parse(format)?,
            window_ns: SECOND,
            objectives_ms: Settings::default().objectives_ms,
            lenient,
            hits_are_memory: lenient,
        };
        let log = access_log::read(bytes, Path::new("-"), &settings)?;
        times_of(log.times, log.clock_ns, log.resolution_ns);
        let collectors = [log.gateway, log.origin].into_iter().flatten();
        Ok(collectors.flat_map(|collector| collector.finish()).collect())
    }

    /// The windows of a saved response of Prometheus.
    pub fn prometheus(text: &str) -> Result<Vec<Window>, Error> {
        let objectives = Settings::default().objectives_ms;
        Ok(prometheus::read(text, Path::new("-"), &objectives)?.windows)
    }

    /// The windows of the output of `iostat`.
    pub fn iostat(text: &str) -> Result<Vec<Window>, Error> {
        Ok(iostat::read(text, Path::new("-"), &[])?.windows)
    }

    /// The steps that are cut of windows.
    pub fn steps(windows: &[Window], steps_s: Option<f64>) -> Vec<Step> {
        super::steps(windows, steps_s)
    }
}

/// Opens a source for reading; a stream may be a pipe.
fn open(path: &Path, is_stream: bool) -> Result<Box<dyn BufRead>, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let opened =
            if is_stream { record::file::open_stream(path) } else { record::file::open(path) };
        let file = opened.map_err(failed)?;
        match path.extension() {
            Some(end) if end == "zst" => Box::new(zst::Decoder::new(file)),
            Some(end) if end == "gz" => {
                let reason = "gzip is not supported; decompress it: `zcat FILE | concertina import \
                    --access-log - …`";
                return Err(Error::Content { path: path.to_owned(), reason: reason.to_owned() });
            }
            _ => Box::new(file),
        }
    };
    Ok(Box::new(BufReader::with_capacity(1 << 17, input)))
}

/// The longest text that is read into memory, bytes.
const TEXT_MAX: u64 = 1 << 29;

fn text(path: &Path) -> Result<String, Error> {
    let too_long = || {
        let reason = format!("longer than {TEXT_MAX} bytes; import a shorter recording");
        Error::Content { path: path.to_owned(), reason }
    };
    // Before half a gigabyte of it is in memory.
    if std::fs::metadata(path).is_ok_and(|found| found.len() > TEXT_MAX) {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    let read = open(path, false)?.take(TEXT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::File { path: path.to_owned(), source })?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(too_long());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The resolution of iostat: it prints the time of a report in whole seconds, and `%util` with two
/// decimals.
const DEVICE_CLOCK_S: f64 = 1.0;
const UTILISATION_RESOLUTION: f64 = 1e-4;

/// The most requests in a line of `times`.
const TIMES_LINE: usize = 4_096;

/// The times of requests by kind, in the order of their ends, for the run folder.
fn times_of(mut logged: Vec<Logged>, clock_ns: u64, resolution_ns: u64) -> Vec<record::Times> {
    let kind = |r: &Logged| (r.operation, r.outcome);
    // By a second first, so that a reader of a part needs a part of the file.
    let order = |r: &Logged| (r.end / SECOND, r.operation.as_str(), r.outcome.as_str(), r.end);
    logged.sort_by_key(order);
    let mut all = Vec::new();
    for same in logged.chunk_by(|a, b| kind(a) == kind(b)) {
        for part in same.chunks(TIMES_LINE) {
            let Some(first) = part.first() else { continue };
            let unit = clock_ns.min(resolution_ns);
            let mut times = record::Times::new("gateway", first.operation, first.outcome, unit);
            (times.clock_ns, times.resolution_ns) = (clock_ns, resolution_ns);
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
    lines: u64,
    broken: u64,
    imported: Imported,
}

impl Sources {
    fn note(&mut self, text: String) {
        self.imported.notes.push(text);
    }

    fn access_log(&mut self, path: &Path, options: &Options) -> anyhow::Result<()> {
        let settings = access_log::Settings {
            format: Format::parse(options.log_format.as_deref().unwrap_or(COMBINED))?,
            window_ns: (options.window_s * SECOND as f64) as u64,
            objectives_ms: Settings::default().objectives_ms,
            lenient: options.lenient,
            hits_are_memory: options.iostat.is_none(),
        };
        let log = access_log::read(open(path, true)?, path, &settings)?;
        (self.lines, self.broken) = (log.lines, log.broken);
        if log.times.len() == TIMES_MAX {
            self.note(format!(
                "Times of single requests are kept of the first {TIMES_MAX}; import a shorter part \
                 of the log for the rest."
            ));
        }
        self.times = times_of(log.times, log.clock_ns, log.resolution_ns);
        self.imported.resolution_s = log.resolution_ns as f64 * 1e-9;
        self.imported.clock_s = log.clock_ns as f64 * 1e-9;
        if let Some((line, reason)) = &log.first_broken {
            let (broken, lines) = (log.broken, log.lines);
            self.note(format!(
                "{broken} of {lines} lines could not be parsed; the first is line {line}: {reason}"
            ));
        }
        for collector in [log.gateway, log.origin].into_iter().flatten() {
            self.windows.extend(collector.finish());
        }
        Ok(())
    }

    fn prometheus(&mut self, path: &Path) -> anyhow::Result<()> {
        let objectives = Settings::default().objectives_ms;
        let range = prometheus::read(&text(path)?, path, &objectives)?;
        let (series, resets) = (range.series, range.resets);
        self.note(format!(
            "{series} bucket series were read; their counters were reset {resets} times."
        ));
        if range.joined > 0 {
            self.note(format!(
                "{} intervals were merged with others: a series had no sample there, or the query's step is \
                 shorter than the sampling interval.",
                range.joined
            ));
        }
        if range.above > 0 {
            let share = range.above as f64 / range.responses.max(1) as f64 * 100.0;
            let largest = range.edges_s.last().copied().unwrap_or(0.0);
            self.note(format!(
                "{share:.2} % of the responses are above the largest bound, {largest} s, and are \
                 treated as equal to it: means are too low, and quantiles past it are unknown."
            ));
        }
        self.imported.edges_s = range.edges_s;
        // A sample is the last scrape before its time.
        let step_s = range.windows.iter().map(|w| w.length_s).fold(0.0, f64::max);
        self.imported.clock_s = step_s;
        self.windows.extend(range.windows);
        Ok(())
    }

    fn iostat(&mut self, path: &Path, only: &[String]) -> anyhow::Result<()> {
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

/// Cuts the steady intervals: whole windows of the clients' queue (or else of the devices'),
/// without the first and the last, which the log may cut.
fn steps(windows: &[Window], steps_s: Option<f64>) -> Vec<Step> {
    let of = |client: bool| {
        let wanted = move |w: &&Window| match w.queue_name() {
            Some(QueueName::Gateway) => client,
            Some(QueueName::Origin) => false,
            _ => !client,
        };
        let mut windows: Vec<&Window> = windows.iter().filter(wanted).collect();
        windows.sort_by_key(|w| w.start_unix_us);
        windows
    };
    let client = of(true);
    let all = if client.is_empty() { of(false) } else { client };
    let inner = all.len().checked_sub(2).filter(|n| *n > 0);
    let all = inner.and_then(|_| all.get(1..all.len() - 1)).unwrap_or(&all);
    let length_us = steps_s.map_or(u64::MAX, |s| ((s * 1e6) as u64).max(1));
    let start = all.first().map_or(0, |w| w.start_unix_us);
    let mut cut: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
    for window in all {
        let index = (window.start_unix_us - start) / length_us;
        let step = cut.entry(index).or_insert((window.start_unix_us, 0, 0));
        step.1 = step.1.max(window.end_unix_us());
        step.2 += window.arrivals;
    }
    // A shorter remainder at the end is not a comparable step, unless it is the only one.
    let last = cut.keys().next_back().copied();
    let partial = |index: u64, end: u64| {
        let full = start.saturating_add((index + 1).saturating_mul(length_us));
        index > 0 && Some(index) == last && steps_s.is_some() && end < full
    };
    cut.retain(|index, step| !partial(*index, step.1));
    let step = |(index, (start, end, arrivals)): (usize, (u64, u64, u64))| Step {
        index,
        rate: Some(arrivals as f64 / ((end - start) as f64 * 1e-6).max(1e-6)),
        clients: None,
        start_unix_us: start,
        end_unix_us: end,
        generator: Generator::default(),
    };
    cut.into_values().filter(|s| s.1 > s.0).enumerate().map(step).collect()
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

fn check(options: &Options) -> anyhow::Result<()> {
    let sources = [&options.access_log, &options.iostat, &options.prometheus];
    if sources.iter().all(|s| s.is_none()) {
        bail!("nothing to import: give --access-log, --iostat or --prometheus");
    }
    if options.access_log.is_some() && options.prometheus.is_some() {
        bail!(
            "an access log and Prometheus both describe the clients' side; import them into two run \
             folders, and fit with the log's, which has the finer resolution"
        );
    }
    if sources.iter().filter(|s| s.as_deref() == Some(Path::new("-"))).count() > 1 {
        bail!("only one file can be `-`, the standard input");
    }
    if !(1e-3..=86_400.0).contains(&options.window_s) {
        bail!("invalid --window {} s: it must be between 1 ms and one day", options.window_s);
    }
    match options.steps_s {
        Some(s) if !(options.window_s..=1e9).contains(&s) => {
            bail!(
                "invalid --steps {s} s: a step must last at least one window, {} s",
                options.window_s
            )
        }
        _ => Ok(()),
    }
}

/// Reads the sources and writes the run folder.
///
/// # Errors
/// Those of [`Error`], with the file and the line; contradictory options; a run folder that already
/// exists.
pub fn import(options: &Options) -> anyhow::Result<Summary> {
    check(options)?;
    let mut sources = Sources::default();
    if let Some(path) = &options.access_log {
        sources.access_log(path, options)?;
    }
    if let Some(path) = &options.prometheus {
        sources.prometheus(path)?;
    }
    if let Some(path) = &options.iostat {
        sources.iostat(path, &options.devices)?;
    }
    let steps = steps(&sources.windows, options.steps_s);
    let client: Vec<f64> = steps.iter().filter_map(|s| divide(&mut sources.windows, s)).collect();
    let reads = client.iter().fold(0.0, |a: f64, b| a.max(*b));
    if !client.is_empty() {
        sources.note(format!(
            "It is unknown which requests read a disk: the slowest are assumed to, as many as the \
             disks read (at most {reads:.3} reads for each request of a step)."
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
        lines: sources.lines,
        broken: sources.broken,
        requests: client.map(|w| w.completions + w.refusals).sum(),
        windows: sources.windows.len(),
        steps,
        imported: sources.imported,
    })
}

fn describe(options: &Options, sources: &Sources) -> anyhow::Result<Run> {
    let mut asked = toml::Table::new();
    let mut put = |name: &str, value: &Option<PathBuf>| {
        if let Some(path) = value {
            asked.insert(name.to_owned(), path.display().to_string().into());
        }
    };
    put("access_log", &options.access_log);
    put("iostat", &options.iostat);
    put("prometheus", &options.prometheus);
    if options.access_log.is_some() {
        let format = options.log_format.as_deref().unwrap_or(COMBINED);
        asked.insert("log_format".to_owned(), format.into());
        asked.insert("window_s".to_owned(), options.window_s.into());
    }
    if let Some(steps_s) = options.steps_s {
        asked.insert("steps_s".to_owned(), steps_s.into());
    }
    let imported = toml::Value::try_from(&sources.imported).context("notes cannot be TOML")?;
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
