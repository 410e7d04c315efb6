//! Which load narrows a prediction most, and what a prediction lacks.
//!
//! For each load that might come next a step is imagined: Poisson arrivals, works and hypothesis of the
//! fit. It is added to what was measured, and all of it is fitted again. The load with the narrowest
//! interval then is the one to measure: near saturation where numbers of servers are to be told apart or
//! the mean is to be known, at light load where the time outside is.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::distribution::Piece;
use crate::error::{Error, check, positive};
use crate::model_file::Model;
use ground::window::{Operation, Outcome};

use super::bypass;
use super::line::{Kind, Line};
use super::moments::bypass_of;
use super::replay::replay;
use super::search::{self, Among};
use super::times::{REQUESTS_MAX, Request, Times};
use super::worked::Worked;
use super::write::{late, replaced};
use crate::fit::input::{Options, Step};

/// The most requests of an imagined step.
const REQUESTS: f64 = 20_000.0;
/// Kinds that are looked at again.
const KINDS: usize = 3;
/// Times of a goal that names none, in mean works beyond the time outside.
const TIMES: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];

/// How well what is to be known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The load, requests/s.
    pub rate: f64,
    /// The times within which shares are to be known, seconds. Without any: half a mean work to eight.
    pub within_s: Vec<f64>,
}

/// What a further step would do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prospect {
    /// Its load, requests/s.
    pub rate: f64,
    /// Half the width of the goal's widest interval then, points.
    pub half_width_points: f64,
}

/// Half the width of the widest 95 % interval of the goal's shares, points; 50 past the saturation of
/// the model. Cost: some 0.1 ms a replicate and time.
///
/// # Errors
/// Those of a prediction.
pub fn half_width_points(model: &Model, goal: &Goal) -> Result<f64, Error> {
    positive("the load of a goal", goal.rate)?;
    let mean = model.classes.first().map_or(0.0, |c| c.service.mean.value);
    let outside = model.requests.front_delay.value.max(0.0);
    let own: Vec<f64> = TIMES.iter().map(|t| outside + t * mean).collect();
    let times = if goal.within_s.is_empty() { &own } else { &goal.within_s };
    let mut half = 0.0f64;
    for &t in times {
        match model.within(goal.rate, t) {
            Ok(p) => half = half.max(50.0 * (p.high - p.low)),
            Err(Error::Unstable { .. }) => half = 50.0,
            Err(error) => return Err(error),
        }
    }
    Ok(half)
}

/// What a step of some seconds at each of some loads would do for a goal, the best first. Loads past the
/// saturation are left out. Cost: a fit for each, less the search for other hypotheses.
///
/// # Errors
/// Those of [`super::work`]; [`Error::Invalid`] for a load or a number of seconds that is none.
pub fn prospects(
    steps: &[Step],
    worked: &Worked,
    rates: &[f64],
    seconds: f64,
    goal: &Goal,
    options: &Options,
) -> Result<Vec<Prospect>, Error> {
    positive("the seconds of a step", seconds)?;
    let mut measured = Vec::new();
    for step in steps {
        let missing = || Error::NoTimes { step: step.name.clone() };
        let times = step.times.as_ref().ok_or_else(missing)?;
        measured.push(Line::new(times, REQUESTS_MAX / (steps.len() + 1))?);
    }
    // As they were fitted: without the hits that the source does not name, if those pass the servers by.
    let passes = worked.hypotheses.first().map_or(0.0, |first| first.bypass);
    let off = |lines: &Vec<Line>| (bypass_of(lines, |_| 1.0) - passes).abs();
    let candidates = bypass::candidates(&measured).into_iter().map(|(_, lines)| lines);
    let measured =
        candidates.min_by(|a, b| off(a).total_cmp(&off(b))).ok_or(Error::NoCompletions)?;
    let kinds: Vec<Kind> = worked
        .hypotheses
        .iter()
        .take(KINDS)
        .map(|h| Kind { discipline: h.discipline, servers: h.servers })
        .collect();
    let saturation = worked.model.node()?.saturation();
    let mut found = Vec::new();
    for &rate in rates {
        check("a load", rate, 1e-6..=1e9, "above 0")?;
        if rate >= saturation {
            continue;
        }
        let mut lines = measured.clone();
        lines.push(Line::new(&imagined(worked, rate, seconds, options.seed)?, REQUESTS_MAX)?);
        let search = search::search(lines, Among::Kinds(&kinds), options);
        let model = replaced(&worked.model, &search, late(steps), options)?;
        found.push(Prospect { rate, half_width_points: half_width_points(&model, goal)? });
    }
    found.sort_by(|a, b| a.half_width_points.total_cmp(&b.half_width_points));
    Ok(found)
}

