//! The rivals of serve-objects, its client, and what a process costs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::super::lab;
use super::super::machine::threads_s;

/// Programs in C that come with the machine's comparisons, built for the run.
pub struct Bench {
    load: PathBuf,
    ceiling: PathBuf,
}

impl Bench {
    /// Builds the client and the ceiling from `../shared/bench` beside the project.
    pub fn build(experiment: &Path, scratch: &Path) -> anyhow::Result<Bench> {
        let sources = experiment
            .canonicalize()?
            .ancestors()
            .nth(3)
            .map(|above| above.join("shared/bench"))
            .filter(|folder| folder.join("load.c").exists())
            .context("there is no ../shared/bench beside the project, with load.c and ceil.c")?;
        let build = |name: &str| -> anyhow::Result<PathBuf> {
            let program = scratch.join(name);
            let status = Command::new("gcc")
                .args(["-O2", "-w", "-o"])
                .arg(&program)
                .arg(sources.join(format!("{name}.c")))
                .args(["-lpthread", "-lm"])
                .status()
                .context("cannot start gcc: apt-get install gcc")?;
            if !status.success() {
                bail!("gcc ended with {status} for {name}.c");
            }
            Ok(program)
        };
        Ok(Bench { load: build("load")?, ceiling: build("ceil")? })
    }

    /// The load client.
    pub fn client(&self) -> &Path {
        &self.load
    }

    /// Starts the ceiling: `http` copies bytes, `httpsf` sends them from a file without a copy.
    pub fn ceiling(&self, mode: &str, bytes: u64, scratch: &Path) -> anyhow::Result<Peer> {
        let address = lab::free_address()?;
        let port = port_of(&address);
        let file = scratch.join("ceiling");
        std::fs::write(&file, vec![b'x'; bytes as usize])?;
        let mut command = Command::new(&self.ceiling);
        command.args(["-p", port, "-m", mode, "-v", &bytes.to_string(), "-f"]).arg(&file);
        Peer::start("ceiling", command, &address, "/o/%d", &scratch.join("ceiling.log"))
    }

    /// Starts the ceiling of a gateway: it copies bytes between its clients and `behind`, and no
    /// more.
    pub fn relay(&self, behind: &Target, bytes: u64, scratch: &Path) -> anyhow::Result<Peer> {
        let address = lab::free_address()?;
        let mut command = Command::new(&self.ceiling);
        command.args(["-p", port_of(&address), "-m", "relay", "-v", &bytes.to_string()]);
        command.args(["-b", port_of(&behind.address)]);
        let mut peer =
            Peer::start("relay", command, &address, "/o/%d", &scratch.join("relay.log"))?;
        peer.target.processes.extend(&behind.processes);
        Ok(peer)
    }

    /// Starts hyper with nothing on it.
    pub fn hyper(bytes: u64, scratch: &Path) -> anyhow::Result<Peer> {
        let address = lab::free_address()?;
        let mut command = Command::new(lab::helper("serve-objects-bare")?);
        command.args([&address, &bytes.to_string()]);
        Peer::start("bare hyper", command, &address, "/objects/k%d", &scratch.join("hyper.log"))
    }

    /// Starts a raw server by io_uring, which does as little as the ceiling by epoll.
    pub fn uring(bytes: u64, scratch: &Path) -> anyhow::Result<Peer> {
        let address = lab::free_address()?;
        let mut command = Command::new(lab::helper("serve-objects-bare")?);
        command.args([&address, &bytes.to_string(), "uring"]);
        Peer::start("raw io_uring", command, &address, "/o/%d", &scratch.join("uring.log"))
    }

    /// Loads a server for one slice.
    pub fn load(&self, peer: &Target, request: &Request) -> anyhow::Result<Slice> {
        let before = peer.cpu_s()?;
        let output = Command::new(&self.load)
            .args(["-m", "http", "-t", "1", "-p", port_of(&peer.address), "-u", &peer.path])
            .args(["-n", &request.objects.to_string(), "-c", &request.connections.to_string()])
            .args(["-s", &request.measure_s.to_string(), "-w", &request.warmup_s.to_string()])
            .output()
            .context("cannot start the load client")?;
        let cpu: Vec<f64> = peer.cpu_s()?.iter().zip(before).map(|(now, was)| now - was).collect();
        let text = String::from_utf8_lossy(&output.stdout);
        let counts: Counts = serde_json::from_str(&text).with_context(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("the load client failed at {}: {errors}", peer.address)
        })?;
        if counts.err > 0 {
            bail!("{} answered {} requests with an error", peer.address, counts.err);
        }
        if counts.ops_all == 0 {
            bail!("{} answered no request within a slice", peer.address);
        }
        let each = |s: f64| s * 1e6 / counts.ops_all as f64;
        let seconds = request.warmup_s + request.measure_s;
        Ok(Slice {
            rate: counts.rps,
            cpu_us: cpu.into_iter().map(each).collect(),
            client_cpu: counts.loader_cpu_us_per_op * counts.ops_all as f64 * 1e-6 / seconds,
            p99_us: counts.p99_us,
        })
    }
}

