//! Any bytes as a record of a device: what is accepted is written as it was read, and parts are
//! verified as the whole is.

#![no_main]

// By its path, because the crate of the servers would be most of the build.
#[path = "../../crates/device/src/disk/record.rs"]
mod record;

use engine::tier::BLOCK_BYTES;
use libfuzzer_sys::fuzz_target;
use record::HEADER_BYTES;

/// What `origin` has.
pub const KEY_BYTES_MAX: usize = 1024;

fuzz_target!(|data: &[u8]| {
    check(data);
    // Few inputs have right checksums: they get them. Objects are larger than the inputs of a fuzzer, so
    // the input is repeated as often as the header wants.
    let Some(header) = data.get(..HEADER_BYTES) else { return };
    let mut bytes = header.to_vec();
    bytes[..4].copy_from_slice(b"CREC");
    let key_bytes = 1 + usize::from(bytes[6]);
    bytes[6..8].copy_from_slice(&(key_bytes as u16).to_le_bytes());
    // At most 16 blocks, and 64 KiB of metadata.
    (bytes[10], bytes[11], bytes[14], bytes[15]) = (bytes[10] & 15, 0, 0, 0);
    let length =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]) as usize;
    let (object, metadata) = (length(8), length(12));
    let blocks = if bytes[4] == 2 { object.div_ceil(BLOCK_BYTES as usize) } else { 0 };
    if bytes[4] == 1 {
        bytes[12..16].fill(0);
    }
    let metadata = if bytes[4] == 1 { 0 } else { metadata };
    bytes.extend(data.iter().cycle().take(key_bytes + 4 * blocks + metadata + object));
    let starts = HEADER_BYTES + key_bytes;
    let object_starts = starts + 4 * blocks + metadata;
    for block in 0..blocks {
        let start = object_starts + block * BLOCK_BYTES as usize;
        let end = (start + BLOCK_BYTES as usize).min(bytes.len());
        let crc = crc32fast::hash(&bytes[start..end]).to_le_bytes();
        bytes[starts + 4 * block..starts + 4 * block + 4].copy_from_slice(&crc);
    }
    let covered = if bytes[4] == 1 { bytes.len() } else { object_starts };
    let crc = crc32fast::hash(&bytes[HEADER_BYTES..covered]).to_le_bytes();
    bytes[16..20].copy_from_slice(&crc);
    let crc = crc32fast::hash(&bytes[..28]).to_le_bytes();
    bytes[28..32].copy_from_slice(&crc);
    check(&bytes);
    let known = matches!(bytes[4..6], [1, 0] | [2, 16]);
    let segment = segment_of(&bytes).unwrap();
    assert_eq!(bytes.first_chunk().and_then(record::segment_of), Some(segment));
    assert_eq!(record::record(&bytes, segment).is_ok(), known);
});

fn segment_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(20..28)?.first_chunk()?))
}

fn check(bytes: &[u8]) {
    let Some(segment) = segment_of(bytes) else { return };
    let whole = record::record(bytes, segment);
    let head = record::parse_head(bytes, segment);
    assert!(record::record(bytes, segment ^ 1).is_err());
    match (whole, head) {
        (Ok(whole), Ok(None)) => {
            assert_eq!(whole.bytes, 32 + (whole.key.len() + whole.stored.len()) as u64);
        }
        (Ok(whole), Ok(Some(head))) => {
            assert_eq!(whole.key, head.key);
            assert_eq!(record::head_bytes(bytes), Some(head.bytes as u64));
            assert!(whole.stored.starts_with(head.metadata));
            let object = &whole.stored[head.metadata.len()..];
            assert_eq!(object.len() as u64, head.object_bytes);
            let part = head.object_bytes / 3..head.object_bytes / 2;
            let around = record::blocks_around(&part, head.object_bytes);
            assert!(around.start <= part.start && around.end >= part.end);
            let first = (around.start / BLOCK_BYTES) as usize;
            let around = &object[around.start as usize..around.end as usize];
            assert!(around.is_empty() || record::blocks_hold(head.table, first, around));
            // Each part by itself is whole, and another block's bytes at its place are not, unless equal.
            for (index, block) in object.chunks(BLOCK_BYTES as usize).enumerate() {
                assert!(record::blocks_hold(head.table, index, block));
            }
            assert!(!record::blocks_hold(head.table, 1, object) || object.is_empty());
            if object.len() as u64 > BLOCK_BYTES {
                let again = record::head(segment, whole.key, head.metadata, object);
                assert_eq!(again, bytes[..head.bytes]);
            }
        }
        (Ok(_), Err(why)) => panic!("a whole record with a head that {why}"),
        (Err(why), head) => {
            assert!(!why.is_empty());
            if let Ok(Some(head)) = head {
                let object = bytes.get(head.bytes..).unwrap_or_default();
                let there = object.len() as u64 >= head.object_bytes;
                let object = &object[..(head.object_bytes as usize).min(object.len())];
                assert!(!there || !record::blocks_hold(head.table, 0, object));
            }
        }
    }
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>()
        && let Some(decoded) = record::Header::decode(header)
    {
        assert_eq!(decoded.encode(), *header);
        assert_eq!(record::later_version(header), None);
    }
}
