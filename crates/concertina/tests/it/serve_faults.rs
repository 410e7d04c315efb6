//! Origins that fail, hang, are slow or full; devices that cannot be written.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dataset::manifest::Manifest;
use ground::Key;
use origin::{
    Attributes, BoxFuture, Chunks, Condition, Entry, Error, Folder, KeyRange, Metadata, Origin,
    Sharing, Staged, StoredObject,
};
use shard::record::{Format, Schema};

use crate::serve_client::{Client, bytes, spawn, start_on, until};

/// How an origin is to behave.
#[derive(Default)]
pub struct Faults {
    /// No answer while set.
    pub hang: AtomicBool,
    /// Every request fails while set.
    pub fail: AtomicBool,
    /// No space while set.
    pub full: AtomicBool,
    /// Every n-th request fails; 0: none.
    pub fail_one_in: AtomicU64,
    /// Milliseconds before each answer.
    pub delay_ms: AtomicU64,
    /// Requests so far, by kind.
    pub gets: AtomicU64,
    requests: AtomicU64,
    /// The ranges that were asked for.
    ranges: Mutex<Vec<Option<Range<u64>>>>,
}

/// The folder origin with faults.
pub struct Faulty {
    pub inner: Folder,
    pub faults: Arc<Faults>,
}

impl Faults {
    async fn before(&self) -> Result<(), Error> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let delay = self.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        while self.hang.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let one_in = self.fail_one_in.load(Ordering::Relaxed);
        if self.fail.load(Ordering::Relaxed) || (one_in > 0 && number.is_multiple_of(one_in)) {
            return Err(Error::Failed("as the test asked".to_owned()));
        }
        Ok(())
    }
}

struct FaultyStaged {
    inner: Box<dyn Staged>,
    faults: Arc<Faults>,
}

impl Staged for FaultyStaged {
    fn metadata(&self) -> &Metadata {
        self.inner.metadata()
    }
    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            self.faults.before().await?;
            if self.faults.full.load(Ordering::Relaxed) {
                return Err(Error::Full("as the test asked".to_owned()));
            }
            self.inner.commit(condition).await
        })
    }
}

impl Origin for Faulty {
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.faults.before().await?;
            self.inner.head(&key).await
        })
    }
    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        let key = key.clone();
        self.faults.gets.fetch_add(1, Ordering::Relaxed);
        self.faults.ranges.lock().unwrap().push(range.clone());
        Box::pin(async move {
            self.faults.before().await?;
            self.inner.get(&key, range).await
        })
    }
    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            let inner = self.inner.stage(&key, attributes, body).await?;
            let staged: Box<dyn Staged> =
                Box::new(FaultyStaged { inner, faults: self.faults.clone() });
            Ok(staged)
        })
    }
    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.faults.before().await?;
            self.inner.delete(&key).await
        })
    }
    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        self.inner.entries(range, limit)
    }
}

/// A folder origin with faults to be set.
pub fn faulty(folder: &Path) -> (Arc<Faults>, Arc<dyn Origin>) {
    let faults = Arc::new(Faults::default());
    let inner = Folder::open(&folder.join("origin"), 4, Sharing::Alone).unwrap();
    (faults.clone(), Arc::new(Faulty { inner, faults }))
}

#[test]
fn a_hundred_readers_of_one_key_are_one_fetch() {
    let folder = tempfile::tempdir().unwrap();
    let (faults, origin) = faulty(folder.path());
    let server =
        start_on(folder.path(), &["node.memory_bytes=0", "device.0.bytes=3MiB"], Some(origin));
    let address = server.address();
    let body = bytes(1, 2_000_000);
    // Too large for the device, and memory holds nothing: each read is a fetch.
    let more = Client::connect(address).put("/objects/a", &body);
    assert_eq!(more.status, 200);
    faults.delay_ms.store(500, Ordering::Relaxed);
    let readers: Vec<_> = (0..100)
        .map(|_| std::thread::spawn(move || Client::connect(address).get("/objects/a")))
        .collect();
    for reader in readers {
        let reply = reader.join().unwrap();
        assert!(reply.status == 200 && reply.body == body);
    }
    assert_eq!(faults.gets.load(Ordering::Relaxed), 1);
    server.stop();
}

