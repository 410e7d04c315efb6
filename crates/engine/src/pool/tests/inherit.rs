//! Pools that take the place of others: what they know from them.

use super::*;

/// Pools with servers of some names in the pool `p`.
fn named(names: &[&str], change: impl FnOnce(&mut Settings)) -> Pools {
    let mut settings = settings(names.len(), Routing::Hash);
    for (server, name) in settings.servers.iter_mut().zip(names) {
        server.name = (*name).to_owned();
    }
    let servers = settings.servers.clone();
    settings.pools[0].ring =
        Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers).unwrap();
    settings.pools[0].on_failure = OnFailure::Move;
    change(&mut settings);
    settings.check().unwrap();
    pools(settings)
}

fn after(before: &Pools, names: &[&str], change: impl FnOnce(&mut Settings)) -> Pools {
    let mut pools = named(names, change);
    pools.inherit(before);
    pools
}

/// The servers that a write of a key goes to, or deletes it at.
fn written(pools: &mut Pools, ring: u32, id: u64) -> Vec<(String, Command)> {
    let keys = Keys::One(KeyHash { route: 0, ring, id });
    let (operation, recorded) = (Operation::Write, Recorded::Put);
    let event = Event::Request {
        request: id,
        client: 0,
        operation,
        recorded,
        keys,
        bytes: 1,
        deadline: SECOND,
    };
    let mut actions = Vec::new();
    pools.handle(1, event, &mut actions);
    let sent = actions.into_iter().filter_map(|action| match action {
        Action::Send { server, command, .. } => Some((pools.servers[server].name.clone(), command)),
        _ => None,
    });
    sent.collect()
}

fn stale(pools: &Pools) -> Vec<&str> {
    let stale = pools.servers.iter().filter(|server| server.stale);
    stale.map(|server| &*server.name).collect()
}

#[test]
fn what_fails_goes_on_failing_and_counts_go_on() {
    let mut before = named(&["a", "b"], |_| {});
    before.handle(5, Event::PingFailed { server: 0 }, &mut Vec::new());
    before.misses(1);
    before.pools[0].counts.refused_failed = 7;
    before.servers[1].flushes = 3;
    // In another order, with one more.
    let now = after(&before, &["b", "c", "a"], |_| {});
    let states = now.status(6).servers;
    assert_eq!(states[2].state, health::State::Suspect);
    assert_eq!((states[0].state, states[0].flushes), (health::State::Healthy, 3));
    assert_eq!(stale(&now), ["b"]);
    assert_eq!(now.status(6).pools[0].counts.refused_failed, 7);
    assert_eq!(now.outages(6)[2].failures, before.outages(6)[0].failures);
}

#[test]
fn a_server_that_was_taken_out_is_emptied_when_it_is_back() {
    let before = named(&["a", "b"], |_| {});
    let without = after(&before, &["a"], |_| {});
    assert!(stale(&without).is_empty());
    let again = after(&without, &["a", "b", "c"], |_| {});
    assert_eq!(stale(&again), ["b"]);
}

#[test]
fn a_write_deletes_its_key_where_an_earlier_ring_had_it() {
    let before = named(&["a", "b"], |_| {});
    let same = after(&before, &["a", "b"], |_| {});
    let mut grown = after(&same, &["a", "b", "c"], |_| {});
    let (mut elsewhere, steps) = (0, 64);
    for at in 0..steps {
        let ring = at * (u32::MAX / steps);
        let old = before.settings.pools[0].ring.server(ring);
        let old = before.servers[old].name.clone();
        let sent = written(&mut grown, ring, u64::from(at) + 1);
        let new = sent[0].0.clone();
        let rest: Vec<_> = sent[1..].to_vec();
        if new == old {
            assert!(rest.is_empty(), "{sent:?}");
        } else {
            assert_eq!((new.as_str(), rest), ("c", vec![(old, Command::Delete)]));
            elsewhere += 1;
        }
    }
    assert!((10..40).contains(&elsewhere), "{elsewhere}");
    assert!(stale(&grown).is_empty());
}

#[test]
fn where_a_key_was_by_another_hash_is_emptied() {
    let before = named(&["a", "b"], |_| {});
    let hash = |settings: &mut Settings| {
        let servers = settings.servers.clone();
        let ring = Ketama::new(Distribution::Ketama, Hash::Md5, None, &servers);
        settings.pools[0].ring = ring.unwrap();
    };
    assert_eq!(stale(&after(&before, &["a", "b", "c"], hash)), ["a", "b"]);
    // With one server every key is where it was.
    let before = named(&["a"], |_| {});
    assert!(stale(&after(&before, &["a"], hash)).is_empty());
}

#[test]
fn former_rings_are_bounded() {
    let mut pools = named(&["a", "b"], |_| {});
    for weight in 2..60 {
        let heavier = |settings: &mut Settings| {
            settings.servers[1].weight = weight;
            let servers = settings.servers.clone();
            let ring = Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers);
            settings.pools[0].ring = ring.unwrap();
        };
        pools = after(&pools, &["a", "b"], heavier);
        assert!(pools.pools[0].former.len() <= 32);
    }
    assert_eq!(stale(&pools), ["a", "b"], "the oldest were forgotten");
    // To and fro is two.
    let mut pools = named(&["a", "b"], |_| {});
    for _ in 0..20 {
        pools = after(&pools, &["a", "b", "c"], |_| {});
        pools = after(&pools, &["a", "b"], |_| {});
    }
    assert_eq!(pools.pools[0].former.len(), 1);
}
