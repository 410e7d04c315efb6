//! `concertina measure`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;

use ground::number::{decimals, time};

use super::load::{bar, interrupted, missing, watch_interrupts};
use super::load_options::{LoadOptions, TARGETS, claim};
use super::load_values::seconds;
use super::measure_predict::{LoadChoice, learn, parse_load_choice};
use crate::cli::output::{errln, out, outln};
use crate::measure::{Ended, Measurement, Place, Settings, Sweep, Until, run as go};
use load::{Arrivals, Length, Load, Plan, Progress};
use report::objective::share;

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  Find the saturation, then measure at shares of it, for at most ten minutes:
    concertina measure http://127.0.0.1:7070 --count 10000 --size 16k --fill
  An nginx that serves files /img/0.jpg … /img/999.jpg, at given rates:
    concertina measure 'http://127.0.0.1:80/img/{key}.jpg' --key-format '{i}' --count 1000 \\
      --rates 100,200,400 --half-width 2% --budget 10m --out runs/nginx
  How fast at two and three times the load? Measured, fitted, judged and predicted:
    concertina measure 'http://127.0.0.1:80/img/{key}.jpg' --rates 30,50,70 \\
      --predict 2x,3x --within 50ms
  The loads that tell most, until shares within 50 ms at 90 % of saturation are known to ± 2 points:
    concertina measure 'http://127.0.0.1:80/img/{key}.jpg' --until '±2 points at 90 %' --within 50ms
  One page, closed loops of more and more clients with a think time of 50 ms:
    concertina measure 'http://127.0.0.1:8080/search?q=x' --fixed --clients 1,2,4,8,16 --think-ms 50
  A service that takes JSON behind a bearer token, by HTTP/2:
    concertina measure https://shop.example/search --http2 --bearer-file token \\
      --body '{\"query\": \"{key}\"}'
  A memcached, and a bucket of an S3-compatible store:
    concertina measure memcached://127.0.0.1:11211 --count 100000 --size 1k --fill --multi-get 10
    concertina measure 's3://photos/2026?endpoint=http://127.0.0.1:7480' --rates 50,100 --fill
  Compare the clients' side with the server's recording, and fit a model:
    concertina check runs/nginx runs/server && concertina fit runs/nginx runs/server

docs/measure.md explains the table.

Exit codes: 0 measured (the table marks wide intervals); 1 the measurement failed, replies had wrong bytes,
or all replies were errors; 130 interrupted (Ctrl-C; the measurements so far are kept), 143 by SIGTERM.";

/// The distribution of the gaps between arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArrivalsArg {
    /// Exponential gaps
    Poisson,
    /// Equal gaps
    Constant,
}

/// Arguments of the command, boxed because there are many more than those of other commands.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{TARGETS}"))]
pub struct Args {
    #[command(flatten)]
    flags: Box<Flags>,
}

#[derive(clap::Args)]
struct Flags {
    #[command(flatten)]
    options: LoadOptions,

    /// Open loops at these rates, requests/s
    #[arg(long, value_delimiter = ',', value_name = "R,…", help_heading = "Loads")]
    #[arg(conflicts_with_all = ["think_ms", "think"])]
    rates: Vec<f64>,
    /// Closed loops with these numbers of clients
    #[arg(long, value_delimiter = ',', value_name = "N,…", help_heading = "Loads")]
    #[arg(conflicts_with_all = ["rates", "arrivals"])]
    clients: Vec<usize>,
    /// Open loops at these shares of the saturation, which is searched for first [default:
    /// 0.2,0.4,0.6,0.8,0.9, with --until 0.3,0.6]
    #[arg(long, value_delimiter = ',', value_name = "SHARE,…", help_heading = "Loads")]
    #[arg(conflicts_with_all = ["rates", "clients"])]
    shares: Vec<f64>,
    /// The largest number of clients in that search
    #[arg(long, default_value_t = 1024, value_name = "N", help_heading = "Loads")]
    clients_max: usize,
    /// The distribution of the gaps between arrivals of an open loop
    #[arg(long, value_enum, default_value = "poisson", help_heading = "Loads")]
    arrivals: ArrivalsArg,

    /// Measure every load at least N times
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = "Precision")]
    repeat: usize,
    /// Length of a repetition, after its warm-up
    #[arg(long, default_value = "10s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "Precision")]
    duration: f64,
    /// Warm-up before each repetition, which is not counted; the rest of a ramp is cut off as well
    #[arg(long, default_value = "2s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "Precision")]
    warmup: f64,
    /// Target: half of the 95 % interval of mean and quantile, relative to the value
    #[arg(long, default_value = "5%", value_parser = share, value_name = "SHARE")]
    #[arg(help_heading = "Precision")]
    half_width: f64,
    /// The quantile that must reach this precision
    #[arg(long, default_value = "99%", value_parser = share, value_name = "SHARE")]
    #[arg(help_heading = "Precision")]
    quantile: f64,
    /// The largest total time for measuring, including the search but not the fill
    #[arg(long, default_value = "10m", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "Precision")]
    budget: f64,

    /// Then fit the measured loads, and predict these: multiples of the smallest (2x), or rates
    /// (150/s)
    #[arg(long, value_delimiter = ',', value_name = "LOAD,…", value_parser = parse_load_choice)]
    #[arg(help_heading = "Prediction", conflicts_with = "clients")]
    predict: Vec<LoadChoice>,
    /// Predict the shares of responses within these times
    #[arg(long, value_delimiter = ',', value_name = "TIME,…", value_parser = seconds)]
    #[arg(help_heading = "Prediction")]
    within: Vec<f64>,
    /// Choose the loads by what narrows a prediction most, until it is known so well: `±2 points at
    /// 90 %` of the saturation, or `±2 points at 150/s`
    #[arg(long, value_name = "GOAL", value_parser = goal, help_heading = "Prediction")]
    #[arg(conflicts_with = "clients", allow_hyphen_values = true)]
    until: Option<Until>,

    /// Length of the recorded windows; ramps are detected to within five of them
    #[arg(long, default_value = "100ms", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "Result")]
    window: f64,
}

