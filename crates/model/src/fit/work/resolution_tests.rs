//! Clocks of a microsecond to ten milliseconds: whether what a service does at loads that were not measured is within the
//! intervals, whatever clock its times were read from.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::tests::{Draw, exponential, heavy, in_line, step};
use super::*;

/// Mean work, seconds.
const MEAN: f64 = 0.010;
/// Utilisations that are fitted, and those that are judged.
const FITTED: [f64; 3] = [0.3, 0.5, 0.7];
const JUDGED: [f64; 2] = [0.8, 0.9];
/// Times within which shares are judged, seconds.
const WITHIN: [f64; 3] = [0.02, 0.05, 0.1];
/// Requests that are fitted, and those of a simulated truth.
const REQUESTS: f64 = 16_000.0;
const TRUE: usize = 3_000_000;

/// A law of work with a mean of [`MEAN`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Exponential,
    /// With an SCV of 2.
    Lognormal,
    Deterministic,
    /// Weibull with a shape of 0.6: an SCV of 3.1.
    Weibull,
    Uniform,
    /// A fifth of a mean, and five means for a sixth of the requests.
    Bimodal,
    /// Pareto with an exponent of 1.5, bounded at a thousand times the least: an SCV of 9.9.
    Pareto,
}

impl Law {
    fn draw(self) -> Box<dyn FnMut(&mut StdRng) -> f64> {
        use rand_distr::{Distribution, Weibull};
        match self {
            Law::Exponential => Box::new(exponential(MEAN)),
            Law::Lognormal => Box::new(heavy(MEAN)),
            Law::Deterministic => Box::new(|_| MEAN),
            Law::Bimodal => {
                Box::new(|random| MEAN * if random.random_range(0..6) > 0 { 0.2 } else { 5.0 })
            }
            Law::Uniform => Box::new(|random| 2.0 * MEAN * random.random::<f64>()),
            Law::Pareto => {
                let most = 1_000f64;
                let mean = 3.0 * (1.0 - most.powf(-0.5)) / (1.0 - most.powf(-1.5));
                Box::new(move |random| {
                    let u = random.random::<f64>() * (1.0 - most.powf(-1.5));
                    MEAN / mean * (1.0 - u).powf(-1.0 / 1.5)
                })
            }
            Law::Weibull => {
                let scale = MEAN / statrs::function::gamma::gamma(1.0 + 1.0 / 0.6);
                let law = Weibull::new(scale, 0.6).unwrap();
                Box::new(move |random| law.sample(random))
            }
        }
    }
}

/// A service and the clock that its log is written by.
#[derive(Clone, Copy, Debug)]
struct Case {
    law: Law,
    servers: usize,
    clock_s: f64,
    /// The share of requests that pass the servers by within 0.1 to 0.3 ms.
    hits: f64,
}

