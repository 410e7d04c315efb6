//! `concertina serve`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tracing::{info, warn};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets};
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::cli::output::output;
use crate::cli::parent::end_with_parent;
use crate::cli::repeats::Repeats;
use crate::cli::serve_s3;
use configuration::Config;
use serve::{self, Server};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina serve
  concertina serve --config node.toml --set node.memory_bytes=8GiB
  concertina serve --s3 's3://BUCKET?endpoint=https://s3.example.com&region=eu-central-1'
  concertina serve --set s3.listen=127.0.0.1:9000 --set s3.keys=keys.toml
  concertina serve --role proxy --set 'pool.0.servers=[\"127.0.0.1:11211\", \"127.0.0.1:11212\"]'

Without a configuration objects are at http://127.0.0.1:7070/objects/KEY, the page is at http://127.0.0.1:7070/,
data are in ./concertina-data, and memory is 64 MiB. CONCERTINA_TOKEN and CONCERTINA_CLUSTER_TOKEN in the
environment set serve.token and cluster.token. SIGTERM and Ctrl-C end the server once its requests are answered.")]
pub struct Args {
    /// Configuration file (TOML); `concertina config` prints all keys
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key: section.key=value; may be repeated, and the last of a key counts
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The bucket behind: s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]; sets origin.kind, .bucket, .prefix, .endpoint and .region
    #[arg(long, value_name = "URL")]
    s3: Option<String>,
    /// The role of this process: all, gateway, node or proxy (serve.role)
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Take the configured origin even if this process remembers another one, and make it if it is missing
    #[arg(long)]
    create_origin: bool,
    /// Print the address as one line of JSON on standard output when listening
    #[arg(long)]
    json: bool,
    /// End, as after SIGTERM, when standard input ends: of a process that another one starts for itself
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Overrides that set the tokens from the environment, which other users of the machine cannot read as they can a command line.
pub(super) fn tokens(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let names =
        [("CONCERTINA_TOKEN", "serve.token"), ("CONCERTINA_CLUSTER_TOKEN", "cluster.token")];
    let set = |(name, key)| {
        let token = variable(name).filter(|token| !token.is_empty())?;
        Some(format!("{key}={}", toml::Value::String(token)))
    };
    names.into_iter().filter_map(set).collect()
}

