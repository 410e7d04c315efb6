//! Shards with layers, in virtual time: `engine::layers` decides when a replica grows and folds and when a shard gains a
//! replica, `engine::route` which replica is asked. Services are drawn from what was measured of one shard.
//!
//! A replica answers one request at a time, in order of arrival, as a served shard does. Nothing is refused: a client
//! waits (as in BlowFish), so queues have no bound.

mod act;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anyhow::Context as _;
use engine::layers::fill::Filler;
use engine::layers::replicas::Replicas;
use engine::layers::{Manager, Settings};
use engine::route::{Candidate, Load, Policy, SplitMix64};
use ground::window::{Histogram, Nanos};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};

use super::curve::{Curve, Learning};

/// How a layer gets its values.
#[derive(Clone, Debug)]
pub enum Fill {
    /// By a sweep of a node's one thread for it, on a processor of its own.
    Sweep,
    /// By what queries compute.
    Queries(Learning),
    /// By what queries compute, and by a node's one thread for it where one of its processors is idle.
    Both(Learning, f64),
}

impl Fill {
    fn learning(&self) -> Option<&Learning> {
        match self {
            Fill::Sweep => None,
            Fill::Queries(learning) | Fill::Both(learning, _) => Some(learning),
        }
    }
}

/// What is the same during a run.
#[derive(Clone, Debug)]
pub struct Setting {
    pub curve: Curve,
    /// Bytes of the input of each shard.
    pub shard_bytes: f64,
    /// Services take this many times as long as measured, so that fewer have to be simulated.
    pub slower: f64,
    pub fill: Fill,
    pub policy: Policy,
    /// Whether replicas tell their service times, so that gateways need not learn them.
    pub told: bool,
    /// Marks and times. The budget is that of each node.
    pub layers: Settings,
    /// Whether replicas are added to busy shards and removed again.
    pub replicate: bool,
    /// Bytes per second at which a node receives a copy.
    pub copy_bytes_per_s: f64,
    /// Clients that ask again as soon as they are answered, in place of the rates of phases.
    pub clients: u32,
    pub seed: u64,
}

/// A replica at the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub shard: usize,
    pub node: usize,
    /// Index of its first footprint on the curve.
    pub step: usize,
    /// Index of its largest.
    pub step_max: usize,
}

/// Poisson arrivals from a time on.
#[derive(Clone, Debug)]
pub struct Phase {
    pub from_s: f64,
    /// Requests per second of each shard, before `Setting::slower`.
    pub rates: Vec<f64>,
}

/// A second of a run.
#[derive(Clone, Debug, Default)]
pub struct Second {
    pub at_s: f64,
    pub arrivals: u64,
    pub completions: u64,
    /// Bytes held at its end, over bytes of the input of all shards.
    pub footprint: f64,
    pub replicas: Vec<ReplicaSecond>,
}

/// A replica in a second.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSecond {
    pub replica: usize,
    /// Mean number of requests waiting and in service.
    pub length: f64,
    pub completions: u64,
    /// Seconds of service.
    pub busy_s: f64,
}

impl Second {
    /// Mean number of requests waiting and in service, at all replicas together.
    pub fn length(&self) -> f64 {
        self.replicas.iter().map(|of| of.length).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { version: u64 },
    Depart { replica: usize, version: u64 },
    Swept { replica: usize, version: u64 },
    Ready { replica: usize },
    Phase { index: usize },
    Fail { node: usize },
    Rebuild { node: usize },
    Decide,
    Second,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    shard: usize,
    arrived: Nanos,
    sent: Nanos,
    length_met: f64,
}

#[derive(Clone, Copy, Debug)]
enum Layer {
    Whole,
    /// Queries since it was marked, and the part that the thread has filled.
    Learns(f64, f64),
}

struct Replica {
    shard: usize,
    node: usize,
    /// The footprint below its layers.
    base: usize,
    layers: Vec<Layer>,
    step_max: usize,
    /// A further layer is being swept.
    sweeping: bool,
    /// The part of the text that the thread has passed since a layer was last marked.
    passed: f64,
    version: u64,
    queue: VecDeque<Job>,
    started: Nanos,
    load: Load,
    ready: bool,
    leaving: bool,
    lost: bool,
    told_s: f64,
    // Since the last decision.
    served: u64,
    busy_s: f64,
    waited_s: f64,
    observed: Nanos,
    // Since the last second.
    area_s: f64,
    counted: Nanos,
    completions: u64,
    worked_s: f64,
}

impl Replica {
    fn steps_held(&self) -> usize {
        self.base + self.layers.len() + usize::from(self.sweeping)
    }

