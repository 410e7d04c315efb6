//! Path times against formulas and a simulation that shares no code with them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::fork_join::FanOut;
use crate::network::Station;

fn open(rate: f64, demands_s: &[f64]) -> Class {
    Class::open("reads", rate, demands_s).unwrap()
}

#[test]
fn one_station_is_its_queue() {
    let network =
        Network::new(vec![Station::servers("disks", 4).unwrap()], vec![open(500.0, &[0.0062])])
            .unwrap();
    let path = network.path_time(0).unwrap();
    let queue = Mmm::new(500.0, 1.0 / 0.0062, 4).unwrap();
    assert!(path.is_exact() && (path.mean() / queue.response_mean() - 1.0).abs() < 1e-9);
    for p in [0.5, 0.9, 0.99, 0.999] {
        let (found, expected) = (path.quantile(p).unwrap(), queue.response_quantile(p).unwrap());
        assert!((found / expected - 1.0).abs() < 1e-6, "{p}: {found} {expected}");
    }
}

/// Response times of a tandem of multi-server queues, each request followed through all of them in the order of events.
fn simulated(servers: &[u32], means: &[f64], shares: &[f64], rate: f64, count: usize) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(7);
    let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
    // Events: time in nanoseconds, request, station at which it arrives.
    let mut events = BinaryHeap::new();
    let mut starts = Vec::with_capacity(count);
    let mut now = 0.0;
    for i in 0..count {
        now += exponential(1.0 / rate);
        starts.push(now);
        events.push(Reverse(((now * 1e9) as u64, i, 0)));
    }
    let mut free: Vec<BinaryHeap<Reverse<u64>>> =
        servers.iter().map(|&m| (0..m).map(|_| Reverse(0)).collect()).collect();
    let mut ends = vec![0.0; count];
    while let Some(Reverse((at, request, station))) = events.pop() {
        if station == servers.len() {
            ends[request] = at as f64 / 1e9;
            continue;
        }
        if exponential(1.0) > -(1.0 - shares[station]).max(1e-300).ln() {
            events.push(Reverse((at, request, station + 1)));
            continue;
        }
        let Reverse(server) = free[station].pop().unwrap();
        let end = server.max(at) + (exponential(means[station]) * 1e9) as u64;
        free[station].push(Reverse(end));
        events.push(Reverse((end, request, station + 1)));
    }
    (count / 10..count).map(|i| ends[i] - starts[i]).collect()
}

