//! `concertina load` and `measure` against a real memcached, a real S3-compatible store, and servers that
//! speak memcached's protocol badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ground::window::key_hash;
use load::client::Body;
use serde_json::Value;

use crate::left_out::left_out;
use crate::measure::{Running, command, measure, sound};
use crate::origin_s3::{ACCESS, SECRET, Store};
use crate::serve_client::free;
use crate::steady::{in_time, steady};

/// A memcached of 64 MiB, and its address.
pub fn memcached(test: &str) -> Option<(Running, String)> {
    memcached_with(test, &[])
}

/// A memcached of 64 MiB with further arguments, and its address.
pub fn memcached_with(test: &str, more: &[&str]) -> Option<(Running, String)> {
    if Command::new("memcached").arg("-V").output().is_err() {
        left_out(test, "memcached cannot be run (apt-get install memcached)");
        return None;
    }
    Some(start_memcached(Path::new("memcached"), more))
}

/// A memcached of 64 MiB by this program, and its address.
pub fn start_memcached(program: &Path, more: &[&str]) -> (Running, String) {
    // Another process may take the port in between: then the next try has another.
    for _ in 0..5 {
        let address = free();
        let mut child = Command::new(program)
            .args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0"])
            .args(["-m", "64", "-t", "1", "-u", "root"])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(90) && child.try_wait().unwrap().is_none() {
            if TcpStream::connect(address).is_ok() {
                return (Running(child), address.to_string());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(Running(child));
    }
    panic!("memcached does not start");
}

/// Sends a command and returns the first line of what comes.
fn ask(address: &str, command: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(command).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A step of `load`, a second long.
fn load(dir: &Path, url: &str, out: &str, args: &[&str]) -> Output {
    let all = ["load", url, "--out", out, "--warmup", "0s", "--duration", "600ms", "--json"];
    let mut command = command(dir, &[&all[..], args].concat());
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn step(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no summary came: {error}"));
    summary["steps"][0].clone()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn memcached_is_measured() {
    steady(|| {
        let Some((_memcached, address)) = memcached("measure_protocols::memcached_is_measured")
        else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let url = format!("memcached://{address}");
        let what =
            ["--count", "200", "--size", "0..3k", "--fill", "--verify", "--read-share", "0.8"];
        let how = ["--rates", "150,300", "--repeat", "2", "--half-width", "99%"];
        let measured = measure(dir.path(), &url, &[&what[..], &how].concat());
        let points = measured["points"].as_array().unwrap();
        assert_eq!(points.len(), 2);
        for point in points {
            sound(point);
            assert_eq!((&point["errors"], &point["mismatches"]), (&0.into(), &0.into()));
        }
        assert!(ask(&address, b"get k7\r\n").starts_with("VALUE k7 0 "));
        assert_eq!(ask(&address, b"get k200\r\n"), "END");

        // Large values, several at a time, looked at and not.
        let large = ["--count", "60", "--size", "20k", "--fill", "--keys", "uniform"];
        for (out, more) in [("seen", &["--verify"][..]), ("unseen", &[])] {
            let rest = ["--rate", "200", "--multi-get", "5", "--key-format", "large{i}"];
            let several = step(&load(dir.path(), &url, out, &[&large[..], &rest, more].concat()));
            let completions = several["completions"].as_u64().unwrap();
            in_time(completions > 50, format_args!("{several:#}"));
            assert_eq!(several["bytes"].as_u64(), Some(completions * 5 * 20 * 1024), "{several:#}");
            assert_eq!(several["outcomes"]["unknown"], 1.0, "{several:#}");
        }
    });
}

#[test]
fn what_memcached_lacks_or_has_otherwise_is_told_apart() {
    const TEST: &str = "measure_protocols::what_memcached_lacks_or_has_otherwise_is_told_apart";
    let Some((_memcached, address)) = memcached(TEST) else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = format!("memcached://{address}");
    let stored = load(dir.path(), &url, "half", &["--count", "50", "--fill", "--size", "100"]);
    assert!(stored.status.success(), "{}", stderr(&stored));
    // Half of the keys are not there; of three at a time one in eight has all.
    let half =
        ["--count", "100", "--size", "100", "--keys", "uniform", "--rate", "500", "--verify"];
    let one = step(&load(dir.path(), &url, "one", &half));
    let misses = |step: &Value| step["outcomes"]["miss"].as_f64().unwrap();
    assert!((0.3..0.7).contains(&misses(&one)) && one["errors"] == 0, "{one:#}");
    let three =
        step(&load(dir.path(), &url, "three", &[&half[..], &["--multi-get", "3"]].concat()));
    assert!((0.75..0.97).contains(&misses(&three)) && three["errors"] == 0, "{three:#}");

    // A get of several keys that brings some of them is a miss, but its keys are not all wrong.
    for (keys, some) in [("k1 k90", true), ("k90 k91", false)] {
        let file = dir.path().join(format!("{some}.csv"));
        std::fs::write(&file, format!("time_ms,key,size,op\n,{keys},,get\n")).unwrap();
        let trace = ["--trace", file.to_str().unwrap(), "--size", "100", "--multi-get", "2"];
        let how = ["--clients", "1"];
        let out = format!("some-{some}");
        let partly = load(dir.path(), &url, &out, &[&trace[..], &how].concat());
        assert_eq!(partly.status.success(), some, "{}", stderr(&partly));
        assert_eq!(stderr(&partly).contains("every reply was 404"), !some, "{}", stderr(&partly));
        assert_eq!(misses(&step(&partly)), 1.0);
    }

    // A key with another value is wrong bytes, alone and among others.
    assert_eq!(
        ask(
            &address,
            b"set k0 0 0 100\r\n"
                .iter()
                .chain(&[b'x'; 100])
                .chain(b"\r\n")
                .copied()
                .collect::<Vec<u8>>()
                .as_slice()
        ),
        "STORED"
    );
    for (out, several) in [("w1", "1"), ("w2", "4")] {
        let all = ["--count", "50", "--size", "100", "--rate", "300", "--verify"];
        let wrong = load(dir.path(), &url, out, &[&all[..], &["--multi-get", several]].concat());
        assert!(!wrong.status.success() && stderr(&wrong).contains("replies had wrong bytes"));
        assert!(step(&wrong)["mismatches"].as_u64().unwrap() > 0);
    }
    // What does not fit is refused in memcached's words, and the connection goes on.
    let large = load(dir.path(), &url, "large", &["--count", "5", "--size", "2M", "--fill"]);
    assert!(
        stderr(&large).contains("SERVER_ERROR object too large for cache"),
        "{}",
        stderr(&large)
    );
    for (args, words) in [
        (&["--rate", "1", "--fixed"][..], "are for http://"),
        (&["--rate", "1", "--key-format", "a b{i}"], "1 to 250 printable ASCII characters"),
        (&["--rate", "1", "--multi-get", "1001"], "1 to 1000 expected"),
    ] {
        let refused = load(dir.path(), &url, "refused", args);
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
    }
}

/// A server that answers every line it gets with the same bytes.
fn answers(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || -> Option<()> {
                let mut reader = BufReader::new(stream.try_clone().ok()?);
                let (mut stream, mut line) = (stream, String::new());
                while reader.read_line(&mut line).ok()? > 0 {
                    stream.write_all(bytes).ok()?;
                    line.clear();
                }
                // What it sent is read before the connection is reset.
                stream.shutdown(std::net::Shutdown::Write).ok()?;
                reader.read_to_end(&mut Vec::new()).ok()?;
                None
            });
        }
    });
    format!("memcached://{address}")
}

#[test]
fn servers_that_speak_badly_are_errors_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (i, (bytes, words)) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "unexpected reply"),
        (b"VALUE k0 0 99999999999999999\r\n", "above 16 GiB"),
        (b"VALUE other 0 1\r\nx\r\nEND\r\n", "not requested"),
        (b"VALUE k0 0 1\r\nxyz\r\nEND\r\n", "longer than its announced"),
        (b"END\r\nEND\r\n", "bytes after the end"),
        (b"SERVER_ERROR busy\x07\r\n", "SERVER_ERROR busy?"),
        (&[b'x'; 4096], "longer than 2048 bytes"),
    ]
    .into_iter()
    .enumerate()
    {
        let url = answers(bytes);
        let out = format!("run{i}");
        let output =
            load(dir.path(), &url, &out, &["--count", "1", "--clients", "1", "--timeout", "3s"]);
        let step = step(&output);
        let faults = step["faults"].as_object().unwrap();
        assert!(faults.keys().any(|f| f.contains(words)), "{words}: {step:#}");
        assert!(!output.status.success() && step["errors"] == step["completions"], "{step:#}");
    }
}

