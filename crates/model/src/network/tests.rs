use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Exp};

use super::*;
use crate::error::Error;

mod fork;
mod gold;

fn single_class(stations: Vec<Station>, customers: u32, think_s: f64, demands: &[f64]) -> Network {
    Network::new(stations, vec![Class::closed("c", customers, think_s, demands).unwrap()]).unwrap()
}

fn named(k: usize) -> String {
    format!("s{k}")
}

/// The probabilities of all states of a closed network, by enumeration: the naive twin of
/// everything. For each state: the number of each class at each station (the last one: thinking),
/// and its weight.
fn states(network: &Network) -> Vec<(Vec<Vec<u32>>, f64)> {
    let stations = network.stations.len();
    let place = |classes: usize| vec![vec![0; stations + 1]; classes];
    let mut all = vec![place(network.classes.len())];
    for (c, class) in network.classes.iter().enumerate() {
        for _ in 0..class.customers() {
            let mut next: Vec<Vec<Vec<u32>>> = Vec::new();
            for state in &all {
                for k in 0..=stations {
                    let mut more = state.clone();
                    more[c][k] += 1;
                    next.push(more);
                }
            }
            next.sort();
            next.dedup();
            all = next;
        }
    }
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    let weight = |state: &Vec<Vec<u32>>| {
        let mut weight = 1.0;
        for k in 0..=stations {
            let total: u32 = state.iter().map(|n| n[k]).sum();
            weight *= factorial(total);
            for n in 1..=total {
                weight /= network.stations.get(k).map_or(f64::from(n), |s| s.rate(n));
            }
            for (class, n) in network.classes.iter().zip(state) {
                let demand = class.demands_s.get(k).copied().unwrap_or(class.think_s());
                weight *= demand.powi(n[k] as i32) / factorial(n[k]);
            }
        }
        weight
    };
    let mut weighed: Vec<_> =
        all.into_iter().map(|s| (weight(&s), s)).map(|(w, s)| (s, w)).collect();
    let sum: f64 = weighed.iter().map(|s| s.1).sum();
    weighed.iter_mut().for_each(|s| s.1 /= sum);
    weighed
}

/// Compares a solution with the enumeration.
fn check_states(network: &Network, found: &Solution, tolerance: f64) {
    let states = states(network);
    for (c, class) in found.classes.iter().enumerate() {
        for (k, station) in found.stations.iter().enumerate() {
            let number: f64 = states.iter().map(|(s, p)| p * f64::from(s[c][k])).sum();
            let off = (station.classes[c].number - number).abs();
            assert!(
                off < tolerance,
                "number of {c} at {k}: {} {number}",
                station.classes[c].number
            );
        }
        // Completions: the rate of work on the class at the station with most of it, over its
        // demand.
        let k = (0..found.stations.len())
            .max_by(|&a, &b| {
                let d = &network.classes[c].demands_s;
                d[a].total_cmp(&d[b])
            })
            .unwrap();
        let rate = |s: &Vec<Vec<u32>>| {
            let total: u32 = s.iter().map(|n| n[k]).sum();
            match total {
                0 => 0.0,
                n => network.stations[k].rate(n) * f64::from(s[c][k]) / f64::from(n),
            }
        };
        let work: f64 = states.iter().map(|(s, p)| p * rate(s)).sum();
        let throughput = work / network.classes[c].demands_s[k];
        let off = (class.throughput / throughput - 1.0).abs();
        assert!(off < tolerance, "throughput of {c}: {} {throughput}", class.throughput);
    }
}

