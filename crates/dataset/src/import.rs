//! Imports files as a dataset: reads a shard's text at a time ([`read`](super::read)), splits it at
//! record boundaries, and builds several shards concurrently ([`jobs`](super::jobs)) within the
//! memory limit ([`memory`](super::memory)).
//!
//! The next text is read only when its build can start, so that every text in memory belongs to a
//! build under way.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use shard::Shard;
use shard::index::{self, Progress};
use shard::record::detect::Detection;
use shard::record::{Builder, Format, RECORD_BYTES_MAX, Schema};

use super::error::{Context as _, Error, Result, ensure};
use super::files;
use super::folder::{self, Draft};
use super::jobs::Jobs;
use super::manifest::{Manifest, ShardEntry, shard_file};
use super::memory::{Counts, Machine, Plan};
use super::names::is_name;
use super::options::Options;
use super::read::InputStart;

/// A progress event.
#[derive(Clone, Debug)]
pub enum Step {
    /// The number of input bytes read so far.
    Read(u64),
    /// The build of a shard begins.
    Build {
        /// Number of the shard, from 1.
        shard: u64,
        /// Size of its text.
        text_bytes: usize,
        /// The most memory that the build takes.
        memory_bytes: usize,
        /// The most memory that the process takes from now on, with all builds under way.
        process_bytes: usize,
    },
    /// The progress of a build.
    Progress {
        /// Number of the shard.
        shard: u64,
        /// The phase of the build.
        progress: Progress,
    },
    /// The build of a shard is complete.
    Built {
        /// Number of the shard.
        shard: u64,
    },
}

/// The result of an import.
#[derive(Debug, serde::Serialize)]
pub struct Imported {
    /// The number of records, including malformed ones.
    pub records: u64,
    /// Malformed records, kept as text without attributes.
    pub bad: u64,
    /// The first malformed records, each with its line.
    pub first_bad: Vec<String>,
    /// The detected or given schema.
    pub schema: Schema,
    /// Why it has this format.
    pub because: String,
    /// What to look at where the format is a mere fallback.
    pub warning: Option<String>,
    /// Bytes read.
    pub input_bytes: u64,
    /// Size of all shards, bytes.
    pub shard_bytes: u64,
    /// The number of shards.
    pub shards: usize,
    /// The largest estimate of the process's memory during the import.
    pub memory_bytes_max: usize,
}

/// Imports files (`-` is standard input) as the dataset `name` in the folder `datasets`. The
/// dataset appears atomically, and is durable when this returns.
///
/// # Errors
///
/// If the dataset exists and `replace` is not set; if a file cannot be read, or the folder written;
/// if the records do not fit the options.
pub fn import(
    datasets: &Path,
    name: &str,
    inputs: &[PathBuf],
    options: &Options,
    tell: &mut dyn FnMut(Step),
) -> Result<Imported> {
    check_name(name)?;
    let plan = Plan::new(options, Machine::current()?)?;
    check_free(datasets, name, options.replace)?;
    import_with(datasets, name, options.replace, |folder| fill(folder, inputs, options, plan, tell))
}

/// Makes a dataset in a folder that `fill` fills, and puts it in its place.
pub(super) fn import_with(
    datasets: &Path,
    name: &str,
    replace: bool,
    fill: impl FnOnce(&Path) -> Result<Imported>,
) -> Result<Imported> {
    // Locked before the folder exists, so that `discard` does not miss it.
    let mut ours = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    // Built in a sibling folder and renamed. The next import removes leftovers of an aborted one.
    let draft = Draft::begin(datasets, "importing", name, replace)?;
    *ours = Some(draft.path().to_owned());
    drop(ours);
    let made = fill(draft.path());
    // From here on, this function decides what happens to the folder, not `discard`.
    let mut ours = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    *ours = None;
    match made {
        Ok(made) => draft.publish().map(|_| made),
        Err(error) => {
            draft.discard();
            Err(error)
        }
    }
}

