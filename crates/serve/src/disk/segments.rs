//! The segment files of one device: finding, reading, appending to, sealing and removing them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use engine::Key;
use engine::tier::Location;
use rustix::fs::{Advice, OFlags, fadvise};
use tracing::{info, warn};

use super::format::{self, Entry, HEADER_BYTES, Header};
use crate::Object;
use origin::Lock;

/// Alignment of offsets, lengths and buffers for O_DIRECT; the largest that devices require.
const ALIGNMENT: usize = 4096;
/// A record is kept in its read buffer, not copied, if the buffer's surplus is at most the record's
/// size divided by this.
const WASTE_PART: usize = 8;
/// Bytes appended between two syncs, each of which also drops them from the page cache.
const SYNC_BYTES: u64 = 4 << 20;
/// Maximum record length that a scan accepts.
const RECORD_BYTES_MAX: u64 = 2 << 30;

/// A segment found at start.
pub struct FoundSegment {
    /// The segment's number.
    pub number: u64,
    /// The segment's records in ascending order of offset.
    pub entries: Vec<Entry>,
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
    direct: AtomicBool,
    _lock: Lock,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The guarded values are replaced as a whole, so a panic elsewhere leaves them usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Segments {
    /// Opens or creates the folder and finds its segments, in ascending order. A segment without a
    /// valid index is scanned up to its last complete record and gets an index. An unreadable or
    /// empty segment is removed.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, listed or locked.
    pub fn open(folder: &Path) -> anyhow::Result<(Segments, Vec<FoundSegment>)> {
        let shown = folder.display();
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the device's folder {shown}"))?;
        let segments = Segments {
            folder: folder.to_owned(),
            readers: Mutex::default(),
            head: Mutex::default(),
            direct: AtomicBool::new(true),
            _lock: Lock::take(folder)?,
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("cannot list {shown}"))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
            match (path.extension().and_then(|e| e.to_str()), stem.parse::<u64>()) {
                (Some("seg"), Ok(number)) => numbers.push(number),
                (Some("tmp"), _) => fs::remove_file(&path)?,
                _ => {}
            }
        }
        numbers.sort_unstable();
        let mut found = Vec::new();
        for number in numbers {
            match segments.find(number) {
                Ok(entries) if entries.is_empty() => segments.remove(number),
                Ok(entries) => found.push(FoundSegment { number, entries }),
                Err(error) => {
                    warn!("{shown}: removing segment {number}, which cannot be read: {error}");
                    segments.remove(number);
                }
            }
        }
        Ok((segments, found))
    }

    fn path(&self, segment: u64, extension: &str) -> PathBuf {
        self.folder.join(format!("{segment:08}.{extension}"))
    }

    /// The records of a segment, from its index or else from a scan.
    fn find(&self, number: u64) -> io::Result<Vec<Entry>> {
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
        let entries = scan(&File::open(self.path(number, "seg"))?, number, length)?;
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
        let header = Header::of(location.segment(), key, object.block(), object.body());
        let mut start = Vec::with_capacity(HEADER_BYTES + key.len() + object.block().len() + 4096);
        start.extend_from_slice(&header.encode());
        start.extend_from_slice(key);
        start.extend_from_slice(object.block());
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
        self.write_index(number, &head.entries)
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

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// A message for the log; the engine reads from the origin instead.
    pub fn read(
        &self,
        segment: &Segment,
        location: Location,
        key: &[u8],
        buffer: &mut Buffer,
    ) -> Result<Object, String> {
        let error_at = |what: &str| {
            let (number, offset) = (location.segment(), location.offset());
            format!("{}: segment {number}, offset {offset}: {what}", self.folder.display())
        };
        let record = segment.read(location, buffer).or_else(|error| {
            if !(segment.direct && error.kind() == io::ErrorKind::InvalidInput) {
                return Err(error_at(&error.to_string()));
            }
            // The file system accepts O_DIRECT when opening but refuses such reads.
            self.refuse_direct(&error);
            self.open_reader(segment.number).map_err(|e| error_at(&e.to_string()))?;
            let again = self.segment(segment.number).ok_or_else(|| error_at("was removed"))?;
            again.read(location, buffer).map_err(|e| error_at(&e.to_string()))
        })?;
        let parsed = format::record(&record, location.segment()).map_err(error_at)?;
        if parsed.key != key {
            return Err(error_at("belongs to another key"));
        }
        let stored = record.slice_ref(parsed.stored);
        Object::decode(&stored).ok_or_else(|| error_at("has malformed metadata"))
    }
}

/// Syncs a file and drops it from the page cache, so that reads come from the device.
fn leave_page_cache(file: &File) {
    // A failure here is harmless: every read verifies its record.
    let _ = file.sync_data();
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Scans a segment from its start to its last complete record.
fn scan(file: &File, number: u64, length: u64) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut offset = 0;
    let mut record = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        if offset + HEADER_BYTES as u64 > length {
            break;
        }
        file.read_exact_at(&mut header, offset)?;
        let bytes = Header::decode(&header).and_then(|header| header.record_bytes());
        let Some(bytes) = bytes.filter(|&bytes| {
            bytes <= RECORD_BYTES_MAX && offset.checked_add(bytes).is_some_and(|end| end <= length)
        }) else {
            break;
        };
        record.resize(bytes as usize, 0);
        file.read_exact_at(&mut record, offset)?;
        let entry = format::record(&record, number).ok().and_then(|r| Entry::of(&r, offset));
        match entry {
            Some(entry) => entries.push(entry),
            None => break,
        }
        offset += bytes;
    }
    Ok(entries)
}

/// A reader's buffer, reused for each small read.
#[derive(Default)]
pub struct Buffer(Vec<u8>);

/// Size of a [`Buffer`] in bytes; larger reads allocate their own.
const BUFFER_BYTES: usize = 256 << 10;

impl Segment {
    /// Reads a complete record: reads the aligned range around it into aligned memory.
    fn read(&self, location: Location, buffer: &mut Buffer) -> io::Result<Bytes> {
        let bytes = usize::try_from(location.bytes()).map_err(io::Error::other)?;
        let skip = (location.offset() % ALIGNMENT as u64) as usize;
        let from = location.offset() - skip as u64;
        let span = (skip + bytes).next_multiple_of(ALIGNMENT);
        let mut own = Vec::new();
        let space = if span + ALIGNMENT <= BUFFER_BYTES {
            buffer.0.resize(BUFFER_BYTES, 0);
            &mut buffer.0
        } else {
            own.resize(span + ALIGNMENT, 0);
            &mut own
        };
        // Aligned without unsafe code: a larger buffer, used from its first aligned byte.
        let start = space.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let aligned = space
            .get_mut(start..start + span)
            .ok_or_else(|| io::Error::other("no aligned space in the buffer"))?;
        let mut filled = 0;
        while filled < skip + bytes {
            let read = match self.file.read_at(&mut aligned[filled..], from + filled as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if self.direct && filled < skip + bytes && filled % ALIGNMENT != 0 {
                // A direct read returns an unaligned number of bytes only at the end of the file.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let record = start + skip..start + skip + bytes;
        if own.is_empty() || span + ALIGNMENT - bytes > bytes / WASTE_PART {
            let space = if own.is_empty() { &buffer.0 } else { &own };
            return Ok(Bytes::copy_from_slice(&space[record]));
        }
        Ok(Bytes::from(own).slice(record))
    }
}
