use proptest::prelude::*;

use crate::fit::fit;
use crate::fit::input::{Options, Step};
use crate::fit::tests::{Simulated, laws, simulated};
use ground::window::Histogram;

use super::*;

/// A system with service of SCV 0.25 whose devices pause before each read.
fn pausing(pause: f64) -> Simulated {
    Simulated { pause, ..simulated(laws().swap_remove(1).1) }
}

fn find(model: &Model, source: EvidenceSource) -> Evidence {
    model.evidence.iter().find(|e| e.source == source).cloned().unwrap()
}

/// Half the width of an interval over the value.
fn half(p: &Parameter) -> f64 {
    0.5 * (p.high - p.low) / p.value
}

#[test]
fn throughput_at_saturation_tells_the_pause_that_services_do_not() {
    // Reads hold a device for 8.2 ms; 8 ms of them are recorded as service.
    let system = pausing(0.0002);
    let truth = 0.0082;
    let steady = [system.step(system.rate(0.2), 60.0, 1), system.step(system.rate(0.3), 60.0, 2)];
    let without = fit(&steady, &Options::default()).unwrap();
    let mut steps = steady.to_vec();
    steps.push(Step { name: "past".into(), ..system.step(system.rate(1.5), 40.0, 3) });
    let model = fit(&steps, &Options::default()).unwrap();
    let mean = &model.classes[0].service.mean;
    assert!((mean.value / truth - 1.0).abs() < 0.003, "{mean:?}");
    assert!(mean.low < truth && mean.high > truth, "{mean:?}");
    assert!(without.classes[0].service.mean.value < 0.9925 * truth);
    assert!(find(&model, EvidenceSource::Saturation).weight > 0.9, "{:?}", model.evidence);
    assert!(model.warnings.iter().any(|w| w.contains("At saturation")), "{:?}", model.warnings);
    // It reaches every resampling, and the load of the saturated step is not one that was fitted.
    let column = format!("mean_s.{}", model.classes[0].name);
    let mut draws = model.replicates.draws().map(|draw| draw.get(&column).unwrap());
    assert!(draws.all(|drawn| (drawn / truth - 1.0).abs() < 0.01));
    assert!(model.requests.rate_high < system.rate(0.31));
    assert_eq!(model.fitted.len(), 2);
    // What it is for: 90 % of the devices' capacity.
    let rate = 0.9 * 16.0 / truth / 0.7;
    let (client, _) = system.run(rate, 500.0, 7);
    let measured: Vec<_> = client.iter().filter(|v| v.0 > 20.0).collect();
    let within = measured.iter().filter(|v| v.3 <= 0.05).count() as f64 / measured.len() as f64;
    let error = |model: &Model| (model.cdf(rate, &[0.05]).unwrap()[0] - within).abs();
    assert!(error(&model) < 0.015, "{}", error(&model));
    assert!(error(&without) > 1.5 * error(&model), "{} {}", error(&without), error(&model));
}

/// Services as a tool that prints a few digits a second would give them: each window's mean, off by
/// chance.
fn coarse(mut step: Step, seed: u64) -> Step {
    let mut state = seed;
    for window in step.devices.iter_mut().flatten() {
        state = ground::window::key_hash(&state.to_le_bytes());
        let noise = 0.8 + 0.4 * (state >> 11) as f64 / (1u64 << 53) as f64;
        for times in &mut window.times {
            let (n, mean) = (times.service.count(), times.service.mean_s() * noise);
            let mut service = Histogram::default();
            service.record_many((0.5 * mean * 1e9) as u64, n / 2);
            service.record_many((1.5 * mean * 1e9) as u64, n - n / 2);
            times.service = service;
        }
    }
    step
}

#[test]
fn throughput_narrows_what_coarse_services_leave_open() {
    let system = pausing(0.0);
    let steady = [
        coarse(system.step(system.rate(0.2), 30.0, 1), 1),
        coarse(system.step(system.rate(0.3), 30.0, 2), 2),
    ];
    let without = fit(&steady, &Options::default()).unwrap();
    let mut steps = steady.to_vec();
    steps.push(coarse(system.step(system.rate(1.5), 60.0, 3), 3));
    let model = fit(&steps, &Options::default()).unwrap();
    let (before, after) = (&without.classes[0].service.mean, &model.classes[0].service.mean);
    assert!(half(after) < 0.6 * half(before), "{before:?} {after:?}");
    assert!((after.value / 0.008 - 1.0).abs() < 0.003, "{after:?}");
    let total: f64 = model.evidence.iter().map(|e| e.weight).sum();
    assert!((total - 1.0).abs() < 1e-9);
    let band = |model: &Model| {
        let prediction = model.predict(system.rate(0.85), &[0.05]).unwrap();
        prediction.points[0].concertina.high - prediction.points[0].concertina.low
    };
    assert!(band(&model) < 0.8 * band(&without), "{} {}", band(&model), band(&without));
}

