//! Reads access logs: lines in an nginx `log_format`, or JSON objects with the same names.
//!
//! A line is written when its request is complete, so the request arrived at the line's time minus
//! `$request_time`. The log is read as a stream; memory use does not grow with the number of lines.

use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::path::Path;

use ground::window::{Nanos, Operation, Outcome, QueueName, key_hash};

use super::collector::{Collector, Request, WINDOWS_MAX};
use super::error::Error;
use super::spread::{Even, between_ticks};
use super::time::{self, Reading};

/// nginx's `combined` format, followed by the request time.
pub(crate) const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
    $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $request_time";

/// The longest accepted line, bytes.
const LINE_MAX: u64 = 64 * 1024;
/// Number of lines from which the resolution of the times is estimated.
const FIRST: usize = 1000;

/// The variables that are used, by their index in [`Fields`].
const NAMES: [&str; 12] = [
    "msec",
    "time_iso8601",
    "time_local",
    "request_time",
    "request",
    "request_method",
    "status",
    "body_bytes_sent",
    "bytes_sent",
    "upstream_response_time",
    "upstream_addr",
    "request_uri",
];
const CACHE: &str = "upstream_cache_status";
const COUNT: usize = NAMES.len() + 1;
type Fields<'a> = [Option<Cow<'a, str>>; COUNT];

fn index_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|n| *n == name).or_else(|| (name == CACHE).then_some(NAMES.len()))
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Literal(String),
    /// A variable, by its index; `None` if it is not used.
    Variable(Option<usize>),
}

/// A parsed log format.
#[derive(Clone, Debug, PartialEq)]
pub struct Format(Option<Vec<Part>>);

impl Format {
    /// Parses an nginx `log_format` (`$name`, `${name}` and literal text), or `json`.
    ///
    /// # Errors
    /// [`Error::Format`] if a time or `$request_time` is missing, or if two variables are adjacent.
    pub fn parse(text: &str) -> Result<Format, Error> {
        if text.trim() == "json" {
            return Ok(Format(None));
        }
        let failed = |reason: &str| Error::Format { reason: reason.to_owned() };
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (literal, after) = rest.split_at(at);
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let after = after.strip_prefix('$').unwrap_or(after);
            let plain = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let (name, left) = match after.strip_prefix('{') {
                Some(braced) => {
                    braced.split_once('}').ok_or_else(|| failed("a `${` is not closed by `}`"))?
                }
                None => after.split_at(after.find(plain).unwrap_or(after.len())),
            };
            if name.is_empty() {
                return Err(failed("a `$` is not followed by the name of a variable"));
            }
            if matches!(parts.last(), Some(Part::Variable(_))) {
                return Err(failed(&format!(
                    "`${name}` follows another variable without text between them, so its start is \
                     ambiguous"
                )));
            }
            parts.push(Part::Variable(index_of(name)));
            rest = left;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        let has = |name: &str| parts.contains(&Part::Variable(index_of(name)));
        if !(has("msec") || has("time_iso8601") || has("time_local")) {
            return Err(failed(
                "it has no time of completion; add $msec to the server's log_format (or \
                 $time_iso8601, $time_local, which are good to a second)",
            ));
        }
        if !has("request_time") {
            return Err(failed(
                "it has no $request_time, so the duration of a request is unknown; add it to the \
                 server's log_format",
            ));
        }
        Ok(Format(Some(parts)))
    }

