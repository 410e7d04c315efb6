//! Services drawn from seeds: how often what they do at loads that were not measured is within the intervals.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};

use crate::queue::Discipline;

use super::tests::{Draw, exponential, heavy, in_line, shared, step};
use super::*;

/// Mean work, seconds.
const MEAN: f64 = 0.010;
/// Requests that are fitted, and those of each judged load.
const FITTED: usize = 12_000;
const JUDGED: usize = 40_000;

/// A service: what a fit has to find.
#[derive(Clone, Copy, Debug)]
struct TestService {
    discipline: Discipline,
    servers: u32,
    /// The law of work: 0 exponential, 1 lognormal with an SCV of 2, 2 uniform on a half to one and a half means.
    law: u32,
    /// Seconds outside, and whether it varies (uniformly, by as much).
    outside: f64,
    varies: bool,
    /// Share of requests that pass by.
    bypass: f64,
}

impl TestService {
    fn from_seed(seed: u64) -> TestService {
        let mut random = StdRng::seed_from_u64(9_000 + seed);
        let discipline =
            [Discipline::Fifo, Discipline::Shared, Discipline::Lines][random.random_range(0..3)];
        let least = if discipline == Discipline::Lines { 2 } else { 1 };
        let servers = random.random_range(least..=4);
        let law = random.random_range(0..3);
        let outside = [0.0, 0.2, 0.5][random.random_range(0..3)] * MEAN;
        let varies = outside > 0.0 && random.random_range(0..2) == 0;
        let bypass = if random.random_range(0..3) == 0 { 0.3 } else { 0.0 };
        TestService { discipline, servers, law, outside, varies, bypass }
    }

    /// Arrivals, departures and keys.
    fn run(&self, rho: f64, n: usize, seed: u64) -> Vec<(f64, f64, u32)> {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut light, mut long) = (exponential(MEAN), heavy(MEAN));
        let mut even = |random: &mut StdRng| MEAN * (0.5 + random.random::<f64>());
        let law: Draw<'_> = match self.law {
            0 => &mut light,
            1 => &mut long,
            _ => &mut even,
        };
        let rate = rho * f64::from(self.servers) / MEAN;
        let served = ((1.0 - self.bypass) * n as f64) as usize;
        let mut all: Vec<(f64, f64, u32)> = match self.discipline {
            Discipline::Fifo => in_line(self.servers as usize, rate, served, law, &mut random)
                .into_iter()
                .map(|(a, d)| (a, d, 0))
                .collect(),
            Discipline::Shared => shared(self.servers as usize, rate, served, law, &mut random)
                .into_iter()
                .map(|(a, d)| (a, d, 0))
                .collect(),
            Discipline::Lines => {
                let gaps = Exp::new(rate).unwrap();
                let (mut now, mut free) = (0.0, vec![0.0f64; self.servers as usize]);
                let mut one = || {
                    now += gaps.sample(&mut random);
                    // Sixty keys, as many in each line as in any other.
                    let key = random.random_range(0..60u32);
                    let free = &mut free[(key % self.servers) as usize];
                    *free = free.max(now) + law(&mut random);
                    (now, *free, 1 + key * 7_919 % 65_521)
                };
                (0..served).map(|_| one()).collect()
            }
        };
        let spread = if self.varies { self.outside } else { 0.0 };
        all.iter_mut().for_each(|r| r.1 += self.outside + spread * (random.random::<f64>() - 0.5));
        let seconds = all.iter().map(|r| r.0).fold(0.0, f64::max);
        for _ in served..n {
            let at = random.random::<f64>() * seconds;
            all.push((at, at + 0.02 * MEAN * (1.0 + random.random::<f64>()), 1));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    fn step(&self, rho: f64, n: usize, seed: u64) -> Step {
        let all = self.run(rho, n, seed);
        let times: Vec<(f64, f64)> = all.iter().map(|r| (r.0, r.1)).collect();
        let mut made = step(&format!("{rho}"), &times);
        let requests = &mut made.times.as_mut().unwrap().requests;
        if self.discipline == Discipline::Lines {
            requests.iter_mut().zip(&all).for_each(|(request, r)| request.key = r.2);
        }
        made
    }
}

/// Judged shares inside their intervals and all of them, and the worst error up to 80 % and at 90 %, points.
#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    inside: u32,
    rows: u32,
    /// Shares at loads that the model calls unstable, so that it predicts nothing; they are not among the rows.
    refused: u32,
    right: u32,
    worst: [f64; 2],
}

