//! The form of an object's file in the folder origin: bytes, then their checksums, then metadata and key,
//! then a footer (docs/device-format.md).
//!
//! Version 2 has a CRC-32 of each [`BLOCK_BYTES`] of the object, so that a part of it can be verified
//! before it is sent: the etag, a hash of all bytes, is only known to hold when the last of them is read.
//! Files of version 1, without checksums, are read as before.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::error::Error;
use super::metadata::Metadata;

/// Length of the footer.
pub const FOOTER_BYTES: usize = 24;
/// The end of every file that is written.
pub const MAGIC: &[u8; 8] = b"CONCobj2";
/// The end of files without checksums.
const MAGIC_1: &[u8; 8] = b"CONCobj1";
/// Bytes of the object to a checksum.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Bytes read with the footer, in the hope that the metadata is among them.
const TAIL_BYTES: u64 = 4096;
/// The longest metadata and key that are accepted.
const BLOCK_BYTES_MAX: u64 = 256 << 10;

/// Opens an object's file. What is not a file is opened too, and at once, even a pipe that nobody writes
/// to; [`read_end`] refuses it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new().read(true).custom_flags(flags as i32).open(path)
}

/// The end of a file, read and found whole.
pub(super) struct End {
    /// The object's metadata.
    pub metadata: Metadata,
    /// The object's key.
    pub key: Vec<u8>,
    /// Whether the file has checksums of the object's blocks.
    pub has_checksums: bool,
}

/// Bytes of the checksums of an object.
fn checksum_bytes(data_bytes: u64) -> u64 {
    4 * data_bytes.div_ceil(BLOCK_BYTES as u64)
}

/// Reads metadata and key from a file's end.
pub(super) fn read_end(file: &File, path: &Path) -> Result<End, Error> {
    let damaged = || Error::Damaged(format!("{} has no whole footer", path.display()));
    let failed = |e: &io::Error| Error::of_io(e, &format!("read {}", path.display()));
    let stat = file.metadata().map_err(|e| failed(&e))?;
    if !stat.is_file() {
        return Err(Error::Damaged(format!("{} is not a regular file", path.display())));
    }
    let length = stat.len();
    let mut tail = vec![0; length.min(TAIL_BYTES) as usize];
    let tail_start = length - tail.len() as u64;
    file.read_exact_at(&mut tail, tail_start).map_err(|e| failed(&e))?;
    let footer = tail.last_chunk::<FOOTER_BYTES>().ok_or_else(damaged)?;
    let footer = Footer::decode(footer).ok_or_else(damaged)?;
    let block_bytes = u64::from(footer.block_bytes);
    let checksums = if footer.has_checksums { checksum_bytes(footer.data_bytes) } else { 0 };
    let block_at = footer.data_bytes.checked_add(checksums).ok_or_else(damaged)?;
    let whole = block_at.checked_add(block_bytes + FOOTER_BYTES as u64);
    if whole != Some(length) || block_bytes > BLOCK_BYTES_MAX {
        return Err(damaged());
    }
    if tail.len() < footer.block_bytes as usize + FOOTER_BYTES {
        tail = vec![0; footer.block_bytes as usize + FOOTER_BYTES];
        file.read_exact_at(&mut tail, block_at).map_err(|e| failed(&e))?;
    }
    let block_start = tail.len() - FOOTER_BYTES - footer.block_bytes as usize;
    let block = tail.get(block_start..tail.len() - FOOTER_BYTES).ok_or_else(damaged)?;
    if footer.checksum != Footer::checksum_of(footer.data_bytes, block) {
        return Err(damaged());
    }
    let (metadata, key) = Metadata::decode(block).ok_or_else(damaged)?;
    if metadata.size != footer.data_bytes {
        return Err(damaged());
    }
    Ok(End { metadata, key: key.to_vec(), has_checksums: footer.has_checksums })
}

/// Makes the checksums of an object whose bytes come in pieces.
#[derive(Default)]
pub(super) struct Checksums {
    done: Vec<u8>,
    block: crc32fast::Hasher,
    /// Bytes in `block`.
    filled: usize,
}

impl Checksums {
    /// Adds bytes of the object.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.block.update(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == BLOCK_BYTES {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        let crc = std::mem::take(&mut self.block).finalize();
        self.done.extend_from_slice(&crc.to_le_bytes());
        self.filled = 0;
    }

    /// The checksums as they stand in the file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.end_block();
        }
        self.done
    }

    /// Those of bytes that are all there.
    pub(super) fn of_bytes(bytes: &[u8]) -> Vec<u8> {
        let mut checksums = Checksums::default();
        checksums.update(bytes);
        checksums.finish()
    }
}

