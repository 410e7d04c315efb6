//! Small clusters with faults, drawn from a seed: the search for violations.
//!
//! Everything is small and quick against what goes wrong: a handful of keys, leases of some tens of
//! milliseconds, a second or two of a few hundred requests, so that a seed costs about a millisecond and
//! a million of them an hour. A failing seed is run again with [`explain`].

use std::sync::Arc;

use model::window::{self, Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{
    Breakage, Clients, Clock, Counts, Fault, FaultKind, Law, MEMBERSHIP, Network, ORIGIN, Origin,
    Popularity, Process, Settings, Simulation,
};
use crate::gateway::Spread;
use crate::node::{ClusterSettings, DeviceSettings, OriginSettings};
use crate::route::{Member, NodeId, Policy, Ring, RingError};
use crate::{gateway, node};

const MS: Nanos = SECOND / 1000;

/// Most nodes of a seed's cluster.
const NODES_MAX: usize = 5;
/// Most nodes of a key.
const REPLICAS_MAX: usize = 3;

/// The rings of all seeds, which are costly to build.
pub struct Rings {
    rings: Vec<Arc<Ring>>,
}

impl Rings {
    /// Builds them: tens of milliseconds.
    ///
    /// # Errors
    /// None, unless the ring's limits change.
    pub fn new() -> Result<Rings, RingError> {
        let member = |i: usize| Member { name: format!("n{i}"), weight: 1.0 };
        let mut rings = Vec::new();
        for nodes in 1..=NODES_MAX {
            for replicas in 1..=REPLICAS_MAX {
                rings.push(Arc::new(Ring::new((0..nodes).map(member).collect(), replicas)?));
            }
        }
        Ok(Rings { rings })
    }

    fn get(&self, nodes: usize, replicas: usize) -> Arc<Ring> {
        self.rings[(nodes - 1) * REPLICAS_MAX + replicas - 1].clone()
    }
}

/// What a seed came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// What its clients saw.
    pub counts: Counts,
    /// What was wrong, in words; empty if nothing was.
    pub violations: Vec<String>,
}

/// Runs a seed.
pub fn run(seed: u64, rings: &Rings, breakage: Option<Breakage>) -> Verdict {
    finish(seed, &mut prepare(seed, rings, breakage))
}

/// Runs a seed and tells what happened around its first violation, line by line; nothing if there is
/// none.
pub fn explain(seed: u64, rings: &Rings, breakage: Option<Breakage>) -> Vec<String> {
    let mut simulation = prepare(seed, rings, breakage);
    simulation.trace();
    finish(seed, &mut simulation);
    let Some(first) = simulation.violations().first() else { return Vec::new() };
    let from = first.began.saturating_sub(SECOND / 2);
    let mut lines = vec![first.to_string()];
    lines.extend(simulation.traced(first.key, from, first.ended));
    lines
}

fn prepare(seed: u64, rings: &Rings, breakage: Option<Breakage>) -> Simulation {
    let mut settings = settings(seed, rings);
    settings.breakage = breakage;
    Simulation::new(settings)
}

fn finish(seed: u64, simulation: &mut Simulation) -> Verdict {
    let end = simulation.settings().clients.until + 2 * simulation.settings().clients.deadline;
    simulation.run_to(end);
    simulation.check_at_the_end();
    let mut violations: Vec<String> =
        simulation.violations().iter().map(ToString::to_string).collect();
    for (index, settings) in simulation.settings().nodes.iter().enumerate() {
        let contents = simulation.node(index).contents();
        let over = contents.device_bytes.iter().zip(&settings.devices);
        if contents.memory_bytes > settings.memory_bytes_max
            || over.into_iter().any(|(&bytes, device)| bytes > device.bytes_max)
        {
            violations.push(format!("node {index} holds more than it may: {contents:?}"));
        }
    }
    Verdict { seed, counts: simulation.counts().clone(), violations }
}

