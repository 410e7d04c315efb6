//! What clients see: objects over HTTP, and what is bad input.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use configuration::Config;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serve::Server;

use crate::serve_client::{Client, bytes, free, overrides, path_of, start, until};

#[test]
fn an_object_is_put_read_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    let body = bytes(1, 5000);
    let headers = [
        ("content-type", "image/png"),
        ("concertina-meta-Owner", "me"),
        ("expect", "100-continue"),
    ];
    client.stream.write_all(b"").unwrap();
    assert_eq!(client.get("/objects/a").status, 404);
    let put = client.send("PUT", "/objects/a", &headers, Some(&body)).unwrap();
    // The interim answer comes first.
    let put = if put.status == 100 { client.read(false).unwrap() } else { put };
    assert_eq!(put.status, 200, "{}", put.text());
    let got = client.send("GET", "/objects/a", &[("concertina-stages", "1")], None).unwrap();
    assert_eq!((got.status, &got.body), (200, &body));
    assert_eq!(got.header("content-type"), Some("image/png"));
    assert_eq!(got.header("concertina-meta-owner"), Some("me"));
    assert_eq!(got.header("etag"), put.header("etag"));
    assert_eq!(got.header("concertina-outcome"), Some("memory"));
    assert_eq!(got.header("concertina-queue-length"), Some("0"));
    assert!(got.header("concertina-stages").unwrap().contains("served_ns="));
    assert!(httpdate::parse_http_date(got.header("last-modified").unwrap()).is_ok());
    let head = client.send("HEAD", "/objects/a", &[], None).unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, Some("5000")));
    assert_eq!(client.send("DELETE", "/objects/a", &[], None).unwrap().status, 204);
    assert_eq!(client.get("/objects/a").status, 404);
    assert_eq!(client.send("DELETE", "/objects/a", &[], None).unwrap().status, 204);
    assert_eq!(client.put("/objects/empty", b"").status, 200);
    let empty = client.get("/objects/empty");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    server.stop();
}

#[test]
fn conditions_are_judged_for_reads_and_within_the_turn_of_writes() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    let mut send = |method: &str, headers: &[(&str, &str)], body: Option<&[u8]>| {
        client.send(method, "/objects/k", headers, body).unwrap()
    };
    assert_eq!(send("PUT", &[("if-match", "*")], Some(b"1")).status, 412);
    let first = send("PUT", &[("if-none-match", "*")], Some(b"1"));
    assert_eq!(first.status, 200);
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(send("PUT", &[("if-none-match", "*")], Some(b"2")).status, 412);
    assert_eq!(send("PUT", &[("if-match", "\"other\"")], Some(b"2")).status, 412);
    assert_eq!(send("DELETE", &[("if-match", "\"other\"")], None).status, 412);
    assert_eq!(send("GET", &[], None).body, b"1");
    assert_eq!(send("GET", &[("if-none-match", &etag)], None).status, 304);
    assert_eq!(send("GET", &[("if-match", "\"other\"")], None).status, 412);
    let late = ("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT");
    assert_eq!(send("GET", &[late], None).status, 304);
    let second = send("PUT", &[("if-match", &etag)], Some(b"22"));
    assert_eq!(second.status, 200);
    assert_ne!(second.header("etag"), Some(etag.as_str()));
    let range = ("range", "bytes=1-1");
    assert_eq!(send("GET", &[range, ("if-range", &etag)], None).status, 200);
    let current = second.header("etag").unwrap();
    assert_eq!(send("GET", &[range, ("if-range", current)], None).status, 206);
    // The same bytes of another type are another version.
    let typed = send("PUT", &[("content-type", "text/plain")], Some(b"22"));
    assert_ne!(typed.header("etag"), second.header("etag"));
    server.stop();
}

