use std::sync::Arc;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Exp1};

use crate::Error;
use crate::distribution::{
    AnyLaw, Deterministic, Exponential, Gamma, Hyperexponential, ServiceTime, moments,
};
use crate::gold::json as gold;
use crate::queue::Mm1;

use super::*;

mod formulas;

use formulas::{heavy_traffic_factor, nelson_tantawi_mean, two_way_mean, varma_makowski_mean};

fn exponential() -> AnyLaw {
    Arc::new(Exponential::new(1.0).unwrap())
}

#[test]
fn fork_join_agrees_with_gold() {
    let gamma: AnyLaw = Arc::new(Gamma::new(1.0, 0.25).unwrap());
    for (name, service) in [
        ("fj2_exp_70", exponential()),
        ("fj3_exp_50", exponential()),
        ("fj8_gamma25_60", gamma),
        ("fj_3of12_exp", exponential()),
    ] {
        let Some(file) = gold(&format!("forkjoin/{name}.json")) else { return };
        let number = |key: &str| file[key].as_f64().unwrap();
        let (servers, ways) = (number("servers") as u32, number("k") as u32);
        let found = ForkJoin::new(number("lam"), service, servers, ways).unwrap();
        let check = |what: &str, value: f64, expected: f64, half: f64| {
            let widths = (value - expected).abs() / half;
            println!("{name}: {what} {value:.4}, simulated {expected:.4}: {widths:.1} half widths");
            assert!(widths <= 3.0, "{name}: {what} {value} {expected} ± {half}");
        };
        check("mean", found.mean(), number("mean"), number("mean_ci95_half"));
        for (p, row) in file["quantiles"].as_object().unwrap() {
            let (t, half) = (row[0].as_f64().unwrap(), row[1].as_f64().unwrap());
            check(p, found.kth_quantile(ways, p.parse().unwrap()).unwrap(), t, half);
        }
        if let Some(exact) = file["exact_mean_nelson_tantawi"].as_f64() {
            assert!((two_way_mean(number("lam"), 1.0).unwrap() / exact - 1.0).abs() < 1e-12);
            assert!((found.mean() / exact - 1.0).abs() < 1e-3);
        }
        if let Some(formula) = file["nelson_tantawi_approx_mean"].as_f64() {
            let ours = nelson_tantawi_mean(number("lam"), 1.0, ways).unwrap();
            assert!((ours / formula - 1.0).abs() < 1e-12);
        }
        if let Some(independent) = file["independent_max_mean"].as_f64() {
            assert!((found.independent_mean() / independent - 1.0).abs() < 1e-6);
            let law = Arc::new(Exponential::new(1.0 / (1.0 - number("rho"))).unwrap());
            let all = FanOut::new(ways, ways).unwrap();
            let (mean, _) = moments(1.0, |t| all.within(law.cdf(t))).unwrap();
            assert!((mean / independent - 1.0).abs() < 1e-8);
            let p99 = number("independent_max_p99");
            let found = law.quantile(all.part_share(0.99)).unwrap();
            assert!((found / p99 - 1.0).abs() < 1e-9, "{found} {p99}");
        }
    }
}

/// Means of simulated fork-join queues by Lindley's recursion (1.5 million requests, seeds apart
/// from any of ours), with their 95 % half widths: law, SCV, utilisation, servers, parts.
const SIMULATED: [(f64, f64, u32, u32, f64, f64); 12] = [
    (1.0, 0.3, 8, 8, 3.6235, 0.0056),
    (1.0, 0.6, 4, 4, 4.7069, 0.0219),
    (1.0, 0.8, 16, 16, 13.6121, 0.1530),
    (0.25, 0.3, 3, 3, 1.7883, 0.0025),
    (0.25, 0.6, 16, 16, 3.7707, 0.0112),
    (0.25, 0.9, 8, 8, 11.3519, 0.2640),
    (0.0, 0.6, 8, 8, 1.7498, 0.0052),
    (0.0, 0.6, 12, 3, 2.5080, 0.0056),
    (4.0, 0.3, 4, 4, 5.4819, 0.0285),
    (4.0, 0.6, 16, 16, 21.0857, 0.1070),
    (4.0, 0.8, 8, 8, 33.0152, 0.4700),
    (4.0, 0.6, 12, 3, 10.1007, 0.1190),
];

