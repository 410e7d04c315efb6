//! A rank test: does the law of work depend on what else was going on?
//!
//! Works are replaced by their ranks u in all works, midranks where times are coarse, and u by
//! Legendre polynomials of degree 1 to 3, orthonormal on these ranks: location, dispersion and
//! skewness (J. Neyman's smooth test, for several samples). Requests are put in bins by how many
//! others they met, and again by how many came soon after. If the work is independent of the bin,
//! Σ n·mean² over the bins is χ² distributed for each degree, with one degree of freedom fewer than
//! bins: for the first degree it is the test of W. Kruskal and W. Wallis (1952). Nothing is assumed
//! of the law of work. Cost: a sort.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Polynomials.
const DEGREES: usize = 3;
/// The fewest requests of a bin, the smallest share of all, and that of few requests, of which a bin has some dozen.
const BIN_MIN: usize = 40;
const BIN_SHARE: f64 = 0.01;
const BIN_SHARE_OF_FEW: f64 = 0.125;
/// Bins by numbers: these and larger ones.
const EDGES: [u32; 8] = [0, 1, 2, 3, 5, 9, 17, 33];
/// Numbers up to the last edge; larger ones are in its bin.
const FROM_LAST: usize = EDGES[EDGES.len() - 1] as usize + 1;

/// What a bin is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinSubject {
    Met,
    /// Others met in the own line.
    Own,
    Followed,
}

/// A bin whose works differ from the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Apart {
    pub of: BinSubject,
    /// Numbers in the bin, inclusive; `u32::MAX` for no upper end.
    pub numbers: (u32, u32),
    /// Mean work in the bin over that of the others.
    pub ratio: f64,
    /// Difference of the mean rank from that of all, as a share: 0.5 at most.
    pub rank: f64,
}

/// The result of the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    pub statistic: f64,
    pub degrees: f64,
    /// How unlikely the hypothesis is before its works are looked at, in units of the statistic; not part of the p-value.
    pub doubt: f64,
    /// The bin that differs most.
    pub apart: Option<Apart>,
}

impl Score {
    /// About 1 if the hypothesis is true.
    pub fn ratio(&self) -> f64 {
        self.statistic / self.degrees.max(1.0)
    }

    pub fn p_value(&self) -> f64 {
        if self.degrees < 1.0 {
            return 1.0;
        }
        let law = ChiSquared::new(self.degrees);
        law.map_or(1.0, |law| law.sf(self.statistic.max(0.0)).clamp(0.0, 1.0))
    }
}

/// The polynomials of the ranks of works of which no two are alike: they depend on the number of works alone.
pub(super) struct Untied(Vec<[f64; DEGREES]>);

impl Untied {
    pub fn new(works: usize) -> Untied {
        let mut scores: Vec<_> = (0..works).map(|rank| legendre(rank, 1, works)).collect();
        orthonormal(&mut scores);
        Untied(scores)
    }
}

/// Tests works against the numbers that were met, in the own line, and that followed, of the same requests.
/// `own` is empty where there is one line, `followed` where arrivals depend on replies.
pub(super) fn score(
    works: &[f64],
    met: &[u32],
    own: &[u32],
    followed: &[u32],
    untied: &Untied,
) -> Score {
    let scores = polynomials(works, untied);
    let mut all = Score { statistic: 0.0, degrees: 0.0, doubt: 0.0, apart: None };
    for (of, numbers) in
        [(BinSubject::Met, met), (BinSubject::Own, own), (BinSubject::Followed, followed)]
    {
        if numbers.len() == works.len() {
            add(&mut all, of, works, numbers, &scores);
        }
    }
    all
}

/// Legendre polynomials of the midrank of works that are alike, of all.
fn legendre(from: usize, ties: usize, all: usize) -> [f64; DEGREES] {
    let x = (2 * from + ties) as f64 / all as f64 - 1.0;
    [x, 1.5 * x * x - 0.5, 2.5 * x * x * x - 1.5 * x]
}

