//! The settings of a simulated server, from its model.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use engine::gateway::Spread;
use engine::node::OriginSettings;
use engine::route::{Policy, Ring};
use engine::sim::drawn::{DeviceSettings, Hits, NodeFault, NodeFaultKind, Settings};
use engine::sim::{Arrivals, Law, Level, Switching};
use ground::window::{self, Nanos, Outcome, SECOND};
use model::Model;
use model::distribution::{Empirical, Piece, ServiceTime};
use model::queue::{ArrivalLaw, Discipline, relaxation_s};
use model::storage::{Class, Node};

use super::failures::State;

/// Times that stand for a law.
const DRAWS: usize = 8192;
/// A run is at least this many relaxation times of its queues long, but at most some times as long as was asked for; its warm-up
/// is a part of that.
const RELAXATIONS: f64 = 100.0;
const LONGER_MAX: f64 = 10.0;
const WARMUP_PART: f64 = 0.25;
/// A read that counts as late takes this many times the objective.
const LATE: f64 = 10.0;
/// Of a server past saturation: its queues never settle.
const BUSY_MAX: f64 = 0.97;

/// A server of a candidate, to be simulated.
#[derive(Clone)]
pub(super) struct Server {
    devices: Vec<DeviceSettings>,
    hits: Hits,
    memory: Law,
    delay: Law,
    bursts: Option<model::queue::Bursts>,
    /// Relaxation time of its busiest queue, seconds.
    pub relaxation_s: f64,
}

/// Times that stand for a law: the middles of as many slices of equal probability.
fn draws(law: &Empirical, factor: f64, count: usize) -> Vec<f64> {
    let pieces: Vec<Piece> =
        law.pieces().iter().filter(|piece| piece.share > 0.0).copied().collect();
    let all: f64 = pieces.iter().map(|piece| piece.share).sum();
    let (mut at, mut before) = (0, 0.0);
    let times = (0..count).map(|i| {
        let share = (i as f64 + 0.5) / count as f64 * all;
        while at + 1 < pieces.len() && before + pieces[at].share < share {
            before += pieces[at].share;
            at += 1;
        }
        let Some(Piece { centre, half_width, share: part }) = pieces.get(at).copied() else {
            return 0.0;
        };
        let within = ((share - before) / part).clamp(0.0, 1.0);
        (factor * (centre + half_width * (2.0 * within - 1.0))).max(0.0)
    });
    times.collect()
}

fn law(of: &Empirical, factor: f64) -> Law {
    Law::empirical(&draws(of, factor, DRAWS))
}

/// Refuses devices whose service the simulator's queues do not have.
fn check(class: &Class, name: &str) -> anyhow::Result<()> {
    let what = match class {
        Class { slowdown: Some(_), .. } => "their speed depends on the number of requests present",
        Class { in_order: Some(_), .. } => "their works come in spells",
        Class { background: Some(_), .. } => "they have other work besides reads",
        Class { discipline: Discipline::Fifo, .. } => return Ok(()),
        _ => "their requests share the servers",
    };
    bail!("--simulate cannot simulate the devices of class {name}: {what}; plan without --simulate")
}

impl Server {
    /// A server at `rate` requests/s of its own.
    pub fn new(model: &Model, rate: f64) -> anyhow::Result<Server> {
        let node = model.node()?;
        let q = node.hit_ratio.at_rate(rate).clamp(0.0, 1.0 - node.other_share);
        let direct = q + node.other_share;
        let reads = rate * (1.0 - direct);
        let (mut devices, mut relaxation, mut busiest) = (Vec::new(), 0.0f64, 0.0f64);
        for group in &node.groups {
            let class = node.classes.get(group.class).context("a device without a class")?;
            let name = model.classes.get(group.class).map_or("?", |class| &class.name);
            check(class, name)?;
            let by_load = class.by_load.map_or(1.0, |by| by.factor_at(reads * group.share));
            let factor = group.factor * by_load;
            let servers = class.servers.max(1);
            let mean = class.service.mean() * factor / f64::from(servers);
            let busy = reads * group.share * mean;
            busiest = busiest.max(busy);
            let scv = class.service.scv();
            relaxation = relaxation.max(relaxation_s(busy.min(BUSY_MAX), mean, scv));
            let law = law(&class.service, factor);
            let first = devices.len();
            devices.extend((0..group.count as usize).map(|at| DeviceSettings {
                name: format!("device/{}", first + at),
                outcome: Outcome::BulkDevice,
                servers,
                queue_length_max: u32::MAX,
                law: law.clone(),
                weight: group.share,
            }));
        }
        ensure!(!devices.is_empty() || reads <= 0.0, "the server has no devices");
        let (memory, delay) = responses(&node, q);
        let bursts = match node.arrivals {
            ArrivalLaw::Bursts(bursts) => Some(bursts),
            ArrivalLaw::Poisson => None,
            // No fit finds one, and `plan` takes no law of arrivals: it would be simulated as a Poisson stream.
            other => bail!("arrivals by the law {other} are not simulated"),
        };
        let hits = Hits { memory: direct, ..Hits::default() };
        Ok(Server { devices, hits, memory, delay, bursts, relaxation_s: relaxation })
    }

