use proptest::prelude::*;

use super::*;
use crate::storage::Change;
use crate::{ClusterModel, ClusterNode, FittedStep, HeldOut};

/// A fitted server with disks and a hot device, and replicates.
fn fitted() -> Model {
    let text = r#"
format = 1
[requests]
q0 = { value = 0.4, low = 0.38, high = 0.42, unit = "1" }
alpha = { value = 0.00005, low = 0.0, high = 0.0001, unit = "s" }
other_share = { value = 0.0, low = 0.0, high = 0.0, unit = "1" }
front_delay = { value = 0.0003, low = 0.0002, high = 0.0004, unit = "s" }
joining = { value = 0.01, low = 0.0, high = 0.02, unit = "1" }
joining_knee = { value = 1e9, low = 1e9, high = 1e9, unit = "reads" }
rate_low = 100.0
rate_high = 500.0
[spotify]
q0 = { value = 0.4, low = 0.38, high = 0.42, unit = "1" }
alpha = { value = 0.00005, low = 0.0, high = 0.0001, unit = "s" }
mu_d = { value = 125.0, low = 124.0, high = 126.0, unit = "1/s" }
n_d = 5
[[classes]]
name = "bulk_device"
servers = 1
[classes.service]
mean = { value = 0.008, low = 0.0079, high = 0.0081, unit = "s" }
scv = { value = 0.2, low = 0.2, high = 0.2, unit = "1" }
shape = [[0.6, 0.3, 0.5], [1.4, 0.5, 0.5]]
[[classes]]
name = "hot_device"
servers = 1
[classes.service]
mean = { value = 0.001, low = 0.0009, high = 0.0011, unit = "s" }
scv = { value = 0.2, low = 0.2, high = 0.2, unit = "1" }
shape = [[0.6, 0.3, 0.5], [1.4, 0.5, 0.5]]
[[devices]]
class = "bulk_device"
count = 4
share = 0.2
factor = 1.0
[[devices]]
class = "hot_device"
count = 1
share = 0.2
factor = 1.0
[replicates]
columns = ["q0", "alpha", "other_share", "front_delay", "joining", "joining_knee", "spotify_q0", "spotify_alpha", "spotify_mu_d", "mean_s.bulk_device", "scv.bulk_device", "mean_s.hot_device", "scv.hot_device"]
rows = [
  [0.39, 0.00005, 0.0, 0.0003, 0.01, 1e9, 0.39, 0.00005, 124.0, 0.0081, 0.2, 0.0011, 0.2],
  [0.41, 0.00005, 0.0, 0.0003, 0.01, 1e9, 0.41, 0.00005, 126.0, 0.0079, 0.2, 0.0009, 0.2],
]
"#;
    Model::from_toml(text).unwrap()
}

fn question(what_if: WhatIf, rate: f64) -> Question {
    Question { what_if, rate, objective_s: 0.05, share: 0.95 }
}

#[test]
fn without_changes_the_model_is_the_fitted_one() {
    let model = fitted();
    assert_eq!(WhatIf::default().changed(&model).unwrap(), model);
    let answered = answer(&model, &question(WhatIf::default(), 300.0)).unwrap();
    assert_eq!(answered.prediction.as_deref(), Some(&model.predict(300.0, &[0.05]).unwrap()));
    assert_eq!(answered.response_p99, Some(model.quantile_with_interval(300.0, 0.99).unwrap()));
    assert_eq!(answered.law.len(), LAW_POINTS);
    assert!(answered.law.windows(2).all(|w| w[0].predicted <= w[1].predicted + 1e-9));
    assert_eq!((answered.cost, answered.busiest.as_deref()), (None, Some("bulk_device")));
}

/// A second way to the same numbers: a cluster of such servers, with every member changed.
#[test]
fn memory_speed_and_lost_servers_are_those_of_a_cluster() {
    let model = fitted();
    let names = ["a", "b", "c"];
    let members = names.map(|name| ClusterNode {
        name: name.to_owned(),
        model: model.clone(),
        share: 1.0 / 3.0,
    });
    let cluster = ClusterModel::new(&members, Parameter::exact(0.0, "s")).unwrap();
    let all = |cluster: ClusterModel, change: &dyn Fn(&str) -> Change| {
        names.iter().fold(cluster, |cluster, name| {
            cluster.changed(&change(name), Popularity::EQUAL).unwrap()
        })
    };
    let check = |what_if: WhatIf, cluster: &ClusterModel| {
        let ours = answer(&model, &question(what_if, 600.0)).unwrap().prediction.unwrap();
        let theirs = cluster.predict(600.0, &[0.05]).unwrap();
        for (a, b) in [
            (&ours.points[0].concertina, &theirs.points[0].concertina),
            (&ours.hit_ratio, &theirs.hit_ratio),
            (&ours.response_mean, &theirs.response_mean),
            (ours.points[0].spotify.as_ref().unwrap(), theirs.points[0].spotify.as_ref().unwrap()),
        ] {
            for (a, b) in [(a.value, b.value), (a.low, b.low), (a.high, b.high)] {
                assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{ours:?}\n{theirs:?}");
            }
        }
    };
    let servers = WhatIf { servers: 3, ..WhatIf::default() };
    let memory = |name: &str| Change::Memory { name: name.to_owned(), factor: 1.5 };
    check(WhatIf { memory: 1.5, ..servers.clone() }, &all(cluster.clone(), &memory));
    let speed = |name: &str| Change::Speed { name: name.to_owned(), factor: 2.0 };
    check(WhatIf { speed: 2.0, ..servers.clone() }, &all(cluster.clone(), &speed));
    let lost = Change::Without { name: "b".to_owned(), shares_after: vec![0.5, 0.5] };
    let lost = cluster.changed(&lost, Popularity::EQUAL).unwrap();
    check(WhatIf { lost: 1, ..servers }, &lost);
}