    fn there(&self) -> bool {
        !(self.lost || self.leaving && self.queue.is_empty())
    }

    fn count(&mut self, now: Nanos) {
        let area_s = self.queue.len() as f64 * (now - self.counted) as f64 * 1e-9;
        self.area_s += area_s;
        self.waited_s += area_s;
        self.counted = now;
    }

    /// Mean length since it was last asked.
    fn length(&mut self, now: Nanos) -> f64 {
        self.count(now);
        let since_s = (now - std::mem::replace(&mut self.observed, now)) as f64 * 1e-9;
        let waited_s = std::mem::take(&mut self.waited_s);
        if since_s > 0.0 { waited_s / since_s } else { self.queue.len() as f64 }
    }
}

/// The simulation and what it has recorded.
pub struct World {
    setting: Setting,
    phases: Vec<Phase>,
    shards: usize,
    replicas: Vec<Replica>,
    of_shard: Vec<Vec<usize>>,
    managers: Vec<Manager>,
    fillers: Vec<Filler>,
    replicator: Option<Replicas>,
    sweeper_free: Vec<Nanos>,
    copier_free: Vec<Nanos>,
    cumulative: Vec<f64>,
    phase: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    arrivals_random: SmallRng,
    random: SmallRng,
    choices: SplitMix64,
    turn: u64,
    arrived: u64,
    now: Nanos,
    candidates: Vec<Candidate>,
    present: Vec<usize>,
    pub seconds: Vec<Second>,
    /// Time, replica, and whether it grew.
    pub changes: Vec<(f64, usize, bool)>,
    /// Times at which a shard gained (or lost) a replica.
    pub resized: Vec<(f64, usize, bool)>,
    /// Responses of the requests that arrived from `counted_from_s` on.
    pub responses: Histogram,
    pub counted_from_s: f64,
    /// Bytes copied to rebuild what was lost, and when the last of it was ready.
    pub copied_bytes: f64,
    pub rebuilt_s: f64,
}

fn nanos(s: f64) -> Nanos {
    (s * 1e9) as Nanos
}

/// Time from a node's loss until its shards are copied.
const DETECTED_S: f64 = 1.0;

impl World {
    /// A world at its beginning. Times of phases ascend from 0.
    ///
    /// # Errors
    /// If the settings of layers are invalid.
    pub fn new(setting: Setting, starts: &[Start], phases: Vec<Phase>) -> anyhow::Result<World> {
        let shards = starts.iter().map(|start| start.shard + 1).max().unwrap_or(0);
        let nodes = starts.iter().map(|start| start.node + 1).max().unwrap_or(0);
        let replicator = match setting.replicate {
            true => Some(Replicas::new(setting.layers.clone(), 1)?),
            false => None,
        };
        let seed = setting.seed;
        let mut world = World {
            phases,
            shards,
            replicas: Vec::new(),
            of_shard: vec![Vec::new(); shards],
            managers: Vec::new(),
            fillers: Vec::new(),
            replicator,
            sweeper_free: Vec::new(),
            copier_free: Vec::new(),
            cumulative: Vec::new(),
            phase: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            arrivals_random: SmallRng::seed_from_u64(seed),
            random: SmallRng::seed_from_u64(seed ^ 0x5eed),
            choices: SplitMix64::new(seed),
            turn: 0,
            arrived: 0,
            now: 0,
            candidates: Vec::new(),
            present: Vec::new(),
            seconds: Vec::new(),
            changes: Vec::new(),
            resized: Vec::new(),
            responses: Histogram::default(),
            counted_from_s: 0.0,
            copied_bytes: 0.0,
            rebuilt_s: 0.0,
            setting,
        };
        for _ in 0..nodes {
            world.add_node()?;
        }
        for start in starts {
            let replica = world.add(start.shard, start.node, start.step, start.step_max);
            if let Some(added) = world.replicas.get_mut(replica) {
                added.ready = true;
            }
        }
        for index in 0..world.phases.len() {
            let from = world.phases.get(index).map_or(0.0, |phase| phase.from_s);
            world.schedule(nanos(from), Event::Phase { index });
        }
        world.schedule(world.setting.layers.interval, Event::Decide);
        world.schedule(1_000_000_000, Event::Second);
        for _ in 0..world.setting.clients {
            world.ask();
        }
        Ok(world)
    }

