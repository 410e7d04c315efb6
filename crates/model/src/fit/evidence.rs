//! Estimates the mean service time from three kinds of evidence.
//!
//! At 90 % utilisation 1 % of the service rate is 3.5 points of the response-time distribution, so
//! the mean service time b is estimated from three kinds of evidence (of each class of devices):
//!
//! - **recorded services** of the steady steps: their exact sums.
//! - **throughput at saturation**: a device that is never idle completes one read in b, whatever
//!   service times were recorded. It is correct even if the servers pause between reads or times
//!   are coarse (iostat). The recorded services of saturated steps are not used, because they
//!   repeat the same observation. The time for which a device may have been idle (at most 0.5 %)
//!   widens the interval.
//! - **the clients' responses** in the steady steps: the factor on b that maximises their
//!   likelihood. Counts of responses between 24 quantiles are multinomial, and the factor is found
//!   by Fisher's scoring. This needs a node with one class of devices: with several, responses do
//!   not identify each class's b.
//!
//! The estimates are combined in the logarithm of b, weighted by precision. Services and responses
//! come from the same seconds and depend on each other, so they are combined by the best linear
//! combination under their covariance (weights within 0 to 1). Throughput comes from other seconds
//! and is weighted by inverse variance. Variances come from the block bootstrap and are never less
//! than those of independent services. Each resampling is combined with the same weights, so that
//! every prediction carries the joint interval.
//!
//! Evidence that contradicts the rest by more than 3 standard errors is not averaged. Responses are
//! then ignored (arrivals burstier than Poisson also lengthen them), and throughput replaces the
//! rest (it rests on counts, not on recorded times). A warning reports this.
//!
//! Source: maximum likelihood for grouped data, as in C. R. Rao, "Linear Statistical Inference and
//! Its Applications". Cost: three models at 24 times for each of at most 6 rounds. Limitation: if a
//! device serves faster when its queue is long (because it reorders reads), the throughput holds at
//! high loads only.

use crate::distribution::{Empirical, ServiceTime};
use crate::error::Error;
use crate::model_file::{Evidence, EvidenceSource, Model, Parameter};
use crate::queue::ArrivalLaw;
use crate::storage::{Node, NodeAt, Operating};

use super::data::Gathered;
use super::resample::Replicate;
use super::sums::Sums;

/// Number of standard errors from which evidence contradicts the rest.
const CONTRADICTS: f64 = 3.0;
/// Relative differences below this never contradict, because they change little.
const SMALL: f64 = 0.005;
/// Standard error of ln b that the resolution of the law's shape adds to the evidence of responses.
const SHAPE_ERROR: f64 = 0.003;
/// The smallest number of resamplings of a variance.
const REPLICATES_MIN: usize = 8;
/// Step in ln b of the differences that give the likelihood's slope.
const STEP: f64 = 0.005;

/// An estimate of ln b, and the estimate of each resampling.
#[derive(Clone, Debug)]
struct ResampledEstimate {
    value: f64,
    replicates: Vec<f64>,
    /// Lower bound of the variance.
    floor: f64,
}

impl ResampledEstimate {
    fn variance(&self) -> f64 {
        covariance(&self.replicates, &self.replicates).unwrap_or(0.0).max(self.floor).max(1e-16)
    }

    /// (1 − weight)·self + weight·other, with `shared` their covariance.
    fn mix(&self, other: &ResampledEstimate, weight: f64, shared: f64) -> ResampledEstimate {
        let rest = 1.0 - weight;
        let mix = |a: f64, b: f64| rest * a + weight * b;
        let floor = rest * rest * self.variance()
            + weight * weight * other.variance()
            + 2.0 * rest * weight * shared;
        let pairs = self.replicates.iter().zip(&other.replicates);
        let replicates = pairs.map(|(a, b)| mix(*a, *b)).collect();
        ResampledEstimate { value: mix(self.value, other.value), replicates, floor }
    }

    fn parameter(&self) -> Parameter {
        let all: Vec<f64> = self.replicates.iter().map(|x| x.exp()).collect();
        Parameter::from_replicates(self.value.exp(), &all, "s")
    }

