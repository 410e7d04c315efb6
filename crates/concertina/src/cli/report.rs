//! `concertina report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::cli::output::{out, outln};
use report::alone::Measurements;
use report::predictions::Predictions;
use report::verdict::Verdict;
use report::{
    self, Comparison, Embedded, NamedModel, Objective, Observed, Page, Selection, StepChoice,
    objective,
};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(
    override_usage = "concertina report [OPTIONS] <RUN>... [MODEL]",
    after_help = "\
Examples:
  concertina report runs/load runs/server model.toml
  concertina report runs/load runs/server model.toml --out report.html --objective \"99% within 50ms\"
  concertina report runs/load runs/server model.toml --within 10ms,50ms --json
  concertina report runs/load runs/server model.toml --within 50ms:99% --objective \"p99.9<200ms\"
  concertina report runs/load runs/server model.toml --csv tables --plots plots
  concertina report runs/imported
  concertina report model.toml --objective \"99% within 50ms\"

Any run folder can be shown: of a load, a server, a measurement, an import. Without a model the page
has the measurements alone, and without a run what the model predicts; a run folder that holds a model.toml (of `measure --predict`) is compared
with that. With a model the report opens with the answer: the largest load that meets each objective, what breaks first, what more load
costs, what was checked, and what to do next. Steps that the model was fitted to are marked; all others were held out, so their errors are
those of predictions. docs/reports.md says how to read the page."
)]
pub struct Args {
    /// Run folders (of one load: the load generator's and the server's), a model file, or both, in any order
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(long, short, default_value = "report.html", value_name = "FILE")]
    out: PathBuf,
    /// Response times to compare at; with a share, like 50ms:99%, also an objective [default: the objectives of
    /// the runs]
    #[arg(long, value_delimiter = ',', value_name = "TIME[:SHARE]")]
    within: Vec<Within>,
    /// Objectives, like "99% within 50ms" or "p99<50ms": report the largest load that meets each [default: 99% within
    /// 50ms, unless --within has one]
    #[arg(long, value_name = "OBJECTIVE")]
    objective: Vec<Objective>,
    /// Steps to show: numbers (0,2 or 0-3) or rates (1500/s) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    steps: Vec<StepChoice>,
    /// The title of the page [default: Response times, and what of them is shown]
    #[arg(long)]
    title: Option<String>,
    /// Combine runs of different machines, whose clocks agree
    #[arg(long)]
    across_machines: bool,
    /// Write each table of the report as a CSV file into this folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write each plot of the report as an SVG file into this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Leave out the part of the page with computed what-if answers, which take most of the time and of the file's size
    #[arg(long)]
    no_what_if: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

/// A value of `--within`.
#[derive(Clone)]
struct Within {
    time_s: f64,
    objective: Option<Objective>,
}

impl std::str::FromStr for Within {
    type Err = String;

    fn from_str(text: &str) -> Result<Within, String> {
        if text.contains(':') {
            let objective: Objective = text.parse()?;
            return Ok(Within { time_s: objective.within_s, objective: Some(objective) });
        }
        Ok(Within { time_s: objective::seconds(text)?, objective: None })
    }
}