#[test]
fn ranges_are_the_same_from_memory_and_from_the_origin() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["node.object_bytes_max=100KiB"]);
    let mut client = Client::connect(server.address());
    for (path, size, outcome) in
        [("/objects/small", 3_000usize, "memory"), ("/objects/large", 3_000_000, "origin")]
    {
        let body = bytes(size as u64, size);
        assert_eq!(client.put(path, &body).status, 200);
        assert_eq!(client.get(path).body, body);
        let mut runner = TestRunner::new(ProptestConfig::with_cases(60));
        let at = || proptest::option::of(0..size + size / 4);
        let client = std::cell::RefCell::new(&mut client);
        let test = |(first, last): (Option<usize>, Option<usize>)| {
            let show = |n: Option<usize>| n.map_or(String::new(), |n| n.to_string());
            let range = format!("bytes={}-{}", show(first), show(last));
            let reply = client.borrow_mut().send("GET", path, &[("range", &range)], None).unwrap();
            let expected = match (first, last) {
                (Some(first), Some(last)) if first > last => None,
                (Some(first), last) => {
                    Some(first.min(size)..last.map_or(size, |l| (l + 1).min(size)))
                }
                (None, Some(n)) => Some(size - n.min(size)..size),
                (None, None) => None,
            };
            match expected {
                None => prop_assert_eq!((reply.status, reply.body.len()), (200, size)),
                Some(range) if range.is_empty() => {
                    prop_assert_eq!(reply.status, 416);
                    let all = format!("bytes */{size}");
                    prop_assert_eq!(reply.header("content-range"), Some(all.as_str()));
                }
                Some(range) => {
                    prop_assert_eq!(reply.status, 206);
                    let told = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                    prop_assert_eq!(reply.header("content-range"), Some(told.as_str()));
                    prop_assert_eq!(reply.header("concertina-outcome"), Some(outcome));
                    prop_assert!(reply.body == body[range]);
                }
            }
            Ok(())
        };
        runner.run(&(at(), at()), test).unwrap();
    }
    server.stop();
}

#[test]
fn keys_of_any_bytes_are_kept_apart_and_listed_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let client = std::cell::RefCell::new(Client::connect(server.address()));
    let written = std::cell::RefCell::new(BTreeMap::new());
    let key = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..40),
        prop::collection::vec(any::<u8>(), 180..260),
        prop::collection::vec(prop_oneof![Just(b'.'), Just(b'/'), Just(b'~')], 1..8),
        prop::collection::vec(any::<u8>(), 1024..1025),
    ];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(150));
    runner
        .run(&key, |key| {
            let mut client = client.borrow_mut();
            let body = bytes(key.len() as u64, 20);
            let put = client.put(&path_of(&key), &[&body[..], &key].concat());
            prop_assert_eq!(put.status, 200, "{}", put.text());
            let got = client.get(&path_of(&key));
            prop_assert_eq!(&got.body[20..], &key[..]);
            written.borrow_mut().insert(key, ());
            Ok(())
        })
        .unwrap();
    let mut client = client.into_inner();
    let mut listed = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/objects?limit=17&after={after}"));
        let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
        for object in page["objects"].as_array().unwrap() {
            let key = object["key"].as_str().unwrap();
            listed.push(percent_encoding::percent_decode_str(key).collect::<Vec<u8>>());
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let written: Vec<Vec<u8>> = written.into_inner().into_keys().collect();
    assert_eq!(listed, written);
    let of_prefix = client.get("/objects?prefix=..&limit=1000");
    let page: serde_json::Value = serde_json::from_slice(&of_prefix.body).unwrap();
    let expected = written.iter().filter(|key| key.starts_with(b"..")).count();
    assert_eq!(page["objects"].as_array().unwrap().len(), expected);
    server.stop();
}

