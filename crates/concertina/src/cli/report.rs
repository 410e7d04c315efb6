//! `concertina report`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::cli::output::{out, outln};
use report::{self, Comparison, Objective, Observed, Page, Selection, StepChoice, objective};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(
    override_usage = "concertina report [OPTIONS] <RUN>... <MODEL>",
    after_help = "\
Examples:
  concertina report runs/load runs/server model.toml
  concertina report runs/load runs/server model.toml --out report.html --objective \"99% within 50ms\"
  concertina report runs/load runs/server model.toml --within 10ms,50ms --json

Steps that the model was fitted to are marked; all others were held out, so their errors are
those of predictions. docs/reports.md says how to read the page."
)]
pub struct Args {
    /// Run folders (the load generator's and the server's) and a model file, in any order
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(long, short, default_value = "report.html", value_name = "FILE")]
    out: PathBuf,
    /// Response times to compare at [default: the objectives of the runs]
    #[arg(long, value_delimiter = ',', value_name = "TIME", value_parser = objective::seconds)]
    within: Vec<f64>,
    /// Objectives, like "99% within 50ms": report the largest load that meets each
    #[arg(long, default_value = "99% within 50ms", value_name = "OBJECTIVE")]
    objective: Vec<Objective>,
    /// Steps to show: numbers (0,2 or 0-3) or rates (1500/s) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    steps: Vec<StepChoice>,
    /// The title of the page
    #[arg(long, default_value = "Response times: prediction and measurement")]
    title: String,
    /// Combine runs of different machines, whose clocks agree
    #[arg(long)]
    across_machines: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = args.paths.iter().find(|p| !p.exists()) {
        bail!("{} does not exist", path.display());
    }
    let (runs, models): (Vec<PathBuf>, Vec<PathBuf>) =
        args.paths.iter().cloned().partition(|p| p.is_dir());
    let model = match models.as_slice() {
        [model] => model,
        [] => {
            bail!("no model file given; make one with `concertina fit RUN…`, then name it last")
        }
        _ => bail!("{} model files given, but one is needed; runs are folders", models.len()),
    };
    let fitted = report::read_model(model)?;
    let selection = Selection::new(&args.steps, args.across_machines);
    let observed = Observed::read(&runs, &selection)?;
    let comparison = Comparison::new(&observed, &fitted, &args.within, &args.objective)?;
    let shown: Vec<String> = runs.iter().map(|r| r.display().to_string()).collect();
    let (shown, model, out) = (shown.join(" "), model.display(), args.out.display());
    let page = Page {
        title: args.title.clone(),
        commands: vec![
            format!("concertina fit {shown} --out {model}"),
            format!("concertina report {shown} {model} --out {out}"),
        ],
    };
    let html = report::html(&comparison, &page);
    report::write_whole(&args.out, &html, report::is_page)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&comparison).context("cannot write JSON")?);
    } else {
        out!("{}", report::table(&comparison));
        outln!("\nWrote {out}.");
    }
    Ok(ExitCode::SUCCESS)
}
