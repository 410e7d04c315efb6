use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};

use crate::distribution::{Empirical, Piece};
use crate::queue::ArrivalLaw;
use crate::storage::{Class, Delay, DeviceGroup, HitRatio};

use super::*;

const DEVICES: u32 = 4;

/// A node of four devices with service uniform from 2 to 14 ms.
fn node(hits: f64, bursts: Option<Bursts>) -> Node {
    let service =
        Empirical::from_pieces(vec![Piece { centre: 0.008, half_width: 0.006, share: 1.0 }])
            .unwrap();
    Node {
        hit_ratio: HitRatio::new(hits, 0.0).unwrap(),
        memory: None,
        other_share: 0.0,
        other: None,
        delay: Delay::constant(0.0),
        joining: 0.0,
        joining_knee: f64::INFINITY,
        link: None,
        workers: None,
        arrivals: bursts.map_or(ArrivalLaw::Poisson, ArrivalLaw::Bursts),
        classes: vec![Class::new(service, 1)],
        groups: vec![DeviceGroup { class: 0, count: DEVICES, share: 0.25, factor: 1.0 }],
    }
}

/// Shares of a node's requests within times, simulated: a rate of two levels, each device a queue.
fn simulated(rate: f64, bursts: Bursts, times: &[f64], arrivals: u64) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(1);
    let levels = bursts.levels(rate, 0.0);
    let (mut high, mut until, mut now) = (true, 0.0, 0.0);
    let mut free = [0.0f64; DEVICES as usize];
    let (mut within, mut all) = (vec![0u64; times.len()], 0u64);
    while all < arrivals {
        let (level, share) = levels[usize::from(high)];
        let gap =
            if level > 0.0 { Exp::new(level).unwrap().sample(&mut random) } else { f64::INFINITY };
        if now + gap > until {
            // The gap has no memory: it begins again at the other level.
            now = until;
            high = !high;
            let leave = bursts.change_rate() * share;
            until = now + Exp::new(leave).unwrap().sample(&mut random);
            continue;
        }
        now += gap;
        let device = random.random_range(0..free.len());
        let service = 0.002 + 0.012 * random.random::<f64>();
        free[device] = free[device].max(now) + service;
        let response = free[device] - now;
        all += 1;
        for (count, t) in within.iter_mut().zip(times) {
            *count += u64::from(response <= *t);
        }
    }
    within.iter().map(|n| *n as f64 / all as f64).collect()
}

#[test]
fn bursts_of_any_length_are_predicted_better_than_by_a_poisson_stream() {
    let times = [0.008, 0.016, 0.030, 0.060];
    // Bursts of 2 s, 0.2 s and 20 ms; T is some 36 ms, and 0.3 s at the higher level. What the
    // points are measured against has an error of its own, near 1 point for the longest.
    for (change_rate, allowed) in [(0.5, 0.025), (5.0, 0.05), (50.0, 0.065)] {
        let bursts = Bursts::new(0.16, change_rate).unwrap();
        let rate = 0.6 * 500.0;
        let truth = simulated(rate, bursts, &times, 1_200_000);
        let worst = |bursts: Option<Bursts>| {
            let found = node(0.0, bursts).cdf(rate, &times).unwrap();
            let errors = found.iter().zip(&truth).map(|(found, p)| (found - p).abs());
            errors.fold(0.0, f64::max)
        };
        let (with, without) = (worst(Some(bursts)), worst(None));
        println!("ω {change_rate}: {:.2} points, Poisson {:.2}", with * 100.0, without * 100.0);
        assert!(with < allowed, "ω {change_rate}: {with}");
        assert!(with < without, "ω {change_rate}: {with} {without}");
    }
}

#[test]
fn none_and_endlessly_short_ones_are_poisson() {
    let of = |variation: f64, change_rate: f64| {
        node(0.4, Some(Bursts::new(variation, change_rate).unwrap()))
    };
    let (poisson, short, long) = (node(0.4, None), of(0.3, 1e9), of(0.3, 1e-3));
    let here = poisson.operating(300.0).unwrap();
    for t in [0.0, 0.01, 0.05] {
        let at = poisson.at_time(t);
        assert!((at.cdf(&short.operating(300.0).unwrap()) - at.cdf(&here)).abs() < 1e-3);
    }
    let stands = long.operating(300.0).unwrap();
    let seen: f64 = stands.levels.iter().map(|(requests, level)| requests * level.rate).sum();
    assert!((seen / 300.0 - 1.3).abs() < 1e-3, "requests see the mean and c²");
    assert_eq!(stands.rate, 300.0);
    assert!((stands.device_rate / here.device_rate - 1.0).abs() < 1e-9, "time sees the mean");
    assert!((stands.utilisation_max / here.utilisation_max - 1.0).abs() < 1e-9);
    assert!((stands.hit_ratio - here.hit_ratio).abs() < 1e-9);
    assert!(stands.response_mean > here.response_mean);
    assert!(of(0.3, 1.0).operating(0.0).is_ok());
}

#[test]
fn limits_know_of_bursts() {
    let bursts = Bursts::new(0.25, 0.5).unwrap();
    let (poisson, bursty) = (node(0.0, None), node(0.0, Some(bursts)));
    assert!(bursty.confidence_limit() < 0.9 * poisson.confidence_limit());
    let at_limit = bursty.operating(bursty.confidence_limit()).unwrap();
    assert!((at_limit.queue_length_mean - 1.0).abs() < 1e-3, "{}", at_limit.queue_length_mean);
    let [few, many] = [&bursty, &poisson].map(|n| n.largest_rate(0.05, 0.99).unwrap());
    assert!(few < 0.9 * many, "{few} {many}");
    assert!((bursty.cdf(few, &[0.05]).unwrap()[0] - 0.99).abs() < 1e-3);
    assert_eq!(bursty.saturation(), poisson.saturation(), "the mean load decides in the long run");
    assert_eq!(node(1.0, Some(bursts)).confidence_limit(), f64::INFINITY);
}

#[test]
fn a_level_past_saturation_is_no_steady_state() {
    // 400/s of 500/s, and half of the time 600/s for a thousand seconds.
    let long = node(0.0, Some(Bursts::new(0.25, 1e-3).unwrap()));
    let error = long.operating(400.0).unwrap_err();
    let Error::Unstable { rate, saturation } = error else { panic!("{error}") };
    assert_eq!(rate, 400.0);
    assert!((saturation / (500.0 / 1.5) - 1.0).abs() < 0.01, "{saturation}");
    let replaced = simulated(100.0, Bursts::new(2.0, 5.0).unwrap(), &[1.0], 20_000);
    assert!(replaced[0] > 0.99, "a level without arrivals ends too");
}
