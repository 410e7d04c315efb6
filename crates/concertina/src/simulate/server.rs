//! The settings of a simulated server, from its model.

use anyhow::{Context, bail, ensure};
use engine::sim::drawn::{DeviceSettings, Hits};
use engine::sim::{Arrivals, Law, Level, Switching};
use ground::window::Outcome;
use model::Model;
use model::distribution::{Empirical, Piece, ServiceTime};
use model::queue::{ArrivalLaw, Bursts, Discipline, relaxation_s};
use model::storage::{Class, DeviceGroup, Node};

/// Times that stand for a law.
const DRAWS: usize = 8192;
/// Of a server past saturation: its queues never settle.
const BUSY_MAX: f64 = 0.97;

/// A server to be simulated.
#[derive(Clone)]
pub(super) struct Server {
    /// Its devices.
    pub devices: Vec<DeviceSettings>,
    /// What answers reads. Those that neither memory nor a device answers count as memory's, with times of their own.
    pub hits: Hits,
    /// Time of what memory answers.
    pub memory: Law,
    /// Time that is added to a device's.
    pub delay: Law,
    bursts: Option<Bursts>,
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
    bail!("the simulator has no devices like those of class {name}: {what}")
}

/// The share of reads that memory answers at a load.
fn memory_share(node: &Node, rate: f64) -> f64 {
    node.hit_ratio.at_rate(rate).clamp(0.0, 1.0 - node.other_share)
}

/// The service time of a device over that of its class, where all devices together serve `reads` per second.
fn factor_of(class: &Class, group: &DeviceGroup, reads: f64) -> f64 {
    group.factor * class.by_load.map_or(1.0, |by| by.factor_at(reads * group.share))
}

/// What devices of a node are asked for at a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceLoad {
    /// Reads per second of all of its devices.
    pub reads: f64,
    /// Part of the time in which the busiest one works; above 1 if it cannot serve them.
    pub busiest: f64,
}

impl DeviceLoad {
    /// At `rate` requests/s of the node.
    pub fn new(node: &Node, rate: f64) -> DeviceLoad {
        let reads = rate * (1.0 - memory_share(node, rate) - node.other_share);
        let busy = node.groups.iter().filter_map(|group| {
            let class = node.classes.get(group.class)?;
            let mean = class.service.mean() * factor_of(class, group, reads);
            Some(reads * group.share * mean / f64::from(class.servers.max(1)))
        });
        DeviceLoad { reads, busiest: busy.fold(0.0, f64::max) }
    }
}

impl Server {
    /// A server at `rate` requests/s of its own.
    pub fn new(model: &Model, rate: f64) -> anyhow::Result<Server> {
        let node = model.node()?;
        let q = memory_share(&node, rate);
        let direct = q + node.other_share;
        let reads = rate * (1.0 - direct);
        let (mut devices, mut relaxation, mut busiest) = (Vec::new(), 0.0f64, 0.0f64);
        for group in &node.groups {
            let class = node.classes.get(group.class).context("a device without a class")?;
            let name = model.classes.get(group.class).map_or("?", |class| &class.name);
            check(class, name)?;
            let factor = factor_of(class, group, reads);
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

    /// Whether the model's arrivals come in bursts.
    pub fn has_bursts(&self) -> bool {
        self.bursts.is_some()
    }

    /// Arrivals by the model's law.
    pub fn arrivals(&self, rate: f64) -> Arrivals {
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
