//! `experiments/asl-live`: the ETH middleware study's experiments on this machine, with Concertina's
//! proxy as the middleware, before real memcached servers.
//!
//! Bandwidths are limited by the kernel (`tbf`), machines are network namespaces, and the distance
//! between middlewares and servers is a relay ([`Distance`]). Predictions are made of parameters that
//! are measured first, and are written to the record before any row is measured.

mod batches;
mod config;
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

use anyhow::Context as _;
use serde::Serialize;

use super::claims::Claim;
use super::context::Context;
use config::{Config, Settings};
pub use distance::Distance;
use measured::MeasuredRow;
use parameters::Parameters;
use rows::MultiGets;
use system::Lab;

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
