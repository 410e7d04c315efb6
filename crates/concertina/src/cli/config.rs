//! `concertina config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::output::{errln, out, outln};
use configuration::Config;
use configuration::nutcracker::{self, Translation};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  concertina config --config proxy.toml
  concertina config --from /etc/nutcracker/nutcracker.yml --pool alpha > proxy.toml

--from translates the configuration of twemproxy: the pool, its servers and where keys are. What has another meaning here is
told on standard error and in comments; what this proxy does not have is an error.")]
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
        #[arg(required_unless_present = "config")]
        file: Option<PathBuf>,
        /// The same, as other commands take it
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
        /// Override a key before the check: section.key=value; may be repeated, and the last of a key counts
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Source {
    /// Configuration file (TOML); without one, the defaults are printed
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key: section.key=value; may be repeated, and the last of a key counts
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Translate the configuration of twemproxy (nutcracker.yml) instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "set"])]
    from: Option<PathBuf>,
    /// The pool to translate, of a file with several
    #[arg(long, value_name = "NAME", requires = "from")]
    pool: Option<String>,
    /// Print as JSON, without explanations
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(Command::Check { file, config, set }) = args.command {
        let file = file.or(config).context("a configuration file is needed")?;
        Config::load(Some(&file), &set)?;
        outln!("{}: no mistakes", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let Source { config, set, from, pool, json } = args.source;
    if let Some(from) = from {
        return translate(&from, pool.as_deref(), json);
    }
    let config = Config::load(config.as_deref(), &set)?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&config.as_table())?);
    } else {
        out!("{}", config.print());
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the translation of a configuration of twemproxy.
fn translate(from: &Path, pool: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let file = || from.display().to_string();
    let most = record::file::CONFIG_BYTES_MAX;
    let text = record::file::read_text_of(from, most).with_context(file)?;
    let Translation { text, warnings } = nutcracker::translate(&text, pool).with_context(file)?;
    // What is printed can be read.
    let config = Config::parse(&text, "the translation", &[]).with_context(file)?;
    for warning in &warnings {
        errln!("warning: {warning}");
    }
    if json {
        let value = serde_json::json!({ "config": config.as_table(), "warnings": warnings });
        outln!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        out!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}