/// Indices in the order of works. The upper halves of the numbers are sorted first, as integers, which is faster.
fn order(works: &[f64]) -> Vec<u32> {
    let key = |(i, work): (usize, &f64)| {
        let bits = work.to_bits();
        let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        ordered & !u64::from(u32::MAX) | i as u64
    };
    let mut keys: Vec<u64> = works.iter().enumerate().map(key).collect();
    keys.sort_unstable();
    let mut order: Vec<u32> = keys.iter().map(|key| *key as u32).collect();
    let mut from = 0;
    while from < keys.len() {
        let half = keys[from] >> 32;
        let alike = keys[from..].iter().take_while(|key| **key >> 32 == half).count();
        if alike > 1 {
            let by_work = |a: &u32, b: &u32| works[*a as usize].total_cmp(&works[*b as usize]);
            order[from..from + alike].sort_unstable_by(by_work);
        }
        from += alike;
    }
    order
}

/// The polynomials of the ranks, for each request.
fn polynomials(works: &[f64], untied: &Untied) -> Vec<[f64; DEGREES]> {
    let n = works.len();
    let order = order(works);
    let mut scores = vec![[0.0; DEGREES]; n];
    let alike = |pair: &[u32]| works[pair[0] as usize] == works[pair[1] as usize];
    if untied.0.len() == n && !order.windows(2).any(alike) {
        order.iter().zip(&untied.0).for_each(|(i, of)| scores[*i as usize] = *of);
        return scores;
    }
    let mut from = 0;
    while from < n {
        let work = works[order[from] as usize];
        let ties = order[from..].iter().take_while(|i| works[**i as usize] == work).count();
        let of = legendre(from, ties, n);
        order[from..from + ties].iter().for_each(|i| scores[*i as usize] = of);
        from += ties;
    }
    orthonormal(&mut scores);
    scores
}

/// Gram and Schmidt's method on the requests.
fn orthonormal(scores: &mut [[f64; DEGREES]]) {
    let n = scores.len().max(1) as f64;
    for j in 0..DEGREES {
        let mean = scores.iter().map(|s| s[j]).sum::<f64>() / n;
        scores.iter_mut().for_each(|s| s[j] -= mean);
        for k in 0..j {
            let common = scores.iter().map(|s| s[j] * s[k]).sum::<f64>() / n;
            scores.iter_mut().for_each(|s| s[j] -= common * s[k]);
        }
        let size = (scores.iter().map(|s| s[j] * s[j]).sum::<f64>() / n).sqrt();
        let factor = if size > 1e-9 { 1.0 / size } else { 0.0 };
        scores.iter_mut().for_each(|s| s[j] *= factor);
    }
}

/// The edges of bins that all have enough requests: the first numbers of each.
pub(super) fn bins(numbers: &[u32]) -> Vec<u32> {
    let share = |share: f64| (share * numbers.len() as f64) as usize;
    let least = BIN_MIN.min(share(BIN_SHARE_OF_FEW).max(1)).max(share(BIN_SHARE));
    let mut each = [0usize; FROM_LAST];
    numbers.iter().for_each(|number| each[(*number as usize).min(FROM_LAST - 1)] += 1);
    let mut counts = [0usize; EDGES.len()];
    for (number, count) in each.into_iter().enumerate() {
        counts[EDGES.partition_point(|e| *e as usize <= number) - 1] += count;
    }
    let (mut edges, mut count): (Vec<u32>, usize) = (vec![0], 0);
    for (edge, more) in EDGES.iter().zip(counts) {
        if count >= least {
            edges.push(*edge);
            count = 0;
        }
        count += more;
    }
    if count < least && edges.len() > 1 {
        edges.pop();
    }
    edges
}

/// What a bin holds: requests, their work, and their polynomials, summed.
type Bin = (f64, f64, [f64; DEGREES]);

fn binned(edges: &[u32], works: &[f64], numbers: &[u32], scores: &[[f64; DEGREES]]) -> Vec<Bin> {
    let mut sums: Vec<Bin> = vec![(0.0, 0.0, [0.0; DEGREES]); edges.len()];
    let mut bin = [0; FROM_LAST];
    for (number, bin) in bin.iter_mut().enumerate() {
        *bin = edges.partition_point(|e| *e as usize <= number) - 1;
    }
    for ((work, number), ranks) in works.iter().zip(numbers).zip(scores) {
        let sum = &mut sums[bin[(*number as usize).min(FROM_LAST - 1)]];
        (sum.0, sum.1) = (sum.0 + 1.0, sum.1 + work);
        sum.2.iter_mut().zip(ranks).for_each(|(sum, x)| *sum += x);
    }
    sums
}

