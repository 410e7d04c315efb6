//! `concertina measure`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::ValueEnum;

use super::load::{bar, default_out, popularity, seconds, size, watch_interrupts};
use crate::load::{Arrivals, Keys, Length, Load, Plan, Popularity, Progress, Size, Think};
use crate::measure::{Ended, Measurement, Settings, Sweep, run as go};
use crate::report::objective::share;

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  Find the saturation, then measure at shares of it, at most ten minutes:
    concertina measure http://127.0.0.1:7070 --count 10000 --size 16k --fill
  An nginx that serves files /img/0.jpg … /img/999.jpg, at rates of your choice:
    concertina measure 'http://127.0.0.1:80/img/{key}.jpg' --key-format '{i}' --count 1000 \\
      --rates 100,200,400 --half-width 2% --budget 10m --out runs/nginx
  One page, a closed loop of more and more clients that think 50 ms:
    concertina measure 'http://127.0.0.1:8080/search?q=x' --fixed --clients 1,2,4,8,16 --think-ms 50
  What the clients saw beside what the server recorded, and a model of it:
    concertina check runs/nginx runs/server && concertina fit runs/nginx runs/server

Targets: anything that answers HTTP/1.1 without TLS. S3: objects that may be read without a signature
(http://HOST:PORT/BUCKET/{key}), or one presigned address with --fixed; requests are not signed.
The memcached protocol is not spoken. docs/measure.md says how to read the table.

Exit codes: 0 measured (the table says which intervals are wide); 1 it could not be, wrong bytes came, or
nothing but errors; 130 interrupted (Ctrl-C; what was measured is kept).";

/// How arrivals follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArrivalsArg {
    /// Exponential gaps
    Poisson,
    /// Equal gaps
    Constant,
}

/// How think times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ThinkArg {
    /// Exponential
    Exponential,
    /// Always the mean
    Constant,
}

/// Arguments of the command. Boxed, because they are many and other commands have few.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    flags: Box<Flags>,
}

#[derive(clap::Args)]
struct Flags {
    /// The service: http://HOST:PORT (keys follow /objects/), or an address with {key} in its path or query
    url: String,

    /// Open loops of these rates, requests/s
    #[arg(long, value_delimiter = ',', value_name = "R,…", help_heading = "Loads")]
    rates: Vec<f64>,
    /// Closed loops of these numbers of clients
    #[arg(long, value_delimiter = ',', value_name = "N,…", help_heading = "Loads")]
    #[arg(conflicts_with = "rates")]
    clients: Vec<usize>,
    /// Without either: open loops at these shares of the saturation, which is searched for first
    #[arg(long, value_delimiter = ',', value_name = "SHARE,…", help_heading = "Loads")]
    #[arg(default_value = "0.2,0.4,0.6,0.8,0.9", conflicts_with_all = ["rates", "clients"])]
    shares: Vec<f64>,
    /// The most clients of that search
    #[arg(long, default_value_t = 1024, value_name = "N", help_heading = "Loads")]
    clients_max: usize,
    /// How the arrivals of an open loop follow each other
    #[arg(long, value_enum, default_value = "poisson", help_heading = "Loads")]
    arrivals: ArrivalsArg,
    /// Closed loops: mean time between a reply and the next request, ms
    #[arg(long, default_value_t = 0.0, value_name = "MS", help_heading = "Loads")]
    think_ms: f64,
    /// Closed loops: how think times are distributed
    #[arg(long, value_enum, default_value = "exponential", help_heading = "Loads")]
    think: ThinkArg,

