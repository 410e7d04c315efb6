//! Resampling of windows, for intervals: the estimates that a repeated measurement might have
//! given.
//!
//! The method is a block bootstrap in two stages. Steps at the same load (within 1 %) are
//! repetitions of each other. Of r ≥ 2 repetitions, r − 1 are drawn with replacement: the variance
//! of a mean is then unbiased, whereas drawing r would give (r − 1)/r of it (J. Rao, C. Wu:
//! "Resampling inference with complex survey data", Journal of the American Statistical Association
//! 83 (1988)). Within a step, blocks of some seconds are drawn with replacement, so that
//! neighbouring windows may depend on each other. With [`WHOLE`] repetitions or more, steps are
//! drawn whole, because variation within steps then shows between them.
//!
//! Cost: one pass over the blocks for each resampling. Intervals are too narrow if all steps share
//! an error (one machine, one day, one content of memory) or if a step has fewer than about eight
//! blocks. They are slightly too wide for two or three repetitions that differ only by chance.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::data::Gathered;
use super::estimate;
use super::estimate::Estimates;
use super::input::Options;
use super::sums::Sums;
use crate::model_file::{ClassParameters, Replicates};

/// Number of repetitions from which blocks are not drawn within them.
const WHOLE: usize = 4;
/// Loads with a smaller relative difference are equal.
const SAME_LOAD: f64 = 0.01;

/// One resampling.
#[derive(Clone, Debug)]
pub(super) struct Replicate {
    /// Index of a steady step, and the sums of its drawn blocks.
    pub steps: Vec<(usize, Sums)>,
    pub estimates: Estimates,
    /// For each device of the drawn saturated steps: seconds × servers, completions, and the drawn
    /// position (0 to 1) of its idle time within the slack.
    pub saturated: Vec<(usize, f64, f64, f64)>,
}

/// A drawn step, its weight, and its drawn blocks.
pub(super) struct StepDraw {
    pub step: usize,
    pub weight: f64,
    pub blocks: Vec<usize>,
}

/// Steps in groups of the same load.
pub(super) fn repetitions(rates: &[f64]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|a, b| rates[*a].total_cmp(&rates[*b]));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for step in order {
        match groups.last_mut() {
            Some(group) if rates[step] <= rates[group[0]] * (1.0 + SAME_LOAD) => group.push(step),
            _ => groups.push(vec![step]),
        }
    }
    groups
}

/// Draws repetitions of each group, and blocks within them.
pub(super) fn draw(
    random: &mut StdRng,
    groups: &[Vec<usize>],
    blocks: &dyn Fn(usize) -> usize,
) -> Vec<StepDraw> {
    let mut drawn = Vec::new();
    for group in groups {
        let repeated = group.len();
        let count = repeated.saturating_sub(1).max(1);
        for _ in 0..count {
            let step = group[random.random_range(0..repeated)];
            let n = blocks(step);
            let whole = repeated >= WHOLE || n == 0;
            let block = |i: usize| if whole { i } else { random.random_range(0..n) };
            let blocks = (0..n).map(block).collect();
            drawn.push(StepDraw { step, weight: repeated as f64 / count as f64, blocks });
        }
    }
    drawn
}

/// The resamplings that the options request, without those that have no device read in any drawn
/// block.
pub(super) fn resample(gathered: &Gathered, options: &Options) -> Vec<Replicate> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let rates: Vec<f64> = gathered.steps.iter().map(|s| s.total.rate()).collect();
    let groups = repetitions(&rates);
    // Past saturation the load does not matter, so all steps are repetitions for a device.
    let saturated: Vec<Vec<usize>> = match gathered.saturated.len() {
        0 => Vec::new(),
        n => vec![(0..n).collect()],
    };
    let mut all = Vec::with_capacity(options.replicates.min(10_000));
    for _ in 0..options.replicates.min(10_000) {
        let mut steps = Vec::new();
        for drawn in draw(&mut random, &groups, &|i| gathered.steps[i].blocks.len()) {
            let mut total = Sums::new(gathered.classes.len());
            for block in drawn.blocks {
                total.add_weighted(&gathered.steps[drawn.step].blocks[block], drawn.weight);
            }
            steps.push((drawn.step, total));
        }
        let mut throughputs = Vec::new();
        let longest = |i: usize| {
            let devices = gathered.saturated[i].devices.iter();
            devices.map(|d| d.blocks.len()).max().unwrap_or(0)
        };
        for drawn in draw(&mut random, &saturated, &longest) {
            for device in &gathered.saturated[drawn.step].devices {
                let (mut servers_s, mut completions) = (0.0, 0.0);
                for (s, n) in drawn.blocks.iter().filter_map(|b| device.blocks.get(*b)) {
                    servers_s += drawn.weight * s;
                    completions += drawn.weight * n;
                }
                let idle = device.slack * random.random::<f64>();
                throughputs.push((device.device, servers_s, completions, idle));
            }
        }
        let totals: Vec<Sums> = steps.iter().map(|s| s.1.clone()).collect();
        let devices = gathered.devices.len();
        if let Ok(estimates) = estimate::estimate(&totals, devices, gathered.client_queue) {
            all.push(Replicate { steps, estimates, saturated: throughputs });
        }
    }
    all
}

