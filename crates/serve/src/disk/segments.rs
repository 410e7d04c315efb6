//! The segment files of one device: finding, reading, appending to, sealing and removing them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use engine::Key;
use engine::node::{Failure, Restored, Unread};
use engine::tier::Location;
use rustix::fs::{Advice, OFlags, fadvise};
use thiserror::Error;
use tracing::{info, warn};

use super::format::{self, Entry};
use super::record::{self, HEADER_BYTES, Header, RECORD_VERSION};
use super::room::{ALIGNMENT, Buffer, Room, Span};
use super::start::{self, side_by_side};
use super::summary::{self, Block};
use crate::Object;
use ::record::clock;
use origin::Lock;

/// Bytes appended between two syncs, each of which also drops them from the page cache.
const SYNC_BYTES: u64 = 4 << 20;
/// Maximum record length that a scan accepts.
const RECORD_BYTES_MAX: u64 = 2 << 30;

/// A segment found at start.
pub struct FoundSegment {
    /// The segment's number.
    pub number: u64,
    /// The segment's records in ascending order of offset.
    pub records: Vec<Restored>,
}

/// Why a device's folder cannot be used, though the others can.
#[derive(Debug, Error)]
pub enum Unusable {
    /// The folder cannot be made, read or written.
    #[error("the device's folder {0} cannot be used: {1}")]
    Io(String, io::Error),
    /// Another node wrote it.
    #[error(
        "the device's folder {folder} belongs to node {owner}, and this is node {me}; name another \
         folder, or empty it"
    )]
    OtherNode {
        /// The folder.
        folder: String,
        /// The node that wrote it.
        owner: String,
        /// This node.
        me: String,
    },
    /// A newer program wrote it.
    #[error(
        "{path} has format version {version}, and this program knows {RECORD_VERSION}; use the program that \
         wrote it, or empty the folder"
    )]
    Version {
        /// The file.
        path: String,
        /// Its version.
        version: u8,
    },
}

/// A segment's file, opened for reading.
pub struct Segment {
    number: u64,
    file: File,
    direct: bool,
}

/// The segment that records are appended to; used by the device's writer only.
struct Head {
    number: u64,
    file: File,
    entries: Vec<Entry>,
    unsynced_bytes: u64,
}

