use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::super::chance::{Chance, Lives};
use super::failures::{Parts, State, rack_of};
use super::*;

fn lives(mttf_s: f64, mttr_s: f64) -> Option<Lives> {
    Some(Lives { mttf_s, mttr_s })
}

/// Drawn states against all states of a small cluster, one by one.
#[test]
fn what_is_down_is_drawn_as_often_as_it_is_down() {
    let (nodes, devices, racks) = (3, 2, 2);
    let chance = Chance {
        node: lives(900.0, 100.0),
        rack: lives(950.0, 50.0),
        device: lives(800.0, 200.0),
        racks,
    };
    let parts = Parts::new(&chance, nodes, devices);
    let up = 0.9f64.powi(3) * 0.95f64.powi(2) * 0.8f64.powi(6);
    assert!((parts.down() - (1.0 - up)).abs() < 1e-12, "{}", parts.down());
    let mut random = SmallRng::seed_from_u64(1);
    let count = 200_000;
    let (mut first, mut both, mut device) = (0, 0, 0);
    for _ in 0..count {
        let state = parts.draw(&mut random);
        assert_ne!(state, State::default(), "something is down");
        first += u32::from(state.nodes.contains(&0));
        both += u32::from(state.nodes.contains(&0) && state.nodes.contains(&2));
        device += u32::from(state.devices.contains(&(2, 1)));
    }
    // Racks are {0, 1} and {2}; each is up with its node with probability 0.9 × 0.95.
    assert_eq!([0, 1, 2].map(|node| rack_of(node, nodes, racks)), [0, 0, 1]);
    let expected = |probability: f64| probability / (1.0 - up);
    let close = |seen: u32, probability: f64| {
        let share = f64::from(seen) / f64::from(count);
        assert!((share - expected(probability)).abs() < 0.005, "{share} {probability}");
    };
    close(first, 1.0 - 0.855);
    close(both, (1.0 - 0.855f64).powi(2));
    close(device, 0.2 * 0.855);
}

/// A candidate may have fewer servers than there are racks: each is then a rack of its own.
#[test]
fn more_racks_than_nodes_are_a_rack_for_each() {
    let chance = Chance { rack: lives(900.0, 100.0), racks: 10, ..Chance::default() };
    let parts = Parts::new(&chance, 3, 0);
    assert!((parts.down() - (1.0 - 0.9f64.powi(3))).abs() < 1e-12);
    let mut random = SmallRng::seed_from_u64(1);
    let mut down = [0; 3];
    for _ in 0..20_000 {
        let state = parts.draw(&mut random);
        assert_ne!(state, State::default(), "something is down");
        state.nodes.iter().for_each(|node| down[*node] += 1);
    }
    let expected = 20_000.0 * 0.1 / parts.down();
    assert!(down.iter().all(|count| (f64::from(*count) / expected - 1.0).abs() < 0.05), "{down:?}");
}

#[test]
fn nothing_fails_without_times_to_failure() {
    let parts = Parts::new(&Chance::default(), 5, 4);
    assert_eq!(parts.down(), 0.0);
}

#[test]
fn a_difference_is_the_sum_of_its_effects() {
    let shares = Shares {
        equal: vec![0.991, 0.993, 0.992],
        placed: vec![0.978, 0.98, 0.979],
        failing: vec![0.5, 0.6, 0.7],
    };
    let found = SimulatedCandidate::new(0, 0.9921, &shares, 0.1);
    let sum: f64 = found.effects.iter().map(|effect| effect.share.value).sum();
    assert!((sum - found.difference.value).abs() < 1e-12);
    assert!((found.simulated.value - (0.9 * 0.979 + 0.1 * 0.6)).abs() < 1e-12);
    assert_eq!(found.broke, Some(Assumption::NoFailures));
    assert_eq!((found.holds(0.5), found.holds(0.99)), (Some(true), Some(false)));
    // What is within chance is not named.
    let shares = Shares { failing: Vec::new(), ..shares };
    let found = SimulatedCandidate::new(0, 0.9921, &shares, 0.0);
    assert_eq!((found.effects.len(), found.broke), (2, Some(Assumption::EqualShares)));
    let shares = Shares { placed: shares.equal.clone(), ..shares };
    assert_eq!(SimulatedCandidate::new(0, 0.9921, &shares, 0.0).broke, None);
}
