//! Hypotheses where the ticks of the clock are long: by how like their replays are.
//!
//! Times that are drawn within ticks of about a work make works depend on the number met, under the right hypothesis too: "no
//! hypothesis fits" was then the verdict on every log of a clock of 10 ms and works of 10 ms, with intervals of up to ±50 points, and the
//! time outside was off by what the ticks do. So the test of independence becomes one of likeness: a hypothesis is done again at the recorded
//! arrivals with its law of work ([`super::correction`]), read by the same clock and drawn in the same way, and the ranks of the works of each
//! bin ([`super::score`]) are compared with those of the replays (simulated minimum distance: D. McFadden, Econometrica 57, 1989). Under the right
//! hypothesis and time outside they differ by chance alone, however long the ticks.
//!
//! The differences are taken for linear in the time outside, by a least squares fit to five of them with the same random numbers: that
//! averages over the chance of replays, and gives the best time outside with its standard deviation. What the ticks did to the mean work of each load
//! is taken from the replays too; it depends on the load, because a work that begins at another's end is blurred twice.
//!
//! Limitation: times outside are constants here. Cost: 45 to 90 replays of at most 24,000 requests for each of three kinds, some seconds.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::correction::{Correction, corrected, done_again};
use super::judge::{Judge, Point, Sums, excess};
use super::line::{Kind, Line};
use super::moments::{moments, rate, sum};
use super::outside::Outside;
use super::reach::Reach;
use super::score::{Apart, Contrast, Edges, Score};

/// Ticks of this part of a mean work or more are long, and those in which so many requests come: of four servers a clock of 1 ms made
/// works of 10 ms 1.3 % too long.
const COARSE: f64 = 0.2;
const CROWDED: f64 = 0.1;
/// Requests that are done again, kinds, replays of each time outside, and times outside.
const REQUESTS: usize = 24_000;
const KINDS: usize = 3;
const REPLAYS: usize = 4;
const STEPS: i32 = 5;
/// The distance of times outside, in ticks and in median responses: the lesser.
const STEP_TICKS: f64 = 0.1;
const STEP_RESPONSES: f64 = 0.05;
/// How often times outside are tried about a better one, and how near to the middle of them the best must be, in steps: differences are a
/// straight line of the time outside only nearby.
const ROUNDS: usize = 3;
const NEAR_STEPS: f64 = 0.75;
/// Points of a kind, over so many standard deviations to either side.
const POINTS: i32 = 9;
const REACH: f64 = 2.4;
/// Kinds of less weight are left out.
const WEIGHT_MIN: f64 = 0.01;
/// The seed of the replays.
const SEED: u64 = 0x11ce;

/// A kind with its best time outside.
struct BestOutside {
    kind: Kind,
    outside: f64,
    /// The best by the times of the log alone.
    shown: f64,
    /// The standard deviation of that where the statistic is not overdispersed; 0 if nothing depends on it. It and the score are of values
    /// whose variance by chance is 1, until [`BestOutside::over`] is told what it is.
    deviation: f64,
    score: Score,
    /// What chance varies a value by, by this kind's replays.
    variance: f64,
    /// What the correction's factor changes by for a second more outside, as a share.
    factor_slope: f64,
}

impl BestOutside {
    /// Of values that chance varies by this.
    fn over(&mut self, variance: f64) {
        self.score.statistic /= variance;
        self.deviation *= variance.sqrt();
    }

    /// With the doubt of a time outside below zero, which moves it towards zero.
    fn doubted(&mut self, judge: &Judge) {
        self.shown = self.outside;
        if self.outside < 0.0 && self.deviation > 0.0 {
            let slope = judge.doubt(-1.0);
            let shift = (0.5 * slope * self.deviation.powi(2)).min(-self.outside);
            self.outside += shift;
            self.score.statistic += (shift / self.deviation).powi(2);
        }
        self.score.doubt = judge.doubt(self.outside);
    }
}

