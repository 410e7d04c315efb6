//! A segment as it is read: its file, and where it begins there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use engine::tier::Location;

use super::room::{ALIGNMENT, Buffer, Room, Span};

/// A segment, opened for reading.
pub struct Segment {
    pub(super) number: u64,
    pub(super) file: Arc<File>,
    /// Offset of the segment in the file.
    pub(super) base: u64,
    pub(super) direct: bool,
}

impl Segment {
    /// Reads the aligned range around a location into aligned memory, up to the end of the location or
    /// of the file. See [`Segments::read_bytes`](super::segments::Segments::read_bytes).
    pub(super) fn read(
        &self,
        location: Location,
        buffer: &mut Buffer,
        length: impl Fn(&[u8]) -> Option<u64>,
    ) -> io::Result<Bytes> {
        let span = self.span(location)?;
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
        self.direct.then(|| &*self.file)
    }

    /// The aligned part of the file around a location in the segment.
    pub(super) fn span(&self, location: Location) -> io::Result<Span> {
        Ok(Span::around(location)?.behind(self.base))
    }
}
