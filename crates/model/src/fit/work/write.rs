//! Writes what was found as a model ([`super`] has the method).

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::distribution::{Empirical, ServiceTime};
use crate::error::Error;
use crate::model_file::{
    ClassParameters, Devices, FORMAT, Hypothesis, Law, Model, Parameter, Replicates, Requests,
    SpotifyParameters,
};
use crate::queue::Discipline;
use crate::statistics::student_95;
use crate::storage::SolvedQueues;
use crate::window::Histogram;

use super::super::black_box::{self, CLASS};
use super::super::resample::{draw, repetitions};
use super::super::{Options, ServersFound, Step, law_of};
use super::line::Line;
use super::search::{Point, Search, Sums};
use super::{EFFECT, Known, LEVEL, Worked};

/// Servers that a service without limit is modelled with: more than it can ever keep busy.
const UNLIMITED: u32 = 10_000;
/// A step's mean work that is off by more than this is worth saying.
const DRIFT: f64 = 0.05;
/// A hypothesis under which the mean work of a step is off by more than this does not fit.
const DRIFT_MAX: f64 = 0.2;

/// A draw: the values of a replicate.
struct Row {
    servers: u32,
    shared: bool,
    outside: f64,
    mean: f64,
    scv: f64,
    bypass: f64,
}

fn sum<'a>(blocks: impl Iterator<Item = &'a Sums>) -> Sums {
    blocks.fold((0.0, 0.0, 0.0), |s, b| (s.0 + b.0, s.1 + b.1, s.2 + b.2))
}

/// Mean and SCV of sums, less the variance that the resolution adds.
fn moments((n, sum, square): Sums, blur: f64) -> (f64, f64) {
    let mean = sum / n.max(1.0);
    let variance = (square / n.max(1.0) - mean * mean - blur).max(0.0);
    (mean, variance / (mean * mean).max(f64::MIN_POSITIVE))
}

/// The model, and all that was looked at.
pub(super) fn worked(
    steps: &[Step],
    found: &Search,
    given: Option<u32>,
    options: &Options,
) -> Result<Worked, Error> {
    let best = &found.best;
    let blur = found.lines.iter().map(|l| l.blur).fold(0.0, f64::max);
    let law = law_of_works(found, blur)?;
    let between = Between::of(best, blur);
    let rows = rows(found, blur, between, options);
    let column = |f: &dyn Fn(&Row) -> f64| rows.iter().map(f).collect::<Vec<f64>>();
    let bypass = bypass_of(found, |_| 1.0);
    let q0 = Parameter::from_replicates(bypass, &column(&|r| r.bypass), "1");
    let own: Vec<&Row> = rows.iter().filter(|r| is_of(r, best)).collect();
    let of_own = |f: &dyn Fn(&Row) -> f64| own.iter().map(|r| f(r)).collect::<Vec<f64>>();
    let mean = Parameter::from_replicates(law.mean(), &of_own(&|r| r.mean), "s");
    let scv = Parameter::from_replicates(law.scv(), &of_own(&|r| r.scv), "1");
    let outside = Parameter::from_replicates(best.outside, &of_own(&|r| r.outside), "s");
    let none = |unit: &str| Parameter::exact(0.0, unit);
    let hypotheses = hypotheses(found, &rows, blur, bypass);
    let servers = best.kind.servers.unwrap_or(UNLIMITED);
    let inverse = of_own(&|r| 1.0 / r.mean);
    let all = black_box::gather(steps, options)?;
    let rates: Vec<f64> = all.offered();
    let mut passed = Histogram::default();
    for response in found.lines.iter().flat_map(|l| &l.bypassed) {
        passed.record((response * 1e9) as u64);
    }
    let mut model = Model {
        format: FORMAT,
        warnings: Vec::new(),
        about: options.about.clone(),
        requests: Requests {
            q0: q0.clone(),
            alpha: none("s"),
            other_share: none("1"),
            front_delay: outside,
            front_delay_scv: None,
            joining: none("1"),
            joining_knee: Parameter::exact(1e9, "reads"),
            rate_low: rates.iter().copied().fold(f64::INFINITY, f64::min),
            rate_high: rates.iter().copied().fold(0.0, f64::max),
        },
        front: None,
        arrivals: None,
        spotify: SpotifyParameters {
            q0,
            alpha: none("s"),
            mu_d: Parameter::from_replicates(1.0 / mean.value, &inverse, "1/s"),
            n_d: servers,
        },
        memory: law_of(&passed)?,
        other: None,
        classes: vec![ClassParameters {
            name: CLASS.to_owned(),
            servers,
            discipline: best.kind.discipline,
            service: Law::new(&law, mean, scv),
            background: None,
            solved: SolvedQueues::default(),
        }],
        evidence: Vec::new(),
        hypotheses: hypotheses.iter().filter(|h| h.weight > 0.0).cloned().collect(),
        devices: vec![Devices { class: CLASS.to_owned(), count: 1, share: 1.0, factor: 1.0 }],
        fitted: Vec::new(),
        held_out: Vec::new(),
        replicates: replicates(&rows),
    };
    model.fitted = all.fitted(&model)?;
    let misfit = misfit(found);
    model.warnings = warnings(found, &hypotheses, &misfit, given);
    model.warnings.extend(all.not_poisson());
    model.check()?;
    let known = known(&model, found)?;
    let servers = servers_found(&hypotheses, given);
    Ok(Worked { model, hypotheses, servers, misfit, known })
}