/// Little's law, the utilisation law and the interactive law, of every class and station.
fn check_laws(network: &Network, found: &Solution, tolerance: f64) {
    let near = |a: f64, b: f64, what: &str| {
        assert!(a.is_finite() && b.is_finite(), "{what}: {a} {b}");
        assert!((a - b).abs() <= tolerance * b.abs().max(1e-9), "{what}: {a} {b}");
    };
    for (c, (class, result)) in network.classes.iter().zip(&found.classes).enumerate() {
        near(result.throughput * result.response_s, result.number, "Little's law");
        if let Some(n) = result.customers {
            let n = f64::from(n);
            near(result.throughput * (result.response_s + result.think_s), n, "interactive law");
        }
        let sum: f64 = found.stations.iter().map(|s| s.classes[c].residence_s).sum();
        near(sum, result.response_s, "residence times");
        for (k, station) in found.stations.iter().enumerate() {
            let share = station.classes[c];
            near(share.throughput, result.throughput * class.visits[k], "forced flow");
            near(share.throughput * share.response_s, share.number, "Little at a station");
            if let Some(m) = network.stations[k].server_count() {
                let busy = result.throughput * class.demands_s[k] / f64::from(m);
                near(share.utilisation, busy, "utilisation law");
            }
        }
    }
    for station in &found.stations {
        near(station.number, station.classes.iter().map(|s| s.number).sum(), "numbers");
        near(station.utilisation, station.classes.iter().map(|s| s.utilisation).sum(), "busy");
    }
}

fn any_station(k: usize) -> impl Strategy<Value = Station> {
    prop_oneof![
        Just(Station::queue(&named(k))),
        (2u32..4).prop_map(move |m| Station::servers(&named(k), m).unwrap()),
        Just(Station::delay(&named(k))),
        prop::collection::vec(0.2f64..4.0, 1..5).prop_map(move |rates| Station::load_dependent(
            &named(k),
            &rates
        )
        .unwrap()),
    ]
}

