//! The measured processes: one node alone, or a gateway before several nodes, over one origin.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::oracle::NAME;
use crate::kill::wire::{Ask, Client};
use crate::lab::{self, Server};
use configuration::{Config as ServerConfig, Fill, Member, Overload, Size};
use record::RunFolder;

/// How long a dataset may take to be served: its shards are copied from the origin first.
const READY_S: f64 = 120.0;
/// Memory for objects; small, because the dataset is served from copies on disk.
const MEMORY_BYTES: u64 = 1 << 20;

/// The system to start.
pub(super) struct Layout<'a> {
    /// The folder for its files.
    pub folder: &'a Path,
    /// The origin, shared by systems that are started one after the other.
    pub origin: &'a Path,
    /// Nodes behind a gateway; 0 for one node alone.
    pub nodes: usize,
    /// Number of nodes that hold each shard.
    pub replicas: u32,
    /// `datasets.layers_bytes` of each node.
    pub layers_bytes: u64,
    /// Length of a window in seconds.
    pub window_s: f64,
    /// What computes layers.
    pub fill: Fill,
    /// The bound of a shard's queue and what happens past it, if not the default.
    pub bound: Option<(u32, Overload)>,
}

/// Servers that run until they are stopped or dropped.
pub(super) struct System {
    /// The process that clients connect to; stopped first.
    servers: Vec<(String, Server)>,
    folder: PathBuf,
}

impl System {
    /// Starts the system. The dataset need not exist yet.
    pub fn start(layout: &Layout<'_>) -> anyhow::Result<System> {
        let folder = layout.folder;
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut members = Vec::new();
        for node in 0..layout.nodes {
            let address = lab::free_address()?;
            members.push(Member { name: format!("node-{node}"), address, ..Member::default() });
        }
        let start = |name: &str, mut config: ServerConfig| {
            config.observe.run_dir = Some(folder.join(name));
            config.observe.window_s = layout.window_s;
            let path = folder.join(format!("{name}.toml"));
            lab::write_config(&path, &config)?;
            Ok::<_, anyhow::Error>((
                name.to_owned(),
                Server::start(&path, &folder.join(format!("{name}.log")))?,
            ))
        };
        let of_node = |name: &str| {
            let mut config = lab::server(MEMORY_BYTES, Vec::new(), layout.origin);
            config.datasets.path = Some(folder.join(format!("{name}-copies")));
            config.datasets.layers_bytes = Size(layout.layers_bytes);
            config.datasets.layers_fill = layout.fill;
            if let Some((length_max, overload)) = layout.bound {
                config.datasets.queue_length_max = length_max;
                config.datasets.overload = overload;
            }
            config
        };
        let mut servers = Vec::new();
        for member in &members {
            let mut config = lab::in_cluster(of_node(&member.name), Some(member), &members);
            config.cluster.replicas = layout.replicas;
            servers.push(start(&member.name, config)?);
        }
        let front = if members.is_empty() {
            start("node", of_node("node"))?
        } else {
            let config = lab::server(MEMORY_BYTES, Vec::new(), layout.origin);
            let mut config = lab::in_cluster(config, None, &members);
            config.cluster.replicas = layout.replicas;
            start("gateway", config)?
        };
        servers.insert(0, front);
        Ok(System { servers, folder: folder.to_owned() })
    }

    /// The address that clients connect to.
    pub fn url(&self) -> anyhow::Result<&str> {
        self.servers.first().map(|(_, server)| server.url()).context("nothing was started")
    }

    /// A client of that address.
    pub fn client(&self) -> anyhow::Result<Client> {
        client(self.url()?)
    }

    /// Puts a dataset's folder into the origin.
    pub fn push(&self, folder: &Path) -> anyhow::Result<()> {
        let own = lab::program()?;
        let status = Command::new(own)
            .args(["data", "push", NAME, "--quiet", "--server", self.url()?, "--folder"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("cannot start `data push`")?;
        ensure!(status.success(), "`data push` ended with {status}");
        Ok(())
    }

    /// Waits until every process serves the dataset.
    pub fn wait(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs_f64(READY_S);
        let path = format!("/datasets/{NAME}");
        for (name, server) in &self.servers {
            let mut client = client(server.url())?;
            // A node has a dataset when it has copied all of its shards.
            while client.ask(Ask::get(&path)).context("a server does not answer")? != 200 {
                ensure!(
                    Instant::now() < deadline,
                    "{name} does not serve the dataset after {READY_S} s: {}",
                    lab::tail(&self.folder.join(format!("{name}.log")))
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Processor seconds that each process has used.
    pub fn cpu_s(&self) -> anyhow::Result<Vec<(String, f64)>> {
        let used = |(name, server): &(String, Server)| -> anyhow::Result<(String, f64)> {
            let stat = procfs::process::Process::new(server.pid()).and_then(|p| p.stat());
            let stat = stat.with_context(|| format!("{name} is gone"))?;
            let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
            Ok((name.clone(), seconds))
        };
        self.servers.iter().map(used).collect()
    }

    /// Stops all processes and reads their run folders.
    pub fn stop(self) -> anyhow::Result<Vec<(String, RunFolder)>> {
        let mut runs = Vec::new();
        for (name, server) in self.servers {
            server.stop()?;
            let mut run = RunFolder::read(&self.folder.join(&name))?;
            run.samples = Vec::new();
            runs.push((name, run));
        }
        Ok(runs)
    }
}

fn client(url: &str) -> anyhow::Result<Client> {
    let address = url.trim_start_matches("http://").parse();
    Ok(Client::new(address.with_context(|| format!("invalid address {url}"))?, "none"))
}

/// The queue that every search meets first.
pub(super) fn first_queue() -> String {
    format!("shard/{NAME}/000001")
}

/// A node's report of its layers.
pub(super) fn layers_of(system: &System) -> anyhow::Result<Value> {
    let mut client = system.client()?;
    let status = client.ask(Ask::get(&format!("/datasets/{NAME}/layers")))?;
    ensure!(status == 200, "the node tells nothing of its layers: status {status}");
    Ok(serde_json::from_slice(&client.body)?)
}