/// What the replays of a hypothesis differ by.
struct Differences {
    each: Vec<Contrast>,
    /// The variance of a value between replays.
    variance: f64,
    factor: f64,
}

/// Kinds, the likeliest first, what replicates are drawn from, and the best; `None` where ticks are short.
pub(super) fn by_replays(
    judge: &Judge,
    kinds: &[Point],
    reach: Reach,
) -> Option<(Vec<Point>, Vec<Point>, Point)> {
    let first = kinds.first()?;
    let tick_s = judge.lines().iter().map(|line| line.ticks.coarsest()).fold(0.0, f64::max);
    let mean = moments(sum(first.blocks.iter().flatten()), 0.0).0;
    let heaviest = judge.lines().iter().map(rate).fold(0.0, f64::max);
    let is_long = tick_s >= COARSE * mean || tick_s * heaviest >= CROWDED;
    if tick_s <= 0.0 || mean <= 0.0 || !is_long {
        return None;
    }
    let part = judge.part(REQUESTS, reach.median());
    let step = (STEP_TICKS * tick_s).min(STEP_RESPONSES * reach.median());
    let found = kinds.iter().take(KINDS).filter_map(|kind| best_of(&part, kind, reach, step));
    let mut found: Vec<BestOutside> = found.collect();
    // Of all kinds together: a few replays tell it to a tenth or two, by which a wrong kind with many degrees of freedom excluded the right one.
    let variance = found.iter().map(|f| f.variance).sum::<f64>() / found.len().max(1) as f64;
    for f in &mut found {
        f.over(variance);
        f.doubted(&part);
    }
    found.sort_by(|a, b| excess(&a.score).total_cmp(&excess(&b.score)));
    let (least, phi) = found.first().map(|f| (excess(&f.score), f.score.ratio().max(1.0)))?;
    let weight = |f: &BestOutside| (-(excess(&f.score) - least) / (2.0 * phi)).exp();
    found.retain(|f| weight(f) >= WEIGHT_MIN || excess(&f.score) <= least);
    let all: f64 = found.iter().map(weight).sum();
    let (mut named, mut points) = (Vec::new(), Vec::new());
    for f in &found {
        let at = Outside::from(f.outside);
        let correction = corrected(judge.lines(), f.kind, at, 0.0)?;
        let scales = scales(judge.lines(), f.kind, at, &correction.law);
        let widening = widening(judge, f.kind, at, &correction.law);
        let point = |outside: f64, weight: f64| {
            let mut point = judge.scored(f.kind, outside.into(), f.score);
            for (blocks, scale) in point.blocks.iter_mut().zip(&scales) {
                widen(blocks, widening);
                blocks.iter_mut().for_each(|b| *b = (b.0, b.1 * scale, b.2 * scale * scale));
            }
            let factor = correction.factor * (f.factor_slope * (outside - f.outside)).exp();
            let correction = Correction { factor, ..correction.clone() };
            Point { weight, correction: Some(Arc::new(correction)), ..point }
        };
        let own = weight(f) / all;
        named.push(point(f.outside, own));
        let (low, high) = reach.range(f.kind, 0.0);
        let deviation = f.deviation * phi.sqrt();
        let normal = |i: i32| f64::from(i - POINTS / 2) * 2.0 * REACH / f64::from(POINTS - 1);
        let each: Vec<(f64, f64)> = (0..POINTS)
            .map(normal)
            .map(|z| {
                let outside = f.shown + z * deviation;
                let doubt = judge.doubt(outside) / phi;
                (outside, (-0.5 * (z * z + doubt)).exp())
            })
            .filter(|(outside, _)| deviation > 0.0 && (low..=high).contains(outside))
            .collect();
        let sum: f64 = each.iter().map(|e| e.1).sum();
        if each.is_empty() {
            points.push(point(f.outside, own));
        }
        points.extend(each.into_iter().map(|(outside, w)| point(outside, own * w / sum)));
    }
    // Kinds that were looked at and left out, for information.
    let others = kinds.iter().filter(|kind| found.iter().all(|f| f.kind != kind.kind));
    let best = named.first()?.clone();
    named.extend(others.map(|kind| Point { weight: 0.0, ..kind.clone() }));
    Some((named, points, best))
}

