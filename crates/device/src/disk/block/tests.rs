//! What is particular to block devices; what they have in common with folders is tested for both
//! (`crates/concertina/tests/it/disk.rs`).

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::Payload;
use engine::tier::{Location, record_bytes};
use ground::Key;
use origin::{Attributes, Metadata};
use proptest::prelude::*;

use super::superblock::{BLOCK, Refused, SUMMARIES_AT, Superblock};
use super::*;
use crate::disk::record::HEADER_BYTES;
use crate::disk::{Buffer, FoundSegment, Segments, Slots};
use crate::error::Error;
use crate::object::Object;

const MIB: u64 = 1 << 20;
const SEGMENT: u64 = 64 << 10;

fn options() -> FormatOptions {
    FormatOptions { segment_bytes: SEGMENT, record_bytes: 256, destroy: false }
}

/// A file of `mib` MiB.
fn empty(folder: &Path, mib: u64) -> PathBuf {
    let path = folder.join("device");
    File::create(&path).unwrap().set_len(mib * MIB).unwrap();
    path
}

/// A device with as many slots as fit into a MiB or some.
fn made(folder: &Path, mib: u64) -> (PathBuf, Superblock) {
    let path = empty(folder, mib);
    let made = format(&path, options()).unwrap();
    let superblock = superblock_of(&path);
    assert_eq!((made.segments_max + 1, made.segment_bytes), (superblock.slots, SEGMENT));
    (path, superblock)
}

fn superblock_of(path: &Path) -> Superblock {
    open::read(&File::open(path).unwrap()).unwrap()
}

fn object(seed: u64, size: usize) -> Object {
    let byte = |at: usize| ((at as u64 + 1).wrapping_mul(seed * 2 + 1) >> 3) as u8;
    let metadata = Metadata {
        size: size as u64,
        etag: format!("{seed:032x}").into(),
        modified_unix_us: 0,
        attributes: Attributes::default(),
    };
    Object::new(&metadata, Bytes::from((0..size).map(byte).collect::<Vec<u8>>()))
}

fn key(number: u64) -> Key {
    Key::from(format!("key-{number}").as_bytes())
}

type Written = (Location, Key, Object);

/// Appends one object; returns where the next one goes.
fn append(segments: &Segments, segment: u64, offset: u64, seed: u64, size: usize) -> Written {
    let (key, object) = (key(seed), object(seed, size));
    let bytes = record_bytes(key.len(), object.bytes(), object.stored_bytes());
    let location = Location::new(segment, offset, bytes);
    segments.append(location, &key, &object).unwrap();
    (location, key, object)
}

fn fill(segments: &Segments, segment: u64, count: u64) -> Vec<Written> {
    let mut offset = 0;
    let one = |number: u64| {
        let size = (number as usize * 997) % 5_000;
        let written = append(segments, segment, offset, segment * 1000 + number, size);
        offset += written.0.bytes();
        written
    };
    (0..count).map(one).collect()
}

fn read(segments: &Segments, written: &Written) -> Result<Object, engine::node::Unread> {
    let (location, key, _) = written;
    let segment = segments.segment(location.segment()).unwrap();
    segments.read(&segment, *location, key, &mut Buffer::default())
}

fn refused(path: &Path, me: Option<&str>, part: &str) {
    let error = Segments::open(path, me).err().unwrap();
    assert!(matches!(error, Error::Unusable(_)) && error.to_string().contains(part), "{error}");
}

