//! `experiments/asl-live`: the ETH middleware study's experiments on this machine, with Concertina's
//! proxy as the middleware, before real memcached servers.
//!
//! Bandwidths are limited by the kernel (`tbf`), machines are network namespaces, and the distance
//! between middlewares and servers is a relay ([`Distance`]). Predictions are made of parameters that
//! are measured first, and are written to the record before any row is measured.

mod batches;
mod distance;
mod findings;
mod measured;
mod parameters;
mod plots;
mod predict;
mod rows;
mod system;
mod tables;
#[cfg(test)]
mod tests;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::{Claim, Context};
pub use distance::Distance;
use measured::MeasuredRow;
use parameters::Parameters;
use rows::{Levels, MultiGets, Points};
use system::Lab;

/// `config.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    repetitions: u32,
    value_bytes: u64,
    keys: u64,
    filled_share: f64,
    think_ms: f64,
    distance_ms: f64,
    multi_get_clients: u32,
    batches: String,
    batch_rows: usize,
    links: Links,
    times: Times,
    curve: CurvePoints,
    full: Points,
    design: Levels,
    short: Points,
    short_times: Times,
}

/// Bandwidths of what leaves a machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Links {
    /// Mbit/s.
    server: f64,
    /// Mbit/s.
    client: f64,
    /// Mbit/s.
    middleware: f64,
    burst_bytes: u32,
    middleware_burst_bytes: u32,
}

/// How long to measure, seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    ramp: f64,
    /// A row is measured until so many requests are expected …
    requests: f64,
    /// … but so long at least …
    shortest: f64,
    /// … and at most.
    longest: f64,
    curve_ramp: f64,
    curve: f64,
    bandwidth: f64,
    light: f64,
}

/// Clients of the curves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurvePoints {
    clients: Vec<u32>,
    machine: Vec<u32>,
}

/// What all parts need of the configuration.
#[derive(Clone, Debug)]
struct Settings {
    seed: u64,
    repetitions: u32,
    value_bytes: u64,
    keys: u64,
    filled_share: f64,
    think_ms: f64,
    distance_ms: f64,
    links: Links,
    curve: CurvePoints,
}

impl Config {
    fn settings(&self) -> anyhow::Result<Settings> {
        let rows = [&self.full, &self.short].into_iter();
        let clients = rows.flat_map(|p| p.middleware_clients.iter().chain(&p.clients));
        let clients = clients.chain([&self.design.clients, &self.multi_get_clients]);
        for &n in clients.chain(&self.curve.clients) {
            ensure!(n > 0 && n % 2 == 0, "config.toml: {n} clients: an even number expected");
        }
        ensure!(self.think_ms > 0.0, "config.toml: think_ms: above 0 expected");
        ensure!((0.5..=1.0).contains(&self.filled_share), "config.toml: filled_share: 0.5 to 1");
        Ok(Settings {
            seed: self.seed,
            repetitions: self.repetitions,
            value_bytes: self.value_bytes,
            keys: self.keys,
            filled_share: self.filled_share,
            think_ms: self.think_ms,
            distance_ms: self.distance_ms,
            links: self.links.clone(),
            curve: self.curve.clone(),
        })
    }
}

/// What is written before rows are measured.
#[derive(Serialize)]
struct Predicted<'a> {
    parameters: &'a Parameters,
    rows: Vec<(String, &'a predict::Prediction)>,
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let settings = config.settings()?;
    let (points, times) = match context.short {
        true => (&config.short, &config.short_times),
        false => (&config.full, &config.times),
    };
    let source = context.folder.join(&config.batches);
    let batches = batches::prepare(&source, &config, &context.scratch)?;
    if batches.is_none() {
        context.say(format!("{} is missing: no real batches are measured", source.display()));
    }
    let multi = MultiGets { clients: config.multi_get_clients, batches: batches.is_some() };
    let rows = rows::rows(points, &config.design, multi);
    let trace = batches.as_ref().map(|batches| batches.trace.clone());
    let mut lab = Lab::start(&settings, &context.scratch, trace)?;
    context.provenance.peer("memcached", &lab.version()?)?;
    context.say("storing values");
    lab.fill()?;
    let keys = batches.as_ref().map(|batches| batches.keys);
    let parameters = Parameters::measure(context, &mut lab, &settings, times, keys)?;
    let mut predicted = Vec::new();
    for row in rows {
        let prediction = predict::predict(&row, &parameters, &settings)
            .with_context(|| format!("cannot predict {}", row.name()))?;
        predicted.push((row, prediction));
    }
    let before = Predicted {
        parameters: &parameters,
        rows: predicted.iter().map(|(row, prediction)| (row.name(), prediction)).collect(),
    };
    write(context, "predictions.json", &serde_json::to_string_pretty(&before)?)?;
    context.say("predictions are written; measuring");
    let measured = measured::measure(context, &mut lab, predicted, &settings, times)?;
    drop(lab);
    report(context, &config, &settings, &parameters, &measured)
}

/// Writes tables, plots and all measurements; gives the claims.
fn report(
    context: &Context,
    config: &Config,
    settings: &Settings,
    parameters: &Parameters,
    measured: &[MeasuredRow],
) -> anyhow::Result<Vec<Claim>> {
    write(context, "measurements.json", &serde_json::to_string_pretty(measured)?)?;
    let design = findings::design(measured, &config.design)?;
    let text = tables::text(measured, parameters, settings, &design);
    write(context, "tables.txt", &text)?;
    write(context, "plots.svg", &plots::svg(measured, settings))?;
    context.say(&text);
    Ok(findings::claims(measured, parameters, settings))
}

fn write(context: &Context, name: &str, text: &str) -> anyhow::Result<()> {
    let path = context.out.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
