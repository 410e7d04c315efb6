use engine::layers::Settings;
use engine::route::Policy;

use super::super::curve::tests::curve;
use super::*;

/// One shard that answers 100, 200, 400 and 700 requests per second.
fn setting() -> Setting {
    Setting {
        curve: curve(),
        shard_bytes: 1e8,
        slower: 1.0,
        fill: Fill::Sweep,
        policy: Policy::SmallestExpectedResponse,
        told: false,
        layers: Settings::default(),
        replicate: false,
        copy_bytes_per_s: 1e8,
        clients: 0,
        seed: 3,
    }
}

fn alone(step: usize, step_max: usize) -> [Start; 1] {
    [Start { shard: 0, node: 0, step, step_max }]
}

fn phase(from_s: f64, rate: f64) -> Phase {
    Phase { from_s, rates: vec![rate] }
}

fn mean(world: &World, of: impl Fn(&Second) -> f64) -> f64 {
    world.seconds.iter().map(of).sum::<f64>() / world.seconds.len() as f64
}

#[test]
fn a_fixed_shard_is_an_m_g_1_queue() {
    let mut world = World::new(setting(), &alone(1, 1), vec![phase(0.0, 100.0)]).unwrap();
    world.run(2000.0);
    // Half of the services are exponential of mean 7.5 ms, half 2.5 ms.
    let (mean_s, square) = (0.005, 0.5 * 2.0 * 0.0075 * 0.0075 + 0.5 * 0.0025 * 0.0025);
    let waiting_s = 100.0 * square / (2.0 * (1.0 - 100.0 * mean_s));
    let length = 100.0 * (waiting_s + mean_s);
    let found = mean(&world, Second::length);
    assert!((found / length - 1.0).abs() < 0.05, "{found} in place of {length}");
    assert!((world.responses.mean_s() / (length / 100.0) - 1.0).abs() < 0.05);
    assert!((mean(&world, |second| second.footprint) - 0.5).abs() < 1e-9);
    assert!(world.changes.is_empty());
}

#[test]
fn a_shard_grows_under_load_and_folds_after_it() {
    let phases = vec![phase(0.0, 30.0), phase(60.0, 300.0), phase(180.0, 10.0)];
    let mut world = World::new(setting(), &alone(0, 3), phases).unwrap();
    world.run(400.0);
    let at = |s: usize| world.seconds[s].footprint;
    assert_eq!((at(50), at(390)), (0.4, 0.4), "{:?}", world.changes);
    // One layer more than needed where it grows while it still answers what had waited.
    assert!(at(170) >= 0.7, "{:?}", world.changes);
    let last = &world.seconds[170..178];
    let completions: u64 = last.iter().map(|second| second.completions).sum();
    assert!((completions as f64 / 8.0 - 300.0).abs() < 40.0, "{completions}");
}

#[test]
fn a_shard_with_fixed_footprints_gains_replicas() {
    let setting = Setting { replicate: true, ..setting() };
    let phases = vec![phase(0.0, 50.0), phase(20.0, 700.0), phase(200.0, 50.0)];
    let mut world = World::new(setting, &alone(1, 1), phases).unwrap();
    world.run(190.0);
    assert!((4..=6).contains(&world.of_shard[0].len()), "{}", world.of_shard[0].len());
    world.run(400.0);
    assert_eq!(world.of_shard[0].len(), 1);
    assert!((world.seconds.last().unwrap().footprint - 0.5).abs() < 1e-9);
}

#[test]
fn what_waits_at_a_lost_node_is_asked_of_others_and_its_shards_are_copied() {
    let starts: Vec<Start> =
        (0..3).map(|node| Start { shard: 0, node, step: 0, step_max: 3 }).collect();
    // A node without a replica takes the copy.
    let other = Start { shard: 1, node: 3, step: 0, step_max: 3 };
    let starts = [starts, vec![other]].concat();
    let phases = vec![Phase { from_s: 0.0, rates: vec![150.0, 10.0] }];
    let mut world = World::new(setting(), &starts, phases).unwrap();
    world.lose(50.0, 0);
    world.run(100.0);
    assert_eq!(world.of_shard[0].len(), 3);
    assert!(world.rebuilt_s > 51.0 && world.rebuilt_s < 53.0, "{}", world.rebuilt_s);
    assert!((world.copied_bytes - 4e7).abs() < 1.0);
    let arrivals: u64 = world.seconds.iter().map(|second| second.arrivals).sum();
    let completions: u64 = world.seconds.iter().map(|second| second.completions).sum();
    assert!(arrivals - completions < 60, "{arrivals} asked, {completions} answered");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let setting = Setting { clients: 20, ..setting() };
        let mut world = World::new(setting, &alone(0, 3), vec![phase(0.0, 1.0)]).unwrap();
        world.run(60.0);
        let all: u64 = world.seconds.iter().map(|second| second.completions).sum();
        (all, world.changes.len(), world.responses.quantile_s(0.99).map(f64::to_bits))
    };
    assert_eq!(run(), run());
    assert!(run().0 > 6000, "20 clients keep a shard busy");
}

#[test]
fn marked_layers_are_made_whole_where_a_processor_is_idle() {
    let learning = Learning::from_points(vec![(0.0, 0.0), (5000.0, 0.5)]);
    let run = |fill| {
        let setting = Setting { fill, ..setting() };
        let phases = vec![phase(0.0, 30.0), phase(60.0, 300.0), phase(180.0, 10.0)];
        let mut world = World::new(setting, &alone(0, 3), phases).unwrap();
        world.run(400.0);
        world
    };
    let sweep = run(Fill::Sweep);
    let queries = run(Fill::Queries(learning.clone()));
    let both = run(Fill::Both(learning.clone(), 2.0));
    let alone = run(Fill::Both(learning, 1.0));
    let held = |world: &World| world.seconds[170].footprint;
    assert!((held(&both) - held(&sweep)).abs() < 1e-9, "{} {}", held(&both), held(&sweep));
    // Half of what a layer brings is not enough here, though all are there.
    assert!(held(&queries) >= held(&both), "{} {}", held(&queries), held(&both));
    // A layer that is there at once waits less than one that is swept first.
    let longest = |world: &World| world.seconds.iter().map(Second::length).fold(0.0, f64::max);
    assert!(longest(&both) < longest(&sweep), "{} {}", longest(&both), longest(&sweep));
    for world in [&both, &alone] {
        assert!((world.seconds[390].footprint - 0.4).abs() < 1e-9, "{:?}", world.changes);
    }
}
