//! An origin that vanishes, or has another in its place: a clumsy operator's day.

use std::fs;
use std::path::Path;

use engine::Key;
use origin::{Error, Folder, Origin, Sharing};

use crate::origin::{key, run, write};
use crate::serve_client::{Client, bytes, start};

fn lost<T: std::fmt::Debug>(what: &str, got: Result<T, Error>) {
    assert!(matches!(got, Err(Error::Lost(_))), "{what}: {got:?}");
}

/// Every request of an origin fails as one that lost its folder.
fn all_lost(origin: &Folder) {
    let key = key("a");
    lost("head", run(origin.head(&key)));
    lost("get", run(origin.get(&key, None)));
    lost("head of what never was", run(origin.head(&Key::from(&b"never"[..]))));
    lost("list", run(origin.list(b"", None, 9)));
    lost("delete", run(origin.delete(&key)));
    lost("check", run(origin.check()));
    let put = run(async {
        let mut body = origin::Whole::new(bytes::Bytes::from_static(b"new"));
        let staged = origin.stage(&key, Default::default(), &mut body).await?;
        staged.commit(None).await
    });
    lost("put", put);
}

#[test]
fn what_is_not_in_a_folder_that_vanished_or_was_swapped_is_not_known_to_be_absent() {
    for sharing in [Sharing::Alone, Sharing::Cluster] {
        let folder = tempfile::tempdir().unwrap();
        let [path, away, other] = ["origin", "away", "other"].map(|name| folder.path().join(name));
        let origin = Folder::open(&path, 1, sharing).unwrap();
        let metadata = run(write(&origin, "a", b"old", Default::default()));
        let right = || {
            assert_eq!(run(origin.head(&key("a"))).unwrap().unwrap(), metadata);
            assert!(run(origin.head(&key("b"))).unwrap().is_none());
            run(origin.check()).unwrap();
        };
        right();
        fs::rename(&path, &away).unwrap();
        all_lost(&origin);
        // The place where a file system was mounted.
        fs::create_dir(&path).unwrap();
        all_lost(&origin);
        fs::remove_dir(&path).unwrap();
        // Another origin, with another object of the same key.
        let second = Folder::open(&other, 1, sharing).unwrap();
        let theirs = run(write(&second, "a", b"another's", Default::default()));
        fs::rename(&other, &path).unwrap();
        all_lost(&origin);
        fs::rename(&path, &other).unwrap();
        assert_eq!(run(second.head(&key("a"))).unwrap().unwrap(), theirs, "another's is untouched");
        fs::rename(&away, &path).unwrap();
        right();
        // One folder of objects alone.
        let shard = path.join(format!("{:.2}", blake3::hash(b"a").to_hex()));
        fs::rename(&shard, folder.path().join("shard")).unwrap();
        lost("a part of it", run(origin.get(&key("a"), None)));
        fs::rename(folder.path().join("shard"), &shard).unwrap();
        right();
    }
}

fn put_away(folder: &Path) {
    fs::rename(folder.join("origin"), folder.join("away")).unwrap();
}

fn put_back(folder: &Path) {
    fs::rename(folder.join("away"), folder.join("origin")).unwrap();
}

#[test]
fn an_origin_that_was_moved_away_is_answered_503_and_forgets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // Every read is compared with the origin, and what is compared and gone would be forgotten.
    let server = start(folder.path(), &["node.revalidate_s=0.01", "node.object_bytes_max=1MB"]);
    let mut client = Client::connect(server.address());
    let large = bytes(1, 2_000_000);
    assert_eq!(client.put("/objects/kept", b"kept").status, 200);
    assert_eq!(client.put("/objects/large", &large).status, 200);
    assert_eq!(client.get("/readyz").status, 200);
    put_away(folder.path());
    let wait = || std::thread::sleep(std::time::Duration::from_millis(50));
    wait();
    for path in ["/objects/large", "/objects/never"] {
        let reply = client.get(path);
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(reply.text().contains("identity is missing"), "{}", reply.text());
    }
    assert_eq!(
        client.get("/objects/kept").body,
        b"kept",
        "stale, since the origin cannot be asked"
    );
    assert_eq!(client.put("/objects/other", b"new").status, 503);
    let ready = client.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("put the folder back"), "{}", ready.text());
    assert_eq!(client.get("/healthz").status, 200);
    // An empty folder in its place, such as that of a file system that is not mounted.
    fs::create_dir(folder.path().join("origin")).unwrap();
    wait();
    assert_eq!(client.get("/objects/large").status, 503);
    assert_eq!(client.get("/objects?prefix=").status, 503);
    assert_eq!(client.get("/objects/kept").body, b"kept");
    fs::remove_dir(folder.path().join("origin")).unwrap();
    put_back(folder.path());
    wait();
    assert_eq!(client.get("/readyz").status, 200);
    assert!(client.get("/objects/large").body == large);
    assert_eq!(client.get("/objects/kept").body, b"kept");
    assert_eq!(client.get("/objects/never").status, 404);
    server.stop();
}
