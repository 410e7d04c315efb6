//! A hypothesis judged: the works that a log implies under it, and how far they depend on what they must not depend on.

use std::sync::Arc;

use crate::queue::Slowdown;

use super::correction::Correction;
use super::line::{Kind, Line};
use super::outside::Outside;
use super::score::{Contrast, Edges, Score, Untied, contrasts, edges, score};
use crate::fit::input::Options;

/// The fewest blocks of a step. Of k that are drawn again the variance is short by 1/k, and works are independent, so that
/// blocks may be short.
const BLOCKS_MIN: f64 = 24.0;

/// A hypothesis does not fit if the test says so at this level, and some requests' work is
/// different from the others' by more than [`EFFECT`].
pub(super) const LEVEL: f64 = 1e-3;
pub(super) const EFFECT: f64 = 0.1;

/// How long servers are busy after a reply, as a part of the median response of requests that met no other: the mean of its law beforehand.
/// Too many servers with a time outside far below zero imitate fewer servers.
const AFTER: f64 = 0.1;

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

/// The statistic beyond what is expected of it, with the doubt of the hypothesis.
pub(super) fn excess(score: &Score) -> f64 {
    score.statistic - score.degrees + score.doubt
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
        let found = score(&works, &met, &own, &self.followed, &self.untied);
        Score { doubt: self.doubt(outside.mean), ..found }
    }

    /// The doubt of a time outside before the times of the log are known, in units of the statistic: the density of times below zero
    /// falls by a factor of e for each [`AFTER`] of the median response.
    pub fn doubt(&self, outside: f64) -> f64 {
        2.0 * (-outside).max(0.0) / (AFTER * self.soon_s).max(1e-12)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_below_zero_are_doubted_by_their_length() {
        let judge = Judge::new(Vec::new(), 0.01, f64::INFINITY);
        assert_eq!((judge.doubt(0.0), judge.doubt(0.005)), (0.0, 0.0));
        assert!((judge.doubt(-0.001) - 2.0).abs() < 1e-9);
        assert!((judge.doubt(-0.003) - 6.0).abs() < 1e-9);
    }
}
