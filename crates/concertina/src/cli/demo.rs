//! `concertina demo`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cli::output::{out, outln};
use crate::demo::{self, Plan};
use crate::lab;
use report;

/// The trace that the demo uses if it is present beside the project.
const TRACE: &str = "../shared/data/traces/twitter_cluster52_first_2m.csv.zst";

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  concertina demo
  concertina demo --trace my-requests.csv --dir /tmp/demo

A trace is a CSV file with the header time_ms,key,size,op; a file ending in .zst is decompressed.")]
pub struct Args {
    /// Replay the keys and sizes of this trace
    /// [default: the Twitter slice of ../shared/data, or generated keys with its statistics]
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Folder for all output files [default: concertina-demo/TIME]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let dir = args.dir.unwrap_or_else(|| Path::new("concertina-demo").join(seconds.to_string()));
    let trace = args.trace.or_else(|| Some(PathBuf::from(TRACE)).filter(|path| path.exists()));
    lab::end_on_signals(format!("what was measured so far is in {}", dir.display()))?;
    let finished = demo::run(&Plan { dir, trace, quiet: args.quiet });
    lab::wait_if_ending();
    let finished = finished?;
    if args.json {
        let json = serde_json::json!({
            "comparison": finished.comparison,
            "model": finished.model_file,
            "report": finished.report,
        });
        outln!("{}", serde_json::to_string_pretty(&json)?);
        return Ok(ExitCode::SUCCESS);
    }
    outln!();
    out!("{}", report::table(&finished.comparison));
    outln!("model:  {}", finished.model_file.display());
    outln!("report: {}", finished.report.display());
    Ok(ExitCode::SUCCESS)
}
