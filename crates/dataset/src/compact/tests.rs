use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use shard::query::Query;

use super::super::separators_tests::{Input, imported, inputs};
use super::super::tests::options;
use super::*;
use crate::{PageRequest, import};

fn plan() -> Plan {
    Plan::default_of(&options())
}

fn compact(writer: &mut Writer, shard_bytes: u64, deleted_share: f64) -> CompactionReport {
    writer.seal().unwrap();
    writer.compact_to(deleted_share, shard_bytes, &plan(), &mut |_| ()).unwrap()
}

/// The records that are not deleted, by their ids, without the separators at their ends.
fn records(dataset: &Dataset) -> BTreeMap<u64, Vec<u8>> {
    let ids = (0..dataset.end_id()).filter(|id| !dataset.deleted().contains(id));
    let trimmed = |id| {
        let record = dataset.get(id).unwrap();
        let end = record.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |at| at + 1);
        (id, record[..end].to_vec())
    };
    ids.map(trimmed).collect()
}

fn exported(dataset: &Dataset) -> Vec<u8> {
    let mut bytes = Vec::new();
    dataset.export(&mut bytes).unwrap();
    bytes
}

/// What queries find, page by page of several sizes, and how many.
fn search_results(dataset: &Dataset) -> Vec<(Vec<u64>, u64)> {
    let queries = ["a", "A:=b", "x:a", "NOT a", "1 OR b", "a:"];
    let mut all = Vec::new();
    for text in queries {
        let query: Query = text.parse().unwrap();
        for limit in [1, 3, 100] {
            let (mut ids, mut after) = (Vec::new(), None);
            loop {
                let Ok(page) = dataset.search(&query, &PageRequest { limit, after, sorted: true })
                else {
                    break;
                };
                ids.extend(&page.ids);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            all.push((ids, dataset.count(&query).unwrap_or(u64::MAX)));
        }
    }
    all
}

/// The files of a dataset's folder beside its lock and its marker.
fn files(place: &Path) -> Vec<String> {
    let names = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "lock" && name != ".concertina");
    names.sort();
    names
}

fn listed(dataset: &Dataset) -> Vec<String> {
    let shards = dataset.manifest().shards.iter().map(|shard| shard.file.clone());
    let mut all: Vec<String> = shards.chain(["dataset.json".to_owned()]).collect();
    all.sort();
    all
}

