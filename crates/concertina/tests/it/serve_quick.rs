//! Plain reads, which a connection's socket answers before hyper sees them: the same replies, in the
//! same order, whatever stands before and behind them.

use std::io::Write;
use std::time::Duration;

use crate::serve_client::{Client, Reply, bytes, start, until};

/// A header that makes a read go the usual way, with the same reply: it is not a range.
const USUAL: (&str, &str) = ("range", "none");

fn headers_of(reply: &Reply) -> Vec<(String, String)> {
    let mut headers: Vec<_> =
        reply.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
    headers.sort();
    headers
}

#[test]
fn a_plain_read_is_answered_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    for size in [0, 1, 4096, 40_000, 300_000, 5_000_000] {
        let body = bytes(size as u64, size);
        let headers = [("content-type", "text/html"), ("concertina-meta-a", "b")];
        let put = client.send("PUT", "/objects/k~1", &headers, Some(&body)).unwrap();
        assert_eq!(put.status, 200);
        for method in ["GET", "HEAD", "GET"] {
            let usual = client.send(method, "/objects/k~1", &[USUAL], None).unwrap();
            let plain = client.send(method, "/objects/k~1", &[], None).unwrap();
            assert_eq!((usual.status, plain.status), (200, 200), "{method} {size}");
            assert_eq!(headers_of(&usual), headers_of(&plain), "{method} {size}");
            assert!(httpdate::parse_http_date(plain.header("date").unwrap()).is_ok());
            let expected: &[u8] = if method == "GET" { &body } else { &[] };
            assert!(plain.body == expected && usual.body == expected, "{method} {size}");
        }
    }
    server.stop();
}

/// Requests and what is expected of each: method, status and body.
fn conversation() -> Vec<(String, &'static str, u16, Vec<u8>)> {
    let large = bytes(7, 200_000);
    let plain = |path: &str| format!("GET /objects/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let put = |path: &str, body: &[u8]| {
        let body = String::from_utf8_lossy(body).into_owned();
        let length = body.len();
        format!(
            "PUT /objects/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let lines = "host: localhost\r\nrange: bytes=1-2";
    vec![
        (put("a", b"first"), "PUT", 200, Vec::new()),
        (plain("a"), "GET", 200, b"first".to_vec()),
        (plain("large"), "GET", 200, large.clone()),
        (plain("missing"), "GET", 404, Vec::new()),
        (plain("a"), "GET", 200, b"first".to_vec()),
        (format!("HEAD /objects/a HTTP/1.1\r\n{lines}\r\n\r\n"), "HEAD", 206, Vec::new()),
        (format!("GET /objects/a HTTP/1.1\r\n{lines}\r\n\r\n"), "GET", 206, b"ir".to_vec()),
        (plain("large"), "GET", 200, large.clone()),
        (put("a", b"GET /objects/large HTTP/1.1\r\n\r\n"), "PUT", 200, Vec::new()),
        (plain("a"), "GET", 200, b"GET /objects/large HTTP/1.1\r\n\r\n".to_vec()),
        ("HEAD /objects/a HTTP/1.1\r\nhost: localhost\r\n\r\n".into(), "HEAD", 200, Vec::new()),
        (put("a", b""), "PUT", 200, Vec::new()),
        (plain("a"), "GET", 200, Vec::new()),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "GET", 200, b"{\"ok\":true}".to_vec()),
        (plain("large"), "GET", 200, large.clone()),
        (
            "PUT /objects/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
                .into(),
            "PUT",
            200,
            Vec::new(),
        ),
        // hyper has the connection from here on.
        (plain("a"), "GET", 200, b"abc".to_vec()),
        (plain("large"), "GET", 200, large),
    ]
}

#[test]
fn requests_keep_their_order_however_they_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/large", &bytes(7, 200_000)).status, 200);
    let conversation = conversation();
    let all: String = conversation.iter().map(|(request, ..)| request.as_str()).collect();
    for piece in [1, 7, 40, 64, 333, all.len()] {
        let mut client = Client::connect(server.address());
        let mut stream = client.stream.try_clone().unwrap();
        let sent = all.clone();
        let sending = std::thread::spawn(move || {
            for piece in sent.as_bytes().chunks(piece) {
                stream.write_all(piece).unwrap();
                if piece.len() > 1 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        for (at, (request, method, status, body)) in conversation.iter().enumerate() {
            let reply = client.read(*method == "HEAD").unwrap();
            assert_eq!(reply.status, *status, "{at} in pieces of {piece}: {request:?}");
            if !body.is_empty() && *method == "GET" && !request.contains("/healthz") {
                assert!(reply.body == *body, "{at} in pieces of {piece}: {request:?}");
            }
        }
        sending.join().unwrap();
    }
    server.stop();
}

#[test]
fn plain_reads_keep_a_connection_open_and_silence_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.idle_s=0.6"]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", b"1").status, 200);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(client.get("/objects/a").body, b"1");
    }
    client.stream.write_all(b"GET /objects/a HTTP/1.1\r\nhost: loc").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(client.read(false).is_err(), "a part of a head keeps the connection");
    server.stop();
}

#[test]
fn plain_reads_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["observe.window_s=0.1"]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", b"12345").status, 200);
    for _ in 0..40 {
        assert_eq!(client.get("/objects/a").status, 200);
    }
    for queue in ["gateway", "node"] {
        let line = format!(
            "concertina_response_seconds_count{{queue=\"{queue}\",operation=\"get\",outcome=\"memory\"}} 40"
        );
        until(&line, || client.get("/metrics").text().contains(&line));
    }
    server.stop();
}
