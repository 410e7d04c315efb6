//! Nodes of a leased membership that are stopped in order and started again, one after the other, under
//! clients that never try again.

use std::sync::Arc;

use engine::gateway;
use engine::node::ClusterSettings;
use engine::route::{Member, Ring};
use engine::sim::{
    Clock, Counts, Fault, FaultKind, Law, Popularity, Process, Settings, Simulation,
};
use ground::window::{Nanos, SECOND};

use crate::plain::Plain;

const NODES: usize = 3;

/// The counts of the clients, failures of the first second left out; `within`: the time that a node has for handing over.
fn restarts(within: Nanos) -> Counts {
    let mut simulation = Simulation::new(settings(within));
    // Clients begin at once, and a gateway does not know any node in its first millisecond: a real one does not listen yet. A write
    // that is refused then was once taken for one that a restart cost.
    simulation.run_to(SECOND);
    let early = simulation.counts().failed;
    simulation.run_to(25 * SECOND);
    simulation.check_at_the_end();
    assert!(simulation.violations().is_empty(), "{:?}", simulation.violations());
    assert!(simulation.broken().is_empty(), "{:?}", simulation.broken());
    let counts = simulation.counts().clone();
    Counts { failed: counts.failed - early, ..counts }
}

fn settings(within: Nanos) -> Settings {
    let plain = Plain {
        nodes: NODES,
        gateways: 2,
        rate: 600.0,
        seconds: 16,
        keys: 200,
        popularity: Popularity::Uniform,
        memory_bytes: 1 << 20,
        servers: 1,
        service: Law::exponential(0.001),
    };
    let mut settings = plain.settings();
    let member = |i: usize| Member::new(format!("n{i}"), 1.0);
    let ring = Arc::new(Ring::new((0..NODES).map(member).collect(), 3).unwrap());
    let view_lag = Settings::view_lag(SECOND / 2);
    for node in &mut settings.nodes {
        let cluster = node.cluster.take().unwrap();
        node.cluster = Some(ClusterSettings { ring: ring.clone(), view_lag, ..cluster });
    }
    let of = |settings: gateway::Settings| gateway::Settings {
        ring: ring.clone(),
        view_lag,
        ..settings
    };
    settings.gateways = settings.gateways.into_iter().map(of).collect();
    (settings.ring, settings.membership, settings.check) = (ring, Some(SECOND / 2), true);
    settings.network.delay = Law::exponential(0.0003);
    (settings.clients.write_share, settings.clients.delete_share) = (0.3, 0.1);
    settings.clients.deadline = 5 * SECOND;
    let stop = |i: usize| {
        let (process, clock) = ((i % NODES) as Process, Clock::default());
        let (lingers, down) = (SECOND / 2, SECOND / 4);
        let kind = FaultKind::Stop { process, within, lingers, down, clock };
        Fault { at: SECOND * (2 + 2 * i as u64), kind }
    };
    settings.faults = (0..6).map(stop).collect();
    settings
}

#[test]
fn no_request_fails_while_nodes_hand_over() {
    let counts = restarts(SECOND);
    assert!(counts.requests > 8_000 && counts.writes > 2_000, "{counts:?}");
    assert!(counts.failed == 0 && counts.refused == 0, "{counts:?}");
    // A node that ends at once takes writes with it.
    assert!(restarts(1).failed > 0);
}
