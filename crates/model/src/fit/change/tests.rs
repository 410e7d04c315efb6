use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, Poisson};
use statrs::distribution::{Continuous, Gamma, Normal};

use crate::fit::fit;
use crate::fit::input::Options;
use crate::fit::tests::{Simulated, laws, simulated};
use crate::model_file::FittedStep;

use super::*;

/// What an interval is drawn of.
#[derive(Clone, Copy)]
struct Truth {
    rate: f64,
    hit_ratio: f64,
    mean: f64,
    /// Share by which the rate rises and falls in turn, sub-interval by sub-interval.
    swing: f64,
}

const FITTED: Truth = Truth { rate: 300.0, hit_ratio: 0.6, mean: 0.008, swing: 0.0 };

/// A model with intervals of 1 % of the service time and 0.5 % of the hit ratio.
fn model() -> Model {
    let mut model = Model::from_toml(
        r#"
        format = 1
        [requests]
        q0 = { value = 0.6, low = 0.595, high = 0.605, unit = "1" }
        alpha = { value = 0.0, low = 0.0, high = 0.0, unit = "s" }
        other_share = { value = 0.0, low = 0.0, high = 0.0, unit = "1" }
        front_delay = { value = 0.0, low = 0.0, high = 0.0, unit = "s" }
        joining = { value = 0.0, low = 0.0, high = 0.0, unit = "1" }
        joining_knee = { value = 1e9, low = 1e9, high = 1e9, unit = "reads" }
        rate_low = 100.0
        rate_high = 400.0
        [spotify]
        q0 = { value = 0.6, low = 0.6, high = 0.6, unit = "1" }
        alpha = { value = 0.0, low = 0.0, high = 0.0, unit = "s" }
        mu_d = { value = 125.0, low = 125.0, high = 125.0, unit = "1/s" }
        n_d = 4
        [[classes]]
        name = "bulk_device"
        servers = 1
        [classes.service]
        mean = { value = 0.008, low = 0.00792, high = 0.00808, unit = "s" }
        scv = { value = 1.0, low = 1.0, high = 1.0, unit = "1" }
        shape = [[0.5, 0.5, 0.6], [1.75, 0.7, 0.4]]
        [[devices]]
        class = "bulk_device"
        count = 4
        share = 0.25
        factor = 1.0
        "#,
    )
    .unwrap();
    model.fitted = vec![FittedStep {
        name: String::new(),
        rate: 300.0,
        seconds: 100.0,
        requests: 30_000,
        hit_ratio: 0.6,
        dispersion: 1.0,
        utilisation: 0.24,
        utilisation_predicted: 0.24,
        queue_length: 0.3,
        queue_length_predicted: 0.3,
        response_mean: 0.004,
        response_mean_predicted: 0.004,
        ks_distance: 0.0,
        points: Vec::new(),
    }];
    model
}

/// The windows of a second.
fn second(random: &mut StdRng, number: u64, truth: Truth) -> (Window, Window) {
    let mut client = Window::new("load", number * 1_000_000, 0, &[]);
    client.length_s = 1.0;
    let mut hits = 0;
    for i in 0..16 {
        let swing = if i % 2 == 0 { truth.swing } else { -truth.swing };
        let count = Poisson::new(truth.rate / 16.0 * (1.0 + swing)).unwrap().sample(random) as u64;
        client.arrivals += count;
        client.dispersion.intervals += 1;
        client.dispersion.sum += count;
        client.dispersion.sum_of_squares += count * count;
        hits += (0..count).filter(|_| random.random::<f64>() < truth.hit_ratio).count() as u64;
    }
    client.times_mut(Operation::Get, Outcome::Memory).response.record_many(1_000, hits);
    let reads = client.arrivals - hits;
    let bulk = client.times_mut(Operation::Get, Outcome::BulkDevice);
    bulk.response.record_many(8_000_000, reads);
    let mut device = Window::new("device/0", number * 1_000_000, 1, &[]);
    device.length_s = 1.0;
    let service = Exp::new(1.0 / truth.mean).unwrap();
    let times = device.times_mut(Operation::Get, Outcome::BulkDevice);
    for _ in 0..reads {
        times.service.record((service.sample(random) * 1e9) as u64);
    }
    (client, device)
}

