//! How far the counts of a step deviate by chance, as its blocks show.
//!
//! Of independent responses the counts between edges are multinomial. Responses in a queue depend on each other: a long
//! busy period fills the last bins of a minute and leaves the others as they are. So the covariance of the counts is the
//! multinomial one times (I + Σ(ℓ − 1)·u·uᵀ), with the few directions u in which windows differ by more than
//! chance makes of the largest of so many directions (a spiked covariance: I. Johnstone, "On the distribution of the largest
//! eigenvalue in principal components analysis", Annals of Statistics 29, 2001). With the multinomial one alone, a few long
//! busy periods at one load decided the mean work: 9.45 ± 0.06 ms of a server whose work is 10 ms.
//!
//! The directions are those of the windows, of which there are many more than bins: directions of a few dozen blocks would
//! be those in which just these differ, and what blocks deviate by along what is left would be far less than the chance of
//! the step (intervals came out a third as wide as they must be). How far counts vary along them is that of the blocks, which
//! are longer than a busy period.
//!
//! What blocks differ by because more requests came in some than in others is taken off first, by a regression on the
//! logarithm of their loads: the load of a step is known.

use super::sums::{Data, Sums};

/// The most directions.
const SPIKES: usize = 3;
/// The fewest blocks that show directions.
const BLOCKS_MIN: usize = 6;
/// Rounds of the power method.
const ROUNDS: usize = 200;
/// What is added to each count, so that an empty bin has a variance.
const EMPTY: f64 = 0.5;

/// A direction in which counts vary more than those of independent responses.
struct Spike {
    direction: Vec<f64>,
    /// The variance along it over the multinomial one.
    excess: f64,
}

/// The chance of the counts of a step.
pub(super) struct Noise {
    /// The share of each bin.
    shares: Vec<f64>,
    requests: f64,
    rate: f64,
    /// What the logarithm of the load changes shares by.
    by_load: Vec<f64>,
    spikes: Vec<Spike>,
    /// The variance in all other directions over the multinomial one.
    variance: f64,
}

impl Noise {
    pub fn new(step: &Data) -> Noise {
        let counts = &step.total.counts;
        let requests = step.total.responses();
        let all = requests + EMPTY * counts.len() as f64;
        let shares: Vec<f64> = counts.iter().map(|count| (count + EMPTY) / all).collect();
        let (by_load, rate) = (vec![0.0; counts.len()], step.total.rate());
        let mut noise =
            Noise { shares, requests, rate, by_load, spikes: Vec::new(), variance: 1.0 };
        let used: Vec<&Sums> = step.blocks.iter().filter(|b| noise.load(b).is_some()).collect();
        if used.len() >= BLOCKS_MIN {
            noise.regress(&used);
            let windows: Vec<&Sums> =
                step.windows.iter().filter(|w| noise.load(w).is_some()).collect();
            let fine = if windows.len() > used.len() { &windows } else { &used };
            noise.find_spikes(fine, &used);
        }
        noise
    }

    /// The logarithm of the load of some blocks over that of the step.
    fn load(&self, sums: &Sums) -> Option<f64> {
        let load = (sums.rate() / self.rate).ln();
        (load.is_finite() && sums.responses() > 0.0).then_some(load)
    }

    /// What counts deviate from those of the step by, less what their load explains.
    pub fn off(&self, sums: &Sums) -> Vec<f64> {
        let (n, load) = (sums.responses(), self.load(sums).unwrap_or(0.0));
        let bins = sums.counts.iter().zip(&self.shares).zip(&self.by_load);
        bins.map(|((count, share), by_load)| count - n * (share + by_load * load)).collect()
    }

    fn regress(&mut self, blocks: &[&Sums]) {
        let mut slopes = vec![0.0; self.shares.len()];
        let mut square = 0.0;
        for block in blocks {
            let load = self.load(block).unwrap_or(0.0);
            square += block.responses() * load * load;
            slopes.iter_mut().zip(self.off(block)).for_each(|(slope, off)| *slope += load * off);
        }
        if square > 0.0 {
            self.by_load = slopes.into_iter().map(|slope| slope / square).collect();
        }
    }

