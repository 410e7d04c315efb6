//! An input that is split: its files, where it is cut, and how its records are read.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shard::index::{self, Progress};
use shard::record::detect::Detection;
use shard::record::{Format, RECORD_BYTES_MAX, Sample, Schema};

use super::cut;
use super::names::{BYTES_MAX, FILE, VERSION};
use super::summary::{PARTS_MAX, PartSize, SplitSummary};
use super::text::{self, InputFile, Text};
use crate::error::{Context as _, Error, Result, ensure};
use crate::import::{Build, Step, without_header};
use crate::memory::{Counts, SEPARATOR_BYTES};
use crate::options::Options;
use crate::start::Starts;

/// An input that is split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputSplit {
    pub version: u32,
    /// Drawn for each split, so that parts of another are not joined.
    pub id: String,
    /// Why it has this format.
    pub because: String,
    pub warning: Option<String>,
    /// The schema of the first part; the others have no header.
    pub schema: Schema,
    pub orders: Vec<String>,
    pub sa_sampling: u32,
    pub isa_sampling: u32,
    pub files: Vec<InputFile>,
    /// The starts of the parts and the end of the last, ascending positions in the text.
    pub cuts: Vec<u64>,
}

impl InputSplit {
    /// Splits an input.
    pub fn new(
        inputs: &[PathBuf],
        size: PartSize,
        options: &Options,
        tell: &mut dyn FnMut(Step),
    ) -> Result<InputSplit> {
        ensure!(!inputs.is_empty(), Invalid, "nothing to import: name files");
        let Detection { schema, because, warning } = detected(inputs, options)?;
        let mut split = InputSplit {
            version: VERSION,
            id: format!("{:016x}", rand::random::<u64>()),
            because,
            warning,
            files: text::input_files(inputs, &schema)?,
            schema,
            orders: options.orders.clone(),
            sa_sampling: options.index.sa_sampling,
            isa_sampling: options.index.isa_sampling,
            cuts: Vec::new(),
        };
        let count = split.count(size)?;
        split.cuts = match split.schema.format {
            Format::Files => {
                let starts = split.positions()?;
                let len = starts.last().copied().unwrap_or(0);
                let at_or_after = |target| starts.partition_point(|start| *start < target);
                let cut = |target| starts.get(at_or_after(target)).copied().unwrap_or(len);
                let inner = cut::targets(len, count).map(cut);
                [0].into_iter().chain(inner).chain([len]).collect()
            }
            _ => {
                let mut text = Text::new(&split.files, split.schema.format)?;
                cut::cuts(&mut text, &split.schema, count, tell)?
            }
        };
        split.check()?;
        Ok(split)
    }

    /// The number of parts.
    fn count(&self, size: PartSize) -> Result<usize> {
        let len = self.positions()?.last().copied().unwrap_or(0);
        let count = match size {
            PartSize::Count(count) => count,
            PartSize::Bytes(bytes) => usize::try_from(len.div_ceil(bytes.max(1)).max(1))?,
        };
        ensure!(
            (1..=PARTS_MAX).contains(&count),
            Invalid,
            "{count} parts are not possible: an input has 1 to {PARTS_MAX}"
        );
        Ok(count)
    }

    fn positions(&self) -> Result<Vec<u64>> {
        text::positions(&self.files, self.schema.format)
            .ok_or_else(|| Error::inconsistent("the sizes of the files are not possible"))
    }

    /// Checks what another program may have written.
    fn check(&self) -> Result<()> {
        let len = self.positions()?.last().copied().unwrap_or(0);
        let (first, last) = (self.cuts.first(), self.cuts.last());
        ensure!(
            self.cuts.len() >= 2
                && self.cuts.len() <= PARTS_MAX + 1
                && self.cuts.is_sorted()
                && (first, last) == (Some(&0), Some(&len)),
            Damaged,
            "the cuts do not ascend from 0 to {len}"
        );
        if matches!(self.schema.format, Format::Csv { .. }) {
            ensure!(
                len == 0 || !self.schema.names.is_empty(),
                Invalid,
                "the first row cannot be read, and each part needs the names of the columns: give them (--columns)"
            );
        }
        for (part, range) in self.cuts.windows(2).enumerate() {
            let bytes = range.iter().rev().copied().reduce(|end, start| end - start).unwrap_or(0);
            let most = (index::LEN_MAX - SEPARATOR_BYTES) as u64;
            ensure!(
                bytes <= most,
                Invalid,
                "the part {part} would have {bytes} bytes, and a shard holds {most}: split the input into more parts"
            );
        }
        Ok(())
    }