/// What the load client prints.
#[derive(Deserialize)]
struct Counts {
    ops_all: u64,
    rps: f64,
    p99_us: f64,
    err: u64,
    loader_cpu_us_per_op: f64,
}

/// The load of one slice.
pub struct Request {
    pub objects: u64,
    pub connections: u32,
    pub warmup_s: f64,
    pub measure_s: f64,
}

/// One slice of one system.
#[derive(Clone)]
pub struct Slice {
    /// Requests/s.
    pub rate: f64,
    /// Processor time of each of the system's processes for each request, user and system.
    pub cpu_us: Vec<f64>,
    /// Share of a processor that the client used.
    pub client_cpu: f64,
    pub p99_us: f64,
}

impl Slice {
    /// Processor time of all of the system's processes for each request.
    pub fn cpu_us_sum(&self) -> f64 {
        self.cpu_us.iter().sum()
    }
}

/// Version of the installed nginx.
pub fn nginx_version() -> anyhow::Result<String> {
    let output = Command::new("nginx").arg("-v").output();
    let output = output.context("cannot start nginx: apt-get install nginx-light")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(text.trim().trim_start_matches("nginx version: ").to_owned())
}

/// Address and path of a system, and the processes whose time is counted.
#[derive(Clone)]
pub struct Target {
    pub address: String,
    pub path: String,
    pub processes: Vec<i32>,
}

impl Target {
    /// Processor seconds that each process has used.
    pub fn cpu_s(&self) -> anyhow::Result<Vec<f64>> {
        self.processes.iter().map(|&pid| threads_s(pid)).collect()
    }
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(_, port)| port)
}

/// A program that serves until it is dropped.
pub struct Peer {
    child: Child,
    pub target: Target,
}

impl Peer {
    /// Starts a program and waits until it listens on its address.
    pub fn start(
        name: &str,
        mut command: Command,
        address: &str,
        path: &str,
        log: &Path,
    ) -> anyhow::Result<Peer> {
        let errors =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let processes = vec![child.id() as i32];
        let target = Target { address: address.to_owned(), path: path.to_owned(), processes };
        let mut peer = Peer { child, target };
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(address).is_err() {
            if peer.child.try_wait()?.is_some() || Instant::now() > deadline {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{name} does not listen on {address}: {said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    /// nginx that serves files of `root` with `open_file_cache`, or what `upstream` serves from its
    /// `proxy_cache`. One worker, whose time is counted.
    pub fn nginx(scratch: &Path, root: &Path, upstream: Option<&str>) -> anyhow::Result<Peer> {
        let address = lab::free_address()?;
        let name = if upstream.is_some() { "proxy-cache" } else { "static" };
        let folder = scratch.join(format!("nginx-{name}"));
        std::fs::create_dir_all(&folder)?;
        let (here, root) = (folder.display(), root.display());
        let (cache, location) = match upstream {
            None => (String::new(), format!("root {root};")),
            Some(upstream) => (
                format!(
                    "proxy_cache_path {here}/cache levels=1:2 keys_zone=c:16m inactive=1h \
                     max_size=4g use_temp_path=off;"
                ),
                format!(
                    "proxy_pass http://{upstream}; proxy_cache c; proxy_cache_valid 200 1h; \
                     proxy_http_version 1.1; proxy_set_header Connection \"\";"
                ),
            ),
        };
        // No `tcp_nopush`: it holds replies of 80 KiB back for 40 ms.
        let text = format!(
            "daemon off; worker_processes 1; pid {here}/pid; error_log {here}/error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000;\n\
             open_file_cache max=100000 inactive=1h; open_file_cache_valid 1h; {cache}\n\
             server {{ listen {address}; location / {{ {location} }} }} }}\n"
        );
        let configuration = folder.join("nginx.conf");
        std::fs::write(&configuration, text)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&configuration);
        let mut peer = Peer::start(
            "nginx (apt-get install nginx-light)",
            command,
            &address,
            "/o/%d",
            &folder.join("log"),
        )?;
        let worker = procfs::process::all_processes()?
            .filter_map(Result::ok)
            .find(|process| process.stat().is_ok_and(|stat| stat.ppid == peer.child.id() as i32));
        peer.target.processes = vec![worker.context("nginx has no worker")?.pid];
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // nginx's master tells its worker.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
