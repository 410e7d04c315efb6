//! Simulated weeks under adversarial loads.
//!
//! Shards are fluid: a queue changes by arrivals less departures, departures being those of M/M/1 at the
//! present length, so a step costs nanoseconds and a week of decisions some seconds. What is checked
//! holds at every decision: the budget is never exceeded, the changes of each shard are bounded, no shard
//! changes at a constant load, and after the load is gone all layers are.

use ground::window::SECOND;

use super::*;

const SHARDS: usize = 4;
/// Bytes of a shard's first layer; each further layer takes twice as much.
const UNIT: u64 = 1 << 20;
const LAYERS_MAX: u32 = 5;
/// Time between two decisions.
const STEP: Nanos = 2 * SECOND;
/// Time to fill a layer.
const FILL: Nanos = 4 * SECOND;
const WEEK: Nanos = 7 * 24 * 3600 * SECOND;
/// Services per second without layers.
const RATE: f64 = 60.0;
/// The queue's bound: further requests are refused.
const LENGTH_MAX: f64 = 1000.0;

fn held_bytes(layers: u32) -> u64 {
    UNIT * ((1 << layers) - 1)
}

#[derive(Clone, Default)]
struct Fluid {
    length: f64,
    layers: u32,
    filling: Option<Nanos>,
    served: f64,
    busy_s: f64,
    changes: Vec<Nanos>,
}

impl Fluid {
    /// Services per second; `gain` is the factor of a layer.
    fn speed(&self, gain: f64) -> f64 {
        RATE * gain.powi((self.layers - u32::from(self.filling.is_some())) as i32)
    }

    /// Advances one step of decisions; returns the mean length.
    fn run(&mut self, now: Nanos, arrivals: f64, gain: f64) -> f64 {
        self.filling = self.filling.filter(|until| now < *until);
        let speed = self.speed(gain);
        let (seconds, mut sum) = (STEP as f64 / SECOND as f64, 0.0);
        const PARTS: u32 = 8;
        for _ in 0..PARTS {
            let part = seconds / f64::from(PARTS);
            // Where the queue settles within the part, it settles where arrivals equal departures.
            let rho = arrivals / speed;
            let level = if rho < 1.0 { rho / (1.0 - rho) } else { f64::INFINITY };
            let moved = self.length + (arrivals - speed * self.length / (1.0 + self.length)) * part;
            let over = (moved - level) * (self.length - level) <= 0.0;
            self.length = if over { level } else { moved.clamp(0.0, LENGTH_MAX) };
            let busy = self.length / (1.0 + self.length) * part;
            self.busy_s += busy;
            self.served += busy * speed;
            sum += self.length;
        }
        sum / f64::from(PARTS)
    }
}

/// What a load is, and what the replicas say of themselves.
struct Scene<'a> {
    /// Arrivals of a shard at a time, as a multiple of its speed without layers.
    load: &'a dyn Fn(usize, Nanos) -> f64,
    /// What a shard says that its queue's length is.
    says: &'a dyn Fn(usize, Nanos, f64) -> f64,
    /// The factor of a layer.
    gain: f64,
    budget_bytes: u64,
    length: Nanos,
}

/// Runs a scene, and then an idle hour.
fn run(scene: &Scene<'_>) -> Vec<Fluid> {
    let settings = Settings {
        interval: STEP,
        smoothing: 0.4,
        budget_bytes: scene.budget_bytes,
        settle: 5 * SECOND,
        ..Settings::default()
    };
    let mut manager = Manager::new(settings).unwrap();
    let mut shards = vec![Fluid::default(); SHARDS];
    let ends = scene.length + 3600 * SECOND;
    for now in (1..ends / STEP).map(|step| step * STEP) {
        let mut observed = Vec::with_capacity(SHARDS);
        for (id, shard) in shards.iter_mut().enumerate() {
            let arrivals = if now < scene.length { (scene.load)(id, now) * RATE } else { 0.0 };
            let before = (shard.served, shard.busy_s);
            let length = shard.run(now, arrivals, scene.gain);
            let bytes = held_bytes(shard.layers);
            let served = (shard.served - before.0).round() as u64;
            manager.served(now, id as ShardId, bytes, served, shard.busy_s - before.1);
            observed.push(Shard {
                id: id as ShardId,
                queue_length: if now < scene.length {
                    (scene.says)(id, now, length)
                } else {
                    length
                },
                held_bytes: bytes,
                next_bytes: (shard.layers < LAYERS_MAX && shard.filling.is_none())
                    .then(|| UNIT << shard.layers),
                lowest_bytes: shard.layers.checked_sub(1).map(|lower| UNIT << lower),
                growing: shard.filling.is_some(),
            });
        }
        for change in manager.observe(now, &observed) {
            let shard = &mut shards[change.shard() as usize];
            shard.changes.push(now);
            match change {
                Change::Grow { .. } => {
                    shard.layers += 1;
                    shard.filling = Some(now + FILL);
                }
                Change::Fold { .. } => {
                    shard.layers -= 1;
                    shard.filling = None;
                }
            }
        }
        let all: u64 = shards.iter().map(|shard| held_bytes(shard.layers)).sum();
        assert!(all <= scene.budget_bytes, "{all} bytes at {} s", now / SECOND);
    }
    for (id, shard) in shards.iter().enumerate() {
        assert_eq!(shard.layers, 0, "shard {id} holds layers after an idle hour");
    }
    shards
}

