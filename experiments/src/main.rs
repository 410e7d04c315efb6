//! The program `experiments`: repeats an experiment on this machine and judges its claims, or
//! judges records again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use experiments::{Options, TooSmall, Verdict, claims, judge, reproduce};
use record::Awake;

/// Exit codes of `run`. 0: all claims hold.
const EXIT_FAILS: u8 = 1;
/// A claim is not shown, and none fails.
const EXIT_NOT_SHOWN: u8 = 2;
/// The machine is too small for the experiment.
const EXIT_TOO_SMALL: u8 = 3;
/// The command could not be carried out: wrong arguments, a missing program, a file that cannot be
/// written.
const EXIT_ERROR: u8 = 4;

/// Repeats an experiment on this machine and judges its claims.
#[derive(Parser)]
#[command(
    name = "experiments",
    version,
    max_term_width = 100,
    after_help = "Examples:
  experiments run experiments/spotify-single --short
  experiments run experiments/spotify-single --out /tmp/again --json
  experiments judge                         # all records, and the table in docs/benchmarks.md
  experiments judge experiments/kill
  experiments reproduce spotify             # target/reproduce/index.html
  make experiment NAME=spotify-single SHORT=1"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Repeat an experiment on this machine and judge its claims
    ///
    /// Exit codes: 0 all claims hold, 1 a claim fails, 2 a claim is not shown and none fails, 3 the
    /// machine is too small, 4 the experiment could not be run.
    Run(Run),
    /// Judge the claims of existing records again
    Judge(Judge),
    /// Gather every figure and table of the sources, theirs beside ours, in one page
    ///
    /// Computes what follows from published parameters, and shows the newest record of what was measured.
    Reproduce(Reproduce),
    /// Run a command while the machine is taken at random instants, as by another guest of a hypervisor
    ///
    /// Example: experiments thief --share 0.1 -- target/release/concertina demo
    Thief(experiments::thief::Args),
    /// One of the processes that `experiments/shard-peers` measures
    #[command(hide = true, subcommand)]
    Answer(experiments::shard_peers::Command),
    /// The distance between middlewares and servers in `experiments/asl-live`
    #[command(hide = true)]
    Distance(experiments::asl_live::Distance),
}

#[derive(clap::Args)]
struct Run {
    /// The experiment's folder
    folder: PathBuf,
    /// Measure fewer points, at full width and with the same goals, in at most five minutes
    #[arg(long)]
    short: bool,
    /// Where results go, an empty folder [default: FOLDER/record/DATE-MACHINE]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where data, run folders and logs go while it runs [default: a temporary folder, removed
    /// after]
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Print the claims as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args)]
struct Judge {
    /// Folders of experiments or of records [default: all of `experiments`, and the table in the
    /// document]
    folders: Vec<PathBuf>,
    /// The document that has the table of all records
    #[arg(long, default_value = "docs/benchmarks.md")]
    document: PathBuf,
    /// List every claim with its verdict
    #[arg(long)]
    claims: bool,
}

#[derive(clap::Args)]
struct Reproduce {
    /// Chapters: spotify, lastfm, att, blowfish, middleware [default: all]
    chapters: Vec<String>,
    /// Run the chapters' experiments first: short (about half an hour for all chapters) or long (hours)
    #[arg(long, value_name = "FORM")]
    run: Option<reproduce::Form>,
    /// Where the page goes
    #[arg(long, default_value = "target/reproduce")]
    out: PathBuf,
    /// The program whose commands compute
    #[arg(long, default_value = "target/release/concertina")]
    program: PathBuf,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { EXIT_ERROR.into() } else { ExitCode::SUCCESS };
        }
    };
    let done = match args.command {
        Command::Run(args) => run(args),
        Command::Judge(args) => judge_records(&args),
        Command::Reproduce(args) => reproduce_sources(args),
        Command::Thief(args) => experiments::thief::run(&args).map(|status| {
            status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_ERROR).into()
        }),
        Command::Answer(command) => {
            experiments::shard_peers::answer(&command).map(|()| ExitCode::SUCCESS)
        }
        Command::Distance(distance) => distance.run().map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("experiments: {error:#}");
        let too_small = error.downcast_ref::<TooSmall>().is_some();
        if too_small { EXIT_TOO_SMALL.into() } else { EXIT_ERROR.into() }
    })
}

fn run(run: Run) -> anyhow::Result<ExitCode> {
    let temporary = tempfile::tempdir()?;
    let scratch = run.scratch.unwrap_or_else(|| temporary.path().to_owned());
    let Run { folder, out, short, quiet, json, .. } = run;
    let awake = Awake::hold();
    if awake.is_none() && !quiet {
        eprintln!(
            "not root: processors may sleep between requests; a virtual machine loses time so"
        );
    }
    let finished = experiments::run(Options { folder, out, scratch, short, quiet })?;
    if json {
        println!("{}", serde_json::to_string_pretty(&finished.claims)?);
    } else {
        print!("{}", claims::table(&finished.claims));
        println!("results: {}", finished.out.display());
    }
    Ok(match finished.verdict() {
        Verdict::Holds => ExitCode::SUCCESS,
        Verdict::Fails => EXIT_FAILS.into(),
        Verdict::NotShown => EXIT_NOT_SHOWN.into(),
    })
}

fn reproduce_sources(args: Reproduce) -> anyhow::Result<ExitCode> {
    let Reproduce { chapters, run, out, program, quiet } = args;
    let experiments = PathBuf::from("experiments");
    let awake = run.and_then(|_| Awake::hold());
    let request = reproduce::Request { experiments, program, out, chapters, rerun: run, quiet };
    let site = reproduce::reproduce(&request)?;
    drop(awake);
    for chapter in &site.chapters {
        println!("{}: {}", chapter.title, chapter.count);
    }
    println!("page: {}", site.page.display());
    Ok(ExitCode::SUCCESS)
}

fn judge_records(args: &Judge) -> anyhow::Result<ExitCode> {
    let all = args.folders.is_empty();
    let folders = if all { vec![PathBuf::from("experiments")] } else { args.folders.clone() };
    let records = judge::records(&folders)?;
    let judged: Vec<_> = records.iter().map(|r| judge::judge(r)).collect::<anyhow::Result<_>>()?;
    let table = judge::table(&judged);
    print!("{table}");
    if args.claims {
        for one in &judged {
            println!("\n{}, {}\n{}", one.experiment, one.record, claims::table(&one.claims));
        }
    }
    if all {
        write(&args.document, &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, table: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let document = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let document =
        judge::in_document(&document, table).with_context(|| format!("cannot change {shown}"))?;
    std::fs::write(path, document).with_context(|| format!("cannot write {shown}"))
}
