//! Simulated services whose work depends on how many requests are inside: what a fit finds of them, and whether what they do at loads
//! that were not measured is within the intervals.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp};

use crate::Model;
use crate::fit::input::ClosedAt;
use crate::queue::{HORIZON_S, Slowdown};

use super::tests::step;
use super::*;

/// One line, first come, first served: a work is exponential with a mean that depends on the number inside when it begins, as of a lock
/// that more threads contend for.
#[derive(Clone, Debug)]
struct Collapsing {
    /// Mean work alone, and seconds outside.
    mean: f64,
    outside: f64,
    /// The truth.
    slowdown: Slowdown,
}

impl Collapsing {
    /// The service of the issue: 128 requests/s up to 8 inside, 89 with 16 to 32, 72 with 64, 65 with more.
    fn of_the_issue() -> Collapsing {
        let numbers = vec![1.0, 8.0, 14.0, 32.0, 64.0, 128.0];
        let speeds = vec![1.0, 0.97, 0.72, 0.70, 0.57, 0.50];
        let slowdown = Slowdown::new(numbers, speeds, 0.0).unwrap();
        Collapsing { mean: 0.0078, outside: 0.0009, slowdown }
    }

    /// Each request inside adds 1.2 % to the work, without end.
    fn without_end() -> Collapsing {
        let numbers: Vec<f64> = (0..60).map(|i| 1.2f64.powi(i)).collect();
        let speeds = numbers.iter().map(|n| 1.0 / (1.0 + 0.012 * (n - 1.0))).collect();
        let slowdown = Slowdown::new(numbers, speeds, 1.0).unwrap();
        Collapsing { mean: 0.008, outside: 0.0005, slowdown }
    }

    /// The load at which it tips over within ten minutes, requests/s.
    fn tipping(&self) -> f64 {
        self.slowdown.tipping_load(1, 1.0, HORIZON_S / self.mean) / self.mean
    }

    fn work(&self, inside: usize, random: &mut StdRng) -> f64 {
        let law = Exp::new(1.0 / self.mean).unwrap();
        law.sample(random) / self.slowdown.speed(inside as f64)
    }

    /// Arrivals and departures of an open loop of some seconds, all of them.
    fn open(&self, rate: f64, seconds: f64, seed: u64) -> Vec<(f64, f64)> {
        let mut random = StdRng::seed_from_u64(seed);
        let gaps = Exp::new(rate).unwrap();
        let (mut came, mut due) = (Vec::new(), gaps.sample(&mut random));
        let (mut out, mut free) = (Vec::new(), 0.0f64);
        let mut waiting: VecDeque<f64> = VecDeque::new();
        loop {
            // Those that come before the next begin.
            let begins = waiting.front().map_or(f64::INFINITY, |first| free.max(*first));
            if due < seconds && due <= begins {
                came.push(due);
                waiting.push_back(due);
                due += gaps.sample(&mut random);
                continue;
            }
            let Some(first) = waiting.pop_front() else { break };
            free = begins + self.work(waiting.len() + 1, &mut random);
            out.push((first, free + self.outside));
        }
        out
    }

    /// Requests/s that a closed loop gets answered.
    fn closed(&self, clients: usize, seconds: f64, seed: u64) -> f64 {
        let mut random = StdRng::seed_from_u64(seed);
        // When each client's next request is at the server.
        let mut come: Vec<f64> = vec![0.0; clients];
        let (mut now, mut done) = (0.0f64, 0.0);
        while now < seconds {
            let first = (0..clients).min_by(|a, b| come[*a].total_cmp(&come[*b])).unwrap();
            now = now.max(come[first]);
            let inside = come.iter().filter(|at| **at <= now).count();
            now += self.work(inside, &mut random);
            come[first] = now + self.outside;
            done += 1.0;
        }
        done / now
    }