    /// Extracts the values of a line's variables.
    fn fields<'a>(&self, line: &'a str) -> Result<Fields<'a>, String> {
        let mut fields: Fields<'a> = [const { None }; COUNT];
        let Some(parts) = &self.0 else {
            let value: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).map_err(|e| format!("not a JSON object: {e}"))?;
            for (name, value) in value {
                if let Some(field) = index_of(&name).and_then(|i| fields.get_mut(i)) {
                    *field = Some(Cow::Owned(plain_text(value)));
                }
            }
            return Ok(fields);
        };
        let mut rest = line;
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(text) => {
                    rest = rest
                        .strip_prefix(text.as_str())
                        .ok_or_else(|| format!("`{text}` expected at `{}`", shown(rest)))?;
                }
                Part::Variable(index) => {
                    let end = match parts.peek() {
                        Some(Part::Literal(text)) => rest
                            .find(text.as_str())
                            .ok_or_else(|| format!("`{text}` expected after `{}`", shown(rest)))?,
                        _ => rest.len(),
                    };
                    let (value, left) = rest.split_at(end);
                    if let Some(field) = index.and_then(|i| fields.get_mut(i)) {
                        *field = Some(Cow::Borrowed(value));
                    }
                    rest = left;
                }
            }
        }
        if rest.is_empty() {
            Ok(fields)
        } else {
            Err(format!("unexpected text after the last variable: `{}`", shown(rest)))
        }
    }

    /// Parses a line.
    fn entry(&self, line: &str) -> Result<Entry, String> {
        let fields = self.fields(line)?;
        let get = |name: &str| index_of(name).and_then(|i| fields[i].as_deref());
        let read = |name: &str,
                    f: fn(&str) -> Option<Reading>|
         -> Result<Option<Reading>, String> {
            get(name)
                .map(|v| f(v).ok_or_else(|| format!("${name} is not a valid time: `{}`", shown(v))))
                .transpose()
        };
        let mut end = read("msec", time::unix)?;
        if end.is_none() {
            end = read("time_iso8601", time::iso)?;
        }
        if end.is_none() {
            end = read("time_local", time::local)?;
        }
        let end = end.ok_or("msec, time_iso8601 and time_local are all missing")?;
        let response = read("request_time", time::duration)?.ok_or("request_time is missing")?;
        let upstream = get("upstream_response_time").map_or(Ok(None), time::durations);
        let upstream =
            upstream.map_err(|()| "$upstream_response_time is not a valid time".to_owned())?;
        let status: u16 = match get("status") {
            None => 200,
            Some(text) => text
                .parse()
                .ok()
                .filter(|s| (100..1000).contains(s))
                .ok_or_else(|| format!("$status is not a valid status: `{}`", shown(text)))?,
        };
        let bytes = match get("body_bytes_sent").or(get("bytes_sent")) {
            None | Some("-") => 0,
            Some(text) => text
                .parse::<u64>()
                .map(|bytes| bytes.min(1 << 40))
                .map_err(|_| format!("the bytes sent are not a number: `{}`", shown(text)))?,
        };
        let request = get("request").and_then(|r| r.split(' ').next());
        let operation = match get("request_method").or(request) {
            None | Some("GET") => Operation::Get,
            Some("PUT" | "POST" | "PATCH") => Operation::Put,
            Some("DELETE") => Operation::Delete,
            Some(_) => Operation::Head,
        };
        let cache = match get(CACHE) {
            Some("HIT" | "STALE" | "UPDATING" | "REVALIDATED") => Cache::Hit,
            Some("MISS" | "BYPASS" | "EXPIRED") => Cache::Passed,
            _ => Cache::None,
        };
        // The server that a proxy chose (of several attempts the last) says more than the path.
        let server = get("upstream_addr").and_then(|all| all.rsplit([',', ' ']).next());
        let server = server.filter(|last| !matches!(*last, "" | "-"));
        let path = get("request").and_then(|r| r.split(' ').nth(1)).or(get("request_uri"));
        let key = server.or(path).map_or(0, |key| record::short_key(key_hash(key.as_bytes())));
        Ok(Entry { end, response, upstream, status, bytes, operation, cache, key })
    }
}

/// Formats a JSON value as a text log would.
fn plain_text(value: serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text,
        serde_json::Value::Number(number) => {
            let text = number.to_string();
            match number.as_f64() {
                Some(x) if text.contains(['e', 'E']) => {
                    format!("{x:.9}").trim_end_matches('0').trim_end_matches('.').to_owned()
                }
                _ => text,
            }
        }
        other => other.to_string(),
    }
}

/// The beginning of a text, for error messages.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_default).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    None,
    Hit,
    Passed,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    end: Reading,
    response: Reading,
    upstream: Option<Reading>,
    status: u16,
    bytes: u64,
    operation: Operation,
    cache: Cache,
    /// What decides which line the request waits in; 0 if it is not known.
    key: u32,
}

/// How to read a log.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub format: Format,
    pub window_ns: Nanos,
    pub objectives_ms: Vec<f64>,
    /// Skip any number of lines that cannot be parsed.
    pub lenient: bool,
    /// Whether a hit of the server's cache counts as memory. It does not if disks were observed,
    /// because the cache's files may have been read from them.
    pub hits_are_memory: bool,
}

/// The result of reading a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub lines: u64,
    pub broken: u64,
    /// The first line that could not be parsed, and the reason.
    pub first_broken: Option<(u64, String)>,
    /// Resolution of a response time.
    pub resolution_ns: Nanos,
    /// Resolution of the time of completion.
    pub clock_ns: Nanos,
    pub gateway: Option<Collector>,
    /// The windows of upstream requests, from `$upstream_response_time`.
    pub origin: Option<Collector>,
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
    path: &'a Path,
    log: Log,
    /// Lines of the file, including empty ones.
    number: u64,
    /// The first entries, buffered until the resolutions are known.
    first: Vec<Entry>,
    even: (Even, Even),
}

/// Reads a log to its end. `path` is used in error messages.
pub(super) fn read(
    mut input: impl BufRead,
    path: &Path,
    settings: &Settings,
) -> Result<Log, Error> {
    let even = (Even::golden(), Even::root_of_two());
    let mut reader =
        Reader { settings, path, log: Log::default(), number: 0, first: Vec::new(), even };
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = input
            .by_ref()
            .take(LINE_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|source| Error::File { path: path.to_owned(), source })?;
        if count == 0 {
            break;
        }
        reader.line(&line)?;
    }
    reader.judge()?;
    if reader.log.lines == reader.log.broken {
        return match reader.log.first_broken.take() {
            Some((line, reason)) => Err(reader.broken(line, reason)),
            None => Err(Error::Empty { path: path.to_owned(), what: "lines".to_owned() }),
        };
    }
    if reader.log.gateway.is_none() {
        reader.begin()?;
    }
    Ok(reader.log)
}

