//! `concertina simulate`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ground::number::{digits, time};

use super::load::{bar, default_out, interrupted, popularity, seconds, size, watch_interrupts};
use crate::cli::output::{out, outln};
use crate::simulate::{AskedFault, Messages, Plan, run as go};
use configuration::Config;
use load::{Popularity, Size};
use report::objective::share;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina simulate --config cluster.toml --rate 1000,2000,3000
  concertina simulate --config cluster.toml --rate 2000 --lost a
  concertina simulate --config cluster.toml --rate 2000 --read-share 0.9 --gateways 3 --loss 1% \\
    --duplicates 1% --late 1%:50ms --fault kill:a@10s+5s --fault cut:origin@30s+2s --drift 200 --check

With --check the history is judged as in the simulator's own tests: after an acknowledged write no later
read returns an older version, and no acknowledged write is lost. Violations are listed, with exit code 1;
the same command with the same --seed reproduces them.")]
pub struct Args {
    /// Configuration file (TOML) of a server; each [[member]] becomes a node
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key: section.key=value; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Requests/s; a list makes one step for each
    #[arg(long, value_delimiter = ',', value_name = "R,…", required = true)]
    rate: Vec<f64>,
    /// Length of each step, in virtual time
    #[arg(long, default_value = "300s", value_parser = seconds, value_name = "TIME")]
    duration: f64,
    /// Time before each step that is not counted
    #[arg(long, default_value = "30s", value_parser = seconds, value_name = "TIME")]
    warmup: f64,
    /// Distinct keys
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    keys: u32,
    /// Popularity of keys: zipf:S or uniform
    #[arg(long, default_value = "zipf:0.99", value_parser = popularity, value_name = "LAW")]
    popularity: Popularity,
    /// Size of objects: 4096, 16k, or MIN..MAX
    #[arg(long, default_value = "4k", value_parser = size, value_name = "BYTES")]
    size: Size,
    /// Share of requests that are reads
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    read_share: f64,
    /// One-way delay of a message
    #[arg(long, default_value = "0.1ms", value_parser = seconds, value_name = "TIME")]
    network: f64,
    /// Mean response time of the origin (exponential)
    #[arg(long, default_value = "5ms", value_parser = seconds, value_name = "TIME")]
    origin: f64,
    /// Simulate this many identical nodes instead of the configuration's members
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// This member is down; may be repeated
    #[arg(long, value_name = "NAME")]
    lost: Vec<String>,
    /// This member's devices run at this multiple of their speed: NAME:0.5; may be repeated
    #[arg(long, value_parser = slow, value_name = "NAME:SPEED")]
    slow: Vec<(String, f64)>,
    /// Number of gateways, if there are several nodes
    #[arg(long, default_value_t = 1, value_name = "N")]
    gateways: u32,
    /// Share of messages between processes that are lost, like 1%
    #[arg(long, value_parser = share, value_name = "SHARE")]
    loss: Option<f64>,
    /// Share of messages that arrive twice
    #[arg(long, value_parser = share, value_name = "SHARE")]
    duplicates: Option<f64>,
    /// Share of messages that are late, and their mean delay: 1%:50ms
    #[arg(long, value_parser = late, value_name = "SHARE:TIME")]
    late: Option<(f64, f64)>,
    /// A fault after the warm-up: KIND:WHO@AT+FOR, like kill:a@10s+5s. Kinds: kill, wipe (devices
    /// lost), pause, cut, slow=FACTOR; of a member, gateway, gateway-1 … or origin; permanent
    /// without +FOR. shift=KEYS:keys@AT makes other keys popular
    #[arg(long, value_name = "KIND:WHO@AT+TIME")]
    fault: Vec<AskedFault>,
    /// Clocks run alternately fast and slow by this many millionths
    #[arg(long, default_value_t = 0, value_name = "PPM")]
    drift: i32,
    /// Check the history of reads and writes; list violations, with exit code 1
    #[arg(long)]
    check: bool,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// The run folder [default: runs/TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    use std::io::IsTerminal;
    let plan = Plan {
        config: Config::load(args.config.as_deref(), &args.set)?,
        rates: args.rate,
        duration_s: args.duration,
        warmup_s: args.warmup,
        keys: args.keys,
        popularity: args.popularity,
        bytes: (args.size.min, args.size.max),
        read_share: args.read_share,
        network_s: args.network,
        origin_s: args.origin,
        seed: args.seed,
        nodes: args.nodes,
        lost: args.lost,
        slow: args.slow,
        gateways: args.gateways,
        messages: Messages {
            loss: args.loss.unwrap_or(0.0),
            duplicates: args.duplicates.unwrap_or(0.0),
            late: args.late.map_or(0.0, |late| late.0),
            late_s: args.late.map_or(0.0, |late| late.1),
        },
        faults: args.fault,
        drift_ppm: args.drift,
        check: args.check,
        out: args.out.unwrap_or_else(default_out),
    };
    let stop = Arc::new(AtomicBool::new(false));
    watch_interrupts(&stop)?;
    let bar = bar(args.quiet || !std::io::stderr().is_terminal());
    let outcome = go(&plan, &stop, &mut |stage, done| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_prefix(stage.to_owned());
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        out!("{}", outcome.summary.table());
        outln!(
            "a simulation, not a measurement: {} requests in {}, {} requests/s",
            outcome.simulated_requests,
            time(outcome.seconds),
            digits(outcome.speed(), 4)
        );
        if let Some(violations) = &outcome.violations {
            let more = if violations.is_empty() { "no consistency violations" } else { "BROKEN:" };
            outln!("seed {}: {more}", plan.seed);
            for violation in violations {
                outln!("  {violation}");
            }
        }
    }
    if outcome.violations.as_ref().is_some_and(|violations| !violations.is_empty()) {
        return Ok(ExitCode::FAILURE);
    }
    Ok(if outcome.summary.interrupted { interrupted() } else { ExitCode::SUCCESS })
}

/// Parses `SHARE:TIME`.
fn late(text: &str) -> Result<(f64, f64), String> {
    let (of, time) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}`: SHARE:TIME expected, e.g. 1%:50ms"))?;
    Ok((share(of)?, seconds(time)?))
}

/// Parses `NAME:SPEED`.
fn slow(text: &str) -> Result<(String, f64), String> {
    let wrong = || format!("`{text}`: NAME:SPEED expected, e.g. a:0.5");
    let (name, speed) = text.rsplit_once(':').ok_or_else(wrong)?;
    let speed: f64 = speed.trim().parse().map_err(|_| wrong())?;
    if speed.is_finite() && speed > 0.0 { Ok((name.to_owned(), speed)) } else { Err(wrong()) }
}