/// The numbers in a bin, inclusive.
fn numbers_in(edges: &[u32], i: usize) -> (u32, u32) {
    (edges[i], edges.get(i + 1).map_or(u32::MAX, |next| next - 1))
}

/// The mean work of each bin over that of the others.
fn ratios(sums: &[Bin]) -> impl Iterator<Item = f64> + '_ {
    let (n, total) = sums.iter().fold((0.0, 0.0), |t, s| (t.0 + s.0, t.1 + s.1));
    sums.iter().map(move |(count, sum, _)| {
        let rest = (total - sum) / (n - count).max(1.0);
        sum / f64::max(*count, 1.0) / rest.max(f64::MIN_POSITIVE)
    })
}

fn add(all: &mut Score, of: BinSubject, works: &[f64], numbers: &[u32], scores: &[[f64; DEGREES]]) {
    let edges = bins(numbers);
    if edges.len() < 2 {
        return;
    }
    let sums = binned(&edges, works, numbers, scores);
    for degree in 0..DEGREES {
        all.statistic += sums.iter().map(|s| s.2[degree] * s.2[degree] / s.0).sum::<f64>();
        all.degrees += (edges.len() - 1) as f64;
    }
    for ((i, (count, _, ranks)), ratio) in sums.iter().enumerate().zip(ratios(&sums)) {
        // A rank's standard deviation is 1/√12 of all.
        let rank = ranks[0] / count / 12f64.sqrt();
        let numbers = numbers_in(&edges, i);
        if all.apart.is_none_or(|known| rank.abs() > known.rank.abs()) {
            all.apart = Some(Apart { of, numbers, ratio, rank });
        }
    }
}

/// A bin with what its works differ by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contrast {
    pub of: BinSubject,
    pub numbers: (u32, u32),
    pub requests: f64,
    /// Sums of the polynomials over the root of the number of requests: of variance 1 where works depend on nothing.
    pub values: [f64; DEGREES],
    /// Mean work over that of the others.
    pub ratio: f64,
}

/// The bins of numbers, by what they are of.
pub(super) type Edges = Vec<(BinSubject, Vec<u32>)>;

/// The bins in which works are compared.
pub(super) fn edges(met: &[u32], own: &[u32], followed: &[u32]) -> Edges {
    let each = [(BinSubject::Met, met), (BinSubject::Own, own), (BinSubject::Followed, followed)];
    each.into_iter().map(|(of, numbers)| (of, bins(numbers))).filter(|e| e.1.len() > 1).collect()
}

/// What the works of each of these bins differ by.
pub(super) fn contrasts(
    works: &[f64],
    met: &[u32],
    own: &[u32],
    followed: &[u32],
    edges: &Edges,
    untied: &Untied,
) -> Vec<Contrast> {
    let scores = polynomials(works, untied);
    let mut all = Vec::new();
    for (of, edges) in edges {
        let numbers = match of {
            BinSubject::Met => met,
            BinSubject::Own => own,
            BinSubject::Followed => followed,
        };
        let sums = binned(edges, works, numbers, &scores);
        for ((i, (requests, _, ranks)), ratio) in sums.iter().enumerate().zip(ratios(&sums)) {
            let values = ranks.map(|sum| sum / requests.max(1.0).sqrt());
            let numbers = numbers_in(edges, i);
            all.push(Contrast { of: *of, numbers, requests: *requests, values, ratio });
        }
    }
    all
}

