use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::storage::{HitRatio, Spotify, effective_objects, weighted_limit};

fn close(found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() <= error, "{found}, not {expected}");
}

/// The naive twin: every object placed, one by one. The mean of the fullest node's share and its 95
/// % point.
fn placed(weights: &[f64], servers: usize, placements: u32) -> (f64, f64) {
    let mut rng = StdRng::seed_from_u64(17);
    let total: f64 = weights.iter().sum();
    let mut largest: Vec<f64> = (0..placements)
        .map(|_| {
            let mut shares = vec![0.0f64; servers];
            weights.iter().for_each(|w| shares[rng.random_range(0..servers)] += w / total);
            shares.into_iter().fold(0.0, f64::max)
        })
        .collect();
    largest.sort_by(f64::total_cmp);
    let mean = largest.iter().sum::<f64>() / f64::from(placements);
    (mean, largest[(0.95 * f64::from(placements)) as usize])
}

fn zipf(objects: u32, exponent: f64) -> Vec<f64> {
    (1..=objects).map(|k| f64::from(k).powf(-exponent)).collect()
}

#[test]
fn the_largest_of_normal_variables_has_its_known_mean() {
    // n = 1, 2, 3: 0, 1/√π, 3/(2√π); 10 and 100 from tables of normal order statistics.
    let pi = std::f64::consts::PI;
    for (n, mean) in [
        (1, 0.0),
        (2, 1.0 / pi.sqrt()),
        (3, 1.5 / pi.sqrt()),
        (10, 1.538_752_730_8),
        (100, 2.507_593_64),
    ] {
        close(normal_max(n)[0], mean, 1e-8);
    }
    // Mean squares: of one, and of the larger of two, 1; of three 1 + √3/(2π).
    for (n, square) in [(1, 1.0), (2, 1.0), (3, 1.0 + 3f64.sqrt() / (2.0 * pi))] {
        close(normal_max(n)[1], square, 1e-8);
    }
    assert!((6.0..7.0).contains(&normal_max(u32::MAX)[0]));
}

#[test]
fn many_small_objects_are_as_placed() {
    for (objects, exponent, servers) in [
        (20_000u32, 0.0, 2usize),
        (20_000, 0.0, 25),
        (20_000, 0.5, 10),
        (20_000, 0.7, 5),
        (20_000, 0.8, 5),
        (20_000, 0.75, 10),
    ] {
        let weights = zipf(objects, exponent);
        let imbalance =
            Imbalance::new(servers as u32, &Catalogue::zipf(u64::from(objects), exponent).unwrap())
                .unwrap();
        let (mean, p95) = placed(&weights, servers, 400);
        let n = servers as f64;
        println!(
            "{objects} objects, s {exponent}, {servers} servers: mean {:.4} for {:.4}, 95 % {:.4} for {:.4}, bound {:.4}",
            n * imbalance.share_max_mean(),
            n * mean,
            n * imbalance.share_max_quantile(0.95).unwrap(),
            n * p95,
            n * imbalance.share_max_bound(),
        );
        let exceed = |share: f64| {
            let drawn = imbalance.sample_shares(400, &mut StdRng::seed_from_u64(4)).unwrap();
            drawn.iter().filter(|s| **s > share).count() as f64 / 400.0
        };
        println!(
            "    exceed the bound: {}, the quantile: {}",
            exceed(imbalance.share_max_bound()),
            exceed(imbalance.share_max_quantile(0.95).unwrap()),
        );
        assert!(exceed(imbalance.share_max_bound()) > 0.03, "it is no bound of most placements");
        let excess = mean * n - 1.0;
        close(n * imbalance.share_max_mean() - 1.0, excess, 0.08 * excess);
        close(n * imbalance.share_max_quantile(0.95).unwrap() - 1.0, p95 * n - 1.0, 0.15 * excess);
        assert!(imbalance.share_max_bound() > imbalance.share_max_mean());
        close(imbalance.effective_objects() / effective_objects(&weights).unwrap(), 1.0, 1e-6);
    }
}

