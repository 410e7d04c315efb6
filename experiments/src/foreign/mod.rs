//! `experiments/foreign`: services that are not ours, fitted from when each request came and was
//! answered at loads up to 60 % of their capacity, and judged by fresh runs at 70, 80 and 90 %.
//!
//! Nothing of a service but its replies is seen. The services run on one processor and the load
//! generator on another.

mod disk;
mod installed;
mod judged;
mod loads;
mod logs;
mod needs;
mod postgres;
pub(crate) mod services;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::claims::Claim;
use super::context::Context;
use super::lab;
use super::machine::{Placement, TooSmall, busy_over, processors};
use super::marks;
use super::provenance::Round;
use judged::Judged;
use loads::Loads;
use model::fit::{ClosedAt, ClosedLoop};
use model::statistics::batch_means;
use record::RunFolder;
use report::{Comparison, Observed, Selection};
use services::{Running, Service};

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    fit_shares: Vec<f64>,
    judge_shares: Vec<f64>,
    rounds: u32,
    heat_s: f64,
    closed_s: f64,
    closed_clients: u32,
    warmup_s: f64,
    times: Vec<f64>,
    short: Short,
    service: Vec<Service>,
}

/// What `--short` measures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    services: Vec<String>,
    fit_s: f64,
    judge_s: f64,
}

impl Service {
    /// Seconds of a short run.
    fn shorten(&mut self, short: &Short) {
        self.fit_s = self.short_fit_s.unwrap_or(short.fit_s);
        self.judge_s = self.short_judge_s.unwrap_or(short.judge_s);
    }
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let all = processors()?;
    if all.len() < 2 {
        let why = "the services and the load generator need a processor each".to_owned();
        return Err(TooSmall { processors: all.len(), needed: 2, why }.into());
    }
    let placement = Placement::apart(&all[..2], 1);
    context.say(placement.to_string());
    // What takes long is measured first; fits need no machine of their own.
    let mut measured = Vec::new();
    for service in &config.service {
        if context.short && !config.short.services.contains(&service.name) {
            continue;
        }
        let mut service = service.clone();
        if context.short {
            service.shorten(&config.short);
        }
        if let Some(why) = needs::lacks(&service) {
            context.say(format!("{} is left out: {why}", service.name));
            let mut round = Round::new(&service.name, 0, false);
            round.why = Some(format!("left out: {why}"));
            context.provenance.round(round)?;
            continue;
        }
        let case = Case { context, config: &config, service: &service, placement: &placement };
        let runs = case.measure_all().with_context(|| service.name.clone())?;
        measured.push((service, runs));
    }
    let mut judged = Vec::new();
    for (service, runs) in measured {
        let case = Case { context, config: &config, service: &service, placement: &placement };
        judged.push(case.judge(runs).with_context(|| service.name.clone())?);
        // Recorded at once, in case a later service fails.
        context.record(&judged::claims(&judged))?;
    }
    ensure!(!judged.is_empty(), "config.toml lists no service that this machine can run");
    Ok(judged::claims(&judged))
}

/// The least that the throughput of one closed loop is uncertain by, as a share: works differ by 2 to 4 % between runs
/// of some seconds.
const CLOSED_DEVIATION: f64 = 0.02;

/// Attempts at a load, the share of the processors that others may use beside it, for how long that is
/// looked at, and how long they are waited for.
const ATTEMPTS: u32 = 3;
const OTHERS: f64 = 0.1;
const IDLE: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_secs(20);

/// Waits until others use little of the processors. Returns what they use.
fn waited(most: Duration) -> anyhow::Result<f64> {
    let end = std::time::Instant::now() + most;
    loop {
        let busy = busy_over(IDLE)?;
        if busy <= OTHERS || std::time::Instant::now() >= end {
            return Ok(busy);
        }
    }
}

/// A load to measure in one of the rounds.
#[derive(Clone, Copy, Debug)]
struct Load {
    share: f64,
    seconds: f64,
    fitted: bool,
    /// From 1.
    round: u32,
}