    /// Loses a node at a time: what waits there is asked of others, and its replicas are copied to others.
    pub fn lose(&mut self, at_s: f64, node: usize) {
        self.schedule(nanos(at_s), Event::Fail { node });
    }

    fn add_node(&mut self) -> anyhow::Result<usize> {
        let manager = Manager::new(self.setting.layers.clone()).context("settings of layers")?;
        self.managers.push(manager);
        self.fillers.push(Filler::default());
        self.sweeper_free.push(0);
        self.copier_free.push(0);
        Ok(self.managers.len() - 1)
    }

    fn add(&mut self, shard: usize, node: usize, step: usize, step_max: usize) -> usize {
        let replica = self.replicas.len();
        // Bytes below the first footprint that it may fold to are not layers.
        let base = if step == step_max { step } else { 0 };
        self.replicas.push(Replica {
            shard,
            node,
            base,
            layers: vec![Layer::Whole; step - base],
            step_max,
            sweeping: false,
            passed: 0.0,
            version: 0,
            queue: VecDeque::new(),
            started: 0,
            load: Load::new(self.now),
            ready: false,
            leaving: false,
            lost: false,
            told_s: 0.0,
            served: 0,
            busy_s: 0.0,
            waited_s: 0.0,
            observed: self.now,
            area_s: 0.0,
            counted: self.now,
            completions: 0,
            worked_s: 0.0,
        });
        if let Some(of) = self.of_shard.get_mut(shard) {
            of.push(replica);
        }
        replica
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Goes on until a time.
    pub fn run(&mut self, until_s: f64) {
        let until = nanos(until_s);
        while let Some(&Reverse((now, _, event))) = self.events.peek() {
            if now > until {
                return;
            }
            self.events.pop();
            self.now = now;
            match event {
                Event::Arrive { version } if version == self.phase => {
                    self.ask();
                    self.plan_arrival();
                }
                Event::Arrive { .. } => {}
                Event::Depart { replica, version } => self.depart(replica, version),
                Event::Swept { replica, version } => self.swept(replica, version),
                Event::Ready { replica } => {
                    if let Some(replica) = self.replicas.get_mut(replica) {
                        replica.ready = true;
                    }
                    self.rebuilt_s = now as f64 * 1e-9;
                }
                Event::Phase { index } => self.begin(index),
                Event::Fail { node } => self.fail(node),
                Event::Rebuild { node } => self.rebuild(node),
                Event::Decide => self.decide(),
                Event::Second => self.note(),
            }
        }
    }

    fn begin(&mut self, index: usize) {
        let mut sum = 0.0;
        let rates = self.phases.get(index).map(|phase| phase.rates.clone()).unwrap_or_default();
        let slower = self.setting.slower;
        self.cumulative = rates
            .iter()
            .map(|rate| {
                sum += rate / slower;
                sum
            })
            .collect();
        self.phase += 1;
        self.plan_arrival();
    }

    fn plan_arrival(&mut self) {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        if total > 0.0 && self.setting.clients == 0 {
            let gap: f64 = Exp1.sample(&mut self.arrivals_random);
            let version = self.phase;
            self.schedule(self.now + nanos(gap / total), Event::Arrive { version });
        }
    }

    /// A client asks for a shard.
    fn ask(&mut self) {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let drawn = self.arrivals_random.random::<f64>() * total;
        let shard = match total > 0.0 {
            true => self.cumulative.partition_point(|sum| *sum <= drawn).min(self.shards - 1),
            false => (drawn as usize).min(self.shards.saturating_sub(1)),
        };
        self.arrived += 1;
        self.send(Job { shard, arrived: self.now, sent: self.now, length_met: 0.0 });
    }

    /// Chooses a replica for a request, which waits there.
    fn send(&mut self, mut job: Job) {
        let now = self.now;
        self.candidates.clear();
        self.present.clear();
        let all = self.of_shard.get(job.shard).map_or(&[][..], Vec::as_slice);
        // Keys begin with different replicas.
        let first = self.turn as usize % all.len().max(1);
        for &replica in all.iter().cycle().skip(first).take(all.len()) {
            let Some(known) = self.replicas.get(replica).filter(|r| r.ready && !r.leaving) else {
                continue;
            };
            let mut candidate = known.load.candidate(now, 1e-3);
            if self.setting.told && known.told_s > 0.0 {
                candidate.expected_s = (candidate.length + 1.0) * known.told_s;
            }
            self.candidates.push(candidate);
            self.present.push(replica);
        }
        self.turn += 1;
        let chosen = self.setting.policy.choose(&self.candidates, self.turn, &mut self.choices);
        let Some(&index) = self.present.get(chosen) else { return };
        let Some(replica) = self.replicas.get_mut(index) else { return };
        job.sent = now;
        job.length_met = self.candidates.get(chosen).map_or(0.0, |candidate| candidate.length);
        replica.load.send();
        replica.count(now);
        replica.queue.push_back(job);
        if replica.queue.len() == 1 {
            self.serve(index);
        }
    }

    /// Begins the service of the first request of a replica.
    fn serve(&mut self, index: usize) {
        let search = self.random.random::<bool>();
        let varied: f64 = Exp1.sample(&mut self.random);
        let Some(replica) = self.replicas.get_mut(index) else { return };
        let Setting { curve, fill, slower, .. } = &self.setting;
        let kind = |step: usize| {
            let step = curve.steps.get(step).or(curve.steps.last());
            step.map_or(1.0, |step| if search { step.search_s } else { step.extract_s })
        };
        let mut mean_s = kind(replica.base);
        for (at, layer) in replica.layers.iter_mut().enumerate() {
            let step = replica.base + at + 1;
            match (layer, fill.learning()) {
                (Layer::Learns(queries, filled), Some(learning)) => {
                    *queries += *slower;
                    let gain = kind(step - 1) / kind(step);
                    let learnt = learning.share(*queries);
                    mean_s /= 1.0 + (learnt + (1.0 - learnt) * *filled) * (gain - 1.0);
                }
                _ => mean_s *= kind(step) / kind(step - 1),
            }
        }
        // Hits vary from one to a thousand; extracts are of one length.
        let service = nanos(mean_s * *slower * if search { varied } else { 1.0 });
        replica.started = self.now;
        let version = replica.version;
        self.schedule(self.now + service, Event::Depart { replica: index, version });
    }

    fn depart(&mut self, index: usize, version: u64) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(index).filter(|r| r.version == version) else {
            return;
        };
        replica.count(now);
        let Some(job) = replica.queue.pop_front() else { return };
        let service_s = (now - replica.started) as f64 * 1e-9;
        replica.served += 1;
        replica.completions += 1;
        replica.busy_s += service_s;
        replica.worked_s += service_s;
        let first = replica.told_s == 0.0;
        replica.told_s += (service_s - replica.told_s) * if first { 1.0 } else { 1.0 / 64.0 };
        replica.load.leave();
        replica.load.report(now, u32::try_from(replica.queue.len()).unwrap_or(u32::MAX));
        replica.load.respond(now, now - job.sent, job.length_met);
        let waits = !replica.queue.is_empty();
        if job.arrived >= nanos(self.counted_from_s) {
            self.responses.record(now - job.arrived);
        }
        if waits {
            self.serve(index);
        }
        if self.setting.clients > 0 {
            self.ask();
        }
    }

    fn note(&mut self) {
        let now = self.now;
        self.schedule(now + 1_000_000_000, Event::Second);
        let mut second = Second {
            at_s: now as f64 * 1e-9,
            arrivals: std::mem::take(&mut self.arrived),
            ..Second::default()
        };
        let mut held = 0.0;
        for index in 0..self.replicas.len() {
            let Some(replica) = self.replicas.get_mut(index) else { continue };
            replica.count(now);
            let completions = std::mem::take(&mut replica.completions);
            let length = std::mem::take(&mut replica.area_s);
            let busy_s = std::mem::take(&mut replica.worked_s);
            second.completions += completions;
            if replica.there() {
                held += self.bytes_of(index) / self.setting.shard_bytes;
                second.replicas.push(ReplicaSecond { replica: index, length, completions, busy_s });
            }
        }
        second.footprint = held / self.shards.max(1) as f64;
        self.seconds.push(second);
    }
}