#[test]
fn few_popular_objects_are_as_drawn() {
    for (exponent, servers) in
        [(0.8, 10usize), (0.8, 20), (0.9, 25), (1.2, 10), (1.0, 40), (0.7, 40), (0.6, 40)]
    {
        let weights = zipf(5_000, exponent);
        let imbalance =
            Imbalance::new(servers as u32, &Catalogue::zipf(5_000, exponent).unwrap()).unwrap();
        let (mean, p95) = placed(&weights, servers, 600);
        let drawn = imbalance.sample_shares(600, &mut StdRng::seed_from_u64(2)).unwrap();
        let drawn_mean = drawn.iter().sum::<f64>() / 600.0;
        let n = servers as f64;
        println!(
            "s {exponent}, {servers} servers: placed {:.4} ({:.4}), drawn {:.4}, mean {:.4}, bound {:.4}",
            n * mean,
            n * p95,
            n * drawn_mean,
            n * imbalance.share_max_mean(),
            n * imbalance.share_max_bound(),
        );
        close(drawn_mean / mean, 1.0, 0.02);
        close(drawn[570] / p95, 1.0, 0.05);
        let normal = imbalance.share_max_mean() / mean;
        assert!((0.95..1.02).contains(&normal), "{normal}");
        assert!(matches!(imbalance.share_max_quantile(0.9), Err(Error::Invalid { .. })));
    }
}

#[test]
fn the_published_bound_stands_beside_ours() {
    let server = Spotify::new(HitRatio::new(0.815, 0.000_501).unwrap(), 150.0, 6.0).unwrap();
    let limit = server.confidence_limit();
    let objects = Catalogue::zipf(1_000_000, 0.4).unwrap();
    for (servers, published) in [(17, 12_240.88), (25, 17_904.42), (31, 22_137.38)] {
        let imbalance = Imbalance::new(servers, &objects).unwrap();
        close(server.cluster_confidence_limit(servers), published, 0.01);
        let bound = limit / imbalance.share_max_bound();
        let same = weighted_limit(limit, servers, objects.effective_objects()).unwrap();
        close(bound / same, 1.0, 1e-12);
        close(bound / imbalance.limit(limit, 0.5).unwrap(), 1.0, 0.05);
        // Without a unit of time: limits by the minute are sixty times those by the second.
        let minutes = imbalance.limit(60.0 * limit, 0.95).unwrap();
        close(minutes / imbalance.limit(limit, 0.95).unwrap(), 60.0, 1e-9);
    }
}

#[test]
fn impossible_placements_are_errors() {
    let objects = Catalogue::zipf(100, 0.5).unwrap();
    assert!(Imbalance::new(0, &objects).is_err());
    let some = Imbalance::new(5, &objects).unwrap();
    for bad in [0.0, 1.0, -1.0, f64::NAN] {
        assert!(some.share_max_quantile(bad).is_err());
    }
    assert!(some.limit(f64::NAN, 0.9).is_err() && some.limit(-1.0, 0.9).is_err());
    let mut rng = StdRng::seed_from_u64(1);
    assert!(some.sample_shares(0, &mut rng).is_err());
    assert!(Imbalance::new(1_000_000, &objects).unwrap().sample_shares(10_000, &mut rng).is_err());
    let one = Imbalance::new(1, &objects).unwrap();
    assert_eq!((one.share_max_mean(), one.share_max_bound()), (1.0, 1.0));
    assert_eq!(one.share_max_quantile(0.5).unwrap(), 1.0);
    assert_eq!(one.sample_shares(3, &mut rng).unwrap(), [1.0; 3]);
    let single = Imbalance::new(9, &Catalogue::zipf(1, 0.0).unwrap()).unwrap();
    assert_eq!(single.share_max_mean(), 1.0);
    assert_eq!(single.sample_shares(3, &mut rng).unwrap(), [1.0; 3]);
}

proptest! {
    #[test]
    fn shares_of_the_fullest_node_are_between_an_even_share_and_all(
        objects in 1u64..1_000_000, exponent in 0.0f64..3.0, servers in 1u32..500,
        p in 0.01f64..0.98,
    ) {
        let imbalance = Imbalance::new(servers, &Catalogue::zipf(objects, exponent).unwrap()).unwrap();
        let even = 1.0 / f64::from(servers);
        let mut all = vec![imbalance.share_max_mean(), imbalance.share_max_bound()];
        if let Ok(low) = imbalance.share_max_quantile(p) {
            let high = imbalance.share_max_quantile(p + 0.01).unwrap();
            prop_assert!(low <= high);
            all.extend([low, high]);
        }
        prop_assert!(all.iter().all(|s| (even * (1.0 - 1e-6)..=1.0).contains(s)), "{all:?} {even}");
    }
}
