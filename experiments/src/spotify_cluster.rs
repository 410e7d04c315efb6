//! `experiments/spotify-cluster`: the clusters of Yanggratoke et al. (five small servers, three large
//! ones) behind a gateway, at loads that were not fitted; then with one node lost, and with one of half
//! the speed, predicted from the fit of the whole cluster alone.
//!
//! Every node and the gateway is a process of its own. Nodes are fitted from what they recorded
//! themselves, shares come from the ring, and what clients saw is only compared with. Each node stands
//! for several of the paper's servers side by side, as in `spotify-single`, so that the measurement at
//! 90 % is narrow enough within minutes.

mod plan;
mod simulation;
mod system;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use model::ClusterModel;
use model::storage::{Change, Popularity};
use serde::Deserialize;

use super::accuracy::Accuracy;
use super::again::Again;
use super::lab::{self, Catalogue, Server};
use super::{Claim, Context};
use plan::Plan;
use record::RunFolder;
use report::cluster::{self, ClusterComparison, ClusterRuns, FittedCluster};
use report::table::cluster_table;
use report::{self, Selection};
use serve::config;
use system::System;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: u64,
    replicas: usize,
    fit_utilisations: Vec<f64>,
    fit_s: f64,
    held_out_utilisations: Vec<f64>,
    changed_utilisations: Vec<f64>,
    half_width_points: f64,
    measure_s_min: f64,
    measure_s_max: f64,
    relaxation_times: f64,
    warmup_s_min: f64,
    again: Again,
    /// `[gateway]` of the gateway's configuration.
    gateway: toml::Table,
    cluster: Vec<Scenario>,
    short: Short,
}

impl Config {
    /// `[gateway]` with what it does not say filled in.
    fn gateway(&self) -> anyhow::Result<config::Gateway> {
        let gateway = toml::Value::Table(self.gateway.clone());
        let text = toml::to_string(&toml::Table::from_iter([("gateway".to_owned(), gateway)]))?;
        Ok(config::Config::parse(&text, "config.toml", &[])?.gateway)
    }
}

/// What `--short` measures: one cluster, fewer loads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    cluster: String,
    fit_utilisations: Vec<f64>,
    held_out_utilisations: Vec<f64>,
    changed_utilisations: Vec<f64>,
}

/// A cluster of equal nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    nodes: u32,
    /// Reads/s that a disk serves, its law and squared coefficient of variation.
    mu_per_s: f64,
    kind: String,
    scv: f64,
    /// Disks side by side in each node.
    disks: u32,
    /// Share of an equal part of the catalogue that a node's memory holds.
    hit_ratio: f64,
}

/// The paper's largest error of prediction for a cluster, points (Section V).
const PUBLISHED_POINTS: f64 = 9.3;

/// Response times that are compared, seconds.
const WITHIN_S: [f64; 3] = [0.020, 0.050, 0.100];

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let catalogue = Catalogue::write(&context.scratch, config.objects, config.object_bytes)?;
    let origin = context.scratch.join("origin");
    fill(context, &config, &catalogue, &origin)?;
    let mut claims = Vec::new();
    for scenario in &config.cluster {
        if context.short && scenario.name != config.short.cluster {
            continue;
        }
        let scratch = context.scratch.join(&scenario.name);
        let case = Case {
            context,
            config: &config,
            catalogue: &catalogue,
            origin: &origin,
            scenario,
            scratch: &scratch,
        };
        claims.extend(case.run()?);
        // What is measured is recorded, whatever becomes of the rest.
        context.record(&claims)?;
        std::fs::remove_dir_all(&scratch).context("cannot remove run folders")?;
    }
    anyhow::ensure!(!claims.is_empty(), "there is no cluster {:?}", config.short.cluster);
    Ok(claims)
}

/// Puts the catalogue into the origin that all nodes share.
fn fill(
    context: &Context,
    config: &Config,
    catalogue: &Catalogue,
    origin: &Path,
) -> anyhow::Result<()> {
    context.say(format!("putting {} objects", config.objects));
    let devices = lab::disks(&context.scratch.join("fill-device"), 1, None);
    let path = context.scratch.join("fill.toml");
    lab::write_config(&path, &lab::server(1 << 20, devices, origin))?;
    let server = Server::start(&path, &context.scratch.join("fill.log"))?;
    catalogue.put(server.url(), &context.scratch.join("fill"), context.quiet)?;
    server.stop()
}