impl Apart {
    /// In words: what depends on what.
    pub fn text(&self) -> String {
        let numbers = match self.numbers {
            (a, u32::MAX) => format!("{a} or more"),
            (0, 0) => "no".to_owned(),
            (a, b) if a == b => a.to_string(),
            (a, b) => format!("{a} to {b}"),
        };
        let what = match self.of {
            BinSubject::Own => format!("that met {numbers} others in their line"),
            BinSubject::Met => format!("that met {numbers} others"),
            BinSubject::Followed => format!("that were soon followed by {numbers} others"),
        };
        let percent = (self.ratio - 1.0) * 100.0;
        let how = if percent < 0.0 { "less" } else { "more" };
        format!("the requests {what} have {:.0} % {how} work than the rest", percent.abs())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// BinSubject independent works the p-value is uniform, also where ties are many; of dependent ones it
    /// is small, and the bin is named.
    #[test]
    fn p_values_are_uniform_under_independence_and_small_otherwise() {
        let mut random = StdRng::seed_from_u64(5);
        let (mut below, trials) = ([0u32; 3], 600);
        for _ in 0..trials {
            let n = 1_500;
            let number = |random: &mut StdRng| (-(random.random::<f64>()).ln() * 2.0) as u32;
            let met: Vec<u32> = (0..n).map(|_| number(&mut random)).collect();
            let followed: Vec<u32> = (0..n).map(|_| number(&mut random)).collect();
            // Whole milliseconds of an exponential law.
            let work: Vec<f64> =
                (0..n).map(|_| (-(random.random::<f64>()).ln() * 8.0).floor()).collect();
            let p = score(&work, &met, &[], &followed, &Untied::new(n)).p_value();
            for (count, level) in below.iter_mut().zip([0.05, 0.25, 0.75]) {
                *count += u32::from(p < level);
            }
        }
        for (count, level) in below.iter().zip([0.05, 0.25, 0.75]) {
            let share = f64::from(*count) / f64::from(trials);
            let half = 3.5 * (level * (1.0 - level) / f64::from(trials)).sqrt();
            assert!((share - level).abs() < half, "{level}: {share}");
        }
        let met: Vec<u32> = (0..4_000).map(|i| i % 4).collect();
        let work: Vec<f64> = met
            .iter()
            .map(|m| random.random::<f64>() + 0.2 * f64::from(u8::from(*m == 3)))
            .collect();
        let found = score(&work, &met, &[], &[], &Untied::new(4_000));
        assert!(found.p_value() < 1e-10 && found.ratio() > 10.0, "{found:?}");
        let text = found.apart.unwrap().text();
        assert!(text.contains("met 3 or more others") && text.contains("% more work"), "{text}");
    }

    /// The order by halves of numbers is that of numbers, and works of which none are alike have the polynomials that
    /// any works have.
    #[test]
    fn works_in_order_and_without_ties_have_the_scores_of_any() {
        let mut random = StdRng::seed_from_u64(6);
        let mut works: Vec<f64> = (0..3_000).map(|_| random.random::<f64>() - 0.3).collect();
        // Many that differ in the lower half alone.
        works.extend((0..500).map(|i| 0.25 + f64::from(i * 37 % 500) * 1e-13));
        let met: Vec<u32> = (0..works.len() as u32).map(|i| i * 7 % 60).collect();
        let untied = Untied::new(works.len());
        let fast = score(&works, &met, &[], &[], &untied);
        let plain = score(&works, &met, &[], &[], &Untied::new(0));
        assert!((fast.statistic - plain.statistic).abs() < 1e-8, "{fast:?} {plain:?}");
        works.extend([0.0, -0.0, f64::INFINITY, 0.25, f64::NEG_INFINITY, 0.25]);
        let found = order(&works);
        let ascends = |pair: &[u32]| works[pair[0] as usize] <= works[pair[1] as usize];
        assert!(found.windows(2).all(ascends));
        let mut each = found.clone();
        each.sort_unstable();
        assert!(each.into_iter().eq(0..works.len() as u32));
    }

    #[test]
    fn degenerate_works_have_no_opinion() {
        for works in [vec![1.0; 500], Vec::new(), vec![0.0]] {
            let met: Vec<u32> = (0..works.len() as u32).map(|i| i % 3).collect();
            let found = score(&works, &met, &[], &[], &Untied::new(works.len()));
            assert!(found.statistic.abs() < 1e-6 && found.p_value() > 0.99, "{found:?}");
        }
    }
}
