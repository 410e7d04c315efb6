//! `concertina check`.

use std::path::PathBuf;
use std::process::ExitCode;

use model::laws::TOLERANCE;

use crate::check::check;
use crate::report::objective::share;
use crate::report::{Selection, StepChoice};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina check runs/load runs/server            every law that applies, at every queue and step
  concertina check runs/measured --tolerance 5%     a service that is not ours: what its clients saw
  concertina check runs/server                      a server's run alone, as one step
  concertina check runs/load runs/a runs/b --json   a cluster: each node's queues by themselves

Laws: Little L = X·W, utilisation U = X·S/m, interactive R = N/X − Z, forced flow X_k = V_k·X, demand
bound X ≤ 1/max D. They hold of any steady system, so a deviation is a fault of the measurement, or the
load was not steady. docs/check.md says what each deviation usually means.

Exit codes: 0 no law is broken; 1 one is off by more than the tolerance and by more than chance
explains, or the runs cannot be read.")]
pub struct Args {
    /// Run folders: of load generators, servers, or both
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The deviation up to which a law is said to hold
    #[arg(long, default_value_t = TOLERANCE, value_name = "SHARE", value_parser = share)]
    tolerance: f64,
    /// Steps to check: numbers (0,2 or 0-3) or rates (1500/s); all if not given
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    steps: Vec<StepChoice>,
    /// The runs are of different machines whose clocks agree
    #[arg(long)]
    across_machines: bool,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let selection = Selection::new(&args.steps, args.across_machines);
    let checked = check(&args.runs, &selection, args.tolerance)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&checked)?);
    } else {
        print!("{}", checked.table());
    }
    if !checked.holds {
        eprintln!("concertina: {} checks of operational laws are broken", checked.broken);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
