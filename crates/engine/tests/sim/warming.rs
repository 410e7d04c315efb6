//! A node that joins a warm cluster: what it reads from the origin, and how fast others offer it what is hot.

use std::sync::Arc;

use engine::gateway;
use engine::node::{ClusterSettings, Warmed};
use engine::route::{Member, Ring};
use engine::sim::{Fault, FaultKind, Law, Popularity, Settings, Simulation};
use ground::window::{Nanos, Outcome, SECOND};

use crate::plain::Plain;

const NODES: usize = 4;
/// When the last node gets keys.
const JOINS: Nanos = 10 * SECOND;

fn ring(last: f64, replicas: usize) -> Arc<Ring> {
    let weight = |i: usize| if i == NODES - 1 { last } else { 1.0 };
    let member = |i: usize| Member::new(format!("n{i}"), weight(i));
    Arc::new(Ring::listed((0..NODES).map(member).collect(), replicas).unwrap())
}

/// Objects that the joining node got from the origin and from its peers in the ten seconds after the change of the ring, and what
/// all others had offered it by each of these seconds.
fn joins(rate: u64) -> (u64, u64, Vec<Warmed>) {
    let plain = Plain {
        nodes: NODES,
        gateways: 1,
        rate: 2_000.0,
        seconds: 30,
        keys: 2_000,
        popularity: Popularity::Zipf(0.9),
        memory_bytes: 1 << 22,
        servers: 4,
        service: Law::exponential(0.0005),
    };
    let mut settings: Settings = plain.settings();
    let before = ring(0.0, 2);
    let view_lag = Settings::view_lag(SECOND / 2);
    for node in &mut settings.nodes {
        let cluster = node.cluster.take().unwrap();
        let cluster = ClusterSettings { ring: before.clone(), view_lag, ..cluster };
        node.cluster = Some(ClusterSettings { warm_bytes_per_s: rate, ..cluster });
    }
    let of = |settings: gateway::Settings| gateway::Settings {
        ring: before.clone(),
        view_lag,
        ..settings
    };
    settings.gateways = settings.gateways.into_iter().map(of).collect();
    (settings.ring, settings.membership, settings.check) = (before, Some(SECOND / 2), true);
    settings.network.delay = Law::exponential(0.0003);
    settings.clients.deadline = 5 * SECOND;
    settings.clients.bytes = (1_000, 1_000);
    (settings.clients.write_share, settings.clients.delete_share) = (0.01, 0.0);
    settings.faults = vec![Fault { at: JOINS, kind: FaultKind::Ring { ring: ring(1.0, 2) } }];
    let mut simulation = Simulation::new(settings);
    let mut offered = Vec::new();
    simulation.run_to(JOINS);
    for second in 1..=10 {
        simulation.run_to(JOINS + second * SECOND);
        let all = (0..NODES).filter_map(|node| simulation.node(node).warmed());
        let sum = all.fold(Warmed::default(), |sum, one| Warmed {
            objects: sum.objects + one.objects,
            bytes: sum.bytes + one.bytes,
            compared: sum.compared + one.compared,
            waiting: sum.waiting + one.waiting,
            goes_on: sum.goes_on || one.goes_on,
        });
        offered.push(sum);
    }
    let windows = simulation.windows(true).pop().unwrap();
    let of = |queue: &str, outcome: Outcome| {
        let of = windows.iter().filter(|window| window.queue == queue);
        let of = of.flat_map(|window| &window.times).filter(|times| times.outcome == outcome);
        of.map(|times| times.response.count()).sum::<u64>()
    };
    let (origin, peers) = (of("origin", Outcome::Origin), of("peers", Outcome::Replica));
    assert!(simulation.violations().is_empty(), "{:?}", simulation.violations());
    assert!(simulation.broken().is_empty(), "{:?}", simulation.broken());
    (origin, peers, offered)
}

#[test]
fn a_node_that_joins_is_warmed_by_those_that_had_its_keys() {
    let (cold, _, none) = joins(0);
    assert_eq!(none.last(), Some(&Warmed::default()));
    let (warm, filled, offered) = joins(1 << 20);
    let last = offered.last().unwrap();
    println!("origin: {cold} objects without, {warm} with; {filled} from peers; {last:?}");
    assert!(!last.goes_on && last.objects > 200 && last.compared > 0, "{last:?}");
    // What is read before others begin to offer comes from the origin in both.
    assert!(filled > 400 && warm + 200 < cold, "{cold} {warm} {filled}");
}

#[test]
fn warming_keeps_to_its_rate() {
    // Three nodes offer.
    let rate = 20_000;
    let (_, _, offered) = joins(rate);
    let mut before = 0;
    for (second, warmed) in offered.iter().enumerate() {
        // A second's budget may have been saved.
        let (bytes, most) = (warmed.bytes - before, 3 * rate + 3 * rate / 5);
        assert!(second == 0 || bytes <= most, "{bytes} in second {second}: {offered:?}");
        before = warmed.bytes;
    }
    let last = offered.last().unwrap();
    assert!(last.goes_on && last.waiting > 0 && last.bytes > 4 * rate, "{last:?}");
}