/// A dataset of drawn records: some imported, the others appended and sealed one by one, some deleted.
fn make_dataset(folder: &Path, input: &Input, deleted: &[prop::sample::Index]) -> PathBuf {
    let Input { format, header, separator, records } = input;
    let line_end = if separator.starts_with('\r') { "\r\n" } else { "\n" };
    let (first, later) = records.split_at(records.len().div_ceil(3));
    let mut text: String = first.iter().map(|record| format!("{record}{separator}")).collect();
    if !header.is_empty() {
        text = format!("{header}{line_end}{text}");
    }
    // As files are that end without a line break.
    let place = imported(folder, "d", text.trim_end_matches(['\r', '\n']).as_bytes(), *format);
    let mut writer = Writer::open(&place).unwrap();
    for (at, record) in later.iter().enumerate() {
        if writer.append(format!("{record}{separator}").as_bytes()).is_ok() && at % 3 != 2 {
            writer.seal().unwrap();
        }
    }
    let end = writer.dataset().end_id();
    let gone: Vec<u64> =
        deleted.iter().filter(|_| end > 0).map(|one| one.index(end as usize) as u64).collect();
    writer.delete(&gone).unwrap();
    place
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Records, their ids and what is found are the same before and after, whatever was compacted and appended in between.
    #[test]
    fn a_compacted_dataset_answers_as_before(
        input in inputs(),
        deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        later in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        shard_bytes in 8_u64..200,
        deleted_share in prop_oneof![Just(0.0), Just(0.3), Just(1.1)],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let place = make_dataset(folder.path(), &input, &deleted);
        let mut writer = Writer::open(&place).unwrap();
        for round in 0..3 {
            writer.seal().unwrap();
            let (expected, answers) = (records(writer.dataset()), search_results(writer.dataset()));
            let (export, end) = (exported(writer.dataset()), writer.dataset().end_id());
            let done = compact(&mut writer, shard_bytes, deleted_share);
            prop_assert!(done.skipped.is_empty(), "{done:?}");
            let opened = Dataset::open(&place).unwrap();
            for dataset in [writer.dataset(), &opened] {
                prop_assert_eq!(&records(dataset), &expected);
                prop_assert_eq!(&search_results(dataset), &answers);
                prop_assert_eq!(&exported(dataset), &export);
                prop_assert_eq!(dataset.end_id(), end);
                prop_assert_eq!(dataset.info().records, expected.len() as u64);
                for id in dataset.deleted().iter() {
                    prop_assert!(dataset.get(*id).unwrap_err().to_string().contains("deleted"));
                }
            }
            if deleted_share == 0.0 {
                prop_assert_eq!(opened.info().deleted, 0);
            }
            prop_assert_eq!(files(&place), listed(&opened));
            // There is nothing left to do.
            let again = compact(&mut writer, shard_bytes, deleted_share);
            prop_assert_eq!((again.shards_before, again.reclaimed), (again.shards, 0));
            prop_assert_eq!(files(&place), listed(&opened));
            // And it goes on.
            if let Some(record) = input.records.get(round) {
                let _ = writer.append(format!("{record}{}", input.separator).as_bytes());
            }
            let end = writer.dataset().end_id() as usize;
            if let Some(one) = later.get(round).filter(|_| end > 0) {
                writer.delete(&[one.index(end) as u64]).unwrap();
            }
        }
    }

    /// Wherever it ends, the dataset has the same records, and the next writer removes what is left.
    #[test]
    fn a_compaction_that_is_cut_off_loses_nothing(
        input in inputs(),
        deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        shard_bytes in 8_u64..200,
        steps in 0_usize..12,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let place = make_dataset(folder.path(), &input, &deleted);
        let mut writer = Writer::open(&place).unwrap();
        writer.seal().unwrap();
        let (expected, answers) = (records(writer.dataset()), search_results(writer.dataset()));
        let mut left = steps;
        // Files stay as a killed process leaves them: nothing of ours is removed on the way out.
        let cut = catch_unwind(AssertUnwindSafe(|| {
            let mut tell = |_| match left.checked_sub(1) {
                Some(fewer) => left = fewer,
                None => std::panic::resume_unwind(Box::new("killed")),
            };
            writer.compact_to(0.0, shard_bytes, &plan(), &mut tell).unwrap();
        }));
        drop(writer);
        let dataset = Dataset::open(&place).unwrap();
        prop_assert_eq!(&records(&dataset), &expected, "cut off: {}", cut.is_err());
        prop_assert_eq!(&search_results(&dataset), &answers);
        let mut writer = Writer::open(&place).unwrap();
        prop_assert_eq!(files(&place), listed(writer.dataset()));
        compact(&mut writer, shard_bytes, 0.0);
        prop_assert_eq!(&records(writer.dataset()), &expected);
        prop_assert_eq!(writer.dataset().info().deleted, 0);
    }

    /// Groups are in order, fit, and are not found again once they are shards.
    #[test]
    fn groups_fit_and_are_final(
        shards in proptest::collection::vec((0_u64..60, 0_u64..20), 0..20), shard_bytes in 1_u64..100,
        share in prop_oneof![Just(0.0), Just(0.2), Just(2.0)],
    ) {
        let mut shards: Vec<Content> =
            shards.into_iter().map(|(there, deleted)| Content { there, deleted }).collect();
        let all = groups(&shards, shard_bytes, share);
        prop_assert!(all.windows(2).all(|two| two[0].end <= two[1].start));
        for group in all.into_iter().rev() {
            let there: u64 = shards[group.clone()].iter().map(|shard| shard.there).sum();
            prop_assert!(group.len() == 1 || there <= shard_bytes, "{group:?}");
            shards.splice(group, [Content { there, deleted: 0 }]);
        }
        let again = groups(&shards, shard_bytes, share);
        prop_assert!(again.is_empty(), "{again:?} of {shards:?}");
    }
}

