use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal};

use super::times::REQUESTS_MAX;
use crate::Model;
use crate::fit::Request;
use crate::queue::Discipline;

use ground::window::{Operation, Outcome};

use super::super::tests::windows;
use super::line::Kind;
use super::*;

/// A law of work, drawn.
pub(super) type Draw<'a> = &'a mut dyn FnMut(&mut StdRng) -> f64;

pub(super) fn exponential(mean: f64) -> impl FnMut(&mut StdRng) -> f64 {
    let law = Exp::new(1.0 / mean).unwrap();
    move |random| law.sample(random)
}

/// Lognormal with an SCV of 2.
pub(super) fn heavy(mean: f64) -> impl FnMut(&mut StdRng) -> f64 {
    let variance = 3f64.ln();
    let law = LogNormal::new(mean.ln() - 0.5 * variance, variance.sqrt()).unwrap();
    move |random| law.sample(random)
}

/// Arrivals and departures of requests served by m servers in the order of arrival.
pub(super) fn in_line(
    m: usize,
    rate: f64,
    n: usize,
    law: Draw<'_>,
    random: &mut StdRng,
) -> Vec<(f64, f64)> {
    let gaps = Exp::new(rate).unwrap();
    let (mut free, mut now, mut out) = (vec![0.0f64; m], 0.0, Vec::new());
    for _ in 0..n {
        now += gaps.sample(random);
        let first = (0..m).min_by(|&a, &b| free[a].total_cmp(&free[b])).unwrap();
        free[first] = free[first].max(now) + law(random);
        out.push((now, free[first]));
    }
    out
}

/// The same of processors that are shared by all present.
pub(super) fn shared(
    m: usize,
    rate: f64,
    n: usize,
    law: Draw<'_>,
    random: &mut StdRng,
) -> Vec<(f64, f64)> {
    let gaps = Exp::new(rate).unwrap();
    let (mut now, mut due) = (0.0, gaps.sample(random));
    let mut inside: Vec<(f64, f64)> = Vec::new();
    let mut out = Vec::new();
    while out.len() < n {
        let speed = (m as f64 / inside.len().max(1) as f64).min(1.0);
        let least = inside.iter().map(|j| j.1).fold(f64::INFINITY, f64::min);
        let step = (least / speed).min(due - now);
        inside.iter_mut().for_each(|j| j.1 -= step * speed);
        now += step;
        if now >= due {
            inside.push((now, law(random)));
            due = now + gaps.sample(random);
        }
        inside.retain(|(came, left)| {
            let over = *left <= 1e-12;
            if over {
                out.push((*came, now));
            }
            !over
        });
    }
    out
}

/// A kind of service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub discipline: Discipline,
    pub servers: usize,
    /// The law of work: whether it is heavy.
    pub heavy: bool,
    pub mean: f64,
    /// Seconds outside, of each request.
    pub outside: f64,
}

impl Service {
    fn run(&self, rate: f64, n: usize, seed: u64) -> Vec<(f64, f64)> {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut light, mut long) = (exponential(self.mean), heavy(self.mean));
        let law: Draw<'_> = if self.heavy { &mut long } else { &mut light };
        let all = match self.discipline {
            Discipline::Fifo => in_line(self.servers, rate, n, law, &mut random),
            Discipline::Shared => shared(self.servers, rate, n, law, &mut random),
            Discipline::Lines => unreachable!("lines have tests of their own"),
        };
        all.into_iter().map(|(a, d)| (a, d + self.outside)).collect()
    }

    /// Steps at these utilisations of this many requests in all, for equal times.
    pub fn steps(&self, utilisations: &[f64], requests: usize, seed: u64) -> Vec<Step> {
        let all: f64 = utilisations.iter().sum();
        let of = |(i, rho): (usize, &f64)| {
            let rate = rho * self.servers as f64 / self.mean;
            let n = (requests as f64 * rho / all) as usize;
            step(&format!("{rate}/s"), &self.run(rate, n, 100 * seed + i as u64))
        };
        utilisations.iter().enumerate().map(of).collect()
    }

    fn kind(&self) -> (Discipline, Option<u32>) {
        (self.discipline, Some(self.servers as u32))
    }
}

/// A step of recorded times.
pub(super) fn step(name: &str, all: &[(f64, f64)]) -> Step {
    let seconds = all.last().map_or(0.0, |r| r.0);
    let visits: Vec<_> =
        all.iter().map(|&(a, d)| (a, a, d, (d - a).max(1e-9), Outcome::Unknown)).collect();
    let request = |&(arrival_s, departure_s): &(f64, f64)| Request {
        arrival_s,
        departure_s,
        operation: Operation::Get,
        outcome: Outcome::Unknown,
        bytes: 0,
        key: 0,
        counted: true,
    };
    let requests = all.iter().map(request).collect();
    let times = Some(Times { requests, open: true, ..Times::default() });
    Step {
        name: name.to_owned(),
        load: windows("load", 0, &visits, seconds),
        times,
        ..Step::default()
    }
}

