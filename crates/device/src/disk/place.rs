//! Where a device's segments are: the interface that a folder and a block device have in common.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use engine::node::Restored;
use engine::tier::Location;
use ground::Key;
use rustix::fs::{Advice, fadvise};

use super::format::Entry;
use super::segment::Segment;
use super::summary::Block;
use crate::error::Unusable;

/// A segment found at start.
pub struct FoundSegment {
    /// The segment's number.
    pub number: u64,
    /// The segment's records in ascending order of offset.
    pub records: Vec<Restored>,
}

/// A record of a sealed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object's key.
    pub key: Key,
    /// The record's place.
    pub location: Location,
}

/// Of a device that has a place for each segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Maximum bytes of a segment.
    pub segment_bytes: u64,
    /// Number of segments that the device holds at the same time, one place being free.
    pub segments_max: u64,
}

/// Where a device's segments are.
pub(super) trait Place: Send + Sync {
    /// The device in messages.
    fn name(&self) -> String;

    /// The number that the records of a segment have.
    fn mark(&self, segment: u64) -> u64;

    /// The segments that are there, in ascending order; called once, before anything else.
    fn find(&self) -> Result<Vec<FoundSegment>, Unusable>;

    /// The file in which a segment is, for reads that bypass the page cache or do not, and the segment's
    /// offset in it, a multiple of the alignment of such reads.
    fn reader(&self, segment: u64, direct: bool) -> io::Result<(Arc<File>, u64)>;

    /// Where the records of a segment are written, from its beginning.
    fn writer(&self, segment: u64) -> io::Result<Box<dyn Writer>>;

    /// Keeps what a start needs to know of a segment, all of whose records have been written.
    fn seal(&self, segment: u64, entries: &[Entry]) -> io::Result<()>;

    /// The records of a sealed segment; none if they cannot be read.
    fn entries(&self, segment: u64) -> Vec<Listed>;

    /// Removes a segment, which may still be read by `readers`.
    fn remove(&self, segment: u64, readers: Weak<Segment>);

    /// Of a place that has room for a number of segments.
    fn slots(&self) -> Option<Slots>;
}

/// Writes the records of one segment, one behind the other.
pub(super) trait Writer: Send {
    /// Writes a record: its head, and then its body.
    fn write(&mut self, offset: u64, head: Vec<u8>, body: &[u8]) -> io::Result<()>;

    /// Syncs what was written and drops it from the page cache, so that reads come from the device.
    fn settle(&self);
}

/// What the index needs of the records. Records above 4 GiB of a segment are left out.
pub(super) fn restored(entries: &[Entry]) -> Vec<Restored> {
    entries.iter().filter_map(|e| Restored::new(&e.key, e.offset, e.bytes)).collect()
}

/// The summary's block of a segment.
pub(super) fn block_of(segment: u64, records: &[Restored]) -> Block {
    let end = |last: &Restored| u64::from(last.offset) + u64::from(last.bytes);
    let segment_bytes = records.last().map_or(0, end);
    Block { segment, segment_bytes, records: records.to_vec() }
}

/// Syncs a file and drops a part of it from the page cache; of no length: all from there on.
pub(super) fn leave_page_cache(file: &File, from: u64, length: u64) {
    // A failure here is harmless: every read verifies its record.
    let _ = file.sync_data();
    let _ = fadvise(file, from, std::num::NonZeroU64::new(length), Advice::DontNeed);
}

/// Whether a path names something that is used as one device, without a file system.
pub fn is_raw(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_block_device() || kind.is_file())
}
