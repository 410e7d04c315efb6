//! `experiments/spotify-cluster`: the clusters of Yanggratoke et al. (five small servers, three
//! large ones) behind a gateway, at loads that were not fitted; then with one node lost, and with
//! one of half the speed, predicted from the fit of the whole cluster alone.
//!
//! Every node and the gateway is a process of its own. Nodes are fitted from what they recorded
//! themselves, shares come from the ring, and what clients saw is only compared with. Each node
//! stands for several of the paper's servers side by side, as in `spotify-single`, so that the
//! measurement at 90 % is narrow enough within minutes.

mod config;
mod plan;
mod simulation;
mod system;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use model::ClusterModel;
use model::storage::{Change, Popularity};

use super::accuracy::Accuracy;
use super::claims::Claim;
use super::context::Context;
use super::lab::{self, Catalogue, Server};
use super::machine::{self, COST_RATE_MAX, Cost, Fit, Placement};
use super::marks::{Mark, MarkedLoad};
use super::provenance::Round;
use config::{Config, Scenario, WITHIN_S};
use plan::Plan;
use record::RunFolder;
use report::cluster::{self, ClusterComparison, ClusterRuns, FittedCluster};
use report::table::cluster_table;
use report::{self, Selection};
use system::System;

/// The paper's largest error of prediction for a cluster, points (Section V).
const PUBLISHED_POINTS: f64 = 9.3;

/// The load at which the cost of a request is measured, and for how long, seconds.
const COST_UTILISATION: f64 = 0.3;
const COST_S: f64 = 5.0;

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
            scenario: scenario.clone(),
            placement: Placement::Shared,
            scratch: &scratch,
        };
        claims.extend(case.fitted()?.run()?);
        // Recorded at once, in case a later case fails.
        context.record(&claims)?;
        std::fs::remove_dir_all(&scratch).context("cannot remove run folders")?;
    }
    anyhow::ensure!(
        !claims.is_empty(),
        "config.toml has no [[cluster]] named {:?}, which [short] names",
        config.short.cluster
    );
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

/// Loads by the utilisation of the busiest node's disks.
struct Loads<'a> {
    fit: &'a [f64],
    held_out: &'a [f64],
    changed: &'a [f64],
}

/// The runs of a sweep, and the complaints about each.
type Swept = (Vec<RunFolder>, Vec<MarkedLoad>);

/// The marks of all loads.
fn all(loads: &[MarkedLoad]) -> Vec<Mark> {
    loads.iter().flat_map(|load| load.marks.clone()).collect()
}

/// One cluster, in all its states.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    catalogue: &'a Catalogue,
    origin: &'a Path,
    /// The scenario, with as many disks as this machine carries.
    scenario: Scenario,
    placement: Placement,
    scratch: &'a Path,
}