    /// Every load is measured so often at least
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = "How well")]
    repeat: usize,
    /// Length of a repetition, after its warm-up
    #[arg(long, default_value = "10s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "How well")]
    duration: f64,
    /// Load before each repetition that is not counted; what is left of a ramp is cut off as well
    #[arg(long, default_value = "2s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "How well")]
    warmup: f64,
    /// Half of the 95 % interval of mean and quantile, as a share of the value: measured until it is reached
    #[arg(long, default_value = "5%", value_parser = share, value_name = "SHARE")]
    #[arg(help_heading = "How well")]
    half_width: f64,
    /// The quantile that must be so narrow
    #[arg(long, default_value = "99%", value_parser = share, value_name = "SHARE")]
    #[arg(help_heading = "How well")]
    quantile: f64,
    /// The most time that measuring may take, the search included and the fill not
    #[arg(long, default_value = "10m", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "How well")]
    budget: f64,

    /// Ask for the address as it is, without a key
    #[arg(long, help_heading = "What")]
    fixed: bool,
    /// Popularity of keys: zipf:S or uniform
    #[arg(long, default_value = "zipf:0.99", value_parser = popularity, help_heading = "What")]
    keys: Popularity,
    /// How many keys there are
    #[arg(long, default_value_t = 10_000, value_name = "N", help_heading = "What")]
    count: u64,
    /// Bytes of each object that is put (k and M for KiB and MiB), or MIN..MAX: log-uniform, fixed by the key
    #[arg(long, default_value = "4096", value_parser = size, value_name = "BYTES")]
    #[arg(help_heading = "What")]
    size: Size,
    /// How keys are called; {i} is their number
    #[arg(long, default_value = "k{i}", value_name = "TEXT", help_heading = "What")]
    key_format: String,
    /// Share of gets among requests; the rest are puts
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", help_heading = "What")]
    read_share: f64,
    /// Put every key once before measuring
    #[arg(long, help_heading = "What")]
    fill: bool,
    /// Compare the bytes of replies with those that --fill and puts store; differences are errors
    #[arg(long, help_heading = "What")]
    verify: bool,

    /// What precedes the key in the path, where the address has no path [default: /objects/]
    #[arg(long, value_name = "PATH", help_heading = "How")]
    prefix: Option<String>,
    /// A file that holds a bearer token
    #[arg(long, value_name = "FILE", help_heading = "How")]
    token_file: Option<PathBuf>,
    /// Threads that generate
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "How")]
    threads: usize,
    /// The most connections
    #[arg(long, default_value_t = 8192, value_name = "N", help_heading = "How")]
    connections: usize,
    /// When a request without a reply is given up
    #[arg(long, default_value = "10s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "How")]
    timeout: f64,
    /// Where all random numbers come from
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "How")]
    seed: u64,

    /// The run folder [default: runs/TIME]; a search's is the folder `search` in it
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    out: Option<PathBuf>,
    /// Length of the recorded windows; ramps are found to five of them
    #[arg(long, default_value = "100ms", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "Result")]
    window: f64,
    /// Response times in ms at which completions are counted exactly
    #[arg(long, value_delimiter = ',', default_value = "20,50,100", value_name = "MS,…")]
    #[arg(help_heading = "Result")]
    objectives: Vec<f64>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Result")]
    json: bool,
    /// Show no progress
    #[arg(long, short, help_heading = "Result")]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let flags = args.flags;
    let settings = flags.settings()?;
    let stop = Arc::new(AtomicBool::new(false));
    watch_interrupts(&stop)?;
    let bar = bar(flags.quiet || !std::io::stderr().is_terminal());
    let measured = go(&settings, &stop, &mut |p: &Progress| {
        bar.set_position((p.done * 1000.0) as u64);
        bar.set_prefix(p.stage.clone());
        let Progress { rate, p99_ms, errors, .. } = p;
        bar.set_message(format!("of the budget; {rate:.0}/s, p99 {p99_ms:.1} ms, {errors} errors"));
    });
    bar.finish_and_clear();
    let measured = measured?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&measured)?);
    } else {
        print!("{}", measured.table());
    }
    Ok(exit_code(&measured))
}

fn exit_code(measured: &Measurement) -> ExitCode {
    if measured.ended == Ended::Interrupted {
        return ExitCode::from(130);
    }
    if measured.is_wrong() || measured.is_all_errors() || measured.points.is_empty() {
        eprintln!("concertina: wrong bytes came, or nothing but errors: see above");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

impl Flags {
    fn settings(&self) -> anyhow::Result<Settings> {
        let token = match &self.token_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path);
                Some(text.with_context(|| format!("cannot read the token in {}", path.display()))?)
            }
        };
        let sweep = if !self.rates.is_empty() {
            Sweep::Rates(self.rates.clone())
        } else if !self.clients.is_empty() {
            Sweep::Clients(self.clients.clone())
        } else {
            Sweep::Shares(self.shares.clone(), self.clients_max)
        };
        let keys = Keys::Synthetic {
            popularity: self.keys,
            count: self.count,
            size: self.size,
            format: self.key_format.clone(),
            read_share: self.read_share,
        };
        let out = self.out.clone().unwrap_or_else(default_out);
        Ok(Settings {
            plan: Plan {
                fixed: self.fixed,
                prefix: self.prefix.clone(),
                token,
                warmup: Some(Length::Seconds(self.warmup)),
                length: Some(Length::Seconds(self.duration)),
                fill: self.fill.then_some(64.min(self.connections)),
                verify: self.verify,
                threads: self.threads,
                connections: self.connections,
                timeout_s: self.timeout,
                window_s: self.window,
                objectives_ms: self.objectives.clone(),
                seed: self.seed,
                ..Plan::new(&self.url, Load::Nothing, keys, out)
            },
            sweep,
            arrivals: match self.arrivals {
                ArrivalsArg::Poisson => Arrivals::Poisson,
                ArrivalsArg::Constant => Arrivals::Constant,
            },
            think_ms: self.think_ms,
            think: match self.think {
                ThinkArg::Exponential => Think::Exponential,
                ThinkArg::Constant => Think::Constant,
            },
            repeat: self.repeat,
            half_width: self.half_width,
            quantile: self.quantile,
            budget_s: self.budget,
        })
    }
}
