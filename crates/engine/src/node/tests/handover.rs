//! A node that hands over, event by event, and what a mutant changes.

use std::sync::Arc;

use super::*;
use crate::Size;
use crate::mutant::with;
use crate::route::{Member, Ring, View};

const LEASE: Nanos = 100;
const LAG: Nanos = 106;

/// One of two nodes, at time 0, and a key whose nodes are 0 and 1 in this order.
fn node(me: usize) -> (Node<Size>, Key) {
    let members = ["a", "b"].map(|name| Member::new(name.to_owned(), 1.0));
    let ring = Arc::new(Ring::coarse(members.to_vec(), 2, 6).unwrap());
    let keys = (0..100).map(|i| Key::from(format!("k{i}").into_bytes()));
    let key = keys.into_iter().find(|key| ring.replicas(key).place(0) == Some(0)).unwrap();
    let origin = OriginSettings { servers: 4, queue_length_max: 8 };
    let cluster = ClusterSettings {
        ring,
        me,
        lease: LEASE,
        view_lag: LAG,
        peers: origin.clone(),
        replicate_bytes_per_s: 0,
        warm_bytes_per_s: 0,
        hot_load_min: 0.01,
    };
    let settings = Settings {
        memory_bytes_max: 3_000,
        eviction: crate::tier::Eviction::default(),
        object_bytes_max: 2_000,
        revalidate: None,
        stale_if_error: 0,
        devices: Vec::new(),
        tiers: TierSettings::default(),
        origin,
        appends_bytes_max: 0,
        writes_waiting_max: 4,
        cluster: Some(cluster),
        windows: ground::window::Settings::default(),
    };
    (Node::new(settings, 0), key)
}

fn handle(node: &mut Node<Size>, now: Nanos, event: Event<Size>) -> Vec<Action<Size>> {
    let mut actions = Vec::new();
    node.handle(now, event, &mut actions);
    assert_eq!(node.invariants().count(), 0);
    actions
}

fn view(epoch: u64, live: [bool; 2], until: Nanos, first_handed_over: bool) -> Event<Size> {
    let handed_over = vec![first_handed_over, false];
    Event::View(View { epoch, live: live.to_vec(), until, ring: None, handed_over })
}

/// Node 0, settled, with a lease granted to node 1.
fn leads() -> (Node<Size>, Key) {
    let (mut node, key) = node(0);
    handle(&mut node, 0, view(1, [true, true], 100_000, false));
    let granted = handle(&mut node, 1_000, Event::LeaseAsked { peer: 1, epoch: Some(1) });
    assert!(matches!(granted[..], [Action::Grant { peer: 1, .. }]), "{granted:?}");
    (node, key)
}

fn write(node: &mut Node<Size>, now: Nanos, request: RequestId, key: &Key) -> Vec<Action<Size>> {
    handle(node, now, Event::WriteBegin { request, key: key.clone(), epoch: None })
}

fn has_turn(actions: &[Action<Size>]) -> bool {
    actions.iter().any(|action| matches!(action, Action::WriteTurn { .. }))
}

fn is_refused(actions: &[Action<Size>], of: RequestId) -> bool {
    let refused = |action: &Action<Size>| matches!(action, Action::Reply { request, reply: Reply::NotPrimary, .. } if *request == of);
    actions.iter().any(refused)
}

/// Checks that something holds, and that the mutant breaks it.
fn check(mutant: Mutant, holds: fn() -> bool) {
    assert!(holds(), "without {mutant:?}");
    assert!(!with(Some(mutant), holds), "{mutant:?} changes nothing");
}