#[test]
fn fork_join_agrees_with_simulation() {
    for (scv, rho, servers, ways, simulated, half) in SIMULATED {
        let service: AnyLaw = match scv {
            0.0 => Arc::new(Deterministic::new(1.0).unwrap()),
            4.0 => Arc::new(Hyperexponential::balanced(1.0, 4.0).unwrap()),
            _ => Arc::new(Gamma::new(1.0, scv).unwrap()),
        };
        let rate = rho * f64::from(servers) / f64::from(ways);
        let found = ForkJoin::new(rate, service, servers, ways).unwrap();
        let off = found.mean() / simulated - 1.0;
        println!("SCV {scv}, ρ {rho}, {ways} of {servers}: {:+.2} %", off * 100.0);
        assert!(off.abs() < 0.02 + half / simulated, "SCV {scv}, ρ {rho}, {ways}: {off:.4}");
        assert!(found.part_mean() <= found.mean() * (1.0 + 1e-6));
        assert!(found.mean() <= found.independent_mean() * (1.0 + 1e-6));
    }
}

#[test]
fn heavy_traffic_factors_agree_with_the_alternating_sum() {
    for n in 1..=12i32 {
        let choose = |n: i32, k: i32| -> f64 {
            (1..=k).map(|i| f64::from(n - k + i) / f64::from(i)).product()
        };
        let mut printed = 0.0;
        for r in 1..=n {
            let mut factorial = 1.0;
            let mut sum = 0.0;
            for m in 1..=r {
                sum += choose(r, m) * factorial / f64::from(r).powi(m + 1);
                factorial *= f64::from(m);
            }
            printed += choose(n, r) * if r % 2 == 1 { sum } else { -sum };
        }
        let ours = heavy_traffic_factor(n as u32).unwrap();
        assert!((ours / printed - 1.0).abs() < 1e-9, "{n}: {ours} {printed}");
    }
    assert!(heavy_traffic_factor(10_000).unwrap() > heavy_traffic_factor(1_000).unwrap());
}

#[test]
fn the_correlations_are_what_the_exact_mean_means() {
    for rho in [0.0025, 0.09, 0.3, 0.64, 0.75, 0.9, 0.96] {
        let expected = queues::calibrated(rho);
        let found = queues::of_exponential(rho);
        assert!((found - expected).abs() < 5e-3, "{rho}: {found} {expected}");
        let mean = ForkJoin::new(rho, exponential(), 2, 2).unwrap().mean();
        let exact = two_way_mean(rho, 1.0).unwrap();
        assert!((mean / exact - 1.0).abs() < 1e-3, "{rho}: {mean} {exact}");
    }
}

#[test]
fn k_of_n_agrees_with_formulas() {
    // Exponential: Σ 1/i over the last k of n.
    for (n, k) in [(1, 1), (5, 1), (5, 3), (12, 12), (1_000, 990), (10_000, 10_000)] {
        let fan_out = FanOut::new(n, k).unwrap();
        let (found, _) = moments(1.0, |t| fan_out.within(exponential().cdf(t))).unwrap();
        let exact: f64 = (n - k + 1..=n).map(|i| 1.0 / f64::from(i)).sum();
        assert!((found / exact - 1.0).abs() < 1e-6, "{k} of {n}: {found} {exact}");
        for p in [0.0, 1e-6, 0.5, 0.99, 0.999_999] {
            let back = fan_out.within(fan_out.part_share(p));
            assert!((back - p).abs() < 1e-9 * (1.0 + p / (1.0 - p)), "{k} of {n}, {p}: {back}");
        }
    }
}

