//! The hypotheses, the likeliest first.

use std::sync::Arc;

use crate::queue::{Discipline, Slowdown};

use super::super::Options;
use super::correction::{Correction, corrected};
use super::likeness;
use super::line::{Kind, Line};
use super::lines::{Partition, partitions};
use super::outside::{Coarse, Outside, Reach, around, coarse, nearly_fits, refined, varying};
use super::score::{Contrast, Edges, Score, Untied, contrasts, edges, score};
use super::speeds::Congestion;

/// Numbers of servers to try first.
const SERVERS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Requests with which hypotheses are looked through, and times outside refined.
const SCAN: usize = 24_000;
const REFINE: usize = 60_000;
/// Requests that must have met m others to tell m servers from no limit.
const SEEN: u32 = 40;
/// The fewest blocks of a step. Of k that are drawn again the variance is short by 1/k, and works are independent, so that
/// blocks may be short.
const BLOCKS_MIN: f64 = 24.0;
/// The most kinds that are refined.
const KINDS: usize = 6;
/// Requests, their work, and its square, summed.
pub(super) type Sums = (f64, f64, f64);

/// A hypothesis with a time outside.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub kind: Kind,
    pub outside: Outside,
    pub score: Score,
    /// Its share of the replicates.
    pub weight: f64,
    /// Of each block of each step.
    pub blocks: Vec<Vec<Sums>>,
    /// The variance that the time outside adds to works, s².
    pub varies: f64,
    /// What a coarse clock did to its works.
    pub correction: Option<Arc<Correction>>,
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
    /// How the speed of the servers depends on the number inside, where the likeliest kind has that.
    pub congestion: Option<Congestion>,
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
pub(super) struct Judge {
    lines: Vec<Line>,
    followed: Vec<u32>,
    soon_s: f64,
    block_s: f64,
    untied: Untied,
}

