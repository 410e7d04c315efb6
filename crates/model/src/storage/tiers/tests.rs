use proptest::prelude::*;

use super::*;
use crate::cache::{Catalogue, Eviction, Keeps, Level, hierarchy};
use crate::distribution::Piece;
use crate::queue::{ArrivalLaw, Mm1};
use crate::storage::{Cluster, DeviceGroup, HitRatio, Member, Popularity};

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

fn queues(mean: f64, servers: u32, count: u32) -> Station {
    Station::Queues { class: Class::new(exponential(mean), servers), count }
}

fn tier(name: &str, share: f64, station: Station, delay: f64) -> Tier {
    Tier { name: name.to_owned(), share, station, delay }
}

/// Memory, two hot devices, four bulk devices, a peer behind a network, the origin.
fn five() -> Tiers {
    Tiers {
        tiers: vec![
            tier("memory", 0.5, Station::Delay(None), 0.0001),
            tier("hot", 0.3, queues(0.0005, 4, 2), 0.0002),
            tier("bulk", 0.15, queues(0.01, 1, 4), 0.0002),
            tier("replica", 0.04, queues(0.004, 8, 1), 0.001),
            tier("origin", 0.01, Station::Delay(Some(exponential(0.08))), 0.002),
        ],
    }
}

fn close(found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() <= error, "{found}, not {expected}");
}

#[test]
fn tiers_are_the_exact_mixture_of_their_queues() {
    let node = five();
    node.check().unwrap();
    let rate = 1_500.0;
    // Bulk: M/M/1 queues with 1,500·0.15/4 requests/s each.
    let disk = Mm1::new(56.25, 100.0).unwrap();
    for t in [0.0005, 0.004, 0.02, 0.05, 0.2] {
        let alone = |tier: usize| {
            let mut one = node.tiers[tier].clone();
            let rate = rate * one.share;
            one.share = 1.0;
            Tiers { tiers: vec![one] }.cdf(rate, &[t]).unwrap()[0]
        };
        close(alone(2), disk.response_cdf(t - 0.0002), 1e-3);
        let mixed: f64 = (0..5).map(|i| node.tiers[i].share * alone(i)).sum();
        close(node.cdf(rate, &[t]).unwrap()[0], mixed, 1e-9);
    }
    let operating = node.operating(rate).unwrap();
    let bulk = &operating.tiers[2];
    close(bulk.rate, 225.0, 1e-9);
    close(bulk.utilisation, 0.5625, 1e-9);
    close(bulk.response_mean, 0.0002 + disk.response_mean(), 1e-5);
    close(bulk.number_mean, disk.number_mean(), 1e-3);
    // Little's law over the whole.
    let number: f64 =
        operating.tiers.iter().zip([1.0, 2.0, 4.0, 1.0, 1.0]).map(|(t, n)| t.number_mean * n).sum();
    let delays: f64 = node.tiers.iter().map(|t| t.share * t.delay).sum();
    close(number / rate, operating.response_mean - delays, 1e-9);
    let p99 = node.quantile(rate, 0.99).unwrap();
    close(node.cdf(rate, &[p99]).unwrap()[0], 0.99, 1e-6);
}

#[test]
fn the_tier_that_breaks_first_is_named() {
    let mut node = five();
    // Bulk: 4/0.01/0.15 requests/s; hot 8/0.0005/0.3; replica 8/0.004/0.04.
    assert_eq!(node.breaks_first().unwrap().name, "bulk");
    close(node.saturation(), 4.0 / 0.01 / 0.15, 1e-6);
    let limit = node.confidence_limit();
    close(node.operating(limit).unwrap().tiers[2].number_mean, 1.0, 1e-6);
    assert!(matches!(node.cdf(node.saturation(), &[0.1]), Err(Error::Unstable { .. })));
    assert!(matches!(node.operating(f64::NAN), Err(Error::Invalid { .. })));
    let largest = node.largest_rate(0.05, 0.97).unwrap();
    assert!(node.cdf(largest, &[0.05]).unwrap()[0] >= 0.97);
    assert!(node.cdf(largest * 1.001, &[0.05]).unwrap()[0] < 0.97);
    assert!(matches!(node.largest_rate(0.001, 0.97), Err(Error::Unattainable { .. })));
    // More bulk devices, and another is the first.
    node.tiers[2].station = queues(0.01, 1, 40);
    assert_eq!(node.breaks_first().unwrap().name, "bulk");
    node.tiers[2].station = queues(0.01, 1, 100);
    assert_eq!(node.breaks_first().unwrap().name, "replica");
    // Delays alone never do.
    node.tiers.iter_mut().for_each(|t| t.station = Station::Delay(None));
    assert!(node.breaks_first().is_none());
    assert_eq!(node.saturation(), f64::INFINITY);
    assert_eq!(node.largest_rate(0.01, 0.9), Ok(f64::INFINITY));
    assert_eq!(node.confidence_limit(), f64::INFINITY);
}

