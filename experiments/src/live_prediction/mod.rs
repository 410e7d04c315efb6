//! `experiments/live-prediction`: what a node predicts of itself over a day, against what happened; its
//! headroom against the true knee (`knee`); its alarms (`alarms`).

mod alarms;
mod config;
mod knee;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::BufRead as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use model::statistics::quantile;
use serde::Deserialize;

use super::claims::{Claim, Goal, Peer};
use super::context::Context;
use super::lab::{self, Catalogue, Server};
use config::{Config, Part};
use knee::read_model;

/// Time between two looks at the node's model.
const LOOK: Duration = Duration::from_secs(5);

/// A prediction that the node compared with what happened.
#[derive(Debug, Deserialize)]
struct Scored {
    at_unix_us: u64,
    rate_predicted: f64,
    rate: f64,
    measured: f64,
    requests: u64,
    error_points: f64,
    error_at_rate_points: Option<f64>,
    error_unchanged_points: f64,
    covered: bool,
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let rates = rates(&context.folder.join(&config.trace), &config, part)?;
    let scratch = &context.scratch;
    let catalogue = Catalogue::write(scratch, config.objects, config.object_bytes)?;
    let (devices, origin) = (scratch.join("device"), scratch.join("origin"));
    context.say(format!("putting {} objects", config.objects));
    let plain = lab::server(1 << 20, lab::disks(&devices, config.disks, None), &origin);
    lab::write_config(&scratch.join("fill.toml"), &plain)?;
    let filling = Server::start(&scratch.join("fill.toml"), &scratch.join("fill.log"))?;
    catalogue.put(filling.url(), &scratch.join("fill"), context.quiet)?;
    filling.stop()?;

    let memory = catalogue.memory_bytes(config.hit_ratio * config.objects as f64);
    let service = lab::service("exponential", config.disk_per_s, 1.0)?;
    let disks = lab::disks(&devices, config.disks, Some(service));
    let mut settings = lab::server(memory, disks, &origin);
    settings.observe.objectives_ms = vec![config.objective_ms];
    settings.model.objective_ms = config.objective_ms;
    settings.model.ahead_s = part.ahead_s;
    settings.model.scored_s = part.scored_s;
    settings.model.window_s = settings.model.window_s.min(3.0 * part.ahead_s);
    settings.model.refit_s = part.refit_s;
    lab::write_config(&scratch.join("server.toml"), &settings)?;
    let server = Server::start(&scratch.join("server.toml"), &scratch.join("server.log"))?;
    catalogue.ask_for_all(server.url(), &scratch.join("warmup"), context.quiet)?;

    let mut all = knee::run(context, &config, &catalogue, &server)?;
    context.say(format!("a day in {} s", part.replay_s));
    let (scored, cost) = replay(context, &config, part, &catalogue, &server, &rates)?;
    server.stop()?;
    let path = context.out.join("predictions.csv");
    std::fs::write(&path, csv(&scored))
        .with_context(|| format!("cannot write {}", path.display()))?;
    context.say("alarms in virtual time");
    all.splice(0..0, claims(&scored, cost));
    all.extend(alarms::run(context, &config, part.alarm_seeds)?);
    Ok(all)
}

/// The rate of each step: the trace's mean over the part of the day that the step stands for, scaled so
/// that the busiest step has the peak utilisation.
fn rates(trace: &Path, config: &Config, part: &Part) -> anyhow::Result<Vec<f64>> {
    let cannot = || format!("cannot read {}", trace.display());
    let packed = std::fs::File::open(trace).with_context(cannot)?;
    let text = std::io::BufReader::new(record::zst::Decoder::new(packed));
    let mut day = Vec::new();
    for line in text.lines().skip(config.day_starts_s).take(config.day_s) {
        let line = line.with_context(cannot)?;
        day.push(line.parse::<f64>().context("the trace is not a number a line")?);
    }
    anyhow::ensure!(day.len() == config.day_s, "the trace ends before the day does");
    let steps = (part.replay_s / part.step_s).round() as usize;
    let each = day.len() / steps.max(1);
    let means: Vec<f64> =
        day.chunks_exact(each).map(|c| c.iter().sum::<f64>() / each as f64).collect();
    let peak = means.iter().copied().fold(0.0, f64::max);
    let most = config.peak_utilisation * config.capacity();
    Ok(means.into_iter().map(|mean| (most * mean / peak).max(1.0)).collect())
}

