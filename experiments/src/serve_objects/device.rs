//! Objects from a device: a node without memory beside memcached's extstore, and beside fio, which reads the
//! same bytes from the same file system and does nothing else with them.
//!
//! The node and fio read past the page cache. extstore reads through it, so that before each of its slices the
//! pages of its file are given back to the kernel.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use configuration::{Device, Size};
use rustix::fs::{Advice, fadvise};
use serde::Deserialize;

use super::super::lab::{self, Catalogue};
use super::super::machine::Placement;
use super::super::slices::{self, Blocks};
use super::peers::{Bench, Peer, Request, Slice, Target};
use super::rivals;
use crate::claims::{Claim, Goal};
use crate::context::Context;

/// A part of `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    objects: u64,
    object_bytes: u64,
    /// Reads at once that the device is given.
    depth: u32,
    /// Connections with a request each: more than `depth`, because a request is not at the device while it is
    /// parsed, verified or sent.
    connections: u32,
    slice_s: f64,
    blocks: usize,
    blocks_short: usize,
    seed: u64,
}

const NAMES: [&str; 3] = ["node", "fio", "extstore"];

/// What is measured.
enum System {
    Node(Target),
    Fio(PathBuf),
    Extstore(Extstore),
}

struct Extstore {
    peer: Peer,
    file: PathBuf,
}

pub(super) fn run(
    context: &Context,
    settings: &Settings,
    bench: &Bench,
    placement: &Placement,
) -> anyhow::Result<Vec<Claim>> {
    let scratch = context.scratch.join("device");
    std::fs::create_dir_all(&scratch)?;
    let catalogue = Catalogue::write(&scratch, settings.objects, settings.object_bytes)?;
    let node = placement.of_servers(|| start_node(&scratch, settings))?;
    catalogue.put(node.url(), &scratch.join("fill"), context.quiet)?;
    let target = Target {
        address: node.url().trim_start_matches("http://").to_owned(),
        path: "/objects/k%d".to_owned(),
        processes: vec![node.pid()],
    };
    let mut systems = vec![(0, System::Node(target))];
    for (number, program, argument) in [(1, "fio", "--version"), (2, "memcached", "-V")] {
        let Some(version) = rivals::version(program, argument) else {
            context.say(format!("{program} is not installed: it is left out"));
            continue;
        };
        context.provenance.peer(program, &version)?;
        let system = match number {
            1 => System::Fio(fio_file(&scratch, settings)?),
            _ => System::Extstore(placement.of_servers(|| extstore(&scratch, settings, bench))?),
        };
        systems.push((number, system));
    }
    let running: Vec<usize> = systems.iter().map(|(number, _)| *number).collect();
    let count = if context.short { settings.blocks_short } else { settings.blocks };
    context.say(format!("device: {count} blocks of {} slices", systems.len()));
    let blocks = slices::run(systems.len(), count, settings.seed, |_, system| {
        placement.of_generator(|| measure(&systems[system].1, settings, bench))
    })?;
    // It must have been the device that answered.
    let tiers = node.tiers()?;
    let objects = tiers.devices.first().map_or(0, |device| device.objects);
    ensure!(objects >= settings.objects, "the node's device holds {objects} objects");
    drop(systems);
    node.stop()?;
    std::fs::remove_dir_all(&scratch)?;
    Ok(claims(settings, &running, &blocks))
}

/// A node whose objects are on a device alone.
fn start_node(scratch: &Path, settings: &Settings) -> anyhow::Result<lab::Server> {
    let bytes = Size(2 * settings.objects * (settings.object_bytes + 8192));
    let device = Device {
        path: scratch.join("segments"),
        bytes,
        parallel: settings.depth,
        queue_length_max: 100_000,
        ..Device::default()
    };
    let mut server = lab::server(0, vec![device], &scratch.join("origin"));
    server.serve.threads = 1;
    let path = scratch.join("node.toml");
    lab::write_config(&path, &server)?;
    lab::Server::start(&path, &scratch.join("node.log"))
}

