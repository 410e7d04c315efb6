//! `concertina cluster`: the weights and settings that the processes of a cluster share through etcd.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use toml::Table;

use super::data_print as print;
use super::live::Endpoint;
use crate::remote::server::Refused;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina cluster get
  concertina cluster set weight.node-3=0.5
  concertina cluster set gateway.hedge_share=0.1 act.weights=auto
  concertina cluster unset weight.node-3
  concertina cluster apply shared.toml

For clusters whose members are in etcd (membership.kind = \"etcd\"). Weights move keys at once, and no others
than they must. Settings lie on top of each process's own configuration from its next start on; [[pool]] and
[[route]] of the memcached proxy are among them. A file that is applied has what `get` prints: [weights] by
member, and sections as in the configuration; it replaces all that was shared before.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print what is shared, as TOML
    Get {
        /// Print JSON, with what is refused and what counts from the next start on
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: Endpoint,
    },
    /// Share weights and settings beside what is shared
    Set {
        /// weight.MEMBER=NUMBER or section.key=value
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        at: Endpoint,
    },
    /// Share weights and settings no longer
    Unset {
        /// weight.MEMBER, section.key, pool or route
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        #[command(flatten)]
        at: Endpoint,
    },
    /// Share what a file has, and nothing else
    Apply {
        /// The file (TOML)
        file: PathBuf,
        #[command(flatten)]
        at: Endpoint,
    },
}

/// Attempts of a change that meets changes of others.
const ATTEMPTS: usize = 8;

/// What is shared.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shared {
    weights: Table,
    settings: Table,
}

impl Shared {
    fn from_reply(shown: &Value) -> anyhow::Result<Shared> {
        let table = |name: &str| {
            let given = shown.get(name).cloned().unwrap_or(json!({}));
            serde_json::from_value(given)
                .with_context(|| format!("`{name}` in the server's reply is not a table"))
        };
        Ok(Shared { weights: table("weights")?, settings: table("settings")? })
    }

    /// What a file has.
    fn parse(text: &str) -> anyhow::Result<Shared> {
        let mut settings: Table = text.parse()?;
        let weights = match settings.remove("weights") {
            Some(toml::Value::Table(weights)) => weights,
            Some(_) => bail!("`weights` is not a table; write [weights]"),
            None => Table::new(),
        };
        Ok(Shared { weights, settings })
    }

    fn print(&self) -> anyhow::Result<String> {
        let mut all = Table::new();
        if !self.weights.is_empty() {
            all.insert("weights".to_owned(), toml::Value::Table(self.weights.clone()));
        }
        all.extend(self.settings.clone());
        Ok(toml::to_string(&all)?)
    }

    fn set(&mut self, change: &str) -> anyhow::Result<()> {
        let Some(weight) = change.strip_prefix("weight.") else {
            return configuration::set_shared(&mut self.settings, change)
                .map_err(|why| anyhow::anyhow!("{change}: {why}"));
        };
        // The name of a member may contain dots.
        let (name, value) = weight.split_once('=').context("write weight.MEMBER=NUMBER")?;
        let number: f64 =
            value.trim().parse().with_context(|| format!("{change}: {value:?} is not a number"))?;
        self.weights.insert(name.trim().to_owned(), toml::Value::Float(number));
        Ok(())
    }

    fn unset(&mut self, key: &str) -> anyhow::Result<()> {
        let gone = match (key.strip_prefix("weight."), key.split_once('.')) {
            (Some(name), _) => self.weights.remove(name).is_some(),
            (None, Some((section, key))) => {
                let table = self.settings.get_mut(section).and_then(|it| it.as_table_mut());
                let gone = table.is_some_and(|table| table.remove(key).is_some());
                let empty = |it: &toml::Value| it.as_table().is_some_and(Table::is_empty);
                if self.settings.get(section).is_some_and(empty) {
                    self.settings.remove(section);
                }
                gone
            }
            (None, None) => self.settings.remove(key).is_some(),
        };
        ensure!(gone, "{key:?} is not shared; see `concertina cluster get`");
        Ok(())
    }
}