    /// Reads the description in the folder of the parts.
    pub fn read(folder: &Path) -> Result<InputSplit> {
        let path = folder.join(FILE);
        let shown = path.display();
        let text =
            record::file::read(&path, BYTES_MAX).context(|| format!("cannot read {shown}"))?;
        let damaged = || {
            format!("{shown} is not the description of a split: split the input again (--again)")
        };
        let split: InputSplit = serde_json::from_slice(&text).context(damaged)?;
        let version = split.version;
        ensure!(version == VERSION, Damaged, "{shown} has the unsupported version {version}");
        split.check().context(damaged)?;
        Ok(split)
    }

    pub fn parts(&self) -> usize {
        self.cuts.len().saturating_sub(1)
    }

    fn range(&self, part: usize) -> Range<u64> {
        let at = |at: usize| self.cuts.get(at).copied().unwrap_or(0);
        at(part)..at(part + 1)
    }

    /// The bytes of the largest of some parts.
    pub fn part_bytes_max(&self, parts: Range<usize>) -> Result<usize> {
        let bytes = parts.map(|part| self.range(part)).map(|range| range.end - range.start);
        Ok(usize::try_from(bytes.max().unwrap_or(0))?)
    }

    /// The number of each part's shard, from 1: parts without bytes have none.
    pub fn shard_numbers(&self) -> Vec<Option<u64>> {
        let mut next = 0;
        let of = |part| {
            (!self.range(part).is_empty()).then(|| {
                next += 1;
                next
            })
        };
        (0..self.parts()).map(of).collect()
    }

    /// The schema by which a part is read: the first alone has a header.
    pub fn schema_of(&self, part: usize) -> Schema {
        if self.range(part).start == 0 { self.schema.clone() } else { without_header(&self.schema) }
    }

    pub fn options(&self) -> Options {
        Options {
            format: Some(self.schema.format),
            orders: self.orders.clone(),
            index: index::Options {
                sa_sampling: self.sa_sampling,
                isa_sampling: self.isa_sampling,
            },
            ..Options::default()
        }
    }

    /// Reads the records of a part.
    pub fn read_part(&self, part: usize) -> Result<PartInput> {
        let range = self.range(part);
        if self.schema.format != Format::Files {
            let mut text = Text::new(&self.files, self.schema.format)?;
            return Ok(PartInput::Text(text.read_range(&range)?));
        }
        let mut files = Vec::new();
        for (file, start) in self.files.iter().zip(self.positions()?) {
            if range.contains(&start) {
                file.open()?;
                let content = record::file::read(&file.path, RECORD_BYTES_MAX as u64);
                let shown = file.path.display();
                let content = content.context(|| format!("cannot read {shown} as one record"))?;
                files.push((file.name.clone(), content));
            }
        }
        Ok(PartInput::Files(files))
    }

    pub fn summary(&self, folder: &Path) -> SplitSummary {
        SplitSummary {
            parts: self.parts(),
            bytes: self.cuts.last().copied().unwrap_or(0),
            part_bytes_max: self.part_bytes_max(0..self.parts()).unwrap_or(0) as u64,
            schema: self.schema.clone(),
            because: self.because.clone(),
            warning: self.warning.clone(),
            folder: folder.to_owned(),
        }
    }
}

/// The schema of an input by the starts of its first files.
fn detected(inputs: &[PathBuf], options: &Options) -> Result<Detection> {
    if options.format == Some(Format::Files) {
        let schema = Schema::new(Format::Files);
        return Ok(Detection { schema, because: "as given".to_owned(), warning: None });
    }
    let mut starts = Starts::default();
    for path in inputs {
        if !starts.is_short() {
            break;
        }
        let file = text::open_plain(path)?;
        let sample = Sample::read(|len, bytes| {
            *bytes = text::begin_of(&file, len)?;
            Ok::<(), Error>(())
        })?;
        starts.add(path, sample);
    }
    starts.detect(options)
}

/// The records of a part.
pub(super) enum PartInput {
    Text(Vec<u8>),
    Files(Vec<(String, Vec<u8>)>),
}

impl PartInput {
    /// Upper bounds on its content.
    pub fn counts(&self) -> Counts {
        match self {
            PartInput::Text(text) => Counts::from_text(text),
            PartInput::Files(files) => Counts {
                bytes: files.iter().map(|(name, content)| name.len() + 1 + content.len()).sum(),
                lines: files.len(),
                commas: 0,
            },
        }
    }

    /// Builds its shard.
    pub fn build(
        &self,
        schema: Schema,
        build: Build<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<shard::Report, shard::Error> {
        let Build { orders, index, out } = build;
        match self {
            PartInput::Text(text) => {
                shard::Shard::build(text, schema, &orders, &index, out, progress)
            }
            PartInput::Files(files) => shard::Shard::build_files(files, &index, out, progress),
        }
    }
}
