//! Segments on disk: the format as documented, and what is found of them after a crash, in a folder and on a
//! device without a file system alike.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::Bytes;
use device::disk::block;
use device::disk::block::FormatOptions;
use device::disk::block::superblock::Superblock;
use device::disk::format;
use device::disk::format::Entry;
use device::disk::record;
use device::disk::summary;
use device::disk::summary::{Block, Refused};
use device::disk::{Buffer, FoundSegment, Listed, Segments};
use device::object::Object;
use engine::Payload;
use engine::node::{Restored, Unread};
use engine::tier::{Location, class_bytes, length_class};
use ground::Key;
use origin::{Attributes, Metadata};
use proptest::prelude::*;

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
    Object::new(&metadata, Bytes::from(bytes(seed, size)))
}

fn key(number: u64) -> Key {
    Key::from(format!("key-{number}").as_bytes())
}

fn record_bytes(key: &Key, object: &Object) -> u64 {
    engine::tier::record_bytes(key.len(), object.bytes(), object.stored_bytes())
}

/// The bytes of a record.
fn encode_record(segment: u64, key: &Key, object: &Object) -> Vec<u8> {
    let mut record = record::head(segment, key, &object.metadata().encode(), object.bytes_held());
    record.extend_from_slice(object.bytes_held());
    assert_eq!(record.len() as u64, record_bytes(key, object));
    record
}

/// CRC-32 as docs/device-format.md names it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// Where segments are: a folder, or a file that was prepared as a block device is.
struct Medium {
    folder: tempfile::TempDir,
    /// Path and superblock of a device without a file system; `None` for a folder.
    raw: Option<(PathBuf, Superblock)>,
}

impl Medium {
    fn folder() -> Medium {
        Medium { folder: tempfile::tempdir().unwrap(), raw: None }
    }

    fn raw() -> Medium {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::File::create(&path).unwrap().set_len(50 << 20).unwrap();
        let wanted = FormatOptions { segment_bytes: 4 << 20, record_bytes: 1024, destroy: false };
        block::format(&path, wanted).unwrap();
        let superblock = Superblock::decode(&std::fs::read(&path).unwrap()[..4096]).unwrap();
        Medium { folder, raw: Some((path, superblock)) }
    }

    fn open(&self) -> (Segments, Vec<FoundSegment>) {
        let path = self.raw.as_ref().map_or(self.folder.path(), |(path, _)| path);
        Segments::open(path, None).unwrap()
    }

    /// The number that records of segment 0 have, and the file and offset of that segment, the only one.
    fn first(&self) -> (u64, PathBuf, u64) {
        match &self.raw {
            Some((path, superblock)) => (superblock.first, path.clone(), superblock.segment_at(0)),
            None => (0, self.folder.path().join("00000000.seg"), 0),
        }
    }

    /// Writes to segment 0.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let (_, path, base) = self.first();
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, base + offset).unwrap();
    }
}

/// Runs a test for each kind.
fn each(test: impl Fn(&Medium)) {
    test(&Medium::folder());
    test(&Medium::raw());
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
        // As the index has it: longer, perhaps past the end of the file.
        let bytes = class_bytes(length_class(location.bytes()));
        let rounded = Location::new(location.segment(), location.offset(), bytes);
        assert!(segments.read(&segment, rounded, key, &mut buffer).unwrap() == *object);
    }
}

#[test]
fn what_is_appended_is_read_before_and_after_a_restart() {
    each(|medium| {
        let (segments, found) = medium.open();
        assert!(found.is_empty());
        let sealed = fill(&segments, 3, 30);
        segments.seal(3).unwrap();
        let open = fill(&segments, 4, 10);
        check(&segments, &sealed);
        check(&segments, &open);
        let mut buffer = Buffer::default();
        let segment = segments.segment(3).unwrap();
        let other = segments.read(&segment, sealed[0].0, &key(1), &mut buffer);
        assert_eq!(other.unwrap_err(), Unread::OtherKey);
        let past = Location::new(3, 1 << 30, 100);
        assert!(segments.read(&segment, past, &key(1), &mut buffer).is_err());
        // Dropping the segments without closing them leaves segment 4 without an index, as `kill -9` does.
        drop((segment, segments));
        assert!(!medium.folder.path().join("00000004.idx").exists());
        let (segments, found) = medium.open();
        let numbers: Vec<u64> = found.iter().map(|segment| segment.number).collect();
        assert_eq!(numbers, [3, 4]);
        assert_eq!((found[0].records.len(), found[1].records.len()), (30, 10));
        let (last, name, _) = &open[9];
        assert_eq!(Some(found[1].records[9]), Restored::new(name, last.offset(), last.bytes()));
        for (number, written) in [(3, &sealed), (4, &open)] {
            let listed = |(location, key, _): &(Location, Key, Object)| Listed {
                key: key.clone(),
                location: *location,
            };
            assert!(segments.entries(number).into_iter().eq(written.iter().map(listed)));
        }
        assert_eq!(segments.sealed(), [3, 4]);
        check(&segments, &sealed);
        check(&segments, &open);
        // Who holds a segment reads on when it is removed.
        let segment = segments.segment(3).unwrap();
        segments.remove(3);
        assert!(segments.segment(3).is_none() && segments.sealed() == [4]);
        assert!(segments.read(&segment, sealed[5].0, &key(5), &mut buffer).is_ok());
        drop((segment, segments));
        assert!(medium.open().1.iter().map(|found| found.number).eq([4]));
    });
}