/// Changes what is shared, again if somebody else did meanwhile. Returns the version.
fn change(
    at: &Endpoint,
    change: &dyn Fn(&mut Shared) -> anyhow::Result<()>,
) -> anyhow::Result<(u64, Vec<String>)> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let shown: Value = at.json(&Method::GET, PATH)?;
        let version = shown["version"].as_u64().context("the server's reply has no `version`")?;
        let next = version.checked_add(1).context("the version cannot increase any more")?;
        let mut shared = Shared::from_reply(&shown)?;
        change(&mut shared)?;
        let new = json!({
            "format": 1, "version": next,
            "weights": shared.weights, "settings": shared.settings,
        });
        let written = at.send(&Method::PUT, PATH, new.to_string().into_bytes());
        let conflict = written.as_ref().err().and_then(|error| error.downcast_ref::<Refused>());
        let conflict = matches!(conflict, Some(Refused::Status(StatusCode::CONFLICT, _)));
        if !conflict || attempts == ATTEMPTS {
            written?;
            let later: Value = at.json(&Method::GET, PATH)?;
            let later = later.get("at_next_start").cloned().unwrap_or_default();
            return Ok((next, serde_json::from_value(later).unwrap_or_default()));
        }
    }
}

const PATH: &str = "/admin/cluster";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (version, later) = match &args.what {
        What::Get { json, at } => {
            let shown: Value = at.json(&Method::GET, PATH)?;
            if *json {
                return print::value(&shown);
            }
            let mut text = format!("# version {}\n", shown["version"]);
            if let Some(why) = shown["refused"].as_str() {
                text += &format!("# what etcd holds is refused: {}\n", why.replace('\n', "\n# "));
            }
            text += &Shared::from_reply(&shown)?.print()?;
            return print::line(text.trim_end());
        }
        What::Set { changes, at } => {
            change(at, &|shared| changes.iter().try_for_each(|one| shared.set(one)))?
        }
        What::Unset { keys, at } => {
            change(at, &|shared| keys.iter().try_for_each(|key| shared.unset(key)))?
        }
        What::Apply { file, at } => {
            let text = record::file::read_text(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let new = Shared::parse(&text).with_context(|| file.display().to_string())?;
            change(at, &|shared| {
                shared.clone_from(&new);
                Ok(())
            })?
        }
    };
    let later = match later.is_empty() {
        true => String::new(),
        false => format!("; from each process's next start on: {}", later.join(", ")),
    };
    print::line(&format!("version {version} of the cluster's configuration is written{later}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_changed_key_by_key() {
        let mut shared = Shared::default();
        for change in ["weight.node-3.b=0.5", "gateway.hedge_share=0.1", "act.weights=auto"] {
            shared.set(change).unwrap();
        }
        shared.set("pool.0.servers=[\"127.0.0.1:1\"]").unwrap();
        let text = shared.print().unwrap();
        assert_eq!(Shared::parse(&text).unwrap(), shared, "{text}");
        assert!(
            text.contains("\"node-3.b\" = 0.5") && text.contains("hedge_share = 0.1"),
            "{text}"
        );
        for key in ["weight.node-3.b", "gateway.hedge_share", "act.weights", "pool"] {
            shared.unset(key).unwrap();
        }
        assert_eq!(shared, Shared::default());
        for (change, says) in [
            ("weight.a=x", "not a number"),
            ("serve.listen=0.0.0.0:1", "cannot be shared"),
            ("gateway", "has no `=`"),
        ] {
            let why = shared.set(change).unwrap_err().to_string();
            assert!(why.contains(says), "{change}: {why}");
        }
        assert!(shared.unset("weight.a").unwrap_err().to_string().contains("is not shared"));
    }
}
