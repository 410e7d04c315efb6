//! The behaviour that every origin has, run against the folder; `origin_s3` runs it against a store.

use bytes::Bytes;
use ground::Key;
use origin::{
    Attributes, BoxFuture, Chunks, Condition, Entry, Error, Folder, KeyRange, Metadata, Origin,
    Sharing, SingleChunk, Staged, behind,
};

use crate::serve_client::bytes;

pub fn key(name: &str) -> Key {
    Key::from(name.as_bytes())
}

/// An upload in pieces that may break off.
pub struct Pieces(pub Vec<Result<Bytes, Error>>);

impl Chunks for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Box::pin(std::future::ready(next))
    }
    fn bytes_left(&self) -> Option<u64> {
        None
    }
}

pub async fn write(
    origin: &dyn Origin,
    name: &str,
    body: &[u8],
    attributes: Attributes,
) -> Metadata {
    let mut body = SingleChunk::new(Bytes::copy_from_slice(body));
    let staged = origin.stage(&key(name), attributes, &mut body).await.unwrap();
    let metadata = staged.metadata().clone();
    staged.commit(None).await.unwrap();
    metadata
}

pub async fn read(origin: &dyn Origin, name: &str, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let mut found = origin.get(&key(name), range).await.unwrap().unwrap();
    let mut all = Vec::new();
    while let Some(piece) = found.body.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    all
}

/// What an origin does, whichever it is. It must be empty. `other` is the same place opened again, as by
/// another process, or the same origin.
pub async fn suite(origin: &dyn Origin, other: &dyn Origin) {
    sizes_and_ranges(origin, other).await;
    attributes(origin, other).await;
    staging(origin, other).await;
    conditions(origin, other).await;
    unusual_keys(origin, other).await;
    listing(origin, other).await;
}

fn plain() -> Attributes {
    Attributes::default()
}

async fn sizes_and_ranges(origin: &dyn Origin, other: &dyn Origin) {
    assert!(origin.head(&key("a")).await.unwrap().is_none());
    assert!(origin.get(&key("a"), None).await.unwrap().is_none());
    assert!(origin.get(&key("a"), Some(0..0)).await.unwrap().is_none());
    assert!(!origin.delete(&key("a")).await.unwrap());
    for size in [0usize, 1, 100, 256 << 10, (256 << 10) + 1, 3_000_000] {
        let body = bytes(size as u64, size);
        let metadata = write(origin, "sizes", &body, plain()).await;
        assert_eq!(metadata.size, size as u64);
        assert!(read(other, "sizes", None).await == body, "{size}");
        assert_eq!(other.head(&key("sizes")).await.unwrap().unwrap(), metadata);
        let n = size as u64;
        for range in [0..n, 0..n / 2, n / 3..n, n / 2..n + 10, n..n + 5] {
            let found = other.get(&key("sizes"), Some(range.clone())).await.unwrap().unwrap();
            assert_eq!(found.metadata, metadata, "{range:?} of {size}");
            let part = read(other, "sizes", Some(range.clone())).await;
            let (start, end) = (range.start.min(n) as usize, range.end.min(n) as usize);
            assert!(part == body[start..end], "{range:?} of {size}");
        }
    }
    assert!(origin.delete(&key("sizes")).await.unwrap());
    assert!(other.head(&key("sizes")).await.unwrap().is_none());
}

async fn attributes(origin: &dyn Origin, other: &dyn Origin) {
    let user = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
    };
    let typed = Attributes {
        content_type: Some("text/plain".to_owned()),
        user: user(&[("a", "1"), ("b", "ü"), ("c", "twice"), ("c", "two  spaces, 50 %25")]),
    };
    let first = write(origin, "attributes", b"x", typed.clone()).await;
    assert_eq!(other.head(&key("attributes")).await.unwrap().unwrap().attributes, typed);
    let again = write(other, "attributes", b"x", typed.clone()).await;
    assert_eq!(first.etag, again.etag, "the version is of bytes and attributes alone");
    let plainly = write(origin, "attributes", b"x", plain()).await;
    assert_ne!(first.etag, plainly.etag);
    let odd = Attributes {
        content_type: Some("text/ü".to_owned()),
        user: user(&[("concertina-version", "mine"), ("empty", "")]),
    };
    for attributes in [typed, plain(), odd] {
        let metadata = write(origin, "attributes", b"y", attributes.clone()).await;
        let found = other.get(&key("attributes"), None).await.unwrap().unwrap();
        assert_eq!(found.metadata, metadata);
        assert_eq!(found.metadata.attributes, attributes);
        assert_eq!(read(other, "attributes", None).await, b"y");
    }
    assert!(origin.delete(&key("attributes")).await.unwrap());
}