/// Records that the program wrote before format 2: one checksum, whatever the size.
#[test]
fn large_records_of_format_1_are_read() {
    each(|medium| {
        fill(&medium.open().0, 0, 1);
        let (key, object) = (key(1), object(1, 200_000));
        let covered = [&key[..], &object.metadata().encode(), object.bytes_held()].concat();
        let lengths = record::Lengths::One(object.stored_bytes());
        let header = record::Header {
            key_bytes: key.len() as u16,
            lengths,
            checksum: crc32(&covered),
            segment: medium.first().0,
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend(covered);
        medium.write(0, &bytes);
        let (segments, found) = medium.open();
        let length = bytes.len() as u64;
        assert_eq!(found[0].records, [Restored::new(&key, 0, length).unwrap()]);
        check(&segments, &[(Location::new(0, 0, length), key, object)]);
    });
}

#[test]
fn a_torn_tail_costs_what_was_torn() {
    each(|medium| {
        let written = fill(&medium.open().0, 0, 8);
        let (_, path, base) = medium.first();
        let whole = std::fs::read(&path).unwrap();
        let end = written[7].0.offset() + written[7].0.bytes();
        for cut in [1, 40, 5_000] {
            let length = end - cut;
            let mut torn = whole.clone();
            if medium.raw.is_some() {
                torn[(base + length) as usize..(base + end) as usize].fill(0);
            } else {
                torn.truncate(length as usize);
            }
            std::fs::write(&path, &torn).unwrap();
            for name in ["00000000.idx", "summary"] {
                let _ = std::fs::remove_file(medium.folder.path().join(name));
            }
            let kept: Vec<_> = written
                .iter()
                .filter(|(location, ..)| location.offset() + location.bytes() <= length)
                .cloned()
                .collect();
            // The second start needs no scan.
            for _ in 0..2 {
                let (segments, found) = medium.open();
                assert_eq!(found[0].records.len(), kept.len());
                check(&segments, &kept);
            }
        }
        // An index that is damaged is not believed. The summary has the segment too.
        if let Some((path, superblock)) = &medium.raw {
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"!", superblock.summary_at(0) + 40).unwrap();
            assert_eq!(medium.open().1[0].records.len(), 7);
            return;
        }
        std::fs::remove_file(medium.folder.path().join("summary")).unwrap();
        let index = medium.folder.path().join("00000000.idx");
        let mut damaged = std::fs::read(&index).unwrap();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&index, damaged).unwrap();
        assert_eq!(medium.open().1[0].records.len(), 7);
    });
}

/// The example of docs/device-format.md: if this fails, the format has changed, and old devices with it.
#[test]
fn the_golden_record_and_index_are_as_documented() {
    let (key, object) = (Key::from(&b"a/b"[..]), object(5, 6));
    let record = encode_record(7, &key, &object);
    let parsed = record::record(&record, 7).unwrap();
    assert_eq!(parsed.key, &key[..]);
    let entry = Entry::of_record(&parsed, 64).unwrap();
    let index = format::encode_index(7, std::slice::from_ref(&entry));
    assert_eq!(format::decode_index(&index, 7).unwrap(), [entry]);
    let bytes = record.len() as u64;
    let records = vec![Restored::new(&key, 64, bytes).unwrap()];
    let summary = Block { segment: 7, segment_bytes: 64 + bytes, records }.encode();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let document = include_str!("../../../../docs/device-format.md");
    let document: String = document.split_whitespace().collect();
    let zeros = Metadata { size: 65_537, ..object.metadata() };
    let head = record::head(7, &key, &zeros.encode(), &[0; 65_537]);
    let owner = "a".to_owned();
    let superblock = Superblock::plan(64 << 20, 4 << 20, 64 << 10, 7).unwrap();
    let superblock = Superblock { owner, ..superblock }.encode();
    let superblock = [&superblock[..56], &superblock[508..512]].concat();
    let all = [
        ("record", &record),
        ("head", &head),
        ("index", &index),
        ("summary", &summary),
        ("superblock", &superblock),
    ];
    for (name, bytes) in all {
        assert!(document.contains(&hex(bytes)), "the {name} is now {}", hex(bytes));
    }
}

