//! The faults of a seed.

use ground::window::{Nanos, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::{Clock, Fault, FaultKind, MEMBERSHIP, ORIGIN, Process};
use super::layout::{Layout, Shape};

/// Nanoseconds in a millisecond.
pub(super) const MS: Nanos = SECOND / 1000;

/// The severity of a seed's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A few short faults: nearly all requests get a reply that can be judged.
    Light,
    /// Many faults at once: many requests are refused or fail.
    Heavy,
}

/// The parameters from which faults are drawn.
pub(super) struct FaultParameters {
    pub level: Level,
    pub nodes: usize,
    pub processes: usize,
    pub until: Nanos,
    pub membership: Option<Nanos>,
    pub ppm_max: i32,
}

/// The clocks of a seed's processes, and its faults in the order of their times.
pub(super) fn clocks_and_faults(
    seed: u64,
    mut drawn: FaultParameters,
    layout: &Layout<'_>,
    shape: &Shape,
    lease: Nanos,
    random: &mut SmallRng,
    weight_draw: &mut SmallRng,
) -> (Vec<Clock>, Vec<Fault>) {
    // Drift and jumps together must stay within the bound on clocks, 1/16 of a lease.
    let jumps = random.random_bool(0.3);
    let ppm_max = if jumps { 10_000 } else { 30_000 };
    drawn.ppm_max = ppm_max;
    let FaultParameters { processes, membership, .. } = drawn;
    let clocks: Vec<Clock> = (0..processes).map(|_| clock(ppm_max, random)).collect();
    let mut faults = all_faults(&drawn, random);
    if jumps {
        faults.extend(clock_jumps(lease.min(membership.unwrap_or(lease)), &drawn, random));
    }
    if membership.is_some() {
        // Drawn apart, as above.
        let mut changes = SmallRng::seed_from_u64(seed ^ 0x4146);
        let mut unaware = SmallRng::seed_from_u64(seed ^ 0x4177);
        faults.extend(changes_of(&drawn, layout, &mut changes, &mut unaware));
        let mut stops = SmallRng::seed_from_u64(seed ^ 0x570b);
        faults.extend(stops_of(&drawn, &mut stops));
    }
    if shape.weighted {
        faults.extend(weights_of(&drawn, layout, weight_draw));
    }
    if shape.misplaced {
        let mut places = SmallRng::seed_from_u64(seed ^ 0x0412);
        faults.extend(wrong_origins(&drawn, &mut places));
    }
    if shape.store_fails {
        let mut stores = SmallRng::seed_from_u64(seed ^ 0x5704);
        faults.extend(store_faults(&drawn, &mut stores));
    }
    faults.sort_by_key(|fault| fault.at);
    (clocks, faults)
}