    /// The covariance of deviations over the multinomial one.
    fn covariance(&self, parts: &[&Sums]) -> Vec<Vec<f64>> {
        let bins = self.shares.len();
        let count = parts.len() as f64;
        let mut covariance = vec![vec![0.0; bins]; bins];
        for part in parts {
            let off = self.off(part);
            let scaled: Vec<f64> =
                off.iter().zip(&self.shares).map(|(off, share)| off / share.sqrt()).collect();
            for (row, a) in covariance.iter_mut().zip(&scaled) {
                // A mean and a slope were estimated.
                let factor = a * count / (count - 2.0) / self.requests;
                row.iter_mut().zip(&scaled).for_each(|(cell, b)| *cell += factor * b);
            }
        }
        covariance
    }

    fn find_spikes(&mut self, windows: &[&Sums], blocks: &[&Sums]) {
        let mut fine = self.covariance(windows);
        let coarse = self.covariance(blocks);
        let bins = self.shares.len();
        let chance = (1.0 + (bins as f64 / windows.len() as f64).sqrt()).powi(2);
        let (mut trace, mut left) =
            ((0..bins).map(|i| coarse[i][i]).sum::<f64>(), bins as f64 - 1.0);
        for _ in 0..SPIKES {
            let (value, direction) = largest(&fine);
            if value <= chance {
                break;
            }
            for (row, a) in fine.iter_mut().zip(&direction) {
                row.iter_mut().zip(&direction).for_each(|(cell, b)| *cell -= value * a * b);
            }
            let along = coarse.iter().zip(&direction).map(|(row, a)| {
                a * row.iter().zip(&direction).map(|(cell, b)| cell * b).sum::<f64>()
            });
            let along: f64 = along.sum();
            (trace, left) = (trace - along, left - 1.0);
            self.spikes.push(Spike { direction, excess: along.max(1.0) });
        }
        self.variance = (trace / left.max(1.0)).max(1.0);
    }

    /// Deviations of the counts, scaled so that by chance their squares are 1 in the mean and they do not depend on each other.
    pub fn whitened(&self, off: &[f64]) -> Vec<f64> {
        let each = off.iter().zip(&self.shares);
        let mut scaled: Vec<f64> =
            each.map(|(off, share)| off / (self.requests * share).sqrt()).collect();
        for Spike { direction, excess } in &self.spikes {
            let along: f64 = scaled.iter().zip(direction).map(|(a, b)| a * b).sum();
            let less = along * (1.0 - 1.0 / excess.sqrt());
            scaled.iter_mut().zip(direction).for_each(|(value, d)| *value -= less * d);
        }
        let one = self.variance.sqrt();
        scaled.iter_mut().for_each(|value| *value /= one);
        scaled
    }

    /// What expected shares miss the counts of the step by, whitened.
    pub fn missed(&self, counts: &[f64], expected: &[f64]) -> Vec<f64> {
        let each = counts.iter().zip(expected);
        let off: Vec<f64> = each.map(|(count, share)| count - self.requests * share).collect();
        self.whitened(&off)
    }

    /// How the whitened counts follow a change of the expected shares.
    pub fn slope(&self, shares: &[f64]) -> Vec<f64> {
        let off: Vec<f64> = shares.iter().map(|share| self.requests * share).collect();
        self.whitened(&off)
    }
}

/// The largest eigenvalue of a symmetric matrix with its vector, by the power method.
fn largest(matrix: &[Vec<f64>]) -> (f64, Vec<f64>) {
    let n = matrix.len();
    let mut vector: Vec<f64> = (0..n).map(|i| 1.0 + (i as f64 * 0.618_034).fract()).collect();
    let mut value = 0.0;
    for _ in 0..ROUNDS {
        let next: Vec<f64> =
            matrix.iter().map(|row| row.iter().zip(&vector).map(|(a, b)| a * b).sum()).collect();
        let length = next.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length <= 0.0 {
            break;
        }
        value = length / vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector = next.into_iter().map(|x| x / length).collect();
    }
    (value, vector)
}

