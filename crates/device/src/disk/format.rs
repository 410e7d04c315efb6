//! Byte format of a segment's index (docs/device-format.md). All numbers are little-endian.
//!
//! The bytes read here may be damaged: a torn write, another version, a flipped bit. Their content
//! is used only after its checksum has been verified, and a length only after it has been compared
//! with the bytes that exist.

use engine::tier::Location;
use ground::{Etag, Key};
use origin::Metadata;

use super::record::Record;

/// First bytes of every index.
pub const INDEX_MAGIC: &[u8; 4] = b"CIDX";
/// Format version of indexes.
pub const VERSION: u8 = 1;

/// An index entry: one record of the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object's key.
    pub key: Key,
    /// The object's version.
    pub etag: Etag,
    /// Offset in the segment.
    pub offset: u64,
    /// Bytes of the whole record.
    pub bytes: u64,
}

impl Entry {
    /// The entry of a record found at `offset`; `None` if its metadata is invalid.
    pub fn of_record(record: &Record<'_>, offset: u64) -> Option<Entry> {
        let (metadata, body) = Metadata::decode(record.stored)?;
        (metadata.size == body.len() as u64).then(|| Entry {
            key: Key::from(record.key),
            etag: metadata.etag,
            offset,
            bytes: record.bytes,
        })
    }

    /// The record's location.
    pub fn location(&self, segment: u64) -> Location {
        Location::new(segment, self.offset, self.bytes)
    }
}

/// Encodes an index: magic (4), version (1), zeros (3), segment (8), number of entries (4); for
/// each entry offset (8), bytes (8), length of the key (2), length of the etag (1), key, etag; at
/// the end a CRC-32 of all bytes before it (4).
pub fn encode_index(segment: u64, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + entries.len() * 96);
    bytes.extend_from_slice(INDEX_MAGIC);
    bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        let etag = &entry.etag.as_bytes()[..entry.etag.len().min(255)];
        bytes.extend_from_slice(&entry.offset.to_le_bytes());
        bytes.extend_from_slice(&entry.bytes.to_le_bytes());
        bytes.extend_from_slice(&(entry.key.len() as u16).to_le_bytes());
        bytes.push(etag.len() as u8);
        bytes.extend_from_slice(&entry.key);
        bytes.extend_from_slice(etag);
    }
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes an index; `None` unless it is complete, undamaged and belongs to this segment.
pub fn decode_index(bytes: &[u8], segment: u64) -> Option<Vec<Entry>> {
    let (covered, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(covered) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut cursor = Cursor(covered);
    if cursor.array::<4>()? != *INDEX_MAGIC || cursor.array::<4>()? != [VERSION, 0, 0, 0] {
        return None;
    }
    if u64::from_le_bytes(cursor.array()?) != segment {
        return None;
    }
    let count = u32::from_le_bytes(cursor.array()?);
    let mut entries = Vec::new();
    for _ in 0..count {
        let offset = u64::from_le_bytes(cursor.array()?);
        let bytes = u64::from_le_bytes(cursor.array()?);
        let key_bytes = u16::from_le_bytes(cursor.array()?);
        let [etag_bytes] = cursor.array()?;
        let key = Key::from(cursor.take(usize::from(key_bytes))?);
        let etag = std::str::from_utf8(cursor.take(usize::from(etag_bytes))?).ok()?.into();
        entries.push(Entry { key, etag, offset, bytes });
    }
    cursor.0.is_empty().then_some(entries)
}

/// The bytes not read yet.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}
