//! How a file was read, for people and for programs.

use std::path::PathBuf;

use super::excerpt::excerpt;
use super::layout::{Column, Layout, Place, Role, Side};
use super::time::Unit;
use crate::objective::time;

/// How a file was read.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct FileSummary {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: String,
    /// The unit of its durations.
    pub unit: String,
    /// Why it is that.
    pub unit_why: String,
    /// Which end of a request its stamps are: `start`, `end` or `both`.
    pub stamp: String,
    /// Why it is that.
    pub stamp_why: String,
    /// The step of its stamps, seconds.
    pub clock_s: f64,
    /// The step of its durations, seconds.
    pub resolution_s: f64,
    /// Which values were taken for what, as `--fields` names them, of a format whose values have names.
    pub fields: String,
    /// Whether it has statuses; without them all requests count as answered.
    pub has_status: bool,
    /// Lines, but for empty ones.
    pub lines: u64,
    /// Lines that could not be parsed.
    pub broken: u64,
    /// Requests that were imported.
    pub requests: u64,
}

impl FileSummary {
    /// Takes what a layout says.
    pub(super) fn describe(&mut self, layout: &Layout) {
        let response = layout.columns.iter().find(|c| c.role == Role::Response);
        let own = response.and_then(|column| column.unit);
        self.format = layout.name.clone();
        self.unit = match own.or(layout.unit) {
            _ if layout.has_both_ends() => String::new(),
            Some(unit) => unit.name().to_owned(),
            None => Unit::Seconds.name().to_owned(),
        };
        self.unit_why = match own {
            Some(_) => "as the format says".to_owned(),
            None => layout.unit_why.clone(),
        };
        self.stamp = match layout.side {
            _ if layout.has_both_ends() => "both".to_owned(),
            Some(side) => side.name().to_owned(),
            None => Side::End.name().to_owned(),
        };
        self.stamp_why = layout.side_why.clone();
        self.fields = fields(layout);
        self.has_status = layout.has(Role::Status);
    }

    /// What was taken for what, in a line.
    pub(super) fn sentence(&self) -> String {
        let FileSummary { path, format, unit, unit_why, stamp, stamp_why, .. } = self;
        let why = |why: &str| if why.is_empty() { String::new() } else { format!(" ({why})") };
        let duration = match stamp.as_str() {
            "both" => "durations are the end less the start".to_owned(),
            _ => format!("durations in {unit}{}", why(unit_why)),
        };
        let stamps = match stamp.as_str() {
            "both" => "both ends of a request are stamped".to_owned(),
            side => format!("stamps are the {side} of a request{}", why(stamp_why)),
        };
        let values = match self.fields.as_str() {
            "" => String::new(),
            fields => format!("; its values are {fields}"),
        };
        let no_status = if self.has_status {
            ""
        } else {
            "; no value is a status, so all requests count as answered (--fields status=NAME says which is)"
        };
        format!(
            "{}: {format}; {duration}, known to {}; {stamps}, known to {}{values}{no_status}.",
            path.display(),
            time(self.resolution_s),
            time(self.clock_s)
        )
    }
}

/// Which values are taken for what, as `--fields` names them.
fn fields(layout: &Layout) -> String {
    let field = |column: &Column| {
        let role = match (column.role, layout.side) {
            (Role::Stamp, Some(side)) => side.name(),
            (role, _) => role.name()?,
        };
        match &column.place {
            Place::Name(name) => Some(format!("{role}={}", excerpt(name))),
            Place::Number(_) => None,
        }
    };
    let all: Vec<String> = layout.columns.iter().filter_map(field).collect();
    all.join(",")
}
