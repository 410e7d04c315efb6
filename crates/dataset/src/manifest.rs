//! The manifest of a dataset: one file, replaced atomically, that lists all others.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shard::record::Schema;

use super::error::{Context as _, Error, Result, ensure};

/// The name of the manifest in a dataset's folder.
pub const FILE: &str = "dataset.json";
/// The version of manifests whose shards have no gaps.
const VERSION: u32 = 1;
/// The version of manifests of which a shard has gaps. Builds that do not know gaps refuse it by its number, and do not take
/// ids for others.
const VERSION_WITH_GAPS: u32 = 2;
/// The most shards of a dataset.
const SHARDS_MAX: usize = 100_000;
/// The largest manifest that is accepted.
pub const BYTES_MAX: u64 = 64 << 20;

/// One shard of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// The name of its file in the dataset's folder.
    pub file: String,
    /// The first of its ids; the others follow, up to the first id of the next shard.
    pub first_id: u64,
    /// The number of its records.
    pub records: u64,
    /// Original size of the records, bytes.
    pub input_bytes: u64,
    /// Size of the file, bytes.
    pub file_bytes: u64,
    /// The number of its ids without a record: those of deleted records whose bytes a compaction left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gone: u64,
    /// These ids: ranges, ascending, not adjacent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Range<u64>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde passes it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ShardEntry {
    /// Its ids, those of deleted records included.
    pub fn ids(&self) -> Range<u64> {
        self.first_id..self.first_id.saturating_add(self.records).saturating_add(self.gone)
    }

    /// Checks its gaps against its ids and the deleted records, which are ascending.
    fn check_gaps(&self, deleted: &[u64]) -> Result<()> {
        let (file, ids) = (&self.file, self.ids());
        let (mut next, mut gone) = (ids.start, 0_u64);
        for (at, gap) in self.gaps.iter().enumerate() {
            // Adjacent ones would be one, and their order is what look-ups rely on.
            let is_apart = gap.start > next || (at == 0 && gap.start == next);
            ensure!(
                is_apart && gap.start < gap.end && gap.end <= ids.end,
                Damaged,
                "the gap {} to {} is not among the ids of {file}, or not ascending",
                gap.start,
                gap.end
            );
            let len = gap.end - gap.start;
            let first = deleted.partition_point(|id| *id < gap.start);
            let last =
                usize::try_from(len - 1).ok().and_then(|len| deleted.get(first.checked_add(len)?));
            ensure!(
                deleted.get(first) == Some(&gap.start) && last == Some(&(gap.end - 1)),
                Damaged,
                "{file} lists a gap from id {} to {}, but not all of these records are deleted",
                gap.start,
                gap.end
            );
            (next, gone) = (gap.end, gone + len);
        }
        ensure!(
            gone == self.gone,
            Damaged,
            "the gaps of {file} have {gone} ids, and not {}",
            self.gone
        );
        Ok(())
    }
}

/// The manifest of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the file's layout.
    version: u32,
    /// Sixteen random hexadecimal digits, drawn when the dataset was created. They distinguish its
    /// shards from those of another dataset of the same name.
    pub id: String,
    /// The format and attributes of the records. Records of the log never include a header, even if
    /// the first shard has one.
    pub schema: Schema,
    /// The shards, in the order of their ids.
    pub shards: Vec<ShardEntry>,
    /// The number of the next shard's file. Numbers are never reused.
    pub next_shard: u64,
    /// Chunks of the log up to this number are included in `shards` and `deleted`.
    pub sealed_chunks: u64,
    /// The ids of deleted records of the shards, ascending.
    pub deleted: Vec<u64>,
    /// CRC-32 (IEEE) of the manifest as compact JSON with this field empty; eight hexadecimal
    /// digits.
    checksum: String,
}

impl Manifest {
    /// Creates the manifest of an empty dataset.
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

    /// The first id after those of the shards.
    pub fn end_id(&self) -> u64 {
        self.shards.last().map_or(0, |shard| shard.ids().end)
    }

