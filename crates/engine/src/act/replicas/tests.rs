mod world;

use super::*;

fn report_of(holders: &[(NodeId, f64)]) -> ShardReport {
    ShardReport {
        shard: 7,
        bytes: 100,
        homes: vec![0, 1],
        holders: holders.to_vec(),
        can_grow: false,
    }
}

fn room(node: NodeId, length: f64, bytes: u64) -> Room {
    Room { node, length, bytes }
}

/// Observes the same for a minute, and returns the orders but for renewals.
fn minute(extras: &mut Extras, now: &mut Nanos, seen: &ShardReport, nodes: &[Room]) -> Vec<Order> {
    let mut orders = Vec::new();
    for _ in 0..30 {
        *now += 2 * SECOND;
        let ordered = extras.observe(*now, std::slice::from_ref(seen), nodes);
        orders.extend(ordered.into_iter().filter(|order| !matches!(order, Order::Renew { .. })));
    }
    orders
}

#[test]
fn the_least_loaded_node_with_room_gets_the_copy() {
    let nodes = [room(0, 9.0, 500), room(2, 1.0, 99), room(3, 2.0, 500), room(4, 0.5, 500)];
    let check = |holders: &[(NodeId, f64)], nodes: &[Room], expected: Option<NodeId>| {
        let mut extras = Extras::new(Settings::default(), 0).unwrap();
        let orders = minute(&mut extras, &mut 0, &report_of(holders), nodes);
        let node = orders.first().map(|order| match order {
            Order::Add { node, average, expected, .. } => {
                assert!(expected < average);
                *node
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(node, expected, "{holders:?}");
    };
    check(&[(0, 9.0), (1, 12.0)], &nodes, Some(4));
    check(&[(0, 9.0), (1, 12.0)], &nodes[..3], Some(3));
    check(&[(0, 9.0), (1, 12.0)], &nodes[..2], None);
    // As busy as the shard's own nodes.
    check(&[(0, 9.0), (1, 12.0)], &[room(3, 20.0, 500)], None);
    // Not hot, and hot only by what one of the holders says.
    check(&[(0, 1.0), (1, 1.0)], &nodes, None);
    check(&[(0, 1e9), (1, 1.0)], &nodes, None);
    check(&[(0, f64::NAN), (1, f64::NAN)], &nodes, None);
    let growing = ShardReport { can_grow: true, ..report_of(&[(0, 9.0), (1, 9.0)]) };
    let mut extras = Extras::new(Settings::default(), 0).unwrap();
    assert_eq!(minute(&mut extras, &mut 0, &growing, &nodes), []);
}

#[test]
fn a_copy_is_renewed_while_it_is_needed_and_given_up_after() {
    let nodes = [room(3, 0.0, 500)];
    let mut extras = Extras::new(Settings::default(), 0).unwrap();
    let (mut now, hot) = (0, report_of(&[(0, 9.0), (1, 9.0)]));
    let orders = minute(&mut extras, &mut now, &hot, &nodes);
    assert!(matches!(orders[0], Order::Add { shard: 7, node: 3, .. }), "{orders:?}");
    extras.record_agreement(now, 7, 3);
    // While it is being made nothing further is asked for.
    assert_eq!(minute(&mut extras, &mut now, &hot, &nodes), []);
    let with = report_of(&[(0, 3.0), (1, 3.0), (3, 3.0)]);
    let renewals = (0..60).filter(|_| {
        now += 2 * SECOND;
        extras.record_agreement(now, 7, 3);
        let ordered = extras.observe(now, std::slice::from_ref(&with), &nodes);
        ordered.iter().any(|order| matches!(order, Order::Renew { .. }))
    });
    assert_eq!(renewals.count(), 0, "leased anew at each look");
    let idle = report_of(&[(0, 0.1), (1, 0.1), (3, 0.1)]);
    let orders = minute(&mut extras, &mut now, &idle, &nodes);
    assert!(matches!(orders[0], Order::Remove { shard: 7, node: 3, .. }), "{orders:?}");
    extras.gone(now, 7, 3);
    assert_eq!(extras.leased().count(), 0);
    // Not of the ring's own replicas.
    let home = report_of(&[(0, 0.1), (1, 0.1)]);
    assert_eq!(minute(&mut extras, &mut now, &home, &nodes), []);
}

#[test]
fn what_is_not_renewed_lapses_on_both_sides() {
    let mut extras = Extras::new(Settings::default(), 0).unwrap();
    extras.record_agreement(0, 7, 3);
    let with = report_of(&[(0, 3.0), (1, 3.0), (3, 3.0)]);
    let orders = extras.observe(31 * SECOND, std::slice::from_ref(&with), &[]);
    assert_eq!(orders, [Order::Renew { shard: 7, node: 3 }]);
    extras.observe(60 * SECOND, std::slice::from_ref(&with), &[]);
    assert_eq!(extras.leased().count(), 0);
    let mut leases = Leases::default();
    assert!(leases.grant(0, 7, 1, 100, 60 * SECOND, 100));
    assert!(leases.grant(0, 7, 2, 100, u64::MAX, 0), "it is there already");
    leases.release(7, 1);
    assert_eq!(leases.expire(61 * SECOND), [0; 0]);
    assert_eq!(leases.expire(LEASE_MAX), [7]);
    assert!(leases.grant(0, 8, 1, 100, SECOND, 100) && leases.grant(0, 9, 1, 100, SECOND, 100));
    assert_eq!((leases.shrink(100), leases.bytes()), (vec![9], 100));
    assert_eq!(leases.shards().collect::<Vec<_>>(), [8]);
}
