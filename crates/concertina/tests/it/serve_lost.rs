//! An origin that vanishes, or has another in its place: a clumsy operator's day.

use std::fs;
use std::path::Path;

use ground::Key;
use origin::marker::{Claim, FolderKind};
use origin::{Error, Folder, Origin, Sharing};

use crate::origin::{key, run, write};
use crate::serve_client::{Client, LONGEST, bytes, start};

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
        let mut body = origin::SingleChunk::new(bytes::Bytes::from_static(b"new"));
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
    let degraded = "concertina_degraded{what=\"origin\"}";
    assert!(client.get("/metrics").text().contains(&format!("{degraded} 0\n")));
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
    assert!(client.get("/metrics").text().contains(&format!("{degraded} 1\n")));
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

/// A folder origin as a process opens it that remembers what `device` does.
fn remembered(path: &Path, sharing: Sharing, device: &Path) -> anyhow::Result<Folder> {
    let record = origin::IdentityRecord::default();
    record.remember_folder(device, None)?;
    Claim::new(FolderKind::Device, None).take(device)?;
    record.add_folder(device);
    Ok(Folder::open_recorded(path, 1, sharing, record.into())?)
}

/// Opened again as soon as the pool of the one before has let go of the folder's lock.
fn again(path: &Path, sharing: Sharing, device: &Path) -> Folder {
    let start = std::time::Instant::now();
    loop {
        match remembered(path, sharing, device) {
            Ok(origin) => return origin,
            Err(error) => assert!(start.elapsed() < LONGEST, "{error:#}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_process_that_is_started_while_its_folder_is_away_waits_for_it() {
    for sharing in [Sharing::Alone, Sharing::Cluster] {
        let folder = tempfile::tempdir().unwrap();
        let [path, away, other, device] =
            ["origin", "away", "other", "device"].map(|name| folder.path().join(name));
        let origin = remembered(&path, sharing, &device).unwrap();
        let metadata = run(write(&origin, "a", b"old", Default::default()));
        drop(origin);
        drop(Folder::open(&other, 1, sharing).unwrap());
        fs::rename(&path, &away).unwrap();
        // Missing, an empty mount point, a stranger's folder, another origin.
        let makers: [fn(&Path, &Path); 4] = [
            |_, _| {},
            |path, _| fs::create_dir(path).unwrap(),
            |path, _| {
                fs::create_dir(path).unwrap();
                fs::write(path.join("photo.jpg"), "precious").unwrap();
            },
            |path, other| fs::rename(other, path).unwrap(),
        ];
        for make in makers {
            make(&path, &other);
            let before = names_below(&path);
            let origin = again(&path, sharing, &device);
            all_lost(&origin);
            assert_eq!(origin.id(), None);
            assert_eq!(names_below(&path), before, "nothing was made or removed");
            if path.exists() {
                fs::rename(&path, folder.path().join(format!("was-{}", before.len()))).unwrap();
            }
            // The right one returns, and the process needs no restart.
            fs::rename(&away, &path).unwrap();
            assert_eq!(run(origin.head(&key("a"))).unwrap().unwrap(), metadata);
            assert!(run(origin.head(&key("never"))).unwrap().is_none());
            run(write(&origin, "b", b"new", Default::default()));
            drop(origin);
            fs::rename(&path, &away).unwrap();
        }
    }
}

fn names_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            names.push(path);
        }
    }
    names.sort();
    names
}

#[test]
fn a_folder_of_strangers_does_not_become_an_origin() {
    let folder = tempfile::tempdir().unwrap();
    let tmp = folder.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    fs::write(tmp.join("0123456789abcdef-0"), "precious").unwrap();
    fs::write(folder.path().join("photo.jpg"), "precious").unwrap();
    let before = names_below(folder.path());
    for sharing in [Sharing::Alone, Sharing::Cluster] {
        let error = Folder::open(folder.path(), 1, sharing).err().unwrap().to_string();
        assert!(error.contains("Concertina did not make"), "{error}");
        assert_eq!(names_below(folder.path()), before);
    }
}

/// The folders of objects that are missing at a start are lost, and not made anew without their objects.
#[test]
fn a_part_that_is_missing_at_the_start_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let [path, device] = ["origin", "device"].map(|name| folder.path().join(name));
    let origin = remembered(&path, Sharing::Alone, &device).unwrap();
    let metadata = run(write(&origin, "a", b"old", Default::default()));
    drop(origin);
    let shard = path.join(format!("{:.2}", blake3::hash(b"a").to_hex()));
    fs::rename(&shard, folder.path().join("shard")).unwrap();
    let origin = again(&path, Sharing::Alone, &device);
    lost("a part of it", run(origin.get(&key("a"), None)));
    fs::rename(folder.path().join("shard"), &shard).unwrap();
    assert_eq!(run(origin.head(&key("a"))).unwrap().unwrap(), metadata);
}

/// Root may write everywhere, so that only a file system mounted read-only refuses it; others need no more than the mode.
#[test]
fn an_origin_that_is_read_only_at_the_start_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", b"old").status, 200);
    server.stop();
    let Some(_mounted) = ReadOnly::new(&folder.path().join("origin")) else {
        assert!(std::env::var_os("CI").is_none(), "CI mounts file systems");
        eprintln!("skipped: this process may not mount file systems");
        return;
    };
    // Nothing of the object is in memory or on a device.
    let server = start(folder.path(), &["device=[]"]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/objects/a").body, b"old");
    assert_eq!(client.get("/objects/never").status, 404);
    for refused in
        [client.put("/objects/b", b"new"), client.send("DELETE", "/objects/a", &[], None).unwrap()]
    {
        assert_eq!(refused.status, 507, "{}", refused.text());
        assert!(refused.text().contains("the origin is read-only"), "{}", refused.text());
    }
    let ready = client.get("/readyz");
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert!(ready.text().contains("writes are refused"), "{}", ready.text());
    assert!(client.get("/admin/status").text().contains("read_only"));
    drop(_mounted);
    assert_eq!(client.put("/objects/b", b"new").status, 200, "it can be written without a restart");
    assert!(!client.get("/readyz").text().contains("writes are refused"));
    server.stop();
}

/// A folder that is mounted read-only over itself as long as this lives.
struct ReadOnly(std::path::PathBuf);

fn mount(arguments: &[&std::ffi::OsStr]) -> bool {
    let ended = std::process::Command::new("mount").args(arguments).output();
    ended.is_ok_and(|ended| ended.status.success())
}

impl ReadOnly {
    fn new(folder: &Path) -> Option<ReadOnly> {
        let folder = folder.as_os_str();
        let bound = mount(&["--bind".as_ref(), folder, folder]);
        bound
            .then(|| ReadOnly(folder.into()))
            .filter(|it| mount(&["-o".as_ref(), "remount,bind,ro".as_ref(), it.0.as_os_str()]))
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // Lazily: the server has files open in it.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
