use std::fs;

use shard::record::{Format, Schema};

use super::super::manifest::Manifest;
use super::*;

/// Makes a dataset without records, with the given files beside.
fn dataset(folder: &Path, beside: &[&str]) {
    fs::create_dir_all(folder).unwrap();
    Manifest::new(Schema::new(Format::Lines)).write(folder).unwrap();
    for file in beside {
        fs::write(folder.join(file), "precious").unwrap();
    }
}

fn begin(datasets: &Path, replace: bool) -> Result<Draft> {
    Draft::begin(datasets, "importing", "d", replace)
}

fn refused<T>(what: Result<T>, part: &str) {
    let error = what.err().expect(part);
    let error = ground::with_causes(&error);
    assert!(error.contains(part), "{error}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_draft_is_published_and_replaces_a_dataset_of_any_version() {
    let root = tempfile::tempdir().unwrap();
    // The first to be replaced has no marker: earlier versions made none.
    dataset(&root.path().join("d"), &["000001.shard", "000000000001.log", ".writing-abcdef"]);
    for _ in 0..2 {
        let draft = begin(root.path(), true).unwrap();
        dataset(draft.path(), &[]);
        draft.publish().unwrap();
        assert_eq!(names(root.path()), ["d"]);
        assert_eq!(names(&root.path().join("d")), [".concertina", "dataset.json", "lock"]);
    }
    let draft = begin(root.path(), false).unwrap();
    dataset(draft.path(), &[]);
    refused(draft.publish(), "cannot create");
}

/// Whoever opens a dataset while it is replaced finds the old one or the new one, and so does whoever looks after a crash.
#[test]
fn a_dataset_is_there_at_every_moment_while_it_is_replaced() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("d");
    dataset(&place, &[]);
    let (over, missed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if !place.join(manifest::FILE).exists() {
                    missed.store(true, Ordering::Relaxed);
                }
            }
        });
        for _ in 0..200 {
            let draft = begin(root.path(), true).unwrap();
            dataset(draft.path(), &[]);
            draft.publish().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    // Where folders cannot be exchanged, there is such a moment.
    let (one, other) = (root.path().join("one"), root.path().join("other"));
    for (path, file) in [(&one, "1"), (&other, "2")] {
        fs::create_dir(path).unwrap();
        fs::write(path.join(file), "").unwrap();
    }
    let is_exchanged = exchange(&one, &other).unwrap();
    assert_eq!(is_exchanged, one.join("2").exists() && other.join("1").exists());
    assert!(!is_exchanged || !missed.load(Ordering::Relaxed));
    assert_eq!(names(root.path()), ["d", "one", "other"]);
}

#[test]
fn a_dataset_with_something_else_in_it_is_not_replaced() {
    for strange in ["notes.txt", "1.shard", "1.log", ".writing-x"] {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("d");
        dataset(&place, &[strange]);
        refused(begin(root.path(), true), strange);
        fs::remove_file(place.join(strange)).unwrap();
        // In one that is marked, too.
        claim().take(&place).unwrap();
        fs::write(place.join(strange), "precious").unwrap();
        refused(begin(root.path(), true), strange);
        assert_eq!(names(root.path()), ["d"], "nothing was begun");
        // And if it comes in during the work.
        fs::remove_file(place.join(strange)).unwrap();
        let draft = begin(root.path(), true).unwrap();
        fs::write(place.join(strange), "precious").unwrap();
        refused(draft.publish(), strange);
        assert!(place.join(strange).exists() && place.join(manifest::FILE).exists());
    }
}

#[test]
fn what_is_not_a_datasets_folder_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("d/2024")).unwrap();
    refused(begin(root.path(), true), "2024");
    fs::remove_dir_all(root.path().join("d")).unwrap();
    fs::write(root.path().join("d"), "precious").unwrap();
    refused(begin(root.path(), true), "not a folder");
    fs::remove_file(root.path().join("d")).unwrap();
    dataset(&root.path().join("real"), &[]);
    std::os::unix::fs::symlink(root.path().join("real"), root.path().join("d")).unwrap();
    refused(begin(root.path(), true), "a link");
    assert_eq!(names(root.path()), ["d", "real"]);
}

#[test]
fn leftovers_are_cleared_only_if_they_are_ours() {
    for folder in [".importing-d", ".replaced-d"] {
        let root = tempfile::tempdir().unwrap();
        let left = root.path().join(folder);
        dataset(&left, &["000001.shard", "a.jpg"]);
        refused(begin(root.path(), true), "a.jpg");
        assert_eq!(names(&left), ["000001.shard", "a.jpg", "dataset.json"]);
        fs::remove_file(left.join("a.jpg")).unwrap();
        let draft = begin(root.path(), true).unwrap();
        dataset(draft.path(), &[]);
        draft.publish().unwrap();
        assert_eq!(names(root.path()), ["d"]);
    }
}

#[test]
fn a_draft_that_is_discarded_leaves_what_others_put_there() {
    let root = tempfile::tempdir().unwrap();
    let draft = begin(root.path(), false).unwrap();
    fs::write(draft.path().join("000001.shard"), "").unwrap();
    draft.discard();
    assert_eq!(names(root.path()), <[String; 0]>::default());
    let draft = begin(root.path(), false).unwrap();
    fs::write(draft.path().join("000001.shard"), "").unwrap();
    fs::write(draft.path().join("a.jpg"), "precious").unwrap();
    let folder = draft.path().to_owned();
    draft.discard();
    assert_eq!(names(&folder), [".concertina", "a.jpg"]);
}
