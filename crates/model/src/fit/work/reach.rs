//! Which laws of the time outside of the servers are compatible with the times.

use super::judge::{Judge, Point, excess};
use super::line::{Kind, Line};
use super::outside::Outside;
use super::score::Score;
use crate::queue::Discipline;

/// Times outside that are tried first, up to what [`Reach`] allows.
const MEANS: usize = 12;

/// Times outside below zero: a server is busy for so long after its reply has left (it logs, tidies
/// up, or spends a credit that idle links save up). Tried for lines only, down to this part of the
/// median response of the requests that met no other.
const AFTER: usize = 5;

const LONGEST: f64 = 0.6;

/// Coefficients of variation: those that are tried first, and those of the result.
const FIRST: [f64; 2] = [0.3, 0.7];

const VARIATIONS: [f64; 8] = [0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05];

/// The most.
const VARIATION_MAX: f64 = 1.1;

/// Quantiles of the response of the requests that met no other, with the values of the standard normal law there: a
/// time outside is in every response, so that its quantiles are below those.
const QUANTILES: [(f64, f64); 4] = [(0.05, -1.645), (0.25, -0.674), (0.5, 0.0), (0.75, 0.674)];

/// A law's standard deviation is at most this times that of the response of the requests that met no other, of which it is a
/// part; more than 1, because that of few responses is known roughly.
const SPREAD_MAX: f64 = 1.2;

/// Times outside of a kind in the result, and the difference of the statistic they reach to.
const GRID: usize = 13;

const REACH: f64 = 8.0;

/// The largest statistic for each degree of freedom with which a time outside may vary.
const RATIO_MAX: f64 = 5.0;

/// The least share of a kind's weight that is kept.
const NEGLIGIBLE: f64 = 1e-4;

/// The times outside that are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// The quantiles of the response of the requests that met no other.
    pub(super) alone: [f64; QUANTILES.len()],
    /// Their standard deviation.
    pub(super) spread: f64,
}

impl Reach {
    /// Of steps; responses of requests that met no other if there are enough, or else all.
    pub fn new(lines: &[Line]) -> Reach {
        let mut alone = Vec::new();
        for line in lines {
            let met = line.met(0.0).into_iter().enumerate();
            let alone_at = met.filter(|(i, met)| *met == 0 && line.counted[*i]).map(|r| r.0);
            alone.extend(alone_at.map(|i| line.departures[i] - line.arrivals[i]));
        }
        if alone.len() < 20 {
            let all = lines.iter().flat_map(|l| l.departures.iter().zip(&l.arrivals));
            alone = all.map(|(d, a)| d - a).collect();
        }
        alone.sort_by(f64::total_cmp);
        let n = alone.len().max(1) as f64;
        let mean = alone.iter().sum::<f64>() / n;
        let spread = (alone.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n).sqrt();
        let at = |share: f64| alone.get((alone.len() as f64 * share) as usize);
        Reach { alone: QUANTILES.map(|(share, _)| at(share).copied().unwrap_or(0.0)), spread }
    }

    /// The median response of the requests that met no other.
    pub fn median(self) -> f64 {
        self.alone[2]
    }

    /// The least and the largest mean of a time outside with a coefficient of variation. A constant is allowed a
    /// twentieth of the responses below it; a law that varies, no more variance than the responses have.
    pub fn range(self, kind: Kind, cv: f64) -> (f64, f64) {
        let unit = |normal: f64| 1.0 + Outside { mean: 1.0, cv }.beyond(normal);
        let each = QUANTILES.iter().zip(self.alone);
        let high = each.map(|((_, normal), alone)| alone / unit(*normal).max(1e-9));
        let high = high.fold(f64::INFINITY, f64::min);
        let high = if cv > 0.0 { high.min(SPREAD_MAX * self.spread / cv) } else { high };
        let low = match (kind.discipline, kind.servers) {
            (Discipline::Fifo | Discipline::Lines, Some(_)) if cv <= 0.0 => {
                -LONGEST * self.median()
            }
            // Without a limit no work depends on it, and a shared processor has no one next.
            _ => 0.0,
        };
        (low, high)
    }

    pub(super) fn allows(self, kind: Kind, outside: Outside) -> bool {
        let (low, high) = self.range(kind, outside.cv);
        let varies = outside.cv > 0.0;
        (low..=high).contains(&outside.mean) && (!varies || may_vary(kind) && outside.mean > 0.0)
    }
}

