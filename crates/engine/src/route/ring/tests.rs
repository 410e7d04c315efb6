//! Where keys and hot copies are.

use proptest::prelude::*;

use super::*;

fn ring(weights: &[f64], replicas: usize) -> Ring {
    let member = |(i, w): (usize, &f64)| Member::new(format!("n{i:03}"), *w);
    Ring::new(weights.iter().enumerate().map(member).collect(), replicas).unwrap()
}

/// The naive twin: ranks all members for each key's slot.
fn naive(ring: &Ring, key: &[u8]) -> Vec<NodeId> {
    let slot = key_hash(key) >> (64 - SLOT_BITS);
    let of = |m: &Member| -uniform(key_hash(m.name.as_bytes()), slot).ln() / m.weight;
    let mut ranked: Vec<NodeId> = (0..ring.members.len()).collect();
    ranked.sort_by(|&a, &b| of(&ring.members[a]).total_cmp(&of(&ring.members[b])));
    ranked.truncate(ring.replicas);
    ranked
}

#[test]
fn shares_follow_weights() {
    let ring = ring(&[1.0, 1.0, 2.0, 4.0], 3);
    for (share, exact) in ring.shares().iter().zip([0.125, 0.125, 0.25, 0.5]) {
        assert!((share - exact).abs() < 0.01, "{share} for {exact}");
    }
    let without = ring.shares_of(&[true, true, true, false]);
    for (share, exact) in without.iter().zip([0.25, 0.25, 0.5, 0.0]) {
        assert!((share - exact).abs() < 0.01, "{share} for {exact}");
    }
}

#[test]
fn a_new_member_takes_its_share_and_moves_nothing_else() {
    let (before, after) = (ring(&[1.0; 5], 3), ring(&[1.0; 6], 3));
    let mut moved = 0;
    for slot in 0..SLOTS {
        let old: Vec<NodeId> = before.of_slot(slot).iter().collect();
        let new: Vec<NodeId> = after.of_slot(slot).iter().filter(|&n| n != 5).collect();
        assert!(old.starts_with(&new), "slot {slot}: {old:?} became {new:?}");
        moved += usize::from(old[0] != after.of_slot(slot).iter().next().unwrap());
    }
    let share = moved as f64 / SLOTS as f64;
    assert!((share - 1.0 / 6.0).abs() < 0.01, "{share} of the keys moved");
}

/// Of 200 nodes, and of those that join them one after another: what each has, and what its join moves.
#[test]
fn large_rings_are_even_and_joins_move_what_they_must() {
    let mut before = ring(&[1.0; 200], 1);
    let even = |ring: &Ring| {
        let shares = ring.shares();
        let mean = 1.0 / shares.len() as f64;
        assert!(shares.iter().all(|share| (share / mean - 1.0).abs() < 0.05), "{shares:?}");
    };
    even(&before);
    for nodes in 201..206 {
        let after = ring(&vec![1.0; nodes], 1);
        let moved = (0..SLOTS).filter(|&slot| before.row(slot) != after.row(slot)).count();
        let ideal = SLOTS as f64 / nodes as f64;
        assert!(moved as f64 <= 1.05 * ideal, "{moved} of {ideal} at {nodes}");
        even(&after);
        before = after;
    }
}

#[test]
fn another_weight_moves_the_keys_it_must() {
    // As many keys as the shares differ by, all to the member or all from it.
    let slots = |ring: &Ring| (0..ring.slots()).map(|s| ring.row(s).to_vec()).collect::<Vec<_>>();
    let before = ring(&[1.0; 10], 2);
    let old = slots(&before);
    for weight in [0.1, 0.5, 0.9, 1.1, 2.0, 10.0] {
        let mut weights = [1.0; 10];
        weights[3] = weight;
        let after = ring(&weights, 2);
        let differs = (after.shares()[3] - before.shares()[3]) * before.slots() as f64;
        let mut moved = 0u32;
        for (old, new) in old.iter().zip(slots(&after)) {
            let has = |row: &[u16]| row.contains(&3);
            match weight > 1.0 {
                true => assert!(!has(old) || has(&new), "{weight}: {old:?} to {new:?}"),
                false => assert!(has(old) || !has(&new), "{weight}: {old:?} to {new:?}"),
            }
            let others = |row: &[u16]| row.iter().copied().filter(|n| *n != 3).collect::<Vec<_>>();
            let (was, is) = (others(old), others(&new));
            let kept = was.len().min(is.len());
            assert_eq!(was[..kept], is[..kept], "others keep their order");
            moved += u32::from(old[0] != new[0]);
        }
        assert!((f64::from(moved) - differs.abs()).abs() < 0.5, "{weight}: {moved}, {differs}");
    }
}

#[test]
fn rings_that_cannot_be_are_named() {
    let member = |name: &str, weight| Member::new(name, weight);
    assert_eq!(Ring::new(vec![], 3), Err(RingError::Empty));
    let two = vec![member("a", 1.0), member("b", 1.0), member("a", 2.0)];
    assert_eq!(Ring::new(two, 3), Err(RingError::Duplicate("a".into())));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Ring::new(vec![member("a", weight)], 3).unwrap_err();
        assert!(matches!(error, RingError::Weight { .. }), "{weight}: {error}");
    }
    assert_eq!(Ring::new(vec![member("a", 1.0)], 0), Err(RingError::Replicas(0)));
}

