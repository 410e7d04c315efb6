//! `concertina plan`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use model::plan::{Growth, LimitRule, Question, plan};

use crate::cli::output::{out, outln};
use crate::cli::study_parts::print_part;
use report::Objective;
use report::choices;
use report::plan_basis::PlanBasis;
use report::ranges;
use report::tiers::CurvesFile;

mod measured;
mod simulated;
mod sources;
mod text;

use simulated::Simulated;
use sources::Sources;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina plan model.toml --choices choices.toml --objective \"99% within 50ms\" --rate 12000
  concertina plan model.toml --choices choices.toml --objective \"99% within 50ms\" --rate 12000 \\
      --growth 5%/month --months 12 --with-one-lost
  concertina plan cluster.toml --choices choices.toml --objective \"95% within 20ms\" --rate 5000 \\
      --json
  concertina plan model.toml --choices choices.toml --objective \"99% within 1s\" --rate 12000 \\
      --limit published
  concertina plan model.toml --choices choices.toml --objective \"99% within 50ms\" --rate 12000 \\
      --curves curves.toml
  concertina plan model.toml --choices choices.toml --objective \"99% within 50ms\" --rate 12000 \\
      --simulate --mttf 90d --mttr 4h --disk-mttf 3y --disk-mttr 1d --picture plan.svg
  concertina plan model.toml --choices choices.toml --objective \"99% within 50ms\" --rate 12000 \\
      --simulate --out study --part 0/8     # all eight on any machines, then the same with --join

choices.toml describes what can be bought for each server:

  [servers]
  counts = { from = 1, to = 40 }    # or a list: [1, 2, 4]
  price = 200
  [memory]
  fitted_gib = 64                   # what the fitted server had
  gib = [64, 128, 256]
  price_per_gib = 1.5
  exponent = 0.3                    # hit ratio grows as memory^0.3; or a table, hit_ratio
  [devices.bulk_device]             # a class of the model
  counts = [4, 8, 16]
  price = 25
  [replicas]                        # without any, the keys of a server that is lost are lost
  counts = [1, 2]

docs/plan.md describes all keys. Configurations that meet the objective are ranked by cost. MODEL is
written by `concertina fit`; for a cluster file, every server is assumed to be like its slowest node.")]
pub struct Args {
    /// The model file, or a cluster file, from `concertina fit`
    model: PathBuf,
    /// What can be bought, and its prices: a TOML file (docs/plan.md)
    #[arg(long, value_name = "FILE")]
    choices: PathBuf,
    /// What memory and hot devices serve, by their bytes: written by `concertina tiers --curves`
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
    /// The objective to meet, like "99% within 50ms" or "p99 < 50ms"
    #[arg(long, value_name = "OBJECTIVE")]
    objective: Objective,
    /// For a time alone, as `predict` takes it: says what a plan needs
    #[arg(long = "within", hide = true, value_name = "TIME", value_parser = no_time_alone)]
    _within: Option<std::convert::Infallible>,
    /// The current load on all servers: requests/s, or with units (500/s, 30/min, 12k/s)
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = ranges::rate)]
    rate: f64,
    /// Growth of the load, like 5%/month or 60%/year: the objective must be met until the end
    #[arg(long, value_name = "PART/TIME", allow_hyphen_values = true)]
    growth: Option<MonthlyGrowth>,
    /// The number of months that the load grows
    #[arg(long, default_value_t = 12, requires = "growth", value_parser = clap::value_parser!(u32).range(0..=1200))]
    months: u32,
    /// The objective must also be met with one server lost
    #[arg(long)]
    with_one_lost: bool,
    /// A confidence limit that the load must not exceed; without it, a load past ours is only
    /// marked
    #[arg(long, value_enum, default_value_t = Limit::None)]
    limit: Limit,
    /// Number of configurations to show
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    top: u32,
    #[command(flatten)]
    simulation: simulated::Options,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Refuses `--within`: a plan needs the share of requests that must keep the time as well.
