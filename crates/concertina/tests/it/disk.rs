//! Segments on disk: the format as documented, and what is found of them after a crash.

use bytes::Bytes;
use engine::tier::Location;
use engine::{Key, Payload};
use origin::{Attributes, Metadata};
use proptest::prelude::*;
use serve::Object;
use serve::disk::format::{self, Entry, Header};
use serve::disk::{Buffer, Segments};

use crate::serve_client::bytes;

fn object(seed: u64, size: usize) -> Object {
    let metadata = Metadata {
        size: size as u64,
        etag: format!("{seed:032x}").into(),
        modified_unix_us: 1_700_000_000_000_000 + seed,
        attributes: Attributes {
            content_type: Some("text/plain".to_owned()),
            user: vec![("owner".to_owned(), "me".to_owned())],
        },
    };
    Object::new(metadata, Bytes::from(bytes(seed, size)))
}

fn key(number: u64) -> Key {
    Key::from(format!("key-{number}").as_bytes())
}

fn record_bytes(key: &Key, object: &Object) -> u64 {
    engine::tier::RECORD_OVERHEAD_BYTES + key.len() as u64 + object.stored_bytes()
}

/// Appends `count` objects to one segment; returns where they are.
fn fill(segments: &Segments, segment: u64, count: u64) -> Vec<(Location, Key, Object)> {
    let mut offset = 0;
    let mut written = Vec::new();
    for number in 0..count {
        let (key, object) = (key(number), object(number, (number as usize * 997) % 90_000));
        let location = Location::new(segment, offset, record_bytes(&key, &object));
        segments.append(location, &key, &object).unwrap();
        offset += location.bytes();
        written.push((location, key, object));
    }
    written
}

fn check(segments: &Segments, written: &[(Location, Key, Object)]) {
    let mut buffer = Buffer::default();
    for (location, key, object) in written {
        let segment = segments.segment(location.segment()).unwrap();
        assert!(segments.read(&segment, *location, key, &mut buffer).unwrap() == *object);
    }
}

#[test]
fn what_is_appended_is_read_before_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (segments, found) = Segments::open(folder.path()).unwrap();
    assert!(found.is_empty());
    let sealed = fill(&segments, 3, 30);
    segments.seal(3).unwrap();
    let open = fill(&segments, 4, 10);
    check(&segments, &sealed);
    check(&segments, &open);
    let mut buffer = Buffer::default();
    let segment = segments.segment(3).unwrap();
    let other = segments.read(&segment, sealed[0].0, &key(1), &mut buffer);
    assert!(other.unwrap_err().contains("another key"));
    let past = Location::new(3, 1 << 30, 100);
    assert!(segments.read(&segment, past, &key(1), &mut buffer).is_err());
    // As after a kill: segment 4 has no index.
    drop(segments);
    assert!(!folder.path().join("00000004.idx").exists());
    let (segments, found) = Segments::open(folder.path()).unwrap();
    let numbers: Vec<u64> = found.iter().map(|segment| segment.number).collect();
    assert_eq!(numbers, [3, 4]);
    assert_eq!((found[0].entries.len(), found[1].entries.len()), (30, 10));
    assert_eq!(found[1].entries[9].location(4), open[9].0);
    assert_eq!(found[1].entries[9].etag, open[9].2.etag());
    check(&segments, &sealed);
    check(&segments, &open);
    // Who holds a segment reads on when it is removed.
    let segment = segments.segment(3).unwrap();
    segments.remove(3);
    assert!(segments.segment(3).is_none());
    assert!(segments.read(&segment, sealed[5].0, &key(5), &mut buffer).is_ok());
}

#[test]
fn a_torn_tail_costs_what_was_torn() {
    let folder = tempfile::tempdir().unwrap();
    let (segments, _) = Segments::open(folder.path()).unwrap();
    let written = fill(&segments, 0, 8);
    drop(segments);
    let path = folder.path().join("00000000.seg");
    let whole = std::fs::read(&path).unwrap();
    for cut in [1, 40, 5_000] {
        let length = whole.len() - cut;
        std::fs::write(&path, &whole[..length]).unwrap();
        let _ = std::fs::remove_file(folder.path().join("00000000.idx"));
        let (segments, found) = Segments::open(folder.path()).unwrap();
        let kept: Vec<_> = written
            .iter()
            .filter(|(location, ..)| location.offset() + location.bytes() <= length as u64)
            .cloned()
            .collect();
        assert_eq!(found[0].entries.len(), kept.len());
        check(&segments, &kept);
    }
    // An index that is damaged is not believed.
    let index = folder.path().join("00000000.idx");
    let mut damaged = std::fs::read(&index).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&index, damaged).unwrap();
    let (_, found) = Segments::open(folder.path()).unwrap();
    assert_eq!(found[0].entries.len(), 7);
}

/// The example of docs/device-format.md: if this fails, the format has changed, and old devices with it.
#[test]
fn the_golden_record_and_index_are_as_documented() {
    let (key, object) = (Key::from(&b"a/b"[..]), object(5, 6));
    let mut record = Header::of(7, &key, object.block(), object.body()).encode().to_vec();
    record.extend_from_slice(&key);
    record.extend_from_slice(object.block());
    record.extend_from_slice(object.body());
    let parsed = format::record(&record, 7).unwrap();
    assert_eq!(parsed.key, &key[..]);
    let entry = Entry::of(&parsed, 64).unwrap();
    let index = format::encode_index(7, std::slice::from_ref(&entry));
    assert_eq!(format::decode_index(&index, 7).unwrap(), [entry]);
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let document = include_str!("../../../../docs/device-format.md");
    let document: String = document.split_whitespace().collect();
    for (name, bytes) in [("record", &record), ("index", &index)] {
        assert!(document.contains(&hex(bytes)), "the {name} is now {}", hex(bytes));
    }
}

proptest! {
    #[test]
    fn parsers_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), segment: u64) {
        let _ = format::record(&bytes, segment);
        let _ = format::decode_index(&bytes, segment);
        let _ = Metadata::decode(&bytes);
        let _ = Object::decode(&Bytes::from(bytes));
    }

    #[test]
    fn a_changed_record_or_index_is_never_taken(
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        size in 0usize..300,
    ) {
        let (key, object) = (key(1), object(2, size));
        let mut record = Header::of(9, &key, object.block(), object.body()).encode().to_vec();
        record.extend_from_slice(&key);
        record.extend_from_slice(object.block());
        record.extend_from_slice(object.body());
        let entry = Entry::of(&format::record(&record, 9).unwrap(), 0).unwrap();
        let mut index = format::encode_index(9, &[entry]);
        let place = at.index(record.len());
        record[place] ^= flip;
        prop_assert!(format::record(&record, 9).is_err());
        let place = at.index(index.len());
        index[place] ^= flip;
        prop_assert!(format::decode_index(&index, 9).is_none());
    }

    #[test]
    fn metadata_reads_as_it_was_written(
        content_type in proptest::option::of("[ -~]{1,40}"),
        user in prop::collection::vec(("[a-z-]{1,20}", ".{0,40}"), 0..5),
        size: u64,
        modified_unix_us: u64,
    ) {
        let attributes = Attributes { content_type, user };
        let metadata = Metadata { size, etag: "e".into(), modified_unix_us, attributes };
        let mut block = metadata.encode();
        block.extend_from_slice(b"rest");
        let (decoded, rest) = Metadata::decode(&block).unwrap();
        prop_assert_eq!(decoded, metadata);
        prop_assert_eq!(rest, b"rest");
    }
}