#[test]
fn paths_are_those_of_a_simulation() {
    type Row = (&'static [u32], &'static [f64], &'static [f64], f64, f64);
    let rows: [Row; 3] = [
        // Front, disk, reply: exact.
        (&[4, 1, 2], &[0.006, 0.0014, 0.002], &[1.0, 1.0, 1.0], 500.0, 0.008),
        // Several servers between: requests overtake.
        (&[1, 4, 1], &[0.0014, 0.006, 0.0015], &[1.0, 1.0, 1.0], 500.0, 0.015),
        // A cache in front, which four fifths do not pass.
        (&[2, 3], &[0.001, 0.02], &[1.0, 0.2], 500.0, 0.012),
    ];
    for (servers, means, shares, rate, error) in rows {
        let stations = servers.iter().enumerate();
        let stations = stations.map(|(i, &m)| Station::servers(&format!("s{i}"), m).unwrap());
        let demands: Vec<f64> = means.iter().zip(shares).map(|(s, v)| s * v).collect();
        let class = open(rate, &demands).with_visits(shares).unwrap();
        let path = Network::new(stations.collect(), vec![class]).unwrap().path_time(0).unwrap();
        let mut times = simulated(servers, means, shares, rate, 400_000);
        times.sort_by(f64::total_cmp);
        for p in [0.25, 0.5, 0.9, 0.99] {
            let at = times[(p * times.len() as f64) as usize];
            assert!((path.cdf(at) - p).abs() < error, "{servers:?} {p}: {}", path.cdf(at));
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((path.mean() / mean - 1.0).abs() < 0.05, "{servers:?}: {} {mean}", path.mean());
    }
}

#[test]
fn forks_and_delays_are_summed() {
    let stations = vec![Station::delay("net"), Station::fork("caches", FanOut::new(2, 2).unwrap())];
    let network = Network::new(stations, vec![open(500.0, &[0.002, 0.001])]).unwrap();
    let path = network.path_time(0).unwrap();
    let solved = network.solve().unwrap();
    assert!(!path.is_exact());
    assert!((path.mean() - solved.classes[0].response_s).abs() < 1e-12);
    let half = path.quantile(0.5).unwrap();
    assert!(half > 0.002 && half < path.mean(), "{half}");
}

#[test]
fn what_is_not_known_is_refused() {
    let two = |a: &[f64], b: &[f64], stations: Vec<Station>| {
        let other = Class::open("writes", 1.0, b).unwrap();
        Network::new(stations, vec![open(1.0, a), other]).unwrap().path_time(0)
    };
    assert!(two(&[0.1], &[0.2], vec![Station::queue("disk")]).is_err());
    assert!(two(&[0.1], &[0.1], vec![Station::queue("disk")]).unwrap().is_exact());
    let lock = Station::load_dependent("lock", &[1.0, 1.5]).unwrap();
    assert!(two(&[0.1], &[0.1], vec![lock]).is_err());
    let closed = Class::closed("clients", 3, 0.1, &[0.1]).unwrap();
    let mixed =
        Network::new(vec![Station::queue("disk")], vec![open(1.0, &[0.1]), closed]).unwrap();
    assert!(mixed.path_time(0).is_err() && mixed.path_time(9).is_err());
    let full = Network::new(vec![Station::queue("disk")], vec![open(10.0, &[0.1])]).unwrap();
    assert!(full.path_time(0).is_err());
}

/// A network of one station is the queue that its scv says: simulations of the references, and formulas.
#[test]
fn stations_of_any_service_are_their_queues() {
    let rows = [
        ("mg1_gamma25_70", 1, 70.0, 0.25),
        ("mg3_gamma25_80", 3, 240.0, 0.25),
        ("md1_80", 1, 80.0, 0.0),
    ];
    for (name, servers, rate, scv) in rows {
        let station = Station::servers("disk", servers).unwrap().with_scv(scv).unwrap();
        let network = Network::new(vec![station], vec![open(rate, &[0.01])]).unwrap();
        let path = network.path_time(0).unwrap();
        assert_eq!(path.is_exact(), servers == 1, "{name}");
        let Some(gold) = crate::gold::json(&format!("ciw/{name}.json")) else { return };
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let (mean, half) = (number(&gold["mean"]), number(&gold["mean_ci95_half"]));
        assert!((path.mean() - mean).abs() < 2.0 * half, "{name}: {} {mean} ± {half}", path.mean());
        for row in gold["cdf"].as_array().unwrap() {
            let (t, expected, half) = (number(&row[0]), number(&row[1]), number(&row[2]));
            let off = (path.cdf(t) - expected).abs();
            // Beside the step of a constant time of service the inversion of the transform rings.
            let rings = scv == 0.0 && (t / 0.01 - 1.0).abs() < 0.02;
            let numeric = if rings { 1e-2 } else { 1e-3 };
            assert!(off < 2.0 * half + numeric, "{name} at {t}: {off} ± {half}");
        }
    }
}

/// Two stations in a row whose service is not exponential: each by itself, against a simulation. What the first lets through is not
/// Poisson: the second waits less behind constant service, more behind service that varies much.
#[test]
fn stations_of_any_service_in_a_row_are_near() {
    let mut random = StdRng::seed_from_u64(11);
    let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
    for (scv, utilisation, off_max) in
        [(0.25, 0.7, 0.16), (0.0, 0.7, 0.40), (4.0, 0.7, 0.16), (2.0, 0.5, 0.06)]
    {
        let rate = utilisation / 0.01;
        let count = 400_000;
        let (mut now, mut free) = (0.0f64, [0.0f64; 2]);
        let mut sum = 0.0;
        for _ in 0..count {
            now += exponential(1.0 / rate);
            let mut at = now;
            for free in &mut free {
                // Erlang below an scv of 1, two branches with balanced means above.
                let work = if scv == 0.0 {
                    0.01
                } else if scv < 1.0 {
                    let phases = (1.0 / scv) as usize;
                    (0..phases).map(|_| exponential(0.01 * scv)).sum::<f64>()
                } else {
                    let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0f64)).sqrt());
                    let is_first = exponential(1.0) < -(1.0 - p).ln();
                    let p = if is_first { p } else { 1.0 - p };
                    exponential(0.01 / (2.0 * p))
                };
                *free = at.max(*free) + work;
                at = *free;
            }
            sum += at - now;
        }
        let simulated = sum / f64::from(count);
        let station = |name: &str| Station::queue(name).with_scv(scv).unwrap();
        let stations = vec![station("front"), station("disk")];
        let network = Network::new(stations, vec![open(rate, &[0.01, 0.01])]).unwrap();
        let (path, solution) = (network.path_time(0).unwrap(), network.solve().unwrap());
        assert!(!path.is_exact() && !solution.method.is_exact());
        assert!((solution.classes[0].response_s / path.mean() - 1.0).abs() < 1e-12);
        let off = path.mean() / simulated - 1.0;
        println!("scv {scv}, {utilisation} busy: {off:+.3}");
        // Longer than simulated where service varies less than exponential service, shorter where more.
        assert!(off.abs() < off_max && (off > -0.01) == (scv < 1.0), "{scv}: {off}");
    }
}

#[test]
fn stations_of_any_service_are_for_open_classes_of_one_law() {
    let disk = || Station::queue("disk").with_scv(0.5).unwrap();
    let closed = Class::closed("clients", 3, 1.0, &[0.01]).unwrap();
    let error = Network::new(vec![disk()], vec![closed]).unwrap().solve().unwrap_err().to_string();
    assert!(error.contains("open classes only"), "{error}");
    let other = Class::open("writes", 1.0, &[0.02]).unwrap();
    let network = Network::new(vec![disk()], vec![open(1.0, &[0.01]), other]).unwrap();
    assert!(network.solve().unwrap_err().to_string().contains("give both the same"));
    assert!(Station::delay("net").with_scv(0.5).is_err() && disk().with_scv(-1.0).is_err());
    // Exponential service is what a station has without it.
    assert_eq!(Station::queue("disk").with_scv(1.0).unwrap(), Station::queue("disk"));
    assert_eq!(disk().kind(), "queue, scv 0.5");
}
