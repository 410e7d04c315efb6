//! Parts of an import: an input is split into parts, each part becomes a shard by itself, and the shards are joined into a dataset.
//!
//! The parts may be built by processes on different machines that see the same files and the same folder of datasets; whatever
//! runs them (Ray, jobs of Kubernetes, a shell's loop) needs to know the number of parts only. What is built does not depend on who
//! builds it: an import on one machine with `--parts` is the same split, build and join in one process ([`import_parts`]).
//!
//! [`split`] writes `parts.json` into `.parts-NAME` of the folder of datasets: files, cuts, schema. [`build`] reads its range of the
//! input alone, and writes a shard and a report of it there. [`join`] reads the reports, writes the manifest, and renames the folder
//! into place. Each may be repeated: what is done is kept.
//!
//! - `text`: the files as one text. `cut`: where it is cut. `input`: both, and how records are read. `report`: a part that is built.

mod cut;
mod input;
pub(crate) mod names;
mod report;
mod summary;
mod text;

use std::path::{Path, PathBuf};

use crate::error::{Context as _, Result, ensure};
use crate::folder::{Draft, is_temporary, remove_left};
use crate::import::{
    Assembly, Build, Imported, State, Step, check_free, check_name, import_with, write_shard,
};
use crate::memory::{Counts, Machine, Plan, SHARD_BYTES_MIN};
use crate::options::Options;
use crate::{files, is_name};
use input::InputSplit;
use names::{BYTES_MAX, FILE, VERSION, is_part_file, report_file};
use report::PartReport;
pub use summary::{BuiltPart, PARTS_MAX, PartSize, SplitSummary};

/// What the folder of the parts is called before the dataset's name.
const VERB: &str = "parts";

/// Splits files into parts. The same files and options are split alike wherever they are; a split that exists is kept if it is
/// the same.
///
/// # Errors
///
/// If a file cannot be read from any position (`-`, pipes, compressed files), or the folder written; if the records do not fit the
/// options; if a part would be larger than a shard; if there is another split of that name, unless `again` is set (its parts are
/// removed then: nothing may be building them).
pub fn split(
    datasets: &Path,
    name: &str,
    inputs: &[PathBuf],
    size: PartSize,
    options: &SplitOptions<'_>,
    tell: &mut dyn FnMut(Step),
) -> Result<SplitSummary> {
    check_name(name)?;
    check_free(datasets, name, options.import.replace)?;
    let split = InputSplit::new(inputs, size, options.import, tell)?;
    let draft = Draft::open(datasets, VERB, name, options.import.replace)?;
    let folder = draft.path();
    if !options.again && folder.join(FILE).exists() {
        let there = InputSplit::read(folder)?;
        let is_same = InputSplit { id: there.id.clone(), ..split } == there;
        ensure!(
            is_same,
            Invalid,
            "another split of {name} exists already in {}: build and join its parts, or begin anew (--again)",
            folder.display()
        );
        return Ok(there.summary(folder));
    }
    draft.clear()?;
    let text = serde_json::to_vec_pretty(&split)?;
    let is_short = text.len() as u64 <= BYTES_MAX;
    ensure!(is_short, Invalid, "the description of the split is too long: name fewer files");
    files::write(folder, FILE, false, |out| out.write_all(&text))
        .context(|| format!("cannot write {}", folder.join(FILE).display()))?;
    Ok(split.summary(folder))
}

/// The options of a split.
#[derive(Clone, Copy, Debug)]
pub struct SplitOptions<'a> {
    /// Format, key and index of the records. Memory, jobs and the size of shards do not count.
    pub import: &'a Options,
    /// Whether parts of an earlier split of that name are removed.
    pub again: bool,
}

/// Builds one part, unless it is built, within `memory_bytes` (half of what is available if `None`).
///
/// # Errors
///
/// If there is no such part; if its records cannot be read, or take more memory than allowed.
pub fn build(
    datasets: &Path,
    name: &str,
    part: usize,
    memory_bytes: Option<usize>,
    tell: &mut dyn FnMut(Step),
) -> Result<BuiltPart> {
    let folder = folder_of(datasets, name)?;
    let split = InputSplit::read(&folder)?;
    let parts = split.parts();
    ensure!(
        part < parts,
        Invalid,
        "there is no part {part}: {name} has the parts 0 to {}",
        parts - 1
    );
    let Some(number) = split.shard_numbers().get(part).copied().flatten() else {
        let (input_bytes, shard_bytes) = (0, 0);
        let (bad, was_built) = (0, false);
        return Ok(BuiltPart { part, parts, records: 0, input_bytes, shard_bytes, bad, was_built });
    };
    let report = folder.join(report_file(number));
    if let Ok(there) = PartReport::read(&report, &split, part, number) {
        return Ok(there.summary(parts, true));
    }
    let options = Options {
        shard_bytes: Some(split.part_bytes_max(part..part + 1)?.max(SHARD_BYTES_MIN)),
        jobs: Some(1),
        memory_bytes,
        ..split.options()
    };
    let mut plan = Plan::new(&options, Machine::current()?)?;
    plan.follow(split.schema.format);
    let input = split.read_part(part)?;
    let counts = input.counts();
    let memory_bytes = require_room(part, &plan, &counts)?;
    let process_bytes = plan.total_bytes(memory_bytes);
    tell(Step::Read(counts.bytes as u64));
    tell(Step::Build { shard: number, text_bytes: counts.bytes, memory_bytes, process_bytes });
    let (orders, index, schema) = (options.orders, options.index, split.schema_of(part));
    let built = write_shard(&folder, number, 0, true, |out| {
        let build = Build { orders, index, out };
        input.build(schema, build, &mut |progress| tell(Step::Progress { shard: number, progress }))
    })?;
    tell(Step::Built { shard: number });
    ensure!(
        InputSplit::read(&folder).is_ok_and(|now| now.id == split.id),
        Invalid,
        "{name} was split anew or joined while its part {part} was built"
    );
    let id = split.id.clone();
    let made =
        PartReport { version: VERSION, split: id, part, memory_bytes_max: process_bytes, built };
    let text = serde_json::to_vec_pretty(&made)?;
    files::write(&folder, &report_file(number), true, |out| out.write_all(&text))
        .context(|| format!("cannot write {}", report.display()))?;
    Ok(made.summary(parts, false))
}

