//! Which keys get hot nodes, and what hot nodes tell, by hand-written sequences of events.

use std::sync::Arc;

use ground::window::{Outcome, SECOND, key_hash};

use super::hot::{Driven, device, settings};
use super::*;
use crate::route::{Member, NodeId, Ring};

/// A node among `a` (a node with keys) and the hot nodes `h` and `i`, with one bulk device of 10 ms.
fn driven(me: NodeId, tiers: TierSettings) -> Driven {
    let hot = |name: &str| Member { hot: true, ..Member::new(name, 1.0) };
    let ring = Ring::new(vec![Member::new("a", 1.0), hot("h"), hot("i")], 2).unwrap();
    let cluster = ClusterSettings {
        ring: Arc::new(ring),
        me,
        lease: SECOND / 2,
        view_lag: 0,
        peers: OriginSettings { servers: 8, queue_length_max: 64 },
        replicate_bytes_per_s: 0,
        warm_bytes_per_s: 0,
        hot_load_min: 0.01,
    };
    let devices = vec![device("device/0", Outcome::BulkDevice, 1 << 30)];
    Driven::new(Settings { cluster: Some(cluster), devices, ..settings(0, tiers) })
}

fn quick() -> TierSettings {
    TierSettings { memory: 10 * SECOND, ..TierSettings::default() }
}

fn tell(driven: &mut Driven, peer: NodeId, bytes_max: u64, reads: Vec<(u64, u32)>) {
    driven.handle(Event::ReadsTold { peer, told: ReadsTold { bytes_max, reads } });
}

/// Lets a second pass, after which the node decides anew.
fn second(driven: &mut Driven) -> Vec<(u64, u8)> {
    driven.run_to(driven.now + SECOND);
    driven.handle(Event::Tick);
    driven.node.hot_directory().unwrap().keys.clone()
}

fn hash(key: &str) -> u64 {
    key_hash(key.as_bytes())
}

/// Reads a key this often in about a second.
fn reads(driven: &mut Driven, key: &str, times: u64) {
    for _ in 0..times {
        driven.get(key);
        driven.run_to(driven.now + SECOND / (2 * times));
    }
}

fn report(driven: &mut Driven) -> HotNodes {
    driven.node.tiers(driven.now).hot_nodes.unwrap()
}

#[test]
fn what_keeps_a_device_busy_gets_a_hot_node_and_keeps_it_while_that_one_is_read() {
    let mut driven = driven(0, quick());
    driven.handle(Event::Tick);
    (1..3).for_each(|peer| driven.handle(Event::LeaseAsked { peer, epoch: None }));
    assert_eq!(driven.node.hot_directory().unwrap().keys, []);
    let version = driven.node.hot_directory().unwrap().version;
    tell(&mut driven, 1, 1 << 20, Vec::new());
    // 20 reads a second of 10 ms each are a fifth of a device, one read in five seconds is nothing.
    driven.get("cold");
    reads(&mut driven, "k", 20);
    driven.others.clear();
    assert_eq!(second(&mut driven), [(hash("k"), 1)]);
    assert_ne!(driven.node.hot_directory().unwrap().version, version);
    let ring = driven.node.cluster.as_ref().unwrap().settings.ring.clone();
    let peer = ring.with_hot(hash("k"), 1).iter().nth(1).unwrap();
    let offers = |actions: &[Action<crate::Size>]| {
        let is = |action: &&Action<_>| matches!(action, Action::Offer { .. });
        actions.iter().filter(is).cloned().collect::<Vec<_>>()
    };
    let key = b"k"[..].into();
    let lease = driven.node.cluster.as_ref().unwrap().has_granted(peer, driven.now);
    assert_eq!(
        offers(&driven.others),
        if lease { vec![Action::Offer { peer, key }] } else { vec![] }
    );
    // The hot node serves it from now on, and tells so.
    for _ in 0..60 {
        tell(&mut driven, 1, 1 << 20, vec![(hash("k"), 20), (hash("unknown"), 20)]);
        assert_eq!(second(&mut driven), [(hash("k"), 1)]);
    }
    let told = report(&mut driven);
    assert_eq!((told.keys, told.is_hot, told.bought.reads), (1, false, 1200));
    assert!((told.bought.device_s - 12.0).abs() < 0.5, "{told:?}");
    let hottest = &told.hottest[0];
    assert!((hottest.reads_per_s - 20.0).abs() < 3.0 && (hottest.load - 0.2).abs() < 0.05);
    assert_eq!((hottest.key.as_str(), hottest.nodes.len(), told.moves.named), ("k", 1, 1));
    // When nobody reads it any more, it goes.
    for _ in 0..120 {
        tell(&mut driven, 1, 1 << 20, Vec::new());
        second(&mut driven);
    }
    let told = report(&mut driven);
    assert_eq!((told.keys, told.moves.dropped, told.moved[0].nodes), (0, 1, 0));
}