impl Case<'_> {
    fn run(&self) -> anyhow::Result<Vec<Claim>> {
        let Loads { fit, held_out, changed } = self.loads();
        let (whole, lost, subject) = self.plans()?;
        let system = self.start(&whole, "whole")?;
        let (fit_loads, fit_marks) = self.sweep(&system, &whole, "fit", fit)?;
        let held_out_loads = self.sweep(&system, &whole, "held-out", held_out)?;
        let nodes = system.stop()?;
        let origin_s = simulation::origin_s(&nodes);
        let system = self.start(&lost, "lost")?;
        let lost_loads = self.sweep(&system, &lost, "lost", changed)?;
        let left = system.stop()?;

        let name = &self.scenario.name;
        let runs = ClusterRuns { load: fit_loads, nodes: nodes.clone() };
        let mut fitted = cluster::fit(&runs, &Selection::default(), name)?;
        // A node's share of the requests follows from the ring; it is not measured.
        for (node, share) in fitted.nodes.iter_mut().zip(whole.shares()) {
            node.share = share;
        }
        let model = fitted.model()?;
        self.record_model(&fitted)?;
        let mut claims = Vec::new();
        let mut judge = |state: &str, (load, marks): Swept, nodes, model: &ClusterModel| {
            let runs = ClusterRuns { load, nodes };
            let of_fit = MarkedLoad { rate: None, marks: all(&fit_marks) };
            let loads: Vec<MarkedLoad> = marks.into_iter().chain([of_fit]).collect();
            self.judge(state, &runs, model, &fitted, &loads).map(|found| claims.extend(found))
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
            let slow = slow.cloned();
            let state = simulation::State { of, config: &config, slow, rates, origin_s };
            claims.push(state.claim(model, self.catalogue, &out)?);
        }
        Ok(claims)
    }

    /// The loads that are measured.
    fn loads(&self) -> Loads<'_> {
        let (config, short) = (self.config, &self.config.short);
        let (fit, held_out, changed) = match self.context.short {
            true => {
                (&short.fit_utilisations, &short.held_out_utilisations, &short.changed_utilisations)
            }
            false => (
                &config.fit_utilisations,
                &config.held_out_utilisations,
                &config.changed_utilisations,
            ),
        };
        Loads { fit, held_out, changed }
    }

    /// The cluster whole and with a node lost, and the name of that node.
    fn plans(&self) -> anyhow::Result<(Plan<'_>, Plan<'_>, String)> {
        let whole = Plan::new(self.config, &self.scenario, self.catalogue, None)?;
        let subject = whole.places.get(whole.places.len() / 2).context("a cluster has nodes")?;
        let subject = subject.name.clone();
        let lost = Plan::new(self.config, &self.scenario, self.catalogue, Some(&subject))?;
        Ok((whole, lost, subject))
    }

    /// The case with as many disks in each node as this machine carries at the highest load of any
    /// state.
    fn fitted(self) -> anyhow::Result<Self> {
        let Loads { fit, held_out, changed } = self.loads();
        let (whole, lost, _) = self.plans()?;
        let highest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let rate = [highest(fit), highest(held_out)].map(|of| whole.rate(of));
        let rate = rate[0].max(rate[1]).max(lost.rate(highest(changed)));
        let system = self.start(&whole, "cost")?;
        let pilot = (0.0, COST_S);
        let rate_of_pilot = whole.rate(COST_UTILISATION).min(COST_RATE_MAX);
        let arguments = self.catalogue.uniform(rate_of_pilot, pilot, 1);
        let out = self.scratch.join("cost-load");
        let load = || lab::load(system.url(), &arguments, &out, self.context.quiet);
        let cost = Cost::measure(&system.pids(), load)?;
        system.stop()?;
        let planned = self.scenario.disks;
        let smallest = self.config.scale_min.max(1.0 / f64::from(planned));
        let Fit { scale, placement } = machine::fit(cost, rate, smallest, &machine::processors()?)?;
        // The share is at least one disk, but for rounding.
        let disks = ((f64::from(planned) * scale + 1e-9) as u32).max(1);
        let name = &self.scenario.name;
        self.context.say(format!(
            "{name}: a request costs {:.0} µs here: {disks} of {planned} disks in each node; {placement}",
            (cost.servers_s + cost.generator_s) * 1e6
        ));
        let facts = [
            ("server_us_per_request", cost.servers_s * 1e6),
            ("generator_us_per_request", cost.generator_s * 1e6),
            ("disks_of_a_node", f64::from(disks)),
        ];
        let round = Round::new(&format!("{name}, cost of a request"), 1, true).with(facts);
        self.context.provenance.round(round)?;
        let scenario = Scenario { disks, ..self.scenario.clone() };
        Ok(Case { scenario, placement, ..self })
    }

    fn start(&self, plan: &Plan, state: &str) -> anyhow::Result<System> {
        let folder = self.scratch.join(state);
        let start = || System::start(plan, self.catalogue, self.origin, &folder);
        let system = self.placement.of_servers(start)?;
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
    ) -> anyhow::Result<Swept> {
        let (mut runs, mut marked) = (Vec::new(), Vec::new());
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
            let again = &self.config.again;
            let load = || again.load(self.context, system.url(), &arguments, &out, WITHIN_S[0]);
            let (run, marks) = self.placement.of_generator(load)?;
            runs.push(run);
            marked.push(MarkedLoad { rate: Some(rate), marks });
        }
        Ok((runs, marked))
    }

    /// Compares a state with its prediction, records both, and claims.
    fn judge(
        &self,
        state: &str,
        runs: &ClusterRuns,
        model: &ClusterModel,
        fitted: &FittedCluster,
        loads: &[MarkedLoad],
    ) -> anyhow::Result<Vec<Claim>> {
        let of = format!("{}{state}", self.scenario.name);
        let comparison = cluster::compare(runs, &Selection::default(), model, fitted, &WITHIN_S)?;
        self.record(&of, &comparison)?;
        let measured = comparison.steps.iter().map(|step| &step.measured);
        let requests: Vec<(f64, u64)> = measured.map(|m| (m.rate, m.requests)).collect();
        let limit = comparison.limits.published;
        let parts = [("up to the published limit", limit, 2.0), ("up to 90 %", f64::INFINITY, 5.0)];
        let claims = parts.into_iter().filter_map(|(part, rate_max, goal)| {
            let published = Some(PUBLISHED_POINTS);
            let error = Accuracy { of: &of, part, rate_max, goal, published, loads };
            error.claim(&comparison.rows, &requests)
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
        // A record does not contain paths of the machine.
        let text = text.replace(&self.context.scratch.display().to_string(), "scratch");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
