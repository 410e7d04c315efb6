use std::collections::BTreeMap;
use std::path::PathBuf;

use ground::with_causes;
use proptest::prelude::*;
use shard::query::Query;
use shard::record::{Format, Schema};

use super::chunk::{Chunk, Entry};
use super::part::RUN_BYTES;
use super::*;

pub(crate) fn options() -> Options {
    Options {
        format: None,
        header: shard::record::detect::Header::Given,
        columns: Vec::new(),
        key: None,
        orders: Vec::new(),
        index: shard::index::Options::default(),
        shard_bytes: None,
        jobs: None,
        memory_bytes: None,
        replace: false,
    }
}

fn all() -> PageRequest {
    PageRequest { limit: usize::MAX, after: None, sorted: true }
}

/// A dataset `d` of some text, in a folder that vanishes.
fn imported(text: &[u8], options: &Options) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    std::fs::write(&input, text).unwrap();
    import(folder.path(), "d", &[input], options, &mut |_| ()).unwrap();
    let place = folder.path().join("d");
    (folder, place)
}

pub(crate) fn exported(dataset: &Dataset) -> Vec<u8> {
    let mut bytes = Vec::new();
    dataset.export(&mut bytes).unwrap();
    bytes
}

const TEXT: &[u8] = b"name,size\ned,90\nnano,2900\nnvi,1500\n";

#[test]
fn what_is_imported_is_found_and_comes_back() {
    let (_folder, place) = imported(TEXT, &options());
    let dataset = Dataset::open(&place).unwrap();
    assert_eq!(exported(&dataset), TEXT);
    let found = dataset.search(&"name:^n".parse().unwrap(), &all()).unwrap();
    assert_eq!(found.ids, [1, 2]);
    assert_eq!(dataset.id_of("nvi").unwrap(), Some(2));
    assert_eq!(dataset.get(0).unwrap(), b"ed,90\n");
    assert_eq!(dataset.extract(5..9).unwrap(), b"size");
    assert!(dataset.extract(30..99).is_err());
    assert!(dataset.get(3).is_err());
}

#[test]
fn an_export_comes_in_runs_of_whole_records() {
    let row = |i: usize| {
        let bytes = if i == 3 { 2 * RUN_BYTES } else { 50_000 };
        format!("{i},{}\n", "x".repeat(bytes))
    };
    let text: String = "id,text\n".to_owned() + &(0..20).map(row).collect::<String>();
    let format = Some(Format::Csv { delimiter: b',', header: true });
    let (_folder, place) = imported(text.as_bytes(), &Options { format, ..options() });
    let mut writer = Writer::open(&place).unwrap();
    let appended: String = (20..28).map(row).collect();
    writer.append(appended.as_bytes()).unwrap();
    writer.delete(&[0, 7, 8, 19, 20, 27]).unwrap();
    let there = (1..27).filter(|i| ![7, 8, 19, 20].contains(i));
    let expected = "id,text\n".to_owned() + &there.map(row).collect::<String>();
    for sealed in [false, true] {
        let dataset = Dataset::open(&place).unwrap();
        assert_eq!(dataset.parts().len(), 1 + usize::from(sealed));
        let (mut all, mut records, mut last) = (Vec::new(), 0, 0);
        let runs = dataset.runs(&mut |run| {
            assert!(run.bytes.len() <= RUN_BYTES || run.records == 1);
            assert!(run.next > last);
            (records, last) = (records + run.records, run.next);
            all.extend_from_slice(&run.bytes);
            Ok::<(), Error>(())
        });
        runs.unwrap();
        assert_eq!((records, last), (22, 28));
        assert!(all == expected.as_bytes(), "sealed {sealed}");
        assert!(exported(&dataset) == all);
        writer.seal().unwrap();
    }
}

#[test]
fn a_header_alone_is_exported_too() {
    let format = Some(Format::Csv { delimiter: b',', header: true });
    let (_folder, place) = imported(b"name,size\n", &Options { format, ..options() });
    let dataset = Dataset::open(&place).unwrap();
    assert_eq!((dataset.end_id(), exported(&dataset)), (0, b"name,size\n".to_vec()));
}

#[test]
fn a_shards_file_is_a_dataset_by_itself() {
    let (_folder, place) = imported(TEXT, &options());
    let dataset = Dataset::open(&place.join("000001.shard")).unwrap();
    assert_eq!(exported(&dataset), TEXT);
    assert!(Writer::open(&place.join("000001.shard")).is_err());
}