#[test]
fn buckets_are_measured_with_signatures() {
    steady(|| {
        let Some(store) = Store::start("measure_protocols::buckets_are_measured_with_signatures")
        else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let keys = |secret: &str| {
            format!("[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {secret}\n")
        };
        std::fs::write(dir.path().join("keys"), keys(SECRET)).unwrap();
        std::fs::write(dir.path().join("wrong"), keys("another")).unwrap();
        let url = format!("s3://objects/in side?endpoint=http://{}", store.address);
        let what =
            ["--count", "30", "--size", "1..9k", "--key-format", "a+b/ü={i}.bin", "--verify"];
        let how = ["--rates", "50", "--repeat", "2", "--half-width", "99%", "--read-share", "0.8"];
        let who = ["--credentials", "keys", "--fill"];
        let measured = measure(dir.path(), &url, &[&what[..], &how, &who].concat());
        let point = &measured["points"][0];
        sound(point);
        assert_eq!(
            (&point["errors"], &point["mismatches"]),
            (&0.into(), &0.into()),
            "{measured:#}"
        );
        assert!(store.bucket().join("in side/a+b/ü=7.bin").is_file());
        let written = std::fs::read_to_string(dir.path().join("run/run.toml")).unwrap();
        assert!(
            written.contains("s3://objects")
                && !written.contains(SECRET)
                && !written.contains(ACCESS)
        );

        let rate = ["--rate", "20"];
        for (out, who) in [("unsigned", &[][..]), ("forged", &["--credentials", "wrong"])] {
            let refused = load(dir.path(), &url, out, &[&what[..], &rate, who].concat());
            let step = step(&refused);
            assert!(!refused.status.success() && step["faults"]["status 403"].is_u64(), "{step:#}");
        }
        // By the environment, in the name of nobody else.
        let mut by_environment = command(dir.path(), &["load", &url, "--out", "env", "--json"]);
        by_environment.args(what).args(rate).args(["--duration", "600ms", "--warmup", "0s"]);
        by_environment.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET);
        let output = by_environment.env_remove("AWS_SESSION_TOKEN").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(step(&output)["errors"], 0);
        for (url, words) in [
            ("s3://objects", "the endpoint is missing"),
            ("http://127.0.0.1:1", "credentials are for s3:// only"),
        ] {
            let refused =
                load(dir.path(), url, "no", &[&rate[..], &["--credentials", "keys"]].concat());
            assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
        }
    });
}

