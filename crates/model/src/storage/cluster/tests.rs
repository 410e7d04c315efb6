use proptest::prelude::*;

use super::*;
use crate::Error;
use crate::distribution::{Empirical, Piece};
use crate::queue::ArrivalLaw;
use crate::storage::{Class, DeviceGroup, HitRatio, Node, Popularity, Spotify, cluster_cdf};

fn exponential(mean: f64) -> Empirical {
    let pieces = (0..400).map(|i| {
        let (low, high) = (f64::from(i) * 0.04, f64::from(i + 1) * 0.04);
        Piece {
            centre: mean * 0.5 * (low + high),
            half_width: mean * 0.02,
            share: (-low).exp() - (-high).exp(),
        }
    });
    Empirical::from_pieces(pieces.collect()).unwrap().with_moments(mean, 1.0).unwrap()
}

/// A node of exponential disks with 1/µ = `mean` and nothing else: the published server.
fn node(q0: f64, mean: f64, devices: u32) -> Node {
    Node {
        hit_ratio: HitRatio::new(q0, 0.0).unwrap(),
        memory: None,
        other_share: 0.0,
        other: None,
        delay: crate::storage::Delay::constant(0.0),
        joining: 0.0,
        joining_knee: f64::INFINITY,
        link: None,
        workers: None,
        arrivals: ArrivalLaw::Poisson,
        classes: vec![Class::new(exponential(mean), 1)],
        groups: vec![DeviceGroup {
            class: 0,
            count: devices,
            share: 1.0 / f64::from(devices),
            factor: 1.0,
        }],
    }
}

fn cluster_of<S: Clone>(servers: &[(S, f64)]) -> Cluster<S> {
    let named = servers.iter().enumerate().map(|(i, (server, share))| Member {
        name: char::from(b'a' + i as u8).to_string(),
        server: server.clone(),
        share: *share,
    });
    Cluster { members: named.collect(), delay: 0.0 }
}

fn close(found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() < error, "{found}, not {expected}");
}

#[test]
fn a_cluster_is_the_exact_mixture_of_its_servers() {
    let (fast, slow) = (node(0.5, 0.008, 4), node(0.2, 0.012, 2));
    let cluster =
        Cluster { delay: 0.0004, ..cluster_of(&[(fast.clone(), 0.7), (slow.clone(), 0.3)]) };
    let rate = 300.0;
    for t in [0.0003, 0.001, 0.02, 0.05, 0.2] {
        let exact = 0.7 * fast.cdf(210.0, &[t - 0.0004]).unwrap()[0]
            + 0.3 * slow.cdf(90.0, &[t - 0.0004]).unwrap()[0];
        close(cluster.cdf(rate, &[t]).unwrap()[0], exact, 1e-12);
    }
    let p90 = cluster.quantile(rate, 0.9).unwrap();
    close(cluster.cdf(rate, &[p90]).unwrap()[0], 0.9, 1e-6);
    let operating = cluster.operating(rate).unwrap();
    close(operating.hit_ratio, 0.7 * 0.5 + 0.3 * 0.2, 1e-12);
    close(operating.utilisation_max, 90.0 * 0.8 * 0.012 / 2.0, 1e-9);
    let mean = 0.7 * fast.operating(210.0).unwrap().response_mean
        + 0.3 * slow.operating(90.0).unwrap().response_mean;
    close(operating.response_mean, 0.0004 + mean, 1e-12);
    // The first server to end is the slow one, at 2/0.012/0.8 requests/s of its own.
    close(cluster.saturation(), 2.0 / 0.012 / 0.8 / 0.3, 1e-6);
    close(cluster.confidence_limit(), slow.confidence_limit() / 0.3, 1e-6);
    let beyond = cluster.saturation() * 1.001;
    assert!(matches!(cluster.cdf(beyond, &[0.1]), Err(Error::Unstable { .. })));
    assert!(matches!(cluster.operating(beyond), Err(Error::Unstable { .. })));
}

