//! Starts the parts of a measurement as separate processes: the server and the load generator.
//!
//! The load generator must not share a process, a clock thread or a lock with the server that it
//! measures, so each is the binary `concertina` started again. The configurations of the servers
//! that a demo or an experiment starts are here too. A process inherits the processors of the
//! thread that starts it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use configuration::{Config, Device, Kind, Service, Size};
use engine::node::Tiers;
use engine::status::ProcessStatus;
use http::Method;
use record::RunFolder;
use rustix::process::{Pid, Signal, kill_process};

/// A running server process, stopped when dropped.
pub struct Server {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Server {
    /// Starts `concertina serve` with a configuration file that asks for port 0 and waits until it
    /// serves. Its standard error goes to `log`.
    ///
    /// # Errors
    /// If it ends before it serves; the error shows the end of its log.
    pub fn start(config: &Path, log: &Path) -> anyhow::Result<Server> {
        let errors =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program()?);
        command
            .args(["serve", "--with-parent", "--json", "--config"])
            .arg(config)
            // Its other end stays in `child`, unused, until this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = Running::start(&mut command).context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let started: Option<serde_json::Value> = serde_json::from_str(&line).ok();
        let url = started.as_ref().and_then(|s| s["url"].as_str()).map(str::to_owned);
        let Some(url) = url else {
            let _ = child.kill();
            let _ = child.wait();
            Running::remove(&child);
            bail!("the server did not start: {}", tail(log));
        };
        Ok(Server { child, url, log: log.to_owned() })
    }

    /// How late its emulated devices completed their reads since the previous call, in the mean, in seconds. Milliseconds
    /// mean that the real disk was slower than what is emulated on it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn device_lateness_s(&self) -> anyhow::Result<f64> {
        let server = crate::remote::server::Server::new(&self.url, None)?;
        let status: ProcessStatus = server.json(&Method::GET, "/admin/status", None)?;
        let lateness = status.node().and_then(|node| node.pacer_lateness);
        Ok(lateness.context("the server's status has no pacer_lateness")?.mean_us / 1e6)
    }

    /// The devices of a node, and what is hot.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn tiers(&self) -> anyhow::Result<Tiers> {
        let server = crate::remote::server::Server::new(&self.url, None)?;
        server.json(&Method::GET, "/admin/tiers", None)
    }

    /// `http://ADDRESS:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Asks the process to end (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// If it had ended already, ends with an error, or does not end within 30 s.
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
        // Of a process that a signal ends: its children end in order.
        wait_if_ending();
        let _ = self.child.kill();
        let _ = self.child.wait();
        Running::remove(&self.child);
    }
}

/// The processes that this one has started and not seen the end of.
struct Running;

static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

impl Running {
    fn all() -> MutexGuard<'static, Vec<Pid>> {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last() -> Option<Pid> {
        Running::all().last().copied()
    }

    /// Starts a process, unless this one is being ended.
    fn start(command: &mut Command) -> std::io::Result<Child> {
        loop {
            let mut running = Running::all();
            // Set under the same lock: a process is either seen by who ends them, or never started.
            if !ENDING.load(Ordering::Relaxed) {
                let child = command.spawn()?;
                running.push(Pid::from_child(&child));
                return Ok(child);
            }
            drop(running);
            wait_if_ending();
        }
    }

    /// Of a process that was waited for: its number may be another's from now on.
    fn remove(child: &Child) {
        Running::all().retain(|pid| *pid != Pid::from_child(child));
    }
}

/// How long processes have to end in order once this one was told to end.
const END_MAX: Duration = Duration::from_secs(15);

/// Ends this process, and first those that it has started, on SIGINT and SIGTERM: with the exit code that a shell
/// reports for the signal. What was written until then stays; `what` says where.
///
/// After SIGKILL, which nobody sees, they end by themselves (`--with-parent`).
///
/// # Errors
/// If the handlers cannot be set up.
pub fn end_on_signals(what: String) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    const WHY: &str = "cannot listen for signals";
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context(WHY)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        let (name, code) = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => ("SIGINT", 130),
                _ = terminate.recv() => ("SIGTERM", 143),
            }
        });
        {
            let _running = Running::all();
            ENDING.store(true, Ordering::Relaxed);
        }
        end_running();
        // As elsewhere: standard error may be closed.
        let _ = writeln!(
            std::io::stderr(),
            "concertina: {name}: the processes it started have ended; {what}"
        );
        std::process::exit(code)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context(WHY)?;
    Ok(())
}