fn no_time_alone(text: &str) -> Result<std::convert::Infallible, String> {
    let written = if text.contains(':') { text.to_owned() } else { format!("99% within {text}") };
    Err(format!("a plan needs the share that must keep the time, too: --objective \"{written}\""))
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Limit {
    /// No limit
    None,
    /// Concertina's: the mean number at a device is 1, with balls into bins
    Ours,
    /// The Spotify model's
    Published,
}

/// The relative growth of a load in one month.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MonthlyGrowth(f64);

impl FromStr for MonthlyGrowth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid growth `{text}`: write it like `5%/month` or `60%/year`");
        let (percent, time) = text.split_once('/').ok_or_else(wrong)?;
        let percent = percent.trim().strip_suffix('%').ok_or_else(wrong)?.trim();
        let part = percent.parse::<f64>().map_err(|_| wrong())? / 100.0;
        if !(part > -0.99 && part <= 100.0) {
            return Err(format!(
                "invalid growth `{text}`: it lies above -99 % and is at most 10,000 %"
            ));
        }
        match time.trim() {
            "month" => Ok(MonthlyGrowth(part)),
            "year" => Ok(MonthlyGrowth((1.0 + part).powf(1.0 / 12.0) - 1.0)),
            _ => Err(wrong()),
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let server = PlanBasis::read(&args.model, args.objective)?;
    let curves = args.curves.as_deref().map(CurvesFile::read).transpose()?;
    let of = curves.as_ref().map(CurvesFile::origin);
    let curves = curves.map(|file| file.curves);
    let (choices, prices) = choices::read(&args.choices, server.of, curves)?;
    let Objective { share, within_s } = args.objective;
    let question = Question {
        growth: args.growth.map(|g| Growth { per_month: g.0, months: args.months }),
        limit: match args.limit {
            Limit::None => LimitRule::None,
            Limit::Ours => LimitRule::Ours,
            Limit::Published => LimitRule::Published,
        },
        with_one_lost: args.with_one_lost,
        delay_s: server.delay_s,
        top: args.top as usize,
        ..Question::new(model::plan::Objective { share, within_s }, args.rate)
    };
    let found = plan(&server.model, &question, &choices)
        .with_context(|| format!("{} and {}", args.model.display(), args.choices.display()))?;
    let files = [Some(&args.model), Some(&args.choices), args.curves.as_ref()];
    let sources =
        args.simulation.in_parts().then(|| Sources::read(&files, &question)).transpose()?;
    let asked = simulated::Simulation {
        sources,
        basis: &server,
        choices: &choices,
        objective: args.objective,
        options: &args.simulation,
    };
    let simulated = match asked.run(&found)? {
        None => None,
        Some(Simulated::Candidates(found)) => Some(found),
        Some(Simulated::Part(done)) => return print_part(done.as_ref(), args.json),
    };
    if args.json {
        let mut value = server.json(&found)?;
        value["curves"] = of.into();
        if let Some(simulated) = &simulated {
            value["simulated"] = serde_json::to_value(simulated)?;
        }
        outln!("{value:#}");
    } else {
        let shown =
            text::PlanReport { plan: &found, objective: args.objective, choices: &choices, prices };
        let notes: Vec<String> = server.note.into_iter().chain(of).collect();
        out!("{}", shown.text(&server.model, &notes)?);
        if let Some(simulated) = &simulated {
            out!("{}", shown.simulated(simulated));
        }
    }
    if simulated.is_some_and(|simulated| simulated.interrupted) {
        return Ok(super::load::interrupted());
    }
    Ok(if found.ranked.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--with-one-lost` was proposed.
    #[test]
    fn a_time_alone_is_told_to_be_no_objective() {
        for (text, tip) in [("50ms", "99% within 50ms"), ("50ms:95%", "50ms:95%")] {
            let error = no_time_alone(text).unwrap_err();
            assert!(error.ends_with(&format!("--objective \"{tip}\"")), "{error}");
        }
    }

    #[test]
    fn growth_is_read() {
        assert_eq!("5%/month".parse(), Ok(MonthlyGrowth(0.05)));
        let yearly: MonthlyGrowth = "60 % / year".parse().unwrap();
        assert!(((1.0 + yearly.0).powi(12) - 1.6).abs() < 1e-12);
        for bad in ["", "5", "5%", "5/month", "x%/month", "5%/week", "-100%/month", "NaN%/year"] {
            assert!(bad.parse::<MonthlyGrowth>().is_err(), "{bad}");
        }
    }
}
