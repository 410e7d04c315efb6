//! The events of a cluster whose hits are drawn.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ground::window::{Finished, Nanos, Operation, Outcome, Recorder, Window};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::arrivals::Source;
use super::super::law::slowed;
use super::super::slab::Slab;
use super::changes::{Change, changes};
use super::cluster::{DeviceClass, Gateway, JobNumber, Node};
use super::settings::Settings;
use crate::attempts::Balancer;
use crate::gateway::Spread;
use crate::queue::Queue;
use crate::route::NodeId;
use crate::sim::state::Counts;

mod faults;

/// Seconds that a read is expected to take before any node answered, as gateways assume it.
const PRIOR_S: f64 = 1e-3;

/// A slot whose primary was not looked up: no ring has so many members.
const UNKNOWN: u16 = u16::MAX;

/// A request under way.
struct Job {
    /// When its client sent it.
    began: Nanos,
    /// When it came to its node.
    received: Nanos,
    /// When it entered its queue, and when its service there began.
    queued: Nanos,
    started: Nanos,
    node: NodeId,
    /// The slot of its key, whose nodes may serve it, and those of them that were tried, as bits of their places.
    slot: usize,
    tried: u8,
    gateway: usize,
    write: bool,
    at: Stage,
    /// Whether a server of its queue serves it.
    served: bool,
    /// The length of its node when its gateway sent it, as the gateway knew it.
    length_met: f64,
    /// The length of its node when it came.
    node_length_met: u32,
    outcome: Outcome,
}

/// Where a request is at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// On its way to the node.
    Sent,
    Device(usize),
    Origin,
    /// Read from memory, which takes some time.
    Memory,
    /// A write, whose put is under way.
    Put,
    /// On its way back.
    Replied,
}

/// A cluster in virtual time whose hits are drawn. See the module above.
pub struct DrawnCluster {
    settings: Settings,
    now: Nanos,
    source: Source,
    random: SmallRng,
    /// When the next request arrives.
    arrival: Nanos,
    jobs: Slab<Job>,
    /// Requests on their way to nodes, and replies on their way to gateways and to clients, in order of time.
    to_nodes: VecDeque<(Nanos, JobNumber)>,
    to_gateways: VecDeque<(Nanos, Learnt)>,
    to_clients: VecDeque<(Nanos, JobNumber)>,
    /// Services and puts that end: time, and the number of the request.
    ends: BinaryHeap<Reverse<(Nanos, JobNumber)>>,
    nodes: Vec<Node>,
    /// The primary of each slot of the ring, once it was looked up.
    primaries: Vec<u16>,
    hot: DeviceClass,
    bulk: DeviceClass,
    /// Whether memory, and what follows a device's service, take some time.
    memory_takes: bool,
    delays: bool,
    gateways: Vec<Gateway>,
    balancer: Balancer,
    pinged: Nanos,
    /// Faults that begin or end: those to come, the next last.
    changes: Vec<Change>,
    counts: Counts,
    recorder: Recorder,
}

/// What a gateway learns from a reply.
struct Learnt {
    gateway: usize,
    node: NodeId,
    sent: Nanos,
    length_met: f64,
    /// Requests that were left at the node.
    length: u32,
    /// Whether the node answered, or refused the request or went down.
    answered: bool,
}

impl DrawnCluster {
    /// A cluster at time 0.
    pub fn new(settings: Settings) -> DrawnCluster {
        let nodes = settings.ring.members().len();
        let gateways = if nodes > 1 { settings.gateways.max(1) } else { 0 };
        let changes = changes(&settings.faults);
        let mut drawn = DrawnCluster {
            now: 0,
            source: Source::new(settings.arrivals.clone(), settings.until),
            random: SmallRng::seed_from_u64(settings.seed),
            arrival: Nanos::MAX,
            jobs: Slab::default(),
            to_nodes: VecDeque::new(),
            to_gateways: VecDeque::new(),
            to_clients: VecDeque::new(),
            ends: BinaryHeap::new(),
            nodes: (0..nodes).map(|_| Node::new(&settings)).collect(),
            primaries: vec![UNKNOWN; if nodes > 1 { settings.ring.slots() } else { 1 }],
            hot: DeviceClass::new(&settings.devices, Outcome::HotDevice),
            bulk: DeviceClass::new(&settings.devices, Outcome::BulkDevice),
            memory_takes: settings.memory.constant_ns() != Some(0),
            delays: settings.delay.constant_ns() != Some(0),
            gateways: (0..gateways).map(|_| Gateway::new(nodes)).collect(),
            balancer: Balancer::new(settings.seed),
            pinged: Nanos::MAX,
            changes,
            counts: Counts::default(),
            recorder: Recorder::new("load", 0, settings.windows.clone(), 0),
            settings,
        };
        if drawn.chooses() {
            drawn.pinged = 0;
        }
        drawn.plan_arrival();
        drawn
    }

