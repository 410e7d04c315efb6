//! The first block of a device that is used without a file system (docs/device-format.md), and where it says
//! that everything else is. All numbers are little-endian.
//!
//! The bytes read here may be another program's, or damaged. They are used only after their checksum has
//! been verified, and the places only after they were found to lie on the device and not in each other.

use std::fmt;

/// Bytes of the superblock, and what all places are multiples of.
pub const BLOCK: u64 = 4096;
/// First bytes of a superblock.
pub const DEVICE_MAGIC: &[u8; 4] = b"CDEV";
/// Format version of devices.
pub const DEVICE_VERSION: u8 = 1;
/// Where the summaries begin. What precedes them is where other programs have their signatures.
pub const SUMMARIES_AT: u64 = 1 << 20;
/// The segments begin at a multiple of this, for devices made of larger blocks.
const SEGMENTS_ALIGN: u64 = 1 << 20;
/// The least and the largest number of slots. One is free while another is filled, and two hold segments.
pub const SLOTS: std::ops::RangeInclusive<u64> = 3..=60_000;
/// Numbers that segments can have: that of the first and this many less one more.
const NUMBERS: u64 = 1 << 40;
/// The first number of a device is below this.
pub const FIRST_MAX: u64 = 1 << 62;
/// The most bytes of an owner's name.
const OWNER_MAX: usize = 255;
/// Where the owner's name begins, and where the checksum is. All that is ever written again lies in one sector.
const OWNER_AT: usize = 48;
const CHECKSUM_AT: usize = 508;

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes of the device, when it was formatted.
    pub device_bytes: u64,
    /// The number of the first segment. It is drawn when the device is formatted, so that what was written
    /// before that is never taken for what was written after.
    pub first: u64,
    /// Maximum bytes of a segment, a multiple of [`BLOCK`].
    pub segment_bytes: u64,
    /// Maximum bytes of a segment's block in the summaries, a multiple of [`BLOCK`].
    pub summary_bytes: u64,
    /// Number of slots, each of which has a segment or none.
    pub slots: u64,
    /// The node that uses the device; empty: of a node outside a cluster, or none yet.
    pub owner: String,
}

/// Why a superblock cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The bytes are not a superblock.
    Missing,
    /// It has a version that this program does not know.
    Version(u8),
    /// Its checksum is wrong, or something else was written behind it.
    Damaged,
    /// Its numbers contradict each other.
    Contradiction,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Missing => write!(f, "it is not formatted for Concertina"),
            Refused::Version(version) => {
                write!(
                    f,
                    "it has format version {version}, and this program knows {DEVICE_VERSION}"
                )
            }
            Refused::Damaged => write!(f, "its superblock is damaged"),
            Refused::Contradiction => write!(f, "its superblock contradicts itself"),
        }
    }
}

impl Superblock {
    /// One for a device of `device_bytes`, with as many slots as fit; `None` if those are too few. Sizes are
    /// rounded up to whole blocks. Too many slots are not made.
    pub fn plan(
        device_bytes: u64,
        segment_bytes: u64,
        summary_bytes: u64,
        first: u64,
    ) -> Option<Superblock> {
        let segment_bytes = segment_bytes.checked_next_multiple_of(BLOCK)?;
        let summary_bytes = summary_bytes.checked_next_multiple_of(BLOCK)?;
        let room = device_bytes.checked_sub(SUMMARIES_AT)?;
        let most = (room / segment_bytes.checked_add(summary_bytes)?).min(*SLOTS.end());
        let owner = String::new();
        // Where the segments begin is rounded up, which costs a slot or more if they are small.
        let of = |slots| Superblock {
            device_bytes,
            first,
            segment_bytes,
            summary_bytes,
            slots,
            owner: owner.clone(),
        };
        (*SLOTS.start()..=most).rev().map(of).find(|superblock| superblock.is_sound())
    }

    /// Where the segments begin; `None` if that is past all numbers.
    fn segments_at(&self) -> Option<u64> {
        let summaries = self.slots.checked_mul(self.summary_bytes)?;
        SUMMARIES_AT.checked_add(summaries)?.checked_next_multiple_of(SEGMENTS_ALIGN)
    }

    fn is_sound(&self) -> bool {
        let sized =
            |bytes: u64, most: u64| (BLOCK..=most).contains(&bytes) && bytes.is_multiple_of(BLOCK);
        let end = |at: u64| at.checked_add(self.slots.checked_mul(self.segment_bytes)?);
        SLOTS.contains(&self.slots)
            && sized(self.segment_bytes, 1 << 32)
            && sized(self.summary_bytes, 1 << 32)
            && self.first < FIRST_MAX
            && self.segments_at().and_then(end).is_some_and(|end| end <= self.device_bytes)
    }

