//! `experiments/kill`: a cluster under mixed load while its nodes, its gateways and its origin are struck in
//! turn.
//!
//! Nodes and gateways are processes in network namespaces of their own; clients write numbered,
//! self-describing versions and record every operation. Afterwards every key is read once more through each
//! gateway and from the origin alone, and a checker judges the whole history.

mod body;
mod checker;
mod cluster;
mod etcd;
mod fault;
mod findings;
mod history;
mod interrupt;
mod load;
mod service;
mod store;
#[cfg(test)]
mod tests;
mod views;
pub(super) mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use ground::window::Nanos;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;

use self::cluster::{Cluster, Setup, Strays};
use self::fault::{Fault, Target};
use self::findings::{Findings, Plan};
use self::history::{Action, Operation, Place, Read, ReadResult};
use self::interrupt::Interrupt;
use self::load::{Clients, Load, Log};
use self::service::Struck;
use self::store::{Kind, Store};
use super::claims::Claim;
use super::context::Context;
use super::lab::{self, Server};
use record::clock::now;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    fault_s_min: f64,
    fault_s_max: f64,
    settle_s: f64,
    back_s_max: f64,
    quiet_s: f64,
    seed: u64,
    folder: Phase,
    s3: Phase,
    /// A folder that single nodes lose sight of, with static members, and with members in etcd.
    chaos: Phase,
    chaos_etcd: Phase,
    cluster: cluster::Settings,
    load: load::Settings,
}

/// A cluster on one kind of origin: number of faults, and what `--short` makes of it.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    faults: usize,
    short_faults: usize,
}

/// Longest time for writing every key once.
const FILL_S: f64 = 60.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let interrupt = Interrupt::listen()?;
    let mut claims = Vec::new();
    for (setup, phase) in [
        (setup("folder", Kind::Folder), config.folder),
        (setup("s3", Kind::S3), config.s3),
        (Setup { views: true, ..setup("chaos", Kind::Folder) }, config.chaos),
        (Setup { views: true, etcd: true, ..setup("chaos-etcd", Kind::Folder) }, config.chaos_etcd),
    ] {
        let name = setup.name;
        let faults = if context.short { phase.short_faults } else { phase.faults };
        // None: another configuration is for some of them alone.
        if faults == 0 {
            continue;
        }
        context.say(format!("{name}: {faults} faults"));
        let scratch = context.scratch.join(name);
        std::fs::create_dir_all(&scratch)?;
        let run = Run {
            context,
            config: &config,
            setup,
            scratch,
            interrupt: interrupt.clone(),
            struck: Vec::new(),
            quiet: (0, 0),
            strays: Strays::default(),
        };
        claims.extend(run.run_to_end(faults)?);
        context.record(&claims)?;
    }
    Ok(claims)
}

fn setup(name: &'static str, store: Kind) -> Setup {
    Setup { name, store, views: false, etcd: false }
}

struct Run<'a> {
    context: &'a Context,
    config: &'a Config,
    setup: Setup,
    scratch: PathBuf,
    interrupt: Interrupt,
    struck: Vec<Struck>,
    /// Begin and end of the interval without faults.
    quiet: (Nanos, Nanos),
    strays: Strays,
}