    /// Whether it differs from another estimate by more than chance, with `shared` their
    /// covariance.
    fn contradicts(&self, other: &ResampledEstimate, shared: f64) -> bool {
        let difference = (self.value - other.value).abs();
        let variance = (self.variance() + other.variance() - 2.0 * shared).max(0.0);
        difference > SMALL && difference > CONTRADICTS * variance.sqrt()
    }
}

/// Covariance of resamplings; `None` if there are too few.
fn covariance(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().min(b.len());
    if n < REPLICATES_MIN {
        return None;
    }
    let (a, b) = (a.get(..n)?, b.get(..n)?);
    let mean = |v: &[f64]| v.iter().sum::<f64>() / n as f64;
    let (x, y) = (mean(a), mean(b));
    let products = a.iter().zip(b).map(|(p, q)| (p - x) * (q - y));
    Some(products.sum::<f64>() / (n - 1) as f64).filter(|c| c.is_finite())
}

/// Weight of the second of two estimates in their best linear combination, clamped to 0 to 1.
fn best_weight(first: f64, second: f64, shared: f64) -> f64 {
    let total = first + second - 2.0 * shared;
    if total > 0.0 { ((first - shared) / total).clamp(0.0, 1.0) } else { 0.0 }
}

/// Combines the evidence on each class's mean service time, writes the result into the model
/// (means, replicates, `evidence`), and returns warnings of contradictions. The rows of the model's
/// replicates correspond to `replicates`.
pub(super) fn combine(
    model: &mut Model,
    gathered: &Gathered,
    factors: &[f64],
    replicates: &[Replicate],
) -> Result<Vec<String>, Error> {
    let mut warnings = Vec::new();
    let responses = match model.classes.len() {
        1 => responses(model, gathered, replicates)?,
        _ => None,
    };
    for index in 0..model.classes.len() {
        let class = &model.classes[index];
        let others = class.background.as_ref().map_or(0.0, |b| b.rate.value * b.mean.value);
        let left = (1.0 - others / f64::from(class.servers.max(1))).max(0.01);
        let (name, scv, mean) = (class.name.clone(), class.service.scv.value, &class.service.mean);
        let count: f64 = gathered.steps.iter().map(|s| s.total.classes[index].n).sum();
        let of = |r: &Replicate| r.estimates.classes[index].0.ln();
        let services = ResampledEstimate {
            value: mean.value.ln(),
            replicates: replicates.iter().map(of).collect(),
            floor: scv / count.max(1.0),
        };
        let mut evidence = vec![(EvidenceSource::Services, services.clone(), 1.0)];
        let mut joint = services.clone();
        if let Some(responses) = &responses {
            let shared = covariance(&services.replicates, &responses.replicates).unwrap_or(0.0);
            let contradicts = responses.contradicts(&services, shared);
            let weight = best_weight(services.variance(), responses.variance(), shared);
            let weight = if contradicts { 0.0 } else { weight };
            if contradicts {
                warnings.push(format!(
                    "Responses suggest a service time of class {name} that differs by {:+.1} % from the recorded \
                     one. Arrivals may not be Poisson, or requests may wait outside of the devices; the \
                     responses are not used as evidence of the service time.",
                    ((responses.value - services.value).exp() - 1.0) * 100.0
                ));
            }
            joint = services.mix(responses, weight, shared);
            evidence[0].2 = 1.0 - weight;
            evidence.push((EvidenceSource::Responses, responses.clone(), weight));
        }
        if let Some(throughput) = throughput(gathered, index, scv, factors, left, replicates) {
            let contradicts = throughput.contradicts(&joint, 0.0);
            let weight = best_weight(joint.variance(), throughput.variance(), 0.0);
            let weight = if contradicts { 1.0 } else { weight };
            if contradicts {
                warnings.push(format!(
                    "At saturation the time per read at a device of class {name} differs by {:+.1} % from the \
                     recorded service time; the throughput is used.",
                    ((throughput.value - joint.value).exp() - 1.0) * 100.0
                ));
            }
            joint = joint.mix(&throughput, weight, 0.0);
            evidence.iter_mut().for_each(|e| e.2 *= 1.0 - weight);
            evidence.push((EvidenceSource::Saturation, throughput, weight));
        }
        let mean = joint.parameter();
        let drawn = |i: usize, before: f64| joint.replicates.get(i).map_or(before, |b| b.exp());
        model.replicates.change(&format!("mean_s.{name}"), drawn);
        model.classes[index].service.mean = mean;
        model.evidence.extend(evidence.into_iter().map(|(source, known, weight)| Evidence {
            class: name.clone(),
            source,
            mean: known.parameter(),
            weight,
        }));
    }
    Ok(warnings)
}

