//! A bucket that was emptied, or swapped for another of its name.

use std::fs;
use std::time::Duration;

use origin::marker::{Claim, FolderKind};
use origin::{Attributes, Error, IdentityRecord, Origin, S3};

use super::Store;
use super::early::Tap;
use crate::origin::{key, read, run, staged, write};

/// Puts an empty bucket in the place of the one that an origin has just looked at.
fn swap(store: &Store, origin: &S3) {
    run(origin.check()).unwrap();
    fs::rename(store.bucket(), store.bucket().with_file_name("away")).unwrap();
    fs::create_dir(store.bucket()).unwrap();
}

/// Puts the bucket back that [`swap`] took away, and has the origin look at it.
fn restore(store: &Store, origin: &S3) {
    fs::remove_dir_all(store.bucket()).unwrap();
    fs::rename(store.bucket().with_file_name("away"), store.bucket()).unwrap();
    run(origin.check()).unwrap();
}

#[test]
fn an_emptied_or_another_bucket_is_lost_and_not_one_without_objects() {
    const TEST: &str =
        "origin_s3::lost::an_emptied_or_another_bucket_is_lost_and_not_one_without_objects";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    run(write(&origin, "a", b"x", Attributes::default()));
    assert!(run(origin.head(&key("none"))).unwrap().is_none());
    assert_eq!(run(origin.list(b"", None, 9)).unwrap().len(), 1, "the marker is listed");
    let lost = |part: &str| {
        let head = run(origin.head(&key("a"))).map(|_| ());
        assert!(matches!(&head, Err(Error::Lost(text)) if text.contains(part)), "{head:?}");
        let read = run(origin.get(&key("a"), None)).map(|_| ());
        assert!(matches!(&read, Err(Error::Lost(text)) if text.contains(part)), "{read:?}");
        std::thread::sleep(Duration::from_millis(2100));
        let check = run(origin.check());
        assert!(matches!(&check, Err(Error::Lost(text)) if text.contains(part)), "{check:?}");
        let put = run(async { staged(&origin, "b", b"x").await.commit(None).await });
        assert!(matches!(&put, Err(Error::Lost(text)) if text.contains(part)), "{put:?}");
    };
    let away = store.bucket().with_file_name("away");
    // From the first moment: no look of before is believed by what changes objects, or lists them.
    let unlisted = || swap(&store, &origin);
    let back = || restore(&store, &origin);
    unlisted();
    let put = run(async { staged(&origin, "b", b"x").await.commit(None).await });
    assert!(matches!(&put, Err(Error::Lost(_))), "{put:?}");
    back();
    unlisted();
    let deleted = run(origin.delete(&key("a")));
    assert!(matches!(&deleted, Err(Error::Lost(_))), "{deleted:?}");
    back();
    unlisted();
    let listed = run(origin.list(b"", None, 9)).map(|listed| listed.len());
    assert!(matches!(&listed, Err(Error::Lost(_))), "{listed:?}");
    back();
    fs::rename(store.bucket(), &away).unwrap();
    fs::create_dir(store.bucket()).unwrap();
    lost("is missing");
    // A bucket of another origin.
    drop(store.open());
    lost("another number");
    fs::remove_dir_all(store.bucket()).unwrap();
    fs::rename(&away, store.bucket()).unwrap();
    run(origin.check()).unwrap();
    assert_eq!(run(read(&origin, "a", None)), b"x");
}

/// A restart finds what a running process finds: nothing is made in a bucket that is not the one that was served.
#[test]
fn a_process_that_remembers_its_bucket_waits_for_it() {
    const TEST: &str = "origin_s3::lost::a_process_that_remembers_its_bucket_waits_for_it";
    let Some(store) = Store::start(TEST) else { return };
    let device = store.folder.path().join("device");
    let open = || {
        let record = IdentityRecord::default();
        record.remember_folder(&device, None).unwrap();
        Claim::new(FolderKind::Device, None).take(&device).unwrap();
        record.add_folder(&device);
        S3::open_recorded(&store.config(), record.into()).unwrap()
    };
    let origin = open();
    run(write(&origin, "a", b"old", Attributes::default()));
    let id = origin.id();
    drop(origin);
    let away = store.bucket().with_file_name("away");
    fs::rename(store.bucket(), &away).unwrap();
    fs::create_dir(store.bucket()).unwrap();
    let lost = |origin: &S3, what: &str| {
        let is_lost = |error: Option<Error>| {
            assert!(matches!(error, Some(Error::Lost(_))), "{what}: {error:?}")
        };
        is_lost(run(origin.head(&key("a"))).err());
        is_lost(run(origin.get(&key("a"), None)).err());
        is_lost(run(origin.list(b"", None, 9)).err());
        is_lost(run(origin.delete(&key("a"))).err());
        is_lost(run(origin.check()).err());
        is_lost(run(async { staged(origin, "b", b"x").await.commit(None).await }).err());
        assert_eq!(origin.id(), None);
    };
    let origin = open();
    lost(&origin, "emptied");
    assert_eq!(fs::read_dir(store.bucket()).unwrap().count(), 0, "nothing was made in it");
    // Another origin's bucket, with an object of the same key.
    let other = store.open();
    run(write(&other, "a", b"another's", Attributes::default()));
    lost(&origin, "another");
    lost(&open(), "another at the start");
    fs::remove_dir_all(store.bucket()).unwrap();
    fs::rename(&away, store.bucket()).unwrap();
    assert_eq!(run(read(&origin, "a", None)), b"old", "without a restart");
    assert_eq!(origin.id(), id);
}

/// A write that names the etag of an acknowledged one needs no look at the bucket, and is refused by any other bucket. One that
/// names what was read from another bucket a moment ago looks, and is not acknowledged.
#[test]
fn a_write_that_names_what_was_there_needs_no_look() {
    const TEST: &str = "origin_s3::lost::a_write_that_names_what_was_there_needs_no_look";
    let Some(store) = Store::start(TEST) else { return };
    let tap = Tap::before(&store);
    let origin = tap.open();
    let put = |name: &str, body: &'static [u8]| {
        run(async { staged(&origin, name, body).await.commit(None).await })
    };
    let looks_of = |name: &str, body| {
        let before = tap.looks();
        put(name, body).unwrap();
        tap.looks() - before
    };
    assert_eq!(looks_of("a", b"1"), 1, "nothing is known of it");
    // A look of over two seconds ago is made again before any write: a second attempt finds one of a moment ago.
    let spared = |body| (0..3).any(|_| looks_of("a", body) == 0);
    assert!(spared(b"2") && spared(b"3"));
    assert_eq!(run(read(&origin, "a", None)), b"3");
    let swap = || swap(&store, &origin);
    let back = || restore(&store, &origin);
    swap();
    let written = put("a", b"emptied");
    assert!(matches!(&written, Err(Error::Lost(_))), "{written:?}");
    back();
    assert_eq!(run(read(&origin, "a", None)), b"3");
    let read_again = || run(async { origin.get(&key("a"), None).await.map(|_| ()) });
    swap();
    let other = store.open();
    run(write(&other, "a", b"another's", Attributes::default()));
    let _ = read_again();
    let written = put("a", b"4");
    assert!(matches!(&written, Err(Error::Lost(_))), "{written:?}");
    back();
    assert_eq!(run(read(&origin, "a", None)), b"3");
    put("a", b"5").unwrap();
    assert_eq!(run(read(&origin, "a", None)), b"5");
}
