//! The program `experiments`: does an experiment again on this machine and judges its claims.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use experiments::{Context, claims};
use record::{Awake, Machine};

/// Does an experiment again on this machine and judges its claims.
#[derive(Parser)]
#[command(
    name = "experiments",
    version,
    max_term_width = 100,
    after_help = "Examples:
  experiments run experiments/spotify-single --short
  experiments run experiments/spotify-single --out /tmp/again --json
  make experiment NAME=spotify-single SHORT=1"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Do an experiment again on this machine; exits with 0 only if all its claims hold
    Run(Run),
    /// One of the processes that `experiments/shard-peers` asks
    #[command(hide = true, subcommand)]
    Answer(experiments::shard_peers::Command),
}

#[derive(clap::Args)]
struct Run {
    /// The experiment's folder
    folder: PathBuf,
    /// Measure fewer points, at full width and with the same goals, in at most five minutes
    #[arg(long)]
    short: bool,
    /// Where results go [default: FOLDER/record/DATE-MACHINE]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where data, run folders and logs go while it runs [default: a temporary folder, removed after]
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Print the claims as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("experiments: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    let run = match args.command {
        Command::Run(run) => run,
        Command::Answer(command) => {
            return experiments::shard_peers::answer(&command).map(|()| ExitCode::SUCCESS);
        }
    };
    let out = run.out.unwrap_or_else(|| run.folder.join("record").join(record_name()));
    let temporary = tempfile::tempdir()?;
    let scratch = run.scratch.unwrap_or_else(|| temporary.path().to_owned());
    let context = Context { folder: run.folder, out, scratch, short: run.short, quiet: run.quiet };
    let awake = Awake::hold();
    if awake.is_none() && !run.quiet {
        eprintln!(
            "not root: processors may sleep between requests; a virtual machine loses time so"
        );
    }
    let claims = experiments::run(&context)?;
    if run.json {
        println!("{}", serde_json::to_string_pretty(&claims)?);
    } else {
        print!("{}", claims::table(&claims));
        println!("results: {}", context.out.display());
    }
    let all = claims.iter().all(|claim| claim.holds);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `DATE-MACHINE`: the day in UTC, and the machine's processor and cores.
fn record_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = httpdate::fmt_http_date(UNIX_EPOCH + since);
    // "Sun, 06 Nov 1994 08:49:37 GMT"
    let parts: Vec<&str> = date.split(' ').collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = parts.get(2).and_then(|m| months.find(m)).map_or(0, |at| at / 3 + 1);
    let (day, year) = (parts.get(1).unwrap_or(&"00"), parts.get(3).unwrap_or(&"0000"));
    let machine = Machine::here();
    let processor: String = machine
        .processor
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let processor = processor.trim_matches('-');
    format!("{year}-{month:02}-{day}-{processor}-{}-cores", machine.cores)
}
