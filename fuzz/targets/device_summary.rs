//! Any bytes as the summary of a device: what is accepted is written as it was read.

#![no_main]

// By its path, because the crate of the servers would be most of the build.
#[path = "../../crates/device/src/disk/summary.rs"]
mod summary;

use libfuzzer_sys::fuzz_target;

/// What `engine::node` has: the parser fills it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    pub hash: u64,
    pub offset: u32,
    pub bytes: u32,
}

fuzz_target!(|data: &[u8]| {
    // Few inputs have right checksums: each block gets them.
    let mut mended = data.to_vec();
    let mut at = 0;
    while let Some(head) = mended.get(at..at + 32) {
        let count = u32::from_le_bytes([head[24], head[25], head[26], head[27]]) as usize;
        let end = at + 32 + 16 * count;
        let Some(covered) = mended.get(at..end).filter(|_| mended.len() >= end + 4) else { break };
        let checksum = crc32fast::hash(covered);
        mended[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
        at = end + 4;
    }
    for bytes in [data, &mended] {
        let (blocks, valid, why) = summary::decode(bytes);
        assert_eq!(why.is_none(), valid == bytes.len());
        if let Some(why) = why {
            assert!(!why.to_string().is_empty());
        }
        // The head alone says the same of the first block as the whole.
        if let Some(first) = blocks.first() {
            let length = summary::BLOCK_BYTES + summary::RECORD_BYTES * first.records.len();
            assert_eq!(summary::head(bytes), Some((first.segment, length)));
        }
        let again: Vec<u8> = blocks.iter().flat_map(summary::Block::encode).collect();
        assert_eq!(again, bytes[..valid]);
    }
});
