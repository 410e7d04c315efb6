//! `concertina import`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::load_values::seconds;
use crate::cli::output::{out, outln};
use report::import::{self, Cut, Options};
use report::objective::time;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina import access.log --out runs/imported && concertina fit runs/imported --servers auto
  concertina import access.log access.log.*.gz --from 2026-11-22T08:00:00Z \\
      --to 2026-11-22T12:00:00Z --out runs/morning
  concertina import app.json --fields end=ts,response=took:ms,status=code,path=url --out runs/app
  concertina import access.log --log-format '%h %l %u %t \"%r\" %>s %b %D' --out runs/apache
  kubectl logs deploy/ingress | concertina import - --path '/api/*' --status 2xx --out runs/api
  concertina import access.log --iostat iostat.txt --devices sda,sdb --steps 60s --out runs/disks
  concertina import --prometheus answer.json --iostat iostat.json --out runs/imported

Recognised: nginx (combined, JSON, ingress), Apache, Varnish, HAProxy, Envoy, Caddy, Traefik, AWS ALB, ELB and S3, IIS and
CloudFront, k6, JMeter, vegeta, hey, oha, YCSB raw. What was taken for what is printed: the format, the unit of durations,
whether stamps are starts or ends, and the steps of the clocks. gzip, bzip2 and zstd are read.

A fit needs the clients' side (logs or Prometheus) and the devices' side (iostat), or the clients' side and --servers.
Record iostat with `TZ=UTC S_TIME_FORMAT=ISO iostat -x -t -y 1`; from Prometheus, save the response of
/api/v1/query_range to a query for NAME_bucket. The resolution of a source is recorded in run.toml,
and a fit reports its effect. More: docs/import.md.")]
pub struct Args {
    /// Logs of requests; - for standard input
    #[arg(value_name = "FILES")]
    logs: Vec<PathBuf>,
    /// The run folder to write
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// A log of requests, as FILES
    #[arg(long, value_name = "FILE")]
    access_log: Vec<PathBuf>,
    /// Their format, as nginx, Apache, Envoy, HAProxy or curl has it, or json [default: recognised]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// What values are, by key, column, number or variable: end=NAME or start=NAME, response=NAME:UNIT, status, method,
    /// path, request, key, server, bytes, upstream
    #[arg(long, value_name = "ROLE=NAME,...")]
    fields: Option<String>,
    /// The unit of durations: s, ms, us or ns [default: as the format says, or found by sense]
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Which end of a request is stamped: start or end [default: as the format says, or found by sense]
    #[arg(long, value_name = "END")]
    stamp: Option<String>,
    /// Leave out requests that ended before this time
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Leave out requests that ended at or after this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Only requests whose path begins so, or is so where * stands for any text
    #[arg(long, value_delimiter = ',', value_name = "PATTERN")]
    path: Vec<String>,
    /// Only requests with one of these statuses: 200, 2xx, 200-299
    #[arg(long, value_delimiter = ',', value_name = "STATUS")]
    status: Vec<String>,
    /// The output of `iostat -x -t`, as text or JSON
    #[arg(long, value_name = "FILE")]
    iostat: Option<PathBuf>,
    /// Devices of iostat to take [default: all disks with reads]
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "iostat")]
    devices: Vec<String>,
    /// A saved response of Prometheus to a range query for a histogram's buckets
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Length of a window of the logs
    #[arg(long, default_value = "1s", value_parser = seconds, value_name = "TIME")]
    window: f64,
    /// Cut into steps where the load changes (`levels`), not at all (`one`), or into steps of a length
    /// (`100s`, `5m`)
    #[arg(long, default_value = "levels", value_name = "HOW")]
    steps: Cut,
    /// Skip any number of lines that cannot be parsed, and import records that cannot be true
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
        logs: args.logs.into_iter().chain(args.access_log).collect(),
        log_format: args.log_format,
        fields: args.fields,
        unit: args.unit,
        stamp: args.stamp,
        from: args.from,
        to: args.to,
        paths: args.path,
        statuses: args.status,
        iostat: args.iostat,
        devices: args.devices,
        prometheus: args.prometheus,
        window_s: args.window,
        steps: args.steps,
        lenient: args.lenient,
    })?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&summary)?);
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{} requests in {} windows", summary.requests, summary.windows);
    out!("{}", summary.table());
    let imported = &summary.imported;
    if imported.resolution_s > 0.0 {
        outln!(
            "Response times are known to ±{}, completions to {}.",
            time(imported.resolution_s),
            time(imported.clock_s)
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