impl Case {
    fn run(&self, rho: f64, n: usize, random: &mut StdRng) -> Vec<(f64, f64)> {
        let mut law = self.law.draw();
        let draw: Draw<'_> = &mut *law;
        let served = ((1.0 - self.hits) * n as f64) as usize;
        let rate = rho * self.servers as f64 / MEAN;
        let mut all = in_line(self.servers, rate, served, draw, random);
        let seconds = all.last().map_or(0.0, |r| r.0);
        for _ in served..n {
            let at = random.random::<f64>() * seconds;
            all.push((at, at + 1e-4 + 2e-4 * random.random::<f64>()));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        let mut random = StdRng::seed_from_u64(seed);
        let all: f64 = FITTED.iter().sum();
        let of = |rho: &f64| {
            let times = self.run(*rho, (REQUESTS * rho / all) as usize, &mut random);
            let mut made = step(&format!("{rho}"), &times);
            read_by(self.clock_s, made.times.as_mut().unwrap());
            made
        };
        FITTED.iter().map(of).collect()
    }

    /// Shares within [`WITHIN`] at each of [`JUDGED`].
    fn truth(&self) -> Vec<[f64; WITHIN.len()]> {
        let of = |rho: &f64| {
            let served = Case { hits: 0.0, ..*self };
            let run = served.run(*rho, TRUE, &mut StdRng::seed_from_u64(77));
            WITHIN.map(|t| {
                let within = run.iter().filter(|r| r.1 - r.0 <= t).count();
                self.hits + (1.0 - self.hits) * within as f64 / run.len() as f64
            })
        };
        JUDGED.iter().map(of).collect()
    }
}

/// What a clock that ticks each `clock_s` shows.
fn read_by(clock_s: f64, times: &mut Times) {
    (times.clock_s, times.resolution_s) = (clock_s, clock_s);
    for r in &mut times.requests {
        r.departure_s = (r.departure_s / clock_s).floor() * clock_s;
        r.arrival_s = ((r.arrival_s / clock_s).floor() * clock_s).min(r.departure_s);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    inside: u32,
    rows: u32,
    width: f64,
    right: u32,
    mean_off: f64,
    hits: f64,
}

fn judge(case: Case, truth: &[[f64; WITHIN.len()]], seed: u64) -> Coverage {
    let fitted = work(&case.steps(seed), None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    let is_right =
        (first.discipline, first.servers) == (Discipline::Fifo, Some(case.servers as u32));
    let mut found = Coverage {
        right: u32::from(is_right),
        mean_off: first.work.value / MEAN - 1.0,
        hits: first.bypass,
        ..Coverage::default()
    };
    let mut told = String::new();
    for (rho, shares) in JUDGED.iter().zip(truth) {
        let rate = rho * case.servers as f64 / MEAN / (1.0 - case.hits);
        for (t, share) in WITHIN.iter().zip(shares) {
            found.rows += 1;
            let Ok(p) = fitted.model.within(rate, *t) else {
                found.width += 1.0;
                continue;
            };
            found.inside += u32::from((p.low..=p.high).contains(share));
            found.width += p.high - p.low;
            told += &format!(" {:+.1}±{:.1}", 100.0 * (p.value - share), 50.0 * (p.high - p.low));
        }
    }
    println!(
        "{seed} {:?} m{} {} us: {} ({:.2} p {:.3}) work {:+.2} % [{:.2} {:.2}] scv {:.2} outside {:.3} ms hits {:.3} {}/{}{told}",
        case.law,
        case.servers,
        (case.clock_s * 1e6) as u64,
        first.title(),
        first.score,
        first.p_value,
        100.0 * found.mean_off,
        1e3 * first.work.low,
        1e3 * first.work.high,
        first.scv,
        1e3 * first.outside.value,
        first.bypass,
        found.inside,
        found.rows,
    );
    found
}

fn judge_seeds(case: Case, seeds: std::ops::Range<u64>) -> Coverage {
    let truth = case.truth();
    let mut all = Coverage::default();
    let n = seeds.clone().count() as f64;
    for seed in seeds {
        let one = judge(case, &truth, seed);
        (all.inside, all.rows) = (all.inside + one.inside, all.rows + one.rows);
        all.right += one.right;
        all.width += one.width / f64::from(one.rows) / n;
        all.mean_off += one.mean_off / n;
        all.hits += one.hits / n;
    }
    println!(
        "TOTAL {:?} m{} {} us hits {}: {} of {} inside ({:.1} %), {} of {n} right, width {:.1} points, work {:+.2} %, hits {:.3}",
        case.law,
        case.servers,
        (case.clock_s * 1e6) as u64,
        case.hits,
        all.inside,
        all.rows,
        100.0 * f64::from(all.inside) / f64::from(all.rows),
        all.right,
        100.0 * all.width,
        100.0 * all.mean_off,
        all.hits,
    );
    all
}

/// One server and two, at each clock, of few seeds; [`clocks_by_hand`] has more. What a seed is off by is common to its
/// shares, so that one seed outside is six shares.
#[test]
fn intervals_hold_whatever_the_clock() {
    for (servers, clock_s) in [(1, 1e-3), (2, 1e-3), (4, 1e-3), (1, 1e-2)] {
        let found =
            judge_seeds(Case { law: Law::Exponential, servers, clock_s, hits: 0.0 }, 300..303);
        assert!(3 * found.inside >= 2 * found.rows && found.right == 3, "{found:?}");
        assert!(found.hits < 1e-9 && found.mean_off.abs() < 0.03, "{found:?}");
        // Half as wide for the half: an interval of any share holds anything.
        assert!(found.width < 0.6, "{found:?}");
    }
}

/// Hits of 0.1 to 0.3 ms by a clock of 1 ms, in front of works of which a part is as fast by that clock.
#[test]
fn hits_by_a_coarse_clock_leave_the_short_works() {
    let case = Case { law: Law::Exponential, servers: 2, clock_s: 1e-3, hits: 0.4 };
    let found = judge_seeds(case, 300..302);
    assert!(3 * found.inside >= 2 * found.rows && found.right == 2, "{found:?}");
    assert!((found.hits - 0.4).abs() < 0.01 && found.mean_off.abs() < 0.03, "{found:?}");
}

/// The lines of a log in any order are the same log.
#[test]
fn the_order_of_lines_does_not_matter() {
    use rand::seq::SliceRandom;
    let case = Case { law: Law::Exponential, servers: 1, clock_s: 1e-3, hits: 0.0 };
    let steps = case.steps(400);
    let options = Options { replicates: 8, ..Options::default() };
    let first = work(&steps, None, &options).unwrap();
    let mut random = StdRng::seed_from_u64(401);
    let mut shuffled = steps.clone();
    for step in &mut shuffled {
        step.times.as_mut().unwrap().requests.shuffle(&mut random);
    }
    let again = work(&shuffled, None, &options).unwrap();
    assert_eq!(first.model, again.model);
    assert_eq!(first.hypotheses, again.hypotheses);
}

/// Of four servers of constant works one with all of a work outside fits less badly than two or three do.
#[test]
fn few_servers_of_constant_works_are_not_taken_for_one() {
    for clock_s in [1e-6, 1e-3] {
        let case = Case { law: Law::Deterministic, servers: 4, clock_s, hits: 0.0 };
        let found = judge_seeds(case, 700..701);
        assert!(found.right == 1 && found.mean_off.abs() < 5e-3, "{found:?}");
        assert!(found.width < 0.02, "{found:?}");
    }
}

/// Exponential works, a part of which is as short as hits are: the share of hits is known by the works of those that waited.
#[test]
fn hits_are_told_from_short_works_by_the_works_of_those_that_waited() {
    for (servers, clock_s) in [(1, 1e-3), (3, 1e-6), (3, 1e-3)] {
        let case = Case { law: Law::Exponential, servers, clock_s, hits: 0.35 };
        let found = judge_seeds(case, 710..711);
        assert!(found.right == 1 && (found.hits - 0.35).abs() < 0.02, "{found:?}");
        assert!(found.mean_off.abs() < 0.04 && found.width < 0.15, "{found:?}");
    }
}

/// Hits are found by a clock that is coarser than they are, with the evidence, and not where it is said that there are
/// none.
#[test]
fn hits_are_claimed_with_their_evidence_unless_there_are_none() {
    let case = Case { law: Law::Deterministic, servers: 1, clock_s: 1e-3, hits: 0.3 };
    let steps = case.steps(500);
    let found = work(&steps, None, &Options::default()).unwrap();
    let q0 = found.hypotheses[0].bypass;
    assert!((q0 - 0.3).abs() < 0.03, "{:?}", found.hypotheses[0]);
    let said = |worked: &Worked| worked.model.warnings.iter().any(|w| w.contains("--no-hits"));
    assert!(said(&found), "{:?}", found.model.warnings);
    let without = work(&steps, None, &Options { no_hits: true, ..Options::default() }).unwrap();
    assert!(without.hypotheses[0].bypass == 0.0 && !said(&without));
}

/// Works of two kinds leave a valley as well, and a twentieth of the shorter ones as hits may fit better by chance.
#[test]
fn the_shorter_of_two_kinds_of_works_are_no_hits() {
    let case = Case { law: Law::Bimodal, servers: 2, clock_s: 1e-3, hits: 0.0 };
    for seed in 720..724 {
        let found = work(&case.steps(seed), None, &Options::default()).unwrap();
        assert!(found.hypotheses[0].bypass == 0.0, "{seed}: {:?}", found.hypotheses[0]);
        assert_eq!(found.hypotheses[0].servers, Some(2), "{seed}");
    }
}

/// A clock of seconds tells means.
#[test]
fn a_clock_of_seconds_tells_the_rate_and_the_mean() {
    let mut case = Case { law: Law::Exponential, servers: 1, clock_s: 1.0, hits: 0.0 };
    let steps = case.steps(600);
    assert!(!has_times(&steps));
    let text = too_coarse(&steps).unwrap();
    for part in ["ticks of 1 s", "requests inside", "Log with a finer clock"] {
        assert!(text.contains(part), "{text}");
    }
    // Durations that were cut off to milliseconds left 0 of most.
    let mut cut = Case { law: Law::Exponential, servers: 1, clock_s: 1e-3, hits: 0.0 }.steps(600);
    for times in cut.iter_mut().filter_map(|step| step.times.as_mut()) {
        for (i, request) in times.requests.iter_mut().enumerate() {
            let taken_s = if i.is_multiple_of(20) { 1e-3 } else { 0.0 };
            request.departure_s = request.arrival_s + taken_s;
        }
    }
    let text = too_coarse(&cut).unwrap();
    assert!(text.contains("ticks of 1 ms") && text.contains("mean work is at most 1."), "{text}");
    case.clock_s = 1e-2;
    let fine = case.steps(600);
    assert!(has_times(&fine) && too_coarse(&fine).is_none());
}

/// A list of numbers that a test by hand is given.
#[allow(clippy::disallowed_methods)] // Whoever runs it by hand says so in the environment.
fn numbers_of(name: &str, otherwise: &[f64]) -> Vec<f64> {
    let text = std::env::var(name).unwrap_or_default();
    let each: Vec<f64> = text.split(',').filter_map(|t| t.parse().ok()).collect();
    if each.is_empty() { otherwise.to_vec() } else { each }
}

/// By hand: `SEEDS=20 CLOCKS=1e-6,1e-3,1e-2 LAWS=0,1,2,3,4,5 SERVERS=1,2,4 HITS=0,0.3 cargo test … clocks_by_hand -- --ignored
/// --nocapture`.
#[test]
#[ignore = "minutes"]
fn clocks_by_hand() {
    let laws = [
        Law::Exponential,
        Law::Lognormal,
        Law::Deterministic,
        Law::Weibull,
        Law::Uniform,
        Law::Pareto,
    ];
    let from = numbers_of("FROM", &[100.0])[0] as u64;
    let seeds = numbers_of("SEEDS", &[6.0])[0] as u64;
    for law in numbers_of("LAWS", &[0.0]) {
        for servers in numbers_of("SERVERS", &[1.0, 2.0]) {
            for hits in numbers_of("HITS", &[0.0]) {
                for clock_s in numbers_of("CLOCKS", &[1e-6, 1e-3, 1e-2]) {
                    let law = laws[law as usize];
                    let case = Case { law, servers: servers as usize, clock_s, hits };
                    judge_seeds(case, from..from + seeds);
                }
            }
        }
    }
}

/// Short works that were cut with the hits are put back where the time outside that the cut made is long by chance, and not where it is true.
#[test]
fn a_time_outside_is_made_by_the_cut_if_responses_go_on_before_it() {
    let case = Case { law: Law::Exponential, servers: 2, clock_s: 1e-3, hits: 0.35 };
    let kinds = [Kind { discipline: Discipline::Fifo, servers: Some(2) }];
    // Whether short works are put back if the time outside is so many valleys by what was found, and so many seconds in truth.
    let returns = |found_valleys: f64, true_s: f64, seed: u64| {
        let mut steps = case.steps(seed);
        for times in steps.iter_mut().filter_map(|step| step.times.as_mut()) {
            for request in &mut times.requests {
                let is_hit = request.departure_s - request.arrival_s <= 1e-3;
                request.departure_s += if is_hit { 0.0 } else { true_s };
            }
        }
        let times = steps.iter().filter_map(|step| step.times.as_ref());
        let lines: Vec<Line> = times.map(|times| Line::new(times, 10_000).unwrap()).collect();
        let (valley, kept) = bypass::candidates(&lines).pop().unwrap();
        let mut found = search::search(kept, Among::Kinds(&kinds), &Options::default());
        found.best.outside = outside::Outside { mean: found_valleys * valley, cv: 0.0 };
        bypass::returned(&lines, &found, valley).is_some()
    };
    for seed in [810, 811] {
        assert!(returns(1.0, 0.0, seed), "{seed}");
        assert!(returns(1.3, 0.0, seed), "{seed}");
        assert!(!returns(2.0, 0.005, seed), "{seed}");
    }
}
