//! The machines, as network namespaces on one bridge, and the processes in them: the load generator,
//! two middlewares (`concertina serve --role proxy`), three memcached servers with the distance
//! before each.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ground::window::Window;
use record::RunFolder;
use rustix::process::{Pid, Signal, kill_process};

use super::config::Settings;
use super::rows::{System, Work};
use crate::lab;
use crate::network::Network;

/// The members of the network.
pub(super) const CLIENT: u8 = 0;
pub(super) const MIDDLEWARES: [u8; 2] = [1, 2];
pub(super) const SERVERS: [u8; 3] = [3, 4, 5];

/// memcached's port, the distance's and the middleware's.
const MEMCACHED: u16 = 11211;
const DISTANCE: u16 = 11311;
const MIDDLEWARE: u16 = 11411;

/// The most keys of a batch.
const BATCH_MAX: u32 = 1000;

/// A process, ended when dropped.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; with `line` waits for its first line of output.
    fn start(mut command: Command, log: PathBuf, line: bool) -> anyhow::Result<Process> {
        let errors = File::create(&log).with_context(|| format!("cannot write {log:?}"))?;
        command.stdin(Stdio::null()).stderr(errors);
        command.stdout(if line { Stdio::piped() } else { Stdio::null() });
        // Ctrl-C is for the experiment, which ends them itself.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().context("cannot start a process")?;
        let mut process = Process { child, log };
        if let Some(output) = process.child.stdout.take() {
            let mut first = String::new();
            BufReader::new(output).read_line(&mut first)?;
            if first.trim().is_empty() {
                let _ = process.child.wait();
                bail!("a process did not start: {}", lab::tail(&process.log));
            }
        }
        Ok(process)
    }

    /// Asks it to end and waits.
    fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a process ended with {status}: {}", lab::tail(&self.log));
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What all servers counted: keys that were found and that were not, and sets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub hits: u64,
    pub misses: u64,
    pub sets: u64,
}

/// What is asked of a load.
#[derive(Clone, Debug)]
pub(super) struct LoadPlan {
    pub work: Work,
    /// One step for each.
    pub clients: Vec<u32>,
    pub think_ms: f64,
    pub ramp_s: f64,
    pub measure_s: f64,
    pub seed: u64,
    /// Only keys that were stored.
    pub stored_only: bool,
}

/// The machines.
pub(super) struct Lab {
    // Dropped in this order: processes end before their network goes.
    middlewares: Vec<(Process, PathBuf)>,
    distances: Vec<Process>,
    servers: Vec<Process>,
    pub network: Network,
    settings: Settings,
    scratch: PathBuf,
    /// The trace of batches.
    batches: Option<PathBuf>,
    system: Option<System>,
    runs: u32,
}

impl Lab {
    /// Makes the network and starts the servers.
    pub fn start(
        settings: &Settings,
        scratch: &Path,
        batches: Option<PathBuf>,
    ) -> anyhow::Result<Lab> {
        let network = Network::make(6)?;
        let mut lab = Lab {
            middlewares: Vec::new(),
            distances: Vec::new(),
            servers: Vec::new(),
            network,
            settings: settings.clone(),
            scratch: scratch.to_owned(),
            batches,
            system: None,
            runs: 0,
        };
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        for (i, member) in SERVERS.into_iter().enumerate() {
            let mut command = lab.network.command(member, Path::new("memcached"));
            command.args(["-u", "root", "-U", "0", "-t", "1", "-c", "4096", "-m", "2048"]);
            command.args(["-p", &MEMCACHED.to_string()]);
            let log = scratch.join(format!("memcached-{i}.log"));
            lab.servers.push(Process::start(command, log, false)?);
            wait_for(lab.address(member, MEMCACHED))?;
            let mut command = lab.network.command(member, &own);
            command.arg("distance").arg(lab.address(member, DISTANCE).to_string());
            command.arg(format!("127.0.0.1:{MEMCACHED}"));
            command.arg(format!("{:.0}", settings.distance_ms * 1000.0));
            let log = scratch.join(format!("distance-{i}.log"));
            lab.distances.push(Process::start(command, log, true)?);
        }
        Ok(lab)
    }

