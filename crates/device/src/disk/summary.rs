//! The summary of a device: what the index needs of each sealed segment, in one file, so that a start
//! reads one file instead of an index for each segment (docs/device-format.md).
//!
//! A block is appended when a segment is sealed. Blocks of segments that are gone stay until they are
//! more than the others; then the file is written anew at a start. Nothing depends on the summary: a
//! segment without a valid block is found by its own index, or by a scan.

use std::fmt;

use engine::node::Restored;

/// First bytes of every block.
pub const SUMMARY_MAGIC: &[u8; 4] = b"CSUM";
/// Format version of summaries.
pub const SUMMARY_VERSION: u8 = 1;
/// Bytes of a block without its records.
pub const BLOCK_BYTES: usize = 36;
/// Bytes of a record in a block.
pub const RECORD_BYTES: usize = 16;
/// Blocks that one piece of work decodes.
const BLOCKS_OF_PIECE: usize = 64;

/// What the summary says of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The segment.
    pub segment: u64,
    /// Bytes of its records.
    pub segment_bytes: u64,
    /// Its records in ascending order of offset.
    pub records: Vec<Restored>,
}

/// Why a summary was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It ends within a block, as after a crash.
    Truncated,
    /// The bytes at a block's place are not one.
    NoBlock,
    /// A block's checksum is wrong.
    Checksum,
    /// A block has a version that this program does not know.
    Version(u8),
    /// A block's records are not in order, or do not fit into its segment.
    Disorder,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Truncated => write!(f, "is truncated"),
            Refused::NoBlock => write!(f, "has bytes that are not a block"),
            Refused::Checksum => write!(f, "has a block with a wrong checksum"),
            Refused::Version(version) => {
                write!(f, "has format version {version}, and this program knows {SUMMARY_VERSION}")
            }
            Refused::Disorder => write!(f, "has a block whose records contradict each other"),
        }
    }
}