/// A value of a law.
fn draw_value(pieces: &[Piece], random: &mut StdRng) -> f64 {
    let mut left = random.random::<f64>();
    let reached = |piece: &&Piece| {
        left -= piece.share;
        left <= 0.0
    };
    let Some(piece) = pieces.iter().find(reached).or(pieces.last()) else { return 0.0 };
    (piece.centre + piece.half_width * (2.0 * random.random::<f64>() - 1.0)).max(0.0)
}

/// A step as the likeliest hypothesis would have it.
fn imagined(worked: &Worked, rate: f64, seconds: f64, seed: u64) -> Result<Times, Error> {
    let missing = || Error::NoCompletions;
    let class = worked.model.classes.first().ok_or_else(missing)?;
    let first = worked.hypotheses.first().ok_or_else(missing)?;
    let law = class.service.distribution(None)?;
    let (outside, passes) = (first.outside.value, first.bypass);
    let mut random = StdRng::seed_from_u64(seed ^ 0x9a6e);
    let n = (rate * seconds).clamp(2.0, REQUESTS) as usize;
    let exponential = |random: &mut StdRng| -(1.0 - random.random::<f64>()).ln();
    let (mut now, mut arrivals) = (0.0, Vec::with_capacity(n));
    for _ in 0..n {
        now += exponential(&mut random) / rate;
        arrivals.push(now);
    }
    let pieces = law.pieces();
    let works: Vec<f64> = (0..n).map(|_| draw_value(pieces, &mut random)).collect();
    let kind = Kind { discipline: first.discipline, servers: first.servers };
    let request = |(arrival_s, end): (&f64, f64)| Request {
        arrival_s: *arrival_s,
        departure_s: (end + outside).max(*arrival_s),
        operation: Operation::Get,
        outcome: Outcome::Unknown,
        bytes: 0,
        key: 0,
        counted: true,
    };
    // All keys alike: the shares of the lines are those of their numbers of keys.
    let known: Vec<u32> = worked.lines.keys().copied().collect();
    let keys: Vec<u32> = match known.len() {
        0 => vec![0; n],
        many => (0..n).map(|_| known[random.random_range(0..many)]).collect(),
    };
    let places: Vec<u32> =
        keys.iter().map(|key| worked.lines.get(key).copied().unwrap_or(0)).collect();
    // A hit passes the servers by; the source is taken to name it.
    let (hits, served): (Vec<usize>, Vec<usize>) =
        (0..n).partition(|_| random.random::<f64>() < passes);
    let of = |all: &[f64]| served.iter().map(|i| all[*i]).collect::<Vec<f64>>();
    let own: Vec<u32> = served.iter().filter(|_| !places.is_empty()).map(|i| places[*i]).collect();
    let (came, works) = (of(&arrivals), of(&works));
    let ends = replay(kind, &came, &works, &own);
    let at_servers = came.iter().zip(ends).map(request).zip(&served);
    let mut requests: Vec<Request> =
        at_servers.map(|(request, i)| Request { key: keys[*i], ..request }).collect();
    requests.extend(
        hits.iter().map(|i| Request {
            outcome: Outcome::Memory,
            ..request((&arrivals[*i], arrivals[*i]))
        }),
    );
    Ok(Times { requests, open: true, ..Times::default() })
}
