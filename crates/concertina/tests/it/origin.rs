//! The behaviour that every origin has, run against the folder.

use bytes::Bytes;
use concertina::origin::{Attributes, BoxFuture, Chunks, Error, Folder, Metadata, Origin, Whole};
use engine::Key;

use crate::serve_client::bytes;

fn key(name: &str) -> Key {
    Key::from(name.as_bytes())
}

/// An upload in pieces that may break off.
struct Pieces(Vec<Result<Bytes, Error>>);

impl Chunks for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Box::pin(std::future::ready(next))
    }
    fn bytes_left(&self) -> Option<u64> {
        None
    }
}

async fn write(origin: &dyn Origin, name: &str, body: &[u8], attributes: Attributes) -> Metadata {
    let mut body = Whole::new(Bytes::copy_from_slice(body));
    let staged = origin.stage(&key(name), attributes, &mut body).await.unwrap();
    let metadata = staged.metadata().clone();
    staged.commit().await.unwrap();
    metadata
}

async fn read(origin: &dyn Origin, name: &str, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let mut found = origin.get(&key(name), range).await.unwrap().unwrap();
    let mut all = Vec::new();
    while let Some(piece) = found.body.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    all
}

/// What an origin does, whichever it is. It must be empty.
pub async fn suite(origin: &dyn Origin) {
    let plain = Attributes::default;
    assert!(origin.head(&key("a")).await.unwrap().is_none());
    assert!(origin.get(&key("a"), None).await.unwrap().is_none());
    assert!(!origin.delete(&key("a")).await.unwrap());

    for size in [0usize, 1, 100, 256 << 10, (256 << 10) + 1, 3_000_000] {
        let body = bytes(size as u64, size);
        let metadata = write(origin, "sizes", &body, plain()).await;
        assert_eq!(metadata.size, size as u64);
        assert!(read(origin, "sizes", None).await == body, "{size}");
        assert_eq!(origin.head(&key("sizes")).await.unwrap().unwrap(), metadata);
        let n = size as u64;
        for range in [0..n, 0..n / 2, n / 3..n, n / 2..n + 10, n..n + 5] {
            let part = read(origin, "sizes", Some(range.clone())).await;
            let (start, end) = (range.start.min(n) as usize, range.end.min(n) as usize);
            assert!(part == body[start..end], "{range:?} of {size}");
        }
    }

    let attributes = Attributes {
        content_type: Some("text/plain".to_owned()),
        user: vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "ü".to_owned())],
    };
    let first = write(origin, "attributes", b"x", attributes.clone()).await;
    assert_eq!(origin.head(&key("attributes")).await.unwrap().unwrap().attributes, attributes);
    let again = write(origin, "attributes", b"x", attributes).await;
    assert_eq!(first.etag, again.etag, "the version is of bytes and attributes alone");
    let other = write(origin, "attributes", b"x", plain()).await;
    assert_ne!(first.etag, other.etag);

    // What is staged and not committed, or breaks off, is not there.
    let old = write(origin, "kept", b"old", plain()).await;
    let large = Bytes::from(bytes(1, 1 << 20));
    let mut body = Whole::new(large.clone());
    drop(origin.stage(&key("kept"), plain(), &mut body).await.unwrap());
    let broken = || Err(Error::Upload("as the test asked".to_owned()));
    for pieces in [vec![broken()], vec![Ok(large.clone()), Ok(large), broken()]] {
        let staged = origin.stage(&key("kept"), plain(), &mut Pieces(pieces)).await;
        assert!(matches!(staged, Err(Error::Upload(_))));
    }
    assert_eq!(origin.head(&key("kept")).await.unwrap().unwrap().etag, old.etag);

    // A reader keeps the version that it began with.
    let before = bytes(5, 2_000_000);
    write(origin, "replaced", &before, plain()).await;
    let mut found = origin.get(&key("replaced"), None).await.unwrap().unwrap();
    let mut all = found.body.next().await.unwrap().unwrap().to_vec();
    write(origin, "replaced", &bytes(6, 2_000_000), plain()).await;
    assert!(origin.delete(&key("replaced")).await.unwrap());
    while let Some(piece) = found.body.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    assert!(all == before);

    for name in ["sizes", "attributes", "kept"] {
        assert!(origin.delete(&key(name)).await.unwrap());
        assert!(origin.head(&key(name)).await.unwrap().is_none());
    }
    listing(origin).await;
}

async fn listing(origin: &dyn Origin) {
    let long = "p/".to_owned() + &"long".repeat(200);
    let names = ["a", "p/1", "p/2", "p/3", "p0", "~", "ä", &long];
    for name in names {
        write(origin, name, name.as_bytes(), Attributes::default()).await;
    }
    let mut sorted = names.map(key);
    sorted.sort();
    let list = async |prefix: &str, after: Option<&str>, limit: usize| -> Vec<Key> {
        let listed = origin.list(prefix.as_bytes(), after.map(str::as_bytes), limit).await.unwrap();
        for one in &listed {
            assert_eq!(one.metadata.size, one.key.len() as u64);
        }
        listed.into_iter().map(|one| one.key).collect()
    };
    assert_eq!(list("", None, 100).await, sorted);
    assert_eq!(list("", None, 3).await, sorted[..3]);
    let below = [key("p/1"), key("p/2"), key("p/3"), key(&long)];
    assert_eq!(list("p/", None, 100).await, below);
    assert_eq!(list("p/", Some("p/2"), 1).await, below[2..3]);
    assert_eq!(list("p/", Some("q"), 9).await, []);
    assert_eq!(list(&long, None, 9).await, below[3..]);
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_folder_behaves_as_an_origin() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 2).unwrap();
    run(suite(&origin));
    assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_folder_keeps_objects_and_clears_what_a_crash_left() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1).unwrap();
    let metadata = run(write(&origin, "a", b"1", Attributes::default()));
    assert!(Folder::open(folder.path(), 1).is_err(), "two processes share a folder");
    drop(origin);
    std::fs::write(folder.path().join("tmp/77"), b"cut off").unwrap();
    let origin = loop {
        // The last worker lets go of the lock a moment after the origin is dropped.
        match Folder::open(folder.path(), 1) {
            Ok(origin) => break origin,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
    assert_eq!(run(origin.head(&key("a"))).unwrap().unwrap(), metadata);
}

#[test]
fn damage_is_an_error_and_never_other_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1).unwrap();
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