#[test]
fn devices_prices_and_limits() {
    let model = fitted();
    let of = |devices: &[(&str, u32)]| -> Model {
        let devices = devices.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        WhatIf { devices, ..WhatIf::default() }.changed(&model).unwrap()
    };
    let share = |model: &Model, name: &str| -> f64 {
        let class = model.devices.iter().filter(|devices| devices.class == name);
        class.map(|devices| f64::from(devices.count) * devices.share).sum()
    };
    // Twice the disks: each has half the reads. Twice the hot devices hold twice of what is read.
    let disks = of(&[("bulk_device", 8)]);
    assert!((disks.devices[0].share - 0.1).abs() < 1e-12 && disks.spotify.n_d == 9);
    let hot = of(&[("hot_device", 2)]);
    assert!((share(&hot, "hot_device") - 0.4).abs() < 1e-12);
    assert!((share(&hot, "bulk_device") - 0.6).abs() < 1e-12);
    let devices = [("bulk_device".to_owned(), 25.0), ("hot_device".to_owned(), 100.0)];
    let prices = Prices { server: 200.0, memory: 60.0, devices: devices.into_iter().collect() };
    let what_if =
        WhatIf { servers: 3, lost: 1, memory: 2.0, prices: Some(prices), ..WhatIf::default() };
    let answered = answer(&model, &question(what_if, 300.0)).unwrap();
    assert_eq!(answered.cost, Some(3.0 * (200.0 + 120.0 + 100.0 + 100.0)));
    // Past saturation there is a reason in place of a prediction, and the limits are known.
    let answered = answer(&model, &question(WhatIf::default(), 1e5)).unwrap();
    assert!(answered.prediction.is_none() && answered.law.is_empty());
    assert!(answered.statement.is_some() && answered.headroom.unwrap().value < 1.0);
    // The share within the objective falls to the load that holds it.
    let holds = answered.largest_rate.value;
    let at = |rate: f64| answered.loads.iter().rev().find(|point| point.rate <= rate).unwrap();
    assert!(at(holds).within >= 0.95 && answered.loads.last().unwrap().within < 0.95);
    // An objective that not even an idle server holds.
    let impossible = Question { objective_s: 1e-5, ..question(WhatIf::default(), 10.0) };
    assert_eq!(answer(&model, &impossible).unwrap().largest_rate.value, 0.0);
}

