//! What a coarse clock does to works, and what they are without.
//!
//! Times that are drawn within their ticks still differ from the truth. A work begins at the later of two times, and the later of
//! two blurred times is too late in the mean: works come out too short, by the more the nearer the tick is to a work. So the
//! fitted law is sent through the service at the recorded arrivals, read by the same clock and fitted in the same way; the law is
//! changed until what comes out is what was measured (indirect inference: C. Gouriéroux, A. Monfort, E. Renault, 1993).
//! Rejected: drawing latent times given the law of work (data augmentation). It needs a conditional law for each discipline,
//! where this needs a replay alone.
//!
//! The time outside and the statistic of the test are those of the blurred times here; where ticks are long they are corrected too
//! ([`super::likeness`]). Cost: [`ROUNDS`] replays.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;

use super::line::{Kind, Line};
use super::outside::Outside;
use super::replay::replay;

/// A clock finer than this part of the mean work needs no correction.
const FINE: f64 = 0.02;
/// Replays of a correction.
const ROUNDS: usize = 5;
/// Groups of works by size, each of which is corrected by itself, and the most that a round changes one by.
const GROUPS: usize = 40;
const CHANGE_MAX: f64 = 2.0;

/// What reading times by ticks does to the works of a hypothesis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Correction {
    /// The mean work over that of the drawn times.
    pub factor: f64,
    /// The variance that ticks add to the works of the drawn times, s²; below zero if they take some away.
    pub blur: f64,
    /// The law of work, as works.
    pub law: Vec<f64>,
}

fn moments(works: &[f64]) -> (f64, f64) {
    let n = works.len().max(1) as f64;
    let mean = works.iter().sum::<f64>() / n;
    (mean, works.iter().map(|work| (work - mean).powi(2)).sum::<f64>() / n)
}

/// The correction of a hypothesis; `None` where the clock is fine, or nothing is known. `varies`: the variance
/// that the time outside adds to works, s².
pub(super) fn corrected(
    lines: &[Line],
    kind: Kind,
    outside: Outside,
    varies: f64,
) -> Option<Correction> {
    let ticks =
        lines.iter().map(|line| line.ticks).max_by(|a, b| a.coarsest().total_cmp(&b.coarsest()))?;
    let mut seen = Vec::new();
    lines.iter().for_each(|line| judged_works(line, kind, outside, &mut seen));
    seen.sort_by(f64::total_cmp);
    let (mean, variance) = moments(&seen);
    if !(mean > 0.0 && variance > 0.0) || ticks.coarsest() < FINE * mean || seen.len() < GROUPS {
        return None;
    }
    let kept = (variance - ticks.blur() - varies).max(0.0);
    let shrink = (kept / variance).sqrt();
    let mut law: Vec<f64> = seen.iter().map(|w| (mean + (w - mean) * shrink).max(0.0)).collect();
    let mut random = StdRng::seed_from_u64(0x71c5);
    for round in 0..ROUNDS {
        let again = replayed(lines, kind, outside, &law, &mut random);
        let last = moments(&again).0;
        if round + 1 == ROUNDS {
            // The mean decides the saturation, so it is made right at the end.
            law.iter_mut().for_each(|work| *work *= (mean / last).clamp(0.5, 2.0));
            break;
        }
        change(&mut law, &seen, &again, mean);
    }
    let (true_mean, true_variance) = moments(&law);
    let factor = true_mean / mean;
    Some(Correction { factor, blur: variance - true_variance / (factor * factor) - varies, law })
}

/// Multiplies the works of a law by what they came out too short, by their ranks.
fn change(law: &mut [f64], seen: &[f64], again: &[f64], mean: f64) {
    let n = law.len();
    // What is short against a work may have any ratio by chance.
    let least = 0.02 * mean;
    let group = |works: &[f64], g: usize| {
        let (from, to) = (g * works.len() / GROUPS, (g + 1) * works.len() / GROUPS);
        works[from..to].iter().sum::<f64>() / (to - from).max(1) as f64
    };
    let ratio = |g: usize| {
        let ratio = (group(seen, g) + least) / (group(again, g) + least);
        ratio.clamp(1.0 / CHANGE_MAX, CHANGE_MAX)
    };
    let ratios: Vec<f64> = (0..GROUPS).map(ratio).collect();
    for (i, work) in law.iter_mut().enumerate() {
        let at =
            ((i as f64 + 0.5) / n as f64 * GROUPS as f64 - 0.5).clamp(0.0, GROUPS as f64 - 1.0);
        let (low, part) = (at as usize, at.fract());
        let high = (low + 1).min(GROUPS - 1);
        *work *= ratios[low] * (1.0 - part) + ratios[high] * part;
    }
    law.sort_by(f64::total_cmp);
}

fn judged_works(line: &Line, kind: Kind, outside: Outside, works: &mut Vec<f64>) {
    let all = line.works(kind, outside).into_iter().zip(&line.counted);
    works.extend(all.filter(|r| *r.1).map(|r| r.0));
}

/// The works that come out, ascending, where those of a law are done in any order at the recorded arrivals and read by
/// the clock.
fn replayed(
    lines: &[Line],
    kind: Kind,
    outside: Outside,
    law: &[f64],
    random: &mut StdRng,
) -> Vec<f64> {
    let mut again = Vec::with_capacity(law.len());
    for line in &done_again(lines, kind, outside, law, random).lines {
        judged_works(line, kind, outside, &mut again);
    }
    again.sort_by(f64::total_cmp);
    again
}

/// Steps that were done again.
pub(super) struct Rerun {
    /// What a log shows of them.
    pub lines: Vec<Line>,
    /// The mean of the works of the judged requests of each that were done, seconds.
    pub means: Vec<f64>,
}

/// The steps as they would be logged if the works of a law were done in any order at the recorded arrivals.
pub(super) fn done_again(
    lines: &[Line],
    kind: Kind,
    outside: Outside,
    law: &[f64],
    random: &mut StdRng,
) -> Rerun {
    let mut order = law.to_vec();
    order.shuffle(random);
    let mut next = order.iter().copied().cycle();
    let mut again = Rerun { lines: Vec::new(), means: Vec::new() };
    for line in lines {
        let mut works = vec![0.0; line.arrivals.len()];
        let (mut sum, mut count) = (0.0, 0.0);
        // All of the law for those that are judged, so that its mean is exact; others get any.
        for (work, is_judged) in works.iter_mut().zip(&line.counted) {
            if *is_judged {
                *work = next.next().unwrap_or(0.0);
                (sum, count) = (sum + *work, count + 1.0);
            } else {
                *work = law[random.random_range(0..law.len())];
            }
        }
        again.means.push(sum / f64::max(count, 1.0));
        let arrivals = line.ticks.arrivals(&line.arrivals, random);
        let ends = replay(kind, &arrivals, &works, &kind.places(line));
        let read = arrivals.iter().zip(ends).map(|(arrival, end)| {
            let beyond =
                if outside.cv > 0.0 { outside.beyond(random.sample(StandardNormal)) } else { 0.0 };
            line.ticks.read(*arrival, (end + outside.mean + beyond).max(*arrival))
        });
        let read: Vec<(f64, f64)> = read.collect();
        let drawn = line.ticks.draw(&read, random.random());
        again.lines.push(line.retimed(&drawn));
    }
    again
}
