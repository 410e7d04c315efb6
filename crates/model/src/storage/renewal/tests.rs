use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma as GammaDraw};

use crate::distribution::{Empirical, Exponential, Piece};
use crate::queue::{ArrivalLaw, Gim1, Queue};
use crate::storage::{Class, Delay, DeviceGroup, HitRatio};

use super::*;

fn node(devices: u32, service: Empirical, arrivals: ArrivalLaw) -> Node {
    Node {
        hit_ratio: HitRatio::new(0.0, 0.0).unwrap(),
        memory: None,
        other_share: 0.0,
        other: None,
        delay: Delay::constant(0.0),
        joining: 0.0,
        joining_knee: f64::INFINITY,
        link: None,
        workers: None,
        arrivals,
        classes: vec![Class::new(service, 1)],
        groups: vec![DeviceGroup {
            class: 0,
            count: devices,
            share: 1.0 / f64::from(devices),
            factor: 1.0,
        }],
    }
}

fn uniform() -> Empirical {
    Empirical::from_pieces(vec![Piece { centre: 0.008, half_width: 0.006, share: 1.0 }]).unwrap()
}

/// P(T ≤ t) of simulated devices, each a queue of its own: gamma times between arrivals, a device at random.
fn simulated(node: &Node, rate: f64, scv: f64, times: &[f64], arrivals: u64) -> Vec<f64> {
    let devices = node.devices() as usize;
    let gap = (scv > 0.0).then(|| GammaDraw::new(1.0 / scv, scv / rate).unwrap());
    let mut random = StdRng::seed_from_u64(7);
    let mut free = vec![0.0f64; devices];
    let (mut now, mut within) = (0.0, vec![0u64; times.len()]);
    for _ in 0..arrivals {
        now += gap.map_or(1.0 / rate, |gap| gap.sample(&mut random));
        let device = random.random_range(0..devices);
        let service =
            node.classes[0].service.quantile(random.random::<f64>() * 0.999_999_9).unwrap();
        let end = free[device].max(now) + service;
        free[device] = end;
        for (within, t) in within.iter_mut().zip(times) {
            *within += u64::from(end - now <= *t);
        }
    }
    within.into_iter().map(|n| n as f64 / arrivals as f64).collect()
}

/// Prints and returns the worst error in points, under the law and under a Poisson stream.
fn worst(devices: u32, service: Empirical, scv: f64, utilisation: f64) -> (f64, f64) {
    let rate = utilisation * f64::from(devices) / service.mean();
    let times: Vec<f64> = (1..=12).map(|i| 0.5 * f64::from(i) * service.mean()).collect();
    let law = ArrivalLaw::Renewal(Renewal::new(scv).unwrap());
    let renewal = node(devices, service.clone(), law);
    let truth = simulated(&renewal, rate, scv, &times, 600_000);
    let off = |node: &Node| {
        let found = node.cdf(rate, &times).unwrap();
        let off = found.iter().zip(&truth).map(|(a, b)| 100.0 * (a - b).abs());
        off.fold(0.0, f64::max)
    };
    let (with, without) = (off(&renewal), off(&node(devices, service, ArrivalLaw::Poisson)));
    println!(
        "{devices} devices, SCV {scv}, busy {utilisation}: {with:.1} points, Poisson {without:.1}"
    );
    (with, without)
}

#[test]
fn independent_arrivals_are_predicted_better_than_by_a_poisson_stream() {
    for (devices, scv, utilisation, at_most) in [
        (1, 4.0, 0.7, 2.0),
        (1, 0.0, 0.7, 4.0),
        (1, 0.25, 0.5, 5.0),
        (1, 4.0, 0.3, 5.0),
        (4, 8.0, 0.7, 3.0),
        (4, 0.0, 0.7, 2.0),
    ] {
        let (with, without) = worst(devices, uniform(), scv, utilisation);
        assert!(
            with <= at_most && with < without,
            "{devices} {scv} {utilisation}: {with} {without}"
        );
    }
}

#[test]
fn one_device_of_exponential_service_is_gi_m_1() {
    let exponential = Exponential::new(0.01).unwrap();
    let service = Empirical::from_cdf(0.01, &[], |t| exponential.cdf(t)).unwrap();
    for scv in [0.0, 0.5, 1.0, 4.0] {
        let renewal = Renewal::new(scv).unwrap();
        let node = node(1, service.clone(), ArrivalLaw::Renewal(renewal));
        let gaps: Box<dyn ServiceTime> = match scv {
            0.0 => Box::new(crate::distribution::Deterministic::new(1.0 / 70.0).unwrap()),
            _ => Box::new(crate::distribution::Gamma::new(1.0 / 70.0, scv).unwrap()),
        };
        let queue = Gim1::new(&*gaps, 100.0).unwrap();
        let here = node.operating(70.0).unwrap();
        assert!((here.response_mean / queue.response_mean() - 1.0).abs() < 1e-4, "{scv}");
        assert!((here.queue_length_mean / queue.number_mean() - 1.0).abs() < 1e-4, "{scv}");
        assert!((here.utilisation_max - 0.7).abs() < 1e-4 && here.device_rate == 70.0);
        let p99 = queue.response_quantile(0.99).unwrap();
        let within = node.cdf(70.0, &[p99]).unwrap()[0];
        assert!((within - 0.99).abs() < 1e-4, "{scv}: {within}");
    }
}

#[test]
fn a_renewal_process_of_scv_1_is_a_poisson_stream_and_limits_follow_the_law() {
    let law = |scv| ArrivalLaw::Renewal(Renewal::new(scv).unwrap());
    let poisson = node(4, uniform(), ArrivalLaw::Poisson);
    let same = node(4, uniform(), law(1.0));
    for rate in [0.0, 50.0, 450.0] {
        let (a, b) = (poisson.cdf(rate, &[0.02]).unwrap()[0], same.cdf(rate, &[0.02]).unwrap()[0]);
        assert!((a - b).abs() < 1e-9, "{rate}: {a} {b}");
    }
    assert!((poisson.confidence_limit() / same.confidence_limit() - 1.0).abs() < 1e-9);
    let (paced, clumps) = (node(4, uniform(), law(0.0)), node(4, uniform(), law(9.0)));
    assert!(paced.confidence_limit() > poisson.confidence_limit());
    assert!(clumps.confidence_limit() < poisson.confidence_limit());
    assert_eq!(clumps.saturation(), poisson.saturation());
    assert!(matches!(clumps.cdf(500.0, &[0.1]), Err(Error::Unstable { .. })));
    // Workers are held for longer by clumps, and are named with the load at which they are all held.
    let held = Node { workers: Some(6), ..clumps.clone() };
    let free = bisect(held.saturation(), |rate| held.operating(rate).is_ok());
    assert!(free < held.saturation());
    match held.operating(free * 1.01) {
        Err(Error::Unstable { saturation, .. }) => assert!((saturation / free - 1.0).abs() < 1e-6),
        other => panic!("{other:?}"),
    }
    // Nearly saturated, and with other work.
    let near = clumps.cdf(499.99, &[0.1]).unwrap()[0];
    assert!((0.0..0.05).contains(&near), "{near}");
}
