//! Small clusters with faults, drawn from a seed: the search for violations.
//!
//! Everything is small and short compared with the faults: a handful of keys, leases of some tens
//! of milliseconds, a few hundred requests in a second or two. So a seed costs about a millisecond,
//! and a million seeds an hour. Run a failing seed again with [`explain`].

mod faults;
mod layout;

use std::sync::Arc;

use ground::window::{self, Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::check::Kind;
use super::{
    Breakage, Clients, Counts, DeviceFaults, Fault, FaultKind, Law, Network, Origin, Popularity,
    Process, Settings, Simulation,
};
use crate::gateway::Spread;
use crate::node::{Choice, ClusterSettings, DeviceSettings, OriginSettings, Pin, TierSettings};
use crate::route::{NodeId, Policy, Ring};
use crate::tier::Eviction;
use crate::{gateway, node};
pub use faults::Level;
use faults::{FaultParameters, MS, clocks_and_faults};
pub use layout::{HOT_SEEDS, ORIGIN_SEEDS, Rings, STORE_SEEDS, WEIGHT_SEEDS};
use layout::{Layout, Shape};

/// Seeds, modulo 16, whose nodes read records in pieces.
const PIECES: [u64; 2] = [5, 12];

/// The kind of membership of a seed's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A fixed list.
    Static,
    /// Views of a membership service (etcd), with joins, drains and suspicions. If a primary is
    /// replaced while its put is under way, the put may land after a write of its successor, unless
    /// the origin evaluates conditions. [`Kind::Resurfaced`] and [`Kind::Lost`] are therefore counted
    /// separately where it does not.
    Leased,
}

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// The severity of its faults.
    pub level: Level,
    /// The kind of membership.
    pub mode: Mode,
    /// Counts of its clients' requests.
    pub counts: Counts,
    /// Reads that its gateways had answered by hot nodes since they started last.
    pub hot_reads: u64,
    /// Descriptions of broken promises, invariants and bounds; empty if all held.
    pub violations: Vec<String>,
    /// Number of violations of promises that [`Mode::Leased`] does not make without conditions.
    pub unpromised: usize,
}

/// Runs a seed.
pub fn run(seed: u64, rings: &Rings, breakage: Option<Breakage>) -> Verdict {
    finish(seed, &mut prepare(seed, rings, breakage))
}

/// Runs a seed and returns the trace around its first violation, line by line; empty if there is no
/// violation.
pub fn explain(seed: u64, rings: &Rings, breakage: Option<Breakage>) -> Vec<String> {
    let mut simulation = prepare(seed, rings, breakage);
    simulation.trace();
    let verdict = finish(seed, &mut simulation);
    let all = promises_all(&simulation);
    let mut broken = simulation.violations().iter().filter(|v| all || is_promised(v.kind));
    let Some(first) = broken.next() else { return verdict.violations };
    let from = first.began.saturating_sub(SECOND / 2);
    let mut lines = vec![first.to_string()];
    lines.extend(simulation.traced(first.key, from, first.ended));
    lines
}

/// Whether nothing may happen to any write: with one primary for ever, or conditions at the origin.
fn promises_all(simulation: &Simulation) -> bool {
    let settings = simulation.settings();
    settings.membership.is_none() || settings.origin.conditional
}

/// Whether a leased membership promises to prevent this kind of violation at any origin.
fn is_promised(kind: Kind) -> bool {
    !matches!(kind, Kind::Resurfaced | Kind::Lost)
}

fn prepare(seed: u64, rings: &Rings, breakage: Option<Breakage>) -> Simulation {
    let mut settings = settings(seed, rings);
    settings.breakage = breakage;
    let lease = settings.nodes[0].cluster.as_ref().map_or(SECOND / 10, |cluster| cluster.lease);
    let until = settings.clients.until;
    match breakage {
        Some(Breakage::ClocksDriftTooFar) => {
            for (process, clock) in settings.clocks.iter_mut().enumerate() {
                clock.ppm = if process.is_multiple_of(2) { 250_000 } else { -250_000 };
            }
        }
        Some(Breakage::ClocksJumpTooFar) => {
            let processes = settings.clocks.len() as u64;
            let jump = |i: u64| {
                let by = if i.is_multiple_of(2) { lease / 2 } else { (lease / 2).wrapping_neg() };
                let kind =
                    FaultKind::ClockJump { process: (i % processes) as Process, by: by as i64 };
                Fault { at: until / 20 * (i + 1), kind }
            };
            settings.faults.extend((0..19).map(jump));
        }
        Some(Breakage::OrphanedPut) => {
            (settings.origin.orphans, settings.origin.conditional) = (true, false);
        }
        Some(Breakage::OrphanedPutAfterDelete) => {
            (settings.origin.orphans, settings.origin.conditional) = (true, true);
            // It takes a put that is under way while its node restarts and two more writes end.
            settings.origin.late = (0.3, Law::exponential(0.4));
            (settings.clients.write_share, settings.clients.delete_share) = (0.5, 0.5);
            settings.clients.keys = 2;
        }
        _ => {}
    }
    Simulation::new(settings)
}

