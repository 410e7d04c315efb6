//! `experiments/foreign`: services that are not ours, fitted from when each request came and was
//! answered at loads up to 60 % of their capacity, and judged by fresh runs at 70, 80 and 90 %.
//!
//! Nothing of a service but its replies is seen. The services run on one processor and the load
//! generator on another.

mod disk;
mod judged;
mod logs;
mod needs;
mod postgres;
pub(crate) mod services;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::machine::{Placement, busy_over, processors};
use super::marks;
use super::provenance::Round;
use super::{Claim, Context, TooSmall, lab};
use judged::Judged;
use model::fit::ClosedLoop;
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
    heat_s: f64,
    pilot_s: f64,
    pilot_clients: u32,
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

/// What the pilot's throughput is uncertain by, as a share: works differ by 2 to 4 % between runs of some seconds.
const PILOT_DEVIATION: f64 = 0.02;

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

/// A load to measure.
#[derive(Clone, Copy, Debug)]
struct Load {
    share: f64,
    seconds: f64,
    fitted: bool,
    /// Measured before, and now again.
    again: bool,
}

impl Load {
    fn name(self) -> String {
        let what = if self.fitted { "fit" } else { "judge" };
        let again = if self.again { "-again" } else { "" };
        format!("{what}-{:.0}{again}", self.share * 100.0)
    }
}

/// One service.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    service: &'a Service,
    placement: &'a Placement,
}

/// What is kept of a service between the pieces of a run.
#[derive(Serialize, Deserialize)]
struct Pilot {
    capacity: f64,
}

impl Case<'_> {
    fn judge(&self, (pilot, runs): (Pilot, Vec<(Load, RunFolder)>)) -> anyhow::Result<Judged> {
        let scratch = self.context.scratch.join(&self.service.name);
        let (fit, judge): (Vec<_>, Vec<_>) = runs.into_iter().partition(|(load, _)| load.fitted);
        let step = |load: &Load| format!("{}/{}", self.service.name, load.name());
        let marked = |(load, run): &(Load, RunFolder)| marks::of_run(&step(load), run, 0.005);
        let marks = fit.iter().chain(&judge).flat_map(marked).collect();
        let folders = |runs: &[(Load, RunFolder)]| -> Vec<RunFolder> {
            runs.iter().map(|(_, run)| run.clone()).collect()
        };
        let selection = Selection { any_queues: true, ..Selection::default() };
        let observed = Observed::new(folders(&fit), &selection)?;
        // Of a service that has a capacity: what its closed loop carried.
        let closed_loop = self
            .service
            .capacity
            .is_none()
            .then_some(ClosedLoop { throughput: pilot.capacity, deviation: PILOT_DEVIATION });
        let fitted = report::fit_service(&observed, &self.service.name, None, closed_loop)?;
        let heaviest = fit.iter().max_by(|a, b| a.0.share.total_cmp(&b.0.share));
        let mean = self.mean_response(heaviest.context("no fitted load")?)?;
        let within: Vec<f64> = self.config.times.iter().map(|t| t * mean).collect();
        let (fit, judge) = (folders(&fit), folders(&judge));
        let observed = Observed::new([fit.clone(), judge.clone()].concat(), &selection)?;
        let comparison = Comparison::new(&observed, &fitted.model, &within, &[])?;
        let mut judged = Judged::new(self.service, pilot.capacity, &fitted, &comparison, marks);
        judged.by_law(&fitted.model, &comparison, &within)?;
        let high = judged::HIGH * pilot.capacity;
        judged.logs = logs::from_logs(&fit, &judge, &within, high, &scratch)?;
        self.record(&judged)?;
        Ok(judged)
    }

    /// Measures what `scratch` does not have yet: a long run can be made in pieces.
    fn measure_all(&self) -> anyhow::Result<(Pilot, Vec<(Load, RunFolder)>)> {
        let scratch = &self.context.scratch.join(&self.service.name);
        std::fs::create_dir_all(scratch)?;
        let mut running: Option<Running> = None;
        let kept = scratch.join("pilot.json");
        let pilot: Pilot = match std::fs::read_to_string(&kept) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) => {
                let service = self.running(&mut running, scratch)?;
                let pilot = Pilot { capacity: self.pilot(service, scratch)? };
                std::fs::write(&kept, serde_json::to_string(&pilot)?)?;
                pilot
            }
        };
        let service = self.service;
        self.context.say(format!("{}: {:.0} requests/s at most", service.name, pilot.capacity));
        let config = self.config;
        let fit = |again: bool| {
            let load = move |&share: &f64| Load {
                share,
                seconds: 0.5 * service.fit_s,
                fitted: true,
                again,
            };
            config.fit_shares.iter().map(load)
        };
        let judge =
            |&share: &f64| Load { share, seconds: service.judge_s, fitted: false, again: false };
        // Half of what is fitted comes before what is judged, and half after it in the opposite order: a
        // machine that becomes faster is as fast for both in the mean, and how much it does is known.
        let judged = config.judge_shares.iter().map(judge);
        let loads: Vec<Load> = fit(false).chain(judged).chain(fit(true).rev()).collect();
        let mut runs = Vec::new();
        for (number, load) in loads.into_iter().enumerate() {
            let (out, done) = (scratch.join(load.name()), scratch.join(load.name() + ".done"));
            if !done.exists() {
                let service = self.running(&mut running, scratch)?;
                // Another stream of random numbers at each load.
                let seed = config.seed + number as u64;
                let arguments = [
                    format!("--rate={:.2}", load.share * pilot.capacity),
                    format!("--warmup={:.1}s", config.warmup_s),
                    format!("--duration={:.1}s", load.seconds),
                    format!("--seed={seed}"),
                ];
                self.undisturbed(service, &arguments, &out, &load.name())?;
                std::fs::write(&done, "")?;
            }
            let run = RunFolder::read(&out)?;
            let step = format!("{}/{}", self.service.name, load.name());
            let facts = [("stolen", marks::stolen(&run)), ("processors_busy", marks::busy(&run))];
            self.context.provenance.round(Round::new(&step, 1, true).with(facts))?;
            runs.push((load, run));
        }
        Ok((pilot, runs))
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
                format!("--clients={}", self.config.pilot_clients),
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

    /// Requests/s that a closed loop gets answered.
    fn pilot(&self, service: &mut Running, scratch: &Path) -> anyhow::Result<f64> {
        if let Some(capacity) = self.service.capacity {
            return Ok(capacity);
        }
        let out = scratch.join("pilot");
        let _ = std::fs::remove_dir_all(&out);
        let arguments = [
            format!("--clients={}", self.config.pilot_clients),
            format!("--warmup={:.1}s", self.config.warmup_s),
            format!("--duration={:.1}s", self.service.pilot_s.unwrap_or(self.config.pilot_s)),
            format!("--seed={}", self.config.seed + 1000),
        ];
        let run = self.load(service, &arguments, &out)?;
        // Not those of the warm-up.
        let (from, to) = run.steps.first().map_or((0, 0), |s| (s.start_unix_us, s.end_unix_us));
        let inside =
            |w: &&model::window::Window| w.queue == "load" && (from..to).contains(&w.start_unix_us);
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