#[test]
fn nothing_changed_alarms_no_oftener_than_stated() {
    // At the edges of the fitted interval too: what the fit did not know is no change.
    let edges = [
        FITTED,
        Truth { mean: 0.00808, hit_ratio: 0.595, ..FITTED },
        Truth { mean: 0.00792, hit_ratio: 0.605, ..FITTED },
    ];
    let options = WatchOptions { intervals: 300.0, ..WatchOptions::default() };
    let model = model();
    let mut random = StdRng::seed_from_u64(1);
    for truth in edges {
        let (mut alarms, intervals) = (0, 4_000);
        let mut watch = Watch::new(&model, options).unwrap();
        for number in 0..intervals {
            let (client, device) = second(&mut random, number, truth);
            if !watch.push(Some(&client), &[&device]).is_empty() {
                alarms += 1;
                watch = Watch::new(&model, options).unwrap();
            }
        }
        let most = intervals as f64 / options.intervals;
        assert!(f64::from(alarms) <= most + 3.0 * most.sqrt(), "{alarms} alarms");
    }
}

#[test]
fn what_changed_is_named_with_its_time_and_size() {
    let model = model();
    let cases: [(Truth, Watched, f64, f64); 6] = [
        (
            Truth { mean: 0.0088, ..FITTED },
            Watched::ServiceTime("bulk_device".into()),
            0.008,
            0.0088,
        ),
        (
            Truth { mean: 0.0070, ..FITTED },
            Watched::ServiceTime("bulk_device".into()),
            0.008,
            0.0070,
        ),
        (Truth { hit_ratio: 0.54, ..FITTED }, Watched::HitRatio, 0.6, 0.54),
        (Truth { hit_ratio: 0.68, ..FITTED }, Watched::HitRatio, 0.6, 0.68),
        // Counts of 300/16 with a swing of 0.5 both ways: 1 + 0.25·300/16, by 16/15 of the unbiased
        // variance.
        (
            Truth { swing: 0.5, ..FITTED },
            Watched::Dispersion,
            1.0,
            1.0 + 0.25 * 18.75 * 16.0 / 15.0,
        ),
        (
            Truth { swing: 0.4, ..FITTED },
            Watched::Dispersion,
            1.0,
            1.0 + 0.16 * 18.75 * 16.0 / 15.0,
        ),
    ];
    for (i, (truth, parameter, fitted, now)) in cases.into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(10 + i as u64);
        let mut watch = Watch::new(&model, WatchOptions::default()).unwrap();
        let mut found = Vec::new();
        for number in 0..1_000 {
            let truth = if number < 500 { FITTED } else { truth };
            let (client, device) = second(&mut random, number, truth);
            found.extend(watch.push(Some(&client), &[&device]));
        }
        assert_eq!(found.len(), 1, "{parameter}: {found:?}");
        assert_eq!((&found[0].parameter, watch.intervals()), (&parameter, 1_000));
        let change = watch.changes().remove(0);
        assert!((change.fitted - fitted).abs() < 0.02 * fitted, "{change:?}");
        let half = change.now.high - change.now.value;
        assert!((change.now.value - now).abs() < 2.0 * half, "{change:?}");
        assert!(half < 0.1 * now, "{change:?}");
        let (since, certain) =
            (change.since_unix_us / 1_000_000, change.certain_unix_us / 1_000_000);
        assert!((465..=520).contains(&since), "{change:?}");
        assert!((501..=680).contains(&certain), "{change:?}");
    }
}

#[test]
fn a_fitted_system_is_watched_at_any_load() {
    let law = || laws().swap_remove(1).1;
    let system = simulated(law());
    let step = |system: &Simulated, utilisation: f64, seed: u64| {
        system.step(simulated(law()).rate(utilisation), 60.0, seed)
    };
    let steps = [step(&system, 0.3, 1), step(&system, 0.5, 2)];
    let model = fit(&steps, &Options::default()).unwrap();
    let mut watch = Watch::new(&model, WatchOptions::default()).unwrap();
    for (utilisation, seed) in [(0.4, 3), (0.2, 4), (0.6, 5)] {
        let found = watch.push_step(&step(&system, utilisation, seed));
        assert!(found.is_empty(), "{found:?}");
    }
    assert_eq!(watch.intervals(), 180, "windows of one second are one interval");
    let slower = Simulated { mean: 0.0086, ..simulated(law()) };
    let found = watch.push_step(&step(&slower, 0.4, 6));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].parameter, Watched::ServiceTime("bulk_device".into()));
    let colder = Simulated { hit_ratio: 0.24, ..simulated(law()) };
    let found = watch.push_step(&step(&colder, 0.4, 7));
    assert!(found.iter().any(|c| c.parameter == Watched::HitRatio), "{found:?}");
    assert_eq!(watch.changes().len(), 2);
}