async fn staging(origin: &dyn Origin, other: &dyn Origin) {
    // What is staged and not committed, or breaks off, is not there.
    let old = write(origin, "kept", b"old", plain()).await;
    let large = Bytes::from(bytes(1, 1 << 20));
    let mut body = SingleChunk::new(large.clone());
    drop(origin.stage(&key("kept"), plain(), &mut body).await.unwrap());
    let broken = || Err(Error::Upload("as the test asked".to_owned()));
    for pieces in [vec![broken()], vec![Ok(large.clone()), Ok(large), broken()]] {
        let staged = origin.stage(&key("kept"), plain(), &mut Pieces(pieces)).await;
        assert!(matches!(staged, Err(Error::Upload(_))));
    }
    assert_eq!(other.head(&key("kept")).await.unwrap().unwrap().etag, old.etag);
    assert!(origin.delete(&key("kept")).await.unwrap());

    // A reader keeps the version that it began with.
    let before = bytes(5, 2_000_000);
    write(origin, "replaced", &before, plain()).await;
    let mut found = origin.get(&key("replaced"), None).await.unwrap().unwrap();
    let mut all = found.body.next().await.unwrap().unwrap().to_vec();
    write(other, "replaced", &bytes(6, 2_000_000), plain()).await;
    assert!(other.delete(&key("replaced")).await.unwrap());
    while let Some(piece) = found.body.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    assert!(all == before);
}

pub async fn staged(origin: &dyn Origin, name: &str, body: &[u8]) -> Box<dyn Staged> {
    let (start, end) = body.split_at(body.len() / 2);
    let pieces = [start, end].map(|piece| Ok(Bytes::copy_from_slice(piece)));
    origin.stage(&key(name), plain(), &mut Pieces(pieces.into())).await.unwrap()
}

async fn conditions(origin: &dyn Origin, other: &dyn Origin) {
    // Small ones are held in memory, large ones are not: the condition holds for both.
    for size in [10, 600_000] {
        let (one, two) = (bytes(1, size), bytes(2, size));
        let absent = || Some(Condition::Absent);
        let first = staged(origin, "c", &one).await;
        let etag = first.metadata().etag.clone();
        let none = Some(Condition::Is(etag.clone()));
        let error = staged(other, "c", &two).await.commit(none).await.unwrap_err();
        assert!(matches!(error, Error::Condition(_)), "{error}");
        first.commit(absent()).await.unwrap();
        let error = staged(other, "c", &two).await.commit(absent()).await.unwrap_err();
        assert!(matches!(error, Error::Condition(_)), "{error}");
        assert!(read(origin, "c", None).await == one);

        let second = staged(other, "c", &two).await;
        let later = second.metadata().etag.clone();
        second.commit(Some(Condition::Is(etag.clone()))).await.unwrap();
        assert!(read(origin, "c", None).await == two);
        let stale = staged(origin, "c", &one).await.commit(Some(Condition::Is(etag))).await;
        assert!(matches!(stale, Err(Error::Condition(_))), "{stale:?}");
        assert_eq!(origin.head(&key("c")).await.unwrap().unwrap().etag, later);
        assert!(other.delete(&key("c")).await.unwrap());
    }
    // Of many at once exactly one finds nothing there.
    let mut writes = Vec::new();
    for number in 0..8u8 {
        let at = if number % 2 == 0 { origin } else { other };
        writes.push(staged(at, "c", &[number]).await);
    }
    let commits = writes.into_iter().map(|write| write.commit(Some(Condition::Absent)));
    let results = futures_util::future::join_all(commits).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let lost = |result: &&Result<(), Error>| matches!(result, Err(Error::Condition(_)));
    assert_eq!(results.iter().filter(lost).count(), 7, "{results:?}");
    assert!(origin.delete(&key("c")).await.unwrap());
}