/// Joins all parts into the dataset, which appears atomically and is durable when this returns.
///
/// # Errors
///
/// If a part is not built (the message names those that are missing); if the dataset exists and `replace` is not set; those of the
/// file system.
pub fn join(datasets: &Path, name: &str, replace: bool) -> Result<Imported> {
    check_name(name)?;
    check_free(datasets, name, replace)?;
    let split = InputSplit::read(&folder_of(datasets, name)?)?;
    let draft = Draft::open(datasets, VERB, name, replace)?;
    let folder = draft.path();
    let reports = split.reports(folder, name)?;
    let mut memory_bytes_max = 0;
    let mut assembly = Assembly::new(split.schema.clone());
    for report in reports {
        memory_bytes_max = memory_bytes_max.max(report.memory_bytes_max);
        assembly.take(report.built);
    }
    assembly.manifest.next_shard = assembly.manifest.shards.len() as u64 + 1;
    assembly.manifest.write(folder)?;
    // Those of tasks that were killed.
    draft.clear_of(&|name| is_temporary(name, files::WRITING))?;
    let place = draft.publish()?;
    // After the dataset is complete: until then the join can be repeated.
    remove_left(&place, &is_part_file)?;
    Ok(assembly.imported(split.because, split.warning, memory_bytes_max))
}

/// Imports files as [`import`](crate::import) does, with a shard for each part: splits, builds and joins in this process, several
/// parts at a time within the memory limit. The shards are those that [`build`] makes of the same files.
///
/// # Errors
///
/// As [`split`] and [`import`](crate::import).
pub fn import_parts(
    datasets: &Path,
    name: &str,
    inputs: &[PathBuf],
    size: PartSize,
    options: &Options,
    tell: &mut dyn FnMut(Step),
) -> Result<Imported> {
    check_name(name)?;
    check_free(datasets, name, options.replace)?;
    let split = InputSplit::new(inputs, size, options, tell)?;
    let largest = split.part_bytes_max(0..split.parts())?.max(SHARD_BYTES_MIN);
    let options = Options { shard_bytes: Some(largest), ..options.clone() };
    let plan = Plan::new(&options, Machine::current()?)?;
    import_with(datasets, name, options.replace, |folder| {
        let mut state = State::new(folder, &options, plan, split.schema.clone());
        state.plan.follow(split.schema.format);
        (state.because, state.warning) = (split.because.clone(), split.warning.clone());
        for (part, number) in split.shard_numbers().into_iter().enumerate() {
            if number.is_none() {
                continue;
            }
            debug_assert_eq!(number, Some(state.next_shard()));
            state.wait_for_room(tell)?;
            let input = split.read_part(part)?;
            let counts = input.counts();
            require_room(part, &state.plan, &counts)?;
            state.read_bytes += counts.bytes as u64;
            tell(Step::Read(state.read_bytes));
            let schema = split.schema_of(part);
            state
                .build(counts, tell, move |build, progress| input.build(schema, build, progress))?;
        }
        state.finish(tell)
    })
}

/// The memory that a part's build takes.
fn require_room(part: usize, plan: &Plan, counts: &Counts) -> Result<usize> {
    let bytes = plan.memory_bytes(counts);
    ensure!(
        plan.fits(counts),
        Invalid,
        "the part {part} has many short records, and takes up to {} MiB of memory, more than is allowed: allow more (--memory), \
         or split the input into more parts",
        bytes.div_ceil(1 << 20)
    );
    Ok(bytes)
}

/// The folder of the parts of a dataset.
fn folder_of(datasets: &Path, name: &str) -> Result<PathBuf> {
    let folder = Draft::folder_of(datasets, VERB, name);
    ensure!(
        is_name(name) && folder.join(FILE).is_file(),
        Missing,
        "no input of {name} is split in {}: split it first (concertina data parts split)",
        datasets.display()
    );
    Ok(folder)
}

#[cfg(test)]
mod tests;
