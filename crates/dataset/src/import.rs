//! Making a dataset of files: read as far as a shard may go ([`read`](super::read)), split on record boundaries, some
//! shards built at the same time ([`jobs`](super::jobs)), within the memory that is allowed
//! ([`memory`](super::memory)).
//!
//! The next text is read when a shard may be begun, not before, so that each text in memory is one that is
//! being built.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, ensure};
use shard::index::{self, Progress};
use shard::record::{Builder, Format, RECORD_BYTES_MAX, Schema};
use shard::{Shard, record};

use super::files;
use super::jobs::Jobs;
use super::manifest::{Manifest, ShardEntry, shard_file};
use super::memory::{Counts, Machine, Plan};
use super::read::Joined;
use origin::Lock;

/// Bytes of the input that its format is found from.
const SAMPLE_BYTES: usize = 1 << 20;

/// How a dataset is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the records are; found from the first of them if not given.
    pub format: Option<Format>,
    /// The attribute that records are got by.
    pub key: Option<String>,
    /// Attributes of which ranges of numbers are looked up in a table.
    pub orders: Vec<String>,
    /// Sampling rates of the index.
    pub index: index::Options,
    /// Bytes of the input for each shard; 256 MiB if not given, or what memory allows.
    pub shard_bytes: Option<usize>,
    /// Shards that are built at the same time; as many as there are cores if not given, or what memory
    /// allows.
    pub jobs: Option<usize>,
    /// Memory that the process may take; half of what is available if not given.
    pub memory_bytes: Option<usize>,
    /// Whether a dataset of that name may be replaced.
    pub replace: bool,
}

/// What is being done, for whoever waits.
#[derive(Clone, Debug)]
pub enum Step {
    /// So many bytes of the input are read.
    Read(u64),
    /// A shard is begun.
    Build {
        /// Number of the shard, from 1.
        shard: u64,
        /// Bytes of its text.
        text_bytes: usize,
        /// The most memory that takes.
        memory_bytes: usize,
        /// The most that the process takes from now on, with the others that are being built.
        process_bytes: usize,
    },
    /// How far that is.
    Progress {
        /// Number of the shard.
        shard: u64,
        /// What is done of it.
        progress: Progress,
    },
    /// It is built.
    Built {
        /// Number of the shard.
        shard: u64,
    },
}

/// What was made.
#[derive(Debug, serde::Serialize)]
pub struct Imported {
    /// Records, the bad ones included.
    pub records: u64,
    /// Records that could not be read in the format: kept as text, without attributes.
    pub bad: u64,
    /// The first of them, each with its line.
    pub first_bad: Vec<String>,
    /// The format that was found, or given.
    pub schema: Schema,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes of all shards.
    pub shard_bytes: u64,
    /// How many.
    pub shards: usize,
    /// The most memory that the process was said to take while it built them.
    pub memory_bytes_max: usize,
}

/// Makes a dataset `name` in a folder of datasets from files, `-` for standard input. It is there when
/// this returns, durably, and not before.
///
/// # Errors
///
/// If there is one already and it may not be replaced; if a file cannot be read, or the folder written;
/// if the records are not as the options say.
pub fn import(
    datasets: &Path,
    name: &str,
    inputs: &[PathBuf],
    options: &Options,
    tell: &mut dyn FnMut(Step),
) -> anyhow::Result<Imported> {
    check_name(name)?;
    let plan = Plan::new(options, Machine::here()?)?;
    let place = datasets.join(name);
    ensure!(
        options.replace || !place.exists(),
        "there is a dataset {name} in {} already: name another, or replace it (--replace)",
        datasets.display()
    );
    std::fs::create_dir_all(datasets)
        .with_context(|| format!("cannot make {}", datasets.display()))?;
    // Built beside it and renamed: what an import that was stopped left is removed by the next.
    let unfinished = datasets.join(format!(".importing-{name}"));
    // Held from before there is anything to discard.
    let mut ours = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::create_dir_all(&unfinished)?;
    let lock = Lock::take(&unfinished)?;
    clear(&unfinished)?;
    *ours = Some(unfinished.clone());
    drop(ours);
    let made = fill(&unfinished, inputs, options, plan, tell);
    // From here on it is this that says what becomes of the folder, not `discard`.
    let mut ours = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    *ours = None;
    if made.is_err() {
        remove(&unfinished);
    }
    let made = made?;
    let old = datasets.join(format!(".replaced-{name}"));
    if old.exists() {
        std::fs::remove_dir_all(&old)?;
    }
    if place.exists() {
        // Nobody may write to what is taken away.
        let _writer = Lock::take(&place)?;
        std::fs::rename(&place, &old)?;
    }
    std::fs::rename(&unfinished, &place)
        .with_context(|| format!("cannot make {}", place.display()))?;
    File::open(datasets)?.sync_all()?;
    drop(lock);
    if old.exists() {
        std::fs::remove_dir_all(&old)?;
    }
    Ok(made)
}

