//! `concertina completions` and `concertina man`: what a package installs beside the program, made from the command line itself.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::aot::{Bash, Fish, Zsh, generate};
use clap_mangen::Man;

use crate::cli::output::{output, unless_unread};

/// Arguments of `completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina completions bash > /etc/bash_completion.d/concertina
  concertina completions zsh > /usr/local/share/zsh/site-functions/_concertina
  concertina completions fish > ~/.config/fish/completions/concertina.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `man`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina man --out man1 && man -l man1/concertina-plan.1")]
pub struct ManArgs {
    /// The folder for the pages: concertina.1, and one for each command
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The program's name.
const NAME: &str = "concertina";

/// Prints the completions of the commands for a shell.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    // Into memory first: the generators panic where writing fails, as it does once a reader has closed the pipe.
    let mut text = Vec::new();
    match args.shell {
        Shell::Bash => generate(Bash, &mut command, NAME, &mut text),
        Shell::Zsh => generate(Zsh, &mut command, NAME, &mut text),
        Shell::Fish => generate(Fish, &mut command, NAME, &mut text),
    }
    unless_unread(output().write_all(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages. Pages that are there are replaced, other files are not.
pub fn man(args: &ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    let folder = &args.out;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    pages(command, &mut |name, text| {
        let path = folder.join(format!("{name}.1"));
        report::write_whole(&path, text, |old| old.contains("\n.TH concertina"))?;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, and those of its subcommands, each under the name by which `man` finds it: `concertina-data-import`.
fn pages(
    mut command: Command,
    write: &mut dyn FnMut(&str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    command = command.disable_help_subcommand(true);
    command.build();
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        let shown = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        waiting.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
        let mut page = Vec::new();
        let title = command.clone().version(env!("CARGO_PKG_VERSION"));
        Man::new(title).title(shown.clone()).render(&mut page)?;
        write(&shown, &String::from_utf8_lossy(&page))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let sub = |name: &'static str| Command::new(name).about("Does it");
        let data = sub("data").subcommand(sub("import").arg(clap::Arg::new("key").long("key")));
        let all =
            Command::new("concertina").version("1.2.3").subcommand(sub("fit")).subcommand(data);
        let mut found = Vec::new();
        pages(all, &mut |name, text| {
            assert!(text.contains(&format!("\n.TH {name} 1")), "{name}: {text}");
            assert_eq!(name == "concertina-data-import", text.contains("key"), "{text}");
            found.push(name.to_owned());
            Ok(())
        })
        .unwrap();
        found.sort();
        let names = ["concertina", "concertina-data", "concertina-data-import", "concertina-fit"];
        assert_eq!(found, names);
    }
}