impl Load {
    fn name(self) -> String {
        let what = if self.fitted { "fit" } else { "judge" };
        format!("{what}-{:.0}-{}", self.share * 100.0, self.round)
    }
}

/// One service.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    service: &'a Service,
    placement: &'a Placement,
}

/// What was measured of a service.
struct Runs {
    /// Throughput of the closed loop of each round, requests/s; the capacity in `config.toml` if it has one.
    closed: Vec<f64>,
    /// What closed loops of other numbers of clients carried.
    others: Vec<ClosedAt>,
    loads: Vec<(Load, RunFolder)>,
}

impl Runs {
    /// Requests/s of which the loads are shares: known from the first closed loop, before any load.
    fn capacity(&self) -> f64 {
        self.closed.first().copied().unwrap_or(f64::NAN)
    }

    /// The mean of the closed loops.
    fn closed_loop(&self) -> ClosedLoop {
        let n = self.closed.len() as f64;
        let throughput = self.closed.iter().sum::<f64>() / n;
        let spread = batch_means(&self.closed).map_or(0.0, |e| e.half_width / 1.96 / throughput);
        ClosedLoop { throughput, deviation: spread.max(CLOSED_DEVIATION / n.sqrt()) }
    }

    /// What each number of clients carried.
    fn closed_loops(&self, clients: u32) -> Vec<ClosedAt> {
        let throughput = self.closed_loop().throughput;
        let own = ClosedAt { clients, think_s: 0.0, throughput };
        self.others.iter().copied().chain([own]).collect()
    }
}