impl Reader<'_> {
    fn broken(&self, line: u64, reason: String) -> Error {
        let (broken, lines) = (self.log.broken, self.log.lines);
        Error::Broken { path: self.path.to_owned(), broken, lines, line, reason }
    }

    /// Fails if more than one line in a hundred could not be parsed.
    fn judge(&self) -> Result<(), Error> {
        match &self.log.first_broken {
            Some((line, reason))
                if !self.settings.lenient && self.log.broken * 100 > self.log.lines =>
            {
                Err(self.broken(*line, reason.clone()))
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.number += 1;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(());
        }
        self.log.lines += 1;
        match self.settings.format.entry(&String::from_utf8_lossy(line)) {
            Ok(entry) if self.log.gateway.is_some() => self.take(&entry),
            Ok(entry) => {
                self.first.push(entry);
                if self.first.len() >= FIRST { self.begin() } else { Ok(()) }
            }
            Err(reason) => {
                self.log.broken += 1;
                if self.log.first_broken.is_none() {
                    self.log.first_broken = Some((self.number, reason));
                }
                // Check early, so that a wrong format is detected before a large log has been read.
                if self.log.broken >= FIRST as u64 { self.judge() } else { Ok(()) }
            }
        }
    }

    /// Estimates the resolutions from the first lines (the finest that occurs), then records these
    /// lines.
    fn begin(&mut self) -> Result<(), Error> {
        let finest = |of: fn(&Entry) -> u32| {
            let decimals = self.first.iter().map(of).max().unwrap_or(0);
            10u64.pow(9 - decimals.min(9))
        };
        let clock = finest(|e| e.end.decimals);
        let resolution = finest(|e| e.response.decimals);
        let window = self.settings.window_ns;
        if clock > window {
            return Err(Error::Format {
                reason: format!(
                    "its times have a resolution of {} s, but windows of {} s are requested; log $msec, or \
                     give a --window of at least that",
                    clock as f64 * 1e-9,
                    window as f64 * 1e-9
                ),
            });
        }
        (self.log.clock_ns, self.log.resolution_ns) = (clock, resolution);
        // Dispersion needs arrival times with a resolution of at most half a part of a window.
        let fine = (clock + resolution).saturating_mul(32) <= window;
        let objectives = &self.settings.objectives_ms;
        self.log.gateway = Some(Collector::new(QueueName::Gateway, window, objectives, fine));
        for entry in std::mem::take(&mut self.first) {
            self.take(&entry)?;
        }
        Ok(())
    }

    fn take(&mut self, entry: &Entry) -> Result<(), Error> {
        let (clock, resolution) = (self.log.clock_ns, self.log.resolution_ns);
        let end = entry.end.ns + (self.even.0.next() * clock as f64) as u64;
        let outcome = match (entry.status, entry.cache) {
            (503 | 429, _) => None,
            (404 | 410, _) => Some(Outcome::Miss),
            (400.., _) => Some(Outcome::Error),
            (_, Cache::Passed) => Some(Outcome::Origin),
            (_, Cache::Hit) if self.settings.hits_are_memory => Some(Outcome::Memory),
            _ => Some(Outcome::Unknown),
        };
        let u = self.even.1.next();
        if let Some(outcome) = outcome.filter(|_| self.log.times.len() < TIMES_MAX) {
            let (end, taken) = (entry.end.ns, entry.response.ns);
            let operation = entry.operation;
            let (bytes, key) = (entry.bytes, entry.key);
            self.log.times.push(Logged { end, taken, operation, outcome, bytes, key });
        }
        let mut request = Request {
            end,
            response: between_ticks(entry.response.ns, resolution, u),
            operation: entry.operation,
            outcome,
            bytes: entry.bytes,
        };
        let window = self.settings.window_ns;
        let objectives = &self.settings.objectives_ms;
        if let (Some(upstream), Some(_)) = (entry.upstream, outcome) {
            let new = || Collector::new(QueueName::Origin, window, objectives, false);
            let mut attempt = Request { outcome: Some(Outcome::Origin), ..request };
            attempt.response = between_ticks(upstream.ns, resolution, u);
            self.log.origin.get_or_insert_with(new).add(&attempt);
        }
        if let Some(gateway) = &mut self.log.gateway {
            request.response = request.response.min(request.end);
            gateway.add(&request);
            if !gateway.fits() {
                return Err(Error::Windows {
                    path: self.path.to_owned(),
                    windows: gateway.windows(),
                    window_s: window as f64 * 1e-9,
                    most: WINDOWS_MAX,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "access_log_tests.rs"]
mod tests;