/// The cluster of a seed.
pub fn settings(seed: u64, rings: &Rings) -> Settings {
    let mut draw = SmallRng::seed_from_u64(seed ^ 0x5eed);
    let random = &mut draw;
    // One in eight is a node alone.
    let nodes = if random.random_bool(0.125) { 1 } else { random.random_range(2..=NODES_MAX) };
    let alone = nodes == 1 && random.random_bool(0.75);
    let replicas = random.random_range(1..=REPLICAS_MAX.min(nodes).max(1));
    let replicas = if nodes > 1 { replicas.max(2) } else { replicas };
    let ring = rings.get(nodes, replicas);
    let gateways = if random.random_bool(0.7) { random.random_range(1..=2) } else { 0 };
    let membership = (!alone && random.random_bool(0.6)).then(|| random.random_range(40..300) * MS);
    let lease = if random.random_bool(0.5) { 10..60 } else { 60..300 };
    let lease = random.random_range(lease) * MS;
    let until = random.random_range(600..1800) * MS;
    let clients = Clients {
        rate: random.random_range(150.0..400.0),
        until,
        keys: if random.random_bool(0.5) { 2 } else { random.random_range(2..12) },
        popularity: Popularity::Uniform,
        write_share: random.random_range(0.05..0.4),
        delete_share: 0.2,
        bytes: (1, 300),
        deadline: random.random_range(100..800) * MS,
        any_node: [0.0, 0.3, 0.3, 1.0][random.random_range(0..4)],
    };
    let windows = window::Settings { window_ns: Nanos::MAX / 4, ..window::Settings::default() };
    let node = |me: NodeId, random: &mut SmallRng| {
        let cluster = ClusterSettings {
            ring: ring.clone(),
            me,
            lease,
            view_lag: membership.map_or(0, Settings::view_lag),
            peers: OriginSettings { servers: 8, queue_length_max: 64 },
            replicate_bytes_per_s: if random.random_bool(0.7) { 100_000 } else { 0 },
        };
        node_settings((!alone).then_some(cluster), windows.clone(), random)
    };
    let nodes_settings: Vec<node::Settings> = (0..nodes).map(|me| node(me, random)).collect();
    let law = Law::exponential(random.random_range(0.0005..0.02));
    let devices = nodes_settings.iter().map(|n| n.devices.iter().map(|_| law.clone()).collect());
    let devices = devices.collect();
    let processes = nodes + gateways;
    let network = network(random);
    let origin = Origin {
        half: Law::exponential(random.random_range(0.0005..0.01)),
        failures: if random.random_bool(0.5) { 0.05 } else { 0.0 },
        late: if random.random_bool(0.4) {
            (0.05, Law::exponential(random.random_range(0.05..0.6)))
        } else {
            (0.0, Law::constant(0.0))
        },
        timeout: random.random_range(30..1000) * MS,
        ..Origin::default()
    };
    Settings {
        seed,
        gateways: (0..gateways).map(|g| gateway_settings(&ring, g, &windows, random)).collect(),
        ring,
        nodes: nodes_settings,
        devices,
        clients,
        network,
        origin,
        membership,
        device_failures: if random.random_bool(0.3) { 0.02 } else { 0.0 },
        clocks: (0..processes).map(|_| clock(random)).collect(),
        faults: all_faults(random, nodes, processes, until, membership),
        breakage: None,
        check: true,
        windows,
    }
}

fn node_settings(
    cluster: Option<ClusterSettings>,
    windows: window::Settings,
    random: &mut SmallRng,
) -> node::Settings {
    let length = random.random_range(3..40);
    let device = |i: usize| DeviceSettings {
        name: format!("device/{i}"),
        outcome: Outcome::BulkDevice,
        servers: 1 + i as u32,
        queue_length_max: length,
        bytes_max: 3_000,
        segment_bytes: 800,
    };
    node::Settings {
        memory_bytes_max: if random.random_bool(0.2) { 0 } else { 2_500 },
        object_bytes_max: 280,
        revalidate: random.random_bool(0.5).then_some(SECOND / 2),
        stale_if_error: if random.random_bool(0.5) { SECOND } else { 0 },
        devices: (0..random.random_range(0..3)).map(device).collect(),
        origin: OriginSettings { servers: 4, queue_length_max: length },
        appends_bytes_max: 2_000,
        writes_waiting_max: 8,
        cluster,
        windows,
    }
}

