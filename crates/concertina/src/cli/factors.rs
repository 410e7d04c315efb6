//! `concertina factors`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use model::design::{Form, Run, Table};

use super::sheet::{Sheet, confidence};
use crate::cli::output::{out, outln};
use report::factors::{self, Options, Source};
use report::steps::{Selection, StepChoice};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina factors runs.csv --response throughput
  concertina factors runs.csv --response latency_ms --factors servers,threads,middlewares
  concertina factors runs.csv --response throughput --model multiplicative --confidence 90%
  concertina factors runs.csv --response throughput --bootstrap 100000 --json
  concertina factors --runs runs --response response_ms_p99 \\
    --factors clients,load.keys.synthetic.read_share,serve.node.memory_bytes
  concertina factors --runs runs/* --response throughput_per_s --factors threads,servers

One row is one run: the level of each factor, and the response. Rows in order of time reveal drifts;
equal levels are replications. With two levels of each factor, the effects are computed (2^k·r), also
from a regular fraction of the combinations (2^(k−p), detected from the rows), with the effects that it
cannot separate. With more levels: analysis of variance with F tests. Every combination needs the same
number of runs.

With --runs every completed step of a run folder is one run. Its factors: `rate` and `clients` of the
step; `load.PATH` and `serve.PATH`, entries under [asked] in the run.toml of the load, or of the server
recorded at the same time; any other name is searched for in the folder's path, like threads=8 in
runs/threads=8,servers=2/1. Responses: throughput_per_s, error_share, response_ms_mean, response_ms_p50,
_p95, _p99, _p999 …, service_ms_….

Without --model the data decide between the additive and the multiplicative model; the reasons are printed.")]
pub struct Args {
    /// The runs: a CSV file with column names in its first line
    #[arg(value_name = "FILE.csv", required_unless_present = "runs")]
    file: Option<PathBuf>,
    /// Instead of a file: run folders, and folders that contain some
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with = "file", requires = "factors")]
    runs: Vec<PathBuf>,
    /// The column of the response, or a figure of run folders
    #[arg(long, value_name = "NAME")]
    response: String,
    /// The columns of the factors, A, B, C … in this order [default: all other columns]. With
    /// --runs: the factors
    #[arg(long, alias = "factor", value_delimiter = ',', value_name = "NAMES")]
    factors: Vec<String>,
    /// With --runs: only these steps of each folder, by number (`0-2`) or rate (`400/s`)
    #[arg(long, value_delimiter = ',', value_name = "STEPS", requires = "runs")]
    steps: Vec<StepChoice>,
    /// With --runs: combine runs of different machines
    #[arg(long, requires = "runs")]
    across_machines: bool,
    /// Whether effects add or multiply
    #[arg(long, value_enum)]
    model: Option<Model>,
    /// Confidence level of the intervals
    #[arg(long, default_value = "0.95", value_parser = confidence)]
    confidence: f64,
    /// Add intervals from this many bootstrap samples (two levels only)
    #[arg(long, value_name = "SAMPLES")]
    bootstrap: Option<usize>,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 1, requires = "bootstrap")]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Model {
    /// y is a sum of effects
    Additive,
    /// y is a product: its natural logarithm is a sum
    Multiplicative,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let form = args.model.map(|model| match model {
        Model::Additive => Form::Additive,
        Model::Multiplicative => Form::Multiplicative,
    });
    let Args { confidence, bootstrap, seed, .. } = args;
    let options = Options { form, confidence, bootstrap, seed };
    let (table, source) = match &args.file {
        Some(file) => (sheet_table(&args, &Sheet::read(file)?)?, Source::of_file(file)),
        None => {
            let names = names(&args, named_factors(&args))?;
            let selection =
                Selection { any_queues: true, ..Selection::new(&args.steps, args.across_machines) };
            let logarithms = form == Some(Form::Multiplicative);
            factors::of_run_folders(&args.runs, &names, &args.response, logarithms, &selection)?
        }
    };
    let found = factors::analyse(&table, &options).with_context(|| {
        let hint = match args.factors.is_empty() {
            true => {
                " (all columns except the response are used as factors: name them with --factors)"
            }
            false => "",
        };
        format!("{}{hint}", source.name)
    })?;
    if args.json {
        outln!("{:#}", found.json(&source, &args.response, &options, args.file.as_deref())?);
    } else {
        out!("{}", found.text(&source, &args.response, &options));
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the names of the factors: they are distinct, and the response is not one.
fn names(args: &Args, given: Vec<String>) -> anyhow::Result<Vec<String>> {
    for (i, name) in given.iter().enumerate() {
        if *name == args.response {
            bail!("--factors: {name} is the response; it cannot be a factor as well");
        }
        if given[..i].contains(name) {
            bail!("--factors: {name} is named twice");
        }
    }
    Ok(given)
}

fn named_factors(args: &Args) -> Vec<String> {
    args.factors.iter().map(|name| name.trim().to_owned()).collect()
}

fn sheet_table(args: &Args, sheet: &Sheet) -> anyhow::Result<Table> {
    let response = sheet.column(&args.response)?;
    let names = names(
        args,
        match args.factors.is_empty() {
            true => sheet.head().iter().filter(|name| **name != args.response).cloned().collect(),
            false => named_factors(args),
        },
    )?;
    let columns = names.iter().map(|name| sheet.column(name)).collect::<Result<Vec<_>, _>>()?;
    let least = match args.model {
        Some(Model::Multiplicative) => f64::MIN_POSITIVE,
        _ => -1e100,
    };
    let mut runs = Vec::with_capacity(sheet.rows().len());
    for row in sheet.rows() {
        let level = |&column: &usize| sheet.text(row, column).map(str::to_owned);
        let levels = columns.iter().map(level).collect::<anyhow::Result<_>>()?;
        let number = sheet.number(row, response, least..=1e100);
        let number = number.with_context(|| match least > 0.0 {
            true => "the multiplicative model takes logarithms",
            false => "the response must be a number",
        });
        runs.push(Run { levels, response: number? });
    }
    Table::new(&names, &runs).with_context(|| sheet.path().display().to_string())
}