    fn address(&self, member: u8, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip(member), port)
    }

    fn ip(&self, member: u8) -> IpAddr {
        self.network.address(member).ip()
    }

    /// memcached's version.
    pub fn version(&self) -> anyhow::Result<String> {
        let said = self.ask(0, "version\r\n", "\r\n")?;
        Ok(said.trim().trim_start_matches("VERSION ").to_owned())
    }

    /// Sends a server a command and reads up to the end of its reply.
    fn ask(&self, server: usize, command: &str, end: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.address(SERVERS[server], MEMCACHED))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(command.as_bytes())?;
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while !text.ends_with(end.as_bytes()) {
            let count = stream.read(&mut piece)?;
            ensure!(count > 0, "a server closed the connection");
            text.extend_from_slice(&piece[..count]);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What the servers counted so far.
    pub fn counts(&self) -> anyhow::Result<Counts> {
        let mut sum = Counts::default();
        for server in 0..SERVERS.len() {
            let text = self.ask(server, "stats\r\n", "END\r\n")?;
            let of = |name: &str| {
                let line = text.lines().find_map(|l| l.strip_prefix("STAT ")?.strip_prefix(name));
                line.and_then(|rest| rest.trim().parse::<u64>().ok()).context("unexpected stats")
            };
            sum.hits += of("get_hits ")?;
            sum.misses += of("get_misses ")?;
            sum.sets += of("cmd_set ")?;
        }
        Ok(sum)
    }

    /// Stores values in every server, from its own machine, so that no link is in the way: the
    /// share of the keys that is to be found, large values for the measurement of bandwidths.
    pub fn fill(&mut self) -> anyhow::Result<()> {
        let stored = (self.settings.keys as f64 * self.settings.filled_share).round() as u64;
        let size = self.settings.value_bytes.to_string();
        for member in SERVERS {
            let keys = ["--count", &stored.to_string(), "--size", &size];
            self.store(member, &keys.map(str::to_owned))?;
            let large = ["--count", LARGE_KEYS, "--size", LARGE_BYTES, "--key-format", "large{i}"];
            self.store(member, &large.map(str::to_owned))?;
            if let Some(batches) = &self.batches {
                let trace = batches.with_extension("stored.csv").display().to_string();
                let keys = ["--trace", &trace, "--size", &size];
                self.store(member, &keys.map(str::to_owned))?;
            }
        }
        Ok(())
    }

    fn store(&mut self, member: u8, keys: &[String]) -> anyhow::Result<()> {
        let mut command = self.network.command(member, &lab::program()?);
        let url = format!("memcached://127.0.0.1:{MEMCACHED}");
        let out = self.next("fill");
        command.args(["load", &url, "--fill", "--fill-clients", "8", "--quiet"]);
        command.args(["--json", "--out"]).arg(out).args(keys).stdout(Stdio::null());
        ensure!(command.status()?.success(), "a server could not be filled");
        Ok(())
    }

    fn next(&mut self, name: &str) -> PathBuf {
        self.runs += 1;
        self.scratch.join(format!("{name}-{}", self.runs))
    }

    /// Makes it the given system; gives the windows that the middlewares of the one before
    /// recorded.
    pub fn become_system(&mut self, system: System) -> anyhow::Result<Vec<Window>> {
        if self.system == Some(system) {
            return Ok(Vec::new());
        }
        let windows = self.stop_middlewares()?;
        let links = &self.settings.links;
        for (members, mbit, burst) in [
            (vec![CLIENT], links.client, links.burst_bytes),
            (MIDDLEWARES.to_vec(), links.middleware, links.middleware_burst_bytes),
            (SERVERS.to_vec(), links.server, links.burst_bytes),
        ] {
            let limit = system.limited.then_some((mbit * 1e6, burst));
            members.into_iter().try_for_each(|member| self.network.limit(member, limit))?;
        }
        let members: Vec<u8> = MIDDLEWARES[..usize::from(system.middlewares)].to_vec();
        for member in members {
            self.start_middleware(member, system)?;
        }
        self.system = Some(system);
        Ok(windows)
    }

    fn start_middleware(&mut self, member: u8, system: System) -> anyhow::Result<()> {
        let run = self.next("middleware");
        let mut command = self.network.command(member, &lab::program()?);
        let port = if system.limited { DISTANCE } else { MEMCACHED };
        let servers = SERVERS[..usize::from(system.servers)].iter();
        let servers: Vec<String> =
            servers.map(|&s| format!("\"{}\"", self.address(s, port))).collect();
        let mode = if system.sharded { "sharded" } else { "whole" };
        let listen = self.address(member, MIDDLEWARE);
        command.args(["serve", "--role", "proxy", "--json"]);
        for text in [
            "serve.listen=\"127.0.0.1:0\"".to_owned(),
            format!("memcached.listen=\"{listen}\""),
            "memcached.unauthenticated=true".to_owned(),
            "memcached.threads=1".to_owned(),
            "memcached.deadline_s=20".to_owned(),
            format!("pool.0.servers=[{}]", servers.join(", ")),
            "pool.0.routing=\"replicated\"".to_owned(),
            format!("pool.0.workers={}", system.workers),
            format!("pool.0.multi_get=\"{mode}\""),
            "pool.0.hedge_share=0.0".to_owned(),
            "pool.0.timeout_s=15".to_owned(),
            "observe.window_s=0.1".to_owned(),
            format!("observe.run_dir=\"{}\"", run.display()),
        ] {
            command.arg("--set").arg(text);
        }
        let log = run.with_extension("log");
        self.middlewares.push((Process::start(command, log, true)?, run));
        Ok(())
    }

    /// Ends the middlewares and reads what they recorded.
    pub fn stop_middlewares(&mut self) -> anyhow::Result<Vec<Window>> {
        self.system = None;
        let mut windows = Vec::new();
        for (process, run) in std::mem::take(&mut self.middlewares) {
            process.stop()?;
            windows.extend(RunFolder::read(&run)?.windows);
        }
        Ok(windows)
    }

    /// Where the clients of the present system connect.
    fn targets(&self) -> Vec<SocketAddr> {
        let Some(system) = self.system else { return Vec::new() };
        let port = if system.limited { DISTANCE } else { MEMCACHED };
        match system.middlewares {
            0 => SERVERS[..usize::from(system.servers)]
                .iter()
                .map(|&s| self.address(s, port))
                .collect(),
            m => {
                MIDDLEWARES[..usize::from(m)].iter().map(|&m| self.address(m, MIDDLEWARE)).collect()
            }
        }
    }

    /// Runs a closed loop over the present system, one generator for each target.
    pub fn load(&mut self, asked: &LoadPlan) -> anyhow::Result<Vec<RunFolder>> {
        let targets = self.targets();
        let mut running = Vec::new();
        for (i, target) in targets.iter().enumerate() {
            let own = asked.clients.iter().map(|n| (n / targets.len() as u32).to_string());
            let clients: Vec<String> = own.collect();
            let mut keys = self.keys(asked);
            keys.extend(["--clients".to_owned(), clients.join(",")]);
            keys.extend(["--think-ms".to_owned(), asked.think_ms.to_string()]);
            keys.extend(["--warmup".to_owned(), format!("{:.3}s", asked.ramp_s)]);
            keys.extend(["--duration".to_owned(), format!("{:.3}s", asked.measure_s)]);
            keys.extend(["--seed".to_owned(), (asked.seed * 16 + i as u64).to_string()]);
            keys.push("--trim".to_owned());
            running.push(self.generator(*target, &keys)?);
        }
        running.into_iter().map(Generator::finish).collect()
    }

    /// The generator's arguments for the keys of a work.
    fn keys(&self, asked: &LoadPlan) -> Vec<String> {
        let settings = &self.settings;
        let stored = if asked.stored_only { settings.filled_share } else { 1.0 };
        let mut arguments = vec!["--size".to_owned(), settings.value_bytes.to_string()];
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        match (asked.work, &self.batches) {
            (Work::Batches, Some(trace)) => {
                add("--trace", trace.display().to_string());
                add("--multi-get", BATCH_MAX.to_string());
                return arguments;
            }
            (Work::Reads(keys), _) => add("--multi-get", keys.to_string()),
            _ => add("--read-share", "0".to_owned()),
        }
        // Writes go to stored keys only, so that what is missing stays missing.
        let stored = if asked.work == Work::Writes { settings.filled_share } else { stored };
        add("--count", format!("{:.0}", settings.keys as f64 * stored));
        add("--keys", "uniform".to_owned());
        arguments
    }

    fn generator(&mut self, target: SocketAddr, arguments: &[String]) -> anyhow::Result<Generator> {
        let out = self.next("load");
        let mut command = self.network.command(CLIENT, &lab::program()?);
        command.args(["load", &format!("memcached://{target}"), "--window", "0.05s"]);
        command.args(["--quiet", "--json", "--sample-one-in", "0", "--out"]).arg(&out);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start the load generator")?;
        Ok(Generator { child, out })
    }

    /// Bytes/s that leave a member while large values are read from it past the distance, or written
    /// by it or through it: its bandwidth, if nothing else is the limit.
    pub fn bandwidth(&mut self, member: u8, write: bool, seconds: f64) -> anyhow::Result<f64> {
        // The clients' own link is filled on the way to a server, a middleware's by writes to it.
        let target = match member {
            CLIENT => self.address(SERVERS[0], MEMCACHED),
            member if MIDDLEWARES.contains(&member) => self.address(member, MIDDLEWARE),
            member => self.address(member, MEMCACHED),
        };
        let share = if write { "0" } else { "1" };
        let large = ["--count", LARGE_KEYS, "--size", LARGE_BYTES, "--key-format", "large{i}"];
        let rest = ["--clients", "8", "--warmup", "0s", "--read-share", share];
        let mut arguments: Vec<String> = large.into_iter().chain(rest).map(str::to_owned).collect();
        arguments.extend(["--duration".to_owned(), format!("{:.2}s", seconds + 0.8)]);
        let generator = self.generator(target, &arguments)?;
        std::thread::sleep(Duration::from_millis(500));
        let (from, begun) = (self.network.sent_bytes(member)?, Instant::now());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (to, took) = (self.network.sent_bytes(member)?, begun.elapsed());
        generator.finish()?;
        Ok((to - from) as f64 / took.as_secs_f64())
    }

    /// Processor time of the middlewares and of the servers so far, seconds.
    pub fn processor_s(&self) -> anyhow::Result<[f64; 2]> {
        let sum = |children: &[&Child]| -> anyhow::Result<f64> {
            children.iter().map(|child| processor_s(child.id())).sum()
        };
        let middlewares: Vec<&Child> = self.middlewares.iter().map(|(p, _)| &p.child).collect();
        let servers: Vec<&Child> = self.servers.iter().map(|p| &p.child).collect();
        Ok([sum(&middlewares)?, sum(&servers)?])
    }
}

/// Values for the measurement of bandwidths.
const LARGE_KEYS: &str = "16";
const LARGE_BYTES: &str = "65536";

/// A load generator that runs.
struct Generator {
    child: Child,
    out: PathBuf,
}

impl Generator {
    fn finish(mut self) -> anyhow::Result<RunFolder> {
        let status = self.child.wait()?;
        ensure!(status.success(), "the load generator ended with {status}");
        Ok(RunFolder::read(&self.out)?)
    }
}

/// Processor time of all threads of a process, seconds.
fn processor_s(pid: u32) -> anyhow::Result<f64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
        sum += ns.context("unexpected schedstat")?;
    }
    Ok(sum as f64 * 1e-9)
}

/// Waits until an address accepts connections.
fn wait_for(address: SocketAddr) -> anyhow::Result<()> {
    for _ in 0..200 {
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("nothing listens on {address} after two seconds: is memcached installed?")
}
