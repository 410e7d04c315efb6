//! Prints the results of `concertina data`, whether they come from files or from a server.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use crate::cli::output::{Output, errln, output, unless_unread};
use crate::remote::served::{Page, Record};
use anyhow::Context;
use ground::number::{decimals, percent};
use serde::Deserialize;
use serde_json::{Value, json};

/// Prints JSON on standard output.
pub(super) fn value(value: &Value) -> anyhow::Result<ExitCode> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Prints a line on standard output.
pub(super) fn line(text: &str) -> anyhow::Result<ExitCode> {
    writeln!(output(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

/// The description of a dataset; see [`dataset::Info`].
#[derive(Deserialize)]
struct Described {
    records: u64,
    deleted: u64,
    in_log: u64,
    input_bytes: u64,
    shard_bytes: u64,
    footprint: f64,
    attributes: Vec<String>,
    key: Option<String>,
    shards: Vec<Value>,
}

fn described(info: &Value) -> anyhow::Result<Described> {
    Described::deserialize(info).context("cannot parse the description of a dataset")
}

/// Prints a list of datasets: each has a `name` and its `info`, or an `error`.
pub(super) fn list(items: Vec<Value>, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(output());
    for item in &items {
        let name = item.get("name").and_then(Value::as_str).context("a dataset has no name")?;
        match item.get("info") {
            Some(info) if !as_json => {
                let Described { records, shard_bytes, footprint, .. } = described(info)?;
                writeln!(
                    out,
                    "{name}\t{records} records\t{shard_bytes} B\t{}",
                    percent(footprint, 1)
                )?;
            }
            Some(_) => {}
            None => {
                let error = item.get("error").and_then(Value::as_str).unwrap_or("no reply");
                errln!("concertina: {name}: {error}");
            }
        }
    }
    out.flush()?;
    drop(out);
    if as_json { value(&Value::Array(items)) } else { Ok(ExitCode::SUCCESS) }
}

/// Prints the contents and the sizes of a dataset.
pub(super) fn info(info: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        return value(info);
    }
    let info = described(info)?;
    let mut out = BufWriter::new(output());
    writeln!(out, "records     {} ({} of them in the log)", info.records, info.in_log)?;
    writeln!(out, "deleted     {}", info.deleted)?;
    writeln!(out, "input       {} B", info.input_bytes)?;
    writeln!(out, "shards      {} of {} B", info.shards.len(), info.shard_bytes)?;
    writeln!(out, "footprint   {} of the input", decimals(info.footprint, 3))?;
    writeln!(out, "key         {}", info.key.as_deref().unwrap_or("none"))?;
    for (number, line) in listed(&info.attributes).iter().enumerate() {
        writeln!(out, "{:12}{line}", if number == 0 { "attributes" } else { "" })?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Names in lines of up to 88 characters, at least one.
fn listed(names: &[String]) -> Vec<String> {
    const WIDTH: usize = 88;
    let mut lines = vec![String::new()];
    for (number, name) in names.iter().enumerate() {
        let comma = if number + 1 < names.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = format!("{name}{comma}"),
            Some(line) if line.chars().count() + name.chars().count() + 2 <= WIDTH => {
                line.push_str(&format!(" {name}{comma}"));
            }
            _ => lines.push(format!("{name}{comma}")),
        }
    }
    lines
}

/// How records are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Their bytes.
    Plain,
    /// One JSON value with all of them, at the end.
    Json,
    /// A JSON object for each, on a line of its own.
    JsonLines,
}

/// Prints records: immediately, or as one JSON value at the end.
pub(super) struct Records {
    format: Format,
    out: BufWriter<Output>,
    /// The records to print as JSON.
    all: Vec<Record>,
    count: u64,
}

impl Records {
    pub(super) fn new(format: Format) -> Records {
        let out = BufWriter::new(output());
        Records { format, out, all: Vec::new(), count: 0 }
    }

    /// Shows what was printed so far.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }

    /// Whether no record was printed.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn push(&mut self, record: Record) -> anyhow::Result<()> {
        self.count += 1;
        match self.format {
            Format::Plain => {}
            Format::Json => {
                self.all.push(record);
                return Ok(());
            }
            Format::JsonLines => {
                serde_json::to_writer(&mut self.out, &record).map_err(io::Error::from)?;
                return Ok(self.out.write_all(b"\n")?);
            }
        }
        self.out.write_all(record.bytes())?;
        if !record.bytes().ends_with(b"\n") {
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Ends the output after the last record. If the records are a page of a longer list, also
    /// prints how to continue.
    pub(super) fn finish(mut self, page: Option<&Page>) -> anyhow::Result<ExitCode> {
        let Some(page) = page else {
            if self.format == Format::Json {
                let value = json!({ "records": self.all });
                writeln!(self.out, "{}", serde_json::to_string_pretty(&value)?)?;
            }
            self.out.flush()?;
            return Ok(ExitCode::SUCCESS);
        };
        if self.format == Format::Json {
            let mut value = json!({ "records": self.all, "next": page.next,
                "has_more": page.has_more, "located": page.located, "verified": page.verified });
            if let (false, Some(value)) = (page.missing.is_empty(), value.as_object_mut()) {
                value.insert("missing".to_owned(), json!(page.missing));
            }
            unless_unread(writeln!(self.out, "{}", serde_json::to_string_pretty(&value)?))?;
        }
        unless_unread(self.out.flush())?;
        for part in &page.missing {
            errln!("concertina: no node answered for part {part}: its records are missing");
        }
        if self.format != Format::Json && io::stderr().is_terminal() {
            match page.next {
                Some(next) => errln!("{} records; more: --after {next}", self.count),
                None if page.has_more => errln!("{} records; there are more", self.count),
                None => errln!("{} records", self.count),
            }
        }
        // The same exit code as grep: failure if nothing matched.
        Ok(if self.count == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_in_lines() {
        let check = |names: &[&str], expected: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(listed(&names), expected);
        };
        check(&[], &[""]);
        check(&["a", "b"], &["a, b"]);
        let long = "x".repeat(60);
        check(&[&long, "a", &long], &[&format!("{long}, a,"), &long]);
    }

    #[test]
    fn records_are_text_or_bytes_in_json_and_come_back() {
        for bytes in [&b"a\n"[..], b"", b"\xff\x00"] {
            let record = Record::new(7, bytes.to_vec());
            let text = serde_json::to_string(&record).unwrap();
            let back: Record = serde_json::from_str(&text).unwrap();
            assert_eq!(back, record);
            assert_eq!(back.bytes(), bytes);
        }
    }
}