#[test]
fn bad_requests_are_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.header_bytes_max=8KiB"]);
    let long = format!("/objects/{}", "k".repeat(1025));
    // The second fits the buffer of one read, in which there was no limit.
    let huge = "x".repeat(20_000);
    let long_head = "x".repeat(9_000);
    let meta = "x".repeat(5_000);
    type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16, &'a str);
    let rows: &[Row] = &[
        ("GET", "/nothing", &[], 404, "/objects/KEY"),
        ("GET", "/objects/", &[], 400, "the key is empty"),
        ("GET", &long, &[], 400, "at most 1024"),
        ("GET", "/objects/%zz", &[], 400, "%25"),
        ("GET", "/objects/a?b", &[], 400, "%3F"),
        ("POST", "/objects/a", &[("content-length", "0")], 405, "GET, HEAD, PUT and DELETE"),
        ("POST", "/objects", &[("content-length", "0")], 405, "GET and HEAD"),
        ("GET", "/objects?limit=0", &[], 400, "from 1 to 1000"),
        ("GET", "/objects?prefix=a&limit=9&prefix=b", &[], 400, "given twice"),
        ("GET", "/objects?color=red", &[], 400, "use prefix"),
        ("PUT", "/objects/a", &[], 411, "Content-Length"),
        (
            "PUT",
            "/objects/a",
            &[("content-length", "0"), ("content-range", "bytes 0-1/2")],
            400,
            "whole",
        ),
        (
            "PUT",
            "/objects/a",
            &[("content-length", "0"), ("content-encoding", "gzip")],
            415,
            "without content encoding",
        ),
        (
            "PUT",
            "/objects/a",
            &[("content-length", "0"), ("concertina-meta-a", &meta), ("concertina-meta-b", "y")],
            200,
            "",
        ),
        ("GET", "/objects/a", &[("x", &long_head)], 431, "serve.header_bytes_max"),
        ("GET", "/objects/a", &[("x", &huge)], 431, "serve.header_bytes_max"),
        ("PUT", "/objects/a", &[("content-length", "many")], 400, "not HTTP/1.1"),
        ("GET\0", "/objects/a", &[], 400, "not HTTP/1.1"),
    ];
    for (method, path, headers, status, part) in rows {
        let mut client = Client::connect(server.address());
        let reply = client.send(method, path, headers, None).unwrap();
        assert_eq!(reply.status, *status, "{method} {path}: {}", reply.text());
        assert!(reply.text().contains(part), "{method} {path}: {}", reply.text());
        if *status >= 400 {
            assert_eq!(reply.header("content-type"), Some("application/json"));
            let told: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert!(told["error"].is_string(), "{method} {path}");
        }
    }
    server.stop();
}

#[test]
fn a_condition_that_is_not_understood_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", b"kept").status, 200);
    for name in ["if-none-match", "if-match"] {
        for value in ["garbage", "\"unfinished", "", "*, *"] {
            for (method, body) in [("PUT", Some(&b"new"[..])), ("DELETE", None), ("GET", None)] {
                let mut client = Client::connect(server.address());
                let reply = client.send(method, "/objects/a", &[(name, value)], body).unwrap();
                assert_eq!(reply.status, 400, "{method} {name}: {value}");
                assert!(reply.text().contains("double quotes"), "{}", reply.text());
            }
        }
    }
    assert_eq!(client.get("/objects/a").body, b"kept");
    server.stop();
}

#[test]
fn garbage_never_stops_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.idle_s=0.2"]);
    for seed in 0..200 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let mut garbage = bytes(seed, 1 + (seed as usize * 37) % 3000);
        if seed % 2 == 0 {
            let start =
                b"PUT /objects/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
            garbage.splice(0..0, start.iter().copied());
        }
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(Shutdown::Write);
    }
    // A head that never ends is given up.
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(b"GET /obj").unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/b", b"x").status, 200);
    assert_eq!(client.get("/objects/b").body, b"x");
    assert_eq!(client.get("/objects/a").status, 404);
    server.stop();
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/k", b"old").status, 200);
    for sent in [10usize, 900_000] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream
            .write_all(
                b"PUT /objects/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n",
            )
            .unwrap();
        stream.write_all(&bytes(3, sent)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert_eq!(client.get("/objects/k").body, b"old");
    let temporary = folder.path().join("origin/tmp");
    let left = || std::fs::read_dir(&temporary).unwrap().count();
    until("temporary files are gone", || left() == 0);
    server.stop();
}

/// `Content-MD5` and `Repr-Digest` are those of "new"; bytes that have others leave the object as it was.
#[test]
fn an_upload_with_other_digests_than_it_states_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let member = format!("member.0={{name=\"a\",address=\"{}\"}}", free());
    let sets = [&*member, "cluster.name=a", "cluster.replicas=1"];
    let all = [start(&folder.path().join("node"), &[]), {
        let config = Config::load(None, &overrides(&folder.path().join("all"), &sets)).unwrap();
        Server::start(config, None).unwrap()
    }];
    let digest = "sha-256=:EVB6Di9eadXfpApiob17buV+a82FxnybhDGzb/8hxDc=:";
    for server in &all {
        let mut client = Client::connect(server.address());
        assert_eq!(client.put("/objects/k", b"old").status, 200);
        for (name, value, body, expected) in [
            ("content-md5", "Iq9kXRhZy1ym2gxITx836g==", "other", 400),
            ("content-md5", "new", "new", 400),
            ("repr-digest", digest, "other", 400),
            ("repr-digest", digest, "", 400),
        ] {
            let headers = [(name, value)];
            let refused = client.send("PUT", "/objects/k", &headers, Some(body.as_bytes()));
            let refused = refused.unwrap();
            assert_eq!(refused.status, expected, "{name} of {body:?}: {}", refused.text());
            let told = refused.text().to_lowercase();
            assert!(told.contains(name), "{told}");
            client = Client::connect(server.address());
            assert_eq!(client.get("/objects/k").body, b"old");
        }
        let md5 = ("content-md5", "Iq9kXRhZy1ym2gxITx836g==");
        let both = [md5, ("repr-digest", digest)];
        assert_eq!(client.send("PUT", "/objects/k", &both, Some(b"new")).unwrap().status, 200);
        assert_eq!(client.get("/objects/k").body, b"new");
    }
    all.into_iter().for_each(Server::stop);
}

