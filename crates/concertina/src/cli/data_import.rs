//! `concertina data import`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use ground::number;
use indicatif::{ProgressBar, ProgressStyle};
use shard::index::{self, Progress};
use shard::record::detect::Header;
use shard::record::{Format, Schema};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::output::{errln, output};
use configuration::Size;
use dataset::parts::{PartSize, import_parts};
use dataset::{self, Imported, Step};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  apt-cache dumpavail | concertina data import - --format stanzas --name packages
  concertina data import cities.csv --name cities --key name --order lat --order lon
  concertina data import logs/*.jsonl --name logs --sa-sampling 64 --isa-sampling 64
  concertina data import src/*.rs --format files --name sources
  concertina data import big.csv --name big --memory 2GiB
  concertina data import people.csv.gz --name people --header no --columns name,age
  concertina data import big.csv --name big --parts 8

Lower sampling rates are faster and larger: 16 and 16 take about a third of the input more than
64 and 64.")]
pub struct Args {
    /// Files to import, in this order; `-` for standard input. gzip, bzip2 and zstd are decompressed
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name of the dataset
    #[arg(long)]
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    #[command(flatten)]
    records: RecordArgs,
    /// Memory limit; shards are made smaller, and fewer at a time, to stay within it [default: half
    /// of what is available]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Number of shards built concurrently [default: one for each core, if memory allows]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Input of each shard; building one takes up to eight times as much memory [default: 256MiB,
    /// or less if memory does not allow that]
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["parts", "part_size"])]
    shard_size: Option<Size>,
    #[command(flatten)]
    size: PartArgs,
    /// Replace an existing dataset of that name
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// How the records of an input are read and indexed.
#[derive(clap::Args)]
pub(super) struct RecordArgs {
    /// json, csv, tsv, stanzas, lines or files [default: detected from the first records]
    #[arg(long, value_parser = format)]
    format: Option<Format>,
    /// Whether the first row of a table names its columns [default: detected]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    header: Option<bool>,
    /// The names of a table's columns, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// The attribute that identifies a record (data get --key)
    #[arg(long, value_name = "ATTRIBUTE")]
    key: Option<String>,
    /// Keep a table of this attribute's numbers, for ranges (about 8.3 bytes a number)
    #[arg(long, value_name = "ATTRIBUTE")]
    order: Vec<String>,
    /// Sampling rate for searches: one in this many positions is marked
    #[arg(long, value_name = "N", default_value = "32")]
    sa_sampling: u32,
    /// Sampling rate for reading: one in this many positions is marked
    #[arg(long, value_name = "N", default_value = "32")]
    isa_sampling: u32,
}

impl RecordArgs {
    /// The options of an import of such records.
    pub(super) fn options(&self) -> dataset::Options {
        dataset::Options {
            format: self.format,
            header: match self.header {
                Some(true) => Header::Yes,
                Some(false) => Header::No,
                None => Header::Detect,
            },
            columns: self.columns.clone(),
            key: self.key.clone(),
            orders: self.order.clone(),
            index: index::Options {
                sa_sampling: self.sa_sampling,
                isa_sampling: self.isa_sampling,
            },
            ..dataset::Options::default()
        }
    }
}

/// Into how many parts an input is split.
#[derive(clap::Args)]
#[group(multiple = false)]
pub(super) struct PartArgs {
    /// Split the input into this many parts, and make a shard of each (data parts)
    #[arg(long, value_name = "N")]
    parts: Option<usize>,
    /// Split the input into parts of about this size
    #[arg(long, value_name = "SIZE")]
    part_size: Option<Size>,
}

impl PartArgs {
    /// The size of the parts, if the input is to be split.
    pub(super) fn size(&self) -> Option<PartSize> {
        let of_bytes = self.part_size.map(|size| PartSize::Bytes(size.0));
        self.parts.map(PartSize::Count).or(of_bytes)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = dataset::Options {
        shard_bytes: args.shard_size.map(bytes).transpose()?,
        jobs: args.jobs,
        memory_bytes: args.memory.map(bytes).transpose()?,
        replace: args.replace,
        ..args.records.options()
    };
    remove_if_ended()?;
    let made = show_progress(args.quiet, |tell| match args.size.size() {
        Some(size) => import_parts(&args.folder, &args.name, &args.files, size, &options, tell),
        None => dataset::import(&args.folder, &args.name, &args.files, &options, tell),
    });
    // An import whose folder was taken away fails, too: what ended it is the signal, whose exit code counts.
    let _ended = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    print(&args.name, &made?, args.json)
}

/// Runs a part of an import and shows its progress.
pub(super) fn show_progress<T>(
    quiet: bool,
    work: impl FnOnce(&mut dyn FnMut(Step)) -> dataset::Result<T>,
) -> dataset::Result<T> {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let mut shown = ImportProgress::default();
    let made = work(&mut |step| {
        if let Some(line) = shown.line(&step) {
            bar.println(line);
        }
        bar.set_message(shown.take(step));
    });
    bar.finish_and_clear();
    made
}

/// Warns that a format is a mere fallback.
pub(super) fn warn_of_format(schema: &Schema, warning: Option<&str>) {
    if let Some(warning) = warning {
        errln!("concertina: warning: imported as {}: {warning}", described(schema.format));
    }
}

/// Prints what was imported.
pub(super) fn print(name: &str, made: &Imported, json: bool) -> anyhow::Result<ExitCode> {
    warn_of_format(&made.schema, made.warning.as_deref());
    let mut out = output();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(made)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let share = made.shard_bytes as f64 / (made.input_bytes as f64).max(1.0);
    writeln!(
        out,
        "{}: {} records, {} B in {} shards of {} B ({} of the input)",
        name,
        made.records,
        made.input_bytes,
        made.shards,
        made.shard_bytes,
        number::percent(share, 1)
    )?;
    let key = made.schema.key.as_deref().unwrap_or("none");
    let format = described(made.schema.format);
    writeln!(out, "format {format}, key {key} ({})", made.because)?;
    if made.bad > 0 {
        writeln!(
            out,
            "{} records cannot be parsed in this format; they are stored as text:",
            made.bad
        )?;
        for bad in &made.first_bad {
            writeln!(out, "  {bad}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

pub(super) fn bytes(size: Size) -> anyhow::Result<usize> {
    usize::try_from(size.0)
        .with_context(|| format!("{size} exceeds the address space of this machine"))
}

/// Held by the thread that removes an unfinished dataset and ends the process.
static ENDING: Mutex<()> = Mutex::new(());

/// Makes Ctrl-C and SIGTERM remove the unfinished dataset and end the process. Its threads are not
/// waited for, because sorting cannot be interrupted.
fn remove_if_ended() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut ended, mut asked) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let listen = move || {
        let code = runtime.block_on(async {
            // The exit code that a shell reports for a signal.
            tokio::select! { _ = ended.recv() => 143, _ = asked.recv() => 130 }
        });
        let _ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
        dataset::discard();
        std::process::exit(code)
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
    thread.context("cannot listen for signals")?;
    Ok(())
}

/// The state behind the progress display.
#[derive(Default)]
struct ImportProgress {
    read_bytes: u64,
    /// The shards that are being built, each with its completed share.
    shards: BTreeMap<u64, String>,
}

impl ImportProgress {
    /// The log line for a step, if it has one.
    fn line(&self, step: &Step) -> Option<String> {
        let Step::Build { shard, text_bytes, memory_bytes, process_bytes } = step else {
            return None;
        };
        let mib = |bytes: &usize| bytes.div_ceil(1 << 20);
        Some(format!(
            "shard {shard}: {} MiB of records; building it takes up to {} MiB of memory, the process {} MiB",
            mib(text_bytes),
            mib(memory_bytes),
            mib(process_bytes)
        ))
    }

    /// Updates the state after a step, and returns the progress message.
    fn take(&mut self, step: Step) -> String {
        match step {
            Step::Read(bytes) => self.read_bytes = bytes,
            Step::Build { shard, .. } => {
                self.shards.insert(shard, "splitting".to_owned());
            }
            Step::Progress { shard, progress } => {
                let done = match progress {
                    Progress::Sorting => "sorting".to_owned(),
                    Progress::Encoding { done, all } => {
                        format!("encoding, {} %", 100 * done / all.max(1))
                    }
                    _ => "writing".to_owned(),
                };
                self.shards.insert(shard, done);
            }
            Step::Built { shard } => {
                self.shards.remove(&shard);
            }
        }
        let shards = self.shards.iter().map(|(shard, done)| format!("; shard {shard}: {done}"));
        format!("{} MiB read{}", self.read_bytes >> 20, shards.collect::<String>())
    }
}

/// Describes a format.
pub(super) fn described(format: Format) -> String {
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

/// Parses a format, for `--format`.
fn format(text: &str) -> Result<Format, String> {
    text.parse::<Format>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_what_is_done_of_every_shard() {
        let mut shown = ImportProgress::default();
        assert_eq!(shown.take(Step::Read(3 << 20)), "3 MiB read");
        for shard in [1, 2] {
            let (memory_bytes, process_bytes) = (9 << 20, 20 << 20);
            let step = Step::Build { shard, text_bytes: 1 << 20, memory_bytes, process_bytes };
            assert!(shown.line(&step).unwrap().contains("1 MiB of records"));
            shown.take(step);
        }
        let progress = Progress::Encoding { done: 1, all: 4 };
        let text = shown.take(Step::Progress { shard: 2, progress });
        assert_eq!(text, "3 MiB read; shard 1: splitting; shard 2: encoding, 25 %");
        assert_eq!(shown.take(Step::Built { shard: 1 }), "3 MiB read; shard 2: encoding, 25 %");
    }
}
