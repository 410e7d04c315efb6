use proptest::prelude::*;

use super::*;
use crate::storage::{HitRatio, Member, Popularity, Spotify};

fn cluster(shares: &[f64]) -> Cluster<Spotify> {
    let server = Spotify::new(HitRatio::new(0.4, 0.0).unwrap(), 100.0, 2.0).unwrap();
    let named = shares.iter().enumerate();
    let members = named.map(|(i, &share)| Member { name: format!("n{i}"), server, share });
    Cluster { members: members.collect(), delay: 0.0 }
}

fn close(found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() <= error, "{found}, not {expected}");
}

/// The naive twin: every order in which nodes are drawn in proportion to their shares, followed to the
/// first that is left, or to the end of the replicas. Adds to each node's share, and to the last entry.
fn follow(
    shares: &[f64],
    lost: &[bool],
    gone: &mut Vec<usize>,
    replicas: usize,
    p: f64,
    out: &mut [f64],
) {
    if gone.len() == replicas {
        out[shares.len()] += p;
        return;
    }
    let rest: f64 = (0..shares.len()).filter(|i| !gone.contains(i)).map(|i| shares[i]).sum();
    for i in 0..shares.len() {
        if gone.contains(&i) {
            continue;
        }
        let p = p * shares[i] / rest;
        if lost[i] {
            gone.push(i);
            follow(shares, lost, gone, replicas, p, out);
            gone.pop();
        } else {
            out[i] += p;
        }
    }
}

#[test]
fn a_table_moves_a_lost_nodes_load_evenly() {
    let before = cluster(&[0.5, 0.2, 0.2, 0.1]);
    let one = before
        .without_nodes(&["n1"], &Takeover::Evenly { replicas: 2 }, Popularity::EQUAL)
        .unwrap();
    assert_eq!(one.unserved, 0.0);
    for (member, share) in one.cluster.members.iter().zip([0.5, 0.2, 0.1]) {
        close(member.share, share + 0.2 / 3.0, 1e-12);
    }
    close(one.cluster.members[2].server.hit_ratio().q0(), 0.4 * 0.1 / (0.1 + 0.2 / 3.0), 1e-12);
    // Of two lost nodes' keys a third had their other replica on the other.
    let two = before
        .without_nodes(&["n1", "n3"], &Takeover::Evenly { replicas: 2 }, Popularity::EQUAL)
        .unwrap();
    close(two.unserved, 0.3 / 3.0, 1e-12);
    close(two.cluster.members[0].share * 0.9, 0.5 + 0.1, 1e-12);
    close(two.served_rate(1_000.0), 900.0, 1e-9);
    // More lost than replicas, one replica, and none left.
    let alone = before
        .without_nodes(&["n1", "n3"], &Takeover::Evenly { replicas: 1 }, Popularity::EQUAL)
        .unwrap();
    close(alone.unserved, 0.3, 1e-12);
    close(alone.cluster.members[0].server.hit_ratio().q0(), 0.4, 1e-12);
    let safe = before
        .without_nodes(&["n1", "n3"], &Takeover::Evenly { replicas: 3 }, Popularity::EQUAL)
        .unwrap();
    assert_eq!(safe.unserved, 0.0);
}

#[test]
fn counted_shares_are_taken_as_they_are() {
    let before = cluster(&[0.25; 4]);
    let counted = Takeover::Shares(vec![0.5, 0.4]);
    let after = before.without_nodes(&["n0", "n2"], &counted, Popularity::EQUAL).unwrap();
    close(after.unserved, 0.1, 1e-12);
    assert_eq!(after.cluster.members[0].name, "n1");
    close(after.cluster.members[0].share, 0.5 / 0.9, 1e-12);
    // Half the memory for each object: its catalogue is twice as large, whatever goes to the origin.
    close(after.cluster.members[0].server.hit_ratio().q0(), 0.2, 1e-12);
    after.cluster.check().unwrap();
    // One node and all shares: the same as `without`.
    let three = Takeover::Shares(vec![0.3, 0.3, 0.4]);
    let one = before.without_nodes(&["n3"], &three, Popularity::EQUAL).unwrap();
    assert_eq!(one.cluster, before.without("n3", &[0.3, 0.3, 0.4], Popularity::EQUAL).unwrap());
    // Nobody lost.
    let none =
        before.without_nodes(&[], &Takeover::Ring { replicas: 3 }, Popularity::EQUAL).unwrap();
    close(none.cluster.members[3].share, 0.25, 1e-12);
    assert_eq!(none.unserved, 0.0);
}