#[test]
fn exponential_nodes_are_the_published_cluster() {
    let servers = [(0.6, 93.0), (0.5, 120.0), (0.7, 93.0)];
    let published =
        servers.map(|(q, mu)| Spotify::new(HitRatio::new(q, 0.0).unwrap(), mu, 1.0).unwrap());
    let nodes = cluster_of(&servers.map(|(q, mu)| (node(q, 1.0 / mu, 1), 1.0 / 3.0)));
    let theirs = cluster_of(&published.map(|server| (server, 1.0 / 3.0)));
    for rate in [10.0, 200.0, 500.0] {
        for t in [0.005, 0.02, 0.05, 0.1] {
            let expected = cluster_cdf(&published, rate, t).unwrap();
            close(theirs.cdf(rate, &[t]).unwrap()[0], expected, 1e-12);
            close(nodes.cdf(rate, &[t]).unwrap()[0], expected, 1e-3);
        }
    }
    close(nodes.confidence_limit() / theirs.confidence_limit(), 1.0, 1e-3);
    close(nodes.saturation() / theirs.saturation(), 1.0, 1e-9);
}

#[test]
fn equal_servers_have_the_published_limit() {
    for (name, mu, alpha, q0, n) in
        [("small", 93.0, 0.0137, 0.946, 5u32), ("large", 120.0, 0.0058, 1.15, 3)]
    {
        let server = Spotify::new(HitRatio::new(q0, alpha).unwrap(), mu, 1.0).unwrap();
        let cluster = cluster_of(&vec![(server, 1.0 / f64::from(n)); n as usize]);
        let limit = cluster.confidence_limit_unplaced();
        close(limit, server.cluster_confidence_limit(n), 1e-9 * limit);
        let placed = cluster.confidence_limit();
        close(placed, f64::from(n) * server.confidence_limit(), 1e-6);
        assert!(limit < placed, "{name}: what is not known costs");
    }
    // With unequal shares the server with the largest is the first.
    let server = Spotify::new(HitRatio::new(0.5, 0.0).unwrap(), 100.0, 1.0).unwrap();
    let uneven = cluster_of(&[(server, 0.5), (server, 0.25), (server, 0.25)]);
    close(uneven.confidence_limit(), 100.0 / 0.5, 1e-9);
    let even = server.cluster_confidence_limit(3);
    close(uneven.confidence_limit_unplaced(), even / 3.0 / 0.5, 1e-9);
}

#[test]
fn a_lost_node_leaves_its_keys_and_less_memory_for_each() {
    let cluster = cluster_of(&[
        (node(0.6, 0.01, 2), 0.5),
        (node(0.6, 0.01, 2), 0.25),
        (node(0.4, 0.01, 2), 0.25),
    ]);
    let after = cluster.without("b", &[0.625, 0.375], Popularity::EQUAL).unwrap();
    let names: Vec<&str> = after.members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    // Equally popular objects: 0.6 · 0.5/0.625 and 0.4 · 0.25/0.375.
    let hits = [0.48, 0.4 / 1.5];
    for (member, hit) in after.members.iter().zip(hits) {
        close(member.server.hit_ratio.at_rate(100.0), hit, 1e-12);
    }
    let by_hand = cluster_of(&[(node(0.48, 0.01, 2), 0.625), (node(0.4 / 1.5, 0.01, 2), 0.375)]);
    for t in [0.01, 0.05] {
        let found = after.cdf(150.0, &[t]).unwrap()[0];
        close(found, by_hand.cdf(150.0, &[t]).unwrap()[0], 1e-12);
    }
    // What was asked for of one catalogue is asked for of a larger: fewer are joined.
    let joining = Node { joining: 0.01, ..node(0.6, 0.01, 2) };
    let after = cluster_of(&[(joining.clone(), 0.5), (joining, 0.5)]).without(
        "a",
        &[1.0],
        Popularity::EQUAL,
    );
    close(after.unwrap().members[0].server.joining, 0.005, 1e-15);
    // Skewed popularity: the half that is lost was asked for less.
    let zipf = Popularity::zipf(0.75).unwrap();
    let after = cluster.without("b", &[0.625, 0.375], zipf).unwrap();
    close(after.members[0].server.hit_ratio.q0(), 0.6 * 0.8f64.powf(0.25), 1e-12);
}

