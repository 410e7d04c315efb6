//! Hostile clients of HTTP's path, before a node and a gateway: after each attack an honest client is served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use configuration::Config;
use serve::Server;

use crate::serve_client::{Client, free, overrides, start};

/// All that comes in reply to some bytes until the server closes, or says nothing for a second.
fn talk(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

fn honest(at: SocketAddr, what: &str) {
    let reply = Client::connect(at).get("/objects/kept");
    assert_eq!((reply.status, reply.text()), (200, "kept".to_owned()), "after {what}");
}

/// One request that may be read as two: the second deletes.
fn smuggling(at: SocketAddr) {
    const SECOND: &str = "DELETE /objects/kept HTTP/1.1\r\nhost: x\r\n\r\n";
    for (lines, body) in [
        ("content-length: 1\r\ntransfer-encoding: chunked", "0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ncontent-length: 5", "0\r\n\r\n"),
        ("content-length: 1\r\ncontent-length: 200", "x"),
        ("content-length: 1\r\ncontent-length: 1", "x"),
        ("content-length: 1, 200", "x"),
        ("content-length: 1, 1", "x"),
        ("content-length: +1", "x"),
        ("content-length: 0x1", "x"),
        ("content-length: 1 1", "x"),
        ("content-length:", "x"),
        ("content-length: 99999999999999999999", "x"),
        ("content-length : 1", "x"),
        ("content-length\u{b}: 1", "x"),
        ("content-length:\r\n 1", "x"),
        ("transfer-encoding: xchunked", "1\r\nx\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked, identity", "1\r\nx\r\n0\r\n\r\n"),
        ("transfer-encoding : chunked", "1\r\nx\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: identity", "1\r\nx\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked", "1\nx\n0\n\n"),
        ("transfer-encoding: chunked", "0x1\r\nx\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked", "ffffffffffffffff1\r\nx\r\n0\r\n\r\n"),
        ("x: y\ncontent-length: 1", "x"),
        ("x: y\rcontent-length: 1", "x"),
        ("x: \0", ""),
    ] {
        let outer = "PUT /objects/outer HTTP/1.1\r\nhost: x";
        let reply = talk(at, format!("{outer}\r\n{lines}\r\n\r\n{body}{SECOND}").as_bytes());
        let refused = reply.starts_with("HTTP/1.1 4") || reply.starts_with("HTTP/1.1 5");
        // Lines may end without a carriage return: that is one request, and the next.
        let plain = lines.starts_with("x: y\n");
        assert!(plain || refused || reply.is_empty(), "{lines:?} {body:?}: {reply}");
        assert!(plain || reply.matches("HTTP/1.1 ").count() <= 1, "{lines:?}: {reply}");
        if plain {
            assert_eq!(Client::connect(at).put("/objects/kept", b"kept").status, 200);
        }
        honest(at, lines);
    }
    // The same in HTTP/1.0, which has no chunks.
    let old = "PUT /objects/outer HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let reply = talk(at, format!("{old}{SECOND}").as_bytes());
    assert!(reply.matches("HTTP/1.1 ").count() <= 1 && !reply.contains(" 200 "), "{reply}");
    honest(at, "chunks in HTTP/1.0");
}

/// Line ends in keys and values become no lines of a reply.
fn injection(at: SocketAddr) {
    let key = "/objects/a%0d%0aset-cookie:%20x%0d%0a%0d%0abody";
    let mut client = Client::connect(at);
    assert_eq!(client.put(key, b"odd").status, 200);
    for method in ["GET", "HEAD", "DELETE", "GET"] {
        let reply = client.send(method, key, &[], None).unwrap();
        assert!(reply.header("set-cookie").is_none(), "{method}: {reply:?}");
    }
    for value in ["a\rset-cookie: x", "a\nset-cookie: x", "a\0b"] {
        let head = format!(
            "PUT /objects/b HTTP/1.1\r\nhost: x\r\nconcertina-meta-a: {value}\r\ncontent-length: 1\r\n\r\nx"
        );
        talk(at, head.as_bytes());
        let reply = client.get("/objects/b");
        assert!(reply.header("set-cookie").is_none(), "{value:?}: {reply:?}");
    }
    honest(at, "header injection");
}

/// Keys are names, not paths.
fn traversal(at: SocketAddr) {
    for path in [
        "/objects/../../../../etc/passwd",
        "/objects/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/objects/%2e%2e/%2e%2e/etc/passwd",
        "/objects//etc/passwd",
        "/../etc/passwd",
        "/objects/%00/../x",
        "/objects/..%5c..%5cx",
        "/objects/!key/identity/../../x",
    ] {
        let reply = talk(at, format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes());
        assert!(!reply.starts_with("HTTP/1.1 2") && !reply.contains("root:"), "{path}: {reply}");
        honest(at, path);
    }
    let reply = Client::connect(at).put("/objects/../../../escaped", b"x");
    assert!(matches!(reply.status, 200 | 400 | 403), "{reply:?}");
}

/// A client that sends its body in pieces reads the refusal that came before: its connection is not reset.
fn late_bodies(at: SocketAddr) {
    for head in ["content-length: 3000000", "transfer-encoding: chunked"] {
        let mut stream = TcpStream::connect(at).unwrap();
        let request = format!("PUT /objects/!s3/x HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 403");
        // The reply is here, so the server has ended its side. With a reset the second piece failed.
        for _ in 0..30 {
            stream.write_all(&[b'x'; 100_000]).unwrap();
        }
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with('}'), "{rest}");
    }
    honest(at, "bodies that come after their refusal");
}

fn attacked(at: SocketAddr, folder: &std::path::Path) {
    assert_eq!(Client::connect(at).put("/objects/kept", b"kept").status, 200);
    smuggling(at);
    injection(at);
    traversal(at);
    late_bodies(at);
    for up in folder.ancestors().skip(1).take(3) {
        assert!(!up.join("escaped").exists(), "{}", up.display());
    }
}

#[test]
fn attacks_on_a_node_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.idle_s=2", "serve.stall_s=2"]);
    attacked(server.address(), &folder.path().join("origin"));
    server.stop();
}

#[test]
fn attacks_on_a_gateway_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let member = format!("member.0={{name=\"a\",address=\"{}\"}}", free());
    let sets =
        [&*member, "cluster.name=a", "cluster.replicas=1", "serve.idle_s=2", "serve.stall_s=2"];
    let config = Config::load(None, &overrides(folder.path(), &sets)).unwrap();
    let server = Server::start(config, None).unwrap();
    attacked(server.address(), &folder.path().join("origin"));
    server.stop();
}