impl Run<'_> {
    /// A cluster from its start to the last reading, judged.
    fn run_to_end(mut self, faults: usize) -> anyhow::Result<Vec<Claim>> {
        let (config, context) = (self.config, self.context);
        if self.setup.views {
            views::make_other(&self.scratch, config.load.keys)?;
        }
        let others = |run: &Self| match run.setup.views {
            true => views::files_of_other(&run.scratch),
            false => Ok(BTreeMap::new()),
        };
        let before = others(&self)?;
        let mut cluster =
            Cluster::start(&config.cluster, self.setup, &self.scratch, &self.interrupt)?;
        let primaries = cluster.primaries(config.load.keys + config.load.once_keys);
        let nodes = usize::from(config.cluster.nodes);
        let gateways = cluster.gateways();
        let start = now();
        let load = Load::start(&config.load, &gateways, cluster.token(), primaries.clone(), nodes)?;
        let broken = self.all_faults(&mut cluster, &load, faults);
        let mut log = load.stop()?;
        // A fault that did not heal ends the run, and what was seen until then is judged all the same.
        self.interrupt.check()?;
        self.last_reading(&mut cluster, &mut log)?;
        self.strays = cluster.strays();
        let after = others(&self)?;
        let changed = after.iter().filter(|(path, length)| before.get(*path) != Some(length));
        self.strays.written += changed.count() as u64;
        let store = cluster.into_store();
        self.origin_reading(&store, &mut log)?;
        let plan = Plan {
            store: self.setup.name,
            strays: self.strays,
            faults,
            gateways: config.cluster.gateways,
            primaries: &primaries,
            start,
            quiet: self.quiet,
        };
        let findings = Findings::new(&log, &self.struck, &plan)?;
        findings.record(context)?;
        let claims = findings.claims();
        if broken.is_err() {
            context.record(&claims)?;
        }
        broken?;
        Ok(claims)
    }

    /// Everything that can be struck, with every fault.
    fn each(&self) -> Vec<(Target, Fault)> {
        let nodes = (0..usize::from(self.config.cluster.nodes)).map(Target::Node);
        let gateways = (0..usize::from(self.config.cluster.gateways)).map(Target::Gateway);
        let of_gateways = gateways.map(|gateway| (gateway, Fault::Kill));
        match self.setup.store {
            Kind::Folder if self.setup.views => {
                // Of each fault one node, another each time; all nodes would take five times as long for a round.
                let kinds = [Fault::Kill, Fault::Stop, Fault::Pause, Fault::Cut, Fault::Wipe];
                let views = [Fault::Flip, Fault::Unmounted, Fault::Emptied, Fault::Replaced];
                let all = kinds.into_iter().chain(views);
                let of_nodes = all.zip(self.nodes_from()).map(|(fault, node)| (node, fault));
                of_nodes.chain(of_gateways.take(1)).collect()
            }
            Kind::Folder => {
                let kinds = [Fault::Kill, Fault::Pause, Fault::Cut];
                let of_nodes = nodes.flat_map(|node| kinds.map(|fault| (node, fault)));
                let vanish = (Target::Origin, Fault::Vanish);
                let power = (Target::Machine, Fault::Power);
                of_nodes.chain(of_gateways).chain([vanish, vanish, power, power, power]).collect()
            }
            Kind::S3 => {
                let of_nodes = nodes.map(|node| (node, Fault::Kill));
                let stores = [Fault::Kill, Fault::Pause].map(|fault| (Target::Origin, fault));
                of_nodes.chain(of_gateways).chain(stores).chain(stores).collect()
            }
        }
    }

    /// The nodes in turn, from another one each round.
    fn nodes_from(&self) -> impl Iterator<Item = Target> {
        let nodes = usize::from(self.config.cluster.nodes);
        let first = self.struck.len();
        (0..).map(move |index| Target::Node((first + index) % nodes))
    }

    /// Strikes one after the other: everything with every fault, in another order each round.
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
        let mut round: Vec<(Target, Fault)> = Vec::new();
        for number in 1..=faults {
            if round.is_empty() {
                round = self.each();
                round.shuffle(&mut random);
            }
            let Some((target, fault)) = round.pop() else { break };
            let between = self.config.fault_s_max - self.config.fault_s_min;
            let lasts_s = self.config.fault_s_min + random.random::<f64>() * between;
            let struck = self
                .strike(cluster, load, target, fault, lasts_s)
                .with_context(|| format!("fault {number}, {fault:?} of {target}"))?;
            let back_s = struck.back.saturating_sub(struck.healed) as f64 / 1e9;
            self.context.say(format!(
                "{number}/{faults}: {target}, {fault:?} for {lasts_s:.1} s, back after {back_s:.2} s"
            ));
            self.struck.push(struck);
        }
        Ok(())
    }

    fn strike(
        &self,
        cluster: &mut Cluster,
        load: &Load,
        target: Target,
        fault: Fault,
        lasts_s: f64,
    ) -> anyhow::Result<Struck> {
        let began = now();
        cluster.strike(target, fault)?;
        self.interrupt.sleep(lasts_s)?;
        let healed = now();
        cluster.heal(target, fault)?;
        let answered = now();
        while !load.writes_work(target, healed) {
            if now() > healed + (self.config.back_s_max * 1e9) as u64 {
                bail!(
                    "writes that need it are not taken {} s after it was healed",
                    self.config.back_s_max
                );
            }
            cluster.check()?;
            self.interrupt.sleep(0.005)?;
        }
        let back = now();
        self.interrupt.sleep(self.config.settle_s)?;
        cluster.check()?;
        Ok(Struck { fault, target, began, healed, answered, back, ended: now() })
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

    /// Reads every key from the origin: from a folder with a server that holds nothing, from a bucket the
    /// store's own files.
    fn origin_reading(&self, store: &Store, log: &mut Log) -> anyhow::Result<()> {
        // What was never written is absent, and nothing to check.
        let written = log.operations.iter().filter(|operation| !operation.is_read());
        let keys: BTreeSet<u32> = written.map(|operation| operation.key).collect();
        let mut operations = if self.setup.store == Kind::S3 {
            files(store, &keys)?
        } else {
            self.served(store, &keys)?
        };
        for operation in &mut operations {
            operation.place = Place::Origin;
        }
        log.operations.append(&mut operations);
        Ok(())
    }

    fn served(&self, store: &Store, keys: &BTreeSet<u32>) -> anyhow::Result<Vec<Operation>> {
        let devices = lab::disks(&self.scratch.join("device-last"), 1, None);
        let mut config = lab::server(1 << 20, devices, &self.scratch);
        store.configure(&mut config);
        let path = self.scratch.join("last.toml");
        lab::write_config(&path, &config)?;
        let server = Server::start(&path, &self.scratch.join("last.log"))?;
        let address = server.url().trim_start_matches("http://").parse();
        let mut clients = Clients::new(&[address.context("the server's address")?], "");
        for &key in keys {
            self.interrupt.check()?;
            if let Read::Refused(_) | Read::Failed = clients.read(0, key) {
                let said = clients.log.notes.pop().map(|(_, note)| note).unwrap_or_default();
                bail!("the origin could not be read: {said}");
            }
        }
        server.stop()?;
        Ok(clients.log.operations)
    }
}

/// Reads of the files in which a store keeps its objects.
fn files(store: &Store, keys: &BTreeSet<u32>) -> anyhow::Result<Vec<Operation>> {
    let mut scratch = Vec::new();
    let mut operations = Vec::new();
    for &key in keys {
        let path = store.file_of(&body::name(key)).context("the store has no files")?;
        let began = now();
        let read = match std::fs::read(&path) {
            Ok(bytes) => body::read(key, &bytes, &mut scratch).map_or(Read::Wrong, Read::Saw),
            Err(error) if error.kind() == ErrorKind::NotFound => Read::Saw(ReadResult::Nothing),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let (ended, place, action) = (now(), Place::Origin, Action::Read(read));
        operations.push(Operation { began, ended, key, place, action });
    }
    Ok(operations)
}
