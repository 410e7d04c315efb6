//! Bodies whose SHA-256 their signature covers, so that they are on their way to the store while they arrive: what differs or breaks
//! off never becomes the object.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use ring::{digest, hmac};

use super::*;
use crate::serve_client::bytes;

/// Below what is sent early, above, and large.
const SIZES: [usize; 3] = [40_000, 120_000, 3 << 20];

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex_of(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The head of a PUT of `length` bytes with this hash, signed in its header.
fn head(address: &str, key: &str, length: usize, hash: &str) -> String {
    let now = chrono::Utc::now().format("%Y%m%dT%H%M%SZ").to_string();
    let day = &now[..8];
    let scope = format!("{day}/us-east-1/s3/aws4_request");
    let mut signing = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{}", ADMIN.secret).as_bytes());
    for part in [day, "us-east-1", "s3", "aws4_request"] {
        let next = hmac::sign(&signing, part.as_bytes());
        signing = hmac::Key::new(hmac::HMAC_SHA256, next.as_ref());
    }
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "PUT\n/objects/{key}\n\nhost:{address}\nx-amz-content-sha256:{hash}\nx-amz-date:{now}\n\n{names}\n{hash}"
    );
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let signature = hex_of(hmac::sign(&signing, text.as_bytes()).as_ref());
    format!(
        "PUT /objects/{key} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
         x-amz-date: {now}\r\nx-amz-content-sha256: {hash}\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n\r\n",
        ADMIN.id
    )
}

/// Sends a request in pieces, calls `between` after each but the last, and returns the reply. A client that `leaves` ends its side, and
/// may get none.
fn send(address: &str, head: &str, pieces: &[&[u8]], leaves: bool, between: impl Fn()) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 {
            between();
        }
        // A front that refuses may have closed the connection.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    if leaves {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn a_body_that_differs_or_breaks_off_changes_nothing() {
    const TEST: &str = "serve_s3::streamed::a_body_that_differs_or_breaks_off_changes_nothing";
    let Some(store) = Store::start(TEST) else { return };
    let before = before(&store);
    let front = Front::start(&before.iter().map(String::as_str).collect::<Vec<_>>());
    let address = &*front.address;
    for size in SIZES {
        let key = format!("k{size}");
        let file = store.bucket().join(&key);
        let put = |body: &[u8]| {
            send(address, &head(address, &key, body.len(), &sha256(body)), &[body], false, || {})
        };
        // Twice: the front knows the store's etag the second time, and begins to send earlier.
        for seed in [1, 2] {
            let reply = put(&bytes(seed, size));
            assert!(reply.starts_with("HTTP/1.1 200"), "{size}: {reply}");
        }
        let kept = bytes(2, size);
        let (other, hash) = (bytes(3, size), sha256(&bytes(3, size)));
        let is_kept = |what: &str| {
            assert!(std::fs::read(&file).unwrap() == kept, "{size}, {what}: the store's object");
            let mut http = crate::serve_client::Client::connect(front.http.parse().unwrap());
            assert!(http.get(&format!("/objects/{key}")).body == kept, "{size}, {what}");
        };
        // One byte is another.
        let mut wrong = other.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let reply = send(address, &head(address, &key, size, &hash), &[&wrong], false, || {});
        assert!(reply.starts_with("HTTP/1.1 400"), "{size}: {reply}");
        assert!(reply.contains("<Code>XAmzContentSHA256Mismatch</Code>"), "{size}: {reply}");
        is_kept("another hash");
        // The client leaves.
        for sent in [0, size / 2, size - 1] {
            let part = &[&other[..sent]];
            let reply = send(address, &head(address, &key, size, &hash), part, true, || {});
            assert!(!reply.starts_with("HTTP/1.1 200"), "{size}, {sent}: {reply}");
            is_kept("cut");
        }
        // Fewer bytes are announced than the hash covers.
        let short = head(address, &key, size - 1, &hash);
        let reply = send(address, &short, &[&other[..size - 1]], false, || {});
        assert!(reply.starts_with("HTTP/1.1 400"), "{size}: {reply}");
        is_kept("another length");
        // A slow client is waited for.
        let (first, rest) = other.split_at(size / 2);
        let pause = || std::thread::sleep(std::time::Duration::from_millis(300));
        let reply = send(address, &head(address, &key, size, &hash), &[first, rest], false, pause);
        assert!(reply.starts_with("HTTP/1.1 200"), "{size}: {reply}");
        assert!(std::fs::read(&file).unwrap() == other, "{size}");
    }
}
