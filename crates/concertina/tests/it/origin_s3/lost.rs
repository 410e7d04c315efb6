//! A bucket that was emptied, or swapped for another of its name.

use std::fs;
use std::time::Duration;

use origin::{Attributes, Error, Origin};

use super::Store;
use crate::origin::{key, read, run, staged, write};

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
