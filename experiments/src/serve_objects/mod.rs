//! `experiments/serve-objects`: 80 KB objects from memory, through one node and through a gateway,
//! beside nginx in the same run.
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
    object_bytes: u64,
    connections: u32,
    warmup_s: f64,
    slice_s: f64,
    blocks: usize,
    blocks_short: usize,
    seed: u64,
}

/// Processor time of a request that a gateway may cost (a raw relay takes 18 µs, pingora 61).
const GATEWAY_GOAL_US: f64 = 28.0;
/// Largest share of its processor that the client may use, and largest share that other guests may
/// take, unmarked.
const CLIENT_MAX: f64 = 0.8;
const STOLEN_MAX: f64 = 0.05;

/// All systems, by their numbers.
const NAMES: [&str; 6] = [
    "ceiling",
    "nginx static",
    "node",
    "nginx proxy_cache",
    "gateway + node",
    "raw relay + ceiling",
];
const CEILING: usize = 0;
const NGINX: usize = 1;
const NODE: usize = 2;
const PROXY_CACHE: usize = 3;
const GATEWAY: usize = 4;
const RELAY: usize = 5;

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
    let systems = placement.of_servers(|| Systems::start(context, &config, &bench))?;
    context.provenance.peer("nginx", &peers::nginx_version()?)?;
    let request = Request {
        objects: config.objects,
        connections: config.connections,
        warmup_s: config.warmup_s,
        measure_s: config.slice_s,
    };
    let count = if context.short { config.blocks_short } else { config.blocks };
    context.say(format!("{count} blocks of {} slices of {} s", NAMES.len(), config.slice_s));
    let mut host = HostSampler::start();
    let blocks = slices::run(NAMES.len(), count, config.seed, |_, system| {
        placement.of_generator(|| bench.load(&systems.targets[system], &request))
    })?;
    let stolen = host.sample().cpu_stolen;
    drop(systems);
    record(context, &blocks, stolen)?;
    Ok(claims(&blocks, &marks(&blocks, stolen)))
}

/// Everything that is measured, running.
struct Systems {
    targets: Vec<Target>,
    _peers: Vec<Peer>,
    _servers: Vec<lab::Server>,
}

impl Systems {
    fn start(context: &Context, config: &Config, bench: &Bench) -> anyhow::Result<Systems> {
        let scratch = &context.scratch;
        context.say("filling");
        let root = scratch.join("www");
        let origin = scratch.join("origin");
        let catalogue = Catalogue::write(scratch, config.objects, config.object_bytes)?;
        let ceiling = bench.ceiling("http", config.object_bytes, scratch)?;
        let relay = bench.relay(&ceiling.target, config.object_bytes, scratch)?;
        let files = peers_files(&root, config)?;
        let fixed = Peer::nginx(scratch, &files, None)?;
        let cached = Peer::nginx(scratch, &files, Some(&fixed.target.address))?;
        let memory = 2 * catalogue.memory_bytes(config.objects as f64);
        let alone = start_node(context, "node", &origin, memory, None)?;
        catalogue.put(alone.url(), &scratch.join("fill"), context.quiet)?;
        let member = lab::free_address()?;
        // A lone node shares its origin with nobody.
        let origin = scratch.join("origin-of-cluster");
        let behind = start_node(context, "behind", &origin, memory, Some(&member))?;
        let gateway = start_gateway(context, &origin, &member)?;
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
        ];
        // Every object once through each, so that memory, page cache and proxy cache hold it.
        let every = Request {
            objects: config.objects,
            connections: config.connections,
            warmup_s: 0.0,
            measure_s: 3.0,
        };
        for target in &targets {
            bench.load(target, &every)?;
        }
        Ok(Systems {
            targets,
            _peers: vec![relay, ceiling, cached, fixed],
            _servers: vec![gateway, behind, alone],
        })
    }
}

