//! `experiments/policies-served`: the choice of replicas by gateways that run: four nodes with disks of unequal speed, one of
//! them shared with an antagonist, and a gateway for each policy before the same nodes.
//!
//! Real time passes here. Policies take turns in random order within blocks, and only slices of one block are compared, so that
//! what the machine and the antagonist do to neighbours cancels.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use configuration::{Gateway, Member};
use engine::route::{Policy, Ring};
use ground::window::{Histogram, Operation, Outcome};
use serde::Deserialize;

use super::claims::{Claim, Goal, Peer};
use super::context::Context;
use super::lab::{self, Catalogue, Server};
use super::slices::{self, Blocks, Interval};

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: u64,
    replicas: u32,
    seed: u64,
    mu_per_s: f64,
    kind: String,
    scv: f64,
    disks: u32,
    speeds: Vec<f64>,
    antagonist_share: f64,
    antagonist_on_s: f64,
    antagonist_off_s: f64,
    warm_rounds: u64,
    full: Part,
    short: Part,
}

/// How much is measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    loads: Vec<f64>,
    blocks: usize,
    warm_s: f64,
    measured_s: f64,
}

impl Config {
    /// Reads/s that all disks serve.
    fn capacity_per_s(&self) -> f64 {
        self.speeds.iter().map(|speed| speed * self.mu_per_s * f64::from(self.disks)).sum()
    }
}

/// What is compared, ours first.
const POLICIES: [(&str, Policy); 4] = [
    ("gateways", Policy::SmallestExpectedResponse),
    ("C3", Policy::C3),
    ("Prequal's rule", Policy::HotCold),
    ("round robin", Policy::RoundRobin),
];

/// A policy's slice.
struct Slice {
    answered: u64,
    failed: u64,
    p50_s: f64,
    p99_s: f64,
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let catalogue = Catalogue::write(&context.scratch, config.objects, config.object_bytes)?;
    let system = System::start(context, &config, &catalogue)?;
    let (mut claims, mut csv) = (Vec::new(), CSV_HEAD.to_owned());
    for &load in &part.loads {
        let rate = load * config.capacity_per_s();
        context.say(format!(
            "{:.0} requests/s, {:.0} % of what the disks serve",
            rate,
            100.0 * load
        ));
        let antagonist = Antagonist::new(&system, &config, context)?;
        let blocks = antagonist.beside(|| {
            slices::run(POLICIES.len(), part.blocks, config.seed, |block, policy| {
                let out = context.scratch.join(format!("load-{load}-{block}-{policy}"));
                let seed = config.seed + block as u64;
                let arguments = catalogue.uniform(rate, (part.warm_s, part.measured_s), seed);
                let slice = system.slice(policy, &arguments, &out, context.quiet)?;
                write_row(&mut csv, load, block, policy, &slice);
                Ok(slice)
            })
        })?;
        claims.extend(judge(load, &blocks));
    }
    system.stop()?;
    let path = context.out.join("policies-served.csv");
    std::fs::write(&path, csv).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(claims)
}

const CSV_HEAD: &str = "load,block,policy,answered,failed,p50_ms,p99_ms\n";

fn write_row(csv: &mut String, load: f64, block: usize, policy: usize, slice: &Slice) {
    let Slice { answered, failed, p50_s, p99_s } = slice;
    let (name, p50_ms, p99_ms) = (POLICIES[policy].0, p50_s * 1e3, p99_s * 1e3);
    let _ = writeln!(csv, "{load},{block},{name},{answered},{failed},{p50_ms:.3},{p99_ms:.3}");
}

fn judge(load: f64, blocks: &Blocks<Slice>) -> Vec<Claim> {
    let percent = 100.0 * load;
    let count = blocks.len() as u64;
    let claim = |name: String, interval: Interval, unit: &str| {
        let Interval { value, low, high } = interval;
        Claim { low, high, ..Claim::new(name, value, 0.0, unit, count) }
    };
    let p99 = |policy| blocks.figure(policy, |slice| slice.p99_s * 1e3);
    let ours = p99(0);
    let mut claims = Vec::new();
    for (policy, (name, _)) in POLICIES.iter().enumerate() {
        claims.push(claim(format!("p99 of {name} at {percent:.0} %"), p99(policy), "ms"));
    }
    for (policy, (name, _)) in POLICIES.iter().enumerate().skip(1) {
        let ratio = blocks.ratio(0, policy, |slice| slice.p99_s);
        let peer = Some(Peer { name: (*name).to_owned(), value: p99(policy).value / ours.value });
        let claim =
            claim(format!("p99 of gateways over that of {name} at {percent:.0} %"), ratio, "×");
        claims.push(Claim { peer, ..claim }.with_goal(Goal::AtMost(1.0)));
    }
    for (policy, (name, _)) in POLICIES.iter().enumerate() {
        let failed = blocks.iter().map(|block| block[policy].failed).sum::<u64>();
        let all = failed + blocks.iter().map(|block| block[policy].answered).sum::<u64>();
        let name = format!("requests that failed with {name} at {percent:.0} %");
        let claim = Claim::counted(name, failed as f64, "requests", all);
        claims.push(if policy == 0 { claim.with_goal(Goal::AtMost(0.0)) } else { claim });
    }
    claims
}