#[test]
fn objects_larger_than_memory_pass() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["node.memory_bytes=1MiB", "node.object_bytes_max=256KiB"];
    let server = start(folder.path(), &more);
    let mut client = Client::connect(server.address());
    let body = bytes(7, 24 << 20);
    assert_eq!(client.put("/objects/large", &body).status, 200);
    assert!(client.get("/objects/large").body == body);
    // In chunks of a size that the server was not told.
    let head =
        b"PUT /objects/chunks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    client.stream.write_all(head).unwrap();
    for piece in body[..3 << 20].chunks(100_000) {
        client.stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
        client.stream.write_all(piece).unwrap();
        client.stream.write_all(b"\r\n").unwrap();
    }
    client.stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(client.read(false).unwrap().status, 200);
    assert!(client.get("/objects/chunks").body == body[..3 << 20]);
    let status = client.get("/admin/status");
    let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
    assert_eq!(status["contents"]["memory_objects"], 0);
    server.stop();
}

#[test]
fn a_token_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.token=secret"]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/objects/a").status, 401);
    assert_eq!(client.get("/admin/status").status, 401);
    assert_eq!(client.get("/healthz").status, 200);
    let mut with = |token: &str| {
        client.send("GET", "/objects/a", &[("authorization", token)], None).unwrap().status
    };
    assert_eq!(with("Bearer wrong"), 401);
    assert_eq!(with("Bearer secret"), 404);
    server.stop();
}

#[test]
fn a_port_or_a_folder_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let other = tempfile::tempdir().unwrap();
    let listen = format!("serve.listen={}", server.address());
    let error = |folder: &std::path::Path, more: &[&str]| {
        let config = Config::load(None, &overrides(folder, more)).unwrap();
        Server::start(config, None).err().map(|error| format!("{error:#}")).unwrap()
    };
    let told = error(other.path(), &[&listen]);
    assert!(
        told.contains(&server.address().to_string()) && told.contains("choose another"),
        "{told}"
    );
    let told = error(folder.path(), &[]);
    assert!(told.contains("in use by another process"), "{told}");
    server.stop();
}

#[test]
fn connections_past_the_limit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.connections_max=2"]);
    // Both are at work: idle ones would make room.
    let begin = || {
        let mut client = Client::connect(server.address());
        let head = "PUT /objects/b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n";
        client.stream.write_all(head.as_bytes()).unwrap();
        client
    };
    let (first, _second) = (begin(), begin());
    // Until the server has read their heads, one of them would make room.
    std::thread::sleep(Duration::from_secs(1));
    let mut third = Client::connect(server.address());
    let refused = third.get("/objects/a");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    drop(first);
    until("a place is free", || Client::connect(server.address()).get("/objects/a").status == 404);
    server.stop();
}

#[test]
fn metrics_count_what_was_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["observe.window_s=0.05"]);
    let mut client = Client::connect(server.address());
    client.put("/objects/a", b"x");
    client.get("/objects/a");
    client.get("/objects/nothing");
    let expected = [
        "concertina_queue_completions_total{queue=\"gateway\"} 3",
        "concertina_response_seconds_count{queue=\"node\",operation=\"get\",outcome=\"memory\"} 1",
        "concertina_response_seconds_count{queue=\"origin\",operation=\"get\",outcome=\"miss\"} 1",
        "concertina_memory_objects 1",
    ];
    let mut text = String::new();
    for line in expected {
        let holds = || {
            text = client.get("/metrics").text();
            text.contains(line)
        };
        until(&format!("{line} is told"), holds);
    }
    server.stop();
}
