use super::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn open(folder: &Path, me: Option<&str>) -> Result<Folder, String> {
    Folder::open(folder, me).map_err(|error| error.to_string())
}

#[test]
fn strangers_files_beside_segments_survive() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("device");
    drop(open(&folder, None).unwrap());
    // Names like those of segments and of temporary files, and others.
    let strangers = ["1.seg", "photo.tmp", "notes.txt", "00000001.jpg", ".hidden"];
    for name in strangers {
        fs::write(folder.join(name), "precious").unwrap();
    }
    fs::create_dir_all(folder.join("photos.tmp")).unwrap();
    for own in ["00000001.tmp", "summary.tmp", "00000002.seg"] {
        fs::write(folder.join(own), "").unwrap();
    }
    let opened = open(&folder, None).unwrap();
    assert!(opened.find().unwrap().is_empty());
    for name in strangers {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "precious", "{name}");
    }
    assert!(folder.join("photos.tmp").is_dir());
    let left = names(&folder);
    assert!(
        !left.iter().any(|name| name.starts_with("0000000") && name != "00000001.jpg"),
        "{left:?}"
    );
}

#[test]
fn a_folder_with_strangers_in_it_is_not_taken() {
    for name in ["photo.tmp", "notes.txt", "1.seg"] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(name), "precious").unwrap();
        let error = open(root.path(), None).err().unwrap();
        assert!(error.contains("did not make this folder") && error.contains(name), "{error}");
        assert_eq!(names(root.path()), [name], "nothing was changed");
        let why = Folder::open(root.path(), None).err().unwrap();
        assert!(
            !matches!(why, Error::Unusable(_)),
            "a mistake of the configuration ends the start"
        );
    }
}

#[test]
fn folders_of_earlier_versions_are_known_by_their_files_and_their_owner() {
    let root = tempfile::tempdir().unwrap();
    let earlier = |name: &str, owner: Option<&[u8]>| {
        let folder = root.path().join(name);
        fs::create_dir(&folder).unwrap();
        for file in ["lock", "00000001.seg", "00000001.idx", "summary", "probe.tmp"] {
            fs::write(folder.join(file), "").unwrap();
        }
        if let Some(owner) = owner {
            fs::write(folder.join("owner"), owner).unwrap();
        }
        folder
    };
    drop(open(&earlier("alone", None), None).unwrap());
    drop(open(&earlier("joins", None), Some("a")).unwrap());
    drop(open(&earlier("member", Some(b"a\n")), Some("a")).unwrap());
    let refused = |folder: &Path, me: Option<&str>, part: &str| {
        let why = Folder::open(folder, me).err().unwrap();
        assert!(matches!(why, Error::Unusable(_)) && why.to_string().contains(part), "{why}");
        assert!(!folder.join(origin::marker::NAME).exists());
    };
    let others = earlier("other", Some(b"b\n"));
    refused(&others, Some("a"), "belongs to the node \"b\", not to \"a\"");
    refused(&others, None, "this node is in no cluster");
    let damaged = earlier("damaged", Some(b"\xff\0"));
    refused(&damaged, Some("a"), "remove it with all its content");
}

#[test]
fn the_owner_in_the_marker_decides_from_then_on() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path(), Some("a")).unwrap());
    drop(open(root.path(), Some("a")).unwrap());
    for me in [Some("b"), None] {
        let why = Folder::open(root.path(), me).err().unwrap();
        assert!(
            matches!(why, Error::Unusable(_)) && why.to_string().contains("node \"a\""),
            "{why}"
        );
    }
    fs::write(root.path().join(origin::marker::NAME), "kind = ").unwrap();
    let why = open(root.path(), Some("a")).err().unwrap();
    assert!(why.contains("is damaged") && why.contains("copies only"), "{why}");
}

/// A segment whose writer ended before it was sealed, at a start on a full disk: a folder of the index's name keeps it
/// from being written, as a full disk does. The segment was removed as one that cannot be read.
#[test]
fn a_segment_whose_index_cannot_be_written_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("device");
    let opened = open(&folder, None).unwrap();
    let (size, etag) = (4, "0123456789abcdef0123456789abcdef".into());
    let attributes = origin::Attributes::default();
    let metadata = origin::Metadata { size, etag, modified_unix_us: 1, attributes };
    let key = ground::Key::from(b"key".as_slice());
    let mut record = crate::disk::record::head(1, &key, &metadata.encode(), b"data");
    record.extend_from_slice(b"data");
    fs::write(folder.join("00000001.seg"), &record).unwrap();
    fs::create_dir(folder.join("00000001.idx")).unwrap();
    for _ in 0..2 {
        let found = opened.find().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].number, found[0].records.len()), (1, 1));
        assert_eq!(opened.entries(1)[0].key, key);
    }
    assert_eq!(fs::read(folder.join("00000001.seg")).unwrap(), record);
}