/// Segments in the folder, by the summary or without it.
fn filled(folder: &std::path::Path) -> Vec<(Location, Key, Object)> {
    let (segments, _) = Segments::open(folder, Some("a")).unwrap();
    let mut written = Vec::new();
    for segment in 0..6 {
        written.extend(fill(&segments, segment, 12));
        segments.seal(segment).unwrap();
    }
    written
}

#[test]
fn a_start_needs_the_summary_alone_and_does_without() {
    let folder = tempfile::tempdir().unwrap();
    let written = filled(folder.path());
    let path = folder.path().join("summary");
    let whole = std::fs::read(&path).unwrap();
    // No index is read: these are not there.
    let index = |segment: u64| folder.path().join(format!("{segment:08}.idx"));
    (0..5).for_each(|segment| std::fs::rename(index(segment), index(segment + 100)).unwrap());
    let opened = || {
        let (segments, found) = Segments::open(folder.path(), Some("a")).unwrap();
        let records: usize = found.iter().map(|segment| segment.records.len()).sum();
        check(&segments, &written);
        records
    };
    assert_eq!(opened(), written.len());
    (0..5).for_each(|segment| std::fs::rename(index(segment + 100), index(segment)).unwrap());
    // A summary that is cut off, changed, of a later version or gone costs time alone.
    let mut later = whole.clone();
    later[4] = 2;
    let mut changed = whole.clone();
    changed[whole.len() / 2 + 50] ^= 1;
    let damaged: [(&[u8], Option<Refused>); 5] = [
        (&whole[..whole.len() - 1], Some(Refused::Truncated)),
        (&whole[..whole.len() / 3 + 5], Some(Refused::Truncated)),
        (&changed, Some(Refused::Checksum)),
        (&later, Some(Refused::Version(2))),
        (&[], None),
    ];
    for (bytes, why) in damaged {
        assert_eq!(summary::decode(bytes).2, why);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(opened(), written.len());
        assert!(std::fs::read(&path).unwrap() == whole, "it was not mended");
    }
    // A segment that is shorter than the summary says, and one that is gone.
    let segment = folder.path().join("00000002.seg");
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() - 1]).unwrap();
    std::fs::remove_file(folder.path().join("00000004.seg")).unwrap();
    let (_, found) = Segments::open(folder.path(), Some("a")).unwrap();
    let records: Vec<usize> = found.iter().map(|segment| segment.records.len()).collect();
    assert_eq!(records, [12, 12, 11, 12, 12]);
}

#[test]
fn folders_that_cannot_be_used_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &std::path::Path, me: Option<&str>, part: &str| {
        let error = Segments::open(path, me).err().unwrap();
        assert!(
            matches!(error, device::Error::Unusable(_)) && error.to_string().contains(part),
            "{error}"
        );
    };
    let device = folder.path().join("device");
    let (segments, _) = Segments::open(&device, Some("a")).unwrap();
    fill(&segments, 0, 3);
    drop(segments);
    refused(&device, Some("b"), "belongs to the node \"a\", not to \"b\"");
    // A later version is left as it is, not removed.
    let segment = device.join("00000000.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4] = 9;
    std::fs::write(&segment, &bytes).unwrap();
    refused(&device, Some("a"), "has format version 9, and this program knows 2");
    assert!(std::fs::read(&segment).unwrap() == bytes);
    // Nor is one of which a later program wrote only the rest.
    bytes[4] = 1;
    let second = encode_record(0, &key(0), &object(0, 0)).len();
    bytes[second + 4] = 3;
    let checksum = crc32(&bytes[second..second + 28]).to_le_bytes();
    bytes[second + 28..second + 32].copy_from_slice(&checksum);
    std::fs::write(&segment, &bytes).unwrap();
    refused(&device, Some("a"), "has format version 3, and this program knows 2");
    refused(&segment, None, "cannot be used");
    // Nobody may write there, not even root.
    refused(std::path::Path::new("/proc/device"), None, "cannot be used");
}