/// The objective that is reported if none is given.
const OBJECTIVE: Objective = Objective { share: 0.99, within_s: 0.05 };

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = args.paths.iter().find(|p| !p.exists()) {
        bail!("{} does not exist", path.display());
    }
    let (runs, mut models): (Vec<PathBuf>, Vec<PathBuf>) =
        args.paths.iter().cloned().partition(|p| p.is_dir());
    if models.is_empty() {
        models
            .extend(runs.iter().map(|run| run.join("model.toml")).filter(|m| m.is_file()).take(1));
    }
    if runs.is_empty() {
        return match models.as_slice() {
            [model] => report_model(&args, model),
            _ => bail!("{} model files given; a report is of one, or of runs", models.len()),
        };
    }
    let selection = Selection {
        any_queues: true,
        whole: true,
        ..Selection::new(&args.steps, args.across_machines)
    };
    let observed = Observed::read(&runs, &selection)?;
    let model = match models.as_slice() {
        [model] => model,
        [] => return report_measurements(&args, &runs, &observed),
        _ => bail!("{} model files given, but one is needed; runs are folders", models.len()),
    };
    let fitted = report::read_model(model)?;
    let within_s: Vec<f64> = args.within.iter().map(|within| within.time_s).collect();
    let mut objectives = objectives_of(&args);
    if objectives.is_empty() {
        objectives.push(OBJECTIVE);
    }
    let comparison = Comparison::new(&observed, &fitted, &within_s, &objectives)?;
    let shown: Vec<String> = runs.iter().map(|r| r.display().to_string()).collect();
    let name =
        model.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let named = (!args.no_what_if).then_some(NamedModel { name: &name, model: &fitted });
    let first = objectives.first().copied().unwrap_or(OBJECTIVE);
    let (shown, model, out) = (shown.join(" "), model.display(), args.out.display());
    let page = Page {
        embedded: Some(Embedded::new(&observed, named, first)?),
        title: args
            .title
            .clone()
            .unwrap_or("Response times: prediction and measurement".to_owned()),
        commands: vec![
            format!("concertina fit {shown}{} --out {model}", servers(&observed)),
            format!("concertina report {shown} {model} --out {out}"),
        ],
    };
    let html = report::html(&comparison, &page);
    report::write_whole(&args.out, &html, report::is_page)?;
    let mut files = Vec::new();
    if let Some(folder) = &args.csv {
        files.extend(report::files::write_csv(&comparison, folder)?);
    }
    if let Some(folder) = &args.plots {
        files.extend(report::files::write_plots(&comparison, folder)?);
    }
    if args.json {
        let mut json = serde_json::to_value(&comparison).context("cannot write JSON")?;
        json["verdict"] = serde_json::to_value(Verdict::new(&comparison)?)?;
        outln!("{json:#}");
    } else {
        out!("{}", report::table(&comparison));
        print_written(&args.out, &files)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which files were written.
fn print_written(page: &Path, files: &[PathBuf]) -> anyhow::Result<()> {
    outln!("\nWrote {}.", page.display());
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    if !files.is_empty() {
        outln!("Wrote {}.", files.join(", "));
    }
    Ok(())
}

/// Shows what a model says by itself.
fn report_model(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    if !args.steps.is_empty() {
        bail!("--steps chooses steps of runs, and no run folder is given");
    }
    let model = report::read_model(path)?;
    let within_s: Vec<f64> = args.within.iter().map(|within| within.time_s).collect();
    let mut objectives = objectives_of(args);
    if objectives.is_empty() {
        objectives.push(OBJECTIVE);
    }
    let predicted = Predictions::new(&model, &within_s, &objectives)?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    let named = NamedModel { name: &name, model: &model };
    let first = objectives.first().copied().unwrap_or(OBJECTIVE);
    let embedded = (!args.no_what_if).then(|| Embedded::of_model(named, first)).transpose()?;
    let page = Page {
        embedded,
        title: args.title.clone().unwrap_or("Response times: prediction".to_owned()),
        commands: vec![format!(
            "concertina report {} --out {}",
            path.display(),
            args.out.display()
        )],
    };
    report::write_whole(&args.out, &predicted.html(&page), report::is_page)?;
    let mut files = Vec::new();
    if let Some(folder) = &args.csv {
        files.extend(report::files::write_predicted_csv(&predicted, folder)?);
    }
    if let Some(folder) = &args.plots {
        files.extend(report::files::write_predicted_plots(&predicted, folder)?);
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&predicted).context("cannot write JSON")?);
    } else {
        out!("{}", predicted.text());
        print_written(&args.out, &files)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The objectives that were given.
fn objectives_of(args: &Args) -> Vec<Objective> {
    let within = args.within.iter().filter_map(|within| within.objective);
    args.objective.iter().copied().chain(within).collect()
}

/// The option with which the runs can be fitted.
fn servers(observed: &Observed) -> &'static str {
    let has_devices = observed.steps.iter().all(|step| !step.windows.devices.is_empty());
    if has_devices { "" } else { " --servers auto" }
}

/// Shows what was measured, without a model.
fn report_measurements(
    args: &Args,
    runs: &[PathBuf],
    observed: &Observed,
) -> anyhow::Result<ExitCode> {
    let within_s: Vec<f64> = args.within.iter().map(|within| within.time_s).collect();
    let measurements = Measurements::new(observed, &within_s, &objectives_of(args))?;
    let shown: Vec<String> = runs.iter().map(|r| r.display().to_string()).collect();
    let out = args.out.display();
    let page = Page {
        embedded: Some(Embedded::new(observed, None, OBJECTIVE)?),
        title: args.title.clone().unwrap_or("Response times: measurement".to_owned()),
        commands: vec![format!("concertina report {} --out {out}", shown.join(" "))],
    };
    report::write_whole(&args.out, &measurements.html(&page), report::is_page)?;
    let mut files = Vec::new();
    if let Some(folder) = &args.csv {
        files.extend(report::files::write_measured_csv(&measurements, folder)?);
    }
    if let Some(folder) = &args.plots {
        files.extend(report::files::write_measured_plots(&measurements, folder)?);
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&measurements).context("cannot write JSON")?);
    } else {
        out!("{}", measurements.text());
        print_written(&args.out, &files)?;
    }
    Ok(ExitCode::SUCCESS)
}
