//! Byte format of a record: an object with its key and metadata (docs/device-format.md). All numbers
//! are little-endian.
//!
//! A record of format 1 has one checksum. A record of format 2, which an object of more than
//! [`BLOCK_BYTES`] gets, has one for what precedes the object and one for each block of the object,
//! so that a part of the object is verified without the rest.
//!
//! The bytes read here may be damaged: a torn write, another version, a flipped bit. Their content
//! is used only after its checksum has been verified, and a length only after it has been compared
//! with the bytes that exist.

use std::ops::Range;

use engine::tier::{BLOCK_BYTES, RECORD_OVERHEAD_BYTES};

use origin::KEY_BYTES_MAX;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = RECORD_OVERHEAD_BYTES as usize;
/// First bytes of every record.
pub const RECORD_MAGIC: &[u8; 4] = b"CREC";
/// The latest format version of records.
pub const RECORD_VERSION: u8 = 2;
/// What a header of format 2 has at offset 5: the logarithm of a block's bytes.
const BLOCK_BITS: u8 = BLOCK_BYTES.ilog2() as u8;

/// The lengths in a record's header, which depend on the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// Format 1: bytes of metadata and object together.
    One(u64),
    /// Format 2.
    Blocks {
        /// Bytes of the object.
        object: u32,
        /// Bytes of the metadata.
        metadata: u32,
    },
}

/// A record's header: magic (4), version (1), zero or the logarithm of a block's bytes (1), length of
/// the key (2), [`Lengths`] (8), a CRC-32 (4), segment (8), CRC-32 of the header up to here (4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the key.
    pub key_bytes: u16,
    /// Bytes of the rest.
    pub lengths: Lengths,
    /// Format 1: CRC-32 of key, metadata and object. Format 2: of key, checksums of blocks and
    /// metadata.
    pub checksum: u32,
    /// Number of the segment that the record was written to.
    pub segment: u64,
}

/// The bytes of a record before its object.
pub fn head(segment: u64, key: &[u8], metadata: &[u8], object: &[u8]) -> Vec<u8> {
    debug_assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let mut table = Vec::new();
    let lengths = match (u32::try_from(object.len()), u32::try_from(metadata.len())) {
        (Ok(length), Ok(metadata)) if u64::from(length) > BLOCK_BYTES => {
            let blocks = object.chunks(BLOCK_BYTES as usize);
            blocks.for_each(|b| table.extend_from_slice(&crc32fast::hash(b).to_le_bytes()));
            Lengths::Blocks { object: length, metadata }
        }
        _ => Lengths::One((metadata.len() + object.len()) as u64),
    };
    let mut crc = crc32fast::Hasher::new();
    for part in [key, &table, metadata] {
        crc.update(part);
    }
    if let Lengths::One(_) = lengths {
        crc.update(object);
    }
    let key_bytes = key.len() as u16;
    let header = Header { key_bytes, lengths, checksum: crc.finalize(), segment };
    let mut bytes =
        Vec::with_capacity(HEADER_BYTES + key.len() + table.len() + metadata.len() + 4096);
    for part in [&header.encode()[..], key, &table, metadata] {
        bytes.extend_from_slice(part);
    }
    bytes
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(RECORD_MAGIC);
        bytes[6..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        match self.lengths {
            Lengths::One(stored) => {
                bytes[4] = 1;
                bytes[8..16].copy_from_slice(&stored.to_le_bytes());
            }
            Lengths::Blocks { object, metadata } => {
                (bytes[4], bytes[5]) = (2, BLOCK_BITS);
                bytes[8..12].copy_from_slice(&object.to_le_bytes());
                bytes[12..16].copy_from_slice(&metadata.to_le_bytes());
            }
        }
        bytes[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.segment.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if it is not valid.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let rest = sealed(bytes)?;
        let (kind, rest) = rest.split_first_chunk::<2>()?;
        let (key_bytes, rest) = rest.split_first_chunk::<2>()?;
        let (lengths, rest) = rest.split_first_chunk::<8>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let segment = rest.first_chunk::<8>()?;
        let lengths = match kind {
            [1, 0] => Lengths::One(u64::from_le_bytes(*lengths)),
            &[2, BLOCK_BITS] => {
                let [o0, o1, o2, o3, m0, m1, m2, m3] = *lengths;
                let object = u32::from_le_bytes([o0, o1, o2, o3]);
                Lengths::Blocks { object, metadata: u32::from_le_bytes([m0, m1, m2, m3]) }
            }
            _ => return None,
        };
        let header = Header {
            key_bytes: u16::from_le_bytes(*key_bytes),
            lengths,
            checksum: u32::from_le_bytes(*checksum),
            segment: u64::from_le_bytes(*segment),
        };
        (1..=KEY_BYTES_MAX).contains(&usize::from(header.key_bytes)).then_some(header)
    }

    /// Bytes of the record before its metadata, of its metadata, and of its object; in format 1 the
    /// metadata counts as part of the object.
    fn parts(&self) -> (u64, u64, u64) {
        let start = RECORD_OVERHEAD_BYTES + u64::from(self.key_bytes);
        match self.lengths {
            Lengths::One(stored) => (start, 0, stored),
            Lengths::Blocks { object, metadata } => {
                let table = 4 * u64::from(object).div_ceil(BLOCK_BYTES);
                (start + table, u64::from(metadata), u64::from(object))
            }
        }
    }

    /// Bytes of the whole record; `None` if the sum overflows.
    pub fn record_bytes(&self) -> Option<u64> {
        let (start, metadata, object) = self.parts();
        object.checked_add(start + metadata)
    }
}

/// What lies between the magic of a header and its checksum, if both are valid.
fn sealed(bytes: &[u8; HEADER_BYTES]) -> Option<&[u8]> {
    let (covered, checksum) = bytes.split_last_chunk::<4>()?;
    let whole = crc32fast::hash(covered) == u32::from_le_bytes(*checksum);
    covered.strip_prefix(RECORD_MAGIC).filter(|_| whole)
}

/// The version of a header that a later program wrote.
pub fn later_version(bytes: &[u8; HEADER_BYTES]) -> Option<u8> {
    sealed(bytes)?.first().copied().filter(|&version| version > RECORD_VERSION)
}

/// The number of the segment in a header of any version.
pub fn segment_of(bytes: &[u8; HEADER_BYTES]) -> Option<u64> {
    let number = sealed(bytes)?.get(16..)?.first_chunk()?;
    Some(u64::from_le_bytes(*number))
}

/// What precedes the object in a record of format 2, after its checksum has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The metadata.
    pub metadata: &'a [u8],
    /// CRC-32 of each block of the object, 4 bytes each.
    pub table: &'a [u8],
    /// Bytes of all of this, the header included: where the object begins.
    pub bytes: usize,
    /// Bytes of the object.
    pub object_bytes: u64,
}

