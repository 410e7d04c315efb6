//! `concertina device format`: prepares a block device or a file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::foreign::{self, LOOKED_AT};
use super::open::{exclusively, read, size};
use super::superblock::{BLOCK, FIRST_MAX, SLOTS, Superblock};
use crate::disk::summary;
use crate::error::Error;
use configuration::Size;

/// How a device is to be prepared.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Bytes of a segment; 0: chosen by the size of the device, as for a folder.
    pub segment_bytes: u64,
    /// Mean bytes of a record from which on a segment's summary fits, so that a start need not scan it.
    pub record_bytes: u64,
    /// Whether what is on the device may be destroyed.
    pub destroy: bool,
}

/// A device that was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatted {
    /// Maximum number of segments.
    pub segments_max: u64,
    /// Maximum bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// What was destroyed.
    pub destroyed: Option<String>,
}

impl Formatted {
    /// Bytes that the device can hold: the most that `device.N.bytes` can be.
    pub fn room(&self) -> u64 {
        self.segments_max.saturating_mul(self.segment_bytes)
    }
}

/// What a device is formatted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of slots, one of which is free.
    pub slots: u64,
    /// Maximum bytes of a segment.
    pub segment_bytes: u64,
}

impl Shape {
    /// The shape in words: "1024 slots of 64MiB".
    pub fn in_words(&self) -> String {
        format!("{} slots of {}", self.slots, Size(self.segment_bytes))
    }
}

/// Looks at a device, which another process may use.
///
/// # Errors
///
/// Why it cannot be used.
pub fn look(path: &Path) -> Result<Shape, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let superblock = read(&file)?;
    Ok(Shape { slots: superblock.slots, segment_bytes: superblock.segment_bytes })
}

/// Prepares a device.
///
/// # Errors
///
/// If the device is in use, has something on it that may not be destroyed, or is too small.
pub fn format(path: &Path, wanted: FormatOptions) -> Result<Formatted, Error> {
    let named = || path.to_owned();
    if path.is_dir() {
        return Err(Error::Folder(named()));
    }
    let (file, _lock) = exclusively(path)?;
    let device_bytes = size(&file).map_err(|source| Error::Size { path: named(), source })?;
    let there = match read(&file) {
        Ok(superblock) if superblock.owner.is_empty() => Some("a device of Concertina".to_owned()),
        Ok(superblock) => Some(format!("a device of Concertina's node {}", superblock.owner)),
        Err(_) => foreign::look(&file, device_bytes)
            .map_err(|source| Error::Read { path: named(), source })?,
    };
    if let Some(there) = there.clone().filter(|_| !wanted.destroy) {
        return Err(Error::Occupied { path: named(), there });
    }
    let segment_bytes = match wanted.segment_bytes {
        // In whole MiB, which is shorter to write.
        0 => configuration::segment_of(device_bytes).next_multiple_of(1 << 20),
        bytes => bytes,
    };
    if !(BLOCK..=u64::from(u32::MAX)).contains(&segment_bytes) {
        return Err(Error::SegmentBytes(segment_bytes));
    }
    let records = segment_bytes / wanted.record_bytes.max(32);
    let summary_bytes = summary::BLOCK_BYTES as u64 + records * summary::RECORD_BYTES as u64;
    // Drawn: what an earlier life of the device left in its slots has other numbers.
    let first = rand::random::<u64>() % FIRST_MAX;
    let superblock = Superblock::plan(device_bytes, segment_bytes, summary_bytes, first);
    let superblock = superblock.ok_or_else(|| Error::TooSmall {
        path: named(),
        bytes: device_bytes,
        segments: *SLOTS.start(),
        segment_bytes,
    })?;
    let written = || -> std::io::Result<()> {
        // Signatures at the beginning and the end, before there is a superblock.
        let nothing = vec![0; LOOKED_AT as usize];
        file.write_all_at(&nothing, 0)?;
        file.write_all_at(&nothing, device_bytes.saturating_sub(LOOKED_AT).max(LOOKED_AT))?;
        file.sync_data()?;
        file.write_all_at(&superblock.encode(), 0)?;
        file.sync_data()
    };
    written().map_err(|source| Error::Write { path: named(), source })?;
    Ok(Formatted {
        segments_max: superblock.slots - 1,
        segment_bytes: superblock.segment_bytes,
        device_bytes,
        destroyed: there,
    })
}