#[test]
fn hot_nodes_are_named_for_what_fits_and_only_while_they_are_there() {
    let mut driven = driven(0, TierSettings { fill: 1.0, ..quick() });
    driven.handle(Event::Tick);
    for key in ["a", "b", "c"] {
        reads(&mut driven, key, 10);
    }
    // Nobody tells of bytes.
    assert_eq!(second(&mut driven), []);
    let bytes = driven.node.index.get(&b"a"[..]).unwrap().bytes();
    tell(&mut driven, 2, 2 * bytes, Vec::new());
    reads(&mut driven, "c", 10);
    let named = second(&mut driven);
    assert!(named.len() == 2 && named.contains(&(hash("c"), 1)), "{named:?}");
    assert!(report(&mut driven).bytes <= 2 * bytes);
    // A hot node that is silent for long has no bytes.
    for _ in 0..20 {
        second(&mut driven);
    }
    assert_eq!((second(&mut driven), report(&mut driven).bytes_max), (vec![], 0));
    // What a node with keys says of bytes does not count, nor do strangers.
    tell(&mut driven, 0, 1 << 40, Vec::new());
    tell(&mut driven, 77, 1 << 40, vec![(hash("c"), u32::MAX)]);
    assert_eq!(second(&mut driven), []);
}

#[test]
fn pins_get_hot_nodes_and_a_beat_moves_no_more_bytes_than_it_may() {
    let tiers = TierSettings {
        pins: vec![Pin::Prefix(b"p".to_vec())],
        promote_bytes_per_s: 15_000,
        ..quick()
    };
    let mut driven = driven(0, tiers);
    driven.handle(Event::Tick);
    for key in ["p1", "p2", "p3", "other"] {
        driven.get(key);
        driven.get(key);
        driven.run_to(driven.now + 100 * SECOND);
    }
    // Long not read: only pins are worth it, at 10,000 bytes each one in a beat.
    for key in ["p1", "p2", "p3", "other"] {
        driven.get(key);
        driven.get(key);
    }
    tell(&mut driven, 1, 1 << 20, Vec::new());
    for named in 1..4 {
        assert_eq!(second(&mut driven).len(), named);
    }
    assert!(second(&mut driven).iter().all(|(key, _)| *key != hash("other")));
    let told = report(&mut driven);
    assert!(told.moves.put_off >= 2 && told.hottest.iter().all(|key| key.pinned), "{told:?}");
}

#[test]
fn a_hot_node_tells_primaries_what_it_served_and_takes_only_its_own_keys() {
    let mut driven = driven(1, quick());
    driven.handle(Event::Tick);
    let asked = |action: &Action<crate::Size>| match action {
        Action::AskLease { peer, .. } => Some(*peer),
        _ => None,
    };
    let asked: Vec<NodeId> = driven.others.iter().filter_map(asked).collect();
    assert_eq!(asked, [0], "a lease from a hot node is of no use");
    driven.others.clear();
    for _ in 0..3 {
        driven.get("k");
    }
    driven.get("l");
    assert_eq!(second(&mut driven), []);
    let told = driven.others.iter().find_map(|action| match action {
        Action::TellReads { peer, told } => Some((*peer, told.clone())),
        _ => None,
    });
    let reads = vec![(hash("k"), 3), (hash("l"), 1)];
    assert_eq!(told, Some((0, ReadsTold { bytes_max: 1 << 30, reads })));
    assert_eq!((report(&mut driven).served, report(&mut driven).is_hot), (4, true));
    // It orders no writes, whoever is there.
    driven.others.clear();
    let mut actions = Vec::new();
    let (request, key): (_, Key) = (99, b"k"[..].into());
    driven.node.handle(driven.now, Event::WriteBegin { request, key, epoch: None }, &mut actions);
    assert!(matches!(&actions[..], [Action::Reply { reply: Reply::NotPrimary, .. }]));
}

#[test]
fn a_load_gets_as_many_hot_nodes_as_devices_it_keeps_busy_and_one() {
    let nodes = |load, before| crate::node::hot::keys::nodes_for(load, before, 1.5);
    assert_eq!((nodes(0.0, 0), nodes(0.9, 0), nodes(1.0, 0), nodes(2.5, 0)), (1, 1, 2, 3));
    assert_eq!((nodes(0.9, 2), nodes(0.5, 2), nodes(0.9, 4)), (2, 1, 2));
    assert_eq!((nodes(1e9, 0), nodes(f64::NAN, 0), nodes(0.0, 200)), (4, 1, 1));
}
