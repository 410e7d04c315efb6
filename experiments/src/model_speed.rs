//! `experiments/model-speed`: how long the models take, beside other tools in the same run, in one
//! thread.
//!
//! Each time of ours is the mean over rounds. A comparison with a peer alternates: each round runs
//! ours, then the peer, and the figure is the ratio of their times, because a machine's speed
//! drifts. Answers are compared before times.

mod events;
mod peers;
mod tasks;

use anyhow::{Context as _, ensure};
use model::queue::{Mmm, Queue as _};
use serde::Deserialize;

use super::claims::{Claim, Goal, Peer as Beside};
use super::context::Context;
use peers::{Peer, Peers};
use tasks::per_call;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    rounds: usize,
    rounds_beside: usize,
    rounds_beside_short: usize,
    customers: u32,
    stations: u32,
    servers: u32,
    customers_pdq: u32,
    pdq_sources: String,
    utilisation: f64,
    points: u32,
    end_s: f64,
    requests: u64,
    arrivals_per_s: f64,
    bootstrap_samples: usize,
    python: Vec<String>,
}

/// PDQ's time for 500 customers and 10 stations where it was measured before, ms.
const PDQ_PUBLISHED: (u32, f64) = (500, 0.021);

/// As fast as a peer, within what a compiler makes of the same loop.
const ON_A_PAR: f64 = 0.8;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let pdq = context.folder.join(&config.pdq_sources);
    context.say("preparing the peers");
    let peers = Peers::prepare(&context.folder, &context.scratch, &pdq, &config.python);
    let mut run = Run { context, config: &config, versions: Vec::new(), claims: Vec::new() };
    run.networks(&peers)?;
    run.laws(&peers)?;
    run.simulation(&peers)?;
    run.designs_and_plans()?;
    let path = context.out.join("versions.txt");
    std::fs::write(&path, run.versions.join("\n") + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(run.claims)
}

struct Run<'a> {
    context: &'a Context,
    config: &'a Config,
    /// Versions of the peers, or why one is missing.
    versions: Vec<String>,
    claims: Vec<Claim>,
}

/// A task beside a peer's.
struct Duel<'a> {
    name: String,
    peer: &'a Peer,
    arguments: Vec<String>,
    /// The least ratio of its time to ours; `None` if nothing is claimed.
    goal: Option<f64>,
    /// By which part the answers may differ; `None` for a peer that is known to be wrong.
    tolerance: Option<f64>,
}

fn claim(name: String, values: &[f64], unit: &str, goal: Option<Goal>) -> Claim {
    Claim { goal, ..Claim::of_rounds(name, values, unit) }
}

