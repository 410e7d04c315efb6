//! Records that are read in pieces: replies that begin with the first, ranges that read their blocks
//! alone, damage that cuts a reply and is not sent, and short reads between the pieces of a long one.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serve::Server;

use crate::serve_client::{Client, bytes, start, until};

const SIZE: usize = 1_000_000;
/// Blocks of a record.
const BLOCK: usize = 65_536;

fn pieces(folder: &Path, more: &[&str]) -> Server {
    let mut all =
        vec!["node.memory_bytes=0", "device.0.bytes=64MiB", "device.0.piece_bytes=128KiB"];
    all.extend(more);
    start(folder, &all)
}

/// Puts objects, and waits until all are on the device. A read before that would get the object from the
/// origin, and have it written once more.
fn put(client: &mut Client, count: u64) {
    for i in 0..count {
        assert_eq!(client.put(&format!("/objects/{i}"), &bytes(i, SIZE)).status, 200);
    }
    on_device(client, count);
}

fn on_device(client: &mut Client, count: u64) {
    until("the objects are on the device", || {
        let told = client.get("/admin/tiers").text();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["devices"][0]["objects"] == count
    });
}

fn range(client: &mut Client, key: u64, asked: &str) -> (u16, Option<String>, Vec<u8>) {
    let range = format!("bytes={asked}");
    let path = format!("/objects/{key}");
    let reply = client.send("GET", &path, &[("range", &range)], None).unwrap();
    (reply.status, reply.header("concertina-outcome").map(str::to_owned), reply.body)
}

/// What of an object is sent before the connection ends.
fn sent(server: &Server, key: u64) -> Vec<u8> {
    let mut client = Client::connect(server.address());
    let request =
        format!("GET /objects/{key} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    client.stream.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    let _ = client.stream.read_to_end(&mut all);
    let start = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = all.split_off(start);
    let head = String::from_utf8(all).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("concertina-outcome: bulk_device"), "{head}");
    body
}

/// Changes a byte of an object in each of its records on the device.
fn damage(folder: &Path, key: u64, at: usize) {
    let body = bytes(key, SIZE);
    let mut records = 0;
    for entry in fs::read_dir(folder.join("device")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "seg") {
            continue;
        }
        let stored = fs::read(&path).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        for start in stored.windows(64).enumerate().filter(|(_, bytes)| *bytes == &body[..64]) {
            let place = start.0 + at;
            file.write_all_at(&[stored[place] ^ 1], place as u64).unwrap();
            records += 1;
        }
        file.sync_all().unwrap();
    }
    assert!(records > 0, "object {key} is on no device");
}

#[test]
fn wholes_ranges_and_heads_are_the_same_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let server = pieces(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    put(&mut client, 1);
    let body = bytes(0, SIZE);
    let bulk = Some("bulk_device".to_owned());
    let whole = client.get("/objects/0");
    assert!(whole.status == 200 && whole.body == body);
    assert_eq!(whole.header("concertina-outcome"), bulk.as_deref());
    let rows = [
        ("0-0", 0..1),
        ("0-65535", 0..65_536),
        ("65535-65536", 65_535..65_537),
        ("100000-699999", 100_000..700_000),
        ("999999-", 999_999..SIZE),
        ("-70000", 930_000..SIZE),
        ("5-9999999", 5..SIZE),
    ];
    for (asked, expected) in rows {
        let (status, outcome, got) = range(&mut client, 0, asked);
        assert_eq!((status, &outcome), (206, &bulk), "{asked}");
        assert!(got == body[expected], "{asked}");
    }
    assert_eq!(range(&mut client, 0, "1000000-").0, 416);
    // A range of which the condition fails is answered with the whole.
    let headers = [("range", "bytes=0-9"), ("if-range", "\"other\"")];
    let reply = client.send("GET", "/objects/0", &headers, None).unwrap();
    assert!(reply.status == 200 && reply.body == body);
    let etag = whole.header("etag").unwrap();
    let reply = client.send("GET", "/objects/0", &[("if-none-match", etag)], None).unwrap();
    assert_eq!((reply.status, reply.body.len()), (304, 0));
    let head = client.send("HEAD", "/objects/0", &[], None).unwrap();
    assert_eq!(head.header("content-length"), Some("1000000"));
    // Requests are counted, not pieces.
    let metrics = client.get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("concertina_broken_invariants_total"));
    assert!(line.is_none_or(|line| line.ends_with(" 0")), "{line:?}");
    server.stop();
}

#[test]
fn damage_is_found_before_it_leaves_and_cuts_the_reply() {
    let folder = tempfile::tempdir().unwrap();
    let server = pieces(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    put(&mut client, 3);
    let at = 700_000;
    damage(folder.path(), 0, at);
    damage(folder.path(), 1, at);
    // Other blocks are not touched by it.
    let (status, outcome, got) = range(&mut client, 0, "0-499999");
    assert_eq!((status, outcome.as_deref()), (206, Some("bulk_device")));
    assert!(got == bytes(0, SIZE)[..500_000]);
    let cut = sent(&server, 0);
    assert!(cut.len() < SIZE && cut.len() <= at - at % BLOCK, "{} bytes", cut.len());
    assert!(cut == bytes(0, SIZE)[..cut.len()], "the damage was sent");
    // The record is gone: the next reader gets the object from the origin.
    let next = client.get("/objects/0");
    assert!(next.status == 200 && next.body == bytes(0, SIZE));
    assert_eq!(next.header("concertina-outcome"), Some("origin"));
    // A range whose first piece is damaged is served from the origin at once.
    let (status, outcome, got) = range(&mut client, 1, &format!("{at}-{}", at + 9));
    assert_eq!((status, outcome.as_deref()), (206, Some("origin")));
    assert!(got == bytes(1, SIZE)[at..at + 10]);
    let (status, ..) = range(&mut client, 2, "0-99");
    assert_eq!(status, 206);
    server.stop();
}

/// On a disk that reads 4 MB in a second, a record of 1 MB holds it for a quarter of a second.
#[test]
fn short_reads_pass_between_the_pieces_of_a_long_one() {
    let folder = tempfile::tempdir().unwrap();
    let service = "device.0.service={kind=\"exponential\",mean_ms=0.1,bytes_per_s=\"4MB\"}";
    let server = pieces(folder.path(), &[service]);
    let mut client = Client::connect(server.address());
    put(&mut client, 1);
    assert_eq!(client.put("/objects/short", &bytes(9, 1000)).status, 200);
    on_device(&mut client, 2);
    let address = server.address();
    let begun = Instant::now();
    let long = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        let reply = client.get("/objects/0");
        (reply.body == bytes(0, SIZE), begun.elapsed())
    });
    let mut reads = 0;
    while begun.elapsed() < Duration::from_millis(150) {
        let reply = client.get("/objects/short");
        assert!(reply.status == 200 && reply.body == bytes(9, 1000));
        reads += 1;
    }
    let (same, took) = long.join().unwrap();
    assert!(same && took > Duration::from_millis(200), "{took:?}");
    // Without pieces one would have come, after the long one.
    assert!(reads >= 2, "{reads} short reads in 150 ms beside a long one of {took:?}");
    server.stop();
}
