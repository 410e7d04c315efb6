//! The options of an import, and which of them go together.

use std::path::{Path, PathBuf};

use super::error::Error;
use super::layout::Side;
use super::steps::Cut;
use super::time::Unit;
use crate::objective::time;

/// The options of an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The run folder to write.
    pub out: PathBuf,
    /// Logs of requests, in any order. `-` is the standard input; gzip, bzip2 and zstd are decompressed.
    pub logs: Vec<PathBuf>,
    /// Their format as a server's configuration has it, or `json`; `None` recognises it.
    pub log_format: Option<String>,
    /// What their values are: `end=ts,response=duration:ms,status=code`.
    pub fields: Option<String>,
    /// The unit of durations, if the logs do not say it: `s`, `ms`, `us` or `ns`.
    pub unit: Option<String>,
    /// Which end of a request a stamp is, if the logs do not say it: `start` or `end`.
    pub stamp: Option<String>,
    /// Leave out requests that ended before this time.
    pub from: Option<String>,
    /// Leave out requests that ended at or after this time.
    pub to: Option<String>,
    /// Leave out requests of other paths than these beginnings, or patterns with `*`.
    pub paths: Vec<String>,
    /// Leave out requests of other statuses than these: `200`, `2xx`, `200-299`.
    pub statuses: Vec<String>,
    /// The output of `iostat -x -t`.
    pub iostat: Option<PathBuf>,
    /// Devices to take from it; if empty, all disks with reads.
    pub devices: Vec<String>,
    /// A saved response of Prometheus.
    pub prometheus: Option<PathBuf>,
    /// Length of a window made from the access log, seconds. A log of many windows has longer ones.
    pub window_s: f64,
    /// How the input is cut into steps.
    pub steps: Cut,
    /// Skip any number of lines that cannot be parsed, and import records that cannot be true.
    pub lenient: bool,
}

pub(super) fn option(reason: impl Into<String>) -> Error {
    Error::Option { reason: reason.into() }
}

impl Options {
    /// That the options do not contradict each other, and that none would be ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Option`].
    pub(super) fn check(&self) -> Result<(), Error> {
        let others = [&self.iostat, &self.prometheus].into_iter().flatten();
        let sources: Vec<&PathBuf> = self.logs.iter().chain(others).collect();
        if sources.is_empty() {
            return Err(option(
                "nothing to import: name the logs, or give --iostat or --prometheus",
            ));
        }
        if !self.logs.is_empty() && self.prometheus.is_some() {
            return Err(option(
                "an access log and Prometheus both describe the clients' side; import them into two run \
                 folders, and fit with the log's, which has the finer resolution",
            ));
        }
        if self.logs.is_empty()
            && let Some(option_of_logs) =
                self.of_logs().find_map(|(name, is_given)| is_given.then_some(name))
        {
            return Err(option(format!(
                "{option_of_logs} is for logs of requests, and none is given"
            )));
        }
        if self.unit.is_some() && self.logs.is_empty() && self.prometheus.is_none() {
            return Err(option(
                "--unit is for logs of requests and for --prometheus, and neither is given",
            ));
        }
        if sources.iter().filter(|path| path.as_path() == Path::new("-")).count() > 1 {
            return Err(option("only one file can be `-`, the standard input"));
        }
        if !(1e-3..=86_400.0).contains(&self.window_s) {
            let window = time(self.window_s);
            return Err(option(format!(
                "invalid --window {window}: it must be between 1 ms and one day"
            )));
        }
        match self.steps {
            Cut::Every(s) if !(self.window_s..=1e9).contains(&s) => Err(option(format!(
                "invalid --steps {}: a step must last at least one window, {}",
                time(s),
                time(self.window_s)
            ))),
            _ => Ok(()),
        }
    }

    /// The options that only logs of requests have, and whether they are given.
    fn of_logs(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("--log-format", self.log_format.is_some()),
            ("--fields", self.fields.is_some()),
            ("--stamp", self.stamp.is_some()),
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--path", !self.paths.is_empty()),
            ("--status", !self.statuses.is_empty()),
        ]
        .into_iter()
    }

    /// The unit of durations.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if it is none.
    pub(super) fn unit(&self) -> Result<Option<Unit>, Error> {
        let Some(name) = self.unit.as_deref() else { return Ok(None) };
        let unit = Unit::parse(name);
        unit.map(Some).ok_or_else(|| option(format!("--unit {name} is none of s, ms, us and ns")))
    }

    /// The end of a request that stamps are.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if it is none.
    pub(super) fn side(&self) -> Result<Option<Side>, Error> {
        match self.stamp.as_deref() {
            None => Ok(None),
            Some("start") => Ok(Some(Side::Start)),
            Some("end") => Ok(Some(Side::End)),
            Some(other) => Err(option(format!("--stamp {other} is neither start nor end"))),
        }
    }
}
