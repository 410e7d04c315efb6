//! The hypotheses, the likeliest first.

use std::sync::Arc;

use crate::queue::Discipline;

use super::super::Options;
use super::line::{Kind, Line};
use super::lines::{Partition, partitions};
use super::score::{Score, score};

/// Numbers of servers to try first.
const SERVERS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Requests with which hypotheses are looked through, and times outside refined.
const SCAN: usize = 24_000;
const REFINE: usize = 60_000;
/// Times outside that are tried first, up to the response that this share of the requests that met no
/// other stays below: a constant time outside is in every response, and the rest are allowed for
/// its spread.
const OUTSIDE: usize = 12;
const FASTEST: f64 = 0.05;
/// Times outside below zero: a server is busy for so long after its reply has left (it logs, tidies
/// up, or spends a credit that idle links save up). Tried for lines only, down to this part of the
/// median response of the requests that met no other.
const AFTER: usize = 5;
const LONGEST: f64 = 0.6;
/// Requests that must have met m others to tell m servers from no limit.
const SEEN: u32 = 40;
/// The most kinds that are refined.
const KINDS: usize = 6;
/// Times outside of a kind in the result, and the difference of the statistic they reach to.
const GRID: usize = 13;
const REACH: f64 = 8.0;

/// Requests, their work, and its square, summed.
pub(super) type Sums = (f64, f64, f64);

/// A hypothesis with a time outside.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub kind: Kind,
    pub outside: f64,
    pub score: Score,
    /// Its share of the replicates.
    pub weight: f64,
    /// Of each block of each step.
    pub blocks: Vec<Vec<Sums>>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pub lines: Vec<Line>,
    /// The kinds, the likeliest first, each with its best time outside, for information.
    pub kinds: Vec<Point>,
    /// What replicates are drawn from; weights add to 1.
    pub points: Vec<Point>,
    /// The likeliest kind with its mean time outside.
    pub best: Point,
    /// Whether the number of servers is that of a closed loop, because the fitted loads show no limit.
    pub limited: bool,
}

impl Search {
    /// The statistic of the best beyond what is expected of it, for each judged request.
    pub fn excess(&self) -> f64 {
        let n: usize = self.lines.iter().map(Line::counted).sum();
        excess(&self.best.score) / n.max(1) as f64
    }
}

pub(super) fn excess(score: &Score) -> f64 {
    score.statistic - score.degrees
}

/// Steps with what does not depend on the hypothesis.
struct Judge {
    lines: Vec<Line>,
    followed: Vec<u32>,
    block_s: f64,
}

impl Judge {
    fn new(lines: Vec<Line>, soon_s: f64, block_s: f64) -> Judge {
        let mut followed = Vec::new();
        if lines.iter().all(|line| line.open) {
            for line in &lines {
                let each = line.followers(soon_s);
                let judged = each.into_iter().zip(&line.counted).filter(|r| *r.1);
                followed.extend(judged.map(|r| r.0));
            }
        }
        Judge { lines, followed, block_s }
    }

    /// The first requests of each step.
    fn part(&self, most: usize, soon_s: f64) -> Judge {
        let each = most / self.lines.len().max(1);
        let lines = self.lines.iter().map(|line| line.first(each)).collect();
        Judge::new(lines, soon_s, self.block_s)
    }