#[test]
fn responses_alone_find_the_service_time() {
    for (pause, truth) in [(0.0, 0.008), (0.0004, 0.0084)] {
        let system = pausing(pause);
        let steps =
            [system.step(system.rate(0.4), 60.0, 1), system.step(system.rate(0.6), 60.0, 2)];
        let model = fit(&steps, &Options::default()).unwrap();
        let found = find(&model, EvidenceSource::Responses);
        assert!((found.mean.value / truth - 1.0).abs() < 0.012, "{pause}: {found:?}");
        if pause == 0.0 {
            let mean = &model.classes[0].service.mean;
            assert!((mean.value / truth - 1.0).abs() < 0.004, "{mean:?}");
        }
    }
}

#[test]
fn only_saturated_steps_are_no_fit() {
    let system = pausing(0.0);
    let past = system.step(system.rate(1.5), 20.0, 3);
    let error = fit(&[past], &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Overloaded { .. }), "{error}");
}

#[test]
fn a_device_busy_by_itself_is_saturated_by_itself() {
    // Device 0 gets twice its share: past its capacity while the others are not.
    let system = Simulated { hot: 3.0, ..pausing(0.0) };
    let mut steps =
        vec![system.step(system.rate(0.2), 30.0, 1), system.step(system.rate(0.25), 30.0, 2)];
    steps.push(system.step(system.rate(0.45), 60.0, 3));
    let model = fit(&steps, &Options::default()).unwrap();
    let found = find(&model, EvidenceSource::Saturation);
    assert!((found.mean.value / 0.008 - 1.0).abs() < 0.02, "{found:?}");
    assert!(found.weight > 0.0 && found.weight < 0.5, "{found:?}");
}

#[test]
fn the_shares_between_edges_add_to_one() {
    assert_eq!(between(&[0.25, 0.5], 1.0), [0.25, 0.25, 0.5]);
    assert_eq!(between(&[], 7.0), [7.0]);
}

/// Counts exactly as expected at another mean score to that mean.
#[test]
fn scoring_finds_the_mean_that_made_the_counts() {
    let system = pausing(0.0);
    let steps = [system.step(system.rate(0.3), 20.0, 1), system.step(system.rate(0.6), 20.0, 2)];
    let model = fit(&steps, &Options { replicates: 0, ..Options::default() }).unwrap();
    let node = model.node().unwrap();
    let edges: Vec<f64> = (1..20).map(|i| 0.002 * f64::from(i)).collect();
    let rate = system.rate(0.6);
    let made_by = scaled(&node, 0.01).unwrap().cdf(rate, &edges).unwrap();
    let seen = Sums {
        requests: 1e6,
        within: made_by.iter().map(|share| share * 1e6).collect(),
        ..Sums::default()
    };
    let here = expected(&node, &edges, &[rate]).unwrap().unwrap();
    let (up, down) = score(&here[0], &seen, 0.0).unwrap();
    assert!((up / down - 0.01).abs() < 0.0005, "{}", up / down);
    // A load that is 1 % higher explains away what it made.
    let more = node.cdf(rate * 1.01, &edges).unwrap();
    let seen = Sums { within: more.iter().map(|share| share * 1e6).collect(), ..seen };
    let (up, down) = score(&here[0], &seen, 1.01f64.ln()).unwrap();
    assert!((up / down).abs() < 0.0005, "{}", up / down);
    let nothing = Sums { requests: 0.0, ..seen };
    assert!(score(&here[0], &nothing, 0.0).is_none());
}

proptest! {
    /// The naive twin: the best weight on a grid.
    #[test]
    fn the_best_weight_has_the_least_variance(
        first in 0.01..10.0f64,
        second in 0.01..10.0f64,
        correlation in -0.99..0.99f64,
    ) {
        let shared = correlation * (first * second).sqrt();
        let variance = |w: f64| {
            (1.0 - w).powi(2) * first + w * w * second + 2.0 * w * (1.0 - w) * shared
        };
        let found = best_weight(first, second, shared);
        prop_assert!((0.0..=1.0).contains(&found));
        for i in 0..=100 {
            let grid = variance(f64::from(i) / 100.0);
            prop_assert!(variance(found) <= grid + 1e-12, "{found} {i}");
        }
    }
}
