//! A chunk of a dataset's log: the records appended or deleted by one acknowledged call.
//!
//! Layout, all integers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `CNCTLOG1` |
//! | 8 | number of the chunk, from 1 |
//! | 8 | id of the first appended record |
//! | 4 | number of entries |
//! | … | the entries (below) |
//! | 4 | CRC-32 (IEEE) of all preceding bytes |
//!
//! An entry is either a byte 1, the length (4 bytes) and the bytes of an appended record, or a byte
//! 2 and the id (8 bytes) of a deleted record.
//!
//! A chunk is a separate file, renamed into place once it is synced, so every existing chunk is
//! complete. A chunk that cannot be decoded is damaged; it is reported, never skipped.

use super::error::{Error, Result, bail, ensure};

/// The largest chunk, including header and checksum.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 8] = b"CNCTLOG1";
const APPEND: u8 = 1;
const DELETE: u8 = 2;

/// One change in a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Appends a record, given with its separator; its id is the next free one.
    Append(Vec<u8>),
    /// Deletes the record with this id.
    Delete(u64),
}

impl Entry {
    /// The record that it appends.
    pub fn appended(&self) -> Option<&[u8]> {
        match self {
            Entry::Append(record) => Some(record),
            Entry::Delete(_) => None,
        }
    }
}

/// A chunk of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The number of the chunk; chunks are numbered from 1 without gaps.
    pub number: u64,
    /// The id of the first appended record.
    pub first_id: u64,
    /// The changes, in order.
    pub entries: Vec<Entry>,
}

impl Chunk {
    /// Encodes the chunk.
    ///
    /// # Errors
    ///
    /// If it is larger than [`CHUNK_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.first_id.to_le_bytes());
        let entries = u32::try_from(self.entries.len())
            .map_err(|_| Error::Invalid("too many entries for one chunk".to_owned()))?;
        bytes.extend_from_slice(&entries.to_le_bytes());
        for entry in &self.entries {
            match entry {
                Entry::Append(record) => {
                    let length = u32::try_from(record.len())
                        .map_err(|_| Error::Invalid("a record of 4 GiB or more".to_owned()))?;
                    bytes.push(APPEND);
                    bytes.extend_from_slice(&length.to_le_bytes());
                    bytes.extend_from_slice(record);
                }
                Entry::Delete(id) => {
                    bytes.push(DELETE);
                    bytes.extend_from_slice(&id.to_le_bytes());
                }
            }
            ensure!(
                bytes.len() + 4 <= CHUNK_BYTES_MAX,
                Invalid,
                "more than {CHUNK_BYTES_MAX} bytes in one call; append fewer records at a time"
            );
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes a chunk.
    ///
    /// # Errors
    ///
    /// If the bytes are not exactly an [encoded](Chunk::encode) chunk.
    pub fn decode(bytes: &[u8]) -> Result<Chunk> {
        ensure!(
            bytes.len() <= CHUNK_BYTES_MAX,
            Damaged,
            "the chunk is larger than {CHUNK_BYTES_MAX} bytes"
        );
        let Some((content, checksum)) = bytes.split_last_chunk::<4>() else {
            bail!(Damaged, "the chunk has only {} bytes", bytes.len());
        };
        ensure!(
            content.starts_with(MAGIC),
            Damaged,
            "wrong magic number at the start of the chunk"
        );
        let (computed, stored) = (crc32fast::hash(content), u32::from_le_bytes(*checksum));
        ensure!(
            computed == stored,
            Damaged,
            "checksum mismatch: {computed:08x} computed, {stored:08x} stored"
        );
        let mut rest = ChunkReader(&content[MAGIC.len()..]);
        let number = u64::from_le_bytes(rest.take()?);
        let first_id = u64::from_le_bytes(rest.take()?);
        let count = u32::from_le_bytes(rest.take()?);
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(match rest.take()? {
                [APPEND] => {
                    let length = u32::from_le_bytes(rest.take()?) as usize;
                    Entry::Append(rest.slice(length)?.to_vec())
                }
                [DELETE] => Entry::Delete(u64::from_le_bytes(rest.take()?)),
                [other] => bail!(Damaged, "the chunk has an entry of the unknown kind {other}"),
            });
        }
        ensure!(
            rest.0.is_empty(),
            Damaged,
            "{} bytes follow the last entry of the chunk",
            rest.0.len()
        );
        Ok(Chunk { number, first_id, entries })
    }
}

/// The bytes still to be decoded.
struct ChunkReader<'a>(&'a [u8]);

impl<'a> ChunkReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or_else(|| Error::inconsistent("the chunk ends within an entry"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| Error::inconsistent("the chunk ends within a record"))?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Entry::Append),
            any::<u64>().prop_map(Entry::Delete),
        ]
    }

    fn chunk() -> impl Strategy<Value = Chunk> {
        (any::<u64>(), any::<u64>(), proptest::collection::vec(entry(), 0..8))
            .prop_map(|(number, first_id, entries)| Chunk { number, first_id, entries })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(chunk in chunk()) {
            prop_assert_eq!(Chunk::decode(&chunk.encode().unwrap()).unwrap(), chunk);
        }

        #[test]
        fn a_changed_or_cut_chunk_is_an_error(
            chunk in chunk(), at in any::<prop::sample::Index>(), bit in 0..8_u8,
        ) {
            let bytes = chunk.encode().unwrap();
            let at = at.index(bytes.len());
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(Chunk::decode(&changed).is_err());
            prop_assert!(Chunk::decode(&bytes[..at]).is_err());
        }

        /// The checksum is correct, so that the decoder of entries is reached.
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = [&MAGIC[..], &body].concat();
            bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
            if let Ok(chunk) = Chunk::decode(&bytes) {
                prop_assert_eq!(chunk.encode().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn a_chunk_is_not_larger_than_the_limit() {
        let entries = vec![Entry::Append(vec![0; CHUNK_BYTES_MAX])];
        assert!(Chunk { number: 1, first_id: 0, entries }.encode().is_err());
    }
}
