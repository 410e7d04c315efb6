//! `concertina config`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::output::{out, outln};
use configuration::Config;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    source: Source,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List all mistakes in a configuration
    Check {
        /// Configuration file (TOML)
        file: PathBuf,
    },
}

#[derive(clap::Args)]
struct Source {
    /// Configuration file (TOML); without one, the defaults are printed
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key: section.key=value; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print as JSON, without explanations
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(Command::Check { file }) = args.command {
        Config::load(Some(&file), &[])?;
        outln!("{}: no mistakes", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let Source { config, set, json } = args.source;
    let config = Config::load(config.as_deref(), &set)?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&config.as_table())?);
    } else {
        out!("{}", config.print());
    }
    Ok(ExitCode::SUCCESS)
}
