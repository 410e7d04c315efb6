//! Fits and compares clusters: the load generator's run together with one run folder for each node.
//!
//! Each node is fitted alone. Its `gateway` queue (its HTTP side, whose clients are the gateways)
//! takes the place of the clients; the generator's run only provides the times and rates of the
//! steps. The delay that gateway and network add is the difference of the two sides. Finally the
//! clients' measurements are compared with the prediction of the [`ClusterModel`] for the whole
//! cluster.

use model::fit::{FrontStep, front_delay};
use model::{ClusterLimits, ClusterModel, ClusterNode, ClusterPrediction, HeldOut, Parameter};
use serde::Serialize;

use super::compare::{Row, StepData, rows_of};
use super::coverage::{self, Between};
use super::error::Error;
use super::measured::{StepFigures, measure};
use super::objective::{Objective, digits};
use super::steps::{Observed, ObservedStep, Selection, run_name, same_step};
use record::RunFolder;

/// The runs of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterRuns {
    /// Runs of the load generator.
    pub load: Vec<RunFolder>,
    /// The run of each node, with the node's name in the ring.
    pub nodes: Vec<(String, RunFolder)>,
}

impl ClusterRuns {
    /// The steps as the clients measured them. The device windows are those of the first node.
    fn clients(&self, selection: &Selection) -> Result<Observed, Error> {
        let first = self.nodes.iter().take(1).map(|(_, run)| run);
        Ok(shared(Observed::new(self.load.iter().chain(first).cloned().collect(), selection)?))
    }

    /// The steps as each node measured them, without the clients' windows.
    fn nodes(&self, selection: &Selection) -> Result<Vec<Observed>, Error> {
        let steps = || {
            self.load.iter().cloned().map(|mut run| {
                run.windows = Vec::new();
                run
            })
        };
        let observe = |(_, run): &(String, RunFolder)| {
            Ok(shared(Observed::new(steps().chain([run.clone()]).collect(), selection)?))
        };
        self.nodes.iter().map(observe).collect()
    }

    /// The figures of a step for each node, in the order of the nodes.
    fn nodes_measured(&self, figures: &[StepFigures]) -> Vec<NodeMeasured> {
        let all: f64 = figures.iter().map(|m| m.rate).sum::<f64>().max(f64::MIN_POSITIVE);
        let names = self.nodes.iter().map(|(name, _)| name);
        let of_node = |(name, m): (&String, &StepFigures)| NodeMeasured {
            name: name.clone(),
            rate: m.rate,
            share: m.rate / all,
            hit_ratio: m.hit_ratio.value,
            utilisation: m.utilisation_mean,
            device_queue_length_mean: m.device_length_mean,
        };
        names.zip(figures).map(of_node).collect()
    }
}

/// Marks steps whose requests were shared with other nodes.
fn shared(mut observed: Observed) -> Observed {
    observed.steps.iter_mut().for_each(|step| step.alone = false);
    observed
}

/// The result of fitting the runs of a cluster.
#[derive(Clone, Debug)]
pub struct FittedCluster {
    /// The nodes, with their measured shares of the requests.
    pub nodes: Vec<ClusterNode>,
    /// The delay that gateway and network add, seconds.
    pub delay: Parameter,
    /// The steps that were fitted.
    pub steps: Vec<String>,
    /// Errors of the cluster's model at the clients, on held-out steps.
    pub held_out: Vec<HeldOut>,
    /// How the hit ratio depends on memory, in the syntax of [`super::popularity`]; `None` if
    /// unknown.
    pub popularity: Option<String>,
}

impl FittedCluster {
    /// Makes the cluster's model.
    ///
    /// # Errors
    /// If the shares do not add up to 1.
    pub fn model(&self) -> Result<ClusterModel, model::Error> {
        ClusterModel::new(&self.nodes, self.delay.clone())?.with_held_out(self.held_out.clone())
    }
}

