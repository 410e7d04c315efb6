//! The hypotheses, the likeliest first.

use std::sync::Arc;

use crate::queue::Discipline;

use super::correction::corrected;
use super::judge::{Judge, Point, excess};
use super::likeness;
use super::line::{Kind, Line};
use super::lines::partitions;
use super::outside::Outside;
use super::partition::Partition;
use super::reach::{Coarse, Reach, around, coarse, nearly_fits, refined, varying};
use super::speeds::Congestion;
use crate::fit::input::Options;

/// Numbers of servers to try first.
const SERVERS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Requests with which hypotheses are looked through, and times outside refined.
const SCAN: usize = 24_000;
const REFINE: usize = 60_000;
/// Requests that must have met m others to tell m servers from no limit, and the largest part of all for it.
const SEEN: u32 = 40;
const SEEN_PART: f64 = 0.1;
/// The most kinds that are refined, and those of fewer requests than so many, which exclude few.
const KINDS: usize = 6;
const KINDS_OF_FEW: usize = 16;
const FEW: usize = 1_000;
/// Numbers of servers in succession that fit less than the one before and end the search, where some number nearly fits and where none does.
const RISEN: u32 = 2;
const RISEN_UNFIT: u32 = 5;
/// A smaller share of requests that met all servers busy hardly tells how many servers there are.
const WAITED_MIN: f64 = 0.02;
/// The weight that no limit then keeps, enough for both ends of an interval of 95 %, unless its raw weight is below the least. Numbers
/// of servers that were just never reached explain the few that met them a little better by chance, each in several
/// disciplines: of eight logs of a service in which nobody waits four had intervals that excluded it.
const UNLIMITED_WEIGHT: f64 = 0.06;
const UNLIMITED_WEIGHT_LEAST: f64 = 1e-5;
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
    /// Whether hypotheses were judged by replays, because ticks are long.
    pub replayed: bool,
    /// Whether some requests are taken for hits by their times alone.
    pub guesses_hits: bool,
    /// How the speed of the servers depends on the number inside, where the likeliest kind has that.
    pub congestion: Option<Congestion>,
}

impl Search {
    /// The share of requests that met all servers of the best kind busy, if it hardly tells how many there are; of lines of their own
    /// that is not asked.
    pub fn hardly_waited(&self) -> Option<f64> {
        share_waited(&self.lines, &self.best)
    }

    /// The statistic of the best beyond what is expected of it, for each judged request.
    pub fn excess(&self) -> f64 {
        let n: usize = self.lines.iter().map(Line::counted).sum();
        excess(&self.best.score) / n.max(1) as f64
    }
}

/// [`Search::hardly_waited`] of any hypothesis.
fn share_waited(lines: &[Line], point: &Point) -> Option<f64> {
    let servers = point.kind.servers.filter(|_| point.kind.lines() == 0)?;
    let (mut all, mut waited) = (0u64, 0u64);
    for line in lines {
        let met = line.met(point.outside.mean);
        for (met, _) in met.into_iter().zip(&line.counted).filter(|r| *r.1) {
            all += 1;
            waited += u64::from(met >= servers);
        }
    }
    let share = waited as f64 / all.max(1) as f64;
    (share < WAITED_MIN).then_some(share)
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
    let all: u32 = counts.iter().sum();
    let least = SEEN.min((SEEN_PART * f64::from(all)).ceil() as u32);
    let mut seen = 0;
    let enough = |count: &u32| {
        seen += count;
        seen >= least
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
    let counted: usize = judge.lines().iter().map(Line::counted).sum();
    let most = if counted < FEW { KINDS_OF_FEW } else { KINDS };
    let unlimited = found.iter().skip(most).position(|(kind, ..)| kind.servers.is_none());
    if let Some(beyond) = unlimited {
        found.swap(most - 1, most + beyond);
    }
    found.truncate(most);
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
            lines: judge.into_lines(),
            kinds,
            points,
            best,
            limited: false,
            replayed: true,
            guesses_hits: false,
            congestion: None,
        };
    }
    let phi = kinds[0].score.ratio().max(1.0);
    let least = excess(&kinds[0].score);
    let mut points = Vec::new();
    let hardly_waited = share_waited(judge.lines(), &kinds[0]).is_some();
    for kind in &mut kinds {
        kind.weight = (-(excess(&kind.score) - least) / (2.0 * phi)).exp();
    }
    let limited: f64 = kinds.iter().filter(|k| k.kind.servers.is_some()).map(|k| k.weight).sum();
    for kind in &mut kinds {
        if kind.kind.servers.is_none() && hardly_waited && kind.weight > UNLIMITED_WEIGHT_LEAST {
            let least = UNLIMITED_WEIGHT / (1.0 - UNLIMITED_WEIGHT) * limited;
            kind.weight = kind.weight.max(least);
        }
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
        kind.correction = corrected(judge.lines(), kind.kind, outside, varies).map(Arc::new);
        let own = points.iter_mut().chain([&mut best]).filter(|p| p.kind == kind.kind);
        own.for_each(|point| point.correction.clone_from(&kind.correction));
    }
    Search {
        lines: judge.into_lines(),
        kinds,
        points,
        best,
        limited: false,
        replayed: false,
        guesses_hits: false,
        congestion: None,
    }
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
            // Works that hardly vary look alike under one server with all of a work outside and under few: four servers of constant
            // works were taken for one, because two and three fit still less.
            let fits = found.iter().any(|(_, coarse)| nearly_fits(&coarse.1));
            if risen >= if fits { RISEN } else { RISEN_UNFIT } {
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
            let next = [best.saturating_sub(1), best + 1]
                .into_iter()
                .find(|m| *m >= 1 && *m <= most_met && !found.iter().any(|f| f.0 == *m));
            let Some(m) = next else { break };
            found.push((m, of(m)));
        }
        all.extend(found.into_iter().map(|f| f.1));
    }
    all
}