#[test]
fn a_fitted_node_is_the_same_in_tiers() {
    let node = Node {
        hit_ratio: HitRatio::new(0.6, 0.0005).unwrap(),
        memory: Some(exponential(0.0003)),
        other_share: 0.02,
        other: Some(exponential(0.05)),
        delay: crate::storage::Delay::constant(0.0005),
        joining: 0.001,
        joining_knee: 5.0,
        link: None,
        workers: None,
        arrivals: ArrivalLaw::Poisson,
        classes: vec![Class::new(exponential(0.001), 4), Class::new(exponential(0.009), 1)],
        groups: vec![
            DeviceGroup { class: 0, count: 1, share: 0.6, factor: 1.0 },
            DeviceGroup { class: 1, count: 4, share: 0.1, factor: 1.1 },
        ],
    };
    for rate in [50.0, 400.0, 560.0] {
        let tiers = Tiers::of_node(&node, rate).unwrap();
        tiers.check().unwrap();
        let (at, of) = (node.operating(rate).unwrap(), tiers.operating(rate).unwrap());
        // Joined requests wait as others do in a node's CDF; in tiers they are requests to the
        // devices.
        let joined = at.joined_share / at.miss_ratio;
        close(of.tiers[0].share, at.hit_ratio, 1e-12);
        let busiest = of.tiers.iter().map(|t| t.utilisation).fold(0.0, f64::max);
        close(busiest * (1.0 - joined), at.utilisation_max, 1e-6);
        for t in [0.0008, 0.005, 0.03, 0.1] {
            let (ours, theirs) =
                (tiers.cdf(rate, &[t]).unwrap()[0], node.cdf(rate, &[t]).unwrap()[0]);
            close(ours, theirs, 1e-4 + joined * (1.0 - at.hit_ratio));
        }
    }
    let plain = Node { joining: 0.0, ..node };
    let tiers = Tiers::of_node(&plain, 400.0).unwrap();
    for t in [0.0008, 0.005, 0.03, 0.1] {
        close(tiers.cdf(400.0, &[t]).unwrap()[0], plain.cdf(400.0, &[t]).unwrap()[0], 1e-6);
    }
    close(
        tiers.operating(400.0).unwrap().response_mean,
        plain.operating(400.0).unwrap().response_mean,
        1e-9,
    );
    assert!(matches!(Tiers::of_node(&plain, 1e6), Err(Error::Unstable { .. })));
}

#[test]
fn hot_devices_take_what_is_popular() {
    let tracks = Catalogue::zipf(200_000, 0.9).unwrap().with_bytes(5e6).unwrap();
    let node = |hot_bytes: f64| {
        let memory = Level { bytes: 5e9, keeps: Keeps::Evicting(Eviction::Lru) };
        let hot = Level { bytes: hot_bytes, keeps: Keeps::MostPopular };
        let bulk = Level { bytes: 0.8e12, keeps: Keeps::Evicting(Eviction::Fifo) };
        let shares = hierarchy(&tracks, &[memory, hot, bulk]).unwrap();
        Tiers {
            tiers: vec![
                tier("memory", shares[0].share, Station::Delay(None), 0.0),
                tier("hot", shares[1].share, queues(0.0005, 4, 1), 0.0),
                tier("bulk", shares[2].share, queues(0.01, 1, 4), 0.0),
                tier("origin", shares[3].share, queues(0.05, 32, 1), 0.0),
            ],
        }
    };
    let mut last = 0.0;
    for hot_bytes in [0.0, 1e10, 1e11, 5e11] {
        let node = node(hot_bytes);
        node.check().unwrap();
        assert!(node.saturation() > last, "hot devices spare the others");
        last = node.saturation();
    }
}

