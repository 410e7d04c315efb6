//! What a fit says beyond the hypothesis: the law of the time outside, kinds of works, doubts, and
//! which load tells most.

use ground::window::Operation;
use rand_distr::{Distribution, Exp};

use super::tests::{Service, exponential, in_line, step};
use super::*;
use crate::fit::input::ClosedLoop;
use crate::queue::Discipline;
use crate::{Model, Parameter, RequestKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const ONE: Service =
    Service { discipline: Discipline::Fifo, servers: 1, heavy: false, mean: 0.008, outside: 0.0 };

/// The time outside is a law: its variance is not taken for work's, and what is predicted of a load
/// that was not measured is nearer for it.
#[test]
fn what_the_time_outside_varies_by_is_found_and_is_not_work() {
    let run = |rate: f64, n: usize, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        // Work of 6 to 10 ms, outside 2 to 5 ms and a third of it: in the mean 3.5 ms.
        let mut law = |random: &mut StdRng| 0.006 + 0.004 * random.random::<f64>();
        let all = in_line(1, rate, n, &mut law, &mut random);
        let outside = |random: &mut StdRng| 0.0015 + 0.004 * random.random::<f64>();
        all.into_iter().map(|(a, d)| (a, d + outside(&mut random))).collect::<Vec<_>>()
    };
    let steps =
        [(40.0, 1), (60.0, 2), (80.0, 3)].map(|(rate, seed)| step("", &run(rate, 6_000, seed)));
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    assert_eq!((first.discipline, first.servers), (Discipline::Fifo, Some(1)), "{first:?}");
    let delay = &fitted.model.requests;
    let scv = delay.front_delay_scv.as_ref().expect("the time outside varies");
    println!("outside {:?}, SCV {scv:?}, work {first:?}", delay.front_delay);
    // The variance is 0.004²/12 of (3.5 ms)².
    let variance = scv.value * delay.front_delay.value.powi(2);
    assert!((variance / (0.004f64.powi(2) / 12.0) - 1.0).abs() < 0.3, "{variance}");
    let of_work = fitted.model.classes[0].service.scv.value * 0.008f64.powi(2);
    assert!((of_work / (0.004f64.powi(2) / 12.0) - 1.0).abs() < 0.3, "{of_work}");
    let judged = run(112.0, 30_000, 9);
    for t in [0.02, 0.04, 0.08] {
        let within = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / 30_000.0;
        let found = fitted.model.within(112.0, t).unwrap();
        assert!((found.value - within).abs() < 0.03, "{t}: {within} {found:?}");
    }
    let text = fitted.model.to_toml().unwrap();
    assert_eq!(Model::from_toml(&text).unwrap().requests.front_delay_scv, delay.front_delay_scv);
    // A constant has no variance.
    let constant = Service { outside: 0.0025, ..ONE };
    let fitted = work(&constant.steps(&[0.3, 0.5], 9_000, 3), None, &Options::default()).unwrap();
    assert_eq!(fitted.model.requests.front_delay_scv, None);
}

/// Works by operation and size, and the rates of departures by the number inside.
#[test]
fn kinds_of_works_and_rates_by_the_number_inside_are_told() {
    let mut steps = Vec::new();
    for (rate, seed) in [(40.0, 1), (70.0, 2)] {
        let mut random = StdRng::seed_from_u64(seed);
        let large = Exp::new(1.0 / 0.012).unwrap();
        let small = Exp::new(1.0 / 0.003).unwrap();
        let mut kinds = Vec::new();
        let mut law = |random: &mut StdRng| {
            let is_large = random.random::<f64>() < 0.3;
            kinds.push(is_large);
            if is_large { large.sample(random) } else { small.sample(random) }
        };
        let all = in_line(1, rate, 5_000, &mut law, &mut random);
        let mut made = step("", &all);
        let requests = &mut made.times.as_mut().unwrap().requests;
        for (request, large) in requests.iter_mut().zip(&kinds) {
            request.bytes = if *large { 100_000 } else { 2_000 };
            request.operation = if *large { Operation::Put } else { Operation::Get };
        }
        steps.push(made);
    }
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let kinds = &fitted.model.kinds;
    let [get, put] = &kinds[..] else { panic!("{kinds:?}") };
    assert_eq!(get.title(), "get of 2000 bytes");
    let near = |kind: &RequestKind, mean: f64| {
        let Parameter { value, low, high, .. } = kind.work.mean;
        (value - mean).abs() < 1.5 * (high - low)
    };
    assert!(near(get, 0.003) && (get.share - 0.7).abs() < 0.03, "{get:?}");
    assert!(near(put, 0.012), "{put:?}");
    let depends =
        |w: &String| w.contains("depends on what is asked") && w.contains("put of 100000");
    assert!(fitted.model.warnings.iter().any(depends), "{:?}", fitted.model.warnings);
    let rates = fitted.model.rates.as_ref().unwrap();
    assert_eq!(rates.hypotheses[0], "1 server, first come, first served");
    assert!(rates.states.len() >= 4 && rates.hypotheses.len() == 2, "{rates:?}");
    for state in &rates.states {
        let off = (state.expected[0] - state.rate).abs();
        assert!(off < 2.0 * state.half_width + 0.05 * state.rate, "{state:?}");
    }
}

