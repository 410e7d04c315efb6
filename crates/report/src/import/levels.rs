//! Finds the loads of a log: intervals between which the rate of arrivals changes.
//!
//! Arrivals are counted in cells of equal length. A division of the cells into levels costs, for each
//! level, twice the negative logarithm of the likelihood of its counts as Poisson counts of one rate,
//! over the dispersion φ of the counts, and a penalty for each change. The division of least cost is
//! found exactly, by dynamic programming (B. Jackson et al., "An algorithm for optimal partitioning of
//! data on an interval", 2005). Pruning (PELT; R. Killick et al., 2012) would help where there are many
//! changes, but a log of one load is the common case, so the number of cells is bounded instead: the
//! changes are placed among [`CELLS_MAX`] cells first, and then to a window within their cell.
//!
//! Levels have a least length and a least number of arrivals, because a fit needs both; a level
//! without any arrival only the least length. Cost: O(cells²), some 50 ms for the most.

/// The most cells among which changes are placed first.
const CELLS_MAX: usize = 2_000;
/// The fewest windows of a level: the number of batches behind an interval of a measured share.
pub(super) const WINDOWS_MIN: usize = 20;
/// The fewest arrivals of a level: a mean response is then known to 7 % or so.
pub(super) const ARRIVALS_MIN: u64 = 200;
/// Neighbours that differ by less are one load: a fit learns nothing from the difference.
const DIFFERENCE_MIN: f64 = 1.05;
/// The most levels. A load that changes all the time (days and nights) would have thousands.
pub(super) const LEVELS_MAX: usize = 100;
/// Cost of a change for each unit of ln(cells): the place and the rate of a level, and one more as
/// logs are less regular than Poisson processes.
const PENALTY: f64 = 3.0;

/// A part of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub length_s: f64,
    pub arrivals: u64,
}

/// Running sums of windows, so that any interval's cost is known at once.
struct Sums {
    arrivals: Vec<u64>,
    length_s: Vec<f64>,
    dispersion: f64,
}

impl Sums {
    fn new(windows: &[Window]) -> Sums {
        let mut sums = Sums { arrivals: vec![0], length_s: vec![0.0], dispersion: 1.0 };
        let (mut arrivals, mut length_s) = (0, 0.0);
        for window in windows {
            arrivals += window.arrivals;
            length_s += window.length_s;
            sums.arrivals.push(arrivals);
            sums.length_s.push(length_s);
        }
        sums
    }

    fn arrivals(&self, from: usize, to: usize) -> u64 {
        self.arrivals[to] - self.arrivals[from]
    }

    fn rate(&self, from: usize, to: usize) -> f64 {
        self.arrivals(from, to) as f64 / (self.length_s[to] - self.length_s[from]).max(1e-9)
    }

    /// Twice the negative log-likelihood, without what is the same for all divisions.
    fn cost(&self, from: usize, to: usize) -> f64 {
        match self.arrivals(from, to) {
            0 => 0.0,
            n => -2.0 * n as f64 * self.rate(from, to).ln() / self.dispersion,
        }
    }

    fn is_level(&self, from: usize, to: usize) -> bool {
        let arrivals = self.arrivals(from, to);
        to - from >= WINDOWS_MIN && (arrivals == 0 || arrivals >= ARRIVALS_MIN)
    }
}

/// The dispersion of counts: the variance of differences of neighbours over their mean, without the
/// hundredth that differs most, which holds the changes of load. At least 1, Poisson's.
fn dispersion(counts: &[u64]) -> f64 {
    let mut pairs: Vec<(f64, f64)> = counts
        .windows(2)
        .map(|two| (two[0] as f64, two[1] as f64))
        .filter(|(a, b)| a + b > 0.0)
        .map(|(a, b)| ((a - b).powi(2), a + b))
        .collect();
    pairs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    pairs.truncate(pairs.len() - pairs.len() / 100);
    let sum = pairs.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
    (sum.0 / sum.1.max(1.0)).max(1.0)
}

/// Whether the counts of windows may be those of one rate: their sum of squares is below what chance makes, by four standard deviations.
pub(super) fn is_steady(windows: &[Window]) -> bool {
    // The first and the last window are not whole.
    let inner = windows.get(1..windows.len().saturating_sub(1)).unwrap_or_default();
    let arrivals: u64 = inner.iter().map(|w| w.arrivals).sum();
    let seconds: f64 = inner.iter().map(|w| w.length_s).sum();
    let rate = arrivals as f64 / seconds.max(1e-9);
    let counts: Vec<u64> = inner.iter().map(|w| w.arrivals).collect();
    let square = |w: &Window| {
        let mean = rate * w.length_s;
        (w.arrivals as f64 - mean).powi(2) / mean.max(1e-9)
    };
    let squares = inner.iter().map(square).sum::<f64>() / dispersion(&counts);
    let degrees = inner.len().saturating_sub(1) as f64;
    squares <= degrees + 4.0 * (2.0 * degrees).sqrt()
}

