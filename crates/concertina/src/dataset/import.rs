//! Making a dataset of files: read in pieces, split on record boundaries, one shard after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use shard::index::{self, Progress};
use shard::record::{Builder, Format, RECORD_BYTES_MAX, Schema};
use shard::{Shard, record};

use super::files;
use super::manifest::{Manifest, ShardEntry, shard_file};
use crate::origin::Lock;

/// Bytes of the input that its format is found from.
const SAMPLE_BYTES: usize = 1 << 20;
/// The least that a shard may be asked to hold: two of the longest records.
const SHARD_BYTES_MIN: usize = 2 * RECORD_BYTES_MAX;

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
    /// Bytes of the input for each shard.
    pub shard_bytes: usize,
    /// Whether a dataset of that name may be replaced.
    pub replace: bool,
}

/// What is being done, for whoever waits.
#[derive(Clone, Debug)]
pub enum Step {
    /// So many bytes of the input are read.
    Read(u64),
    /// A shard of so many bytes is built; it takes at most so much memory.
    Build {
        /// Number of the shard, from 1.
        shard: u64,
        /// Bytes of its text.
        text_bytes: usize,
        /// The most memory that takes.
        memory_bytes: usize,
    },
    /// How far that is.
    Progress(Progress),
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
    ensure!(
        options.shard_bytes >= SHARD_BYTES_MIN && options.shard_bytes <= index::LEN_MAX,
        "a shard holds {SHARD_BYTES_MIN} to {} bytes of input",
        index::LEN_MAX
    );
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
    std::fs::create_dir_all(&unfinished)?;
    let lock = Lock::take(&unfinished)?;
    clear(&unfinished)?;
    let made = fill(&unfinished, inputs, options, tell);
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
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

fn fill(
    folder: &Path,
    inputs: &[PathBuf],
    options: &Options,
    tell: &mut dyn FnMut(Step),
) -> anyhow::Result<Imported> {
    if options.format == Some(Format::Files) {
        return fill_files(folder, inputs, options, tell);
    }
    let mut input = Joined::open(inputs)?;
    let mut buffer = Vec::new();
    input.read_up_to(SAMPLE_BYTES, &mut buffer)?;
    let mut schema = match options.format {
        Some(format) => Schema::detect_as(format, &buffer),
        None => Schema::detect(&buffer),
    };
    if options.key.is_some() {
        schema.key.clone_from(&options.key);
    }
    input.follow(schema.format, &buffer);
    let mut state = State::new(folder, options, schema);
    loop {
        let ended = input.read_up_to(options.shard_bytes, &mut buffer)?;
        tell(Step::Read(state.input_bytes + buffer.len() as u64));
        if buffer.is_empty() {
            break;
        }
        let cut = if ended { buffer.len() } else { state.last_start(&buffer)? };
        let text = buffer.get(..cut).context("a cut is within the buffer")?;
        state.shard(text, tell)?;
        buffer.drain(..cut);
    }
    state.finish()
}

fn fill_files(
    folder: &Path,
    inputs: &[PathBuf],
    options: &Options,
    tell: &mut dyn FnMut(Step),
) -> anyhow::Result<Imported> {
    let mut state = State::new(folder, options, Schema::new(Format::Files));
    let (mut files, mut bytes) = (Vec::new(), 0);
    for path in inputs {
        ensure!(path.as_os_str() != "-", "standard input is no file: give paths");
        let content =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if bytes + content.len() > options.shard_bytes && !files.is_empty() {
            state.shard_of_files(&std::mem::take(&mut files), tell)?;
            bytes = 0;
        }
        bytes += content.len();
        tell(Step::Read(state.input_bytes + bytes as u64));
        files.push((path.display().to_string(), content));
    }
    if !files.is_empty() {
        state.shard_of_files(&files, tell)?;
    }
    state.finish()
}

/// The dataset so far.
struct State<'a> {
    folder: &'a Path,
    options: &'a Options,
    schema: Schema,
    manifest: Manifest,
    bad: u64,
    first_bad: Vec<String>,
    input_bytes: u64,
}