/// A server of TLS that answers every request with what its body must be, and closes after ten.
fn over_tls() -> u16 {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls");
    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || -> Option<()> {
                stream.set_nodelay(true).ok()?;
                let tls = rustls::ServerConnection::new(config).ok()?;
                let mut reader = BufReader::new(rustls::StreamOwned::new(tls, stream));
                for _ in 0..10 {
                    tls_reply(&mut reader)?;
                }
                reader.get_mut().conn.send_close_notify();
                reader.get_mut().flush().ok()
            });
        }
    });
    port
}

fn tls_reply<S: Read + Write>(reader: &mut BufReader<S>) -> Option<()> {
    let (mut head, mut length) = (String::new(), 0);
    reader.read_line(&mut head).ok().filter(|&n| n > 0)?;
    let mut line = String::from("x");
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).ok()?;
    let key = head.split(' ').nth(1)?.strip_prefix("/objects/")?;
    let body = Body { key: key_hash(key.as_bytes()), size: 100_000 }.bytes();
    let put = head.starts_with("PUT ");
    assert!(!put || sent == body, "an upload came otherwise than it was sent");
    let size = if put { 0 } else { body.len() };
    let stream = reader.get_mut();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n").ok()?;
    stream.write_all(body.get(..size)?).ok()?;
    stream.flush().ok()
}

#[test]
fn services_are_measured_over_tls() {
    let port = over_tls();
    let dir = tempfile::tempdir().unwrap();
    let ca = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls/ca.pem");
    let trust = ["--ca-file", ca.to_str().unwrap()];
    let what = ["--count", "20", "--size", "100000", "--verify", "--read-share", "0.5"];
    for (out, host) in [("name", "localhost"), ("address", "127.0.0.1")] {
        let url = format!("https://{host}:{port}");
        let rest = ["--rate", "100", "--sample-one-in", "1"];
        let output = load(dir.path(), &url, out, &[&what[..], &trust, &rest].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let step = step(&output);
        // Connections are closed after ten requests: those that were just being used are tried again.
        assert_eq!((&step["errors"], &step["mismatches"]), (&0.into(), &0.into()), "{step:#}");
        assert!(step["completions"].as_u64().unwrap() > 25, "{step:#}");
    }
    // Who trusts others does not trust it, and a port without TLS speaks none.
    let url = format!("https://127.0.0.1:{port}");
    let other = ca.with_file_name("other.pem");
    let others = ["--clients", "1", "--ca-file", other.to_str().unwrap()];
    let refused = load(dir.path(), &url, "strange", &others);
    assert!(!refused.status.success() && stderr(&refused).contains("UnknownIssuer"));
    assert!(stderr(&refused).contains("--ca-file"), "{}", stderr(&refused));
    let url = format!("https://{}", without_tls());
    let refused = load(dir.path(), &url, "plain", &[&["--clients", "1"], &trust[..]].concat());
    assert!(
        !refused.status.success() && stderr(&refused).contains("TLS: "),
        "{}",
        stderr(&refused)
    );
    assert!(stderr(&refused).contains("speak TLS at this port"), "{}", stderr(&refused));
    assert!(!dir.path().join("strange").exists() && !dir.path().join("plain").exists());
}

/// A server that answers in HTTP whatever it gets.
fn without_tls() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || -> Option<()> {
                stream.read_exact(&mut [0; 16]).ok()?;
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok()?;
                // What it sent is read before the connection is reset.
                stream.read_to_end(&mut Vec::new()).ok()?;
                None
            });
        }
    });
    address
}
