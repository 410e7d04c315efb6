//! `concertina data import`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use shard::index::{self, Progress};
use shard::record::Format;

use crate::config::Size;
use crate::dataset::{self, Step};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  apt-cache dumpavail | concertina data import - --format stanzas --name packages
  concertina data import cities.csv --name cities --key name --order lat --order lon
  concertina data import logs/*.jsonl --name logs --sa-sampling 64 --isa-sampling 64
  concertina data import src/*.rs --format files --name sources

Lower sampling rates are faster and larger: 16 and 16 take about a quarter of the input more than
64 and 64.")]
pub struct Args {
    /// Files, one after the other; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name of the dataset
    #[arg(long)]
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// json, csv, tsv, stanzas, lines or files; found from the first records if not given
    #[arg(long, value_parser = super::data::format)]
    format: Option<Format>,
    /// The attribute that records are got by
    #[arg(long, value_name = "ATTRIBUTE")]
    key: Option<String>,
    /// Keep a table of this attribute's numbers, for ranges (about 8.3 bytes a number)
    #[arg(long, value_name = "ATTRIBUTE")]
    order: Vec<String>,
    /// One of so many positions is marked for searches
    #[arg(long, value_name = "N", default_value = "32")]
    sa_sampling: u32,
    /// One of so many positions is marked for reading
    #[arg(long, value_name = "N", default_value = "32")]
    isa_sampling: u32,
    /// Input of each shard; building takes some six times as much memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    shard_size: Size,
    /// Replace a dataset of that name
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = dataset::Options {
        format: args.format,
        key: args.key.clone(),
        orders: args.order.clone(),
        index: index::Options { sa_sampling: args.sa_sampling, isa_sampling: args.isa_sampling },
        shard_bytes: usize::try_from(args.shard_size.0)?,
        replace: args.replace,
    };
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    let mut building = String::new();
    let made =
        dataset::import(&args.folder, &args.name, &args.files, &options, &mut |step| match step {
            Step::Read(bytes) => bar.set_message(format!("{} MiB read", bytes >> 20)),
            Step::Build { shard, text_bytes, memory_bytes } => {
                building = format!("shard {shard}");
                let (text, memory) = (mib(text_bytes), mib(memory_bytes));
                bar.println(format!(
                    "{building}: {text} MiB of records, building takes up to {memory} MiB of memory"
                ));
            }
            Step::Progress(Progress::Sorting) => bar.set_message(format!("{building}: sorting")),
            Step::Progress(Progress::Encoding { done, all }) => {
                bar.set_message(format!("{building}: encoding, {} %", 100 * done / all.max(1)));
            }
            Step::Progress(_) => bar.set_message(format!("{building}: writing")),
        })?;
    bar.finish_and_clear();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&made)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let percent = 100.0 * made.shard_bytes as f64 / (made.input_bytes as f64).max(1.0);
    writeln!(
        out,
        "{}: {} records, {} B in {} shards of {} B ({percent:.1} % of the input)",
        args.name, made.records, made.input_bytes, made.shards, made.shard_bytes
    )?;
    let key = made.schema.key.as_deref().unwrap_or("none");
    writeln!(out, "format {}, key {key}", described(made.schema.format))?;
    if made.bad > 0 {
        writeln!(
            out,
            "{} records cannot be read in this format; they are kept as text:",
            made.bad
        )?;
        for bad in &made.first_bad {
            writeln!(out, "  {bad}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A format in words.
fn described(format: Format) -> String {
    match format {
        Format::JsonLines => "json".to_owned(),
        Format::Csv { delimiter: b'\t', .. } => "tsv".to_owned(),
        Format::Csv { delimiter, .. } => format!("csv, fields between {:?}", char::from(delimiter)),
        Format::Stanzas => "stanzas".to_owned(),
        Format::Lines => "lines".to_owned(),
        Format::Files => "files".to_owned(),
        other => format!("{other:?}"),
    }
}