    /// Whether gateways choose among nodes, so that they need to know their loads.
    fn chooses(&self) -> bool {
        self.settings.spread == Spread::All && !self.gateways.is_empty()
    }

    /// The virtual time now.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Counts of the clients' requests so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The windows that ended by now, of the clients and of each node; with `open` also those that have not ended.
    pub fn windows(&mut self, open: bool) -> Vec<Vec<Window>> {
        let now = self.now;
        let load = if open { self.recorder.flush(now) } else { self.recorder.roll(now) };
        let nodes = self.nodes.iter_mut().map(|node| node.windows(now, open));
        std::iter::once(load).chain(nodes).collect()
    }

    /// Runs until virtual time `end`.
    pub fn run_to(&mut self, end: Nanos) {
        loop {
            let first = |queue: Option<Nanos>| queue.unwrap_or(Nanos::MAX);
            // Replies before requests, so that what ends at a moment makes room for what comes then.
            let times = [
                first(self.ends.peek().map(|Reverse((at, _))| *at)),
                first(self.to_gateways.front().map(|(at, _)| *at)),
                first(self.to_clients.front().map(|(at, _)| *at)),
                first(self.changes.last().map(|change| change.at)),
                self.pinged,
                first(self.to_nodes.front().map(|(at, _)| *at)),
                self.arrival,
            ];
            let mut next = 0;
            for (at, time) in times.iter().enumerate().skip(1) {
                if *time < times[next] {
                    next = at;
                }
            }
            if times[next] > end || times[next] == Nanos::MAX {
                break;
            }
            self.now = times[next];
            match next {
                0 => self.end_of_service(),
                1 => self.learn(),
                2 => self.reply_arrives(),
                3 => self.change(),
                4 => self.ping(),
                5 => self.request_arrives(),
                _ => self.arrive(),
            }
        }
        self.now = self.now.max(end);
    }

    fn plan_arrival(&mut self) {
        let next = self.source.next(self.now, &mut self.random).unwrap_or(Nanos::MAX);
        self.arrival = if next < self.settings.until { next } else { Nanos::MAX };
    }

    /// A client sends a request.
    fn arrive(&mut self) {
        let now = self.now;
        self.plan_arrival();
        self.recorder.arrive(now);
        self.recorder.start(now);
        let write =
            self.settings.write_share > 0.0 && self.random.random_bool(self.settings.write_share);
        self.counts.requests += 1;
        self.counts.writes += u64::from(write);
        let slot = match self.nodes.len() {
            1 => 0,
            _ => self.random.random_range(0..self.primaries.len()),
        };
        let gateway = match self.gateways.len() {
            0 | 1 => 0,
            gateways => self.random.random_range(0..gateways),
        };
        let job = Job {
            began: now,
            received: now,
            queued: now,
            started: now,
            node: 0,
            slot,
            tried: 0,
            gateway,
            write,
            at: Stage::Sent,
            served: false,
            length_met: 0.0,
            node_length_met: 0,
            outcome: Outcome::Error,
        };
        let number = self.jobs.insert(job);
        self.send(number, self.hop());
    }

    /// The time from a client to a gateway, which is none in front of a single node.
    fn hop(&self) -> Nanos {
        if self.gateways.is_empty() { 0 } else { self.settings.network }
    }

    /// The primary of a slot. The ring's own table has all nodes of each slot, in pages: with a thousand nodes three misses of the
    /// processor's caches, where this is one.
    fn primary(&mut self, slot: usize) -> NodeId {
        let known = self.primaries[slot];
        if known != UNKNOWN {
            return NodeId::from(known);
        }
        let node = self.settings.ring.of_slot(slot).iter().next().unwrap_or(0);
        self.primaries[slot] = node as u16;
        node
    }