    /// Reads the manifest of a dataset's folder.
    ///
    /// # Errors
    ///
    /// If it is missing or invalid.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(FILE);
        let shown = path.display();
        let text = record::file::read(&path, BYTES_MAX);
        let text = text.context(|| format!("cannot read {shown}"))?;
        Manifest::parse(&text).context(|| format!("{shown} is not the manifest of a dataset"))
    }

    /// Parses and checks a manifest.
    ///
    /// # Errors
    ///
    /// If it is malformed or inconsistent.
    pub fn parse(text: &[u8]) -> Result<Manifest> {
        let manifest: Manifest = serde_json::from_slice(text)?;
        let (computed, stored) = (manifest.checksum_now()?, &manifest.checksum);
        ensure!(
            computed == *stored,
            Damaged,
            "checksum mismatch: {computed} computed, {stored} stored"
        );
        let manifest = Manifest { checksum: String::new(), ..manifest };
        let version = manifest.version;
        ensure!(
            (VERSION..=VERSION_WITH_GAPS).contains(&version),
            Damaged,
            "unsupported version {version}; this build reads versions {VERSION} and {VERSION_WITH_GAPS}"
        );
        let id = &manifest.id;
        // Clients upload manifests, and ids and names of shards become paths.
        ensure!(is_id(id), Damaged, "{id:?} is not the id of a dataset");
        ensure!(
            manifest.shards.len() <= SHARDS_MAX,
            Damaged,
            "it lists more than {SHARDS_MAX} shards"
        );
        let mut next = 0_u64;
        for shard in &manifest.shards {
            let file = &shard.file;
            ensure!(is_shard_file(file), Damaged, "{file:?} is not a valid name of a shard's file");
            ensure!(
                shard.first_id == next,
                Damaged,
                "the records of {file} begin with id {}, but {next} is next",
                shard.first_id
            );
            let ids = shard.records.checked_add(shard.gone);
            next = ids
                .and_then(|ids| next.checked_add(ids))
                .ok_or_else(|| Error::inconsistent("the ids exceed 64 bits"))?;
        }
        let ascending = manifest.deleted.is_sorted_by(|a, b| a < b);
        ensure!(ascending, Damaged, "the ids of deleted records are not ascending");
        ensure!(
            manifest.deleted.last().is_none_or(|last| *last < next),
            Damaged,
            "a deleted record is not in any shard"
        );
        manifest.shards.iter().try_for_each(|shard| shard.check_gaps(&manifest.deleted))?;
        Ok(manifest)
    }

    /// Lists one shard in place of several with the same ids.
    pub(crate) fn replace_shards(&mut self, which: Range<usize>, by: ShardEntry) {
        debug_assert_eq!(
            self.shards
                .get(which.clone())
                .map(|old| old.iter().map(|shard| shard.records + shard.gone).sum()),
            Some(by.records + by.gone)
        );
        self.shards.splice(which, [by]);
        let has_gaps = self.shards.iter().any(|shard| shard.gone > 0);
        self.version = if has_gaps { VERSION_WITH_GAPS } else { VERSION };
    }

    fn checksum_now(&self) -> serde_json::Result<String> {
        let bare = Manifest { checksum: String::new(), ..self.clone() };
        Ok(format!("{:08x}", crc32fast::hash(&serde_json::to_vec(&bare)?)))
    }

    /// Encodes the manifest with its checksum.
    ///
    /// # Errors
    ///
    /// If [`parse`](Self::parse) would refuse it, for it lists too many shards or deleted records.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let (shards, deleted) = (self.shards.len(), self.deleted.len());
        ensure!(
            shards <= SHARDS_MAX,
            Invalid,
            "the manifest would list {shards} shards; the most are {SHARDS_MAX}"
        );
        let checksum = self.checksum_now()?;
        let text = serde_json::to_vec(&Manifest { checksum, ..self.clone() })?;
        let bytes = text.len() as u64;
        ensure!(
            bytes <= BYTES_MAX,
            Invalid,
            "the manifest would have {bytes} bytes for {deleted} deleted records, of at most {BYTES_MAX}: export the \
             dataset, and import it anew"
        );
        Ok(text)
    }

    /// Replaces the manifest of a folder durably.
    ///
    /// # Errors
    ///
    /// Those of the file system; the old manifest is then unchanged.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = self.encode()?;
        super::files::write(folder, FILE, true, |writer| writer.write_all(&text))
            .context(|| format!("cannot write {}", folder.join(FILE).display()))
    }
}

