//! Parts that several experiments use: clusters of [`concertina::lab`]'s servers, programs that
//! only one experiment needs, and a catalogue of equally popular objects.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
pub use concertina::lab::{Server, disks, load, program, server, service, tail, write_config};
use configuration::{Config, Member, Role, Size};

/// A program that only one experiment needs, which `make experiment` builds beside this one.
///
/// # Errors
/// If it has not been built.
pub fn helper(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = own.with_file_name(name);
    if !beside.is_file() {
        bail!("cannot find {}: build it with `cargo build --release -p {name}`", beside.display());
    }
    Ok(beside)
}

/// Runs `concertina simulate --config CONFIG ARGS…` to its end; gives what it printed, as JSON.
///
/// # Errors
/// If it fails.
pub fn simulate(config: &Path, args: &[String]) -> anyhow::Result<String> {
    let output = Command::new(program()?)
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
/// If no port is free. Another process can take the port before it is used; then the server does
/// not start.
pub fn free_address() -> anyhow::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.to_string())
}

/// The configuration of a process in a cluster: of the node `own`, or of the gateway if `own` is
/// `None`. Nothing is copied to replicas ahead of requests, so that a node's memory holds objects
/// of its own share only.
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
pub const ENTRY_BYTES: u64 = 260;

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

    /// Memory that holds this number of the objects, bytes.
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

    /// Arguments of a load of Poisson arrivals at `rate` requests/s, uniform over the catalogue,
    /// with seconds of warm-up and of measurement.
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
