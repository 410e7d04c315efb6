//! Whether requests of a log take longer the more others they meet, which under a wrong unit of durations they do not.
//!
//! Where requests wait for each other, the durations say so only with the number met at the arrival, and that follows from the unit. Read a
//! thousand times too short, hardly any request meets another. Read a thousand times too long, arrivals are the ends moved by times that
//! are independent of each other: as in a queue of infinitely many servers, the number met says nothing of the duration. Ends that are more
//! regular than chance (paced requests) make a correlation by themselves, which shifted durations have as well.

use ground::window::Nanos;

use super::layout::Side;

/// Requests whose ranks are compared: a drift of the work, or of the load, is longer.
const BLOCK: usize = 50;
/// Shifts of the durations, of which each shows what chance, paced arrivals and works in spells make of a correlation.
const SHIFTS: usize = 16;
/// A clock must tick this often in the mean duration, or the number met is the clock's.
const TICKS_MIN: f64 = 4.0;

/// By how many standard errors longer requests have met more others than if the durations were those of other requests, which a shift of all
/// durations along the log makes them; 0 if that cannot be seen. `times` are stamps and durations, in the order of the log.
pub(super) fn standard_errors(times: &[(Nanos, Nanos)], side: Side, clock_ns: Nanos) -> f64 {
    // What took less than a tick has met nobody that the log shows.
    let mut timed: Vec<(Nanos, Nanos)> = times.iter().copied().filter(|t| t.1 > 0).collect();
    timed.sort_by_key(|time| time.0);
    let sum: f64 = timed.iter().map(|time| time.1 as f64).sum();
    let is_coarse = clock_ns as f64 * TICKS_MIN * timed.len() as f64 > sum;
    if is_coarse || timed.len() < 4 * BLOCK {
        return 0.0;
    }
    let blocks = (timed.len() / BLOCK) as f64;
    let own = correlation(&timed, 0, side);
    // Shifts by more than a block, none a multiple of another.
    let step = (timed.len() - 2 * BLOCK) / (SHIFTS + 1);
    let shifted: Vec<f64> =
        (1..=SHIFTS).map(|k| correlation(&timed, BLOCK + k * step, side)).collect();
    let mean = shifted.iter().sum::<f64>() / SHIFTS as f64;
    let square = shifted.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (SHIFTS - 1) as f64;
    let by_chance = 1.0 / ((BLOCK - 1) as f64 * blocks);
    (own - mean) / square.max(by_chance).sqrt()
}

/// The mean correlation of durations with the number met, within blocks; of durations that are those of requests `shift` places further.
fn correlation(timed: &[(Nanos, Nanos)], shift: usize, side: Side) -> f64 {
    let durations = timed.iter().cycle().skip(shift).map(|time| time.1);
    let start = |stamp: Nanos, taken: Nanos| match side {
        Side::Start => stamp,
        Side::End => stamp.saturating_sub(taken),
    };
    let mut requests: Vec<(Nanos, Nanos)> =
        timed.iter().zip(durations).map(|(time, taken)| (start(time.0, taken), taken)).collect();
    requests.sort_unstable();
    let mut ends: Vec<Nanos> = requests.iter().map(|(start, taken)| start + taken).collect();
    ends.sort_unstable();
    let mut left = 0;
    let met = requests.iter().enumerate().map(|(before, (start, _))| {
        while ends.get(left).is_some_and(|end| end <= start) {
            left += 1;
        }
        before.saturating_sub(left) as u64
    });
    let met: Vec<u64> = met.collect();
    let taken: Vec<u64> = requests.iter().map(|request| request.1).collect();
    let blocks = taken.chunks_exact(BLOCK).zip(met.chunks_exact(BLOCK));
    let found: Vec<f64> = blocks.filter_map(|(taken, met)| rank_correlation(taken, met)).collect();
    found.iter().sum::<f64>() / found.len().max(1) as f64
}

/// Spearman's correlation of ranks; `None` if either are all the same.
fn rank_correlation(a: &[u64], b: &[u64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let middle = (a.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| {
        a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>()
    };
    let both = product(&a, &a) * product(&b, &b);
    (both > 0.0).then(|| product(&a, &b) / both.sqrt())
}

/// Ranks from 0; equal values have their mean.
fn ranks(values: &[u64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|i| values[*i]);
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for same in order.chunk_by(|i, j| values[*i] == values[*j]) {
        let mean = before as f64 + (same.len() as f64 - 1.0) / 2.0;
        same.iter().for_each(|i| ranks[*i] = mean);
        before += same.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Ends and durations, nanoseconds in whole microseconds, of a queue with exponential works of 20 µs, whose requests come by chance or evenly.
    fn queue(seed: u64, servers: usize, busy: f64, is_paced: bool) -> Vec<(Nanos, Nanos)> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut exponential = move |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
        let (mut arrival, mut free) = (1e9, vec![0.0; servers]);
        let gap = 20.0 / (busy * servers as f64);
        let one = |_| {
            arrival += if is_paced { gap } else { exponential(gap) };
            free.sort_by(f64::total_cmp);
            free[0] = f64::max(free[0], arrival) + exponential(20.0);
            (free[0] as u64 * 1_000, (free[0] - arrival) as u64 * 1_000)
        };
        let mut all: Vec<(u64, u64)> = (0..4_000).map(one).collect();
        all.sort_unstable();
        all
    }

    /// The same under a unit that is a thousand times too long or too short.
    fn scaled(times: &[(Nanos, Nanos)], scale: f64) -> Vec<(Nanos, Nanos)> {
        times.iter().map(|(end, taken)| (*end, (*taken as f64 * scale) as u64)).collect()
    }

    #[test]
    fn waits_are_seen_under_the_right_unit_alone() {
        for (seed, servers, busy) in
            [(1, 1, 0.1), (2, 1, 0.3), (3, 1, 0.6), (4, 2, 0.5), (5, 4, 0.7)]
        {
            let times = queue(seed, servers, busy, false);
            let right = standard_errors(&times, Side::End, 1_000);
            let long = standard_errors(&scaled(&times, 1e3), Side::End, 1_000);
            assert!(right > 5.0 && long < 3.0, "{servers} {busy}: {right} {long}");
            // Works of 20 ms that are read as 20 µs.
            let slow: Vec<_> =
                times.iter().map(|(end, taken)| (end * 1_000, taken * 1_000)).collect();
            assert!(standard_errors(&slow, Side::End, 1_000) > 5.0);
            assert!(standard_errors(&scaled(&slow, 1e-3), Side::End, 1_000) < 3.0);
        }
    }

    #[test]
    fn paced_requests_that_do_not_wait_show_nothing() {
        for (seed, is_paced) in [(1, true), (2, true), (3, false), (4, false)] {
            let times = queue(seed, 200, 0.01, is_paced);
            for scale in [1.0, 1e3] {
                let found = standard_errors(&scaled(&times, scale), Side::End, 1_000);
                assert!(found < 4.0, "{seed} {scale}: {found}");
            }
        }
        // A clock that is coarser than the durations shows nothing either.
        assert_eq!(standard_errors(&queue(1, 1, 0.5, false), Side::End, 1_000_000), 0.0);
    }

    #[test]
    fn equal_values_share_their_rank() {
        assert_eq!(ranks(&[3, 1, 3, 2]), [2.5, 0.0, 2.5, 1.0]);
        assert_eq!(rank_correlation(&[1, 2, 3], &[2, 4, 9]), Some(1.0));
        assert_eq!(rank_correlation(&[1, 2, 3], &[5, 5, 5]), None);
    }
}