/// Works of the judged requests, and how many others each met, at the servers and in its own line.
#[derive(Default)]
struct WorksByMet {
    works: Vec<f64>,
    met: Vec<u32>,
    own: Vec<u32>,
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
        let untied = Untied::new(lines.iter().map(Line::counted).sum());
        Judge { lines, followed, soon_s, block_s, untied }
    }

    /// With the options of a fit.
    pub fn of_lines(lines: Vec<Line>, soon_s: f64, options: &Options) -> Judge {
        let block_s = if options.block_s > 0.0 { options.block_s } else { f64::INFINITY };
        Judge::new(lines, soon_s, block_s)
    }

    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// Sets the speed of the servers by the number present, for all works from now on.
    pub fn set_slowdown(&mut self, slowdown: Option<Slowdown>) {
        self.lines.iter_mut().for_each(|line| line.slowdown.clone_from(&slowdown));
    }

    /// The first requests of each step.
    pub fn part(&self, most: usize, soon_s: f64) -> Judge {
        let each = most / self.lines.len().max(1);
        let lines = self.lines.iter().map(|line| line.first(each)).collect();
        Judge::new(lines, soon_s, self.block_s)
    }

    /// The same of other lines.
    pub fn of_others(&self, lines: Vec<Line>) -> Judge {
        Judge::new(lines, self.soon_s, self.block_s)
    }

    fn judged(&self, kind: Kind, outside: Outside) -> WorksByMet {
        let mut all = WorksByMet::default();
        for line in &self.lines {
            if kind.lines() > 0 {
                let each =
                    line.met_in_line(kind.lines(), outside.mean).into_iter().zip(&line.counted);
                all.own.extend(each.filter(|r| *r.1).map(|r| r.0));
            }
            let each = line.evened(kind, outside).into_iter().zip(line.met(outside.mean));
            for ((work, number), _) in each.zip(&line.counted).filter(|r| *r.1) {
                all.works.push(work);
                all.met.push(number);
            }
        }
        all
    }

    pub fn judge(&self, kind: Kind, outside: Outside) -> Score {
        let WorksByMet { works, met, own } = self.judged(kind, outside);
        score(&works, &met, &own, &self.followed, &self.untied)
    }

    /// The bins in which works are compared.
    pub fn edges(&self, kind: Kind, outside: Outside) -> Edges {
        let WorksByMet { met, own, .. } = self.judged(kind, outside);
        edges(&met, &own, &self.followed)
    }

    /// What the works of these bins differ by.
    pub fn contrasts(&self, kind: Kind, outside: Outside, edges: &Edges) -> Vec<Contrast> {
        let WorksByMet { works, met, own } = self.judged(kind, outside);
        contrasts(&works, &met, &own, &self.followed, edges, &self.untied)
    }

    pub fn point(&self, kind: Kind, outside: Outside) -> Point {
        self.scored(kind, outside, self.judge(kind, outside))
    }

    /// A hypothesis with the score that it is known to have.
    pub fn scored(&self, kind: Kind, outside: Outside, score: Score) -> Point {
        let blocks = self.lines.iter().map(|line| self.blocks(line, &line.works(kind, outside)));
        let blocks = blocks.collect();
        let mut varies = outside.variance();
        if varies > 0.0 {
            let shaken: f64 = self.lines.iter().map(|line| line.shaken(kind, outside)).sum();
            let all: usize = self.lines.iter().map(Line::counted).sum();
            varies *= shaken / all.max(1) as f64;
        }
        Point { kind, outside, score, weight: 0.0, blocks, varies, correction: None }
    }

    /// Blocks of some seconds of a step, at least [`BLOCKS_MIN`].
    pub fn blocks_of(&self, line: &Line) -> usize {
        let (from, to) = line.span();
        ((to - from) / self.block_s).clamp(BLOCKS_MIN, 10_000.0).ceil() as usize
    }

    /// Sums of blocks.
    fn blocks(&self, line: &Line, works: &[f64]) -> Vec<Sums> {
        let (span, n) = (line.span(), self.blocks_of(line));
        let mut blocks = vec![(0.0, 0.0, 0.0); n];
        let each = line.arrivals.iter().zip(works).zip(&line.counted);
        for ((arrival, work), _) in each.filter(|r| *r.1) {
            let sum = &mut blocks[block_of(*arrival, span, n)];
            *sum = (sum.0 + 1.0, sum.1 + work, sum.2 + work * work);
        }
        blocks
    }
}

/// The block of an arrival, of so many in a span.
pub(super) fn block_of(arrival: f64, span: (f64, f64), blocks: usize) -> usize {
    let (from, to) = span;
    let n = blocks as f64;
    ((arrival - from) / (to - from).max(1e-12) * n).min(n - 1.0).max(0.0) as usize
}