fn finish(seed: u64, simulation: &mut Simulation) -> Verdict {
    let end = simulation.settings().clients.until + 2 * simulation.settings().clients.deadline;
    simulation.run_to(end);
    simulation.check_at_the_end();
    let leased = simulation.settings().membership.is_some();
    let all = promises_all(simulation);
    let (broken, unpromised): (Vec<_>, Vec<_>) =
        simulation.violations().iter().partition(|v| all || is_promised(v.kind));
    let unpromised = unpromised.len();
    let mut violations: Vec<String> = broken.into_iter().map(ToString::to_string).collect();
    // A deliberately wrong driver may report impossible events to an engine.
    if simulation.settings().breakage.is_none() {
        violations.extend(simulation.broken());
    }
    for (index, settings) in simulation.settings().nodes.iter().enumerate() {
        let contents = simulation.node(index).contents();
        let over = contents.device_bytes.iter().zip(&settings.devices);
        if contents.memory_bytes > settings.memory_bytes_max
            || over.into_iter().any(|(&bytes, device)| bytes > device.bytes_max)
        {
            violations.push(format!("node {index} exceeds its bounds: {contents:?}"));
        }
    }
    let counts = simulation.counts().clone();
    let mode = if leased { Mode::Leased } else { Mode::Static };
    let gateways = 0..simulation.settings().gateways.len();
    let hot_reads = gateways.map(|g| simulation.gateway(g).status(0).counts.hot_reads).sum();
    Verdict { seed, level: level(seed), mode, counts, hot_reads, violations, unpromised }
}

/// Draws the severity of a seed's faults: half of the seeds are light.
pub fn level(seed: u64) -> Level {
    if seed.is_multiple_of(2) { Level::Light } else { Level::Heavy }
}

fn device_laws(level: Level, nodes: &[node::Settings], random: &mut SmallRng) -> Vec<Vec<Law>> {
    let device_mean_s = match level {
        Level::Light => 0.0005..0.005,
        Level::Heavy => 0.0005..0.02,
    };
    let mean_s = random.random_range(device_mean_s);
    let law = |device: &DeviceSettings| match device.outcome {
        Outcome::HotDevice => Law::exponential(mean_s / 10.0),
        _ => Law::exponential(mean_s),
    };
    nodes.iter().map(|node| node.devices.iter().map(law).collect()).collect()
}

fn draw_device_faults(random: &mut SmallRng) -> DeviceFaults {
    DeviceFaults {
        failures: if random.random_bool(0.3) { 0.02 } else { 0.0 },
        lies: if random.random_bool(0.3) { 0.05 } else { 0.0 },
        torn: if random.random_bool(0.5) { 0.5 } else { 0.0 },
    }
}

/// Makes the origin a store instead of a folder. Deletes are left out there, because two absences of an object look alike
/// (see [`Breakage::OrphanedPutAfterDelete`]).
fn make_store(origin: &mut Origin, clients: &mut Clients) {
    (origin.orphans, origin.conditional) = (true, true);
    clients.delete_share = 0.0;
}

/// How long a lease of the membership lasts; `None` if members are fixed.
fn draw_membership(
    shape: &Shape,
    random: &mut SmallRng,
    weight_draw: &mut SmallRng,
) -> Option<Nanos> {
    let leased = (!shape.alone && random.random_bool(0.3)).then(|| random.random_range(40..300));
    // Weights are changed by the membership alone.
    match shape.weighted && leased.is_none() {
        true => Some(weight_draw.random_range(40..300) * MS),
        false => leased.map(|term: Nanos| term * MS),
    }
}

/// The nodes of a seed's cluster; `cluster` is what is the same for all.
fn draw_nodes(
    seed: u64,
    cluster: &ClusterSettings,
    shape: &Shape,
    windows: &window::Settings,
    random: &mut SmallRng,
    hot_draw: &mut SmallRng,
) -> Vec<node::Settings> {
    let level = level(seed);
    // Drawn apart, so that what else is drawn stays what it was.
    let mut classes = SmallRng::seed_from_u64(seed ^ 0x407);
    let mut node = |me: NodeId| {
        let replicate_bytes_per_s = if random.random_bool(0.7) { 100_000 } else { 0 };
        let cluster = ClusterSettings { me, replicate_bytes_per_s, ..cluster.clone() };
        let cluster = (!shape.alone).then_some(cluster);
        node_settings(cluster, windows.clone(), level, random, &mut classes)
    };
    let mut nodes: Vec<node::Settings> = (0..shape.nodes).map(&mut node).collect();
    if shape.hot > 0 {
        more_is_hot(&mut nodes, hot_draw);
    }
    if PIECES.contains(&(seed % 16)) {
        let devices = nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.piece_bytes = 30 + seed / 16 % 100);
    }
    nodes
}

