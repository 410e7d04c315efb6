//! Replies from hyper, from misbehaving sockets, and of arbitrary bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use origin::{BoxFuture, Chunks, Error};

fn limits() -> Limits {
    Limits { head_bytes_max: 2000, body_bytes_max: 10_000_000, idle_max: 4, ..Limits::default() }
}

fn pool(address: SocketAddr) -> Pool {
    Pool::new(address, &[], limits())
}

/// A hyper server that echoes what it receives and counts its connections.
async fn echo() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let line = format!("{} {}", request.method(), request.uri());
                let early = request.uri().path() == "/early";
                let (parts, body) = request.into_parts();
                let body = if early {
                    Bytes::from_static(b"no")
                } else {
                    body.collect().await.map(|all| all.to_bytes()).unwrap_or_default()
                };
                let mut response = Response::new(Full::new(body));
                if early {
                    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
                }
                let headers = response.headers_mut();
                headers.insert("x-line", HeaderValue::from_str(&line).unwrap());
                if let Some(value) = parts.headers.get("x-given") {
                    headers.insert("x-given", value.clone());
                }
                Ok::<_, Infallible>(response)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, connections)
}

/// A server that, on each connection in turn, reads a request's head, sends the next of these
/// replies and closes.
async fn raw(replies: Vec<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for reply in replies {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            let _ = stream.write_all(reply).await;
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> bool {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => seen.push(byte),
            Err(_) => return false,
        }
    }
    true
}

struct Pieces {
    pieces: Vec<Result<Bytes, Error>>,
    length: Option<u64>,
}

impl Chunks for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.pieces.is_empty() { None } else { Some(self.pieces.remove(0)) }
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        self.length
    }
}

fn pieces(lengths: &[usize], length: Option<u64>) -> Pieces {
    let piece = |length: &usize| Ok(Bytes::from(vec![b'p'; *length]));
    Pieces { pieces: lengths.iter().map(piece).collect(), length }
}

async fn get(pool: &Pool, path: &str) -> Result<Reply, Fault> {
    pool.send(&Method::GET, path, &[], Outgoing::Empty).await
}

#[tokio::test]
async fn requests_and_replies_keep_one_connection() {
    let (address, connections) = echo().await;
    let common = [(HeaderName::from_static("x-given"), HeaderValue::from_static("common"))];
    let pool = Pool::new(address, &common, limits());
    let reply = get(&pool, "/a?b=c").await.unwrap();
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers["x-line"], "GET /a?b=c");
    assert_eq!(reply.headers["x-given"], "common");
    assert_eq!(reply.body.gather(0).await.unwrap(), Bytes::new());
    for size in [1, 1000, 80_000, 3_000_000] {
        let body = Bytes::from((0..size).map(|i| (i % 251) as u8).collect::<Vec<u8>>());
        let send = || pool.send(&Method::POST, "/x", &[], Outgoing::Bytes(body.clone()));
        assert_eq!(send().await.unwrap().body.gather(size).await.unwrap(), body);
        assert_eq!(send().await.unwrap().body.gather_in_place(size).await.unwrap(), body);
        let mut incoming = send().await.unwrap().body;
        let mut all = BytesMut::new();
        while let Some(piece) = incoming.next().await {
            all.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(all, body);
    }
    let head = pool.send(&Method::HEAD, "/h", &[], Outgoing::Bytes(Bytes::from_static(b"12345")));
    let head = head.await.unwrap();
    assert_eq!(
        (head.body.bytes_left(), &head.headers["content-length"]),
        (0, &"5".parse().unwrap())
    );
    for length in [Some(120_007), None] {
        let mut upload = pieces(&[100_000, 0, 7, 20_000], length);
        let put = pool.send(&Method::PUT, "/u", &[], Outgoing::Stream(&mut upload)).await.unwrap();
        assert_eq!(put.body.gather(200_000).await.unwrap().len(), 120_007);
    }
    let delete = pool.send(&Method::DELETE, "/d", &[], Outgoing::Empty).await.unwrap();
    assert_eq!(delete.headers["x-line"], "DELETE /d");
    assert_eq!((connections.load(Ordering::Relaxed), pool.idle()), (1, 1));
}

