use proptest::prelude::*;

use crate::Error;
use crate::distribution::{Empirical, Piece, ServiceTime};
use crate::queue::ArrivalLaw;

use super::*;

/// Table II of the paper: µ_d, n_d, α, q₀, and what follows from them.
const TABLE_2: [(&str, f64, f64, f64, f64, f64, f64); 3] = [
    ("small", 93.0, 1.0, 0.0137, 0.946, 56.32, 80.4),
    ("large", 120.0, 1.0, 0.005_80, 1.15, 115.46, 157.4),
    ("spotify", 150.0, 6.0, 0.000_501, 0.815, 780.92, 1168.3),
];

fn published(name: &str) -> Spotify {
    let row = TABLE_2.iter().find(|r| r.0 == name).unwrap();
    Spotify::new(HitRatio::new(row.4, row.3).unwrap(), row.1, row.2).unwrap()
}

#[test]
fn table_2_gives_its_limits() {
    for (name, _, _, _, _, limit, saturation) in TABLE_2 {
        let server = published(name);
        assert!((server.confidence_limit() - limit).abs() < 0.005, "{name}");
        assert!((server.saturation_published().unwrap() - saturation).abs() < 0.05, "{name}");
        let rho = server.utilisation(server.confidence_limit());
        assert!((rho - 0.5).abs() < 1e-9, "{name}: mean number 1 is utilisation ½, not {rho}");
    }
    let close = |x: f64, y: f64| assert!((x - y).abs() < 1e-6, "{x} {y}");
    close(published("small").confidence_limit(), 56.321946613059204);
    close(published("small").cluster_confidence_limit(5), 223.84829126883918);
    close(published("large").cluster_confidence_limit(3), 302.2243420207125);
}

#[test]
fn published_predictions_come_out() {
    let server = published("spotify");
    for (servers, limit) in [
        (3, 2223.017119594325),
        (16, 11530.9142708062),
        (17, 12240.880112516896),
        (25, 17904.418186731134),
        (31, 22137.379318255153),
        (60, 42487.45196471251),
    ] {
        assert!((server.cluster_confidence_limit(servers) - limit).abs() < 1e-6, "{servers}");
    }
    assert_eq!(server.servers_for(12_000.0).unwrap(), 17);
    assert_eq!(server.servers_for(0.0).unwrap(), 1);
    assert!(server.servers_for(1e300).is_err());
    // Figure 9b: 25 servers, share within t seconds at a load.
    for (t, rate, share) in [
        (0.001, 1000.0, 0.8233),
        (0.010, 12_000.0, 0.8666),
        (0.020, 18_000.0, 0.8993),
        (0.050, 20_000.0, 0.9839),
    ] {
        let found = server.cluster_cdf(rate, 25, t).unwrap();
        assert!((found - share).abs() < 5e-5, "{t} {rate}: {found}");
        let mean = cluster_cdf(&[server; 25], rate, t).unwrap();
        assert!((found - mean).abs() < 1e-12);
    }
    assert!(cluster_cdf(&[], 1.0, 0.1).is_err());
}

#[test]
fn the_linear_hit_ratio_is_clamped() {
    assert_eq!(published("small").hit_ratio().at_rate(70.0), 0.0);
    assert_eq!(published("large").hit_ratio().at_rate(20.0), 1.0);
    assert!(published("small").cdf(70.0, 0.05).unwrap() > 0.0);
    // Not clamped, q = −0.16 would end the small server at 80.4 requests/s.
    assert_eq!(published("small").saturation(), 93.0);
    assert!(published("small").cdf(92.0, 0.05).is_ok());
    assert!(matches!(published("small").cdf(93.0, 0.05), Err(Error::Unstable { .. })));
}

#[test]
fn the_unit_free_limit_does_not_depend_on_the_unit_of_time() {
    let server = published("spotify");
    let limit = server.confidence_limit();
    let seconds = weighted_limit(limit, 25, 1e6).unwrap();
    let minutes = weighted_limit(limit * 60.0, 25, 1e6).unwrap();
    assert!((minutes / seconds - 60.0).abs() < 1e-9);
    let published = |limit| balls_into_bins_limit(limit, 25, BETA);
    assert!(published(limit * 60.0) / published(limit) > 61.0, "the published one does");
    assert!(seconds < 25.0 * limit);
    assert_eq!(effective_objects(&[2.0; 50]), Some(50.0));
    assert_eq!(effective_objects(&[1.0, 0.0]), Some(1.0));
    for bad in [&[][..], &[0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY]] {
        assert_eq!(effective_objects(bad), None);
    }
}