/// ln b of a class from its saturated devices; `None` if there are none. `factors`: each device's
/// mean service time relative to its class's. `left`: the share of the devices' time that other
/// work leaves to the reads.
fn throughput(
    gathered: &Gathered,
    class: usize,
    scv: f64,
    factors: &[f64],
    left: f64,
    replicates: &[Replicate],
) -> Option<ResampledEstimate> {
    let ours = |device: usize| gathered.devices.get(device).is_some_and(|d| d.class == class);
    let factor = |device: usize| factors.get(device).copied().unwrap_or(1.0);
    let log =
        |(servers_s, reads): (f64, f64)| Some((servers_s / reads).ln()).filter(|x| x.is_finite());
    let (mut all, mut slack, mut count) = ((0.0, 0.0), 0.0f64, 0.0);
    for device in gathered.saturated.iter().flat_map(|s| &s.devices) {
        for (servers_s, reads) in device.blocks.iter().filter(|_| ours(device.device)) {
            // On average, half of the time that may have been idle was idle.
            all.0 += servers_s * (1.0 - 0.5 * device.slack);
            all.1 += reads * factor(device.device);
            count += reads;
            slack = slack.max(device.slack);
        }
    }
    let value = log((all.0 * left, all.1))?;
    let of = |r: &Replicate| {
        let drawn = r.saturated.iter().filter(|d| ours(d.0));
        let add = |(time, reads): (f64, f64),
                   (device, servers_s, n, idle): &(usize, f64, f64, f64)| {
            (time + servers_s * (1.0 - idle), reads + n * factor(*device))
        };
        let (time, reads) = drawn.fold((0.0, 0.0), add);
        // A resampling without such a device keeps the estimate.
        log((time * left, reads)).unwrap_or(value)
    };
    let replicates = replicates.iter().map(of).collect();
    // A uniform error over the slack has the variance slack²/12.
    Some(ResampledEstimate {
        value,
        replicates,
        floor: scv / count.max(1.0) + slack * slack / 12.0,
    })
}

/// The model's shares between edges in a step, and their derivatives by ln b and by the logarithm
/// of the load.
struct Expected {
    shares: Vec<f64>,
    by_mean: Vec<f64>,
    by_load: Vec<f64>,
}

/// A node whose mean service times are `exp(shift)` times those of the model.
fn scaled(node: &Node, shift: f64) -> Result<Node, Error> {
    let mut node = node.clone();
    for class in &mut node.classes {
        let law: &Empirical = &class.service;
        class.service = law.with_moments(law.mean() * shift.exp(), law.scv())?;
    }
    Ok(node)
}

/// Shares between successive CDFs, including those before the first and after the last.
fn between(within: &[f64], all: f64) -> Vec<f64> {
    let ends = within.iter().copied().chain([all]);
    let starts = [0.0].into_iter().chain(within.iter().copied());
    ends.zip(starts).map(|(end, start)| end - start).collect()
}

