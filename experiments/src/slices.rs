//! Rivals compared in many short slices: half a second of each system at a time, in random order,
//! some hundred times.
//!
//! The speed of a shared machine drifts by tenths within seconds, so that two rivals measured one
//! after the other are measured on two different machines. Here every block runs each system for
//! one slice in an order drawn anew (a randomised block design), and only slices of the same block
//! are compared: neighbours, a few slices apart. Drift over more than a block cancels from the
//! ratios, and the random order turns drift within a block into noise with mean 0 of the logarithm.
//! A block is never rejected for what it measured.
//!
//! The estimate is the median over blocks of the logarithms of the ratios: a slice in which the
//! hypervisor stopped the machine moves it by one rank only. Its 95 % interval is a bootstrap over
//! blocks, drawn in runs of neighbouring blocks, because disturbances that last longer than a block
//! make these alike (Künsch's moving-block bootstrap, on a circle). Cost: [`RESAMPLES`] · blocks.
//! Not for systems that need longer than a slice to become steady.

use anyhow::ensure;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// Longest slice, seconds: longer ones are compared across more drift.
pub const SLICE_S_MAX: f64 = 0.5;
/// Samples of the bootstrap.
const RESAMPLES: usize = 2000;
/// Fewest blocks with an interval.
const BLOCKS_MIN: usize = 10;

/// An estimate with its 95 % interval; NaN where it is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What was measured: for each block one slice of each system.
#[derive(Clone, Debug)]
pub struct Blocks<T> {
    /// Blocks in time; in each the slices in the order of the systems, whatever order they ran in.
    blocks: Vec<Vec<T>>,
}

/// Runs `systems` in `count` blocks, each a random order of all, and measures a slice by
/// `measure(system)`.
///
/// # Errors
/// The first error of `measure`.
pub fn run<T>(
    systems: usize,
    count: usize,
    seed: u64,
    mut measure: impl FnMut(usize, usize) -> anyhow::Result<T>,
) -> anyhow::Result<Blocks<T>> {
    ensure!(systems > 0, "slices: no system to measure");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..systems).collect();
    let mut blocks = Vec::with_capacity(count);
    for block in 0..count {
        order.shuffle(&mut random);
        let mut slices: Vec<Option<T>> = (0..systems).map(|_| None).collect();
        for &system in &order {
            slices[system] = Some(measure(block, system)?);
        }
        // Each was set: the order is a permutation.
        blocks.push(slices.into_iter().flatten().collect());
    }
    Ok(Blocks { blocks })
}

/// Runs a grid in `count` blocks: in each the cells in random order, and in a cell every one of its
/// `systems` for a slice, in random order, by `measure(block, cell, system)`. The slices that are
/// compared, those of one cell, are neighbours however large the grid is. Gives the blocks of each
/// cell.
///
/// # Errors
/// The first error of `measure`.
pub fn grid<T>(
    cells: usize,
    systems: usize,
    count: usize,
    seed: u64,
    mut measure: impl FnMut(usize, usize, usize) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<Blocks<T>>> {
    ensure!(cells > 0 && systems > 0, "slices: no cell or no system to measure");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..cells).collect();
    let mut all: Vec<Blocks<T>> = (0..cells).map(|_| Blocks { blocks: Vec::new() }).collect();
    for block in 0..count {
        order.shuffle(&mut random);
        for &cell in &order {
            let seed = random.random();
            let mut one = run(systems, 1, seed, |_, system| measure(block, cell, system))?;
            all[cell].blocks.append(&mut one.blocks);
        }
    }
    Ok(all)
}

impl<T> Blocks<T> {
    /// Every block, in time.
    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        self.blocks.iter().map(Vec::as_slice)
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A positive figure of one system, in every block.
    pub fn figure(&self, system: usize, of: impl Fn(&T) -> f64) -> Interval {
        let logs = self.blocks.iter().map(|block| of(&block[system]).ln());
        estimate(&logs.collect::<Vec<_>>())
    }

    /// A positive figure of one system over that of another, by the ratios within blocks.
    pub fn ratio(&self, over: usize, under: usize, of: impl Fn(&T) -> f64) -> Interval {
        let logs = self.blocks.iter().map(|block| (of(&block[over]) / of(&block[under])).ln());
        estimate(&logs.collect::<Vec<_>>())
    }
}

/// The median of logarithms with its interval, as the figures that they are of.
fn estimate(logs: &[f64]) -> Interval {
    let value = median(&mut logs.to_vec()).exp();
    // A slice without a reply has no ratio, and none is left out in silence.
    if logs.len() < BLOCKS_MIN || logs.iter().any(|log| !log.is_finite()) {
        return Interval { value, low: f64::NAN, high: f64::NAN };
    }
    let count = logs.len();
    // Runs of n^(1/3) blocks, the usual order for a bootstrap of a variance.
    let run = (count as f64).cbrt().round().max(1.0) as usize;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(count as u64);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut drawn = Vec::with_capacity(count + run);
    for _ in 0..RESAMPLES {
        drawn.clear();
        while drawn.len() < count {
            let first = random.random_range(0..count);
            drawn.extend((first..first + run).map(|at| logs[at % count]));
        }
        drawn.truncate(count);
        medians.push(median(&mut drawn));
    }
    medians.sort_by(f64::total_cmp);
    let quantile = |share: f64| medians[(share * (RESAMPLES - 1) as f64).round() as usize].exp();
    Interval { value, low: quantile(0.025), high: quantile(0.975) }
}

fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let middle = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_odd {
        return upper;
    }
    let lower = below.iter().copied().max_by(f64::total_cmp).unwrap_or(upper);
    f64::midpoint(lower, upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose speed wanders by some 20 % over seconds, jumps, and stands still now and
    /// then.
    struct Machine {
        random: Xoshiro256PlusPlus,
        log_speed: f64,
        slices: usize,
    }

    impl Machine {
        fn new(seed: u64) -> Machine {
            let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
            Machine { random, log_speed: 0.0, slices: 0 }
        }

        /// Requests/s of a slice of a system that serves `rate` on the machine at speed 1.
        fn slice(&mut self, rate: f64) -> f64 {
            let step: f64 = self.random.random_range(-1.0..1.0);
            self.log_speed = 0.98 * self.log_speed + 0.05 * step;
            self.slices += 1;
            // Half of the time the machine is a sixth slower, in stretches of 40 slices.
            let jump = if (self.slices / 40).is_multiple_of(2) { 0.0 } else { -0.18 };
            let stall = if self.random.random_bool(0.02) { 0.3 } else { 1.0 };
            let noise: f64 = self.random.random_range(-0.03..0.03);
            rate * stall * (self.log_speed + jump + noise).exp()
        }
    }

    const RATES: [f64; 4] = [50e3, 40e3, 42.8e3, 39e3];

    fn noisy_blocks(seed: u64, blocks: usize) -> Blocks<f64> {
        let mut machine = Machine::new(seed);
        run(RATES.len(), blocks, seed, |_, system| Ok(machine.slice(RATES[system]))).unwrap()
    }

    #[test]
    fn the_interval_has_the_true_ratio_although_the_machine_drifts() {
        let (mut covered, mut widest, runs) = (0, 0.0_f64, 200);
        for seed in 0..runs {
            let ratio = noisy_blocks(seed, 100).ratio(2, 1, |&rate| rate);
            covered += u32::from((ratio.low..=ratio.high).contains(&1.07));
            widest = widest.max(ratio.high - ratio.low);
            assert!((ratio.low..=ratio.high).contains(&ratio.value));
        }
        // 95 % of 200 is 190; a binomial of 200 is below 180 in one of a thousand.
        assert!(covered >= 180, "{covered} of {runs}");
        assert!(widest < 0.12, "{widest}");
    }

    /// What the blocks are for: the naive twin measures one system after the other.
    #[test]
    fn one_after_the_other_misses_it() {
        let mut missed = 0;
        for seed in 0..50 {
            let mut machine = Machine::new(seed);
            let mean = |machine: &mut Machine, rate: f64| {
                (0..100).map(|_| machine.slice(rate)).sum::<f64>() / 100.0
            };
            let before = mean(&mut machine, RATES[1]);
            let after = mean(&mut machine, RATES[2]);
            let naive = after / before;
            let blocks = noisy_blocks(seed, 100).ratio(2, 1, |&rate| rate);
            missed += u32::from((naive - 1.07).abs() > 3.0 * (blocks.value - 1.07).abs());
        }
        assert!(missed >= 30, "{missed} of 50");
    }

    #[test]
    fn every_block_has_every_system_in_a_random_order() {
        let mut orders: Vec<Vec<usize>> = vec![Vec::new(); 60];
        let blocks = run(3, 60, 1, |block, system| {
            orders[block].push(system);
            Ok(system)
        });
        let blocks = blocks.unwrap();
        assert!(blocks.len() == 60 && blocks.iter().all(|block| block == [0, 1, 2]));
        for first in 0..3 {
            let leads = orders.iter().filter(|order| order[0] == first).count();
            assert!((8..=32).contains(&leads), "system {first} leads {leads} of 60 blocks");
        }
        let again = run(3, 60, 1, |block, system| Ok((block, system))).unwrap();
        assert_eq!(again.len(), 60);
        let failed: anyhow::Result<Blocks<()>> = run(3, 60, 1, |_, _| anyhow::bail!("no reply"));
        assert_eq!(failed.unwrap_err().to_string(), "no reply");
    }

    #[test]
    fn a_grid_keeps_the_slices_of_a_cell_together() {
        let mut seen = Vec::new();
        let all = grid(4, 3, 20, 1, |block, cell, system| {
            seen.push((block, cell, system));
            Ok(100 * cell + system)
        });
        for (cell, blocks) in all.unwrap().iter().enumerate() {
            assert_eq!(blocks.len(), 20);
            assert!(blocks.iter().all(|b| *b == [100 * cell, 100 * cell + 1, 100 * cell + 2]));
        }
        for three in seen.chunks(3) {
            assert!(three.iter().all(|s| (s.0, s.1) == (three[0].0, three[0].1)), "{three:?}");
        }
        let orders = |at: fn(&(usize, usize, usize)) -> usize, by| {
            let firsts: Vec<usize> = seen.iter().step_by(by).map(at).collect();
            (0..3).all(|first| firsts.contains(&first))
        };
        assert!(orders(|s| s.2, 3) && orders(|s| s.1, 12), "in random order");
    }

    #[test]
    fn few_blocks_and_silent_slices_have_no_interval() {
        let few = noisy_blocks(1, 9).ratio(2, 1, |&rate| rate);
        assert!(few.value > 0.8 && few.low.is_nan() && few.high.is_nan());
        let blocks =
            run(2, 40, 1, |block, system| Ok(if block == 7 { 0.0 } else { system as f64 + 1.0 }));
        let ratio = blocks.unwrap().ratio(1, 0, |&rate| rate);
        assert!(ratio.low.is_nan(), "{ratio:?}");
    }

    #[test]
    fn the_median_is_that_of_sorted_values() {
        for (values, expected) in [
            (vec![3.0], 3.0),
            (vec![3.0, 1.0], 2.0),
            (vec![3.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0, 3.0, 2.0], 2.5),
        ] {
            assert_eq!(median(&mut values.clone()), expected, "{values:?}");
        }
        assert!(median(&mut []).is_nan());
    }
}