    fn closed_loops(&self, most: usize, seed: u64) -> Vec<ClosedAt> {
        let clients = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= most);
        let of = |clients: usize| {
            let throughput = self.closed(clients, 10.0, seed + clients as u64);
            ClosedAt { clients: clients as u32, think_s: 0.0, throughput }
        };
        clients.map(of).collect()
    }
}

/// A service that the kernel throttles: reads of 2 ms in one line, of which so many pass in a slice of 100 ms; later ones wait for the
/// next slice. A slice begins with the first read after the end of the one before.
pub(super) fn throttled(rate: f64, seconds: f64, seed: u64) -> Vec<(f64, f64)> {
    let mut random = StdRng::seed_from_u64(seed);
    let (gaps, law) = (Exp::new(rate).unwrap(), Exp::new(1.0 / 0.002).unwrap());
    let (mut now, mut free, mut slice, mut left) = (0.0f64, 0.0f64, f64::NEG_INFINITY, 0);
    let mut out = Vec::new();
    while now < seconds {
        now += gaps.sample(&mut random);
        let mut begins = free.max(now);
        if begins >= slice + 0.1 {
            // After an idle time a slice begins anew; under load they follow each other.
            slice = if begins < slice + 0.2 { slice + 0.1 } else { begins };
            left = 3;
        } else if left == 0 {
            slice += 0.1;
            (begins, left) = (slice, 3);
        }
        left -= 1;
        free = begins + law.sample(&mut random);
        out.push((now, free));
    }
    out
}

/// What was found of a service.
#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    inside: u32,
    rows: u32,
    worst_points: f64,
    /// The mean width of the intervals, points.
    width_points: f64,
}

impl Coverage {
    /// Judges a prediction by a run, as reports do: the interval of what will be measured is that of the prediction and of the run.
    fn add(&mut self, model: &Model, rate: f64, run: &[(f64, f64)], within_s: &[f64]) {
        for &t in within_s {
            let of = |part: &[(f64, f64)]| {
                part.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / part.len() as f64
            };
            let measured = of(run);
            let batches: Vec<f64> = run.chunks(run.len() / 12).take(12).map(of).collect();
            let variance = batches.iter().map(|b| (b - measured).powi(2)).sum::<f64>() / 132.0;
            // Of a share that no batch misses three in the number of independent requests may be missed.
            let half = (1.96 * variance.sqrt()).max(3.0 / (run.len() as f64 / 8.0));
            let p = model.within(rate, t).unwrap();
            let (below, above) = ((p.value - p.low).hypot(half), (p.high - p.value).hypot(half));
            let ok = (p.value - below..=p.value + above).contains(&measured);
            self.rows += 1;
            self.inside += u32::from(ok);
            self.worst_points = self.worst_points.max(100.0 * (p.value - measured).abs());
            self.width_points += 100.0 * (p.high - p.low);
            println!(
                "   {rate:.1}/s {t}: {:.1} ± {:.1}, predicted {:.1} {:.1}..{:.1}{}",
                100.0 * measured,
                100.0 * half,
                100.0 * p.value,
                100.0 * p.low,
                100.0 * p.high,
                if ok { "" } else { " OUTSIDE" }
            );
        }
    }
}

/// Steps of a minute at some shares of a capacity.
fn steps(shares: &[f64], capacity: f64, run: impl Fn(f64, u64) -> Vec<(f64, f64)>) -> Vec<Step> {
    let each = shares.iter().zip(1..);
    each.map(|(share, seed)| step(&format!("{share}"), &run(share * capacity, seed))).collect()
}

const WITHIN_S: [f64; 4] = [0.02, 0.05, 0.1, 0.2];