impl Run<'_> {
    fn rounds_beside(&self) -> usize {
        match self.context.short {
            true => self.config.rounds_beside_short,
            false => self.config.rounds_beside,
        }
    }

    /// Milliseconds of a call, one for each round.
    fn time(&self, mut task: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<Vec<f64>> {
        // Once to warm up; long tasks in fewer rounds.
        let (first, _) = per_call(&mut task)?;
        let rounds = if first > 0.5 { self.rounds_beside() } else { self.config.rounds };
        (0..rounds).map(|_| Ok(per_call(&mut task)?.0 * 1e3)).collect()
    }

    /// Claims that a task takes at most `most_ms`.
    fn alone(
        &mut self,
        name: &str,
        most_ms: f64,
        task: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        self.context.say(name);
        let times_ms = self.time(task)?;
        self.claims.push(claim(name.to_owned(), &times_ms, "ms", Some(Goal::AtMost(most_ms))));
        Ok(())
    }

    /// Claims how many times as long as we a peer takes.
    fn beside(
        &mut self,
        duel: Duel<'_>,
        mut task: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        self.context.say(&duel.name);
        let goal = duel.goal.map(Goal::AtLeast);
        let command = match duel.peer {
            Ok(command) => command,
            Err(why) => {
                // Named, and not held.
                self.versions.push(format!("missing: {why}"));
                let name = format!("{} (missing: {why})", duel.name);
                self.claims.push(claim(name, &[], "×", goal));
                return Ok(());
            }
        };
        per_call(&mut task)?;
        let (mut ratios, mut theirs) = (Vec::new(), Vec::new());
        let (mut version, mut off) = (String::new(), 0.0f64);
        for _ in 0..self.rounds_beside() {
            let (seconds, answer) = per_call(&mut task)?;
            let found = peers::run(command, &duel.arguments)?;
            off = off.max((found.answer / answer - 1.0).abs());
            ratios.push(found.seconds / seconds);
            theirs.push(found.seconds * 1e3);
            version = found.version;
        }
        let right = duel.tolerance.is_none_or(|tolerance| off <= tolerance);
        ensure!(right, "{}: {version} answers otherwise, by {off:e} of ours", duel.name);
        let mean = theirs.iter().sum::<f64>() / theirs.len().max(1) as f64;
        self.versions.push(format!("{}: {version}; answers differ by {off:.1e}", duel.name));
        self.context.provenance.peer(&duel.name, &version)?;
        let peer = Some(Beside { name: format!("ms, {version}"), value: mean });
        self.claims.push(Claim { peer, ..claim(duel.name, &ratios, "×", goal) });
        Ok(())
    }

    fn networks(&mut self, peers: &Peers) -> anyhow::Result<()> {
        let Config { customers, stations, servers, customers_pdq, .. } = *self.config;
        let size = format!("{customers} customers × {stations} stations");
        let name = format!("exact MVA, {size}");
        self.alone(&name, 0.2, || tasks::network(customers, stations, 1))?;
        let arguments = |task: &[&str], customers: u32, more: &[u32]| -> Vec<String> {
            let numbers = [customers, stations];
            let numbers = numbers.iter().chain(more).map(u32::to_string);
            task.iter().map(|t| (*t).to_owned()).chain(numbers).collect()
        };
        let textbook = Duel {
            name: format!("{name}: time of the textbook's loop in C over ours"),
            peer: &peers.textbook,
            arguments: arguments(&[], customers, &[]),
            goal: Some(ON_A_PAR),
            tolerance: Some(1e-9),
        };
        self.beside(textbook, || tasks::network(customers, stations, 1))?;
        match &peers.pdq {
            Ok(_) => {
                let pdq = Duel {
                    name: format!(
                        "exact MVA, {customers_pdq} customers × {stations} stations: time of PDQ over ours"
                    ),
                    peer: &peers.pdq,
                    arguments: arguments(&[], customers_pdq, &[]),
                    goal: Some(ON_A_PAR),
                    tolerance: Some(1e-9),
                };
                self.beside(pdq, || tasks::network(customers_pdq, stations, 1))?;
            }
            Err(why) => {
                let (customers, published) = PDQ_PUBLISHED;
                self.versions.push(format!("missing: {why}"));
                let name = format!(
                    "exact MVA, {customers} customers × 10 stations (PDQ is missing, {why}; its earlier figure)"
                );
                self.alone(&name, published / ON_A_PAR, || tasks::network(customers, 10, 1))?;
                if let Some(claim) = self.claims.last_mut() {
                    claim.published = Some(published);
                }
            }
        }
        let octave = Duel {
            name: format!("{name}: time of octave's qncsmva over ours"),
            peer: &peers.octave,
            arguments: arguments(&["mva"], customers, &[1]),
            goal: None,
            tolerance: Some(1e-9),
        };
        self.beside(octave, || tasks::network(customers, stations, 1))?;
        let dependent = Duel {
            name: format!(
                "load-dependent ({servers} servers each), {size}: time of octave's qncsmvald over ours"
            ),
            peer: &peers.octave,
            arguments: arguments(&["load-dependent"], customers, &[servers]),
            goal: Some(200.0),
            tolerance: None,
        };
        self.beside(dependent, || tasks::network(customers, stations, servers))
    }

    fn laws(&mut self, peers: &Peers) -> anyhow::Result<()> {
        let Config { utilisation, points, end_s, .. } = *self.config;
        let times = tasks::times(points, end_s);
        let (whole, other) = (tasks::formula(0.25)?, tasks::formula(0.4)?);
        let (heavy, measured) = (tasks::heavy()?, tasks::empirical_law()?);
        let errors = [
            tasks::cdf_error(&whole, utilisation, &times)?,
            tasks::cdf_error(&other, utilisation, &times)?,
            tasks::cdf_error(&heavy, utilisation, &times)?,
            tasks::cdf_error(&measured, utilisation, &times)?,
        ];
        let worst = errors.iter().fold(0.0f64, |worst, error| worst.max(*error));
        let name = "M/G/1 CDF: largest error of what is interpolated, all laws below".to_owned();
        let exact = Claim::counted(name, worst * 100.0, "points", 1);
        self.claims.push(exact.with_goal(Goal::AtMost(0.02)));
        let of = |law: &str| format!("M/G/1 CDF at {points} points, {law}");
        self.alone(&of("gamma service, SCV 0.25"), 0.3, || {
            tasks::cdf(&whole, utilisation, &times)
        })?;
        self.alone(&of("gamma service, SCV 0.4"), 0.3, || tasks::cdf(&other, utilisation, &times))?;
        self.alone(&of("lognormal service, SCV 4"), 5.0, || {
            tasks::cdf(&heavy, utilisation, &times)
        })?;
        self.alone(&of("measured service"), 5.0, || tasks::cdf(&measured, utilisation, &times))?;
        let numbers = [utilisation, 0.25, end_s].map(|x| x.to_string());
        let numpy = Duel {
            name: of("gamma service, SCV 0.25: time of numpy over ours"),
            peer: &peers.inversion,
            arguments: [points.to_string()].into_iter().chain(numbers).collect(),
            goal: None,
            tolerance: Some(1e-4),
        };
        self.beside(numpy, || tasks::cdf(&whole, utilisation, &times))
    }

    fn simulation(&mut self, peers: &Peers) -> anyhow::Result<()> {
        let Config { requests, arrivals_per_s, .. } = *self.config;
        let exact = Mmm::new(arrivals_per_s, 1.0, 3)?.response_mean();
        for ours in [
            tasks::simulate(requests, arrivals_per_s)?,
            tasks::recursion(requests, arrivals_per_s)?,
            tasks::simulate_cluster(requests, arrivals_per_s)?,
        ] {
            let off = (ours / exact - 1.0).abs();
            ensure!(off < 0.05, "simulated {ours} s at the mean, not {exact}");
        }
        let ciw = Duel {
            name: format!("discrete-event M/M/3, {requests} requests: time of ciw over ours"),
            peer: &peers.simulation,
            arguments: [requests.to_string(), arrivals_per_s.to_string(), "1".to_owned()].into(),
            goal: Some(100.0),
            // Two runs of other random numbers.
            tolerance: Some(0.05),
        };
        self.beside(ciw, || tasks::simulate(requests, arrivals_per_s))?;
        // The simulator of clusters, which knows of nodes, replicas and windows besides, and records each request in three
        // queues.
        let cluster = Duel {
            name: format!(
                "discrete-event M/M/3, {requests} requests, as `simulate --keys drawn` runs it: time of ciw over ours"
            ),
            peer: &peers.simulation,
            arguments: [requests.to_string(), arrivals_per_s.to_string(), "1".to_owned()].into(),
            goal: Some(100.0),
            tolerance: Some(0.05),
        };
        self.beside(cluster, || tasks::simulate_cluster(requests, arrivals_per_s))?;
        // What ours takes by itself, and without a list of events; of neither is anything claimed.
        let by_events = format!("discrete-event M/M/3, {requests} requests");
        let times_ms = self.time(|| tasks::simulate(requests, arrivals_per_s))?;
        self.claims.push(claim(by_events, &times_ms, "ms", None));
        let by_recursion = format!("M/M/3, {requests} requests, by recursion (no list of events)");
        let times_ms = self.time(|| tasks::recursion(requests, arrivals_per_s))?;
        self.claims.push(claim(by_recursion, &times_ms, "ms", None));
        Ok(())
    }

    fn designs_and_plans(&mut self) -> anyhow::Result<()> {
        let samples = self.config.bootstrap_samples;
        self.alone(&format!("2^3·3 design, {samples} bootstrap samples"), 1e3, || {
            tasks::bootstrap(samples)
        })?;
        let model = tasks::fitted(&self.context.folder)?;
        let name = "plan, 1,000,000 configurations, each looked at";
        self.alone(name, 1e4, || tasks::plan_all(&model, 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_shows_nothing() {
        for goal in [None, Some(Goal::AtLeast(0.8)), Some(Goal::AtMost(2.0))] {
            let missing = claim("a peer that is missing".to_owned(), &[], "×", goal).judged();
            assert!(missing.value.is_nan(), "{missing:?}");
            let table = crate::claims::table(&[missing]);
            let expected = if goal.is_some() { "NOT SHOWN" } else { "not measured" };
            assert!(table.contains(expected), "{table}");
        }
        let found = claim("a peer".to_owned(), &[1.9, 2.0, 2.1], "×", None).judged();
        assert!((found.value - 2.0).abs() < 1e-12);
    }
}
