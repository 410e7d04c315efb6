//! Reads of hot keys.

use super::*;
use crate::node::HotDirectory;

/// Two nodes and two hot nodes. All know who has what, so that all but the choice is given.
fn desk(spread: Spread) -> Desk {
    let hot = |name: &str| Member { hot: true, ..Member::new(name, 1.0) };
    let members = vec![Member::new("a", 1.0), Member::new("b", 1.0), hot("h"), hot("i")];
    let ring = Arc::new(Ring::new(members, 2).unwrap());
    Desk::new(Settings { spread, hedge: None, ..Settings::new(ring) })
}

fn name(desk: &mut Desk, version: u64, count: u8) {
    let directory = Arc::new(HotDirectory { version, keys: vec![(key_hash(KEY), count)] });
    let node = desk.order()[0];
    desk.tell(Event::HotKeys { node, directory });
    assert_eq!(desk.gateway.hot_version(node), version);
}

/// The nodes that reads go to that nobody answers.
fn nodes_of_reads(desk: &mut Desk, reads: usize) -> Vec<NodeId> {
    (0..reads).map(|_| sent(&desk.read()).1).collect()
}

#[test]
fn reads_of_hot_keys_spread_over_as_many_hot_nodes_as_are_named() {
    let mut desk = desk(Spread::Warm);
    let (order, ring) = (desk.order(), desk.gateway.settings.ring.clone());
    let hot: Vec<NodeId> = ring.with_hot(key_hash(KEY), 2).iter().skip(2).collect();
    assert!(nodes_of_reads(&mut desk, 3).iter().all(|&node| node == order[0]));
    name(&mut desk, 7, 1);
    let nodes = nodes_of_reads(&mut desk, 6);
    assert!(nodes.contains(&hot[0]) && !nodes.contains(&hot[1]) && !nodes.contains(&order[1]));
    name(&mut desk, 8, 2);
    assert!(nodes_of_reads(&mut desk, 9).contains(&hot[1]));
    assert_eq!(desk.gateway.status(desk.now).hot_keys, 1);
    // Writes go to the primary alone, and so do reads of which only another node says that they are hot.
    assert_eq!(sent(&desk.write()).1, order[0]);
    desk.tell(Event::HotKeys { node: order[0], directory: Arc::default() });
    name(&mut desk, 9, 0);
    assert!(nodes_of_reads(&mut desk, 9).iter().all(|&node| node == order[0]));
    let directory = Arc::new(HotDirectory { version: 1, keys: vec![(key_hash(KEY), 2)] });
    desk.tell(Event::HotKeys { node: order[1], directory });
    assert!(nodes_of_reads(&mut desk, 9).iter().all(|&node| node == order[0]));
}

#[test]
fn a_hot_node_that_declines_or_dies_costs_an_attempt() {
    let mut desk = desk(Spread::Warm);
    let order = desk.order();
    name(&mut desk, 1, 1);
    let hot = |desk: &mut Desk| loop {
        let (attempt, node) = sent(&desk.read());
        if !order.contains(&node) {
            return (attempt, node);
        }
    };
    let (attempt, node) = hot(&mut desk);
    desk.pass(MS);
    desk.answer(attempt, Status::Final);
    assert_eq!(desk.gateway.status(desk.now).counts.hot_reads, 1);
    let (attempt, _) = hot(&mut desk);
    let next = sent(&desk.answer(attempt, Status::Misdirected)).1;
    assert_eq!(next, order[0]);
    let (attempt, _) = hot(&mut desk);
    assert_eq!(sent(&desk.fail(attempt, Failed::Broken)).1, order[0]);
    assert_eq!(desk.state(node), State::Suspect);
    assert!(nodes_of_reads(&mut desk, 9).iter().all(|&node| node == order[0]));
    // A directory with more than there can be names those that there are.
    name(&mut desk, 2, u8::MAX);
    desk.read();
}

#[test]
fn where_only_primaries_serve_hot_nodes_do_not() {
    let mut desk = desk(Spread::Primary);
    let order = desk.order();
    name(&mut desk, 1, 2);
    assert!(nodes_of_reads(&mut desk, 9).iter().all(|&node| node == order[0]));
}

#[test]
fn reads_go_to_further_copies_while_they_are_told() {
    let members = ["a", "b", "c", "d"].map(|name| Member::new(name, 1.0)).to_vec();
    let ring = Arc::new(Ring::new(members, 2).unwrap());
    let settings = Settings { spread: Spread::All, hedge: None, ..Settings::new(ring) };
    let mut desk = Desk::new(settings);
    let order = desk.order();
    let further: Vec<NodeId> = (0..4).filter(|node| !order.contains(node)).collect();
    assert!(nodes_of_reads(&mut desk, 8).iter().all(|node| order.contains(node)));
    let tell = |desk: &mut Desk, nodes: Vec<NodeId>| {
        desk.tell(Event::Extras(Arc::new(vec![(key_hash(KEY), nodes), (7, vec![0])])));
    };
    // One of the key's own, and one that is no member, change nothing.
    tell(&mut desk, vec![further[0], order[0], 99]);
    let nodes = nodes_of_reads(&mut desk, 30);
    assert!(nodes.contains(&further[0]) && !nodes.contains(&further[1]), "{nodes:?}");
    assert_eq!(sent(&desk.write()).1, order[0]);
    // A node that has given its copy up costs an attempt.
    let attempt = loop {
        let (attempt, node) = sent(&desk.read());
        if node == further[0] {
            break attempt;
        }
    };
    assert!(order.contains(&sent(&desk.answer(attempt, Status::Misdirected)).1));
    tell(&mut desk, Vec::new());
    assert!(nodes_of_reads(&mut desk, 30).iter().all(|node| order.contains(node)));
}
