//! Finds a segment's records by reading it from its beginning: after a crash, or where it has no index.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::format::Entry;
use super::record::{self, HEADER_BYTES, Header, RECORD_VERSION};

/// Maximum record length that a scan accepts.
const RECORD_BYTES_MAX: u64 = 2 << 30;

/// The bytes that a segment may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Offset of the segment in its file.
    pub base: u64,
    /// Maximum bytes of the segment.
    pub length: u64,
    /// The number that its records have.
    pub mark: u64,
    /// Whether bytes of an earlier segment may be there.
    pub is_reused: bool,
}

/// Scans a segment from its start to its last complete record. If a record has a later version,
/// returns that.
///
/// # Errors
///
/// Those of the file system.
pub fn scan(file: &File, bounds: Bounds) -> io::Result<Result<Vec<Entry>, u8>> {
    let Bounds { base, length, mark, is_reused } = bounds;
    let mut entries = Vec::new();
    let mut offset = 0;
    let mut bytes_read = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        if offset + HEADER_BYTES as u64 > length {
            break;
        }
        file.read_exact_at(&mut header, base + offset)?;
        // Before the first record that is whole, the version alone decides; after it, bytes may be the
        // rest of a write that a crash tore, so that the header must be valid. Where segments follow each
        // other in one place, it must also be this segment's.
        let begins = offset == 0 && !is_reused && header.starts_with(record::RECORD_MAGIC);
        let first = begins.then_some(header[4]).filter(|&version| version > RECORD_VERSION);
        let is_own = !is_reused || record::segment_of(&header) == Some(mark);
        let later = || record::later_version(&header).filter(|_| is_own);
        if let Some(version) = first.or_else(later) {
            return Ok(Err(version));
        }
        let bytes = Header::decode(&header).and_then(|header| header.record_bytes());
        let Some(bytes) = bytes.filter(|&bytes| {
            is_own
                && bytes <= RECORD_BYTES_MAX
                && offset.checked_add(bytes).is_some_and(|end| end <= length)
        }) else {
            break;
        };
        bytes_read.resize(bytes as usize, 0);
        file.read_exact_at(&mut bytes_read, base + offset)?;
        let entry =
            record::record(&bytes_read, mark).ok().and_then(|r| Entry::of_record(&r, offset));
        match entry {
            Some(entry) => entries.push(entry),
            None => break,
        }
        offset += bytes;
    }
    Ok(Ok(entries))
}
