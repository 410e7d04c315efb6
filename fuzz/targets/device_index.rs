//! Any bytes as the index of a device's segment: what is accepted is written as it was read.

#![no_main]

use device::disk::format::{decode_index, encode_index};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Few inputs have a right head and a right checksum: they get both.
    let mut mended = b"CIDX\x01\0\0\0".to_vec();
    mended.extend_from_slice(data);
    let crc = crc32fast::hash(&mended);
    mended.extend_from_slice(&crc.to_le_bytes());
    for bytes in [data, &mended] {
        let Some(head) = bytes.get(8..16).and_then(|head| head.first_chunk()) else { continue };
        let segment = u64::from_le_bytes(*head);
        if let Some(entries) = decode_index(bytes, segment) {
            assert_eq!(encode_index(segment, &entries), bytes);
            assert!(decode_index(bytes, segment ^ 1).is_none());
            for entry in &entries {
                let _ = entry.location(segment);
            }
        }
    }
});