/// The solution x of A·x = `right` for a symmetric matrix A that is positive definite (A. Cholesky's
/// method); `None` if it is not.
pub(super) fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    let mut lower = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let left: f64 = matrix[i][j] - known;
            lower[i][j] = if i == j { left.sqrt() } else { left / lower[j][j] };
        }
        if !(lower[i][i] > 1e-9 && lower[i][i].is_finite()) {
            return None;
        }
    }
    let mut x = right.to_vec();
    for i in 0..n {
        let known: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
        x[i] = (x[i] - known) / lower[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| lower[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / lower[i][i];
    }
    x.iter().all(|x| x.is_finite()).then_some(x)
}

#[cfg(test)]
mod tests {
    use ground::window::{Dispersion, Histogram};

    use super::*;

    #[test]
    fn equations_are_solved_and_singular_ones_refused() {
        let matrix = vec![vec![4.0, 2.0, 0.0], vec![2.0, 5.0, 1.0], vec![0.0, 1.0, 3.0]];
        let x = solve(&matrix, &[8.0, 15.0, 11.0]).unwrap();
        for (x, right) in x.iter().zip([1.0, 2.0, 3.0]) {
            assert!((x - right).abs() < 1e-12, "{x}");
        }
        assert_eq!(solve(&[vec![1.0, 1.0], vec![1.0, 1.0]], &[1.0, 2.0]), None);
    }

    /// A step of blocks with these counts, a second each.
    fn step(blocks: Vec<Vec<f64>>) -> Data {
        let mut total = Sums { counts: vec![0.0; blocks[0].len()], ..Sums::default() };
        let sums = |counts: Vec<f64>| {
            let n: f64 = counts.iter().sum();
            // The load stays, so that it explains nothing.
            Sums { seconds: 1.0, arrivals: 500.0, answered: n, counts, ..Sums::default() }
        };
        let blocks: Vec<Sums> = blocks.into_iter().map(sums).collect();
        for block in &blocks {
            total.seconds += 1.0;
            total.arrivals += block.arrivals;
            total.answered += block.answered;
            total.counts.iter_mut().zip(&block.counts).for_each(|(a, b)| *a += b);
        }
        Data {
            name: String::new(),
            total,
            blocks,
            windows: Vec::new(),
            responses: Histogram::default(),
            within: Vec::new(),
            dispersion: Dispersion::default(),
        }
    }

    /// Of blocks that differ only in the last bin, far beyond chance, a deviation there says little, and one elsewhere
    /// as much as it would of independent responses.
    #[test]
    fn a_bin_that_varies_from_block_to_block_says_little() {
        let block = |i: usize| {
            let last = if i.is_multiple_of(2) { 20.0 } else { 180.0 };
            // Counts of the others deviate by chance, as the root of 100.
            let other = |k: usize| 100.0 + 10.0 * ((i * (k + 3) * 7 % 11) as f64 / 5.0 - 1.0);
            vec![other(0), other(1), other(2), other(3), last]
        };
        let step = step((0..30).map(block).collect());
        let noise = Noise::new(&step);
        let shares = noise.shares.clone();
        let size = |bin: usize| {
            let mut expected = shares.clone();
            expected[bin] += 0.01;
            expected[(bin + 1) % 4] -= 0.01;
            let missed = noise.missed(&step.total.counts, &expected);
            missed.iter().map(|x| x * x).sum::<f64>()
        };
        let multinomial = 2.0 * 0.01 * 0.01 * noise.requests / 0.2;
        assert!((0.3..1.5).contains(&(size(1) / multinomial)), "{} {multinomial}", size(1));
        assert!(size(4) < 0.8 * size(1), "{} {}", size(4), size(1));
        assert!(noise.spikes[0].excess > 30.0, "{}", noise.spikes[0].excess);
    }
}