/// The name of a state, as a file is named.
fn file_name(of: &str) -> String {
    of.replace(", ", "-").replace(' ', "-")
}

/// One cluster, in all its states.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    catalogue: &'a Catalogue,
    origin: &'a Path,
    scenario: &'a Scenario,
    scratch: &'a Path,
}

impl Case<'_> {
    fn run(&self) -> anyhow::Result<Vec<Claim>> {
        let (config, short) = (self.config, &self.config.short);
        let (fit, held_out, changed) = if self.context.short {
            (&short.fit_utilisations, &short.held_out_utilisations, &short.changed_utilisations)
        } else {
            (&config.fit_utilisations, &config.held_out_utilisations, &config.changed_utilisations)
        };
        let whole = Plan::new(config, self.scenario, self.catalogue, None)?;
        let subject = whole.places.get(whole.places.len() / 2).context("a cluster has nodes")?;
        let subject = subject.name.clone();
        let lost = Plan::new(config, self.scenario, self.catalogue, Some(&subject))?;

        let system = self.start(&whole, "whole")?;
        let fit_loads = self.sweep(&system, &whole, "fit", fit)?;
        let held_out_loads = self.sweep(&system, &whole, "held-out", held_out)?;
        let nodes = system.stop()?;
        let system = self.start(&lost, "lost")?;
        let lost_loads = self.sweep(&system, &lost, "lost", changed)?;
        let left = system.stop()?;

        let name = &self.scenario.name;
        let runs = ClusterRuns { load: fit_loads, nodes: nodes.clone() };
        let mut fitted = cluster::fit(&runs, &Selection::default(), name)?;
        // What a node is asked is the ring's to say, not a measurement's.
        for (node, share) in fitted.nodes.iter_mut().zip(whole.shares()) {
            node.share = share;
        }
        let model = fitted.model()?;
        self.record_model(&fitted)?;
        let mut claims = Vec::new();
        let mut judge = |state: &str, load, nodes, model: &ClusterModel| {
            let runs = ClusterRuns { load, nodes };
            self.judge(state, &runs, model, &fitted).map(|found| claims.extend(found))
        };
        judge("", held_out_loads, nodes, &model)?;

        let without = Change::Without { name: subject.clone(), shares_after: lost.shares() };
        let after = model.changed(&without, Popularity::EQUAL)?;
        judge(", one node lost", lost_loads, left, &after)?;

        let slow = whole.with_speed(&subject, 0.5);
        let system = self.start(&slow, "slow")?;
        let slow_loads = self.sweep(&system, &slow, "slow", changed)?;
        let change = Change::Speed { name: subject.clone(), factor: 0.5 };
        let after = model.changed(&change, Popularity::EQUAL)?;
        judge(", one node of half the speed", slow_loads, system.stop()?, &after)?;
        self.context.say(format!("{name}: the formula beside simulations"));
        let rates = |plan: &Plan, of: &[f64]| of.iter().map(|&u| plan.rate(u)).collect::<Vec<_>>();
        let other = &lost.places.first().context("no node is left")?.name;
        let (whole_rates, lost_rates) = (rates(&whole, held_out), rates(&lost, changed));
        let slow_rates = rates(&slow, changed);
        let lost_model = model.changed(&without, Popularity::EQUAL)?;
        let half = format!("--slow={subject}:0.5");
        for (of, state, slow, rates, model) in [
            (name.clone(), "whole", None, &whole_rates, &model),
            (format!("{name}, one node lost"), "lost", None, &lost_rates, &lost_model),
            // One configuration stands for all nodes: that of a slow one would slow them all.
            (
                format!("{name}, one node of half the speed"),
                "whole",
                Some(&half),
                &slow_rates,
                &after,
            ),
        ] {
            let config = self.scratch.join(state).join(format!("{other}.toml"));
            let out = self.scratch.join(format!("simulated-{}", file_name(&of)));
            let state = simulation::State { of, config: &config, slow: slow.cloned(), rates };
            claims.push(state.claim(model, self.catalogue, &out)?);
        }
        Ok(claims)
    }

    fn start(&self, plan: &Plan, state: &str) -> anyhow::Result<System> {
        let folder = self.scratch.join(state);
        let system = System::start(plan, self.catalogue, self.origin, &folder)?;
        self.warm_up(&system, state)?;
        Ok(system)
    }

    fn warm_up(&self, system: &System, state: &str) -> anyhow::Result<()> {
        self.context.say(format!("{}, {state}: warming up", self.scenario.name));
        let out = self.scratch.join(format!("warmup-{state}"));
        self.catalogue.ask_for_all(system.url(), &out, self.context.quiet)
    }

    /// Measures loads, each in a run of its own.
    fn sweep(
        &self,
        system: &System,
        plan: &Plan,
        kind: &str,
        utilisations: &[f64],
    ) -> anyhow::Result<Vec<RunFolder>> {
        let mut runs = Vec::new();
        for &utilisation in utilisations {
            let rate = plan.rate(utilisation);
            let (warmup_s, mut measure_s) = plan.lengths(rate);
            if kind == "fit" {
                measure_s = self.config.fit_s;
            }
            self.context.say(format!(
                "{}: {kind}, utilisation {utilisation}, {rate:.0} requests/s, {warmup_s:.0} s + {measure_s:.0} s",
                self.scenario.name
            ));
            let seed = (utilisation * 1000.0) as u64;
            let arguments = self.catalogue.uniform(rate, (warmup_s, measure_s), seed);
            let out = self.scratch.join(format!("{kind}-{utilisation}"));
            runs.push(self.config.again.load(self.context, system.url(), &arguments, &out)?);
        }
        Ok(runs)
    }

    /// Compares a state with its prediction, records both, and claims.
    fn judge(
        &self,
        state: &str,
        runs: &ClusterRuns,
        model: &ClusterModel,
        fitted: &FittedCluster,
    ) -> anyhow::Result<Vec<Claim>> {
        let of = format!("{}{state}", self.scenario.name);
        let steps = &fitted.steps;
        let comparison = cluster::compare(runs, &Selection::default(), model, steps, &WITHIN_S)?;
        self.record(&of, &comparison)?;
        let measured = comparison.steps.iter().map(|step| &step.measured);
        let requests: Vec<(f64, u64)> = measured.map(|m| (m.rate, m.requests)).collect();
        let limit = comparison.limits.published;
        let parts = [("up to the published limit", limit, 2.0), ("up to 90 %", f64::INFINITY, 5.0)];
        let claims = parts.into_iter().filter_map(|(part, rate_max, goal)| {
            let published = Some(PUBLISHED_POINTS);
            Accuracy { of: &of, part, rate_max, goal, published }.claim(&comparison.rows, &requests)
        });
        Ok(claims.collect())
    }

    fn record(&self, of: &str, comparison: &ClusterComparison) -> anyhow::Result<()> {
        let file = file_name(of);
        self.write(&format!("{file}.json"), &serde_json::to_string_pretty(comparison)?)?;
        let table = cluster_table(comparison);
        self.write(&format!("{file}.txt"), &table)?;
        self.context.say(format!("{of}\n{table}"));
        Ok(())
    }

    /// The nodes' models and the cluster file, which `concertina predict --cluster` reads.
    fn record_model(&self, fitted: &FittedCluster) -> anyhow::Result<()> {
        let name = &self.scenario.name;
        let file = |node: &str| PathBuf::from(format!("{name}-{node}.model.toml"));
        for node in &fitted.nodes {
            self.write(&file(&node.name).display().to_string(), &node.model.to_toml()?)?;
        }
        let text = report::cluster_file::text(fitted, |node| file(node))?;
        self.write(&format!("{name}.cluster.toml"), &text)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.context.out.join(name);
        // Where it ran is of no interest to who reads the record.
        let text = text.replace(&self.context.scratch.display().to_string(), "scratch");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
