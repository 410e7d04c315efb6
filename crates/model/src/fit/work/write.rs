//! Writes what was found as a model ([`super`] has the method).

use crate::distribution::{Empirical, ServiceTime};
use crate::error::Error;
use crate::model_file::{
    ClassParameters, Devices, FORMAT, Hypothesis, Law, Model, Parameter, Replicates, Requests,
    SpeedByNumber, SpotifyParameters, WorkByLoad,
};
use crate::storage::SolvedQueues;
use ground::window::Histogram;

use super::super::black_box;
use super::between::Between;
use super::doubts::{errors, hardly_waited, in_spells, jumps, misfit, pauses, warnings};
use super::draws::{Row, TIME_MIN_S, UNLIMITED, in_class, is_of, rows};
use super::full::Full;
use super::judge::Point;
use super::jumps::Jump;
use super::kinds;
use super::lines::shares;
use super::moments::{bypass_of, sum};
use super::rates;
use super::search::Search;
use super::slices::slices;
use super::spells::{Spells, spells, spread_by_met};
use super::worked::{Precision, Worked};
use crate::fit::input::{Options, Step};
use crate::fit::responses::law_of;
use crate::fit::servers::{CLASS, ServersFound};

/// The shortest work that a clock tells, s.
const WORK_MIN_S: f64 = 1e-9;
/// What was found, as numbers of a model.
struct Fitted {
    law: Empirical,
    mean: Parameter,
    scv: Parameter,
    outside: Parameter,
    /// The SCV of the time outside, where it is known.
    outside_scv: Option<Parameter>,
    q0: Parameter,
    rows: Vec<Row>,
    /// The variance of works that is not the service's, s².
    blur: f64,
    spells: Option<Spells>,
    between: Between,
    full: Option<Full>,
}

impl Fitted {
    /// `late`: what a client's requests are sent late by, which its responses have and the times do not.
    /// The last `imagined` steps were not measured.
    fn new(found: &Search, imagined: usize, late: f64, options: &Options) -> Result<Fitted, Error> {
        let best = &found.best;
        let blur = blur(found);
        let not_work = blur + best.varies;
        let law = law_of_works(found, blur, best.varies)?;
        let runs = Between::from_search(found, blur, imagined);
        let mut between = runs;
        // Works in the order of one load are no law of slices, whose end depends on what comes.
        let spells = spells(found, options.seed).filter(|_| slices(found).is_none());
        let explained = spells.as_ref().filter(|s| s.explain());
        if let Some(spells) = explained {
            between.deviation = between.deviation.hypot(spells.left);
        } else if misfit(found, None).is_some() {
            between.deviation = between.deviation.hypot(spread_by_met(found));
        }
        let changes = jumps(found).iter().map(Jump::spread).fold(0.0, f64::max);
        between.deviation = between.deviation.hypot(changes);
        let q0 = bypass_of(&found.lines, |_| 1.0);
        let mean = (between.shift * law.mean()).max(TIME_MIN_S);
        // A closed loop is a run like the others. What does not fit in the works is no doubt of its throughput.
        let closed = options.closed_loop.filter(|_| found.congestion.is_none());
        let full = Full::from_fit(found, closed, mean, runs, q0);
        let further = full.map_or(between.further, Full::form);
        between.deviation = between.deviation.hypot(further);
        let rows = rows(found, blur, between, full, options);
        let column = |f: &dyn Fn(&Row) -> f64| rows.iter().map(f).collect::<Vec<f64>>();
        let q0 = Parameter::from_replicates(q0, &column(&|r| r.bypass), "1");
        let own: Vec<&Row> = rows.iter().filter(|r| is_of(r, best)).collect();
        let of_own = |f: &dyn Fn(&Row) -> f64| own.iter().map(|r| f(r)).collect::<Vec<f64>>();
        let mean = Parameter::from_replicates(mean, &of_own(&|r| r.mean), "s");
        let scv = Parameter::from_replicates(law.scv(), &of_own(&|r| r.scv), "1");
        let delay = best.outside.mean + late;
        let outside = Parameter::from_replicates(delay, &of_own(&|r| r.outside + late), "s");
        let varies = best.outside.variance();
        let outside_scv = (varies > 0.0 && delay > 0.0).then(|| {
            let value = varies / delay.powi(2);
            Parameter::from_replicates(value, &of_own(&|r| r.outside_scv(late)), "1")
        });
        Ok(Fitted {
            law,
            mean,
            scv,
            outside,
            outside_scv,
            q0,
            rows,
            blur: not_work,
            spells,
            between,
            full,
        })
    }

    /// The spells, if they are all that is the matter.
    fn explained(&self) -> Option<&Spells> {
        self.spells.as_ref().filter(|spells| spells.explain())
    }

