//! A block device without a file system, or a file that was prepared as one (docs/device-format.md).
//!
//! The device is divided into slots of one size, each with room for a segment, and for each slot there is room for
//! the segment's block of the summary, in an area of its own. That area says what the slots have: a block
//! with records, those of a whole segment; one without records, that a segment was begun, which is then
//! scanned; zeros or anything else, nothing. So a start reads that area and the segment that was being filled.
//! Before a slot is used again, the area no longer says what was in it, on the medium too.
//!
//! Appends go through the page cache in whole blocks, so that the kernel never reads a block in order to change a part
//! of it, and are synced from time to time. Reads bypass the page cache; the kernel writes back what it has of
//! a part of a device before it reads that part directly, so that a record can be read as soon as it was appended.

mod foreign;
mod make;
mod open;
mod slots;
pub mod superblock;
#[cfg(test)]
mod tests;
mod writer;

pub use make::{FormatOptions, Formatted, Shape, format, look};
pub(super) use slots::BlockDevice;