#[test]
fn hits_follow_the_law_of_popularity_that_is_given() {
    use crate::cache::{Cache, Catalogue, Eviction};
    let cache = Cache::new(Catalogue::zipf(50_000, 0.9).unwrap(), Eviction::Lru);
    let (curve, hits) = (cache.curve(), |bytes: f64| cache.with_memory(bytes).unwrap().hit_ratio);
    let now = hits(2_000.0);
    let cluster = cluster_of(&[(node(now, 0.01, 2), 0.5), (node(now, 0.01, 2), 0.5)]);
    let hit = |cluster: &Cluster, i: usize| cluster.members[i].server.hit_ratio.at_rate(10.0);
    // Twice the memory; the other node's keys too, which is half the memory for each; and both.
    let more = cluster.with_memory("a", 2.0, &curve).unwrap();
    close(hit(&more, 0), hits(4_000.0), 1e-3);
    close(hit(&more, 1), now, 1e-12);
    let lost = cluster.without("b", &[1.0], &curve).unwrap();
    close(hit(&lost, 0), hits(1_000.0), 1e-3);
    let both = more.without("b", &[1.0], &curve).unwrap();
    close(hit(&both, 0), now, 1e-9);
    // Equally popular objects would lose half of the hits, the popular ones of this law less.
    let equal = cluster.without("b", &[1.0], Popularity::EQUAL).unwrap();
    assert!(hit(&lost, 0) > 1.3 * hit(&equal, 0));
    // The published model follows the same.
    let published = Spotify::new(HitRatio::new(now, 0.0).unwrap(), 100.0, 4.0).unwrap();
    let theirs = cluster_of(&[(published, 1.0)]).with_memory("a", 2.0, &curve).unwrap();
    close(theirs.members[0].server.hit_ratio().at_rate(10.0), hits(4_000.0), 1e-3);
    // A line that falls is asked at the largest load that was fitted, and scaled as a whole.
    let line = HitRatio::new(now + 0.1, 1e-3).unwrap().held_from(100.0);
    close(line.changed(&curve, 2.0).unwrap().at_rate(100.0), hits(4_000.0), 1e-3);
}