/// The folder that an import fills now. Held while it is renamed.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Removes what an import of this process has made so far: for who ends the process while it runs. Waits
/// while an import is put in its place, which it then is.
pub fn discard() {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = unfinished.take() {
        remove(&folder);
    }
}

/// Removes a folder into which a thread may still write: that fails once the folder is gone.
fn remove(folder: &Path) {
    for _ in 0..10 {
        if std::fs::remove_dir_all(folder).is_ok() {
            return;
        }
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    ensure!(
        super::is_name(name),
        "{name:?} is no name of a dataset: letters, digits, `-`, `_` and `.`, not first, 100 at most"
    );
    Ok(())
}

/// Removes all but the lock.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != "lock" {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

pub(super) fn fill(
    folder: &Path,
    inputs: &[PathBuf],
    options: &Options,
    mut plan: Plan,
    tell: &mut dyn FnMut(Step),
) -> anyhow::Result<Imported> {
    if options.format == Some(Format::Files) {
        return fill_files(folder, inputs, options, plan, tell);
    }
    let mut input = Joined::open(inputs)?;
    let mut buffer = Vec::new();
    input.read_up_to(plan.shard_bytes.min(SAMPLE_BYTES), &mut buffer)?;
    let mut schema = match options.format {
        Some(format) => Schema::detect_as(format, &buffer),
        None => Schema::detect(&buffer),
    };
    if options.key.is_some() {
        schema.key.clone_from(&options.key);
    }
    input.follow(schema.format, &buffer);
    plan.follow(schema.format);
    let mut state = State::new(folder, options, plan, schema);
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
        // They are read again, as the next shard's.
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
) -> anyhow::Result<Imported> {
    let mut state = State::new(folder, options, plan, Schema::new(Format::Files));
    let (mut files, mut counts) = (Vec::new(), Counts::default());
    for path in inputs {
        ensure!(path.as_os_str() != "-", "standard input is no file: give paths");
        let shown = path.display();
        let len = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
        ensure!(
            len <= RECORD_BYTES_MAX as u64,
            "{shown} has {len} bytes, and a record {RECORD_BYTES_MAX} at most"
        );
        let content = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
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

/// What a shard is built with, and into.
struct Build<'a> {
    orders: Vec<String>,
    index: index::Options,
    out: &'a mut dyn Write,
}

type Made = (ShardEntry, shard::Report);

/// The dataset so far.
struct State<'a> {
    folder: &'a Path,
    options: &'a Options,
    plan: Plan,
    /// Of the shard that is begun next.
    schema: Schema,
    manifest: Manifest,
    jobs: Jobs<anyhow::Result<Made>>,
    /// Shards that are built, and those before them are not.
    waiting: BTreeMap<u64, Made>,
    bad: u64,
    first_bad: Vec<String>,
    read_bytes: u64,
    input_bytes: u64,
    memory_bytes_max: usize,
}

impl<'a> State<'a> {
    fn new(folder: &'a Path, options: &'a Options, plan: Plan, schema: Schema) -> State<'a> {
        State {
            folder,
            options,
            plan,
            manifest: Manifest::new(schema.clone()),
            schema,
            jobs: Jobs::new(),
            waiting: BTreeMap::new(),
            bad: 0,
            first_bad: Vec::new(),
            read_bytes: 0,
            input_bytes: 0,
            memory_bytes_max: 0,
        }
    }

    /// Leaves whole records in a text, and gives the rest: the last record may go on in what is not read
    /// yet. What the records said of the schema holds for the next shard.
    fn cut(&mut self, text: &mut Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let mut builder = Builder::new(self.schema.clone());
        builder.push(text)?;
        let (records, _) = builder.finish()?;
        let last = records.len().checked_sub(1).and_then(|last| records.range(last));
        let start = last.map_or(0, |range| range.start);
        ensure!(
            start > 0,
            "one record fills a whole shard: is the format right? If it is, allow more memory (--memory)"
        );
        self.follow(records.schema());
        Ok(text.split_off(start))
    }

    /// The records are as those of the first shard, which alone has a header.
    fn follow(&mut self, schema: &Schema) {
        self.schema = schema.clone();
        if let Format::Csv { header, .. } = &mut self.schema.format {
            *header = false;
        }
    }

    /// Waits until another shard may be begun.
    fn wait_for_room(&mut self, tell: &mut dyn FnMut(Step)) -> anyhow::Result<()> {
        while self.jobs.len() >= self.plan.jobs {
            self.wait(tell)?;
        }
        Ok(())
    }

    /// Waits until a shard is built; says whether there was one.
    fn wait(&mut self, tell: &mut dyn FnMut(Step)) -> anyhow::Result<bool> {
        let mut progress = |shard, progress| tell(Step::Progress { shard, progress });
        let Some((shard, made)) = self.jobs.next(&mut progress) else { return Ok(false) };
        self.waiting.insert(shard, made?);
        tell(Step::Built { shard });
        while let Some(made) = self.waiting.remove(&(self.manifest.shards.len() as u64 + 1)) {
            self.take(made);
        }
        Ok(true)
    }

    /// Begins to build a shard of a text that has so much in it.
    fn build(
        &mut self,
        counts: Counts,
        tell: &mut dyn FnMut(Step),
        work: impl FnOnce(Build<'_>, &mut dyn FnMut(Progress)) -> Result<shard::Report, shard::Error>
        + Send
        + 'static,
    ) -> anyhow::Result<()> {
        let shard = self.manifest.next_shard;
        self.manifest.next_shard += 1;
        let memory_bytes = self.plan.memory_bytes(&counts);
        let process_bytes = self.plan.total_bytes(self.jobs.memory_bytes() + memory_bytes);
        self.memory_bytes_max = self.memory_bytes_max.max(process_bytes);
        tell(Step::Build { shard, text_bytes: counts.bytes, memory_bytes, process_bytes });
        let folder = self.folder.to_owned();
        let (orders, index) = (self.options.orders.clone(), self.options.index.clone());
        self.jobs.start(shard, memory_bytes, move |progress| {
            // Its first id is known when the shards before it are.
            write_shard(&folder, (shard, 0), |out| work(Build { orders, index, out }, progress))
        })
    }

    fn build_files(
        &mut self,
        files: Vec<(String, Vec<u8>)>,
        counts: Counts,
        tell: &mut dyn FnMut(Step),
    ) -> anyhow::Result<()> {
        self.build(counts, tell, move |build, progress| {
            Shard::build_files(&files, &build.index, build.out, progress)
        })
    }

    /// Takes the next shard of the manifest.
    fn take(&mut self, (mut entry, report): Made) {
        let number = self.manifest.shards.len() + 1;
        let record::Report { bad, first_bad, .. } = report.records;
        self.bad += bad as u64;
        let named = first_bad.iter().map(|one| match number {
            1 => one.to_string(),
            shard => format!("shard {shard}, {one}"),
        });
        self.first_bad.extend(named.take(10_usize.saturating_sub(self.first_bad.len())));
        self.input_bytes += entry.input_bytes;
        entry.first_id = self.manifest.end_id();
        self.manifest.shards.push(entry);
        self.follow(&report.schema);
        self.manifest.schema = self.schema.clone();
    }

    fn finish(mut self, tell: &mut dyn FnMut(Step)) -> anyhow::Result<Imported> {
        while self.wait(tell)? {}
        self.manifest.write(self.folder)?;
        Ok(Imported {
            records: self.manifest.end_id(),
            bad: self.bad,
            first_bad: self.first_bad,
            schema: self.manifest.schema,
            input_bytes: self.input_bytes,
            shard_bytes: self.manifest.shards.iter().map(|shard| shard.file_bytes).sum(),
            shards: self.manifest.shards.len(),
            memory_bytes_max: self.memory_bytes_max,
        })
    }
}

/// Builds a shard into its file; `number` and the id of its first record are given.
pub(super) fn write_shard(
    folder: &Path,
    (number, first_id): (u64, u64),
    build: impl FnOnce(&mut dyn Write) -> Result<shard::Report, shard::Error>,
) -> anyhow::Result<(ShardEntry, shard::Report)> {
    let file = shard_file(number);
    let mut report = None;
    let written = files::write(folder, &file, false, |out| {
        report = Some(build(out).map_err(io::Error::other)?);
        Ok(())
    });
    written.with_context(|| format!("cannot make the shard {}", folder.join(&file).display()))?;
    let report = report.context("a shard that is written has a report")?;
    let entry = ShardEntry {
        first_id,
        records: report.records.records as u64,
        input_bytes: report.index.text_bytes as u64,
        file_bytes: std::fs::metadata(folder.join(&file))?.len(),
        file,
    };
    Ok((entry, report))
}