fn gateway_settings(
    ring: &Arc<Ring>,
    index: usize,
    windows: &window::Settings,
    random: &mut SmallRng,
) -> gateway::Settings {
    let spreads = [Spread::Primary, Spread::Warm, Spread::All];
    gateway::Settings {
        spread: spreads[random.random_range(0..3)],
        policy: Policy::default(),
        attempt_timeout_min: 20 * MS,
        attempt_timeout_max: 200 * MS,
        ping_interval: 40 * MS,
        ping_timeout: 60 * MS,
        origin: random.random_bool(0.7),
        requests_max: if random.random_bool(0.2) { 8 } else { 1000 },
        hints_max: 64,
        seed: index as u64,
        windows: windows.clone(),
        ..gateway::Settings::new(ring.clone())
    }
}

fn network(random: &mut SmallRng) -> Network {
    let faulty = random.random_bool(0.7);
    Network {
        delay: Law::exponential(random.random_range(0.0001..0.005)),
        loss: if faulty { random.random_range(0.0..0.05) } else { 0.0 },
        duplicates: if faulty { 0.05 } else { 0.0 },
        late: if faulty {
            let share = if random.random_bool(0.5) { 0.02 } else { 0.2 };
            (share, Law::exponential(random.random_range(0.01..0.2)))
        } else {
            (0.0, Law::constant(0.0))
        },
        timeout: random.random_range(20..150) * MS,
    }
}

/// Clocks of different origins, whose rates differ by up to 4 %.
fn clock(random: &mut SmallRng) -> Clock {
    Clock {
        offset: random.random_range(0..1000) * SECOND,
        ppm: random.random_range(-20_000..=20_000),
    }
}

fn all_faults(
    random: &mut SmallRng,
    nodes: usize,
    processes: usize,
    until: Nanos,
    membership: Option<Nanos>,
) -> Vec<Fault> {
    let mut drawn = faults(random, nodes, processes, until);
    if let Some(granted) = membership.filter(|_| random.random_bool(0.6)) {
        drawn.extend(stranded(random, nodes, until, granted));
    }
    drawn.sort_by_key(|fault| fault.at);
    drawn
}

/// A member loses its membership, and when it is back some of the others do not hear of it.
fn stranded(random: &mut SmallRng, nodes: usize, until: Nanos, granted: Nanos) -> Vec<Fault> {
    let member = random.random_range(0..nodes) as Process;
    let at = random.random_range(0..until);
    let time = granted * random.random_range(15..60) / 10;
    let cut = |at, process, time| {
        let kind = FaultKind::Cut { process, from: vec![MEMBERSHIP], time };
        Fault { at, kind }
    };
    let mut faults = vec![cut(at, member, time)];
    for other in (0..nodes as Process).filter(|&other| other != member) {
        if random.random_bool(0.5) {
            let before = random.random_range(0..granted);
            faults.push(cut((at + time).saturating_sub(before), other, granted));
        }
    }
    faults
}

fn faults(random: &mut SmallRng, nodes: usize, processes: usize, until: Nanos) -> Vec<Fault> {
    let count = random.random_range(0..7);
    (0..count)
        .map(|_| {
            let at = random.random_range(0..until);
            let time = match random.random_range(0..3) {
                0 => random.random_range(1..50) * MS,
                1 => random.random_range(50..400) * MS,
                _ => random.random_range(200..1000) * MS,
            };
            Fault { at, kind: fault(random, nodes, processes, time) }
        })
        .collect()
}

fn fault(random: &mut SmallRng, nodes: usize, processes: usize, time: Nanos) -> FaultKind {
    let process = random.random_range(0..processes) as Process;
    match random.random_range(0..14) {
        0..=2 => {
            let devices_lost = random.random_bool(0.3);
            FaultKind::Kill { process, down: time, devices_lost, clock: clock(random) }
        }
        3..=5 => FaultKind::Pause { process, time },
        6 => {
            let factor = random.random_range(2.0..50.0);
            FaultKind::Slow { process: process % nodes as Process, factor, time }
        }
        7..=11 => {
            let ends = [ORIGIN, MEMBERSHIP];
            let from = match random.random_range(0..6) {
                0 => Vec::new(),
                1 | 2 => vec![ends[random.random_range(0..2)]],
                3 => (0..processes as Process).filter(|&other| other != process).collect(),
                _ => vec![random.random_range(0..processes) as Process],
            };
            FaultKind::Cut { process, from, time }
        }
        12 => FaultKind::OriginDead { time },
        _ => FaultKind::OriginSlow { factor: random.random_range(2.0..50.0), time },
    }
}