/// Decodes the head at the start of `bytes`; ignores what follows. `None` if the record is of format
/// 1. The error text is a predicate without its subject, such as "is truncated".
pub fn parse_head(bytes: &[u8], segment: u64) -> Result<Option<Head<'_>>, &'static str> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("is truncated")?;
    let header = Header::decode(header).ok_or("has no valid header")?;
    if header.segment != segment {
        return Err("belongs to another segment");
    }
    let Lengths::Blocks { object, metadata } = header.lengths else { return Ok(None) };
    let (start, ..) = header.parts();
    let length = usize::try_from(start + u64::from(metadata)).map_err(|_| "is truncated")?;
    let table = start as usize - HEADER_BYTES - usize::from(header.key_bytes);
    let (covered, _) = rest.split_at_checked(length - HEADER_BYTES).ok_or(TRUNCATED_HEAD)?;
    if crc32fast::hash(covered) != header.checksum {
        return Err("has a wrong checksum");
    }
    let parts = covered.split_at_checked(usize::from(header.key_bytes));
    let (key, rest) = parts.ok_or(TRUNCATED_HEAD)?;
    let (table, metadata) = rest.split_at_checked(table).ok_or(TRUNCATED_HEAD)?;
    Ok(Some(Head { key, metadata, table, bytes: length, object_bytes: u64::from(object) }))
}

/// Bytes of the head that a valid header of format 2 announces.
pub fn head_bytes(bytes: &[u8]) -> Option<u64> {
    let header = bytes.first_chunk::<HEADER_BYTES>().and_then(Header::decode)?;
    let (start, metadata, _) = header.parts();
    matches!(header.lengths, Lengths::Blocks { .. }).then_some(start + metadata)
}

/// The error of [`parse_head`] when the header is valid and the bytes end before the object begins.
pub const TRUNCATED_HEAD: &str = "is truncated before its object";

/// Whether `bytes`, which begin with block `first`, have the checksums of a table. They end with a
/// whole block or with the object.
pub fn blocks_hold(table: &[u8], first: usize, bytes: &[u8]) -> bool {
    let table = table.as_chunks::<4>().0;
    let blocks = bytes.chunks(BLOCK_BYTES as usize);
    let Some(expected) = first.checked_add(blocks.len()).and_then(|end| table.get(first..end))
    else {
        return false;
    };
    blocks.zip(expected).all(|(block, crc)| crc32fast::hash(block) == u32::from_le_bytes(*crc))
}

/// The smallest range of whole blocks around a part of an object; the last block may be shorter.
pub fn blocks_around(part: &Range<u64>, object_bytes: u64) -> Range<u64> {
    let start = part.start - part.start % BLOCK_BYTES;
    start..part.end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).min(object_bytes)
}

/// A complete record whose checksums are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Metadata and object.
    pub stored: &'a [u8],
    /// Bytes of the whole record.
    pub bytes: u64,
}

/// Decodes the record at the start of `bytes`; ignores what follows it. The error text is a
/// predicate without its subject, such as "is truncated".
pub fn record(bytes: &[u8], segment: u64) -> Result<Record<'_>, &'static str> {
    if let Some(head) = parse_head(bytes, segment)? {
        let object = bytes.get(head.bytes..).unwrap_or_default();
        let length = usize::try_from(head.object_bytes).map_err(|_| "is truncated")?;
        let (object, _) = object.split_at_checked(length).ok_or("is truncated")?;
        if !blocks_hold(head.table, 0, object) {
            return Err("has a block with a wrong checksum");
        }
        let end = head.bytes + length;
        let stored = bytes.get(head.bytes - head.metadata.len()..end).ok_or("is truncated")?;
        return Ok(Record { key: head.key, stored, bytes: end as u64 });
    }
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("is truncated")?;
    let header = Header::decode(header).ok_or("has no valid header")?;
    let (_, _, stored_bytes) = header.parts();
    let (key, rest) = rest.split_at_checked(usize::from(header.key_bytes)).ok_or("is truncated")?;
    let stored_bytes = usize::try_from(stored_bytes).map_err(|_| "is truncated")?;
    let (stored, _) = rest.split_at_checked(stored_bytes).ok_or("is truncated")?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(stored);
    if crc.finalize() != header.checksum {
        return Err("has a wrong checksum");
    }
    let bytes = header.record_bytes().ok_or("is truncated")?;
    Ok(Record { key, stored, bytes })
}
