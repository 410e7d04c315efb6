//! The bound of requests under way that a gateway finds by itself, before servers that are full, slow, and well again.

use engine::act::concurrency;
use engine::sim::{Fault, FaultKind, Law, Popularity, Simulation};
use ground::window::SECOND;

use super::plain::Plain;

/// Servers of all nodes, and the mean time of a read.
const SERVERS: u32 = 16;
const MEAN_S: f64 = 0.005;

/// What a part of a run did: reads per second, and the least, mean and largest bound.
struct Part {
    reads: f64,
    bounds: (u32, f64, u32),
}

fn run(simulation: &mut Simulation, seconds: u64) -> Part {
    let reads = |s: &Simulation| s.counts().reads.values().sum::<u64>();
    let (before, begun) = (reads(simulation), simulation.now());
    let (mut least, mut sum, mut most, mut count) = (u32::MAX, 0.0, 0, 0.0);
    while simulation.now() < begun + seconds * SECOND {
        simulation.run_to(simulation.now() + SECOND / 20);
        let bound = simulation.gateway(0).bound();
        (least, most) = (least.min(bound), most.max(bound));
        (sum, count) = (sum + f64::from(bound), count + 1.0);
    }
    let reads = (reads(simulation) - before) as f64 / seconds as f64;
    Part { reads, bounds: (least, sum / count, most) }
}

/// A gateway before two nodes, loaded with 1.5 times what they can, with a bound that begins at `initial`.
fn overloaded(initial: u32, faults: Vec<Fault>) -> Simulation {
    let plain = Plain {
        nodes: 2,
        gateways: 1,
        rate: 1.5 * f64::from(SERVERS) / MEAN_S,
        seconds: 1000,
        keys: 20_000,
        popularity: Popularity::Uniform,
        memory_bytes: 1 << 12,
        servers: SERVERS / 2,
        service: Law::exponential(MEAN_S),
    };
    let mut settings = plain.settings();
    settings.gateways[0].concurrency =
        Some(concurrency::Settings { initial, ..concurrency::Settings::default() });
    settings.gateways[0].hedge = None;
    settings.clients.deadline = 5 * SECOND;
    settings.faults = faults;
    let mut simulation = Simulation::new(settings);
    simulation.preload(false);
    simulation
}

#[test]
fn the_knee_is_found_from_below_and_above_and_held() {
    let capacity = f64::from(SERVERS) / MEAN_S;
    for initial in [4, 600] {
        let mut simulation = overloaded(initial, Vec::new());
        run(&mut simulation, 60);
        let held = run(&mut simulation, 60);
        let (least, mean, most) = held.bounds;
        assert!(held.reads > 0.8 * capacity, "from {initial}: {} of {capacity}", held.reads);
        // Responses stay below three times a read's, where a fixed bound of 600 made them 37 times as long.
        assert!(mean < 3.0 * f64::from(SERVERS), "from {initial}: {mean}");
        assert!(most < 4 * least, "from {initial}: it swings between {least} and {most}");
    }
}

#[test]
fn after_a_slow_time_the_bound_is_what_it_was() {
    let slow = FaultKind::Slow { process: 0, factor: 4.0, time: 60 * SECOND };
    let mut simulation = overloaded(64, vec![Fault { at: 90 * SECOND, kind: slow }]);
    run(&mut simulation, 60);
    let before = run(&mut simulation, 30);
    let during = run(&mut simulation, 60);
    run(&mut simulation, 60);
    let after = run(&mut simulation, 30);
    assert!(during.reads > 0.2 * before.reads, "{} of {}", during.reads, before.reads);
    assert!(after.reads > 0.95 * before.reads, "{} of {}", after.reads, before.reads);
    let ratio = after.bounds.1 / before.bounds.1;
    assert!((0.5..2.0).contains(&ratio), "{:?} was {:?}", after.bounds, before.bounds);
}