impl Block {
    /// The block's bytes: magic (4), version (1), zeros (3), segment (8), bytes of the segment (8),
    /// number of records (4), zeros (4); for each record hash (8), offset (4), bytes (4); at the end
    /// a CRC-32 of all bytes before it (4).
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES + self.records.len() * RECORD_BYTES);
        bytes.extend_from_slice(SUMMARY_MAGIC);
        bytes.extend_from_slice(&[SUMMARY_VERSION, 0, 0, 0]);
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for record in &self.records {
            bytes.extend_from_slice(&record.hash.to_le_bytes());
            bytes.extend_from_slice(&record.offset.to_le_bytes());
            bytes.extend_from_slice(&record.bytes.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// What the head of a block says of it, which its checksum may belie: the segment, and the bytes of the block;
/// `None` if the bytes are no block's.
pub fn head(begin: &[u8]) -> Option<(u64, usize)> {
    let (_, rest) = begin.strip_prefix(SUMMARY_MAGIC)?.split_first_chunk::<4>()?;
    let (segment, rest) = rest.split_first_chunk::<8>()?;
    let (_, rest) = rest.split_first_chunk::<8>()?;
    let count = usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?;
    let bytes = count.checked_mul(RECORD_BYTES)?.checked_add(BLOCK_BYTES)?;
    Some((u64::from_le_bytes(*segment), bytes))
}

/// Decodes the blocks of a summary. Also returns the length of what was valid, and why the rest was
/// refused, if there is a rest.
pub fn decode(bytes: &[u8]) -> (Vec<Block>, usize, Option<Refused>) {
    decode_in_pieces(bytes, |work| work.into_iter().for_each(|work| work()))
}

/// The same, by pieces of work that `carry_out` must carry out, in any order or at the same time.
pub fn decode_in_pieces(
    bytes: &[u8],
    carry_out: impl FnOnce(Vec<Box<dyn FnOnce() + Send + '_>>),
) -> (Vec<Block>, usize, Option<Refused>) {
    let (mut framed, mut rest, mut refused) = (Vec::new(), bytes, None);
    while !rest.is_empty() {
        match Framed::split(rest) {
            Ok((frame, left)) => {
                framed.push(frame);
                rest = left;
            }
            Err(why) => {
                refused = Some(why);
                break;
            }
        }
    }
    let pieces = framed.chunks(BLOCKS_OF_PIECE);
    let mut decoded: Vec<Vec<Result<Block, Refused>>> =
        pieces.clone().map(|_| Vec::new()).collect();
    let work = pieces.zip(&mut decoded).map(|(frames, decoded)| {
        let work = || decoded.extend(frames.iter().map(Framed::decode));
        Box::new(work) as Box<dyn FnOnce() + Send + '_>
    });
    carry_out(work.collect());
    let (mut blocks, mut valid) = (Vec::with_capacity(framed.len()), 0);
    for (block, frame) in decoded.into_iter().flatten().zip(&framed) {
        match block {
            Ok(block) => blocks.push(block),
            // What was taken for blocks behind this one may have begun anywhere.
            Err(why) => return (blocks, valid, Some(why)),
        }
        valid += frame.covered.len() + 4;
    }
    (blocks, valid, refused)
}

/// A block's bytes, of which only the lengths were looked at.
struct Framed<'a> {
    segment: u64,
    segment_bytes: u64,
    /// All but the checksum.
    covered: &'a [u8],
    checksum: u32,
}

impl Framed<'_> {
    /// The first block of some bytes, and the bytes behind it.
    fn split(bytes: &[u8]) -> Result<(Framed<'_>, &[u8]), Refused> {
        let (head, _) = bytes.split_first_chunk::<32>().ok_or(Refused::Truncated)?;
        let [m0, m1, m2, m3, version, z0, z1, z2, rest @ ..] = head;
        if [*m0, *m1, *m2, *m3] != *SUMMARY_MAGIC {
            return Err(Refused::NoBlock);
        }
        if *version != SUMMARY_VERSION {
            return Err(Refused::Version(*version));
        }
        let number = |at: usize| rest.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok());
        let number = |at: usize| number(at).map(u64::from_le_bytes).ok_or(Refused::Truncated);
        let (segment, segment_bytes, counts) = (number(0)?, number(8)?, number(16)?);
        // The upper half are the four zeros.
        let count = usize::try_from(counts).map_err(|_| Refused::NoBlock)?;
        if counts > u64::from(u32::MAX) || [*z0, *z1, *z2] != [0; 3] {
            return Err(Refused::NoBlock);
        }
        let length = count.checked_mul(RECORD_BYTES).and_then(|n| n.checked_add(32));
        let (covered, left) =
            length.and_then(|n| bytes.split_at_checked(n)).ok_or(Refused::Truncated)?;
        let (checksum, left) = left.split_first_chunk::<4>().ok_or(Refused::Truncated)?;
        let checksum = u32::from_le_bytes(*checksum);
        Ok((Framed { segment, segment_bytes, covered, checksum }, left))
    }

    fn decode(&self) -> Result<Block, Refused> {
        let &Framed { segment, segment_bytes, covered, checksum } = self;
        if crc32fast::hash(covered) != checksum {
            return Err(Refused::Checksum);
        }
        let records = covered.get(32..).unwrap_or_default();
        let records = records.as_chunks::<RECORD_BYTES>().0.iter().map(record);
        let block = Block { segment, segment_bytes, records: records.collect() };
        let mut end = 0;
        for record in &block.records {
            if u64::from(record.offset) < end {
                return Err(Refused::Disorder);
            }
            end = u64::from(record.offset) + u64::from(record.bytes);
        }
        if end > segment_bytes {
            return Err(Refused::Disorder);
        }
        Ok(block)
    }
}

fn record(bytes: &[u8; RECORD_BYTES]) -> Restored {
    let [h0, h1, h2, h3, h4, h5, h6, h7, o0, o1, o2, o3, b0, b1, b2, b3] = *bytes;
    Restored {
        hash: u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]),
        offset: u32::from_le_bytes([o0, o1, o2, o3]),
        bytes: u32::from_le_bytes([b0, b1, b2, b3]),
    }
}
