use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Exp, Gamma as GammaDraw, LogNormal};

use crate::distribution::{
    Complex64, Deterministic, Empirical, Exponential, Gamma, Hyperexponential, Lognormal,
    ServiceTime, UniformPlusExponential,
};
use crate::gold::json as gold;
use crate::statistics::batch_means;
use ground::window::Histogram;

use super::*;
use crate::error::Error;

mod limits;
mod mphm;
mod several;
mod suite;
mod uniformised;

pub(crate) use mphm::Mphm;

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap()
}

fn check_sojourn(name: &str, mean: f64, cdf: impl Fn(f64) -> f64) {
    let Some(file) = gold(&format!("sojourn/{name}.json")) else { return };
    let expected = number(&file["mean"]);
    assert!((mean / expected - 1.0).abs() < 1e-12, "{name}: mean {mean} {expected}");
    let mut worst = 0.0f64;
    for row in file["cdf"].as_array().unwrap() {
        let (t, f, error) = (number(&row[0]), number(&row[1]), number(&row[2]));
        let off = (cdf(t) - f).abs();
        worst = worst.max(off);
        assert!(off <= (10.0 * error).max(1e-9), "{name} at {t}: off by {off:e}");
    }
    println!("{name}: worst error {worst:.1e}");
}

#[test]
fn response_laws_agree_with_gold() {
    for (name, rate) in [("mm1_a", 50.0), ("mm1_b", 90.0)] {
        let queue = Mm1::new(rate, 100.0).unwrap();
        check_sojourn(name, queue.response_mean(), |t| queue.response_cdf(t));
        let same = Mg1::new(rate, Exponential::new(0.01).unwrap()).unwrap();
        check_sojourn(name, same.response_mean(), |t| same.response_cdf(t));
    }
    let queue = Mg1::new(90.0, Gamma::new(0.01, 0.25).unwrap()).unwrap();
    check_sojourn("mg1_gamma25_90", queue.response_mean(), |t| queue.response_cdf(t));
    let h2 = Hyperexponential::new(&[(0.8873, 1.0 / 177.46), (0.1127, 1.0 / 22.54)]).unwrap();
    let queue = Mg1::new(80.0, h2).unwrap();
    check_sojourn("mg1_h2_80", queue.response_mean(), |t| queue.response_cdf(t));
    let disk = UniformPlusExponential::new(0.008_33, 0.001, 0.007).unwrap();
    let queue = Mg1::new(58.0, disk).unwrap();
    check_sojourn("mg1_disk_70", queue.response_mean(), |t| queue.response_cdf(t));
    let queue = Md1::new(80.0, 0.01).unwrap();
    check_sojourn("md1_80", queue.response_mean(), |t| queue.response_cdf(t));
}

#[test]
fn means_agree_with_octave() {
    for name in ["mm1_a", "mm1_b"] {
        let Some(file) = gold(&format!("octave/{name}.json")) else { return };
        let arg = |i: usize| number(&file["args"][i]);
        let out = |key: &str| number(&file["out"][key]);
        let queue = Mm1::new(arg(0), arg(1)).unwrap();
        assert!((queue.utilisation() / out("U") - 1.0).abs() < 1e-12);
        assert!((queue.response_mean() / out("R") - 1.0).abs() < 1e-12);
        assert!((queue.number_mean() / out("Q") - 1.0).abs() < 1e-12);
        assert!((queue.number_probability(0) / out("p0") - 1.0).abs() < 1e-12);
    }
    for name in ["mg1_det", "mg1_h2"] {
        let Some(file) = gold(&format!("octave/{name}.json")) else { return };
        let arg = |i: usize| number(&file["args"][i]);
        let (rate, mean, second) = (arg(0), arg(1), arg(2));
        let scv = second / (mean * mean) - 1.0;
        let response = mean + waiting_mean(rate, mean, scv, 1);
        assert!((response / number(&file["out"]["R"]) - 1.0).abs() < 1e-12);
        assert!((rate * response / number(&file["out"]["Q"]) - 1.0).abs() < 1e-12);
    }
}