/// The law of the works of judged requests under the best hypothesis.
fn law_of_works(found: &Search, blur: f64) -> Result<Empirical, Error> {
    let mut works = Histogram::default();
    for line in &found.lines {
        let all = line.works(found.best.kind, found.best.outside);
        for (work, _) in all.into_iter().zip(&line.counted).filter(|r| *r.1) {
            works.record(((work * 1e9) as u64).max(1));
        }
    }
    let law = Empirical::from_histogram(&works)?;
    let variance = (law.scv() * law.mean().powi(2) - blur).max(0.0);
    law.with_moments(law.mean(), variance / law.mean().powi(2))
}

/// The share of judged requests that passed by, with a weight for each step.
fn bypass_of(found: &Search, weight: impl Fn(usize) -> f64) -> f64 {
    let (mut passed, mut all) = (0.0, 0.0);
    for (i, line) in found.lines.iter().enumerate() {
        passed += weight(i) * line.bypassed.len() as f64;
        all += weight(i) * (line.bypassed.len() + line.counted()) as f64;
    }
    if all > 0.0 { passed / all } else { 0.0 }
}

fn is_of(row: &Row, point: &Point) -> bool {
    let shared = point.kind.discipline == Discipline::Shared;
    row.servers == point.kind.servers.unwrap_or(UNLIMITED) && row.shared == shared
}

/// How much the mean work of a step differs from that of all beyond chance, as a share of it. Real
/// services do: caches, frequencies and neighbours differ from run to run, and works follow the load
/// a little even under the best hypothesis. A prediction is of a run of its own, so it carries this
/// in full; with few steps it is poorly known, and Student's quantile allows for that.
#[derive(Clone, Copy, Debug)]
struct Between {
    deviation: f64,
}

/// A step's difference is beyond chance if a sum of squares as large has this probability.
const CHANCE: f64 = 0.1;

impl Between {
    fn of(best: &Point, blur: f64) -> Between {
        let none = Between { deviation: 0.0 };
        let all = moments(sum(best.blocks.iter().flatten()), blur).0;
        let each: Vec<(f64, f64)> = best.blocks.iter().filter_map(|b| of_step(b, all)).collect();
        if each.len() < 2 || all <= 0.0 {
            return none;
        }
        let degrees = (each.len() - 1) as f64;
        let weight: f64 = each.iter().map(|(_, v)| 1.0 / v).sum();
        let mean = each.iter().map(|(m, v)| m / v).sum::<f64>() / weight;
        let q: f64 = each.iter().map(|(m, v)| (m - mean).powi(2) / v).sum();
        let beyond = ChiSquared::new(degrees).is_ok_and(|law| law.sf(q) < CHANCE);
        if !beyond {
            return none;
        }
        let n = each.len() as f64;
        let plain = each.iter().map(|(m, _)| m).sum::<f64>() / n;
        let spread = each.iter().map(|(m, _)| (m - plain).powi(2)).sum::<f64>() / degrees;
        let chance = each.iter().map(|(_, v)| v).sum::<f64>() / n;
        let deviation = (spread - chance).max(0.0).sqrt() * (1.0 + 1.0 / n).sqrt();
        Between { deviation: deviation * student_95(each.len() - 1) / 1.96 }
    }

    /// What a run's mean work is multiplied by.
    fn factor(self, random: &mut StdRng) -> f64 {
        // A normal law by twelve uniform ones.
        let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        (self.deviation * normal).exp()
    }
}