#[test]
fn an_input_larger_than_a_shard_is_split_between_records() {
    let line = |i: usize| format!("{i} {}\n", "x".repeat(1000 + i % 100));
    let text: String = (0..70_000).map(line).collect();
    let options = Options { shard_bytes: Some(32 << 20), format: Some(Format::Lines), ..options() };
    let (_folder, place) = imported(text.as_bytes(), &options);
    let dataset = Dataset::open(&place).unwrap();
    assert!(dataset.parts().len() >= 2, "{} shards", dataset.parts().len());
    assert_eq!(dataset.end_id(), 70_000);
    for id in [0, 1, 31_000, 69_999] {
        assert_eq!(dataset.get(id as u64).unwrap(), line(id).as_bytes());
    }
    // A page at a time, over the shards.
    let query: Query = "1000".parse().unwrap();
    assert!(dataset.search(&query, &all()).unwrap().ids.len() > 7);
    let whole = dataset.search(&query, &all()).unwrap().ids;
    let (mut pages, mut after) = (Vec::<u64>::new(), None);
    loop {
        let wanted = PageRequest { limit: 7, after, sorted: true };
        let page = dataset.search(&query, &wanted).unwrap();
        pages.extend(&page.ids);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, whole);
    assert_eq!(dataset.count(&query).unwrap(), whole.len() as u64);
}