/// P(W ≤ k·step) by geometric compounding of the residual service on a grid: the naive twin of the
/// inversion. W is a geometric number of residuals: w[n] = (1−ρ)·[n = 0] + ρ·Σ e[j] w[n−j].
fn compounded(rate: f64, law: &dyn ServiceTime, step: f64, n: usize) -> Vec<f64> {
    let rho = rate * law.mean();
    // Mass of the residual in cell j, put on its ends in equal halves.
    let above = |x: f64| 1.0 - law.cdf(x);
    let cell = |j: usize| {
        let x = j as f64 * step;
        (above(x) + 4.0 * above(x + 0.5 * step) + above(x + step)) / 6.0 * step / law.mean()
    };
    let mut mass = vec![0.0; n + 1];
    for j in 0..n {
        let half = 0.5 * cell(j);
        mass[j] += half;
        mass[j + 1] += half;
    }
    let mut waiting = vec![0.0; n];
    for i in 0..n {
        let start = if i == 0 { 1.0 - rho } else { 0.0 };
        let sum: f64 = (1..=i).map(|j| mass[j] * waiting[i - j]).sum();
        waiting[i] = (start + rho * sum) / (1.0 - rho * mass[0]);
    }
    let mut total = 0.0;
    // Half of the mass on a grid point lies below it.
    waiting
        .iter()
        .enumerate()
        .map(|(i, w)| {
            total += w;
            if i == 0 { 1.0 - rho } else { total - 0.5 * w }
        })
        .collect()
}

#[test]
fn inversion_agrees_with_compounding() {
    for (scv, rho) in [(0.25, 0.9), (1.0, 0.5), (2.0, 0.8), (4.0, 0.7)] {
        let law = Gamma::new(1.0, scv).unwrap();
        let grid = compounded(rho, &law, 0.01, 1_500);
        let queue = Mg1::new(rho, law).unwrap();
        for i in [50, 100, 200, 500, 1_000, 1_499] {
            let off = (queue.waiting_cdf(i as f64 * 0.01) - grid[i]).abs();
            assert!(off < 1e-3, "scv {scv}, ρ {rho}, t {}: off by {off:e}", i as f64 * 0.01);
        }
    }
}

#[test]
fn a_measured_constant_is_nearly_a_constant() {
    let exact = Md1::new(90.0, 0.01).unwrap();
    let mut times = Histogram::default();
    (0..1000).for_each(|i| times.record(10_000_000 + i % 7 * 10));
    let measured = Mg1::new(90.0, Empirical::from_histogram(&times).unwrap()).unwrap();
    let by_transform = Mg1::new(90.0, Deterministic::new(0.01).unwrap()).unwrap();
    for k in 1..80 {
        let t = 0.01 * (f64::from(k) * 0.1 + 0.05);
        let expected = exact.response_cdf(t);
        for (name, found) in
            [("measured", measured.response_cdf(t)), ("transform", by_transform.response_cdf(t))]
        {
            assert!((found - expected).abs() < 2e-3, "{name} at {t}: {found} {expected}");
        }
    }
}

/// Responses of a single-server queue by Lindley's recursion.
fn lindley(
    rate: f64,
    jobs: usize,
    seed: u64,
    mut service: impl FnMut(&mut StdRng) -> f64,
) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(seed);
    let gaps = Exp::new(rate).unwrap();
    let mut waiting = 0.0f64;
    let mut responses = Vec::with_capacity(jobs);
    for i in 0..jobs + jobs / 10 {
        let time = service(&mut random);
        if i >= jobs / 10 {
            responses.push(waiting + time);
        }
        waiting = (waiting + time - gaps.sample(&mut random)).max(0.0);
    }
    responses
}