/// The ends of the levels of a log, as numbers of windows, ascending; the last is their count.
pub(super) fn find(windows: &[Window]) -> Vec<usize> {
    let mut sums = Sums::new(windows);
    if windows.len() < 2 * WINDOWS_MIN {
        return vec![windows.len()];
    }
    let size = windows.len().div_ceil(CELLS_MAX);
    let mut cells: Vec<usize> = (0..windows.len()).step_by(size).collect();
    cells.push(windows.len());
    let counts: Vec<u64> = cells.windows(2).map(|c| sums.arrivals(c[0], c[1])).collect();
    // The first and the last cell are shorter than the others.
    sums.dispersion = dispersion(counts.get(1..counts.len() - 1).unwrap_or_default());
    let penalty = PENALTY * (counts.len() as f64).ln();
    // The least cost of the cells before each edge, and where their last level begins.
    let mut best = vec![(0.0, 0)];
    for to in 1..cells.len() {
        let mut least = (f64::INFINITY, 0);
        for from in 0..to {
            if best[from].0 < f64::INFINITY && sums.is_level(cells[from], cells[to]) {
                let cost = best[from].0 + sums.cost(cells[from], cells[to]) + penalty;
                least = if cost < least.0 { (cost, from) } else { least };
            }
        }
        best.push(least);
    }
    let mut ends = Vec::new();
    let mut at = cells.len() - 1;
    if best[at].0.is_infinite() {
        return vec![windows.len()];
    }
    while at > 0 {
        ends.push(cells[at]);
        at = best[at].1;
    }
    ends.reverse();
    if size > 1 {
        refine(&sums, &mut ends, size);
    }
    join(&sums, &mut ends, penalty);
    // A cell with a change in it has a rate of its own. Where it was taken for a level, the level
    // is gone now, and its neighbours meet at one of its ends.
    if size > 1 {
        refine(&sums, &mut ends, size * WINDOWS_MIN);
    }
    ends
}

/// Moves each end to the window, within a cell, at which the two levels cost least.
fn refine(sums: &Sums, ends: &mut [usize], size: usize) {
    for i in 0..ends.len().saturating_sub(1) {
        let from = if i == 0 { 0 } else { ends[i - 1] };
        let (now, to) = (ends[i], ends[i + 1]);
        let cost = |at: &usize| sums.cost(from, *at) + sums.cost(*at, to);
        let usable = |at: &usize| {
            *at > from && *at < to && sums.is_level(from, *at) && sums.is_level(*at, to)
        };
        let places = now.saturating_sub(size)..=now + size;
        let best = places.filter(usable).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        ends[i] = best.unwrap_or(now);
    }
}

