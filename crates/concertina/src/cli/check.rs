//! `concertina check`.

use std::path::PathBuf;
use std::process::ExitCode;

use model::fit::WatchOptions;
use model::laws::TOLERANCE;

use crate::cli::output::{errln, out, outln};
use report::check::{Checked, Watched, check, watch};
use report::grid::printable;
use report::objective::share;
use report::read_model;
use report::{Selection, StepChoice};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina check runs/load runs/server            every law that applies, at every queue and step
  concertina check runs/measured --tolerance 5%     any other service: the clients' side alone
  concertina check runs/server                      a server's run alone, as one step
  concertina check runs/load runs/a runs/b --json   a cluster: the queues of each node separately
  concertina check runs/today --model model.toml    does the model still describe this server?

Laws: Little L = X·W, utilisation U = X·S/m, interactive R = N/X − Z, forced flow X_k = V_k·X, demand
bound X ≤ 1/max D. They hold for any steady system, so a deviation means a fault of the measurement, or
that the load was not steady. docs/check.md explains the usual cause of each deviation.

With --model the windows are searched in order of time for a change of the fitted parameters: the
service time of each class of devices, the hit ratio and the variability of arrivals. A change is
reported with its parameter, start and size.

Exit codes: 0 no law is broken and the model still holds; 1 the model does not hold, or a law deviates by
more than the tolerance and more than chance explains, or a run has no windows, or its windows start after or
stop before its steps, or the runs cannot be read.")]
pub struct Args {
    /// Run folders: of load generators, servers, or both
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The largest relative deviation at which a law holds
    #[arg(long, default_value_t = TOLERANCE, value_name = "SHARE", value_parser = share)]
    tolerance: f64,
    /// Steps to check: numbers (0,2 or 0-3) or rates (1500/s) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    steps: Vec<StepChoice>,
    /// Combine runs of different machines, whose clocks agree
    #[arg(long)]
    across_machines: bool,
    /// A fitted model: report whether it still describes the measurements, and what changed
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Windows between two false alarms of --model, on average at least
    #[arg(
        long,
        value_name = "WINDOWS",
        requires = "model",
        default_value_t = WatchOptions::default().intervals
    )]
    false_alarm: f64,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(serde::Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    checked: &'a Checked,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a Watched>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let selection = Selection::new(&args.steps, args.across_machines);
    let checked = check(&args.runs, &selection, args.tolerance)?;
    let options = WatchOptions { intervals: args.false_alarm, ..WatchOptions::default() };
    let watched = match &args.model {
        Some(path) => Some(watch(&args.runs, &selection, &read_model(path)?, options)?),
        None => None,
    };
    if args.json {
        let output = Output { checked: &checked, model: watched.as_ref() };
        outln!("{}", serde_json::to_string_pretty(&output)?);
    } else {
        out!("{}", checked.table());
        if let Some(watched) = &watched {
            out!("\n{}", watched.table());
        }
    }
    for missing in &checked.incomplete {
        errln!("concertina: {}", printable(missing));
    }
    if checked.broken > 0 {
        errln!("concertina: {} checks of operational laws are broken", checked.broken);
    }
    let changed = watched.as_ref().map_or(0, |w| w.changes.len());
    if changed > 0 {
        errln!("concertina: {changed} parameters of the model have changed since the fit");
    }
    let fine = checked.holds && changed == 0;
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