#[test]
fn simulated_queues_respond_as_predicted() {
    const JOBS: usize = 3_000_000;
    for (rho, limit) in [(0.3, 0.005), (0.7, 0.005), (0.9, 0.01), (0.95, 0.02)] {
        let gamma = |scv: f64| GammaDraw::new(1.0 / scv, scv).unwrap();
        let lognormal = LogNormal::new(-(5.0f64.ln()) / 2.0, 5.0f64.ln().sqrt()).unwrap();
        let (low, high) = (gamma(0.2), gamma(2.0));
        let one = Exp::new(1.0).unwrap();
        let cases: [(&str, Box<dyn ServiceTime>, Vec<f64>); 4] = [
            (
                "gamma 0.2",
                Box::new(Gamma::new(1.0, 0.2).unwrap()),
                lindley(rho, JOBS, 11, |r| low.sample(r)),
            ),
            (
                "exponential",
                Box::new(Exponential::new(1.0).unwrap()),
                lindley(rho, JOBS, 12, |r| one.sample(r)),
            ),
            (
                "gamma 2",
                Box::new(Gamma::new(1.0, 2.0).unwrap()),
                lindley(rho, JOBS, 13, |r| high.sample(r)),
            ),
            (
                "lognormal 4",
                Box::new(Lognormal::new(1.0, 4.0).unwrap()),
                lindley(rho, JOBS, 14, |r| lognormal.sample(r)),
            ),
        ];
        for (name, law, responses) in cases {
            let (mut worst, mut widest) = (0.0f64, 0.0f64);
            for t in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 40.0] {
                let share = |batch: &[f64]| {
                    batch.iter().filter(|r| **r <= t).count() as f64 / batch.len() as f64
                };
                let batches: Vec<f64> = responses.chunks(JOBS / 25).map(share).collect();
                let simulated = batch_means(&batches).unwrap();
                let predicted = Evaluated::new(law.as_ref(), 1, t).response_cdf(rho);
                let off = (simulated.mean - predicted).abs();
                let allowed = 1.6 * simulated.half_width + 5e-4;
                assert!(off < allowed, "{name} at {rho}, {t}: off by {off:.4}, {allowed:.4}");
                worst = worst.max(off);
                widest = widest.max(simulated.half_width);
            }
            println!("{name} at {rho}: worst {:.2} ± {:.2} points", worst * 100.0, widest * 100.0);
            assert!(worst < limit, "{name} at {rho}: {worst:.4}");
        }
    }
}

#[test]
fn several_servers_are_exact_for_exponential_service() {
    // M/M/3 at 70 %: waiting is 0 with 1 − C, else exponential of rate cµ − λ.
    let (rate, servers, mean) = (210.0, 3, 0.01);
    let law = Exponential::new(mean).unwrap();
    let (c, beyond) = (erlang_c(servers, 0.7), 300.0 - rate);
    for t in [0.002f64, 0.01, 0.03, 0.1] {
        let found = Evaluated::new(&law, servers, t).response_cdf(rate);
        let alone = 1.0 - (-100.0 * t).exp();
        let both =
            1.0 - (100.0 * (-beyond * t).exp() - beyond * (-100.0 * t).exp()) / (100.0 - beyond);
        let expected = (1.0 - c) * alone + c * both;
        assert!((found - expected).abs() < 1e-8, "at {t}: {found} {expected}");
    }
}

#[test]
fn unstable_queues_are_named() {
    for rate in [100.0, 101.0, 1e300] {
        assert!(matches!(Mm1::new(rate, 100.0), Err(Error::Unstable { .. })));
        assert!(matches!(Md1::new(rate, 0.01), Err(Error::Unstable { .. })));
    }
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        assert!(Mm1::new(bad, 100.0).is_err() && Mm1::new(1.0, bad).is_err());
        assert!(Md1::new(bad, 0.01).is_err() && Md1::new(1.0, bad).is_err());
        assert!(Mg1::new(bad, Exponential::new(0.01).unwrap()).is_err());
    }
}

