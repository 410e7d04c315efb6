//! The processes of `experiments/proxy`: memcached servers, and in front of them this project's
//! proxy, twemproxy and memcached's built-in proxy, each with one working thread.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use configuration::{Config as ServerConfig, Pool, PoolRouting, Role};

use super::super::lab;
use super::super::serve_objects::peers::Peer;
use super::client::Target;
use crate::context::Context;

/// Programs of the rivals.
pub struct Programs {
    memcached_proxy: PathBuf,
}

impl Programs {
    /// Finds the programs; says how each that is missing is had.
    pub fn find(experiment: &Path) -> anyhow::Result<Programs> {
        for (program, package) in [("memcached", "memcached"), ("nutcracker", "nutcracker")] {
            version(program, &["-V"])
                .with_context(|| format!("cannot start {program}: apt-get install {package}"))?;
        }
        let built = experiment.canonicalize()?.join("../../target/peers/memcached-proxy");
        let chosen = std::env::var_os("MEMCACHED_PROXY").map_or(built, PathBuf::from);
        if !chosen.is_file() {
            bail!(
                "memcached's built-in proxy is not at {}: build it with `sh experiments/proxy/build-memcached.sh`, or \
                 name a memcached that was configured with --enable-proxy in MEMCACHED_PROXY",
                chosen.display()
            );
        }
        Ok(Programs { memcached_proxy: chosen })
    }

    /// Tells the record the versions.
    pub fn record(&self, context: &Context) -> anyhow::Result<()> {
        let proxy = self.memcached_proxy.display().to_string();
        context.provenance.peer("memcached (servers)", &version("memcached", &["-V"])?)?;
        context.provenance.peer("memcached proxy", &version(&proxy, &["-V"])?)?;
        context.provenance.peer("twemproxy", &version("nutcracker", &["-V"])?)
    }
}

/// The first line that a program prints.
fn version(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// A process that serves until it is dropped.
pub enum Process {
    Peer(Peer),
    Own(lab::Server),
}

impl Process {
    pub fn pid(&self) -> i32 {
        match self {
            Process::Peer(peer) => peer.target.processes.first().copied().unwrap_or_default(),
            Process::Own(server) => server.pid(),
        }
    }
}

/// A memcached server with one thread.
pub fn memcached(context: &Context, memory_mib: u32) -> anyhow::Result<(String, Process)> {
    let address = lab::free_address()?;
    let mut command = Command::new("memcached");
    memcached_arguments(&mut command, &address);
    command.args(["-m", &memory_mib.to_string()]);
    let log = context.scratch.join(format!("memcached-{}.log", port_of(&address)));
    Ok((address.clone(), Process::Peer(Peer::start("memcached", command, &address, "", &log)?)))
}

fn memcached_arguments(command: &mut Command, address: &str) {
    // Allowed for root too.
    command.args(["-u", "root", "-t", "1", "-U", "0", "-c", "4096", "-l", "127.0.0.1", "-p"]);
    command.arg(port_of(address).to_string());
}

/// Twemproxy in front of some servers, placed as `hash` places them by default.
pub fn twemproxy(context: &Context, servers: &[String]) -> anyhow::Result<(String, Process)> {
    let address = lab::free_address()?;
    let statistics = lab::free_address()?;
    let base = context.scratch.join(format!("twemproxy-{}", port_of(&address)));
    let mut text = format!(
        "main:\n  listen: {address}\n  hash: fnv1a_64\n  distribution: ketama\n  preconnect: true\n  \
         auto_eject_hosts: false\n  servers:\n"
    );
    for server in servers {
        text.push_str(&format!("   - {server}:1\n"));
    }
    let configuration = base.with_extension("yml");
    std::fs::write(&configuration, text).context("cannot write twemproxy's configuration")?;
    let mut command = Command::new("nutcracker");
    command.arg("-c").arg(&configuration).arg("-o").arg(base.with_extension("out"));
    command.arg("-p").arg(base.with_extension("pid"));
    command.args(["-a", "127.0.0.1", "-s", &port_of(&statistics).to_string(), "-i", "3600000"]);
    let name = "twemproxy (apt-get install nutcracker)";
    let peer = Peer::start(name, command, &address, "", &base.with_extension("log"))?;
    Ok((address, Process::Peer(peer)))
}

/// memcached's built-in proxy in front of some servers, by the routes that come with it.
pub fn memcached_proxy(
    context: &Context,
    programs: &Programs,
    servers: &[String],
) -> anyhow::Result<(String, Process)> {
    let address = lab::free_address()?;
    let base = context.scratch.join(format!("memcached-proxy-{}", port_of(&address)));
    let quoted: Vec<String> = servers.iter().map(|server| format!("{server:?}")).collect();
    let text = format!(
        "pools{{ main = {{ backends = {{ {} }} }} }}\n\
         routes{{ default = route_direct{{ child = \"main\" }} }}\n",
        quoted.join(", ")
    );
    let configuration = base.with_extension("lua");
    std::fs::write(&configuration, text).context("cannot write the memcached proxy's routes")?;
    let mut command = Command::new(&programs.memcached_proxy);
    memcached_arguments(&mut command, &address);
    command.arg("-o").arg(format!("proxy_config=routelib,proxy_arg={}", configuration.display()));
    let peer =
        Peer::start("memcached's proxy", command, &address, "", &base.with_extension("log"))?;
    Ok((address, Process::Peer(peer)))
}

/// This project's proxy with its defaults; with `replicas` copies of each key if more than one.
pub fn own(
    context: &Context,
    name: &str,
    servers: &[String],
    replicas: u32,
) -> anyhow::Result<(String, Process)> {
    let address = lab::free_address()?;
    let mut config = ServerConfig::default();
    config.serve.role = Role::Proxy;
    config.serve.listen = "127.0.0.1:0".to_owned();
    config.memcached.listen = address.clone();
    config.memcached.threads = 1;
    let mut pool = Pool { servers: servers.to_vec(), ..Pool::default() };
    if replicas > 1 {
        (pool.routing, pool.replicas) = (PoolRouting::HashReplicas, replicas);
    }
    config.pools = vec![pool];
    let path = context.scratch.join(format!("{name}.toml"));
    lab::write_config(&path, &config)?;
    let server = lab::Server::start(&path, &context.scratch.join(format!("{name}.log")))?;
    Ok((address, Process::Own(server)))
}

pub fn port_of(address: &str) -> u16 {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default()
}

/// What a slice of a proxy measures.
pub fn target(address: &str, proxy: &Process, servers: &[i32]) -> Target {
    Target { port: port_of(address), proxy: proxy.pid(), servers: servers.to_vec() }
}

/// Sets that are sent before their replies are read.
const BATCH: usize = 32;

/// Stores every key through a proxy; `sizes` are the bytes of their values.
pub fn fill(port: u16, sizes: &[usize]) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    for first in (0..sizes.len()).step_by(BATCH) {
        let keys = first..(first + BATCH).min(sizes.len());
        let mut batch = Vec::new();
        for key in keys.clone() {
            // The load client's keys.
            write!(batch, "set memtier-{key} 0 0 {}\r\n", sizes[key])?;
            batch.resize(batch.len() + sizes[key], b'x');
            batch.extend_from_slice(b"\r\n");
        }
        stream.write_all(&batch).with_context(|| format!("cannot fill through port {port}"))?;
        for key in keys {
            line.clear();
            replies.read_line(&mut line)?;
            ensure!(line == "STORED\r\n", "port {port}: set of key {key}: {line:?}");
        }
    }
    Ok(())
}