#[tokio::test]
async fn a_connection_with_an_unread_body_is_not_reused() {
    let (address, connections) = echo().await;
    let pool = pool(address);
    let body = Outgoing::Bytes(Bytes::from(vec![1; 100_000]));
    let reply = pool.send(&Method::POST, "/", &[], body).await.unwrap();
    assert!(reply.body.gather(99_999).await.unwrap_err().to_string().contains("100000 bytes"));
    assert_eq!(pool.idle(), 0);
    get(&pool, "/").await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_early_reply_ends_the_upload() {
    let (address, _) = echo().await;
    let pool = pool(address);
    let mut upload = pieces(&[10; 3], Some(1_000_000_000));
    upload.pieces.extend((0..400).map(|_| Ok(Bytes::from(vec![0; 1_000_000]))));
    let reply =
        pool.send(&Method::PUT, "/early", &[], Outgoing::Stream(&mut upload)).await.unwrap();
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.body.gather(10).await.unwrap(), "no");
    assert!(upload.pieces.len() > 100, "{} left", upload.pieces.len());
    assert_eq!(pool.idle(), 0);
}

#[tokio::test]
async fn uploads_that_differ_from_their_declared_length_are_request_faults() {
    let (address, _) = echo().await;
    let pool = pool(address);
    let broken = Pieces {
        pieces: vec![Ok(Bytes::from_static(b"a")), Err(Error::Upload("client left".to_owned()))],
        length: None,
    };
    let rows = [
        (pieces(&[5], Some(4)), "longer"),
        (pieces(&[5], Some(9)), "4 bytes before"),
        (broken, "client left"),
    ];
    for (mut upload, words) in rows {
        let put = pool.send(&Method::PUT, "/", &[], Outgoing::Stream(&mut upload)).await;
        let fault = put.unwrap_err();
        assert!(matches!(fault, Fault::Request(_)), "{fault:?}");
        assert!(fault.to_string().contains(words), "{fault}");
    }
    for path in ["", "x", "/a b", "/a\r\nx: y", "/é"] {
        assert!(matches!(get(&pool, path).await, Err(Fault::Request(_))), "{path:?}");
    }
}

#[tokio::test]
async fn malformed_replies_are_faults() {
    let long: &'static [u8] = [&b"HTTP/1.1 200 OK\r\nx: "[..], &[b'a'; 3000]].concat().leak();
    let many: &'static [u8] =
        [&b"HTTP/1.1 200 OK\r\n"[..], &b"a: b\r\n".repeat(HEADERS_MAX + 1)[..], b"\r\n"]
            .concat()
            .leak();
    let interim: &'static [u8] = b"HTTP/1.1 100 C\r\n\r\n".repeat(20).leak();
    let rows: &[(&'static [u8], &str)] = &[
        (b"garbage that is no HTTP\r\n\r\n", "malformed"),
        (long, "longer than 2000 bytes"),
        (many, "malformed"),
        (interim, "interim"),
        (b"HTTP/1.1 101 Switch\r\n\r\n", "interim"),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", "missing content-length"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "transfer-encoding"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", "two"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\na", "not a number"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\na", "not a number"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10000001\r\n\r\na", "at most 10000000"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "broke"),
        (b"", "broke"),
    ];
    let address = raw(rows.iter().map(|row| row.0).collect()).await;
    for (reply, words) in rows {
        let fault = get(&pool(address), "/").await.unwrap_err().to_string();
        assert!(fault.contains(words), "{}: {fault}", String::from_utf8_lossy(reply));
    }
}

#[tokio::test]
async fn bodies_that_break_off_are_faults() {
    let short: &'static [u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let address = raw(vec![short; 3]).await;
    let pool = pool(address);
    let broken = |fault: Fault| assert!(matches!(fault, Fault::Broken(_)), "{fault}");
    broken(get(&pool, "/").await.unwrap().body.gather(10).await.unwrap_err());
    broken(get(&pool, "/").await.unwrap().body.gather_in_place(10).await.unwrap_err());
    let mut body = get(&pool, "/").await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "abc");
    broken(body.next().await.unwrap().unwrap_err());
    assert!(body.next().await.is_none());
    assert_eq!((body.bytes_left(), pool.idle()), (7, 0));
}