    /// The speeds by the number inside.
    fn by_number(&self, found: &Search) -> Option<SpeedByNumber> {
        let congestion = found.congestion.as_ref()?;
        let own: Vec<&Row> = self.rows.iter().filter(|r| is_of(r, &found.best)).collect();
        let column = |f: &dyn Fn(&Row) -> f64| own.iter().map(|r| f(r)).collect::<Vec<f64>>();
        let speed = |(k, number): (usize, &f64)| {
            let value = congestion.slowdown.speed(*number);
            Parameter::from_replicates(value, &column(&|r| r.speeds[k]), "1")
        };
        let numbers = congestion.numbers.clone();
        let speeds = numbers.iter().enumerate().map(speed).collect();
        let tail = Parameter::from_replicates(0.5 * congestion.falls, &column(&|r| r.tail), "1");
        Some(SpeedByNumber { numbers, speeds, tail })
    }

    fn class(&self, found: &Search) -> ClassParameters {
        let best = &found.best;
        ClassParameters {
            name: CLASS.to_owned(),
            servers: in_class(best.kind).0,
            discipline: in_class(best.kind).1,
            service: Law::new(&self.law, self.mean.clone(), self.scv.clone()),
            background: None,
            in_order: self.explained().map(|spells| spells.works.clone()),
            by_load: self.full.and_then(|full| full.by_load).map(|by_load| {
                let own = self.rows.iter().filter(|r| is_of(r, best)).map(|r| r.full_factor);
                let own: Vec<f64> = own.collect();
                let factor = Parameter::from_replicates(by_load.factor, &own, "1");
                WorkByLoad { from: by_load.from, to: by_load.to, factor }
            }),
            by_number: self.by_number(found),
            solved: SolvedQueues::default(),
        }
    }
}

/// The median of what a client's requests were sent late by: responses count from when they were to be
/// sent, the recorded times from when they were. A generator that stood still makes few very late, which is
/// no part of the service as clients see it.
pub(super) fn late(steps: &[Step]) -> f64 {
    let mut waits = Histogram::default();
    for times in steps.iter().flat_map(|step| &step.load).flat_map(|window| &window.times) {
        waits.merge(&times.waiting);
    }
    waits.quantile_s(0.5).unwrap_or(0.0)
}

/// The variance that the resolution adds to a work.
fn blur(found: &Search) -> f64 {
    found.lines.iter().map(|l| l.blur).fold(0.0, f64::max)
}

/// A model with what was found in the place of what it has: enough for predictions. The last step of the search is
/// imagined.
pub(super) fn replaced(
    model: &Model,
    found: &Search,
    late: f64,
    options: &Options,
) -> Result<Model, Error> {
    let fitted = Fitted::new(found, 1, late, options)?;
    let mut model = model.clone();
    model.classes = vec![fitted.class(found)];
    model.devices = devices(found);
    model.replicates = replicates(&fitted, late);
    model.requests.front_delay = fitted.outside;
    model.requests.front_delay_scv = fitted.outside_scv;
    model.requests.q0 = fitted.q0.clone();
    (model.spotify.q0, model.spotify.n_d) = (fitted.q0, model.classes[0].servers);
    // What a further load narrows is the interval of what is known.
    model.unknown_beyond = None;
    Ok(model)
}

