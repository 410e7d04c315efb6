//! `concertina load` and `measure` against what real services want: a virtual host, TLS with a name of
//! its own, HTTP/2, a bearer token, JSON bodies, cookies, lists of requests, hosts of several addresses.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::left_out::left_out;
use crate::measure::{Running, command, measure, sound};
use crate::serve_client::free;
use crate::steady::steady;

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls")
}

/// An nginx, with its ports of HTTP/1.1, of HTTP/2 and of TLS with both.
struct Nginx {
    _running: Running,
    plain: u16,
    http2: u16,
    tls: u16,
}

/// Starts an nginx that answers `shop.example` only, and there POSTs of JSON with a token only.
fn nginx(test: &str, dir: &Path) -> Option<Nginx> {
    if Command::new("nginx").arg("-v").output().is_err() {
        left_out(test, "nginx cannot be run (apt-get install nginx-light)");
        return None;
    }
    let [plain, http2, tls, behind] = std::array::from_fn(|_| free().port());
    let (at, from) = (dir.display(), certificates().display().to_string());
    let listen = |more: &str| {
        format!(
            "listen 127.0.0.1:{plain}{more}; listen 127.0.0.1:{http2} http2{more}; \
             listen 127.0.0.1:{tls} ssl http2{more}; \
             ssl_certificate {from}/server.pem; ssl_certificate_key {from}/server.key;"
        )
    };
    let (first, second) = (listen(" default_server"), listen(""));
    let conf = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/log; events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; \
         fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; \
         server {{ {first} server_name _; return 421; }}\n\
         server {{ {second} server_name shop.example; location / {{ \
         if ($ssl_server_name = localhost) {{ return 418; }} \
         if ($http_authorization != \"Bearer sesame\") {{ return 401; }} \
         if ($request_method != POST) {{ return 405; }} \
         if ($content_type != \"application/json\") {{ return 415; }} \
         proxy_pass http://127.0.0.1:{behind}; }} }}\n\
         server {{ listen 127.0.0.1:{behind}; return 200 \"{{}}\"; }} }}\n"
    );
    std::fs::write(dir.join("nginx.conf"), conf).unwrap();
    let child = Command::new("nginx")
        .arg("-c")
        .arg(dir.join("nginx.conf"))
        .args(["-e", &format!("{at}/log")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let nginx = Nginx { _running: Running(child), plain, http2, tls };
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", tls)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(90), "nginx does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(nginx)
}

/// Forty requests.
fn load(dir: &Path, url: &str, out: &str, more: &[&str]) -> Output {
    let all = ["load", url, "--out", out, "--warmup", "0s", "--json", "--rate", "200"];
    let length = ["--requests", "40"];
    command(dir, &[&all[..], &length, more].concat()).output().unwrap()
}

fn message_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn step(output: &Output) -> Value {
    let summary: Result<Value, _> = serde_json::from_slice(&output.stdout);
    summary.unwrap_or_else(|_| panic!("{}", message_of(output)))["steps"][0].clone()
}

#[test]
fn nginx_is_loaded_by_each_version_of_http() {
    const TEST: &str = "load_http::nginx_is_loaded_by_each_version_of_http";
    let dir = tempfile::tempdir().unwrap();
    let Some(nginx) = nginx(TEST, dir.path()) else { return };
    std::fs::write(dir.path().join("token"), "sesame\n").unwrap();
    let authority = certificates().join("ca.pem");
    let of_tls = ["--ca-file", authority.to_str().unwrap()];
    let body = ["--host", "shop.example", "--body", r#"{"q": "{key}"}"#];
    let what = [&body[..], &["--bearer-file", "token"]].concat();
    let (plain, http2, tls) = (
        format!("http://127.0.0.1:{}/search", nginx.plain),
        format!("http://127.0.0.1:{}/search", nginx.http2),
        format!("https://127.0.0.1:{}/search", nginx.tls),
    );
    for (out, url, more) in [
        ("plain", &plain, &[][..]),
        ("http2", &http2, &["--http2"]),
        ("tls", &tls, &of_tls),
        ("tls-http2", &tls, &[&of_tls[..], &["--http2", "--connections", "2"]].concat()),
    ] {
        let step = step(&load(dir.path(), url, out, &[&what[..], more].concat()));
        assert_eq!((&step["completions"], &step["errors"]), (&40.into(), &0.into()), "{step:#}");
        let record = std::fs::read_to_string(dir.path().join(out).join("run.toml")).unwrap();
        assert!(record.contains("shop.example") && !record.contains("sesame"), "{record}");
    }
    // Without the token, and at another host.
    for (out, more, status) in [
        ("no-token", &body[..], "status 401"),
        ("no-host", &["--method", "POST", "--bearer-file", "token"], "status 421"),
        ("get", &["--fixed", "--host", "shop.example", "--bearer-file", "token"], "status 405"),
    ] {
        for (version, url, http2) in [("-1", &plain, &[][..]), ("-2", &http2, &["--http2"])] {
            let out = format!("{out}{version}");
            let step = step(&load(dir.path(), url, &out, &[more, http2].concat()));
            assert_eq!(step["errors"], 40, "{step:#}");
            assert_eq!(step["faults"][status], 40, "{step:#}");
        }
    }
    // The name that TLS asks for is apart from the host.
    for (out, http2) in [("sni-1", &[][..]), ("sni-2", &["--http2"])] {
        let more = [&what[..], &of_tls, &["--sni", "localhost"], http2].concat();
        let step = step(&load(dir.path(), &tls, out, &more));
        assert_eq!(step["faults"]["status 418"], 40, "{step:#}");
    }
    // What cannot be spoken is told before anything is written.
    for (url, more, words) in [
        (&plain, &["--http2"][..], "leave out --http2"),
        (&tls, &[], "--ca-file"),
        (&tls, &[&of_tls[..], &["--sni", "other.example"]].concat(), "--sni"),
        (&format!("https://127.0.0.1:{}/", nginx.plain), &of_tls, "speak TLS at this port"),
    ] {
        let failed = load(dir.path(), url, "never", &[&what[..], more].concat());
        assert!(
            !failed.status.success() && message_of(&failed).contains(words),
            "{}",
            message_of(&failed)
        );
        assert!(!dir.path().join("never").exists());
    }
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "sesame\n").unwrap();
        let how = ["--rates", "100,200", "--repeat", "2", "--half-width", "99%", "--http2"];
        let measured = measure(dir.path(), &http2, &[&what[..], &how].concat());
        for point in measured["points"].as_array().unwrap() {
            sound(point);
            assert_eq!(point["errors"], 0, "{measured:#}");
        }
    });
}

/// A server of HTTP/1.1 that keeps what it was sent: request line, headers in order, body.
fn keeps(address: &str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = kept.clone();
            std::thread::spawn(move || keep(stream, &kept));
        }
    });
    (port, seen)
}

fn keep(mut stream: TcpStream, kept: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    // More headers than any fixed table of a client has.
    let many: String = (0..500).map(|i| format!("x-header-{i}: value\r\n")).collect();
    loop {
        let (mut text, mut length) = (String::new(), 0);
        loop {
            let from = text.len();
            if reader.read_line(&mut text).ok()? == 0 {
                return None;
            }
            let line = text[from..].trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        text.push_str(std::str::from_utf8(&body).ok()?);
        kept.lock().ok()?.push(text);
        let reply = format!("HTTP/1.1 200 OK\r\n{many}content-length: 2\r\n\r\nok");
        stream.write_all(reply.as_bytes()).ok()?;
    }
}

#[test]
fn a_list_of_requests_is_sent_by_weight_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let (port, seen) = keeps("127.0.0.1:0");
    let list = r#"
[[request]]
name = "search"
weight = 3
method = "POST"
path = "/search/{key}?q={key}"
body_file = "search.json"
[request.headers]
x-tenant = "own {key}"

[[request]]
path = "/health"
"#;
    std::fs::write(dir.path().join("list.toml"), list).unwrap();
    std::fs::write(dir.path().join("search.json"), r#"{"q": "{key}", "literal": "{{key}}"}"#)
        .unwrap();
    std::fs::write(dir.path().join("secrets"), "X-Api-Key: hush\nX-Tenant: all\n").unwrap();
    std::fs::write(dir.path().join("cookies"), "sid=hush; lang=de\n").unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let more = [
        &["--requests", "list.toml", "--header", "@secrets", "--cookie-file", "cookies"][..],
        &["--header", "Accept: text/plain", "--host", "shop.example:99", "--count", "3"],
    ];
    let output = load(dir.path(), &url, "run", &more.concat());
    let step = step(&output);
    assert_eq!((&step["completions"], &step["errors"]), (&40.into(), &0.into()), "{step:#}");
    let record = std::fs::read_to_string(dir.path().join("run/run.toml")).unwrap();
    assert!(record.contains("list.toml") && record.contains("search.json"), "{record}");
    assert!(!record.contains("hush"), "{record}");
    let seen = seen.lock().unwrap();
    let mut counts = BTreeMap::new();
    for text in seen.iter() {
        let of_all = "x-api-key: hush\r\naccept: text/plain\r\ncookie: sid=hush; lang=de\r\n";
        let host = "host: shop.example:99\r\n";
        if text.starts_with("GET") {
            let expected = format!(
                "GET /health HTTP/1.1\r\n{host}x-api-key: hush\r\nx-tenant: all\r\n\
                 accept: text/plain\r\ncookie: sid=hush; lang=de\r\n\r\n"
            );
            assert_eq!(*text, expected);
            *counts.entry("health").or_insert(0) += 1;
            continue;
        }
        let key = text.split("/search/").nth(1).unwrap().split('?').next().unwrap();
        let body = format!(r#"{{"q": "{key}", "literal": "{{key}}"}}"#);
        let expected = format!(
            "POST /search/{key}?q={key} HTTP/1.1\r\n{host}content-type: application/json\r\n\
             x-tenant: own {key}\r\n{of_all}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(*text, expected);
        *counts.entry("search").or_insert(0) += 1;
    }
    // Drawn by the seed: the same on each machine.
    assert!(counts["search"] > 2 * counts["health"], "{counts:?}");
    assert_eq!(counts["search"] + counts["health"], 40);
}

#[test]
fn each_address_of_a_name_is_tried() {
    // `localhost` is ::1 and 127.0.0.1 where IPv6 is known; the service has one of them.
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let has = |address: &str| {
        hosts.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(address) && words.any(|name| name == "localhost")
        })
    };
    // (Where the machine has no IPv6, `load`'s own tests have two addresses.)
    let both = has("::1") && has("127.0.0.1");
    let dir = tempfile::tempdir().unwrap();
    let (port, seen) = keeps("127.0.0.1:0");
    let url = format!("http://localhost:{port}");
    let step = step(&load(dir.path(), &url, "run", &[]));
    assert_eq!((&step["completions"], &step["errors"]), (&40.into(), &0.into()), "{step:#}");
    assert!(seen.lock().unwrap().iter().all(|text| text.contains(&format!("localhost:{port}"))));
    let gone = free().port();
    let failed = load(dir.path(), &format!("http://localhost:{gone}"), "gone", &[]);
    for words in [&format!("127.0.0.1:{gone}: "), "[::1]:", "is the service running there?"] {
        let is_said = message_of(&failed).contains(words) || (!both && words == "[::1]:");
        assert!(is_said, "{}", message_of(&failed));
    }
    let unknown = load(dir.path(), "http://no-such-name.invalid", "gone", &[]);
    assert!(message_of(&unknown).contains("is the name right?"), "{}", message_of(&unknown));
}

#[test]
fn a_service_that_changes_the_protocol_ends_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ws", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                while let Ok(1..) = stream.read(&mut head) {
                    let _ =
                        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n");
                }
            });
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let step = step(&load(dir.path(), &url, "run", &["--fixed", "--timeout", "20s"]));
    assert_eq!(step["faults"]["status 101"], 40, "{step:#}");
}