fn unusual_names() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        "/",
        "//",
        "a//b",
        "./x",
        "../x",
        "x/..",
        "u/",
        "/u",
        "100%.txt",
        "%2F",
        "a b",
        "tab\t",
        "nul\0",
        "ä",
        "!key/x",
        "!key",
        "~",
        "\u{feff}",
        "q?x=1&y#z",
        "back\\slash",
        "d/e/f",
        "d/e/g",
        "d/e.",
        "d-",
        "d/é//x",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    keys.extend([vec![0], vec![0xff; 3], vec![0xc3], vec![0xff; 1024], vec![b'k'; 1024]]);
    // Two keys that differ only far behind what a name holds.
    keys.extend([b'1', b'0'].map(|last| [&[0xfe; 1023][..], &[last]].concat()));
    keys
}

async fn unusual_keys(origin: &dyn Origin, other: &dyn Origin) {
    let mut keys = unusual_names();
    // Some stores have the markers of folders only without bytes.
    let body_of = |number: usize, name: &[u8]| match name {
        b"u/" => String::new(),
        _ => number.to_string(),
    };
    for (number, name) in keys.iter().enumerate() {
        let key = Key::from(name.clone());
        let mut body = SingleChunk::new(Bytes::from(body_of(number, name)));
        let staged = origin.stage(&key, plain(), &mut body).await.unwrap();
        staged.commit(Some(Condition::Absent)).await.unwrap();
    }
    for (number, name) in keys.iter().enumerate() {
        let key = Key::from(name.clone());
        let mut found = other.get(&key, None).await.unwrap().unwrap();
        let piece = found.body.next().await.map_or(Bytes::new(), Result::unwrap);
        assert_eq!(piece, body_of(number, name), "{name:?}");
    }
    keys.sort();
    // All pages of any length give all keys in order.
    for limit in [1, 7, 1000] {
        let mut listed: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = listed.last().map(Vec::as_slice);
            let page = other.list(b"", after, limit).await.unwrap();
            let full = page.len() == limit;
            listed.extend(page.iter().map(|one| one.key.to_vec()));
            if !full {
                break;
            }
        }
        assert!(listed == keys, "{limit}: {listed:?}");
    }
    groups(other, &keys).await;
    for prefix in [&b"/"[..], b"a", b"\xfe", b"\xc3", &[0xfe; 1023], b"k", b"!"] {
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
        let listed = origin.list(prefix, None, 1000).await.unwrap();
        assert_eq!(
            listed
                .iter()
                .map(|one| one.key.to_vec())
                .collect::<Vec<_>>()
                .iter()
                .collect::<Vec<_>>(),
            expected
        );
    }
    for name in keys {
        assert!(origin.delete(&Key::from(name)).await.unwrap());
    }
}

/// What a listing of sorted keys holds, as key or group, and whether it is a group: its naive twin.
fn entries_of(keys: &[Vec<u8>], range: &KeyRange, limit: usize) -> Vec<(Vec<u8>, bool)> {
    let mut entries: Vec<(Vec<u8>, bool)> = Vec::new();
    for key in keys {
        let later = range.after.as_ref().is_none_or(|after| key > after);
        if !key.starts_with(&range.prefix) || !later {
            continue;
        }
        let (rest, length) = (&key[range.prefix.len()..], range.delimiter.len());
        let at = (0..rest.len()).find(|at| length > 0 && rest[*at..].starts_with(&range.delimiter));
        let entry = match at {
            Some(at) => (key[..range.prefix.len() + at + length].to_vec(), true),
            None => (key.clone(), false),
        };
        if entries.last() != Some(&entry) {
            entries.push(entry);
        }
    }
    entries.truncate(limit);
    entries
}

