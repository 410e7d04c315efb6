//! Requests that pass the servers by: hits of a cache that the source does not name.
//!
//! At light load a response is nearly a work, so the law of responses then shows a mixture: two
//! humps of log response with a valley between. What is answered faster than the valley is taken
//! out of the queue, and the hypotheses are judged with and without that.
//!
//! A request with little work that met no other is answered as fast. Of those that waited the law of works is
//! known, so that it is known how many of the fast ones were at the servers: so many, by chance, are put back.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::line::Line;
use super::search::Search;

/// Bins of log response for each factor of 2, and the smoothing to either side.
const BINS: f64 = 4.0;
/// The smallest share on either side of a valley, and its depth: its density over that of the
/// smaller hump.
const SHARE: f64 = 0.02;
const DEPTH: f64 = 0.5;

/// The share of the requests that used the servers from which on those that were taken for hits are put back.
const RETURNED: f64 = 0.002;
/// A time outside of so many valleys is not made by the cut.
const LONGER: f64 = 1.2;

/// The steps as they are, and without requests that may have passed the servers by, with the longest response of
/// those.
pub(super) fn candidates(lines: &[Line]) -> Vec<(f64, Vec<Line>)> {
    let mut all = vec![(0.0, lines.to_vec())];
    let rate = |line: &&Line| {
        let (from, to) = line.span();
        line.counted() as f64 / (to - from).max(1e-9)
    };
    let lightest = lines.iter().min_by(|a, b| rate(a).total_cmp(&rate(b)));
    if let Some(valley) = lightest.and_then(valley) {
        all.push((valley, lines.iter().map(|line| line.without(valley, |_| false)).collect()));
    }
    all
}

/// The steps with the requests back that were at the servers although they were answered within `valley`; `None` if
/// they are few, or the time outside is longer. Under the best hypothesis, works between half the valley and all of it
/// are a share of the requests that waited; twice that is the share of all works up to the valley. A time outside
/// of about the valley is taken for none: it is what the cut left of the shortest works.
pub(super) fn returned(lines: &[Line], found: &Search, valley: f64) -> Option<Vec<Line>> {
    let (kind, outside) = (found.best.kind, found.best.outside);
    let servers = kind.servers.filter(|_| outside.mean < LONGER * valley)?;
    let (mut waited, mut small, mut alone) = (0.0, 0.0, 0.0);
    for line in &found.lines {
        let met = match kind.lines() {
            0 => line.met(outside.mean),
            lines => line.met_in_line(lines, outside.mean),
        };
        let queue = if kind.lines() > 0 { 1 } else { servers };
        for ((work, met), _) in
            line.works(kind, outside).iter().zip(met).zip(&line.counted).filter(|r| *r.1)
        {
            if met >= queue {
                waited += 1.0;
                small += f64::from(u8::from(*work > 0.5 * valley && *work <= valley));
            } else {
                alone += 1.0;
            }
        }
    }
    let share: f64 = 2.0 * small / f64::max(waited, 1.0);
    let back = alone * share / (1.0 - share).max(0.5);
    let passed: usize = found.lines.iter().map(|line| line.bypassed.len()).sum();
    if back < RETURNED * (alone + waited) || passed == 0 {
        return None;
    }
    let mut random = StdRng::seed_from_u64(0xb1a5);
    let each = back / passed as f64;
    let mut chosen = |_| random.random::<f64>() < each;
    Some(lines.iter().map(|line| line.without(valley, &mut chosen)).collect())
}

/// The deepest valley between two humps of the logarithm of the response.
fn valley(line: &Line) -> Option<f64> {
    let each = line.arrivals.iter().zip(&line.departures).zip(&line.counted);
    let log = |((a, d), c): ((&f64, &f64), &bool)| c.then(|| (d - a).max(1e-9).log2() * BINS);
    let logs: Vec<f64> = each.filter_map(log).collect();
    let least = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let n = (most - least) as usize + 1;
    if logs.len() < 200 || n > 10_000 {
        return None;
    }
    let mut counts = vec![0.0; n];
    logs.iter().for_each(|x| counts[(x - least) as usize] += 1.0 / logs.len() as f64);
    let at = |i: usize, d: isize| {
        i.checked_add_signed(d).and_then(|i| counts.get(i)).copied().unwrap_or(0.0)
    };
    let smooth: Vec<f64> =
        (0..n).map(|i| 0.25 * at(i, -1) + 0.5 * at(i, 0) + 0.25 * at(i, 1)).collect();
    let mut best: Option<(f64, usize)> = None;
    for i in 1..n.saturating_sub(1) {
        let below: f64 = counts[..i].iter().sum();
        if !(SHARE..=1.0 - SHARE).contains(&below) {
            continue;
        }
        let hump = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
        let depth = smooth[i] / hump(&smooth[..i]).min(hump(&smooth[i + 1..])).max(1e-12);
        if depth < DEPTH && best.is_none_or(|known| depth < known.0) {
            best = Some((depth, i));
        }
    }
    best.map(|(_, i)| 2f64.powf((least + i as f64 + 0.5) / BINS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(responses: impl Iterator<Item = f64>) -> Line {
        let departures: Vec<f64> = responses.collect();
        Line::of(vec![0.0; departures.len()], departures)
    }

    #[test]
    fn a_valley_is_found_between_hits_and_reads_and_not_in_one_law() {
        let exponential = |i: usize| -0.008 * (1.0 - (i as f64 + 0.5) / 4_000.0).ln();
        assert_eq!(valley(&line((0..4_000).map(exponential))), None);
        let mixed = (0..4_000).map(|i| match i % 3 {
            0 => 2e-4 + 1e-4 * (i as f64 / 4_000.0),
            _ => 0.004 + exponential(i),
        });
        let found = valley(&line(mixed)).unwrap();
        assert!((3e-4..4e-3).contains(&found), "{found}");
    }
}
