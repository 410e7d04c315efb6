//! `experiments/att`: AT&T's capacity of stores, `concertina capacity URL` judged on mixes that its
//! fit did not use.
//!
//! The stores run on one processor, the load generator on another.

#[cfg(test)]
mod again;
mod swift;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::claims::{Claim, Goal};
use super::context::Context;
use super::foreign::services::{self, Kind, Service};
use super::lab::{self, Server};
use super::machine::{Placement, TooSmall, processors};
use super::quota::Quota;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    sizes: Vec<String>,
    mixes: usize,
    repeat: usize,
    step_s: f64,
    clients_max: usize,
    /// The share of its processor that a store has.
    processor_share: f64,
    store: Vec<Store>,
    short: Short,
}

/// What `--short` measures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    stores: Vec<String>,
    sizes: Vec<String>,
    mixes: usize,
    repeat: usize,
    step_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    name: String,
    kind: StoreKind,
    /// Where it differs from all.
    processor_share: Option<f64>,
    /// Of a short run.
    short_repeat: Option<usize>,
    short_step_s: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoreKind {
    Memcached,
    Versitygw,
    Dav,
    /// OpenStack's, with three replicas.
    Swift,
    /// A node of Concertina, all objects in memory.
    Node,
}

/// The largest error that AT&T printed, percent, and what is claimed of the worst and the median.
const PUBLISHED_PERCENT: f64 = 9.0;
const WORST_PERCENT: f64 = 7.0;
const MEDIAN_PERCENT: f64 = 2.5;
/// The share of mixes within their intervals.
const COVERAGE: f64 = 0.9;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let mut config: Config = context.config()?;
    if context.short {
        let short = &config.short;
        config.store.retain(|store| short.stores.contains(&store.name));
        (config.sizes, config.mixes) = (short.sizes.clone(), short.mixes);
        (config.repeat, config.step_s) = (short.repeat, short.step_s);
    }
    let all = processors()?;
    if all.len() < 2 {
        let why = "the store and the load generator need a processor each".to_owned();
        return Err(TooSmall { processors: all.len(), needed: 2, why }.into());
    }
    let placement = Placement::apart(&all[..2], 1);
    let mut claims = Vec::new();
    for store in &config.store {
        context.say(&store.name);
        let mut length = Length { repeat: config.repeat, step_s: config.step_s };
        if context.short {
            length.repeat = store.short_repeat.unwrap_or(length.repeat);
            length.step_s = store.short_step_s.unwrap_or(length.step_s);
        }
        // What `scratch` has is not measured again: a long run can be made in pieces.
        let kept = context.scratch.join(format!("{}.json", store.name));
        let survey = match std::fs::read_to_string(&kept) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) => {
                let survey = survey(context, &config, store, length, &placement);
                let survey = survey.context(store.name.clone())?;
                std::fs::write(&kept, serde_json::to_string(&survey)?)?;
                survey
            }
        };
        let path = context.out.join(format!("{}.json", store.name));
        let scratch = context.scratch.display().to_string();
        let text = (serde_json::to_string_pretty(&survey)? + "\n").replace(&scratch, "scratch");
        std::fs::write(&path, text)?;
        claims.extend(of_store(&store.name, &survey)?);
        // Recorded at once, in case a later store fails.
        context.record(&claims)?;
    }
    ensure!(!claims.is_empty(), "config.toml has no store to measure");
    Ok(claims)
}

/// Repetitions of a point, and their seconds.
#[derive(Clone, Copy)]
struct Length {
    repeat: usize,
    step_s: f64,
}

/// Where files are in memory.
const MEMORY: &str = "/dev/shm";

/// A store of another project, as a service of one process without a limit.
fn foreign_service(store: &Store, kind: Kind) -> Service {
    Service {
        name: store.name.clone(),
        kind,
        workers: 1,
        mbit_per_s: None,
        disk_mb_per_s: None,
        service_ms: None,
        capacity: None,
        closed_others: Vec::new(),
        closed_s: None,
        fit_s: 0.0,
        judge_s: 0.0,
        short_fit_s: None,
        short_judge_s: None,
        expected: None,
    }
}

