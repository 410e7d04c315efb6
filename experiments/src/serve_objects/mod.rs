//! `experiments/serve-objects`: objects of 4 KiB, 80 KiB and 1 MiB from memory, through one node and through a
//! gateway, beside nginx, bare hyper and raw servers in the same run.
//!
//! All systems run at once and are loaded for a slice each, in random order, in many blocks (see
//! [`crate::slices`]). Claims are of ratios within blocks, so that drift of the machine cancels.

mod claims;
mod device;
mod names;
pub(super) mod peers;
mod rivals;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::context::Context;
use super::lab::{self, Catalogue};
use super::machine::{self, Placement};
use super::marks::{Complaint, Mark};
use super::provenance::Round;
use super::slices::{self, Blocks, SLICE_S_MAX};
use configuration::{Config as ServerConfig, Role};
use names::{CEILING, NAMES, name_of};
use peers::{Bench, Peer, Request, Slice, Target};
use record::HostSampler;
use report::grid::Grid;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: Vec<u64>,
    /// The most bytes that all objects of one size have: of large ones there are fewer.
    catalogue_bytes_max: u64,
    connections: u32,
    warmup_s: f64,
    slice_s: f64,
    blocks: usize,
    blocks_short: usize,
    seed: u64,
    device: device::Settings,
}

impl Config {
    /// Objects of a size.
    fn objects_of(&self, object_bytes: u64) -> u64 {
        self.objects.min(self.catalogue_bytes_max / object_bytes.max(1)).max(1)
    }

    /// Reads of every object once, so that memory, page cache and proxy cache hold it.
    fn once(&self, objects: u64) -> Request {
        Request { objects, connections: self.connections, warmup_s: 0.0, measure_s: 1.0 }
    }
}

/// Largest share of its processor that the client may use, and largest share that other guests may
/// take, unmarked.
const CLIENT_MAX: f64 = 0.8;
const STOLEN_MAX: f64 = 0.05;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    ensure!(
        config.slice_s > 0.0 && config.slice_s <= SLICE_S_MAX,
        "slice_s is {}: a slice takes {SLICE_S_MAX} s at most",
        config.slice_s
    );
    let placement = Placement::apart(&machine::processors()?, 1);
    context.say(placement.to_string());
    let bench = Bench::build(&context.folder, &context.scratch)?;
    let start = |bytes: &u64| Systems::start(context, &config, &bench, *bytes);
    let started: anyhow::Result<Vec<Systems>> =
        placement.of_servers(|| config.object_bytes.iter().map(start).collect());
    let started = started?;
    // Rivals that are not installed are left out: the systems that run, by their numbers.
    let all: Vec<&Option<Target>> = started.iter().flat_map(|systems| &systems.targets).collect();
    let running: Vec<usize> = (0..all.len()).filter(|&system| all[system].is_some()).collect();
    let targets: Vec<&Target> = all.iter().filter_map(|target| target.as_ref()).collect();
    let column = |system: usize| running.iter().position(|&number| number == system);
    context.provenance.peer("nginx", &peers::nginx_version()?)?;
    let request = |system: usize| Request {
        objects: config.objects_of(config.object_bytes[system / NAMES.len()]),
        connections: config.connections,
        warmup_s: config.warmup_s,
        measure_s: config.slice_s,
    };
    let count = if context.short { config.blocks_short } else { config.blocks };
    context.say(format!("{count} blocks of {} slices of {} s", targets.len(), config.slice_s));
    let mut host = HostSampler::start();
    let blocks = slices::run(targets.len(), count, config.seed, |_, system| {
        let name = NAMES[running[system] % NAMES.len()];
        let request = request(running[system]);
        placement.of_generator(|| bench.load(targets[system], &request)).context(name)
    })?;
    let stolen = host.sample().cpu_stolen;
    drop(started);
    let sizes = &config.object_bytes;
    record(context, sizes, &running, &blocks, stolen)?;
    let marks = marks(sizes, &running, &blocks, stolen);
    let each = sizes.iter().enumerate();
    let of_size = |(size, bytes): (usize, &u64)| {
        claims::claims(*bytes, &|system| column(size * NAMES.len() + system), &blocks, &marks)
    };
    let mut claims: Vec<Claim> = each.flat_map(of_size).collect();
    claims.extend(device::run(context, &config.device, &bench, &placement)?);
    Ok(claims)
}