/// The catalogue as files.
fn peers_files(root: &Path, config: &Config) -> anyhow::Result<PathBuf> {
    let folder = root.join("o");
    std::fs::create_dir_all(&folder)?;
    let bytes = vec![b'x'; config.object_bytes as usize];
    for object in 0..config.objects {
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
    context: &Context,
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
    start(context, name, &server)
}

fn start_gateway(context: &Context, origin: &Path, member: &str) -> anyhow::Result<lab::Server> {
    let mut server = lab::server(1 << 20, Vec::new(), origin);
    server.serve.threads = 1;
    server.serve.role = Role::Gateway;
    server.members = vec![one_member(member)];
    start(context, "gateway", &server)
}

fn one_member(address: &str) -> serve::config::Member {
    serve::config::Member { name: "a".to_owned(), address: address.to_owned(), weight: 1.0 }
}

fn start(context: &Context, name: &str, server: &ServerConfig) -> anyhow::Result<lab::Server> {
    let path = context.scratch.join(format!("{name}.toml"));
    lab::write_config(&path, server)?;
    lab::Server::start(&path, &context.scratch.join(format!("{name}.log")))
}

/// One row of `slices.json`.
#[derive(Serialize)]
struct Row<'a> {
    block: usize,
    system: &'a str,
    requests_per_s: f64,
    cpu_us_per_request: &'a [f64],
    client_cpu: f64,
    response_us_p99: f64,
}

fn record(context: &Context, blocks: &Blocks<Measured>, stolen: f64) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        for (system, measured) in NAMES.iter().zip(block) {
            rows.push(Row {
                block: index + 1,
                system,
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
    for (system, name) in NAMES.iter().enumerate() {
        let rate = blocks.figure(system, |m| m.rate);
        grid.row([
            (*name).to_owned(),
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
fn marks(blocks: &Blocks<Measured>, stolen: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (system, name) in NAMES.iter().enumerate() {
        let busy = blocks.figure(system, |m| m.client_cpu).value;
        if busy > CLIENT_MAX {
            let detail = format!("the client used {:.0} % of its processor", busy * 100.0);
            marks.push(Mark::new(*name, Complaint::Processor, detail));
        }
    }
    if stolen > STOLEN_MAX {
        let detail = format!("the hypervisor took {:.1} % of the processors", stolen * 100.0);
        marks.push(Mark::new("all blocks", Complaint::Stolen, detail));
    }
    marks
}

fn claims(blocks: &Blocks<Measured>, marks: &[Mark]) -> Vec<Claim> {
    let claim = |name: &str, found: Interval, unit: &str| Claim {
        low: found.low,
        high: found.high,
        marks: marks.to_vec(),
        ..Claim::new(name, (found.value, 0.0), unit, blocks.len() as u64)
    };
    let cpu = |system| blocks.figure(system, Measured::cpu_us_sum);
    // Without the processes behind it.
    let own_cpu = |system| blocks.figure(system, |m| m.cpu_us.first().copied().unwrap_or(f64::NAN));
    let rates = |over, under| blocks.ratio(over, under, |m| m.rate);
    vec![
        claim("node: requests/s over nginx static's", rates(NODE, NGINX), "×")
            .with_goal(Goal::AtLeast(1.0)),
        claim("node: CPU of a request", cpu(NODE), "µs"),
        claim("nginx static: CPU of a request", cpu(NGINX), "µs"),
        claim("gateway: CPU of a request, without the node's", own_cpu(GATEWAY), "µs")
            .with_goal(Goal::AtMost(GATEWAY_GOAL_US)),
        claim("raw relay: CPU of a request", own_cpu(RELAY), "µs"),
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
        let blocks = slices::run(NAMES.len(), 40, 1, |block, system| {
            let machine = 1.0 + block as f64;
            let each =
                [(4.0, 10.0), (2.0, 20.0), (3.0, 15.0), (1.0, 25.0), (0.5, 20.0), (0.6, 18.0)];
            let (rate, cpu_us) = each[system];
            Ok(measured(machine * rate, &[cpu_us, 15.0][..1 + usize::from(system >= GATEWAY)]))
        });
        let blocks = blocks.unwrap();
        let marks = marks(&blocks, 0.06);
        assert!(marks.len() == 1 && marks[0].complaint == Complaint::Stolen, "{marks:?}");
        let claims: Vec<Claim> = claims(&blocks, &marks).into_iter().map(Claim::judged).collect();
        assert!((claims[0].value - 1.5).abs() < 1e-9 && claims[0].high < 1.5 + 1e-9);
        assert_eq!(claims[0].verdict, Some(Verdict::Holds));
        assert_eq!(claims[3].verdict, Some(Verdict::Holds));
        assert!((claims[3].value - 20.0).abs() < 1e-9, "the gateway alone");
        assert!(claims.iter().all(|claim| claim.marks == marks));
    }
}