#[test]
fn writes_under_way_end_and_no_other_begins() {
    check(Mutant::HandsOverWhileWriting, || {
        let (mut node, key) = leads();
        assert!(has_turn(&write(&mut node, 1_001, 1, &key)));
        assert!(write(&mut node, 1_001, 2, &key).is_empty());
        assert!(is_refused(&handle(&mut node, 1_002, Event::HandOver), 2));
        assert!(is_refused(&write(&mut node, 1_002, 3, &key), 3));
        let early = handle(&mut node, 1_003, Event::Returned { peer: 1, done: true });
        assert!(node.may_write(1_004, 1, &key));
        let ended = handle(&mut node, 1_005, Event::WriteEnd { request: 1, key, payload: None });
        assert!(ended.contains(&Action::WriteDone { request: 1, certain: true }), "{ended:?}");
        !early.contains(&Action::HandedOver) && ended.contains(&Action::HandedOver)
    });
}

#[test]
fn leases_are_taken_back_first() {
    check(Mutant::HandsOverLeased, || {
        let (mut node, _) = leads();
        let begun = handle(&mut node, 1_001, Event::HandOver);
        assert!(begun.contains(&Action::TakeBack { peer: 1 }), "{begun:?}");
        assert!(handle(&mut node, 1_002, Event::LeaseAsked { peer: 1, epoch: Some(1) }).is_empty());
        // Asked again after a failure.
        handle(&mut node, 1_003, Event::Returned { peer: 1, done: false });
        let again = handle(&mut node, 1_004, Event::Tick);
        let ended = handle(&mut node, 1_005, Event::Returned { peer: 1, done: true });
        !begun.contains(&Action::HandedOver)
            && again.contains(&Action::TakeBack { peer: 1 })
            && ended == [Action::HandedOver]
    });
}

#[test]
fn a_lease_that_was_given_back_is_not_revived() {
    check(Mutant::ReturnedLeaseRevived, || {
        let (mut node, _) = node(1);
        handle(&mut node, 0, view(1, [true, true], 100_000, false));
        let grant = |asked| Event::LeaseGranted { peer: 0, asked, term: LEASE };
        handle(&mut node, 1_000, grant(999));
        assert!(node.peers(1_000)[0].leased);
        handle(&mut node, 1_001, Event::Return { peer: 0 });
        assert!(!node.peers(1_001)[0].leased);
        handle(&mut node, 1_002, grant(1_000));
        let revived = node.peers(1_002)[0].leased;
        handle(&mut node, 1_003, grant(1_002));
        assert!(node.peers(1_003)[0].leased);
        !revived
    });
}

#[test]
fn copies_are_not_served_any_more() {
    check(Mutant::ServesAfterHandover, || {
        let (mut node, key) = leads();
        let asker = Asker::Client { avoid: None };
        let get =
            Event::Get { request: 1, key: key.clone(), asker, deadline: None, take: Take::Whole };
        let job = handle(&mut node, 1_001, get).into_iter().find_map(|action| match action {
            Action::Fetch { job, .. } => Some(job),
            _ => None,
        });
        let payload = Size { bytes: 7, stored_bytes: 9, etag: "1".into() };
        let fetched = Event::Fetched { job: job.unwrap(), result: Fetched::Found(payload) };
        handle(&mut node, 1_002, fetched);
        assert!(node.hit(1_003, &key, &mut Vec::new()).is_some());
        handle(&mut node, 1_004, Event::HandOver);
        node.hit(1_005, &key, &mut Vec::new()).is_none()
    });
}

#[test]
fn the_next_node_orders_at_once_unless_an_earlier_view_may_last() {
    check(Mutant::HandoverHidesEarlier, || {
        let (mut node, key) = node(1);
        handle(&mut node, 0, view(1, [false, true], 100_000, false));
        handle(&mut node, 1_000, view(2, [true, true], 100_000, false));
        assert!(is_refused(&write(&mut node, 2_000, 1, &key), 1));
        handle(&mut node, 2_000, view(3, [false, true], 100_000, true));
        assert!(has_turn(&write(&mut node, 2_000, 2, &key)));
        handle(&mut node, 2_001, Event::WriteEnd { request: 2, key: key.clone(), payload: None });
        // Node 0 is back, and hands over before it may order the key.
        handle(&mut node, 3_000, view(4, [true, true], 100_000, false));
        handle(&mut node, 3_010, view(5, [false, true], 100_000, true));
        let early = has_turn(&write(&mut node, 3_011, 3, &key));
        assert!(early || has_turn(&write(&mut node, 3_010 + LAG, 4, &key)));
        !early
    });
}

