//! The divider in a closed loop with the layer manager, under adversarial loads, for simulated days.
//!
//! Shards are fluid (M/M/1 at the present length), and the memory tier has a curve of hits that is known. The
//! driver is late: limits are applied intervals after they are decided, and a dropped layer is read for
//! a while. At each decision what both hold together is within the budget.

use ground::window::SECOND;

use super::*;
use crate::layers::{Change, Manager, Settings as OfLayers, Shard};
use crate::mutant;

const SHARDS: usize = 4;
const MIB: u64 = 1 << 20;
const BUDGET: u64 = 256 * MIB;
const LEAST: u64 = 16 * MIB;
/// Bytes of a shard's first layer; each further layer takes twice as much.
const UNIT: u64 = 4 * MIB;
const LAYERS_MAX: u32 = 5;
/// Services per second of a shard without layers.
const RATE: f64 = 60.0;
const FILL: Nanos = 4 * SECOND;
/// Queries read a dropped layer for this long.
const READ: Nanos = 3 * SECOND;
/// Service time of a retrieval.
const RETRIEVAL_S: f64 = 2e-3;
const DAY: Nanos = 24 * 3600 * SECOND;

fn held_bytes(layers: u32) -> u64 {
    UNIT * ((1 << layers) - 1)
}

/// What is asked at a time.
struct Load {
    /// Reads of objects per second, and the bytes of those that are read.
    reads: f64,
    working_set: u64,
    /// Arrivals of each shard, as a multiple of its rate without layers.
    shards: [f64; SHARDS],
}

impl Load {
    /// The share of the reads that memory answers: popularity falls with the root of the rank.
    fn hits(&self, bytes: u64) -> f64 {
        (bytes as f64 / self.working_set as f64).min(1.0).sqrt()
    }
}

#[derive(Clone, Default)]
struct Fluid {
    length: f64,
    layers: u32,
    filling: Option<Nanos>,
    /// Dropped layers: their bytes, and until when they are read.
    read: Vec<(Nanos, u64)>,
}