/// Spells of slow service, and requests that are missing.
#[test]
fn spells_and_pauses_are_flagged() {
    let mut random = StdRng::seed_from_u64(5);
    // A tenth of the time everything takes five times as long, for a second each.
    let gaps = Exp::new(60.0).unwrap();
    let mut law = exponential(0.004);
    let (mut now, mut free, mut out) = (0.0, 0.0f64, Vec::new());
    for _ in 0..9_000 {
        now += gaps.sample(&mut random);
        let start = free.max(now);
        let factor = if start % 10.0 < 1.0 { 5.0 } else { 1.0 };
        free = start + factor * law(&mut random);
        out.push((now, free));
    }
    let fitted = work(&[step("", &out)], None, &Options::default()).unwrap();
    let says = |words: &str, w: &[String]| w.iter().any(|w| w.contains(words));
    assert!(says("slow spells", &fitted.model.warnings), "{:?}", fitted.model.warnings);
    // Lines of twenty seconds are missing.
    let mut holed = ONE.steps(&[0.4, 0.5], 9_000, 4);
    let times = &mut holed[1].times.as_mut().unwrap().requests;
    times.retain(|r| !(20.0..22.0).contains(&r.arrival_s));
    let fitted = work(&holed, None, &Options::default()).unwrap();
    assert!(says("lines of the log are missing", &fitted.model.warnings));
    assert!(!says("slow spells", &fitted.model.warnings), "{:?}", fitted.model.warnings);
    let whole = work(&ONE.steps(&[0.4, 0.5], 9_000, 4), None, &Options::default()).unwrap();
    assert!(whole.model.warnings.is_empty(), "{:?}", whole.model.warnings);
}

/// A deploy in the middle of a load: the service that runs now is inside no interval of the one model of both, unless it is as wide.
#[test]
fn works_that_change_within_a_step_are_flagged() {
    let mut random = StdRng::seed_from_u64(8);
    let gaps = Exp::new(40.0).unwrap();
    let mut law = exponential(0.010);
    let (mut now, mut free, mut out) = (0.0, 0.0f64, Vec::new());
    for i in 0..4_000 {
        now += gaps.sample(&mut random);
        free = free.max(now) + if i < 2_000 { 2.0 } else { 1.0 } * law(&mut random);
        out.push((now, free));
    }
    let fitted = work(&[step("", &out)], None, &Options::default()).unwrap();
    let warnings = &fitted.model.warnings;
    assert!(warnings.iter().any(|w| w.contains("changed from")), "{warnings:?}");
    let mean = &fitted.model.classes[0].service.mean;
    assert!(mean.low < 0.0105 && mean.high > 0.0195, "{mean:?}");
}

/// A fifth of the lines of a log is missing, here and there: the works of the others do not add up, which is
/// said, or the interval holds the truth.
#[test]
fn a_log_that_misses_lines_here_and_there_is_not_trusted() {
    let mut steps = ONE.steps(&[0.3, 0.45, 0.6], 12_000, 6);
    let mut random = StdRng::seed_from_u64(6);
    for step in &mut steps {
        let times = step.times.as_mut().unwrap();
        times.requests.retain(|_| random.random::<f64>() >= 0.2);
    }
    let fitted = work(&steps, None, &Options::default()).unwrap();
    println!("{:?} {:?}", fitted.misfit, fitted.hypotheses[0]);
    let first = &fitted.hypotheses[0];
    // The server seems to be slower than it is: the load that it has is not all seen.
    assert!(first.p_value < 0.05 || first.score > 1.5 || first.work.high > 0.0099, "{first:?}");
}