fn goal(text: &str) -> Result<Until, String> {
    text.parse()
}

/// The time within which shares are predicted if none is given.
const WITHIN_S: f64 = 0.05;
/// The shares of the saturation that are measured if none are given, and with a goal.
const SHARES: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 0.9];
const SHARES_UNTIL: [f64; 2] = [0.3, 0.6];

/// Number of clients of the fill.
const FILL_CLIENTS: usize = 64;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let flags = args.flags;
    let settings = flags.settings()?;
    let stop = Arc::new(AtomicBool::new(false));
    watch_interrupts(&stop)?;
    let bar = bar(flags.options.quiet || !std::io::stderr().is_terminal());
    let mut progress = |p: &Progress| {
        bar.set_position((p.done * 1000.0) as u64);
        bar.set_prefix(p.stage.clone());
        let Progress { rate, p99_ms, errors, .. } = p;
        bar.set_message(format!(
            "of the budget; {}/s, p99 {}, {errors} errors",
            decimals(*rate, 0),
            time(1e-3 * p99_ms)
        ));
    };
    let mut tell = |line: &str| {
        if !flags.options.quiet {
            bar.suspend(|| errln!("{line}"));
        }
    };
    let measured = go(&settings, &stop, &mut progress, &mut tell);
    bar.finish_and_clear();
    let measured = measured?;
    let mut json = serde_json::to_value(&measured)?;
    if !flags.options.json {
        out!("{}", measured.table());
    }
    let goal = measured.until.as_ref().and_then(|u| u.rounds.last()?.rate);
    let mut loads = flags.predict.clone();
    // Of a goal, what it is about.
    loads.extend(goal.filter(|_| loads.is_empty()).map(LoadChoice::Rate));
    if let Some(pursuit) = measured.until.as_ref().filter(|_| !flags.options.json) {
        outln!("{}", pursuit.verdict);
    }
    let of_use = !measured.missing && measured.ended != Ended::Interrupted;
    let mut failed = None;
    if of_use && !loads.is_empty() {
        let within = if flags.within.is_empty() { vec![WITHIN_S] } else { flags.within.clone() };
        match learn(&measured, &settings.plan.out, &loads, &within) {
            Ok(learnt) => {
                json["prediction"] = serde_json::to_value(&learnt)?;
                if !flags.options.json {
                    outln!("{}\n{}", learnt.lines.join("\n"), learnt.below.join("\n"));
                }
            }
            // What was measured is printed all the same.
            Err(error) => failed = Some(error),
        }
    }
    if flags.options.json {
        outln!("{}", serde_json::to_string_pretty(&json)?);
    }
    if measured.missing {
        return Ok(missing(&settings.plan));
    }
    failed.map_or_else(|| Ok(exit_code(&measured)), Err)
}

fn exit_code(measured: &Measurement) -> ExitCode {
    if measured.ended == Ended::Interrupted {
        return interrupted();
    }
    if measured.is_wrong() || measured.is_all_errors() || measured.points.is_empty() {
        errln!("concertina: replies had wrong bytes, or all replies were errors: see above");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

impl Flags {
    fn settings(&self) -> anyhow::Result<Settings> {
        let sweep = if !self.rates.is_empty() {
            Sweep::Rates(self.rates.clone())
        } else if !self.clients.is_empty() {
            Sweep::Clients(self.clients.clone())
        } else {
            let own = if self.until.is_some() { &SHARES_UNTIL[..] } else { &SHARES[..] };
            let shares = if self.shares.is_empty() { own } else { &self.shares };
            Sweep::Shares(shares.to_vec(), self.clients_max)
        };
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        anyhow::ensure!(
            self.predict.is_empty() || self.until.is_some() || rates.len() != 1,
            "--predict needs two different loads or more: add one to --rates"
        );
        anyhow::ensure!(
            self.within.is_empty() || !self.predict.is_empty() || self.until.is_some(),
            "--within is of a prediction: give --predict or --until"
        );
        if let Some(Until { at: Place::Share(share), .. }) = &self.until {
            anyhow::ensure!(
                *share < 0.99,
                "a goal at {share} of the saturation: nothing is steady there"
            );
        }
        let (think_ms, think) = self.options.think();
        anyhow::ensure!(
            self.options.requests.count()?.is_none(),
            "--requests names a file here: --duration is the length of a repetition"
        );
        let plan = self.options.plan(Load::Nothing, self.options.generated(), FILL_CLIENTS)?;
        Ok(Settings {
            plan: Plan {
                destroy: claim(&plan)?,
                fill: plan.fill.map(|clients| clients.min(plan.connections)),
                warmup: Some(Length::Seconds(self.warmup)),
                length: Some(Length::Seconds(self.duration)),
                window_s: self.window,
                ..plan
            },
            sweep,
            arrivals: match self.arrivals {
                ArrivalsArg::Poisson => Arrivals::Poisson,
                ArrivalsArg::Constant => Arrivals::Constant,
            },
            think_ms,
            think,
            repeat: self.repeat,
            half_width: self.half_width,
            quantile: self.quantile,
            budget_s: self.budget,
            until: self.until.clone().map(|goal| Until { within_s: self.within.clone(), ..goal }),
        })
    }
}