fn may_vary(kind: Kind) -> bool {
    kind.servers.is_some()
}

/// A kind with its best score and the time outside at which it has it.
pub(super) type Coarse = (Kind, Score, Outside);

fn least(all: impl Iterator<Item = Coarse>) -> Option<Coarse> {
    all.min_by(|a, b| excess(&a.1).total_cmp(&excess(&b.1)))
}

/// The best constant of those that are tried first.
pub(super) fn coarse(judge: &Judge, kind: Kind, reach: Reach) -> Coarse {
    let (low, high) = reach.range(kind, 0.0);
    let part = |k: usize, of: usize| (k as f64 / of as f64).powf(1.5);
    let of = |at: f64| (kind, judge.judge(kind, at.into()), at.into());
    let above = (0..=MEANS).map(|k| high * part(k, MEANS));
    let below = (1..=AFTER).map(|k| low * part(k, AFTER)).filter(|at| *at < 0.0);
    least(above.chain(below).map(of)).unwrap_or_else(|| of(0.0))
}

/// The best law that varies of those that are tried first; `None` if none may.
pub(super) fn varying(judge: &Judge, kind: Kind, reach: Reach) -> Option<Outside> {
    let laws = FIRST.iter().filter(|_| may_vary(kind)).flat_map(|cv| {
        let high = reach.range(kind, *cv).1;
        (1..=MEANS).map(move |k| Outside { mean: high * k as f64 / MEANS as f64, cv: *cv })
    });
    let laws = laws.filter(|law| law.mean > 0.0).map(|law| (kind, judge.judge(kind, law), law));
    least(laws).map(|best| best.2)
}

/// The best time outside near one with its statistic, by ever finer steps.
pub(super) fn refined(judge: &Judge, kind: Kind, near: Outside, reach: Reach) -> (f64, Outside) {
    let (low, high) = reach.range(kind, near.cv);
    let mut best = (excess(&judge.judge(kind, near)), near);
    let mut step = (if near.mean < 0.0 { -low } else { high }) / MEANS as f64;
    let mut further = if near.cv > 0.0 { 0.2 } else { 0.0 };
    for _ in 0..6 {
        let from = best.1;
        for (mean, cv) in [
            (-1.0, 0.0),
            (-0.5, 0.0),
            (0.5, 0.0),
            (1.0, 0.0),
            (0.0, -1.0),
            (0.0, 1.0),
            (1.0, 1.0),
            (-1.0, -1.0),
        ] {
            let next = Outside {
                mean: from.mean + mean * step,
                cv: (from.cv + cv * further).clamp(0.0, VARIATION_MAX),
            };
            if next != from && reach.allows(kind, next) {
                let now = excess(&judge.judge(kind, next));
                if now < best.0 {
                    best = (now, next);
                }
            }
        }
        (step, further) = (0.5 * step, 0.5 * further);
    }
    best
}

/// Whether a law that varies may count. Under a wrong discipline or number of servers it makes works less unlike than a
/// constant does, and wrong: then the constant shows what does not fit.
pub(super) fn nearly_fits(score: &Score) -> bool {
    score.ratio() <= RATIO_MAX
}

/// A time outside with its score and the width of its step.
type Scored = (f64, Outside, Score);

/// Times outside about the best, with weights that sum to that of the kind.
pub(super) fn around(judge: &Judge, kind: &Point, reach: Reach, phi: f64) -> Vec<Point> {
    let mut grid: Vec<Scored> = Vec::new();
    for cv in VARIATIONS {
        if cv > 0.0 && (!may_vary(kind.kind) || kind.outside.mean <= 0.0) {
            break;
        }
        let mut some = along(judge, kind, reach, phi, cv);
        some.retain(|(_, _, score)| cv <= 0.0 || nearly_fits(score));
        grid.append(&mut some);
    }
    // The test has steps with the time outside: a point may be better than the best of the search.
    let least = grid.iter().map(|(_, _, score)| excess(score)).fold(f64::INFINITY, f64::min);
    // A constant is as likely beforehand as all other laws together.
    let weight = |(width, outside, score): &Scored| {
        let before = if outside.cv > 0.0 { 1.0 } else { (VARIATIONS.len() - 1) as f64 };
        before * width.max(1e-12) * (-(excess(score) - least) / (2.0 * phi)).exp()
    };
    let all: f64 = grid.iter().map(weight).sum();
    let weighted = grid.iter().map(|each| (weight(each) / all, each));
    let kept = weighted.filter(|(weight, _)| *weight >= NEGLIGIBLE);
    let point = |(weight, (_, outside, score)): (f64, &Scored)| {
        let point = judge.scored(kind.kind, *outside, *score);
        Point { weight: weight * kind.weight, ..point }
    };
    let near: Vec<Point> = kept.map(point).collect();
    // A law that the search has refined may fit far better than all of these variations: then it stands for its kind alone.
    if near.is_empty() { vec![kind.clone()] } else { near }
}