/// Fits every node and the delay of gateway and network, then judges the whole at the clients.
pub fn fit(runs: &ClusterRuns, selection: &Selection, title: &str) -> Result<FittedCluster, Error> {
    let clients = runs.clients(selection)?;
    let nodes = runs.nodes(selection)?;
    let front: Vec<FrontStep> = clients
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| !step.held_out)
        .map(|(i, step)| FrontStep {
            name: step.name().to_owned(),
            client: step.windows.load.clone(),
            nodes: nodes.iter().map(|n| n.steps[i].windows.gateway.clone()).collect(),
        })
        .collect();
    let arrivals: Vec<f64> = nodes.iter().map(arrivals).collect();
    let total: f64 = arrivals.iter().sum::<f64>().max(1.0);
    let mut fitted = Vec::new();
    for (((name, _), observed), arrivals) in runs.nodes.iter().zip(&nodes).zip(arrivals) {
        let about = observed.about(&format!("{title}: node {name}"));
        let model = super::held_out::fit(observed, about)?;
        fitted.push(ClusterNode { name: name.clone(), model, share: arrivals / total });
    }
    let delay = front_delay(&front)?;
    let model = ClusterModel::new(&fitted, delay.clone())?;
    Ok(FittedCluster {
        held_out: super::held_out::judge_cluster(&model, &clients)?,
        nodes: fitted,
        delay,
        steps: clients.fit_steps().into_iter().map(|step| step.name).collect(),
        popularity: None,
    })
}

/// The number of requests that reached a node in the fitted steps.
fn arrivals(observed: &Observed) -> f64 {
    let fitted = observed.steps.iter().filter(|step| !step.held_out);
    let windows = fitted.flat_map(|s| {
        let w = &s.windows;
        if w.gateway.is_empty() { &w.node } else { &w.gateway }
    });
    windows.map(|w| w.arrivals as f64).sum()
}

/// The measured figures of a node in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeMeasured {
    /// Its name.
    pub name: String,
    /// Arrivals at the node, requests/s.
    pub rate: f64,
    /// Its share of all nodes' arrivals.
    pub share: f64,
    /// Share of its requests answered from memory.
    pub hit_ratio: f64,
    /// Mean utilisation of its devices.
    pub utilisation: f64,
    /// Mean number of requests at a device.
    pub device_queue_length_mean: f64,
}

/// A step of a cluster with its measurement and prediction.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStep {
    /// Its name: the run's folder and its number in the sweep.
    pub name: String,
    /// Whether the nodes' models were fitted to this step.
    pub used_for_fit: bool,
    /// The measurement at the clients.
    pub measured: StepFigures,
    /// The measured figures of each node.
    pub nodes: Vec<NodeMeasured>,
    /// The model's prediction; `None` if the load is unstable.
    pub prediction: Option<ClusterPrediction>,
    /// The reason why there is no prediction.
    pub unstable: Option<String>,
}

impl ClusterStep {
    /// A step as the clients measured it, with its prediction.
    fn predicted(
        observed: &ObservedStep,
        model: &ClusterModel,
        within_s: &[f64],
    ) -> Result<ClusterStep, Error> {
        let measured = measure(observed, within_s);
        let (prediction, unstable) = match model.predict(measured.rate, within_s) {
            Ok(prediction) => (Some(prediction), None),
            Err(error @ model::Error::Unstable { .. }) => (None, Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        Ok(ClusterStep {
            name: observed.name().to_owned(),
            used_for_fit: false,
            measured,
            nodes: Vec::new(),
            prediction,
            unstable,
        })
    }

    fn data(&self) -> StepData<'_> {
        let prediction = self.prediction.as_ref();
        let utilisation = self.nodes.iter().map(|n| n.utilisation).sum::<f64>();
        StepData {
            step: &self.name,
            measured: &self.measured,
            utilisation: utilisation / self.nodes.len().max(1) as f64,
            points: prediction.map(|p| p.points.as_slice()),
            beyond_limit: prediction.is_none_or(|p| p.beyond_limit),
            beyond_fitted: prediction.is_none_or(|p| p.beyond_fitted),
            beyond_trust: prediction.is_none_or(|p| p.beyond_trust),
            used_for_fit: self.used_for_fit,
        }
    }
}

/// A comparison of a cluster's runs with a model.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterComparison {
    /// Emulation notes. Show them with the figures.
    pub laboratory: Vec<String>,
    /// One row for each step and time, in order of rate; `utilisation` is the mean over all nodes.
    pub rows: Vec<Row>,
    /// The steps in order of rate.
    pub steps: Vec<ClusterStep>,
    /// The loads that bound the model's validity; infinite ones are `null` in JSON.
    pub limits: ClusterLimits,
    /// The delay δ that gateway and network add.
    pub delay: Parameter,
    /// Warnings about the steps.
    pub warnings: Vec<String>,
    /// The runs' folders.
    pub runs: Vec<String>,
}