/// What happens to a device.
#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Seal,
    Remove,
    /// The process ends, in order or not.
    End(bool),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A folder is the naive twin of a device without a file system.
    #[test]
    fn a_folder_and_a_raw_device_have_the_same_segments(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (1u64..6).prop_map(Step::Append),
                2 => Just(Step::Seal),
                1 => Just(Step::Remove),
                2 => any::<bool>().prop_map(Step::End),
            ],
            1..40,
        ),
    ) {
        let media = [Medium::folder(), Medium::raw()];
        let mut opened = media.each_ref().map(|medium| medium.open().0);
        let (mut open, mut offset, mut number) = (0, 0, 0u64);
        let mut written: Vec<(Location, Key, Object)> = Vec::new();
        for step in steps {
            match step {
                Step::Append(count) => {
                    // At most eight segments, as the engine has it.
                    let oldest = written.iter().map(|one| one.0.segment()).min();
                    if offset == 0 && oldest.is_some_and(|oldest| open >= oldest + 8) {
                        opened.iter().for_each(|segments| segments.remove(oldest.unwrap()));
                        written.retain(|one| Some(one.0.segment()) != oldest);
                    }
                    for _ in 0..count {
                        number += 1;
                        let (key, object) = (key(number), object(number, (number as usize * 997) % 90_000));
                        let location = Location::new(open, offset, record_bytes(&key, &object));
                        if location.offset() + location.bytes() > 4 << 20 {
                            break;
                        }
                        opened.iter().for_each(|on| on.append(location, &key, &object).unwrap());
                        offset += location.bytes();
                        written.push((location, key, object));
                    }
                }
                Step::Seal if offset > 0 => {
                    opened.iter().for_each(|segments| segments.seal(open).unwrap());
                    (open, offset) = (open + 1, 0);
                }
                Step::Seal => {}
                Step::Remove => {
                    let oldest = written.iter().map(|one| one.0.segment()).min();
                    let Some(oldest) = oldest.filter(|&oldest| oldest < open) else { continue };
                    opened.iter().for_each(|segments| segments.remove(oldest));
                    written.retain(|one| one.0.segment() != oldest);
                }
                Step::End(in_order) => {
                    if in_order {
                        opened.iter().for_each(Segments::close);
                    }
                    drop(opened);
                    let again = media.each_ref().map(Medium::open);
                    let found = again.each_ref().map(|(_, found)| {
                        let one = |found: &FoundSegment| (found.number, found.records.clone());
                        found.iter().map(one).collect::<Vec<_>>()
                    });
                    prop_assert_eq!(&found[0], &found[1]);
                    let records: usize = found[0].iter().map(|(_, records)| records.len()).sum();
                    prop_assert_eq!(records, written.len());
                    opened = again.map(|(segments, _)| segments);
                    (open, offset) = (open + 1, 0);
                }
            }
        }
        for segments in &opened {
            check(segments, &written);
        }
    }
}

proptest! {
    #[test]
    fn a_changed_summary_is_never_taken(
        records in prop::collection::vec((any::<u64>(), 1u32..1000), 0..20),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut end = 0;
        let mut record = |(hash, bytes)| {
            let offset = end;
            end += bytes;
            Restored { hash, offset, bytes }
        };
        let records: Vec<Restored> = records.into_iter().map(&mut record).collect();
        let block = Block { segment: 3, segment_bytes: u64::from(end), records };
        let mut bytes = block.encode();
        let place = at.index(bytes.len());
        prop_assert_eq!(summary::decode(&bytes), (vec![block], bytes.len(), None));
        bytes[place] ^= flip;
        let (blocks, valid, why) = summary::decode(&bytes);
        prop_assert!(blocks.is_empty() && valid == 0 && why.is_some());
    }

    #[test]
    fn parsers_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), segment: u64) {
        let _ = record::record(&bytes, segment);
        let _ = format::decode_index(&bytes, segment);
        let _ = summary::decode(&bytes);
        let _ = Metadata::decode(&bytes);
        let _ = Object::decode(&Bytes::from(bytes));
    }

    #[test]
    fn a_changed_record_or_index_is_never_taken(
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        size in prop_oneof![0usize..300, 65_500usize..200_000],
    ) {
        let (key, object) = (key(1), object(2, size));
        let mut record = encode_record(9, &key, &object);
        let entry = Entry::of_record(&record::record(&record, 9).unwrap(), 0).unwrap();
        let mut index = format::encode_index(9, &[entry]);
        let place = at.index(record.len());
        record[place] ^= flip;
        prop_assert!(record::record(&record, 9).is_err());
        // The head tells which blocks are whole without the others.
        if let Ok(Some(head)) = record::parse_head(&record, 9) {
            prop_assert!(place >= head.bytes);
            let blocks = record[head.bytes..].chunks(65_536).enumerate();
            let whole = |(block, bytes)| record::blocks_hold(head.table, block, bytes);
            let broken: Vec<usize> =
                blocks.filter(|b| !whole(*b)).map(|(block, _)| block).collect();
            prop_assert_eq!(broken, [(place - head.bytes) / 65_536]);
        }
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