/// Loads that are judged, and times within which shares are.
const JUDGED: [f64; 2] = [0.68, 0.82];
const WITHIN: [f64; 3] = [0.02, 0.05, 0.1];

/// The shares within these times at these loads, in a long run.
fn truth(service: &Service) -> Vec<(f64, f64, f64)> {
    let mut all = Vec::new();
    for rho in JUDGED {
        let rate = rho * service.servers as f64 / service.mean;
        let run = service.run(rate, 150_000, 99);
        let run = &run[5_000..];
        for t in WITHIN {
            let within = run.iter().filter(|r| r.1 - r.0 <= t).count();
            all.push((rate, t, within as f64 / run.len() as f64));
        }
    }
    all
}

/// The table of the method's sketch: what is found, and how far off predictions of loads are that
/// were not measured.
#[test]
fn services_are_told_apart_and_loads_beyond_are_predicted() {
    let of = |discipline, servers, heavy, outside| {
        let mean = 0.008;
        Service { discipline, servers, heavy, mean, outside }
    };
    let (line, sharing) = (Discipline::Fifo, Discipline::Shared);
    let cases = [
        of(line, 1, false, 0.0),
        of(line, 1, true, 0.0),
        of(line, 2, false, 0.0),
        of(sharing, 1, true, 0.0),
        of(sharing, 2, false, 0.0),
        of(line, 1, false, 0.0025),
        of(sharing, 2, false, 0.004),
    ];
    let (mut inside, mut all) = (0, 0);
    for service in cases {
        let truth = truth(&service);
        for seed in [1, 2] {
            let steps = service.steps(&[0.24, 0.4, 0.56], 20_000, seed);
            let fitted = work(&steps, None, &Options::default()).unwrap();
            let (first, next) = (&fitted.hypotheses[0], &fitted.hypotheses[1]);
            let mut errors = Vec::new();
            for &(rate, t, within) in &truth {
                let found = fitted.model.within(rate, t).unwrap();
                // The truth is of a run, too.
                let noise = 0.003;
                all += 1;
                inside += u32::from((found.low - noise..=found.high + noise).contains(&within));
                errors.push((1e3 * (found.value - within)).round() * 0.1);
            }
            let worst = errors.iter().fold(0.0f64, |w, e| w.max(e.abs()));
            println!(
                "{service:?}, seed {seed}: {} ({:.2}, next {} {:.1}), {:.3} ms, outside {:.2} ms, \
                 ± {:.1}; errors {errors:.1?}",
                first.title(),
                first.score,
                next.title(),
                next.score,
                1e3 * first.work.value,
                1e3 * first.outside.value,
                fitted.known.half_width_points
            );
            assert_eq!((first.discipline, first.servers), service.kind());
            assert!(first.p_value > 1e-3 && fitted.misfit.is_none(), "{first:?}");
            assert!(next.score > 3.0 * first.score, "{next:?}");
            assert!((first.outside.value - service.outside).abs() < 3e-4, "{first:?}");
            assert!(worst <= 3.0, "{errors:?}");
            let n = fitted.known.requests;
            assert!((19_900..=20_000).contains(&n), "{n}");
            let text = fitted.model.to_toml().unwrap();
            let again = Model::from_toml(&text).unwrap();
            assert_eq!(again.classes[0].discipline, service.discipline);
        }
    }
    println!("{inside} of {all} within their intervals");
    assert!(10 * inside >= 9 * all, "{inside} of {all}");
}

/// Works are those that were drawn, for every kind, and the naive twin integrates by hand.
#[test]
fn works_are_the_drawn_ones() {
    for discipline in [Discipline::Fifo, Discipline::Shared] {
        for servers in [1, 2, 5] {
            let mut drawn = Vec::new();
            let mut random = StdRng::seed_from_u64(7);
            let mut law = exponential(0.01);
            let mut noted = |random: &mut StdRng| {
                let work = law(random);
                drawn.push(work);
                work
            };
            let rate = 70.0 * servers as f64;
            let run = match discipline {
                Discipline::Fifo => in_line(servers, rate, 3_000, &mut noted, &mut random),
                Discipline::Shared => shared(servers, rate, 3_000, &mut noted, &mut random),
                Discipline::Lines => unreachable!(),
            };
            let later: Vec<(f64, f64)> = run.iter().map(|(a, d)| (*a, d + 0.002)).collect();
            let times = step("", &later).times.unwrap();
            let line = Line::new(&times, REQUESTS_MAX).unwrap();
            let kind = Kind { discipline, servers: Some(servers as u32) };
            // The last ones of the sharing run left others behind.
            for (work, known) in line.works(kind, 0.002.into()).iter().zip(&drawn).take(2_900) {
                assert!((work - known).abs() < 1e-9, "{discipline:?} {servers}: {work} {known}");
            }
            let naive = |i: usize| {
                let others = (0..line.arrivals.len())
                    .filter(|j| *j < i && line.departures[*j] - 0.002 > line.arrivals[i]);
                others.count() as u32
            };
            for (i, met) in line.met(0.002).into_iter().enumerate().step_by(37) {
                assert_eq!(met, naive(i));
            }
        }
    }
}

