//! Reads logs of requests to the end: every line through its file's layout into one record each, and those into windows and times.
//!
//! A log is read as a stream; memory use grows with the times of single requests alone, of which a bounded number is kept. The first
//! lines of each file wait until its clock's step, and what sense finds, are known.

use std::collections::BTreeSet;
use std::collections::btree_set::IntoIter;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use ground::window::{Nanos, Operation, Outcome, QueueName};

use super::breaks;
use super::collector::{Break, Collector, Request};
use super::entry::{Cache, Entry, Line};
use super::error::Error;
use super::filter::Filter;
use super::known::Described;
use super::layout::{Layout, Role, Shape, Side};
use super::open;
use super::sense;
use super::shown;
use super::source::Source;
use super::split::Fault;
use super::spread::{Even, between_ticks};
use super::summary::FileSummary;
use super::tally::Tally;
use super::ticks;
use super::time::Unit;
use crate::objective::time;

/// The longest accepted line, bytes.
const LINE_MAX: u64 = 64 * 1024;
/// Number of lines of a file from which its clock's step is estimated and its unit found: some minutes of an ordinary log.
const FIRST: usize = 10_000;
/// Broken lines from which a wrong format is told before the whole of a large log has been read.
const BROKEN_EARLY: u64 = 1000;
/// Requests from which the step of a clock is found by what their times have in common, and not by the decimals alone.
const STEP_MIN: usize = 100;
/// And different values among them: a hundred equal lines say nothing.
const DISTINCT_MIN: usize = 5;

/// How to read logs.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// `--log-format`, as it was given.
    pub format: Option<String>,
    /// `--fields`.
    pub fields: Option<String>,
    /// `--unit`.
    pub unit: Option<Unit>,
    /// `--stamp`.
    pub side: Option<Side>,
    pub filter: Filter,
    pub window_ns: Nanos,
    pub objectives_ms: Vec<f64>,
    /// Skip any number of lines that cannot be parsed.
    pub lenient: bool,
    /// Whether a hit of the server's cache counts as memory. It does not if disks were observed,
    /// because the cache's files may have been read from them.
    pub hits_are_memory: bool,
}

/// The result of reading logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub lines: u64,
    pub broken: u64,
    /// What was left out or is short of something, by kind.
    pub tally: Tally,
    /// What was taken for what, a sentence for each file, and what is to be known of the formats.
    pub taken: Vec<String>,
    pub files: Vec<FileSummary>,
    /// Which of the requests are of which file.
    pub parts: Vec<FilePart>,
    /// Resolution of a response time, the coarsest of the files.
    pub resolution_ns: Nanos,
    /// Resolution of the time of completion.
    pub clock_ns: Nanos,
    /// Whether durations were measured by themselves, not as the difference of two stamps.
    pub is_timed_apart: bool,
    pub gateway: Option<Collector>,
    /// The windows of upstream requests, from `$upstream_response_time`.
    pub origin: Option<Collector>,
    /// The times without requests, which have no windows.
    pub breaks: Vec<Break>,
    /// When requests ended and what they took, as logged; at most [`TIMES_MAX`].
    pub times: Vec<Logged>,
}

/// A request's times as they stand in the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Logged {
    pub end: Nanos,
    pub taken: Nanos,
    pub operation: Operation,
    pub outcome: Outcome,
    pub bytes: u64,
    pub key: u32,
}

/// The most requests whose times are kept.
pub(super) const TIMES_MAX: usize = 2_000_000;

struct Reader<'a> {
    settings: &'a Settings,
    log: Log,
    even: (Even, Even),
    file: FileReader,
}

/// The requests of a file among those of all.
#[derive(Clone, Debug)]
pub(super) struct FilePart {
    pub path: PathBuf,
    pub requests: std::ops::Range<usize>,
}

/// The file that is being read.
struct FileReader {
    summary: FileSummary,
    layout: Layout,
    /// Whether its layout and steps are settled.
    is_begun: bool,
    /// The first lines, until then, and their numbers.
    first: Vec<(u64, String)>,
    /// Lines of the file, including empty ones.
    number: u64,
    clock_ns: Nanos,
    resolution_ns: Nanos,
}