/// Listings by several delimiters, from several positions, in pages of several lengths.
async fn groups(origin: &dyn Origin, keys: &[Vec<u8>]) {
    for delimiter in [&b"/"[..], b"a", b"\xfe"] {
        for prefix in [&b""[..], b"d", b"p/"] {
            let range = KeyRange::new(prefix).grouped(delimiter);
            let every = keys.iter().step_by(7).cloned();
            let starts = every.chain(keys.iter().step_by(13).map(|key| behind(&key[..1])));
            for after in [None].into_iter().chain(starts.map(Some)) {
                let range = range.clone().after(after);
                let listed = origin.entries(&range, 3).await.unwrap();
                let shown = |one: &Entry| (one.key().to_vec(), matches!(one, Entry::Group(_)));
                let listed: Vec<_> = listed.iter().map(shown).collect();
                assert_eq!(listed, entries_of(keys, &range, 3), "{range:?}");
            }
            for limit in [2, 1000] {
                let (mut rest, mut listed) = (range.clone(), Vec::new());
                loop {
                    let page = origin.entries(&rest, limit).await.unwrap();
                    rest.after = page.last().map(Entry::end).or(rest.after);
                    let full = page.len() == limit;
                    listed.extend(page.into_iter().map(|one| {
                        let is_group = matches!(one, Entry::Group(_));
                        (one.key().to_vec(), is_group)
                    }));
                    if !full {
                        break;
                    }
                }
                assert_eq!(listed, entries_of(keys, &range, usize::MAX), "{limit}: {range:?}");
            }
        }
    }
}

async fn listing(origin: &dyn Origin, other: &dyn Origin) {
    let long = "p/".to_owned() + &"long".repeat(200);
    let names = ["a", "p/1", "p/2", "p/3", "p-1", "p.", "p0", "~", "ä", &long];
    for name in names {
        write(origin, name, name.as_bytes(), Attributes::default()).await;
    }
    let mut sorted = names.map(key);
    sorted.sort();
    let list = async |prefix: &str, after: Option<&str>, limit: usize| -> Vec<Key> {
        let listed = other.list(prefix.as_bytes(), after.map(str::as_bytes), limit).await.unwrap();
        for one in &listed {
            assert_eq!(one.metadata.size, one.key.len() as u64);
        }
        listed.into_iter().map(|one| one.key).collect()
    };
    assert_eq!(list("", None, 100).await, sorted);
    assert_eq!(list("", None, 3).await, sorted[..3]);
    let below = [key("p/1"), key("p/2"), key("p/3"), key(&long)];
    assert_eq!(list("p/", None, 100).await, below);
    let whole: Vec<Vec<u8>> = sorted.iter().map(|key| key.to_vec()).collect();
    groups(other, &whole).await;
    assert_eq!(list("p/", Some("p/2"), 1).await, below[2..3]);
    assert_eq!(list("p/", Some("q"), 9).await, []);
    assert_eq!(list(&long, None, 9).await, below[3..]);
    for name in names {
        assert!(origin.delete(&key(name)).await.unwrap());
    }
    assert_eq!(list("", None, 9).await, []);
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_folder_behaves_as_an_origin() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 2, Sharing::Alone).unwrap();
    run(suite(&origin, &origin));
    assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_folder_shared_by_two_behaves_as_an_origin() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Folder::open(folder.path(), 2, Sharing::Cluster).unwrap();
    let (one, two) = (open(), open());
    run(suite(&one, &two));
    assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_lone_server_and_a_cluster_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let open = |sharing| Folder::open(folder.path(), 1, sharing);
    let refused = |sharing, part: &str| {
        let error = open(sharing).err().expect("is refused").to_string();
        assert!(error.contains(part), "{error}");
    };
    let alone = open(Sharing::Alone).unwrap();
    refused(Sharing::Cluster, "does not share it");
    drop(alone);
    let first = loop {
        match open(Sharing::Cluster) {
            Ok(origin) => break origin,
            Err(_) => std::thread::yield_now(),
        }
    };
    let second = open(Sharing::Cluster).unwrap();
    refused(Sharing::Alone, "in use by another process");
    drop((first, second));
}

#[test]
fn who_opens_a_shared_folder_removes_what_the_dead_left_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Folder::open(folder.path(), 1, Sharing::Cluster).unwrap();
    let temporary = || std::fs::read_dir(folder.path().join("tmp")).unwrap().count();
    let live = open();
    let body = bytes(1, 2_000_000);
    let upload = run(staged(&live, "live", &body));
    assert_eq!(temporary(), 1);
    // Of a process that was killed: its file is there and nobody holds its lock.
    std::fs::write(folder.path().join("owners/0123456789abcdef"), b"").unwrap();
    std::fs::write(folder.path().join("tmp/0123456789abcdef-5"), b"cut off").unwrap();
    std::fs::write(folder.path().join("tmp/fedcba9876543210-0"), b"cut off").unwrap();
    let strangers =
        ["tmp/77", "tmp/photo.jpg", "tmp/0123456789abcdef-x", "owners/notes", "photo.jpg"];
    for stranger in strangers {
        std::fs::write(folder.path().join(stranger), b"precious").unwrap();
    }
    std::fs::create_dir(folder.path().join("tmp/0123456789abcdef-6")).unwrap();
    let other = open();
    for stranger in strangers {
        assert_eq!(std::fs::read(folder.path().join(stranger)).unwrap(), b"precious", "{stranger}");
        std::fs::remove_file(folder.path().join(stranger)).unwrap();
    }
    std::fs::remove_dir(folder.path().join("tmp/0123456789abcdef-6")).unwrap();
    assert_eq!(temporary(), 1);
    assert_eq!(std::fs::read_dir(folder.path().join("owners")).unwrap().count(), 2);
    run(upload.commit(Some(Condition::Absent))).unwrap();
    assert!(run(read(&other, "live", None)) == body);
    assert_eq!(temporary(), 0);
}

