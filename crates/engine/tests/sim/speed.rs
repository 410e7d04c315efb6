//! The speed of the simulator: prints figures; run by hand in release mode.

use std::time::Instant;

use engine::Size;
use engine::node::{Action, Event, Node, Restored, RestoredSegment, Settings};
use engine::sim::{Law, Popularity, Simulation};
use ground::Key;
use ground::window::SECOND;

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

/// Objects in the index that is measured.
const OBJECTS: u64 = 10_000_000;

/// What the index of a node costs: prints figures; run by hand in release mode.
#[allow(clippy::disallowed_methods, reason = "the index itself is measured")]
#[test]
#[ignore = "prints figures: cargo test --release -p engine --test sim index -- --ignored --nocapture"]
fn index() {
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
    let record = |number: u64| {
        let key = format!("objects/{number:012}");
        Restored::new(key.as_bytes(), number % SEGMENT * 16_384, 16_384).unwrap()
    };
    let segment = |segment: u64| -> Vec<Restored> {
        (segment * SEGMENT..(segment + 1) * SEGMENT).map(record).collect()
    };
    let records: Vec<Vec<Restored>> = (0..OBJECTS / SEGMENT).map(segment).collect();
    let found: Vec<RestoredSegment<'_>> = (0..)
        .zip(&records)
        .map(|(segment, records)| RestoredSegment { device: 0, segment, records })
        .collect();
    let before = resident();
    let begun = Instant::now();
    let (mut longest, mut all) = (0.0f64, 0.0);
    node.restore(&found, |work| {
        for work in work {
            let begun = Instant::now();
            work();
            let seconds = begun.elapsed().as_secs_f64();
            (longest, all) = (longest.max(seconds), all + seconds);
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    // Of keys with the same 34 bits of their hashes, one counts.
    assert!(node.contents().device_objects > OBJECTS as usize / 1000 * 999);
    let bytes = (resident() - before) as f64 / OBJECTS as f64;
    println!(
        "{bytes:.1} bytes of memory for each of {OBJECTS} objects ({:.1} without the allocator), {seconds:.2} s to enter \
         them in one thread, of which {all:.2} s are pieces of work of at most {longest:.2} s",
        node.contents().index_bytes as f64 / OBJECTS as f64
    );
    written_one_by_one(plain.settings().nodes[0].clone());
}

/// The same, entered one at a time while the node serves.
#[allow(clippy::disallowed_methods, reason = "the index itself is measured")]
fn written_one_by_one(settings: Settings) {
    let mut node: Node<Size> = Node::new(settings, 0);
    let (mut actions, mut longest, begun) = (Vec::new(), 0.0f64, Instant::now());
    let mut before = 0.0;
    for number in 0..OBJECTS {
        let key = Key::from(format!("objects/{number:012}").as_bytes());
        let payload = Size { bytes: 100, stored_bytes: 100, etag: "e".into() };
        node.handle(
            number,
            Event::WriteBegin { request: number, key: key.clone(), epoch: None },
            &mut actions,
        );
        let end = Event::WriteEnd { request: number, key, payload: Some(payload) };
        node.handle(number, end, &mut actions);
        let jobs = actions.drain(..).filter_map(|action| match action {
            Action::Append { job, .. } => Some(job),
            _ => None,
        });
        for job in jobs.collect::<Vec<_>>() {
            node.handle(number, Event::Appended { job, written: true, full: false }, &mut actions);
        }
        let now = begun.elapsed().as_secs_f64();
        (longest, before) = (longest.max(now - before), now);
    }
    println!(
        "written one by one: {:.2} µs each with all else of a write, the longest {:.0} µs; {} objects, {:.1} bytes each",
        before * 1e6 / OBJECTS as f64,
        longest * 1e6,
        node.contents().device_objects,
        node.contents().index_bytes as f64 / OBJECTS as f64
    );
}