/// The resamplings as columns of a model. SCVs are those of one device: `scv_within` times the
/// class's.
pub(super) fn replicates(
    all: &[Replicate],
    classes: &[ClassParameters],
    scv_within: &[f64],
) -> Replicates {
    let mut found = Replicates { columns: Vec::new(), rows: vec![Vec::new(); all.len()] };
    let mut add = |name: &str, of: &dyn Fn(&Estimates) -> f64| {
        found.set(name, |i, _| all.get(i).map_or(f64::NAN, |r| of(&r.estimates)));
    };
    add("q0", &|e| e.q0);
    add("alpha", &|e| e.alpha);
    add("other_share", &|e| e.other_share);
    add("front_delay", &|e| e.delay);
    add("joining", &|e| e.joining);
    add("joining_knee", &|e| e.joining_knee);
    add("spotify_q0", &|e| e.spotify_q0);
    add("spotify_alpha", &|e| e.spotify_alpha);
    add("spotify_mu_d", &|e| e.spotify_mu_d);
    for (i, (class, within)) in classes.iter().zip(scv_within).enumerate() {
        add(&format!("mean_s.{}", class.name), &|e| e.classes[i].0);
        add(&format!("scv.{}", class.name), &|e| e.classes[i].1 * within);
        if class.background.is_some() {
            add(&format!("other_rate.{}", class.name), &|e| e.others[i].0);
            add(&format!("other_mean_s.{}", class.name), &|e| e.others[i].1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_within_a_hundredth_are_repetitions() {
        let rates = [100.0, 200.0, 100.5, 201.0, 300.0, 100.9];
        assert_eq!(repetitions(&rates), [vec![0, 2, 5], vec![1, 3], vec![4]]);
        assert!(repetitions(&[]).is_empty());
    }

    /// The mean of r independent repetitions has the variance σ²/r; so must the resampled mean
    /// have, in expectation over what the repetitions were.
    #[test]
    fn the_variance_of_resampled_means_is_unbiased() {
        let mut random = StdRng::seed_from_u64(3);
        for repeated in [2, 3, 5, 8] {
            let groups = vec![(0..repeated).collect::<Vec<_>>()];
            let (mut total, worlds, draws) = (0.0, 400, 60);
            for _ in 0..worlds {
                // Uniform observations of variance 1/12, one block each.
                let seen: Vec<f64> = (0..repeated).map(|_| random.random::<f64>()).collect();
                let mean_of = |drawn: Vec<StepDraw>| {
                    let n: f64 = drawn.iter().map(|d| d.weight).sum();
                    assert!((n - repeated as f64).abs() < 1e-9, "a load keeps its weight");
                    drawn.iter().map(|d| d.weight * seen[d.step]).sum::<f64>() / n
                };
                let means: Vec<f64> =
                    (0..draws).map(|_| mean_of(draw(&mut random, &groups, &|_| 1))).collect();
                let centre = means.iter().sum::<f64>() / f64::from(draws);
                total +=
                    means.iter().map(|m| (m - centre).powi(2)).sum::<f64>() / f64::from(draws - 1);
            }
            let ratio = total / f64::from(worlds) * 12.0 * repeated as f64;
            assert!((ratio - 1.0).abs() < 0.1, "{repeated} repetitions: {ratio}");
        }
    }

    #[test]
    fn one_step_is_drawn_by_its_blocks() {
        let mut random = StdRng::seed_from_u64(4);
        let drawn = draw(&mut random, &[vec![7]], &|_| 50);
        assert_eq!((drawn.len(), drawn[0].step, drawn[0].weight), (1, 7, 1.0));
        assert_eq!(drawn[0].blocks.len(), 50);
        assert!((1..50).any(|i| drawn[0].blocks[i] != drawn[0].blocks[i - 1] + 1));
        let whole = draw(&mut random, &[vec![0, 1, 2, 3]], &|_| 3);
        assert!(whole.len() == 3 && whole.iter().all(|d| d.blocks == [0, 1, 2]));
    }
}
