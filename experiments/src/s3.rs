//! `experiments/s3`: processor time of signed reads through the S3 front, beside the plain path, nginx and versitygw, and times
//! of writes through it and of its store alone (`measure.py`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;
use super::foreign::services::versitygw_program;
use super::lab;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Requests of a slice of 4 KiB; of larger objects fewer.
    requests: u32,
    /// Blocks of one slice of each kind.
    blocks: u32,
    /// The same with `--short`.
    short_requests: u32,
    short_blocks: u32,
}

/// By size and kind, microseconds for a request in each block: of the server's processor (of writes, `put-cpu-SIZE`), and of writes
/// (`put-SIZE`) as the client sees them.
type BlockTimes = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let (requests, blocks) = match context.short {
        true => (config.short_requests, config.short_blocks),
        false => (config.requests, config.blocks),
    };
    let measured = measure(context, requests, blocks)?;
    let mut claims = Vec::new();
    for (name, kinds) in &measured {
        if let Some(size) = name.strip_prefix("put-cpu-") {
            claims.extend(kinds.get("front").map(|times| processor_of_puts(size, times)));
        } else if let Some(size) = name.strip_prefix("put-") {
            claims.extend(puts(size, kinds)?);
        } else {
            claims.extend(gets(name, kinds)?);
        }
    }
    Ok(claims)
}

fn processor_of_puts(size: &str, times: &[f64]) -> Claim {
    let claim = Claim::of_rounds(format!("processor time of a PUT, {size}"), times, "µs");
    match size {
        "4k" => claim.with_goal(Goal::AtMost(80.0)),
        _ => claim,
    }
}

/// What some kinds of requests take of what others do, block by block.
fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

fn puts(size: &str, kinds: &BTreeMap<String, Vec<f64>>) -> anyhow::Result<Vec<Claim>> {
    let (Some(front), Some(store)) = (kinds.get("front"), kinds.get("store")) else {
        bail!("measure.py has not measured the writes of {size}")
    };
    let goal = match size {
        "4k" => 1.25,
        "100k" => 1.2,
        _ => 1.05,
    };
    let what = format!("PUT of the store's alone, {size}");
    let mut claims = vec![
        Claim::of_rounds(format!("time of a PUT, {size}"), front, "µs"),
        Claim::of_rounds(what, &ratios(front, store), "").with_goal(Goal::AtMost(goal)),
    ];
    for (kind, theirs) in kinds.iter().filter(|(kind, _)| !["front", "store"].contains(&&***kind)) {
        let what = format!("PUT through {kind} of the store's alone, {size}");
        claims.push(Claim::of_rounds(what, &ratios(theirs, store), ""));
    }
    Ok(claims)
}

fn gets(size: &str, kinds: &BTreeMap<String, Vec<f64>>) -> anyhow::Result<Vec<Claim>> {
    let Some(ours) = kinds.get("s3") else { bail!("measure.py has not measured the front") };
    let mut claims =
        vec![Claim::of_rounds(format!("processor time of a signed GET, {size}"), ours, "µs")];
    for (kind, theirs) in kinds.iter().filter(|(kind, _)| *kind != "s3") {
        // What checks no signature is what the front is to come near to; the rivals are to be left behind.
        let less = match kind.as_str() {
            "http" => Some(("the plain path's", Goal::AtMost(1.15))),
            "nginx" => Some(("nginx's", Goal::AtMost(1.2))),
            _ => None,
        };
        let claim = match less {
            Some((whose, _)) => {
                let what = format!("signed GET, of {whose}, {size}");
                Claim::of_rounds(what, &ratios(ours, theirs), "")
            }
            None => {
                let what = format!("{kind} of the signed GET, {size}");
                Claim::of_rounds(what, &ratios(theirs, ours), "")
            }
        };
        claims.push(match (less, kind.as_str(), size) {
            (Some((_, goal)), _, "100k") => claim.with_goal(goal),
            (None, "tag", "100k") => claim.with_goal(Goal::AtLeast(5.0)),
            _ => claim,
        });
    }
    Ok(claims)
}

/// The path of a program, or what the script takes for a program that is not there.
fn program_path(program: &str) -> OsString {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program));
    found.into_iter().find(|path| path.is_file()).map_or("-".into(), OsString::from)
}

/// Runs the script; its output is part of the record. Tigris's gateway takes part if `TIGRIS_TAG` names its program.
fn measure(context: &Context, requests: u32, blocks: u32) -> anyhow::Result<BlockTimes> {
    let script = context.folder.join("measure.py");
    let tag = std::env::var_os("TIGRIS_TAG").unwrap_or_else(|| "-".into());
    let output = Command::new("python3")
        .arg(&script)
        .arg(lab::program()?)
        .arg(versitygw_program()?)
        .args([requests.to_string(), blocks.to_string()])
        .args([program_path("nginx"), tag])
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