/// Fits a service at 25 to 60 % of its saturation and judges it at 70, 80 and 90 %.
fn judge(seed: u64) -> Coverage {
    let service = TestService::from_seed(seed);
    let rhos = [0.25, 0.4, 0.6];
    let all: f64 = rhos.iter().sum();
    let steps: Vec<Step> = rhos
        .iter()
        .zip(1..)
        .map(|(rho, i)| service.step(*rho, (FITTED as f64 * rho / all) as usize, 100 * seed + i))
        .collect();
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    let mut found = Coverage {
        right: u32::from(
            (first.discipline, first.servers) == (service.discipline, Some(service.servers)),
        ),
        ..Coverage::default()
    };
    let mut told = String::new();
    for rho in [0.7, 0.8, 0.9] {
        let run = service.run(rho, JUDGED, 100 * seed + 50);
        let rate = run.len() as f64 / run.last().unwrap().0;
        let kept = &run[JUDGED / 20..];
        let mean = kept.iter().map(|r| r.1 - r.0).sum::<f64>() / kept.len() as f64;
        for t in [0.5, 1.0, 2.0, 4.0].map(|part| part * mean) {
            let of = |part: &[(f64, f64, u32)]| {
                part.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / part.len() as f64
            };
            let share = of(kept);
            // What a run of this length is known to, by batches.
            let batches: Vec<f64> = kept.chunks(kept.len() / 20).take(20).map(of).collect();
            let variance = batches.iter().map(|b| (b - share).powi(2)).sum::<f64>() / 19.0 / 20.0;
            let Ok(p) = fitted.model.within(rate, t) else {
                found.refused += 1;
                continue;
            };
            // The interval of what will be measured: that of the prediction and of the run.
            let below = (p.value - p.low).hypot(1.96 * variance.sqrt());
            let above = (p.high - p.value).hypot(1.96 * variance.sqrt());
            let ok = (p.value - below..=p.value + above).contains(&share);
            found.rows += 1;
            found.inside += u32::from(ok);
            let at = usize::from(rho > 0.85);
            found.worst[at] = found.worst[at].max(100.0 * (p.value - share).abs());
            if !ok {
                told += &format!(
                    " [{rho} {:.1}: {share:.3} not {:.3} {:.3}..{:.3}]",
                    t / mean,
                    p.value,
                    p.low,
                    p.high
                );
            }
        }
    }
    println!(
        "{seed}: {service:?}\n    {} ({:.2}, p {:.3}), work {:.2} ms, outside {:.2} ms, passes {:.2}; {found:?}{told}",
        first.title(),
        first.score,
        first.p_value,
        1e3 * first.work.value,
        1e3 * first.outside.value,
        first.bypass
    );
    found
}

fn judged(seeds: std::ops::Range<u64>) -> Coverage {
    let mut all = Coverage::default();
    let (mut light, mut heavy) = (Vec::new(), Vec::new());
    for seed in seeds {
        let one = judge(seed);
        (all.inside, all.rows) = (all.inside + one.inside, all.rows + one.rows);
        (all.refused, all.right) = (all.refused + one.refused, all.right + one.right);
        light.push(one.worst[0]);
        heavy.push(one.worst[1]);
    }
    for worst in [&mut light, &mut heavy] {
        worst.sort_by(f64::total_cmp);
    }
    let at = |of: &[f64], share: f64| of[((of.len() - 1) as f64 * share) as usize];
    println!(
        "{} of {} inside ({:.1} %), {} not predicted, {} right; worst error up to 80 %: median {:.1}, 90 % of services {:.1}, all {:.1}; at 90 %: {:.1}, {:.1}, {:.1}",
        all.inside,
        all.rows,
        100.0 * f64::from(all.inside) / f64::from(all.rows),
        all.refused,
        all.right,
        at(&light, 0.5),
        at(&light, 0.9),
        at(&light, 1.0),
        at(&heavy, 0.5),
        at(&heavy, 0.9),
        at(&heavy, 1.0)
    );
    all
}