/// The cluster of a seed. The order in which things are drawn is part of what a seed means: what is new is drawn from a
/// generator of its own, so that the worlds of known seeds stay what they were.
pub fn settings(seed: u64, rings: &Rings) -> Settings {
    let random = &mut SmallRng::seed_from_u64(seed ^ 0x5eed);
    let level = level(seed);
    // Drawn apart, and for worlds with hot nodes alone.
    let mut hot_draw = SmallRng::seed_from_u64(seed ^ 0x4077);
    let shape = Shape::draw(seed, random, &mut hot_draw);
    let Shape { nodes, replicas, hot, weighted, .. } = shape;
    let layout = Layout { rings, nodes, replicas, hot };
    let ring = layout.full_ring();
    let gateways = if random.random_bool(0.7) { random.random_range(1..=2) } else { 0 };
    // Drawn apart, and for worlds with weights alone.
    let mut weight_draw = SmallRng::seed_from_u64(seed ^ 0x3e16);
    let membership = draw_membership(&shape, random, &mut weight_draw);
    let warms = if weighted && weight_draw.random_bool(0.8) { 100_000 } else { 0 };
    let lease = match level {
        Level::Heavy if random.random_bool(0.5) => 60..300,
        _ => 10..60,
    };
    let lease = random.random_range(lease) * MS;
    let until = random.random_range(600..1800) * MS;
    let mut clients = clients(level, until, random);
    let windows = window::Settings { window_ns: Nanos::MAX / 4, ..window::Settings::default() };
    let cluster = ClusterSettings {
        ring: ring.clone(),
        me: 0,
        lease,
        view_lag: membership.map_or(0, Settings::view_lag),
        peers: OriginSettings { servers: 8, queue_length_max: 64 },
        warm_bytes_per_s: warms,
        replicate_bytes_per_s: 0,
        hot_load_min: 0.001,
    };
    let nodes_settings = draw_nodes(seed, &cluster, &shape, &windows, random, &mut hot_draw);
    let devices = device_laws(level, &nodes_settings, random);
    let network = network(level, random);
    let mut origin = origin(level, random);
    if seed.is_multiple_of(3) {
        make_store(&mut origin, &mut clients);
    }
    let device_faults = draw_device_faults(random);
    let processes = nodes + gateways;
    let drawn = FaultParameters { level, nodes, processes, until, membership, ppm_max: 0 };
    let (clocks, faults) =
        clocks_and_faults(seed, drawn, &layout, &shape, lease, random, &mut weight_draw);
    Settings {
        seed,
        gateways: (0..gateways)
            .map(|g| {
                let view_lag = membership.map_or(0, Settings::view_lag);
                let settings = gateway_settings(&ring, g, &windows, level, random);
                gateway::Settings { view_lag, ..settings }
            })
            .collect(),
        ring,
        nodes: nodes_settings,
        devices,
        clients,
        network,
        origin,
        membership,
        device_faults,
        clocks,
        faults,
        breakage: None,
        check: true,
        windows,
    }
}

fn clients(level: Level, until: Nanos, random: &mut SmallRng) -> Clients {
    let deadline = match level {
        Level::Light => 400..800,
        Level::Heavy => 100..800,
    };
    Clients {
        course: None,
        rate: random.random_range(150.0..400.0),
        until,
        keys: if random.random_bool(0.5) { 2 } else { random.random_range(2..12) },
        popularity: Popularity::Uniform,
        write_share: match level {
            Level::Light => random.random_range(0.05..0.2),
            Level::Heavy => random.random_range(0.05..0.4),
        },
        delete_share: 0.2,
        bytes: (1, 300),
        deadline: random.random_range(deadline) * MS,
        any_node: [0.0, 0.3, 0.3, 1.0][random.random_range(0..4)],
    }
}

fn origin(level: Level, random: &mut SmallRng) -> Origin {
    let none = (0.0, Law::constant(0.0));
    let (half_s, failures, late) = match level {
        Level::Light => (0.0005..0.003, 0.003, (0.005, 0.02..0.1)),
        Level::Heavy => (0.0005..0.01, 0.05, (0.05, 0.05..0.6)),
    };
    let (share, late_s) = late;
    Origin {
        half: Law::exponential(random.random_range(half_s)),
        failures: if random.random_bool(0.5) { failures } else { 0.0 },
        late: if random.random_bool(0.4) {
            (share, Law::exponential(random.random_range(late_s)))
        } else {
            none
        },
        timeout: random.random_range(30..1000) * MS,
        ..Origin::default()
    }
}

