//! Starts the parts of a measurement as processes of their own: the server, and the load generator.
//!
//! What measures must not share a process, a clock thread or a lock with what is measured, so both are
//! this program's own binary started again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::record::RunFolder;

/// A server that runs until it is stopped or dropped.
pub struct Server {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Server {
    /// Starts `concertina serve` with a configuration file that asks for port 0 and waits until it
    /// serves. What it says goes to `log`.
    ///
    /// # Errors
    /// If it does not come up within 60 s; the error shows the end of its log.
    pub fn start(config: &Path, log: &Path) -> anyhow::Result<Server> {
        let errors =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = program()?
            .args(["serve", "--json", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let started: Option<serde_json::Value> = serde_json::from_str(&line).ok();
        let url = started.as_ref().and_then(|s| s["url"].as_str()).map(str::to_owned);
        let Some(url) = url else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the server did not start: {}", tail(log));
        };
        Ok(Server { child, url, log: log.to_owned() })
    }

    /// `http://ADDRESS:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops it in good order and waits for it.
    ///
    /// # Errors
    /// If it had ended before, or ends with an error, or not within 30 s.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        if let Some(status) = self.child.try_wait()? {
            bail!("the server had ended already ({status}): {}", tail(&self.log));
        }
        kill_process(pid, Signal::TERM).context("cannot stop the server")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("the server ended with {status}: {}", tail(&self.log));
                }
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the server did not stop within 30 s: {}", tail(&self.log));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `concertina load URL ARGS… --out DIR` to its end and reads what it recorded. Its progress is
/// shown unless `quiet`.
///
/// # Errors
/// If it fails, or its run folder cannot be read.
pub fn load(url: &str, args: &[String], out: &Path, quiet: bool) -> anyhow::Result<RunFolder> {
    let mut command = program()?;
    command.args(["load", url, "--json", "--out"]).arg(out).args(args);
    if quiet {
        command.arg("--quiet");
    }
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the load generator")?;
    if !output.status.success() {
        bail!("the load generator ended with {}", output.status);
    }
    Ok(RunFolder::read(out)?)
}

fn program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?))
}

/// The last lines of a log, for an error.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}