fn honest(_: usize, _: Nanos, length: f64) -> f64 {
    length
}

/// Changes between two times.
fn changes(shard: &Fluid, from: Nanos, to: Nanos) -> usize {
    shard.changes.iter().filter(|at| (from..to).contains(at)).count()
}

#[test]
fn a_constant_load_is_answered_once() {
    // From idle to near the largest speed, and gains from little to much.
    for gain in [1.3, 2.0, 4.0] {
        for tenths in 1..=12u32 {
            let load = f64::from(tenths) * 0.2;
            let scene = Scene {
                load: &|_, _| load,
                says: &honest,
                gain,
                budget_bytes: 200 * UNIT,
                length: 2 * 3600 * SECOND,
            };
            for shard in run(&scene) {
                let late = changes(&shard, 600 * SECOND, scene.length);
                assert_eq!(late, 0, "oscillates at a load of {load} with a gain of {gain}");
            }
        }
    }
}

#[test]
fn square_waves_at_any_period_cause_bounded_changes() {
    // A week in all, of waves around the manager's own times: it settles in 5 s.
    for period_s in [4, 10, 20, 40, 90, 300, 3600] {
        let high = move |now: Nanos| (now / SECOND) % period_s < period_s / 2;
        let scene = Scene {
            load: &|_, now| if high(now) { 3.0 } else { 0.05 },
            says: &honest,
            gain: 2.0,
            budget_bytes: 200 * UNIT,
            length: WEEK / 7,
        };
        for shard in run(&scene) {
            let day = changes(&shard, 0, scene.length);
            // A pause of more than eight settling times is a plateau and followed, at most by three layers
            // up and down. In shorter ones a shard folds a few times and learns that this is a mistake.
            let waves = scene.length / SECOND / period_s;
            let most = if period_s <= 40 { 60 } else { waves * 6 };
            assert!(day as u64 <= most, "{day} changes in a day at {period_s} s, {most}");
        }
    }
}

#[test]
fn one_hot_key_gets_the_budget_and_gives_it_back() {
    // Each day another shard is hot, by more than all layers can carry on some.
    let day = |now: Nanos| (now / (24 * 3600 * SECOND)) as usize;
    let scene = Scene {
        load: &|id, now| {
            if id == day(now) % SHARDS { 6.0 + 10.0 * f64::from(day(now) as u32 % 3) } else { 0.3 }
        },
        says: &honest,
        gain: 2.0,
        budget_bytes: 40 * UNIT,
        length: WEEK,
    };
    for (id, shard) in run(&scene).iter().enumerate() {
        let week = changes(shard, 0, scene.length);
        assert!(week > 0 && week <= 60, "{week} changes of shard {id} in a week");
    }
}

#[test]
fn all_shards_hot_at_once_share_the_budget_without_fighting() {
    let scene = Scene {
        load: &|id, _| 4.0 + id as f64 * 0.5,
        says: &honest,
        gain: 2.0,
        // Two layers each, or less than all want.
        budget_bytes: SHARDS as u64 * held_bytes(2),
        length: WEEK,
    };
    for (id, shard) in run(&scene).iter().enumerate() {
        let late = changes(shard, 3600 * SECOND, scene.length);
        assert_eq!(late, 0, "shard {id} changes at a constant load");
    }
}

#[test]
fn a_replica_that_lies_harms_itself_within_bounds() {
    // Shard 0 says that it is overloaded, then idle, in turn, and not a number now and then.
    let scene = Scene {
        load: &|_, _| 0.6,
        says: &|id, now, length| match (id, now / SECOND % 120) {
            (0, 0..10) => f64::NAN,
            (0, 10..60) => 1e9,
            (0, _) => -1.0,
            _ => length,
        },
        gain: 2.0,
        budget_bytes: 60 * UNIT,
        length: WEEK,
    };
    let shards = run(&scene);
    let lies = changes(&shards[0], 0, scene.length);
    let (week, pause) = (scene.length / SECOND, PATIENCE_MAX * 5);
    assert!((lies as u64) < week / pause * 4 + 200, "{lies} changes of the liar in a week");
    for shard in &shards[1..] {
        assert!(changes(shard, 600 * SECOND, scene.length) <= 4, "a liar moves others");
    }
}