#[test]
fn a_load_for_misses_misses_that_much() {
    for (q0, alpha, held) in [
        (0.946, 0.0137, 60.0),
        (1.15, 0.0058, 60.0),
        (0.5, 0.0, 60.0),
        (0.3, -0.002, 100.0),
        (0.0, 0.0, 10.0),
        (-0.2, 0.001, 10.0),
    ] {
        let q = HitRatio::new(q0, alpha).unwrap().held_from(held);
        for misses in [1.0, 20.0, 60.0, 500.0] {
            let rate = q.rate_for_misses(misses);
            let found = (1.0 - q.at_rate(rate)) * rate;
            assert!((found / misses - 1.0).abs() < 1e-9, "{q0} {alpha} {misses}: {rate} {found}");
        }
    }
    assert_eq!(HitRatio::new(1.0, 0.0).unwrap().rate_for_misses(1.0), f64::INFINITY);
}

fn exponential(mean: f64) -> Empirical {
    let pieces = (0..400).map(|i| {
        let (low, high) = (f64::from(i) * 0.04, f64::from(i + 1) * 0.04);
        Piece {
            centre: mean * 0.5 * (low + high),
            half_width: mean * 0.02,
            share: (-low).exp() - (-high).exp(),
        }
    });
    Empirical::from_pieces(pieces.collect()).unwrap().with_moments(mean, 1.0).unwrap()
}

fn node(q0: f64, alpha: f64, devices: u32) -> Node {
    Node {
        hit_ratio: HitRatio::new(q0, alpha).unwrap(),
        memory: None,
        other_share: 0.0,
        other: None,
        delay: Delay::constant(0.0),
        joining: 0.0,
        joining_knee: f64::INFINITY,
        link: None,
        workers: None,
        arrivals: ArrivalLaw::Poisson,
        classes: vec![Class::new(exponential(0.01), 1)],
        groups: vec![DeviceGroup {
            class: 0,
            count: devices,
            share: 1.0 / f64::from(devices),
            factor: 1.0,
        }],
    }
}

#[test]
fn a_node_of_exponential_disks_is_the_published_model() {
    let published = Spotify::new(HitRatio::new(0.6, 0.001).unwrap(), 100.0, 4.0).unwrap();
    let node = node(0.6, 0.001, 4);
    assert!((node.confidence_limit() / published.confidence_limit() - 1.0).abs() < 1e-3);
    assert!((node.saturation() / published.saturation() - 1.0).abs() < 1e-9);
    for rate in [0.0, 50.0, 200.0, 400.0] {
        for t in [0.001, 0.01, 0.05, 0.2] {
            let (ours, theirs) =
                (node.cdf(rate, &[t]).unwrap()[0], published.cdf(rate, t).unwrap());
            assert!((ours - theirs).abs() < 1e-3, "{rate} {t}: {ours} {theirs}");
        }
    }
    let (ours, theirs) =
        (node.largest_rate(0.05, 0.95).unwrap(), published.largest_rate(0.05, 0.95).unwrap());
    assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} {theirs}");
    assert!(node.cdf(ours, &[0.05]).unwrap()[0] >= 0.95);
    assert!(matches!(node.largest_rate(0.001, 0.999), Err(Error::Unattainable { .. })));
    assert!(matches!(node.cdf(1e4, &[0.1]), Err(Error::Unstable { .. })));
    assert!(
        (node.cdf(100.0, &[node.quantile(100.0, 0.9).unwrap()]).unwrap()[0] - 0.9).abs() < 1e-6
    );
}

#[test]
fn joins_come_out_of_hits_and_not_out_of_reads() {
    let node = Node { joining: 0.01, ..node(0.5, 0.0, 8) };
    let operating = node.operating(1_200.0).unwrap();
    let length = operating.queue_length_mean * 8.0;
    assert!((operating.joined_share - 0.01 * length).abs() < 1e-6, "{operating:?}");
    assert!((operating.device_rate - 600.0).abs() < 1e-6);
    assert!((operating.hit_ratio - 0.5 + operating.joined_share).abs() < 1e-12);
    let bent = Node { joining_knee: 5.0, ..node.clone() }.operating(1_200.0).unwrap();
    assert!((bent.joined_share - 0.05 * (length / 5.0).ln_1p()).abs() < 1e-6, "{bent:?}");
    let limit = node.operating(node.confidence_limit()).unwrap();
    assert!((limit.queue_length_mean - 1.0).abs() < 1e-6);
}

