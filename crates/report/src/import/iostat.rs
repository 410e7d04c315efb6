//! Converts the output of `iostat -x -t`, as text or as JSON (`-o JSON`), into windows of
//! `device/N` queues.
//!
//! iostat reports rates and means but no distributions. The mean service time follows from the
//! utilisation law, S = U/X, with a device treated as one server; its distribution is *assumed*
//! exponential, and every output states that. The first report is skipped: without `-y` it is the
//! mean since the host started.

use std::collections::BTreeMap;
use std::path::Path;

use ground::window::{
    KernelDevice, Nanos, Operation, Outcome, QueueName, SECOND, ServiceByNumber, Times, Window,
};
use serde_json::Value;

use super::collector::WINDOWS_MAX;
use super::error::Error;
use super::excerpt::excerpt;
use super::spread::Even;
use super::time;

/// One device in one report.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    reads: f64,
    writes: f64,
    read_kb: f64,
    /// Mean response of a read, milliseconds.
    read_await_ms: f64,
    write_await_ms: f64,
    /// A share, not percent.
    utilisation: f64,
}

/// One report: its time and its devices.
#[derive(Clone, Debug)]
struct Report {
    at: Nanos,
    rows: BTreeMap<String, Row>,
}

/// The windows and properties of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Devices {
    pub windows: Vec<Window>,
    /// Names of the devices, by the number of their queue.
    pub names: Vec<String>,
    /// Whether its times had no zone and were interpreted as UTC.
    pub zone_assumed: bool,
    /// Number of reports that were skipped because their length is unknown.
    pub passed_over: u64,
}

impl Row {
    /// Stores a column's value. Unused columns are ignored.
    fn set(&mut self, column: &str, value: f64) {
        match column {
            "r/s" => self.reads = value,
            "w/s" => self.writes = value,
            "rkB/s" => self.read_kb = value,
            "rMB/s" => self.read_kb = value * 1024.0,
            "r_await" => self.read_await_ms = value,
            "w_await" => self.write_await_ms = value,
            "%util" | "util" => self.utilisation = (value / 100.0).min(1.0),
            _ => {}
        }
    }
}

/// The columns that every row needs.
const NEEDED: [[&str; 2]; 3] = [["r/s", "r/s"], ["r_await", "r_await"], ["%util", "util"]];

fn check_columns<'a>(columns: impl Iterator<Item = &'a str> + Clone) -> Result<(), String> {
    match NEEDED.iter().find(|names| !columns.clone().any(|c| names.contains(&c))) {
        None => Ok(()),
        Some([name, _]) => {
            Err(format!("the devices have no column `{name}`; record with `iostat -x -t -y 1`"))
        }
    }
}

fn number(text: &str) -> Option<f64> {
    let value: f64 = text.replace(',', ".").parse().ok()?;
    (0.0..1e12).contains(&value).then_some(value)
}

/// Parses the text form.
fn text_reports(text: &str) -> Result<(Vec<Report>, bool), String> {
    let (mut reports, mut assumed) = (Vec::<Report>::new(), false);
    let mut columns: Vec<&str> = Vec::new();
    // What stands where a time would, before there is one.
    let mut stray = None;
    for (index, line) in text.lines().enumerate() {
        let place = |reason: String| format!("line {}: {reason}", index + 1);
        if let Some((reading, without_zone)) = time::iostat(line) {
            assumed |= without_zone;
            reports.push(Report { at: reading.ns, rows: BTreeMap::new() });
            columns.clear();
        } else if line.starts_with("Device") {
            columns = line.split_whitespace().skip(1).filter(|c| *c != ":").collect();
            check_columns(columns.iter().copied()).map_err(place)?;
        } else if line.trim().is_empty() {
            columns.clear();
        } else if !columns.is_empty() {
            let mut values = line.split_whitespace();
            let name = values.next().unwrap_or_default().trim_end_matches(':').to_owned();
            let mut row = Row::default();
            for column in &columns {
                let value = values.next().ok_or_else(|| {
                    place(format!("{} columns expected, `{column}` is missing", columns.len() + 1))
                })?;
                let value = number(value)
                    .ok_or_else(|| place(format!("`{column}` is not a number: `{value}`")))?;
                row.set(column, value);
            }
            let report = reports.last_mut().ok_or_else(|| match stray {
                Some((number, text)) => format!(
                    "line {number}: `{}` is not read as a time; record with S_TIME_FORMAT=ISO",
                    excerpt(text)
                ),
                None => place(
                    "devices before the first time; record with `-t`, which prints it".to_owned(),
                ),
            })?;
            report.rows.insert(name, row);
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            stray = Some((index + 1, line));
        }
    }
    Ok((reports, assumed))
}

/// Parses the JSON form.
fn json_reports(text: &str) -> Result<(Vec<Report>, bool), String> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| format!("{e}; was iostat ended by a signal? It closes its JSON at the end"))?;
    let hosts = value.pointer("/sysstat/hosts").and_then(Value::as_array);
    let hosts = hosts.ok_or("no `sysstat.hosts`; record with `iostat -x -t -y -o JSON 1`")?;
    let statistics = hosts.first().and_then(|h| h["statistics"].as_array());
    let (mut reports, mut assumed) = (Vec::new(), false);
    for (index, report) in statistics.into_iter().flatten().enumerate() {
        let place = |reason: &str| format!("report {}: {reason}", index + 1);
        let stamp = report["timestamp"].as_str().and_then(time::iostat);
        let (reading, without_zone) =
            stamp.ok_or_else(|| place("missing or invalid `timestamp`; record with `-t`"))?;
        assumed |= without_zone;
        let mut rows = BTreeMap::new();
        for disk in report["disk"].as_array().into_iter().flatten() {
            let Some(object) = disk.as_object() else { continue };
            let name = object.get("disk_device").and_then(Value::as_str);
            let name = name.ok_or_else(|| place("a disk without `disk_device`"))?;
            check_columns(object.keys().map(String::as_str)).map_err(|e| place(&e))?;
            let mut row = Row::default();
            for (column, value) in object {
                if let Some(value) = value.as_f64().filter(|v| (0.0..1e12).contains(v)) {
                    row.set(column, value);
                }
            }
            rows.insert(name.to_owned(), row);
        }
        reports.push(Report { at: reading.ns, rows });
    }
    Ok((reports, assumed))
}