/// Starts a store and measures it.
fn survey(
    context: &Context,
    config: &Config,
    store: &Store,
    length: Length,
    placement: &Placement,
) -> anyhow::Result<Value> {
    let scratch = context.scratch.join(&store.name);
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&scratch)?;
    let out = scratch.join("runs");
    // Files in memory, so that no disk is measured.
    // Programs of other users read in it.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("concertina-").permissions(readable).tempdir_in(MEMORY)?;
    let in_memory = folder.path().join(&store.name);
    let share = store.processor_share.unwrap_or(config.processor_share);
    let quota = |pids: &[u32]| Quota::new(&store.name, pids, share);
    let foreign = |kind: Kind| {
        let service = foreign_service(store, kind);
        placement.of_servers(|| services::start(&service, &context.folder, &in_memory))
    };
    match store.kind {
        StoreKind::Node => {
            let origin = in_memory.join("origin");
            std::fs::create_dir_all(&origin)?;
            let path = scratch.join("node.toml");
            lab::write_config(&path, &lab::server(1 << 30, Vec::new(), &origin))?;
            let server =
                placement.of_servers(|| Server::start(&path, &scratch.join("node.log")))?;
            let quota = quota(&[server.pid() as u32])?;
            let survey = measure(config, length, server.url(), &[], &out, placement)?;
            server.stop()?;
            drop(quota);
            Ok(survey)
        }
        StoreKind::Swift => {
            let mut swift = placement.of_servers(|| swift::Swift::start(&in_memory))?;
            let quota = quota(&swift.pids())?;
            let own = [format!("--prefix={}", swift::PREFIX)];
            let survey = measure(config, length, &swift.url, &own, &out, placement)?;
            swift.check()?;
            drop(swift);
            drop(quota);
            Ok(survey)
        }
        StoreKind::Memcached | StoreKind::Versitygw | StoreKind::Dav => {
            let mut running = foreign(match store.kind {
                StoreKind::Memcached => Kind::Memcached,
                StoreKind::Dav => Kind::Dav,
                _ => Kind::Versitygw,
            })?;
            let own = running.arguments.iter().filter(|a| a.starts_with("--credentials"));
            let own: Vec<String> = own.cloned().collect();
            let quota = quota(&running.pids())?;
            let survey = measure(config, length, &running.url, &own, &out, placement)?;
            running.check()?;
            drop(running);
            drop(quota);
            Ok(survey)
        }
    }
}

/// `concertina capacity URL`, on the generator's processor.
fn measure(
    config: &Config,
    length: Length,
    url: &str,
    own: &[String],
    out: &Path,
    placement: &Placement,
) -> anyhow::Result<Value> {
    let mut command = Command::new(lab::program()?);
    command
        .args(["capacity", url, "--json", "--quiet"])
        .arg(format!("--sizes={}", config.sizes.join(",")))
        .arg(format!("--judge={}", config.mixes))
        .arg(format!("--repeat={}", length.repeat))
        .arg(format!("--duration={}s", length.step_s))
        .arg(format!("--clients-max={}", config.clients_max))
        .arg(format!("--seed={}", config.seed))
        .arg(format!("--out={}", out.display()))
        .args(own)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = placement.of_generator(|| Ok(command.output()?))?;
    ensure!(output.status.success(), "`concertina capacity` ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The claims of a store.
fn of_store(name: &str, survey: &Value) -> anyhow::Result<Vec<Claim>> {
    let judged = survey["judged"].as_array().context("no judged mixes")?;
    ensure!(!judged.is_empty(), "no judged mixes");
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let mut errors: Vec<f64> = judged.iter().map(|j| 100.0 * number(&j["error"]).abs()).collect();
    // The widest interval of a measured mix, relative: each has to be measured well.
    let half = judged.iter().map(|j| {
        100.0 * number(&j["measured"]["half_width"]) / number(&j["measured"]["throughput"])
    });
    let half =
        half.fold(0.0, |w: f64, h| if h.is_nan() || w.is_nan() { f64::NAN } else { w.max(h) });
    errors.sort_by(f64::total_cmp);
    let n = errors.len();
    let worst = errors[n - 1];
    let mixes = n as u64;
    let what = |figure: &str| format!("{name}: |error of throughput| of unseen mixes, {figure}");
    let worst = Claim {
        published: Some(PUBLISHED_PERCENT),
        ..Claim::new(what("worst"), worst, half, "%", mixes).with_goal(Goal::AtMost(WORST_PERCENT))
    };
    let mut median = Claim::new(what("median"), errors[n / 2], 0.0, "%", mixes);
    // The binomial interval of a median.
    let reach = (0.98 * (n as f64).sqrt()).ceil() as usize;
    median.low = errors[(n / 2).saturating_sub(reach)];
    median.high = errors.get(n / 2 + reach).copied().unwrap_or(f64::NAN);
    let inside = judged.iter().filter(|j| j["inside"] == true).count() as f64 / n as f64;
    let coverage =
        Claim::counted(format!("{name}: mixes within their 95 % intervals"), inside, "", mixes);
    let arithmetic: Vec<f64> = judged
        .iter()
        .map(|j| {
            100.0 * (number(&j["arithmetic"]) / number(&j["measured"]["throughput"]) - 1.0).abs()
        })
        .collect();
    let arithmetic = arithmetic.iter().copied().fold(0.0, f64::max);
    let alone = judged.iter().map(|j| 100.0 * number(&j["law_error"]).abs()).fold(0.0, f64::max);
    let reading = format!("{name}: the same by the arithmetic mean (shares of capacity), worst");
    Ok(vec![
        worst,
        median.with_goal(Goal::AtMost(MEDIAN_PERCENT)),
        coverage.with_goal(Goal::AtLeast(COVERAGE)),
        Claim::counted(format!("{name}: the same by the law alone, worst"), alone, "%", mixes),
        Claim::counted(reading, arithmetic, "%", mixes),
    ])
}
