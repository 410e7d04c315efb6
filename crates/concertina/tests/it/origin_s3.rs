//! The S3 origin against a real store, `versitygw`, on a folder that vanishes.

mod again;
pub mod drawn;
mod early;
mod endless;
mod late;
mod listed;
mod lost;
mod script;
mod strangers;
pub mod text_store;
mod texts;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use configuration as config;
use configuration::{Secret, Size};
use origin::{self, Attributes, Condition, Error, Origin, S3, Sharing, SingleChunk, VersionHasher};

use crate::left_out::left_out;
use crate::origin::{Pieces, key, raise, read, run, staged, suite, write};
use crate::serve_client::{bytes, free};
use script::{MARKER, answer, coded, empty, marker, opening, recorded, scripted};

pub const ACCESS: &str = "test-access";
pub const SECRET: &str = "test-secret-that-is-never-shown";

/// A store, killed when it is dropped.
pub struct Store {
    child: Child,
    folder: tempfile::TempDir,
    pub address: String,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `.ci/setup` puts it, or where it is found.
pub fn program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let gopath = std::env::var_os("GOPATH").map(|path| PathBuf::from(path).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(gopath).chain([home.join("go/bin")]);
    folders.map(|folder| folder.join("versitygw")).find(|file| file.is_file())
}

impl Store {
    /// Starts a store with the bucket `objects`.
    pub fn start(test: &str) -> Option<Store> {
        let Some(program) = program() else {
            left_out(test, "versitygw is not installed (.ci/setup installs it)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/objects")).unwrap();
        fs::create_dir(folder.path().join("iam")).unwrap();
        // Another process may take the port in between: then the next try has another.
        for _ in 0..5 {
            let address = free().to_string();
            let mut child = Command::new(&program)
                .args(["--port", &address, "--access", ACCESS, "--secret", SECRET, "--quiet"])
                .arg("--iam-dir")
                .arg(folder.path().join("iam"))
                .arg("posix")
                .arg(folder.path().join("data"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(90) {
                if answers(&address) {
                    return Some(Store { child, folder, address });
                }
                if child.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("versitygw does not start");
    }

    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join("data/objects")
    }

    fn config(&self) -> config::Origin {
        config_of(&format!("http://{}", self.address))
    }

    fn open(&self) -> S3 {
        S3::open(&self.config()).unwrap()
    }
}

fn answers(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = write!(stream, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply.starts_with("HTTP/1.1 ")
}

fn config_of(endpoint: &str) -> config::Origin {
    config::Origin {
        kind: origin::Kind::S3,
        endpoint: Some(endpoint.to_owned()),
        bucket: "objects".to_owned(),
        allow_http: true,
        access_key_id: Some(ACCESS.to_owned()),
        secret_access_key: Some(Secret::new(SECRET.to_owned())),
        timeout_s: 5.0,
        ..config::Origin::default()
    }
}

fn refusal(config: &config::Origin) -> String {
    let error = S3::open(config).err().expect("is refused").to_string();
    assert!(!error.contains(SECRET), "{error}");
    error
}

#[test]
fn a_store_behaves_as_an_origin() {
    let Some(store) = Store::start("origin_s3::a_store_behaves_as_an_origin") else { return };
    run(suite(&store.open(), &store.open()));
}

#[test]
fn a_prefix_is_a_place_of_its_own() {
    let Some(store) = Store::start("origin_s3::a_prefix_is_a_place_of_its_own") else { return };
    run(write(&store.open(), "outside", b"x", Attributes::default()));
    let config = config::Origin { prefix: "in/side/".to_owned(), ..store.config() };
    let inside = origin::open(&config, Sharing::Alone, Default::default()).unwrap();
    run(suite(inside.as_ref(), inside.as_ref()));
    assert_eq!(run(read(&store.open(), "outside", None)), b"x");
    run(write(inside.as_ref(), "a/b", b"y", Attributes::default()));
    assert_eq!(fs::read(store.bucket().join("in/side/a/b")).unwrap(), b"y");
}

/// 20 MiB in pieces that fit no part: two parts and a rest.
fn large() -> Vec<u8> {
    bytes(9, (20 << 20) + 12_345)
}

fn in_pieces(body: &[u8]) -> Pieces {
    Pieces(body.chunks(777_777).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

/// Uploads in parts that the store still holds.
fn unfinished(store: &Store) -> usize {
    let mut found = 0;
    let mut folders = vec![store.bucket().join(".sgwtmp/multipart")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            found += usize::from(entry.path().is_file());
            folders.extend(entry.path().is_dir().then(|| entry.path()));
        }
    }
    found
}

#[test]
fn large_objects_go_in_parts_and_appear_at_once() {
    const TEST: &str = "origin_s3::large_objects_go_in_parts_and_appear_at_once";
    let Some(store) = Store::start(TEST) else { return };
    let (origin, body) = (store.open(), large());
    let attributes = Attributes {
        content_type: Some("video/mp4".to_owned()),
        user: vec![("owner".to_owned(), "me".to_owned())],
    };
    run(async {
        let mut source = in_pieces(&body);
        let staged = origin.stage(&key("large"), attributes.clone(), &mut source).await.unwrap();
        assert!(origin.head(&key("large")).await.unwrap().is_none());
        let metadata = staged.metadata().clone();
        assert_eq!((metadata.size, &metadata.attributes), (body.len() as u64, &attributes));
        staged.commit(None).await.unwrap();
        assert_eq!(origin.head(&key("large")).await.unwrap().unwrap(), metadata);
        assert!(read(&origin, "large", None).await == body);
        let part = read(&origin, "large", Some(8_000_000..9_000_000)).await;
        assert!(part == body[8_000_000..9_000_000]);
    });
    assert_eq!(unfinished(&store), 0);
}

#[test]
fn parts_of_an_upload_that_is_dropped_or_breaks_off_are_removed() {
    const TEST: &str = "origin_s3::parts_of_an_upload_that_is_dropped_or_breaks_off_are_removed";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    run(async {
        let plain = Attributes::default;
        let mut body = in_pieces(&large());
        drop(origin.stage(&key("dropped"), plain(), &mut body).await.unwrap());
        let mut body = in_pieces(&large());
        body.0.push(Err(Error::Upload("as the test asked".to_owned())));
        let broken = origin.stage(&key("broken"), plain(), &mut body).await;
        assert!(matches!(broken, Err(Error::Upload(_))));
        assert!(origin.list(b"", None, 9).await.unwrap().is_empty());
    });
    let start = Instant::now();
    while unfinished(&store) > 0 {
        assert!(start.elapsed() < Duration::from_secs(90), "parts are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn conditions_hold_for_uploads_in_parts_too() {
    const TEST: &str = "origin_s3::conditions_hold_for_uploads_in_parts_too";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    run(async {
        // Other bytes each time: of the same bytes the store cannot tell two versions apart.
        let mut body = large();
        let mut upload = async || {
            body[0] += 1;
            let mut source = in_pieces(&body);
            origin.stage(&key("c"), Attributes::default(), &mut source).await.unwrap()
        };
        let (first, second) = (upload().await, upload().await);
        let etag = first.metadata().etag.clone();
        let commits = [first, second].map(|staged| staged.commit(Some(Condition::Absent)));
        let results = futures_util::future::join_all(commits).await;
        let lost = |result: &&Result<(), Error>| matches!(result, Err(Error::Condition(_)));
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1, "{results:?}");
        assert_eq!(results.iter().filter(lost).count(), 1, "{results:?}");
        let there = origin.head(&key("c")).await.unwrap().unwrap().etag;
        assert_eq!(there == etag, results[0].is_ok());
        let next = [upload().await, upload().await];
        let commits = next.map(|staged| staged.commit(Some(Condition::Is(there.clone()))));
        let results = futures_util::future::join_all(commits).await;
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1, "{results:?}");
        assert_eq!(results.iter().filter(lost).count(), 1, "{results:?}");
    });
}

/// Writers of two openers in turn, each of which read before the other wrote. (That two conditional writes
/// at the same moment are judged one after the other is the store's to see to: this one judges and
/// renames in two steps, and lets both through now and then.)
#[test]
fn a_conditional_write_sees_what_another_opener_wrote() {
    const TEST: &str = "origin_s3::a_conditional_write_sees_what_another_opener_wrote";
    let Some(store) = Store::start(TEST) else { return };
    let openers = [store.open(), store.open()];
    run(write(&openers[0], "n", b"0", Attributes::default()));
    for number in 0..10 {
        let (origin, other) = (&openers[number % 2], &openers[(number + 1) % 2]);
        let before = run(origin.head(&key("n"))).unwrap().unwrap().etag;
        run(raise(other, 1));
        let late = run(async {
            let late = staged(origin, "n", b"late").await;
            late.commit(Some(Condition::Is(before))).await
        });
        assert!(matches!(late, Err(Error::Condition(_))), "{late:?}");
        run(raise(origin, 1));
    }
    assert_eq!(run(read(&openers[1], "n", None)), b"20");
}

#[test]
fn objects_of_other_tools_are_served_and_listed() {
    const TEST: &str = "origin_s3::objects_of_other_tools_are_served_and_listed";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    fs::create_dir_all(store.bucket().join("photos/empty")).unwrap();
    fs::write(store.bucket().join("photos/My Cat 100%.jpg"), b"meow").unwrap();
    // Written by the protocol, with what only other tools write: a marker of a folder, other headers.
    run(put_as_another_tool(&store, "theirs", b"their bytes"));
    run(write(&origin, "ours", b"our bytes", Attributes::default()));
    run(async {
        let cat = origin.head(&key("photos/My Cat 100%.jpg")).await.unwrap().unwrap();
        assert_eq!(cat.size, 4);
        assert!(cat.etag.starts_with("s3-"), "{cat:?}");
        let theirs = origin.head(&key("theirs")).await.unwrap().unwrap();
        assert_eq!(theirs.attributes.content_type.as_deref(), Some("text/x-theirs"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let user = [pair("colour", "blue"), pair("s3--cache-control", "no-store")];
        assert_eq!(theirs.attributes.user, user);
        let ago = now_us().abs_diff(theirs.modified_unix_us);
        assert!(ago < 60_000_000, "{ago} µs ago");
        let found = origin.get(&key("theirs"), Some(2..5)).await.unwrap().unwrap();
        assert_eq!(found.metadata, theirs);
        assert_eq!(read(&origin, "theirs", None).await, b"their bytes");
        let listed = origin.list(b"", None, 100).await.unwrap();
        let keys: Vec<&[u8]> = listed.iter().map(|one| &one.key[..]).collect();
        assert_eq!(keys, [&b"ours"[..], b"photos/My Cat 100%.jpg", b"theirs"]);
        assert_eq!(listed[2].metadata, theirs);
        // A write to it that names the version that was read.
        let update = staged(&origin, "theirs", b"ours now").await;
        update.commit(Some(Condition::Is(theirs.etag.clone()))).await.unwrap();
        let stale = staged(&origin, "theirs", b"x").await;
        let stale = stale.commit(Some(Condition::Is(theirs.etag))).await;
        assert!(matches!(stale, Err(Error::Condition(_))), "{stale:?}");
        // One that was changed in its place, our metadata kept, is damage and not other bytes.
        fs::write(store.bucket().join("ours"), b"her bytes").unwrap();
        let mut found = origin.get(&key("ours"), None).await.unwrap().unwrap();
        let piece = found.body.next().await.unwrap();
        assert!(matches!(piece, Err(Error::Damaged(_))), "{piece:?}");
    });
}

fn now_us() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64
}

fn client(store: &Store, access: &str, secret: &str) -> object_store::aws::AmazonS3 {
    // Its HTTP client demands one, even without TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    object_store::aws::AmazonS3Builder::new()
        .with_endpoint(format!("http://{}", store.address))
        .with_bucket_name("objects")
        .with_allow_http(true)
        .with_access_key_id(access)
        .with_secret_access_key(secret)
        .build()
        .unwrap()
}

pub async fn put_as_another_tool(store: &Store, name: &str, body: &[u8]) {
    use object_store::{Attribute, ObjectStore, PutOptions};
    let attributes = object_store::Attributes::from_iter([
        (Attribute::ContentType, "text/x-theirs"),
        (Attribute::CacheControl, "no-store"),
        (Attribute::Metadata("colour".into()), "blue"),
    ]);
    let options = PutOptions { attributes, ..PutOptions::default() };
    let body = Bytes::copy_from_slice(body);
    let client = client(store, ACCESS, SECRET);
    client.put_opts(&name.into(), body.into(), options).await.unwrap();
}

#[test]
fn wrong_credentials_and_buckets_are_named_at_the_start() {
    const TEST: &str = "origin_s3::wrong_credentials_and_buckets_are_named_at_the_start";
    let Some(store) = Store::start(TEST) else { return };
    let config = store.config();
    let wrong = config::Origin { access_key_id: Some("nobody".to_owned()), ..config.clone() };
    let told = refusal(&wrong);
    assert!(told.contains("the credentials are not accepted (InvalidAccessKeyId"), "{told}");
    let secret = Some(Secret::new("wrong".to_owned()));
    let told = refusal(&config::Origin { secret_access_key: secret, ..config.clone() });
    assert!(told.contains("the credentials are not accepted (SignatureDoesNotMatch"), "{told}");
    let told = refusal(&config::Origin { bucket: "none".to_owned(), ..config.clone() });
    assert!(told.contains("bucket none of http://127.0.0.1"), "{told}");
    assert!(told.contains("does not exist; create it, or correct origin.bucket"), "{told}");
    let told = refusal(&config::Origin { access_key_id: None, ..config });
    assert!(told.contains("origin.access_key_id is not set"), "{told}");
    // A bucket that vanishes later is an error too, and not an origin without objects.
    let origin = store.open();
    fs::remove_dir_all(store.bucket()).unwrap();
    let gone = run(origin.get(&key("a"), None)).map(|_| ());
    assert!(
        matches!(&gone, Err(Error::Lost(what) | Error::Failed(what)) if what.contains("does not exist")),
        "{gone:?}"
    );
    let put = run(async { staged(&origin, "a", b"x").await.commit(None).await });
    let lost = matches!(&put, Err(Error::Lost(what) | Error::Failed(what)) if what.contains("does not exist"));
    assert!(lost, "{put:?}");
}

#[test]
fn who_may_only_read_is_told_so() {
    const TEST: &str = "origin_s3::who_may_only_read_is_told_so";
    let Some(store) = Store::start(TEST) else { return };
    let made = Command::new(program().unwrap())
        .args(["admin", "--access", ACCESS, "--secret", SECRET])
        .args(["--endpoint-url", &format!("http://{}", store.address)])
        .args(["create-user", "--access", "reader", "--secret", "readers-secret", "--role", "user"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":["reader"],
        "Action":["s3:GetObject","s3:ListBucket"],
        "Resource":["arn:aws:s3:::objects","arn:aws:s3:::objects/*"]}]}"#;
    run(put_policy(&store, policy));
    run(write(&store.open(), "a", b"x", Attributes::default()));
    let reader = S3::open(&config::Origin {
        access_key_id: Some("reader".to_owned()),
        secret_access_key: Some(Secret::new("readers-secret".to_owned())),
        ..store.config()
    })
    .unwrap();
    assert_eq!(run(read(&reader, "a", None)), b"x");
    assert_eq!(run(reader.list(b"", None, 9)).unwrap().len(), 1);
    let put = run(async { staged(&reader, "a", b"y").await.commit(None).await });
    let told = put.unwrap_err();
    assert!(matches!(&told, Error::ReadOnly(what) if what.contains("right to write")), "{told}");
    let mut parts = in_pieces(&large());
    let put = run(reader.stage(&key("b"), Attributes::default(), &mut parts)).map(|_| ());
    assert!(matches!(put, Err(Error::ReadOnly(_))), "{put:?}");
    let delete = run(reader.delete(&key("a")));
    assert!(matches!(delete, Err(Error::ReadOnly(_))), "{delete:?}");
    assert_eq!(run(read(&store.open(), "a", None)), b"x");
}

/// Puts a policy on the bucket, by a request that is signed in its address.
async fn put_policy(store: &Store, policy: &str) {
    use object_store::signer::{SignedUrlOptions, Signer};
    let options = SignedUrlOptions::default().with_query([("policy", "")]);
    let url = client(store, ACCESS, SECRET)
        .signed_url_opts(
            http::Method::PUT,
            &object_store::path::Path::from(""),
            Duration::from_secs(60),
            &options,
        )
        .await
        .unwrap();
    let target = &url.as_str()[url.as_str().find("/objects").unwrap()..];
    let mut stream = TcpStream::connect(&store.address).unwrap();
    let length = policy.len();
    let head = format!("PUT {target} HTTP/1.1\r\nhost: {}\r\n", store.address);
    write!(stream, "{head}connection: close\r\ncontent-length: {length}\r\n\r\n{policy}").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
}

#[test]
fn a_store_that_refuses_connections_is_told_by_each_call() {
    // A port that was free a moment ago; nobody listens.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let origin = S3::open(&config_of(&endpoint)).unwrap();
    let start = Instant::now();
    let told = run(origin.head(&key("a"))).unwrap_err();
    assert!(matches!(&told, Error::Failed(what) if what.contains("no connection")), "{told}");
    assert!(told.to_string().contains("correct origin.endpoint"), "{told}");
    assert!(start.elapsed() < Duration::from_secs(90), "{:?}", start.elapsed());
    let put = run(async { staged(&origin, "a", b"x").await.commit(None).await });
    assert!(matches!(put, Err(Error::Failed(_))), "{put:?}");
    assert!(run(origin.list(b"", None, 9)).is_err());
}

#[test]
fn a_store_that_hangs_is_given_up_in_time() {
    // It takes connections and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let config = config::Origin { timeout_s: 0.3, ..config_of(&endpoint) };
    let origin = S3::open(&config).unwrap();
    let check = |what: &str, result: Result<(), Error>, start: Instant| {
        assert!(matches!(result, Err(Error::TimedOut(_))), "{what}: {result:?}");
        assert!(start.elapsed() < Duration::from_secs(90), "{what}: {:?}", start.elapsed());
    };
    let start = Instant::now();
    check("head", run(origin.head(&key("a"))).map(|_| ()), start);
    let start = Instant::now();
    check("get", run(origin.get(&key("a"), None)).map(|_| ()), start);
    let start = Instant::now();
    check("put", run(async { staged(&origin, "a", b"x").await.commit(None).await }), start);
    let start = Instant::now();
    check("delete", run(origin.delete(&key("a"))).map(|_| ()), start);
    let start = Instant::now();
    check("list", run(origin.list(b"", None, 9)).map(|_| ()), start);
    let start = Instant::now();
    let mut parts = in_pieces(&large());
    let upload = run(origin.stage(&key("b"), Attributes::default(), &mut parts)).map(|_| ());
    check("parts", upload, start);
}

#[test]
fn uploads_hold_no_more_memory_than_is_allowed() {
    const TEST: &str = "origin_s3::uploads_hold_no_more_memory_than_is_allowed";
    let Some(store) = Store::start(TEST) else { return };
    let config = config::Origin { uploads_bytes_max: Size(16 << 20), ..store.config() };
    let origin = S3::open(&config).unwrap();
    let body = bytes(3, 6 << 20);
    run(async {
        let (one, two) = (staged(&origin, "1", &body).await, staged(&origin, "2", &body).await);
        let mut third = SingleChunk::new(Bytes::from(body.clone()));
        let refused = origin.stage(&key("3"), Attributes::default(), &mut third).await.map(|_| ());
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("origin.uploads_bytes_max"), "{told}");
        one.commit(None).await.unwrap();
        staged(&origin, "3", &body).await.commit(None).await.unwrap();
        two.commit(None).await.unwrap();
        let many =
            Attributes { content_type: None, user: vec![("long".to_owned(), "x".repeat(2048))] };
        let mut small = SingleChunk::new(Bytes::from_static(b"x"));
        let refused = origin.stage(&key("4"), many, &mut small).await.map(|_| ());
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    });
}

#[test]
fn odd_answers_of_a_store_are_errors_or_are_tried_again() {
    let error = coded;
    // The end is marked by an answer that no test expects.
    let check = |answers: Vec<String>, part: &str| {
        let answers = [opening(), answers].concat();
        let origin = S3::open(&config_of(&scripted(answers))).unwrap();
        let told = match run(origin.list(b"", None, 9)) {
            Ok(listed) => format!("{} objects", listed.len()),
            Err(error) => error.to_string(),
        };
        assert!(told.contains(part), "{told}");
    };
    check(vec![error("503 Slow Down", "SlowDown"), empty(), empty()], "0 objects");
    let page =
        |kind: &str, body: &str| answer("200 OK", &format!("content-type: {kind}\r\n"), body);
    check(vec![page("text/html", "<html></html>")], "something else answers");
    check(vec![page("application/xml", "<html></html>")], "something else answers");
    check(vec![page("application/xml", "<ListBucketResult><Contents>")], "invalid listing");
    check(vec![answer("204 No Content", "", "")], "something else answers");
    check(vec![error("507 Insufficient Storage", "Full"); 4], "the origin is full");
    check(vec![error("403 Forbidden", "RequestTimeTooSkewed")], "clock");
    check(vec![answer("301 Moved", "location: http://x/\r\n", "")], "the bucket is elsewhere");
    let names = |names: [&str; 2]| {
        let contents = names.map(|name| format!("<Contents><Key>{name}</Key></Contents>"));
        answer("200 OK", "", &format!("<ListBucketResult>{}</ListBucketResult>", contents.concat()))
    };
    check(vec![names(["b", "a"])], "does not list names in the order");
    // Names that we would not write: no keys, and no errors.
    check(vec![names(["a/../b", "dir/.."]), empty()], "0 objects");
    check(vec!["nonsense\r\n\r\n".to_owned()], "the origin failed");
}

#[test]
fn a_bucket_that_vanished_is_not_an_absent_object() {
    let missing = || answer("404 Not Found", "", "");
    let gone = || coded("404 Not Found", "NoSuchBucket");
    // A HEAD of what is not there is answered without words, so the marker is looked at too.
    let scripts = [vec![missing(), gone()], vec![missing(), marker(MARKER)]];
    let [head, absent] = scripts
        .map(|script| S3::open(&config_of(&scripted([opening(), script].concat()))).unwrap());
    let lost = run(head.head(&key("a")));
    assert!(matches!(&lost, Err(Error::Lost(text)) if text.contains("origin.bucket")), "{lost:?}");
    assert!(run(absent.head(&key("a"))).unwrap().is_none());
}

#[test]
fn a_store_that_ignores_conditions_is_noticed_and_written_without() {
    let taken = || answer("200 OK", "etag: \"m\"\r\n", "");
    let script = vec![empty(), marker(MARKER), taken(), taken()];
    let origin = S3::open(&config_of(&scripted(script))).unwrap();
    // Neither a look at the object before the write nor a condition: the one answer left is the PUT's.
    run(async { staged(&origin, "a", b"x").await.commit(None).await }).unwrap();
}