    /// Where the block of a slot's segment is in the summaries.
    pub fn summary_at(&self, slot: u32) -> u64 {
        SUMMARIES_AT + u64::from(slot) * self.summary_bytes
    }

    /// Where the segment of a slot is.
    pub fn segment_at(&self, slot: u32) -> u64 {
        self.segments_at().unwrap_or(u64::MAX / 2) + u64::from(slot) * self.segment_bytes
    }

    /// The number that segment `number` has on the device.
    pub fn mark(&self, number: u64) -> u64 {
        self.first.saturating_add(number)
    }

    /// Which segment has a number on the device; `None`: of what was there before it was formatted.
    pub fn number(&self, mark: u64) -> Option<u64> {
        mark.checked_sub(self.first).filter(|&number| number < NUMBERS)
    }

    /// The superblock's bytes: magic (4), version (1), zeros (3), bytes of the device (8), number of the first
    /// segment (8), bytes of a segment (8), bytes of its block in the summaries (8), number of slots (4), bytes
    /// of the owner's name (1), zeros (3), the name, zeros, at 508 a CRC-32 of all before it (4), zeros. A name
    /// that is too long is cut off.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK as usize);
        bytes.extend_from_slice(DEVICE_MAGIC);
        bytes.extend_from_slice(&[DEVICE_VERSION, 0, 0, 0]);
        for number in [self.device_bytes, self.first, self.segment_bytes, self.summary_bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.slots as u32).to_le_bytes());
        let owner = self.owner.as_bytes();
        let owner = owner.get(..OWNER_MAX).unwrap_or(owner);
        bytes.extend_from_slice(&[owner.len() as u8, 0, 0, 0]);
        bytes.extend_from_slice(owner);
        bytes.resize(CHECKSUM_AT, 0);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.resize(BLOCK as usize, 0);
        bytes
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    ///
    /// Why it is not one that can be used.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Refused> {
        let (head, rest) = bytes.split_first_chunk::<OWNER_AT>().ok_or(Refused::Missing)?;
        let [m0, m1, m2, m3, version, z0, z1, z2, numbers @ ..] = head;
        if [*m0, *m1, *m2, *m3] != *DEVICE_MAGIC {
            return Err(Refused::Missing);
        }
        // A later version may have its checksum elsewhere.
        if *version != DEVICE_VERSION {
            return Err(Refused::Version(*version));
        }
        let (owner, rest) =
            rest.split_at_checked(CHECKSUM_AT - OWNER_AT).ok_or(Refused::Damaged)?;
        let (checksum, rest) = rest.split_first_chunk::<4>().ok_or(Refused::Damaged)?;
        let covered = bytes.get(..CHECKSUM_AT).unwrap_or_default();
        let empty = rest.len() == BLOCK as usize - CHECKSUM_AT - 4 && rest.iter().all(|b| *b == 0);
        if crc32fast::hash(covered) != u32::from_le_bytes(*checksum) || !empty {
            return Err(Refused::Damaged);
        }
        let (numbers, tail) = numbers.as_chunks::<8>();
        debug_assert!(tail.is_empty());
        let [device_bytes, first, segment_bytes, summary_bytes, slots] = *numbers else {
            return Err(Refused::Damaged);
        };
        let [s0, s1, s2, s3, owner_bytes, z3, z4, z5] = slots;
        let (owner, padding) =
            owner.split_at_checked(usize::from(owner_bytes)).ok_or(Refused::Contradiction)?;
        let owner = std::str::from_utf8(owner).map_err(|_| Refused::Contradiction)?.to_owned();
        let superblock = Superblock {
            device_bytes: u64::from_le_bytes(device_bytes),
            first: u64::from_le_bytes(first),
            segment_bytes: u64::from_le_bytes(segment_bytes),
            summary_bytes: u64::from_le_bytes(summary_bytes),
            slots: u64::from(u32::from_le_bytes([s0, s1, s2, s3])),
            owner,
        };
        let zeros = [*z0, *z1, *z2, z3, z4, z5].iter().chain(padding).all(|byte| *byte == 0);
        if zeros && superblock.is_sound() { Ok(superblock) } else { Err(Refused::Contradiction) }
    }
}