/// Reads logs to their ends, in the order of their first times.
pub(super) fn read(sources: Vec<Source>, settings: &Settings) -> Result<Log, Error> {
    let described =
        Described { format: settings.format.as_deref(), fields: settings.fields.as_deref() };
    let mut log = Log::default();
    let (mut files, count) = (Vec::new(), sources.len());
    for mut source in sources {
        if count > 1 && source.head.trim_ascii().is_empty() {
            log.taken.push(format!("{} is empty.", source.path.display()));
            continue;
        }
        let layout = open::recognise(&mut source, described)?;
        let layout = overridden(layout, settings);
        check_filter(&source.path, &layout, &settings.filter)?;
        files.push((begins(&source.head, layout.clone()), source, layout));
    }
    // Rotated logs are named in any order; a stable sort keeps that of files without a time.
    files.sort_by_key(|(begin, ..)| *begin);
    let last = files.last().map(|(_, source, _)| source.path.clone()).unwrap_or_default();
    let mut even = (Even::golden(), Even::root_of_two());
    for (_, mut source, layout) in files {
        let (path, begin) = (source.path.clone(), log.times.len());
        let is_in_sections = layout.is_in_sections;
        let file = FileReader::new(&source.path, layout);
        let mut reader = Reader { settings, log, even, file };
        reader.file(&mut source)?;
        Reader { log, even, .. } = reader;
        if is_in_sections {
            log.times[begin..].sort_by_key(|request| request.end);
        }
        let requests = begin..log.times.len();
        log.parts.push(FilePart { path, requests });
    }
    if log.gateway.is_none() {
        let what = if log.lines == 0 && log.tally.other > 0 {
            "lines with a duration or a status: give the names of these values with --fields"
        } else if log.lines > 0 {
            "requests that were asked for: --from, --to, --path and --status leave none"
        } else {
            "lines: the file is empty"
        };
        return Err(Error::Empty { path: last, what: what.to_owned() });
    }
    if log.times.is_empty()
        && let Some(what) = log.tally.lacking().filter(|_| !settings.lenient)
    {
        return Err(Error::Empty { path: last, what: what.to_owned() });
    }
    log.breaks = breaks::settle(&last, log.gateway.as_mut(), log.origin.as_mut())?;
    Ok(log)
}

/// That the values that requests are chosen by are there: without a status all count as answered, and any status would be as good.
fn check_filter(path: &Path, layout: &Layout, filter: &Filter) -> Result<(), Error> {
    let has_status = layout.has(Role::Status) || layout.has(Role::Success);
    let has_path = layout.has(Role::Path) || layout.has(Role::Request);
    let lacking = [
        ("--status", "status", filter.has_statuses() && !has_status),
        ("--path", "path", filter.has_paths() && !has_path),
    ];
    match lacking.iter().find(|(.., is_lacking)| *is_lacking) {
        Some((option, what, _)) => Err(Error::Content {
            path: path.to_owned(),
            reason: format!(
                "{option} chooses requests by their {what}, and no value of it ({}) is a {what}; say which is: --fields {what}=NAME",
                layout.name
            ),
        }),
        None => Ok(()),
    }
}

/// A layout with what `--unit` and `--stamp` say.
fn overridden(mut layout: Layout, settings: &Settings) -> Layout {
    if let Some(unit) = settings.unit {
        let times = layout.columns.iter_mut().filter(|column| column.role == Role::Response);
        times.for_each(|column| column.unit = None);
        layout.units = vec![unit];
        layout = layout.timed(unit, "--unit says so");
    }
    match settings.side {
        Some(side) => layout.stamped(side, "--stamp says so"),
        None => layout,
    }
}

/// The first moment of a file.
fn begins(head: &[u8], mut layout: Layout) -> Nanos {
    let filter = Filter::default();
    let text = String::from_utf8_lossy(head);
    let stamps = text.lines().take(100).filter_map(|line| match layout.line(line, &filter) {
        Ok(Line::Request(entry)) => Some(entry.stamp.ns),
        _ => None,
    });
    stamps.min().unwrap_or(0)
}

impl FileReader {
    fn new(path: &Path, layout: Layout) -> FileReader {
        FileReader {
            summary: FileSummary { path: path.to_owned(), ..FileSummary::default() },
            layout,
            is_begun: false,
            first: Vec::new(),
            number: 0,
            clock_ns: 1,
            resolution_ns: 1,
        }
    }

