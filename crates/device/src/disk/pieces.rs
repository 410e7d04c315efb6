//! Records that are read in pieces, and the replies that get their bytes meanwhile.
//!
//! A [`Cursor`] reads one record of format 2. What it has read and verified is in an [`Assembly`],
//! which replies read at their own pace; so a slow client holds memory, as the whole object would, and
//! no disk.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use engine::node::{Part, Unread};
use engine::tier::{BLOCK_BYTES, Location};

use super::record;
use super::room::Buffer;
use super::segment::Segment;
use super::segments::Segments;
use crate::assembly::Assembly;
use crate::object::Object;
use origin::Metadata;

/// Bytes that are read for the head of a record, besides the first bytes of its object. A longer head
/// (of an object of a gigabyte, or with much user metadata) takes a read of its own.
const HEAD_BYTES: u64 = 8 << 10;

/// A record of format 2 that is being read.
pub struct Cursor {
    /// It stays readable when it is removed meanwhile.
    segment: Arc<Segment>,
    location: Location,
    metadata: Metadata,
    table: Bytes,
    /// Offset of the object in the record.
    object_at: u64,
    /// Bytes of the object that are to be read.
    left: Range<u64>,
    /// Whether these were all.
    is_whole: bool,
    assembly: Arc<Assembly>,
    /// What readers get until all has been read.
    opened: Object,
}

/// What a piece brought.
pub struct Piece {
    /// For [`engine::node::Event::Read`].
    pub object: Object,
    /// The record, if more of it is to be read.
    pub rest: Option<Box<Cursor>>,
    /// What readers are to be let have.
    pub assembly: Option<Arc<Assembly>>,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Piece {
    /// Bytes that are still to be read.
    pub fn left(&self) -> u64 {
        self.rest.as_ref().map_or(0, |rest| rest.left.end - rest.left.start)
    }

    /// An object that was read at once.
    pub fn complete(object: Object, bytes: u64) -> Piece {
        Piece { object, rest: None, assembly: None, bytes }
    }
}

/// Whole blocks, at least one.
fn whole_blocks(bytes: u64) -> u64 {
    (bytes - bytes % BLOCK_BYTES).max(BLOCK_BYTES)
}

/// Bytes of the object that are read with the head of its record: none if the part begins past the first piece.
fn bytes_beside_head(part: Option<&Part>, piece_bytes: u64) -> u64 {
    match part {
        None => piece_bytes,
        Some(Part::Bytes { first, last }) if *first < piece_bytes => {
            let end = last.map_or(piece_bytes, |last| last.saturating_add(1));
            end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).min(piece_bytes)
        }
        Some(_) => 0,
    }
}

/// The metadata in a head, if they are nothing but that and agree with the object's size.
fn metadata_in(encoded: &[u8], object_bytes: u64) -> Option<Metadata> {
    let (metadata, rest) = Metadata::decode(encoded)?;
    (rest.is_empty() && metadata.size == object_bytes).then_some(metadata)
}