#[test]
fn a_device_that_holds_something_is_not_formatted_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(folder.path(), 8);
    refused(&path, None, "is not formatted for Concertina; `concertina device format` does that");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    let not = |part: &str| {
        let before = std::fs::read(&path).unwrap();
        let error = format(&path, options()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("--destroy"), "{error}");
        assert!(std::fs::read(&path).unwrap() == before, "it was changed");
    };
    put(8 * MIB - 512, b"EFI PART");
    not("holds data (offset 8388096)");
    put(510, &[0x55, 0xaa]);
    not("holds a partition table (MBR)");
    put(1080, &[0x53, 0xef]);
    not("holds an ext2, ext3 or ext4 file system");
    refused(&path, None, "it holds an ext2, ext3 or ext4 file system; name another");
    let made = format(&path, FormatOptions { destroy: true, ..options() }).unwrap();
    assert_eq!(made.destroyed.as_deref(), Some("an ext2, ext3 or ext4 file system"));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[4096..].iter().all(|byte| *byte == 0));
    not("holds a device of Concertina");
    drop(Segments::open(&path, Some("a")).unwrap());
    not("holds a device of Concertina's node a");
    refused(&path, Some("b"), "it belongs to node a, and this is node b");
    drop(Segments::open(&path, None).unwrap());
    // Not while a process has it.
    let held = Segments::open(&path, Some("a")).unwrap();
    let error =
        format(&path, FormatOptions { destroy: true, ..options() }).unwrap_err().to_string();
    assert!(error.contains("is in use by another process"), "{error}");
    let error = Segments::open(&path, Some("a")).err().unwrap();
    assert!(
        !matches!(error, Error::Unusable(_)) && error.to_string().contains("is in use"),
        "{error}"
    );
    drop(held);
    // A file system that was made on it later, and a device that became smaller.
    let truncated = || file.set_len(6 * MIB).unwrap();
    truncated();
    refused(&path, Some("a"), "it has 6291456 bytes, and had 8388608 when it was formatted");
    file.set_len(8 * MIB).unwrap();
    put(1080, &[0x53, 0xef]);
    refused(&path, Some("a"), "its superblock is damaged; format it again");
    put(0, &[0; 8]);
    refused(&path, Some("a"), "it holds an ext2, ext3 or ext4 file system");
    let error = format(&empty(folder.path(), 1), options()).unwrap_err().to_string();
    assert!(error.contains("too few for 3 segments of 65536"), "{error}");
    assert!(format(folder.path(), options()).unwrap_err().to_string().contains("is a folder"));
}

#[test]
fn a_later_version_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, superblock) = made(folder.path(), 4);
    let (segments, _) = Segments::open(&path, None).unwrap();
    let written = fill(&segments, 0, 3);
    drop(segments);
    let file = OpenOptions::new().write(true).read(true).open(&path).unwrap();
    // The second record of the segment that was being filled is of a later version, and its header is whole.
    let at = superblock.segment_at(0) + written[1].0.offset();
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, at).unwrap();
    let mut later = header;
    later[4] = 3;
    let checksum = crc32fast::hash(&later[..28]).to_le_bytes();
    later[28..].copy_from_slice(&checksum);
    file.write_all_at(&later, at).unwrap();
    refused(&path, None, "a record in slot 0 has format version 3, and this program knows 2");
    // One that is a remnant of an earlier segment is of no importance.
    later[20] ^= 1;
    let checksum = crc32fast::hash(&later[..28]).to_le_bytes();
    later[28..].copy_from_slice(&checksum);
    file.write_all_at(&later, at).unwrap();
    let (_, found) = Segments::open(&path, None).unwrap();
    assert_eq!(found[0].records.len(), 1);
    let mut bytes = superblock.encode();
    bytes[4] = 2;
    file.write_all_at(&bytes, 0).unwrap();
    refused(&path, None, "it has format version 2, and this program knows 1");
}

#[test]
fn a_budget_that_does_not_fit_is_refused_with_the_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let (path, superblock) = made(folder.path(), 4);
    let (segments, _) = Segments::open(&path, None).unwrap();
    let slots = segments.slots().unwrap();
    assert_eq!(slots, Slots { segment_bytes: SEGMENT, segments_max: superblock.slots - 1 });
    let room = (superblock.slots - 1) * SEGMENT;
    assert!(segments.holds(room, 0).is_ok() && segments.holds(room, SEGMENT / 2).is_ok());
    let why = segments.holds(room + 1, 0).unwrap_err().to_string();
    assert!(why.contains(&format!("set bytes to {room} or less")), "{why}");
    let why = segments.holds(room, SEGMENT + 1).unwrap_err().to_string();
    assert!(
        why.contains("formatted for segments of 65536 bytes, and segment_bytes is 65537"),
        "{why}"
    );
}