#[test]
fn slower_devices_are_a_change_of_unit() {
    let plain = node(0.0, 0.0, 1);
    let mut slower = plain.clone();
    slower.groups[0].factor = 2.0;
    let a = plain.cdf(60.0, &[0.03]).unwrap()[0];
    let b = slower.cdf(30.0, &[0.06]).unwrap()[0];
    assert!((a - b).abs() < 1e-9);
    let mut many = plain.clone();
    many.classes[0].servers = 3;
    assert!(many.cdf(60.0, &[0.03]).unwrap()[0] > a);
}

/// Devices of several servers against the exact M/PH/m, Erlang service of four phases.
#[test]
fn a_device_of_several_servers_is_near_the_exact_queue() {
    use crate::queue::tests::Mphm;
    use crate::queue::{Evaluated, Queue};
    let law = crate::distribution::Gamma::new(0.01, 0.25).unwrap();
    let piece = |i: u32| {
        let (low, high) = (f64::from(i) * 2e-4, f64::from(i + 1) * 2e-4);
        let share = law.cdf(high) - law.cdf(low);
        Piece { centre: 0.5 * (low + high), half_width: 1e-4, share }
    };
    let service = Empirical::from_pieces((0..400).map(piece).collect()).unwrap();
    let rows: [&[f64]; 4] = [
        &[-400.0, 400.0, 0.0, 0.0],
        &[0.0, -400.0, 400.0, 0.0],
        &[0.0, 0.0, -400.0, 400.0],
        &[0.0, 0.0, 0.0, -400.0],
    ];
    for servers in [2, 4] {
        let mut node = node(0.0, 0.0, 1);
        node.classes[0] = Class::new(service.clone(), servers);
        let (mut worst, mut plain) = (0.0f64, 0.0f64);
        for rho in [0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
            let rate = rho * f64::from(servers) / 0.01;
            let exact = Mphm::new(rate, servers, &[1.0, 0.0, 0.0, 0.0], &rows).unwrap();
            let times: Vec<f64> =
                (1..30).map(|k| exact.response_mean() * 0.15 * f64::from(k)).collect();
            for (t, found) in times.iter().zip(node.cdf(rate, &times).unwrap()) {
                let form = Evaluated::new(&service, servers, *t).response_cdf(rate);
                worst = worst.max((found - exact.response_cdf(*t)).abs());
                plain = plain.max((form - exact.response_cdf(*t)).abs());
            }
            let mean = node.operating(rate).unwrap().response_mean;
            assert!((mean / exact.response_mean() - 1.0).abs() < 0.02, "{servers} {rho}: {mean}");
        }
        assert!(worst < 0.005 && plain > 1.5 * worst, "{servers}: {worst}, was {plain}");
        // A tier of such devices is the same queue.
        let rate = 0.8 * f64::from(servers) / 0.01;
        let tiers = Tiers::of_node(&node, rate).unwrap();
        let (one, other) =
            (node.cdf(rate, &[0.02]).unwrap()[0], tiers.cdf(rate, &[0.02]).unwrap()[0]);
        assert!((one - other).abs() < 1e-9, "{one} {other}");
        // A replicate by what is known beside it, against alone.
        let mut slower = node.clone();
        slower.classes[0].service = service.with_moments(0.010_05, 0.255).unwrap();
        let at = slower.operating(rate).unwrap();
        let (alone, beside) = (slower.at_time(0.02), slower.at_beside(&node.at_time(0.02)));
        assert!((alone.cdf(&at) - beside.cdf(&at)).abs() < 1e-3);
    }
}

#[test]
fn a_delay_with_a_law_of_its_own_is_added_to_what_devices_take() {
    let law = crate::distribution::Exponential::new(0.004).unwrap();
    let node = Node { delay: Delay::from_law(&law).unwrap(), ..node(0.0, 0.0, 1) };
    // M/M/1 of 100/s at 60/s responds after an exponential time of 1/40 s.
    let mean = node.operating(60.0).unwrap().response_mean;
    assert!((mean - 0.029).abs() < 1e-4, "{mean}");
    for t in [0.003f64, 0.01, 0.03, 0.1] {
        let (a, b) = (1.0 / 0.004, 40.0);
        let exact = 1.0 - (a * (-b * t).exp() - b * (-a * t).exp()) / (a - b);
        let found = node.cdf(60.0, &[t]).unwrap()[0];
        assert!((found - exact).abs() < 0.004, "{t}: {found} {exact}");
        // A slower device has its delay in the same seconds.
        let mut slower = node.clone();
        slower.groups[0].factor = 2.0;
        let (a, b) = (1.0 / 0.004, 50.0 - 30.0);
        let exact = 1.0 - (a * (-b * t).exp() - b * (-a * t).exp()) / (a - b);
        let found = slower.cdf(30.0, &[t]).unwrap()[0];
        assert!((found - exact).abs() < 0.004, "{t}: {found} {exact}");
    }
    // Several servers at a device: a constant is a shift of the law without it.
    let mut several = Node { delay: Delay::constant(0.005), ..node.clone() };
    several.classes[0] = Class::new(exponential(0.01).with_moments(0.01, 0.3).unwrap(), 3);
    let plain = Node { delay: Delay::default(), ..several.clone() };
    let found = several.cdf(200.0, &[0.025]).unwrap()[0];
    assert!((found - plain.cdf(200.0, &[0.02]).unwrap()[0]).abs() < 1e-9);
    let spread = Node { delay: Delay::beside(None, 0.005, 0.01).unwrap(), ..several };
    assert!((found - spread.cdf(200.0, &[0.025]).unwrap()[0]).abs() < 0.002);
}