#[tokio::test]
async fn connections_that_cannot_be_reused_are_not_kept() {
    let rows: Vec<&'static [u8]> = vec![
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc",
        b"HTTP/1.1 204 No\r\ncontent-length: 1\r\n\r\na",
    ];
    let address = raw(rows.clone()).await;
    let pool = pool(address);
    for _ in rows {
        let reply = get(&pool, "/").await.unwrap();
        assert!(reply.body.gather(1).await.is_ok());
        assert_eq!(pool.idle(), 0);
    }
}

/// A server that restarts, or limits idle connections, closes those that the pool keeps.
#[tokio::test]
async fn a_closed_kept_connection_is_replaced_for_requests_that_may_be_sent_twice() {
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Each connection replies once, and closes at the second request.
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(reply).await.unwrap();
            tokio::spawn(async move { read_head(&mut stream).await });
        }
    });
    let pool = pool(address);
    for _ in 0..3 {
        assert_eq!(get(&pool, "/").await.unwrap().body.gather(1).await.unwrap(), "a");
    }
    let put = pool.send(&Method::PUT, "/", &[], Outgoing::Empty).await;
    assert!(matches!(put, Err(Fault::Broken(_))), "{put:?}");
}

#[tokio::test]
async fn a_closed_connection_is_seen_before_a_write() {
    let reply: &'static [u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    let address = raw(vec![reply; 2]).await;
    let pool = pool(address);
    get(&pool, "/").await.unwrap().body.gather(1).await.unwrap();
    std::thread::sleep(Duration::from_millis(50));
    tokio::task::yield_now().await;
    let put = pool.send(&Method::PUT, "/", &[], Outgoing::Bytes(Bytes::from_static(b"x"))).await;
    assert_eq!(put.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_refused_connection_is_a_connect_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert!(matches!(get(&pool(address), "/").await, Err(Fault::Connect(_))));
}

#[tokio::test]
async fn idle_connections_are_bounded() {
    let (address, _) = echo().await;
    let pool = pool(address);
    let mut replies = Vec::new();
    for _ in 0..7 {
        let body = Outgoing::Bytes(Bytes::from_static(b"a"));
        replies.push(pool.send(&Method::POST, "/", &[], body).await.unwrap());
    }
    for reply in replies {
        reply.body.gather(1).await.unwrap();
    }
    assert_eq!(pool.idle(), 4);
}

const REPLIES: [&[u8]; 3] = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\netag: \"a\"\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nx:\r\n\r\n",
    b"HTTP/1.1 206 P\r\nconnection: close\r\ncontent-range: bytes 0-1/9\r\ncontent-length: 2\r\n\r\nab",
];

/// Parses in two pieces, as a connection does; checks that a parsed head is within the limits.
fn parses(bytes: &[u8], cut: usize) -> Result<Option<(StatusCode, u64)>, TestCaseError> {
    let mut buffer = BytesMut::new();
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    for piece in [first, second] {
        buffer.extend_from_slice(piece);
        let before = buffer.len();
        if let Ok(Some(head)) = reply::parse(&mut buffer, false, &limits()) {
            prop_assert!(buffer.len() < before);
            prop_assert!(head.length <= limits().body_bytes_max);
            prop_assert!(head.headers.len() <= HEADERS_MAX);
            return Ok(Some((head.status, head.length)));
        }
    }
    Ok(None)
}

proptest! {
    #[test]
    fn arbitrary_bytes_parse_or_are_a_fault(
        bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300,
    ) {
        parses(&bytes, cut)?;
    }

    #[test]
    fn mutated_replies_parse_or_are_a_fault(
        which in 0usize..3, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 0usize..90,
    ) {
        let mut bytes = REPLIES[which].to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        parses(&bytes, cut)?;
    }

    #[test]
    fn cuts_do_not_matter(which in 0usize..3, cut in 0usize..90) {
        let whole = parses(REPLIES[which], 0)?;
        prop_assert!(whole.is_some());
        prop_assert_eq!(parses(REPLIES[which], cut)?, whole);
    }
}