/// Checks that a dataset's name is free, or may be taken.
pub(super) fn check_free(datasets: &Path, name: &str, replace: bool) -> Result<()> {
    ensure!(
        replace || !datasets.join(name).exists(),
        Invalid,
        "dataset {name} exists already in {}: choose another name, or replace it (--replace)",
        datasets.display()
    );
    Ok(())
}

/// The folder that an import is filling. Locked while the folder is renamed.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Removes the unfinished folder of this process's import. To be called before the process exits
/// while an import is running. If the import is just being renamed into place, waits until that is
/// done, and keeps it.
pub fn discard() {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = unfinished.take() {
        folder::remove_unfinished(&folder);
    }
}

pub(super) fn check_name(name: &str) -> Result<()> {
    ensure!(
        is_name(name),
        Invalid,
        "invalid dataset name {name:?}: use 1 to 100 letters, digits, `-`, `_` and `.`, without a \
         leading `.`"
    );
    Ok(())
}

pub(super) fn fill(
    folder: &Path,
    inputs: &[PathBuf],
    options: &Options,
    mut plan: Plan,
    tell: &mut dyn FnMut(Step),
) -> Result<Imported> {
    if options.format == Some(Format::Files) {
        return fill_files(folder, inputs, options, plan, tell);
    }
    let begun = InputStart::open(inputs)?;
    let Detection { schema, because, warning } = begun.starts.detect(options)?;
    let mut input = begun.join(schema.format)?;
    let mut buffer = Vec::new();
    plan.follow(schema.format);
    let mut state = State::new(folder, options, plan, schema);
    (state.because, state.warning) = (because, warning);
    loop {
        state.wait_for_room(tell)?;
        let (counts, ended) = input.read_shard(&state.plan, &mut buffer)?;
        state.read_bytes += counts.bytes as u64;
        tell(Step::Read(state.read_bytes));
        if buffer.is_empty() {
            break;
        }
        let schema = state.schema.clone();
        let rest = if ended { Vec::new() } else { state.cut(&mut buffer)? };
        // The rest is counted again as part of the next shard.
        state.read_bytes -= rest.len() as u64;
        let text = std::mem::replace(&mut buffer, rest);
        let counts = Counts { bytes: text.len(), ..counts };
        state.build(counts, tell, move |build, progress| {
            Shard::build(&text, schema, &build.orders, &build.index, build.out, progress)
        })?;
    }
    state.finish(tell)
}

fn fill_files(
    folder: &Path,
    inputs: &[PathBuf],
    options: &Options,
    plan: Plan,
    tell: &mut dyn FnMut(Step),
) -> Result<Imported> {
    let mut state = State::new(folder, options, plan, Schema::new(Format::Files));
    let (mut files, mut counts) = (Vec::new(), Counts::default());
    for path in inputs {
        ensure!(
            path.as_os_str() != "-",
            Invalid,
            "standard input cannot be imported as a whole file: give paths"
        );
        let shown = path.display();
        let content = ::record::file::read(path, RECORD_BYTES_MAX as u64);
        let content = content.context(|| format!("cannot read {shown} as one record"))?;
        let name = shown.to_string();
        let bytes = name.len() + 1 + content.len();
        let full = counts.bytes + bytes > state.plan.shard_bytes || !state.plan.fits(&counts);
        if full && !files.is_empty() {
            state.build_files(std::mem::take(&mut files), std::mem::take(&mut counts), tell)?;
            state.wait_for_room(tell)?;
        }
        state.read_bytes += bytes as u64;
        tell(Step::Read(state.read_bytes));
        counts.bytes += bytes;
        counts.lines += 1;
        files.push((name, content));
    }
    if !files.is_empty() {
        state.build_files(files, counts, tell)?;
    }
    state.finish(tell)
}

/// The parameters and the output of a build.
pub(super) struct Build<'a> {
    pub orders: Vec<String>,
    pub index: index::Options,
    pub out: &'a mut dyn Write,
}

/// A shard that is built.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BuiltShard {
    /// Its entry in the manifest; the first id counts from its own records until it is put behind others.
    pub entry: ShardEntry,
    /// The schema with the attributes that its records showed.
    pub schema: Schema,
    /// Malformed records.
    pub bad: u64,
    /// The first of them, each with its line.
    pub first_bad: Vec<String>,
}