/// Whether the process ends since it was told to.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Returns unless the process is being ended by a signal: then the failure of its work is that end's doing, and the
/// thread that ends it is to have the last word.
pub fn wait_if_ending() {
    while ENDING.load(Ordering::Relaxed) {
        std::thread::park();
    }
}

/// Ends the processes that were started, in order if they do so in time: the last one first, since a load generator
/// complains of a server that is gone.
fn end_running() {
    let until = Instant::now() + END_MAX;
    while let Some(pid) = Running::last() {
        let _ = kill_process(pid, Signal::TERM);
        while !is_gone(pid) {
            if Instant::now() > until {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Running::all().retain(|running| *running != pid);
    }
}

/// Whether a child has ended; who started it still has its status.
fn is_gone(pid: Pid) -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), look), Ok(None))
}

/// Runs `concertina load URL ARGS… --out DIR` to its end and reads the run folder. Progress is
/// shown unless `quiet`.
///
/// # Errors
/// If it fails, or its run folder cannot be read.
pub fn load(url: &str, args: &[String], out: &Path, quiet: bool) -> anyhow::Result<RunFolder> {
    let mut command = Command::new(program()?);
    command.args(["load", url, "--with-parent", "--json", "--out"]).arg(out).args(args);
    if quiet {
        command.arg("--quiet");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = Running::start(&mut command).context("cannot start the load generator")?;
    // `wait_with_output` closes what it finds, and the load generator would take that for our end.
    let input = child.stdin.take();
    let pid = Pid::from_child(&child);
    let output = child.wait_with_output();
    Running::all().retain(|running| *running != pid);
    drop(input);
    let output = output.context("cannot read what the load generator says")?;
    if !output.status.success() {
        bail!("the load generator ended with {}", output.status);
    }
    Ok(RunFolder::read(out)?)
}

/// The settings that all servers of experiments share: a port chosen by the kernel, enough
/// connections for an open loop, an origin without other writers, windows of one second counted at
/// 20, 50 and 100 ms.
pub fn server(memory_bytes: u64, devices: Vec<Device>, origin: &Path) -> Config {
    let mut config = Config { devices, ..Config::default() };
    config.serve.listen = "127.0.0.1:0".to_owned();
    config.serve.connections_max = 16_384;
    config.node.memory_bytes = Size(memory_bytes);
    config.node.revalidate_s = 0.0;
    config.origin.path = origin.to_owned();
    config
}

/// Devices that hold a small catalogue and queue without refusing. With a `service` they are
/// emulated devices: each real read is held for a drawn time.
pub fn disks(path: &Path, count: u32, service: Option<Service>) -> Vec<Device> {
    let bytes = Size(64 << 20);
    let path = path.to_owned();
    vec![Device { path, count, bytes, queue_length_max: 100_000, service, ..Device::default() }]
}

/// The service law of an emulated device that serves `rate` reads/s, by the name of its kind in a
/// configuration.
///
/// # Errors
/// If the kind is unknown.
pub fn service(kind: &str, rate: f64, scv: f64) -> anyhow::Result<Service> {
    let kind = match kind {
        "exponential" => Kind::Exponential,
        "gamma" => Kind::Gamma,
        "lognormal" => Kind::Lognormal,
        other => {
            bail!("unknown kind of service {other:?}: expected exponential, gamma or lognormal")
        }
    };
    Ok(Service { kind, mean_ms: 1000.0 / rate, scv, ..Service::default() })
}

/// Writes a complete configuration, as `concertina config` prints it.
///
/// # Errors
/// If the file cannot be written, or the configuration has a secret: what is printed has none, so the server would run
/// without it. Give such a server its secret in the environment.
pub fn write_config(path: &Path, config: &Config) -> anyhow::Result<()> {
    if let Some(secret) = config.secrets().iter().find(|secret| secret.value.is_some()) {
        bail!("{} is a secret, which is not written to {}", secret.place, path.display());
    }
    std::fs::write(path, config.print()).with_context(|| format!("cannot write {}", path.display()))
}

/// The `concertina` binary: this program itself, or the one beside it where another program uses
/// this library (`target/release/experiments`, or a test in `target/debug/deps`).
///
/// # Errors
/// If the binary has not been built.
pub fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    if own.file_stem().is_some_and(|stem| stem == "concertina") {
        return Ok(own);
    }
    let mut beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("concertina"));
    match beside.find(|path| path.is_file()) {
        Some(found) => Ok(found),
        None => bail!(
            "cannot find the program `concertina` beside {}: build it with `cargo build -p concertina`, \
             with --release if this program was",
            own.display()
        ),
    }
}

/// The last lines of a log, for an error message.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}
