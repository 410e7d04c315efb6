//! A cluster in virtual time: the engine that serves real traffic, run from a seed in one thread.
//!
//! [`Simulation`] drives [`crate::node::Node`] and [`crate::gateway::Gateway`] as the process does,
//! and simulates everything else: clients, messages, devices, the origin, the membership, clocks,
//! and the faults of each ([`Fault`]). The same settings give the same run, to the nanosecond. The
//! histories of clients are judged as they happen ([`check`]).
//!
//! It leaves out processors and the bandwidth of networks (a decision and a transfer take no time),
//! and partial failures of one process. `docs/simulate.md` has the list.
//!
//! - `settings`: the simulated cluster. `law`: distributions of times and keys. `seeds`: small
//!   clusters with faults, drawn from a seed, for the search for violations.
//!   `arrivals`: when clients ask.
//! - `drawn`: a cluster without keys, whose hits are drawn.
//! - `happening`, `schedule`: events and their order. `network`: how messages travel.
//! - `state`: what a cluster is made of; `disk`, `store`, `place`: what a device and the origin hold, and what is where a
//!   node looks for the origin.
//! - `clients`, `nodes`, `gateways`, `origin`, `identity`, `members`, `faults`: the behaviour of each part. `leases`: the beats
//!   of nodes, which are as many as pairs of nodes, for less than a message each.

mod arrivals;
pub mod check;
mod clients;
mod disk;
pub mod drawn;
mod faults;
mod gateways;
mod happening;
mod identity;
mod law;
mod leases;
mod members;
#[cfg(test)]
mod mutants;
mod network;
mod nodes;
mod origin;
mod pieces;
mod place;
mod preload;
pub(crate) mod schedule;
pub mod seeds;
mod settings;
mod slab;
mod state;
mod store;

pub use arrivals::{Arrivals, Burst, Course, Level, Switching};
pub use law::{Law, LawError, Popularity};
pub use settings::{
    Breakage, CLIENTS, Clients, Clock, DeviceFaults, Fault, FaultKind, MEMBERSHIP, Network, ORIGIN,
    Origin, Process, Settings,
};
pub use state::{Counts, Logged, Simulation};

use std::collections::VecDeque;

use ground::window::{Nanos, Recorder, Window};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::Size;
use crate::gateway::Gateway;
use crate::node::Node;
use check::{Checker, Violation};
use happening::{Happening, Life, key_name};
use law::Keys;
use place::OriginPlace;
use schedule::Schedule;
use slab::Slab;
use state::{GatewayProcess, Members, NodeProcess, Randoms, State};
use store::Store;

/// Maximum number of trace lines; the oldest are dropped.
const TRACE_LINES_MAX: usize = 100_000;

impl Simulation {
    /// A cluster at time 0: every key has its first version in the origin, and all nodes are empty.
    pub fn new(mut settings: Settings) -> Simulation {
        if settings.breakage == Some(Breakage::NoViewLag) {
            let clusters = settings.nodes.iter_mut().filter_map(|node| node.cluster.as_mut());
            clusters.for_each(|cluster| cluster.view_lag = 0);
        }
        let (nodes, gateways) = (settings.nodes.len(), settings.gateways.len());
        let clock = |process: usize| settings.clocks.get(process).copied().unwrap_or_default();
        let state = |process: usize| State {
            life: 0,
            alive: true,
            paused: 0,
            deferred: Vec::new(),
            clock: clock(process),
            until: Nanos::MAX,
        };
        let seeded = |purpose: u64| {
            SmallRng::seed_from_u64(settings.seed.wrapping_mul(4).wrapping_add(purpose))
        };
        let mut random =
            Randoms { load: seeded(0), network: seeded(1), service: seeded(2), faults: seeded(3) };
        let mut checker = Checker::default();
        let origin = Store::new(&settings, &mut random.load, &mut checker);
        let mut simulation = Simulation {
            faulty: settings.is_faulty(),
            now: 0,
            schedule: Schedule::default(),
            keys: (0..settings.clients.keys).map(key_name).collect(),
            popularity: Keys::new(&settings.clients.popularity, settings.clients.keys),
            source: arrivals::Source::new(settings.clients.arrivals(), settings.clients.until),
            shifted: 0,
            processes: (0..nodes + gateways).map(state).collect(),
            nodes: (0..nodes).map(|node| NodeProcess::new(&settings, node, clock(node))).collect(),
            gateways: (0..gateways)
                .map(|g| GatewayProcess::new(&settings, g, clock(nodes + g)))
                .collect(),
            requests: Slab::default(),
            origin,
            places: (0..nodes).map(|_| OriginPlace::new()).collect(),
            members: Members::new(settings.ring.clone()),
            cuts: Vec::new(),
            checker,
            violations: Vec::new(),
            broken: Vec::new(),
            counts: Counts::default(),
            recorder: Recorder::new("load", 0, settings.windows.clone(), 0),
            batch: leases::Batch::default(),
            node_actions: Vec::new(),
            gateway_actions: Vec::new(),
            trace: None,
            random,
            settings,
        };
        (0..nodes + gateways).for_each(|process| simulation.start(process));
        for (index, fault) in simulation.settings.faults.iter().enumerate() {
            simulation.schedule.push(fault.at.max(1), Happening::Fault(index));
        }
        if let Some(first) = simulation.source.first() {
            simulation.schedule.push(first, Happening::Arrival);
        }
        simulation
    }

