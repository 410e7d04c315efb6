//! What is known of a part once it is built: a file beside its shard.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::input::InputSplit;
use super::names::{BYTES_MAX, VERSION, report_file};
use super::summary::BuiltPart;
use crate::error::{Context as _, Result, ensure};
use crate::import::BuiltShard;
use crate::manifest::shard_file;

/// The report of a part, beside its shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartReport {
    pub version: u32,
    pub split: String,
    pub part: usize,
    pub memory_bytes_max: usize,
    pub built: BuiltShard,
}

impl PartReport {
    /// Reads the report of a part, whose shard is there.
    pub fn read(path: &Path, split: &InputSplit, part: usize, shard: u64) -> Result<PartReport> {
        let shown = path.display();
        let text =
            record::file::read(path, BYTES_MAX).context(|| format!("cannot read {shown}"))?;
        let report: PartReport = serde_json::from_slice(&text)
            .context(|| format!("{shown} is damaged: build the part again"))?;
        ensure!(
            (report.version, &report.split, report.part) == (VERSION, &split.id, part),
            Invalid,
            "{shown} is of another split"
        );
        let entry = &report.built.entry;
        let file = path.with_file_name(&entry.file);
        let bytes =
            std::fs::metadata(&file).context(|| format!("cannot use {}", file.display()))?.len();
        ensure!(
            bytes == entry.file_bytes && entry.file == shard_file(shard),
            Damaged,
            "{} has {bytes} bytes, and not {}: build the part again",
            file.display(),
            entry.file_bytes
        );
        Ok(report)
    }

    pub fn summary(&self, parts: usize, was_built: bool) -> BuiltPart {
        let BuiltShard { entry, bad, .. } = &self.built;
        BuiltPart {
            part: self.part,
            parts,
            records: entry.records,
            input_bytes: entry.input_bytes,
            shard_bytes: entry.file_bytes,
            bad: *bad,
            was_built,
        }
    }
}

impl InputSplit {
    /// The reports of all parts, in order.
    pub fn reports(&self, folder: &Path, name: &str) -> Result<Vec<PartReport>> {
        const NAMED_MAX: usize = 10;
        let (mut reports, mut missing, mut first) = (Vec::new(), Vec::new(), None);
        for (part, number) in self.shard_numbers().into_iter().enumerate() {
            let Some(number) = number else { continue };
            match PartReport::read(&folder.join(report_file(number)), self, part, number) {
                Ok(report) => reports.push(report),
                Err(error) => {
                    missing.push(part);
                    first.get_or_insert(error);
                }
            }
        }
        let Some(error) = first else { return Ok(reports) };
        let count = missing.len();
        let named: Vec<String> = missing.iter().take(NAMED_MAX).map(usize::to_string).collect();
        let more = if count > NAMED_MAX { " …" } else { "" };
        Err(error).context(|| {
            format!(
                "{count} of {} parts of {name} are not built: {}{more} (concertina data parts build {name} --part N)",
                self.parts(),
                named.join(", ")
            )
        })
    }
}
