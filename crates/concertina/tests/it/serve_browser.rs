//! Web pages of others that ask a server on loopback: by a foreign `Origin`, or by a name of their own that
//! they let point to 127.0.0.1 (DNS rebinding).

use crate::serve_client::{Client, start};

/// The status of a request with these headers, `Host` among them.
fn status(client: &mut Client, method: &str, path: &str, headers: &str) -> u16 {
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}content-length: 1\r\n\r\nx");
    std::io::Write::write_all(&mut client.stream, head.as_bytes()).unwrap();
    client.read(method == "HEAD").unwrap().status
}

#[test]
fn pages_of_others_neither_read_nor_write() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.hosts=cache.internal"]);
    let address = server.address();
    let mut client = Client::connect(address);
    assert_eq!(client.put("/objects/a", b"kept").status, 200);
    let rebound = "host: evil.example\r\n".to_owned();
    let foreign = format!("host: {address}\r\norigin: https://evil.example\r\n");
    for headers in [&rebound, &foreign] {
        for (method, path) in [
            ("GET", "/objects/a"),
            ("PUT", "/objects/a"),
            ("DELETE", "/objects/a"),
            ("GET", "/objects"),
            ("GET", "/admin/status"),
            ("GET", "/metrics"),
            ("POST", "/datasets/log/records"),
        ] {
            // A refused upload may end the connection.
            let got = status(&mut Client::connect(address), method, path, headers);
            assert_eq!(got, 403, "{method} {path} {headers}");
        }
        assert_eq!(status(&mut Client::connect(address), "GET", "/healthz", headers), 200);
    }
    assert_eq!(client.get("/objects/a").body, b"kept");
    for headers in [
        "host: cache.internal\r\n".to_owned(),
        "host: localhost:1\r\n".to_owned(),
        format!("host: {address}\r\norigin: http://{address}\r\n"),
    ] {
        assert_eq!(status(&mut Client::connect(address), "GET", "/objects/a", &headers), 200);
    }
    server.stop();
}

#[test]
fn a_stored_page_is_not_run_and_no_type_is_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["node.object_bytes_max=1kB"]);
    let mut client = Client::connect(server.address());
    for (kind, sandboxed) in
        [("text/html; charset=utf-8", true), ("image/svg+xml", true), ("text/plain", false)]
    {
        for size in [10, 3000] {
            let body = "<b>".repeat(size / 3);
            let put =
                client.send("PUT", "/objects/a", &[("content-type", kind)], Some(body.as_bytes()));
            assert_eq!(put.unwrap().status, 200);
            let reply = client.get("/objects/a");
            assert_eq!(reply.header("content-type"), Some(kind));
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            let policy = reply.header("content-security-policy");
            assert_eq!(policy, sandboxed.then_some("sandbox"), "{kind} {size}");
        }
    }
    server.stop();
}