/// A further step makes a prediction narrower, a longer one more so; near saturation it tells more of the
/// number of servers than at light load.
#[test]
fn what_a_further_load_would_tell_is_foreseen() {
    let steps = ONE.steps(&[0.15, 0.2], 1_500, 8);
    let options = Options::default();
    let fitted = work(&steps, None, &options).unwrap();
    let goal = Goal { rate: 100.0, within_s: vec![0.02, 0.05] };
    let now = half_width_points(&fitted.model, &goal).unwrap();
    let of = |rate: f64, seconds: f64| {
        let found = prospects(&steps, &fitted, &[rate], seconds, &goal, &options).unwrap();
        found[0].half_width_points
    };
    let (light, heavy, long) = (of(20.0, 30.0), of(75.0, 30.0), of(75.0, 120.0));
    println!("now {now:.1}, 30 s at 20/s {light:.1}, at 75/s {heavy:.1}, 120 s {long:.1}");
    assert!(heavy < now && heavy < light && long < heavy, "{now} {light} {heavy} {long}");
    let sorted = prospects(&steps, &fitted, &[20.0, 75.0, 1e6], 30.0, &goal, &options).unwrap();
    assert!(sorted.len() == 2 && sorted[0].rate == 75.0, "{sorted:?}");
    let past = Goal { rate: 1e4, within_s: Vec::new() };
    assert_eq!(half_width_points(&fitted.model, &past).unwrap(), 50.0);
}

/// On a busy machine one run of a measurement had sixty times the works of the other, and some draws a mean work of
/// 1e-15 s, which no law has: the fit was refused, where it knows next to nothing.
#[test]
fn runs_that_differ_beyond_measure_are_fitted() {
    let run = |mean: f64, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        step("", &in_line(1, 5.0, 400, &mut exponential(mean), &mut random))
    };
    let fitted = work(&[run(0.001, 1), run(0.06, 2)], None, &Options::default()).unwrap();
    let service = &fitted.model.classes[0].service.mean;
    assert!(service.low > 0.0 && service.high > 10.0 * service.value, "{service:?}");
    let goal = Goal { rate: 5.0, within_s: vec![0.02] };
    let half = half_width_points(&fitted.model, &goal).unwrap();
    assert!(half > 40.0, "{half}");
}

/// Where nothing fits, predictions are as uncertain as works differ.
#[test]
fn a_misfit_widens_predictions() {
    let mut random = StdRng::seed_from_u64(4);
    let mut steps = Vec::new();
    for rate in [20.0, 40.0, 55.0] {
        let gaps = Exp::new(rate).unwrap();
        let (mut now, mut free, mut out) = (0.0f64, 0.0f64, Vec::<(f64, f64)>::new());
        let mut law = exponential(0.008);
        for _ in 0..4_000 {
            now += gaps.sample(&mut random);
            let met = out.iter().rev().take_while(|r| r.1 > now).count();
            let factor = [1.0, 3.0, 0.3].get(met).copied().unwrap_or(0.1);
            free = free.max(now) + factor * law(&mut random);
            out.push((now, free));
        }
        steps.push(step("", &out));
    }
    let fitted = work(&steps, None, &Options::default()).unwrap();
    assert!(fitted.misfit.is_some());
    let service = &fitted.model.classes[0].service.mean;
    assert!((service.high - service.low) / service.value > 0.3, "{service:?}");
}

