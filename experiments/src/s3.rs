//! `experiments/s3`: processor time of signed reads through the S3 front, beside the plain path and versitygw, and times
//! of writes through it and of its store alone (`measure.py`).

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::foreign::services::versitygw_program;
use super::{Claim, Context, Goal, lab};

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

/// By size and kind, microseconds for a request in each block: of the server's processor, and of writes (`put-SIZE`) as
/// the client sees them.
type Measured = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let (requests, blocks) = match context.short {
        true => (config.short_requests, config.short_blocks),
        false => (config.requests, config.blocks),
    };
    let measured = measure(context, requests, blocks)?;
    let mut claims = Vec::new();
    for (size, kinds) in &measured {
        if let Some(size) = size.strip_prefix("put-") {
            let (Some(front), Some(store)) = (kinds.get("front"), kinds.get("store")) else {
                bail!("measure.py has not measured the writes of {size}")
            };
            claims.push(Claim::of_rounds(format!("time of a PUT, {size}"), front, "µs"));
            let ratios: Vec<f64> = front.iter().zip(store).map(|(ours, its)| ours / its).collect();
            let claim = Claim::of_rounds(format!("PUT of the store's alone, {size}"), &ratios, "");
            claims.push(claim.with_goal(Goal::AtMost(1.1)));
            continue;
        }
        let Some(ours) = kinds.get("s3") else { bail!("measure.py has not measured the front") };
        let claim = Claim::of_rounds(format!("processor time of a signed GET, {size}"), ours, "µs");
        claims.push(match size.as_str() {
            "100k" => claim.with_goal(Goal::AtMost(20.0)),
            _ => claim,
        });
        for (kind, theirs) in kinds.iter().filter(|(kind, _)| *kind != "s3") {
            let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(t, o)| t / o).collect();
            claims.push(Claim::of_rounds(format!("{kind} of the signed GET, {size}"), &ratios, ""));
        }
    }
    Ok(claims)
}

/// Runs the script; its output is part of the record.
fn measure(context: &Context, requests: u32, blocks: u32) -> anyhow::Result<Measured> {
    let script = context.folder.join("measure.py");
    let output = Command::new("python3")
        .arg(&script)
        .arg(lab::program()?)
        .arg(versitygw_program()?)
        .args([requests.to_string(), blocks.to_string()])
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