/// The factor by which the works of blocks are moved away from their mean. Short works come out longer than they are and long ones hardly, so
/// that the mean of the works that a clock shows varies less, as a share of it, than that of the law: by a seventh for works of a fifth of a
/// tick and of five ticks. 1 where it varies more, because ticks add to it.
fn widening(judge: &Judge, kind: Kind, outside: Outside, law: &[f64]) -> f64 {
    let seen = judge.point(kind, outside);
    let (_, seen) = moments(sum(seen.blocks.iter().flatten()), 0.0);
    let of_law = law.iter().fold((0.0, 0.0, 0.0), |s, w| (s.0 + 1.0, s.1 + w, s.2 + w * w));
    let (_, of_law) = moments(of_law, 0.0);
    if seen > 0.0 { (of_law / seen).sqrt().max(1.0) } else { 1.0 }
}

/// Moves the works of blocks away from the mean of all by a factor.
fn widen(blocks: &mut [Sums], factor: f64) {
    let all = sum(blocks.iter());
    let mean = all.1 / all.0.max(1.0);
    blocks.iter_mut().for_each(|b| b.1 = mean * b.0 + factor * (b.1 - mean * b.0));
}

/// The best time outside of a kind; `None` where works are too few or all alike.
fn best_of(part: &Judge, kind: &Point, reach: Reach, step: f64) -> Option<BestOutside> {
    let (low, high) = reach.range(kind.kind, 0.0);
    let mut middle = kind.outside.mean.clamp(low, high);
    let edges = part.edges(kind.kind, middle.into());
    let degrees: usize = edges.iter().map(|(_, e)| 3 * (e.len() - 1)).sum();
    let mut found = None;
    for _ in 0..ROUNDS {
        let mut tried: Vec<(f64, Differences)> = Vec::new();
        for i in 0..STEPS {
            let outside = middle + step * f64::from(i - STEPS / 2);
            if (low..=high).contains(&outside) {
                tried.push((outside, differences(part, kind.kind, outside.into(), &edges)?));
            }
        }
        let now = fitted(kind.kind, &tried, degrees)?;
        let (first, last) = (tried.first()?.0, tried.last()?.0);
        let outside = now.outside.clamp(low, high);
        let is_near = (outside - middle).abs() <= NEAR_STEPS * step;
        // Not further than the line is known to.
        let outside = outside.clamp(first - step, last + step).clamp(low, high);
        middle = outside;
        found = Some(BestOutside { outside, ..now });
        if is_near {
            break;
        }
    }
    found
}