/// Works that come in spells speak against every hypothesis, and are explained by being done again in
/// their order: a load that was not measured is then predicted, as it is not with works taken for independent.
#[test]
fn works_in_spells_are_done_again_in_their_order() {
    let run = |rate: f64, n: usize, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        let mut law = exponential(0.006);
        // One request in a hundred begins a spell, in which works are four times as long, for 25.
        let mut slow = 0;
        let mut work = move |random: &mut StdRng| {
            if slow == 0 && random.random::<f64>() < 0.01 {
                slow = 25;
            }
            slow -= i32::from(slow > 0);
            law(random) * if slow > 0 { 4.0 } else { 1.0 }
        };
        in_line(1, rate, n, &mut work, &mut random)
    };
    let steps = [(30.0, 1), (45.0, 2), (60.0, 3)].map(|(r, s)| step("", &run(r, 9_000, s)));
    let fitted = work(&steps, None, &Options::default()).unwrap();
    let first = &fitted.hypotheses[0];
    assert_eq!((first.discipline, first.servers), (Discipline::Fifo, Some(1)), "{first:?}");
    assert!(first.p_value < 1e-3 && fitted.misfit.is_none(), "{first:?} {:?}", fitted.misfit);
    let said = |w: &String| w.contains("in the order in which they were done");
    assert!(fitted.model.warnings.iter().any(said), "{:?}", fitted.model.warnings);
    let judged = run(72.0, 60_000, 9);
    let mut plain = fitted.model.clone();
    plain.classes[0].in_order = None;
    let (mut worst, mut other) = (0.0f64, 0.0f64);
    for t in [0.01, 0.05, 0.2, 0.5] {
        let within = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / 60_000.0;
        let found = fitted.model.within(72.0, t).unwrap();
        println!("{t}: {within} {found:?}");
        assert!((found.low..=found.high).contains(&within), "{t}: {within} {found:?}");
        worst = worst.max((found.value - within).abs());
        other = other.max((plain.cdf(72.0, &[t]).unwrap()[0] - within).abs());
    }
    // Of 27,000 requests with 270 spells the mean work is known to some percent.
    assert!(worst < 0.08 && other > 2.0 * worst, "{worst} {other}");
    let text = fitted.model.to_toml().unwrap();
    assert_eq!(Model::from_toml(&text).unwrap().classes, fitted.model.classes);
    // What a load that was not fitted did has its own mean work.
    let times = step("", &judged).times.unwrap();
    let own = mean_work(&times, first).unwrap().unwrap();
    assert!((own / first.work.value - 1.0).abs() < 0.1, "{own} {first:?}");
}

/// A service whose works are less when many wait: loads to 60 % hardly tell it, and a closed loop does. Between the
/// last fitted load and full load the truth is not of the form that the model has.
#[test]
fn works_at_full_load_are_those_of_a_closed_loop() {
    let (full, capacity) = (0.0085, 1.0 / 0.0085);
    // 10 ms to half of the capacity, then in a straight line to 8.5 ms.
    let mean = |share: f64| 0.010 - (0.010 - full) * ((share - 0.5) / 0.5).max(0.0);
    let run = |share: f64, n: usize, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        let mut law = exponential(mean(share));
        in_line(1, share * capacity, n, &mut law, &mut random)
    };
    let loads = [(0.3, 1), (0.45, 2), (0.6, 3), (0.6, 4), (0.45, 5), (0.3, 6)];
    let steps = loads.map(|(share, seed)| step("", &run(share, 8_000, seed)));
    let closed_loop = Some(ClosedLoop { throughput: capacity, deviation: 0.01 });
    let with = Options { closed_loop, ..Options::default() };
    let fitted = work(&steps, None, &with).unwrap();
    let plain = work(&steps, None, &Options::default()).unwrap();
    assert_eq!(fitted.hypotheses[0].servers, Some(1));
    let saturation = fitted.model.node().unwrap().saturation();
    assert!((saturation / capacity - 1.0).abs() < 0.001, "{saturation}");
    let said = |w: &String| w.contains("The mean work at full load, by a closed loop");
    assert!(fitted.model.warnings.iter().any(said), "{:?}", fitted.model.warnings);
    let (mut worst, mut other, mut inside) = (0.0f64, 0.0f64, 0);
    for (share, seed) in [(0.7, 7), (0.8, 8), (0.9, 9)] {
        let judged = run(share, 60_000, seed);
        for t in [0.01, 0.02, 0.04, 0.08] {
            let within = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / 60_000.0;
            let rate = share * capacity;
            let found = fitted.model.within(rate, t).unwrap();
            println!("{share} {t}: {within:.3} {found:?}");
            inside += usize::from((found.low..=found.high).contains(&within));
            worst = worst.max((found.value - within).abs());
            // Past the saturation that the fitted works imply nothing is predicted to be answered.
            let without = plain.model.cdf(rate, &[t]).map_or(0.0, |shares| shares[0]);
            other = other.max((without - within).abs());
        }
    }
    println!("{worst} {other} {inside}");
    // What the other form leaves at 90 %.
    assert!(worst < 0.08 && other > 3.0 * worst, "{worst} {other}");
    assert!(inside >= 11, "{inside}");
    let text = fitted.model.to_toml().unwrap();
    assert_eq!(Model::from_toml(&text).unwrap(), fitted.model);
}