#[test]
fn other_work_makes_reads_wait() {
    use crate::distribution::{Gamma, Hyperexponential};
    use crate::queue::Mg1;
    let with = |rate: f64, mean: f64| {
        let mut node = node(0.0, 0.0, 1);
        let law = Gamma::new(mean, 1.0).unwrap();
        node.classes[0].background = Some(Background { rate, law });
        node
    };
    // Of the same law: the queue of all of it.
    let (busy, plain) = (with(30.0, 0.01), node(0.0, 0.0, 1));
    for t in [0.002, 0.01, 0.05, 0.2] {
        let (a, b) = (busy.cdf(40.0, &[t]).unwrap()[0], plain.cdf(70.0, &[t]).unwrap()[0]);
        assert!((a - b).abs() < 1e-3, "{t}: {a} {b}");
    }
    assert!((busy.saturation() - 70.0).abs() < 1e-6);
    let at = busy.operating(40.0).unwrap();
    assert!((at.utilisation_max - 0.7).abs() < 1e-6 && (at.device_rate - 40.0).abs() < 1e-9);
    assert!((at.response_mean - plain.operating(70.0).unwrap().response_mean).abs() < 1e-5);
    // Of another law: waits are those of the mixture, services those of reads.
    let busy = with(5.0, 0.05);
    let mixture = Hyperexponential::new(&[(40.0 / 45.0, 0.01), (5.0 / 45.0, 0.05)]).unwrap();
    let queue = Mg1::new(45.0, mixture).unwrap();
    assert!(
        (busy.operating(40.0).unwrap().response_mean - queue.waiting_mean() - 0.01).abs() < 1e-4
    );
    for t in [0.01f64, 0.05, 0.2] {
        let n = 2_000;
        let step = t / f64::from(n);
        let sum = (0..n).map(|i| {
            let x = (f64::from(i) + 0.5) * step;
            queue.waiting_cdf(t - x) * 100.0 * (-100.0 * x).exp() * step
        });
        let (exact, found) = (sum.sum::<f64>(), busy.cdf(40.0, &[t]).unwrap()[0]);
        assert!((found - exact).abs() < 1e-3, "{t}: {found} {exact}");
    }
    // Tiers of the same devices are the same.
    let tiers = Tiers::of_node(&busy, 40.0).unwrap();
    let (a, b) = (busy.cdf(40.0, &[0.05]).unwrap()[0], tiers.cdf(40.0, &[0.05]).unwrap()[0]);
    assert!((a - b).abs() < 1e-9 && (tiers.saturation() - busy.saturation()).abs() < 1e-6);
    // What leaves a device no time is a device without capacity.
    assert!(matches!(with(200.0, 0.01).operating(1.0), Err(Error::Unstable { .. })));
}