#[test]
fn fan_outs_are_read() {
    assert_eq!("10".parse(), FanOut::new(10, 10).map_err(|error| error.to_string()));
    assert_eq!("10:8".parse::<FanOut>().unwrap().to_string(), "8 of 10 parts");
    for (bad, word) in [
        ("0", "number of parts is 0"),
        ("10001", "1 to 10,000"),
        ("4:5", "1 to the number of parts"),
        ("4:0", "must answer is 0"),
        ("", "N:K"),
        ("4:", "N:K"),
        ("-1", "N:K"),
        ("1e3", "N:K"),
        ("99999999999", "N:K"),
    ] {
        let error = bad.parse::<FanOut>().unwrap_err();
        assert!(error.contains(word), "{bad}: {error}");
    }
}

/// Three of five parts that arrive together at exponential queues, by Lindley's recursion.
#[test]
fn k_of_n_parts_that_queue_together_agree_with_simulation() {
    let (rate, ways, needed, requests) = (0.6, 5usize, 3usize, 400_000);
    let mut random = StdRng::seed_from_u64(11);
    let mut draw = || -> f64 { Exp1.sample(&mut random) };
    let mut waits = vec![0.0f64; ways];
    let mut times: Vec<f64> = Vec::with_capacity(requests);
    for _ in 0..requests {
        let gap = draw() / rate;
        let mut parts: Vec<f64> = Vec::with_capacity(ways);
        for wait in &mut waits {
            let response = (*wait - gap).max(0.0) + draw();
            *wait = response;
            parts.push(response);
        }
        parts.sort_by(f64::total_cmp);
        times.push(parts[needed - 1]);
    }
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / requests as f64;
    let p99 = times[requests * 99 / 100];
    let found = ForkJoin::new(rate, exponential(), ways as u32, ways as u32).unwrap();
    let (k, independent) = (needed as u32, FanOut::new(ways as u32, needed as u32).unwrap());
    let ours = (found.kth_mean(k), found.kth_quantile(k, 0.99).unwrap());
    let (apart, _) = moments(1.0, |t| independent.within(1.0 - (-0.4 * t).exp())).unwrap();
    println!(
        "3 of 5: mean {:.3} {mean:.3}, p99 {:.2} {p99:.2}; independent {apart:.3}",
        ours.0, ours.1
    );
    assert!((ours.0 / mean - 1.0).abs() < 0.02 && (ours.1 / p99 - 1.0).abs() < 0.05);
}

#[test]
fn hedging_agrees_with_simulation() {
    let service = Hyperexponential::new(&[(0.9, 0.5), (0.1, 5.5)]).unwrap();
    let hedge = Hedge::new(2.0).unwrap();
    let mut random = StdRng::seed_from_u64(5);
    let mut draw = || {
        let exponential: f64 = Exp1.sample(&mut random);
        let choice: f64 = Exp1.sample(&mut random);
        exponential * if choice < -(0.1f64.ln()) { 0.5 } else { 5.5 }
    };
    let (mut late, mut twice, n) = (0, 0, 400_000);
    for _ in 0..n {
        let (first, second) = (draw(), draw());
        late += i32::from(f64::min(first, 2.0 + second) > 3.0);
        twice += i32::from(first > 2.0);
    }
    let share = |count: i32| f64::from(count) / f64::from(n);
    let within = hedge.within(service.cdf(3.0), service.cdf(1.0));
    assert!((share(late) - (1.0 - within)).abs() < 0.001, "{} {within}", share(late));
    // Servers that are never busy get what is sent twice in addition.
    let load = hedge.offered_rate(10.0, |_| Ok(1.0 - service.cdf(2.0))).unwrap();
    assert!((load / 10.0 - 1.0 - share(twice)).abs() < 0.002);
}

/// P(X > d) of an M/M/1 queue of unit service, as a function of its load.
fn late(delay: f64) -> impl Fn(f64) -> Result<f64, Error> {
    move |load| Ok(1.0 - Mm1::new(load, 1.0)?.response_cdf(delay))
}