/// Four nodes, a gateway for each policy, and one for the antagonist.
struct System {
    nodes: Vec<Server>,
    gateways: Vec<Server>,
    /// Of the antagonist: keys go to their first node.
    to_first: Server,
    /// Keys whose first node is node 0, as a trace.
    of_first: PathBuf,
}

impl System {
    fn start(context: &Context, config: &Config, catalogue: &Catalogue) -> anyhow::Result<System> {
        let folder = &context.scratch;
        let mut members = Vec::new();
        for node in 0..config.speeds.len() {
            let (name, address) = (format!("node-{node}"), lab::free_address()?);
            members.push(Member { name, address, ..Member::default() });
        }
        let start = |name: &str, own: Option<&Member>, devices, policy: Option<Policy>| {
            // Too little for any object, so that memory answers nothing.
            let memory_bytes = 4096;
            let server = lab::server(memory_bytes, devices, &folder.join("origin"));
            let mut process = lab::in_cluster(server, own, &members);
            process.cluster.replicas = config.replicas;
            // All of a key's nodes may answer, and nothing but the choice differs: no request is sent twice.
            let spread = engine::gateway::Spread::All;
            let policy = policy.unwrap_or_default();
            process.gateway = Gateway { policy, spread, hedge_share: 0.0, ..process.gateway };
            let path = folder.join(format!("{name}.toml"));
            lab::write_config(&path, &process)?;
            Server::start(&path, &folder.join(format!("{name}.log")))
        };
        let mut nodes = Vec::new();
        for (node, (member, speed)) in members.iter().zip(&config.speeds).enumerate() {
            let mut service = lab::service(&config.kind, config.mu_per_s * speed, config.scv)?;
            // No two disks draw the same times.
            service.seed = 1 + 4096 * node as u64;
            let path = folder.join(format!("{}-device", member.name));
            let disks = lab::disks(&path, config.disks, Some(service));
            nodes.push(start(&member.name, Some(member), disks, None)?);
        }
        let gateways = POLICIES.iter().enumerate();
        let gateways = gateways
            .map(|(i, (_, policy))| start(&format!("gateway-{i}"), None, Vec::new(), Some(*policy)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let to_first = start("gateway-first", None, Vec::new(), Some(Policy::Primary))?;
        let of_first = folder.join("of-first.csv");
        write_keys_of_first(&of_first, config, &members, catalogue)?;
        let system = System { nodes, gateways, to_first, of_first };
        context.say("storing the catalogue");
        catalogue.put(system.gateways[0].url(), &folder.join("fill"), context.quiet)?;
        // Round robin asks each node of a key in turn, whatever their speeds.
        let round_robin = POLICIES.iter().position(|(_, policy)| *policy == Policy::RoundRobin);
        let round_robin = &system.gateways[round_robin.context("round robin is compared")?];
        for round in 0..config.warm_rounds {
            let out = folder.join(format!("warm-{round}"));
            catalogue.ask_for_all(round_robin.url(), &out, context.quiet)?;
        }
        Ok(system)
    }

    /// Loads one policy's gateway.
    fn slice(
        &self,
        policy: usize,
        arguments: &[String],
        out: &Path,
        quiet: bool,
    ) -> anyhow::Result<Slice> {
        let run = lab::load(self.gateways[policy].url(), arguments, out, quiet)?;
        let (mut responses, mut failed) = (Histogram::default(), 0);
        let times = run.windows.iter().flat_map(|window| &window.times);
        for times in times.filter(|times| times.operation == Operation::Get) {
            match times.outcome {
                Outcome::Error => failed += times.response.count(),
                _ => responses.merge(&times.response),
            }
        }
        let quantile_s = |p| responses.quantile_s(p).context("a slice has no reply");
        std::fs::remove_dir_all(out).context("cannot remove a run folder")?;
        Ok(Slice {
            answered: responses.count(),
            failed,
            p50_s: quantile_s(0.5)?,
            p99_s: quantile_s(0.99)?,
        })
    }

    fn stop(self) -> anyhow::Result<()> {
        for server in self.gateways.into_iter().chain([self.to_first]).chain(self.nodes) {
            server.stop()?;
        }
        Ok(())
    }
}

/// A trace of the keys whose first node is node 0.
fn write_keys_of_first(
    path: &Path,
    config: &Config,
    members: &[Member],
    catalogue: &Catalogue,
) -> anyhow::Result<()> {
    let places = members.iter().map(|member| engine::route::Member::new(member.name.clone(), 1.0));
    let ring = Ring::new(places.collect(), config.replicas as usize)?;
    let first = &members.first().context("config.toml: speeds has no node")?.name;
    let is_of_first = |key: &String| {
        ring.replicas(key.as_bytes()).iter().next().is_some_and(|node| ring.name(node) == first)
    };
    let mut text = String::from("time_ms,key,size,op\n");
    for key in catalogue.keys().filter(is_of_first) {
        let _ = writeln!(text, "0,{key},{},get", config.object_bytes);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads of one node's keys in bursts.
struct Antagonist<'a> {
    system: &'a System,
    rate: f64,
    on_s: f64,
    off_s: f64,
    scratch: &'a Path,
}

impl<'a> Antagonist<'a> {
    fn new(system: &'a System, config: &Config, context: &'a Context) -> anyhow::Result<Self> {
        let first = config.speeds.first().context("config.toml: speeds has no node")?;
        let rate = config.antagonist_share * first * config.mu_per_s * f64::from(config.disks);
        ensure!(rate > 0.0, "config.toml: antagonist_share must be greater than 0");
        let (on_s, off_s) = (config.antagonist_on_s, config.antagonist_off_s);
        Ok(Antagonist { system, rate, on_s, off_s, scratch: &context.scratch })
    }

    /// One burst, as a load of its own.
    fn burst(&self, number: u64) -> anyhow::Result<()> {
        let out = self.scratch.join(format!("antagonist-{number}"));
        let arguments = [
            format!("--rate={}", self.rate),
            "--warmup=0s".to_owned(),
            format!("--duration={}s", self.on_s),
            format!("--seed={}", number + 1),
            format!("--trace={}", self.system.of_first.display()),
        ];
        lab::load(self.system.to_first.url(), &arguments, &out, true)?;
        std::fs::remove_dir_all(&out).context("cannot remove a run folder")
    }

    /// Runs `measure` while bursts come and go. An error of either is the error of both.
    fn beside<T>(&self, measure: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let bursts = scope.spawn(|| -> anyhow::Result<()> {
                let mut number = 0;
                while !ends.load(Ordering::Relaxed) {
                    self.burst(number)?;
                    number += 1;
                    std::thread::sleep(Duration::from_secs_f64(self.off_s));
                }
                Ok(())
            });
            let measured = measure();
            ends.store(true, Ordering::Relaxed);
            let ended = bursts.join().map_err(|_| anyhow::anyhow!("the antagonist ended early"))?;
            let measured = measured?;
            ended.context("the antagonist")?;
            Ok(measured)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict;

    #[test]
    fn policies_are_compared_within_blocks() {
        let blocks = slices::run(POLICIES.len(), 20, 1, |block, policy| {
            // The machine is another one in each block.
            let machine = 1.0 + block as f64;
            let p99_s = machine * [1.0, 0.9, 2.0, 8.0][policy];
            Ok(Slice { answered: 100, failed: u64::from(policy == 3), p50_s: p99_s / 4.0, p99_s })
        });
        let claims: Vec<Claim> =
            judge(0.7, &blocks.unwrap()).into_iter().map(Claim::judged).collect();
        let find = |name: &str| claims.iter().find(|claim| claim.name == name).unwrap();
        let over_c3 = find("p99 of gateways over that of C3 at 70 %");
        assert!((over_c3.value - 1.0 / 0.9).abs() < 1e-9, "{over_c3:?}");
        assert_eq!(over_c3.verdict, Some(Verdict::Fails));
        let over_robin = find("p99 of gateways over that of round robin at 70 %");
        assert_eq!(over_robin.verdict, Some(Verdict::Holds));
        let failed = find("requests that failed with round robin at 70 %");
        assert_eq!((failed.value, failed.samples, failed.verdict), (20.0, 2020, None));
        let failed = find("requests that failed with gateways at 70 %");
        assert_eq!(failed.verdict, Some(Verdict::Holds));
    }

    #[test]
    fn the_antagonist_reads_what_is_first_on_one_node() {
        let text = include_str!("../policies-served/config.toml");
        let config: Config = toml::from_str(text).unwrap();
        assert!((config.capacity_per_s() - 975.0).abs() < 1e-9);
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::write(folder.path(), config.objects, 10).unwrap();
        let names = (0..config.speeds.len()).map(|node| format!("node-{node}"));
        let members: Vec<Member> = names.map(|name| Member { name, ..Member::default() }).collect();
        let path = folder.path().join("of-first.csv");
        write_keys_of_first(&path, &config, &members, &catalogue).unwrap();
        let rows = std::fs::read_to_string(&path).unwrap().lines().count() - 1;
        // A quarter of the keys, within five standard deviations.
        let expected = config.objects as f64 / 4.0;
        assert!((rows as f64 - expected).abs() < 5.0 * (expected * 0.75).sqrt(), "{rows}");
    }
}