/// Many threads of two openers raise one number, each by a write that names the version it read: no step
/// is lost.
#[test]
fn conditional_writes_of_two_openers_lose_no_step() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Folder::open(folder.path(), 4, Sharing::Cluster).unwrap();
    let openers = [open(), open()];
    run(write(&openers[0], "n", b"0", plain()));
    const STEPS: usize = 25;
    std::thread::scope(|scope| {
        for number in 0..6 {
            let origin = &openers[number % 2];
            scope.spawn(move || run(raise(origin, STEPS)));
        }
    });
    assert_eq!(run(read(&openers[1], "n", None)), (6 * STEPS).to_string().into_bytes());
}

/// A process that stands still in the middle of a write holds one part of the folder. Writes to that part
/// are refused instead of taking one thread after another; all else goes on.
#[test]
fn a_process_that_stands_still_holds_up_only_what_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1, Sharing::Cluster).unwrap();
    run(write(&origin, "a", b"1", plain()));
    run(write(&origin, "b", b"1", plain()));
    // The folder of a key is that of its file, and its lock is named like it.
    let shard = blake3::hash(b"a").to_hex()[..2].to_owned();
    assert_ne!(shard, blake3::hash(b"b").to_hex()[..2]);
    let held = std::fs::File::options()
        .write(true)
        .open(folder.path().join("turns").join(&shard))
        .unwrap();
    held.lock().unwrap();
    let refused = run(async {
        let next = staged(&origin, "a", b"2").await;
        let removed = origin.delete(&key("a"));
        (next.commit(None).await.unwrap_err(), removed.await.unwrap_err())
    });
    for error in [refused.0, refused.1] {
        let text = error.to_string();
        assert!(text.contains("nothing was written") && text.contains("stands still"), "{text}");
    }
    run(write(&origin, "b", b"2", plain()));
    assert_eq!(run(read(&origin, "a", None)), b"1");
    assert_eq!(run(read(&origin, "b", None)), b"2");
    held.unlock().unwrap();
    run(write(&origin, "a", b"2", plain()));
    assert_eq!(run(read(&origin, "a", None)), b"2");
}

pub async fn raise(origin: &dyn Origin, steps: usize) {
    let mut left = steps;
    while left > 0 {
        let mut found = origin.get(&key("n"), None).await.unwrap().unwrap();
        let text = found.body.next().await.unwrap().unwrap();
        let number: usize = std::str::from_utf8(&text).unwrap().parse().unwrap();
        let next = staged(origin, "n", (number + 1).to_string().as_bytes()).await;
        match next.commit(Some(Condition::Is(found.metadata.etag))).await {
            Ok(()) => left -= 1,
            Err(Error::Condition(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_folder_keeps_objects_and_clears_what_a_crash_left() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Folder::open(folder.path(), 1, Sharing::Alone).unwrap();
    let metadata = run(write(&origin, "a", b"1", Attributes::default()));
    assert!(
        Folder::open(folder.path(), 1, Sharing::Alone).is_err(),
        "two processes share a folder"
    );
    drop(origin);
    std::fs::write(folder.path().join("tmp/0123456789abcdef-7"), b"cut off").unwrap();
    let origin = loop {
        // The last worker lets go of the lock a moment after the origin is dropped.
        match Folder::open(folder.path(), 1, Sharing::Alone) {
            Ok(origin) => break origin,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
    assert_eq!(run(origin.head(&key("a"))).unwrap().unwrap(), metadata);
}