impl Case<'_> {
    fn judge(&self, measured: Runs) -> anyhow::Result<Judged> {
        let (capacity, closed) = (measured.capacity(), measured.closed_loop());
        let scratch = self.context.scratch.join(&self.service.name);
        let loops = measured.closed_loops(self.config.closed_clients);
        let Runs { loads, closed: each, .. } = measured;
        let (fit, judge): (Vec<_>, Vec<_>) = loads.into_iter().partition(|(load, _)| load.fitted);
        let step = |load: &Load| format!("{}/{}", self.service.name, load.name());
        let marked = |(load, run): &(Load, RunFolder)| marks::of_run(&step(load), run, 0.005);
        let marks = fit.iter().chain(&judge).flat_map(marked).collect();
        let folders = |runs: &[(Load, RunFolder)]| -> Vec<RunFolder> {
            runs.iter().map(|(_, run)| run.clone()).collect()
        };
        let selection = Selection { any_queues: true, ..Selection::default() };
        let observed = Observed::new(folders(&fit), &selection)?;
        // Of a service that has a capacity: what its closed loops carried.
        let closed_loop = self.service.capacity.is_none().then_some(closed);
        let closed_loops = if closed_loop.is_some() { loops } else { Vec::new() };
        let facts = report::ServiceFacts { closed_loop, closed_loops, ..Default::default() };
        let fitted = report::fit_service(&observed, &self.service.name, facts)?;
        let heaviest = fit.iter().max_by(|a, b| a.0.share.total_cmp(&b.0.share));
        let mean = self.mean_response(heaviest.context("no fitted load")?)?;
        let within: Vec<f64> = self.config.times.iter().map(|t| t * mean).collect();
        let (fit, judge) = (folders(&fit), folders(&judge));
        let observed = Observed::new([fit.clone(), judge.clone()].concat(), &selection)?;
        let comparison = Comparison::new(&observed, &fitted.model, &within, &[])?;
        let loads = Loads::new(capacity, &self.config.judge_shares);
        let mut judged = Judged::new(self.service, loads, each, &fitted, &comparison, marks);
        judged.by_law(&fitted.model, &comparison, &within)?;
        judged.logs = logs::from_logs(&fit, &judge, &within, &judged.loads, &scratch)?;
        self.record(&judged)?;
        Ok(judged)
    }

    /// Measures what `scratch` does not have yet: a long run can be made in pieces.
    fn measure_all(&self) -> anyhow::Result<Runs> {
        let scratch = &self.context.scratch.join(&self.service.name);
        std::fs::create_dir_all(scratch)?;
        let mut running: Option<Running> = None;
        let mut runs = Runs { closed: Vec::new(), others: Vec::new(), loads: Vec::new() };
        for round in 1..=self.config.rounds {
            let closed = match self.service.capacity {
                Some(capacity) => capacity,
                None => self.closed(&mut running, scratch, round, self.config.closed_clients)?,
            };
            // How a service collapses does not change between rounds.
            let others = self.service.closed_others.iter().filter(|_| round == 1);
            for &clients in others {
                let throughput = self.closed(&mut running, scratch, round, clients)?;
                runs.others.push(ClosedAt { clients, think_s: 0.0, throughput });
            }
            runs.closed.push(closed);
            self.context.say(format!("{}: {closed:.0} requests/s at most", self.service.name));
            for load in self.loads(round) {
                let name = load.name();
                // Another stream of random numbers at each load.
                let seed = self.config.seed + runs.loads.len() as u64;
                let arguments = [
                    format!("--rate={:.2}", load.share * runs.capacity()),
                    format!("--warmup={:.1}s", self.config.warmup_s),
                    format!("--duration={:.1}s", load.seconds),
                    format!("--seed={seed}"),
                ];
                let run = self.once(&mut running, scratch, &name, &arguments)?;
                let step = format!("{}/{name}", self.service.name);
                let facts =
                    [("stolen", marks::stolen(&run)), ("processors_busy", marks::busy(&run))];
                self.context.provenance.round(Round::new(&step, 1, true).with(facts))?;
                runs.loads.push((load, run));
            }
        }
        Ok(runs)
    }

    /// The loads of a round, in the opposite order in every second one: a slow change of the machine's speed falls on
    /// all loads alike.
    fn loads(&self, round: u32) -> Vec<Load> {
        let (config, service) = (self.config, self.service);
        let load = |share: f64, seconds: f64, fitted| {
            let seconds = seconds / f64::from(config.rounds);
            Load { share, seconds, fitted, round }
        };
        let fit = config.fit_shares.iter().map(|&share| load(share, service.fit_s, true));
        let judge = config.judge_shares.iter().map(|&share| load(share, service.judge_s, false));
        let mut loads: Vec<Load> = fit.chain(judge).collect();
        if round.is_multiple_of(2) {
            loads.reverse();
        }
        loads
    }

    /// Measures a load, unless `scratch` has it.
    fn once(
        &self,
        running: &mut Option<Running>,
        scratch: &Path,
        name: &str,
        arguments: &[String],
    ) -> anyhow::Result<RunFolder> {
        let (out, done) = (scratch.join(name), scratch.join(format!("{name}.done")));
        if !done.exists() {
            let service = self.running(running, scratch)?;
            self.undisturbed(service, arguments, &out, name)?;
            std::fs::write(&done, "")?;
        }
        Ok(RunFolder::read(&out)?)
    }

    /// The service, started if it is not yet.
    fn running<'r>(
        &self,
        running: &'r mut Option<Running>,
        scratch: &Path,
    ) -> anyhow::Result<&'r mut Running> {
        if running.is_none() {
            let folder = scratch.join("service");
            let _ = std::fs::remove_dir_all(&folder);
            let own = self.context.folder.canonicalize()?;
            let mut service =
                self.placement.of_servers(|| services::start(self.service, &own, &folder))?;
            if services::is_filled(self.service.kind) {
                let out = scratch.join("fill");
                let _ = std::fs::remove_dir_all(&out);
                let once = ["--fill", "--clients=1", "--warmup=0s", "--requests=10"];
                self.load(&mut service, &once.map(str::to_owned), &out)?;
            }
            service.throttle()?;
            let out = scratch.join("heat");
            let _ = std::fs::remove_dir_all(&out);
            let heat = [
                format!("--clients={}", self.config.closed_clients),
                "--warmup=0s".to_owned(),
                format!("--duration={:.1}s", self.config.heat_s),
                format!("--seed={}", self.config.seed + 2000),
            ];
            self.load(&mut service, &heat, &out)?;
            *running = Some(service);
        }
        running.as_mut().context("the service was not started")
    }

    /// Measures a load, again if others used the processors before or after it.
    fn undisturbed(
        &self,
        service: &mut Running,
        arguments: &[String],
        out: &Path,
        name: &str,
    ) -> anyhow::Result<()> {
        for attempt in 1..=ATTEMPTS {
            let before = waited(WAIT)?;
            let _ = std::fs::remove_dir_all(out);
            self.load(service, arguments, out)?;
            // What a service still does after its last reply is its own.
            std::thread::sleep(IDLE);
            let after = busy_over(IDLE)?;
            let fine = before <= OTHERS && after <= OTHERS;
            if fine || attempt == ATTEMPTS {
                return Ok(());
            }
            let step = format!("{}/{name}", self.service.name);
            let facts = [("others_before", before), ("others_after", after)];
            let mut round = Round::new(&step, attempt, false).with(facts);
            round.why = Some("others used the processors before or after it".to_owned());
            self.context.provenance.round(round)?;
        }
        Ok(())
    }

    /// Requests/s that the closed loop of a round gets answered.
    fn closed(
        &self,
        running: &mut Option<Running>,
        scratch: &Path,
        round: u32,
        clients: u32,
    ) -> anyhow::Result<f64> {
        let arguments = [
            format!("--clients={clients}"),
            format!("--warmup={:.1}s", self.config.warmup_s),
            format!("--duration={:.1}s", self.service.closed_s.unwrap_or(self.config.closed_s)),
            format!("--seed={}", self.config.seed + 1000 + u64::from(round)),
        ];
        let name = match clients == self.config.closed_clients {
            true => format!("closed-{round}"),
            false => format!("closed-{round}-of-{clients}"),
        };
        let run = self.once(running, scratch, &name, &arguments)?;
        // Not those of the warm-up.
        let (from, to) = run.steps.first().map_or((0, 0), |s| (s.start_unix_us, s.end_unix_us));
        let inside = |w: &&ground::window::Window| {
            w.queue == "load" && (from..to).contains(&w.start_unix_us)
        };
        let answered: u64 =
            run.windows.iter().filter(inside).map(|w| w.completions - w.errors).sum();
        ensure!(answered > 0, "the closed loop got no answer");
        Ok(answered as f64 / ((to - from) as f64 * 1e-6))
    }

    fn load(
        &self,
        service: &mut Running,
        arguments: &[String],
        out: &Path,
    ) -> anyhow::Result<RunFolder> {
        let arguments: Vec<String> = service.arguments.iter().chain(arguments).cloned().collect();
        let run = self
            .placement
            .of_generator(|| lab::load(&service.url, &arguments, out, self.context.quiet))?;
        service.check()?;
        let (answers, errors) =
            run.windows.iter().fold((0, 0), |s, w| (s.0 + w.completions, s.1 + w.errors));
        ensure!(
            answers > 0 && errors as f64 <= 1e-3 * answers as f64,
            "{errors} of {answers} replies were errors"
        );
        Ok(run)
    }

    /// The mean response of a load, seconds.
    fn mean_response(&self, (load, run): &(Load, RunFolder)) -> anyhow::Result<f64> {
        let times = run.times.iter().flat_map(|t| t.iter());
        let (count, sum) = times.fold((0u64, 0.0), |s, (_, taken)| (s.0 + 1, s.1 + taken as f64));
        ensure!(count > 0, "{} has no times of requests", load.name());
        Ok(sum * 1e-9 / count as f64)
    }

    fn record(&self, judged: &Judged) -> anyhow::Result<()> {
        let name = &self.service.name;
        let write = |name: String, text: String| {
            let path: PathBuf = self.context.out.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        self.context.say(judged.text());
        write(format!("{name}.json"), serde_json::to_string_pretty(judged)? + "\n")
    }
}
