//! The replicates of a model: hypotheses in proportion to their weights, and blocks of requests.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::queue::Discipline;

use super::super::resample::{draw, repetitions};
use super::between::Between;
use super::full::Full;
use super::judge::Point;
use super::line::Kind;
use super::moments::{bypass_of, normal, rate, sum};
use super::search::Search;
use super::speeds::Congestion;
use crate::fit::input::Options;

/// Servers that a service without limit is modelled with: more than it can ever keep busy.
pub(super) const UNLIMITED: u32 = 10_000;
/// The shortest time that a law may have, s.
pub(super) const TIME_MIN_S: f64 = 1e-12;

/// A draw: the values of a replicate.
pub(super) struct Row {
    pub servers: u32,
    pub shared: bool,
    /// Separate lines of one server each; 0 of one line.
    pub lines: u32,
    pub outside: f64,
    /// The variance of the time outside, s².
    pub varies: f64,
    pub mean: f64,
    pub scv: f64,
    pub bypass: f64,
    /// The mean at full load over `mean`, where works change with the load.
    pub full_factor: f64,
    /// The speeds by the number inside over the first, and how they fall beyond the last; empty where they do not change.
    pub speeds: Vec<f64>,
    pub tail: f64,
}

impl Row {
    /// The SCV of the delay.
    pub fn outside_scv(&self, late: f64) -> f64 {
        let delay = self.outside + late;
        if delay > 0.0 { self.varies / (delay * delay) } else { 0.0 }
    }
}

/// Servers and discipline of each device of a kind.
pub(super) fn in_class(kind: Kind) -> (u32, Discipline) {
    match kind.discipline {
        Discipline::Lines => (1, Discipline::Fifo),
        other => (kind.servers.unwrap_or(UNLIMITED), other),
    }
}

pub(super) fn is_of(row: &Row, point: &Point) -> bool {
    let (servers, discipline) = in_class(point.kind);
    let same = row.servers == servers && row.shared == discipline.is_shared();
    same && row.lines == point.kind.lines()
}

/// Indices of the points of a search, each as often as its weight says, in any order.
fn draw_points(found: &Search, count: usize, random: &mut StdRng) -> Vec<usize> {
    let mut chosen = Vec::with_capacity(count);
    let (mut at, mut below) = (0, 0.0);
    for i in 0..count {
        let u = (i as f64 + 0.5) / count as f64;
        while at + 1 < found.points.len() && below + found.points[at].weight < u {
            below += found.points[at].weight;
            at += 1;
        }
        chosen.push(at);
    }
    chosen.shuffle(random);
    chosen
}

/// Draws: hypotheses in proportion to their weights, and blocks of requests.
pub(super) fn rows(
    found: &Search,
    blur: f64,
    between: Between,
    full: Option<Full>,
    options: &Options,
) -> Vec<Row> {
    let n = options.replicates.min(1_000);
    let mut random = StdRng::seed_from_u64(options.seed);
    let rates: Vec<f64> = found.lines.iter().map(rate).collect();
    let groups = repetitions(&rates);
    let mut rows = Vec::with_capacity(n);
    for at in draw_points(found, n, &mut random) {
        let point = &found.points[at];
        let (mut total, mut weights) = ((0.0, 0.0, 0.0), vec![0.0; found.lines.len()]);
        let mut equations = found.congestion.as_ref().map(Congestion::none);
        for drawn in draw(&mut random, &groups, &|i| point.blocks[i].len()) {
            let blocks = &point.blocks[drawn.step];
            let all = sum(drawn.blocks.iter().filter_map(|b| blocks.get(*b)));
            let w = drawn.weight;
            total = (total.0 + w * all.0, total.1 + w * all.1, total.2 + w * all.2);
            weights[drawn.step] += w;
            if let Some((congestion, to)) = found.congestion.as_ref().zip(equations.as_mut()) {
                congestion.add(to, at, drawn.step, &drawn.blocks, w);
            }
        }
        let speeds =
            found.congestion.as_ref().zip(equations).map(|(congestion, equations)| {
                congestion.speeds(&equations, || normal(&mut random))
            });
        // Blocks that were drawn without enough requests of some number tell no speeds.
        let Some(speeds) = speeds.map_or(Some(None), |drawn| drawn.map(Some)) else { continue };
        // Of a constant outside nothing is taken off, because the model does not vary it.
        let constant = found.best.outside.cv <= 0.0;
        let varies = if constant { 0.0 } else { point.varies };
        let (mean, scv) = point.moments(total, blur, varies);
        let mean = speeds.as_ref().map_or(mean, |speeds| speeds.mean);
        let at_heaviest = mean * between.shift;
        // Two short runs whose works differ tenfold leave a deviation with which a draw may be any time. One outside of
        // what a law may have says as much at that bound, where left out it would make the fit look surer.
        let is_drawn = mean > 0.0;
        let mean = (mean * between.factor(&mut random)).clamp(TIME_MIN_S, 1e12);
        // What differs from run to run is in the work of full load as in that of light load.
        let by_load = full.and_then(|full| Some((full.by_load?.to, full.deviation)));
        let full_factor = by_load.zip(point.kind.servers).map_or(1.0, |((to, own), servers)| {
            f64::from(servers) / (to * at_heaviest) * (own * normal(&mut random)).exp()
        });
        if is_drawn && mean.is_finite() {
            rows.push(Row {
                servers: in_class(point.kind).0,
                shared: in_class(point.kind).1.is_shared(),
                lines: point.kind.lines(),
                outside: point.outside.mean,
                varies: point.outside.variance(),
                mean,
                scv,
                bypass: bypass_of(&found.lines, |i| weights[i]),
                full_factor,
                // From "the speed stays" to "it falls on", evenly.
                tail: speeds.as_ref().map_or(0.0, |s| s.falls * spread_evenly(rows.len())),
                speeds: speeds.map_or_else(Vec::new, |speeds| speeds.relative),
            });
        }
    }
    rows
}

/// Numbers from 0 to 1 that any few in succession spread over evenly: the multiples of an irrational number, less whole numbers.
fn spread_evenly(i: usize) -> f64 {
    (i as f64 * 0.618_033_988_749_895).fract()
}