/// The device is filled three times over; a slot is used again after the others, and not while it is read.
#[test]
fn slots_are_used_in_turn_and_not_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, superblock) = made(folder.path(), 3);
    let (mut segments, _) = Segments::open(&path, None).unwrap();
    let held = superblock.slots - 1;
    let mut written: HashMap<u64, Vec<Written>> = HashMap::new();
    let (mut reader, mut slow) = (None, None);
    for segment in 0..3 * superblock.slots {
        if segment >= held {
            let oldest = segment - held;
            if oldest == 2 {
                slow = written[&2].get(5).cloned();
                reader = segments.segment(2);
            }
            segments.remove(oldest);
            written.remove(&oldest);
        }
        written.insert(segment, fill(&segments, segment, 12));
        segments.seal(segment).unwrap();
        if let (Some(reader), Some((location, key, object))) = (&reader, &slow) {
            let found = segments.read(reader, *location, key, &mut Buffer::default());
            assert!(found.unwrap() == *object);
        }
        if segment % 7 == 6 && reader.is_none() {
            drop(segments);
            let opened = Segments::open(&path, None).unwrap();
            let numbers: Vec<u64> = opened.1.iter().map(|found| found.number).collect();
            let least = (segment + 1).saturating_sub(held);
            assert_eq!(numbers, (least..=segment).collect::<Vec<_>>());
            segments = opened.0;
        }
        for written in written.values().flatten() {
            assert!(read(&segments, written).unwrap() == written.2);
        }
    }
    // Even without a free slot that nobody reads, writing goes on.
    segments.remove(*written.keys().min().unwrap());
    let readers: Vec<_> = written.keys().filter_map(|n| segments.segment(*n)).collect();
    written.keys().for_each(|number| segments.remove(*number));
    fill(&segments, 1000, 12);
    drop(readers);
}

/// A device that is formatted again holds nothing, though the bytes are there and the numbers begin anew.
#[test]
fn what_was_there_before_a_device_was_formatted_is_never_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, before) = made(folder.path(), 4);
    let (segments, _) = Segments::open(&path, None).unwrap();
    let (old, _) = (fill(&segments, 0, 20), fill(&segments, 1, 3));
    drop(segments);
    // All but the superblock is as it was: what --destroy wipes is before the summaries.
    format(&path, FormatOptions { destroy: true, ..options() }).unwrap();
    let after = superblock_of(&path);
    assert!((before.slots, before.segment_at(0)) == (after.slots, after.segment_at(0)));
    assert_ne!(before.first, after.first);
    let (segments, found) = Segments::open(&path, None).unwrap();
    assert!(found.is_empty());
    // The records of the new segment are as long as the old ones, and its number is the same.
    let new = fill(&segments, 0, 2);
    assert_eq!(new[1].0, old[1].0);
    drop(segments);
    let (segments, found) = Segments::open(&path, None).unwrap();
    assert_eq!(found[0].records.len(), 2);
    assert!(new.iter().all(|written| read(&segments, written).unwrap() == written.2));
}