/// Everything that is measured, running.
struct Systems {
    /// `None`: the rival is not installed.
    targets: Vec<Option<Target>>,
    _peers: Vec<Peer>,
    _servers: Vec<lab::Server>,
}

impl Systems {
    fn start(
        context: &Context,
        config: &Config,
        bench: &Bench,
        bytes: u64,
    ) -> anyhow::Result<Systems> {
        let scratch = &context.scratch.join(bytes.to_string());
        std::fs::create_dir_all(scratch)?;
        context.say(format!("filling with objects of {bytes} bytes"));
        let root = scratch.join("www");
        let origin = scratch.join("origin");
        let objects = config.objects_of(bytes);
        let catalogue = Catalogue::write(scratch, objects, bytes)?;
        let ceiling = bench.ceiling("http", bytes, scratch)?;
        let relay = bench.relay(&ceiling.target, bytes, scratch)?;
        let hyper = Bench::hyper(bytes, scratch)?;
        let uring = Bench::uring(bytes, scratch)?;
        let files = peers_files(&root, objects, bytes)?;
        let fixed = Peer::nginx(scratch, &files, None)?;
        let cached = Peer::nginx(scratch, &files, Some(&fixed.target.address))?;
        let memory = 2 * catalogue.memory_bytes(objects as f64);
        let alone = start_node(scratch, "node", &origin, memory, None)?;
        catalogue.put(alone.url(), &scratch.join("fill"), context.quiet)?;
        let member = lab::free_address()?;
        // A lone node shares its origin with nobody.
        let origin = scratch.join("origin-of-cluster");
        let behind = start_node(scratch, "behind", &origin, memory, Some(&member))?;
        let gateway = start_gateway(scratch, &origin, &member)?;
        catalogue.put(gateway.url(), &scratch.join("fill-cluster"), context.quiet)?;
        let node = target(&[&alone]);
        let through = target(&[&gateway, &behind]);
        let mut peers = Vec::new();
        let mut rival = |name: &str, argument: &str, start: &dyn Fn() -> anyhow::Result<Peer>| {
            let Some(version) = rivals::version(name, argument) else {
                context.say(format!("{name} is not installed: it is left out"));
                return anyhow::Ok(None);
            };
            context.provenance.peer(name, &version)?;
            let peer = start()?;
            let target = peer.target.clone();
            peers.push(peer);
            Ok(Some(target))
        };
        let upstream = &fixed.target.address;
        let varnish = rival("varnishd", "-V", &|| rivals::varnish(scratch, upstream))?;
        let haproxy = rival("haproxy", "-v", &|| rivals::haproxy(scratch, upstream, bytes))?;
        let targets = vec![
            Some(ceiling.target.clone()),
            Some(fixed.target.clone()),
            Some(node),
            Some(cached.target.clone()),
            Some(through),
            Some(relay.target.clone()),
            Some(hyper.target.clone()),
            Some(uring.target.clone()),
            varnish,
            haproxy,
        ];
        warm(config.once(objects), bench, &targets)?;
        Ok(Systems {
            targets,
            _peers: peers
                .into_iter()
                .chain([relay, ceiling, cached, fixed, hyper, uring])
                .collect(),
            _servers: vec![gateway, behind, alone],
        })
    }
}

/// Reads from each system for a second.
fn warm(every: Request, bench: &Bench, targets: &[Option<Target>]) -> anyhow::Result<()> {
    for (name, target) in NAMES.iter().zip(targets) {
        let Some(target) = target else { continue };
        bench.load(target, &every).context(*name)?;
    }
    Ok(())
}

/// The catalogue as files.
fn peers_files(root: &Path, objects: u64, bytes: u64) -> anyhow::Result<PathBuf> {
    let folder = root.join("o");
    std::fs::create_dir_all(&folder)?;
    let bytes = vec![b'x'; bytes as usize];
    for object in 0..objects {
        std::fs::write(folder.join(object.to_string()), &bytes).context("cannot write files")?;
    }
    Ok(root.to_owned())
}