#[test]
fn numbers_out_of_their_ranges_are_refused() {
    let model = fitted();
    let bad = |change: fn(&mut WhatIf)| {
        let mut what_if = WhatIf::default();
        change(&mut what_if);
        answer(&model, &question(what_if, 10.0)).unwrap_err().to_string()
    };
    assert!(bad(|w| w.servers = 0).contains("the number of servers"));
    assert!(bad(|w| w.lost = 1).contains("lost servers"));
    assert!(bad(|w| w.memory = f64::NAN).contains("memory"));
    assert!(bad(|w| w.memory = 0.0).contains("memory"));
    assert!(bad(|w| w.speed = 1e9).contains("speed"));
    assert!(bad(|w| w.memory_exponent = 1.5).contains("exponent"));
    let unknown = bad(|w| w.devices.extend([("tape".to_owned(), 1)]));
    assert!(unknown.contains("\"tape\"") && unknown.contains("bulk_device"), "{unknown}");
    assert!(
        bad(|w| w.devices.extend([("bulk_device".to_owned(), 0), ("hot_device".to_owned(), 0)]))
            .contains("cannot serve")
    );
    let part = MixPart { operation: Operation::Get, bytes: None, share: 1.0 };
    let mixed = WhatIf { mix: vec![part], ..WhatIf::default() };
    assert!(answer(&model, &question(mixed, 10.0)).is_err(), "the model knows no kinds");
    for rate in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(answer(&model, &question(WhatIf::default(), rate)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// More of anything never makes it slower, and no question panics.
    #[test]
    fn more_is_never_slower(
        rate in 1.0..3000.0,
        servers in 2u32..12,
        memory in 0.2..4.0,
        speed in 0.3..3.0,
        disks in 1u32..12,
    ) {
        let model = fitted();
        let devices = BTreeMap::from([("bulk_device".to_owned(), disks)]);
        let what_if = WhatIf { servers, memory, speed, devices, ..WhatIf::default() };
        let within = |what_if: &WhatIf| {
            let answered = answer(&model, &question(what_if.clone(), rate)).unwrap();
            answered.prediction.map_or(0.0, |prediction| prediction.points[0].concertina.value)
        };
        let here = within(&what_if);
        let more = [
            WhatIf { servers: servers + 1, ..what_if.clone() },
            WhatIf { memory: memory * 1.2, ..what_if.clone() },
            WhatIf { speed: speed * 1.2, ..what_if.clone() },
            WhatIf { devices: BTreeMap::from([("bulk_device".to_owned(), disks + 1)]), ..what_if.clone() },
        ];
        for better in more {
            prop_assert!(within(&better) >= here - 1e-6, "{what_if:?} {better:?}");
        }
        let fewer = WhatIf { lost: 1, ..what_if.clone() };
        prop_assert!(within(&fewer) <= here + 1e-6, "{fewer:?}");
    }
}

/// The saturation of a hypothesis that does not fit says nothing: the interval is from 0 to 1 past it, too.
#[test]
fn what_does_not_fit_knows_no_saturation() {
    let mut model = fitted();
    let found = |model: &Model| at_load(model, 1e6, 2, &[0.02]).unwrap();
    match found(&model) {
        AtLoad::Saturated { statement, .. } => assert!(statement.contains("not stable")),
        AtLoad::Stable { .. } => panic!("stable at a million requests/s"),
    }
    model.unknown_beyond = Some(500.0);
    match found(&model) {
        AtLoad::Saturated { statement, .. } => panic!("{statement}"),
        AtLoad::Stable { prediction, .. } => {
            let share = &prediction.points[0].concertina;
            assert_eq!((share.low, share.high), (0.0, 1.0), "{share:?}");
        }
    }
}

/// The fitted server as one that fits nothing past the load of its one step, 400 requests/s.
fn fits_nothing() -> Model {
    let mut model = fitted();
    let utilisation = model.node().unwrap().operating(400.0).unwrap().utilisation_mean;
    model.unknown_beyond = Some(400.0);
    model.fitted = vec![FittedStep {
        name: "400/s".to_owned(),
        rate: 400.0,
        seconds: 60.0,
        requests: 24_000,
        hit_ratio: 0.4,
        dispersion: 1.0,
        utilisation,
        utilisation_predicted: utilisation,
        queue_length: 1.0,
        queue_length_predicted: 1.0,
        response_mean: 0.01,
        response_mean_predicted: 0.01,
        ks_distance: 0.01,
        points: Vec::new(),
    }];
    model
}

/// A server of half the speed is as busy at 200 requests/s as the fitted one was at 400: nothing says what it does at 250.
#[test]
fn a_server_that_is_busier_is_known_at_fewer_loads() {
    let mut model = fits_nothing();
    let changed = |model: &Model, what_if: &WhatIf| what_if.changed(model).unwrap();
    let of_speed = |speed: f64| WhatIf { speed, ..WhatIf::default() };
    assert_eq!(changed(&model, &WhatIf::default()).known_to(), 400.0);
    // A faster one was not seen at any load.
    assert_eq!(changed(&model, &of_speed(2.0)).known_to(), 400.0);
    let slower = changed(&model, &of_speed(0.5));
    assert!((slower.known_to() - 200.0).abs() < 1e-6, "{}", slower.known_to());
    let devices = BTreeMap::from([("bulk_device".to_owned(), 2)]);
    for smaller in [
        WhatIf { memory: 0.5, ..WhatIf::default() },
        WhatIf { devices, ..WhatIf::default() },
        WhatIf { servers: 3, lost: 1, ..WhatIf::default() },
    ] {
        let known = changed(&model, &smaller).known_to();
        assert!(known > 100.0 && known < 390.0, "{smaller:?}: {known}");
    }
    let width = |rate: f64| match at_load(&slower, rate, 1, &[0.05]).unwrap() {
        AtLoad::Stable { prediction, .. } => {
            let share = &prediction.points[0].concertina;
            share.high - share.low
        }
        AtLoad::Saturated { statement, .. } => panic!("{statement}"),
    };
    assert!(width(190.0) < 0.5 && width(250.0) == 1.0);
    let (name, within_s) = ("480/s".to_owned(), 0.05);
    let half_width_points = Some(1.0);
    model.held_out =
        vec![HeldOut { name, rate: 480.0, within_s, error_points: 2.0, half_width_points }];
    assert_eq!(model.known_to(), 480.0);
    let slower = changed(&model, &of_speed(0.5));
    assert!((slower.known_to() - 240.0).abs() < 1e-6, "{}", slower.known_to());
}