#[test]
fn a_hedged_load_is_the_least_that_agrees_with_itself() {
    for (rate, delay) in [(0.2, 1.0), (0.4, 3.0), (0.5, 4.0), (0.45, 2.5), (0.3, 0.0)] {
        // x = rate·(1 + e^(−(1 − x)·delay)), from below on a fine grid.
        let wanted = |x: f64| rate * (1.0 + (-(1.0 - x) * delay).exp());
        let mut x = rate;
        while x < 1.0 && wanted(x) > x {
            x += 1e-5;
        }
        match Hedge::new(delay).unwrap().offered_rate(rate, late(delay)) {
            Ok(load) => {
                assert!((load - x).abs() < 2e-5, "{rate}: {load} {x}");
                assert!((load - wanted(load)).abs() < 1e-8);
            }
            Err(error) => {
                assert!(matches!(error, Error::Unstable { .. }), "{error}");
                assert!(x >= 1.0 - 2e-5, "{rate}, {delay}: settles at {x}");
            }
        }
    }
}

#[test]
fn bad_input_is_named() {
    let law = exponential;
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(Hedge::new(bad).is_err());
        assert!(Hedge::new(1.0).unwrap().offered_rate(bad, late(1.0)).is_err());
        assert!(ForkJoin::new(bad, law(), 2, 2).is_err());
        assert!(two_way_mean(bad, 1.0).is_err() && two_way_mean(0.1, bad).is_err());
    }
    assert!(matches!(ForkJoin::new(1.0, law(), 2, 2), Err(Error::Unstable { .. })));
    assert!(ForkJoin::new(0.5, law(), 2, 3).is_err() && ForkJoin::new(0.5, law(), 0, 0).is_err());
    assert!(
        nelson_tantawi_mean(0.5, 1.0, 33).is_err() && nelson_tantawi_mean(0.5, 1.0, 1).is_err()
    );
    assert!(varma_makowski_mean(0.5, 1.0, 0).is_err() && heavy_traffic_factor(0).is_err());
}

#[test]
fn one_part_is_its_queue_and_no_load_is_independent() {
    let alone = ForkJoin::new(0.7, exponential(), 1, 1).unwrap();
    assert!((alone.mean() - 1.0 / 0.3).abs() < 1e-6);
    assert!((alone.cdf(3.0) - Mm1::new(0.7, 1.0).unwrap().response_cdf(3.0)).abs() < 1e-8);
    let idle = ForkJoin::new(0.0, exponential(), 4, 4).unwrap();
    assert!((idle.mean() - idle.independent_mean()).abs() < 1e-9);
    // Constants wait alike: the slowest of them is any of them.
    let constant = ForkJoin::new(0.6, Arc::new(Deterministic::new(1.0).unwrap()), 5, 5).unwrap();
    assert!((constant.mean() - 1.75).abs() < 1e-6, "{constant:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn binomial_tails_agree_with_the_recursion(n in 2u32..40, at in 0.0f64..1.0, p in 0.0f64..1.0) {
        let k = 1 + (at * f64::from(n - 1)) as u32;
        let mut counts = vec![0.0; n as usize + 1];
        counts[0] = 1.0;
        for _ in 0..n {
            for j in (0..=n as usize).rev() {
                counts[j] = counts[j] * (1.0 - p) + if j > 0 { counts[j - 1] * p } else { 0.0 };
            }
        }
        let naive: f64 = counts[k as usize..].iter().sum();
        prop_assert!((fan_out::binomial_tail(n, k, p) - naive).abs() < 1e-12);
    }

    #[test]
    fn fork_joins_are_laws(rho in 0.01f64..0.97, ways in 1u32..20, more in 0u32..20, t in 0.0f64..60.0) {
        let found = ForkJoin::new(rho * f64::from(ways + more) / f64::from(ways), exponential(), ways + more, ways).unwrap();
        prop_assert!(found.part_mean() <= found.mean() * (1.0 + 1e-6));
        prop_assert!(found.mean() <= found.independent_mean() * (1.0 + 1e-6));
        let (low, high) = (found.cdf(t), found.cdf(t * 1.1 + 0.1));
        prop_assert!((0.0..=1.0).contains(&low) && low <= high + 1e-9 && high <= 1.0);
        prop_assert!(found.kth_cdf(1, t) >= low - 1e-9 && found.kth_cdf(ways + 1, t) == 0.0);
    }
}