    /// A duration as the clock had it: of Windows' ticks a log shows what is left when less than a unit is cut off.
    fn on_tick(&self, taken: Nanos) -> Nanos {
        let tick = ticks::WINDOWS_TICK;
        if self.resolution_ns != tick {
            return taken;
        }
        (taken.saturating_add(tick / 2) / tick).saturating_mul(tick)
    }

    /// Finds what is not known of the layout, and the steps of its times.
    fn settle(&mut self) -> Result<(), Error> {
        let lines: Vec<String> = self.first.iter().map(|(_, line)| line.clone()).collect();
        let path = &self.summary.path;
        let layout = sense::settle(self.layout.clone(), &lines)
            .map_err(|reason| Error::Content { path: path.clone(), reason })?;
        self.layout = layout;
        let mut trial = self.layout.clone();
        let filter = Filter::default();
        let entries: Vec<Entry> = lines
            .iter()
            .filter_map(|line| match trial.line(line, &filter) {
                Ok(Line::Request(entry)) => Some(entry),
                _ => None,
            })
            .collect();
        let by_decimals = |decimals: u32| 10u64.pow(9 - decimals.min(9));
        let finest = |all: &mut dyn Iterator<Item = (u64, u32)>,
                      found: fn(IntoIter<u64>) -> u64| {
            let all: Vec<(u64, u32)> = all.collect();
            let written = by_decimals(all.iter().map(|one| one.1).max().unwrap_or(0));
            // Zeros behind the point are a coarser clock than the digits say.
            let distinct: BTreeSet<u64> = all.iter().map(|one| one.0).collect();
            let found = if all.len() < STEP_MIN || distinct.len() < DISTINCT_MIN {
                1
            } else {
                found(distinct.into_iter())
            };
            written.max(found)
        };
        // Stamps of a load that is sent every 20 ms are no ticks of a clock.
        let mut stamps = entries.iter().map(|e| (e.stamp.ns, e.stamp.decimals));
        self.clock_ns = finest(&mut stamps, ticks::step);
        let mut responses = entries.iter().filter_map(|e| e.response).map(|r| (r.ns, r.decimals));
        self.resolution_ns = finest(&mut responses, ticks::tick);
        self.describe(&entries);
        Ok(())
    }

    fn describe(&mut self, entries: &[Entry]) {
        self.summary.describe(&self.layout);
        (self.summary.clock_s, self.summary.resolution_s) =
            (self.clock_ns as f64 / 1e9, self.resolution_ns as f64 / 1e9);
        if entries.iter().any(|entry| entry.zone_assumed) {
            self.layout.remarks.push("Its times have no zone and are taken for UTC.".to_owned());
        }
        if self.resolution_ns == ticks::WINDOWS_TICK {
            let text = "Its durations are multiples of 15.625 ms, the tick of Windows' clock.";
            self.layout.remarks.push(text.to_owned());
        }
        let mut taken: Vec<Nanos> =
            entries.iter().filter_map(|e| e.response).map(|r| r.ns).collect();
        taken.sort_unstable();
        let median = taken.get(taken.len() / 2).copied().unwrap_or(0);
        if self.clock_ns > median.max(1) && self.clock_ns > 1_000_000 {
            self.layout.remarks.push(format!(
                "Its stamps are known to {}, coarser than the median response ({}): the law of responses at each load can \
                 be fitted, and not which request met which (servers, discipline, time outside).",
                time(self.clock_ns as f64 / 1e9),
                time(median as f64 / 1e9)
            ));
        }
    }
}