/// The model, and all that was looked at.
pub(super) fn worked(
    steps: &[Step],
    found: &Search,
    given: Option<u32>,
    options: &Options,
) -> Result<Worked, Error> {
    let best = &found.best;
    let late = late(steps);
    let fitted = Fitted::new(found, 0, late, options)?;
    let none = |unit: &str| Parameter::exact(0.0, unit);
    let hypotheses = hypotheses(found, &fitted, blur(found));
    let own = fitted.rows.iter().filter(|r| is_of(r, best));
    let inverse: Vec<f64> = own.map(|r| 1.0 / r.mean).collect();
    let all = black_box::gather(steps, options)?;
    let offered: Vec<f64> = all.offered();
    let mut passed = Histogram::default();
    for response in found.lines.iter().flat_map(|l| &l.bypassed) {
        passed.record((response * 1e9) as u64);
    }
    let class = fitted.class(found);
    let mut model = Model {
        format: FORMAT,
        warnings: Vec::new(),
        about: options.about.clone(),
        requests: Requests {
            q0: fitted.q0.clone(),
            alpha: none("s"),
            other_share: none("1"),
            front_delay: fitted.outside.clone(),
            front_delay_scv: fitted.outside_scv.clone(),
            joining: none("1"),
            joining_knee: Parameter::exact(1e9, "reads"),
            rate_low: offered.iter().copied().fold(f64::INFINITY, f64::min),
            rate_high: offered.iter().copied().fold(0.0, f64::max),
        },
        front: None,
        arrivals: None,
        assumed_arrivals: None,
        unknown_beyond: None,
        spotify: SpotifyParameters {
            q0: fitted.q0.clone(),
            alpha: none("s"),
            mu_d: Parameter::from_replicates(1.0 / fitted.mean.value, &inverse, "1/s"),
            n_d: class.servers,
        },
        memory: law_of(&passed)?,
        other: None,
        classes: vec![class],
        evidence: Vec::new(),
        hypotheses: hypotheses.iter().filter(|h| h.weight > 0.0).cloned().collect(),
        kinds: kinds::kinds(found, fitted.blur, fitted.between.shift),
        rates: rates::rates(found, options.seed),
        devices: devices(found),
        fitted: Vec::new(),
        held_out: Vec::new(),
        replicates: replicates(&fitted, late),
    };
    model.fitted = all.fitted(&model)?;
    let misfit = misfit(found, fitted.spells.as_ref()).or_else(|| overloaded(&model));
    model.warnings = warnings(found, &hypotheses, &misfit, given);
    // A speed by the number explains most of what the test finds, also where a rest of it is beyond chance.
    if misfit.is_some() && found.congestion.is_none() {
        model.unknown_beyond = Some(model.requests.rate_high);
        model.warnings.extend(model.unknown_text());
    }
    model.warnings.extend(model.tipping()?.map(|tipping| tipping.text()));
    model.warnings.extend(limit(found, options));
    if given.is_none() && options.closed_loop.is_none() && found.congestion.is_none() {
        model.warnings.extend(hardly_waited(found, model.node()?.saturation()));
    }
    model.warnings.extend(fitted.between.warning());
    model.warnings.extend(fitted.full.and_then(Full::warning));
    model.warnings.extend(kinds::warning(&model.kinds));
    model.warnings.extend(in_spells(found, fitted.spells.as_ref()));
    model.warnings.extend(jumps(found).iter().map(Jump::text));
    model.warnings.extend(pauses(found));
    model.warnings.extend(errors(steps));
    model.warnings.extend(all.not_poisson());
    model.check()?;
    let known = precision(&model, found)?;
    let servers = servers_found(&hypotheses, given);
    let lines = found.lines.first().and_then(|line| {
        let partition = line.partitions.iter().find(|p| p.lines == best.kind.lines());
        partition.map(|p| p.keys().collect())
    });
    Ok(Worked { model, hypotheses, servers, misfit, known, lines: lines.unwrap_or_default() })
}

/// That the nearest hypothesis saturates below a load that was carried: a sentence. Some percent are chance.
fn overloaded(model: &Model) -> Option<String> {
    let (carried, saturation) = (model.requests.rate_high, model.node().ok()?.saturation());
    let is_slowed = model.classes.iter().any(|class| class.by_number.is_some());
    (!is_slowed && saturation < carried).then(|| {
        format!(
            "the servers saturate at {saturation:.4} requests/s, and {carried:.4} requests/s were carried"
        )
    })
}

/// One device, or one for each of the lines of the likeliest hypothesis.
fn devices(found: &Search) -> Vec<Devices> {
    let of = |count, share| Devices { class: CLASS.to_owned(), count, share, factor: 1.0 };
    match found.best.kind.lines() {
        0 => vec![of(1, 1.0)],
        lines => match shares(&found.lines, lines) {
            Some(each) => each.into_iter().map(|share| of(1, share)).collect(),
            None => vec![of(lines, 1.0 / f64::from(lines))],
        },
    }
}

/// What a closed loop says of a service that shows no limit at the fitted loads.
fn limit(found: &Search, options: &Options) -> Option<String> {
    let throughput = options.closed_loop?.throughput;
    match (found.limited, found.best.kind.servers) {
        (true, Some(servers)) => Some(format!(
            "The fitted loads show no limit, but a closed loop carried no more than {throughput:.4} requests/s: the \
             model has the {servers} servers that it keeps busy. How many wait near that load is an assumption; a heavier \
             load tells."
        )),
        (_, None) => Some(format!(
            "The fitted loads show no limit, and as many servers as a closed loop of {throughput:.4} requests/s keeps busy \
             would have shown. The model has no limit: do not believe it beyond that load."
        )),
        _ => None,
    }
}

