use proptest::prelude::*;

use super::*;

fn claim(owner: Option<&str>) -> Claim<'_> {
    Claim::new(FolderKind::Device, owner)
}

fn refused(what: Result<Marker, Unclaimed>, part: &str) {
    let error = what.expect_err(part).to_string();
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
fn a_folder_is_claimed_once_and_known_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("new/one");
    let marker = claim(None).take(&folder).unwrap();
    assert_eq!((marker.kind, &marker.owner, marker.id.len()), (FolderKind::Device, &None, 32));
    assert_eq!(claim(None).take(&folder).unwrap(), marker);
    assert_eq!(names(&folder), [NAME]);
    let text = fs::read_to_string(folder.join(NAME)).unwrap();
    assert!(text.contains("kind = \"device\""), "{text}");
    // A node alone that becomes a member keeps its folder, and nobody else gets it from then on.
    let member = claim(Some("a")).take(&folder).unwrap();
    assert_eq!((&member.id, member.owner.as_deref()), (&marker.id, Some("a")));
    refused(claim(Some("b")).take(&folder), "belongs to the node \"a\", not to \"b\"");
    refused(claim(None).take(&folder), "this node is in no cluster");
    let other = Claim::new(FolderKind::Copies, Some("a")).take(&folder);
    refused(other, "for a device's segments, not for copies of datasets");
}

#[test]
fn what_the_origin_is_survives_a_change_of_the_owner() {
    let root = tempfile::tempdir().unwrap();
    let mut marker = claim(None).take(root.path()).unwrap();
    marker.origin = Some(OriginId::new(7));
    marker.write(root.path()).unwrap();
    assert_eq!(claim(Some("a")).take(root.path()).unwrap().origin, Some(OriginId::new(7)));
}

#[test]
fn a_folder_with_strangers_in_it_is_refused_and_unchanged() {
    for name in ["photo.jpg", ".hidden", "lock", "00000001.seg", "tmp"] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(name), "precious").unwrap();
        refused(claim(None).take(root.path()), "did not make this folder");
        refused(claim(Some("a")).take(root.path()), name);
        assert_eq!(names(root.path()), [name]);
    }
}

#[test]
fn what_file_systems_and_unfinished_starts_leave_is_not_a_strangers() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("lost+found")).unwrap();
    fs::write(root.path().join("lock"), "").unwrap();
    fs::write(root.path().join(".concertina-0123456789abcdef"), "# cut o").unwrap();
    claim(None).take(root.path()).unwrap();
}

#[test]
fn a_folder_of_an_earlier_version_is_claimed_if_it_holds_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let is_earlier = |path: &Path| path.extension().is_some_and(|it| it == "seg");
    let earlier = Claim { is_earlier: &is_earlier, ..claim(None) };
    fs::write(root.path().join("00000001.seg"), "").unwrap();
    fs::write(root.path().join("notes"), "").unwrap();
    refused(earlier.take(root.path()), "\"notes\"");
    fs::remove_file(root.path().join("notes")).unwrap();
    earlier.take(root.path()).unwrap();
}

#[test]
fn a_damaged_marker_is_an_error_that_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(NAME);
    for text in ["", "kind = 1", "\u{0}", "format = 2\nkind = \"device\"\nid = \"\"", "format = 1"]
    {
        fs::write(&path, text).unwrap();
        refused(claim(None).take(root.path()), "is damaged");
    }
    fs::write(&path, [0xff; 9]).unwrap();
    refused(claim(None).take(root.path()), "cannot read");
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    refused(claim(None).take(root.path()), "not a file");
}

#[test]
fn only_own_files_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("copy");
    let is_own = |name: &str| name.ends_with(".shard");
    let remove = |kind| remove_own(&folder, kind, &is_own).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("1.shard"), "").unwrap();
    assert!(!remove(FolderKind::Copy), "without a marker it is a stranger's");
    fs::remove_file(folder.join("1.shard")).unwrap();
    Claim::new(FolderKind::Copy, None).take(&folder).unwrap();
    fs::write(folder.join("1.shard"), "").unwrap();
    assert!(!remove(FolderKind::Device), "a marker of another kind");
    assert_eq!(names(&folder), [NAME, "1.shard"]);
    // Strangers: a file, a folder of an own file's name, and a link of such a name.
    fs::write(folder.join("a.jpg"), "precious").unwrap();
    fs::create_dir(folder.join("2.shard")).unwrap();
    fs::write(folder.join("2.shard/b.jpg"), "precious").unwrap();
    fs::write(root.path().join("c.jpg"), "precious").unwrap();
    std::os::unix::fs::symlink(root.path().join("c.jpg"), folder.join("3.shard")).unwrap();
    assert!(!remove(FolderKind::Copy));
    assert_eq!(names(&folder), [NAME, "2.shard", "3.shard", "a.jpg"]);
    assert!(root.path().join("c.jpg").exists() && folder.join("2.shard/b.jpg").exists());
    fs::remove_file(folder.join("a.jpg")).unwrap();
    fs::remove_dir_all(folder.join("2.shard")).unwrap();
    fs::remove_file(folder.join("3.shard")).unwrap();
    assert!(remove(FolderKind::Copy) && !folder.exists());
    assert!(root.path().join("c.jpg").exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever is in the file, reading it ends without a panic, and what is read is written as it was.
    #[test]
    fn any_bytes_are_a_marker_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        mutated in any::<bool>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(NAME);
        let mut text = bytes;
        if mutated {
            let mut marker = claim(Some("a")).take(root.path()).unwrap();
            marker.origin = Some(OriginId::new(7));
            marker.write(root.path()).unwrap();
            let valid = fs::read(&path).unwrap();
            let at = at.index(valid.len());
            text = [&valid[..at], &text[..text.len().min(3)], &valid[at..]].concat();
        }
        fs::write(&path, &text).unwrap();
        if let Ok(Some(marker)) = Marker::read(root.path()) {
            marker.write(root.path()).unwrap();
            prop_assert_eq!(Marker::read(root.path()).unwrap(), Some(marker));
        }
    }
}