/// Those of one coefficient of variation.
fn along(judge: &Judge, kind: &Point, reach: Reach, phi: f64, cv: f64) -> Vec<Scored> {
    let (lowest, highest) = reach.range(kind.kind, cv);
    let least = excess(&kind.score);
    let apart = |mean: f64| excess(&judge.judge(kind.kind, Outside { mean, cv })) - least;
    // The best mean with this variation.
    let start = kind.outside.mean.clamp(lowest, highest);
    let mut best = (apart(start), start);
    let mut step = highest.max(-lowest) / 8.0;
    for _ in 0..5 {
        for mean in [best.1 - step, best.1 + step] {
            if (lowest..=highest).contains(&mean) {
                let now = apart(mean);
                if now < best.0 {
                    best = (now, mean);
                }
            }
        }
        step *= 0.5;
    }
    if best.0 > REACH * phi {
        return Vec::new();
    }
    let most = highest.max(-lowest);
    let edge = |sign: f64| {
        let mut step = (most / 400.0).max(1e-12);
        let mut at = best.1;
        while step < 4.0 * most {
            at = (best.1 + sign * step).clamp(lowest, highest);
            if at <= lowest || at >= highest || apart(at) > REACH * phi {
                break;
            }
            step *= 2.0;
        }
        at
    };
    let (low, high) = (edge(-1.0), edge(1.0));
    let width = (high - low) / (GRID - 1) as f64;
    let scored = |i: usize| {
        let outside = Outside { mean: low + width * i as f64, cv };
        (width, outside, judge.judge(kind.kind, outside))
    };
    (0..GRID).map(scored).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::tests::step;
    use super::*;
    use crate::fit::input::Options;

    /// The panic of `measure --until` was that a search had no point to draw from.
    #[test]
    fn a_kind_that_fits_better_than_its_variations_stands_alone() {
        let mut random = StdRng::seed_from_u64(1);
        let all: Vec<(f64, f64)> = (0..500)
            .map(|i| (0.1 * f64::from(i), 0.1 * f64::from(i) + random.random_range(0.015..0.05)))
            .collect();
        let lines = vec![Line::new(&step("some", &all).times.unwrap(), 10_000).unwrap()];
        let reach = Reach::new(&lines);
        let judge = Judge::of_lines(lines, reach.median(), &Options::default());
        let kind = Kind { discipline: Discipline::Fifo, servers: Some(1) };
        let mut point = judge.point(kind, Outside::from(0.0));
        point.weight = 0.5;
        assert!(around(&judge, &point, reach, 1.0).len() > 1);
        point.score.statistic = -1e9;
        let alone = around(&judge, &point, reach, 1.0);
        assert_eq!((alone.len(), alone[0].weight), (1, 0.5));
    }

    /// nginx's `limit_rate`: replies wait for a timer once, 15.3 to 17 ms in all. A time outside that varies by a
    /// third of 10 ms cannot be a part of these.
    #[test]
    fn a_time_outside_varies_no_more_than_the_responses_that_it_is_part_of() {
        let mut random = StdRng::seed_from_u64(1);
        let all: Vec<(f64, f64)> = (0..2000)
            .map(|i| (0.1 * f64::from(i), 0.1 * f64::from(i) + random.random_range(0.0153..0.017)))
            .collect();
        let times = step("some", &all).times.unwrap();
        let reach = Reach::new(&[Line::new(&times, 10_000).unwrap()]);
        let kind = Kind { discipline: Discipline::Fifo, servers: Some(4) };
        let spread = (0.017 - 0.0153) / 12f64.sqrt();
        for cv in [0.15, 0.33, 0.6] {
            let most = reach.range(kind, cv).1;
            assert!(most * cv <= 1.3 * spread && most > 0.0, "{cv}: {most}");
        }
        // A constant is bounded by the responses alone.
        assert!((0.0145..0.0155).contains(&reach.range(kind, 0.0).1));
        assert!(!reach.allows(kind, Outside { mean: 0.0107, cv: 0.6 }));
    }
}
