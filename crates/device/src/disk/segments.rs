//! The segments of one device: finding, reading, appending to, sealing and removing them. Where they are,
//! files of a folder or parts of a block device, is `place`'s concern.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use engine::node::{Failure, Unread};
use engine::tier::Location;
use ground::Key;
use tracing::warn;

use super::block::BlockDevice;
use super::folder::Folder;
use super::format::Entry;
use super::place::{FoundSegment, Listed, Place, Slots, Writer, is_raw};
use super::record::{self, HEADER_BYTES, Header};
use super::room::Buffer;
use super::segment::Segment;
use crate::error::{Error, Unusable};
use crate::object::Object;

/// Bytes appended between two syncs, each of which also drops them from the page cache.
const SYNC_BYTES: u64 = 4 << 20;

/// The segment that records are appended to; used by the device's writer only.
struct Head {
    number: u64,
    writer: Box<dyn Writer>,
    entries: Vec<Entry>,
    unsynced_bytes: u64,
}

/// One device's segments.
pub struct Segments {
    place: Box<dyn Place>,
    readers: Mutex<HashMap<u64, Arc<Segment>>>,
    head: Mutex<Option<Head>>,
    direct: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The guarded values are replaced as a whole, so a panic elsewhere leaves them usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Segments {
    /// Opens a block device or a file that was prepared as one, or else opens or creates a folder, and finds
    /// its segments, in ascending order. `me` is the node's name in its cluster.
    ///
    /// # Errors
    ///
    /// [`Unusable`], or an error that should end the process: another process uses the device.
    pub fn open(path: &Path, me: Option<&str>) -> Result<(Segments, Vec<FoundSegment>), Error> {
        let place: Box<dyn Place> = if is_raw(path) {
            Box::new(BlockDevice::open(path, me)?)
        } else {
            Box::new(Folder::open(path, me)?)
        };
        let mut found = place.find()?;
        let segments = Segments {
            place,
            readers: Mutex::default(),
            head: Mutex::default(),
            direct: AtomicBool::new(true),
        };
        found.retain(|found| match segments.open_reader(found.number) {
            Ok(()) => true,
            Err(error) => {
                let (name, number) = (segments.place.name(), found.number);
                warn!("{name}: removing segment {number}, which cannot be read: {error}");
                segments.remove(number);
                false
            }
        });
        Ok((segments, found))
    }

    /// Of a block device: its places for segments.
    pub fn slots(&self) -> Option<Slots> {
        self.place.slots()
    }

    /// Whether the device holds so many bytes in segments of at most `segment_bytes` (0: of any size). A folder does;
    /// when its file system is full, appends fail.
    ///
    /// # Errors
    ///
    /// [`Unusable`] if it does not.
    pub fn holds(&self, bytes: u64, segment_bytes: u64) -> Result<(), Unusable> {
        let Some(slots) = self.slots() else { return Ok(()) };
        let raw = |why| Err(Unusable::Raw(self.place.name(), why));
        if segment_bytes > slots.segment_bytes {
            return raw(format!(
                "it is formatted for segments of {} bytes, and segment_bytes is {segment_bytes}; leave segment_bytes \
                 out, or format it again",
                slots.segment_bytes
            ));
        }
        let room = slots.segments_max.saturating_mul(slots.segment_bytes);
        if bytes > room {
            return raw(format!(
                "it has room for {room} bytes ({} segments of {}), and bytes is {bytes}; set bytes to {room} or less",
                slots.segments_max, slots.segment_bytes
            ));
        }
        Ok(())
    }

    /// Opens a segment for reading with O_DIRECT, or through the page cache if that is refused.
    fn open_reader(&self, number: u64) -> io::Result<()> {
        let direct = self.direct.load(Ordering::Relaxed);
        let ((file, base), direct) = match self.place.reader(number, direct) {
            Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.refuse_direct(&error);
                (self.place.reader(number, false)?, false)
            }
            opened => (opened?, direct),
        };
        lock(&self.readers).insert(number, Arc::new(Segment { number, file, base, direct }));
        Ok(())
    }