/// Hits pass by one server of exponential works: they also divide those works into exponential ones, if the server is
/// taken for one that serves hits among its requests in any order.
#[test]
fn hits_that_overtake_pass_the_server_by() {
    let service = TestService {
        discipline: Discipline::Fifo,
        servers: 1,
        law: 0,
        outside: 0.0,
        varies: false,
        bypass: 0.3,
    };
    for seed in [103_700, 500, 600] {
        let steps = [(0.25, 2_400, 1), (0.4, 3_840, 2), (0.6, 5_760, 3)];
        let steps = steps.map(|(rho, n, i)| service.step(rho, n, seed + i));
        let fitted = work(&steps, None, &Options::default()).unwrap();
        let first = &fitted.hypotheses[0];
        println!("{first:?}");
        assert!((first.bypass - 0.3).abs() < 0.03, "{first:?}");
        assert!((first.work.value / MEAN - 1.0).abs() < 0.05, "{first:?}");
    }
}

/// Weibull works (shape 0.6) of three servers with hits, by a clock of a tenth of a work: two fifths of the works are as short as the cut, and
/// how many are put back depends on the number of servers. Four servers, with a mean work half as long again, were said to be sure.
#[test]
fn short_works_among_hits_do_not_hide_the_number_of_servers() {
    const HITS: f64 = 0.35;
    let tick = 0.001;
    let mut random = StdRng::seed_from_u64(8_103);
    // Γ(1 + 1/0.6).
    let scale = MEAN / 1.504_575;
    let mut law = |random: &mut StdRng| scale * exponential(1.0)(random).powf(1.0 / 0.6);
    let steps: Vec<Step> = [0.3, 0.5, 0.7]
        .iter()
        .map(|rho| {
            let mut all = in_line(3, rho * 3.0 / MEAN, 10_000, &mut law, &mut random);
            let seconds = all.last().unwrap().0;
            for _ in 0..(10_000.0 * HITS / (1.0 - HITS)) as usize {
                let at = random.random::<f64>() * seconds;
                all.push((at, at + 1e-4 + 2e-4 * random.random::<f64>()));
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut made = step(&format!("{rho}"), &all);
            let times = made.times.as_mut().unwrap();
            (times.clock_s, times.resolution_s) = (tick, tick);
            let read = |t: &mut f64| *t = (*t / tick).floor() * tick;
            for request in &mut times.requests {
                read(&mut request.arrival_s);
                read(&mut request.departure_s);
            }
            made
        })
        .collect();
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    println!("{first:?} {:?}", fitted.misfit);
    let is_right = first.servers == Some(3) && (first.work.value / MEAN - 1.0).abs() < 0.06;
    assert!(is_right || fitted.model.unknown_beyond.is_some(), "{first:?}");
}

/// Fast requests that were taken for hits are given back to their own lines, not to those of the hits' keys.
#[test]
fn each_line_gets_its_fast_requests_back() {
    let service = TestService {
        discipline: Discipline::Lines,
        servers: 2,
        law: 0,
        outside: 0.0,
        varies: false,
        bypass: 0.3,
    };
    let steps = [(0.25, 6_000, 1), (0.4, 9_600, 2), (0.6, 14_400, 3)];
    let steps = steps.map(|(rho, n, i)| service.step(rho, n, 700 + i));
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    assert_eq!((first.discipline, first.servers), (Discipline::Lines, Some(2)), "{first:?}");
    // The requests that were not hits, by line.
    let mut each = [0.0, 0.0];
    for request in steps.iter().flat_map(|s| &s.times.as_ref().unwrap().requests) {
        let is_slow = request.departure_s - request.arrival_s > 0.05 * MEAN;
        each[fitted.lines[&request.key] as usize] += f64::from(u8::from(is_slow));
    }
    let share = each[0] / (each[0] + each[1]);
    let found = fitted.model.devices[0].share;
    println!("{share:.4} {found:.4}, passes {:.3}", first.bypass);
    assert!((found - share).abs() < 0.008, "{share} {found}");
    assert!((first.bypass - 0.3).abs() < 0.02, "{first:?}");
}

/// A few services; the next test has more.
#[test]
fn intervals_hold_what_drawn_services_do() {
    let all = judged(1..5);
    assert!(10 * all.inside >= 9 * all.rows && all.refused <= 4, "{all:?}");
    assert!(all.right >= 3, "{all:?}");
}

/// The same of many (docs/models.md has the table). By hand: `cargo test … sixty_drawn_services -- --ignored --nocapture`.
/// Develop with other seeds, so that these remain a judgement.
#[test]
#[ignore = "minutes"]
fn intervals_hold_what_sixty_drawn_services_do() {
    let all = judged(0..60);
    let share = f64::from(all.inside) / f64::from(all.rows);
    assert!((0.90..=0.99).contains(&share) && 20 * all.refused <= all.rows, "{all:?}");
    assert!(all.right >= 54, "{all:?}");
}