#[test]
fn a_rack_of_a_large_cluster_can_be_lost() {
    // Equal shares: of the keys, those with all three nodes among 40 of 1,000.
    let all = vec![0.001; 1_000];
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let exact = 40.0 * 39.0 * 38.0 / (1_000.0 * 999.0 * 998.0);
    for takeover in [Takeover::Ring { replicas: 3 }, Takeover::Evenly { replicas: 3 }] {
        let after = cluster(&all).without_nodes(&names, &takeover, Popularity::EQUAL).unwrap();
        close(after.unserved / exact, 1.0, 1e-6);
        assert_eq!(after.cluster.members.len(), 960);
    }
}

#[test]
fn impossible_losses_are_errors() {
    let before = cluster(&[0.5, 0.3, 0.2]);
    let p = Popularity::EQUAL;
    let lose = |names: &[&str], takeover: Takeover| before.without_nodes(names, &takeover, p);
    assert!(matches!(lose(&["x"], Takeover::Ring { replicas: 2 }), Err(Error::NoSuchNode { .. })));
    assert!(lose(&["n0", "n1", "n2"], Takeover::Ring { replicas: 2 }).is_err());
    assert!(lose(&["n0"], Takeover::Ring { replicas: 0 }).is_err());
    assert!(lose(&["n0"], Takeover::Evenly { replicas: 1_000 }).is_err());
    assert!(matches!(lose(&["n0"], Takeover::Shares(vec![1.0])), Err(Error::Shares { .. })));
    for shares in [[0.9, 0.9], [0.0, 0.0], [f64::NAN, 0.5], [-0.1, 0.5]] {
        assert!(lose(&["n0"], Takeover::Shares(shares.to_vec())).is_err(), "{shares:?}");
    }
    // A node named twice is lost once.
    let twice = lose(&["n0", "n0"], Takeover::Ring { replicas: 2 }).unwrap();
    assert_eq!(twice.cluster.members.len(), 2);
}

proptest! {
    #[test]
    fn the_ring_is_followed_in_every_order(
        weights in prop::collection::vec(0.05f64..1.0, 2..7), mask in any::<u8>(), replicas in 1u32..5,
    ) {
        let total: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|w| w / total).collect();
        let lost: Vec<bool> = (0..shares.len()).map(|i| mask >> i & 1 == 1).collect();
        prop_assume!(lost.iter().any(|l| !l));
        let names: Vec<String> = (0..shares.len()).filter(|&i| lost[i]).map(|i| format!("n{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ring = Takeover::Ring { replicas };
        let after = cluster(&shares).without_nodes(&names, &ring, Popularity::EQUAL).unwrap();
        let mut out = vec![0.0; shares.len() + 1];
        follow(&shares, &lost, &mut Vec::new(), replicas as usize, 1.0, &mut out);
        prop_assert!((after.unserved - out[shares.len()]).abs() < 1e-9, "{} {out:?}", after.unserved);
        let left = (0..shares.len()).filter(|&i| !lost[i]);
        for (i, member) in left.zip(&after.cluster.members) {
            prop_assert!((member.share * (1.0 - after.unserved) - out[i]).abs() < 1e-9);
        }
        prop_assert!(after.cluster.check().is_ok());
    }
}