#[test]
fn a_write_under_way_may_end_while_nobody_else_may_act() {
    check(Mutant::GraceForEver, || {
        let (mut node, key) = node(1);
        handle(&mut node, 0, view(1, [false, true], 2_050, false));
        assert!(has_turn(&write(&mut node, 1_999, 1, &key)));
        handle(&mut node, 2_000, view(2, [true, true], 9_000, false));
        assert!(node.may_write(2_049, 1, &key));
        let late = node.may_write(2_050, 1, &key);
        let end = Event::WriteEnd { request: 1, key, payload: None };
        let ended = handle(&mut node, 2_049, end);
        assert!(ended.contains(&Action::WriteDone { request: 1, certain: true }), "{ended:?}");
        !late
    });
}

#[test]
fn a_node_that_has_handed_over_holds_no_lease() {
    check(Mutant::HandoverKeepsLeases, || {
        let (mut node, _) = node(1);
        handle(&mut node, 0, view(1, [true, true], 100_000, false));
        let grant = |asked| Event::LeaseGranted { peer: 0, asked, term: LEASE };
        handle(&mut node, 1_000, grant(999));
        assert!(node.peers(1_000)[0].leased);
        let ended = handle(&mut node, 1_001, Event::HandOver);
        assert!(ended.contains(&Action::HandedOver), "{ended:?}");
        // Neither does it ask for another, nor take one that was on its way.
        let asks = |actions: &[Action<Size>]| {
            actions.iter().any(|action| matches!(action, Action::AskLease { .. }))
        };
        assert!(!asks(&handle(&mut node, 1_050, Event::Tick)));
        let kept = node.peers(1_001)[0].leased;
        handle(&mut node, 1_002, grant(1_001));
        !kept && !node.peers(1_002)[0].leased
    });
}

/// Node 0 writes the key while node 1, which handed over, has a lease of it; whether the write ends at once.
fn ends_at_once(asked_in: Option<u64>) -> bool {
    let (mut node, key) = node(0);
    handle(&mut node, 0, view(1, [true, true], 100_000, false));
    handle(&mut node, 1_000, Event::LeaseAsked { peer: 1, epoch: asked_in });
    assert!(has_turn(&write(&mut node, 1_001, 1, &key)));
    let ended = Event::WriteEnd { request: 1, key, payload: None };
    let waits = handle(&mut node, 1_002, ended);
    assert!(waits.contains(&Action::Invalidate { peer: 1, key: node_key(&waits), request: 1 }));
    let handed_over = vec![false, true];
    let next = View { epoch: 2, live: vec![true, false], until: 100_000, ring: None, handed_over };
    let actions = handle(&mut node, 1_003, Event::View(next));
    actions.contains(&Action::WriteDone { request: 1, certain: true })
}

fn node_key(actions: &[Action<Size>]) -> Key {
    let key = |action: &Action<Size>| match action {
        Action::Invalidate { key, .. } => Some(key.clone()),
        _ => None,
    };
    actions.iter().find_map(key).unwrap()
}

/// The write used to wait for the lease to run out, and could be answered 503 although it was made if the node that had ended came
/// back and began to order the key meanwhile.
#[test]
fn writes_do_not_wait_for_a_node_that_has_handed_over() {
    assert!(ends_at_once(Some(1)));
    // A process that does not say when it asked may be a later one.
    assert!(!ends_at_once(None));
    check(Mutant::LaterLeaseEnded, || !ends_at_once(Some(3)));
}