impl Segments {
    /// Reads the head of a record and the first bytes of its object, or of a part of it.
    ///
    /// # Errors
    ///
    /// As [`Segments::read`].
    pub fn read_first(
        &self,
        segment: &Arc<Segment>,
        location: Location,
        key: &[u8],
        bytes: u64,
        part: Option<Part>,
        buffer: &mut Buffer,
    ) -> Result<Piece, Unread> {
        let error_at = |what: &str| self.unread(location, what);
        let piece_bytes = whole_blocks(bytes);
        let first = HEAD_BYTES + bytes_beside_head(part.as_ref(), piece_bytes);
        let read = |from: u64, length: u64, buffer: &mut Buffer| {
            let length = length.min(location.bytes().saturating_sub(from));
            let place = Location::new(location.segment(), location.offset() + from, length);
            self.read_bytes(segment, place, buffer, |_| None)
        };
        let mut start = read(0, first, buffer)?;
        let mut bytes_read = start.len() as u64;
        let mut head = record::parse_head(&start, self.mark(location.segment()));
        if head == Err(record::TRUNCATED_HEAD)
            && let Some(length) = record::head_bytes(&start)
        {
            start = read(0, length, buffer)?;
            bytes_read += start.len() as u64;
            head = record::parse_head(&start, self.mark(location.segment()));
        }
        let Some(head) = head.map_err(error_at)? else {
            // Format 1: it can only be verified as a whole.
            let object = self.read(segment, location, key, buffer)?;
            return Ok(Piece::complete(object, location.bytes()));
        };
        if head.key != key {
            return Err(Unread::OtherKey);
        }
        let metadata = metadata_in(head.metadata, head.object_bytes)
            .ok_or_else(|| error_at("has malformed metadata"))?;
        let is_whole = part.is_none();
        let left = match part.map(|part| part.range_in(metadata.size)) {
            None => 0..metadata.size,
            Some(part) if part.is_empty() => 0..0,
            Some(part) => record::blocks_around(&part, metadata.size),
        };
        let assembly = Assembly::new(left.start);
        let opened = Object::opened(&metadata, assembly.clone());
        let table = start.slice_ref(head.table);
        let object_at = head.bytes as u64;
        let (segment, there) = (segment.clone(), start.slice(head.bytes..));
        let cursor = Cursor {
            segment,
            location,
            metadata,
            table: Bytes::copy_from_slice(&table),
            object_at,
            left,
            is_whole,
            assembly,
            opened,
        };
        let mut piece = self.advance(Box::new(cursor), piece_bytes, &there, buffer)?;
        piece.bytes += bytes_read;
        Ok(piece)
    }

    /// Reads the next bytes of a record.
    ///
    /// # Errors
    ///
    /// As [`Segments::read`]; replies that were begun are cut.
    pub fn read_next(
        &self,
        cursor: Box<Cursor>,
        bytes: u64,
        buffer: &mut Buffer,
    ) -> Result<Piece, Unread> {
        self.advance(cursor, whole_blocks(bytes), &Bytes::new(), buffer)
    }

    /// Reads the next bytes, unless they are among `there`, the object's first bytes.
    fn advance(
        &self,
        mut cursor: Box<Cursor>,
        bytes: u64,
        there: &Bytes,
        buffer: &mut Buffer,
    ) -> Result<Piece, Unread> {
        let Range { start, end } = cursor.left;
        let to = start.saturating_add(bytes).min(end);
        let length = to - start;
        let mut bytes_read = 0;
        let read = if to <= there.len() as u64 {
            there.slice(start as usize..to as usize)
        } else {
            let offset = cursor.location.offset() + cursor.object_at + start;
            let place = Location::new(cursor.location.segment(), offset, length);
            bytes_read = length;
            self.read_bytes(&cursor.segment, place, buffer, |_| None)?
        };
        let first = usize::try_from(start / BLOCK_BYTES).unwrap_or(usize::MAX);
        let whole = read.len() as u64 == length
            && (length == 0 || record::blocks_hold(&cursor.table, first, &read));
        if !whole {
            return Err(self.unread(cursor.location, "has a block with a wrong checksum"));
        }
        cursor.left.start = to;
        let last = to == end;
        cursor.assembly.add(read, last);
        let assembly = Some(cursor.assembly.clone());
        let (object, rest) = match (last, cursor.is_whole) {
            (true, true) => {
                let metadata = cursor.metadata.clone();
                (Object::new(&metadata, cursor.assembly.joined()), None)
            }
            (true, false) => (cursor.opened.clone(), None),
            (false, _) => (cursor.opened.clone(), Some(cursor)),
        };
        Ok(Piece { object, rest, assembly, bytes: bytes_read })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // Before the last byte: nobody reads on.
        if self.left.start < self.left.end {
            self.assembly.fail();
        }
    }
}
