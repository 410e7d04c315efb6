//! The processes of the cluster: nodes and gateways, each in a network namespace of its own.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use engine::route::{self, Ring};
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::body;
use super::etcd::{self, Etcd};
use super::fault::{Fault, Target};
use super::interrupt::Interrupt;
use super::store::{Kind, Store};
use super::views::{self, View};
use super::wire::{Ask, Client};
use crate::lab;
use crate::network::Network;
use configuration::{Config, Listed, Member, Role, Size};
use record::clock::now;

/// `[cluster]` of `config.toml`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Number of nodes.
    pub nodes: u8,
    /// Number of gateways.
    pub gateways: u8,
    /// Memory of each node.
    pub memory_bytes: u64,
}

impl Settings {
    /// Checks the numbers of processes, each of which has a network namespace.
    fn check(&self) -> anyhow::Result<()> {
        if !(1..10).contains(&self.nodes) || !(1..10).contains(&self.gateways) {
            bail!("config.toml: there must be 1 to 9 nodes and 1 to 9 gateways");
        }
        Ok(())
    }
}

/// What a cluster of the experiment consists of.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The name of its claims.
    pub name: &'static str,
    /// Its origin.
    pub store: Kind,
    /// Whether each node has a view of its own of the origin, which is a folder then.
    pub views: bool,
    /// Whether its members are in etcd.
    pub etcd: bool,
}

/// How long a node whose origin is back may take until it serves by itself, before it is started again, seconds.
const ALONE_S: f64 = 10.0;

/// What nodes did that came up without their origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Strays {
    /// Times that a node came up without its origin.
    pub times: u64,
    /// Times that it said to be ready.
    pub ready: u64,
    /// Times that it had ended by itself.
    pub ended: u64,
    /// Times that it did not serve by itself when its origin was back, and was started again.
    pub restarted: u64,
    /// Files that it wrote at the path of its origin, or in another origin.
    pub written: u64,
}

/// Where an S3-compatible store listens, on the bridge.
const STORE_PORT: u16 = 7071;
/// Longest time to the first answer of a process.
const START_S: f64 = 30.0;

/// One process.
struct Process {
    member: u8,
    role: Role,
    config: PathBuf,
    log: PathBuf,
    /// What clients show; no file has it.
    token: String,
    device: PathBuf,
    /// The origin as it sees it, where that is its own.
    view: Option<View>,
    child: Option<Child>,
}

/// All processes and their network; ended and removed when dropped.
pub struct Cluster {
    // Dropped in this order: processes end before their network goes.
    nodes: Vec<Process>,
    gateways: Vec<Process>,
    _etcd: Option<Etcd>,
    store: Store,
    network: Network,
    ring: Ring,
    token: String,
    interrupt: Interrupt,
    random: Xoshiro256PlusPlus,
    strays: Strays,
}

/// Says in a process's configuration where the list of members is; its addresses are set before.
fn list_members(config: &mut Config, etcd: Option<&Etcd>, members: &[Member]) {
    let Some(etcd) = etcd else { return config.members = members.to_vec() };
    config.membership.kind = Listed::Etcd;
    config.membership.endpoints = vec![etcd.endpoint()];
    config.membership.address = config.cluster.name.as_ref().map(|_| config.serve.listen.clone());
}

/// The ring that the processes make of the members.
fn ring_of(members: &[Member]) -> anyhow::Result<Ring> {
    let replicas = Config::default().cluster.replicas as usize;
    let places = members.iter().map(|m| route::Member::new(m.name.clone(), m.weight));
    Ok(Ring::new(places.collect(), replicas)?)
}