impl Reader<'_> {
    fn file(&mut self, source: &mut Source) -> Result<(), Error> {
        let path = source.path.clone();
        let mut input = source.lines()?;
        let (mut line, mut is_cut) = (Vec::new(), false);
        loop {
            line.clear();
            let count = input
                .by_ref()
                .take(LINE_MAX)
                .read_until(b'\n', &mut line)
                .map_err(|source| Error::File { path: path.clone(), source })?;
            if count == 0 {
                break;
            }
            is_cut = !line.ends_with(b"\n");
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let text = if self.file.number == 0 {
                text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
            } else {
                text
            };
            self.file.number += 1;
            if text.is_empty() {
                continue;
            }
            let text = String::from_utf8_lossy(text);
            if self.file.is_begun {
                self.line(self.file.number, &text, is_cut)?;
            } else {
                self.file.first.push((self.file.number, text.into_owned()));
                if self.file.first.len() >= FIRST {
                    self.begin(false)?;
                }
            }
        }
        if !self.file.is_begun {
            self.begin(is_cut)?;
        }
        self.judge()?;
        let left_out = source.left_out();
        if left_out > 0 {
            let lines = shown::count(left_out, "line");
            let text = format!("{lines} of other programs or streams were left out.");
            self.file.layout.remarks.push(text);
        }
        self.finish();
        Ok(())
    }

    /// Settles the layout by the first lines, and then reads these.
    fn begin(&mut self, is_last_cut: bool) -> Result<(), Error> {
        if self.file.first.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.settle() {
            // Lines that are all broken say more than that their unit is not known.
            self.all_broken()?;
            return Err(error);
        }
        self.file.is_begun = true;
        let (clock, resolution) = (self.file.clock_ns, self.file.resolution_ns);
        let window = self.settings.window_ns;
        let first = std::mem::take(&mut self.file.first);
        let count = first.len();
        for (at, (number, line)) in first.into_iter().enumerate() {
            self.line(number, &line, is_last_cut && at + 1 == count)?;
        }
        // Not before: lines that are all broken have no clock.
        if clock > window && self.file.summary.broken < self.file.summary.lines {
            return Err(Error::Format {
                reason: format!(
                    "its times have a resolution of {}, but windows of {} are requested; log $msec, or \
                     give a --window of at least that",
                    time(clock as f64 / 1e9),
                    time(window as f64 / 1e9)
                ),
            });
        }
        self.log.clock_ns = self.log.clock_ns.max(clock);
        self.log.resolution_ns = self.log.resolution_ns.max(resolution);
        // A log of starts has no second stamp, and the difference of two stamps has nothing to round down.
        let layout = &self.file.layout;
        self.log.is_timed_apart |= layout.cuts || layout.side == Some(Side::Start);
        Ok(())
    }

    /// Fails if no line of the first can be read.
    fn all_broken(&mut self) -> Result<(), Error> {
        let mut layout = self.file.layout.clone();
        let filter = Filter::default();
        let mut fault = None;
        for (number, line) in &self.file.first {
            match layout.line(line, &filter) {
                Ok(Line::Request(_)) => return Ok(()),
                Ok(_) => {}
                Err(reason) => fault = fault.or(Some((*number, reason.detail))),
            }
        }
        let lines = self.file.first.len() as u64;
        let path = self.file.summary.path.clone();
        let Some((line, reason)) = fault else { return Ok(()) };
        let option = self.file.layout.option();
        Err(Error::Broken { path, broken: lines, lines, line, reason, option })
    }

    /// Fails if more than one line in a hundred could not be parsed.
    fn judge(&self) -> Result<(), Error> {
        let FileSummary { broken, lines, .. } = self.file.summary;
        let all = broken == lines && lines > 0;
        if broken * 100 <= lines || self.settings.lenient && !all {
            return Ok(());
        }
        let path = &self.file.summary.path;
        let (line, reason) = self.log.tally.first_of(path).unwrap_or_default();
        let option = self.file.layout.option();
        Err(Error::Broken { path: path.clone(), broken, lines, line, reason, option })
    }

    fn line(&mut self, number: u64, line: &str, is_cut: bool) -> Result<(), Error> {
        let path = self.file.summary.path.clone();
        match self.file.layout.line(line, &self.settings.filter) {
            Ok(Line::Other) => {
                self.log.tally.other += 1;
                Ok(())
            }
            Ok(Line::Upgraded) => {
                self.log.tally.upgraded += 1;
                Ok(())
            }
            Ok(Line::Filtered(verdict)) => {
                self.count_line();
                *self.log.tally.filtered.entry(verdict).or_insert(0) += 1;
                Ok(())
            }
            Ok(Line::Request(entry)) => {
                self.count_line();
                if is_cut && !matches!(self.file.layout.shape, Shape::Json) {
                    let text =
                        format!("The last line of {} does not end; it may be cut.", path.display());
                    self.file.layout.remarks.push(text);
                }
                self.take(&entry)
            }
            Err(fault) => {
                self.count_line();
                self.log.broken += 1;
                self.file.summary.broken += 1;
                let fault = if is_cut {
                    Fault::new("the file ends within a line", fault.detail)
                } else {
                    fault
                };
                self.log.tally.broken(&path, number, &fault);
                // Check early, so that a wrong format is detected before a large log has been read.
                if self.file.summary.broken >= BROKEN_EARLY { self.judge() } else { Ok(()) }
            }
        }
    }

    fn count_line(&mut self) {
        self.log.lines += 1;
        self.file.summary.lines += 1;
    }

    /// Says how the file was read.
    fn finish(&mut self) {
        if self.file.is_begun {
            self.log.taken.push(self.file.summary.sentence());
            for remark in &self.file.layout.remarks {
                if !self.log.taken.contains(remark) {
                    self.log.taken.push(remark.clone());
                }
            }
        } else {
            let path = self.file.summary.path.display();
            self.log.taken.push(format!("{path} has no lines."));
        }
        self.log.files.push(self.file.summary.clone());
    }

    fn outcome(&self, entry: &Entry) -> Option<Outcome> {
        match (entry.status, entry.cache) {
            (None | Some(503 | 429), _) => None,
            _ if entry.response.is_none() => None,
            (Some(404 | 410), _) => Some(Outcome::Miss),
            (Some(400..), _) => Some(Outcome::Error),
            (_, Cache::Passed) => Some(Outcome::Origin),
            (_, Cache::Hit) if self.settings.hits_are_memory => Some(Outcome::Memory),
            _ => Some(Outcome::Unknown),
        }
    }

    fn take(&mut self, entry: &Entry) -> Result<(), Error> {
        let (clock, resolution) = (self.file.clock_ns, self.file.resolution_ns);
        // A duration that was rounded down is short by half a tick in the mean: with it, it is one that was rounded to the nearest.
        let short = if self.file.layout.cuts { resolution / 2 } else { 0 };
        let late = if self.file.layout.side == Some(Side::Start) { short } else { 0 };
        let entry_end = entry.end.saturating_add(late);
        let end = entry_end.saturating_add((self.even.0.next() * clock as f64) as u64);
        let outcome = self.outcome(entry);
        let tally = &mut self.log.tally;
        match (entry.status, entry.response) {
            (None, _) => tally.unanswered += 1,
            (Some(503 | 429), _) => tally.refused += 1,
            (_, None) => tally.untimed += 1,
            _ => {}
        }
        tally.of_unknown_size += u64::from(!entry.is_size_known);
        self.file.summary.requests += 1;
        let u = self.even.1.next();
        let taken = entry
            .response
            .map_or(0, |response| self.file.on_tick(response.ns).saturating_add(short));
        if let Some(outcome) = outcome.filter(|_| self.log.times.len() < TIMES_MAX) {
            let (end, operation) = (entry_end, entry.operation);
            let (bytes, key) = (entry.bytes, entry.key);
            self.log.times.push(Logged { end, taken, operation, outcome, bytes, key });
        }
        let mut request = Request {
            end,
            response: between_ticks(taken, resolution, u),
            operation: entry.operation,
            outcome,
            bytes: entry.bytes,
        };
        let window = self.settings.window_ns;
        let objectives = &self.settings.objectives_ms;
        if let (Some(upstream), Some(_)) = (entry.upstream, outcome) {
            let new = || Collector::new(QueueName::Origin, window, objectives, false);
            let mut attempt = Request { outcome: Some(Outcome::Origin), ..request };
            attempt.response = between_ticks(upstream.ns, resolution, u).min(attempt.end);
            self.log.origin.get_or_insert_with(new).add(&attempt);
        }
        // Dispersion needs arrival times with a resolution of at most half a part of a window.
        let fine = (clock + resolution).saturating_mul(32) <= window;
        let new = || Collector::new(QueueName::Gateway, window, objectives, fine);
        let gateway = self.log.gateway.get_or_insert_with(new);
        request.response = request.response.min(request.end);
        gateway.add(&request);
        if !gateway.fits() {
            return Err(breaks::too_long(&self.file.summary.path, gateway));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "access_log_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "services_tests.rs"]
mod services_tests;

#[cfg(test)]
#[path = "dialects_tests.rs"]
mod dialects_tests;

#[cfg(test)]
#[path = "clouds_tests.rs"]
mod clouds_tests;

#[cfg(test)]
#[path = "own_names_tests.rs"]
mod own_names_tests;