/// Compares the clients' measurements with a model: that of the nodes as they were `fitted`, or of a change of
/// them.
pub fn compare(
    runs: &ClusterRuns,
    selection: &Selection,
    model: &ClusterModel,
    fitted: &FittedCluster,
    within_s: &[f64],
) -> Result<ClusterComparison, Error> {
    let between = Between::of_models(fitted.nodes.iter().map(|node| &node.model));
    let clients = runs.clients(selection)?;
    let nodes = runs.nodes(selection)?;
    let (mut rows, mut steps, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for (i, observed) in clients.steps.iter().enumerate() {
        let figures: Vec<StepFigures> = nodes.iter().map(|n| measure(&n.steps[i], &[])).collect();
        let mut step = ClusterStep::predicted(observed, model, within_s)?;
        step.used_for_fit = fitted.steps.iter().any(|name| same_step(name, &observed.windows.name));
        step.nodes = runs.nodes_measured(&figures);
        let mut rows_of_step = rows_of(&step.data(), within_s);
        coverage::expect(&mut rows_of_step, &between, step.measured.rate, |rate| {
            match model.predict(rate, within_s) {
                Ok(shifted) => Ok(shifted.points.iter().map(|p| p.concertina.value).collect()),
                Err(model::Error::Unstable { .. }) => Ok(vec![0.0; within_s.len()]),
                Err(error) => Err(error.into()),
            }
        })?;
        rows.append(&mut rows_of_step);
        let hints = step.measured.hints.iter();
        warnings.extend(hints.map(|hint| format!("Step {}: {hint}.", step.name)));
        steps.push(step);
    }
    let mut laboratory = clients.laboratory();
    for note in nodes.iter().flat_map(Observed::laboratory) {
        if !laboratory.contains(&note) {
            laboratory.push(note);
        }
    }
    Ok(ClusterComparison {
        laboratory,
        rows,
        steps,
        limits: model.limits(),
        delay: model.delay().clone(),
        warnings,
        runs: runs.load.iter().chain(runs.nodes.iter().map(|n| &n.1)).map(run_name).collect(),
    })
}

/// States the largest load that meets an objective.
///
/// # Errors
/// If the model cannot compute it.
pub fn largest_rate_text(
    model: &ClusterModel,
    limits: &ClusterLimits,
    objective: Objective,
) -> Result<String, model::Error> {
    let found = match model.largest_rate(objective.within_s, objective.share) {
        Ok(found) => found,
        Err(error @ model::Error::Unattainable { .. }) => return Ok(error.to_string()),
        Err(error) => return Err(error),
    };
    let [value, low] = [found.value, found.low].map(|r| digits(r, 4));
    let high = super::compare::upper_end(found.high);
    let beyond = if found.value > limits.placed {
        let limit = digits(limits.placed, 4);
        format!(" Queues are long there: the confidence limit is {limit} requests/s.")
    } else {
        String::new()
    };
    let untrusted = if found.value > limits.trusted * 1.01 {
        super::compare::extrapolated(limits.trusted)
    } else {
        String::new()
    };
    Ok(format!("{objective} holds up to {value} requests/s [{low}, {high}].{untrusted}{beyond}"))
}
