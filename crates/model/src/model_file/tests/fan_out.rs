//! Requests of several parts: order statistics of the single request, with its intervals.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::fork_join::FanOut;

fn fan_out(parts: u32, needed: u32) -> FanOut {
    FanOut::new(parts, needed).unwrap()
}

#[test]
fn a_fan_out_is_the_order_statistic_of_draws_of_the_single_request() {
    let model = model();
    let single = model.predict(600.0, &[0.01, 0.02, 0.04]).unwrap();
    let mut random = StdRng::seed_from_u64(3);
    // The single request's law, by its quantiles.
    let law: Vec<f64> =
        (0..400).map(|i| model.quantile(600.0, (f64::from(i) + 0.5) / 400.0).unwrap()).collect();
    for (parts, needed) in [(1, 1), (4, 4), (8, 5), (3, 1)] {
        let found = model.predict_fan_out(&single, fan_out(parts, needed)).unwrap();
        let mut requests: Vec<f64> = (0..40_000)
            .map(|_| {
                let mut times: Vec<f64> =
                    (0..parts).map(|_| law[random.random_range(0..law.len())]).collect();
                times.sort_by(f64::total_cmp);
                times[needed as usize - 1]
            })
            .collect();
        requests.sort_by(f64::total_cmp);
        for within in &found.request.within {
            let drawn = requests.partition_point(|t| *t <= within.t_s) as f64 / 40_000.0;
            assert!(
                (within.share.value - drawn).abs() < 0.015,
                "{parts}:{needed} {within:?} {drawn}"
            );
        }
        let half = requests[20_000];
        let p50 = &found.request.response_p50;
        assert!((p50.value / half - 1.0).abs() < 0.05, "{parts}:{needed} {p50:?} {half}");
        assert_eq!((found.rate, found.requests_per_s), (600.0, 600.0 / f64::from(parts)));
    }
}

#[test]
fn intervals_of_a_single_request_carry_over() {
    let model = model();
    let single = model.predict(600.0, &[0.02]).unwrap();
    let found = model.predict_fan_out(&single, fan_out(10, 10)).unwrap();
    let (part, request) = (&found.part, &found.request);
    let part_share = &part.within[0].share;
    assert_eq!(part_share, &single.points[0].concertina);
    let share = &request.within[0].share;
    assert!((share.value - part_share.value.powi(10)).abs() < 1e-12);
    assert!((share.low - part_share.low.powi(10)).abs() < 1e-12 && share.low < share.high);
    let p99 = model.quantile_with_interval(600.0, 0.99f64.powf(0.1)).unwrap();
    assert_eq!(request.response_p99, p99);
    assert!(p99.low < p99.high && request.response_p99.value > part.response_p99.value);
    // One part is the request.
    let one = model.predict_fan_out(&single, fan_out(1, 1)).unwrap();
    assert_eq!((&one.part, one.others_at_device), (&one.request, 0.0));
    // As many servers as parts dilute them; parts of a single server meet at its devices.
    let spread = model.predict_cluster(6_000.0, 10, &[0.02]).unwrap();
    let spread = model.predict_fan_out(&spread, fan_out(10, 10)).unwrap();
    assert!((spread.others_at_device * 10.0 / found.others_at_device - 1.0).abs() < 1e-9);
    assert_eq!(spread.request.within, request.within);
}

#[test]
fn a_cluster_of_equal_nodes_fans_out_as_many_servers_do() {
    let model = model();
    let equal = cluster(&[(model.clone(), 0.5), (model.clone(), 0.5)]);
    let single = equal.predict(1_200.0, &[0.02]).unwrap();
    let found = equal.predict_fan_out(&single, fan_out(6, 6)).unwrap();
    let servers = model.predict_cluster(1_200.0, 2, &[0.02]).unwrap();
    let servers = model.predict_fan_out(&servers, fan_out(6, 6)).unwrap();
    assert!((found.others_at_device / servers.others_at_device - 1.0).abs() < 1e-9);
    // The cluster adds its delay.
    let (a, b) = (&found.request.response_p99, &servers.request.response_p99);
    assert!((a.value - equal.delay().value - b.value).abs() < 1e-6, "{a:?} {b:?}");
    assert!(a.low <= a.value && a.value <= a.high && found.part.response_p99.value < a.value);
}
