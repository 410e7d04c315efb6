//! The speed of the simulator: prints figures; run by hand in release mode.

use std::time::Instant;

use engine::sim::{Law, Popularity, Simulation};
use model::window::SECOND;

use crate::plain::Plain;

#[allow(clippy::disallowed_methods, reason = "the speed of the simulator itself is measured")]
fn measure(name: &str, plain: &Plain) {
    let mut simulation = Simulation::new(plain.settings());
    simulation.preload(false);
    let begun = Instant::now();
    simulation.run_to((plain.seconds + 10) * SECOND);
    let seconds = begun.elapsed().as_secs_f64();
    let requests = simulation.counts().requests as f64;
    println!("{name}: {:.0} requests/s ({:?})", requests / seconds, simulation.counts());
}

#[test]
#[ignore = "prints figures: cargo test --release -p engine --test sim speed -- --ignored --nocapture"]
fn speed() {
    let hits = Plain {
        nodes: 5,
        gateways: 0,
        rate: 100_000.0,
        seconds: 30,
        keys: 100_000,
        popularity: Popularity::Zipf(0.99),
        memory_bytes: 1 << 30,
        servers: 1,
        service: Law::exponential(0.01),
    };
    measure("5 nodes, all hits, direct", &hits);
    measure("5 nodes, all hits, 1 gateway", &Plain { gateways: 1, ..hits });
    let miss = Plain {
        nodes: 1,
        gateways: 0,
        rate: 700.0,
        seconds: 3000,
        keys: 1_000_000,
        popularity: Popularity::Uniform,
        memory_bytes: 0,
        servers: 1,
        service: Law::gamma(0.001, 0.5).unwrap(),
    };
    measure("1 node, all misses", &miss);
}
