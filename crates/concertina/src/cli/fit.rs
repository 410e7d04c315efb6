//! `concertina fit`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::compare::{parameters, warnings_of};
use crate::report::{self, Observed, Selection, StepChoice};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina fit runs/load runs/server                     fit all steps, write model.toml
  concertina fit runs/load runs/server --steps 0,1,2       the lightest three; hold the others out
  concertina fit runs/load runs/server --steps 500/s,900/s --out light.toml

The load generator's run says when it measured at which rate; the server's run has the
windows of its queues. Two or three loads at modest utilisation suffice. What is left out can
then be predicted, and `concertina report` sets it beside what was measured.")]
pub struct Args {
    /// Run folders: the load generator's and the server's
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The model file to write
    #[arg(long, short, default_value = "model.toml", value_name = "FILE")]
    out: PathBuf,
    /// Steps to fit: numbers (0,2 or 0-3) or rates (1500/s); all if not given
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    steps: Vec<StepChoice>,
    /// A line that says what was fitted; the names of the runs if not given
    #[arg(long)]
    title: Option<String>,
    /// The runs are of different machines whose clocks agree
    #[arg(long)]
    across_machines: bool,
    /// Print the fit as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let selection = Selection::new(&args.steps, args.across_machines);
    let observed = Observed::read(&args.runs, &selection)?;
    let names = || observed.runs.iter().map(report::steps::run_name).collect::<Vec<_>>().join(", ");
    let title = args.title.clone().unwrap_or_else(|| format!("Fit of {}", names()));
    let model = report::fit(&observed, &title)?;
    let ours = |old: &str| model::Model::from_toml(old).is_ok();
    report::write_whole(&args.out, &model.to_toml()?, ours)?;
    if args.json {
        let json = serde_json::json!({
            "out": args.out.display().to_string(),
            "laboratory": model.about.laboratory,
            "runs": model.about.runs,
            "parameters": parameters(&model),
            "limits": model.limits()?,
            "fitted": model.fitted,
            "warnings": warnings_of(&model),
        });
        println!("{json:#}");
    } else {
        print!("{}", report::model_text(&model));
        println!("\nWrote {}.", args.out.display());
    }
    Ok(ExitCode::SUCCESS)
}
