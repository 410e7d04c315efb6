//! Processors that are shared equally: the law of responses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::erlang::erlang_c;
use crate::distribution::{Empirical, Piece, ServiceTime};

/// How servers are given to the requests that are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// One line, first come, first served: each server has one request at a time.
    #[default]
    Fifo,
    /// m processors are shared by all requests present: with n of them each is served at the rate
    /// min(1, m/n).
    Shared,
    /// m separate lines, one server each: the key of a request decides in which it waits. Of a hypothesis
    /// only: a model has them as m devices of one server.
    Lines,
}

impl Discipline {
    /// Whether it is [`Discipline::Shared`].
    pub fn is_shared(self) -> bool {
        self == Discipline::Shared
    }

    /// Its name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Discipline::Fifo => "first come, first served",
            Discipline::Shared => "shared equally",
            Discipline::Lines => "separate lines by key",
        }
    }
}

/// The requests that are followed at each load.
const FOLLOWED: usize = 40_000;
/// The most events of one of them: far more than any needs below saturation.
const EVENTS_MAX: usize = 1_000_000;
/// Utilisations that are simulated. Beyond, responses lengthen in proportion to their mean.
const RHOS: [f64; 9] = [0.2, 0.4, 0.55, 0.68, 0.78, 0.86, 0.92, 0.96, 0.98];

/// M/G/m with shared processors at any load, by simulation at a few, because there is no formula for
/// m > 1 (for m = 1 there is a double transform, which takes longer).
///
/// Each of 40,000 requests is followed from its arrival to its end, on its own: what an arrival
/// meets is known exactly. With equal sharing the number present has the law of M/M/m, and the works
/// that are left have the law of residual works, independently, whatever the law of work (J. W.
/// Cohen, "The multiple phase service network with generalized processor sharing", Acta Informatica
/// 12, 1979). Works of the followed requests and numbers met are stratified. So responses are
/// independent, without a transient: the CDF is off by at most 0.25 points (1/(2√40,000)) in a
/// standard deviation. Between the simulated loads the laws of T over its mean are mixed, which
/// change little; the mean is that of M/M/m exactly. Deterministic. Cost: a second, once; then a
/// microsecond.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    processors: u32,
    law: Empirical,
    /// The mean response, seconds, and the responses, ascending, at each of [`RHOS`]. First those of
    /// an empty system, which are the works.
    loads: Vec<(f64, Vec<f64>)>,
}

impl SharedQueue {
    /// With m processors and a law of work.
    pub(crate) fn new(processors: u32, law: &Empirical) -> Self {
        let (draw, mean) = (Draw::new(law), law.mean());
        // One work from the middle of each stratum, in an order that has nothing to do with them.
        let works: Vec<f64> = (0..FOLLOWED).map(|i| draw.work(stratum(i), 0.5)).collect();
        let at = |rho: f64| {
            let mut random = StdRng::seed_from_u64(97);
            let mut one = Follow::new(processors, rho, &draw, mean);
            let each = works.iter().enumerate().map(|(i, work)| one.respond(*work, i, &mut random));
            let mut all: Vec<f64> = each.collect();
            all.sort_by(f64::total_cmp);
            (response_mean(processors, rho, mean), all)
        };
        let loads = std::iter::once(0.0).chain(RHOS).map(at).collect();
        SharedQueue { processors, law: law.clone(), loads }
    }

    /// Whether it is that of a law and processors.
    pub(crate) fn is_of(&self, processors: u32, law: &Empirical) -> bool {
        self.processors == processors && self.law == *law
    }

    /// P(response time ≤ t seconds) at a utilisation; 0 from 1 on.
    pub(crate) fn response_cdf(&self, t: f64, rho: f64) -> f64 {
        if rho.is_nan() || t.is_nan() || rho >= 1.0 || t < 0.0 {
            return 0.0;
        }
        let now = response_mean(self.processors, rho, self.law.mean());
        let share = |(mean, all): &(f64, Vec<f64>)| {
            let t = t * mean / now;
            all.partition_point(|x| *x <= t) as f64 / FOLLOWED as f64
        };
        let next = RHOS.partition_point(|known| *known <= rho);
        let below = if next == 0 { 0.0 } else { RHOS[next - 1] };
        let (Some(before), Some(after)) = (self.loads.get(next), self.loads.get(next + 1)) else {
            return self.loads.last().map_or(0.0, share);
        };
        let part = (rho.max(0.0) - below) / (RHOS[next] - below);
        (1.0 - part) * share(before) + part * share(after)
    }
}

/// The mean response of M/M/m, and of shared processors with any law of work.
fn response_mean(processors: u32, rho: f64, mean: f64) -> f64 {
    let m = f64::from(processors);
    if rho <= 0.0 {
        return mean;
    }
    mean * (1.0 + erlang_c(processors, rho) / (m * (1.0 - rho)))
}