impl Cluster {
    /// Creates the network, writes the configurations, starts all processes and waits until they serve.
    ///
    /// # Errors
    /// If one of these steps fails; the error quotes the end of a process's log.
    pub fn start(
        settings: &Settings,
        setup: Setup,
        scratch: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Cluster> {
        settings.check()?;
        let network = Network::make(settings.nodes + settings.gateways)?;
        let member = |node: u8| Member {
            name: format!("n{node}"),
            address: network.address(node).to_string(),
            ..Member::default()
        };
        let members: Vec<Member> = (0..settings.nodes).map(member).collect();
        let token = format!("experiment-{}", std::process::id());
        let address = network.outer_address(STORE_PORT);
        let store = Store::make(setup.store, &scratch.join("store"), &address, interrupt)?;
        let etcd = setup.etcd.then(|| {
            Etcd::start(scratch, etcd::PORTS.map(|port| network.outer_address(port)), interrupt)
        });
        let etcd = etcd.transpose()?;
        let write = |member: u8, role: Role| {
            let node = role == Role::Node;
            let name = if node { format!("n{member}") } else { format!("gateway-{member}") };
            let device = scratch.join(format!("device-{name}"));
            let devices = lab::disks(&device, 1, None);
            let mut config = lab::server(settings.memory_bytes, devices, scratch);
            store.configure(&mut config);
            config.node.revalidate_s = Config::default().node.revalidate_s;
            config.serve.role = role;
            config.serve.listen = network.address(member).to_string();
            config.cluster.name = node.then(|| name.clone());
            list_members(&mut config, etcd.as_ref(), &members);
            let view = match (setup.views && node, &store) {
                (true, Store::Folder(volume)) => {
                    let view = View::make(scratch, &name, &volume.origin())?;
                    config.origin.path = view.path().to_owned();
                    Some(view)
                }
                _ => None,
            };
            config.node.memory_bytes = Size(settings.memory_bytes);
            let path = scratch.join(format!("{name}.toml"));
            lab::write_config(&path, &config)?;
            let (config, log) = (path, scratch.join(format!("{name}.log")));
            let token = token.clone();
            anyhow::Ok(Process { member, role, config, log, token, device, view, child: None })
        };
        let all = settings.nodes + settings.gateways;
        let nodes = (0..settings.nodes).map(|i| write(i, Role::Node)).collect::<Result<_, _>>()?;
        let gateways = (settings.nodes..all).map(|i| write(i, Role::Gateway));
        let gateways = gateways.collect::<Result<_, _>>()?;
        let ring = ring_of(&members)?;
        let random = Xoshiro256PlusPlus::seed_from_u64(settings.nodes.into());
        let mut cluster = Cluster {
            nodes,
            gateways,
            _etcd: etcd,
            store,
            network,
            ring,
            token,
            interrupt: interrupt.clone(),
            random,
            strays: Strays::default(),
        };
        cluster.start_all()?;
        cluster.wait_all()?;
        Ok(cluster)
    }

    fn start_all(&mut self) -> anyhow::Result<()> {
        for process in self.nodes.iter_mut().chain(&mut self.gateways) {
            process.start(&self.network, &self.store)?;
        }
        Ok(())
    }

    fn wait_all(&mut self) -> anyhow::Result<()> {
        (0..self.nodes.len() + self.gateways.len()).try_for_each(|index| self.wait(index))
    }

    /// The origin, after all processes ended.
    pub fn into_store(self) -> Store {
        let Cluster { nodes, gateways, store, .. } = self;
        drop((nodes, gateways));
        store
    }

    /// Where the gateways listen.
    pub fn gateways(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|process| self.network.address(process.member)).collect()
    }

    /// The token that every request carries.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The primary of each key, as the number of a node.
    pub fn primaries(&self, keys: u32) -> Vec<usize> {
        // The ring's order is that of the names, which is that of the numbers below ten.
        let primary = |key| self.ring.replicas(body::name(key).as_bytes()).iter().next();
        (0..keys).map(|key| primary(key).unwrap_or_default()).collect()
    }

    /// Causes a fault.
    ///
    /// # Errors
    /// If the process had ended by itself, or it cannot be done.
    pub fn strike(&mut self, target: Target, fault: Fault) -> anyhow::Result<()> {
        self.check()?;
        match (target, &mut self.store) {
            (Target::Machine, Store::Folder(volume)) => {
                volume.cut_power()?;
                self.nodes.iter_mut().chain(&mut self.gateways).try_for_each(Process::kill)
            }
            (Target::Origin, Store::Folder(volume)) => volume.vanish(),
            (Target::Origin, Store::S3(gateway)) if fault == Fault::Pause => gateway.pause(true),
            (Target::Origin, Store::S3(gateway)) => gateway.kill(),
            (Target::Machine, Store::S3(_)) => bail!("versitygw's own syncs are not ours to judge"),
            (Target::Node(_) | Target::Gateway(_), _) => self.strike_process(target, fault),
        }
    }

    fn strike_process(&mut self, target: Target, fault: Fault) -> anyhow::Result<()> {
        if fault.is_of_view() {
            let Target::Node(number) = target else { bail!("gateways have no view of their own") };
            let process = self.nodes.get_mut(number).context("unknown process")?;
            process.kill()?;
            process.view.as_ref().context("the nodes share a path")?.change(fault)?;
            return process.start(&self.network, &self.store);
        }
        let process = self.process(target)?;
        match fault {
            Fault::Stop => process.stop(),
            Fault::Kill | Fault::Wipe | Fault::Flip => process.kill(),
            Fault::Pause => process.signal(Signal::STOP),
            _ => {
                let member = process.member;
                self.network.cut(member)
            }
        }
    }

