use std::fs;

use super::*;

const ONE: &str = "0123456789abcdef";
const TWO: &str = "fedcba9876543210";

/// The paths of all files and of empty folders below a folder.
fn all_in(folder: &Path) -> Vec<String> {
    fn add(root: &Path, folder: &Path, all: &mut Vec<String>) {
        let before = all.len();
        for path in paths_in(folder).unwrap() {
            match is_folder(&path) {
                true => add(root, &path, all),
                false => all.push(path.strip_prefix(root).unwrap().display().to_string()),
            }
        }
        if all.len() == before && folder != root {
            all.push(folder.strip_prefix(root).unwrap().display().to_string());
        }
    }
    let mut all = Vec::new();
    add(folder, folder, &mut all);
    all.sort();
    all
}

fn put(root: &Path, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "precious").unwrap();
}

/// A client that pushed `photos` once had the other subfolders of `photos` removed.
#[test]
fn strangers_files_survive_new_versions_wherever_they_lie() {
    let root = tempfile::tempdir().unwrap();
    let copies = root.path();
    let opened = Copies::open(copies, None).unwrap();
    for path in ["photos/2024/a.jpg", "photos/b.jpg", "photos/.fetching-abcdef", "other/c.jpg"] {
        put(copies, path);
    }
    // A folder of a version's name that this project did not make.
    put(copies, &format!("photos/{TWO}/000001.shard"));
    let before = all_in(copies);
    let folder = CopyFolder::create(copies, "photos", ONE).unwrap();
    put(folder.path(), "000001.shard");
    put(folder.path(), ".fetching-abcdef");
    put(folder.path(), "d.jpg");
    put(folder.path(), "deep/000002.shard");
    let error = CopyFolder::create(copies, "photos", TWO).unwrap_err();
    assert!(error.to_string().contains("\"000001.shard\""), "{error}");
    assert!(CopyFolder::find(copies, "photos", TWO).is_none());
    // Another version: of the first, only its own files go.
    CopyFolder::create(copies, "photos", "00000000000000aa").unwrap();
    let mut after = before;
    after.push("photos/00000000000000aa/.concertina".to_owned());
    after.extend(
        [".concertina", "d.jpg", "deep/000002.shard"].map(|it| format!("photos/{ONE}/{it}")),
    );
    after.sort();
    assert_eq!(all_in(copies), after);
    drop(opened);
    Copies::open(copies, None).unwrap();
    assert_eq!(all_in(copies), after, "a start removes none of it");
}

#[test]
fn an_earlier_version_and_its_temporary_files_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let first = CopyFolder::create(root.path(), "d", ONE).unwrap();
    for file in ["000001.shard", "1000000.shard", ".fetching-abcdef", ".writing-abcdef"] {
        put(first.path(), file);
    }
    let again = CopyFolder::create(root.path(), "d", ONE).unwrap();
    assert!(!again.path().join(".fetching-abcdef").exists());
    CopyFolder::create(root.path(), "d", TWO).unwrap();
    assert_eq!(all_in(root.path()), [format!("d/{TWO}/.concertina")]);
}

#[test]
fn only_a_shard_of_a_marked_folder_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let folder = CopyFolder::create(root.path(), "d", ONE).unwrap();
    for file in ["000001.shard", "1.shard", "a.jpg"] {
        put(folder.path(), file);
    }
    put(root.path(), "000001.shard");
    fs::create_dir(folder.path().join("000002.shard")).unwrap();
    let found = CopyFolder::find(root.path(), "d", ONE).unwrap();
    for file in
        ["1.shard", "a.jpg", ".concertina", "../../000001.shard", "000002.shard", "000003.shard"]
    {
        assert!(!found.remove(file).unwrap(), "{file}");
    }
    assert!(found.remove("000001.shard").unwrap());
    assert_eq!(all_in(folder.path()), [".concertina", "000002.shard", "1.shard", "a.jpg"]);
    assert!(root.path().join("000001.shard").exists());
}

#[test]
fn names_that_would_lead_elsewhere_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let copies = root.path().join("copies");
    fs::create_dir(&copies).unwrap();
    for (name, id) in [("..", ONE), ("a/b", ONE), (".sealing-abcdef", ONE), ("d", ".."), ("d", "x")]
    {
        assert!(CopyFolder::create(&copies, name, id).is_err(), "{name}/{id}");
    }
    assert_eq!(all_in(&copies), <[String; 0]>::default());
}

#[test]
fn a_folder_with_something_else_in_it_is_refused_and_unchanged() {
    for path in [
        "a.jpg",
        "photos/2024/a.jpg",
        "photos/a.jpg",
        "d/0123456789abcdef/a.jpg",
        "d/0123456789abcdef/1.shard",
        ".sealing-abcdef/a.jpg",
        ".sealing-notes/000001.shard",
        "lock",
    ] {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), &format!("d/{TWO}/000001.shard"));
        put(root.path(), path);
        let before = all_in(root.path());
        let error = Copies::open(root.path(), None).unwrap_err().to_string();
        let entry = path.split('/').next().unwrap();
        assert!(error.contains(entry) && error.contains("did not make"), "{path}: {error}");
        assert_eq!(all_in(root.path()), before, "{path}");
    }
}

#[test]
fn a_folder_of_an_earlier_version_is_adopted_with_its_copies() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), &format!("d/{ONE}/000001.shard"));
    put(root.path(), &format!("d/{ONE}/.fetching-abcdef"));
    put(root.path(), ".sealing-abcdef/000002.shard");
    fs::create_dir(root.path().join("empty")).unwrap();
    let opened = Copies::open(root.path(), Some("a")).unwrap();
    assert!(!root.path().join(".sealing-abcdef").exists());
    let folder = CopyFolder::find(root.path(), "d", ONE).expect("it is marked");
    assert!(folder.path().join("000001.shard").exists());
    let error = Copies::open(root.path(), Some("a")).unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
    drop(opened);
    let error = Copies::open(root.path(), Some("b")).unwrap_err().to_string();
    assert!(error.contains("belongs to the node \"a\""), "{error}");
}

#[test]
fn a_seal_leaves_nothing_and_removes_only_its_own() {
    let root = tempfile::tempdir().unwrap();
    let seal = SealFolder::create(root.path()).unwrap();
    put(seal.path(), "000001.shard");
    drop(seal);
    assert_eq!(all_in(root.path()), <[String; 0]>::default());
    let seal = SealFolder::create(root.path()).unwrap();
    let path = seal.path().to_owned();
    put(&path, "000001.shard");
    put(&path, "a.jpg");
    drop(seal);
    assert_eq!(all_in(&path), [".concertina", "a.jpg"]);
    // One that a crash left is removed by the next start, a stranger's of such a name is not.
    std::mem::forget(SealFolder::create(root.path()).unwrap());
    drop(Copies::open(root.path(), None).unwrap());
    assert_eq!(all_in(&path), [".concertina", "a.jpg"]);
    fs::remove_file(path.join("a.jpg")).unwrap();
    drop(Copies::open(root.path(), None).unwrap());
    assert_eq!(all_in(root.path()), [".concertina", "lock"]);
    put(root.path(), ".sealing-0123456789abcdef/000001.shard");
    drop(Copies::open(root.path(), None).unwrap());
    assert!(root.path().join(".sealing-0123456789abcdef/000001.shard").exists());
}
