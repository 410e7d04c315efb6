//! `experiments/serve-objects`: 80 KB objects from memory, through one node and through a gateway,
//! beside nginx in the same run.
//!
//! Rounds interleave all systems between two measurements of a ceiling; a round in which the ceiling
//! drifted is done again. Claims are of ratios within rounds, so that what the machine does to all of
//! them in a round cancels.

mod peers;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::lab::{self, Catalogue};
use super::{Claim, Context, Goal};
use model::statistics::batch_means;
use peers::{Asked, Bench, Measured, Peer, Target};
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
    measure_s: f64,
    rounds: usize,
    rounds_short: usize,
    drift_max: f64,
    rounds_again_max: usize,
}

/// Largest half-width of a ratio with which a claim can hold.
const RATIO_WIDTH_MAX: f64 = 0.05;
/// Largest half-width of processor time for a request with which a claim can hold, µs.
const CPU_WIDTH_MAX_US: f64 = 2.0;
/// What a gateway may cost (a raw relay takes 18 µs, pingora 61).
const GATEWAY_GOAL_US: f64 = 28.0;

/// All systems, in the order of a round.
const NAMES: [&str; 6] = [
    "ceiling",
    "nginx static",
    "node",
    "nginx proxy_cache",
    "gateway + node",
    "raw relay + ceiling",
];

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let bench = Bench::build(&context.folder, &context.scratch)?;
    let systems = Systems::start(context, &config, &bench)?;
    let asked = Asked {
        objects: config.objects,
        connections: config.connections,
        warmup_s: config.warmup_s,
        measure_s: config.measure_s,
    };
    let wanted = if context.short { config.rounds_short } else { config.rounds };
    let (mut rounds, mut again) = (Vec::new(), 0);
    while rounds.len() < wanted {
        let round = Round::measure(&bench, &systems.targets, &asked)?;
        let drift = round.drift();
        let keep = drift <= config.drift_max || again >= config.rounds_again_max;
        context.say(format!(
            "round {}: {}; the ceiling drifted by {:.1} %{}",
            rounds.len() + 1,
            round.in_words(),
            drift * 100.0,
            if keep { "" } else { ": again" }
        ));
        if keep {
            rounds.push(round);
        } else {
            again += 1;
        }
    }
    drop(systems);
    record(context, &rounds)?;
    Ok(claims(&rounds))
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
        let every = Asked {
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

/// All systems measured once, the ceiling before and after.
struct Round {
    /// In the order of [`NAMES`].
    systems: Vec<Measured>,
    ceiling_after: Measured,
}

impl Round {
    fn measure(bench: &Bench, targets: &[Target], asked: &Asked) -> anyhow::Result<Round> {
        let systems = targets.iter().map(|target| bench.load(target, asked));
        let systems: Vec<Measured> = systems.collect::<anyhow::Result<_>>()?;
        let ceiling_after = bench.load(&targets[0], asked)?;
        Ok(Round { systems, ceiling_after })
    }

    fn drift(&self) -> f64 {
        (self.ceiling_after.rate / self.systems[0].rate - 1.0).abs()
    }

    fn in_words(&self) -> String {
        let each = NAMES.iter().zip(&self.systems);
        let each = each.map(|(name, m)| format!("{name} {:.1} k/s", m.rate / 1e3));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// One row of `rounds.json`.
#[derive(Serialize)]
struct Row<'a> {
    round: usize,
    system: &'a str,
    requests_per_s: f64,
    cpu_us_per_request: &'a [f64],
    response_us_p99: f64,
}

fn record(context: &Context, rounds: &[Round]) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (index, round) in rounds.iter().enumerate() {
        let systems = NAMES.iter().copied().zip(&round.systems);
        for (system, measured) in systems.chain([("ceiling after", &round.ceiling_after)]) {
            rows.push(Row {
                round: index + 1,
                system,
                requests_per_s: measured.rate,
                cpu_us_per_request: &measured.cpu_us,
                response_us_p99: measured.p99_us,
            });
        }
    }
    let path = context.out.join("rounds.json");
    std::fs::write(&path, serde_json::to_string_pretty(&rows)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut grid = Grid::new("lrrr", &["system", "requests/s", "CPU µs each", "p99 µs"]);
    for (index, name) in NAMES.iter().enumerate() {
        let mean = |of: &dyn Fn(&Measured) -> f64| {
            rounds.iter().map(|r| of(&r.systems[index])).sum::<f64>() / rounds.len().max(1) as f64
        };
        grid.row([
            (*name).to_owned(),
            format!("{:.0}", mean(&|m| m.rate)),
            format!("{:.1}", mean(&|m| m.cpu_us.iter().sum())),
            format!("{:.0}", mean(&|m| m.p99_us)),
        ]);
    }
    context.say(grid.text());
    Ok(())
}

fn claims(rounds: &[Round]) -> Vec<Claim> {
    let of = |what: &dyn Fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(what).collect() };
    let cpu = |m: &Measured| m.cpu_us.iter().sum::<f64>();
    let ratio = |a: usize, b: usize| {
        of(&move |round: &Round| round.systems[a].rate / round.systems[b].rate)
    };
    let requests = |system: usize| rounds.iter().map(|r| r.systems[system].requests).sum();
    let claim = |name: &str, values: Vec<f64>, unit: &str, width_max, goal, samples| {
        // Of a single round nothing is known: such a claim does not hold.
        let estimate = batch_means(&values);
        let value = estimate.map_or(f64::NAN, |e| e.mean);
        let half_width = estimate.map_or(f64::NAN, |e| e.half_width);
        Claim {
            name: name.to_owned(),
            value,
            low: value - half_width,
            high: value + half_width,
            unit: unit.to_owned(),
            samples,
            width_max,
            published: None,
            goal,
            peer: None,
            holds: false,
        }
    };
    let us = CPU_WIDTH_MAX_US;
    vec![
        claim(
            "node: requests/s over nginx static's",
            ratio(2, 1),
            "×",
            RATIO_WIDTH_MAX,
            Some(Goal::AtLeast(1.0)),
            requests(2),
        ),
        claim("node: CPU of a request", of(&|r| cpu(&r.systems[2])), "µs", us, None, requests(2)),
        claim(
            "nginx static: CPU of a request",
            of(&|r| cpu(&r.systems[1])),
            "µs",
            us,
            None,
            requests(1),
        ),
        claim(
            "gateway: CPU of a request, without the node's",
            of(&|r| r.systems[4].cpu_us[0]),
            "µs",
            us,
            Some(Goal::AtMost(GATEWAY_GOAL_US)),
            requests(4),
        ),
        claim(
            "raw relay: CPU of a request",
            of(&|r| r.systems[5].cpu_us[0]),
            "µs",
            us,
            None,
            requests(5),
        ),
        claim(
            "gateway + node: requests/s over nginx proxy_cache's",
            ratio(4, 3),
            "×",
            RATIO_WIDTH_MAX,
            None,
            requests(4),
        ),
        claim(
            "nginx proxy_cache: CPU of a request",
            of(&|r| cpu(&r.systems[3])),
            "µs",
            us,
            None,
            requests(3),
        ),
        claim("node: share of the ceiling", ratio(2, 0), "×", RATIO_WIDTH_MAX, None, requests(2)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rate: f64, cpu_us: &[f64]) -> Measured {
        Measured { rate, cpu_us: cpu_us.to_vec(), p99_us: 1.0, requests: 10 }
    }

    #[test]
    fn claims_are_of_ratios_within_rounds() {
        let round = |machine: f64| Round {
            systems: vec![
                measured(machine * 4.0, &[10.0]),
                measured(machine * 2.0, &[20.0]),
                measured(machine * 3.0, &[15.0]),
                measured(machine, &[25.0]),
                measured(machine * 0.5, &[20.0, 15.0]),
                measured(machine * 0.6, &[18.0, 10.0]),
            ],
            ceiling_after: measured(machine * 4.4, &[10.0]),
        };
        let rounds = [round(1.0), round(7.0)];
        assert!((rounds[0].drift() - 0.1).abs() < 1e-9);
        let claims: Vec<Claim> = claims(&rounds).into_iter().map(Claim::judged).collect();
        assert!((claims[0].value - 1.5).abs() < 1e-9 && claims[0].high < 1.5 + 1e-9);
        assert!(claims[0].holds && claims[3].holds);
        assert!((claims[3].value - 20.0).abs() < 1e-9, "the gateway alone");
    }
}
