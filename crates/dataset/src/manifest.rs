//! What a dataset consists of: one file, replaced whole, that names all others.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use shard::record::Schema;

/// Name of the file in a dataset's folder.
pub const FILE: &str = "dataset.json";
/// The version that this build writes, and the only one that it reads.
const VERSION: u32 = 1;
/// The most shards that a dataset has.
const SHARDS_MAX: usize = 100_000;
/// The largest manifest that is read.
pub const BYTES_MAX: u64 = 64 << 20;

/// One shard of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Name of its file in the dataset's folder.
    pub file: String,
    /// Id of its first record; the others follow.
    pub first_id: u64,
    /// How many records it has.
    pub records: u64,
    /// Bytes of the records as they came.
    pub input_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// What a dataset consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file's layout.
    version: u32,
    /// Sixteen hexadecimal digits, drawn when the dataset was made: a copy of a shard belongs to it only if
    /// it was taken under the same.
    pub id: String,
    /// What its records are. Those of the log have no header, whatever the first shard has.
    pub schema: Schema,
    /// Its shards, in the order of their ids.
    pub shards: Vec<ShardEntry>,
    /// Number of the next shard's file: never used twice.
    pub next_shard: u64,
    /// Chunks of the log up to this number are part of the shards and of `deleted`.
    pub sealed_chunks: u64,
    /// Ids of deleted records of the shards, ascending.
    pub deleted: Vec<u64>,
    /// CRC-32 (IEEE) of the manifest as compact JSON in which this is empty, eight hexadecimal digits.
    checksum: String,
}

impl Manifest {
    /// A dataset without records.
    pub fn new(schema: Schema) -> Manifest {
        Manifest {
            version: VERSION,
            id: format!("{:016x}", rand::random::<u64>()),
            schema,
            shards: Vec::new(),
            next_shard: 1,
            sealed_chunks: 0,
            deleted: Vec::new(),
            checksum: String::new(),
        }
    }

    /// The id that follows those of the shards.
    pub fn end_id(&self) -> u64 {
        self.shards.last().map_or(0, |shard| shard.first_id + shard.records)
    }

    /// Reads the manifest of a dataset's folder.
    ///
    /// # Errors
    ///
    /// If there is none, or not one that can be.
    pub fn read(folder: &Path) -> anyhow::Result<Manifest> {
        let path = folder.join(FILE);
        let shown = path.display();
        let bytes = std::fs::metadata(&path).with_context(|| format!("cannot read {shown}"))?.len();
        ensure!(bytes <= BYTES_MAX, "{shown} has {bytes} bytes, which no manifest has");
        let text = std::fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
        Manifest::parse(&text).with_context(|| format!("{shown} is not the manifest of a dataset"))
    }

    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// If it is not one that can be.
    pub fn parse(text: &[u8]) -> anyhow::Result<Manifest> {
        let manifest: Manifest = serde_json::from_slice(text)?;
        let (found, said) = (manifest.checksum_now()?, &manifest.checksum);
        ensure!(found == *said, "its checksum is {found} and should be {said}");
        let manifest = Manifest { checksum: String::new(), ..manifest };
        let version = manifest.version;
        ensure!(version == VERSION, "it is of version {version}; this build reads {VERSION}");
        let id = &manifest.id;
        ensure!(
            id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{id:?} is not the id of a dataset"
        );
        ensure!(manifest.shards.len() <= SHARDS_MAX, "it names more than {SHARDS_MAX} shards");
        let mut next = 0_u64;
        for shard in &manifest.shards {
            let file = &shard.file;
            ensure!(is_file_name(file), "{file:?} is not a name that a shard's file has");
            ensure!(
                shard.first_id == next,
                "the records of {file} begin with id {} where {next} is next",
                shard.first_id
            );
            next = next.checked_add(shard.records).context("more ids than there are numbers")?;
        }
        let ascending = manifest.deleted.is_sorted_by(|a, b| a < b);
        ensure!(ascending, "the ids of deleted records are not ascending");
        ensure!(
            manifest.deleted.last().is_none_or(|last| *last < next),
            "a deleted record is not in any shard"
        );
        Ok(manifest)
    }

    fn checksum_now(&self) -> serde_json::Result<String> {
        let bare = Manifest { checksum: String::new(), ..self.clone() };
        Ok(format!("{:08x}", crc32fast::hash(&serde_json::to_vec(&bare)?)))
    }

    /// Its text, with its checksum.
    ///
    /// # Errors
    ///
    /// None that there should be.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let checksum = self.checksum_now()?;
        serde_json::to_vec_pretty(&Manifest { checksum, ..self.clone() })
    }

    /// Replaces the manifest of a folder, durably.
    ///
    /// # Errors
    ///
    /// Those of the system; the old one is still there then.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let text = self.encode()?;
        super::files::write(folder, FILE, true, |writer| writer.write_all(&text))
            .with_context(|| format!("cannot write {}", folder.join(FILE).display()))
    }
}

/// The name of a shard's file.
pub fn shard_file(number: u64) -> String {
    format!("{number:06}.shard")
}

fn is_file_name(name: &str) -> bool {
    let digits = name.strip_suffix(".shard").unwrap_or_default();
    digits.len() >= 6 && digits.len() <= 20 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use shard::record::Format;

    use super::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new(Schema::new(Format::Lines));
        for (number, first_id) in [(1, 0), (2, 10)] {
            manifest.shards.push(ShardEntry {
                file: shard_file(number),
                first_id,
                records: 10,
                input_bytes: 100,
                file_bytes: 60,
            });
        }
        manifest.deleted = vec![3, 19];
        manifest
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest();
        manifest.write(folder.path()).unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), manifest);
        assert_eq!(manifest.end_id(), 20);
    }

    #[test]
    fn a_changed_byte_is_found() {
        let text = manifest().encode().unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            // Blanks between tokens say nothing.
            if let Ok(read) = Manifest::parse(&changed) {
                assert_eq!(read.encode().unwrap(), text, "byte {at}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let check = |change: &dyn Fn(&mut Manifest), says: &str| {
            let mut manifest = manifest();
            change(&mut manifest);
            let text = manifest.encode().unwrap();
            let error = format!("{:#}", Manifest::parse(&text).unwrap_err());
            assert!(error.contains(says), "{error}");
        };
        check(&|m| m.version = 2, "version 2");
        check(&|m| m.id = "../0123456789abc".to_owned(), "not the id");
        check(&|m| m.shards[1].first_id = 11, "where 10 is next");
        check(&|m| m.shards[0].file = "../x.shard".to_owned(), "not a name");
        check(&|m| m.shards[0].file = "/etc/000001.shard".to_owned(), "not a name");
        check(&|m| m.deleted = vec![5, 5], "not ascending");
        check(&|m| m.deleted = vec![20], "not in any shard");
        check(&|m| m.shards[1].records = u64::MAX, "more ids");
        assert!(Manifest::parse(b"{}").is_err());
    }
}