#[test]
fn an_origin_that_hangs_is_told_and_full_queues_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (faults, origin) = faulty(folder.path());
    let more = ["origin.timeout_s=0.4", "origin.parallel=1", "origin.queue_length_max=1"];
    let server = start_on(folder.path(), &more, Some(origin));
    let address = server.address();
    let mut client = Client::connect(address);
    assert_eq!(client.put("/objects/kept", b"1").status, 200);
    faults.hang.store(true, Ordering::Relaxed);
    let waiting = std::thread::spawn(move || Client::connect(address).get("/objects/a"));
    std::thread::sleep(Duration::from_millis(100));
    let refused = client.get("/objects/b");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.text().contains("`origin` is full"), "{}", refused.text());
    let timed_out = waiting.join().unwrap();
    assert_eq!(timed_out.status, 504, "{}", timed_out.text());
    assert_eq!(client.get("/objects/kept").status, 200);
    // A write that hangs holds its turn; those behind it are told; none is lost or out of order.
    let hung = std::thread::spawn(move || Client::connect(address).put("/objects/kept", b"2"));
    std::thread::sleep(Duration::from_millis(50));
    let behind = client.put("/objects/kept", b"3");
    assert_eq!((hung.join().unwrap().status, behind.status), (504, 504));
    faults.hang.store(false, Ordering::Relaxed);
    assert_eq!(client.put("/objects/kept", b"4").status, 200);
    assert_eq!(client.get("/objects/kept").body, b"4");
    server.stop();
}

/// A dataset does one thing after the other: a request without an end would keep it, and its appends' memory, for ever.
#[test]
fn appends_to_an_origin_that_hangs_end_and_later_ones_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let (faults, origin) = faulty(folder.path());
    let manifest = Manifest::new(Schema::new(Format::Lines));
    let path = format!("datasets.path={}", folder.path().join("copies").display());
    let server = start_on(folder.path(), &["origin.timeout_s=0.2", &path], Some(origin));
    let mut client = Client::connect(server.address());
    let key = "/objects/datasets%2Fd%2Fdataset.json";
    assert_eq!(client.put(key, &manifest.encode().unwrap()).status, 200);
    let append = |client: &mut Client| {
        client.send("POST", "/datasets/d/records", &[], Some(b"one\n")).unwrap()
    };
    assert_eq!(append(&mut client).status, 200);
    faults.hang.store(true, Ordering::Relaxed);
    let refused = append(&mut client);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("within 0.2 s"), "{}", refused.text());
    faults.hang.store(false, Ordering::Relaxed);
    until("appends are written again", || append(&mut client).status == 200);
    server.stop();
}

#[test]
fn an_origin_that_fails_or_is_full_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (faults, origin) = faulty(folder.path());
    let server = start_on(folder.path(), &[], Some(origin));
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", b"old").status, 200);
    faults.full.store(true, Ordering::Relaxed);
    let full = client.put("/objects/a", b"new");
    assert_eq!(full.status, 507, "{}", full.text());
    assert_eq!(client.get("/objects/a").body, b"old");
    faults.full.store(false, Ordering::Relaxed);
    faults.fail.store(true, Ordering::Relaxed);
    assert_eq!(client.put("/objects/a", b"new").status, 503);
    assert_eq!(client.get("/objects/b").status, 503);
    assert_eq!(client.send("DELETE", "/objects/a", &[], None).unwrap().status, 503);
    faults.fail.store(false, Ordering::Relaxed);
    assert_eq!(client.get("/objects/a").body, b"old");
    server.stop();
}

