//! The engine's device queue against queueing theory.

use engine::node::*;
use model::window::{self, Outcome, SECOND};

use crate::world::{Faults, Load, World};

/// With exponential service a device is an M/M/1 queue: Pr(T ≤ t) = 1 − exp(−(µ − λ) t). A gap between
/// the end of one service and the start of the next would show here.
#[test]
fn a_device_with_exponential_service_is_an_mm1_queue() {
    const MEAN_S: f64 = 0.010;
    const KEYS: u32 = 200_000;
    let settings = Settings {
        memory_bytes_max: 0,
        object_bytes_max: 1_000,
        revalidate: None,
        stale_if_error: 0,
        cluster: None,
        devices: vec![DeviceSettings {
            name: "device/0".into(),
            outcome: Outcome::BulkDevice,
            servers: 1,
            queue_length_max: 10_000,
            bytes_max: 1 << 40,
            segment_bytes: 1 << 30,
        }],
        origin: OriginSettings { servers: 4, queue_length_max: 1_000 },
        appends_bytes_max: 1 << 40,
        writes_waiting_max: 8,
        windows: window::Settings::default(),
    };
    let load = Load { rate: 70.0, keys: KEYS, write_share: 0.0, size_max: 100 };
    let quiet = Faults { device: 0.0, origin: 0.0, restarts_per_s: 0.0, late_write_end: None };
    let mut world = World::new(3, settings, load, quiet, MEAN_S);
    (0..KEYS).for_each(|key| world.preload(key, 100));
    world.log = Vec::new();
    for _ in 0..20 {
        world.run_to(world.now + 360 * SECOND);
        world.log.clear();
    }
    let from_device: Vec<f64> = world
        .responses
        .iter()
        .filter(|(outcome, _)| *outcome == Outcome::BulkDevice)
        .map(|&(_, response)| response as f64 / SECOND as f64)
        .collect();
    assert!(from_device.len() > 400_000, "{:?}", world.by_outcome);
    for t in [0.005, 0.02, 0.05, 0.1] {
        let measured =
            from_device.iter().filter(|&&r| r <= t).count() as f64 / from_device.len() as f64;
        let exact = 1.0 - f64::exp(-(1.0 / MEAN_S - 70.0) * t);
        assert!((measured - exact).abs() < 0.012, "t = {t}: {measured} measured, {exact} exact");
    }
    let windows = world.node.flush_windows(world.now);
    let device = windows.iter().filter(|w| w.queue == "device/0");
    let (busy, length): (f64, f64) =
        device.fold((0.0, 0.0), |(b, l), w| (b + w.busy_s, l + w.length_s));
    assert!((busy / length - 0.7).abs() < 0.01, "utilisation {}", busy / length);
}
