//! Objects larger than the tiers keep, whose file in the origin is damaged: a disk that lies.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::serve_client::{Client, Reply, bytes, start};

const SIZE: usize = 9_000_000;

fn file_of(folder: &Path, key: &str) -> PathBuf {
    folder.join("origin").join(format!("{:.2}", blake3::hash(key.as_bytes()).to_hex())).join(key)
}

fn part(client: &mut Client, first: usize, last: usize) -> Reply {
    let range = format!("bytes={first}-{last}");
    client.send("GET", "/objects/large", &[("range", &range)], None).unwrap()
}

/// All bytes of a reply that may break off.
fn read_reply(client: &mut Client) -> Vec<u8> {
    let head = client.send("HEAD", "/objects/large", &[], None).unwrap();
    assert_eq!(head.status, 200);
    let request = "GET /objects/large HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    std::io::Write::write_all(&mut client.stream, request.as_bytes()).unwrap();
    let mut all = Vec::new();
    let _ = client.stream.read_to_end(&mut all);
    let start = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    all.split_off(start)
}

#[test]
fn no_damaged_byte_of_a_large_object_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    let body = bytes(3, SIZE);
    assert_eq!(client.put("/objects/large", &body).status, 200);
    let path = file_of(folder.path(), "large");
    let mut stored = fs::read(&path).unwrap();
    let at = 8_900_000;
    stored[at] ^= 1;
    fs::write(&path, &stored).unwrap();
    let damaged = part(&mut client, at - 10, at + 10);
    assert_eq!(damaged.status, 502, "a range with the damage is not sent");
    assert!(damaged.text().contains("checksum"), "{}", damaged.text());
    for (first, last) in [(0, 99), (at - 100_000, at - 70_000), (at + 70_000, SIZE - 1)] {
        let reply = part(&mut client, first, last);
        assert!(reply.status == 206 && reply.body == body[first..=last], "{first}-{last}");
    }
    let sent = read_reply(&mut client);
    assert!(sent.len() > at - (1 << 20) && sent.len() <= at, "{} bytes", sent.len());
    assert!(sent == body[..sent.len()], "the damage was sent");
    server.stop();
}

#[test]
fn files_of_the_first_format_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    let body = bytes(4, SIZE);
    assert_eq!(client.put("/objects/large", &body).status, 200);
    // As it was written before there were checksums.
    let path = file_of(folder.path(), "large");
    let mut stored = fs::read(&path).unwrap();
    stored.drain(SIZE..SIZE + 4 * SIZE.div_ceil(65_536));
    assert!(stored.ends_with(b"CONCobj2"));
    *stored.last_mut().unwrap() = b'1';
    fs::write(&path, &stored).unwrap();
    assert!(part(&mut client, 1_000_000, 2_000_000).body == body[1_000_000..=2_000_000]);
    assert!(read_reply(&mut client) == body);
    server.stop();
}