/// Where the line of the differences by the time outside is nearest to 0.
fn fitted(kind: Kind, tried: &[(f64, Differences)], degrees: usize) -> Option<BestOutside> {
    let n = tried.len() as f64;
    let at = tried.iter().map(|t| t.0).sum::<f64>() / n;
    let square: f64 = tried.iter().map(|t| (t.0 - at).powi(2)).sum();
    let line = |value: &dyn Fn(&Differences) -> f64| {
        let mean = tried.iter().map(|t| value(&t.1)).sum::<f64>() / n;
        let slope = tried.iter().map(|t| (t.0 - at) * value(&t.1)).sum::<f64>();
        (mean, if square > 0.0 { slope / square } else { 0.0 })
    };
    let bins = tried.first()?.1.each.len();
    let lines: Vec<[(f64, f64); 3]> =
        (0..bins).map(|b| [0, 1, 2].map(|d| line(&|t| t.each[b].values[d]))).collect();
    let flat = || lines.iter().flatten();
    let (along, slopes) =
        flat().fold((0.0, 0.0), |s, (mean, slope)| (s.0 + mean * slope, s.1 + slope * slope));
    let shift = if slopes > 0.0 { -along / slopes } else { 0.0 };
    // What chance varies a value by: that of the log, and that of the mean of the replays.
    let variance = line(&|t| t.variance).0.max(1e-9) * (1.0 + 1.0 / REPLAYS as f64);
    let statistic = flat().map(|(mean, slope)| (mean + slope * shift).powi(2)).sum::<f64>();
    let mut apart: Option<Apart> = None;
    for (b, lines) in lines.iter().enumerate() {
        let Contrast { of, numbers, requests, .. } = tried[0].1.each[b];
        let (mean, slope) = lines[0];
        let rank = (mean + slope * shift) / requests.max(1.0).sqrt() / 12f64.sqrt();
        let ratio = line(&|t| t.each[b].ratio);
        let ratio = ratio.0 + ratio.1 * shift;
        if apart.is_none_or(|known| rank.abs() > known.rank.abs()) {
            apart = Some(Apart { of, numbers, ratio, rank });
        }
    }
    let (factor, slope) = line(&|t| t.factor);
    Some(BestOutside {
        kind,
        outside: at + shift,
        shown: at + shift,
        deviation: if slopes > 0.0 { slopes.sqrt().recip() } else { 0.0 },
        score: Score { statistic, degrees: degrees as f64, doubt: 0.0, apart },
        variance,
        factor_slope: slope / factor,
    })
}

/// What the log's works differ by, less what those of replays do.
fn differences(part: &Judge, kind: Kind, outside: Outside, edges: &Edges) -> Option<Differences> {
    let correction = corrected(part.lines(), kind, outside, 0.0)?;
    let mut random = StdRng::seed_from_u64(SEED);
    let replays: Vec<Vec<Contrast>> = (0..REPLAYS)
        .map(|_| {
            let again = done_again(part.lines(), kind, outside, &correction.law, &mut random);
            part.of_others(again.lines).contrasts(kind, outside, edges)
        })
        .collect();
    let mut each = part.contrasts(kind, outside, edges);
    let (mut squares, count) = (0.0, REPLAYS as f64);
    for (b, own) in each.iter_mut().enumerate() {
        for d in 0..own.values.len() {
            let mean = replays.iter().map(|r| r[b].values[d]).sum::<f64>() / count;
            squares += replays.iter().map(|r| (r[b].values[d] - mean).powi(2)).sum::<f64>();
            own.values[d] -= mean;
        }
        own.ratio /= (replays.iter().map(|r| r[b].ratio).sum::<f64>() / count).max(1e-9);
    }
    // Of k bins the values are tied by one equation.
    let free: usize = edges.iter().map(|(_, e)| 3 * (e.len() - 1)).sum();
    let variance = squares / ((count - 1.0) * (free as f64).max(1.0));
    Some(Differences { each, variance, factor: correction.factor })
}

/// What the mean work of each step that a log shows is multiplied by, beside that of all.
fn scales(lines: &[Line], kind: Kind, outside: Outside, law: &[f64]) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(SEED);
    let (mut done, mut shown) = (vec![0.0; lines.len()], vec![0.0; lines.len()]);
    let n: Vec<f64> = lines.iter().map(|line| line.counted() as f64).collect();
    let shown_in = |line: &Line| {
        let works = line.works(kind, outside);
        works.iter().zip(&line.counted).filter(|r| *r.1).map(|r| *r.0).sum::<f64>()
    };
    for _ in 0..REPLAYS {
        let again = done_again(lines, kind, outside, law, &mut random);
        for (i, line) in again.lines.iter().enumerate() {
            done[i] += again.means[i] * n[i];
            shown[i] += shown_in(line);
        }
    }
    let of_all = done.iter().sum::<f64>() / shown.iter().sum::<f64>().max(1e-12);
    let each = done.iter().zip(&shown);
    each.map(|(done, shown)| if *shown > 0.0 { done / shown / of_all } else { 1.0 }).collect()
}