/// Malformed records that are named.
const NAMED_BAD_MAX: usize = 10;

/// The shards of a dataset that is being made, in their order.
pub(super) struct Assembly {
    pub manifest: Manifest,
    bad: u64,
    first_bad: Vec<String>,
    input_bytes: u64,
}

impl Assembly {
    /// Without shards.
    pub fn new(schema: Schema) -> Assembly {
        let manifest = Manifest::new(schema);
        Assembly { manifest, bad: 0, first_bad: Vec::new(), input_bytes: 0 }
    }

    /// Adds the next shard to the manifest.
    pub fn take(&mut self, built: BuiltShard) {
        let number = self.manifest.shards.len() + 1;
        let BuiltShard { mut entry, schema, bad, first_bad } = built;
        self.bad += bad;
        let named = first_bad.into_iter().map(|one| match number {
            1 => one,
            shard => format!("shard {shard}, {one}"),
        });
        self.first_bad.extend(named.take(NAMED_BAD_MAX.saturating_sub(self.first_bad.len())));
        self.input_bytes += entry.input_bytes;
        entry.first_id = self.manifest.end_id();
        self.manifest.shards.push(entry);
        self.manifest.schema = without_header(&schema);
    }

    /// The result, once all shards were taken.
    pub fn imported(
        self,
        because: String,
        warning: Option<String>,
        memory_bytes_max: usize,
    ) -> Imported {
        Imported {
            records: self.manifest.end_id(),
            bad: self.bad,
            first_bad: self.first_bad,
            because,
            warning,
            input_bytes: self.input_bytes,
            shard_bytes: self.manifest.shards.iter().map(|shard| shard.file_bytes).sum(),
            shards: self.manifest.shards.len(),
            schema: self.manifest.schema,
            memory_bytes_max,
        }
    }
}

/// The schema of a shard that is not the first: only that has a header.
pub(super) fn without_header(schema: &Schema) -> Schema {
    let mut schema = schema.clone();
    if let Format::Csv { header, .. } = &mut schema.format {
        *header = false;
    }
    schema
}

/// The state of an import.
pub(super) struct State<'a> {
    folder: &'a Path,
    options: &'a Options,
    pub plan: Plan,
    /// The schema of the next shard.
    schema: Schema,
    assembly: Assembly,
    jobs: Jobs<Result<BuiltShard>>,
    /// Completed shards that wait for an earlier one. Small: each holds a manifest entry and the
    /// first bad records.
    waiting: BTreeMap<u64, BuiltShard>,
    pub because: String,
    pub warning: Option<String>,
    pub read_bytes: u64,
    memory_bytes_max: usize,
}

