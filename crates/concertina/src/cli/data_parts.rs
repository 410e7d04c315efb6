//! `concertina data parts`: an import whose parts other machines may build.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use configuration::Size;
use dataset::parts::{self, BuiltPart, SplitOptions, SplitSummary};

use super::data_import::{
    PartArgs, RecordArgs, bytes, described, print as print_imported, show_progress, warn_of_format,
};
use super::data_print as print;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data parts split logs/*.jsonl --name logs --parts 8
  concertina data parts build logs --part 0
  concertina data parts join logs

All three see the same files and the same --folder. Each part is built by itself, on any machine, and may be built
again. The dataset is the one that `data import --parts 8` makes of the same files on one machine.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Find out where an input is cut, and write that down for the parts
    Split(SplitArgs),
    /// Build the shard of one part
    Build(BuildArgs),
    /// Make the dataset of all parts
    Join(JoinArgs),
}

#[derive(clap::Args)]
struct SplitArgs {
    /// Files to import, in this order; not compressed, since each part reads its bytes alone
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name of the dataset
    #[arg(long)]
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    #[command(flatten)]
    size: PartArgs,
    #[command(flatten)]
    records: RecordArgs,
    /// Replace an existing dataset of that name when the parts are joined
    #[arg(long)]
    replace: bool,
    /// Begin anew although another split of that name exists: its parts are removed
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args)]
struct BuildArgs {
    /// Name of the dataset
    name: String,
    /// The part, from 0 as in JOB_COMPLETION_INDEX of Kubernetes
    #[arg(long, value_name = "N")]
    part: usize,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Memory limit [default: half of what is available]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args)]
struct JoinArgs {
    /// Name of the dataset
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Replace an existing dataset of that name
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Split(args) => split(args),
        Command::Build(args) => build(args),
        Command::Join(args) => {
            let made = parts::join(&args.folder, &args.name, args.replace)?;
            print_imported(&args.name, &made, args.json)
        }
    }
}

fn split(args: &SplitArgs) -> anyhow::Result<ExitCode> {
    let size =
        args.size.size().context("into how many parts? Add --parts N or --part-size SIZE")?;
    let import = dataset::Options { replace: args.replace, ..args.records.options() };
    let options = SplitOptions { import: &import, again: args.again };
    let (folder, name) = (&args.folder, &args.name);
    let made = show_progress(args.quiet, |tell| {
        parts::split(folder, name, &args.files, size, &options, tell)
    })?;
    warn_of_format(&made.schema, made.warning.as_deref());
    if args.json {
        return print::value(&serde_json::to_value(&made)?);
    }
    let SplitSummary { parts, bytes, part_bytes_max, schema, because, .. } = &made;
    let format = described(schema.format);
    print::line(&format!(
        "{name}: {bytes} B in {parts} parts of up to {part_bytes_max} B\nformat {format} ({because})\n\
         next: concertina data parts build {name} --part N, for N from 0 to {}, then concertina data parts join {name}",
        parts - 1
    ))
}

fn build(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let memory_bytes = args.memory.map(bytes).transpose()?;
    let made = show_progress(args.quiet, |tell| {
        parts::build(&args.folder, &args.name, args.part, memory_bytes, tell)
    })?;
    if args.json {
        return print::value(&serde_json::to_value(&made)?);
    }
    let BuiltPart { part, parts, records, input_bytes, shard_bytes, bad, was_built } = made;
    let before = if was_built { ", built before" } else { "" };
    let bad =
        if bad > 0 { format!("; {bad} cannot be parsed in this format") } else { String::new() };
    print::line(&format!(
        "part {part} of {parts}{before}: {records} records, {input_bytes} B in a shard of {shard_bytes} B{bad}"
    ))
}
