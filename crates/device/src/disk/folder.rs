//! A folder as a device: each segment is a file (docs/device-format.md).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::node::Restored;
use rustix::fs::OFlags;
use tracing::{info, warn};

use super::format::{self, Entry};
use super::place::{
    FoundSegment, Listed, Place, Slots, Writer, block_of, leave_page_cache, restored,
};
use super::scan::{Bounds, scan};
use super::segment::Segment;
use super::start::{self, side_by_side};
use super::summary::{self, Block};
use crate::error::{Error, Unusable};
use ::record::clock;
use origin::Lock;
use origin::marker::{Claim, FolderKind, Unclaimed};

/// A device's folder.
pub(super) struct Folder {
    path: PathBuf,
    /// The summary's file, once something was added.
    summary: Mutex<Option<File>>,
    _lock: Lock,
}

impl Folder {
    /// Opens or creates the folder. `me` is the node's name in its cluster.
    ///
    /// # Errors
    ///
    /// [`Unusable`], or an error that should end the process: another process uses the folder.
    pub fn open(folder: &Path, me: Option<&str>) -> Result<Folder, Error> {
        let shown = folder.display();
        let io = |error| Unusable::Io(shown.to_string(), error);
        if is_missing_device(folder) {
            let why = "it does not exist, and a folder below /dev would be in memory".to_owned();
            return Err(Unusable::Raw(shown.to_string(), why).into());
        }
        let claim = Claim { is_earlier: &is_own, ..Claim::new(FolderKind::Device, me) };
        let is_marked = claim.inspect(folder).map_err(unclaimed)?.is_some();
        if !is_marked {
            owned_before(folder, me)?;
        }
        fs::create_dir_all(folder).map_err(io)?;
        // The lock before the marker: of two processes that find the folder unmarked, one gets it. That it cannot be made
        // is the mistake of a folder that cannot be written, and not that of a folder in use.
        let probe = OpenOptions::new().create(true).append(true).open(folder.join("lock"));
        probe.map_err(io)?;
        let lock = Lock::take(folder)?;
        claim.take(folder).map_err(unclaimed)?;
        Ok(Folder { path: folder.to_owned(), summary: Mutex::default(), _lock: lock })
    }