    /// Runs until virtual time `end`.
    pub fn run_to(&mut self, end: Nanos) {
        while let Some((now, what)) = self.schedule.pop(end) {
            self.now = now;
            self.happen(what);
        }
        self.now = self.now.max(end);
    }

    /// The virtual time now.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The settings it was created with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Violations found in the history so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Counts of the clients' requests so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The present state of a node.
    pub fn node(&self, node: usize) -> &Node<Size> {
        &self.nodes[node].node
    }

    /// The present state of a gateway.
    pub fn gateway(&self, gateway: usize) -> &Gateway {
        &self.gateways[gateway].gateway
    }

    /// The windows that ended by now, of the clients (`load`), of each gateway and of each node;
    /// with `open` also those that have not ended. If there are several processes of a kind, their
    /// queues have names of their own.
    pub fn windows(&mut self, open: bool) -> Vec<Vec<Window>> {
        let now = self.now;
        let load = if open { self.recorder.flush(now) } else { self.recorder.roll(now) };
        let mut windows = vec![load];
        let nodes = self.nodes.len();
        for (index, process) in self.gateways.iter_mut().enumerate() {
            let local = self.processes[nodes + index].clock.local(now);
            let gateway = &mut process.gateway;
            let rolled = if open { gateway.flush_windows(local) } else { gateway.windows(local) };
            windows.push(rolled);
        }
        for (index, process) in self.nodes.iter_mut().enumerate() {
            let local = self.processes[index].clock.local(now);
            let node = &mut process.node;
            windows.push(if open { node.flush_windows(local) } else { node.windows(local) });
        }
        windows
    }

    /// Judges the origin's contents against the acknowledged writes.
    pub fn check_at_the_end(&mut self) {
        if !self.settings.check {
            return;
        }
        for key in 0..self.settings.clients.keys {
            let judged = self.checker.at_the_end(key, self.now, self.origin.holds(key));
            self.violations.extend(judged.err());
        }
    }

    /// Invariants that broke in any process so far, and requests that an engine lost: none, unless
    /// the engine or this driver is wrong.
    pub fn broken(&mut self) -> Vec<String> {
        let mut broken = self.broken.clone();
        for process in 0..self.processes.len() {
            broken.extend(self.broken_in(process));
            if process < self.nodes.len() && self.processes[process].alive {
                broken.extend(self.lost_requests(process));
            }
        }
        broken
    }

    fn broken_in(&self, process: usize) -> Option<String> {
        let invariants = match self.nodes.get(process) {
            Some(node) => node.node.invariants(),
            None => self.gateways[process - self.nodes.len()].gateway.invariants(),
        };
        (invariants.count() > 0).then(|| format!("process {process}: {invariants}"))
    }

    /// Keeps a process's counts before it is created anew.
    fn count_broken(&mut self, process: usize) {
        let broken = self.broken_in(process);
        self.broken.extend(broken);
    }

    /// From now on records a trace: a line of text for each event.
    pub fn trace(&mut self) {
        self.trace = Some(VecDeque::new());
    }