#[test]
fn tiers_are_servers_of_a_cluster() {
    let member = |name: &str, server: Tiers, share| Member { name: name.to_owned(), server, share };
    let cluster =
        Cluster { members: vec![member("a", five(), 0.6), member("b", five(), 0.4)], delay: 0.0 };
    cluster.check().unwrap();
    let t = 0.02;
    let by_hand =
        0.6 * five().cdf(600.0, &[t]).unwrap()[0] + 0.4 * five().cdf(400.0, &[t]).unwrap()[0];
    close(cluster.cdf(1_000.0, &[t]).unwrap()[0], by_hand, 1e-12);
    let slow = cluster.with_speed("a", 0.5).unwrap();
    close(slow.saturation(), cluster.saturation() / 2.0, 1e-6);
    let more = cluster.with_memory("a", 1.6, Popularity::EQUAL).unwrap();
    let shares: Vec<f64> = more.members[0].server.tiers.iter().map(|t| t.share).collect();
    close(shares[0], 0.8, 1e-12);
    close(shares[1], 0.12, 1e-12);
    close(shares.iter().sum(), 1.0, 1e-12);
    let most = cluster.with_memory("a", 9.0, Popularity::EQUAL).unwrap();
    close(most.members[0].server.tiers[0].share, 1.0, 1e-12);
    assert_eq!(most.members[0].server.saturation(), f64::INFINITY);
    let alone = cluster.without("a", &[1.0], Popularity::EQUAL).unwrap();
    close(alone.members[0].server.tiers[0].share, 0.2, 1e-12);
    assert!(cluster.with_speed("a", f64::NAN).is_err());
    assert!(cluster.with_memory("a", 0.0, Popularity::EQUAL).is_err());
}

#[test]
fn impossible_tiers_are_errors() {
    let broken: [&dyn Fn(&mut Tiers); 6] = [
        &|n| n.tiers.clear(),
        &|n| n.tiers[0].share = 0.6,
        &|n| n.tiers[1].share = f64::NAN,
        &|n| n.tiers[1].delay = -1.0,
        &|n| n.tiers[1].station = queues(0.01, 1, 0),
        &|n| n.tiers[1].station = queues(0.01, 0, 1),
    ];
    for (i, damage) in broken.iter().enumerate() {
        let mut node = five();
        damage(&mut node);
        assert!(node.check().is_err(), "{i}");
        assert!(node.cdf(10.0, &[0.1]).is_err() && node.operating(10.0).is_err(), "{i}");
        assert!(node.largest_rate(0.1, 0.5).is_err() && node.quantile(1.0, 0.5).is_err(), "{i}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn cdfs_stay_within_bounds(
        tiers in prop::collection::vec(
            (0.01f64..1.0, 0.0001f64..0.05, 1u32..6, 1u32..6, 0.0f64..0.01, any::<bool>()), 1..5),
        part in 0.0f64..0.97, t in 0.0f64..0.3, later in 1.0f64..2.0,
    ) {
        let total: f64 = tiers.iter().map(|t| t.0).sum();
        let made = tiers.iter().map(|&(share, mean, servers, count, delay, queue)| {
            let law = if queue { queues(mean, servers, count) } else { Station::Delay(Some(exponential(mean))) };
            tier("a tier", share / total, law, delay)
        });
        let node = Tiers { tiers: made.collect() };
        prop_assert!(node.check().is_ok());
        let rate = node.saturation().min(1e5) * part;
        let now = node.cdf(rate, &[t, t * later]).unwrap();
        prop_assert!(now.iter().all(|p| (0.0..=1.0).contains(p)) && now[1] >= now[0] - 1e-7, "{now:?}");
        prop_assert!(node.cdf(rate * 0.9, &[t]).unwrap()[0] >= now[0] - 1e-7);
        let operating = node.operating(rate).unwrap();
        prop_assert!(operating.tiers.iter().all(|t| (0.0..1.0).contains(&t.utilisation)));
        prop_assert!(node.confidence_limit() <= node.saturation());
    }
}