fn any_closed(classes: usize, customers: u32) -> impl Strategy<Value = Network> {
    (1usize..4)
        .prop_flat_map(move |count| {
            let stations: Vec<_> = (0..count).map(any_station).collect();
            let demand = prop_oneof![4 => 0.01f64..3.0, 1 => Just(0.0)];
            let class = (1..=customers, 0.0f64..2.0, prop::collection::vec(demand, count));
            (stations, prop::collection::vec(class, classes))
        })
        .prop_filter_map("spends time", |(stations, classes)| {
            let classes: Result<Vec<Class>, Error> = classes
                .iter()
                .enumerate()
                .map(|(c, (n, z, d))| Class::closed(&named(c), *n, *z, d))
                .collect();
            let classes = classes.ok()?;
            let visits_one = |c: &Class| c.demands_s.iter().any(|d| *d > 0.0);
            classes.iter().all(visits_one).then(|| Network::new(stations, classes).ok())?
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn one_class_agrees_with_enumeration(network in any_closed(1, 7)) {
        let found = network.solve().unwrap();
        check_states(&network, &found, 1e-9);
        check_laws(&network, &found, 1e-12);
        check_states(&network, &network.solve_by(Method::Convolution).unwrap(), 1e-9);
        for k in 0..network.stations.len() {
            let states = states(&network);
            for (n, p) in network.distribution(k).unwrap().iter().enumerate() {
                let of = states.iter().filter(|(s, _)| s[0][k] == n as u32);
                let expected: f64 = of.map(|s| s.1).sum();
                prop_assert!((p - expected).abs() < 1e-11, "{n} at {k}: {p} {expected}");
            }
        }
    }

    #[test]
    fn two_classes_agree_with_enumeration(network in any_closed(2, 3)) {
        let found = network.solve().unwrap();
        prop_assert!(found.method.is_exact());
        check_states(&network, &found, 1e-9);
        check_laws(&network, &found, 1e-12);
    }

    #[test]
    fn three_classes_agree_with_enumeration(network in any_closed(3, 2)) {
        check_states(&network, &network.solve().unwrap(), 1e-9);
    }

    /// Mean value analysis and convolution share no code.
    #[test]
    fn large_networks_agree_both_ways(
        demands in prop::collection::vec(0.001f64..1.0, 1..12),
        think_s in 0.0f64..20.0,
        customers in 1u32..3000,
    ) {
        let stations = (0..demands.len()).map(|k| Station::queue(&named(k))).collect();
        let network = single_class(stations, customers, think_s, &demands);
        let a = network.solve_by(Method::Mva).unwrap();
        let b = network.solve_by(Method::Convolution).unwrap();
        check_laws(&network, &a, 1e-12);
        check_laws(&network, &b, 1e-10);
        prop_assert!((a.classes[0].throughput / b.classes[0].throughput - 1.0).abs() < 1e-11);
        for (a, b) in a.stations.iter().zip(&b.stations) {
            prop_assert!((a.number / b.number - 1.0).abs() < 1e-9, "{} {}", a.number, b.number);
        }
        let bounds = network.bounds(0).unwrap();
        let x = a.classes[0].throughput;
        let sets = [bounds.asymptotic, bounds.balanced, bounds.proportional, bounds.geometric];
        for (i, limits) in sets.into_iter().enumerate() {
            let holds = limits.throughput_low <= x * (1.0 + 1e-9)
                && x <= limits.throughput_high * (1.0 + 1e-9);
            prop_assert!(holds, "bound {i}: {limits:?} {x}");
        }
    }

    /// Bounds of stations with several servers.
    #[test]
    fn bounds_hold_for_several_servers(
        stations in prop::collection::vec((0.01f64..1.0, 1u32..40), 1..5),
        think_s in 0.0f64..5.0,
        customers in 1u32..200,
    ) {
        let make = |(k, (_, m)): (usize, &(f64, u32))| Station::servers(&named(k), *m).unwrap();
        let demands: Vec<f64> = stations.iter().map(|s| s.0).collect();
        let network = single_class(stations.iter().enumerate().map(make).collect(), customers, think_s, &demands);
        let x = network.solve().unwrap().classes[0].throughput;
        let bounds = network.bounds(0).unwrap();
        for limits in [bounds.asymptotic, bounds.balanced, bounds.proportional, bounds.geometric] {
            prop_assert!(limits.throughput_low <= x * (1.0 + 1e-9), "{limits:?} {x}");
            prop_assert!(x <= limits.throughput_high * (1.0 + 1e-9), "{limits:?} {x}");
        }
    }

    /// Whatever is asked, the answer is numbers or a named error.
    #[test]
    fn nothing_panics(
        values in prop::collection::vec(
            prop_oneof![
                Just(f64::NAN), Just(f64::INFINITY), Just(0.0), Just(-1.0), Just(1e-300), Just(1e300),
                Just(1e-12), Just(1e12), 0.0f64..10.0
            ],
            8,
        ),
        customers in prop_oneof![Just(0u32), Just(1), 2u32..300],
        servers in prop_oneof![Just(0u32), Just(1), Just(1_000_000), 2u32..300],
    ) {
        let answer = || -> Result<Solution, Error> {
            let stations = vec![
                Station::servers("a", servers)?,
                Station::load_dependent("b", &values[..2])?,
                Station::delay("d"),
            ];
            let classes = vec![
                Class::closed("c", customers, values[2], &values[3..6])?,
                Class::open("o", values[6], &[values[7], 0.0, values[5]])?,
            ];
            Network::new(stations, classes)?.solve()
        };
        if let Ok(found) = answer() {
            for station in &found.stations {
                prop_assert!(station.number.is_finite() && station.utilisation.is_finite());
                prop_assert!(station.response_s.is_finite());
            }
            for class in &found.classes {
                prop_assert!(class.throughput.is_finite() && class.response_s.is_finite());
            }
        }
    }
}

#[test]
fn a_hundred_servers_are_those_of_the_repairman() {
    // M/M/m//N: p(n) = C(N, n)·a^n up to m, then times N!/((N−n)! m! m^(n−m)): by products, from
    // the top.
    let (m, n, think, service) = (100u32, 2000u32, 1.0, 0.06);
    let mut weights = vec![1.0f64];
    for i in 1..=n {
        let ratio = f64::from(n - i + 1) / think * service / f64::from(i.min(m));
        weights.push(weights[i as usize - 1] * ratio);
        if weights[i as usize] > 1e200 {
            weights.iter_mut().for_each(|w| *w *= 1e-200);
        }
    }
    let sum: f64 = weights.iter().sum();
    let number: f64 = weights.iter().enumerate().map(|(i, w)| i as f64 * w / sum).sum();
    let network = single_class(vec![Station::servers("repair", m).unwrap()], n, think, &[service]);
    let found = network.solve().unwrap();
    assert!((found.stations[0].number / number - 1.0).abs() < 1e-11);
    let throughput = (f64::from(n) - number) / think;
    assert!((found.classes[0].throughput / throughput - 1.0).abs() < 1e-11);
}

#[test]
fn saturated_networks_have_closed_forms() {
    // Equal queues: X = N / (D (N + K − 1)), whatever the size.
    let stations = |k: usize| (0..k).map(|i| Station::queue(&named(i))).collect::<Vec<_>>();
    for (k, n) in [(2usize, 10u32), (10, 5000), (7, 100_000), (2, 1_000_000)] {
        let network = single_class(stations(k), n, 0.0, &vec![0.25; k]);
        let expected = f64::from(n) / (0.25 * (f64::from(n) + k as f64 - 1.0));
        for method in [Method::Mva, Method::Convolution] {
            let found = network.solve_by(method).unwrap();
            let off = (found.classes[0].throughput / expected - 1.0).abs();
            assert!(off < 1e-10, "{k} {n} {method:?}: off by {off:e}");
            let off = (found.stations[0].number / (f64::from(n) / k as f64) - 1.0).abs();
            assert!(off < 1e-9, "{k} {n} {method:?}: number off by {off:e}");
        }
    }
    // Four thousand million: approximate, and so said.
    let threads = || vec![Station::servers("a", 64).unwrap(), Station::queue("b")];
    let found = single_class(threads(), u32::MAX, 0.01, &[0.01, 0.000_1]).solve().unwrap();
    assert_eq!(found.method, Method::Schweitzer);
    assert!((found.classes[0].throughput / 6400.0 - 1.0).abs() < 1e-6);
    let error =
        single_class(threads(), u32::MAX, 0.01, &[0.01, 0.000_1]).distribution(0).unwrap_err();
    assert!(matches!(error, Error::TooMuchWork { .. }), "{error}");
    // A million customers and many threads: the bottleneck's rate.
    let pool = vec![Station::servers("a", 64).unwrap(), Station::servers("b", 1000).unwrap()];
    let found = single_class(pool, 1_000_000, 0.01, &[0.01, 0.02]).solve().unwrap();
    assert!(found.method.is_exact());
    assert!((found.classes[0].throughput / 6400.0 - 1.0).abs() < 1e-9);
}

#[test]
fn rates_that_fall_have_two_states_and_both_are_weighed() {
    // Fast with up to 40 inside, ten times slower above: long between a short and a long queue.
    let mut rates = vec![10.0; 40];
    rates.push(1.0);
    let network =
        single_class(vec![Station::load_dependent("lock", &rates).unwrap()], 80, 60.0, &[1.0]);
    let found = network.solve().unwrap();
    let mut weights = vec![1.0f64];
    for i in 1..=80usize {
        let rate = network.stations[0].rate(i as u32);
        weights.push(weights[i - 1] * (81 - i) as f64 / 60.0 / rate);
    }
    let sum: f64 = weights.iter().sum();
    let p = network.distribution(0).unwrap();
    for (p, w) in p.iter().zip(&weights) {
        assert!((p / (w / sum) - 1.0).abs() < 1e-11);
    }
    let number: f64 = weights.iter().enumerate().map(|(i, w)| i as f64 * w / sum).sum();
    assert!((found.stations[0].number / number - 1.0).abs() < 1e-11);
}

#[test]
fn approximations_are_near_and_take_millions() {
    let stations = vec![Station::queue("cpu"), Station::queue("disk"), Station::delay("net")];
    let class = |name: &str, n, d: &[f64]| Class::closed(name, n, 1.0, d).unwrap();
    let classes =
        |n: u32| vec![class("a", n, &[0.05, 0.02, 0.1]), class("b", 2 * n, &[0.01, 0.06, 0.1])];
    let network = Network::new(stations.clone(), classes(40)).unwrap();
    let exact = network.solve().unwrap();
    for (method, within) in [(Method::Linearizer, 0.005), (Method::Schweitzer, 0.05)] {
        let near = network.solve_by(method).unwrap();
        // Approximate throughputs may be a little more than the bottleneck can do.
        check_laws(&network, &near, 1e-4);
        for (a, b) in near.classes.iter().zip(&exact.classes) {
            let off = (a.throughput / b.throughput - 1.0).abs();
            assert!(off < within, "{method:?}: {off}");
        }
    }
    let large = Network::new(stations, classes(1_000_000)).unwrap();
    let found = large.solve().unwrap();
    assert_eq!(found.method, Method::Schweitzer);
    check_laws(&large, &found, 1e-6);
    assert!(found.stations.iter().any(|s| s.utilisation > 0.999));
    let error = large.solve_by(Method::Mva).unwrap_err();
    assert!(error.to_string().contains("linearizer"), "{error}");
}

#[test]
fn open_networks_are_those_of_jackson() {
    // Tandem of M/M/1 with feedback; M/M/2 in closed form: R = S / (1 − ρ²).
    let rates = flows(&[3.0, 0.0], &[vec![0.0, 1.0], vec![0.25, 0.0]]).unwrap();
    assert!((rates[0] - 4.0).abs() < 1e-12 && (rates[1] - 4.0).abs() < 1e-12);
    let visits: Vec<f64> = rates.iter().map(|r| r / 3.0).collect();
    let demands = [0.2 * visits[0], 0.4 * visits[1]];
    let class = Class::open("c", 3.0, &demands).unwrap().with_visits(&visits).unwrap();
    let stations = vec![Station::queue("a"), Station::servers("b", 2).unwrap()];
    let network = Network::new(stations, vec![class]).unwrap();
    let found = network.solve().unwrap();
    assert!((found.stations[0].response_s - 0.2 / (1.0 - 0.8)).abs() < 1e-12);
    assert!((found.stations[1].response_s - 0.4 / (1.0 - 0.64)).abs() < 1e-12);
    check_laws(&network, &found, 1e-12);
    for bad in [
        flows(&[1.0, 0.0], &[vec![0.0, 1.0], vec![1.0, 0.0]]),
        flows(&[1.0], &[vec![1.5]]),
        flows(&[1.0], &[vec![f64::NAN]]),
        flows(&[], &[]),
        flows(&[-1.0], &[vec![0.0]]),
        super::visits(0, &[vec![0.5]]),
        super::visits(3, &[vec![1.0]]),
        super::visits(0, &[vec![1.0, 0.0], vec![0.0, 1.0]]),
    ] {
        assert!(bad.is_err(), "{bad:?}");
    }
    // Nobody falls into the trap that is not reached.
    assert!(flows(&[1.0, 0.0], &[vec![0.0, 0.0], vec![0.0, 1.0]]).is_ok());
}

/// A mixed network with several servers, by enumeration of closed and (truncated) open numbers.
#[test]
fn mixed_networks_agree_with_enumeration() {
    let (rate, d_open, d_closed, think, customers) = (1.5, 0.8, 0.5, 1.0, 4u32);
    for servers in [1u32, 2, 3] {
        let stations = vec![Station::servers("s", servers).unwrap()];
        let d_open = d_open * f64::from(servers) / 3.0;
        let closed = Class::closed("closed", customers, think, &[d_closed]).unwrap();
        let classes = vec![closed, Class::open("open", rate, &[d_open]).unwrap()];
        let network = Network::new(stations, classes).unwrap();
        let found = network.solve().unwrap();
        check_laws(&network, &found, 1e-12);
        let (mut sum, mut n_mean, mut l_mean) = (0.0, 0.0, 0.0);
        for n in 0..=customers {
            // Thinking: think^(N−n)/(N−n)!; at the station C(n+l, l) D^n (λd)^l / Π α.
            let mut weight = think.powi((customers - n) as i32)
                / (1..=customers - n).map(f64::from).product::<f64>();
            for i in 1..=n {
                weight *= d_closed / f64::from(i.min(servers));
            }
            for l in 0..4000u32 {
                sum += weight;
                n_mean += weight * f64::from(n);
                l_mean += weight * f64::from(l);
                weight *= f64::from(n + l + 1) / f64::from(l + 1) * rate * d_open
                    / f64::from((n + l + 1).min(servers));
            }
        }
        let station = &found.stations[0];
        assert!((station.classes[0].number / (n_mean / sum) - 1.0).abs() < 1e-11, "{servers}");
        assert!((station.classes[1].number / (l_mean / sum) - 1.0).abs() < 1e-11, "{servers}");
    }
}

#[test]
fn response_times_of_the_repairman_agree_with_simulation() {
    for (servers, customers, think, service) in [(1u32, 5u32, 1.0, 0.3), (3, 12, 0.5, 0.2)] {
        let network = single_class(
            vec![Station::servers("s", servers).unwrap()],
            customers,
            think,
            &[service],
        );
        let law = network.sojourn(0).unwrap();
        let mean = network.solve().unwrap().classes[0].response_s;
        assert!((law.mean() / mean - 1.0).abs() < 1e-12);
        let mut random = StdRng::seed_from_u64(7);
        let mut draw = |mean: f64| Exp::new(1.0 / mean).unwrap().sample(&mut random);
        let mut thinking: Vec<f64> = (0..customers).map(|_| draw(think)).collect();
        let mut free = vec![0.0f64; servers as usize];
        let mut times = Vec::new();
        for _ in 0..300_000 {
            let next = (0..thinking.len()).min_by(|&a, &b| thinking[a].total_cmp(&thinking[b]));
            let (next, server) =
                (next.unwrap(), (0..free.len()).min_by(|&a, &b| free[a].total_cmp(&free[b])));
            let (arrival, server) = (thinking[next], server.unwrap());
            free[server] = arrival.max(free[server]) + draw(service);
            times.push(free[server] - arrival);
            thinking[next] = free[server] + draw(think);
        }
        for t in [0.05, 0.1, 0.2, 0.4, 0.8, 1.6] {
            let share = times.iter().filter(|x| **x <= t).count() as f64 / times.len() as f64;
            assert!((law.cdf(t) - share).abs() < 0.005, "{servers} at {t}: {} {share}", law.cdf(t));
        }
        let grid = 20_000;
        let step = 40.0 * mean / f64::from(grid);
        let tail = |i: i32| 1.0 - law.cdf(f64::from(i) * step);
        let sum: f64 = (0..grid).map(|i| 0.5 * step * (tail(i) + tail(i + 1))).sum();
        assert!(
            (sum / mean - 1.0).abs() < 1e-4,
            "the area above the CDF is the mean: {sum} {mean}"
        );
        let second: f64 =
            (0..grid).map(|i| step * step * (f64::from(i) + 0.5) * (tail(i) + tail(i + 1))).sum();
        let variance = second - mean * mean;
        assert!((law.variance() / variance - 1.0).abs() < 1e-3, "{} {variance}", law.variance());
    }
}

#[test]
fn mistakes_are_named() {
    let queue = || vec![Station::queue("a")];
    let class = |d: &[f64]| Class::closed("c", 5, 1.0, d).unwrap();
    let says = |error: Error, word: &str| assert!(error.to_string().contains(word), "{error}");
    says(Network::new(vec![], vec![class(&[])]).unwrap_err(), "station");
    says(Network::new(queue(), vec![]).unwrap_err(), "class");
    says(Network::new(queue(), vec![class(&[1.0, 2.0])]).unwrap_err(), "2 demands for 1 stations");
    says(Network::new(queue(), vec![class(&[1.0]); 2]).unwrap_err(), "two classes");
    says(Class::closed("c", 5, 0.0, &[0.0]).unwrap_err(), "no demand and no think time");
    says(Class::closed("c", 5, 1.0, &[f64::NAN]).unwrap_err(), "demand");
    says(class(&[1.0]).with_visits(&[0.0]).unwrap_err(), "does not visit");
    says(Station::servers("a", 0).unwrap_err(), "servers");
    says(Station::load_dependent("a", &[]).unwrap_err(), "rates");
    says(Station::load_dependent("a", &[1.0, -1.0]).unwrap_err(), "rate");
    says(Station::flow_equivalent("a", &[(2, 5.0), (2, 6.0)]).unwrap_err(), "rising order");
    says(Station::flow_equivalent("a", &[(u32::MAX, 5.0)]).unwrap_err(), "too long");
    let measured = Station::flow_equivalent("m", &[(2, 5.0), (4, 8.0)]).unwrap();
    assert_eq!([1, 2, 3, 4].map(|n| measured.rate(n)), [2.5, 5.0, 6.5, 8.0]);
    says(
        single_class(vec![measured], 5, 1.0, &[1.0]).solve().unwrap_err(),
        "up to 4 inside, but 5",
    );
    let open = Class::open("o", 2.0, &[0.5]).unwrap();
    says(Network::new(queue(), vec![open]).unwrap().solve().unwrap_err(), "without bound");
    says(
        single_class(queue(), 5, 1.0, &[1.0]).with_customers(3, 1).unwrap_err(),
        "not a closed class",
    );
    says(
        single_class(vec![Station::delay("d")], 5, 1.0, &[1.0]).bottleneck(0).unwrap_err(),
        "delays only",
    );
    assert!(single_class(queue(), 0, 1.0, &[1.0]).bounds(0).is_err());
    assert_eq!(single_class(queue(), 0, 1.0, &[1.0]).solve().unwrap().classes[0].throughput, 0.0);
    assert!(single_class(queue(), 0, 1.0, &[1.0]).sojourn(0).is_err());
    assert!(single_class(queue(), 5, 1.0, &[1.0]).distribution(1).is_err());
}

#[test]
fn several_servers_of_several_large_classes_are_approximated_by_name() {
    let stations = vec![Station::servers("a", 16).unwrap(), Station::queue("b")];
    let class = |name: &str, n, d: &[f64]| Class::closed(name, n, 0.5, d).unwrap();
    let network = |n| {
        let classes = vec![class("x", n, &[0.1, 0.004]), class("y", n, &[0.05, 0.008])];
        Network::new(stations.clone(), classes).unwrap()
    };
    let exact = network(60).solve().unwrap();
    assert_eq!(exact.method, Method::Convolution);
    for method in [Method::Linearizer, Method::Schweitzer] {
        let near = network(60).solve_by(method).unwrap();
        for (a, b) in near.classes.iter().zip(&exact.classes) {
            let off = (a.throughput / b.throughput - 1.0).abs();
            assert!(off < 0.1, "{method:?}: {off}");
        }
    }
    let large = network(3000).solve().unwrap();
    assert_eq!(large.method, Method::Linearizer);
    check_laws(&network(3000), &large, 1e-6);
    // A station that gets slower is not approximated in silence.
    let slower = Station::load_dependent("a", &[1.0, 0.5]).unwrap();
    let classes = vec![class("x", 100_000, &[0.1]), class("y", 100_000, &[0.1])];
    let error = Network::new(vec![slower], classes).unwrap().solve().unwrap_err();
    assert!(error.to_string().contains("gets slower"), "{error}");
}

/// Little's law gives no response to a class without arrivals; one request of it would have that of another class, of the same demands.
#[test]
fn a_class_without_arrivals_has_the_response_of_one_request() {
    let stations = || vec![Station::queue("a"), Station::servers("b", 3).unwrap()];
    let open = |name, rate| Class::open(name, rate, &[0.001, 0.004]).unwrap();
    let beside = Network::new(stations(), vec![open("x", 0.0), open("y", 500.0)]).unwrap();
    let found = beside.solve().unwrap();
    let (x, y) = (&found.classes[0], &found.classes[1]);
    assert!((x.response_s / y.response_s - 1.0).abs() < 1e-6, "{x:?} {y:?}");
    assert_eq!((x.throughput, x.number), (0.0, 0.0));
    let alone = Network::new(stations(), vec![open("x", 0.0)]).unwrap().solve().unwrap();
    assert!((alone.classes[0].response_s / 0.005 - 1.0).abs() < 1e-6);
    assert_eq!((alone.stations[0].utilisation, alone.stations[0].number), (0.0, 0.0));
    let closed = Class::closed("z", 4, 0.0, &[0.001, 0.0]).unwrap();
    let mixed = Network::new(stations(), vec![open("x", 0.0), closed]).unwrap().solve().unwrap();
    // Four customers are at the first station whenever the request comes.
    assert!((mixed.stations[0].classes[0].residence_s / 0.005 - 1.0).abs() < 1e-6);
}
