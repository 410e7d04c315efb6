//! Where a read past the page cache puts its bytes: aligned parts of a segment, in aligned memory.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use engine::tier::Location;

use crate::arena::{self, Space};

/// Alignment of offsets, lengths and buffers for O_DIRECT; the largest that devices require.
pub const ALIGNMENT: usize = 4096;
/// A record is kept in its read buffer, not copied, if the buffer's surplus is at most the record's
/// size divided by this: the length that is read is rounded up by an eighth at most, and to whole
/// blocks.
const WASTE_PART: usize = 4;
/// A buffer that small reads use in turn.
#[derive(Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Whether it has no memory yet, or a read has it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Size of a [`Buffer`] in bytes; larger reads outside of the arena allocate their own.
const BUFFER_BYTES: usize = 256 << 10;

/// The aligned part of a segment around a location.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    from: u64,
    bytes: usize,
    /// Bytes before the location.
    skip: usize,
    /// Bytes up to the location's end.
    needed: usize,
}

impl Span {
    /// That of a location.
    pub fn around(location: Location) -> io::Result<Span> {
        let skip = (location.offset() % ALIGNMENT as u64) as usize;
        let bytes = usize::try_from(location.bytes()).map_err(io::Error::other)?;
        let needed = skip.checked_add(bytes).ok_or(io::ErrorKind::InvalidData)?;
        let bytes = needed.checked_next_multiple_of(ALIGNMENT).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Span { from: location.offset() - skip as u64, bytes, skip, needed })
    }

    /// The same part of a segment that begins at `base`, a multiple of [`ALIGNMENT`], of a file.
    pub fn behind(self, base: u64) -> Span {
        debug_assert!(base.is_multiple_of(ALIGNMENT as u64));
        Span { from: self.from.saturating_add(base), ..self }
    }

    /// Offset in the file.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes from its start to the location's end.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Where the location's bytes are in `space`, of which so many were read: as many of them as `length` says of
    /// them, all if it says nothing.
    pub fn record(
        &self,
        space: &[u8],
        filled: usize,
        length: impl Fn(&[u8]) -> Option<u64>,
    ) -> Range<usize> {
        let there = space.get(self.skip..filled.min(self.needed)).unwrap_or_default();
        let length = length(there).unwrap_or(u64::MAX).min(there.len() as u64) as usize;
        self.skip..self.skip + length
    }
}

/// Aligned memory for one read: a range of the arena, the reader's [`Buffer`], or memory of its own.
pub struct Room {
    space: Option<Space>,
    own: Vec<u8>,
    /// Offset of the first aligned byte of `own`.
    start: usize,
    bytes: usize,
    is_shared: bool,
}

impl Room {
    /// Room for so many bytes. Takes the memory of `buffer` if it uses that.
    pub fn new(bytes: usize, buffer: &mut Buffer) -> io::Result<Room> {
        if let Some(space) = arena::space(bytes) {
            return Ok(Room {
                space: Some(space),
                own: Vec::new(),
                start: 0,
                bytes,
                is_shared: false,
            });
        }
        let is_shared = bytes + ALIGNMENT <= BUFFER_BYTES;
        let mut own = if is_shared { std::mem::take(&mut buffer.0) } else { Vec::new() };
        own.resize(if is_shared { BUFFER_BYTES } else { bytes + ALIGNMENT }, 0);
        // Aligned without unsafe code: a larger buffer, used from its first aligned byte.
        let start = own.as_ptr().align_offset(ALIGNMENT);
        if start.checked_add(bytes).is_none_or(|end| end > own.len()) {
            return Err(io::Error::other("no aligned space in the buffer"));
        }
        Ok(Room { space: None, own, start, bytes, is_shared })
    }

    /// The memory.
    pub fn space(&mut self) -> &mut [u8] {
        match &mut self.space {
            Some(space) => space,
            None => self.own.get_mut(self.start..self.start + self.bytes).unwrap_or_default(),
        }
    }

    /// Some of its bytes. Gives `buffer` its memory back. They are copied if they are few of those that they would
    /// keep.
    pub fn finish(mut self, record: Range<usize>, buffer: &mut Buffer) -> Bytes {
        if self.is_shared || self.bytes - record.len() > record.len() / WASTE_PART {
            let bytes = self.space().get(record).unwrap_or_default();
            let bytes = Bytes::copy_from_slice(bytes);
            if self.is_shared {
                buffer.0 = self.own;
            }
            return bytes;
        }
        match self.space {
            Some(space) => space.freeze().slice(record),
            None => Bytes::from(self.own).slice(self.start + record.start..self.start + record.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A read that brings some of a file, whatever its place, returns these bytes of it.
        #[test]
        fn a_location_is_found_in_what_was_read_around_it(
            offset in 0u64..20_000,
            bytes in 0u64..300_000,
            brought in 0usize..400_000,
            record in proptest::option::of(0u64..300_000),
        ) {
            arena::open(64 << 20);
            let byte = |at: u64| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
            let span = Span::around(Location::new(0, offset, bytes)).unwrap();
            prop_assert_eq!((span.from() % ALIGNMENT as u64, span.bytes() % ALIGNMENT), (0, 0));
            let mut buffer = Buffer::default();
            let mut room = Room::new(span.bytes(), &mut buffer).unwrap();
            let space = room.space();
            prop_assert_eq!((space.len(), space.as_ptr() as usize % ALIGNMENT), (span.bytes(), 0));
            let filled = brought.min(space.len());
            (0..filled).for_each(|at| space[at] = byte(span.from() + at as u64));
            let range = span.record(space, filled, |_| record);
            let found = room.finish(range, &mut buffer);
            let there = (span.from() + filled as u64).saturating_sub(offset).min(bytes);
            let length = record.unwrap_or(bytes).min(there);
            prop_assert_eq!(found.len() as u64, length);
            prop_assert!(found.iter().zip(offset..).all(|(found, at)| *found == byte(at)));
        }
    }
}