/// Mean work of a step over that of all, and the variance of that by its blocks.
fn of_step(blocks: &[Sums], all: f64) -> Option<(f64, f64)> {
    let (n, work, _) = sum(blocks.iter());
    let used: Vec<&Sums> = blocks.iter().filter(|b| b.0 > 0.0).collect();
    if used.len() < 4 || n <= 0.0 {
        return None;
    }
    let mean = work / n;
    let off = used.iter().map(|b| (b.1 - mean * b.0).powi(2)).sum::<f64>();
    let variance = off / (n * n) * used.len() as f64 / (used.len() - 1) as f64;
    Some((mean / all, (variance / (all * all)).max(1e-12)))
}

/// Draws: hypotheses in proportion to their weights, and blocks of requests.
fn rows(found: &Search, blur: f64, between: Between, options: &Options) -> Vec<Row> {
    let n = options.replicates.min(1_000);
    let mut random = StdRng::seed_from_u64(options.seed);
    let rates: Vec<f64> = found.lines.iter().map(rate).collect();
    let groups = repetitions(&rates);
    let mut chosen = Vec::with_capacity(n);
    let (mut at, mut below) = (0, 0.0);
    for i in 0..n {
        let u = (i as f64 + 0.5) / n as f64;
        while at + 1 < found.points.len() && below + found.points[at].weight < u {
            below += found.points[at].weight;
            at += 1;
        }
        chosen.push(at);
    }
    chosen.shuffle(&mut random);
    let mut rows = Vec::with_capacity(n);
    for at in chosen {
        let point = &found.points[at];
        let (mut total, mut weights) = ((0.0, 0.0, 0.0), vec![0.0; found.lines.len()]);
        for drawn in draw(&mut random, &groups, &|i| point.blocks[i].len()) {
            let blocks = &point.blocks[drawn.step];
            let all = sum(drawn.blocks.iter().filter_map(|b| blocks.get(*b)));
            let w = drawn.weight;
            total = (total.0 + w * all.0, total.1 + w * all.1, total.2 + w * all.2);
            weights[drawn.step] += w;
        }
        let (mean, scv) = moments(total, blur);
        let mean = mean * between.factor(&mut random);
        if mean > 0.0 && mean.is_finite() {
            rows.push(Row {
                servers: point.kind.servers.unwrap_or(UNLIMITED),
                shared: point.kind.discipline == Discipline::Shared,
                outside: point.outside,
                mean,
                scv,
                bypass: bypass_of(found, |i| weights[i]),
            });
        }
    }
    rows
}

/// Judged requests per second.
fn rate(line: &Line) -> f64 {
    let (from, to) = line.span();
    line.counted() as f64 / (to - from).max(1e-9)
}

fn replicates(rows: &[Row]) -> Replicates {
    let mut columns: Vec<String> = Replicates::COLUMNS.map(String::from).to_vec();
    columns.extend(["mean_s", "scv", "servers", "shared"].map(|c| format!("{c}.{CLASS}")));
    let row = |r: &Row| {
        let (q, shared) = (r.bypass, f64::from(u8::from(r.shared)));
        let first = [q, 0.0, 0.0, r.outside, 0.0, 1e9, q, 0.0, 1.0 / r.mean];
        let rest = [r.mean, r.scv, f64::from(r.servers), shared];
        first.into_iter().chain(rest).collect()
    };
    Replicates { columns, rows: rows.iter().map(row).collect() }
}

/// Every kind, with intervals of those that have replicates.
fn hypotheses(found: &Search, rows: &[Row], blur: f64, bypass: f64) -> Vec<Hypothesis> {
    let of = |kind: &Point| {
        let own: Vec<&Row> = rows.iter().filter(|r| is_of(r, kind)).collect();
        let column = |f: &dyn Fn(&Row) -> f64| own.iter().map(|r| f(r)).collect::<Vec<f64>>();
        let (mean, scv) = moments(sum(kind.blocks.iter().flatten()), blur);
        Hypothesis {
            discipline: kind.kind.discipline,
            servers: kind.kind.servers,
            score: kind.score.ratio().max(0.0),
            p_value: kind.score.p_value(),
            weight: kind.weight,
            work: Parameter::from_replicates(mean.max(1e-12), &column(&|r| r.mean), "s"),
            scv,
            outside: Parameter::from_replicates(kind.outside, &column(&|r| r.outside), "s"),
            bypass,
        }
    };
    found.kinds.iter().map(of).collect()
}