#[test]
fn small_shards_are_joined_and_large_ones_are_rewritten_for_what_was_deleted() {
    let check = |shards: &[(u64, u64)], expected: &[(usize, usize)]| {
        let of = |&(there, deleted): &(u64, u64)| Content { there, deleted };
        let shards: Vec<Content> = shards.iter().map(of).collect();
        let found = groups(&shards, 100, 0.1).into_iter().map(|group| (group.start, group.end));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{shards:?}");
    };
    check(&[], &[]);
    check(&[(10, 0)], &[]);
    check(&[(10, 1), (99, 9)], &[]);
    check(&[(99, 11)], &[(0, 1)]);
    check(&[(10, 0), (20, 0), (30, 0)], &[(0, 3)]);
    check(&[(40, 0), (40, 0), (40, 0)], &[(0, 2)]);
    check(&[(90, 0), (5, 0), (5, 0)], &[(1, 3)]);
    check(&[(5, 0), (90, 0), (5, 0)], &[]);
    check(&[(0, 7), (0, 7)], &[(0, 2)]);
}

#[test]
fn whole_files_are_joined_with_their_paths() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let inputs = [file("a", b"one\n"), file("b", b"\xff\n\ntwo"), file("c", b"")];
    let options = Options { format: Some(Format::Files), ..options() };
    import(folder.path(), "d", &inputs, &options, &mut |_| ()).unwrap();
    let mut writer = Writer::open(&folder.path().join("d")).unwrap();
    writer.delete(&[0]).unwrap();
    assert_eq!(compact(&mut writer, 1 << 20, 0.1).reclaimed, 1);
    let dataset = writer.dataset();
    assert_eq!(dataset.get(1).unwrap(), b"\xff\n\ntwo");
    assert_eq!(dataset.get(2).unwrap(), b"");
    assert!(dataset.get(0).unwrap_err().to_string().contains("deleted"));
    // With its slash: the folder's random name may hold a `b` too, and then both paths do.
    let query: Query = "path:/b".parse().unwrap();
    assert_eq!(dataset.count(&query).unwrap(), 1);
}

/// Tables of numbers and sampling rates are those that the import was told.
#[test]
fn a_compacted_shard_is_built_as_the_import_built_it() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    let rows: String = (0..300).map(|i| format!("{i},{}\n", i % 7)).collect();
    std::fs::write(&input, format!("a,n\n{rows}")).unwrap();
    let index = index::Options { sa_sampling: 8, isa_sampling: 64 };
    let format = Some(Format::Csv { delimiter: b',', header: true });
    let options = Options { orders: vec!["n".to_owned()], format, index, ..options() };
    import(folder.path(), "d", &[input], &options, &mut |_| ()).unwrap();
    let mut writer = Writer::open(&folder.path().join("d")).unwrap();
    writer.append(b"300,5\n301,6\n").unwrap();
    writer.delete(&(10..100).collect::<Vec<u64>>()).unwrap();
    let done = compact(&mut writer, 1 << 20, 0.1);
    assert_eq!((done.shards_before, done.shards, done.reclaimed), (2, 1, 90));
    assert!(done.shard_bytes < done.shard_bytes_before);
    let shard = writer.dataset().parts()[0].shard();
    assert_eq!((shard.index().sa_sampling(), shard.index().isa_sampling()), (8, 64));
    assert_eq!(shard.records().ordered(), ["n"]);
    let query: Query = "n:5..6".parse().unwrap();
    let expected = (0..300).filter(|i| !(10..100).contains(i) && i % 7 >= 5).count() as u64 + 2;
    assert_eq!(writer.dataset().count(&query).unwrap(), expected);
    assert!(exported(writer.dataset()).starts_with(b"a,n\n0,0\n"));
}