fn target(processes: &[&lab::Server]) -> Target {
    let url = processes.first().map_or("", |server| server.url());
    Target {
        address: url.trim_start_matches("http://").to_owned(),
        path: "/objects/k%d".to_owned(),
        processes: processes.iter().map(|server| server.pid()).collect(),
    }
}

/// A node with one thread and everything in memory; a member of a cluster of one, or alone.
fn start_node(
    scratch: &Path,
    name: &str,
    origin: &Path,
    memory: u64,
    member: Option<&str>,
) -> anyhow::Result<lab::Server> {
    let mut server = lab::server(memory, Vec::new(), origin);
    server.serve.threads = 1;
    if let Some(address) = member {
        server.serve.role = Role::Node;
        server.cluster.name = Some("a".to_owned());
        server.members = vec![one_member(address)];
    }
    start(scratch, name, &server)
}

fn start_gateway(scratch: &Path, origin: &Path, member: &str) -> anyhow::Result<lab::Server> {
    let mut server = lab::server(1 << 20, Vec::new(), origin);
    server.serve.threads = 1;
    server.serve.role = Role::Gateway;
    server.members = vec![one_member(member)];
    start(scratch, "gateway", &server)
}

fn one_member(address: &str) -> configuration::Member {
    let (name, address) = ("a".to_owned(), address.to_owned());
    configuration::Member { name, address, ..configuration::Member::default() }
}

fn start(scratch: &Path, name: &str, server: &ServerConfig) -> anyhow::Result<lab::Server> {
    let path = scratch.join(format!("{name}.toml"));
    lab::write_config(&path, server)?;
    lab::Server::start(&path, &scratch.join(format!("{name}.log")))
}

/// One row of `slices.json`.
#[derive(Serialize)]
struct Row<'a> {
    block: usize,
    system: String,
    requests_per_s: f64,
    cpu_us_per_request: &'a [f64],
    client_cpu: f64,
    response_us_p99: f64,
}

fn record(
    context: &Context,
    sizes: &[u64],
    running: &[usize],
    blocks: &Blocks<Slice>,
    stolen: f64,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        for (system, measured) in block.iter().enumerate() {
            rows.push(Row {
                block: index + 1,
                system: name_of(sizes, running[system]),
                requests_per_s: measured.rate,
                cpu_us_per_request: &measured.cpu_us,
                client_cpu: measured.client_cpu,
                response_us_p99: measured.p99_us,
            });
        }
        let mut round = Round::new("block", 1, true);
        round.ceiling_per_s = block.get(CEILING).map(|ceiling| ceiling.rate);
        context.provenance.round(round.with([("stolen_in_all", stolen)]))?;
    }
    let path = context.out.join("slices.json");
    std::fs::write(&path, serde_json::to_string(&rows)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let head = ["system", "requests/s", "95 % interval", "CPU µs each", "p99 µs"];
    let mut grid = Grid::new("lrrrr", &head);
    for (system, &number) in running.iter().enumerate() {
        let rate = blocks.figure(system, |m| m.rate);
        grid.row([
            name_of(sizes, number),
            format!("{:.0}", rate.value),
            format!("{:.0} … {:.0}", rate.low, rate.high),
            format!("{:.1}", blocks.figure(system, Slice::cpu_us_sum).value),
            format!("{:.0}", blocks.figure(system, |m| m.p99_us).value),
        ]);
    }
    let text = grid.text();
    std::fs::write(context.out.join("systems.txt"), &text).context("cannot write systems.txt")?;
    context.say(text);
    Ok(())
}

/// Complaints about the whole run: every claim rests on all blocks.
fn marks(sizes: &[u64], running: &[usize], blocks: &Blocks<Slice>, stolen: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (system, &number) in running.iter().enumerate() {
        let busy = blocks.figure(system, |m| m.client_cpu).value;
        if busy > CLIENT_MAX {
            let detail = format!("the client used {:.0} % of its processor", busy * 100.0);
            marks.push(Mark::new(name_of(sizes, number), Complaint::Processor, detail));
        }
    }
    if stolen > STOLEN_MAX {
        let detail = format!("the hypervisor took {:.1} % of the processors", stolen * 100.0);
        marks.push(Mark::new("all blocks", Complaint::Stolen, detail));
    }
    marks
}
