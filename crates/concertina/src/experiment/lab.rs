//! Starts the parts of a measurement as processes of their own: the server, and the load generator.
//!
//! What measures must not share a process, a clock thread or a lock with what is measured, so both are
//! this program's own binary started again. Here too: how experiments write the configuration of what
//! they start, and the catalogue of equally popular objects that they ask for.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::config::{Config, Device, Kind, Member, Role, Service, Size};
use crate::record::RunFolder;

/// A program that only one experiment needs: beside this one, or built where the experiment lies.
///
/// # Errors
/// If it is not there and cannot be built.
pub fn helper(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = own.with_file_name(name);
    if beside.exists() {
        return Ok(beside);
    }
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet", "-p", name])
        .current_dir(folder)
        .status();
    let built = folder.join("../../target/release").join(name);
    if !status.is_ok_and(|status| status.success()) || !built.exists() {
        bail!("there is no {}: build it with `cargo build --release -p {name}`", beside.display());
    }
    Ok(built)
}

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

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
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

/// Runs `concertina simulate --config CONFIG ARGS…` to its end; gives what it printed, as JSON.
///
/// # Errors
/// If it fails.
pub fn simulate(config: &Path, args: &[String]) -> anyhow::Result<String> {
    let output = program()?
        .args(["simulate", "--json", "--quiet", "--config"])
        .arg(config)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the simulation")?;
    if !output.status.success() {
        bail!("the simulation ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A free port of the loopback, for servers that must know each other's address before they start.
///
/// # Errors
/// If there is none. Another process can take the port before it is used: then its server does not start.
pub fn free_address() -> anyhow::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.to_string())
}

/// What the servers of experiments have in common: a port of the kernel's choice, connections enough
/// for an open loop, an origin that nobody else writes to, windows of a second counted at 20, 50 and
/// 100 ms.
pub fn server(memory_bytes: u64, devices: Vec<Device>, origin: &Path) -> Config {
    let mut config = Config { devices, ..Config::default() };
    config.serve.listen = "127.0.0.1:0".to_owned();
    config.serve.connections_max = 16_384;
    config.node.memory_bytes = Size(memory_bytes);
    config.node.revalidate_s = 0.0;
    config.origin.path = origin.to_owned();
    config
}

/// Disks that hold a small catalogue and queue without refusing; with a `service`, laboratory ones.
pub fn disks(path: &Path, count: u32, service: Option<Service>) -> Vec<Device> {
    let bytes = Size(64 << 20);
    let path = path.to_owned();
    vec![Device { path, count, bytes, queue_length_max: 100_000, service, ..Device::default() }]
}

/// The profile of a disk that serves `rate` reads/s, by the name of its kind in a configuration.
///
/// # Errors
/// If there is no such kind.
pub fn service(kind: &str, rate: f64, scv: f64) -> anyhow::Result<Service> {
    let kind = match kind {
        "exponential" => Kind::Exponential,
        "gamma" => Kind::Gamma,
        "lognormal" => Kind::Lognormal,
        other => bail!("there is no kind of profile {other:?}: exponential, gamma or lognormal"),
    };
    Ok(Service { kind, mean_ms: 1000.0 / rate, scv, ..Service::default() })
}

/// Writes a configuration in full, as `concertina config` prints it.
///
/// # Errors
/// If the file cannot be written.
pub fn write_config(path: &Path, config: &Config) -> anyhow::Result<()> {
    std::fs::write(path, config.print()).with_context(|| format!("cannot write {}", path.display()))
}

/// The same, as a process of a cluster: `own` is the member that it is and where it listens, `None` a
/// gateway. Nothing is copied to replicas before it is asked of them, so that memory holds what it is told.
pub fn in_cluster(mut config: Config, own: Option<&Member>, members: &[Member]) -> Config {
    config.serve.role = if own.is_some() { Role::Node } else { Role::Gateway };
    if let Some(own) = own {
        config.serve.listen = own.address.clone();
    }
    config.cluster.name = own.map(|own| own.name.clone());
    config.cluster.replicate_bytes = Size(0);
    config.members = members.to_vec();
    config
}

/// Objects `k0`, `k1` … of one size, all equally popular.
pub struct Catalogue {
    objects: u64,
    object_bytes: u64,
    /// A trace that asks for every object once: the warm-up, apart from what is measured.
    every_object: PathBuf,
}

/// Bytes that an entry of the memory tier takes beside the object: key, metadata, overhead.
const ENTRY_BYTES: u64 = 260;

impl Catalogue {
    /// Writes its trace into a folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(folder: &Path, objects: u64, object_bytes: u64) -> anyhow::Result<Catalogue> {
        let every_object = folder.join("every-object.csv");
        let mut text = String::from("time_ms,key,size,op\n");
        for object in 0..objects {
            text.push_str(&format!("0,k{object},{object_bytes},get\n"));
        }
        std::fs::write(&every_object, text).context("cannot write the catalogue")?;
        Ok(Catalogue { objects, object_bytes, every_object })
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        (0..self.objects).map(|object| format!("k{object}"))
    }

    /// Memory that holds so many of the objects.
    pub fn memory_bytes(&self, objects: f64) -> u64 {
        (objects * (self.object_bytes + ENTRY_BYTES) as f64) as u64
    }

    fn trace(&self, arguments: &[&str]) -> Vec<String> {
        let trace = ["--trace".to_owned(), self.every_object.display().to_string()];
        arguments.iter().map(|&a| a.to_owned()).chain(trace).collect()
    }

    /// Stores every object.
    ///
    /// # Errors
    /// As [`load`].
    pub fn put(&self, url: &str, out: &Path, quiet: bool) -> anyhow::Result<()> {
        load(url, &self.trace(&["--fill"]), out, quiet).map(|_| ())
    }

    /// Asks for every object once, in a closed loop, so that memory and devices hold what they can.
    ///
    /// # Errors
    /// As [`load`].
    pub fn ask_for_all(&self, url: &str, out: &Path, quiet: bool) -> anyhow::Result<()> {
        let requests = self.objects.to_string();
        let asked = ["--warmup", "0s", "--clients", "512", "--requests", &requests];
        load(url, &self.trace(&asked), out, quiet).map(|_| ())
    }

    /// Arguments of a simulation of the same.
    pub fn simulated(&self) -> Vec<String> {
        vec![
            format!("--keys={}", self.objects),
            "--popularity=uniform".to_owned(),
            format!("--size={}", self.object_bytes),
        ]
    }

    /// Arguments of a load of Poisson arrivals at `rate` requests/s, uniform over the catalogue, with
    /// seconds of warm-up and of measurement.
    pub fn uniform(&self, rate: f64, seconds: (f64, f64), seed: u64) -> Vec<String> {
        vec![
            format!("--rate={rate}"),
            format!("--warmup={:.1}s", seconds.0),
            format!("--duration={:.1}s", seconds.1),
            "--keys=uniform".to_owned(),
            format!("--count={}", self.objects),
            format!("--size={}", self.object_bytes),
            "--key-format=k{i}".to_owned(),
            // Another stream of random numbers at each load.
            format!("--seed={seed}"),
        ]
    }
}

fn program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?))
}

/// The last lines of a log, for an error.
pub(super) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}