#[test]
fn little_and_nothing_are_no_change() {
    let mut watch = Watch::new(&model(), WatchOptions::default()).unwrap();
    let mut random = StdRng::seed_from_u64(2);
    let few = Truth { rate: 2.0, mean: 0.02, ..FITTED };
    for number in 0..20 {
        let (client, device) = second(&mut random, number, few);
        assert!(watch.push(Some(&client), &[&device]).is_empty());
    }
    assert!(watch.push(None, &[]).is_empty());
    // Hundreds of reads of 20 ms, together, are.
    let all: usize = (20..600)
        .map(|number| {
            let (client, device) = second(&mut random, number, few);
            watch.push(Some(&client), &[&device]).len()
        })
        .sum();
    assert_eq!(all, 1);
    // What nobody names is no miss.
    let mut watch = Watch::new(&model(), WatchOptions::default()).unwrap();
    for number in 0..200 {
        let mut client = Window::new("load", number * 1_000_000, 0, &[]);
        (client.length_s, client.arrivals) = (1.0, 300);
        client.times_mut(Operation::Get, Outcome::Unknown).response.record_many(1_000, 300);
        assert!(watch.push(Some(&client), &[]).is_empty());
    }
    let none = WatchOptions { service_change: 0.0, ..WatchOptions::default() };
    assert!(Watch::new(&model(), none).is_err());
}

#[test]
fn one_stall_is_no_change() {
    let mut watch = Watch::new(&model(), WatchOptions::default()).unwrap();
    let mut random = StdRng::seed_from_u64(3);
    for number in 0..200 {
        let stall = Truth { mean: 0.03, ..FITTED };
        let truth = if number == 100 { stall } else { FITTED };
        let (client, device) = second(&mut random, number, truth);
        assert!(watch.push(Some(&client), &[&device]).is_empty(), "at {number}");
    }
}

#[test]
fn ratios_are_those_of_the_densities() {
    for x in [0.2, 0.9, 1.1, 2.5] {
        let normal = |mean: f64| Normal::new(mean, 0.3).unwrap().ln_pdf(x);
        let expected = normal(0.14) - normal(0.1);
        assert!((normal_ratio(x, 0.09, 0.1, 0.04) - expected).abs() < 1e-12);
        let gamma = |mean: f64| Gamma::new(7.5, 7.5 / mean).unwrap().ln_pdf(x);
        let expected = gamma(1.8) - gamma(1.2);
        assert!((gamma_ratio(x, 7.5, 1.2, 1.8) - expected).abs() < 1e-12);
    }
}

proptest! {
    /// The naive twin: the largest sum of ratios over all starts, and that start.
    #[test]
    fn a_cusum_is_the_largest_sum_over_all_starts(
        ratios in proptest::collection::vec(-1.0..1.0f64, 1..80),
    ) {
        let mut cusum = Cusum::default();
        for (i, ratio) in ratios.iter().enumerate() {
            let seen = Sample::Normal { x: *ratio, variance: 1.0, fitted: 0.0 };
            cusum.add(*ratio, seen, i as u64, 1e9, true);
            let best = (0..=i)
                .map(|from| (from, ratios[from..=i].iter().sum::<f64>()))
                .fold((0, 0.0), |best, x| if x.1 > best.1 + 1e-12 { x } else { best });
            prop_assert!((cusum.score - best.1).abs() < 1e-9);
            if best.1 > 1e-9 {
                prop_assert_eq!(cusum.since_us, best.0 as u64);
                let sum: f64 = ratios[best.0..=i].iter().sum();
                prop_assert!((cusum.sum - sum).abs() < 1e-9);
            }
        }
    }
}
