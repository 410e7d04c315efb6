//! `experiments/serve-objects`: objects of 4 and 80 KiB from memory, through one node and through a
//! gateway, beside nginx, bare hyper and raw servers in the same run.
//!
//! All systems run at once and are loaded for a slice each, in random order, in many blocks (see
//! [`crate::slices`]). Claims are of ratios within blocks, so that drift of the machine cancels.

pub(super) mod peers;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::lab::{self, Catalogue};
use super::machine::{self, Placement};
use super::marks::{Complaint, Mark};
use super::provenance::Round;
use super::slices::{self, Blocks, Interval, SLICE_S_MAX};
use super::{Claim, Context, Goal};
use peers::{Bench, Measured, Peer, Request, Target};
use record::HostSampler;
use report::grid::Grid;
use serve::config::{Config as ServerConfig, Role};

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: Vec<u64>,
    connections: u32,
    warmup_s: f64,
    slice_s: f64,
    blocks: usize,
    blocks_short: usize,
    seed: u64,
}

/// Largest share of its processor that the client may use, and largest share that other guests may
/// take, unmarked.
const CLIENT_MAX: f64 = 0.8;
const STOLEN_MAX: f64 = 0.05;

/// The systems of one size of objects, by their numbers.
const NAMES: [&str; 7] = [
    "ceiling",
    "nginx static",
    "node",
    "nginx proxy_cache",
    "gateway + node",
    "raw relay + ceiling",
    "bare hyper",
];
const CEILING: usize = 0;
const NGINX: usize = 1;
const NODE: usize = 2;
const PROXY_CACHE: usize = 3;
const GATEWAY: usize = 4;
const RELAY: usize = 5;
const HYPER: usize = 6;

/// The goals for a size of objects, as ratios; NaN where there is none.
struct Goals {
    /// Requests/s of the node over nginx's, at least.
    over_nginx: f64,
    /// Processor time of the node over the ceiling's, at most.
    node_cpu: f64,
    /// Processor time of the gateway alone over the raw relay's alone, at most.
    gateway_cpu: f64,
}

/// Objects of up to 16 KiB cost what their request costs; larger ones what their bytes cost.
fn goals(object_bytes: u64) -> Goals {
    match object_bytes {
        0..=16_384 => Goals { over_nginx: 1.5, node_cpu: 1.3, gateway_cpu: 1.3 },
        _ => Goals { over_nginx: 1.3, node_cpu: f64::NAN, gateway_cpu: 1.1 },
    }
}

/// The name of a system of any size.
fn name_of(sizes: &[u64], system: usize) -> String {
    let size = sizes.get(system / NAMES.len()).copied().unwrap_or_default();
    format!("{} KiB {}", size / 1024, NAMES[system % NAMES.len()])
}

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
    let targets: Vec<&Target> = started.iter().flat_map(|systems| &systems.targets).collect();
    context.provenance.peer("nginx", &peers::nginx_version()?)?;
    let request = Request {
        objects: config.objects,
        connections: config.connections,
        warmup_s: config.warmup_s,
        measure_s: config.slice_s,
    };
    let count = if context.short { config.blocks_short } else { config.blocks };
    context.say(format!("{count} blocks of {} slices of {} s", targets.len(), config.slice_s));
    let mut host = HostSampler::start();
    let blocks = slices::run(targets.len(), count, config.seed, |_, system| {
        placement.of_generator(|| bench.load(targets[system], &request))
    })?;
    let stolen = host.sample().cpu_stolen;
    drop(started);
    let sizes = &config.object_bytes;
    record(context, sizes, &blocks, stolen)?;
    let marks = marks(sizes, &blocks, stolen);
    let each = sizes.iter().enumerate();
    Ok(each.flat_map(|(size, bytes)| claims(*bytes, size * NAMES.len(), &blocks, &marks)).collect())
}

