//! What the formula says beside what `concertina simulate` says: the code that serves, in virtual
//! time, given the configuration that was measured.

use std::path::Path;

use anyhow::Context as _;
use ground::window::QueueName;
use model::ClusterModel;
use model::statistics::batch_means;
use record::RunFolder;
use serde::Deserialize;

use super::super::lab::{self, Catalogue};
use super::config::WITHIN_S;
use crate::claims::{Claim, Goal};

/// Runs of each load, with other random numbers: their spread is the simulation's own.
const SEEDS: u64 = 4;
/// Largest difference that is claimed, points.
const GOAL_POINTS: f64 = 2.0;

/// What the command prints, as far as it is read here.
#[derive(Deserialize)]
struct Printed {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    arrivals: u64,
    /// Objectives in milliseconds, and the share within each.
    within: Vec<(f64, f64)>,
}

/// One state of a cluster at some loads.
pub struct State<'a> {
    /// Its name.
    pub of: String,
    /// The configuration of one of its nodes.
    pub config: &'a Path,
    /// `--slow NAME:SPEED`, if a node is.
    pub slow: Option<String>,
    /// Loads, requests/s.
    pub rates: &'a [f64],
    /// Mean time of a call to the origin, seconds, as the nodes measured it.
    pub origin_s: Option<f64>,
}

/// The mean time of a call to the origin over the runs of nodes. An object that was not compared with the origin for
/// `node.revalidate_s` is compared before it is served: one request in six at the loads of the short form. The time that the
/// simulator takes for it unless told, 5 ms, cost 2 points of P(T ≤ 20 ms), where the folder of this experiment takes some 0.1 ms.
pub fn origin_s(nodes: &[(String, RunFolder)]) -> Option<f64> {
    let windows = nodes.iter().flat_map(|(_, run)| &run.windows);
    let times = windows.filter(|window| window.is_of(QueueName::Origin)).flat_map(|w| &w.times);
    let (mut sum_s, mut count) = (0.0, 0);
    for times in times {
        sum_s += times.service.mean_s() * times.service.count() as f64;
        count += times.service.count();
    }
    (count > 0).then(|| sum_s / count as f64)
}

impl State<'_> {
    /// The largest difference between the formula and the simulation; run folders are `out` with
    /// other extensions.
    pub fn claim(
        &self,
        model: &ClusterModel,
        catalogue: &Catalogue,
        out: &Path,
    ) -> anyhow::Result<Claim> {
        let mut runs = Vec::new();
        for seed in 1..=SEEDS {
            let out = out.with_extension(format!("simulation-{seed}"));
            runs.push(self.simulate(catalogue, seed, &out)?);
        }
        let (mut worst, mut widest, mut samples) = ((0.0, 0.0, 0.0), 0.0_f64, 0);
        for (index, &rate) in self.rates.iter().enumerate() {
            samples += runs.iter().map(|run| run[index].arrivals).sum::<u64>();
            for t_s in WITHIN_S {
                let shares: Vec<f64> =
                    runs.iter().map(|run| share_within(&run[index], t_s)).collect();
                let simulated = batch_means(&shares).context("a simulation has no answers")?;
                let formula = model.cluster().cdf(rate, &[t_s])?.into_iter().sum::<f64>();
                let difference = (formula - simulated.mean).abs() * 100.0;
                widest = widest.max(simulated.half_width * 100.0);
                if difference >= worst.0 {
                    worst = (difference, rate, t_s);
                }
            }
        }
        let (value, rate, t_s) = worst;
        let name = format!(
            "{}: |formula − simulation| of P(T ≤ t), worst at {rate:.0}/s and {} ms",
            self.of,
            t_s * 1e3
        );
        let claim = Claim::new(name, value, widest, "points", samples);
        Ok(claim.with_goal(Goal::AtMost(GOAL_POINTS)))
    }

    fn simulate(&self, catalogue: &Catalogue, seed: u64, out: &Path) -> anyhow::Result<Vec<Step>> {
        let rates: Vec<String> = self.rates.iter().map(f64::to_string).collect();
        let mut arguments = catalogue.simulated();
        arguments.extend([
            "--rate".to_owned(),
            rates.join(","),
            format!("--seed={seed}"),
            "--duration=200s".to_owned(),
            "--warmup=100s".to_owned(),
            "--out".to_owned(),
            out.display().to_string(),
        ]);
        arguments.extend(self.origin_s.map(|mean_s| format!("--origin={:.6}ms", mean_s * 1e3)));
        arguments.extend(self.slow.clone());
        let text = lab::simulate(self.config, &arguments)?;
        let printed: Printed =
            serde_json::from_str(&text).context("the simulation printed something else")?;
        anyhow::ensure!(printed.steps.len() == self.rates.len(), "the simulation left out loads");
        Ok(printed.steps)
    }
}

fn share_within(step: &Step, t_s: f64) -> f64 {
    let found = step.within.iter().find(|(ms, _)| (ms / 1e3 - t_s).abs() < 1e-9);
    found.map_or(f64::NAN, |(_, share)| *share)
}