#[test]
fn speed_memory_and_weights_change_what_they_should() {
    let cluster = cluster_of(&[(node(0.4, 0.01, 1), 0.5), (node(0.4, 0.01, 1), 0.5)]);
    let slow = cluster.with_speed("a", 0.5).unwrap();
    let by_hand = cluster_of(&[(node(0.4, 0.02, 1), 0.5), (node(0.4, 0.01, 1), 0.5)]);
    let more = cluster.with_memory("b", 1.5, Popularity::EQUAL).unwrap();
    let most = cluster.with_memory("b", 5.0, Popularity::EQUAL).unwrap();
    for t in [0.01, 0.03, 0.1] {
        let found = slow.cdf(80.0, &[t]).unwrap()[0];
        close(found, by_hand.cdf(80.0, &[t]).unwrap()[0], 1e-9);
    }
    close(slow.saturation(), cluster.saturation() / 2.0, 1e-6);
    close(more.members[1].server.hit_ratio.at_rate(10.0), 0.6, 1e-12);
    close(most.members[1].server.hit_ratio.at_rate(10.0), 1.0, 1e-12);
    assert!(most.largest_rate(0.05, 0.95).unwrap() > cluster.largest_rate(0.05, 0.95).unwrap());
    // The slow one with a third of the load.
    let weighed = slow.with_shares(&[1.0 / 3.0, 2.0 / 3.0], Popularity::EQUAL).unwrap();
    close(weighed.members[0].server.hit_ratio.at_rate(10.0), 0.6, 1e-12);
    close(weighed.members[1].server.hit_ratio.at_rate(10.0), 0.3, 1e-12);
    // The published model changes with ours.
    let theirs = cluster_of(
        &[(Spotify::new(HitRatio::new(0.4, 0.0).unwrap(), 100.0, 1.0).unwrap(), 0.5); 2],
    );
    for change in [
        Change::Speed { name: "a".to_owned(), factor: 0.5 },
        Change::Memory { name: "b".to_owned(), factor: 1.5 },
        Change::Shares(vec![0.4, 0.6]),
        Change::Without { name: "a".to_owned(), shares_after: vec![1.0] },
    ] {
        let ours = cluster.changed(&change, Popularity::EQUAL).unwrap();
        let theirs = theirs.changed(&change, Popularity::EQUAL).unwrap();
        let (found, expected) =
            (ours.cdf(70.0, &[0.03]).unwrap(), theirs.cdf(70.0, &[0.03]).unwrap());
        close(found[0], expected[0], 1e-3);
    }
}

#[test]
fn impossible_clusters_and_changes_are_errors() {
    let good = cluster_of(&[(node(0.5, 0.01, 1), 0.5), (node(0.5, 0.01, 1), 0.5)]);
    assert!(good.check().is_ok());
    let broken: [&dyn Fn(&mut Cluster); 6] = [
        &|c| c.members.clear(),
        &|c| c.members[1].name = "a".to_owned(),
        &|c| c.members[0].share = 0.6,
        &|c| c.members[0].share = f64::NAN,
        &|c| c.delay = -1.0,
        &|c| c.members[0].server.groups.clear(),
    ];
    for (i, damage) in broken.iter().enumerate() {
        let mut cluster = good.clone();
        damage(&mut cluster);
        assert!(cluster.check().is_err(), "{i}");
        assert!(!cluster.within(0.05)(10.0).is_nan() || i == 3, "{i}");
    }
    let p = Popularity::EQUAL;
    let missing = good.with_speed("x", 0.5).unwrap_err().to_string();
    assert!(missing.contains("\"x\"") && missing.contains("a, b"), "{missing}");
    assert!(good.with_speed("a", 0.0).is_err() && good.with_speed("a", f64::NAN).is_err());
    assert!(good.with_memory("a", -1.0, p).is_err() && good.with_memory("a", 0.0, p).is_err());
    assert!(matches!(good.without("a", &[0.5, 0.5], p), Err(Error::Shares { .. })));
    assert!(good.without("a", &[0.9], p).is_err(), "shares that do not add to 1");
    assert!(good.without("a", &[1.0], p).unwrap().without("b", &[], p).is_err(), "the last");
    assert!(good.with_shares(&[1.5, -0.5], p).is_err());
    assert!(good.with_shares(&[1.0, 0.0], p).unwrap().with_shares(&[0.5, 0.5], p).is_err());
    assert!(Popularity::new(1.5).is_err() && Popularity::zipf(1.0).is_err());
}

#[test]
fn a_server_without_load_answers_nothing_and_limits_nothing() {
    let alone = cluster_of(&[(node(0.5, 0.01, 1), 1.0)]);
    let beside = cluster_of(&[(node(0.5, 0.01, 1), 1.0), (node(0.0, 1.0, 1), 0.0)]);
    close(beside.saturation(), alone.saturation(), 1e-9);
    close(beside.cdf(90.0, &[0.02]).unwrap()[0], alone.cdf(90.0, &[0.02]).unwrap()[0], 1e-12);
    let (a, b) = (alone.operating(90.0).unwrap(), beside.operating(90.0).unwrap());
    close(b.response_mean, a.response_mean, 1e-12);
    let memory =
        cluster_of(&[(Spotify::new(HitRatio::new(1.0, 0.0).unwrap(), 1.0, 1.0).unwrap(), 1.0)]);
    assert_eq!(memory.saturation(), f64::INFINITY);
    assert_eq!(memory.largest_rate(0.01, 0.99), Ok(f64::INFINITY));
}