impl<'a> State<'a> {
    pub fn new(folder: &'a Path, options: &'a Options, plan: Plan, schema: Schema) -> State<'a> {
        State {
            folder,
            options,
            plan,
            assembly: Assembly::new(schema.clone()),
            schema,
            jobs: Jobs::new(),
            waiting: BTreeMap::new(),
            because: "as given".to_owned(),
            warning: None,
            read_bytes: 0,
            memory_bytes_max: 0,
        }
    }

    /// Cuts the last record off a text and returns it, because it may continue in bytes not read
    /// yet. Passes the schema found in the records on to the next shard.
    fn cut(&mut self, text: &mut Vec<u8>) -> Result<Vec<u8>> {
        let mut builder = Builder::new(self.schema.clone());
        builder.push(text)?;
        // Not as if the text ended here: a quote that is open would be taken for one that is never closed.
        let (schema, start) = builder.leave_last();
        ensure!(
            start > 0,
            Invalid,
            "one record fills a whole shard: check the format, or allow more memory (--memory)"
        );
        self.follow(&schema);
        Ok(text.split_off(start))
    }

    /// Sets the schema of the next shard.
    fn follow(&mut self, schema: &Schema) {
        self.schema = without_header(schema);
    }

    /// The number of the next shard.
    pub fn next_shard(&self) -> u64 {
        self.assembly.manifest.next_shard
    }

    /// Waits until another build may begin.
    pub fn wait_for_room(&mut self, tell: &mut dyn FnMut(Step)) -> Result<()> {
        while self.jobs.len() >= self.plan.jobs {
            self.wait(tell)?;
        }
        Ok(())
    }

    /// Waits until a build ends. Returns whether one was under way.
    fn wait(&mut self, tell: &mut dyn FnMut(Step)) -> Result<bool> {
        let mut progress = |shard, progress| tell(Step::Progress { shard, progress });
        let Some((shard, made)) = self.jobs.next(&mut progress) else { return Ok(false) };
        self.waiting.insert(shard, made?);
        tell(Step::Built { shard });
        while let Some(built) =
            self.waiting.remove(&(self.assembly.manifest.shards.len() as u64 + 1))
        {
            self.follow(&built.schema);
            self.assembly.take(built);
        }
        Ok(true)
    }

    /// Begins the build of a shard whose text has the given counts.
    pub fn build(
        &mut self,
        counts: Counts,
        tell: &mut dyn FnMut(Step),
        work: impl FnOnce(Build<'_>, &mut dyn FnMut(Progress)) -> Result<shard::Report, shard::Error>
        + Send
        + 'static,
    ) -> Result<()> {
        let shard = self.next_shard();
        self.assembly.manifest.next_shard += 1;
        let memory_bytes = self.plan.memory_bytes(&counts);
        let process_bytes = self.plan.total_bytes(self.jobs.memory_bytes() + memory_bytes);
        self.memory_bytes_max = self.memory_bytes_max.max(process_bytes);
        tell(Step::Build { shard, text_bytes: counts.bytes, memory_bytes, process_bytes });
        let folder = self.folder.to_owned();
        let (orders, index) = (self.options.orders.clone(), self.options.index.clone());
        self.jobs.start(shard, memory_bytes, move |progress| {
            // The first id is set later, when all earlier shards are complete.
            write_shard(&folder, shard, 0, false, |out| {
                work(Build { orders, index, out }, progress)
            })
        })
    }

    fn build_files(
        &mut self,
        files: Vec<(String, Vec<u8>)>,
        counts: Counts,
        tell: &mut dyn FnMut(Step),
    ) -> Result<()> {
        self.build(counts, tell, move |build, progress| {
            Shard::build_files(&files, &build.index, build.out, progress)
        })
    }

    pub fn finish(mut self, tell: &mut dyn FnMut(Step)) -> Result<Imported> {
        while self.wait(tell)? {}
        self.assembly.manifest.write(self.folder)?;
        Ok(self.assembly.imported(self.because, self.warning, self.memory_bytes_max))
    }
}

/// Builds a shard into its file, given its number and the id of its first record. `replace` tells whether the file may exist.
pub(super) fn write_shard(
    folder: &Path,
    number: u64,
    first_id: u64,
    replace: bool,
    build: impl FnOnce(&mut dyn Write) -> Result<shard::Report, shard::Error>,
) -> Result<BuiltShard> {
    let file = shard_file(number);
    let mut report = None;
    let written = files::write(folder, &file, replace, |out| {
        report = Some(build(out).map_err(io::Error::other)?);
        Ok(())
    });
    written.context(|| format!("cannot build the shard {}", folder.join(&file).display()))?;
    let shard::Report { records, index, schema } =
        report.ok_or_else(|| Error::inconsistent("a shard that is written has a report"))?;
    let entry = ShardEntry {
        first_id,
        records: records.records as u64,
        input_bytes: index.text_bytes as u64,
        file_bytes: std::fs::metadata(folder.join(&file))?.len(),
        gone: 0,
        gaps: Vec::new(),
        file,
    };
    let first_bad = records.first_bad.iter().take(NAMED_BAD_MAX).map(ToString::to_string).collect();
    Ok(BuiltShard { entry, schema, bad: records.bad as u64, first_bad })
}
