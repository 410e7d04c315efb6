//! The format of an object's file in the folder origin: bytes, then metadata and key, then a
//! footer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Error, Metadata};

/// Length of the footer.
const FOOTER_BYTES: usize = 24;
/// The last bytes of every file.
const MAGIC: &[u8; 8] = b"CONCobj1";
/// Bytes read together with the footer; mostly these include the metadata, which saves a second
/// read.
const TAIL_BYTES: u64 = 4096;
/// The longest metadata and key that are accepted.
const BLOCK_BYTES_MAX: u64 = 256 << 10;

/// Reads metadata and key from the end of a file.
pub(super) fn read_metadata(file: &File, path: &Path) -> Result<(Metadata, Vec<u8>), Error> {
    let damaged = || Error::Damaged(format!("{} has no valid footer", path.display()));
    let failed = |e: &io::Error| Error::of_io(e, &format!("read {}", path.display()));
    let length = file.metadata().map_err(|e| failed(&e))?.len();
    let mut tail = vec![0; length.min(TAIL_BYTES) as usize];
    let tail_start = length - tail.len() as u64;
    file.read_exact_at(&mut tail, tail_start).map_err(|e| failed(&e))?;
    let footer = tail.last_chunk::<FOOTER_BYTES>().ok_or_else(damaged)?;
    let footer = Footer::decode(footer).ok_or_else(damaged)?;
    let block_bytes = u64::from(footer.block_bytes);
    let whole = footer.data_bytes.checked_add(block_bytes + FOOTER_BYTES as u64);
    if whole != Some(length) || block_bytes > BLOCK_BYTES_MAX {
        return Err(damaged());
    }
    if tail.len() < footer.block_bytes as usize + FOOTER_BYTES {
        tail = vec![0; footer.block_bytes as usize + FOOTER_BYTES];
        file.read_exact_at(&mut tail, footer.data_bytes).map_err(|e| failed(&e))?;
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
    Ok((metadata, key.to_vec()))
}

/// The footer of a file: length of the data, length of metadata and key, CRC-32 of both numbers and
/// of the metadata and key, [`MAGIC`].
pub(super) struct Footer {
    data_bytes: u64,
    block_bytes: u32,
    checksum: u32,
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
        (magic == MAGIC).then(|| Footer {
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
