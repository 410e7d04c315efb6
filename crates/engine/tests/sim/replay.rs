//! A node's recorded log replays to the same decisions, also after serialisation.

use engine::Size;
use engine::node::Node;
use engine::sim::{Logged, Simulation, seeds};
use ground::window::SECOND;

use crate::seeds::RINGS;

fn logged(seed: u64, node: usize, until: u64) -> (Simulation, Vec<Logged>) {
    let mut settings = seeds::settings(seed, &RINGS);
    settings.faults.clear();
    let mut simulation = Simulation::new(settings);
    simulation.log(node);
    simulation.run_to(until);
    let log = simulation.logged(node).to_vec();
    (simulation, log)
}

#[test]
fn a_recorded_log_replays_to_identical_actions() {
    let mut events = 0;
    for seed in 0..40 {
        let (simulation, log) = logged(seed, 0, 2 * SECOND);
        let settings = simulation.settings();
        let start = settings.clocks[0].local(0);
        let mut node: Node<Size> = Node::new(settings.nodes[0].clone(), start);
        for (now, event, actions) in &log {
            let mut again = Vec::new();
            node.handle(*now, event.clone(), &mut again);
            assert_eq!(again, *actions, "SIM_SEED={seed}: the replay decided otherwise");
        }
        events += log.len();
    }
    assert!(events > 10_000, "{events}");
}

#[test]
fn a_log_survives_being_written_as_json() {
    let (_, log) = logged(1, 1, SECOND / 2);
    assert!(log.len() > 50);
    for entry in &log {
        let json = serde_json::to_string(entry).unwrap();
        assert_eq!(&serde_json::from_str::<Logged>(&json).unwrap(), entry);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let (one, two) = (seeds::run(seed, &RINGS, None), seeds::run(seed, &RINGS, None));
        assert_eq!(one.counts, two.counts, "SIM_SEED={seed}");
    }
}
