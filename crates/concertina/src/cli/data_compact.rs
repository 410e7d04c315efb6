//! `concertina data compact`: one shard in place of several small ones, without the bytes of deleted records.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use dataset::Writer;
use dataset::compact::{CompactOptions, CompactStep};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::data_print as print;
use crate::cli::output::errln;
use configuration::Size;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data compact packages
  concertina data compact packages --deleted-share 0 --json
  concertina data pull packages --server URL && concertina data compact packages &&
    concertina data push packages --server URL --replace

Records, their ids and an export stay the same. The log is sealed first. Each group of adjacent small shards is
replaced by one; if the command ends early, what was done stays, and nothing is lost. Readers that have the
dataset open keep what they opened.")]
pub(super) struct Args {
    /// The dataset
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Rewrite a large shard, too, if deleted records are at least this share of its bytes; 0: whenever there are any
    #[arg(long, value_name = "SHARE", default_value = "0.1")]
    deleted_share: f64,
    /// The most bytes of records in a joined shard [default: 256MiB, or less if memory does not allow that]
    #[arg(long, value_name = "SIZE")]
    shard_size: Option<Size>,
    /// Memory limit [default: half of what is available]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let share = args.deleted_share;
    ensure!((0.0..=1.0).contains(&share), "--deleted-share {share}: give a share from 0 to 1");
    let bytes = |size: Size| {
        usize::try_from(size.0)
            .with_context(|| format!("{size} exceeds the address space of this machine"))
    };
    let options = CompactOptions {
        deleted_share: share,
        shard_bytes: args.shard_size.map(bytes).transpose()?,
        memory_bytes: args.memory.map(bytes).transpose()?,
    };
    let writer = Writer::open(&args.folder.join(&args.name));
    let mut writer = writer.with_context(|| {
        format!(
            "cannot compact dataset {} in {} (concertina data list; --folder)",
            args.name,
            args.folder.display()
        )
    })?;
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = writer.compact(&options, &mut |step| {
        if let CompactStep::Build { shards, text_bytes } = step {
            bar.set_message(format!("one shard of {shards}, {text_bytes} B of records"));
        }
    });
    bar.finish_and_clear();
    let done = done?;
    for skipped in &done.skipped {
        errln!("concertina: warning: not compacted: {skipped}");
    }
    if args.json {
        return print::value(&json!(done));
    }
    print::line(&format!(
        "{}: {} shards of {} B (before: {} of {} B); {} deleted records left out",
        args.name,
        done.shards,
        done.shard_bytes,
        done.shards_before,
        done.shard_bytes_before,
        done.reclaimed
    ))
}
