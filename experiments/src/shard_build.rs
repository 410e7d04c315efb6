//! `experiments/shard-build`: what it costs to make shards of real records, and a large input
//! within bounded memory.
//!
//! Every import is this program as a process of its own, as a user starts it. Its processor time is
//! what the system accounts to a child that has ended, its memory the high-water mark of its
//! resident pages. The large input is imported in a memory group that the kernel holds to its
//! bound, and the result is compared with the input: every byte by export, counts and searches by a
//! scan.

mod import;
mod verify;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;
use super::memory_group::MemoryGroup;
use super::texts::Texts;
use configuration::Size;
use import::Import;
use report::grid::Grid;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    texts: PathBuf,
    datasets: Vec<String>,
    repetitions: usize,
    large: Large,
    patterns: usize,
    short: Short,
}

/// The input that is larger than its memory.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Large {
    bytes: u64,
    memory: String,
}

/// What `--short` measures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    datasets: Vec<String>,
    large: Large,
}

/// Processor seconds for 100 MB that are claimed.
const CPU_S_GOAL: f64 = 12.0;
/// Most memory of a build in memory that is claimed, × input.
const MEMORY_GOAL: f64 = 10.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    ensure!(config.repetitions >= 2, "repetitions: an interval takes two at least");
    let (datasets, large) = match context.short {
        true => (&config.short.datasets, &config.short.large),
        false => (&config.datasets, &config.large),
    };
    let folder = context.folder.canonicalize()?;
    let texts = Texts::in_folder(folder.join(&config.texts))?;
    // Whether it can be made is known before anything is measured.
    let group = MemoryGroup::create("shard-build")
        .context("the large input is imported in a memory group, which takes root to make")?;
    let (mut claims, mut parts) = (Vec::new(), Parts::default());
    for name in datasets {
        claims.extend(in_memory(context, &texts, name, config.repetitions, &mut parts)?);
        context.record(&claims)?;
    }
    claims.extend(within(context, &texts, large, config.patterns, &group, &mut parts)?);
    let text = parts.grid();
    std::fs::write(context.out.join("parts.txt"), &text).context("cannot write parts.txt")?;
    context.say(text);
    Ok(claims)
}

/// A figure with the interval of its mean over rounds.
fn claim(name: String, rounds: &[f64], unit: &str) -> Claim {
    Claim::of_rounds(name, rounds, unit)
}

/// Builds a text that fits into memory, several times.
fn in_memory(
    context: &Context,
    texts: &Texts,
    name: &str,
    repetitions: usize,
    parts: &mut Parts,
) -> anyhow::Result<Vec<Claim>> {
    let scratch = &context.scratch;
    let text = scratch.join("text");
    let bytes = texts.write(&format!("--dataset={name}"), &text)? as f64;
    let (mut cpu_s, mut wall_s, mut memory, mut footprint) = (vec![], vec![], vec![], vec![]);
    for repetition in 1..=repetitions {
        context.say(format!("{name}: {:.1} MB, {repetition} of {repetitions}", bytes / 1e6));
        let import = Import::run(scratch, &text, None, &["--jobs=1".to_owned()])?;
        cpu_s.push(import.cpu_s * 1e8 / bytes);
        wall_s.push(import.wall_s * 1e8 / bytes);
        memory.push(import.peak_bytes as f64 / bytes);
        footprint.push(import.made.shard_bytes as f64 / bytes);
        if repetition == repetitions {
            parts.add(name, &import, bytes)?;
        }
        import.remove()?;
    }
    std::fs::remove_file(&text)?;
    Ok(vec![
        claim(format!("{name}: processor time for 100 MB"), &cpu_s, "s")
            .with_goal(Goal::AtMost(CPU_S_GOAL)),
        claim(format!("{name}: most memory"), &memory, "× input")
            .with_goal(Goal::AtMost(MEMORY_GOAL)),
        claim(format!("{name}: time on the wall for 100 MB, one shard at a time"), &wall_s, "s"),
        claim(format!("{name}: footprint of the dataset"), &footprint, "× input"),
    ])
}

/// Imports a text that is larger than the memory, and compares the result with the text.
fn within(
    context: &Context,
    texts: &Texts,
    large: &Large,
    patterns: usize,
    group: &MemoryGroup,
    parts: &mut Parts,
) -> anyhow::Result<Vec<Claim>> {
    let memory: Size = large.memory.parse().map_err(anyhow::Error::msg)?;
    let scratch = &context.scratch;
    let text = scratch.join("text");
    context.say(format!("lineitem: writing {:.1} GB", large.bytes as f64 / 1e9));
    let bytes = texts.write(&format!("--lineitem-bytes={}", large.bytes), &text)?;
    group.limit(memory.0)?;
    context.say(format!("lineitem: importing within {memory}"));
    let arguments = ["--format=lines".to_owned(), format!("--memory={memory}")];
    let import = Import::run(scratch, &text, Some(group), &arguments)?;
    let bad = import.made.bad;
    ensure!(bad == 0, "{bad} records could not be read");
    context.say(format!("lineitem: imported in {:.0} s; comparing", import.wall_s));
    let compared = verify::compare(&import, &text, patterns)?;
    let name = format!("lineitem, {:.1} GB within {memory}", bytes as f64 / 1e9);
    parts.add(&name, &import, bytes as f64)?;
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let counted = |what: &str, value: f64, unit: &str| {
        Claim::counted(format!("{name}: {what}"), value, unit, 1)
    };
    let once =
        |what: &str, value: f64, unit: &str| Claim::once(format!("{name}: {what}"), value, unit);
    let at_most = |claim: Claim, goal: f64| claim.with_goal(Goal::AtMost(goal));
    let said = import.made.memory_bytes_max as u64;
    let claims = vec![
        at_most(once("most memory", gib(import.peak_bytes), "GiB"), gib(memory.0)),
        at_most(
            once("most memory over what was said", import.peak_bytes as f64 / said as f64, ""),
            1.0,
        ),
        at_most(counted("exports that differ from the input", compared.differing, ""), 0.0),
        at_most(counted("wrong counts", compared.wrong_counts, ""), 0.0),
        at_most(counted("wrong searches", compared.wrong_searches, ""), 0.0),
        counted("occurrences counted", compared.occurrences as f64, ""),
        counted("records found", compared.records as f64, ""),
        once("processor time for 100 MB", import.cpu_s * 1e8 / bytes as f64, "s"),
        once("time on the wall", import.wall_s, "s"),
        counted("shards", import.made.shards as f64, ""),
        counted(
            "footprint of the dataset",
            import.made.shard_bytes as f64 / bytes as f64,
            "× input",
        ),
    ];
    import.remove()?;
    std::fs::remove_file(&text)?;
    Ok(claims)
}

/// What the datasets consist of.
#[derive(Default)]
struct Parts(Vec<(String, String, f64)>);

impl Parts {
    fn add(&mut self, name: &str, import: &Import, input_bytes: f64) -> anyhow::Result<()> {
        for (part, bytes) in import.parts()? {
            self.0.push((name.to_owned(), part, bytes as f64 / input_bytes));
        }
        Ok(())
    }

    fn grid(&self) -> String {
        let mut grid = Grid::new("llr", &["dataset", "part", "× input"]);
        for (name, part, share) in &self.0 {
            grid.row([name.clone(), part.clone(), format!("{share:.4}")]);
        }
        grid.text()
    }
}
