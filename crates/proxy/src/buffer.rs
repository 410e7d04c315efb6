//! Bytes on their way in and out.

use std::io::{self, Read, Write};

/// Memory that an empty buffer keeps for its next bytes.
const KEPT: usize = 16 << 10;

/// Bytes that wait to be written.
#[derive(Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
    written: usize,
}

impl Out {
    /// Where bytes are appended.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all bytes.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
    }

    /// Writes until the buffer is empty or the socket is full; returns the bytes written.
    pub(crate) fn write_to(&mut self, stream: &mut impl Write, keep: usize) -> io::Result<usize> {
        let before = self.written;
        while self.written < self.bytes.len() {
            match stream.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let count = self.written - before;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            if self.bytes.capacity() > keep {
                self.bytes = Vec::new();
            }
        } else if self.written > (256 << 10) && self.written * 2 > self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        Ok(count)
    }
}

/// Memory that an empty buffer of what arrived keeps.
const INPUT_KEPT: usize = 4 << 20;

/// Bytes that arrived and were not consumed yet.
pub(crate) struct In {
    /// Filled from `start` to `end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Some bytes; the socket had no more at that time.
    Some,
    /// As many bytes as there was room for.
    Full,
    /// Nothing for now.
    Blocked,
    /// The peer will send nothing more.
    Closed,
}

impl In {
    pub(crate) fn new() -> In {
        In { bytes: Vec::new(), start: 0, end: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start >= self.end {
            self.clear();
        }
    }

    /// Drops what arrived, and the memory that one large reply took.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
        if self.bytes.len() > INPUT_KEPT {
            self.bytes = Vec::new();
        }
    }

    /// Reads once, into room for at least `room` bytes.
    pub(crate) fn fill(&mut self, stream: &mut impl Read, room: usize) -> io::Result<Filled> {
        if self.bytes.len() - self.end < room {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.bytes.len() - self.end < room {
                self.bytes.resize((self.end + room).next_power_of_two(), 0);
            }
        }
        loop {
            match stream.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Ok(Filled::Closed),
                Ok(n) => {
                    self.end += n;
                    let full = self.end == self.bytes.len();
                    return Ok(if full { Filled::Full } else { Filled::Some });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Filled::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