    /// The segments that have a file, in ascending order. Files that were being written are removed.
    fn numbers(&self) -> Result<Vec<u64>, Unusable> {
        let io = |error| Unusable::Io(self.name(), error);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
            match (path.extension().and_then(|e| e.to_str()), segment_of(stem)) {
                (Some("seg"), Some(number)) => numbers.push(number),
                _ if is_temporary(&path) => fs::remove_file(&path).map_err(io)?,
                _ => {}
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn summary(&self) -> MutexGuard<'_, Option<File>> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the summary anew.
    fn write_summary(&self, path: &Path, found: &[FoundSegment]) -> io::Result<()> {
        let temporary = self.path.join("summary.tmp");
        let mut file = BufWriter::new(File::create(&temporary)?);
        for FoundSegment { number, records } in found {
            file.write_all(&block_of(*number, records).encode())?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        *self.summary() = None;
        fs::rename(temporary, path)
    }

    /// Adds a segment to the summary.
    fn summarise(&self, number: u64, records: &[Restored]) -> io::Result<()> {
        let mut summary = self.summary();
        let file = match &mut *summary {
            Some(file) => file,
            none => {
                let path = self.path.join("summary");
                none.insert(OpenOptions::new().append(true).create(true).open(path)?)
            }
        };
        file.write_all(&block_of(number, records).encode())
    }

    fn file(&self, segment: u64, extension: &str) -> PathBuf {
        self.path.join(format!("{segment:08}.{extension}"))
    }

    fn write_index(&self, number: u64, entries: &[Entry]) -> io::Result<()> {
        let temporary = self.file(number, "tmp");
        fs::write(&temporary, format::encode_index(number, entries))?;
        fs::rename(&temporary, self.file(number, "idx"))
    }

    fn index(&self, number: u64) -> Option<Vec<Entry>> {
        let bytes = fs::read(self.file(number, "idx")).ok()?;
        format::decode_index(&bytes, number)
    }

    /// The records of a segment, from its index or else from a scan.
    fn find_one(&self, number: u64) -> io::Result<Result<Vec<Entry>, Unusable>> {
        let path = self.file(number, "seg");
        let length = fs::metadata(&path)?.len();
        let within = |entries: &Vec<Entry>| {
            entries.iter().all(|e| e.offset.checked_add(e.bytes).is_some_and(|end| end <= length))
        };
        if let Some(entries) = self.index(number).filter(within) {
            return Ok(Ok(entries));
        }
        let entries = match self.scanned(number)? {
            Ok(entries) => entries,
            Err(version) => {
                let path = path.display().to_string();
                return Ok(Err(Unusable::Version { path, version }));
            }
        };
        info!("{}: scanned segment {number}: {} records", self.name(), entries.len());
        // On a full disk its records can be read all the same.
        if !entries.is_empty()
            && let Err(error) = self.write_index(number, &entries)
        {
            let name = self.name();
            warn!(
                "{name}: cannot write the index of segment {number}: {error}; it is scanned whenever it is needed"
            );
        }
        Ok(Ok(entries))
    }

    /// The records of a segment up to its last complete one; or the version of one that is later than this program's.
    fn scanned(&self, number: u64) -> io::Result<Result<Vec<Entry>, u8>> {
        let file = File::open(self.file(number, "seg"))?;
        let length = file.metadata()?.len();
        scan(&file, Bounds { base: 0, length, mark: number, is_reused: false })
    }

    fn unlink(&self, number: u64) {
        for extension in ["idx", "seg"] {
            let path = self.file(number, extension);
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                warn!("cannot remove {}: {error}", path.display());
            }
        }
    }
}

impl Place for Folder {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn mark(&self, segment: u64) -> u64 {
        segment
    }

    /// In the summary, or else by the segment's index, or else by a scan up to its last complete record.
    /// A segment without a record is removed. Afterwards the summary has them all.
    fn find(&self) -> Result<Vec<FoundSegment>, Unusable> {
        let numbers = self.numbers()?;
        let path = self.path.join("summary");
        let (shown, begun) = (path.display(), clock::now());
        let bytes = start::read(&path).unwrap_or_default();
        let read = clock::now();
        let (blocks, _, refused) = summary::decode_in_pieces(&bytes, side_by_side);
        drop(bytes);
        let decoded = clock::now();
        if let Some(why) = refused {
            warn!("{shown} {why}; the segments after that are found by their own indexes");
        }
        let mut known: HashMap<u64, Block> = HashMap::new();
        let mut gone = 0;
        for block in blocks {
            gone += known.insert(block.segment, block).map_or(0, |before| before.records.len());
        }
        let (mut found, mut added) = (Vec::new(), Vec::new());
        for number in numbers {
            let length = fs::metadata(self.file(number, "seg")).map_or(0, |data| data.len());
            let block = known.remove(&number).filter(|block| block.segment_bytes <= length);
            if let Some(block) = block {
                found.push(FoundSegment { number, records: block.records });
                continue;
            }
            match self.find_one(number) {
                Ok(Err(unusable)) => return Err(unusable),
                Ok(Ok(entries)) if entries.is_empty() => self.unlink(number),
                Ok(Ok(entries)) => {
                    added.push(found.len());
                    let records = restored(&entries);
                    found.push(FoundSegment { number, records });
                }
                Err(error) => {
                    let name = self.name();
                    warn!("{name}: removing segment {number}, which cannot be read: {error}");
                    self.unlink(number);
                }
            }
        }
        if !found.is_empty() {
            let ms = |from, to| (to - from) / 1_000_000;
            info!(
                "{shown}: read in {} ms, decoded in {} ms; {} segments found in {} ms",
                ms(begun, read),
                ms(read, decoded),
                found.len(),
                ms(decoded, clock::now())
            );
        }
        gone += known.values().map(|block| block.records.len()).sum::<usize>();
        let there: usize = found.iter().map(|segment| segment.records.len()).sum();
        let written = if refused.is_some() || gone > there {
            self.write_summary(&path, &found)
        } else {
            let mut added = added.iter().filter_map(|&index| found.get(index));
            added.try_for_each(|segment| self.summarise(segment.number, &segment.records))
        };
        if let Err(error) = written {
            warn!("cannot write {shown}: {error}; the next start takes longer");
        }
        Ok(found)
    }

    fn reader(&self, segment: u64, direct: bool) -> io::Result<(Arc<File>, u64)> {
        let mut options = OpenOptions::new();
        options.read(true);
        if direct {
            options.custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0));
        }
        Ok((Arc::new(options.open(self.file(segment, "seg"))?), 0))
    }