/// One device's folder.
pub struct Segments {
    folder: PathBuf,
    readers: Mutex<HashMap<u64, Arc<Segment>>>,
    head: Mutex<Option<Head>>,
    /// The summary's file, once something was added.
    summary: Mutex<Option<File>>,
    direct: AtomicBool,
    _lock: Lock,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The guarded values are replaced as a whole, so a panic elsewhere leaves them usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Segments {
    /// Opens or creates the folder and finds its segments, in ascending order: in the summary, or
    /// else by the segment's index, or else by a scan up to its last complete record. A segment
    /// without a record is removed. `me` is the node's name in its cluster.
    ///
    /// # Errors
    ///
    /// [`Unusable`], or an error that should end the process: another process uses the folder.
    pub fn open(folder: &Path, me: Option<&str>) -> anyhow::Result<(Segments, Vec<FoundSegment>)> {
        let shown = folder.display();
        let io = |error| Unusable::Io(shown.to_string(), error);
        fs::create_dir_all(folder).map_err(io)?;
        // Whether it can be written shows before its lock is tried: these are different mistakes.
        let probe = folder.join("probe.tmp");
        fs::write(&probe, b"").map_err(io)?;
        let lock = Lock::take(folder)?;
        own(folder, me)?;
        let segments = Segments {
            folder: folder.to_owned(),
            readers: Mutex::default(),
            head: Mutex::default(),
            summary: Mutex::default(),
            direct: AtomicBool::new(true),
            _lock: lock,
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
            match (path.extension().and_then(|e| e.to_str()), stem.parse::<u64>()) {
                (Some("seg"), Ok(number)) => numbers.push(number),
                (Some("tmp"), _) => fs::remove_file(&path).map_err(io)?,
                _ => {}
            }
        }
        numbers.sort_unstable();
        let found = segments.find_all(numbers)?;
        Ok((segments, found))
    }

    /// The records of all segments, and a summary that has them.
    fn find_all(&self, numbers: Vec<u64>) -> anyhow::Result<Vec<FoundSegment>> {
        let path = self.folder.join("summary");
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
            let length = fs::metadata(self.path(number, "seg")).map_or(0, |data| data.len());
            let block = known.remove(&number).filter(|block| block.segment_bytes <= length);
            if let Some(block) = block.filter(|_| self.open_reader(number).is_ok()) {
                found.push(FoundSegment { number, records: block.records });
                continue;
            }
            match self.find(number) {
                Ok(entries) if entries.is_empty() => self.remove(number),
                Ok(entries) => {
                    added.push(found.len());
                    let records = restored(&entries);
                    found.push(FoundSegment { number, records });
                }
                Err(error) => match error.downcast::<Unusable>() {
                    Ok(unusable) => return Err(unusable.into()),
                    Err(error) => {
                        let name = self.folder.display();
                        warn!("{name}: removing segment {number}, which cannot be read: {error}");
                        self.remove(number);
                    }
                },
            }
        }
        if !found.is_empty() {
            let ms = |from, to| (to - from) / 1_000_000;
            info!(
                "{shown}: read in {} ms, decoded in {} ms; {} segments opened in {} ms",
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

    /// Writes the summary anew.
    fn write_summary(&self, path: &Path, found: &[FoundSegment]) -> io::Result<()> {
        let temporary = self.folder.join("summary.tmp");
        let mut file = BufWriter::new(File::create(&temporary)?);
        for FoundSegment { number, records } in found {
            file.write_all(&block_of(*number, records).encode())?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        *lock(&self.summary) = None;
        fs::rename(temporary, path)
    }

    /// Adds a segment to the summary.
    fn summarise(&self, number: u64, records: &[Restored]) -> io::Result<()> {
        let mut summary = lock(&self.summary);
        let file = match &mut *summary {
            Some(file) => file,
            none => {
                let path = self.folder.join("summary");
                none.insert(OpenOptions::new().append(true).create(true).open(path)?)
            }
        };
        file.write_all(&block_of(number, records).encode())
    }

    fn path(&self, segment: u64, extension: &str) -> PathBuf {
        self.folder.join(format!("{segment:08}.{extension}"))
    }

    /// The records of a segment, from its index or else from a scan.
    fn find(&self, number: u64) -> anyhow::Result<Vec<Entry>> {
        let length = fs::metadata(self.path(number, "seg"))?.len();
        let index = fs::read(self.path(number, "idx")).ok();
        let indexed = index.and_then(|bytes| format::decode_index(&bytes, number));
        let within = |entries: &Vec<Entry>| {
            entries.iter().all(|e| e.offset.checked_add(e.bytes).is_some_and(|end| end <= length))
        };
        if let Some(entries) = indexed.filter(within) {
            self.open_reader(number)?;
            return Ok(entries);
        }
        let path = self.path(number, "seg");
        let entries = scan(&File::open(&path)?, number, length)?;
        let entries = entries.map_err(|version| {
            let path = path.display().to_string();
            Unusable::Version { path, version }
        })?;
        info!("{}: scanned segment {number}: {} records", self.folder.display(), entries.len());
        if !entries.is_empty() {
            self.write_index(number, &entries)?;
            self.open_reader(number)?;
        }
        Ok(entries)
    }

    /// Opens a segment for reading with O_DIRECT, or through the page cache if that is refused.
    fn open_reader(&self, number: u64) -> io::Result<()> {
        let path = self.path(number, "seg");
        let mut options = OpenOptions::new();
        options.read(true);
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let direct = self.direct.load(Ordering::Relaxed);
        let opened =
            if direct { options.custom_flags(flags).open(&path) } else { options.open(&path) };
        let (file, direct) = match opened {
            Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.refuse_direct(&error);
                (options.custom_flags(0).open(&path)?, false)
            }
            opened => (opened?, direct),
        };
        lock(&self.readers).insert(number, Arc::new(Segment { number, file, direct }));
        Ok(())
    }

    fn refuse_direct(&self, error: &io::Error) {
        if self.direct.swap(false, Ordering::Relaxed) {
            warn!(
                "{}: the file system refuses direct reads ({error}); reads go through the page \
                 cache and may be faster than the device",
                self.folder.display()
            );
        }
    }

    /// The open segment with this number. It stays readable if it is removed meanwhile.
    pub fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        lock(&self.readers).get(&number).cloned()
    }

    /// Appends a record. The device's writer thread calls this in the order of locations.
    ///
    /// # Errors
    ///
    /// Those of the file system, or if the record's length differs from that of its location.
    pub fn append(&self, location: Location, key: &Key, object: &Object) -> io::Result<()> {
        let mut head = lock(&self.head);
        if head.as_ref().is_none_or(|head| head.number != location.segment()) {
            let path = self.path(location.segment(), "seg");
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            *head = Some(Head {
                number: location.segment(),
                file,
                entries: Vec::new(),
                unsynced_bytes: 0,
            });
        }
        let Some(head) = head.as_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let mut start = record::head(location.segment(), key, object.block(), object.body());
        // Write a small object with one call; do not copy a large one just for that.
        let body = object.body();
        let tail = if body.len() <= 64 << 10 {
            start.extend_from_slice(body);
            &body[..0]
        } else {
            &body[..]
        };
        let bytes = (start.len() + tail.len()) as u64;
        if bytes != location.bytes() {
            return Err(io::Error::other(format!(
                "the record has {bytes} bytes, not the planned {}",
                location.bytes()
            )));
        }
        head.file.write_all_at(&start, location.offset())?;
        head.file.write_all_at(tail, location.offset() + start.len() as u64)?;
        if head.entries.is_empty() {
            // Only after a successful write: on a full device each attempt would leave a handle.
            self.open_reader(location.segment())?;
        }
        let etag = object.metadata().etag.clone();
        head.entries.push(Entry { key: key.clone(), etag, offset: location.offset(), bytes });
        head.unsynced_bytes += bytes;
        if head.unsynced_bytes >= SYNC_BYTES {
            head.unsynced_bytes = 0;
            leave_page_cache(&head.file);
        }
        Ok(())
    }

    /// Seals a segment: syncs its bytes and writes its index.
    ///
    /// # Errors
    ///
    /// Those of the file system. The next start then scans the segment.
    pub fn seal(&self, number: u64) -> io::Result<()> {
        let Some(head) = lock(&self.head).take_if(|head| head.number == number) else {
            return Ok(());
        };
        if head.entries.is_empty() {
            // The segment's first write failed: there is nothing to keep.
            return fs::remove_file(self.path(number, "seg"));
        }
        leave_page_cache(&head.file);
        self.write_index(number, &head.entries)?;
        self.summarise(number, &restored(&head.entries))
    }

    /// Seals the segment that records are appended to, at the end of the process.
    pub fn close(&self) {
        let number = lock(&self.head).as_ref().map(|head| head.number);
        if let Some(Err(error)) = number.map(|number| self.seal(number)) {
            warn!("{}: cannot write an index: {error}", self.folder.display());
        }
    }

    fn write_index(&self, number: u64, entries: &[Entry]) -> io::Result<()> {
        let temporary = self.path(number, "tmp");
        fs::write(&temporary, format::encode_index(number, entries))?;
        fs::rename(&temporary, self.path(number, "idx"))
    }

    /// The sealed segments, in ascending order.
    pub fn sealed(&self) -> Vec<u64> {
        let head = lock(&self.head).as_ref().map(|head| head.number);
        let readers = lock(&self.readers);
        let mut sealed: Vec<u64> = readers.keys().copied().filter(|n| Some(*n) != head).collect();
        sealed.sort_unstable();
        sealed
    }

    /// The records of a sealed segment by its index; none if that cannot be read.
    pub fn entries(&self, number: u64) -> Vec<Entry> {
        let index = fs::read(self.path(number, "idx")).ok();
        index.and_then(|bytes| format::decode_index(&bytes, number)).unwrap_or_default()
    }

    /// Removes a segment. Reads in progress can still finish.
    pub fn remove(&self, number: u64) {
        lock(&self.readers).remove(&number);
        lock(&self.head).take_if(|head| head.number == number);
        for extension in ["idx", "seg"] {
            let path = self.path(number, extension);
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                warn!("cannot remove {}: {error}", path.display());
            }
        }
    }

    /// Why a record cannot be read.
    pub(super) fn unread(&self, location: Location, what: &str) -> Unread {
        let (number, offset) = (location.segment(), location.offset());
        let folder = self.folder.display();
        let reason = format!("{folder}: segment {number}, offset {offset}: {what}");
        Unread::Failed(Failure { reason })
    }

    /// Reads the bytes of a location, as far as the file has them, and returns so many of them as
    /// `length` says of them; all if it says nothing.
    pub(super) fn read_bytes(
        &self,
        segment: &Segment,
        location: Location,
        buffer: &mut Buffer,
        length: impl Fn(&[u8]) -> Option<u64>,
    ) -> Result<Bytes, Unread> {
        let error_at = |what: &str| self.unread(location, what);
        segment.read(location, buffer, &length).or_else(|error| {
            if !(segment.direct && error.kind() == io::ErrorKind::InvalidInput) {
                return Err(error_at(&error.to_string()));
            }
            // The file system accepts O_DIRECT when opening but refuses such reads.
            self.refuse_direct(&error);
            self.open_reader(segment.number).map_err(|e| error_at(&e.to_string()))?;
            let again = self.segment(segment.number).ok_or_else(|| error_at("was removed"))?;
            again.read(location, buffer, &length).map_err(|e| error_at(&e.to_string()))
        })
    }

    /// Reads an object. The location's length may be more than the record's.
    ///
    /// # Errors
    ///
    /// Why there is no object, with a message for the log; the engine reads from elsewhere instead.
    pub fn read(
        &self,
        segment: &Segment,
        location: Location,
        key: &[u8],
        buffer: &mut Buffer,
    ) -> Result<Object, Unread> {
        let bytes = self.read_bytes(segment, location, buffer, record_length)?;
        self.object(location, key, &bytes)
    }

    /// The object of the record that was read from a location.
    pub(super) fn object(
        &self,
        location: Location,
        key: &[u8],
        bytes: &Bytes,
    ) -> Result<Object, Unread> {
        let error_at = |what: &str| self.unread(location, what);
        let parsed = record::record(bytes, location.segment()).map_err(error_at)?;
        if parsed.key != key {
            return Err(Unread::OtherKey);
        }
        let stored = bytes.slice_ref(parsed.stored);
        Object::decode(&stored).ok_or_else(|| error_at("has malformed metadata"))
    }
}

/// Bytes of the record at the start of `bytes`, without what follows it; `None` if it is not valid.
pub(super) fn record_length(bytes: &[u8]) -> Option<u64> {
    let header = bytes.first_chunk::<HEADER_BYTES>().and_then(Header::decode);
    header.and_then(|header| header.record_bytes())
}

/// Takes a folder for a node, or finds that it is another's.
fn own(folder: &Path, me: Option<&str>) -> Result<(), Unusable> {
    let Some(me) = me else { return Ok(()) };
    let (path, shown) = (folder.join("owner"), || folder.display().to_string());
    match fs::read_to_string(&path) {
        Ok(owner) if owner.trim_end() == me => Ok(()),
        Ok(owner) => {
            let (owner, me) = (owner.trim_end().to_owned(), me.to_owned());
            Err(Unusable::OtherNode { folder: shown(), owner, me })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::write(&path, format!("{me}\n")).map_err(|error| Unusable::Io(shown(), error))
        }
        Err(error) => Err(Unusable::Io(shown(), error)),
    }
}

/// What the index needs of the records. Records above 4 GiB of a segment are left out.
fn restored(entries: &[Entry]) -> Vec<Restored> {
    entries.iter().filter_map(|e| Restored::new(&e.key, e.offset, e.bytes)).collect()
}

fn block_of(segment: u64, records: &[Restored]) -> Block {
    let end = |last: &Restored| u64::from(last.offset) + u64::from(last.bytes);
    let segment_bytes = records.last().map_or(0, end);
    Block { segment, segment_bytes, records: records.to_vec() }
}

/// Syncs a file and drops it from the page cache, so that reads come from the device.
fn leave_page_cache(file: &File) {
    // A failure here is harmless: every read verifies its record.
    let _ = file.sync_data();
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Scans a segment from its start to its last complete record. If a record has a later version,
/// returns that.
fn scan(file: &File, number: u64, length: u64) -> io::Result<Result<Vec<Entry>, u8>> {
    let mut entries = Vec::new();
    let mut offset = 0;
    let mut bytes_read = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        if offset + HEADER_BYTES as u64 > length {
            break;
        }
        file.read_exact_at(&mut header, offset)?;
        // Before the first record that is whole, the version alone decides; after it, bytes may be the
        // rest of a write that a crash tore, so that the header must be valid.
        let begins = offset == 0 && header.starts_with(record::RECORD_MAGIC);
        let first = begins.then_some(header[4]).filter(|&version| version > RECORD_VERSION);
        if let Some(version) = first.or_else(|| record::later_version(&header)) {
            return Ok(Err(version));
        }
        let bytes = Header::decode(&header).and_then(|header| header.record_bytes());
        let Some(bytes) = bytes.filter(|&bytes| {
            bytes <= RECORD_BYTES_MAX && offset.checked_add(bytes).is_some_and(|end| end <= length)
        }) else {
            break;
        };
        bytes_read.resize(bytes as usize, 0);
        file.read_exact_at(&mut bytes_read, offset)?;
        let entry = record::record(&bytes_read, number).ok().and_then(|r| Entry::of(&r, offset));
        match entry {
            Some(entry) => entries.push(entry),
            None => break,
        }
        offset += bytes;
    }
    Ok(Ok(entries))
}

impl Segment {
    /// Reads the aligned range around a location into aligned memory, up to the end of the location or
    /// of the file. See [`Segments::read_bytes`].
    fn read(
        &self,
        location: Location,
        buffer: &mut Buffer,
        length: impl Fn(&[u8]) -> Option<u64>,
    ) -> io::Result<Bytes> {
        let span = Span::of(location)?;
        let mut room = Room::new(span.bytes(), buffer)?;
        let space = room.space();
        let mut filled = 0;
        while filled < span.needed() {
            let read = match self.file.read_at(&mut space[filled..], span.from() + filled as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            filled += read;
            // A direct read returns an unaligned number of bytes only at the end of the file.
            if read == 0 || self.direct && filled % ALIGNMENT != 0 {
                break;
            }
        }
        let record = span.record(space, filled, length);
        Ok(room.finish(record, buffer))
    }

    /// The file, if it is read past the page cache.
    pub(super) fn direct(&self) -> Option<&File> {
        self.direct.then_some(&self.file)
    }
}
