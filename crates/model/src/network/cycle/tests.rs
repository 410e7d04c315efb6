use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1};

use super::super::{Class, Station};
use super::*;

fn network(customers: u32, think_s: f64, stations: &[(u32, f64)]) -> Network {
    let of = |(i, (servers, _)): (usize, &(u32, f64))| match servers {
        0 => Station::delay(&format!("s{i}")),
        _ => Station::servers(&format!("s{i}"), *servers).unwrap(),
    };
    let demands: Vec<f64> = stations.iter().map(|s| s.1).collect();
    let class = Class::closed("clients", customers, think_s, &demands).unwrap();
    Network::new(stations.iter().enumerate().map(of).collect(), vec![class]).unwrap()
}

/// Response times of a row of stations (servers, 0 for a delay; mean service), one event after the
/// other.
fn simulated(customers: u32, think_s: f64, stations: &[(u32, f64)], responses: usize) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(11);
    let mut draw = |mean: f64| -> f64 {
        let unit: f64 = Exp1.sample(&mut random);
        (unit * mean * 1e12).round()
    };
    // (time in ps, number of the event, customer, station that it leaves; none of thinking)
    let mut events = BinaryHeap::new();
    let mut count = 0u64;
    let mut lines: Vec<VecDeque<usize>> = vec![VecDeque::new(); stations.len()];
    let mut busy = vec![0u32; stations.len()];
    let mut began = vec![0u64; customers as usize];
    let mut all = Vec::with_capacity(responses);
    for customer in 0..customers as usize {
        events.push(Reverse((draw(think_s) as u64, count, customer, None)));
        count += 1;
    }
    while let Some(Reverse((now, _, customer, left))) = events.pop() {
        let mut push = |after: f64, customer: usize, station: Option<usize>| {
            count += 1;
            events.push(Reverse((now + after as u64, count, customer, station)));
        };
        if let Some(k) = left {
            busy[k] -= 1;
            if let Some(next) = lines[k].pop_front() {
                busy[k] += 1;
                push(draw(stations[k].1), next, Some(k));
            }
        } else {
            began[customer] = now;
        }
        let next = left.map_or(0, |k| k + 1);
        match stations.get(next) {
            Some(&(servers, mean)) if servers == 0 || busy[next] < servers => {
                busy[next] += 1;
                push(draw(mean), customer, Some(next));
            }
            Some(_) => lines[next].push_back(customer),
            None => {
                all.push((now - began[customer]) as f64 * 1e-12);
                push(draw(think_s), customer, None);
            }
        }
        if all.len() == responses {
            break;
        }
    }
    // The start, when all think, is not what is asked for.
    all.drain(..responses / 10);
    all.sort_by(f64::total_cmp);
    all
}

/// Largest difference of the CDF from a simulated one, in points.
fn off(customers: u32, think_s: f64, stations: &[(u32, f64)]) -> f64 {
    let law = network(customers, think_s, stations).cycle_time().unwrap();
    let all = simulated(customers, think_s, stations, 4_000_000);
    let at = |i: usize| {
        let share = i as f64 / 50.0;
        let t = all[(share * all.len() as f64) as usize];
        100.0 * (law.cdf(t) - share).abs()
    };
    (1..50).map(at).fold(0.0, f64::max)
}

#[test]
fn a_row_of_single_servers_is_exact() {
    for (customers, think_s, stations) in [
        (1, 0.01, &[(1, 0.002), (1, 0.005)][..]),
        (8, 0.0, &[(1, 0.004), (1, 0.004)]),
        (40, 0.1, &[(1, 0.001), (1, 0.003), (1, 0.002)]),
    ] {
        let law = network(customers, think_s, stations).cycle_time().unwrap();
        assert!(law.is_exact());
        let off = off(customers, think_s, stations);
        println!("{customers} customers: {off:.2} points");
        // Of 3,600,000 dependent responses: some 0.1.
        assert!(off < 0.25, "{customers}: {off}");
    }
}

