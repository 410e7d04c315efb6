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

/// What the index of a node costs: prints figures; run by hand in release mode.
#[allow(clippy::disallowed_methods, reason = "the index itself is measured")]
#[test]
#[ignore = "prints figures: cargo test --release -p engine --test sim index -- --ignored --nocapture"]
fn index() {
    use engine::node::{Node, Restored};
    use engine::tier::Location;
    use engine::{Key, Size};

    const OBJECTS: u64 = 2_000_000;
    const SEGMENT: u64 = 4_000;
    let resident = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let plain = Plain {
        nodes: 1,
        gateways: 0,
        rate: 1.0,
        seconds: 1,
        keys: 1,
        popularity: Popularity::Uniform,
        memory_bytes: 0,
        servers: 1,
        service: Law::constant(0.001),
    };
    let mut node: Node<Size> = Node::new(plain.settings().nodes[0].clone(), 0);
    let record = |number: u64| Restored {
        key: Key::from(format!("objects/{number:012}").as_bytes()),
        etag: format!("{number:032x}").into(),
        location: Location::new(number / SEGMENT, number % SEGMENT * 16_384, 16_384),
    };
    let before = resident();
    let mut seconds = 0.0;
    for segment in 0..OBJECTS / SEGMENT {
        let records = (segment * SEGMENT..(segment + 1) * SEGMENT).map(record).collect();
        let begun = Instant::now();
        node.restore(0, segment, records);
        seconds += begun.elapsed().as_secs_f64();
    }
    assert_eq!(node.contents().device_objects, OBJECTS as usize);
    println!(
        "{:.0} bytes of memory for each of {OBJECTS} objects (keys of 20 bytes), {:.2} s for ten million to enter",
        (resident() - before) as f64 / OBJECTS as f64,
        seconds * 1e7 / OBJECTS as f64
    );
}