proptest! {
    #[test]
    fn cdfs_stay_within_bounds_and_grow_with_time(
        nodes in prop::collection::vec((0.0f64..1.0, 0.002f64..0.03, 1u32..4, 0.01f64..1.0), 1..6),
        t in 0.0f64..0.3, later in 1.0f64..2.0, part in 0.0f64..0.99, delay in 0.0f64..0.01,
    ) {
        let total: f64 = nodes.iter().map(|n| n.3).sum();
        let servers: Vec<_> =
            nodes.iter().map(|&(q, mean, k, w)| (node(q, mean, k), w / total)).collect();
        let cluster = Cluster { delay, ..cluster_of(&servers) };
        prop_assert!(cluster.check().is_ok());
        let rate = cluster.saturation().min(1e6) * part;
        let now = cluster.cdf(rate, &[t, t * later]).unwrap();
        prop_assert!(now.iter().all(|p| (0.0..=1.0).contains(p)), "{now:?}");
        prop_assert!(now[1] >= now[0] - 1e-7, "{now:?}");
        let lighter = cluster.cdf(rate * 0.9, &[t]).unwrap()[0];
        prop_assert!(lighter >= now[0] - 1e-7, "{lighter} {now:?}");
        prop_assert!(cluster.confidence_limit() <= cluster.saturation() * (1.0 + 1e-9));
        prop_assert!(cluster.confidence_limit_unplaced() <= cluster.confidence_limit() * (1.0 + 1e-9));
    }

    #[test]
    fn a_slower_or_smaller_node_never_helps(
        q in 0.1f64..0.9, speed in 0.2f64..1.0, memory in 0.1f64..1.0, part in 0.05f64..0.95,
        t in 0.005f64..0.2, exponent in 0.0f64..1.0,
    ) {
        let cluster = cluster_of(&[(node(q, 0.01, 2), 0.6), (node(q, 0.008, 2), 0.4)]);
        let popularity = Popularity::new(exponent).unwrap();
        let slower = cluster.with_speed("a", speed).unwrap();
        let smaller = cluster.with_memory("a", memory, popularity).unwrap();
        for worse in [slower, smaller] {
            let rate = worse.saturation() * part;
            let (before, after) =
                (cluster.cdf(rate, &[t]).unwrap()[0], worse.cdf(rate, &[t]).unwrap()[0]);
            prop_assert!(after <= before + 1e-7, "{before} {after}");
        }
    }

    #[test]
    fn changes_take_any_numbers(
        shares in prop::collection::vec(any::<f64>(), 0..4), factor in any::<f64>(),
        exponent in any::<f64>(), rate in any::<f64>(), t in any::<f64>(),
    ) {
        let server = Spotify::new(HitRatio::new(0.5, 0.001).unwrap(), 100.0, 1.0).unwrap();
        let cluster = cluster_of(&[(server, 0.5), (server, 0.3), (server, 0.2)]);
        let popularity = Popularity::new(exponent).unwrap_or(Popularity::EQUAL);
        let name = || "b".to_owned();
        for change in [
            Change::Without { name: name(), shares_after: shares.clone() },
            Change::Shares(shares.clone()),
            Change::Speed { name: name(), factor },
            Change::Memory { name: name(), factor },
        ] {
            if let Ok(changed) = cluster.changed(&change, popularity)
                && let Ok(p) = changed.cdf(rate, &[t])
            {
                prop_assert!((0.0..=1.0).contains(&p[0]), "{p:?}");
            }
        }
    }
}
