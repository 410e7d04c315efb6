//! `concertina data push` and `pull`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use http::StatusCode;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::data_print as print;
use super::data_server::ServerArgs;
use crate::cli::output::errln;
use crate::remote::copy;
use crate::remote::server::Refused;

/// Arguments of `push`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data push packages --server http://127.0.0.1:7070
  concertina data push packages --server http://gateway:7070 --token-file token --replace

The server shows the dataset once the copy is complete. A repeated push continues after an interruption. From
then on the server's copy is the dataset: records appended here do not reach it.")]
pub struct PushArgs {
    /// The dataset
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Replace the server's dataset of that name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Arguments of `pull`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data pull packages --server http://127.0.0.1:7070
  concertina data pull packages --server http://gateway:7070 --folder copies
  concertina data export packages --folder copies > packages.txt")]
pub struct PullArgs {
    /// The dataset
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

fn progress(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let template = "{spinner} {elapsed_precise} {bytes} of {total_bytes} {bar:30} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Runs `push`.
pub fn push(args: &PushArgs) -> anyhow::Result<ExitCode> {
    let server = args.server.require()?;
    let bar = progress(args.quiet);
    let done = copy::push(&server, &args.name, &args.folder, args.replace, &bar);
    bar.finish_and_clear();
    let done = done?;
    if let Err(Refused::Status(StatusCode::NOT_FOUND, _)) = server.bytes("/datasets") {
        errln!(
            "concertina: warning: {} serves no datasets (`datasets.path` is not set there): the copy is in its origin, and a server that \
             has it set shows it",
            server.url()
        );
    }
    if args.json {
        return print::value(&json!(done));
    }
    let copy::Pushed { files, bytes, .. } = done;
    print::line(&format!("{}: {bytes} B in {files} files copied to {}", args.name, server.url()))
}

/// Runs `pull`.
pub fn pull(args: &PullArgs) -> anyhow::Result<ExitCode> {
    let server = args.server.require()?;
    let bar = progress(args.quiet);
    let info = copy::pull(&server, &args.name, &args.folder, &bar);
    bar.finish_and_clear();
    let info = info?;
    if args.json {
        return print::value(&json!({ "name": args.name, "info": info }));
    }
    let place = args.folder.join(&args.name);
    print::line(&format!("{}: {} records copied to {}", args.name, info.records, place.display()))
}
