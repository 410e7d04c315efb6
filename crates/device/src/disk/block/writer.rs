//! Appends to a slot, in whole blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::place::{Writer, leave_page_cache};
use super::superblock::BLOCK;

/// Bodies of at most so many bytes are copied behind the head, and written with it.
const SMALL: usize = 64 << 10;

/// Writes the records of a slot's segment.
pub struct SlotWriter {
    file: Arc<File>,
    /// Where the slot begins.
    base: u64,
    length: u64,
    /// What was written last, and the bytes of its last block, which the next write writes again: the page
    /// cache may have dropped the block.
    end: u64,
    tail: Vec<u8>,
}

impl SlotWriter {
    /// One for a slot of `length` bytes that begins at `base`, both multiples of [`BLOCK`].
    pub fn new(file: Arc<File>, base: u64, length: u64) -> SlotWriter {
        SlotWriter { file, base, length, end: 0, tail: Vec::new() }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(BLOCK) && (bytes.len() as u64).is_multiple_of(BLOCK));
        self.file.write_all_at(bytes, self.base + offset)
    }
}

/// Fills up the last block with zeros; returns what was in it before.
fn fill_up(bytes: &mut Vec<u8>) -> Vec<u8> {
    let tail = bytes.split_off(bytes.len() - bytes.len() % BLOCK as usize);
    bytes.extend_from_slice(&tail);
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    tail
}

impl Writer for SlotWriter {
    fn write(&mut self, offset: u64, head: Vec<u8>, body: &[u8]) -> io::Result<()> {
        let bytes = (head.len() + body.len()) as u64;
        let end = offset.checked_add(bytes).filter(|&end| end <= self.length);
        let end = end.ok_or_else(|| io::Error::other("the record does not fit into its slot"))?;
        let into = offset % BLOCK;
        if offset != self.end || self.tail.len() as u64 != into {
            // A write before this one failed.
            self.tail.resize(into as usize, 0);
            self.file.read_exact_at(&mut self.tail, self.base + offset - into)?;
        }
        let mut first = std::mem::take(&mut self.tail);
        first.extend_from_slice(&head);
        let cut = match body.len() {
            0..=SMALL => body.len(),
            _ => first.len().next_multiple_of(BLOCK as usize) - first.len(),
        };
        let (with_head, rest) = body.split_at_checked(cut).unwrap_or((body, &[]));
        first.extend_from_slice(with_head);
        let (blocks, last) = rest.split_at(rest.len() - rest.len() % BLOCK as usize);
        let at = offset - into;
        let behind = at + first.len() as u64;
        let mut tail = fill_up(&mut first);
        self.write_at(&first, at)?;
        if !rest.is_empty() {
            self.write_at(blocks, behind)?;
            let mut last = last.to_vec();
            tail = fill_up(&mut last);
            self.write_at(&last, behind + blocks.len() as u64)?;
        }
        (self.end, self.tail) = (end, tail);
        Ok(())
    }

    fn settle(&self) {
        leave_page_cache(&self.file, self.base, self.length);
    }
}
