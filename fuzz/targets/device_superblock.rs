//! Any bytes as the superblock of a device without a file system: what is accepted is written as it was read, and its
//! places lie on the device, side by side.

#![no_main]

// By its path, because the crate of the servers would be most of the build.
#[path = "../../crates/device/src/disk/block/superblock.rs"]
mod superblock;

use libfuzzer_sys::fuzz_target;
use superblock::{BLOCK, SUMMARIES_AT, Superblock};

fuzz_target!(|data: &[u8]| {
    // Few inputs have a right head, checksum and length: they get them.
    let mut mended = b"CDEV\x01\0\0\0".to_vec();
    mended.extend_from_slice(data);
    mended.resize(508, 0);
    let checksum = crc32fast::hash(&mended);
    mended.extend_from_slice(&checksum.to_le_bytes());
    mended.resize(BLOCK as usize, 0);
    for bytes in [data, &mended] {
        let superblock = match Superblock::decode(bytes) {
            Ok(superblock) => superblock,
            Err(why) => {
                assert!(!why.to_string().is_empty());
                continue;
            }
        };
        assert_eq!(superblock.encode(), bytes);
        let last = superblock.slots as u32 - 1;
        assert!(superblock.summary_at(0) >= SUMMARIES_AT);
        assert!(superblock.summary_at(last) + superblock.summary_bytes <= superblock.segment_at(0));
        assert!(superblock.segment_at(last) + superblock.segment_bytes <= superblock.device_bytes);
        assert_eq!(superblock.number(superblock.mark(5)), Some(5));
        let planned = Superblock::plan(
            superblock.device_bytes,
            superblock.segment_bytes,
            superblock.summary_bytes,
            superblock.first,
        );
        assert!(planned.is_some_and(|planned| planned.slots >= superblock.slots));
    }
});
