//! Two humps of the logarithm of the response, as hits of a cache and other requests make them.

/// Bins of log response for each factor of 2, and the smoothing to either side.
const BINS: f64 = 4.0;
/// The smallest share on either side of a valley, and its depth: its density over that of the
/// smaller hump.
const SHARE: f64 = 0.02;
const DEPTH: f64 = 0.5;
/// The fewest responses that show humps, and the most bins.
const FEWEST: f64 = 200.0;
const MOST: usize = 10_000;

/// The deepest valley between two humps, seconds. `responses`: seconds, each with how often it occurred.
pub(super) fn valley(responses: &[(f64, f64)]) -> Option<f64> {
    let log = |seconds: f64| seconds.max(1e-9).log2() * BINS;
    let all: f64 = responses.iter().map(|r| r.1).sum();
    let least = responses.iter().map(|r| log(r.0)).fold(f64::INFINITY, f64::min).floor();
    let most = responses.iter().map(|r| log(r.0)).fold(f64::NEG_INFINITY, f64::max);
    let n = (most - least) as usize + 1;
    if all < FEWEST || n > MOST {
        return None;
    }
    let mut counts = vec![0.0; n];
    responses.iter().for_each(|(seconds, often)| {
        counts[(log(*seconds) - least) as usize] += often / all;
    });
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

/// How many more responses within the ticks of a hit than after these may be hits, and the fewest.
const CROWDED: f64 = 2.0;
const HITS: f64 = 100.0;

/// Whether far more responses are within a time than in as long a time after it. Hits of less than a tick are drawn anywhere in two
/// of them: of 35 % hits of 0.1 to 0.3 ms a clock of 1 ms left no valley. `responses`: seconds, each with how often it occurred.
pub(super) fn is_crowded_within(
    responses: impl Iterator<Item = (f64, f64)>,
    within_s: f64,
) -> bool {
    let (mut first, mut next) = (0.0, 0.0);
    for (seconds, often) in responses.filter(|_| within_s > 0.0) {
        if seconds <= within_s {
            first += often;
        } else if seconds <= 2.0 * within_s {
            next += often;
        }
    }
    first > HITS && first > CROWDED * next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valley_is_found_between_hits_and_reads_and_not_in_one_law() {
        let exponential = |i: usize| -0.008 * (1.0 - (i as f64 + 0.5) / 4_000.0).ln();
        let one: Vec<(f64, f64)> = (0..4_000).map(|i| (exponential(i), 1.0)).collect();
        assert_eq!(valley(&one), None);
        let mixed = (0..4_000).map(|i| match i % 3 {
            0 => 2e-4 + 1e-4 * (i as f64 / 4_000.0),
            _ => 0.004 + exponential(i),
        });
        let found = valley(&mixed.map(|response| (response, 1.0)).collect::<Vec<_>>()).unwrap();
        assert!((3e-4..4e-3).contains(&found), "{found}");
    }

    #[test]
    fn hits_within_a_tick_crowd_it_and_short_works_do_not() {
        let exponential = |i: usize| (-0.01 * (1.0 - (i as f64 + 0.5) / 4_000.0).ln(), 1.0);
        assert!(!is_crowded_within((0..4_000).map(exponential), 2e-3));
        let with_hits = (0..4_000)
            .map(|i| if i % 3 == 0 { (5e-4 * (i % 4) as f64, 1.0) } else { exponential(i) });
        assert!(is_crowded_within(with_hits.clone(), 2e-3));
        assert!(!is_crowded_within(with_hits, 0.0));
    }
}
