//! A chunk of a dataset's log: what one acknowledged call appended or deleted.
//!
//! Layout, all integers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `CNCTLOG1` |
//! | 8 | number of the chunk, from 1 |
//! | 8 | id of the first record that it appends |
//! | 4 | entries |
//! | … | each entry: a byte 1, four bytes of length and the bytes of a record that is appended; or a byte 2 and eight bytes of the id of a record that is deleted |
//! | 4 | CRC-32 (IEEE) of all that precedes it |
//!
//! A chunk is a file of its own that is renamed into place once it is synced, so that one that is there
//! at all is whole: a chunk that does not read is damage and is reported, never skipped.

use anyhow::{Context, bail, ensure};

/// The most that one chunk holds, header and checksum included.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 8] = b"CNCTLOG1";
const APPEND: u8 = 1;
const DELETE: u8 = 2;

/// What a chunk does to a dataset, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A record, with the separator that ends it; its id is one more than that of the one before it.
    Append(Vec<u8>),
    /// The id of a record that is no longer part of the dataset.
    Delete(u64),
}

/// One chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the chunk, from 1, without gaps.
    pub number: u64,
    /// Id of the first record that is appended.
    pub first_id: u64,
    /// What it does.
    pub entries: Vec<Entry>,
}

impl Chunk {
    /// The records that it appends.
    pub fn appended(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Append(record) => Some(&record[..]),
            Entry::Delete(_) => None,
        })
    }

    /// Its bytes.
    ///
    /// # Errors
    ///
    /// If there are more than [`CHUNK_BYTES_MAX`].
    pub fn encode(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.first_id.to_le_bytes());
        let entries =
            u32::try_from(self.entries.len()).context("too many entries for one chunk")?;
        bytes.extend_from_slice(&entries.to_le_bytes());
        for entry in &self.entries {
            match entry {
                Entry::Append(record) => {
                    let length =
                        u32::try_from(record.len()).context("a record of 4 GiB or more")?;
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
                "more than {CHUNK_BYTES_MAX} bytes in one call; append fewer records at a time"
            );
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Reads one back.
    ///
    /// # Errors
    ///
    /// If the bytes are not exactly what [`encode`](Chunk::encode) wrote.
    pub fn decode(bytes: &[u8]) -> anyhow::Result<Chunk> {
        ensure!(bytes.len() <= CHUNK_BYTES_MAX, "it has more than {CHUNK_BYTES_MAX} bytes");
        let Some((content, checksum)) = bytes.split_last_chunk::<4>() else {
            bail!("it has only {} bytes", bytes.len());
        };
        ensure!(content.starts_with(MAGIC), "it does not begin like a chunk of a log");
        let (found, said) = (crc32fast::hash(content), u32::from_le_bytes(*checksum));
        ensure!(found == said, "its checksum is {found:08x} and should be {said:08x}");
        let mut rest = Rest(&content[MAGIC.len()..]);
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
                [other] => bail!("it has an entry of the unknown kind {other}"),
            });
        }
        ensure!(rest.0.is_empty(), "{} bytes follow its last entry", rest.0.len());
        Ok(Chunk { number, first_id, entries })
    }
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().context("it ends within an entry")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn slice(&mut self, length: usize) -> anyhow::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("it ends within a record")?;
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
        fn a_changed_or_cut_chunk_is_an_error(chunk in chunk(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let bytes = chunk.encode().unwrap();
            let at = at.index(bytes.len());
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(Chunk::decode(&changed).is_err());
            prop_assert!(Chunk::decode(&bytes[..at]).is_err());
        }

        /// With a checksum that fits, so that what lies behind it is reached.
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
    fn a_chunk_is_not_larger_than_is_said() {
        let entries = vec![Entry::Append(vec![0; CHUNK_BYTES_MAX])];
        assert!(Chunk { number: 1, first_id: 0, entries }.encode().is_err());
    }
}
