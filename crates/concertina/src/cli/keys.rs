//! `concertina keys`.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use configuration::token;
use s3::keys::{self, Files};
use s3::seal::{CREDENTIAL, MasterKey};

use crate::cli::output::outln;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina keys master master-key
  concertina keys seal keys.toml --master master-key
  concertina keys check keys.toml --master master-key
  concertina keys token")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Write a new master key
    Master {
        /// The file, which must not exist
        file: PathBuf,
    },
    /// Seal the secrets in a file of access keys with a master key, in place
    Seal {
        /// File of access keys (s3.keys)
        keys: PathBuf,
        /// File of the master key [default: systemd's credential concertina-master-key]
        #[arg(long, value_name = "FILE")]
        master: Option<PathBuf>,
        /// The master key before: what is sealed with it is sealed anew
        #[arg(long, value_name = "FILE")]
        previous: Option<PathBuf>,
    },
    /// Read a file of access keys as a server does, and list ids and scopes
    Check {
        /// File of access keys (s3.keys)
        keys: PathBuf,
        /// File of the master key [default: systemd's credential concertina-master-key]
        #[arg(long, value_name = "FILE")]
        master: Option<PathBuf>,
    },
    /// Make a token for clients of HTTP, and print it with the hash to configure
    Token {
        /// Print the hash of the token in this file instead of making one
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Master { file } => {
            write_new(file).with_context(|| format!("cannot write {}", file.display()))?;
            outln!(
                "{}: a new master key of mark {}",
                file.display(),
                MasterKey::read(file)?.mark()
            );
        }
        Command::Seal { keys, master, previous } => {
            let master = master_of(master.as_deref())?;
            let previous = previous.as_deref().map(MasterKey::read).transpose()?;
            let done = keys::seal_file(keys, &master, previous.as_ref())
                .with_context(|| format!("nothing is changed in {}", keys.display()))?;
            outln!(
                "{}: {} secret(s) sealed, {} of them anew; {} were sealed with this key before (mark {})",
                keys.display(),
                done.plain + done.previous,
                done.previous,
                done.same,
                master.mark()
            );
        }
        Command::Check { keys, master } => {
            let files = Files { keys: keys.clone(), master: master.clone() };
            let listed = keys::list(&files);
            for key in listed.with_context(|| keys.display().to_string())? {
                let kept = if key.sealed { "sealed" } else { "plain" };
                outln!("{}  {kept}  {}", key.id, key.scopes.join(" "));
            }
        }
        Command::Token { file: None } => {
            let token = token::new_secret();
            outln!("for clients:  {token}");
            outln!("for servers:  serve.token = \"{}\"", token::hashed(&token));
        }
        Command::Token { file: Some(file) } => {
            let text = record::file::read_text(file);
            let text = text.with_context(|| format!("cannot read {}", file.display()))?;
            outln!("serve.token = \"{}\"", token::hashed(text.trim_ascii()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_new(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", token::new_secret())?;
    file.sync_all()
}

fn master_of(named: Option<&Path>) -> anyhow::Result<MasterKey> {
    let found = MasterKey::find(named, std::env::var_os("CREDENTIALS_DIRECTORY").as_deref())?;
    found.with_context(|| {
        format!("there is no master key: add --master FILE, or pass the credential {CREDENTIAL}")
    })
}