    /// The number of its devices.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    fn arrivals(&self, rate: f64) -> Arrivals {
        let Some(bursts) = self.bursts else { return Arrivals::Poisson(rate) };
        let levels = bursts.levels(rate, 0.0).map(|(rate, share)| Level { rate, share });
        Arrivals::Switching(Switching { levels, change_rate: bursts.change_rate() })
    }
}

/// The laws of what memory and other answers take together, and of what is added to a device's response.
fn responses(node: &Node, q: f64) -> (Law, Law) {
    let direct = q + node.other_share;
    let part = if direct > 0.0 { q / direct } else { 1.0 };
    let count = (part * DRAWS as f64).round() as usize;
    let of = |law: &Option<Empirical>, count: usize| match law {
        Some(law) => draws(law, 1.0, count),
        None => vec![0.0; count],
    };
    let mut times = of(&node.memory, count);
    times.extend(of(&node.other, DRAWS - count));
    let none = times.iter().all(|time| *time <= 0.0);
    let memory = if none { Law::constant(0.0) } else { Law::empirical(&times) };
    let slices = node.delay.slices();
    let delay = match slices {
        [(time, _)] => Law::constant(time.max(0.0)),
        _ => {
            let pieces =
                slices.iter().map(|&(centre, share)| Piece { centre, half_width: 0.0, share });
            match Empirical::from_pieces(pieces.collect()) {
                Ok(law) => Law::empirical(&draws(&law, 1.0, DRAWS)),
                Err(_) => Law::constant(node.delay.mean().max(0.0)),
            }
        }
    };
    (memory, delay)
}

/// One run of a cluster of servers that are alike.
pub(super) struct Run {
    pub ring: Arc<Ring>,
    /// Requests/s of the cluster.
    pub rate: f64,
    pub within_s: f64,
    pub origin_s: Option<f64>,
    pub requests: f64,
    pub seed: u64,
    pub state: State,
}

impl Run {
    /// The time of its warm-up and its end.
    pub fn times(&self, server: &Server) -> (Nanos, Nanos) {
        let asked_s = self.requests / self.rate;
        let long = (RELAXATIONS * server.relaxation_s).clamp(asked_s, LONGER_MAX * asked_s);
        let ns = |seconds: f64| (seconds * SECOND as f64) as Nanos;
        (ns(WARMUP_PART * long), ns((1.0 + WARMUP_PART) * long))
    }

    pub fn settings(&self, server: &Server) -> Settings {
        let (_, end) = self.times(server);
        let down = |node: usize, kind| NodeFault { at: 0, until: Nanos::MAX, node, kind };
        let nodes = self.state.nodes.iter().map(|&node| down(node, NodeFaultKind::Down));
        let devices = self.state.devices.iter();
        let devices = devices.map(|&(node, at)| down(node, NodeFaultKind::DeviceLost(at)));
        let origin = match self.origin_s {
            Some(mean_s) => Law::exponential(mean_s / 2.0),
            None => Law::constant(LATE * self.within_s / 2.0),
        };
        Settings {
            seed: self.seed,
            ring: self.ring.clone(),
            devices: server.devices.clone(),
            origin: OriginSettings { servers: u32::MAX, queue_length_max: u32::MAX },
            origin_half: origin,
            hits: server.hits,
            memory: server.memory.clone(),
            delay: server.delay.clone(),
            arrivals: server.arrivals(self.rate),
            until: end,
            write_share: 0.0,
            bytes: 0,
            network: 0,
            gateways: 1,
            spread: Spread::Primary,
            policy: Policy::default(),
            ping_interval: SECOND,
            faults: nodes.chain(devices).collect(),
            windows: window::Settings {
                // Windows are taken at the end of the warm-up and of the run.
                window_ns: 10 * end,
                objectives_ms: vec![self.within_s * 1e3],
                unix_offset_ns: 0,
            },
        }
    }
}