proptest! {
    #[test]
    fn mg1_with_exponential_service_is_mm1(rho in 0.0f64..0.99, at in 0.01f64..20.0) {
        let naive = Mm1::new(rho, 1.0).unwrap();
        let queue = Mg1::new(rho, Exponential::new(1.0).unwrap()).unwrap();
        prop_assert!((queue.response_mean() / naive.response_mean() - 1.0).abs() < 1e-12);
        let t = at * naive.response_mean();
        // Thousands of services long, at 99 %: what the transform loses to rounding.
        let error = 1e-9f64.max(1e-13 * t / (1.0 - rho) * 100.0);
        prop_assert!((queue.response_cdf(t) - naive.response_cdf(t)).abs() < error);
        prop_assert!((queue.waiting_cdf(t) - naive.waiting_cdf(t)).abs() < error);
    }

    #[test]
    fn cdfs_rise_from_0_to_1(rho in 0.01f64..0.98, scv in 0.05f64..6.0, t in 0.0f64..50.0, dt in 0.0f64..5.0) {
        let queue = Mg1::new(rho, Gamma::new(1.0, scv).unwrap()).unwrap();
        let constant = Md1::new(rho, 1.0).unwrap();
        for (low, high) in [
            (queue.response_cdf(t), queue.response_cdf(t + dt)),
            (queue.waiting_cdf(t), queue.waiting_cdf(t + dt)),
            (constant.waiting_cdf(t), constant.waiting_cdf(t + dt)),
        ] {
            prop_assert!((0.0..=1.0).contains(&low) && (0.0..=1.0).contains(&high));
            prop_assert!(low <= high + 1e-8, "{low} {high}");
        }
        prop_assert!(queue.response_cdf(t) <= queue.waiting_cdf(t) + 1e-8);
    }

    #[test]
    fn quantiles_invert(rho in 0.05f64..0.95, p in 0.0f64..0.999) {
        let queue = Mg1::new(rho, Gamma::new(1.0, 0.5).unwrap()).unwrap();
        let t = queue.response_quantile(p).unwrap();
        prop_assert!((queue.response_cdf(t) - p).abs() < 1e-7);
        let constant = Md1::new(rho, 1.0).unwrap();
        prop_assert!(constant.response_cdf(constant.response_quantile(p).unwrap()) >= p);
        prop_assert!(queue.response_quantile(1.0).is_err());
        prop_assert!(queue.response_quantile(f64::NAN).is_err());
    }

    #[test]
    fn a_random_draw_never_makes_a_nan(rate in any::<f64>(), mean in any::<f64>(), t in any::<f64>()) {
        if let Ok(queue) = Exponential::new(mean).and_then(|law| Mg1::new(rate, law)) {
            prop_assert!((0.0..=1.0).contains(&queue.response_cdf(t)));
            prop_assert!((0.0..=1.0).contains(&queue.waiting_cdf(t)));
        }
        if let Ok(queue) = Md1::new(rate, mean) {
            prop_assert!((0.0..=1.0).contains(&queue.response_cdf(t)));
        }
    }
}

#[test]
fn md1_agrees_with_erlang_where_that_is_exact() {
    let (rho, queue) = (0.6, Md1::new(0.6, 1.0).unwrap());
    for t in [0.0, 0.3, 1.0, 2.5, 4.9, 8.0] {
        let mut sum = 0.0;
        for k in 0..=(t as i32) {
            let u = rho * (f64::from(k) - t);
            let factorial: f64 = (1..=k).map(f64::from).product();
            sum += u.powi(k) / factorial * (-u).exp();
        }
        let naive = (1.0 - rho) * sum;
        assert!((queue.waiting_cdf(t) - naive).abs() < 1e-11, "{t}");
    }
}

#[test]
fn md1_near_saturation_has_an_exponential_tail() {
    // At ρ = 0.999 the mean waiting time is 499.5 services; the tail's rate θ solves ρ(e^θ − 1) =
    // θ.
    let rho = 0.999;
    let queue = Md1::new(rho, 1.0).unwrap();
    let mut theta = 2.0 * (1.0 - rho) / rho;
    for _ in 0..50 {
        theta -= (rho * theta.exp_m1() - theta) / (rho * theta.exp() - 1.0);
    }
    let above = |t: f64| 1.0 - queue.waiting_cdf(t);
    for t in [500.5, 1_900.5, 2_100.5, 4_000.5] {
        let ratio = above(t + 200.0) / above(t) / (-200.0 * theta).exp();
        assert!((ratio - 1.0).abs() < 1e-6, "{t}: {ratio}");
    }
}