/// Everything that is measured, running.
struct Systems {
    targets: Vec<Target>,
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
        let catalogue = Catalogue::write(scratch, config.objects, bytes)?;
        let ceiling = bench.ceiling("http", bytes, scratch)?;
        let relay = bench.relay(&ceiling.target, bytes, scratch)?;
        let hyper = Bench::hyper(bytes, scratch)?;
        let files = peers_files(&root, config.objects, bytes)?;
        let fixed = Peer::nginx(scratch, &files, None)?;
        let cached = Peer::nginx(scratch, &files, Some(&fixed.target.address))?;
        let memory = 2 * catalogue.memory_bytes(config.objects as f64);
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
        let targets = vec![
            ceiling.target.clone(),
            fixed.target.clone(),
            node,
            cached.target.clone(),
            through,
            relay.target.clone(),
            hyper.target.clone(),
        ];
        // Every object once through each, so that memory, page cache and proxy cache hold it.
        let every = Request {
            objects: config.objects,
            connections: config.connections,
            warmup_s: 0.0,
            measure_s: 1.0,
        };
        for target in &targets {
            bench.load(target, &every)?;
        }
        Ok(Systems {
            targets,
            _peers: vec![relay, ceiling, cached, fixed, hyper],
            _servers: vec![gateway, behind, alone],
        })
    }
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

