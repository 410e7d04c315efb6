//! HTTP's rules on where a request ends and whom it is for, before a node, a gateway and the S3 front: over the path of
//! plain reads, which hyper never sees, and over hyper's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use configuration::Config;
use serve::Server;

use crate::serve_client::{Client, free, overrides, start};

/// The status of the only reply to some bytes. The connection must end after a refusal.
fn status(at: SocketAddr, bytes: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut reply = Vec::new();
    let mut part = [0; 4096];
    // A refusal ends the connection; other replies leave it open, and all of these are short.
    while let Ok(count @ 1..) = stream.read(&mut part) {
        reply.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&reply);
        if text.contains("\r\n\r\n") && !text.contains("connection: close") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&reply);
    let refused = text.contains("connection: close");
    assert!(text.matches("HTTP/1.1 ").count() <= 1, "{bytes:?}: {text}");
    assert!(
        !refused || text.contains("\"error\"") || text.contains("<Error>"),
        "{bytes:?}: {text}"
    );
    text.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Heads that follow a request line, and the status of a write and of a read with them (of these, of a plain read and of one
/// that hyper answers). 0: that of a request without a mistake.
const RULES: &[(&str, u16)] = &[
    ("host: localhost", 0),
    ("HOST: localhost:80", 0),
    ("host: [::1]", 0),
    ("", 400),
    ("x-host: localhost", 400),
    ("host:", 400),
    ("host: ", 400),
    ("host: localhost\r\nhost: localhost", 400),
    ("host: localhost\r\nhost: other", 400),
    ("host: localhost:65536", 400),
    ("host: localhost:x", 400),
    ("host: user@localhost", 400),
    ("host: local host", 400),
    ("host: localhost/a", 400),
    ("host: localhost\r\ntransfer-encoding: gzip, chunked", 501),
    ("host: localhost\r\ntransfer-encoding: identity, chunked", 501),
    ("host: localhost\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked", 501),
    ("host: localhost\r\ntransfer-encoding: chunked, chunked", 400),
    ("host: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked", 400),
    ("host: localhost\r\ntransfer-encoding: chunked, gzip", 400),
    ("host: localhost\r\ntransfer-encoding: gzip", 400),
    ("host: localhost\r\ntransfer-encoding: identity", 400),
    ("host: localhost\r\ntransfer-encoding: x", 400),
    ("host: localhost\r\ntransfer-encoding:", 400),
    ("host: localhost\r\ncontent-length: 9223372036854775808", 413),
    ("host: localhost\r\ncontent-length: 18446744073709551614", 413),
    ("host: localhost\r\ncontent-length: 18446744073709551615", 413),
    ("host: localhost\r\ncontent-length: 18446744073709551616", 413),
    ("host: localhost\r\ncontent-length: +5", 400),
    ("host: localhost\r\ncontent-length: -1", 400),
    ("host: localhost\r\ncontent-length: 0x10", 400),
    ("host: localhost\r\ncontent-length: 5, 5", 400),
    ("host: localhost\r\ncontent-length: 1e3", 400),
    ("host: localhost\r\ncontent-length:", 400),
];

/// Addresses with an escape that is cut off, below each path of a server.
const ADDRESSES: &[&str] = &[
    "/objects/%zz",
    "/objects/%4",
    "/objects/a%",
    "/objects?prefix=%zz",
    "/objects?after=%",
    "/objects?limit=1%0",
    "/objects?pre%gfix=a",
    "/datasets/%zz/records",
    "/datasets/a/records?query=%zz",
    "/datasets/a/count?bytes=%4",
    "/admin/members/%zz",
    "/admin/status?%",
    "/metrics?a=%g0",
    "/bucket/%zz",
    "/bucket?list-type=2&prefix=%zz",
    "http://localhost/objects/%zz",
];

fn judged(at: SocketAddr) {
    for (lines, expected) in RULES {
        for line in ["GET /objects/kept", "GET /metrics", "HEAD /healthz", "PUT /objects/outer"] {
            let lines = if lines.is_empty() { String::new() } else { format!("{lines}\r\n") };
            let found = status(at, &format!("{line} HTTP/1.1\r\n{lines}\r\n"));
            let fits = if *expected == 0 { found != 400 && found != 0 } else { found == *expected };
            assert!(fits, "{line} with {lines:?} is answered {found}, not {expected}");
        }
        // After a body in chunks only hyper knows where requests begin. hyper refuses lengths above its own maximum with another status.
        let first = "GET /healthz HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let second = format!(
            "GET /objects/kept HTTP/1.1\r\n{lines}\r\n{}",
            if lines.is_empty() { "" } else { "\r\n" }
        );
        stream.write_all(first.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200", "{lines:?}");
        stream.write_all(second.as_bytes()).unwrap();
        let mut text = String::new();
        let mut part = [0; 4096];
        while !text.contains("HTTP/1.1 ")
            || !text.ends_with("\r\n\r\n")
                && !text.ends_with("kept")
                && !text.ends_with('}')
                && !text.ends_with('>')
        {
            match stream.read(&mut part) {
                Ok(count @ 1..) => text += &String::from_utf8_lossy(&part[..count]),
                _ => break,
            }
        }
        let refused = *expected != 0;
        let second = text.split("HTTP/1.1 ").nth(1).unwrap_or("");
        assert_eq!(
            second.starts_with(['4', '5']) && !second.starts_with("403"),
            refused,
            "{lines:?}: {text}"
        );
    }
    for address in ADDRESSES {
        for method in ["GET", "PUT", "DELETE", "POST"] {
            let head = format!(
                "{method} {address} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
            );
            assert_eq!(status(at, &head), 400, "{method} {address}");
        }
    }
    // HTTP/1.0 does not define chunks and does not require Host.
    assert_eq!(status(at, "GET /healthz HTTP/1.0\r\n\r\n"), 200);
    assert_eq!(status(at, "GET /healthz HTTP/1.0\r\nhost: a\r\nhost: a\r\n\r\n"), 400);
    assert_eq!(
        status(at, "PUT /objects/a HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        400
    );
}

/// Whole messages, and the statuses that RFC 9110 and 9112 allow. 0: the connection closes without a reply.
const MESSAGES: &[(&str, &[u16])] = &[
    // 9112, 2.2: an empty line before a request is ignored; a bare line feed may end a line, a bare carriage return may not.
    ("\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[200]),
    ("GET /healthz HTTP/1.1\nhost: localhost\n\n", &[200, 400]),
    ("GET /healthz HTTP/1.1\rhost: localhost\r\r", &[400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\rx: b\r\n\r\n", &[400]),
    // 2.2: nothing between the request line and the first field.
    ("GET /healthz HTTP/1.1\r\n host: localhost\r\n\r\n", &[400]),
    ("GET /healthz HTTP/1.1\r\n \r\nhost: localhost\r\n\r\n", &[400]),
    // 2.3: versions.
    ("GET /healthz HTTP/1.0\r\n\r\n", &[200]),
    ("GET /healthz HTTP/9.9\r\nhost: localhost\r\n\r\n", &[400, 505]),
    ("GET /healthz HTTP/1.1.1\r\nhost: localhost\r\n\r\n", &[400, 505]),
    ("GET /healthz http/1.1\r\nhost: localhost\r\n\r\n", &[400, 505]),
    ("GET /healthz HTP/1.1\r\nhost: localhost\r\n\r\n", &[400, 505]),
    ("GET /healthz\r\nhost: localhost\r\n\r\n", &[400]),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0, 400, 505]),
    // 3: one space between the parts of a request line.
    ("GET/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400]),
    ("GET /objects/a b HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400]),
    ("G\u{1}T /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400]),
    ("GET /he\u{1}lthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400]),
    // 9110, 9.1: methods are told apart by case; one that is not known is 501, one that is not allowed 405.
    ("get /objects/kept HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400, 403, 405, 501]),
    ("BREW /objects/kept HTTP/1.1\r\nhost: localhost\r\n\r\n", &[403, 405, 501]),
    // 3.2: forms of the target.
    ("GET http://localhost/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[200]),
    ("GET http://b/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[200, 403]),
    ("GET http://localhost/healthz HTTP/1.1\r\n\r\n", &[400]),
    ("GET healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400, 403, 404]),
    ("GET * HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400, 403, 404]),
    ("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n", &[400, 403, 404, 405, 501]),
    // 5: fields.
    ("GET /healthz HTTP/1.1\r\nhost : localhost\r\n\r\n", &[400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx y: z\r\n\r\n", &[400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n: z\r\n\r\n", &[400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx\r\n\r\n", &[400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: \0\r\n\r\n", &[400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: \u{7f}\r\n\r\n", &[200, 400]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx:y\r\n\r\n", &[200]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: \t y \t\r\n\r\n", &[200]),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx:\r\n\r\n", &[200]),
    // 5.2: a folded line is refused.
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: y\r\n z\r\n\r\n", &[400]),
    // 6.1 and 6.3: lengths. hyper reads a body that is not wanted, or closes.
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nab", &[200]),
    (
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    ("PUT /objects/h1 HTTP/1.1\r\nhost: localhost\r\n\r\n", &[403, 411]),
    (
        "PUT /objects/h1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999\r\n\r\n",
        &[413],
    ),
    // 7.1: chunks.
    (
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2;a=\"b\"\r\nab\r\n0\r\nx: y\r\n\r\n",
        &[200],
    ),
    // 9110, 10.1.4: what a client takes of codings is not how its body is coded.
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nte: identity\r\n\r\n", &[200]),
    (
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nte: trailers, deflate;q=0.5\r\nconnection: te\r\n\r\n",
        &[200],
    ),
    // 9110, 10.1.1 and 7.8: expectations and upgrades that are not known.
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nexpect: 200-ok\r\n\r\n", &[200, 417]),
    (
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n",
        &[200],
    ),
];

/// Bodies in chunks that are none: a write with them is refused, and nothing is stored.
const CHUNKS: &[&str] = &[
    "x\r\nab\r\n0\r\n\r\n",
    "-1\r\nab\r\n0\r\n\r\n",
    "2\r\nabc\r\n0\r\n\r\n",
    "2\r\nab0\r\n\r\n",
    "2 2\r\nab\r\n0\r\n\r\n",
    "ffffffffffffffffff\r\nab\r\n0\r\n\r\n",
    "\r\nab\r\n0\r\n\r\n",
];

/// What RFC 9110 and 9112 ask of a server, on whole messages.
fn conforms(at: SocketAddr) {
    for (message, allowed) in MESSAGES {
        let found = status(at, message);
        assert!(allowed.contains(&found), "{message:?} is answered {found}, not {allowed:?}");
    }
    let fields = |count: usize| (0..count).map(|n| format!("x{n}: y\r\n")).collect::<String>();
    let head = |fields: String| format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    for count in [60, 1000] {
        assert_eq!(status(at, &head(fields(count))), 200, "{count} fields");
    }
    for (what, fields) in
        [("2000 fields", fields(2000)), ("a long field", format!("x: {}\r\n", "y".repeat(200_000)))]
    {
        let found = status(at, &head(fields));
        assert!(matches!(found, 431 | 400), "{what}: {found}");
    }
}

/// A write whose chunks are malformed.
fn chunked(at: SocketAddr) {
    for body in CHUNKS {
        let head =
            "PUT /objects/chunks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        let found = status(at, &format!("{head}{body}"));
        assert!(matches!(found, 400 | 0), "{body:?}: {found}");
        assert_eq!(Client::connect(at).get("/objects/chunks").status, 404, "{body:?}");
    }
}

/// What a page of another site may not do at a server without a token.
fn browsed(at: SocketAddr) {
    let port = at.port();
    let own = format!("host: localhost:{port}\r\n");
    for (target, lines, expected) in [
        ("/metrics", format!("{own}origin: http://localhost:{port}"), 200),
        ("/metrics", format!("{own}origin: HTTP://LOCALHOST:{port}"), 200),
        ("/metrics", format!("{own}origin: https://localhost:{port}"), 403),
        ("/metrics", format!("{own}origin: http://localhost"), 403),
        ("/metrics", "host: localhost\r\norigin: http://localhost:80".to_owned(), 200),
        ("/metrics", "host: localhost\r\norigin: https://localhost:443".to_owned(), 403),
        ("/metrics", format!("{own}origin: null"), 403),
        ("/metrics", format!("{own}origin: http://localhost:{port}\r\norigin: http://evil"), 403),
        ("http://evil.example/metrics", own.clone(), 403),
        ("http://localhost/metrics", "host: evil.example".to_owned(), 200),
        ("http://user@localhost/metrics", own.clone(), 400),
        ("http://evil.example/objects/kept", own.clone(), 403),
    ] {
        let found = status(at, &format!("GET {target} HTTP/1.1\r\n{}\r\n\r\n", lines.trim_end()));
        assert_eq!(found, expected, "{target} with {lines:?}");
    }
}

/// Keys that clients may not write, whatever they are asked as.
fn reserved(at: SocketAddr) {
    let mut client = Client::connect(at);
    for key in
        ["!s3/parts/x", "!s3/begun/x", "!s3/", "%21s3/x", "!%733/x", "!key/identity", "%21key/x"]
    {
        let path = format!("/objects/{key}");
        assert_eq!(client.put(&path, b"x").status, 403, "PUT {path}");
        assert_eq!(client.send("DELETE", &path, &[], None).unwrap().status, 403, "DELETE {path}");
        assert_eq!(client.get(&path).status, 404, "GET {path}");
    }
    for key in ["!s4/x", "a/!s3/x", "!keys", "!S3/x"] {
        assert_eq!(client.put(&format!("/objects/{key}"), b"x").status, 200, "{key}");
    }
}

#[test]
fn a_node_keeps_to_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let at = server.address();
    assert_eq!(Client::connect(at).put("/objects/kept", b"kept").status, 200);
    judged(at);
    conforms(at);
    chunked(at);
    browsed(at);
    reserved(at);
    server.stop();
}

#[test]
fn a_gateway_keeps_to_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let member = format!("member.0={{name=\"a\",address=\"{}\"}}", free());
    let sets = [&*member, "cluster.name=a", "cluster.replicas=1"];
    let server =
        Server::start(Config::load(None, &overrides(folder.path(), &sets)).unwrap(), None).unwrap();
    let at = server.address();
    assert_eq!(Client::connect(at).put("/objects/kept", b"kept").status, 200);
    judged(at);
    conforms(at);
    chunked(at);
    browsed(at);
    reserved(at);
    server.stop();
}

#[test]
fn the_s3_front_keeps_to_the_rules() {
    let front = crate::serve_s3::Front::start(&[]);
    judged(front.address.parse().unwrap());
    conforms(front.address.parse().unwrap());
    worded(front.address.parse().unwrap());
    let at = front.http.parse().unwrap();
    assert_eq!(Client::connect(at).put("/objects/kept", b"kept").status, 200);
    judged(at);
}

/// Requests that are refused before they are S3's are told so in XML, as S3's clients read errors.
fn worded(at: SocketAddr) {
    let long = "y".repeat(200_000);
    let many = (0..2000).map(|n| format!("x{n}: y\r\n")).collect::<String>();
    let rows = [
        ("GET /objects/kept HTTP/1.1\r\n\r\n".to_owned(), "InvalidRequest"),
        ("GET /objects/kept HTTP/9.9\r\nhost: x\r\n\r\n".to_owned(), "InvalidRequest"),
        ("GET /objects/kept HTTP/1.1\r\nhost: x\r\nx\r\n\r\n".to_owned(), "InvalidRequest"),
        (
            "PUT /objects/a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_owned(),
            "InvalidRequest",
        ),
        (
            "PUT /objects/a HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999\r\n\r\n".to_owned(),
            "EntityTooLarge",
        ),
        (
            format!("GET /objects/{long} HTTP/1.1\r\nhost: x\r\n\r\n"),
            "RequestHeaderSectionTooLarge",
        ),
        (format!("GET /objects/kept HTTP/1.1\r\nhost: x\r\n{many}\r\n"), "RequestHeaderSectionTooLarge"),
    ];
    for (bytes, code) in rows {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
        let about = format!("{}: {reply}", &bytes[..bytes.len().min(60)]);
        assert!(body.contains(&format!("<Error><Code>{code}</Code>")), "{about}");
        assert!(head.contains("content-type: application/xml"), "{about}");
        let id = head.split_once("x-amz-request-id: ").unwrap().1.split("\r\n").next().unwrap();
        assert!(body.contains(&format!("<RequestId>{id}</RequestId>")), "{about}");
    }
}

/// A connection past the limits is refused in XML too.
#[test]
fn a_connection_too_many_at_the_s3_front_reads_xml() {
    let front = crate::serve_s3::Front::start(&["serve.connections_per_address_max=1"]);
    let at: SocketAddr = front.address.parse().unwrap();
    let mut kept = Client::connect(at);
    assert_eq!(kept.get("/healthz").status, 200);
    let refused = Client::connect(at).get("/objects/a");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.text().contains("<Error><Code>SlowDown</Code>"), "{}", refused.text());
}

/// memcached's protocol reaches the same objects.
#[test]
fn memcacheds_clients_write_no_reserved_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["memcached.node_listen=127.0.0.1:0"]);
    let mut stream = TcpStream::connect(server.memcached().unwrap()).unwrap();
    let mut tell = |text: &str| {
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = [0; 512];
        let count = stream.read(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[..count]).into_owned()
    };
    for key in ["!s3/parts/x", "!key/identity"] {
        for text in [
            format!("set {key} 0 0 1\r\nx\r\n"),
            format!("add {key} 0 0 1\r\nx\r\n"),
            format!("delete {key}\r\n"),
            format!("ms {key} 1\r\nx\r\n"),
            format!("md {key}\r\n"),
        ] {
            let reply = tell(&text);
            assert!(reply.contains("the server's own"), "{text:?}: {reply}");
        }
    }
    assert_eq!(tell("set !keys 0 0 1\r\nx\r\n"), "STORED\r\n");
    server.stop();
}

#[test]
fn the_scheme_of_a_token_is_of_any_case() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.token=of-clients"]);
    for (shown, expected) in [
        ("Bearer of-clients", 404),
        ("bearer of-clients", 404),
        ("BEARER   of-clients", 404),
        ("bearer other", 401),
        ("bearerof-clients", 401),
        ("Basic of-clients", 401),
        ("of-clients", 401),
    ] {
        for path in ["/objects/none", "/objects/no%6ee"] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: {shown}\r\n\r\n");
            assert_eq!(status(server.address(), &head), expected, "{shown} for {path}");
        }
    }
    server.stop();
}