/// A file for fio as large as all objects.
fn fio_file(scratch: &Path, settings: &Settings) -> anyhow::Result<PathBuf> {
    let file = scratch.join("fio");
    let mut out = std::io::BufWriter::new(File::create(&file)?);
    let record = vec![b'x'; record_bytes(settings) as usize];
    for _ in 0..settings.objects {
        std::io::Write::write_all(&mut out, &record)?;
    }
    out.into_inner().context("cannot write fio's file")?.sync_all()?;
    Ok(file)
}

/// What the node reads for an object: the record, from block to block.
fn record_bytes(settings: &Settings) -> u64 {
    (settings.object_bytes + 512).next_multiple_of(4096)
}

/// memcached with little memory, so that values are on its file, and all objects in it.
fn extstore(scratch: &Path, settings: &Settings, bench: &Bench) -> anyhow::Result<Extstore> {
    let address = lab::free_address()?;
    let file = scratch.join("extstore");
    let bytes = (4 * settings.objects * settings.object_bytes).next_multiple_of(1 << 30) >> 30;
    let (port, depth) = (port_of(&address), settings.depth);
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-p", port, "-t", "1", "-m", "64", "-u", "root"]);
    command.arg("-o").arg(format!(
        "ext_path={}:{bytes}G,ext_item_size=512,ext_threads={depth},ext_recache_rate=0,slab_chunk_max=16384",
        file.display()
    ));
    let peer = Peer::start("memcached", command, &address, "", &scratch.join("extstore.log"))?;
    for pause_ms in [1, 3, 10] {
        store(&peer.target.address, settings, Duration::from_millis(pause_ms))?;
        std::thread::sleep(Duration::from_secs(2));
        let counts = memcached(bench, &peer, settings, "get", 0.5, 8)?;
        if counts.miss * 100 <= counts.ops_all {
            return Ok(Extstore { peer, file });
        }
    }
    bail!("extstore does not hold the objects: {}", lab::tail(&scratch.join("extstore.log")))
}

/// Stores every object, with a pause after each: what comes faster than extstore writes its file is dropped from memory.
fn store(address: &str, settings: &Settings, pause: Duration) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).context("memcached does not listen")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let body = vec![b'x'; settings.object_bytes as usize];
    for key in 0..=settings.objects {
        // The load client's keys.
        let head = format!("set memtier-{key} 0 0 {}\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body, b"\r\n"].concat())?;
        let mut reply = String::new();
        replies.read_line(&mut reply)?;
        ensure!(reply == "STORED\r\n", "memcached did not store an object: {reply:?}");
        std::thread::sleep(pause);
    }
    Ok(())
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(_, port)| port)
}

#[derive(Deserialize)]
struct Counts {
    ops_all: u64,
    rps: f64,
    p99_us: f64,
    miss: u64,
    err: u64,
    loader_cpu_us_per_op: f64,
}