/// Records of each format that is split, with fields that look like separators.
fn records() -> impl Strategy<Value = (Format, String)> {
    let of = |format: Format, start: &'static str, record: &'static str| {
        let records = proptest::collection::vec(record, 1..60);
        records.prop_map(move |records| (format, start.to_owned() + &records.concat()))
    };
    prop_oneof![
        of(Format::Lines, "", "[ab]{0,9}\n"),
        of(Format::Stanzas, "", "(A: [ab]{0,4}\n){1,3}\n"),
        of(
            Format::Csv { delimiter: b',', header: true },
            "x,y\n",
            "([a1]|\"(\n|,|a){2}\"),[0-9]\n"
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However an input is cut, and however many of its shards are built at a time.
    #[test]
    fn cuts_and_threads_change_nothing(
        (format, text) in records(), shard_bytes in 64_usize..200, jobs in 1_usize..4, end: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let text = if end { &text[..] } else { text.trim_end() };
        let input = folder.path().join("input");
        std::fs::write(&input, text).unwrap();
        let options = Options { format: Some(format), jobs: Some(jobs), ..options() };
        let mut plan = memory::Plan::default_of(&options);
        plan.shard_bytes = shard_bytes;
        let (mut begun, mut built) = (0_usize, 0_usize);
        let made = import::fill(folder.path(), &[input], &options, plan, &mut |step| match step {
            Step::Build { .. } => begun += 1,
            Step::Built { .. } => built += 1,
            Step::Read(_) | Step::Progress { .. } => assert!(begun - built <= jobs),
        }).unwrap();
        prop_assert!(made.shards >= text.len() / shard_bytes);
        prop_assert_eq!((made.shards, begun, made.bad), (built, built, 0));
        let dataset = Dataset::open(folder.path()).unwrap();
        prop_assert_eq!(exported(&dataset), text.as_bytes());
        prop_assert_eq!(dataset.end_id(), made.records);
        let names: &[&str] = match format {
            Format::Lines => &["line"],
            Format::Stanzas => &["A"],
            _ => &["x", "y"],
        };
        prop_assert_eq!(&dataset.schema().names, names);
    }
}

#[test]
fn reading_takes_no_more_room_than_a_shard_has() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    std::fs::write(&input, "0123456789abcde\n".repeat(3 << 16)).unwrap();
    let mut plan = memory::Plan::default_of(&options());
    plan.shard_bytes = 5 << 19;
    // The last byte of the first file is a line break already.
    let begun = read::InputStart::open(&[input.clone(), input]).unwrap();
    let mut joined = begun.join(Format::Lines).unwrap();
    let mut read_bytes = 0;
    loop {
        let mut buffer = b"rest".to_vec();
        let (counts, ended) = joined.read_shard(&plan, &mut buffer).unwrap();
        assert_eq!(counts, memory::Counts::from_text(&buffer));
        assert!(ended || buffer.len() == plan.shard_bytes, "{} B", buffer.len());
        assert!(buffer.capacity() <= plan.shard_bytes + 2, "{} B of room", buffer.capacity());
        read_bytes += buffer.len() - 4;
        if ended {
            break;
        }
    }
    assert_eq!(read_bytes, 6 << 20);
}

#[test]
fn a_name_is_taken_once_and_is_plain() {
    let (folder, _) = imported(TEXT, &options());
    let input = [folder.path().join("input")];
    for name in ["d", "", "..", "a/b", ".x"] {
        assert!(import(folder.path(), name, &input, &options(), &mut |_| ()).is_err(), "{name}");
    }
    let missing = [folder.path().join("nothing")];
    assert!(import(folder.path(), "other", &missing, &options(), &mut |_| ()).is_err());
    assert!(!folder.path().join("other").exists());
}

#[test]
fn one_process_writes_at_a_time() {
    let (_folder, place) = imported(TEXT, &options());
    let _first = Writer::open(&place).unwrap();
    assert!(Writer::open(&place).is_err());
    assert!(Dataset::open(&place).is_ok());
}

#[test]
fn what_cannot_be_read_is_not_appended() {
    let (_folder, place) = imported(TEXT, &options());
    let mut writer = Writer::open(&place).unwrap();
    assert!(writer.append(b"a,1\nb,2,3\n").is_err());
    assert_eq!(writer.dataset().end_id(), 3);
    // A file brings its header along.
    assert_eq!(writer.append(b"name,size\nsam,5").unwrap(), 3..4);
    assert_eq!(writer.dataset().get(3).unwrap(), b"sam,5\n");
    assert!(writer.delete(&[0, 4]).is_err());
    assert_eq!(writer.delete(&[0, 0]).unwrap(), 1);
    // A header of the same columns in another order would put values into the wrong ones.
    for other in ["size,name\n5,sam\n", "Name,Size\nsam,5\n"] {
        let refused = writer.append(other.as_bytes()).unwrap_err();
        assert!(with_causes(&refused).contains("order name, size"), "{refused}");
    }
    assert_eq!(writer.append(b"size,5\nsize,name\n").unwrap(), 4..6);
}

/// Tables name a column by nothing (pandas' index), with blanks about it or in another encoding than UTF-8: an import reads these names, and so
/// does what is appended.
#[test]
fn an_appended_header_is_read_as_an_imported_one() {
    for table in [
        &b",a,b\n0,1,2\n1,3,4\n"[..],
        b"id, name\n1, a\n2, b\n",
        b"name,gr\xf6\xdfe\nann,3\nbob,4\n",
    ] {
        let (_folder, place) = imported(table, &options());
        let mut writer = Writer::open(&place).unwrap();
        let shown = String::from_utf8_lossy(table);
        assert_eq!(writer.dataset().end_id(), 2, "{shown}");
        assert_eq!(writer.append(table).unwrap(), 2..4, "{shown}");
    }
    // Without a header, a row without values is a record.
    let format = Some(Format::Csv { delimiter: b',', header: false });
    let (_folder, place) = imported(b"1,2\n", &Options { format, ..options() });
    assert_eq!(Writer::open(&place).unwrap().append(b",\n3,4\n").unwrap(), 1..3);
}

/// The format is found where the first record is longer than the usual sample. To order by what is not a column is an error.
#[test]
fn the_start_of_an_input_decides_its_format() {
    let long = format!("{{\"a\":\"{}\"}}\n{{\"a\":\"y\"}}\n", "x".repeat(3 << 20));
    let (_folder, place) = imported(long.as_bytes(), &options());
    let dataset = Dataset::open(&place).unwrap();
    assert_eq!((dataset.schema().format, dataset.end_id()), (Format::JsonLines, 2));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    let import = |text: &str, options: Options| {
        std::fs::write(&path, text).unwrap();
        import(
            folder.path(),
            "d",
            std::slice::from_ref(&path),
            &Options { replace: true, ..options },
            &mut |_| (),
        )
    };
    let orders = vec!["nope".to_owned()];
    let refused = import("name,size\ned,90\n", Options { orders, ..options() }).unwrap_err();
    assert!(with_causes(&refused).contains("unknown attribute \"nope\" to order by"), "{refused}");
    for text in ["name,size\n", "name\ned\nvi\n"] {
        let warning = import(text, options()).unwrap().warning.unwrap();
        assert!(warning.contains("ends in .csv") && warning.contains("--format csv"), "{warning}");
    }
    // The last row of the whole input is a record like the others.
    for text in ["name,size\ned,90\n", "name,size\ned,90", "name,size\r\ned,90"] {
        assert_eq!(import(text, options()).unwrap().warning, None);
        let dataset = Dataset::open(&folder.path().join("d")).unwrap();
        assert_eq!(
            (&dataset.schema().names[..], dataset.end_id()),
            (&["name", "size"].map(String::from)[..], 1),
            "{text:?}"
        );
        assert_eq!(exported(&dataset), text.as_bytes());
    }
    // So is one that was cut off: two records with a broken third are not taken for three.
    let cut = import("{\"a\":1}\n{\"a\":2}\n{\"a\":", options()).unwrap_err();
    assert!(with_causes(&cut).contains("the one at line 3 is not"), "{cut}");
}

/// What would be other records behind others could never be sealed.
#[test]
fn appended_records_stay_the_same_behind_others() {
    let schema = Schema::new;
    let one_column = Schema {
        names: vec!["a".to_owned()],
        ..schema(Format::Csv { delimiter: b',', header: false })
    };
    let long = vec![b'x'; 16 << 20];
    for (schema, bytes) in [
        (schema(Format::Lines), &long[..]),
        (one_column, b"1\n\"\"\n\n2\n"),
        (schema(Format::Lines), &[b'\n'; 13 << 20]),
    ] {
        if let Ok(records) = split(&schema, None, bytes) {
            let text = records.concat();
            assert_eq!(split(&schema, None, &text).unwrap(), records);
            assert!(records.len() < 10, "{} records", records.len());
        }
    }
    assert!(split(&schema(Format::Lines), None, &long).is_err());
    assert!(split(&schema(Format::Lines), None, &[b'\n'; 13 << 20]).is_err());
    // Blank lines before the first record would move into the one before it.
    // Lines that end as on Windows get no line end of another kind, and no blank line twice.
    for text in ["A: 1", "A: 1\r", "A: 1\r\n", "A: 1\r\n\r\n"] {
        let records = split(&schema(Format::Stanzas), None, text.as_bytes()).unwrap();
        let end = if text.contains('\r') { "\r\n\r\n" } else { "\n\n" };
        assert_eq!(records, [format!("A: 1{end}").into_bytes()], "{text:?}");
    }
    let stanzas = split(&schema(Format::Stanzas), None, b" \n\nA: 1\n\n\nB: 2").unwrap();
    assert_eq!(stanzas, [b"A: 1\n\n\n".to_vec(), b"B: 2\n\n".to_vec()]);
    assert_eq!(split(&schema(Format::JsonLines), None, b"\n \n").unwrap(), Vec::<Vec<u8>>::new());
}

/// A log that something else wrote: what could never be sealed is refused by name, and not tried again and again.
#[test]
fn a_hostile_record_in_the_log_is_refused_and_does_not_keep_it_from_being_sealed() {
    let long = [&vec![b'x'; 60 << 20][..], b",1\n"].concat();
    for (record, why) in [
        (&long[..], "a record has at most"),
        (b"two,1\nrecords,2\n", "not a record"),
        (b"without an end,1", "not a record"),
        (b"one,1,2\n", "not a record"),
    ] {
        let (_folder, place) = imported(TEXT, &options());
        let entries = vec![Entry::Append(record.to_vec())];
        let bytes = Chunk { number: 1, first_id: 3, entries }.encode().unwrap();
        std::fs::write(place.join(chunk_file(1)), bytes).unwrap();
        let Err(error) = Dataset::open(&place) else { panic!("{why}: it was taken") };
        let error = with_causes(&error);
        assert!(error.contains("chunk 1 of the log") && error.contains(why), "{error}");
        assert!(Writer::open(&place).is_err());
        // Removed, as the message says: the next append takes its number, and is sealed.
        std::fs::remove_file(place.join(chunk_file(1))).unwrap();
        let mut writer = Writer::open(&place).unwrap();
        writer.append(b"sam,5\n").unwrap();
        assert!(writer.seal().unwrap());
        assert_eq!(writer.dataset().get(3).unwrap(), b"sam,5\n");
    }
    let error = split(&Schema::new(Format::Lines), None, &long).unwrap_err();
    assert!(with_causes(&error).contains("nothing was appended"), "{}", with_causes(&error));
}

/// However many of the records that match are deleted, a page has as many as there are.
#[test]
fn deleted_records_leave_no_hole_in_a_page() {
    let text: String = (0..100).map(|i| format!("word {i}\n")).collect();
    let (_folder, place) = imported(text.as_bytes(), &options());
    let mut writer = Writer::open(&place).unwrap();
    let query: Query = "word".parse().unwrap();
    for to in [1, 30, 97] {
        writer.delete(&(0..to).collect::<Vec<u64>>()).unwrap();
        for sorted in [true, false] {
            let wanted = PageRequest { limit: 5, after: None, sorted };
            let mut found = writer.dataset().search(&query, &wanted).unwrap();
            let there = (100 - to) as usize;
            assert_eq!(found.ids.len(), there.min(5), "{to} deleted, sorted: {sorted}");
            assert_eq!(found.has_more, there > 5, "{to} deleted, sorted: {sorted}");
            found.ids.sort_unstable();
            assert!(found.ids.iter().all(|id| *id >= to), "{found:?}");
            if sorted {
                assert_eq!(found.ids[0], to);
            }
        }
        assert_eq!(writer.dataset().count(&query).unwrap(), 100 - to);
    }
}

/// A manifest lists each deleted record. One that had no room for them could not be sealed any more.
#[test]
fn deletions_are_counted_and_end_where_a_manifest_has_no_room_for_them() {
    let text: String = (0..1_000).map(|i| format!("{i}\n")).collect();
    let (_folder, place) = imported(text.as_bytes(), &options());
    let mut writer = Writer::open(&place).unwrap();
    assert_eq!(writer.dataset().log_memory(), 0);
    writer.delete(&(0..500).collect::<Vec<u64>>()).unwrap();
    assert!(writer.dataset().log_memory() >= 500 * 40);
    // An id below 1,000 takes four bytes at most, with its comma.
    let room = manifest::BYTES_MAX as usize / 4 - 500;
    assert!(writer.dataset().has_room_for_deletions(room - 1_000));
    assert!(!writer.dataset().has_room_for_deletions(room));
    writer.seal().unwrap();
    assert_eq!(writer.dataset().log_memory(), 0);
}

/// Every moment at which sealing could be cut off: after the shard, after the manifest, while what it
/// replaces is removed.
#[test]
fn a_crash_while_sealing_loses_nothing() {
    let (_folder, place) = imported(TEXT, &options());
    let mut writer = Writer::open(&place).unwrap();
    writer.append(b"sam,5\nacme,6\n").unwrap();
    writer.delete(&[1, 3]).unwrap();
    let expected = exported(writer.dataset());
    let copy = |name: &str| (name.to_owned(), std::fs::read(place.join(name)).unwrap());
    let before = [copy("dataset.json"), copy("000000000001.log"), copy("000000000002.log")];
    assert!(writer.seal().unwrap());
    assert!(!writer.seal().unwrap());
    drop(writer);
    let after = copy("dataset.json");
    let put = |(name, bytes): &(String, Vec<u8>)| std::fs::write(place.join(name), bytes).unwrap();
    for state in 0..4 {
        match state {
            // All was written, nothing removed.
            0 => before[1..].iter().for_each(put),
            1 => put(&before[2]),
            // The shard was written, the manifest was not.
            2 => before.iter().for_each(put),
            _ => std::fs::write(place.join(".writing-a1B2c3"), b"half").unwrap(),
        }
        assert_eq!(exported(&Dataset::open(&place).unwrap()), expected, "state {state}");
        let mut writer = Writer::open(&place).unwrap();
        assert_eq!(exported(writer.dataset()), expected, "state {state}");
        writer.seal().unwrap();
        assert_eq!(exported(&Dataset::open(&place).unwrap()), expected, "state {state}");
        let left = std::fs::read_dir(&place).unwrap().map(|e| e.unwrap().file_name());
        let is_other = |name: &std::ffi::OsString| name != "lock" && name != ".concertina";
        let left: Vec<_> = left.filter(is_other).collect();
        assert_eq!(left.len(), 3, "a manifest and two shards: {left:?}");
        drop(writer);
        if state < 2 {
            put(&after);
        }
    }
}

#[test]
fn damage_is_an_error() {
    let (_folder, place) = imported(TEXT, &options());
    Writer::open(&place).unwrap().append(b"sam,5\n").unwrap();
    for file in ["000001.shard", "000000000001.log", "dataset.json"] {
        let path = place.join(file);
        let bytes = std::fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        let opened = Dataset::open(&place);
        assert!(opened.is_err(), "{file}");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(Dataset::open(&place).is_err(), "{file} cut");
        std::fs::write(&path, &bytes).unwrap();
        Dataset::open(&place).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Change {
    Append(Vec<String>),
    Delete(prop::sample::Index),
    Seal,
    Compact,
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        proptest::collection::vec("[ab]{0,3}", 1..4).prop_map(Change::Append),
        any::<prop::sample::Index>().prop_map(Change::Delete),
        Just(Change::Seal),
        Just(Change::Compact),
        Just(Change::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The twin is a map of ids to lines.
    #[test]
    fn changes_are_those_of_a_map(changes in proptest::collection::vec(change(), 1..12)) {
        let options = Options { format: Some(Format::Lines), ..options() };
        let (_folder, place) = imported(b"aa\nb\n", &options);
        let mut twin = BTreeMap::from([(0_u64, "aa".to_owned()), (1, "b".to_owned())]);
        let mut next = 2;
        let mut writer = Writer::open(&place).unwrap();
        for change in changes {
            match change {
                Change::Append(lines) => {
                    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                    let ids = writer.append(text.as_bytes()).unwrap();
                    prop_assert_eq!(ids, next..next + lines.len() as u64);
                    for line in lines {
                        twin.insert(next, line);
                        next += 1;
                    }
                }
                Change::Delete(index) => {
                    let id = index.index(next as usize) as u64;
                    let was = twin.remove(&id).is_some();
                    prop_assert_eq!(writer.delete(&[id]).unwrap(), u64::from(was));
                }
                Change::Seal => drop(writer.seal().unwrap()),
                Change::Compact => {
                    let plan = memory::Plan::default_of(&options);
                    writer.seal().unwrap();
                    let done = writer.compact_to(0.0, 12, &plan, &mut |_| ()).unwrap();
                    prop_assert!(done.skipped.is_empty(), "{done:?}");
                }
                Change::Reopen => {
                    drop(writer);
                    writer = Writer::open(&place).unwrap();
                }
            }
            let dataset = Dataset::open(&place).unwrap();
            for query in ["a", "line:=b", "NOT a"] {
                let query: Query = query.parse().unwrap();
                let schema = dataset.schema();
                let matching = |line: &str| query.matches(schema, format!("{line}\n").as_bytes());
                let expected: Vec<u64> =
                    twin.iter().filter(|(_, line)| matching(line)).map(|(id, _)| *id).collect();
                prop_assert_eq!(&dataset.search(&query, &all()).unwrap().ids, &expected);
                prop_assert_eq!(dataset.count(&query).unwrap(), expected.len() as u64);
            }
            let text: String = twin.values().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(exported(&dataset), text.into_bytes());
        }
    }
}

/// A writer removed every file that ended with `.shard` or began with `.writing-`, and logs by their numbers.
#[test]
fn a_writer_removes_no_file_that_is_only_named_alike() {
    let (_folder, place) = imported(TEXT, &options());
    let mut writer = Writer::open(&place).unwrap();
    writer.append(b"sam,5\nacme,6\n").unwrap();
    writer.seal().unwrap();
    drop(writer);
    let strangers =
        ["a.jpg", "1.log", "+00000000001.log", "x.shard", "3.shard", "000042.shard", ".writing-up"];
    for name in strangers {
        std::fs::write(place.join(name), "precious").unwrap();
    }
    let left = ["000000000001.log", "000003.shard", ".writing-a1B2c3"];
    for name in left {
        std::fs::write(place.join(name), "").unwrap();
    }
    let mut writer = Writer::open(&place).unwrap();
    writer.append(b"eve,7\n").unwrap();
    writer.seal().unwrap();
    for name in strangers {
        assert_eq!(std::fs::read(place.join(name)).unwrap(), b"precious", "{name}");
    }
    assert!(!place.join(left[0]).exists() && !place.join(left[2]).exists());
    assert!(std::fs::metadata(place.join(left[1])).unwrap().len() > 0, "it is the sealed shard");
}
