//! `concertina predict`.

use std::process::ExitCode;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`predict` is not built yet")
}