#[test]
fn a_disk_that_takes_no_more_stops_no_reads() {
    // The shell limits the size of files: what is longer fails as on a full disk. The kernel's signal, which ends programs that do not
    // expect it, ends no server.
    let folder = tempfile::tempdir().unwrap();
    let more = ["node.memory_bytes=0", "device.0.bytes=64MiB"];
    let server = spawn(folder.path(), &more, "ulimit -f 200;");
    let mut client = Client::connect(server.address);
    let small = bytes(1, 30_000);
    for i in 0..20 {
        // More than the segment's file can hold, so that appends begin to fail.
        assert_eq!(client.put(&format!("/objects/{i}"), &small).status, 200);
    }
    let large = client.put("/objects/0", &bytes(2, 900_000));
    assert_eq!(large.status, 507, "{}", large.text());
    for i in 0..20 {
        let got = client.get(&format!("/objects/{i}"));
        assert!(got.status == 200 && got.body == small, "{i}: {}", got.status);
    }
    let left = std::fs::read_dir(folder.path().join("origin/tmp")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn damage_on_a_device_is_found_and_the_origin_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (_, origin) = faulty(folder.path());
    let server = start_on(folder.path(), &["node.memory_bytes=0"], Some(origin));
    let mut client = Client::connect(server.address());
    let body = bytes(1, 9_000);
    assert_eq!(client.put("/objects/a", &body).status, 200);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.get("/objects/a").header("concertina-outcome"), Some("bulk_device"));
    let segment = folder.path().join("device/00000000.seg");
    let mut stored = std::fs::read(&segment).unwrap();
    stored[5_000] ^= 1;
    std::fs::write(&segment, stored).unwrap();
    let got = client.get("/objects/a");
    assert_eq!(got.header("concertina-outcome"), Some("origin"));
    assert!(got.body == body);
    server.stop();
}

/// What is too large for the tiers is looked at by the node's fetch, and then read as far as the client wants it.
#[test]
fn a_part_that_no_tier_holds_is_asked_of_the_origin_as_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let (faults, origin) = faulty(folder.path());
    let server = start_on(folder.path(), &["node.object_bytes_max=1000"], Some(origin));
    let mut client = Client::connect(server.address());
    let body = bytes(1, 100_000);
    let put = client.put("/objects/large", &body);
    assert_eq!(put.status, 200);
    let etag = put.header("etag").unwrap().to_owned();
    let tail = 99_990..100_000;
    let open = i64::MAX as u64;
    for (method, header, value, status, part, ranges) in [
        ("GET", "x", "", 200, 0..100_000, vec![None, None]),
        ("GET", "range", "bytes=10-19", 206, 10..20, vec![None, Some(10..20)]),
        ("GET", "range", "bytes=99990-", 206, tail.clone(), vec![None, Some(99_990..open)]),
        (
            "GET",
            "range",
            "bytes=99990-200000",
            206,
            tail.clone(),
            vec![None, Some(99_990..200_001)],
        ),
        ("GET", "range", "bytes=-10", 206, tail, vec![None, Some(99_990..100_000)]),
        ("GET", "range", "bytes=100000-", 416, 0..0, vec![None, Some(100_000..open)]),
        ("GET", "range", "bytes=-0", 416, 0..0, vec![None]),
        ("GET", "if-none-match", &etag, 304, 0..0, vec![None]),
        ("GET", "if-match", "\"other\"", 412, 0..0, vec![None]),
        ("GET", "if-match", &etag, 200, 0..100_000, vec![None, None]),
        ("HEAD", "range", "bytes=10-19", 206, 0..0, vec![None]),
    ] {
        let before = faults.requests.load(Ordering::Relaxed);
        faults.ranges.lock().unwrap().clear();
        let reply = client.send(method, "/objects/large", &[(header, value)], None).unwrap();
        assert_eq!(reply.status, status, "{value}");
        assert!(reply.body == body[part.clone()], "{value}");
        if status == 206 && method == "GET" {
            let expected = format!("bytes {}-{}/100000", part.start, part.end - 1);
            assert_eq!(reply.header("content-range"), Some(&*expected));
        }
        assert_eq!(*faults.ranges.lock().unwrap(), ranges, "{value}");
        let requests = faults.requests.load(Ordering::Relaxed) - before;
        assert_eq!(requests, ranges.len() as u64, "{value}");
    }
    server.stop();
}