/// Reads bytes `at..at + length` of an object of `size` bytes, and verifies every block that they touch.
/// Reads up to two blocks more than are asked for.
pub(super) fn read_verified(
    file: &File,
    size: u64,
    at: u64,
    length: usize,
) -> Result<Vec<u8>, Error> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let failed = |e: io::Error| Error::of_io(&e, "read");
    let block = BLOCK_BYTES as u64;
    let start = at - at % block;
    let end = (at + length as u64).next_multiple_of(block).min(size);
    let mut blocks = vec![0; (end - start) as usize];
    file.read_exact_at(&mut blocks, start).map_err(failed)?;
    let mut stored = vec![0; checksum_bytes(end - start) as usize];
    file.read_exact_at(&mut stored, size + start / block * 4).map_err(failed)?;
    for (index, (block, stored)) in blocks.chunks(BLOCK_BYTES).zip(stored.chunks(4)).enumerate() {
        if crc32fast::hash(block).to_le_bytes() != stored {
            let at = start + (index * BLOCK_BYTES) as u64;
            return Err(Error::Damaged(format!(
                "bytes {at} to {} do not have their checksum; write the object again",
                at + block.len() as u64 - 1
            )));
        }
    }
    if start < at {
        blocks.drain(..(at - start) as usize);
    }
    blocks.truncate(length);
    Ok(blocks)
}

/// The footer of a file: length of the data, length of metadata and key, CRC-32 of both numbers and
/// of the metadata and key, [`MAGIC`].
pub(super) struct Footer {
    data_bytes: u64,
    block_bytes: u32,
    checksum: u32,
    has_checksums: bool,
}

impl Footer {
    fn checksum_of(data_bytes: u64, block: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&data_bytes.to_le_bytes());
        crc.update(&(block.len() as u32).to_le_bytes());
        crc.update(block);
        crc.finalize()
    }

    pub(super) fn encode(data_bytes: u64, block: &[u8]) -> [u8; FOOTER_BYTES] {
        let mut footer = [0; FOOTER_BYTES];
        footer[..8].copy_from_slice(&data_bytes.to_le_bytes());
        footer[8..12].copy_from_slice(&(block.len() as u32).to_le_bytes());
        footer[12..16].copy_from_slice(&Footer::checksum_of(data_bytes, block).to_le_bytes());
        footer[16..].copy_from_slice(MAGIC);
        footer
    }

    fn decode(bytes: &[u8; FOOTER_BYTES]) -> Option<Footer> {
        let (data_bytes, rest) = bytes.split_first_chunk::<8>()?;
        let (block_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (checksum, magic) = rest.split_first_chunk::<4>()?;
        let has_checksums = magic == MAGIC;
        (has_checksums || magic == MAGIC_1).then(|| Footer {
            has_checksums,
            data_bytes: u64::from_le_bytes(*data_bytes),
            block_bytes: u32::from_le_bytes(*block_bytes),
            checksum: u32::from_le_bytes(*checksum),
        })
    }
}

/// Encodes metadata and key as stored in a file.
pub(super) fn block_of(metadata: &Metadata, key: &[u8]) -> Vec<u8> {
    let mut block = metadata.encode();
    block.extend_from_slice(key);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_part_is_verified_by_the_blocks_that_it_touches(
            size in 1usize..300_000,
            cuts in proptest::collection::vec(1usize..100_000, 0..9),
            (a, b) in (0.0f64..1.0, 0.0f64..1.0),
            damaged in proptest::option::of(0.0f64..1.0),
        ) {
            let bytes: Vec<u8> = (0..size).map(|i| (i * i / 7) as u8).collect();
            let mut checksums = Checksums::default();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                checksums.update(now);
                rest = later;
            }
            checksums.update(rest);
            let checksums = checksums.finish();
            // The naive twin: each block on its own.
            let naive: Vec<u8> =
                bytes.chunks(BLOCK_BYTES).flat_map(|b| crc32fast::hash(b).to_le_bytes()).collect();
            prop_assert!(checksums == naive && naive == Checksums::of_bytes(&bytes));
            let place = |share: f64| (share * size as f64) as usize;
            let (start, end) = (place(a.min(b)), place(a.max(b)));
            let mut stored = bytes.clone();
            let damaged = damaged.map(place);
            if let Some(at) = damaged {
                stored[at] ^= 1;
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[stored, checksums].concat()).unwrap();
            let read = read_verified(&file, size as u64, start as u64, end - start);
            let touched = |at: usize| {
                let block = at / BLOCK_BYTES;
                start < end && (start / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES).contains(&block)
            };
            match read {
                Ok(read) => prop_assert!(read == bytes[start..end]),
                Err(error) => prop_assert!(
                    matches!(error, Error::Damaged(_)) && damaged.is_some(), "{}", error
                ),
            }
            if damaged.is_some_and(touched) {
                prop_assert!(read_verified(&file, size as u64, start as u64, end - start).is_err());
            }
        }
    }
}