/// A closed loop that carries what the fitted works say changes nothing; one that was not at full load is ignored.
#[test]
fn a_closed_loop_that_says_nothing_new_is_not_used() {
    let steps = ONE.steps(&[0.3, 0.45, 0.6], 12_000, 3);
    for throughput in [1.01 / 0.008, 0.5 / 0.008] {
        let closed_loop = Some(ClosedLoop { throughput, deviation: 0.01 });
        let fitted = work(&steps, None, &Options { closed_loop, ..Options::default() }).unwrap();
        assert_eq!(fitted.model.classes[0].by_load, None, "{throughput}");
        assert!(fitted.model.warnings.is_empty(), "{:?}", fitted.model.warnings);
    }
}

/// Mean works that differ by 5 % from run to run: a closed loop that carried less than they allow may be a slow run, and
/// one that carried more is not.
#[test]
fn a_closed_loop_that_carried_more_is_no_chance() {
    let runs =
        [(0.3, 0.0104), (0.45, 0.0096), (0.6, 0.01), (0.6, 0.0105), (0.45, 0.0095), (0.3, 0.01)];
    let steps = runs.map(|(share, mean)| {
        let mut random = StdRng::seed_from_u64((share * mean * 1e6) as u64);
        step("", &in_line(1, share / 0.01, 6_000, &mut exponential(mean), &mut random))
    });
    for (share, is_used) in [(1.06, true), (0.95, false)] {
        let closed_loop = Some(ClosedLoop { throughput: share / 0.01, deviation: 0.01 });
        let fitted = work(&steps, None, &Options { closed_loop, ..Options::default() }).unwrap();
        assert_eq!(fitted.model.classes[0].by_load.is_some(), is_used, "{share}");
    }
}

/// Loads at which no limit shows: a closed loop tells it, and heavier loads are predicted.
#[test]
fn a_limit_that_loads_do_not_show_is_that_of_a_closed_loop() {
    const SERVERS: usize = 24;
    let capacity = SERVERS as f64 / 0.01;
    let run = |share: f64, n: usize, seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        in_line(SERVERS, share * capacity, n, &mut exponential(0.01), &mut random)
    };
    let steps = [(0.2, 1), (0.35, 2), (0.45, 3)].map(|(rho, s)| step("", &run(rho, 6_000, s)));
    let plain = work(&steps, None, &Options::default()).unwrap();
    let unlimited = |h: &Hypothesis| h.servers.is_none() && h.weight > 0.0;
    assert!(plain.hypotheses.iter().any(unlimited), "{:?}", plain.hypotheses);
    let closed_loop = Some(ClosedLoop { throughput: capacity, deviation: 0.01 });
    let with = Options { closed_loop, ..Options::default() };
    let fitted = work(&steps, None, &with).unwrap();
    let said = |w: &String| w.contains("The fitted loads show no limit, but a closed loop");
    assert!(fitted.model.warnings.iter().any(said), "{:?}", fitted.model.warnings);
    let saturation = fitted.model.node().unwrap().saturation();
    assert!((saturation / capacity - 1.0).abs() < 0.03, "{saturation}");
    for share in [0.8, 0.9] {
        let judged = run(share, 100_000, 7);
        for t in [0.005, 0.01, 0.02, 0.04] {
            let within = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / 1e5;
            let p = fitted.model.within(share * capacity, t).unwrap();
            println!("{share} {t}: {within:.3} {p:?}");
            // Whether they are in line or shared is not known.
            let inside = (p.low - 0.01..=p.high + 0.01).contains(&within);
            assert!(inside && p.high - p.low < 0.25, "{share} {t}: {within} {p:?}");
        }
    }
}
