//! Byte format of a segment's records and index (docs/device-format.md). All numbers are
//! little-endian.
//!
//! The bytes read here may be damaged: a torn write, another version, a flipped bit. Their content
//! is used only after its checksum has been verified, and a length only after it has been compared
//! with the bytes that exist.

use engine::tier::{Location, RECORD_OVERHEAD_BYTES};
use engine::{Etag, Key};

use origin::{KEY_BYTES_MAX, Metadata};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = RECORD_OVERHEAD_BYTES as usize;
/// First bytes of every record.
pub const RECORD_MAGIC: &[u8; 4] = b"CREC";
/// First bytes of every index.
pub const INDEX_MAGIC: &[u8; 4] = b"CIDX";
/// Format version of records and indexes.
pub const VERSION: u8 = 1;

/// A record's header: magic (4), version (1), zero (1), length of the key (2), of the stored object
/// (8), CRC-32 of key and stored object (4), segment (8), CRC-32 of the header up to here (4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the key.
    pub key_bytes: u16,
    /// Bytes of metadata and object.
    pub stored_bytes: u64,
    /// CRC-32 of key, metadata and object.
    pub checksum: u32,
    /// Number of the segment that the record was written to.
    pub segment: u64,
}

impl Header {
    /// The header of a record with these parts.
    pub fn of(segment: u64, key: &[u8], metadata: &[u8], body: &[u8]) -> Header {
        debug_assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX);
        let mut crc = crc32fast::Hasher::new();
        crc.update(key);
        crc.update(metadata);
        crc.update(body);
        Header {
            key_bytes: key.len() as u16,
            stored_bytes: (metadata.len() + body.len()) as u64,
            checksum: crc.finalize(),
            segment,
        }
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(RECORD_MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.segment.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if it is not valid.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let mut cursor = Cursor(bytes);
        let (covered, _) = bytes.split_at_checked(28)?;
        if cursor.array::<4>()? != *RECORD_MAGIC || cursor.array::<2>()? != [VERSION, 0] {
            return None;
        }
        let header = Header {
            key_bytes: u16::from_le_bytes(cursor.array()?),
            stored_bytes: u64::from_le_bytes(cursor.array()?),
            checksum: u32::from_le_bytes(cursor.array()?),
            segment: u64::from_le_bytes(cursor.array()?),
        };
        let checksum = u32::from_le_bytes(cursor.array()?);
        let whole = checksum == crc32fast::hash(covered)
            && (1..=KEY_BYTES_MAX).contains(&usize::from(header.key_bytes));
        whole.then_some(header)
    }

    /// Bytes of the whole record; `None` if the sum overflows.
    pub fn record_bytes(&self) -> Option<u64> {
        self.stored_bytes.checked_add(u64::from(self.key_bytes))?.checked_add(RECORD_OVERHEAD_BYTES)
    }
}

/// A complete record whose checksums are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Metadata and object.
    pub stored: &'a [u8],
}

/// Decodes the record at the start of `bytes`; ignores what follows it. The error text is a
/// predicate without its subject, such as "is truncated".
pub fn record(bytes: &[u8], segment: u64) -> Result<Record<'_>, &'static str> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("is truncated")?;
    let header = Header::decode(header).ok_or("has no valid header")?;
    if header.segment != segment {
        return Err("belongs to another segment");
    }
    let (key, rest) = rest.split_at_checked(usize::from(header.key_bytes)).ok_or("is truncated")?;
    let stored_bytes = usize::try_from(header.stored_bytes).map_err(|_| "is truncated")?;
    let (stored, _) = rest.split_at_checked(stored_bytes).ok_or("is truncated")?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(stored);
    if crc.finalize() != header.checksum {
        return Err("has a wrong checksum");
    }
    Ok(Record { key, stored })
}

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
    pub fn of(record: &Record<'_>, offset: u64) -> Option<Entry> {
        let (metadata, body) = Metadata::decode(record.stored)?;
        let bytes = (HEADER_BYTES + record.key.len() + record.stored.len()) as u64;
        (metadata.size == body.len() as u64).then(|| Entry {
            key: Key::from(record.key),
            etag: metadata.etag,
            offset,
            bytes,
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