/// Whether a device is taken by default: physical disks, not the devices built on them.
fn is_disk(name: &str) -> bool {
    let layered = ["loop", "ram", "zram", "dm-", "md", "sr", "fd"];
    !layered.iter().any(|start| name.starts_with(start))
}

/// Reads a recording of iostat. `only` names the devices to take; if it is empty, all disks with
/// reads are taken.
pub(super) fn read(text: &str, path: &Path, only: &[String]) -> Result<Devices, Error> {
    let content = |reason| Error::Content { path: path.to_owned(), reason };
    let json = text.trim_start().starts_with('{');
    let (reports, zone_assumed) =
        if json { json_reports(text) } else { text_reports(text) }.map_err(content)?;
    if reports.len() as u64 > WINDOWS_MAX {
        return Err(Error::Windows {
            path: path.to_owned(),
            windows: reports.len() as u64,
            window_s: 1.0,
            most: WINDOWS_MAX,
        });
    }
    let mut seen: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, row) in reports.iter().skip(1).flat_map(|r| &r.rows) {
        *seen.entry(name).or_insert(0.0) += row.reads;
    }
    if let Some(missing) = only.iter().find(|name| !seen.contains_key(name.as_str())) {
        let there = seen.keys().copied().collect::<Vec<_>>().join(", ");
        return Err(content(format!("there is no device `{missing}`; the recording has {there}")));
    }
    let taken = |name: &str, reads: f64| match only {
        [] => is_disk(name) && reads > 0.0,
        only => only.iter().any(|n| n == name),
    };
    let names: Vec<String> = seen
        .iter()
        .filter(|(name, reads)| taken(name, **reads))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    if names.is_empty() {
        let with_reads = seen.iter().filter(|(_, reads)| **reads > 0.0);
        let built: Vec<&str> = with_reads.map(|(name, _)| *name).collect();
        if !built.is_empty() && only.is_empty() {
            let built = built.join(",");
            return Err(content(format!(
                "the devices with reads are built on others ({built}), which are not taken by themselves: say --devices {built}"
            )));
        }
        let what = "device with reads after its first report; record with `iostat -x -t -y 1`";
        return Err(Error::Empty { path: path.to_owned(), what: what.to_owned() });
    }
    let mut devices = Devices { names, zone_assumed, ..Devices::default() };
    let mut even: Vec<Even> = devices.names.iter().map(|_| Even::golden()).collect();
    for pair in reports.windows(2) {
        let [before, report] = pair else { continue };
        let length_s = report.at.saturating_sub(before.at) as f64 / SECOND as f64;
        // The clock was set, or the recording was interrupted.
        if !(length_s > 0.0 && length_s <= 86_400.0) {
            devices.passed_over += 1;
            continue;
        }
        for ((number, name), even) in devices.names.iter().enumerate().zip(&mut even) {
            if let Some(row) = report.rows.get(name) {
                devices.windows.push(window(number, before.at, length_s, row, even));
            }
        }
    }
    Ok(devices)
}

/// Number of parts of the assumed distribution from which a window's times are drawn.
const PARTS: u64 = 256;

fn window(number: usize, from: Nanos, length_s: f64, row: &Row, even: &mut Even) -> Window {
    let mut window = Window::new(&QueueName::of_device(number), from / 1000, 1, &[]);
    window.length_s = length_s;
    let count = ((row.reads * length_s).round() as u64).min(1 << 40);
    (window.arrivals, window.completions) = (count, count);
    window.bytes = ((row.read_kb * 1024.0 * length_s) as u64).min(1 << 50);
    window.kernel = Some(KernelDevice {
        reads: count,
        writes: ((row.writes * length_s).round() as u64).min(1 << 40),
        await_ms: if row.reads > 0.0 { row.read_await_ms } else { row.write_await_ms },
        utilisation: row.utilisation,
    });
    if count == 0 {
        return window;
    }
    // The utilisation law treats reads and writes alike. A read cannot be in service for longer
    // than its response time.
    let response_s = row.read_await_ms * 1e-3;
    let service_s = (row.utilisation / (row.reads + row.writes)).min(response_s);
    window.bytes_squared = (window.bytes as f64).powi(2) / count as f64;
    window.length_integral_s = count as f64 * response_s;
    window.busy_s = (count as f64 * service_s).min(length_s);
    let by_number = ServiceByNumber { number: 1, count, sum_s: window.busy_s };
    window.service_by_number.push(by_number);
    let mut times = Times::new(Operation::Get, Outcome::BulkDevice, 0);
    let parts = count.min(PARTS);
    let shift = even.next();
    for part in 0..parts {
        let factor = -(1.0 - (part as f64 + shift) / parts as f64).max(1e-18).ln();
        let times_of_part = count * (part + 1) / parts - count * part / parts;
        let nanos = |s: f64| (s * factor * 1e9) as Nanos;
        times.service.record_many(nanos(service_s), times_of_part);
        times.waiting.record_many(nanos(response_s - service_s), times_of_part);
        times.response.record_many(nanos(response_s), times_of_part);
    }
    window.times.push(times);
    window
}

#[cfg(test)]
#[path = "iostat_tests.rs"]
mod tests;