/// The number that [`SEEN`] requests met at least.
fn most_met(lines: &[Line]) -> u32 {
    let mut counts = Vec::<u32>::new();
    for met in lines.iter().flat_map(|line| line.met(0.0)) {
        let met = met as usize;
        if counts.len() <= met {
            counts.resize(met + 1, 0);
        }
        counts[met] += 1;
    }
    let mut seen = 0;
    let enough = |count: &u32| {
        seen += count;
        seen >= SEEN
    };
    let from_end = counts.iter().rev().position(enough);
    from_end.map_or(0, |from_end| counts.len() - 1 - from_end) as u32
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
    lines.iter_mut().for_each(|line| line.set_partitions(Arc::clone(&partitions)));
    let most_met = most_met(&lines);
    let reach = Reach::new(&lines);
    let median = reach.median();
    let judge = Judge::of_lines(lines, median, options);
    let scan = judge.part(SCAN, median);
    let mut found: Vec<Coarse> = match among {
        Among::Servers(m) => {
            let lines = partitions.iter().any(|p| p.lines == m).then_some(Discipline::Lines);
            [Discipline::Fifo, Discipline::Shared]
                .into_iter()
                .chain(lines)
                .map(|discipline| coarse(&scan, Kind { discipline, servers: Some(m) }, reach))
                .collect()
        }
        Among::Kinds(kinds) => kinds.iter().map(|kind| coarse(&scan, *kind, reach)).collect(),
        Among::All => {
            let lines = |p: &Partition| {
                let kind = Kind { discipline: Discipline::Lines, servers: Some(p.lines) };
                coarse(&scan, kind, reach)
            };
            let mut all = kinds(&scan, reach, most_met);
            all.extend(partitions.iter().map(lines));
            all
        }
    };
    found.sort_by(|a, b| excess(&a.1).total_cmp(&excess(&b.1)));
    let refine = judge.part(REFINE, median);
    found.truncate(KINDS);
    let kinds = found.iter().map(|(kind, _, near)| (*kind, *near));
    let mut kinds: Vec<(Kind, Outside)> = kinds.collect();
    kinds.dedup_by(|a, b| a.0 == b.0);
    let of = |(kind, near): (Kind, Outside)| {
        let constant = refined(&refine, kind, near, reach);
        let varies = varying(&scan, kind, reach).map(|near| refined(&refine, kind, near, reach));
        let varies = varies.filter(|found| nearly_fits(&refine.judge(kind, found.1)));
        let both = std::iter::once(constant).chain(varies);
        let best = both.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(near, |best| best.1);
        judge.point(kind, best)
    };
    let mut kinds: Vec<Point> = kinds.into_iter().map(of).collect();
    kinds.sort_by(|a, b| excess(&a.score).total_cmp(&excess(&b.score)));
    if let Some((kinds, points, best)) = likeness::by_replays(&judge, &kinds, reach) {
        return Search {
            lines: judge.lines,
            kinds,
            points,
            best,
            limited: false,
            congestion: None,
        };
    }
    let phi = kinds[0].score.ratio().max(1.0);
    let least = excess(&kinds[0].score);
    let mut points = Vec::new();
    for kind in &mut kinds {
        kind.weight = (-(excess(&kind.score) - least) / (2.0 * phi)).exp();
        if kind.weight >= 0.01 {
            points.append(&mut around(&judge, kind, reach, phi));
        } else {
            kind.weight = 0.0;
        }
    }
    let sum: f64 = kinds.iter().map(|k| k.weight).sum();
    kinds.iter_mut().chain(&mut points).for_each(|p| p.weight /= sum);
    let first = kinds[0].kind;
    let of_kind = || points.iter().filter(|p| p.kind == first);
    let constant: f64 = of_kind().filter(|p| p.outside.cv <= 0.0).map(|p| p.weight).sum();
    let all: f64 = of_kind().map(|p| p.weight).sum();
    let varies = constant < 0.5 * all;
    let of_first = || of_kind().filter(|p| varies || p.outside.cv <= 0.0);
    let weight = if varies { all } else { constant };
    let mean = |of: &dyn Fn(&Outside) -> f64| {
        of_first().map(|p| p.weight * of(&p.outside)).sum::<f64>() / weight
    };
    let (outside, variance) = (mean(&|o| o.mean), mean(&|o| o.variance()));
    let cv = if outside > 0.0 { variance.sqrt() / outside } else { 0.0 };
    let mut best = judge.point(first, Outside { mean: outside, cv });
    // Times outside of a kind differ little, so its correction is that of each.
    for kind in kinds.iter_mut().filter(|kind| kind.weight > 0.0) {
        let (outside, varies) = (kind.outside, kind.varies);
        kind.correction = corrected(&judge.lines, kind.kind, outside, varies).map(Arc::new);
        let own = points.iter_mut().chain([&mut best]).filter(|p| p.kind == kind.kind);
        own.for_each(|point| point.correction.clone_from(&kind.correction));
    }
    Search { lines: judge.lines, kinds, points, best, limited: false, congestion: None }
}

/// Both disciplines with any number of servers, and no limit.
fn kinds(scan: &Judge, reach: Reach, most_met: u32) -> Vec<Coarse> {
    let mut all = vec![coarse(scan, Kind { discipline: Discipline::Fifo, servers: None }, reach)];
    for discipline in [Discipline::Fifo, Discipline::Shared] {
        let of = |m: u32| coarse(scan, Kind { discipline, servers: Some(m) }, reach);
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
