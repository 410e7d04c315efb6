//! `concertina import`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::load::seconds;
use crate::cli::output::outln;
use report::import::{self, Options};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina import --access-log access.log --out runs/imported
  concertina import --access-log access.log --iostat iostat.txt --devices sda,sdb \\
      --steps 60s --out runs/imported && concertina fit runs/imported
  concertina import --access-log access.log --out runs/imported \\
      --log-format '$msec $status $request_time \"$request\"'
  zcat access.log.*.gz | concertina import --access-log - --log-format json --out runs/imported
  concertina import --prometheus answer.json --iostat iostat.json --out runs/imported

A fit needs the clients' side (an access log or Prometheus) and the devices' side (iostat).
Record iostat with `TZ=UTC S_TIME_FORMAT=ISO iostat -x -t -y 1`; from Prometheus, save the response of
/api/v1/query_range to a query for NAME_bucket. The resolution of a source is recorded in run.toml,
and a fit reports its effect. More: docs/import.md.")]
pub struct Args {
    /// The run folder to write
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// An access log; - for standard input; .zst files are decompressed
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Its format as an nginx log_format, or json [default: combined and $request_time]
    #[arg(long, value_name = "FORMAT", requires = "access_log")]
    log_format: Option<String>,
    /// The output of `iostat -x -t`, as text or JSON
    #[arg(long, value_name = "FILE")]
    iostat: Option<PathBuf>,
    /// Devices of iostat to take [default: all disks with reads]
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "iostat")]
    devices: Vec<String>,
    /// A saved response of Prometheus to a range query for a histogram's buckets
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Length of a window of the access log
    #[arg(long, default_value = "1s", value_parser = seconds, value_name = "TIME")]
    window: f64,
    /// Cut into steps of this length [default: one step]
    #[arg(long, value_parser = seconds, value_name = "TIME")]
    steps: Option<f64>,
    /// Skip any number of lines that cannot be parsed
    #[arg(long)]
    lenient: bool,
    /// Print a summary of the import as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let summary = import::import(&Options {
        out: args.out,
        access_log: args.access_log,
        log_format: args.log_format,
        iostat: args.iostat,
        devices: args.devices,
        prometheus: args.prometheus,
        window_s: args.window,
        steps_s: args.steps,
        lenient: args.lenient,
    })?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&summary)?);
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{} requests in {} windows", summary.requests, summary.windows);
    for step in &summary.steps {
        let length_s = step.end_unix_us.saturating_sub(step.start_unix_us) as f64 * 1e-6;
        let rate = step.rate.unwrap_or(0.0);
        outln!("Step {}: {rate:.1} requests/s for {length_s:.1} s", step.index);
    }
    let imported = &summary.imported;
    if imported.resolution_s > 0.0 {
        outln!(
            "Response times are known to ±{} ms, completions to {} s.",
            imported.resolution_s * 1e3,
            imported.clock_s
        );
    }
    if !imported.edges_s.is_empty() {
        outln!("Response times are known by bucket: {} bounds.", imported.edges_s.len());
    }
    for note in &imported.notes {
        outln!("{note}");
    }
    outln!("\nWrote {}.", summary.out.display());
    Ok(ExitCode::SUCCESS)
}