fn one_member(address: &str) -> serve::config::Member {
    let (name, address) = ("a".to_owned(), address.to_owned());
    serve::config::Member { name, address, ..serve::config::Member::default() }
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
    blocks: &Blocks<Measured>,
    stolen: f64,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        for (system, measured) in block.iter().enumerate() {
            rows.push(Row {
                block: index + 1,
                system: name_of(sizes, system),
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
    for system in 0..sizes.len() * NAMES.len() {
        let rate = blocks.figure(system, |m| m.rate);
        grid.row([
            name_of(sizes, system),
            format!("{:.0}", rate.value),
            format!("{:.0} … {:.0}", rate.low, rate.high),
            format!("{:.1}", blocks.figure(system, Measured::cpu_us_sum).value),
            format!("{:.0}", blocks.figure(system, |m| m.p99_us).value),
        ]);
    }
    let text = grid.text();
    std::fs::write(context.out.join("systems.txt"), &text).context("cannot write systems.txt")?;
    context.say(text);
    Ok(())
}

/// Complaints about the whole run: every claim rests on all blocks.
fn marks(sizes: &[u64], blocks: &Blocks<Measured>, stolen: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for system in 0..sizes.len() * NAMES.len() {
        let busy = blocks.figure(system, |m| m.client_cpu).value;
        if busy > CLIENT_MAX {
            let detail = format!("the client used {:.0} % of its processor", busy * 100.0);
            marks.push(Mark::new(name_of(sizes, system), Complaint::Processor, detail));
        }
    }
    if stolen > STOLEN_MAX {
        let detail = format!("the hypervisor took {:.1} % of the processors", stolen * 100.0);
        marks.push(Mark::new("all blocks", Complaint::Stolen, detail));
    }
    marks
}

/// The claims of objects of some size, whose systems begin at `first`.
fn claims(
    object_bytes: u64,
    first: usize,
    blocks: &Blocks<Measured>,
    marks: &[Mark],
) -> Vec<Claim> {
    let claim = |name: &str, found: Interval, unit: &str| Claim {
        low: found.low,
        high: found.high,
        marks: marks.to_vec(),
        ..Claim::new(
            format!("{} KiB, {name}", object_bytes / 1024),
            (found.value, 0.0),
            unit,
            blocks.len() as u64,
        )
    };
    let cpu = |system| blocks.figure(first + system, Measured::cpu_us_sum);
    let cpus = |over, under| blocks.ratio(first + over, first + under, Measured::cpu_us_sum);
    // Without the processes behind it.
    let own = |m: &Measured| m.cpu_us.first().copied().unwrap_or(f64::NAN);
    let own_cpu = |system| blocks.figure(first + system, own);
    let rates = |over, under| blocks.ratio(first + over, first + under, |m| m.rate);
    let goals = goals(object_bytes);
    let node = claim("node: CPU over the ceiling's", cpus(NODE, CEILING), "×");
    vec![
        claim("node: requests/s over nginx static's", rates(NODE, NGINX), "×")
            .with_goal(Goal::AtLeast(goals.over_nginx)),
        if goals.node_cpu.is_nan() { node } else { node.with_goal(Goal::AtMost(goals.node_cpu)) },
        claim(
            "gateway: CPU over the raw relay's, without what is behind",
            blocks.ratio(first + GATEWAY, first + RELAY, own),
            "×",
        )
        .with_goal(Goal::AtMost(goals.gateway_cpu)),
        claim("bare hyper: CPU over the ceiling's", cpus(HYPER, CEILING), "×"),
        claim("nginx static: CPU over the ceiling's", cpus(NGINX, CEILING), "×"),
        claim("ceiling: CPU of a request", cpu(CEILING), "µs"),
        claim("node: CPU of a request", cpu(NODE), "µs"),
        claim("nginx static: CPU of a request", cpu(NGINX), "µs"),
        claim("bare hyper: CPU of a request", cpu(HYPER), "µs"),
        claim("gateway: CPU of a request, without the node's", own_cpu(GATEWAY), "µs"),
        claim("raw relay: CPU of a request, without the ceiling's", own_cpu(RELAY), "µs"),
        claim(
            "gateway + node: requests/s over nginx proxy_cache's",
            rates(GATEWAY, PROXY_CACHE),
            "×",
        ),
        claim("nginx proxy_cache: CPU of a request", cpu(PROXY_CACHE), "µs"),
        claim("node: share of the ceiling", rates(NODE, CEILING), "×"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    fn measured(rate: f64, cpu_us: &[f64]) -> Measured {
        Measured { rate, cpu_us: cpu_us.to_vec(), client_cpu: 0.5, p99_us: 1.0 }
    }

    #[test]
    fn claims_are_of_ratios_within_blocks() {
        let sizes = [4096, 81_920];
        let blocks = slices::run(2 * NAMES.len(), 40, 1, |block, system| {
            let machine = 1.0 + block as f64;
            let each = [
                (4.0, 10.0),
                (2.0, 20.0),
                (3.2, 12.0),
                (1.0, 25.0),
                (0.5, 20.0),
                (0.6, 18.0),
                (3.9, 11.0),
            ];
            let (rate, cpu_us) = each[system % NAMES.len()];
            let behind = matches!(system % NAMES.len(), GATEWAY | RELAY);
            Ok(measured(machine * rate, &[machine * cpu_us, 15.0][..1 + usize::from(behind)]))
        });
        let blocks = blocks.unwrap();
        let marks = marks(&sizes, &blocks, 0.06);
        assert!(marks.len() == 1 && marks[0].complaint == Complaint::Stolen, "{marks:?}");
        for (size, bytes) in sizes.into_iter().enumerate() {
            let claims = claims(bytes, size * NAMES.len(), &blocks, &marks);
            let claims: Vec<Claim> = claims.into_iter().map(Claim::judged).collect();
            assert!((claims[0].value - 1.6).abs() < 1e-9 && claims[0].high < 1.6 + 1e-9);
            assert_eq!(claims[0].verdict, Some(Verdict::Holds));
            assert!((claims[1].value - 1.2).abs() < 1e-9);
            assert_eq!(claims[1].verdict, (bytes == 4096).then_some(Verdict::Holds));
            assert!((claims[2].value - 20.0 / 18.0).abs() < 1e-9, "the gateway alone");
            let expected = if bytes == 4096 { Verdict::Holds } else { Verdict::Fails };
            assert_eq!(claims[2].verdict, Some(expected));
            assert!(claims.iter().all(|claim| claim.marks == marks));
        }
    }
}