/// Draws all faults but jumps of clocks and changes of the ring.
fn all_faults(drawn: &FaultParameters, random: &mut SmallRng) -> Vec<Fault> {
    let mut faults = faults(drawn, random);
    let stranding = if drawn.level == Level::Light { 0.2 } else { 0.6 };
    if let Some(granted) = drawn.membership.filter(|_| random.random_bool(stranding)) {
        faults.extend(stranded(random, drawn.nodes, drawn.until, granted));
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Joins and drains, each a change of one node, and suspicions. Of some drains the node does not learn
/// until it asks again, a part of its membership later.
fn changes_of(
    drawn: &FaultParameters,
    layout: &Layout<'_>,
    random: &mut SmallRng,
    unaware: &mut SmallRng,
) -> Vec<Fault> {
    let all = (1usize << drawn.nodes) - 1;
    let count = match drawn.level {
        Level::Light => random.random_range(0..4),
        Level::Heavy => random.random_range(0..12),
    };
    let mut times: Vec<Nanos> = (0..count).map(|_| random.random_range(0..drawn.until)).collect();
    // Some follow each other closely, so that views are missed.
    if let (true, Some(&first)) = (random.random_bool(0.3), times.first()) {
        times.iter_mut().for_each(|at| *at = first + *at % (100 * MS));
    }
    times.sort_unstable();
    let mut set = all;
    let mut changes = Vec::new();
    for at in times {
        let node = random.random_range(0..drawn.nodes);
        let next = set ^ 1 << node;
        let kind = match random.random_bool(0.3) || next & layout.keyed() == 0 {
            true => FaultKind::Suspect { process: node as Process },
            false => {
                set = next;
                let granted = drawn.membership.unwrap_or(0);
                if set >> node & 1 == 0 && unaware.random_bool(0.5) {
                    let time = granted / 10 * unaware.random_range(3..9);
                    let from = vec![MEMBERSHIP];
                    let kind = FaultKind::Cut { process: node as Process, from, time };
                    changes.push(Fault { at: at.saturating_sub(MS / 10), kind });
                }
                FaultKind::Ring { ring: layout.ring(set) }
            }
        };
        changes.push(Fault { at, kind });
    }
    changes
}

/// Changes of one member's weight or of several, most of them soon after another; a weight of 0 is a drain.
fn weights_of(drawn: &FaultParameters, layout: &Layout<'_>, random: &mut SmallRng) -> Vec<Fault> {
    let count = match drawn.level {
        Level::Light => random.random_range(1..5),
        Level::Heavy => random.random_range(2..14),
    };
    let mut times: Vec<Nanos> = (0..count).map(|_| random.random_range(0..drawn.until)).collect();
    if let (true, Some(&first)) = (random.random_bool(0.3), times.first()) {
        times.iter_mut().for_each(|at| *at = first + *at % (200 * MS));
    }
    times.sort_unstable();
    let mut weights = vec![1.0; drawn.nodes];
    let mut change = |at| {
        for _ in 0..random.random_range(1..3) {
            let drains = random.random_bool(0.05);
            let weight = if drains { 0.0 } else { 2.0_f64.powi(random.random_range(-3..4)) };
            weights[random.random_range(0..drawn.nodes)] = weight;
        }
        if weights.iter().all(|weight| *weight == 0.0) {
            weights[0] = 1.0;
        }
        Fault { at, kind: FaultKind::Ring { ring: layout.weighted(&weights) } }
    };
    times.into_iter().map(&mut change).collect()
}

/// Nodes that are stopped in order and started again, in a third of the seeds.
fn stops_of(drawn: &FaultParameters, random: &mut SmallRng) -> Vec<Fault> {
    let most = if drawn.level == Level::Light { 2 } else { 6 };
    let count = if random.random_bool(0.33) { random.random_range(1..=most) } else { 0 };
    let stop = |random: &mut SmallRng| {
        let kind = FaultKind::Stop {
            process: random.random_range(0..drawn.nodes) as Process,
            within: random.random_range(20..600) * MS,
            lingers: random.random_range(0..150) * MS,
            down: random.random_range(1..200) * MS,
            clock: clock(drawn.ppm_max, random),
        };
        Fault { at: random.random_range(0..drawn.until), kind }
    };
    (0..count).map(|_| stop(random)).collect()
}

/// Nodes at whose origin's place something else is, nearly all of which are killed and started again meanwhile, some with new
/// disks.
fn wrong_origins(drawn: &FaultParameters, random: &mut SmallRng) -> Vec<Fault> {
    let most = if drawn.level == Level::Light { 2 } else { 4 };
    let mut faults = Vec::new();
    for _ in 0..random.random_range(1..=most) {
        let process = random.random_range(0..drawn.nodes) as Process;
        let (at, time) = (random.random_range(0..drawn.until), random.random_range(50..600) * MS);
        let empty = random.random_bool(0.5);
        faults.push(Fault { at, kind: FaultKind::WrongOrigin { process, empty, time } });
        if random.random_bool(0.9) {
            let kind = FaultKind::Kill {
                process,
                down: time / 10 * random.random_range(1..8),
                devices_lost: random.random_bool(0.4),
                clock: clock(drawn.ppm_max, random),
            };
            faults.push(Fault { at: at + random.random_range(0..time / 10), kind });
        }
    }
    faults
}

/// Outages of the store, one after another: down, refusing, slow, cut off from some, emptied or replaced for all.
fn store_faults(drawn: &FaultParameters, random: &mut SmallRng) -> Vec<Fault> {
    let most = if drawn.level == Level::Light { 3 } else { 8 };
    let mut faults = Vec::new();
    for _ in 0..random.random_range(1..=most) {
        let (at, time) = (random.random_range(0..drawn.until), random.random_range(5..400) * MS);
        let nodes = 0..drawn.nodes as Process;
        let kind = match random.random_range(0..5) {
            0 => FaultKind::OriginDead { time },
            1 => FaultKind::OriginRefuses { time },
            2 => FaultKind::OriginSlow { factor: random.random_range(2.0..100.0), time },
            3 => {
                let process = random.random_range(0..drawn.nodes) as Process;
                match random.random_bool(0.5) {
                    true => FaultKind::CutOneWay { process: ORIGIN, to: vec![process], time },
                    false => FaultKind::CutOneWay { process, to: vec![ORIGIN], time },
                }
            }
            _ => {
                let empty = random.random_bool(0.5);
                let wrong =
                    |process| Fault { at, kind: FaultKind::WrongOrigin { process, empty, time } };
                faults.extend(nodes.map(wrong));
                continue;
            }
        };
        faults.push(Fault { at, kind });
    }
    faults
}

/// Each clock jumps once, by up to 2 % of a lease: together with the drift, two clocks stay within
/// 1/16.
fn clock_jumps(lease: Nanos, drawn: &FaultParameters, random: &mut SmallRng) -> Vec<Fault> {
    let most = (lease / 50) as i64;
    (0..drawn.processes as Process)
        .map(|process| {
            let by = random.random_range(-most..=most);
            let at = random.random_range(0..drawn.until);
            Fault { at, kind: FaultKind::ClockJump { process, by } }
        })
        .collect()
}

/// A member loses its membership, and some of the others do not learn of its return.
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

fn faults(drawn: &FaultParameters, random: &mut SmallRng) -> Vec<Fault> {
    let count = match drawn.level {
        Level::Light => random.random_range(0..3),
        Level::Heavy => random.random_range(0..7),
    };
    (0..count)
        .map(|_| {
            let at = random.random_range(0..drawn.until);
            let time = match (drawn.level, random.random_range(0..3)) {
                (Level::Light, _) => random.random_range(1..60) * MS,
                (Level::Heavy, 0) => random.random_range(1..50) * MS,
                (Level::Heavy, 1) => random.random_range(50..400) * MS,
                (Level::Heavy, _) => random.random_range(200..1000) * MS,
            };
            Fault { at, kind: fault(drawn, time, random) }
        })
        .collect()
}

fn fault(drawn: &FaultParameters, time: Nanos, random: &mut SmallRng) -> FaultKind {
    let (nodes, processes) = (drawn.nodes, drawn.processes);
    let process = random.random_range(0..processes) as Process;
    let node = process % nodes as Process;
    match random.random_range(0..20) {
        0..=2 => {
            let devices_lost = random.random_bool(0.3);
            let clock = clock(drawn.ppm_max, random);
            FaultKind::Kill { process, down: time, devices_lost, clock }
        }
        3..=5 => FaultKind::Pause { process, time },
        6 => {
            let factor = random.random_range(2.0..50.0);
            FaultKind::Slow { process: node, factor, time }
        }
        7..=14 => {
            let ends = [ORIGIN, MEMBERSHIP];
            let from = match random.random_range(0..6) {
                0 => Vec::new(),
                1 | 2 => vec![ends[random.random_range(0..2)]],
                3 => (0..processes as Process).filter(|&other| other != process).collect(),
                _ => vec![random.random_range(0..processes) as Process],
            };
            match random.random_bool(0.4) {
                true => FaultKind::CutOneWay { process, to: from, time },
                false => FaultKind::Cut { process, from, time },
            }
        }
        15 => FaultKind::OriginDead { time },
        16 => FaultKind::OriginSlow { factor: random.random_range(2.0..50.0), time },
        17 => FaultKind::DiskFull { process: node, time },
        _ => FaultKind::Rot { process: node, share: random.random_range(0.1..1.0) },
    }
}

/// Clocks with different offsets, whose rates are off by up to `ppm` millionths. With 30,000, any
/// two rates differ by at most 6 %, just below the bound of 1/16.
fn clock(ppm_max: i32, random: &mut SmallRng) -> Clock {
    Clock {
        offset: random.random_range(10..1000) * SECOND,
        ppm: random.random_range(-ppm_max..=ppm_max),
    }
}