/// Returns the name of a shard's file.
pub fn shard_file(number: u64) -> String {
    format!("{number:06}.shard")
}

/// Whether a name is one that [`shard_file`] makes.
pub fn is_shard_file(name: &str) -> bool {
    shard_number(name).is_some()
}

/// The number from which [`shard_file`] makes a name.
pub(crate) fn shard_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".shard")?.parse().ok()?;
    (shard_file(number) == name).then_some(number)
}

/// Whether a text can be the id of a dataset.
pub fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
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
                gone: 0,
                gaps: Vec::new(),
            });
        }
        manifest.deleted = vec![3, 19];
        manifest
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let deleted: Vec<u64> = (10_000_000..18_000_000).collect();
        let many = Manifest { deleted, ..manifest() };
        let error = many.encode().unwrap_err().to_string();
        assert!(error.contains("8000000 deleted records"), "{error}");
        let one = manifest().shards[0].clone();
        let many = Manifest { shards: vec![one; SHARDS_MAX + 1], ..manifest() };
        assert!(many.encode().unwrap_err().to_string().contains("shards"));
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
            // White space between tokens is insignificant.
            if let Ok(read) = Manifest::parse(&changed) {
                assert_eq!(read.encode().unwrap(), text, "byte {at}");
            }
        }
    }

    #[test]
    fn inconsistent_manifests_are_refused() {
        let check = |change: &dyn Fn(&mut Manifest), says: &str| {
            let mut manifest = manifest();
            change(&mut manifest);
            let text = manifest.encode().unwrap();
            let error = ground::with_causes(&Manifest::parse(&text).unwrap_err());
            assert!(error.contains(says), "{error}");
        };
        check(&|m| m.version = 3, "version 3");
        check(&|m| m.id = "../0123456789abc".to_owned(), "not the id");
        check(&|m| m.shards[1].first_id = 11, "but 10 is next");
        check(&|m| m.shards[0].file = "../x.shard".to_owned(), "not a valid name");
        check(&|m| m.shards[0].file = "/etc/000001.shard".to_owned(), "not a valid name");
        for id in ["..", ".", "", "/", "a/../../../../b/", "0123456789abcde.", "0123456789abcde\0"]
        {
            check(&|m| m.id = id.to_owned(), "not the id");
        }
        for file in
            ["", ".shard", "..shard", "1.shard", "0000001.shard", "+00001.shard", "00000\0.shard"]
        {
            check(&|m| m.shards[1].file = file.to_owned(), "not a valid name");
        }
        check(&|m| m.deleted = vec![5, 5], "not ascending");
        check(&|m| m.deleted = vec![20], "not in any shard");
        check(&|m| m.shards[1].records = u64::MAX, "exceed 64 bits");
        check(&|m| m.shards[1].gone = u64::MAX - 3, "exceed 64 bits");
        let gaps = |m: &mut Manifest, gaps: &[(u64, u64)]| {
            m.shards[1].gaps = gaps.iter().map(|(start, end)| *start..*end).collect();
            m.shards[1].gone = gaps.iter().map(|(start, end)| end.saturating_sub(*start)).sum();
            m.shards[1].records = 10 - m.shards[1].gone;
            m.deleted = vec![3, 12, 13, 15, 18, 19];
        };
        check(&|m| gaps(m, &[(12, 13), (13, 14)]), "not ascending");
        check(&|m| gaps(m, &[(15, 16), (12, 13)]), "not ascending");
        check(&|m| gaps(m, &[(3, 4)]), "not among the ids");
        check(&|m| gaps(m, &[(18, 20), (20, 21)]), "not among the ids");
        check(&|m| gaps(m, &[(13, 13)]), "not among the ids");
        check(&|m| gaps(m, &[(12, 15)]), "not all of these records");
        check(&|m| gaps(m, &[(17, 19)]), "not all of these records");
        check(
            &|m| (gaps(m, &[(12, 14)]), m.shards[1].gone = 1, m.shards[1].records = 9).0,
            "have 2 ids",
        );
        let mut fits = manifest();
        gaps(&mut fits, &[(12, 14), (18, 20)]);
        let read = Manifest::parse(&fits.encode().unwrap()).unwrap();
        assert_eq!((read.end_id(), read), (20, fits));
        assert!(Manifest::parse(b"{}").is_err());
    }
}