impl Fluid {
    /// What the driver does with a change of layers.
    fn apply(&mut self, change: Change, now: Nanos) {
        match change {
            Change::Grow { .. } => {
                self.layers += 1;
                self.filling = Some(now + FILL);
            }
            Change::Fold { .. } => {
                self.layers -= 1;
                let bytes = UNIT << self.layers;
                if self.filling.take().is_none() {
                    self.read.push((now + READ, bytes));
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        held_bytes(self.layers) + self.read.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// A second; returns the mean length, services and seconds of service.
    fn run(&mut self, now: Nanos, arrivals: f64) -> (f64, u64, f64) {
        self.filling = self.filling.filter(|until| now < *until);
        self.read.retain(|(until, _)| now < *until);
        let full = self.layers - u32::from(self.filling.is_some());
        let speed = RATE * 2f64.powi(full as i32);
        let rho = arrivals / speed;
        let level = if rho < 1.0 { rho / (1.0 - rho) } else { f64::INFINITY };
        let (mut sum, mut busy) = (0.0, 0.0);
        for _ in 0..8 {
            let moved = self.length + (arrivals - speed * self.length / (1.0 + self.length)) / 8.0;
            let over = (moved - level) * (self.length - level) <= 0.0;
            self.length = if over { level } else { moved.clamp(0.0, 1000.0) };
            busy += self.length / (1.0 + self.length) / 8.0;
            sum += self.length / 8.0;
        }
        (sum, (busy * speed).round() as u64, busy)
    }
}

/// What happened in a run.
#[derive(Default)]
struct RunRecord {
    moves: Vec<(Nanos, Move)>,
    /// The limits at the end of each minute: of objects, of layers.
    limits: Vec<(u64, u64)>,
    /// The most that both held together.
    held_max: u64,
}

impl RunRecord {
    fn moves(&self, from: Nanos, to: Nanos) -> usize {
        self.moves.iter().filter(|(at, _)| (from..to).contains(at)).count()
    }
}

/// Runs a load; the driver applies limits `late` seconds after they were decided.
fn run(length: Nanos, late: u64, load: impl Fn(Nanos) -> Load) -> RunRecord {
    let settings = Settings { bytes_max: BUDGET, objects_least: LEAST, ..Settings::default() };
    let mut divider = Divider::new(settings);
    let of_layers =
        OfLayers { interval: SECOND, smoothing: 0.2, budget_bytes: 0, ..OfLayers::default() };
    let mut manager = Manager::new(of_layers).unwrap();
    let mut shards = vec![Fluid::default(); SHARDS];
    let (mut objects_max, mut objects_held, mut layers_max) = (LEAST, 0u64, 0);
    let mut seen = RunRecord::default();
    for second in 1..length / SECOND {
        let now = second * SECOND;
        let asked = load(now);
        // A second's retrievals fill the tier.
        let filled = (asked.reads * (1.0 - asked.hits(objects_held)) * 65_536.0) as u64;
        objects_held = (objects_held + filled).min(objects_max);
        let mut observed = Vec::new();
        for (id, shard) in shards.iter_mut().enumerate() {
            let (queue_length, count, busy_s) = shard.run(now, asked.shards[id] * RATE);
            let bytes = shard.bytes();
            manager.busy(id as u64, busy_s);
            if shard.filling.is_none() {
                manager.served(now, id as u64, held_bytes(shard.layers), count, busy_s);
            }
            observed.push(Shard {
                id: id as u64,
                queue_length,
                held_bytes: bytes,
                next_bytes: (shard.layers < LAYERS_MAX && shard.filling.is_none())
                    .then(|| UNIT << shard.layers),
                lowest_bytes: shard.layers.checked_sub(1).map(|lower| UNIT << lower),
                growing: shard.filling.is_some(),
            });
        }
        let of_layers: u64 = shards.iter().map(Fluid::bytes).sum();
        seen.held_max = seen.held_max.max(objects_held + of_layers);
        let saved = |bytes: u64| asked.reads * asked.hits(bytes) * RETRIEVAL_S;
        let objects = Objects {
            held_bytes: objects_held,
            bytes_max: objects_max,
            saved_s: divider.sizes().into_iter().map(saved).collect(),
        };
        let layers = Layers {
            held_bytes: of_layers,
            bytes_max: layers_max,
            least_bytes: 0,
            wish: manager.wish(),
            spare: manager.spare(),
        };
        if let Some(of) = divider.observe(now, &objects, &layers) {
            divider.begin(now, of.clone());
            seen.moves.push((now, of));
        }
        // The driver is late, with the one limit or the other.
        if second % (late + 1) == 0 {
            objects_max = divider.objects_bytes();
            objects_held = objects_held.min(objects_max);
        }
        if second % (late + 1) == late {
            layers_max = divider.layers_bytes();
            manager.set_budget(layers_max);
        }
        for change in manager.observe(now, &observed) {
            shards[change.shard() as usize].apply(change, now);
        }
        if second % 60 == 0 {
            seen.limits.push((divider.objects_bytes(), divider.layers_bytes()));
        }
    }
    seen
}

fn constant(reads: f64, working_set: u64, shards: f64) -> impl Fn(Nanos) -> Load {
    move |_| Load { reads, working_set, shards: [shards; SHARDS] }
}

/// A load, its name, and the most moves in a day.
type Scene = (&'static str, Box<dyn Fn(Nanos) -> Load>, usize);

/// The adversarial loads, each with the most moves in a day.
fn scenes() -> Vec<Scene> {
    let wave = |period_s: u64| {
        move |now: Nanos| {
            let high = (now / SECOND) % period_s < period_s / 2;
            let (reads, shards) = if high { (50.0, 3.0) } else { (2000.0, 0.02) };
            Load { reads, working_set: BUDGET, shards: [shards; SHARDS] }
        }
    };
    let hot = |now: Nanos| {
        let hour = (now / (3600 * SECOND)) as usize;
        let mut shards = [0.3; SHARDS];
        shards[hour % SHARDS] = 4.0 + 6.0 * (hour % 3) as f64;
        Load { reads: 200.0, working_set: 2 * BUDGET, shards }
    };
    let one_key = |now: Nanos| {
        // One key has all reads, but for an hour of a scan of everything.
        let scan = (now / (3600 * SECOND)) % 2 == 1;
        let working_set = if scan { 8 * BUDGET } else { MIB };
        Load { reads: 5000.0, working_set, shards: [2.5; SHARDS] }
    };
    let lumps = constant(500.0, 2 * BUDGET, 6.0);
    vec![
        ("a square wave of 20 s", Box::new(wave(20)), 60),
        ("a square wave of 60 s", Box::new(wave(60)), 600),
        ("a square wave of 300 s", Box::new(wave(300)), 600),
        ("a square wave of an hour", Box::new(wave(3600)), 24 * 24),
        ("one hot shard, another each hour", Box::new(hot), 24 * 12),
        ("one hot key and scans", Box::new(one_key), 24 * 12),
        ("all shards hot at once", Box::new(lumps), 40),
    ]
}

/// What is wrong with a scene: the budget exceeded, or too many moves.
fn faults(late: u64) -> Vec<String> {
    let mut faults = Vec::new();
    for (what, load, moves_max) in scenes() {
        let seen = run(DAY, late, load);
        let moves = seen.moves.len();
        println!("{what}, {late} s late: {moves} moves, {} MiB at most", seen.held_max / MIB);
        if seen.held_max > BUDGET {
            faults.push(format!("{what}: {} bytes of {BUDGET}", seen.held_max));
        }
        if moves > moves_max {
            faults.push(format!("{what}: {moves} moves"));
        }
        if let Some((objects, layers)) =
            seen.limits.iter().find(|(o, l)| o + l > BUDGET || *o < LEAST)
        {
            faults.push(format!("{what}: limits of {objects} and {layers}"));
        }
    }
    faults
}

#[test]
fn under_adversarial_loads_the_budget_holds_and_moves_are_bounded() {
    for late in [0, 2] {
        assert_eq!(faults(late), [""; 0]);
    }
}

#[test]
fn every_mutant_is_found() {
    for mutant in [Mutant::BudgetRaisedBeforeFreed, Mutant::BudgetWithoutMargin] {
        let faults = mutant::with(Some(mutant), || faults(2));
        println!("{mutant:?}: {faults:?}");
        assert!(!faults.is_empty(), "{mutant:?} was not found");
    }
}

#[test]
fn a_constant_load_is_answered_once() {
    let hour = 3600 * SECOND;
    for reads in [0.0, 20.0, 200.0, 2000.0] {
        for tenths in 0..=8u32 {
            let load = f64::from(tenths);
            let seen = run(6 * hour, 0, constant(reads, 2 * BUDGET, load));
            let late = seen.moves(3 * hour, 6 * hour);
            assert_eq!(late, 0, "{late} moves at {reads} reads/s and a load of {load}");
        }
    }
}

#[test]
fn bytes_follow_the_load_and_return_when_it_ends() {
    // Objects alone, then shards alone, then nothing.
    let hour = 3600 * SECOND;
    let seen = run(4 * hour, 0, |now| match now / hour {
        0 => Load { reads: 3000.0, working_set: BUDGET, shards: [0.0; SHARDS] },
        1 => Load { reads: 1.0, working_set: BUDGET, shards: [7.0; SHARDS] },
        2 => Load { reads: 3000.0, working_set: BUDGET, shards: [0.0; SHARDS] },
        _ => Load { reads: 0.0, working_set: BUDGET, shards: [0.0; SHARDS] },
    });
    let at = |minute: usize| seen.limits[minute];
    assert!(
        at(10).0 > BUDGET / 16 * 14,
        "objects have most of it within ten minutes: {:?}",
        at(10)
    );
    assert!(
        at(80).1 >= SHARDS as u64 * held_bytes(3),
        "each shard needs three layers: {:?}",
        at(80)
    );
    assert!(at(140).0 > BUDGET / 16 * 14, "objects have it again: {:?}", at(140));
    assert_eq!(at(238), (LEAST, 0), "nobody needs it");
}