#[test]
fn a_row_with_overtaking_is_nearly_right() {
    for (customers, think_s, stations) in [
        (24, 0.02, &[(1, 0.001), (4, 0.006), (1, 0.0012)][..]),
        (64, 0.05, &[(16, 0.01), (2, 0.002)]),
        (30, 0.0, &[(0, 0.004), (1, 0.001), (8, 0.008)]),
    ] {
        let law = network(customers, think_s, stations).cycle_time().unwrap();
        assert!(!law.is_exact());
        let off = off(customers, think_s, stations);
        println!("{customers} customers: {off:.2} points");
        assert!(off < 0.3, "{customers}: {off}");
    }
}

#[test]
fn of_one_station_it_is_the_sojourn() {
    for (customers, think_s, servers) in [(1, 0.1, 1), (12, 0.02, 1), (100, 0.05, 4), (50, 0.0, 64)]
    {
        let network = network(customers, think_s, &[(servers, 0.002)]);
        let (cycle, sojourn) = (network.cycle_time().unwrap(), network.sojourn(0).unwrap());
        assert!(cycle.is_exact() && (cycle.mean() / sojourn.mean() - 1.0).abs() < 1e-9);
        for factor in [0.1, 0.5, 1.0, 2.0, 5.0] {
            let t = factor * sojourn.mean();
            let (found, exact) = (cycle.cdf(t), sojourn.cdf(t));
            assert!(
                (found - exact).abs() < 1e-7,
                "{customers} {servers} {factor}: {found} {exact}"
            );
        }
    }
}

#[test]
fn its_mean_is_that_of_the_solution_and_large_populations_stay_finite() {
    // ∫ (1 − F) by the trapezoidal rule.
    let mean = |law: &CycleTime| {
        let step = law.mean() / 50.0;
        (0..2_000).map(|i| 1.0 - law.cdf((f64::from(i) + 0.5) * step)).sum::<f64>() * step
    };
    for stations in [&[(1, 0.004), (3, 0.009)][..], &[(1, 0.004), (1, 0.002), (0, 0.01)]] {
        let law = network(20, 0.03, stations).cycle_time().unwrap();
        assert!((mean(&law) / law.mean() - 1.0).abs() < 1e-4, "{} {}", mean(&law), law.mean());
    }
    let large = network(10_000, 30.0, &[(1, 0.001), (8, 0.02)]).cycle_time().unwrap();
    let median = large.quantile(0.5).unwrap();
    assert!(median.is_finite() && (large.cdf(median) - 0.5).abs() < 1e-6);
    assert!((0.0..=1.0).contains(&large.cdf(1e-3)) && large.cdf(f64::NAN) == 0.0);
}

#[test]
fn other_networks_are_refused_by_name() {
    let error = network(0, 1.0, &[(1, 0.1)]).cycle_time().unwrap_err();
    assert!(error.to_string().contains("clients"), "{error}");
    assert!(network(1_000_000, 1.0, &[(1, 1e-6)]).cycle_time().is_err());
    let twice = Class::closed("c", 4, 0.0, &[0.1]).unwrap().with_visits(&[2.0]).unwrap();
    let twice = Network::new(vec![Station::queue("a")], vec![twice]).unwrap();
    assert!(twice.cycle_time().unwrap_err().to_string().contains("visited once"));
    let open = Class::open("o", 1.0, &[0.1]).unwrap();
    let open = Network::new(vec![Station::queue("a")], vec![open]).unwrap();
    assert!(open.cycle_time().is_err());
    let curve = Station::load_dependent("a", &[1.0, 1.5]).unwrap();
    let class = Class::closed("c", 4, 0.0, &[0.1]).unwrap();
    assert!(Network::new(vec![curve], vec![class]).unwrap().cycle_time().is_err());
    assert!(network(4, 0.0, &[(1, 0.1)]).cycle_time().unwrap().quantile(1.0).is_err());
}