/// Fits loads of 30 to 60 % of what a closed loop of 32 clients carries and closed loops of up to 64, and judges others.
fn judge(service: &Collapsing, seed: u64, all: &mut Coverage) -> [f64; 3] {
    let capacity = service.closed(32, 20.0, 7 + seed);
    let steps =
        steps(&[0.3, 0.45, 0.6], capacity, |rate, i| service.open(rate, 60.0, 100 * seed + i));
    let closed_loops = service.closed_loops(64, 1_000 * seed);
    let fitted = work(&steps, None, &Options { closed_loops, ..Options::default() }).unwrap();
    let first = &fitted.hypotheses[0];
    assert_eq!(
        (first.servers, first.discipline, first.by_number),
        (Some(1), Discipline::Fifo, true)
    );
    assert_eq!((&fitted.misfit, fitted.model.unknown_beyond), (&None, None));
    let tipping = fitted.model.tipping().unwrap().unwrap();
    assert!(fitted.model.warnings.contains(&tipping.text()), "{:?}", fitted.model.warnings);
    for share in [0.7, 0.8, 0.9] {
        let rate = share * capacity;
        let run = service.open(rate, 60.0, 100 * seed + (100.0 * share) as u64);
        all.add(&fitted.model, rate, &run, &WITHIN_S);
    }
    // A load well past it does not settle: that is the answer.
    let past = 1.3 * tipping.load.value;
    assert!(matches!(fitted.model.within(past, 0.1), Err(Error::Unstable { .. })));
    let text = fitted.model.to_toml().unwrap();
    assert_eq!(Model::from_toml(&text).unwrap(), fitted.model);
    [tipping.load.value, tipping.load.low, tipping.load.high].map(|load| load / service.tipping())
}

fn judged(service: &Collapsing, seeds: std::ops::Range<u64>) -> Coverage {
    let mut all = Coverage::default();
    for seed in seeds {
        let tipping = judge(service, seed, &mut all);
        println!("{seed}: tips over at {tipping:.3?} of the truth; {all:?}");
        assert!((tipping[0] - 1.0).abs() < 0.1, "{tipping:?}");
        assert!(tipping[1] < 1.03 && tipping[2] > 0.97, "{tipping:?}");
    }
    all
}

#[test]
fn a_collapsing_service_is_predicted_up_to_where_it_tips_over() {
    for service in [Collapsing::of_the_issue(), Collapsing::without_end()] {
        let all = judged(&service, 0..2);
        assert!(10 * all.inside >= 9 * all.rows, "{all:?}");
    }
}

/// The same of many seeds. By hand: `cargo test -p model --lib twenty_collapsing -- --ignored --nocapture`.
#[test]
#[ignore = "minutes"]
fn twenty_collapsing_services_are_within_their_intervals() {
    let mut share = Vec::new();
    for service in [Collapsing::of_the_issue(), Collapsing::without_end()] {
        let all = judged(&service, 10..20);
        share.push(f64::from(all.inside) / f64::from(all.rows));
    }
    assert!(share.iter().all(|share| (0.9..=1.0).contains(share)), "{share:?}");
}

/// A service in slices is none of the hypotheses, and neither does its speed depend on the number inside alone: nothing is claimed beyond
/// the fitted loads but what loads that were held out show.
#[test]
fn a_service_throttled_in_slices_is_within_its_intervals() {
    let mut all = Coverage::default();
    let capacity = 30.0;
    for seed in [1, 2, 3] {
        let steps =
            steps(&[0.3, 0.45, 0.6], capacity, |rate, i| throttled(rate, 120.0, 100 * seed + i));
        let closed_loop =
            Some(crate::fit::input::ClosedLoop { throughput: capacity, deviation: 0.02 });
        let closed_loops = vec![ClosedAt { clients: 32, think_s: 0.0, throughput: capacity }];
        let options = Options { closed_loop, closed_loops, ..Options::default() };
        let fitted = work(&steps, None, &options).unwrap();
        println!("{seed}: {}, {:?}", fitted.hypotheses[0].title(), fitted.model.warnings);
        let model = &fitted.model;
        assert!(fitted.misfit.is_some() && model.unknown_beyond.is_some());
        let told = |w: &String| w.starts_with("Since no hypothesis fits, nothing says");
        assert!(model.warnings.iter().any(told), "{:?}", model.warnings);
        let (fitted_load, beyond) = (0.55 * capacity, 0.8 * capacity);
        let known = model.within(fitted_load, 0.05).unwrap();
        assert!(known.high - known.low < 0.9, "{known:?}");
        let unknown = model.within(beyond, 0.05).unwrap();
        assert_eq!((unknown.low, unknown.high), (0.0, 1.0));
        let mut judged = model.clone();
        judged.held_out = vec![crate::HeldOut {
            name: String::new(),
            rate: beyond,
            within_s: 0.05,
            error_points: 6.0,
            half_width_points: Some(2.0),
        }];
        let up_to = judged.within(beyond, 0.05).unwrap();
        assert!(up_to.high - up_to.low >= 0.08, "{up_to:?}");
        assert_eq!(judged.within(0.9 * capacity, 0.05).unwrap().low, 0.0);
        for share in [0.7, 0.8, 0.9] {
            let run = throttled(share * capacity, 120.0, 100 * seed + (100.0 * share) as u64);
            all.add(&fitted.model, share * capacity, &run, &[0.01, 0.05, 0.1, 0.2, 0.4]);
        }
    }
    println!("{all:?}, {:.0} points wide", all.width_points / f64::from(all.rows));
    assert!(10 * all.inside >= 9 * all.rows, "{all:?}");
}