/// Joins neighbours of nearly the same rate, or whose difference is not worth a change, and, if there
/// are too many levels, those that are nearest.
fn join(sums: &Sums, ends: &mut Vec<usize>, penalty: f64) {
    loop {
        let parts = |i: usize| {
            let from = if i == 0 { 0 } else { ends[i - 1] };
            (from, ends[i], ends[i + 1])
        };
        // What joining two levels costs. Silence is no load, however short the list has to be.
        let loss = |i: usize| {
            let (from, at, to) = parts(i);
            match sums.arrivals(from, at).min(sums.arrivals(at, to)) {
                0 => f64::INFINITY,
                _ => sums.cost(from, to) - sums.cost(from, at) - sums.cost(at, to),
            }
        };
        let is_same = |i: usize| {
            let (from, at, to) = parts(i);
            let (a, b) = (sums.rate(from, at), sums.rate(at, to));
            loss(i) < penalty || a.max(b) < DIFFERENCE_MIN * a.min(b)
        };
        let pairs = 0..ends.len().saturating_sub(1);
        let many = ends.len() > LEVELS_MAX;
        let nearest =
            pairs.filter(|i| many || is_same(*i)).min_by(|a, b| loss(*a).total_cmp(&loss(*b)));
        match nearest {
            Some(i) => ends.remove(i),
            None => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Windows of a second with Poisson arrivals (from exponential gaps) of each rate.
    fn poisson(seed: u64, loads: &[(f64, usize)]) -> Vec<Window> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut all = Vec::new();
        for &(rate, seconds) in loads {
            for _ in 0..seconds {
                let (mut at, mut arrivals) = (0.0, 0);
                loop {
                    at -= (1.0 - random.random::<f64>()).ln() / rate.max(1e-12);
                    if at > 1.0 {
                        break;
                    }
                    arrivals += 1;
                }
                all.push(Window { length_s: 1.0, arrivals });
            }
        }
        all
    }

    #[test]
    fn loads_are_found_where_they_change() {
        for seed in 0..20 {
            let found = find(&poisson(seed, &[(60.0, 100), (100.0, 100), (140.0, 100)]));
            assert_eq!(found.len(), 3, "{seed}: {found:?}");
            assert!(found[0].abs_diff(100) <= 1 && found[1].abs_diff(200) <= 1, "{found:?}");
            // One load is one step, at any rate.
            for rate in [0.3, 5.0, 100.0, 3000.0] {
                assert_eq!(find(&poisson(seed, &[(rate, 400)])), [400], "{seed} {rate}");
            }
            // A silence is not averaged with a load.
            let found = find(&poisson(seed, &[(50.0, 60), (0.0, 200), (50.0, 60)]));
            assert_eq!(found, [60, 260, 320], "{seed}");
        }
    }

    #[test]
    fn of_many_windows_the_changes_are_found_to_a_window_or_so() {
        let found = find(&poisson(3, &[(20.0, 7_013), (40.0, 5_001), (5.0, 9_000)]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].abs_diff(7_013) <= 2 && found[1].abs_diff(12_014) <= 2, "{found:?}");
    }

    #[test]
    fn days_and_nights_have_a_bounded_number_of_levels() {
        let day = |i: usize| 3_000.0 * (1.5 + (i as f64 / 43.2 * std::f64::consts::TAU).sin());
        let windows: Vec<Window> =
            (0..4_000).map(|i| Window { length_s: 2_000.0, arrivals: day(i) as u64 }).collect();
        let found = find(&windows);
        assert!(found.len() <= LEVELS_MAX && found.len() > 20, "{}", found.len());
    }

    #[test]
    fn too_little_is_one_level() {
        assert_eq!(find(&[]), [0]);
        assert_eq!(find(&poisson(1, &[(1.0, 30)])), [30]);
        assert_eq!(find(&poisson(1, &[(0.1, 300)])), [300]);
    }

    /// A short log of several loads is one step, and is not said to be of one load.
    #[test]
    fn loads_that_are_too_short_to_be_cut_are_not_steady() {
        for seed in 0..50 {
            let several = poisson(seed, &[(60.0, 11), (100.0, 7), (140.0, 5)]);
            assert_eq!(find(&several).len(), 1, "{seed}");
            assert!(!is_steady(&several), "{seed}");
            for (rate, seconds) in [(100.0, 23), (5.0, 300), (0.2, 1_000), (100.0, 3)] {
                assert!(is_steady(&poisson(seed, &[(rate, seconds)])), "{seed} {rate}");
            }
        }
        assert!(is_steady(&[]) && is_steady(&poisson(1, &[(0.0, 30)])));
    }

    proptest! {
        /// The least cost of all divisions, by trying them.
        #[test]
        fn the_division_is_the_best_of_all(
            rates in prop::collection::vec(5u64..40, 3),
            first in 20usize..50,
            seed in 0u64..1_000,
        ) {
            let loads = [(rates[0] as f64, first), (rates[1] as f64, 30), (rates[2] as f64, 25)];
            let windows = poisson(seed, &loads);
            let mut sums = Sums::new(&windows);
            let counts: Vec<u64> = windows.iter().map(|w| w.arrivals).collect();
            sums.dispersion = dispersion(&counts[1..counts.len() - 1]);
            let n = windows.len();
            let penalty = PENALTY * (n as f64).ln();
            let cost = |ends: &[usize]| {
                let starts = [0].iter().chain(ends);
                let levels = || starts.clone().zip(ends);
                let usable = levels().all(|(from, to)| to > from && sums.is_level(*from, *to));
                usable.then(|| levels().map(|(a, b)| sums.cost(*a, *b) + penalty).sum::<f64>())
            };
            let mut least = cost(&[n]).unwrap_or(f64::INFINITY);
            for a in 1..n {
                least = least.min(cost(&[a, n]).unwrap_or(f64::INFINITY));
                for b in a + 1..n {
                    least = least.min(cost(&[a, b, n]).unwrap_or(f64::INFINITY));
                }
            }
            let found = find(&windows);
            // Neighbours that hardly differ were joined afterwards; four levels are not tried here.
            if let Some(found) = cost(&found).filter(|_| found.len() < 4) {
                let joined = DIFFERENCE_MIN.ln() * 2.0 * sums.arrivals(0, n) as f64;
                prop_assert!(found >= least - 1e-6 && found <= least + penalty + joined);
            }
        }
    }
}
