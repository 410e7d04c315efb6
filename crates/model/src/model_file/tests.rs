use proptest::prelude::*;

use super::*;
use crate::queue::Discipline;
use crate::{Error, HeldOut};

mod fan_out;
mod hedge;
mod known;
use crate::storage::{Change, Popularity};
use crate::trust::{Miss, TrustEnd};

fn model() -> Model {
    let p = |value: f64, unit: &str| Parameter {
        value,
        low: value * 0.98,
        high: value * 1.02,
        unit: unit.to_owned(),
    };
    let shape: Vec<[f64; 3]> = (0..100)
        .map(|i| {
            let low = f64::from(i) * 0.1;
            [low + 0.05, 0.05, (-low).exp() - (-low - 0.1).exp()]
        })
        .collect();
    let law = Law { mean: p(0.008, "s"), scv: p(1.0, "1"), shape };
    let memory = Law {
        mean: p(0.0003, "s"),
        scv: p(0.1, "1"),
        shape: vec![[0.9, 0.2, 0.5], [1.1, 0.5, 0.5]],
    };
    let row =
        |k: f64| vec![0.3, 0.0, 0.0, 0.0003, 1.0, 1e-5, 0.3, 0.0, 125.0 / k, 0.008 * k, 1.0 * k];
    Model {
        format: FORMAT,
        warnings: vec!["A \"quoted\" warning\nof two lines.".into()],
        about: About {
            title: "test".into(),
            runs: vec!["a".into()],
            laboratory: Some("simulated devices".into()),
        },
        requests: Requests {
            q0: p(0.3, "1"),
            alpha: p(0.0, "s"),
            other_share: p(0.0, "1"),
            front_delay: p(0.0003, "s"),
            front_delay_scv: None,
            joining: p(1e-5, "1"),
            joining_knee: p(1e9, "reads"),
            rate_low: 400.0,
            rate_high: 1_000.0,
        },
        spotify: SpotifyParameters {
            q0: p(0.3, "1"),
            alpha: p(0.0, "s"),
            mu_d: p(125.0, "1/s"),
            n_d: 16,
        },
        memory: Some(memory),
        other: None,
        classes: vec![ClassParameters {
            name: "bulk_device".into(),
            servers: 1,
            discipline: Discipline::Fifo,
            service: law,
            background: None,
            in_order: None,
            by_load: None,
            by_number: None,
            solved: Default::default(),
        }],
        devices: vec![
            Devices { class: "bulk_device".into(), count: 12, share: 0.06, factor: 1.0 },
            Devices { class: "bulk_device".into(), count: 4, share: 0.07, factor: 1.0 },
        ],
        front: None,
        assumed_arrivals: None,
        unknown_beyond: None,
        arrivals: Some(Arrivals {
            dispersion: vec![DispersionAt { scale_s: 0.0625, index: Parameter::exact(1.5, "1") }],
            scv: Parameter::exact(1.5, "1"),
            variation: None,
            change_rate: None,
        }),
        hypotheses: Vec::new(),
        kinds: Vec::new(),
        rates: None,
        evidence: vec![Evidence {
            class: "bulk_device".into(),
            source: EvidenceSource::Services,
            mean: Parameter::exact(0.008, "s"),
            weight: 1.0,
        }],
        fitted: vec![FittedStep {
            name: "400/s".into(),
            rate: 400.0,
            seconds: 60.0,
            requests: 24_000,
            hit_ratio: 0.3,
            dispersion: 1.01,
            utilisation: 0.14,
            utilisation_predicted: 0.14,
            queue_length: 0.16,
            queue_length_predicted: 0.16,
            response_mean: 0.0067,
            response_mean_predicted: 0.0067,
            ks_distance: 0.004,
            points: vec![FittedPoint {
                t_s: 0.02,
                measured: 0.92,
                predicted: 0.921,
                spotify: None,
            }],
        }],
        held_out: vec![HeldOut {
            name: "1400/s".into(),
            rate: 1_400.0,
            within_s: 0.02,
            error_points: -1.0,
            half_width_points: Some(0.2),
        }],
        replicates: Replicates {
            columns: columns(),
            rows: (0..60).map(|i| row(1.0 + f64::from(i - 30) * 3e-4)).collect(),
        },
    }
}

/// The names of a row's numbers.
fn columns() -> Vec<String> {
    let moments = ["mean_s.bulk_device", "scv.bulk_device"].map(String::from);
    Replicates::COLUMNS.map(String::from).into_iter().chain(moments).collect()
}

