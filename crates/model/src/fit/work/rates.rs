//! Departures per unit of time with n requests inside, measured and by hypotheses.
//!
//! The curve shows why a hypothesis was chosen: one server's is flat from one request on, that of m
//! servers rises up to m, that of no limit rises on. A hypothesis's curve is that of its own works
//! in another order, sent to such a service at the recorded arrivals: exact for any law of work
//! but for chance, where n/E\[work\] would be exact for exponential works alone.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::model_file::{StateRate, StateRates, title};

use super::judge::Point;
use super::line::Line;
use super::moments::{moments, sum};
use super::replay::replay;
use super::search::Search;

/// Numbers inside that are told apart.
const STATES: usize = 64;
/// The fewest departures of a number that is shown.
const DEPARTURES: f64 = 30.0;
/// Hypotheses that are drawn: the chosen one and the next of another kind.
const HYPOTHESES: usize = 2;
/// Requests of a step that are looked at.
const REQUESTS: usize = 30_000;

/// Adds what happened from the first to the last judged arrival: seconds and departures of each number
/// inside.
fn add(totals: &mut [(f64, f64)], line: &Line, arrivals: &[f64], ends: &mut [f64]) {
    ends.sort_by(f64::total_cmp);
    let (from, to) = line.span();
    let (mut arrived, mut left, mut now) = (0, 0, from);
    while left < ends.len() {
        let comes = arrived < arrivals.len() && arrivals[arrived] <= ends[left];
        let at = if comes { arrivals[arrived] } else { ends[left] };
        if at > to {
            break;
        }
        let inside = (arrived - left).min(STATES);
        totals[inside].0 += (at - now).max(0.0);
        now = now.max(at);
        if comes {
            arrived += 1;
        } else {
            totals[inside].1 += f64::from(u8::from(at >= from));
            left += 1;
        }
    }
}

/// The rates of all steps together; `None` where too little was seen.
pub(super) fn rates(found: &Search, seed: u64) -> Option<StateRates> {
    let lines: Vec<Line> = found.lines.iter().map(|line| line.first(REQUESTS)).collect();
    let none = || vec![(0.0, 0.0); STATES + 1];
    let mut measured = none();
    for line in &lines {
        let ends = line.departures.iter().zip(&line.arrivals);
        let mut ends: Vec<f64> = ends.map(|(d, a)| (d - found.best.outside.mean).max(*a)).collect();
        add(&mut measured, line, &line.arrivals, &mut ends);
    }
    let mut shown: Vec<&Point> = vec![&found.best];
    shown.extend(found.kinds.iter().filter(|p| p.kind != found.best.kind));
    shown.truncate(HYPOTHESES);
    let mut random = StdRng::seed_from_u64(seed);
    let mut expected = Vec::new();
    for (index, point) in shown.iter().enumerate() {
        // A speed by the number is what is shown, so it is not served again.
        if let Some(congestion) = found.congestion.as_ref().filter(|_| index == 0) {
            let servers = point.kind.servers.unwrap_or(u32::MAX);
            let mean = moments(sum(point.blocks.iter().flatten()), 0.0).0;
            expected.push(congestion.rates(servers, mean, STATES));
            continue;
        }
        let mut totals = none();
        for line in &lines {
            let mut line = line.clone();
            line.slowdown = None;
            let works = line.works(point.kind, point.outside).into_iter();
            let mut works: Vec<f64> = works.map(|work| work.max(0.0)).collect();
            works.shuffle(&mut random);
            let places = point.kind.places(&line);
            let mut ends = replay(point.kind, &line.arrivals, &works, &places);
            add(&mut totals, &line, &line.arrivals, &mut ends);
        }
        expected.push(totals);
    }
    let rate = |&(seconds, departures): &(f64, f64)| {
        (departures >= DEPARTURES && seconds > 0.0).then(|| departures / seconds)
    };
    let mut states = Vec::new();
    for inside in 1..STATES {
        let Some(value) = rate(&measured[inside]) else { continue };
        let half_width = 1.96 * value / measured[inside].1.sqrt();
        let by = expected.iter().map(|totals| rate(&totals[inside]).unwrap_or(0.0)).collect();
        states.push(StateRate { inside: inside as u32, rate: value, half_width, expected: by });
    }
    let titles = shown.iter().map(|p| title(p.kind.servers, p.kind.discipline)).collect();
    (states.len() >= 2).then_some(StateRates { hypotheses: titles, states })
}