/// Cost: [`Node::at_time`] at each edge for three nodes. `None` if the model is not stable.
fn expected(node: &Node, edges: &[f64], rates: &[f64]) -> Result<Option<Vec<Expected>>, Error> {
    let nodes = [scaled(node, 0.0)?, scaled(node, STEP)?, scaled(node, -STEP)?];
    let at = |node: &Node| edges.iter().map(|t| node.at_time(*t)).collect::<Vec<NodeAt>>();
    let ats = nodes.each_ref().map(at);
    let mut all = Vec::new();
    for &rate in rates {
        let shares = |which: usize, rate: f64| -> Option<Vec<f64>> {
            let stands: Operating = nodes[which].operating(rate).ok()?;
            let within: Vec<f64> = ats[which].iter().map(|at| at.cdf(&stands)).collect();
            Some(between(&within, 1.0))
        };
        let slope = |up: &[f64], down: &[f64]| {
            up.iter().zip(down).map(|(u, d)| (u - d) / (2.0 * STEP)).collect::<Vec<f64>>()
        };
        let (more, less) = (rate * STEP.exp(), rate * (-STEP).exp());
        let five =
            (shares(0, rate), shares(1, rate), shares(2, rate), shares(0, more), shares(0, less));
        let (Some(here), Some(slower), Some(faster), Some(up), Some(down)) = five else {
            return Ok(None);
        };
        all.push(Expected {
            by_mean: slope(&slower, &faster),
            by_load: slope(&up, &down),
            shares: here,
        });
    }
    Ok(Some(all))
}

/// Score and information of ln b from one step's counts; `None` without responses.
fn score(expected: &Expected, seen: &Sums, load: f64) -> Option<(f64, f64)> {
    let counts = between(&seen.within, seen.requests);
    let n = seen.requests;
    // A bin that is nearly empty by the model must not decide alone.
    let least = 0.1 / counts.len() as f64;
    let (mut score, mut information) = (0.0, 0.0);
    for (i, count) in counts.iter().enumerate() {
        let share = expected.shares.get(i)?;
        let (slope, by_load) = (expected.by_mean.get(i)?, expected.by_load.get(i)?);
        let weight = n * slope / share.max(least);
        score += weight * (count / n - share - by_load * load);
        information += weight * slope;
    }
    (n > 0.0 && score.is_finite() && information > 0.0).then_some((score, information))
}

/// ln b by the likelihood of the clients' responses; `None` if they carry no information on it.
fn responses(
    model: &Model,
    gathered: &Gathered,
    replicates: &[Replicate],
) -> Result<Option<ResampledEstimate>, Error> {
    if replicates.len() < REPLICATES_MIN || gathered.edges_s.len() < 4 {
        return Ok(None);
    }
    let (Some(class), mut node) = (model.classes.first(), model.node()?) else { return Ok(None) };
    // The queue in bursts is an approximation with errors of several points, not evidence of a
    // percent.
    node.arrivals = ArrivalLaw::Poisson;
    let rates: Vec<f64> = gathered.steps.iter().map(|s| s.total.rate()).collect();
    let mut shift: f64 = 0.0;
    let (mut found, mut settled) = (None, false);
    for _ in 0..6 {
        let all = expected(&scaled(&node, shift)?, &gathered.edges_s, &rates)?;
        let Some(all) = all else { return Ok(None) };
        let parts = all.iter().zip(&gathered.steps).filter_map(|(e, s)| score(e, &s.total, 0.0));
        let (up, down) = parts.fold((0.0, 0.0), |(a, b), (s, i)| (a + s, b + i));
        if down <= 0.0 {
            return Ok(None);
        }
        settled = (up / down).abs() < 2e-4;
        found = Some((all, shift, up / down));
        if settled {
            break;
        }
        shift = (shift + (up / down).clamp(-0.1, 0.1)).clamp(-0.7, 0.7);
    }
    let Some((all, shift, rest)) = found.filter(|_| settled) else { return Ok(None) };
    let base = class.service.mean.value.ln() + shift;
    // A resampling takes one step of the scoring from there: its responses belong to its own load.
    let of = |replicate: &Replicate| {
        let parts = replicate.steps.iter().filter_map(|(step, sums)| {
            let load = (sums.rate() / rates.get(*step)?).ln();
            score(all.get(*step)?, sums, load)
        });
        let (up, down) = parts.fold((0.0, 0.0), |(a, b), (s, i)| (a + s, b + i));
        if down > 0.0 { base + (up / down).clamp(-0.5, 0.5) } else { base }
    };
    let replicates: Vec<f64> = replicates.iter().map(of).collect();
    let chance = covariance(&replicates, &replicates).unwrap_or(0.0);
    Ok(Some(ResampledEstimate {
        value: base + rest,
        replicates,
        floor: chance + SHAPE_ERROR.powi(2),
    }))
}

#[cfg(test)]
mod tests;
