//! Consistency, bounds and replay under faults.

use engine::Size;
use engine::node::*;
use model::window::{self, Outcome, SECOND};

use crate::world::{Faults, Load, World};

fn settings(devices: usize, queue_length_max: u32) -> Settings {
    let device = |i| DeviceSettings {
        name: format!("device/{i}"),
        outcome: Outcome::BulkDevice,
        servers: 1 + i as u32,
        queue_length_max,
        bytes_max: 6_000,
        segment_bytes: 1_000,
    };
    Settings {
        memory_bytes_max: 4_000,
        object_bytes_max: 1_000,
        revalidate: Some(SECOND),
        stale_if_error: 0,
        cluster: None,
        devices: (0..devices).map(device).collect(),
        origin: OriginSettings { servers: 4, queue_length_max },
        appends_bytes_max: 2_000,
        writes_waiting_max: 8,
        windows: window::Settings::default(),
    }
}

const LOAD: Load = Load { rate: 2_000.0, keys: 40, write_share: 0.2, size_max: 300 };

const FAULTS: Faults =
    Faults { device: 0.02, origin: 0.05, restarts_per_s: 2.0, late_write_end: None };

fn world(seed: u64, faults: Faults) -> World {
    World::new(seed, settings(1 + seed as usize % 3, 4 + seed as u32 % 40), LOAD, faults, 0.003)
}

/// Feeds the log to a fresh node and compares what it decides.
fn replays(world: &World, start: u64) -> bool {
    let mut node: Node<Size> = Node::new(world.settings.clone(), start);
    world.log.iter().all(|(now, event, actions)| {
        let mut again = Vec::new();
        node.handle(*now, event.clone(), &mut again);
        again == *actions
    })
}

#[allow(clippy::disallowed_methods, reason = "a test's seeds come from the environment")]
#[test]
fn no_older_version_after_an_acknowledged_write() {
    let env = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match env("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..env("SIM_SEEDS").unwrap_or(300),
    };
    let mut reads = 0;
    for seed in seeds {
        let mut world = world(seed, FAULTS);
        world.run_to(2 * SECOND);
        assert!(world.violations.is_empty(), "SIM_SEED={seed}: {:?}", world.violations);
        reads += world.checker.reads;
        let contents = world.node.contents();
        assert!(contents.memory_bytes <= 4_000, "SIM_SEED={seed}: {contents:?}");
        assert!(contents.device_bytes.iter().all(|&b| b <= 6_000), "SIM_SEED={seed}: {contents:?}");
        world.node.flush_windows(world.now);
    }
    assert!(reads > 1_000, "the simulation read nothing");
}

#[test]
fn the_checker_catches_a_driver_that_invalidates_late() {
    let faults = Faults { restarts_per_s: 0.0, late_write_end: Some(SECOND / 20), ..FAULTS };
    let caught = (0..20).any(|seed| {
        let mut world = world(seed, faults);
        world.run_to(2 * SECOND);
        !world.violations.is_empty()
    });
    assert!(caught, "a driver that is wrong on purpose was not caught");
}

#[test]
fn a_recorded_log_replays_to_identical_actions() {
    for seed in 0..20 {
        let mut world = world(seed, Faults { restarts_per_s: 0.0, ..FAULTS });
        world.run_to(SECOND);
        assert!(world.log.len() > 1_000);
        assert!(replays(&world, 0), "SIM_SEED={seed}: the replay decided otherwise");
    }
}

#[test]
fn a_log_survives_being_written_as_json() {
    let mut world = world(1, FAULTS);
    world.run_to(SECOND / 10);
    for entry in &world.log {
        let json = serde_json::to_string(entry).unwrap();
        let back: crate::world::Logged = serde_json::from_str(&json).unwrap();
        assert_eq!(&back, entry);
    }
}

#[test]
fn full_queues_refuse_and_the_rest_is_served() {
    let quiet = Faults { device: 0.0, origin: 0.0, restarts_per_s: 0.0, late_write_end: None };
    let mut world = World::new(7, settings(1, 4), Load { rate: 5_000.0, ..LOAD }, quiet, 0.02);
    world.run_to(2 * SECOND);
    assert!(world.refused > 100, "an overloaded node refused only {}", world.refused);
    assert!(world.checker.reads > 100, "an overloaded node served only {}", world.checker.reads);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}