/// The servers by the weights of the hypotheses.
fn servers_found(hypotheses: &[Hypothesis], given: Option<u32>) -> ServersFound {
    let likeliest = hypotheses.first().and_then(|h| h.servers);
    let kept = || hypotheses.iter().filter(|h| h.weight >= 0.025);
    let number = |h: &Hypothesis| h.servers.unwrap_or(u32::MAX);
    let low = kept().map(number).min().filter(|n| *n < u32::MAX);
    let high = kept().map(number).max().filter(|n| *n < u32::MAX);
    ServersFound { likeliest, low, high, given: given.is_some() }
}

/// Why the best hypothesis does not fit, if it does not.
fn misfit(found: &Search) -> Option<String> {
    let score = &found.best.score;
    if score.p_value() >= LEVEL {
        return None;
    }
    if let Some(apart) =
        score.apart.filter(|a| a.rank.abs() > EFFECT || (a.ratio - 1.0).abs() > 0.5)
    {
        return Some(apart.text());
    }
    let worst = drifts(found).into_iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    (worst.1.abs() > DRIFT_MAX).then(|| {
        let (percent, which) = (100.0 * worst.1.abs(), if worst.1 > 0.0 { "more" } else { "less" });
        format!(
            "requests at {:.4} requests/s have {percent:.0} % {which} work than the rest",
            worst.0
        )
    })
}

/// The loads whose mean work differs from that of all by more than [`DRIFT`] and chance: each load,
/// requests/s, with the difference as a fraction.
fn drifts(found: &Search) -> Vec<(f64, f64)> {
    let (mean, scv) = moments(sum(found.best.blocks.iter().flatten()), 0.0);
    let off = |(i, blocks): (usize, &Vec<Sums>)| {
        let own = sum(blocks.iter());
        let off = own.1 / own.0.max(1.0) / mean - 1.0;
        let error = (scv / own.0.max(1.0)).sqrt();
        (off.abs() > DRIFT && off.abs() > 4.0 * error).then(|| (rate(&found.lines[i]), off))
    };
    found.best.blocks.iter().enumerate().filter_map(off).collect()
}

/// What users of the model should know.
fn warnings(
    found: &Search,
    hypotheses: &[Hypothesis],
    misfit: &Option<String>,
    given: Option<u32>,
) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(why) = misfit {
        texts.push(format!(
            "No hypothesis fits the recorded times: even under the nearest ({}) {why}. Predictions \
             are those of the nearest.",
            hypotheses.first().map_or_else(String::new, Hypothesis::title)
        ));
    }
    let kept: Vec<&Hypothesis> = hypotheses.iter().filter(|h| h.weight > 0.0).collect();
    if given.is_none() && kept.len() > 1 {
        let each = kept.iter().map(|h| format!("{} ({:.0} %)", h.title(), 100.0 * h.weight));
        texts.push(format!(
            "The times do not tell these apart: {}. Predictions are of the first, their intervals of \
             all: a load nearer to saturation tells most.",
            each.collect::<Vec<_>>().join("; ")
        ));
    }
    for (rate, off) in drifts(found) {
        texts.push(format!(
            "The mean work at {rate:.4} requests/s is {:.0} % {} than at all loads: it depends on the \
             load, or drifts in time.",
            100.0 * off.abs(),
            if off > 0.0 { "more" } else { "less" }
        ));
    }
    texts
}

/// How well the prediction at 80 % of the saturation is known.
fn known(model: &Model, found: &Search) -> Result<Known, Error> {
    let requests: usize = found.lines.iter().map(|l| l.counted() + l.bypassed.len()).sum();
    let rate = 0.8 * model.node()?.saturation();
    let mean = model.classes.first().map_or(0.0, |c| c.service.mean.value);
    let mut half = 0.0f64;
    if rate.is_finite() && model.classes.iter().all(|c| c.servers < UNLIMITED) {
        for k in -1..6 {
            let t = model.requests.front_delay.value + mean * 2f64.powi(k);
            let p = model.within(rate, t)?;
            half = half.max(50.0 * (p.high - p.low));
        }
    }
    let wanted = (requests as f64 * (half / 2.0).powi(2)).ceil();
    Ok(Known {
        requests: requests as u64,
        half_width_points: half,
        requests_for_2_points: wanted as u64,
    })
}
