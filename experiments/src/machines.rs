//! `experiments/machines`: three machines as network namespaces, struck in turn while clients write and read
//! (`measure.py`), and the ring of a large cluster: balance, movement, cost.

use std::hint::black_box;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use engine::route::{Member, Ring};
use ground::window::key_hash;
use record::clock::now;
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;
use super::foreign::services::versitygw_program;
use super::lab;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Times that every machine is struck in each way.
    rounds: u32,
    /// The same with `--short`.
    short_rounds: u32,
    /// Nodes of the large ring.
    nodes: usize,
    /// Keys of the large ring, of which `sampled` are looked up.
    keys: u64,
    sampled: u64,
}

/// What `measure.py` prints.
#[derive(Deserialize)]
struct Measurements {
    effects: Vec<Effect>,
    reads: u64,
    writes: u64,
    writes_refused: u64,
    slowest_read_s: f64,
    failed_reads: u64,
    stale_reads: u64,
    lost: Vec<String>,
}

#[derive(Deserialize)]
struct Effect {
    fault: String,
    writes_resumed_s: f64,
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let mut claims = ring(&config)?;
    context.record(&claims)?;
    let rounds = if context.short { config.short_rounds } else { config.rounds };
    let measured = measure(context, rounds)?;
    let none = Some(Goal::AtMost(0.0));
    let (reads, writes) = (measured.reads, measured.writes);
    let counted = |name: &str, value: f64, unit: &str, samples: u64, goal: Option<Goal>| Claim {
        goal,
        ..Claim::counted(name, value, unit, samples)
    };
    claims.extend([
        counted("failed reads", measured.failed_reads as f64, "", reads, none),
        counted("stale reads", measured.stale_reads as f64, "", reads, none),
        counted("lost acknowledgements", measured.lost.len() as f64, "", writes, none),
        counted("slowest read", measured.slowest_read_s, "s", reads, None),
        counted("writes refused", measured.writes_refused as f64, "", writes, None),
    ]);
    let mut kinds: Vec<&str> = measured.effects.iter().map(|e| e.fault.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let of = measured.effects.iter().filter(|effect| effect.fault == kind);
        let times: Vec<f64> = of.map(|effect| effect.writes_resumed_s).collect();
        let longest = times.iter().copied().fold(0.0, f64::max);
        let name = format!("writes of all keys again: {kind}");
        claims.push(counted(&name, longest, "s", times.len() as u64, Some(Goal::AtMost(2.0))));
    }
    Ok(claims)
}

/// Runs the script; its output is part of the record.
fn measure(context: &Context, rounds: u32) -> anyhow::Result<Measurements> {
    let script = context.folder.join("measure.py");
    let output = Command::new("python3")
        .arg(&script)
        .arg(lab::program()?)
        .arg(versitygw_program()?)
        .arg(context.scratch.join("machines"))
        .arg(rounds.to_string())
        .stdin(Stdio::null())
        .stderr(if context.quiet { Stdio::null() } else { Stdio::inherit() })
        .output()
        .context("cannot run python3")?;
    if !output.status.success() {
        bail!("{} failed ({})", script.display(), output.status);
    }
    let path = context.out.join("measured.json");
    std::fs::write(&path, &output.stdout)
        .with_context(|| format!("cannot write {}", path.display()))?;
    serde_json::from_slice(&output.stdout).context("measure.py printed something else")
}

/// The ring of a large cluster, before and after a node joins, over a sample of the keys.
fn ring(config: &Config) -> anyhow::Result<Vec<Claim>> {
    let member = |at: usize| Member::new(format!("node-{at:04}"), 1.0);
    let of = |nodes: usize| Ring::listed((0..nodes).map(member).collect(), 3);
    let began = now();
    let before = of(config.nodes)?;
    // All of its table, which is computed where it is looked up.
    black_box(before.shares());
    let built_ms = (now() - began) as f64 * 1e-6;
    let after = of(config.nodes + 1)?;
    let step = (config.keys / config.sampled.max(1)).max(1);
    let hash = |i: u64| key_hash(format!("object/{}", i * step).as_bytes());
    let mut counts = vec![0u64; config.nodes];
    let (mut moved, mut strays) = (0u64, 0u64);
    for i in 0..config.sampled {
        let hash = hash(i);
        let (old, new) = (before.replicas_of_hash(hash), after.replicas_of_hash(hash));
        let (Some(was), Some(is)) = (old.iter().next(), new.iter().next()) else { continue };
        counts[was] += 1;
        if was != is {
            moved += 1;
            strays += u64::from(is != config.nodes);
        }
    }
    let mean = config.sampled as f64 / config.nodes as f64;
    let most = counts.iter().copied().max().unwrap_or(0) as f64 / mean;
    let ideal = config.sampled as f64 / (config.nodes + 1) as f64;
    let hashes: Vec<u64> = (0..1 << 16).map(hash).collect();
    let began = now();
    let mut places = 0;
    for _ in 0..16 {
        for &hash in &hashes {
            places += black_box(before.replicas_of_hash(hash)).len();
        }
    }
    let look_up_ns = (now() - began) as f64 / (16 * hashes.len()) as f64;
    black_box(places);
    let samples = config.sampled;
    let counted = |name: &str, value: f64, unit: &str, goal: Option<Goal>| Claim {
        goal,
        ..Claim::counted(name, value, unit, samples)
    };
    Ok(vec![
        counted(
            "keys moved by a join, of the ideal",
            moved as f64 / ideal,
            "",
            Some(Goal::AtMost(1.05)),
        ),
        counted("keys moved elsewhere", strays as f64, "", Some(Goal::AtMost(0.0))),
        counted("keys of the fullest node, of the mean", most, "", None),
        Claim::once("a look-up", look_up_ns, "ns"),
        Claim::once("building the ring", built_ms, "ms"),
    ])
}
