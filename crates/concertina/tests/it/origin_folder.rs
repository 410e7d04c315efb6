//! What the folder origin does about damaged files, strangers' files, and names that change while they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use origin::{Attributes, Condition, Error, Fence, Folder, Origin, Sharing, SingleChunk};

use crate::origin::{key, read, run, write};
use crate::serve_client::bytes;

#[test]
fn damage_is_an_error_and_never_other_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1, Sharing::Alone).unwrap();
    let body = bytes(1, 300);
    run(write(&origin, "a", &body, Attributes::default()));
    let shard = format!("{:.2}", blake3::hash(b"a").to_hex());
    let path = folder.path().join(shard).join("a");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        let got = run(origin.get(&key("a"), None));
        assert!(matches!(got, Err(Error::Damaged(_))), "byte {at}: {got:?}");
    }
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(run(origin.head(&key("a"))).is_err(), "{length} bytes");
    }
}

/// On tmpfs a name that is replaced while the folder is read may be met at neither of its places.
#[test]
fn a_listing_has_every_object_while_they_are_overwritten() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let origin = Folder::open(folder.path(), 2, Sharing::Alone).unwrap();
    // In one folder XX, where a name is replaced often while it is read.
    let names: Vec<String> = (0..)
        .map(|i| format!("{i}"))
        .filter(|name| blake3::hash(name.as_bytes()).as_bytes()[0] == 7)
        .take(300)
        .collect();
    for name in &names {
        run(write(&origin, name, b"x", Attributes::default()));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for name in names.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                run(write(&origin, name, b"y", Attributes::default()));
            }
        });
        for _ in 0..40 {
            assert_eq!(run(origin.list(b"", None, 1000)).unwrap().len(), names.len());
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A mirror of the listing would remove the only good copy of what is missing in it; and a write heals it, whoever orders the
/// key's writes.
#[test]
fn a_damaged_object_is_listed_and_can_be_written_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1, Sharing::Alone).unwrap();
    let fence: Fence = Arc::new(|| true);
    let written = async |body: &'static [u8]| {
        let mut body = SingleChunk::new(Bytes::from_static(body));
        let mut staged = origin.stage(&key("b"), Attributes::default(), &mut body).await?;
        staged.fence(fence.clone());
        staged.commit(None).await
    };
    for name in ["a", "b", "c"] {
        run(write(&origin, name, b"whole", Attributes::default()));
    }
    let shard = format!("{:.2}", blake3::hash(b"b").to_hex());
    let path = folder.path().join(shard).join("b");
    for length in [0, 1, 30] {
        std::fs::write(&path, vec![0; length]).unwrap();
        let listed = run(origin.list(b"", None, 9)).unwrap();
        let found: Vec<_> = listed.iter().map(|one| one.key.clone()).collect();
        assert_eq!(found, ["a", "b", "c"].map(key));
        assert!(listed[1].metadata.size == length as u64, "{:?}", listed[1]);
        assert!(listed[1].metadata.etag.starts_with("damaged-"), "{:?}", listed[1]);
        assert!(matches!(run(origin.head(&key("b"))), Err(Error::Damaged(_))));
        // A client's condition cannot be judged.
        let mut body = SingleChunk::new(Bytes::from_static(b"new"));
        let staged = run(origin.stage(&key("b"), Attributes::default(), &mut body)).unwrap();
        let refused = run(staged.commit(Some(Condition::Absent)));
        assert!(matches!(refused, Err(Error::Damaged(_))), "{refused:?}");
        run(written(b"healed")).unwrap();
        assert_eq!(run(read(&origin, "b", None)), b"healed");
    }
    std::fs::write(&path, b"").unwrap();
    assert!(run(origin.delete_fenced(&key("b"), fence.clone())).unwrap());
    assert!(run(origin.head(&key("b"))).unwrap().is_none() && !path.exists());
    // Who has lost the key's order writes nothing over a damaged file either.
    std::fs::write(&path, b"").unwrap();
    let lost = run(origin.delete_fenced(&key("b"), Arc::new(|| false)));
    assert!(matches!(lost, Err(Error::Fenced(_))) && path.exists(), "{lost:?}");
    // Nor over what another wrote after the look.
    let other = {
        let path = path.clone();
        Arc::new(move || std::fs::write(&path, b"another's").is_ok())
    };
    let changed = run(origin.delete_fenced(&key("b"), other));
    assert!(matches!(changed, Err(Error::Condition(_))) && path.exists(), "{changed:?}");
}

#[test]
fn what_is_not_a_file_among_the_objects_holds_up_no_listing() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1, Sharing::Alone).unwrap();
    run(write(&origin, "a", b"x", Attributes::default()));
    let place = |key: &str| {
        let shard = format!("{:.2}", blake3::hash(key.as_bytes()).to_hex());
        folder.path().join(shard).join(key)
    };
    std::fs::create_dir(place("folder")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", place("endless")).unwrap();
    let listed = run(origin.list(b"", None, 9)).unwrap();
    assert_eq!(listed.into_iter().map(|one| one.key).collect::<Vec<_>>(), [key("a")]);
    for name in ["folder", "pipe", "endless"] {
        let got = run(origin.get(&key(name), None));
        assert!(
            matches!(&got, Err(Error::Damaged(text)) if text.contains("not a regular file")),
            "{got:?}"
        );
    }
}