/// The first of `NAME`, `NAME-2`, `NAME-3` and so on that holds no run, so that a service starts again after a crash.
fn next_run_dir(dir: &Path) -> PathBuf {
    let holds_run = |dir: &Path| dir.join("run.toml").symlink_metadata().is_ok();
    let numbered = |number: u64| {
        let mut name = dir.as_os_str().to_owned();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    };
    let later = (2..).map(numbered);
    let mut all = std::iter::once(dir.to_owned()).chain(later);
    all.find(|dir| !holds_run(dir)).unwrap_or_else(|| dir.to_owned())
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let levels = Targets::new()
        .with_default(LevelFilter::INFO)
        // It tells of every request that a client got wrong, which is for the client to know.
        .with_target("s3s", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let repeats = Repeats::default();
    let filter = levels.and(repeats.clone());
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    let mut set = tokens(|name| std::env::var(name).ok());
    set.extend(args.s3.as_deref().map(serve_s3::overrides).transpose()?.unwrap_or_default());
    set.extend(args.set);
    set.extend(args.role.map(|role| format!("serve.role={role}")));
    let mut config = Config::load(args.config.as_deref(), &set)?;
    let read = config.clone();
    config.origin.fill_credentials(|name| std::env::var(name).ok());
    if let Some(dir) = &mut config.observe.run_dir {
        let next = next_run_dir(dir);
        if next != *dir {
            info!(
                "{} holds a run already: this one is recorded in {}",
                dir.display(),
                next.display()
            );
            *dir = next;
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Install the handlers before writing anything, so that an early signal is not lost.
    let (signals, mut hangup) = runtime.block_on(async { anyhow::Ok((signals()?, hangup()?)) })?;
    if args.with_parent {
        end_with_parent()?;
    }
    let laboratory = config.laboratory();
    let server = Server::start_with(config.clone(), None, args.create_origin)?;
    serve::announce(&config, &server);
    if args.json {
        let address = server.address().to_string();
        let line = serde_json::json!({
            "address": address,
            "url": format!("http://{address}"),
            "memcached": server.memcached(),
            "s3": server.s3(),
            "laboratory": laboratory,
            "pid": std::process::id(),
        });
        // A server keeps running if its standard output is closed.
        if let Err(error) = writeln!(output(), "{line}") {
            warn!("cannot write the address to standard output: {error}");
        }
    }
    let ends = runtime.block_on(async {
        tokio::select! {
            name = first(signals) => Ok(name),
            why = server.lost() => Err(why),
            () = tell(&repeats) => Ok("the end"),
            () = reload(&mut hangup, args.config.as_deref(), &set, &read, &server) => Ok("the end"),
        }
    });
    let why = ends.as_ref().unwrap_or(&"the place among the members is lost");
    info!("{why}: waiting at most {} s for requests in flight", config.serve.drain_s);
    server.stop();
    repeats.tell_all();
    info!("stopped");
    match ends {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(why) => anyhow::bail!(why),
    }
}

/// Logs now and then what was left out of the log; never returns.
async fn tell(repeats: &Repeats) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        repeats.tell();
    }
}

/// Reads the configuration again at each SIGHUP; never returns. Whatever the file has, the process goes on. What has changed
/// in it since the start and is not taken is logged, as whoever sends the signal expects otherwise.
async fn reload(
    hangup: &mut Hangup,
    file: Option<&Path>,
    set: &[String],
    read_first: &Config,
    server: &Server,
) {
    while hangup.recv().await.is_some() {
        let config = match Config::load(file, set) {
            Ok(config) => config,
            Err(mistakes) => {
                warn!(
                    "SIGHUP: the configuration in use is kept, since the file has mistakes:\n{mistakes}"
                );
                continue;
            }
        };
        // On this thread, which has nothing else to do but to wait for signals.
        match server.reload(&config) {
            Ok(true) => info!("SIGHUP: the pools and routes of the configuration are in use now"),
            Ok(false) => {
                info!("SIGHUP: this role reads its configuration only at its start; restart it")
            }
            Err(error) => {
                warn!("SIGHUP: the configuration in use is kept: {error:#}");
                continue;
            }
        }
        let mut waiting = read_first.differences(&config);
        waiting.retain(|key| !server.reloads(key));
        if !waiting.is_empty() {
            let waiting = waiting.join(", ");
            warn!(
                "SIGHUP: changed in the configuration, and in use from the next start on: {waiting}"
            );
        }
    }
    std::future::pending().await
}

type Hangup = tokio::signal::unix::Signal;

fn hangup() -> anyhow::Result<Hangup> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::hangup()).context("cannot listen for signals")
}

type Signals = [(&'static str, tokio::signal::unix::Signal); 2];

fn signals() -> anyhow::Result<Signals> {
    use tokio::signal::unix::{SignalKind, signal};
    let on = |kind| signal(kind).context("cannot listen for signals");
    // Unheard, this signal ends the process at a write past the limit of a file's size (`ulimit -f`); the write fails in any case,
    // and that alone is for a request or a device to bear. tokio keeps the handler when the listener is dropped.
    drop(on(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    Ok([("SIGINT", on(SignalKind::interrupt())?), ("SIGTERM", on(SignalKind::terminate())?)])
}

async fn first([mut interrupt, mut terminate]: Signals) -> &'static str {
    tokio::select! {
        _ = interrupt.1.recv() => interrupt.0,
        _ = terminate.1.recv() => terminate.0,
    }
}

#[cfg(test)]
mod tests {
    use configuration::Secret;

    use super::*;

    #[test]
    fn a_run_that_is_there_is_followed_by_a_numbered_one() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("run");
        assert_eq!(next_run_dir(&dir), dir);
        for expected in ["run-2", "run-3"] {
            let begun = next_run_dir(&dir);
            std::fs::create_dir_all(&begun).unwrap();
            // An empty folder is not a run.
            assert_eq!(next_run_dir(&dir), begun);
            std::fs::write(begun.join("run.toml"), "").unwrap();
            assert_eq!(next_run_dir(&dir), folder.path().join(expected));
        }
    }

    #[test]
    fn tokens_come_from_the_environment_unless_they_are_set_elsewhere() {
        let of = |variable: &str| match variable {
            "CONCERTINA_TOKEN" => Some("1 \"a\" = \\b".to_owned()),
            "CONCERTINA_CLUSTER_TOKEN" => Some(String::new()),
            _ => None,
        };
        let mut set = tokens(of);
        let config = Config::load(None, &set).unwrap();
        assert_eq!(config.serve.token.as_ref().map(Secret::expose), Some("1 \"a\" = \\b"));
        assert_eq!(config.cluster.token, None);
        set.push("serve.token=other".to_owned());
        let config = Config::load(None, &set).unwrap();
        assert_eq!(config.serve.token.as_ref().map(Secret::expose), Some("other"));
    }
}