#[test]
fn the_file_comes_back() {
    let model = model();
    let text = model.to_toml().unwrap();
    assert_eq!(Model::from_toml(&text).unwrap(), model);
    assert!(text.contains("[requests]") && text.contains("# Where the model comes from."));
    let line = text.lines().find(|l| l.starts_with("q0 = {")).unwrap();
    assert!(line.contains("value = 0.3, low = 0.294, high = 0.306, unit = \"1\""), "{line}");
}

#[test]
fn hostile_files_are_errors_that_say_what() {
    let text = model().to_toml().unwrap();
    for (from, to, says) in [
        ("format = 2", "format = 3", "format 3"),
        ("value = 0.008,", "value = -0.008,", "mean of a law"),
        ("value = 0.008,", "value = nan,", "mean of a law"),
        ("value = 125.0, low = 122.5,", "value = inf, low = 122.5,", "mu_d"),
        ("share = 0.07", "share = 0.5", "sum of the devices' shares"),
        ("share = 0.07", "share = nan", "share"),
        ("count = 4", "count = 0", "number of devices"),
        ("class = \"bulk_device\"", "class = \"tape\"", "tape"),
        ("rate_high = 1000.0", "rate_high = -1.0", "rate_high"),
        ("[requests]", "[requests]\nwhat = 1", "what"),
        ("n_d = 16", "n_d = -3", "n_d"),
        ("n_d = 16", "n_d = 0", "n_d"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Model::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
    assert!(Model::from_toml("").is_err());
}

#[test]
fn predictions_carry_intervals_and_limits() {
    let model = model();
    let limits = model.limits().unwrap();
    let (mg1, saturation) = (limits.mg1.value, limits.saturation.value);
    for limit in [&limits.mg1, &limits.saturation, &limits.spotify_single] {
        assert!(limit.low < limit.value && limit.value < limit.high, "{limit:?}");
    }
    assert!(mg1 < saturation && limits.spotify_single.value < saturation * 1.2);
    let prediction = model.predict(mg1 * 1.2, &[0.02, 0.05, 0.1]).unwrap();
    assert!(prediction.beyond_limit && prediction.laboratory.is_some());
    assert!(!model.predict(mg1 * 0.9, &[0.02]).unwrap().beyond_limit);
    for point in &prediction.points {
        let p = &point.concertina;
        assert!(p.low < p.value && p.value < p.high, "{p:?}");
        assert!(point.spotify.is_some());
    }
    let cdf = model.cdf(prediction.rate, &[0.02, 0.05, 0.1]).unwrap();
    assert!(cdf.iter().zip(&prediction.points).all(|(f, p)| *f == p.concertina.value));
    let two = model.predict_cluster(prediction.rate * 2.0, 2, &[0.02]).unwrap();
    assert_eq!(two.points[0].concertina, prediction.points[0].concertina);
    assert!(two.confidence_limit < 2.0 * mg1);
    let json = serde_json::to_string(&prediction).unwrap();
    let back: Prediction = serde_json::from_str(&json).unwrap();
    assert!(back.points.len() == 3 && back.beyond_limit);

    let largest = model.largest_rate(0.05, 0.95).unwrap();
    assert!((model.cdf(largest, &[0.05]).unwrap()[0] - 0.95).abs() < 1e-6);
    let interval = model.largest_rate_with_interval(0.05, 0.95).unwrap();
    assert!(interval.low < largest && largest < interval.high);
    assert!(model.quantile(largest, 0.95).unwrap() - 0.05 < 1e-6);
    assert!(model.spotify_largest_rate(0.05, 0.95).unwrap() > 0.0);
    let error = model.predict_cluster(saturation * 3.0, 2, &[0.1]).unwrap_err();
    let Error::Unstable { saturation: both, .. } = error else { panic!("{error}") };
    assert!((both - 2.0 * saturation).abs() < 1e-6);
    let busy = &prediction.utilisation_max;
    assert!(busy.low < busy.value && busy.value < busy.high, "{busy:?}");
}

proptest! {
    #[test]
    fn any_text_is_a_model_or_an_error(text in "[ -~\n]{0,200}") {
        prop_assert!(Model::from_toml(&text).is_err());
    }

    #[test]
    fn any_question_gets_an_answer_or_an_error(rate in any::<f64>(), t in any::<f64>(), p in any::<f64>()) {
        let mut model = model();
        model.replicates.rows.truncate(2);
        if let Ok(prediction) = model.predict(rate, &[t]) {
            prop_assert!((0.0..=1.0).contains(&prediction.points[0].concertina.value));
        }
        if let Ok(rate) = model.largest_rate(t, p) {
            prop_assert!(!rate.is_nan());
        }
        if let Ok(cdf) = model.cdf(rate, &[t]) {
            prop_assert!((0.0..=1.0).contains(&cdf[0]));
        }
    }
}

#[test]
fn trust_ends_at_the_last_load_before_one_that_is_missed() {
    let mut model = model();
    let with = |held: &[(f64, f64)]| {
        let mut model = model.clone();
        let of = |&(rate, error_points): &(f64, f64)| HeldOut {
            rate,
            error_points,
            ..model.held_out[0].clone()
        };
        model.held_out = held.iter().map(of).collect();
        model
    };
    let trust = |held: &[(f64, f64)]| with(held).trust().unwrap();
    // Without held-out loads the fitted ones are the end.
    let fitted = trust(&[]);
    assert_eq!((fitted.end, fitted.bias_points), (TrustEnd::Unmeasured, None));
    assert_eq!((fitted.limit, fitted.held_out, fitted.missed), (1_000.0, 0, None));
    // A small error further out extends it, a large one ends it before.
    let further = trust(&[(1_400.0, -0.5)]);
    assert_eq!((further.end, further.bias_points), (TrustEnd::Unmeasured, Some(0.5)));
    assert_eq!(
        (further.limit, further.held_out, further.held_out_high),
        (1_400.0, 1, Some(1_400.0))
    );
    let wrong = trust(&[(700.0, 0.5), (1_400.0, 6.0)]);
    assert_eq!((wrong.end, wrong.limit, wrong.bias_points), (TrustEnd::Error, 700.0, Some(0.5)));
    assert_eq!(wrong.missed, Some(Miss { rate: 1_400.0, points: 6.0 }));
    // Of one load the worst time counts, and the fitted load below stays.
    let nearest = trust(&[(700.0, 0.5), (700.0, -5.5)]);
    assert_eq!(
        (nearest.limit, nearest.bias_points, nearest.misfit_points.is_some()),
        (400.0, None, true)
    );
    assert_eq!(trust(&[(300.0, -5.5)]).limit, 0.0);
    // A model that is right on held-out loads is trusted there, however wide its interval.
    let saturation = model.limits().unwrap().saturation.value;
    assert_eq!(trust(&[(saturation * 0.999, 0.3)]).limit, saturation * 0.999);
    // But a measurement of 5 points shows nothing.
    let mut vague = with(&[(1_400.0, 0.1)]);
    vague.held_out[0].half_width_points = Some(5.0);
    assert_eq!(vague.trust().unwrap().limit, 1_000.0);
    // Every prediction past it says so, of a cluster too.
    let known = with(&[(700.0, 0.5), (1_400.0, 6.0)]);
    for (factor, beyond) in [(1.0, false), (1.02, true)] {
        let (rate, two) = (wrong.limit * factor, wrong.limit * factor * 2.0);
        assert_eq!(known.predict(rate, &[0.02]).unwrap().beyond_trust, beyond);
        assert_eq!(known.predict_cluster(two, 2, &[]).unwrap().beyond_trust, beyond);
        let both = cluster(&[(known.clone(), 0.5), (known.clone(), 0.5)]);
        assert!((both.limits().trusted / wrong.limit - 2.0).abs() < 1e-9);
        let prediction = both.predict(two, &[]).unwrap();
        assert!(prediction.beyond_trust == beyond && prediction.nodes[0].beyond_trust == beyond);
    }
    // Slower devices are as busy at smaller loads, and trusted up to those.
    let both = cluster(&[(known.clone(), 0.5), (known.clone(), 0.5)]);
    let slow = Change::Speed { name: "a".to_owned(), factor: 0.3 };
    let slow = both.changed(&slow, Popularity::EQUAL).unwrap().limits();
    assert!(slow.trusted < 0.5 * both.limits().trusted && slow.trusted < slow.saturation);
    // That nothing was fitted again does not take away what was compared.
    model.replicates.rows.clear();
    assert_eq!(model.trust().unwrap().limit, 1_400.0);
    let mut bent = known;
    bent.held_out[0].error_points = f64::NAN;
    assert!(bent.check().is_err());
}

#[test]
fn a_misfit_of_the_fitted_loads_voids_trust() {
    let mut model = model();
    let (good, light) = (model.trust().unwrap(), model.fitted[0].clone());
    assert_eq!(good.end, TrustEnd::Unmeasured);
    assert!((good.misfit_points.unwrap() - 0.1).abs() < 1e-9, "{good:?}");
    // The heavier of two fitted loads is missed by 8 points: no trust there.
    let missed = |off: f64, rate: f64| {
        let points =
            vec![FittedPoint { t_s: 0.02, measured: 0.8, predicted: 0.8 - off, spotify: None }];
        FittedStep { rate, points, utilisation_predicted: 0.0, ..light.clone() }
    };
    model.fitted.push(missed(0.08, 1_000.0));
    let bent = model.trust().unwrap();
    assert_eq!((bent.end, bent.limit), (TrustEnd::Misfit, 400.0));
    assert!((bent.missed.unwrap().points - 8.0).abs() < 1e-9, "{bent:?}");
    assert!(model.predict(1_000.0, &[0.02]).unwrap().beyond_trust);
    assert!(!model.predict(300.0, &[0.02]).unwrap().beyond_trust);
    // Held-out loads that happen to be met do not save it, nor that none were held out.
    model.held_out.clear();
    assert_eq!(model.trust().unwrap().end, TrustEnd::Misfit);
    // Missed at the lightest load: trusted nowhere. Without objectives the distribution decides.
    model.fitted = vec![missed(-0.06, 400.0)];
    assert_eq!(model.trust().unwrap().limit, 0.0);
    model.fitted = vec![FittedStep { points: Vec::new(), ks_distance: 0.06, ..light }];
    assert_eq!(model.trust().unwrap().limit, 0.0);
    model.fitted.clear();
    assert_eq!(model.trust().unwrap().misfit_points, None);
}

#[test]
fn a_quantile_has_the_interval_of_the_replicates_own() {
    // Works known to a fifth have tails of other decays, and the interval of their quantiles began at 0.
    let mut wide = model();
    let count = wide.replicates.rows.len();
    for (at, row) in wide.replicates.rows.iter_mut().enumerate() {
        row[9] = 0.008 * (0.8 + 0.4 * at as f64 / (count - 1) as f64);
    }
    let cases = [(400.0, 0.5), (900.0, 0.9), (1_600.0, 0.99), (1_600.0, 0.9)];
    let narrow = model();
    let cases = cases.iter().map(|case| (&narrow, *case));
    for (model, (rate, p)) in cases.chain([(&wide, (400.0, 0.99)), (&wide, (1_200.0, 0.99))]) {
        let found = model.quantile_with_interval(rate, p).unwrap();
        let nodes = model.nodes_of_replicates().unwrap();
        let each: Vec<f64> = nodes.iter().map(|node| node.quantile(rate, p).unwrap()).collect();
        let exact = Parameter::from_replicates(model.quantile(rate, p).unwrap(), &each, "s");
        assert_eq!(found.value, exact.value);
        for (found, exact) in [(found.low, exact.low), (found.high, exact.high)] {
            assert!((found / exact - 1.0).abs() < 0.01, "{rate} {p}: {found} {exact}");
        }
    }
    assert!(narrow.quantile_with_interval(1e6, 0.9).is_err());
}

#[test]
fn an_interval_alone_is_that_of_a_prediction() {
    let model = model();
    let prediction = model.predict(900.0, &[0.02]).unwrap();
    assert_eq!(model.within(900.0, 0.02).unwrap(), prediction.points[0].concertina);
    assert!(model.within(1e9, 0.02).is_err() && model.within(1.0, f64::NAN).is_err());
}

fn cluster(models: &[(Model, f64)]) -> ClusterModel {
    let nodes: Vec<ClusterNode> = models
        .iter()
        .zip(["a", "b", "c"])
        .map(|((model, share), name)| ClusterNode {
            name: name.to_owned(),
            model: model.clone(),
            share: *share,
        })
        .collect();
    ClusterModel::new(&nodes, Parameter::exact(0.0002, "s")).unwrap()
}

#[test]
fn a_cluster_has_the_interval_of_its_delay() {
    let node = ClusterNode { name: "a".to_owned(), model: model(), share: 1.0 };
    let of = |low: f64, high: f64| {
        let delay = Parameter { value: 0.004, low, high, unit: "s".to_owned() };
        let cluster = ClusterModel::new(std::slice::from_ref(&node), delay).unwrap();
        cluster.predict(900.0, &[0.02]).unwrap().points[0].concertina.clone()
    };
    let (known, unknown) = (of(0.004, 0.004), of(0.001, 0.007));
    assert_eq!(known.value, unknown.value);
    assert!(unknown.low < known.low - 0.01 && unknown.high > known.high + 0.01, "{unknown:?}");
}

#[test]
fn errors_that_clients_saw_bound_a_clusters_trust() {
    let both = cluster(&[(model(), 0.5), (model(), 0.5)]);
    let nodes = both.limits().trusted;
    let held = |rate: f64, error_points: f64| HeldOut {
        rate,
        error_points,
        ..model().held_out[0].clone()
    };
    let of = |held_out: Vec<HeldOut>| both.clone().with_held_out(held_out).unwrap();
    // Small errors leave it to the nodes; large ones end it before, and a change does not take them
    // away.
    assert_eq!(of(vec![held(0.5 * nodes, 0.5)]).limits().trusted, nodes);
    let wrong = of(vec![held(0.25 * nodes, 0.5), held(0.5 * nodes, 8.0)]);
    let trusted = wrong.limits().trusted;
    assert_eq!(trusted, 0.25 * nodes);
    assert!(wrong.predict(0.5 * nodes, &[0.02]).unwrap().beyond_trust);
    assert!(!wrong.predict(0.25 * nodes, &[0.02]).unwrap().beyond_trust);
    for (factor, name) in [(2.0, "a"), (0.5, "b")] {
        let change = Change::Speed { name: name.to_owned(), factor };
        let changed = wrong.changed(&change, Popularity::EQUAL).unwrap();
        // Faster devices do nothing for what clients saw at half of the load.
        assert!(changed.limits().trusted <= trusted, "{factor}");
        assert_eq!(changed.held_out().len(), 2);
    }
    assert!(both.clone().with_held_out(vec![held(f64::NAN, 1.0)]).is_err());
}

#[test]
fn a_cluster_of_equal_nodes_predicts_what_each_does() {
    let one = model();
    let cluster = cluster(&[(one.clone(), 0.5), (one.clone(), 0.5)]);
    let (alone, both) =
        (one.predict(900.0, &[0.02, 0.05]).unwrap(), cluster.predict(1_800.0, &[0.0202, 0.0502]));
    let both = both.unwrap();
    for (alone, both) in alone.points.iter().zip(&both.points) {
        // Replicates of one model are the same in both, so the interval is that of one.
        let pairs = [
            (alone.concertina.value, both.concertina.value),
            (alone.concertina.low, both.concertina.low),
            (alone.concertina.high, both.concertina.high),
        ];
        for (alone, both) in pairs {
            assert!((alone - both).abs() < 1e-9, "{alone} {both}");
        }
        assert!(both.concertina.low < both.concertina.high);
        // The published one knows of no delay.
        let published = one.spotify().unwrap().cdf(900.0, both.t_s).unwrap();
        assert!((both.spotify.as_ref().unwrap().value - published).abs() < 1e-12);
    }
    assert!((both.response_mean.value - alone.response_mean.value - 0.0002).abs() < 1e-12);
    assert!(!both.beyond_fitted && cluster.predict(2_100.0, &[]).unwrap().beyond_fitted);
    assert_eq!(both.laboratory, ["simulated devices"]);
    let limits = cluster.limits();
    let published = one.spotify().unwrap().cluster_confidence_limit(2);
    assert!((limits.published - published).abs() < 1e-6 * published);
    assert!((limits.placed - 2.0 * one.limits().unwrap().mg1.value).abs() < 1e-6);
    assert!(limits.unplaced < limits.placed && limits.placed < limits.saturation);
    assert!(cluster.predict(limits.placed * 1.01, &[]).unwrap().beyond_limit);
    let unstable = cluster.predict(limits.saturation * 1.01, &[0.05]);
    assert!(matches!(unstable, Err(Error::Unstable { .. })));
    let (largest, alone) = (
        cluster.largest_rate(0.0502, 0.95).unwrap(),
        one.largest_rate_with_interval(0.05, 0.95).unwrap(),
    );
    for (both, alone) in
        [(largest.value, alone.value), (largest.low, alone.low), (largest.high, alone.high)]
    {
        assert!((both / alone - 2.0).abs() < 1e-3, "{both} {alone}");
    }
}

#[test]
fn a_what_if_changes_every_replicate() {
    let one = model();
    let whole = cluster(&[(one.clone(), 0.4), (one.clone(), 0.3), (one, 0.3)]);
    let lost = Change::Without { name: "b".to_owned(), shares_after: vec![0.55, 0.45] };
    let lost = whole.changed(&lost, Popularity::EQUAL).unwrap();
    let (before, after) =
        (whole.predict(1_500.0, &[0.02]).unwrap(), lost.predict(1_500.0, &[0.02]).unwrap());
    let (before, after) = (&before.points[0].concertina, &after.points[0].concertina);
    assert!(after.high < before.low, "{before:?} {after:?}");
    assert!(after.low < after.value && after.value < after.high);
    assert_eq!(lost.cluster().members.len(), 2);
    assert_eq!(lost.spotify().members.len(), 2);
    let none = Change::Speed { name: "z".to_owned(), factor: 0.5 };
    assert!(whole.changed(&none, Popularity::EQUAL).is_err());
    // A replicate past its saturation answers from memory alone, and is no error.
    let slow = Change::Speed { name: "a".to_owned(), factor: 0.5 };
    let slow = whole.changed(&slow, Popularity::EQUAL).unwrap();
    let edge = slow.predict(slow.limits().saturation * 0.9999, &[0.5]).unwrap();
    assert!(edge.points[0].concertina.low < edge.points[0].concertina.value);
    let odd = ClusterNode { name: "a".to_owned(), model: model(), share: 0.5 };
    assert!(ClusterModel::new(&[odd], Parameter::exact(0.0, "s")).is_err());
    assert!(ClusterModel::new(&[], Parameter::exact(0.0, "s")).is_err());
}

#[test]
fn coarse_records_widen_intervals_in_quadrature_and_are_carried_into_predictions() {
    let fine = model();
    let mut same = fine.clone();
    same.widen(&Coarse::default()).unwrap();
    assert_eq!(same, fine);
    let coarse = Coarse {
        memory_s: 1e-4,
        device_s: 0.004,
        other_s: 0.0,
        service_s: 2e-4,
        fast: 0.05,
        reads: 0.02,
    };
    let mut wide = fine.clone();
    wide.widen(&coarse).unwrap();
    let service = |m: &Model| m.classes[0].service.mean.clone();
    let memory = |m: &Model| m.memory.clone().unwrap().mean;
    for (what, size, fine, wide) in [
        ("q0", 0.02 * 0.7, &fine.requests.q0, &wide.requests.q0),
        ("delay", 0.004, &fine.requests.front_delay, &wide.requests.front_delay),
        ("share under 1 ms", 0.05, &fine.spotify.q0, &wide.spotify.q0),
        ("service", 2e-4, &service(&fine), &service(&wide)),
        ("memory", 1e-4, &memory(&fine), &memory(&wide)),
        ("rate", 2e-4 * 125.0 * 125.0, &fine.spotify.mu_d, &wide.spotify.mu_d),
    ] {
        let half = (fine.high - fine.value).hypot(0.95 * size);
        assert_eq!((wide.value, wide.unit.as_str()), (fine.value, fine.unit.as_str()));
        assert!((wide.high - wide.value - half).abs() < 1e-12, "{what}: {wide:?}");
        assert!(wide.low <= fine.low && (what == "delay") == (wide.low == 0.0), "{what}: {wide:?}");
    }
    // Predictions know less, the most where the delay decides; they say the same.
    let band = |m: &Model, t: f64| {
        let share = m.predict(900.0, &[t]).unwrap().points[0].concertina.clone();
        (share.value, share.high - share.low)
    };
    for t in [0.01, 0.02] {
        let (known, less) = (band(&fine, t), band(&wide, t));
        assert_eq!(known.0, less.0);
        assert!(less.1 > 3.0 * known.1, "{t}: {known:?} {less:?}");
    }
    assert!(Model::from_toml(&wide.to_toml().unwrap()).is_ok());
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        assert!(wide.clone().widen(&Coarse { device_s: bad, ..coarse }).is_err());
        assert!(wide.clone().widen(&Coarse { reads: bad, ..coarse }).is_err());
    }
    // However coarse, what comes out is a model.
    let all = Coarse { device_s: 1e3, service_s: 1e3, fast: 1.0, reads: 1.0, ..coarse };
    let mut lost = fine;
    lost.widen(&all).unwrap();
    assert!(lost.check().is_ok());
}
