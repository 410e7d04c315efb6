//! Any bytes as a chunk of a dataset's log: what is accepted is written as it was read.

#![no_main]

use dataset::chunk::Chunk;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Few inputs have a right head and a right checksum: they get both.
    let mut mended = b"CNCTLOG1".to_vec();
    mended.extend_from_slice(data);
    let crc = crc32fast::hash(&mended);
    mended.extend_from_slice(&crc.to_le_bytes());
    for bytes in [data, &mended] {
        match Chunk::decode(bytes) {
            Ok(chunk) => assert_eq!(chunk.encode().expect("what was accepted"), bytes),
            Err(error) => assert!(!format!("{error:#}").is_empty()),
        }
    }
});