    fn judge(&self, kind: Kind, outside: f64) -> Score {
        let (mut works, mut met, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for line in &self.lines {
            if kind.lines() > 0 {
                let each = line.met_in_line(kind.lines(), outside).into_iter().zip(&line.counted);
                own.extend(each.filter(|r| *r.1).map(|r| r.0));
            }
            let all = line.works(kind, outside).into_iter().zip(line.met(outside));
            for ((work, number), _) in all.zip(&line.counted).filter(|r| *r.1) {
                works.push(work);
                met.push(number);
            }
        }
        score(&works, &met, &own, &self.followed)
    }

    fn point(&self, kind: Kind, outside: f64) -> Point {
        let score = self.judge(kind, outside);
        let blocks = self.lines.iter().map(|line| self.blocks(line, &line.works(kind, outside)));
        Point { kind, outside, score, weight: 0.0, blocks: blocks.collect() }
    }

    /// Sums of blocks of some seconds, at least eight of a step.
    fn blocks(&self, line: &Line, works: &[f64]) -> Vec<Sums> {
        let (from, to) = line.span();
        let n = ((to - from) / self.block_s).clamp(8.0, 10_000.0).ceil();
        let mut blocks = vec![(0.0, 0.0, 0.0); n as usize];
        let each = line.arrivals.iter().zip(works).zip(&line.counted);
        for ((arrival, work), _) in each.filter(|r| *r.1) {
            let at = ((arrival - from) / (to - from).max(1e-12) * n).min(n - 1.0).max(0.0);
            let sum = &mut blocks[at as usize];
            *sum = (sum.0 + 1.0, sum.1 + work, sum.2 + work * work);
        }
        blocks
    }
}

/// The median and a low quantile of the responses that met nobody, and the number that [`SEEN`] requests met
/// at least.
fn light(lines: &[Line]) -> (f64, f64, u32) {
    let (mut alone, mut counts) = (Vec::new(), Vec::<u32>::new());
    for line in lines {
        for (i, met) in line.met(0.0).into_iter().enumerate() {
            let met_at = met as usize;
            if counts.len() <= met_at {
                counts.resize(met_at + 1, 0);
            }
            counts[met_at] += 1;
            if met == 0 && line.counted[i] {
                alone.push(line.departures[i] - line.arrivals[i]);
            }
        }
    }
    if alone.len() < 20 {
        let all = lines.iter().flat_map(|l| l.departures.iter().zip(&l.arrivals));
        alone = all.map(|(d, a)| d - a).collect();
    }
    alone.sort_by(f64::total_cmp);
    let at = |share: f64| alone.get((alone.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let mut seen = 0;
    let enough = |count: &u32| {
        seen += count;
        seen >= SEEN
    };
    let most =
        counts.iter().rev().position(enough).map_or(0, |from_end| counts.len() - 1 - from_end);
    (at(0.5), at(FASTEST), most as u32)
}

/// Which hypotheses are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Among<'a> {
    /// Both disciplines with any number of servers, and no limit.
    All,
    /// Both disciplines with this number.
    Servers(u32),
    /// These.
    Kinds(&'a [Kind]),
}

/// Looks for the hypotheses under which works depend on nothing.
pub(super) fn search(mut lines: Vec<Line>, among: Among<'_>, options: &Options) -> Search {
    let partitions = Arc::new(partitions(&lines));
    lines.iter_mut().for_each(|line| line.partitions = Arc::clone(&partitions));
    let (median, fastest, most_met) = light(&lines);
    let most = Reach { low: -LONGEST * median, high: fastest };
    let block_s = if options.block_s > 0.0 { options.block_s } else { f64::INFINITY };
    let all = Judge::new(lines, median, block_s);
    let scan = all.part(SCAN, median);
    let mut found: Vec<Coarse> = match among {
        Among::Servers(m) => {
            let lines = partitions.iter().any(|p| p.lines == m).then_some(Discipline::Lines);
            [Discipline::Fifo, Discipline::Shared]
                .into_iter()
                .chain(lines)
                .map(|discipline| coarse(&scan, Kind { discipline, servers: Some(m) }, most))
                .collect()
        }
        Among::Kinds(kinds) => kinds.iter().map(|kind| coarse(&scan, *kind, most)).collect(),
        Among::All => {
            let lines = |p: &Partition| {
                let kind = Kind { discipline: Discipline::Lines, servers: Some(p.lines) };
                coarse(&scan, kind, most)
            };
            let mut all = kinds(&scan, most, most_met);
            all.extend(partitions.iter().map(lines));
            all
        }
    };
    found.sort_by(|a, b| excess(&a.1).total_cmp(&excess(&b.1)));
    let refine = all.part(REFINE, median);
    found.truncate(KINDS);
    let mut kinds: Vec<(Kind, f64)> =
        found.iter().map(|(kind, _, at)| (*kind, refined(&refine, *kind, *at, most))).collect();
    kinds.dedup_by(|a, b| a.0 == b.0);
    let mut kinds: Vec<Point> = kinds.into_iter().map(|(k, o)| all.point(k, o)).collect();
    kinds.sort_by(|a, b| excess(&a.score).total_cmp(&excess(&b.score)));
    let phi = kinds[0].score.ratio().max(1.0);
    let least = excess(&kinds[0].score);
    let mut points = Vec::new();
    for kind in &mut kinds {
        kind.weight = (-(excess(&kind.score) - least) / (2.0 * phi)).exp();
        if kind.weight >= 0.01 {
            let mut grid = around(&all, kind, most, phi);
            let sum: f64 = grid.iter().map(|p| p.weight).sum();
            grid.iter_mut().for_each(|p| p.weight *= kind.weight / sum);
            points.append(&mut grid);
        } else {
            kind.weight = 0.0;
        }
    }
    let sum: f64 = kinds.iter().map(|k| k.weight).sum();
    kinds.iter_mut().chain(&mut points).for_each(|p| p.weight /= sum);
    let first = kinds[0].kind;
    let of_first = || points.iter().filter(|p| p.kind == first);
    let weight: f64 = of_first().map(|p| p.weight).sum();
    let outside = of_first().map(|p| p.weight * p.outside).sum::<f64>() / weight;
    let best = all.point(first, outside);
    Search { lines: all.lines, kinds, points, best, limited: false }
}

/// The times outside that are tried.
#[derive(Clone, Copy, Debug)]
struct Reach {
    low: f64,
    high: f64,
}

impl Reach {
    /// Those of a kind.
    fn of(self, kind: Kind) -> Reach {
        match (kind.discipline, kind.servers) {
            (Discipline::Fifo | Discipline::Lines, Some(_)) => self,
            // Without a limit no work depends on it, and a shared processor has no one next.
            _ => Reach { low: 0.0, ..self },
        }
    }
}

/// Each kind with its best score and the number of the time outside at which it has it.
type Coarse = (Kind, Score, f64);

/// Both disciplines with any number of servers, and no limit.
fn kinds(scan: &Judge, most: Reach, most_met: u32) -> Vec<Coarse> {
    let mut all = vec![coarse(scan, Kind { discipline: Discipline::Fifo, servers: None }, most)];
    for discipline in [Discipline::Fifo, Discipline::Shared] {
        let of = |m: u32| coarse(scan, Kind { discipline, servers: Some(m) }, most);
        let mut found: Vec<(u32, Coarse)> = Vec::new();
        let mut risen = 0;
        // More servers than were ever busy, but for a few requests, are no limit.
        for m in SERVERS.into_iter().filter(|m| *m <= most_met.max(1)) {
            let now = of(m);
            let before = found.last().map_or(f64::INFINITY, |(_, c)| excess(&c.1));
            risen = if excess(&now.1) > before { risen + 1 } else { 0 };
            found.push((m, now));
            if risen == 2 {
                break;
            }
        }
        let least = |f: &[(u32, Coarse)]| {
            let best = f.iter().min_by(|a, b| excess(&a.1.1).total_cmp(&excess(&b.1.1)));
            best.map_or(1, |b| b.0)
        };
        // Between the numbers tried, beside the best.
        for _ in 0..8 {
            let best = least(&found);
            let next = [best.saturating_sub(1), best + 1].into_iter().find(|m| {
                *m >= 1 && *m <= most_met && !found.iter().any(|f| f.0 == *m) && best > 4
            });
            let Some(m) = next else { break };
            found.push((m, of(m)));
        }
        all.extend(found.into_iter().map(|f| f.1));
    }
    all
}

fn coarse(judge: &Judge, kind: Kind, most: Reach) -> Coarse {
    let Reach { low, high } = most.of(kind);
    let part = |k: usize, of: usize| (k as f64 / of as f64).powf(1.5);
    let of = |at: f64| (kind, judge.judge(kind, at), at);
    let above = (0..=OUTSIDE).map(|k| high * part(k, OUTSIDE));
    let below = (1..=AFTER).map(|k| low * part(k, AFTER)).filter(|at| *at < 0.0);
    let best = above.chain(below).map(of).min_by(|a, b| excess(&a.1).total_cmp(&excess(&b.1)));
    best.unwrap_or_else(|| of(0.0))
}

/// The best time outside near one, by ever finer steps.
fn refined(judge: &Judge, kind: Kind, near: f64, most: Reach) -> f64 {
    let Reach { low, high } = most.of(kind);
    let mut best = (excess(&judge.judge(kind, near)), near);
    let mut step = (if near < 0.0 { -low } else { high }) / OUTSIDE as f64;
    for _ in 0..6 {
        for at in [best.1 - step, best.1 - 0.5 * step, best.1 + 0.5 * step, best.1 + step] {
            if (low..=high).contains(&at) {
                let now = excess(&judge.judge(kind, at));
                if now < best.0 {
                    best = (now, at);
                }
            }
        }
        step *= 0.5;
    }
    best.1
}

/// Times outside about the best, with weights.
fn around(judge: &Judge, kind: &Point, most: Reach, phi: f64) -> Vec<Point> {
    let bounds = most.of(kind.kind);
    let most = bounds.high.max(-bounds.low);
    let least = excess(&kind.score);
    let apart = |at: f64| excess(&judge.judge(kind.kind, at)) - least;
    let reach = |sign: f64| {
        let mut step = (most / 400.0).max(1e-12);
        let mut at = kind.outside;
        while step < 4.0 * most {
            let next = (kind.outside + sign * step).clamp(bounds.low, bounds.high);
            at = next;
            if next <= bounds.low || next >= bounds.high || apart(next) > REACH * phi {
                break;
            }
            step *= 2.0;
        }
        at
    };
    let (low, high) = (reach(-1.0), reach(1.0));
    let at = |i: usize| low + (high - low) * i as f64 / (GRID - 1) as f64;
    let mut grid: Vec<Point> = (0..GRID).map(|i| judge.point(kind.kind, at(i))).collect();
    for point in &mut grid {
        // The test's steps with the time outside are not worth less than no difference.
        point.weight = (-(excess(&point.score) - least).max(0.0) / (2.0 * phi)).exp();
    }
    grid
}