#[test]
fn a_link_and_workers_are_queues_before_all_else() {
    use crate::queue::{Mmm, Queue};
    let link = Link { bytes_per_s: 1e6, bytes_mean: 1e4, bytes_scv: 1.0 };
    let memory = Node { link: Some(link), ..node(1.0, 0.0, 1) };
    assert_eq!(memory.breaks_first(), Some((100.0, Limit::Link)));
    // Exponential lengths: M/M/1, whose wait is exact.
    for t in [0.0f64, 0.005, 0.02, 0.1] {
        let exact = 1.0 - 0.8 * (-20.0 * t).exp();
        let found = memory.cdf(80.0, &[t]).unwrap()[0];
        assert!((found - exact).abs() < 1e-9, "{t}: {found} {exact}");
    }
    assert!(matches!(memory.operating(100.0), Err(Error::Unstable { .. })));
    // Four workers whose service is exponential: M/M/4.
    let law = Some(exponential(0.01));
    let busy = Node { memory: law, workers: Some(4), ..node(1.0, 0.0, 1) };
    let (saturation, limit) = busy.breaks_first().unwrap();
    assert!((saturation - 400.0).abs() < 1e-3 && limit == Limit::Workers, "{saturation}");
    let queue = Mmm::new(320.0, 100.0, 4).unwrap();
    let at = busy.operating(320.0).unwrap();
    assert!((at.response_mean - queue.response_mean()).abs() < 1e-5);
    assert!((at.front.workers_utilisation - 0.8).abs() < 1e-6);
    for t in [0.005, 0.02, 0.05, 0.1] {
        let (found, exact) = (busy.cdf(320.0, &[t]).unwrap()[0], queue.response_cdf(t));
        assert!((found - exact).abs() < 2e-3, "{t}: {found} {exact}");
    }
    // Limits that are far away change nothing that is seen.
    let plain = node(0.5, 0.0, 4);
    let far = Link { bytes_per_s: 1e12, bytes_mean: 1e4, bytes_scv: 0.0 };
    let wide = Node { link: Some(far), workers: Some(10_000), ..plain.clone() };
    assert_eq!(wide.breaks_first().unwrap().1, Limit::Devices);
    for t in [0.004, 0.05] {
        let (a, b) = (plain.cdf(500.0, &[t]).unwrap()[0], wide.cdf(500.0, &[t]).unwrap()[0]);
        assert!((a - b).abs() < 1e-6, "{t}: {a} {b}");
    }
    let replicate = wide.at_beside(&wide.at_time(0.05)).cdf(&wide.operating(500.0).unwrap());
    assert!((replicate - wide.cdf(500.0, &[0.05]).unwrap()[0]).abs() < 1e-12);
}

#[test]
fn impossible_nodes_are_errors() {
    let good = node(0.5, 0.0, 2);
    assert!(good.check().is_ok());
    let broken: [&dyn Fn(&mut Node); 8] = [
        &|n| n.groups[0].share = 0.7,
        &|n| n.groups[0].class = 3,
        &|n| n.groups[0].factor = f64::NAN,
        &|n| n.delay = Delay::constant(f64::INFINITY),
        &|n| n.other_share = 1.5,
        &|n| n.groups.clear(),
        &|n| n.workers = Some(0),
        &|n| n.link = Some(Link { bytes_per_s: 0.0, bytes_mean: 1.0, bytes_scv: 0.0 }),
    ];
    for (i, damage) in broken.iter().enumerate() {
        let mut node = good.clone();
        damage(&mut node);
        assert!(node.check().is_err(), "{i}");
        assert!(node.cdf(10.0, &[0.1]).is_ok_and(|c| !c[0].is_nan()) || [2, 6, 7].contains(&i));
    }
}

proptest! {
    #[test]
    fn responses_get_worse_with_load_and_better_with_time(
        q0 in 0.0f64..0.95, alpha in 0.0f64..0.001, t in 0.001f64..0.3, part in 0.05f64..0.9,
    ) {
        let node = node(q0, alpha, 3);
        let rate = node.saturation() * part;
        let at = node.at_time(t);
        let now = at.cdf(&node.operating(rate).unwrap());
        let more = at.cdf(&node.operating(rate * 1.05).unwrap());
        let later = node.at_time(t * 1.1).cdf(&node.operating(rate).unwrap());
        prop_assert!((0.0..=1.0).contains(&now));
        prop_assert!(more <= now + 1e-7 && later >= now - 1e-7);
        let published = Spotify::new(HitRatio::new(q0, alpha).unwrap(), 100.0, 3.0).unwrap();
        prop_assert!(published.confidence_limit() < published.saturation());
        prop_assert!(published.cluster_confidence_limit(9) < 9.0 * published.confidence_limit());
    }

    #[test]
    fn spotify_takes_any_numbers(q0 in any::<f64>(), alpha in any::<f64>(), mu in any::<f64>(),
                                 n in any::<f64>(), rate in any::<f64>(), t in any::<f64>()) {
        if let Ok(server) = HitRatio::new(q0, alpha).and_then(|q| Spotify::new(q, mu, n)) {
            prop_assert!(!server.confidence_limit().is_nan() && !server.saturation().is_nan());
            prop_assert!(!server.cluster_confidence_limit(7).is_nan());
            if let Ok(f) = server.cdf(rate, t) {
                prop_assert!((0.0..=1.0).contains(&f));
            }
        }
    }
}