#[test]
fn listed_members_keep_their_numbers() {
    let member = |name: &str, weight| Member::new(name, weight);
    let listed = |weights: [f64; 3]| {
        let names = ["c", "a", "b"].into_iter().zip(weights);
        Ring::listed(names.map(|(name, weight)| member(name, weight)).collect(), 2)
    };
    let (all, drained) = (listed([1.0; 3]).unwrap(), listed([1.0, 0.0, 1.0]).unwrap());
    assert_eq!((all.find("c"), all.find("a"), all.find("b")), (Some(0), Some(1), Some(2)));
    assert!(all.has_keys(1) && !drained.has_keys(1) && !drained.has_keys(7));
    for slot in 0..SLOTS {
        // The others move up, and nothing else moves.
        let stay: Vec<NodeId> = all.of_slot(slot).iter().filter(|&node| node != 1).collect();
        let now: Vec<NodeId> = drained.of_slot(slot).iter().collect();
        assert!(now.starts_with(&stay) && !now.contains(&1), "slot {slot}: {now:?}");
    }
    let json = serde_json::to_string(&drained).unwrap();
    assert_eq!(serde_json::from_str::<Ring>(&json).unwrap(), drained);
    assert_eq!(listed([0.0; 3]), Err(RingError::Empty));
}

#[test]
fn hot_nodes_have_no_keys_and_come_behind_a_keys_nodes() {
    let hot = |name: &str, weight| Member { hot: true, ..Member::new(name, weight) };
    let all = |third| {
        let mut members = vec![Member::new("a", 1.0), Member::new("b", 1.0), hot("h", 1.0)];
        members.extend([hot("i", 2.0), third]);
        Ring::coarse(members, 2, 12).unwrap()
    };
    let (few, more) = (all(hot("j", 0.0)), all(hot("j", 1.0)));
    let plain = Ring::coarse(few.members()[..2].to_vec(), 2, 12).unwrap();
    assert_eq!((few.hot_count(), more.hot_count(), plain.hot_count()), (2, 3, 0));
    assert!(few.has_keys(1) && !few.has_keys(2) && few.is_hot(2) && !few.is_hot(1));
    let mut first = [0; 5];
    for slot in 0..few.slots() {
        let hash = (slot as u64) << (64 - 12);
        assert_eq!(few.of_slot(slot), plain.of_slot(slot));
        assert_eq!(few.with_hot(hash, 0), few.of_slot(slot));
        let nodes: Vec<NodeId> = few.with_hot(hash, 9).iter().collect();
        assert!(nodes.len() == 4 && nodes[2..].iter().all(|&node| few.is_hot(node)));
        assert!((0..4).all(|node| few.may_hold(slot, node)) && !few.may_hold(slot, 4));
        first[nodes[2]] += 1;
        // Whoever joins the hot nodes moves no copies between the others.
        let joined = more.with_hot(hash, 9);
        let stay: Vec<NodeId> = joined.iter().filter(|&node| node != 4).collect();
        assert_eq!(stay, nodes);
    }
    let share = first[3] as f64 / few.slots() as f64;
    assert!((share - 2.0 / 3.0).abs() < 0.03, "{share}");
    assert_eq!(few.shares()[2..], [0.0; 3]);
    assert_ne!(few.fingerprint(), more.fingerprint());
    let json = serde_json::to_string(&more).unwrap();
    assert_eq!(serde_json::from_str::<Ring>(&json).unwrap(), more);
    assert_eq!(Ring::new(vec![hot("h", 1.0)], 1), Err(RingError::Empty));
    // A key has at most eight nodes in all.
    let mut members: Vec<Member> = (0..7).map(|i| Member::new(format!("n{i}"), 1.0)).collect();
    members.extend((0..3).map(|i| hot(&format!("h{i}"), 1.0)));
    assert_eq!(Ring::coarse(members, 7, 4).unwrap().hot_count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Members in any order are one ring; whoever leaves hands its keys on, and those of others stay.
    #[test]
    fn order_is_irrelevant_and_others_keys_stay(
        weights in prop::collection::vec(1u8..9, 2..8),
        turn in 0usize..8,
        leaves in 0usize..8,
        replicas in 1usize..4,
    ) {
        let member = |i: usize| Member::new(format!("n{i}"), f64::from(weights[i]));
        let count = weights.len();
        let mut members: Vec<Member> = (0..count).map(member).collect();
        let ring = Ring::coarse(members.clone(), replicas, 12).unwrap();
        members.rotate_left(turn % count);
        let turned = Ring::coarse(members, replicas, 12).unwrap();
        let leaves = leaves % count;
        let without = (0..count).map(member).map(|member| {
            let stays = member.name != format!("n{leaves}");
            Member { weight: if stays { member.weight } else { 0.0 }, ..member }
        });
        let without = Ring::coarse(without.collect(), replicas, 12).unwrap();
        for slot in 0..ring.slots() {
            let names = |ring: &Ring| -> Vec<String> {
                ring.of_slot(slot).iter().map(|node| ring.name(node).to_owned()).collect()
            };
            let all = names(&ring);
            prop_assert_eq!(&all, &names(&turned));
            let gone = format!("n{leaves}");
            let stay: Vec<String> = all.into_iter().filter(|name| *name != gone).collect();
            prop_assert!(names(&without).starts_with(&stay));
        }
    }

    #[test]
    fn agrees_with_ranking_all_members(
        quarters in prop::collection::vec(1u8..40, 1..12),
        replicas in 1usize..5,
    ) {
        let weights: Vec<f64> = quarters.iter().map(|&q| f64::from(q) / 4.0).collect();
        let ring = ring(&weights, replicas);
        for key in 0u32..500 {
            let nodes: Vec<NodeId> = ring.replicas(&key.to_be_bytes()).iter().collect();
            prop_assert_eq!(nodes, naive(&ring, &key.to_be_bytes()));
        }
        let json = serde_json::to_string(&ring).unwrap();
        prop_assert_eq!(serde_json::from_str::<Ring>(&json).unwrap(), ring);
    }
}