/// A segment whose records are too many for its summary is scanned at each start, and listed all the same.
#[test]
fn a_segment_of_many_small_records_is_scanned() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(folder.path(), 4);
    format(&path, FormatOptions { record_bytes: 1 << 20, ..options() }).unwrap();
    for _ in 0..2 {
        let (segments, found) = Segments::open(&path, None).unwrap();
        let number = found.last().map_or(0, |found| found.number + 1);
        let mut offset = 0;
        let one = |number_of: u64| {
            let written = append(&segments, number, offset, number_of, 20);
            offset += written.0.bytes();
            written
        };
        let written: Vec<Written> = (0..500).map(one).collect();
        segments.seal(number).unwrap();
        let listed = segments.entries(number);
        assert!(listed.iter().map(|listed| &listed.key).eq(written.iter().map(|(_, key, _)| key)));
        drop(segments);
        let (segments, found) = Segments::open(&path, None).unwrap();
        assert!(found.iter().all(|found| found.records.len() == 500));
        assert!(written.iter().all(|written| read(&segments, written).unwrap() == written.2));
    }
}

/// A record is read as soon as it was appended, while more is appended to the block that it ends in; a write that
/// failed leaves a gap.
#[test]
fn a_record_is_read_as_soon_as_it_was_appended() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(folder.path(), 40);
    format(&path, FormatOptions { segment_bytes: 8 * MIB, ..options() }).unwrap();
    let (segments, _) = Segments::open(&path, None).unwrap();
    let sizes = [10, 4_000, 4_096, 70_000, 1, 0, 131_072, 65_536, 65_537, 300, 250_000, 12_000];
    let (mut offset, mut written) = (0, Vec::new());
    for (seed, size) in (0u64..80).zip(sizes.into_iter().cycle()) {
        let next = append(&segments, 0, offset, seed, size);
        offset += next.0.bytes() + if seed % 11 == 10 { 5_000 } else { 0 };
        written.push(next);
        for written in written.iter().rev().take(3) {
            assert!(read(&segments, written).unwrap() == written.2, "record {seed}");
        }
    }
    segments.seal(0).unwrap();
    assert!(written.iter().all(|written| read(&segments, written).unwrap() == written.2));
    let too_long = Location::new(1, 8 * MIB - 10, written[0].0.bytes());
    assert!(segments.append(too_long, &written[0].1, &written[0].2).is_err());
}

/// Bytes of the heads that the summary cannot vouch for are not listed.
#[test]
fn a_damaged_record_is_found_by_its_reader_and_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (path, superblock) = made(folder.path(), 4);
    let (segments, _) = Segments::open(&path, None).unwrap();
    let written = fill(&segments, 0, 12);
    segments.seal(0).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let damage = |record: usize, at: u64| {
        let at = superblock.segment_at(0) + written[record].0.offset() + at;
        file.write_all_at(b"!", at).unwrap();
    };
    damage(3, written[3].0.bytes() - 1);
    damage(5, 2);
    damage(7, HEADER_BYTES as u64 + 1);
    let listed: Vec<Key> = segments.entries(0).into_iter().map(|listed| listed.key).collect();
    assert_eq!(listed.len(), 10);
    assert!(listed.contains(&written[3].1) && !listed.contains(&written[5].1));
    for (index, written) in written.iter().enumerate() {
        assert_eq!(read(&segments, written).is_ok(), ![3, 5, 7].contains(&index), "{index}");
    }
}

