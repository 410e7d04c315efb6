//! The model file's text: TOML with comments, read back with every number checked.

use std::fmt::Write;

use toml::{Table, Value};

use crate::error::Error;

use super::model::Model;

/// The largest text that is read.
const BYTES_MAX: usize = 64 << 20;

/// The sections in the order of writing, with what is said above each.
const SECTIONS: [(&str, &str); 13] = [
    ("about", "Where the model comes from."),
    (
        "requests",
        "Memory answers a share q = q0 - alpha * rate; devices answer the rest, front_delay later.\n\
         # Every number has its 95 % interval. Rates in requests/s of one node, times in seconds.",
    ),
    (
        "front",
        "What all share: bytes of a reply, the bytes per second past which no replies went, and how many\n\
         # requests are answered at once, where these are known.",
    ),
    (
        "arrivals",
        "How variable arrivals were: variance over mean of their counts at scales of time, 1 for Poisson;\n\
         # variation and change_rate, if there are, of a rate that changes in bursts.",
    ),
    ("spotify", "The published Spotify model of the same node, by the paper's estimators."),
    ("classes", "Service times of each kind of device; shape: [centre, half width] / mean, share."),
    ("devices", "Devices with nearly equal load; share is that of each device."),
    ("memory", "Response of what memory answers, as clients see it."),
    ("other", "Response of what neither memory nor a device answers."),
    (
        "evidence",
        "What the mean service times rest on, and how much each counted; predictions do not read it.",
    ),
    ("fitted", "The steps that were fitted: measured, and what the model says of them."),
    (
        "held_out",
        "Loads that were not fitted: the model's error there, prediction minus measurement.",
    ),
    ("replicates", "Fits of resampled windows, from which predictions get their intervals."),
];

impl Model {
    /// The model as TOML. [`Error::File`] if a number can't be written.
    pub fn to_toml(&self) -> Result<String, Error> {
        let table = Table::try_from(self).map_err(|e| Error::File(e.to_string()))?;
        let mut out =
            String::from("# A fitted model of Concertina; `predict` and `plan` read it.\n\n");
        for (key, value) in &table {
            if !SECTIONS.iter().any(|s| s.0 == key) {
                pair(&mut out, key, value);
            }
        }
        for (key, comment) in SECTIONS {
            // An empty list would be a key of the section above it; every list may be absent.
            let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
            if let Some(value) = table.get(key).filter(|value| !empty(value)) {
                let _ = write!(out, "\n# {comment}\n");
                section(&mut out, key, value);
            }
        }
        Ok(out)
    }

    /// Reads a model. [`Error::File`] or [`Error::Invalid`] says what is wrong; a file that is read
    /// can be predicted with.
    pub fn from_toml(text: &str) -> Result<Model, Error> {
        if text.len() > BYTES_MAX {
            return Err(Error::File(format!("{} bytes are too many for a model", text.len())));
        }
        let mut model: Model = toml::from_str(text).map_err(|e| Error::File(e.to_string()))?;
        model.follow_edits();
        model.check()?;
        Ok(model)
    }
}

impl Model {
    /// Has the replicates follow parameters that were edited since the model was written.
    fn follow_edits(&mut self) {
        let (requests, replicates) = (&self.requests, &mut self.replicates);
        for (column, parameter) in [
            ("q0", &requests.q0),
            ("alpha", &requests.alpha),
            ("other_share", &requests.other_share),
            ("front_delay", &requests.front_delay),
        ] {
            replicates.follow(column, parameter);
        }
        for class in &self.classes {
            replicates.follow(&format!("mean_s.{}", class.name), &class.service.mean);
            replicates.follow(&format!("scv.{}", class.name), &class.service.scv);
        }
    }
}

/// Whether a value is written on one line: all but tables of tables and arrays of tables.
fn is_inline(value: &Value) -> bool {
    match value {
        Value::Table(table) => table.contains_key("unit") || table.contains_key("t_s"),
        Value::Array(items) => items.iter().all(is_inline),
        _ => true,
    }
}

fn section(out: &mut String, path: &str, value: &Value) {
    match value {
        Value::Table(table) => {
            let _ = writeln!(out, "[{path}]");
            body(out, path, table);
        }
        Value::Array(items) if !is_inline(value) => {
            for item in items.iter().filter_map(Value::as_table) {
                let _ = writeln!(out, "[[{path}]]");
                body(out, path, item);
            }
        }
        _ => pair(out, path, value),
    }
}

fn body(out: &mut String, path: &str, table: &Table) {
    // What a person looks for first goes first.
    let rank = |key: &str| {
        ["title", "name", "class", "rate", "mean", "scv", "q0", "alpha"]
            .iter()
            .position(|k| *k == key)
    };
    let mut pairs: Vec<_> = table.iter().filter(|(_, v)| is_inline(v)).collect();
    pairs.sort_by_key(|(key, _)| rank(key).unwrap_or(usize::MAX));
    for (key, value) in pairs {
        pair(out, key, value);
    }
    for (key, value) in table.iter().filter(|(_, v)| !is_inline(v)) {
        section(out, &format!("{path}.{key}"), value);
    }
}

/// `key = value`, long arrays of arrays or tables one item a line.
fn pair(out: &mut String, key: &str, value: &Value) {
    match value {
        Value::Array(items) if items.iter().any(|i| i.is_array() || i.is_table() || i.is_str()) => {
            let _ = writeln!(out, "{key} = [");
            for item in items {
                let _ = writeln!(out, "  {},", inline(item));
            }
            let _ = writeln!(out, "]");
        }
        _ => {
            let _ = writeln!(out, "{key} = {}", inline(value));
        }
    }
}

/// A value on one line. Parameters are written value first.
fn inline(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let order = ["value", "low", "high", "unit", "t_s", "measured", "predicted", "spotify"];
            let known = order.iter().filter_map(|k| table.get(*k).map(|v| (*k, v)));
            let rest = table.iter().filter(|(k, _)| !order.contains(&k.as_str()));
            let all = known.chain(rest.map(|(k, v)| (k.as_str(), v)));
            let all: Vec<String> = all.map(|(k, v)| format!("{k} = {}", inline(v))).collect();
            format!("{{ {} }}", all.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}