    fn writer(&self, segment: u64) -> io::Result<Box<dyn Writer>> {
        let path = self.file(segment, "seg");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        Ok(Box::new(OneFile(file)))
    }

    fn seal(&self, segment: u64, entries: &[Entry]) -> io::Result<()> {
        self.write_index(segment, entries)?;
        self.summarise(segment, &restored(entries))
    }

    fn entries(&self, segment: u64) -> Vec<Listed> {
        let listed = |entry: Entry| Listed { location: entry.location(segment), key: entry.key };
        let scanned = || self.scanned(segment).ok()?.ok();
        let entries = self.index(segment).or_else(scanned).unwrap_or_default();
        entries.into_iter().map(listed).collect()
    }

    fn remove(&self, segment: u64, _readers: Weak<Segment>) {
        self.unlink(segment);
    }

    fn slots(&self) -> Option<Slots> {
        None
    }
}

/// The file of the segment that records are appended to.
struct OneFile(File);

impl Writer for OneFile {
    fn write(&mut self, offset: u64, mut head: Vec<u8>, body: &[u8]) -> io::Result<()> {
        // Write a small object with one call; do not copy a large one just for that.
        let small = body.len() <= 64 << 10;
        head.extend_from_slice(if small { body } else { &[] });
        self.0.write_all_at(&head, offset)?;
        if small { Ok(()) } else { self.0.write_all_at(body, offset + head.len() as u64) }
    }

    fn settle(&self) {
        leave_page_cache(&self.0, 0, 0);
    }
}

/// Whether a path names a device that is not there. Folders in /dev/shm are in memory on purpose.
fn is_missing_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm") && !path.exists()
}

/// The error of a folder that is not taken. One that strangers use is a mistake in the configuration, and ends the start; one
/// of another node, or a damaged one, is a disk that was swapped or broke, and the others go on.
fn unclaimed(why: Unclaimed) -> Error {
    match why {
        Unclaimed::NotEmpty { .. } | Unclaimed::OtherKind { .. } => Error::Unclaimed(why),
        why => Unusable::Unclaimed(why).into(),
    }
}

/// The file in which versions that had no marker kept the name of the node.
const EARLIER_OWNER: &str = "owner";

/// Finds whether a folder that has no marker yet is another node's by the file of earlier versions.
fn owned_before(folder: &Path, me: Option<&str>) -> Result<(), Unusable> {
    let path = folder.join(EARLIER_OWNER);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Unusable::Io(path.display().to_string(), error)),
    };
    let owner = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    let (folder, me) = (folder.to_owned(), me.map(str::to_owned));
    if me.as_ref() == Some(&owner) {
        return Ok(());
    }
    Err(Unusable::Unclaimed(match configuration::is_name(&owner) {
        true => Unclaimed::OtherNode { folder, owner, me },
        false => {
            let reason = format!("its file {EARLIER_OWNER:?} does not name a node");
            Unclaimed::Damaged { folder, reason }
        }
    }))
}

/// The number of a segment from the name of one of its files.
fn segment_of(stem: &str) -> Option<u64> {
    // Exactly as the name is written: a stranger's `1.seg` is none.
    stem.parse().ok().filter(|number| format!("{number:08}") == stem)
}

/// Whether this project writes a file of that name while it is not complete.
fn is_temporary(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_own = segment_of(stem).is_some() || ["summary", "probe"].contains(&stem);
    is_own && path.extension().is_some_and(|extension| extension == "tmp")
}

/// Whether a file of that name in a device's folder is this project's.
fn is_own(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_segment = |extension: &OsStr| extension == "seg" || extension == "idx";
    match path.extension() {
        None => ["lock", "summary", EARLIER_OWNER].contains(&stem),
        Some(extension) if is_segment(extension) => segment_of(stem).is_some(),
        Some(_) => is_temporary(path),
    }
}

#[cfg(test)]
mod tests;
