//! Stations that fork: published and simulated means, and what is refused.

use crate::error::Error;
use crate::fork_join::FanOut;
use crate::network::*;

fn caches(parts: u32, needed: u32) -> Station {
    Station::fork("caches", FanOut::new(parts, needed).unwrap())
}

fn open(rate: f64, demands: &[f64]) -> Class {
    Class::open("multi-gets", rate, demands).unwrap()
}

#[test]
fn a_fork_has_the_published_and_the_simulated_means() {
    // Two parts: Flatto and Hahn's exact mean. Eight and sixteen: simulated (`fork_join::tests`).
    for (parts, rho, mean, off) in
        [(2, 0.7, 11.3 / 8.0 / 0.3, 1e-3), (8, 0.3, 3.6235, 0.01), (16, 0.8, 13.6121, 0.02)]
    {
        let network = Network::new(
            vec![caches(parts, parts), Station::delay("net")],
            vec![open(1000.0 * rho, &[1e-3, 0.5e-3])],
        );
        let solution = network.unwrap().solve().unwrap();
        let (class, station) = (&solution.classes[0], &solution.stations[0]);
        assert_eq!(solution.method, Method::Fork);
        assert!((station.response_s / (mean * 1e-3) - 1.0).abs() < off, "{parts}: {station:?}");
        assert!((class.response_s - station.response_s - 0.5e-3).abs() < 1e-12);
        // Little's law and the utilisation law.
        assert!((class.number / (class.throughput * class.response_s) - 1.0).abs() < 1e-12);
        assert!((station.utilisation - rho).abs() < 1e-12);
        let fork = station.fork.unwrap();
        assert!((fork.part_response_s * (1.0 - rho) / 1e-3 - 1.0).abs() < 1e-6);
        assert!(fork.part_response_s < fork.response_s && fork.response_s < fork.response_p99_s);
        assert!(fork.response_p50_s < fork.response_s);
    }
}

#[test]
fn one_part_is_a_queue_and_fewer_needed_parts_are_faster() {
    let solve = |station: Station| {
        Network::new(vec![station], vec![open(600.0, &[1e-3])]).unwrap().solve().unwrap()
    };
    let (one, queue) = (solve(caches(1, 1)), solve(Station::queue("caches")));
    assert!((one.classes[0].response_s / queue.classes[0].response_s - 1.0).abs() < 1e-6);
    assert!(!one.method.is_exact() && queue.method.is_exact() && queue.stations[0].fork.is_none());
    let means: Vec<f64> = (1..=4).map(|k| solve(caches(4, k)).classes[0].response_s).collect();
    assert!(means.is_sorted() && means[0] < queue.classes[0].response_s, "{means:?}");
}

#[test]
fn classes_share_a_fork_if_their_service_is_equal() {
    let visits = |name, rate, service: f64, visits: f64| {
        Class::open(name, rate, &[service * visits]).unwrap().with_visits(&[visits]).unwrap()
    };
    let both = vec![visits("a", 200.0, 1e-3, 2.0), visits("b", 300.0, 1e-3, 1.0)];
    let found = Network::new(vec![caches(4, 4)], both).unwrap().solve().unwrap();
    let alone = Network::new(vec![caches(4, 4)], vec![visits("a", 700.0, 1e-3, 1.0)]);
    let alone = alone.unwrap().solve().unwrap().classes[0].response_s;
    assert!((found.classes[0].response_s / (2.0 * alone) - 1.0).abs() < 1e-9);
    assert!((found.classes[1].response_s / alone - 1.0).abs() < 1e-9);

    let apart = vec![visits("a", 200.0, 1e-3, 1.0), visits("b", 300.0, 2e-3, 1.0)];
    let error = Network::new(vec![caches(4, 4)], apart).unwrap().solve().unwrap_err();
    assert!(error.to_string().contains("forks"), "{error}");
    let closed = vec![Class::closed("c", 3, 1.0, &[1e-3]).unwrap()];
    let error = Network::new(vec![caches(4, 4)], closed).unwrap().solve().unwrap_err();
    assert!(error.to_string().contains("open classes only"), "{error}");
    let full = Network::new(vec![caches(4, 4)], vec![open(1000.0, &[1e-3])]).unwrap().solve();
    assert!(matches!(full, Err(Error::StationUnstable { .. })), "{full:?}");
    let nobody =
        Network::new(vec![caches(4, 4), Station::queue("disk")], vec![open(10.0, &[0.0, 1e-3])]);
    assert!(nobody.unwrap().solve().unwrap().stations[0].fork.is_none());
}
