//! Bytes of an upload as they came, without copying the larger pieces together.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::signer::{Sha256, sha256};

/// Pieces below this size are copied together: each costs an entry, and may be a small part of a buffer that it keeps.
const LARGE: usize = 16 << 10;

/// The body of a request. A clone shares the pieces.
#[derive(Clone, Default)]
pub struct Payload {
    pieces: Arc<[Bytes]>,
    bytes: usize,
}

impl Payload {
    /// The pieces.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The SHA-256 of the bytes.
    pub fn sha256(&self) -> Sha256 {
        sha256(self.pieces.iter().map(|piece| &piece[..]))
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Payload {
        let pieces: Arc<[Bytes]> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes = pieces.iter().map(Bytes::len).sum();
        Payload { pieces, bytes }
    }
}

/// A sequence of bytes in pieces.
#[derive(Default)]
pub struct Pieces {
    list: Vec<Bytes>,
    /// The small pieces after the list.
    tail: BytesMut,
    bytes: usize,
}

impl Pieces {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() < LARGE {
            self.tail.extend_from_slice(&piece);
            if self.tail.len() >= LARGE {
                self.list.push(self.tail.split().freeze());
            }
        } else {
            self.flush();
            self.list.push(piece);
        }
    }

    /// The pieces so far, without small ones at the end.
    pub fn list(&self) -> &[Bytes] {
        &self.list
    }

    /// Moves the small pieces at the end to the list, as one.
    pub fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.list.push(self.tail.split().freeze());
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Removes and returns the first `most` bytes, or all.
    pub fn take(&mut self, most: usize) -> Payload {
        self.flush();
        let (mut taken, mut bytes) = (0, 0);
        while let Some(piece) = self.list.get(taken)
            && bytes + piece.len() <= most
        {
            (taken, bytes) = (taken + 1, bytes + piece.len());
        }
        let mut first: Vec<Bytes> = self.list.drain(..taken).collect();
        if let Some(next) = self.list.first_mut()
            && bytes < most
        {
            first.push(next.split_to(most - bytes));
            bytes = most;
        }
        self.bytes -= bytes;
        Payload::from_iter(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn pieces_are_taken_as_they_were_pushed(
            lengths in proptest::collection::vec(0usize..40_000, 0..12),
            most in proptest::collection::vec(1usize..60_000, 1..4),
        ) {
            let (mut pieces, mut all) = (Pieces::default(), Vec::new());
            for (at, length) in lengths.into_iter().enumerate() {
                let piece: Vec<u8> = (0..length).map(|byte| (byte * 7 + at) as u8).collect();
                all.extend_from_slice(&piece);
                pieces.push(piece.into());
            }
            let mut at = 0;
            for most in most.iter().cycle() {
                proptest::prop_assert_eq!(pieces.len(), all.len() - at);
                let part = pieces.take(*most);
                let bytes: Vec<u8> = part.pieces().iter().flatten().copied().collect();
                proptest::prop_assert_eq!(part.len(), bytes.len());
                proptest::prop_assert_eq!(bytes.len(), (*most).min(all.len() - at));
                proptest::prop_assert_eq!(&bytes[..], &all[at..at + bytes.len()]);
                if bytes.is_empty() {
                    break;
                }
                at += bytes.len();
            }
        }
    }
}
