//! `shard-queries-bench run` measures queries, and `shard-queries-bench serve` is one of its engines;
//! `shard-queries-bench layers` measures layers.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use shard_queries_bench::{ceiling, config::Config, curve, layers, measure, ours};
use shard_queries_bench::{queries::Queries, text};

/// Queries on the compressed shard beside sdsl-lite's indexes, and its layers. `experiments run
/// experiments/shard-queries` and `… experiments/shard-layers` start this.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure all engines and write OUT/measurements.json
    Run(Run),
    /// Measure layers and write OUT/measurements.json
    Layers(Layers),
    /// Answer queries of the protocol on standard input, as one engine
    Serve(Serve),
    /// Write a text, for experiments/shard-build
    Text(text::Arguments),
    /// Measure one shard whose layers grow, for experiments/shard-curve
    Curve(curve::Arguments),
}

#[derive(clap::Args)]
struct Run {
    /// The experiment's folder, with config.toml
    folder: PathBuf,
    /// Where measurements.json goes
    #[arg(long)]
    out: PathBuf,
    /// Where texts, indexes and compiled rivals go
    #[arg(long)]
    scratch: PathBuf,
    /// Measure fewer points
    #[arg(long)]
    short: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args)]
struct Layers {
    /// The experiment's folder, with config.toml
    folder: PathBuf,
    /// Where measurements.json goes
    #[arg(long)]
    out: PathBuf,
    /// Measure a smaller text, less often
    #[arg(long)]
    short: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args)]
struct Serve {
    /// Folder with the text and the queries
    folder: PathBuf,
    /// Text positions of which one has its row stored, so that reading can start there
    #[arg(long, required_unless_present = "ceiling")]
    alpha_isa: Option<u32>,
    /// Text positions of which one is stored with its row, so that a match's position is found
    #[arg(long, required_unless_present = "ceiling")]
    alpha_sa: Option<u32>,
    /// Also hold the text as tokens, in blocks: its beginning, in so many bytes × the text's, or all of it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "inf")]
    text_layer: Option<f64>,
    /// Not an index: dependent accesses to memory of the text's size
    #[arg(long, conflicts_with_all = ["alpha_isa", "alpha_sa", "text_layer"])]
    ceiling: bool,
}

fn main() -> anyhow::Result<()> {
    // An experiment that is killed leaves nothing behind that goes on measuring.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context("cannot ask to be ended with the process that started this")?;
    match Arguments::parse().command {
        Command::Run(run) => {
            let config = Config::read(&run.folder.join("config.toml"))?;
            let program = std::env::current_exe().context("cannot find this program's own file")?;
            let place = measure::Place {
                folder: &run.folder,
                scratch: &run.scratch,
                program: &program,
                quiet: run.quiet,
            };
            measure::run(&config, run.short, &place)?.write(&run.out)
        }
        Command::Curve(arguments) => curve::run(&arguments),
        Command::Text(arguments) => text::write(&arguments),
        Command::Layers(asked) => {
            let config = layers::Config::read(&asked.folder.join("config.toml"))?;
            let say = |what: &str| {
                if !asked.quiet {
                    eprintln!("{what}");
                }
            };
            layers::run(&config, asked.short, &asked.folder, &say)?.write(&asked.out)
        }
        Command::Serve(serve) => {
            let text = Queries::read_text(&serve.folder)?;
            match (serve.alpha_sa, serve.alpha_isa) {
                (Some(sa), Some(isa)) => {
                    let point = ours::Point { sa, isa, text_layer: serve.text_layer };
                    ours::serve(text, &Queries::read(&serve.folder)?, point)
                }
                _ => ceiling::serve(text.len()),
            }
        }
    }
}
