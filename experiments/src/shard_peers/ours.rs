//! Our library as one of the engines: a dataset that is built and queried in a process of its own, by
//! the protocol that the peers speak (`experiments answer`).

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use rustix::time::{ClockId, clock_gettime};
use shard::layers::{TextBuild, TextOptions};
use shard::query::Query;

use super::oracle::summed;
use super::protocol::{Built, FIRST, Form, Kind, MemoryUse, Opened, Question, Reply, Task};
use dataset::{self, Dataset, PageRequest};
use record::clock;

/// The task of the process, read before any question.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make the dataset
    Build {
        /// The task, a file of JSON
        task: PathBuf,
        /// The dataset's folder
        folder: PathBuf,
        /// Sampling rate of the positions that are marked for searches
        #[arg(long)]
        sa_sampling: u32,
        /// Sampling rate of the positions that are marked for reading
        #[arg(long)]
        isa_sampling: u32,
    },
    /// Answer questions on standard input
    Serve {
        /// The task, a file of JSON
        task: PathBuf,
        /// The dataset's folder
        folder: PathBuf,
        /// With a text layer over each shard
        #[arg(long)]
        text_layer: bool,
    },
}

/// Runs the process.
///
/// # Errors
/// If the dataset cannot be made or read, or a line is not a question.
pub fn run(command: &Command) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match command {
        Command::Build { task, folder, sa_sampling, isa_sampling } => {
            let built = build(&read(task)?, folder, *sa_sampling, *isa_sampling)?;
            say(&mut out, &built)
        }
        Command::Serve { folder, text_layer, .. } => {
            serve(folder, *text_layer, std::io::stdin().lock(), &mut out)
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Task> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a task", path.display()))
}

fn say(out: &mut dyn Write, value: &impl serde::Serialize) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes of this process: resident, most resident ever, of no file.
fn memory() -> anyhow::Result<(u64, u64, u64)> {
    let status = procfs::process::Process::myself()?.status()?;
    let bytes = |kib: Option<u64>| kib.unwrap_or(0) * 1024;
    Ok((bytes(status.vmrss), bytes(status.vmhwm), bytes(status.rssanon)))
}

/// Imports the text as `concertina data import` does: reading, splitting and syncing included.
pub(super) fn build(
    task: &Task,
    folder: &Path,
    sa_sampling: u32,
    isa_sampling: u32,
) -> anyhow::Result<Built> {
    let (datasets, name) = (folder.parent(), folder.file_name().and_then(|name| name.to_str()));
    let (Some(datasets), Some(name)) = (datasets, name) else {
        bail!("{} is not the folder of a dataset", folder.display());
    };
    let options = dataset::Options {
        format: Some(task.format.parse()?),
        columns: Vec::new(),
        header: shard::record::detect::Header::Given,
        key: task.key.clone(),
        orders: Vec::new(),
        index: shard::index::Options { sa_sampling, isa_sampling },
        shard_bytes: Some(256 << 20),
        jobs: Some(1),
        memory_bytes: None,
        replace: true,
    };
    let (start, cpu_start_ns, (before, ..)) = (Instant::now(), cpu_ns(), memory()?);
    dataset::import(datasets, name, &[PathBuf::from(&task.text)], &options, &mut |_| {})?;
    Ok(Built {
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: (cpu_ns() - cpu_start_ns) as f64 / 1e9,
        memory_bytes: memory()?.1.saturating_sub(before),
    })
}

/// Answers lines of questions until the input ends.
pub(super) fn serve(
    folder: &Path,
    text_layer: bool,
    input: impl BufRead,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (start, (_, _, before)) = (Instant::now(), memory()?);
    let dataset = Dataset::open(folder)?;
    if text_layer {
        dataset.parts().iter().try_for_each(|part| add_text_layer(part.shard().index()))?;
    }
    say(out, &Opened { open_s: start.elapsed().as_secs_f64() })?;
    for line in input.lines() {
        let line = line?;
        if line == "\"memory\"" {
            let anonymous_bytes = Some(memory()?.2.saturating_sub(before));
            say(out, &MemoryUse { anonymous_bytes })?;
            continue;
        }
        let question: Question =
            serde_json::from_str(&line).with_context(|| format!("not a question: {line}"))?;
        let (start_ns, cpu_start_ns) = (clock::now(), cpu_ns());
        let answer = black_box(ask(&dataset, &question)?);
        let (wall_ns, cpu_ns) = (clock::now() - start_ns, cpu_ns() - cpu_start_ns);
        let said = match &answer {
            Answer::Count(count) => Reply { count: *count, ..Reply::default() },
            Answer::Records(records) => summed(records.iter().map(Vec::as_slice)),
        };
        say(out, &Reply { wall_ns, cpu_ns, ..said })?;
    }
    Ok(())
}

fn add_text_layer(index: &shard::index::Index) -> anyhow::Result<()> {
    let mut build = TextBuild::new(index, TextOptions::default())?;
    while !build.step(index, usize::MAX)?.is_finished() {}
    Ok(index.layers().publish_text(build)?)
}

enum Answer {
    Count(u64),
    Records(Vec<Vec<u8>>),
}

/// What `concertina data search`, `count` and `get` do.
fn ask(dataset: &Dataset, question: &Question) -> anyhow::Result<Answer> {
    let ids = match (question.kind, question.form) {
        (Kind::Occurrences, _) => {
            return Ok(Answer::Count(dataset.occurrences(question.value.as_bytes())));
        }
        (Kind::Key, _) => dataset.id_of(&question.value)?.into_iter().collect(),
        (_, Form::Count) => {
            let query: Query = question.query.parse()?;
            return Ok(Answer::Count(dataset.count(&query)?));
        }
        (_, form) => {
            let query: Query = question.query.parse()?;
            let first = form == Form::First;
            let limit = if first { FIRST as usize } else { usize::MAX };
            dataset.search(&query, &PageRequest { limit, after: None, sorted: !first })?.ids
        }
    };
    let records = ids.into_iter().map(|id| dataset.get(id));
    Ok(Answer::Records(records.collect::<dataset::Result<_>>()?))
}