fn node_settings(
    cluster: Option<ClusterSettings>,
    windows: window::Settings,
    level: Level,
    random: &mut SmallRng,
    classes: &mut SmallRng,
) -> node::Settings {
    let length = match level {
        Level::Light => random.random_range(32..64),
        Level::Heavy => random.random_range(3..40),
    };
    let device = |i: usize| DeviceSettings {
        name: format!("device/{i}"),
        outcome: Outcome::BulkDevice,
        servers: 1 + i as u32,
        queue_length_max: length,
        bytes_max: 3_000,
        segment_bytes: 800,
        segments_max: 0,
        piece_bytes: 0,
        servers_max: 0,
    };
    let mut settings = node::Settings {
        memory_bytes_max: if random.random_bool(0.2) { 0 } else { 2_500 },
        eviction: Eviction::default(),
        object_bytes_max: 280,
        revalidate: random.random_bool(0.5).then_some(SECOND / 2),
        stale_if_error: if random.random_bool(0.5) { SECOND } else { 0 },
        devices: (0..random.random_range(0..3)).map(device).collect(),
        tiers: TierSettings::default(),
        origin: OriginSettings { servers: 4, queue_length_max: length },
        appends_bytes_max: 8_000,
        writes_waiting_max: if level == Level::Light { 64 } else { 8 },
        cluster,
        windows,
    };
    classes_of(&mut settings, classes);
    // Of half of the nodes the index tells few keys apart.
    if classes.random_bool(0.5) {
        settings.tiers.index_bits = classes.random_range(0..4);
    }
    settings
}

/// Where memory answers every read, no key is worth a hot node: some nodes have none.
fn more_is_hot(nodes: &mut [node::Settings], random: &mut SmallRng) {
    for node in nodes {
        if random.random_bool(0.5) {
            node.memory_bytes_max = 0;
        }
        node.tiers.memory = random.random_range(20..300) * MS;
    }
}

/// Draws which devices are hot, and what they hold.
fn classes_of(settings: &mut node::Settings, random: &mut SmallRng) {
    if let [_, last] = &mut settings.devices[..]
        && random.random_bool(0.75)
    {
        last.outcome = Outcome::HotDevice;
    }
    if random.random_bool(0.3) {
        settings.eviction = Eviction::Lru;
    }
    let choices = [Choice::Wait, Choice::Wait, Choice::Utilisation, Choice::RoundRobin];
    settings.tiers = TierSettings {
        memory: random.random_range(50..1000) * MS,
        counters: 32,
        hysteresis: random.random_range(1.0..2.0),
        fill: 0.9,
        promote_bytes_per_s: if random.random_bool(0.2) { 2_000 } else { 1_000_000 },
        // All that is read is copied, or what is worth it.
        pins: if random.random_bool(0.5) { vec![Pin::Prefix(Vec::new())] } else { Vec::new() },
        choice: choices[random.random_range(0..choices.len())],
        ..TierSettings::default()
    };
}

fn gateway_settings(
    ring: &Arc<Ring>,
    index: usize,
    windows: &window::Settings,
    level: Level,
    random: &mut SmallRng,
) -> gateway::Settings {
    let few = level == Level::Heavy && random.random_bool(0.2);
    let spreads = [Spread::Primary, Spread::Warm, Spread::All];
    gateway::Settings {
        spread: spreads[random.random_range(0..3)],
        policy: Policy::default(),
        attempt_timeout_min: 20 * MS,
        attempt_timeout_max: 200 * MS,
        ping_interval: 40 * MS,
        ping_timeout: 60 * MS,
        origin: random.random_bool(0.7),
        requests_max: if few { 8 } else { 1000 },
        hints_max: 64,
        seed: index as u64,
        windows: windows.clone(),
        ..gateway::Settings::new(ring.clone())
    }
}

fn network(level: Level, random: &mut SmallRng) -> Network {
    let faulty = random.random_bool(0.7);
    let none = (0.0, Law::constant(0.0));
    let (loss, late_s, delay_s) = match level {
        Level::Light => (0.0..0.004, 0.01..0.1, 0.0001..0.002),
        Level::Heavy => (0.0..0.05, 0.01..0.2, 0.0001..0.005),
    };
    Network {
        delay: Law::exponential(random.random_range(delay_s)),
        loss: if faulty { random.random_range(loss) } else { 0.0 },
        duplicates: if faulty { 0.05 } else { 0.0 },
        late: if faulty {
            let share = if random.random_bool(0.5) { 0.02 } else { 0.2 };
            (share, Law::exponential(random.random_range(late_s)))
        } else {
            none
        },
        timeout: random.random_range(20..150) * MS,
    }
}