/// Replays the rates; returns the predictions in the order of their times, and the live model's share of
/// a processor.
fn replay(
    context: &Context,
    config: &Config,
    part: &Part,
    catalogue: &Catalogue,
    server: &Server,
    rates: &[f64],
) -> anyhow::Result<(Vec<Scored>, f64)> {
    let steps: Vec<(f64, f64)> = rates.iter().map(|rate| (*rate, part.step_s)).collect();
    let done = AtomicBool::new(false);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let since_us = since.as_micros() as u64;
    let (began, before) = (Instant::now(), look(server.url())?.1);
    let mut found: BTreeMap<u64, Scored> = BTreeMap::new();
    let mut cost = 0.0;
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let loading = scope.spawn(|| {
            let loaded = config.load(context, catalogue, server, &steps, "load");
            done.store(true, Ordering::Relaxed);
            loaded.map(drop)
        });
        let mut last = false;
        while !last {
            last = done.load(Ordering::Relaxed);
            let (scored, cost_s) = look(server.url())?;
            cost = (cost_s - before) / began.elapsed().as_secs_f64();
            // A prediction made before the day began is of another load.
            let from = since_us + (part.ahead_s * 1e6) as u64;
            let of_day = scored.into_iter().filter(|scored| scored.at_unix_us > from);
            found.extend(of_day.map(|scored| (scored.at_unix_us, scored)));
            std::thread::sleep(if last { Duration::ZERO } else { LOOK });
        }
        loading.join().map_err(|_| anyhow::anyhow!("the load generator's thread ended early"))?
    })?;
    Ok((found.into_values().collect(), cost))
}

/// The predictions that a node has compared, and the processor time of its model.
fn look(url: &str) -> anyhow::Result<(Vec<Scored>, f64)> {
    let shown = read_model(url)?;
    let scored =
        Vec::deserialize(&shown["model"]["scored"]).context("the node compared nothing")?;
    Ok((scored, shown["cost_s"].as_f64().unwrap_or(f64::NAN)))
}

fn csv(all: &[Scored]) -> String {
    let mut text =
        "at_unix_us,rate_predicted,rate,requests,measured,error_points,error_at_rate_points,\
                    error_unchanged_points,covered\n"
            .to_owned();
    for s in all {
        let at_rate = s.error_at_rate_points.map_or(String::new(), |error| format!("{error:.3}"));
        let _ = writeln!(
            text,
            "{},{:.1},{:.1},{},{:.5},{:.3},{at_rate},{:.3},{}",
            s.at_unix_us,
            s.rate_predicted,
            s.rate,
            s.requests,
            s.measured,
            s.error_points,
            s.error_unchanged_points,
            s.covered
        );
    }
    text
}

fn claims(all: &[Scored], cost: f64) -> Vec<Claim> {
    let count = all.len() as u64;
    let errors = |of: &dyn Fn(&Scored) -> Option<f64>| -> Vec<f64> {
        all.iter().filter_map(of).map(f64::abs).collect()
    };
    let median = |values: &[f64]| quantile(values, 0.5).unwrap_or(f64::NAN);
    let ours = errors(&|s| Some(s.error_points));
    let unchanged = errors(&|s| Some(s.error_unchanged_points));
    let worst = |values: &[f64]| values.iter().copied().fold(f64::NAN, f64::max);
    let peer = |value: f64| Some(Peer { name: "expecting no change".to_owned(), value });
    let covered = all.iter().filter(|s| s.covered).count() as f64;
    let coverage = 100.0 * covered / all.len().max(1) as f64;
    let half =
        196.0 * (coverage / 100.0 * (1.0 - coverage / 100.0) / all.len().max(1) as f64).sqrt();
    let ahead =
        Claim::counted("median error of P(T ≤ objective) ahead", median(&ours), "points", count);
    let far = Claim::counted("largest error ahead", worst(&ours), "points", count);
    let at_rate = median(&errors(&|s| s.error_at_rate_points));
    let share = Claim::new("coverage of the 95 % interval", coverage, half, "%", count);
    vec![
        Claim { peer: peer(median(&unchanged)), ..ahead }.with_goal(Goal::AtMost(1.0)),
        Claim { peer: peer(worst(&unchanged)), ..far }.with_goal(Goal::AtMost(5.0)),
        Claim::counted("median error of the model at the load that came", at_rate, "points", count),
        share.with_goal(Goal::AtLeast(90.0)),
        Claim::counted("processor share of the live model", 100.0 * cost, "%", count)
            .with_goal(Goal::AtMost(2.0)),
    ]
}