    /// The nodes of a slot that work and were not tried, with their places.
    fn live_nodes(&self, slot: usize, tried: u8) -> impl Iterator<Item = (usize, NodeId)> + '_ {
        let nodes = self.settings.ring.of_slot(slot).iter().enumerate();
        nodes.filter(move |(place, node)| tried >> place & 1 == 0 && self.nodes[*node].down == 0)
    }

    /// Sends a request to the next of its nodes, `after` from now; if there is none left, its client is told.
    fn send(&mut self, number: JobNumber, after: Nanos) {
        let Some(job) = self.jobs.get_mut(number) else { return };
        let (slot, tried, write, gateway) = (job.slot, job.tried, job.write, job.gateway);
        let chooses = self.settings.spread == Spread::All && !self.gateways.is_empty();
        let first = self.primary(slot);
        let chosen = match chooses && !write {
            false if tried == 0 && self.nodes[first].down == 0 => Some((0, first)),
            false => self.live_nodes(slot, tried).next(),
            true => {
                let candidates: Vec<(usize, NodeId)> = self.live_nodes(slot, tried).collect();
                let loads = &self.gateways[gateway].loads;
                let loads = candidates.iter().map(|(_, node)| &loads[*node]);
                let policy = self.settings.policy;
                let at = self.balancer.choose(self.now, policy, PRIOR_S, loads);
                candidates.get(at).copied()
            }
        };
        let Some(job) = self.jobs.get_mut(number) else { return };
        let Some((place, node)) = chosen else {
            job.outcome = Outcome::Error;
            job.at = Stage::Replied;
            let back = self.now + after + self.settings.network;
            return self.to_clients.push_back((back, number));
        };
        job.tried |= 1 << place;
        (job.node, job.at) = (node, Stage::Sent);
        if chooses && let Some(load) = self.gateways[job.gateway].loads.get_mut(node) {
            job.length_met = load.length(self.now);
            load.send();
        }
        self.to_nodes.push_back((self.now + after + self.settings.network, number));
    }

    /// A request arrives at its node.
    fn request_arrives(&mut self) {
        let Some((now, number)) = self.to_nodes.pop_front() else { return };
        let Some(job) = self.jobs.get_mut(number) else { return };
        let node = &mut self.nodes[job.node];
        if node.down > 0 {
            return self.fail_over(number);
        }
        (job.received, job.node_length_met) = (now, node.length);
        if job.write {
            job.at = Stage::Put;
            let law = &self.settings.origin_half;
            let put = law.draw(&mut self.random) + law.draw(&mut self.random);
            // The other nodes drop their copies before the client is told.
            let others =
                if self.settings.ring.replica_count() > 1 { 2 * self.settings.network } else { 0 };
            node.length += 1;
            return self.ends.push(Reverse((now + put + others, number)));
        }
        node.recorder.arrive(now);
        node.recorder.start(now);
        let hits = self.settings.hits;
        let drawn: f64 = self.random.random();
        if drawn < hits.memory {
            job.outcome = Outcome::Memory;
            if !self.memory_takes {
                return self.answer(number);
            }
            job.at = Stage::Memory;
            node.length += 1;
            let read = self.settings.memory.draw(&mut self.random);
            return self.ends.push(Reverse((now + read, number)));
        }
        let class = match drawn {
            drawn if drawn < hits.memory + hits.origin => None,
            drawn if drawn < hits.memory + hits.origin + hits.hot => Some(&self.hot),
            _ => Some(&self.bulk),
        };
        // An object is on one device of its class.
        let device = class.and_then(|class| class.draw(&mut self.random));
        match device.filter(|at| node.lost[*at] == 0) {
            Some(at) => self.enter(number, Stage::Device(at)),
            None => self.enter(number, Stage::Origin),
        }
    }

    fn queue(&mut self, node: NodeId, stage: Stage) -> Option<&mut Queue<JobNumber>> {
        let node = self.nodes.get_mut(node)?;
        match stage {
            Stage::Device(at) => node.devices.get_mut(at),
            Stage::Origin => Some(&mut node.origin),
            Stage::Sent | Stage::Memory | Stage::Put | Stage::Replied => None,
        }
    }

    /// A read enters a queue of its node; where that is full, it goes to the next node.
    fn enter(&mut self, number: JobNumber, stage: Stage) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(number) else { return };
        (job.at, job.queued, job.started, job.served) = (stage, now, now, false);
        let node = job.node;
        job.outcome = match stage {
            Stage::Device(at) => self.settings.devices[at].outcome,
            _ => Outcome::Origin,
        };
        let Some(queue) = self.queue(node, stage) else { return };
        if queue.push(number, now).is_err() {
            self.record_at_node(number, Outcome::Error);
            return self.fail_over(number);
        }
        self.nodes[node].length += 1;
        self.start(node, stage);
    }

    /// Starts the services that a queue has servers for.
    fn start(&mut self, node: NodeId, stage: Stage) {
        let now = self.now;
        while let Some(started) = self.queue(node, stage).and_then(|queue| queue.start(now)) {
            let service = match stage {
                Stage::Device(at) => {
                    let service = self.settings.devices[at].law.draw(&mut self.random);
                    slowed(service, self.nodes[node].slow)
                }
                _ => {
                    let law = &self.settings.origin_half;
                    law.draw(&mut self.random) + law.draw(&mut self.random)
                }
            };
            if let Some(job) = self.jobs.get_mut(started.job) {
                (job.started, job.served) = (now, true);
            }
            self.ends.push(Reverse((now + service, started.job)));
        }
    }

    fn end_of_service(&mut self) {
        let Some(Reverse((now, number))) = self.ends.pop() else { return };
        // Its node went down meanwhile, and it was sent on.
        let Some(job) = self.jobs.get_mut(number) else { return };
        let (node, stage, started, queued) = (job.node, job.at, job.started, job.queued);
        match stage {
            Stage::Replied => return self.deliver(number),
            Stage::Memory => {
                self.nodes[node].length -= 1;
                return self.answer(number);
            }
            Stage::Put => {
                job.outcome = Outcome::Origin;
                self.nodes[node].length -= 1;
                return self.reply(number);
            }
            Stage::Sent | Stage::Device(_) | Stage::Origin => {}
        }
        let finished = Finished {
            operation: Operation::Get,
            outcome: job.outcome,
            waiting: started - queued,
            service: now - started,
            response: now - queued,
            bytes: self.settings.bytes,
        };
        let Some(queue) = self.queue(node, stage) else { return };
        queue.finish(now, &finished);
        self.nodes[node].length -= 1;
        self.start(node, stage);
        self.answer(number);
    }

    /// A node has read an object.
    fn answer(&mut self, number: JobNumber) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(number) else { return };
        let (response, met, outcome) = (now - job.received, job.node_length_met, job.outcome);
        self.nodes[job.node].speed.respond(now, response, met);
        self.record_at_node(number, outcome);
        self.reply(number);
    }

    fn record_at_node(&mut self, number: JobNumber, outcome: Outcome) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(number) else { return };
        let response = now - job.received;
        let waiting = if job.outcome == Outcome::Memory {
            0
        } else {
            job.started.saturating_sub(job.received)
        };
        let bytes = if outcome == Outcome::Error { 0 } else { self.settings.bytes };
        let finished = Finished {
            operation: Operation::Get,
            outcome,
            waiting,
            service: response.saturating_sub(waiting),
            response,
            bytes,
        };
        self.nodes[job.node].recorder.finish(now, &finished);
    }

    /// A reply leaves its node.
    fn reply(&mut self, number: JobNumber) {
        self.tell_gateway(number, true);
        let hops = self.settings.network + self.hop();
        let Some(job) = self.jobs.get_mut(number) else { return };
        let read = matches!(job.at, Stage::Device(_));
        job.at = Stage::Replied;
        let back = self.now + hops;
        if read && self.delays {
            let delay = self.settings.delay.draw(&mut self.random);
            return self.ends.push(Reverse((back + delay, number)));
        }
        self.to_clients.push_back((back, number));
    }

    /// A request's gateway learns what became of it at its node.
    fn tell_gateway(&mut self, number: JobNumber, answered: bool) {
        if !self.chooses() {
            return;
        }
        let Some(job) = self.jobs.get_mut(number) else { return };
        let learnt = Learnt {
            gateway: job.gateway,
            node: job.node,
            sent: job.received.saturating_sub(self.settings.network),
            length_met: job.length_met,
            length: self.nodes[job.node].length,
            // What a write takes is the origin's time.
            answered: answered && !job.write,
        };
        self.to_gateways.push_back((self.now + self.settings.network, learnt));
    }

    fn learn(&mut self) {
        let Some((now, learnt)) = self.to_gateways.pop_front() else { return };
        let Learnt { gateway, node, sent, length_met, length, answered } = learnt;
        let load = &mut self.gateways[gateway].loads[node];
        load.leave();
        load.report(now, length);
        if answered {
            load.respond(now, now - sent, length_met);
        }
    }

    /// All gateways ping all nodes. The reports are those of this moment; a ping's way is the network's.
    fn ping(&mut self) {
        let now = self.now;
        let round_trip = 2 * self.settings.network;
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.down == 0) {
            let report = node.report(now);
            for gateway in &mut self.gateways {
                gateway.loads[at].pong(now, report, round_trip);
            }
        }
        self.pinged = now + self.settings.ping_interval.max(1);
    }

    /// A request is sent to another node, by its gateway.
    fn fail_over(&mut self, number: JobNumber) {
        self.tell_gateway(number, false);
        self.send(number, self.hop());
    }

    fn reply_arrives(&mut self) {
        let Some((_, number)) = self.to_clients.pop_front() else { return };
        self.deliver(number);
    }

    /// A client has its reply.
    fn deliver(&mut self, number: JobNumber) {
        let now = self.now;
        let Some(job) = self.jobs.remove(number) else { return };
        let response = now - job.began;
        let failed = job.outcome == Outcome::Error;
        let finished = Finished {
            operation: if job.write { Operation::Put } else { Operation::Get },
            outcome: job.outcome,
            waiting: 0,
            service: response,
            response,
            bytes: if failed || job.write { 0 } else { self.settings.bytes },
        };
        self.recorder.finish(now, &finished);
        match (failed, job.write) {
            (true, _) => self.counts.refused += 1,
            (_, true) => self.counts.acknowledged += 1,
            _ => *self.counts.reads.entry(job.outcome).or_insert(0) += 1,
        }
    }
}
