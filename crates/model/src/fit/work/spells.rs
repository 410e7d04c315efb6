//! Works that come in spells: slow ones together, as of a collector of garbage, background work or a
//! throttle.
//!
//! In a slow spell requests gather, so that those with much work have met many: the test of independence
//! ([`super::score`]) then speaks against the right hypothesis. Whether spells are all that is the matter is
//! seen by doing the works again, in the order in which they were done, for arrivals that know nothing of them: if
//! requests that meet so many others then have the work that they had, it is the one server that it was
//! taken for, and its works in their order are its law ([`InOrder`]).

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::queue::{Discipline, InOrder};

use super::judge::{EFFECT, Sums};
use super::line::Line;
use super::moments::{moments, rate};
use super::search::Search;

/// Correlation of the works of requests that are some places apart: what is worth saying, in itself and
/// in standard errors.
const ALIKE: f64 = 0.1;
const ALIKE_ERRORS: f64 = 5.0;
/// The places. Next to each other are not compared: what varies outside makes them unlike.
const APART: std::ops::RangeInclusive<usize> = 2..=5;
/// Numbers met that are told apart, and the fewest requests of each.
const MET: [u32; 8] = [0, 1, 2, 3, 5, 9, 17, 33];
const MET_MIN: f64 = 40.0;
/// The fewest works that show spells.
const WORKS_MIN: usize = 500;

/// The correlation of the works of requests that were served soon after each other; `None` where it is
/// small or chance.
pub(super) fn alike(found: &Search) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0.0);
    for line in &found.lines {
        let own = in_order(line, found, |i| line.counted[i]);
        let mut sorted = own.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let rank = |work: f64| {
            let (below, above) =
                (sorted.partition_point(|w| *w < work), sorted.partition_point(|w| *w <= work));
            // Of variance 1.
            ((below + above) as f64 / count - 1.0) * 3f64.sqrt()
        };
        let ranks: Vec<f64> = own.into_iter().map(rank).collect();
        for apart in APART {
            sum += ranks.iter().zip(ranks.iter().skip(apart)).map(|(a, b)| a * b).sum::<f64>();
            n += ranks.len().saturating_sub(apart) as f64;
        }
    }
    let correlation = sum / f64::max(n, 1.0);
    let places = APART.count() as f64;
    let shows = correlation > ALIKE && correlation * (n / places).sqrt() > ALIKE_ERRORS;
    shows.then_some(correlation)
}

/// The works of some requests of a step in the order in which they left, under the best hypothesis.
fn in_order(line: &Line, found: &Search, of: impl Fn(usize) -> bool) -> Vec<f64> {
    let works = line.works(found.best.kind, found.best.outside);
    line.by_end.iter().map(|i| *i as usize).filter(|i| of(*i)).map(|i| works[i]).collect()
}

/// Works by the number of others that were met.
type ByMet = [Sums; MET.len()];

fn add(sums: &mut ByMet, work: f64, met: u32) {
    let of = &mut sums[MET.partition_point(|edge| *edge <= met) - 1];
    *of = (of.0 + 1.0, of.1 + work, of.2 + work * work);
}

fn by_met(found: &Search) -> ByMet {
    let (best, mut sums) = (&found.best, ByMet::default());
    for line in &found.lines {
        let each = line.works(best.kind, best.outside).into_iter().zip(line.met(best.outside.mean));
        each.zip(&line.counted).filter(|r| *r.1).for_each(|((w, met), _)| add(&mut sums, w, met));
    }
    sums
}

/// How much the mean work of requests that met different numbers differs, as a share of that of all, or of
/// what is expected of requests that met so many: the standard deviation between them. Where no hypothesis fits, it is
/// not known which of these works another load will have.
fn spread(sums: &ByMet, expected: Option<&ByMet>) -> f64 {
    let seen = |s: &Sums| s.0 >= MET_MIN;
    let each =
        || (0..MET.len()).filter(|i| seen(&sums[*i]) && expected.is_none_or(|e| seen(&e[*i])));
    let total = |sums: &ByMet| each().fold((0.0, 0.0), |t, i| (t.0 + sums[i].0, t.1 + sums[i].1));
    let (n, work) = total(sums);
    if n <= 0.0 || work <= 0.0 {
        return 0.0;
    }
    let mean = work / n;
    let other = expected.map(|e| (e, total(e)));
    let (mut between, mut chance) = (0.0, 0.0);
    for i in each() {
        let own = moments(sums[i], 0.0);
        let (of, more) = match &other {
            None => (mean, 0.0),
            Some((e, (n, work))) => {
                let (of, scv) = moments(e[i], 0.0);
                (of / (work / n) * mean, scv * of * of * sums[i].0 / e[i].0)
            }
        };
        between += sums[i].0 / n * ((own.0 - of) / mean).powi(2);
        // What chance makes of it.
        chance += (own.1 * own.0 * own.0 + more) / (n * mean * mean);
    }
    (between - chance).max(0.0).sqrt()
}

/// The spread of works by the number met.
pub(super) fn spread_by_met(found: &Search) -> f64 {
    spread(&by_met(found), None)
}

/// Works in spells.
#[derive(Clone, Debug)]
pub(super) struct Spells {
    /// The correlation of neighbours.
    pub correlation: f64,
    /// The works over their mean: those of the heaviest loads.
    pub works: InOrder,
    /// The spread of works by the number met, and what of it spells do not explain.
    pub spread: f64,
    pub left: f64,
}

impl Spells {
    /// Whether they are all that is the matter.
    pub fn explain(&self) -> bool {
        self.left < EFFECT
    }
}

/// The spells of one server in line; `None` if works are not alike.
pub(super) fn spells(found: &Search, seed: u64) -> Option<Spells> {
    let kind = found.best.kind;
    // Where the speed depends on the number, works in their order are no law of their own.
    let plain = found.congestion.is_none();
    if !plain || kind.discipline != Discipline::Fifo || kind.servers != Some(1) {
        return None;
    }
    let correlation = alike(found)?;
    let mut random = StdRng::seed_from_u64(seed ^ 0x51e7);
    let mut again = ByMet::default();
    for line in &found.lines {
        let works = in_order(line, found, |_| true);
        let rate = rate(line);
        // When the server is free, counted from each arrival, and when those before it leave.
        let (mut now, mut free, mut ends) = (0.0f64, 0.0f64, std::collections::VecDeque::new());
        for work in works {
            now -= (1.0 - random.random::<f64>()).ln() / rate.max(1e-9);
            while ends.front().is_some_and(|end| *end <= now) {
                ends.pop_front();
            }
            add(&mut again, work, ends.len() as u32);
            free = free.max(now) + work;
            ends.push_back(free);
        }
    }
    let measured = by_met(found);
    let mut lines: Vec<&Line> = found.lines.iter().collect();
    lines.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let mut works: Vec<f64> = Vec::new();
    for line in lines {
        // A time outside that is taken off a short work may be longer than that. A model file refused the fit for it.
        let own = in_order(line, found, |i| line.counted[i]);
        works.extend(own.into_iter().map(|work| work.max(0.0)));
    }
    works.truncate(InOrder::MOST);
    let mean = works.iter().sum::<f64>() / works.len().max(1) as f64;
    if works.len() < WORKS_MIN || mean <= 0.0 {
        return None;
    }
    // Four digits: what a file holds of each.
    let short = |work: &f64| (work / mean * 1e4).round() / 1e4;
    let works = works.iter().map(short).collect::<Vec<f64>>().into();
    let (spread_now, left) = (spread(&measured, None), spread(&measured, Some(&again)));
    Some(Spells { correlation, works, spread: spread_now, left })
}