/// What a sudden stop of the machine leaves: of the blocks that were written since the last sync, any.
fn torn(before: &[u8], after: &[u8], kept: &[bool]) -> Vec<u8> {
    let blocks = before.chunks(4096).zip(after.chunks(4096));
    let changed = blocks.clone().filter(|(before, after)| before != after).count();
    let mut kept = kept.iter().cycle().take(changed);
    blocks
        .flat_map(|(before, after)| {
            let old = before != after && !*kept.next().unwrap_or(&true);
            if old { before } else { after }.iter().copied()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever reached the medium, a start finds no record that a read takes for what it is not.
    #[test]
    fn after_a_sudden_stop_no_read_is_wrong(
        segments_written in 1u64..24,
        counts in prop::collection::vec(1u64..16, 24),
        kept in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (path, superblock) = made(folder.path(), 3);
        let held = superblock.slots - 1;
        let (segments, _) = Segments::open(&path, None).unwrap();
        let mut written: HashMap<(u64, u64), Written> = HashMap::new();
        let mut before = std::fs::read(&path).unwrap();
        for (segment, count) in (0..segments_written).zip(&counts) {
            if segment >= held {
                segments.remove(segment - held);
            }
            // That this segment began is synced, and so is all before it.
            if segment + 1 == segments_written {
                before = std::fs::read(&path).unwrap();
            }
            for one in fill(&segments, segment, *count) {
                written.insert((segment, one.0.offset()), one);
            }
            if segment + 1 < segments_written {
                segments.seal(segment).unwrap();
            }
        }
        drop(segments);
        let after = std::fs::read(&path).unwrap();
        std::fs::write(&path, torn(&before, &after, &kept)).unwrap();
        let (segments, found) = Segments::open(&path, None).unwrap();
        let mut sealed = 0;
        for FoundSegment { number, records } in &found {
            for record in records {
                let (_, key, object) = &written[&(*number, u64::from(record.offset))];
                let place = Location::new(*number, record.offset.into(), record.bytes.into());
                let found = read(&segments, &(place, key.clone(), object.clone()));
                prop_assert!(found.is_ok_and(|found| found == *object));
            }
            sealed += u64::from(number + 1 < segments_written);
        }
        prop_assert!(sealed >= (segments_written - 1).min(held - 1));
        // And it goes on from there.
        for segment in segments_written..segments_written + held {
            let oldest = segment.checked_sub(held);
            let dropped = found.iter().filter(|found| Some(found.number) == oldest);
            dropped.for_each(|found| segments.remove(found.number));
            let more = fill(&segments, segment, 2);
            prop_assert!(more.iter().all(|one| read(&segments, one).unwrap() == one.2));
        }
    }

    /// A superblock is read as it was written, and its places lie side by side on the device.
    #[test]
    fn a_superblock_reads_as_it_was_written(
        device_bytes in 0u64..1 << 50,
        segment_bytes in 1u64..1 << 32,
        record_bytes in 64u64..1 << 20,
        owner in "[a-z]{0,64}",
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let summary_bytes = 36 + 16 * (segment_bytes / record_bytes);
        let plan = Superblock::plan(device_bytes, segment_bytes, summary_bytes, 7);
        let Some(plan) = plan else {
            let least = 3 * (segment_bytes + summary_bytes + 2 * BLOCK) + 2 * MIB;
            prop_assert!(device_bytes < least, "{device_bytes} {segment_bytes}");
            return Ok(());
        };
        let superblock = Superblock { owner, ..plan };
        let last = superblock.slots as u32 - 1;
        prop_assert!(superblock.summary_at(0) == SUMMARIES_AT);
        prop_assert!(superblock.summary_at(last) + superblock.summary_bytes <= superblock.segment_at(0));
        prop_assert!(superblock.segment_at(last) + superblock.segment_bytes <= device_bytes);
        prop_assert!(superblock.segment_at(0).is_multiple_of(BLOCK));
        prop_assert_eq!(superblock.number(superblock.mark(9)), Some(9));
        prop_assert_eq!(superblock.number(6), None);
        let mut bytes = superblock.encode();
        prop_assert_eq!(Superblock::decode(&bytes), Ok(superblock));
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let why = Superblock::decode(&bytes).unwrap_err();
        let expected = match at {
            0..4 => Refused::Missing,
            4 => Refused::Version(1 ^ flip),
            _ => Refused::Damaged,
        };
        prop_assert_eq!(why, expected);
    }

    #[test]
    fn any_bytes_are_read_as_a_superblock(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        mended: bool,
    ) {
        if mended && bytes.len() > 48 {
            bytes.resize(508, 0);
            bytes[..8].copy_from_slice(b"CDEV\x01\0\0\0");
            let checksum = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            bytes.resize(4096, 0);
        }
        if let Ok(superblock) = Superblock::decode(&bytes) {
            prop_assert_eq!(superblock.encode(), bytes);
        }
    }
}
