//! `experiments/kill`: a cluster under mixed load while its nodes are killed, paused and cut off in turn.
//!
//! Nodes and gateways are processes in network namespaces of their own; clients write numbered,
//! self-describing versions and record every operation. Afterwards every key is read once more through each
//! gateway and from the origin alone, and a checker judges the whole history.

mod body;
mod checker;
mod cluster;
mod findings;
mod history;
mod interrupt;
mod load;
mod service;
#[cfg(test)]
mod tests;
pub(super) mod wire;

use anyhow::{Context as _, bail};
use model::window::Nanos;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;

use self::cluster::{Cluster, Fault};
use self::findings::{Findings, Plan};
use self::history::{Place, Read};
use self::interrupt::Interrupt;
use self::load::{Clients, Load, Log};
use self::service::Struck;
use super::lab::{self, Server};
use super::{Claim, Context};
use record::clock::now;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    faults: usize,
    fault_s_min: f64,
    fault_s_max: f64,
    settle_s: f64,
    back_s_max: f64,
    quiet_s: f64,
    seed: u64,
    cluster: cluster::Settings,
    load: load::Settings,
    short: Short,
}

/// The changes of `--short`: fewer faults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    faults: usize,
}

/// Longest time for writing every key once.
const FILL_S: f64 = 60.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let faults = if context.short { config.short.faults } else { config.faults };
    let interrupt = Interrupt::listen()?;
    let mut cluster = Cluster::start(&config.cluster, &context.scratch, &interrupt)?;
    let primaries = cluster.primaries(config.load.keys);
    let nodes = usize::from(config.cluster.nodes);
    let gateways = cluster.gateways();
    let start = now();
    let load = Load::start(&config.load, &gateways, cluster.token(), primaries.clone(), nodes)?;
    let mut run = Run { context, config: &config, interrupt, struck: Vec::new(), quiet: (0, 0) };
    let broken = run.all_faults(&mut cluster, &load, faults);
    let mut log = load.stop()?;
    // A fault that does not heal ends the run; the history up to then is judged nevertheless.
    run.interrupt.check()?;
    run.last_reading(&mut cluster, &mut log)?;
    drop(cluster);
    run.origin_reading(&mut log)?;
    let plan = Plan {
        faults,
        gateways: config.cluster.gateways,
        primaries: &primaries,
        start,
        quiet: run.quiet,
    };
    let findings = Findings::new(&log, &run.struck, &plan)?;
    findings.record(context)?;
    let claims = findings.claims();
    context.record(&claims)?;
    broken?;
    Ok(claims)
}

struct Run<'a> {
    context: &'a Context,
    config: &'a Config,
    interrupt: Interrupt,
    struck: Vec<Struck>,
    /// Begin and end of the interval without faults.
    quiet: (Nanos, Nanos),
}

impl Run<'_> {
    /// Causes every fault at every node, one at a time, in a different order each round.
    fn all_faults(
        &mut self,
        cluster: &mut Cluster,
        load: &Load,
        faults: usize,
    ) -> anyhow::Result<()> {
        let began = now();
        while !load.is_filled() {
            if now() > began + (FILL_S * 1e9) as u64 {
                bail!("the cluster did not take every key within {FILL_S} s");
            }
            cluster.check()?;
            self.interrupt.sleep(0.05)?;
        }
        self.context.say(format!("{} keys written", self.config.load.keys));
        self.interrupt.sleep(self.config.settle_s)?;
        let from = now();
        self.interrupt.sleep(self.config.quiet_s)?;
        self.quiet = (from, now());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.config.seed);
        let kinds = [Fault::Kill, Fault::Pause, Fault::Cut];
        let nodes = 0..usize::from(self.config.cluster.nodes);
        let each: Vec<(usize, Fault)> =
            nodes.flat_map(|node| kinds.map(|fault| (node, fault))).collect();
        let mut round: Vec<(usize, Fault)> = Vec::new();
        for number in 1..=faults {
            if round.is_empty() {
                round.clone_from(&each);
                round.shuffle(&mut random);
            }
            let Some((node, fault)) = round.pop() else { break };
            let between = self.config.fault_s_max - self.config.fault_s_min;
            let lasts_s = self.config.fault_s_min + random.random::<f64>() * between;
            let struck = self
                .strike(cluster, load, (node, fault), lasts_s)
                .with_context(|| format!("fault {number}, {fault:?} of node {node}"))?;
            let back_s = struck.back.saturating_sub(struck.healed) as f64 / 1e9;
            self.context.say(format!(
                "{number}/{faults}: node {node}, {fault:?} for {lasts_s:.1} s, back after {back_s:.2} s"
            ));
            self.struck.push(struck);
        }
        Ok(())
    }

    fn strike(
        &self,
        cluster: &mut Cluster,
        load: &Load,
        (node, fault): (usize, Fault),
        lasts_s: f64,
    ) -> anyhow::Result<Struck> {
        let began = now();
        cluster.strike(node, fault)?;
        self.interrupt.sleep(lasts_s)?;
        let healed = now();
        cluster.heal(node, fault)?;
        cluster.wait(node)?;
        let answered = now();
        while !load.writes_work(node, healed) {
            if now() > healed + (self.config.back_s_max * 1e9) as u64 {
                bail!("its keys take no writes {} s after it was healed", self.config.back_s_max);
            }
            cluster.check()?;
            self.interrupt.sleep(0.005)?;
        }
        let back = now();
        self.interrupt.sleep(self.config.settle_s)?;
        cluster.check()?;
        Ok(Struck { fault, node, began, healed, answered, back, ended: now() })
    }

    /// Reads every key through each gateway.
    fn last_reading(&self, cluster: &mut Cluster, log: &mut Log) -> anyhow::Result<()> {
        self.context.say("reading every key through each gateway and from the origin");
        self.interrupt.sleep(self.config.settle_s)?;
        let gateways = cluster.gateways();
        let mut clients = Clients::new(&gateways, cluster.token());
        for key in 0..self.config.load.keys {
            self.interrupt.check()?;
            for gateway in 0..gateways.len() {
                clients.read(gateway, key);
            }
        }
        log.operations.append(&mut clients.log.operations);
        log.notes.append(&mut clients.log.notes);
        Ok(())
    }

    /// Reads every key from the origin, through a server with empty tiers.
    fn origin_reading(&self, log: &mut Log) -> anyhow::Result<()> {
        let scratch = &self.context.scratch;
        let devices = lab::disks(&scratch.join("device-last"), 1, None);
        let config = lab::server(1 << 20, devices, &scratch.join("origin"));
        let path = scratch.join("last.toml");
        lab::write_config(&path, &config)?;
        let server = Server::start(&path, &scratch.join("last.log"))?;
        let address = server.url().trim_start_matches("http://").parse();
        let mut clients = Clients::new(&[address.context("the server's address")?], "");
        for key in 0..self.config.load.keys {
            self.interrupt.check()?;
            if let Read::Refused(_) | Read::Failed = clients.read(0, key) {
                let said = clients.log.notes.pop().map(|(_, note)| note).unwrap_or_default();
                bail!("the origin could not be read: {said}");
            }
        }
        for mut operation in clients.log.operations {
            operation.place = Place::Origin;
            log.operations.push(operation);
        }
        server.stop()
    }
}