/// One line on a machine that is shared: works (gamma, SCV 0.4) take longer by a factor while a neighbour computes.
#[derive(Clone, Copy, Debug)]
struct Disturbed {
    mean: f64,
    outside: f64,
    factor: f64,
    /// Mean lengths of the neighbour's spells and of the time between, seconds.
    spell_s: f64,
    calm_s: f64,
}

impl Disturbed {
    fn open(self, rate: f64, seconds: f64, seed: u64) -> Vec<(f64, f64)> {
        let mut random = StdRng::seed_from_u64(seed);
        let gaps = Exp::new(rate).unwrap();
        let law = rand_distr::Gamma::new(2.5, self.mean / 2.5).unwrap();
        let (mut now, mut free, mut slow, mut until) = (0.0f64, 0.0f64, false, 0.0f64);
        let mut out = Vec::new();
        while now < seconds {
            now += gaps.sample(&mut random);
            let begins = free.max(now);
            while until < begins {
                slow = !slow;
                let mean = if slow { self.spell_s } else { self.calm_s };
                until += Exp::new(1.0 / mean).unwrap().sample(&mut random);
            }
            free = begins + law.sample(&mut random) * if slow { self.factor } else { 1.0 };
            out.push((now, free + self.outside));
        }
        out
    }
}

/// Slow spells gather requests, so that works are longer where many are inside. That does not make a service one that tips over.
#[test]
fn spells_of_a_neighbour_are_not_taken_for_congestion() {
    let mut all = Coverage::default();
    for (factor, spell_s, calm_s) in [(1.6, 0.05, 0.2), (1.3, 0.3, 0.6), (2.0, 0.01, 0.1)] {
        let service = Disturbed { mean: 0.35e-3, outside: 0.03e-3, factor, spell_s, calm_s };
        for seed in 0..2 {
            let loads = [850.0, 1_280.0, 1_700.0];
            let steps: Vec<Step> = (0..9u64)
                .map(|i| {
                    let run = service.open(loads[i as usize % 3], 4.0, 100 * seed + i);
                    step(&format!("{i}"), &run)
                })
                .collect();
            let fitted = work(&steps, None, &Options::default()).unwrap();
            println!("{factor} {seed}: {} {:?}", fitted.hypotheses[0].title(), fitted.misfit);
            for rate in [1_700.0, 1_980.0, 2_260.0] {
                let run = service.open(rate, 8.0, 100 * seed + 50);
                all.add(&fitted.model, rate, &run, &[0.4e-3, 0.8e-3, 1.6e-3]);
            }
            assert!(!fitted.hypotheses[0].by_number, "{:?}", fitted.hypotheses[0]);
        }
    }
    println!("{all:?}");
    assert!(10 * all.inside >= 9 * all.rows, "{all:?}");
}