    fn refuse_direct(&self, error: &io::Error) {
        if self.direct.swap(false, Ordering::Relaxed) {
            warn!(
                "{}: direct reads are refused ({error}); reads go through the page cache and may be faster than the \
                 device",
                self.place.name()
            );
        }
    }

    /// The open segment with this number. It stays readable if it is removed meanwhile.
    pub fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        lock(&self.readers).get(&number).cloned()
    }

    /// The number that the records of a segment have.
    pub(super) fn mark(&self, number: u64) -> u64 {
        self.place.mark(number)
    }

    /// Appends a record. The device's writer thread calls this in the order of locations.
    ///
    /// # Errors
    ///
    /// Those of the file system, or if the record's length differs from that of its location.
    pub fn append(&self, location: Location, key: &Key, object: &Object) -> io::Result<()> {
        let mut head = lock(&self.head);
        let number = location.segment();
        if head.as_ref().is_none_or(|head| head.number != number) {
            let writer = self.place.writer(number)?;
            *head = Some(Head { number, writer, entries: Vec::new(), unsynced_bytes: 0 });
        }
        let Some(head) = head.as_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let (metadata, body) = (object.metadata(), object.bytes_held());
        let start = record::head(self.mark(number), key, &metadata.encode(), body);
        let bytes = (start.len() + body.len()) as u64;
        if bytes != location.bytes() {
            return Err(io::Error::other(format!(
                "the record has {bytes} bytes, not the planned {}",
                location.bytes()
            )));
        }
        head.writer.write(location.offset(), start, body)?;
        if head.entries.is_empty() {
            // Only after a successful write: on a full device each attempt would leave a handle.
            self.open_reader(number)?;
        }
        let etag = metadata.etag;
        head.entries.push(Entry { key: key.clone(), etag, offset: location.offset(), bytes });
        head.unsynced_bytes += bytes;
        if head.unsynced_bytes >= SYNC_BYTES {
            head.unsynced_bytes = 0;
            head.writer.settle();
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
            self.remove(number);
            return Ok(());
        }
        head.writer.settle();
        self.place.seal(number, &head.entries)
    }

    /// Seals the segment that records are appended to, at the end of the process.
    pub fn close(&self) {
        let number = lock(&self.head).as_ref().map(|head| head.number);
        if let Some(Err(error)) = number.map(|number| self.seal(number)) {
            warn!("{}: cannot write an index: {error}", self.place.name());
        }
    }

    /// The name of the device, for messages.
    pub fn name(&self) -> String {
        self.place.name()
    }

    /// The sealed segments, in ascending order.
    pub fn sealed(&self) -> Vec<u64> {
        let head = lock(&self.head).as_ref().map(|head| head.number);
        let readers = lock(&self.readers);
        let mut sealed: Vec<u64> = readers.keys().copied().filter(|n| Some(*n) != head).collect();
        sealed.sort_unstable();
        sealed
    }

    /// The records of a sealed segment; none if what says so cannot be read.
    pub fn entries(&self, number: u64) -> Vec<Listed> {
        self.place.entries(number)
    }

    /// Removes a segment. Reads in progress can still finish.
    pub fn remove(&self, number: u64) {
        let reader = lock(&self.readers).remove(&number);
        lock(&self.head).take_if(|head| head.number == number);
        let readers = reader.as_ref().map(Arc::downgrade).unwrap_or_default();
        drop(reader);
        self.place.remove(number, readers);
    }

    /// Why a record cannot be read.
    pub(super) fn unread(&self, location: Location, what: &str) -> Unread {
        let (number, offset) = (location.segment(), location.offset());
        let folder = self.place.name();
        let reason = format!("{folder}: segment {number}, offset {offset}: {what}");
        Unread::Failed(Failure::unavailable(reason))
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
        let parsed = record::record(bytes, self.mark(location.segment())).map_err(error_at)?;
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