    /// From now on records a node's events and actions, for a replay.
    pub fn log(&mut self, node: usize) {
        self.nodes[node].log = Some(Vec::new());
    }

    /// The events and actions that [`Simulation::log`] recorded.
    pub fn logged(&self, node: usize) -> &[Logged] {
        self.nodes[node].log.as_deref().unwrap_or_default()
    }

    /// The trace between two times, a line for each event that concerns a key or no key in
    /// particular. Empty unless [`Simulation::trace`] was called before.
    pub fn traced(&self, key: u32, from: Nanos, to: Nanos) -> Vec<String> {
        let named = format!("key: {:?}", key_name(key));
        let number = format!("key: {key},");
        let of =
            |line: &str| !line.contains("key: ") || line.contains(&named) || line.contains(&number);
        let lines = self.trace.iter().flatten().filter(|(at, _)| (from..=to).contains(at));
        let lines = lines.filter(|(_, line)| of(line));
        lines.map(|(at, line)| format!("{:>12.6} {line}", *at as f64 * 1e-9)).collect()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LINES_MAX {
                trace.pop_front();
            }
            trace.push_back((self.now, line()));
        }
    }

    fn local(&self, process: usize) -> Nanos {
        self.processes[process].clock.local(self.now)
    }

    fn life(&self, process: usize) -> Life {
        self.processes[process].life
    }

    fn happen(&mut self, what: Happening) {
        if let Some((process, life)) = what.target(self.nodes.len()) {
            let state = &mut self.processes[process];
            // Events of a life that has ended, or has not begun, are dropped.
            if life.is_some_and(|life| life != state.life || !state.alive) {
                return;
            }
            if state.paused > 0 {
                state.deferred.push(what);
                return;
            }
            if !self.serves(process) && life.is_none() {
                return self.refuse_connection(what);
            }
        }
        if self.trace.is_some() {
            self.note(|| format!("{what:?}"));
        }
        match what {
            Happening::Arrival => self.arrive(),
            Happening::Request { gateway, request } => self.request_at_gateway(gateway, request),
            Happening::ClientReply { request, answer } => self.answer_client(request, answer),
            Happening::Leave { request } => {
                self.answer_client(request, happening::ClientReply::FAILED)
            }
            Happening::Node { node, event, .. } => self.node_event(node, event),
            Happening::NodeTick { node, life } => self.node_tick(node, life),
            Happening::Call { node, from, call } => self.call_at_node(node, from, call),
            Happening::LeasesAsked { leases } => self.leases_asked(leases),
            Happening::LeasesGranted { leases, grants } => self.leases_granted(&leases, &grants),
            Happening::PutOver { node, request, done, .. } => self.put_over(node, request, done),
            Happening::WriteTimeout { node, request, .. } => self.write_timeout(node, request),
            Happening::Streamed { node, request, answer, .. } => {
                self.answer_caller(node, request, answer);
            }
            Happening::Gateway { gateway, event, answer, .. } => {
                self.tell_gateway(gateway, event, answer);
            }
            Happening::Wake { gateway, at, .. } => self.wake(gateway, at),
            Happening::OriginRead { from, key, check } => self.origin_read(from, &key, check),
            Happening::OriginPut { put } => self.origin_put(put),
            Happening::OriginLook { put, extra } => self.origin_look(put, extra),
            Happening::Looked { put, extra } => self.looked(put, extra),
            Happening::Renew { process, life } => self.renew(process, life),
            Happening::Renewing { process, life, asked } => self.renewing(process, life, asked),
            Happening::Viewed { process, view, asked, .. } => self.viewed(process, view, asked),
            Happening::Leaving { member, life } => self.leaving(member, life),
            Happening::Stopped { process, fault, .. } => self.stopped(process, fault),
            Happening::Expire { member, renewed } => self.expire(member, renewed),
            Happening::Fault(index) => self.begin_fault(index),
            Happening::Mend(index) => self.mend(index),
        }
    }

    /// Whether a process accepts requests.
    fn serves(&self, process: usize) -> bool {
        self.processes[process].alive && self.nodes.get(process).is_none_or(|node| node.joined)
    }
}