fn memcached(
    bench: &Bench,
    peer: &Peer,
    settings: &Settings,
    mode: &str,
    seconds: f64,
    connections: u32,
) -> anyhow::Result<Counts> {
    let output = Command::new(bench.client())
        .args(["-m", mode, "-t", "1", "-p", port_of(&peer.target.address), "-w", "0"])
        .args(["-n", &settings.objects.to_string(), "-v", &settings.object_bytes.to_string()])
        .args(["-c", &connections.to_string(), "-s", &seconds.to_string()])
        .output()
        .context("cannot start the load client")?;
    let counts: Counts = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("the load client failed: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    ensure!(counts.err == 0, "memcached answered {} requests with an error", counts.err);
    Ok(counts)
}

fn measure(system: &System, settings: &Settings, bench: &Bench) -> anyhow::Result<Slice> {
    match system {
        System::Node(target) => {
            let request = Request {
                objects: settings.objects,
                connections: settings.connections,
                warmup_s: 0.0,
                measure_s: settings.slice_s,
            };
            bench.load(target, &request)
        }
        System::Fio(file) => fio(file, settings),
        System::Extstore(Extstore { peer, file }) => {
            let open = File::open(file)?;
            open.sync_all()?;
            fadvise(&open, 0, None, Advice::DontNeed)?;
            let before = peer.target.cpu_s()?;
            let counts =
                memcached(bench, peer, settings, "get", settings.slice_s, settings.connections)?;
            let used = peer.target.cpu_s()?[0] - before[0];
            ensure!(counts.miss * 50 <= counts.ops_all, "extstore lost objects");
            let requests = counts.ops_all.max(1) as f64;
            Ok(Slice {
                rate: counts.rps,
                cpu_us: vec![used * 1e6 / requests],
                client_cpu: counts.loader_cpu_us_per_op * requests * 1e-6 / settings.slice_s,
                p99_us: counts.p99_us,
            })
        }
    }
}

/// Random reads of as many bytes as a record, past the page cache, as many at once.
fn fio(file: &Path, settings: &Settings) -> anyhow::Result<Slice> {
    let output = Command::new("fio")
        .args(["--name=reads", "--rw=randread", "--direct=1", "--ioengine=libaio"])
        .args(["--norandommap", "--time_based", "--output-format=json", "--filename"])
        .arg(file)
        .arg(format!("--bs={}", record_bytes(settings)))
        .arg(format!("--iodepth={}", settings.depth))
        .arg(format!("--runtime={}ms", (settings.slice_s * 1e3) as u64))
        .output()
        .context("cannot start fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |from| &text[from..]);
    let told: serde_json::Value = serde_json::from_str(json).with_context(|| {
        format!("fio failed: {}{}", text, String::from_utf8_lossy(&output.stderr))
    })?;
    let job = &told["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    let rate = number(&job["read"]["iops"]);
    let processor = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0;
    Ok(Slice {
        rate,
        cpu_us: vec![processor * 1e6 / rate],
        client_cpu: 0.0,
        p99_us: number(&job["read"]["clat_ns"]["percentile"]["99.000000"]) / 1e3,
    })
}

fn claims(settings: &Settings, running: &[usize], blocks: &Blocks<Slice>) -> Vec<Claim> {
    let size = settings.object_bytes / 1024;
    let claim = |what: String, found: slices::Interval, unit: &str| Claim {
        low: found.low,
        high: found.high,
        ..Claim::new(
            format!("device, {size} KiB, {} at once: {what}", settings.depth),
            found.value,
            0.0,
            unit,
            blocks.len() as u64,
        )
    };
    let mut all = Vec::new();
    for (place, &number) in running.iter().enumerate() {
        let name = NAMES[number];
        let rate = blocks.figure(place, |m| m.rate);
        all.push(claim(format!("{name}: reads/s"), rate, "/s"));
        all.push(claim(
            format!("{name}: CPU of a read"),
            blocks.figure(place, Slice::cpu_us_sum),
            "µs",
        ));
        let goal = match number {
            1 => 0.9,
            2 => 1.0,
            _ => continue,
        };
        let over = blocks.ratio(0, place, |m| m.rate);
        all.push(
            claim(format!("node: reads/s over {name}'s"), over, "×").with_goal(Goal::AtLeast(goal)),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict;

    #[test]
    fn the_node_is_compared_with_what_is_installed() {
        let settings = Settings {
            objects: 1,
            object_bytes: 81_920,
            depth: 8,
            connections: 16,
            slice_s: 0.1,
            blocks: 1,
            blocks_short: 1,
            seed: 1,
        };
        assert_eq!(record_bytes(&settings), 86_016);
        // fio is not installed.
        let blocks = slices::run(2, 20, 1, |block, system| {
            let rate = (1.0 + block as f64) * [1.2, 1.0][system];
            Ok(Slice { rate, cpu_us: vec![5.0], client_cpu: 0.5, p99_us: 1.0 })
        });
        let claims = claims(&settings, &[0, 2], &blocks.unwrap());
        let claims: Vec<Claim> = claims.into_iter().map(Claim::judged).collect();
        let over: Vec<&Claim> = claims.iter().filter(|claim| claim.goal.is_some()).collect();
        assert_eq!(over.len(), 1);
        assert_eq!(over[0].verdict, Some(Verdict::Holds));
        assert!((over[0].value - 1.2).abs() < 1e-9, "{over:?}");
    }
}