/// A real server takes those that wait in an order of its own: it is one server all the same, and
/// the works are those that were drawn.
#[test]
fn one_server_is_found_whatever_its_order() {
    let run = |rate: f64, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        let (gaps, mut law) = (Exp::new(rate).unwrap(), exponential(0.008));
        let (mut now, mut out) = (0.0, Vec::new());
        let mut waiting: Vec<f64> = Vec::new();
        let mut next = gaps.sample(&mut random);
        while out.len() < 6_000 {
            if waiting.is_empty() {
                now = f64::max(now, next);
            }
            while next <= now {
                waiting.push(next);
                next += gaps.sample(&mut random);
            }
            let arrival = waiting.swap_remove(random.random_range(0..waiting.len()));
            now += law(&mut random);
            out.push((arrival, now));
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        step("", &out)
    };
    let steps = [run(30.0, 1), run(50.0, 2), run(70.0, 3)];
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    assert_eq!((first.discipline, first.servers), (Discipline::Fifo, Some(1)), "{first:?}");
    assert!(fitted.misfit.is_none() && first.score < 3.0, "{first:?}");
    assert!((first.work.value / 0.008 - 1.0).abs() < 0.03, "{first:?}");
}

/// A server that stays busy after its reply has left: the time outside is below zero, and decides
/// how soon the service saturates.
#[test]
fn a_server_that_tidies_up_after_its_reply_is_found() {
    const AFTER: f64 = 0.002;
    let run = |rate: f64, count: usize, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        let (gaps, mut law) = (Exp::new(rate).unwrap(), exponential(0.005));
        let (mut now, mut free) = (0.0, 0.0f64);
        let requests = (0..count).map(|_| {
            now += gaps.sample(&mut random);
            free = free.max(now) + 0.003 + law(&mut random);
            (now, free - AFTER)
        });
        requests.collect::<Vec<(f64, f64)>>()
    };
    let steps = [(30.0, 1), (50.0, 2), (70.0, 3)];
    let steps = steps.map(|(rate, seed)| step("", &run(rate, 8_000, seed)));
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    assert_eq!((first.discipline, first.servers), (Discipline::Fifo, Some(1)), "{first:?}");
    assert!((first.outside.value + AFTER).abs() < 5e-4, "{first:?}");
    let judged = run(95.0, 40_000, 4);
    for t in [0.01, 0.02, 0.04] {
        let within = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / 40_000.0;
        let found = fitted.model.within(95.0, t).unwrap();
        assert!((found.value - within).abs() < 0.06, "{t}: {within} {found:?}");
    }
    let text = fitted.model.to_toml().unwrap();
    assert!(Model::from_toml(&text).unwrap().requests.front_delay.value < 0.0);
    // Nor does a resolution that is known exactly change its replicates.
    let mut widened = fitted.model.clone();
    widened.widen(&crate::Coarse::default()).unwrap();
    assert_eq!(widened.replicates, fitted.model.replicates);
}

/// Hits of a cache that pass the servers by are found as a mixture, also if the source does not
/// name them.
#[test]
fn hits_that_pass_by_are_taken_out() {
    let service = Service {
        discipline: Discipline::Fifo,
        servers: 1,
        heavy: false,
        mean: 0.008,
        outside: 0.002,
    };
    let mut random = StdRng::seed_from_u64(8);
    let with_hits = |rate: f64, seed: u64, random: &mut StdRng| {
        let mut all = service.run(rate, 6_000, seed);
        let mut hits = in_line(10_000, 0.5 * rate, 3_000, &mut exponential(1e-4), random);
        hits.iter_mut().for_each(|r| r.1 += 2e-4);
        all.append(&mut hits);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    };
    let steps: Vec<Step> =
        [40.0, 70.0].iter().map(|rate| step("", &with_hits(*rate, 3, &mut random))).collect();
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let (first, bypass) = (&fitted.hypotheses[0], fitted.model.requests.q0.value);
    println!("{first:?} {:?}", fitted.misfit);
    assert_eq!((first.discipline, first.servers), service.kind());
    assert!((bypass - 1.0 / 3.0).abs() < 0.02 && first.p_value > 1e-3, "{bypass} {first:?}");
    assert!((first.work.value / 0.008 - 1.0).abs() < 0.05, "{first:?}");
    assert!((first.outside.value - 0.002).abs() < 4e-4 && fitted.misfit.is_none(), "{first:?}");
}

