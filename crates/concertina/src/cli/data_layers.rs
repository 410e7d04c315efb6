//! `concertina data layers`: shows and limits the memory of the layers of a served dataset.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use ground::number::decimals;
use serde::Deserialize;
use serde_json::Value;

use super::data_print as print;
use super::data_server::ServerArgs;
use crate::remote::served::Served;
use configuration::Size;

/// Number of recent changes that are printed.
const CHANGES_SHOWN: usize = 5;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data layers packages --server http://127.0.0.1:7070
  concertina data layers packages --server http://127.0.0.1:7070 --bytes 64MiB
  concertina data layers packages --server http://127.0.0.1:7070 --bytes auto

A layer holds samples of a shard's suffix array (sa, for search) or of its inverse (isa, for reading), or
its text; the memory for it makes queries faster. SA and ISA are the sampling rates of the layers: one in
that many positions is held. --bytes applies to the whole dataset and is shared by its shards in
proportion to their sizes.")]
pub struct Args {
    /// The dataset
    name: String,
    /// Limit its layers to this much memory, or let the server decide again (`auto`)
    #[arg(long, value_name = "SIZE|auto", value_parser = budget)]
    bytes: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses a size in bytes, or `auto`, into its form in a URL.
fn budget(text: &str) -> Result<String, String> {
    if text == "auto" {
        return Ok(text.to_owned());
    }
    text.parse::<Size>().map(|size| size.0.to_string())
}

#[derive(Deserialize)]
struct Layers {
    parts: Vec<Part>,
    budget_bytes: u64,
    fixed_bytes: Option<u64>,
    /// Recent decisions of the server, the newest last; a gateway does not report them.
    #[serde(default)]
    changes: Vec<String>,
    /// Nodes that a gateway asked in vain.
    #[serde(default)]
    unanswered: Vec<Unanswered>,
}

#[derive(Deserialize)]
struct Unanswered {
    node: String,
    reason: String,
}

#[derive(Deserialize)]
struct Part {
    /// The node, if a gateway answers for several.
    node: Option<String>,
    part: String,
    records: u64,
    file_bytes: u64,
    queue_length: u64,
    queue_length_average: Option<f64>,
    /// Absent for the log.
    layers: Option<ShardLayers>,
}

#[derive(Deserialize)]
struct ShardLayers {
    sa: Vec<u64>,
    isa: Vec<u64>,
    text_bytes: u64,
    bytes: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let server = args.server.require()?;
    let layers = Served::new(&server, &args.name).layers(args.bytes.as_deref())?;
    if args.json { print::value(&layers) } else { print::line(table(&layers)?.trim_end()) }
}

/// Formats the server's reply as a table.
fn table(layers: &Value) -> anyhow::Result<String> {
    let layers =
        Layers::deserialize(layers).context("cannot parse the description of the layers")?;
    let head = ["part", "records", "file B", "queue", "average", "SA", "ISA", "text B", "layers B"];
    let mut rows = vec![head.map(str::to_owned)];
    for part in &layers.parts {
        let held = part.layers.as_ref();
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let node = part.node.as_ref().map(|node| format!("{node} ")).unwrap_or_default();
        rows.push([
            format!("{node}{}", part.part),
            part.records.to_string(),
            part.file_bytes.to_string(),
            part.queue_length.to_string(),
            or_none(part.queue_length_average.map(|average| decimals(average, 2))),
            or_none(held.map(|held| rates(&held.sa))),
            or_none(held.map(|held| rates(&held.isa))),
            or_none(held.map(|held| held.text_bytes.to_string())),
            or_none(held.map(|held| held.bytes.to_string())),
        ]);
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match at {
                0 => write!(text, "{cell:width$}")?,
                _ => write!(text, "  {cell:>width$}")?,
            }
        }
        text.push('\n');
    }
    let budget = layers.budget_bytes;
    match layers.fixed_bytes {
        Some(fixed) => writeln!(text, "fixed at {fixed} B (--bytes auto removes the limit)")?,
        None => writeln!(text, "by the lengths of queues, within {budget} B for all datasets")?,
    }
    for Unanswered { node, reason } in &layers.unanswered {
        writeln!(text, "not told by {node}: {reason}")?;
    }
    for change in layers.changes.iter().rev().take(CHANGES_SHOWN) {
        writeln!(text, "lately: {change}")?;
    }
    Ok(text)
}

fn rates(rates: &[u64]) -> String {
    if rates.is_empty() {
        return "-".to_owned();
    }
    rates.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_a_table() {
        let answer = serde_json::json!({
            "parts": [
                { "part": "000001", "records": 3, "file_bytes": 900, "queue_length": 0,
                  "queue_length_average": 0.5, "node": "a",
                  "layers": { "sa": [16, 8], "isa": [], "text_bytes": 0, "bytes": 120 } },
                { "part": "log", "records": 1, "file_bytes": 20, "queue_length": 0,
                  "queue_length_average": null },
            ],
            "budget_bytes": 1000, "fixed_bytes": 500, "changes": ["shard/x/000001 grows"],
        });
        let table = table(&answer).unwrap();
        let expected = "\
part      records  file B  queue  average    SA  ISA  text B  layers B
a 000001        3     900      0     0.50  16,8    -       0       120
log             1      20      0        -     -    -       -         -
fixed at 500 B (--bytes auto removes the limit)
lately: shard/x/000001 grows
";
        assert_eq!(table, expected);
        assert!(super::table(&serde_json::json!({ "parts": 1 })).is_err());
    }

    #[test]
    fn a_budget_is_a_size_or_auto() {
        assert_eq!(budget("64MiB").unwrap(), (64 << 20).to_string());
        assert_eq!(budget("auto").unwrap(), "auto");
        assert!(budget("much").is_err());
    }
}