/// The middle of a stratum of 0 to 1, in van der Corput's order: neighbours are far apart.
fn stratum(i: usize) -> f64 {
    let reversed = (i as u64).reverse_bits() as f64 / 2f64.powi(64);
    (reversed + 0.5 / FOLLOWED as f64).min(1.0 - 1e-12)
}

/// Draws works, and works that are left, from a law in pieces.
struct Draw<'a> {
    pieces: &'a [Piece],
    /// Sums of the shares of pieces, and of their shares of all work.
    shares: Vec<f64>,
    of_work: Vec<f64>,
}

impl<'a> Draw<'a> {
    fn new(law: &'a Empirical) -> Self {
        let sums = |of: &dyn Fn(&Piece) -> f64| {
            let mut sum = 0.0;
            let add = |p: &Piece| {
                sum += of(p);
                sum
            };
            law.pieces().iter().map(add).collect::<Vec<f64>>()
        };
        let (shares, of_work) = (sums(&|p| p.share), sums(&|p| p.share * p.centre));
        Draw { pieces: law.pieces(), shares, of_work }
    }

    fn piece(&self, sums: &[f64], u: f64) -> (f64, f64) {
        let all = sums.last().copied().unwrap_or(1.0);
        let at = sums.partition_point(|s| *s < u * all).min(self.pieces.len().saturating_sub(1));
        self.pieces
            .get(at)
            .map_or((0.0, 0.0), |p| ((p.centre - p.half_width).max(0.0), p.centre + p.half_width))
    }

    /// A work: `u` chooses the piece, `within` the place in it.
    fn work(&self, u: f64, within: f64) -> f64 {
        let (low, high) = self.piece(&self.shares, u);
        low + (high - low) * within
    }

    /// What is left of a work that is met: of works drawn by their length, a uniform part.
    fn left(&self, random: &mut StdRng) -> f64 {
        let (low, high) = self.piece(&self.of_work, random.random());
        let (a, b) = (low * low, high * high);
        (a + (b - a) * random.random::<f64>()).sqrt() * random.random::<f64>()
    }
}

/// A time that orders.
#[derive(Clone, Copy, PartialEq)]
struct OrderedTime(f64);

impl Eq for OrderedTime {}
impl PartialOrd for OrderedTime {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for OrderedTime {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// One request at a time, from its arrival to its end.
struct Follow<'a> {
    processors: f64,
    /// Seconds between arrivals.
    gap: f64,
    draw: &'a Draw<'a>,
    /// Sums of the probabilities of 0, 1, 2 … present.
    present: Vec<f64>,
    ends: BinaryHeap<Reverse<OrderedTime>>,
}

impl<'a> Follow<'a> {
    fn new(processors: u32, rho: f64, draw: &'a Draw<'a>, mean: f64) -> Self {
        let m = f64::from(processors.max(1));
        let (mut present, mut term, mut sum, mut n) = (Vec::new(), 1.0, 0.0, 0.0);
        // Until the rest is negligible; the ratio of terms falls to ρ at m.
        while n < m || term > 1e-9 * sum * (1.0 - rho) {
            sum += term;
            present.push(sum);
            n += 1.0;
            term *= rho * m / n.min(m);
        }
        let gap = if rho > 0.0 { mean / (rho * m) } else { f64::INFINITY };
        Follow { processors: m, gap, draw, present, ends: BinaryHeap::new() }
    }

    /// The response of a request of this work. Time is also counted in the service that each
    /// request present has received since this one came: a request ends at what it then needs.
    fn respond(&mut self, work: f64, i: usize, random: &mut StdRng) -> f64 {
        let all = self.present.last().copied().unwrap_or(1.0);
        let u = (i as f64 * 0.618_033_988_749_894_9 + 0.5).fract();
        let met = self.present.partition_point(|sum| *sum < u * all);
        self.ends.clear();
        let mut n = met as f64 + 1.0;
        // Those that need more than this one stay as long as it does.
        for _ in 0..met {
            let left = self.draw.left(random);
            if left < work {
                self.ends.push(Reverse(OrderedTime(left)));
            }
        }
        let (mut now, mut given) = (0.0, 0.0);
        let mut arrival = self.gap * exponential(random);
        for _ in 0..EVENTS_MAX {
            let end = self.ends.peek().map_or(work, |e| e.0.0);
            let slow = (n / self.processors).max(1.0);
            let at = now + (end - given) * slow;
            if at <= arrival {
                (now, given) = (at, end);
                if self.ends.pop().is_none() {
                    break;
                }
                n -= 1.0;
            } else {
                given += (arrival - now) / slow;
                now = arrival;
                n += 1.0;
                let end = given + self.draw.work(random.random(), random.random());
                if end < work {
                    self.ends.push(Reverse(OrderedTime(end)));
                }
                arrival = now + self.gap * exponential(random);
            }
        }
        now
    }
}

fn exponential(random: &mut StdRng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

#[cfg(test)]
mod tests;