/// A service whose work grows with the number present is none of the hypotheses, and it is said
/// what depends on what.
#[test]
fn a_service_that_is_none_of_them_is_said_to_be() {
    let mut random = StdRng::seed_from_u64(4);
    let steps: Vec<Step> = [20.0, 40.0, 55.0]
        .iter()
        .map(|rate| {
            // One server that is slower, and then much faster, the more wait: a batch.
            let gaps = Exp::new(*rate).unwrap();
            let (mut now, mut free, mut out) = (0.0f64, 0.0f64, Vec::<(f64, f64)>::new());
            let mut law = exponential(0.008);
            for _ in 0..4_000 {
                now += gaps.sample(&mut random);
                let met = out.iter().rev().take_while(|r| r.1 > now).count();
                let factor = [1.0, 3.0, 0.3].get(met).copied().unwrap_or(0.1);
                free = free.max(now) + factor * law(&mut random);
                out.push((now, free));
            }
            step("", &out)
        })
        .collect();
    let fitted = work(&steps, None, &Options::default()).unwrap();
    println!("{:?} {:?}", fitted.misfit, fitted.model.warnings);
    assert!(fitted.misfit.as_ref().is_some_and(|why| why.contains("work than the rest")));
    assert!(fitted.model.warnings.iter().any(|w| w.contains("No hypothesis fits")));
    assert!(fitted.hypotheses[0].p_value < 1e-6);
}

/// Times in whole milliseconds, of a log, give nearly the same; those in whole seconds nothing.
#[test]
fn the_resolution_is_part_of_the_fit() {
    let service = Service {
        discipline: Discipline::Fifo,
        servers: 2,
        heavy: false,
        mean: 0.008,
        outside: 0.003,
    };
    let mut steps = service.steps(&[0.24, 0.4, 0.56], 12_000, 5);
    for step in &mut steps {
        let times = step.times.as_mut().unwrap();
        (times.clock_s, times.resolution_s) = (1e-3, 1e-3);
        for r in &mut times.requests {
            r.departure_s = (r.departure_s * 1e3).floor() * 1e-3;
            r.arrival_s = ((r.arrival_s * 1e3).floor() * 1e-3).min(r.departure_s);
        }
    }
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    println!("{first:?}");
    assert_eq!((first.discipline, first.servers), service.kind());
    assert!((first.work.value / 0.008 - 1.0).abs() < 0.04, "{first:?}");
    assert!((first.outside.value - 0.003).abs() < 6e-4, "{first:?}");
    for step in &mut steps {
        step.times.as_mut().unwrap().clock_s = 1.0;
    }
    assert!(!has_times(&steps));
    let error = work(&steps, None, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("resolution") && error.contains("finer"), "{error}");
}

#[test]
fn hostile_times_are_refused() {
    let service = Service {
        discipline: Discipline::Fifo,
        servers: 1,
        heavy: false,
        mean: 0.008,
        outside: 0.0,
    };
    let steps = service.steps(&[0.3], 800, 1);
    let with = |change: &dyn Fn(&mut Times)| {
        let mut steps = steps.clone();
        change(steps[0].times.as_mut().unwrap());
        work(&steps, None, &Options::default())
    };
    for bad in [f64::NAN, f64::INFINITY, -1e300] {
        assert!(with(&|t| t.requests[3].arrival_s = bad).is_err());
        assert!(with(&|t| t.requests[3].departure_s = bad).is_err());
        assert!(with(&|t| t.clock_s = bad).is_err());
    }
    assert!(with(&|t| t.requests.truncate(REQUESTS_MIN - 1)).is_err());
    assert!(with(&|t| t.requests.iter_mut().for_each(|r| r.counted = false)).is_err());
    // All at once, and all alike: an answer, whatever it is.
    let one = |t: &mut Times| t.requests.iter_mut().for_each(|r| r.arrival_s = r.departure_s);
    let _ = with(&one);
    let _ =
        with(&|t| t.requests.iter_mut().for_each(|r| (r.arrival_s, r.departure_s) = (0.0, 1.0)));
    assert!(work(&[], None, &Options::default()).is_err());
    assert!(work(&steps, Some(0), &Options::default()).is_err());
}
