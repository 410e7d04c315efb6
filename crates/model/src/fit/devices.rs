//! Finds devices whose share of the reads or service time differs by more than chance.

use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::model_file::Devices;

use super::data::{DeviceData, Gathered};

/// Groups of devices for the model.
pub(super) struct Groups {
    pub groups: Vec<Devices>,
    /// Mean service time of each device relative to its class's; 1 if devices do not differ.
    pub factors: Vec<f64>,
    /// SCV of one device relative to that of its class's pooled services; 1 if devices do not
    /// differ.
    pub scv_within: Vec<f64>,
    /// Names of the classes whose devices differ in service.
    pub differ: Vec<String>,
}

/// Largest number of groups of a class: more would slow down every prediction without benefit.
const GROUPS_MAX: usize = 16;
/// Largest number of distinct service factors of a class.
const FACTORS_MAX: usize = 6;

/// Significance level of differences between devices: the probability of differences this large
/// among equal devices.
const SIGNIFICANCE: f64 = 0.001;

/// Shrinks observations to their mean by as much as their known noise explains of their scatter
/// (empirical Bayes): all become equal if noise explains all of it, and none change without noise.
fn shrink(values: &[f64], target: f64, noise: f64) -> Vec<f64> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return vec![target; values.len()];
    }
    let scatter = values.iter().map(|x| (x - target).powi(2)).sum::<f64>() / (n - 1.0);
    let keep = if scatter > 0.0 { (1.0 - noise / scatter).max(0.0) } else { 0.0 };
    values.iter().map(|x| target + (x - target) * keep).collect()
}

/// Mean service time of each device relative to the class's (1 for all if they do not differ
/// significantly), and the part of the class's variance that is within devices.
fn factors(devices: &[&DeviceData]) -> (Vec<f64>, f64) {
    let equal = (vec![1.0; devices.len()], 1.0);
    let seen: Vec<_> = devices.iter().filter(|d| d.service.n >= 30.0).collect();
    let n: f64 = seen.iter().map(|d| d.service.n).sum();
    let sum: f64 = seen.iter().map(|d| d.service.sum).sum();
    if seen.len() < 2 || sum <= 0.0 {
        return equal;
    }
    let mean = sum / n;
    let within = |d: &DeviceData| d.service.squares - d.service.sum.powi(2) / d.service.n;
    let variance = seen.iter().map(|d| within(d).max(0.0)).sum::<f64>() / (n - seen.len() as f64);
    let distance = |d: &DeviceData| d.service.n * (d.service.sum / d.service.n - mean).powi(2);
    let between: f64 = seen.iter().map(|d| distance(d)).sum();
    // Devices with constant times have no variance, so any difference is real.
    let statistic = if variance > 0.0 { between / variance } else { f64::INFINITY };
    let chance = ChiSquared::new((seen.len() - 1) as f64).map_or(1.0, |law| law.sf(statistic));
    // Differences below a thousandth change no prediction.
    let small = (between / n).sqrt() < 1e-3 * mean;
    if between <= 0.0 || chance > SIGNIFICANCE || small {
        return equal;
    }
    let observed: Vec<f64> = devices
        .iter()
        .map(|d| if d.service.n >= 30.0 { d.service.sum / d.service.n / mean } else { 1.0 })
        .collect();
    let noise = variance / (mean * mean) * seen.len() as f64 / n;
    let mut all = shrink(&observed, 1.0, noise);
    // The mean of the class is the mean over reads.
    let reads: f64 = devices.iter().map(|d| d.service.n).sum();
    let centre = all.iter().zip(devices).map(|(f, d)| f * d.service.n).sum::<f64>() / reads;
    all.iter_mut().for_each(|f| *f = (*f / centre).max(1e-3));
    // The SCV of a device scaled to factor 1: its variance over its own mean squared.
    let own = seen
        .iter()
        .map(|d| within(d).max(0.0) / (d.service.sum / d.service.n).powi(2))
        .sum::<f64>()
        / n;
    let pooled = seen.iter().map(|d| d.service.squares).sum::<f64>() / n / (mean * mean) - 1.0;
    (all, if pooled > 0.0 { (own / pooled).clamp(0.0, 1.0) } else { 1.0 })
}

/// Bins of values (sorted indexes), each value within a factor 1 + tolerance of its bin's first;
/// the tolerance grows from 0.2 % until there are at most `most` bins.
fn bins(values: &[f64], indexes: &[usize], most: usize) -> Vec<Vec<usize>> {
    let mut sorted = indexes.to_vec();
    sorted.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut tolerance = 0.002;
    loop {
        let mut bins: Vec<Vec<usize>> = Vec::new();
        for &i in &sorted {
            match bins.last_mut() {
                Some(bin) if values[i] <= values[bin[0]] * (1.0 + tolerance) => bin.push(i),
                _ => bins.push(vec![i]),
            }
        }
        if bins.len() <= most || tolerance > 1e9 {
            return bins;
        }
        tolerance *= 1.5;
    }
}

/// Groups the devices of each class by service factor and share.
pub(super) fn group(gathered: &Gathered) -> Groups {
    let total: f64 = gathered.devices.iter().map(|d| d.reads).sum::<f64>().max(1.0);
    let mut result = Groups {
        groups: Vec::new(),
        factors: vec![1.0; gathered.devices.len()],
        scv_within: Vec::new(),
        differ: Vec::new(),
    };
    for (index, class) in gathered.classes.iter().enumerate() {
        let devices: Vec<&DeviceData> =
            gathered.devices.iter().filter(|d| d.class == index).collect();
        let observed: Vec<f64> = devices.iter().map(|d| d.reads / total).collect();
        let mean = observed.iter().sum::<f64>() / devices.len().max(1) as f64;
        let shares = shrink(&observed, mean, mean / total);
        let (factors, within) = factors(&devices);
        let ours = gathered.devices.iter().zip(&mut result.factors).filter(|d| d.0.class == index);
        ours.zip(&factors).for_each(|((_, known), factor)| *known = *factor);
        if factors.iter().any(|f| *f != 1.0) {
            result.differ.push(class.name.clone());
        }
        result.scv_within.push(within);
        let all: Vec<usize> = (0..devices.len()).collect();
        for same in bins(&factors, &all, FACTORS_MAX) {
            let average = |values: &[f64], of: &[usize]| {
                of.iter().map(|i| values[*i]).sum::<f64>() / of.len() as f64
            };
            let factor = average(&factors, &same);
            for bin in bins(&shares, &same, GROUPS_MAX) {
                result.groups.push(Devices {
                    class: class.name.clone(),
                    count: bin.len() as u32,
                    share: average(&shares, &bin).max(0.0),
                    factor,
                });
            }
        }
    }
    // Shrinking and rounding may leave a sum of shares other than 1.
    let sum: f64 = result.groups.iter().map(|g| f64::from(g.count) * g.share).sum();
    if sum > 0.0 {
        result.groups.iter_mut().for_each(|g| g.share /= sum);
    } else {
        let devices = gathered.devices.len().max(1) as f64;
        result.groups.iter_mut().for_each(|g| g.share = 1.0 / devices);
    }
    result
}