impl<'a> State<'a> {
    fn new(folder: &'a Path, options: &'a Options, schema: Schema) -> State<'a> {
        let manifest = Manifest::new(schema.clone());
        State { folder, options, schema, manifest, bad: 0, first_bad: Vec::new(), input_bytes: 0 }
    }

    /// Where the last record begins: it may go on in what is not read yet.
    fn last_start(&self, text: &[u8]) -> anyhow::Result<usize> {
        let mut builder = Builder::new(self.schema.clone());
        builder.push(text)?;
        let (records, _) = builder.finish()?;
        let last = records.len().checked_sub(1).and_then(|last| records.range(last));
        let start = last.map_or(0, |range| range.start);
        ensure!(start > 0, "one record fills a whole shard: is the format right?");
        Ok(start)
    }

    fn shard(&mut self, text: &[u8], tell: &mut dyn FnMut(Step)) -> anyhow::Result<()> {
        self.announce(text.len(), tell);
        let (schema, options) = (self.schema.clone(), self.options);
        let made =
            write_shard(self.folder, (self.manifest.next_shard, self.manifest.end_id()), |out| {
                let mut progress = |progress| tell(Step::Progress(progress));
                Shard::build(text, schema, &options.orders, &options.index, out, &mut progress)
            })?;
        self.take(made);
        Ok(())
    }

    fn shard_of_files(
        &mut self,
        files: &[(String, Vec<u8>)],
        tell: &mut dyn FnMut(Step),
    ) -> anyhow::Result<()> {
        self.announce(
            files.iter().map(|(path, content)| path.len() + 1 + content.len()).sum(),
            tell,
        );
        let options = self.options;
        let made =
            write_shard(self.folder, (self.manifest.next_shard, self.manifest.end_id()), |out| {
                let mut progress = |progress| tell(Step::Progress(progress));
                Shard::build_files(files, &options.index, out, &mut progress)
            })?;
        self.take(made);
        Ok(())
    }

    fn announce(&self, text_bytes: usize, tell: &mut dyn FnMut(Step)) {
        let memory_bytes = index::build_memory_bytes(text_bytes, &self.options.index);
        tell(Step::Build { shard: self.manifest.next_shard, text_bytes, memory_bytes });
    }

    fn take(&mut self, (entry, report): (ShardEntry, shard::Report)) {
        let record::Report { bad, first_bad, .. } = report.records;
        self.bad += bad as u64;
        let named = first_bad.iter().map(|one| match self.manifest.next_shard {
            1 => one.to_string(),
            shard => format!("shard {shard}, {one}"),
        });
        self.first_bad.extend(named.take(10_usize.saturating_sub(self.first_bad.len())));
        self.input_bytes += entry.input_bytes;
        self.manifest.shards.push(entry);
        self.manifest.next_shard += 1;
        self.schema = report.schema;
        // Only the first shard has the header.
        if let Format::Csv { header, .. } = &mut self.schema.format {
            *header = false;
        }
        self.manifest.schema = self.schema.clone();
    }

    fn finish(self) -> anyhow::Result<Imported> {
        self.manifest.write(self.folder)?;
        Ok(Imported {
            records: self.manifest.end_id(),
            bad: self.bad,
            first_bad: self.first_bad,
            schema: self.manifest.schema,
            input_bytes: self.input_bytes,
            shard_bytes: self.manifest.shards.iter().map(|shard| shard.file_bytes).sum(),
            shards: self.manifest.shards.len(),
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

/// Several files as one input. Between two of them a separator is added where the first does not end
/// with one; the headers of later CSV files are left out.
struct Joined {
    /// The files to come, the next one last.
    to_come: Vec<PathBuf>,
    now: Option<(PathBuf, Box<dyn BufRead>)>,
    format: Option<Format>,
    header: Option<Vec<u8>>,
    /// The last two bytes that were read.
    end: Vec<u8>,
}

impl Joined {
    fn open(inputs: &[PathBuf]) -> anyhow::Result<Joined> {
        ensure!(
            !inputs.is_empty(),
            "there is nothing to import: name files, or - for standard input"
        );
        let to_come = inputs.iter().rev().cloned().collect();
        let mut joined = Joined { to_come, now: None, format: None, header: None, end: Vec::new() };
        joined.next_file()?;
        Ok(joined)
    }

    /// Says what the records are, once that is known.
    fn follow(&mut self, format: Format, sample: &[u8]) {
        self.format = Some(format);
        if let Format::Csv { header: true, .. } = format {
            self.header = sample.split_inclusive(|byte| *byte == b'\n').next().map(<[u8]>::to_vec);
        }
    }

    fn next_file(&mut self) -> anyhow::Result<bool> {
        self.now = None;
        let Some(path) = self.to_come.pop() else { return Ok(false) };
        let mut reader: Box<dyn BufRead> = if path.as_os_str() == "-" {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let shown = path.display();
            let file = File::open(&path).with_context(|| format!("cannot open {shown}"))?;
            ensure!(!file.metadata()?.is_dir(), "{shown} is a folder; name its files");
            Box::new(BufReader::with_capacity(1 << 20, file))
        };
        if let Some(header) = &self.header {
            let mut line = Vec::new();
            reader.by_ref().take(header.len() as u64).read_until(b'\n', &mut line)?;
            if !line.is_empty() && line != *header {
                bail!(
                    "{}: its first line is not the header of the first file; name files of one kind",
                    path.display()
                );
            }
        }
        self.now = Some((path, reader));
        Ok(true)
    }

    /// Fills a buffer up to `len` bytes, of the first file alone before [`follow`](Joined::follow); says
    /// whether the input has ended.
    fn read_up_to(&mut self, len: usize, buffer: &mut Vec<u8>) -> anyhow::Result<bool> {
        while buffer.len() < len {
            let Some((path, reader)) = &mut self.now else { return Ok(true) };
            let missing = (len - buffer.len()) as u64;
            let count = reader
                .by_ref()
                .take(missing)
                .read_to_end(buffer)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if count > 0 {
                let end = buffer.len();
                self.end = buffer.get(end.saturating_sub(2)..).unwrap_or_default().to_vec();
            } else if self.to_come.is_empty() {
                self.now = None;
            } else if self.format.is_none() {
                // The sample ends with the first file: how to go on to the next is not known yet.
                return Ok(false);
            } else {
                if !self.end.is_empty() && !self.end.ends_with(b"\n") {
                    buffer.push(b'\n');
                }
                let stanzas = self.format == Some(Format::Stanzas);
                if !self.end.is_empty() && stanzas && self.end != b"\n\n" {
                    buffer.push(b'\n');
                }
                self.next_file()?;
            }
        }
        Ok(self.now.is_none())
    }
}
