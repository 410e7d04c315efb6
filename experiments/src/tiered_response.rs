//! `experiments/tiered-response`: predicted against measured responses of a node whose requests are answered by
//! memory, a hot device and disks.

use std::path::Path;

use anyhow::Context as _;
use configuration::{Class, Device, Size};
use record::RunFolder;
use report::{Comparison, Observed, Page, Selection};
use serde::Deserialize;

use super::accuracy::Accuracy;
use super::claims::Claim;
use super::context::Context;
use super::lab::{self, ENTRY_BYTES, Server};
use super::marks::MarkedLoad;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: u64,
    zipf: f64,
    memory_share: f64,
    hot_share: f64,
    disks: u32,
    bulk_ms: f64,
    hot_ms: f64,
    scv: f64,
    warm_rate: f64,
    warm_s: f64,
    fit: Vec<f64>,
    held_out: Vec<f64>,
    measure_s: f64,
    short_warm_s: f64,
    short_measure_s: f64,
}

/// The largest error that is allowed, points.
const GOAL: f64 = 3.0;

/// A node with memory, disks and a hot device in front of them.
fn server_config(config: &Config, scratch: &Path) -> anyhow::Result<configuration::Config> {
    let total = config.objects * (config.object_bytes + ENTRY_BYTES);
    let device = |class: Class, mean_ms: f64, bytes: u64| -> anyhow::Result<Device> {
        Ok(Device {
            path: scratch.join(if class == Class::Hot { "hot" } else { "bulk" }),
            class,
            bytes: Size(bytes),
            segment_bytes: Size((bytes / 32).max(1 << 20).min(bytes / 4)),
            queue_length_max: 100_000,
            service: Some(lab::service("gamma", 1000.0 / mean_ms, config.scv)?),
            ..Device::default()
        })
    };
    let hot_bytes = (total as f64 * config.hot_share) as u64;
    let bulk = Device { count: config.disks, ..device(Class::Bulk, config.bulk_ms, 2 * total)? };
    let devices = vec![bulk, device(Class::Hot, config.hot_ms, hot_bytes)?];
    let memory = (total as f64 * config.memory_share) as u64;
    Ok(lab::server(memory, devices, &scratch.join("origin")))
}

/// Writes the model, the comparison and what the tiers did, without the path of this machine.
fn write_files(
    context: &Context,
    model: &model::Model,
    comparison: &Comparison,
    tiers: &engine::node::Tiers,
) -> anyhow::Result<()> {
    let here = context.scratch.display().to_string();
    let write = |name: &str, text: String| {
        let path = context.out.join(name);
        std::fs::write(&path, text.replace(&here, "scratch"))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    let page = Page {
        embedded: None,
        title: "tiered-response".to_owned(),
        commands: vec!["experiments run experiments/tiered-response".to_owned()],
    };
    write("model.toml", model.to_toml()?)?;
    write("comparison.json", serde_json::to_string_pretty(comparison)?)?;
    write("comparison.html", report::html(comparison, &page))?;
    write("tiers.json", serde_json::to_string_pretty(tiers)?)?;
    Ok(())
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let scratch = &context.scratch;
    let mut server = server_config(&config, scratch)?;
    server.observe.run_dir = Some(scratch.join("server"));
    let path = scratch.join("server.toml");
    lab::write_config(&path, &server)?;
    let server = Server::start(&path, &scratch.join("server.log"))?;
    let (warm_s, measure_s) = match context.short {
        true => (config.short_warm_s, config.short_measure_s),
        false => (config.warm_s, config.measure_s),
    };
    let load = |name: &str, rate: f64, seconds: f64, more: &[&str]| {
        let mut arguments = vec![
            format!("--rate={rate}"),
            "--warmup=2s".to_owned(),
            format!("--duration={seconds}s"),
            format!("--keys=zipf:{}", config.zipf),
            format!("--count={}", config.objects),
            format!("--size={}", config.object_bytes),
            // Another stream of random numbers at each load.
            format!("--seed={rate}"),
        ];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        context.say(format!("{name}: {rate}/s for {seconds} s"));
        lab::load(server.url(), &arguments, &scratch.join(format!("{name}-{rate}")), context.quiet)
    };
    load("warm-up", config.warm_rate, warm_s, &["--fill"])?;
    let measure = |name: &str, rates: &[f64]| -> anyhow::Result<Vec<RunFolder>> {
        rates.iter().map(|&rate| load(name, rate, measure_s, &[])).collect()
    };
    let (mut fit, mut held_out) =
        (measure("fit", &config.fit)?, measure("held-out", &config.held_out)?);
    let tiers = server.tiers()?;
    server.stop()?;
    let server = RunFolder::read(&scratch.join("server"))?;
    fit.push(server.clone());
    held_out.push(server);
    let model = report::fit(&Observed::new(fit, &Selection::default())?, "tiered")?;
    let observed = Observed::new(held_out, &Selection::default())?;
    let comparison = Comparison::new(&observed, &model, &[], &[])?;
    write_files(context, &model, &comparison, &tiers)?;
    context.say(report::table(&comparison));
    let loads: Vec<MarkedLoad> = config
        .held_out
        .iter()
        .map(|&rate| MarkedLoad { rate: Some(rate), marks: Vec::new() })
        .collect();
    let measured = comparison.steps.iter().map(|step| &step.measured);
    let requests: Vec<(f64, u64)> = measured.map(|m| (m.rate, m.requests)).collect();
    let accuracy = Accuracy {
        of: "memory, hot device and disks",
        part: "at held-out loads",
        rate_max: f64::INFINITY,
        goal: GOAL,
        published: None,
        loads: &loads,
    };
    let bought = tiers.hot.context("the node has no hot device")?.bought;
    let reads = bought.hot_reads + bought.bulk_reads;
    let share = bought.hot_reads as f64 / reads.max(1) as f64;
    let mut claims =
        vec![Claim::counted("share of reads of devices served hot", share * 100.0, "%", reads)];
    claims.extend(accuracy.claim(&comparison.rows, &requests));
    Ok(claims)
}