    /// Ends it, and waits until the process serves again.
    ///
    /// # Errors
    /// If it cannot.
    pub fn heal(&mut self, target: Target, fault: Fault) -> anyhow::Result<()> {
        match (target, &mut self.store) {
            (Target::Machine, Store::Folder(volume)) => {
                volume.power_up()?;
                self.start_all()?;
            }
            (Target::Origin, Store::Folder(volume)) => volume.reappear()?,
            (Target::Origin, Store::S3(gateway)) if fault == Fault::Pause => {
                gateway.pause(false)?
            }
            (Target::Origin, Store::S3(gateway)) => gateway.restart(&self.interrupt)?,
            (Target::Machine, Store::S3(_)) => {}
            (Target::Node(number), _) | (Target::Gateway(number), _) => {
                match fault {
                    fault if fault.is_of_view() => return self.restore(number),
                    Fault::Kill | Fault::Stop | Fault::Wipe | Fault::Flip => {
                        let device = self.process(target)?.device.clone();
                        match fault {
                            Fault::Wipe => views::wipe(&device)?,
                            Fault::Flip => _ = views::flip(&device, &mut self.random)?,
                            _ => {}
                        }
                        let all = match target {
                            Target::Node(_) => &mut self.nodes,
                            _ => &mut self.gateways,
                        };
                        let process = all.get_mut(number).context("unknown process")?;
                        process.start(&self.network, &self.store)?;
                    }
                    Fault::Pause => self.process(target)?.signal(Signal::CONT)?,
                    _ => {
                        let member = self.process(target)?.member;
                        self.network.connect(member)?;
                    }
                }
                let before = if let Target::Gateway(_) = target { self.nodes.len() } else { 0 };
                return self.wait(before + number);
            }
        }
        self.wait_all()
    }

    /// Gives a node its origin back, and waits until it serves; notes what it did without.
    fn restore(&mut self, number: usize) -> anyhow::Result<()> {
        let process = self.nodes.get_mut(number).context("unknown process")?;
        self.strays.times += 1;
        let address = self.network.address(process.member);
        let mut client = Client::new(address, &self.token).impatient(Duration::from_millis(500));
        let ready = matches!(client.ask(Ask::get("/readyz")), Ok(200));
        let ended = process.check().is_err();
        self.strays.ready += u64::from(ready);
        self.strays.ended += u64::from(ended);
        let view = process.view.as_ref().context("the nodes share a path")?;
        self.strays.written += view.restore()? as u64;
        // From here on it is to serve by itself; one that has ended is started, as whoever watches processes does.
        if !ended {
            let until = now() + (ALONE_S * 1e9) as u64;
            while now() < until && process.check().is_ok() {
                if matches!(client.ask(Ask::get("/readyz")), Ok(200)) {
                    return Ok(());
                }
                self.interrupt.sleep(0.01)?;
            }
        }
        self.strays.restarted += u64::from(!ended);
        process.kill()?;
        process.start(&self.network, &self.store)?;
        self.wait(number)
    }

    /// What nodes did that came up without their origin.
    pub fn strays(&self) -> Strays {
        self.strays
    }

    fn process(&mut self, target: Target) -> anyhow::Result<&mut Process> {
        let process = match target {
            Target::Node(number) => self.nodes.get_mut(number),
            Target::Gateway(number) => self.gateways.get_mut(number),
            Target::Origin | Target::Machine => None,
        };
        process.context("unknown process")
    }

    /// Waits until a process (nodes first, then gateways) answers.
    ///
    /// # Errors
    /// If it has ended, or does not answer within 30 s.
    pub fn wait(&mut self, index: usize) -> anyhow::Result<()> {
        let process = self.nodes.iter_mut().chain(&mut self.gateways).nth(index);
        let process = process.context("unknown process")?;
        let address = self.network.address(process.member);
        let until = now() + (START_S * 1e9) as u64;
        loop {
            process.check()?;
            let mut client =
                Client::new(address, &self.token).impatient(Duration::from_millis(500));
            match client.ask(Ask::get("/readyz")) {
                Ok(200) => return Ok(()),
                other if now() > until => bail!(
                    "{address} does not serve after {START_S} s ({other:?}): {}",
                    lab::tail(&process.log)
                ),
                _ => self.interrupt.sleep(0.01)?,
            }
        }
    }

    /// Fails if a process ended unexpectedly.
    ///
    /// # Errors
    /// In that case; the error quotes the end of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.nodes.iter_mut().chain(&mut self.gateways).try_for_each(Process::check)
    }
}

impl Process {
    fn start(&mut self, network: &Network, store: &Store) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let program = lab::program()?;
        let mut command = network.command(self.member, &program);
        command.args(["serve", "--with-parent", "--role", self.role.as_str(), "--config"]);
        command.arg(&self.config);
        command.envs(store.environment().iter().copied());
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C is for the experiment, which ends its processes itself.
        command.env("CONCERTINA_TOKEN", &self.token);
        command.env("CONCERTINA_CLUSTER_TOKEN", format!("{}-between", self.token));
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.child = Some(command.spawn().context("cannot start a process of the cluster")?);
        Ok(())
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        if let Some(status) = child.try_wait()? {
            let log = lab::tail(&self.log);
            bail!("{} ended by itself ({status}): {log}", self.config.display());
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("the process does not run")?;
        kill_process(Pid::from_child(child), signal).context("cannot send a signal")
    }

    /// Ends it in order.
    fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