/// The law of the works of judged requests under the best hypothesis.
fn law_of_works(found: &Search, blur: f64, varies: f64) -> Result<Empirical, Error> {
    let mut works = Histogram::default();
    let mut record = |work: f64| works.record(((work * 1e9) as u64).max(1));
    match &found.best.correction {
        Some(correction) => correction.law.iter().for_each(|work| record(*work)),
        None => {
            for line in &found.lines {
                let all = line.works(found.best.kind, found.best.outside);
                let judged = all.into_iter().zip(&line.counted).filter(|r| *r.1);
                judged.for_each(|r| record(r.0));
            }
        }
    }
    let (mean, scv) = found.best.moments(sum(found.best.blocks.iter().flatten()), blur, varies);
    // Where no judged request took longer than what is outside of the service, works are 0, which is no law: a clock tells
    // no work below its nanosecond, as in the histogram above.
    Empirical::from_histogram(&works)?.with_moments(mean.max(WORK_MIN_S), scv)
}

fn replicates(fitted: &Fitted, late: f64) -> Replicates {
    let (rows, varies) = (&fitted.rows, fitted.outside_scv.is_some());
    let changes = fitted.full.is_some_and(|full| full.by_load.is_some());
    let mut columns: Vec<String> = Replicates::COLUMNS.map(String::from).to_vec();
    columns.extend(["mean_s", "scv", "servers", "shared"].map(|c| format!("{c}.{CLASS}")));
    let lines = rows.iter().any(|row| row.lines > 0);
    columns.extend(lines.then(|| format!("lines.{CLASS}")));
    columns.extend(varies.then(|| "front_delay_scv".to_owned()));
    columns.extend(changes.then(|| format!("full_factor.{CLASS}")));
    let slowed = rows.first().map_or(0, |row| row.speeds.len());
    columns.extend((1..slowed).map(|k| format!("{}.{CLASS}", SpeedByNumber::column(k))));
    columns.extend((slowed > 0).then(|| format!("tail.{CLASS}")));
    let row = |r: &Row| {
        let (q, shared) = (r.bypass, f64::from(u8::from(r.shared)));
        let first = [q, 0.0, 0.0, r.outside + late, 0.0, 1e9, q, 0.0, 1.0 / r.mean];
        let rest = [r.mean, r.scv, f64::from(r.servers), shared];
        let more = lines.then_some(f64::from(r.lines)).into_iter();
        let more = more.chain(varies.then_some(r.outside_scv(late)));
        let more = more.chain(changes.then_some(r.full_factor));
        let speeds = r.speeds.iter().skip(1).copied();
        let more = more.chain(speeds).chain((slowed > 0).then_some(r.tail));
        first.into_iter().chain(rest).chain(more).collect()
    };
    Replicates { columns, rows: rows.iter().map(row).collect() }
}

/// Every kind, with intervals of those that have replicates.
fn hypotheses(found: &Search, fitted: &Fitted, blur: f64) -> Vec<Hypothesis> {
    let of = |kind: &Point| {
        let own: Vec<&Row> = fitted.rows.iter().filter(|r| is_of(r, kind)).collect();
        let column = |f: &dyn Fn(&Row) -> f64| own.iter().map(|r| f(r)).collect::<Vec<f64>>();
        let (mean, scv) = kind.moments(sum(kind.blocks.iter().flatten()), blur, 0.0);
        let mean = fitted.between.shift * mean;
        Hypothesis {
            discipline: kind.kind.discipline,
            servers: kind.kind.servers,
            score: kind.score.ratio().max(0.0),
            p_value: kind.score.p_value(),
            weight: kind.weight,
            work: Parameter::from_replicates(mean.max(TIME_MIN_S), &column(&|r| r.mean), "s"),
            scv,
            outside: Parameter::from_replicates(kind.outside.mean, &column(&|r| r.outside), "s"),
            bypass: fitted.q0.value,
            by_number: found.congestion.is_some() && kind.kind == found.best.kind,
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

/// How well the prediction at 80 % of the saturation is known.
fn precision(model: &Model, found: &Search) -> Result<Precision, Error> {
    let requests: usize = found.lines.iter().map(|l| l.counted() + l.bypassed.len()).sum();
    let rate = 0.8 * model.node()?.saturation();
    let mean = model.classes.first().map_or(0.0, |c| c.service.mean.value);
    let mut half = 0.0f64;
    if rate.is_finite() && model.classes.iter().all(|c| c.servers < UNLIMITED) {
        for k in -1..6 {
            let t = model.requests.front_delay.value + mean * 2f64.powi(k);
            // The time outside may be below zero: nothing is answered by then.
            if t <= 0.0 {
                continue;
            }
            let p = model.within(rate, t)?;
            half = half.max(50.0 * (p.high - p.low));
        }
    }
    // More requests at the same loads tell nothing of loads at which anything may happen.
    let more = if model.unknown_beyond.is_some() { 1.0 } else { (half / 2.0).powi(2) };
    let wanted = (requests as f64 * more).ceil();
    Ok(Precision {
        requests: requests as u64,
        half_width_points: half,
        requests_for_2_points: wanted as u64,
    })
}
