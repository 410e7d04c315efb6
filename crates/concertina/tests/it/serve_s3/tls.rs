//! TLS before S3's clients and HTTP's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::clients::{client, python, script};
use super::{ADMIN, Front};

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls")
}

/// A process with the certificate of these tests.
fn encrypted(folder: &Path, key_mode: u32) -> Vec<String> {
    let key = folder.join("server.key");
    let certificate = folder.join("server.pem");
    std::fs::copy(certificates().join("server.key"), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(key_mode)).unwrap();
    std::fs::copy(certificates().join("server.pem"), &certificate).unwrap();
    vec![
        format!("serve.tls_certificate={}", certificate.display()),
        format!("serve.tls_key={}", key.display()),
    ]
}

type Encrypted = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A connection that trusts the tests' authority.
fn connect(address: &str, versions: &[&'static rustls::SupportedProtocolVersion]) -> Encrypted {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::pem_file_iter(certificates().join("ca.pem")).unwrap();
    ca.for_each(|one| roots.add(one.unwrap()).unwrap());
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(versions)
    .unwrap()
    .with_root_certificates(roots)
    .with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    rustls::StreamOwned::new(session, stream)
}

/// The reply to a request, all of it; `None` if the server does not speak TLS so.
fn ask(address: &str, versions: &[&'static rustls::SupportedProtocolVersion]) -> Option<String> {
    let mut stream = connect(address, versions);
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .ok()?;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    Some(String::from_utf8_lossy(&reply).into_owned())
}

#[test]
fn both_protocols_are_encrypted_and_nothing_is_said_in_clear() {
    let folder = tempfile::tempdir().unwrap();
    let sets = encrypted(folder.path(), 0o600);
    let front = Front::start(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    for address in [&front.http, &front.address] {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let reply = ask(address, &[version]).unwrap();
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        }
        let mut plain = TcpStream::connect(address).unwrap();
        plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut reply = Vec::new();
        let _ = plain.read_to_end(&mut reply);
        assert!(!String::from_utf8_lossy(&reply).contains("HTTP/"), "{reply:?}");
        // The hello of a client of SSL 3.0, TLS 1.0 or 1.1, or of 1.2 without forward secrecy: nothing but an alert,
        // or the end.
        for minor in 0..=3 {
            let mut old = TcpStream::connect(address).unwrap();
            let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, minor];
            hello.extend([7; 32]);
            hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
            old.write_all(&hello).unwrap();
            let mut reply = Vec::new();
            let _ = old.read_to_end(&mut reply);
            assert!(reply.is_empty() || reply[0] == 21, "{minor}: {reply:?}");
        }
    }
    // A file that is not a certificate, or half of one, leaves the one that there is.
    let start = Instant::now();
    let whole = std::fs::read(certificates().join("server.pem")).unwrap();
    for (bytes, why) in [
        (&b"rubbish"[..], "server.pem: peer sent no certificates"),
        (&whole[..whole.len() / 2], "the file ends before `-----END CERTIFICATE-----`"),
    ] {
        std::fs::write(folder.path().join("server.pem"), bytes).unwrap();
        let stays =
            |line: &str| line.contains("the certificate stays as it was") && line.contains(why);
        while !front.log().lines().any(stays) {
            assert!(start.elapsed().as_secs() < 120, "{}", front.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(ask(&front.http, rustls::ALL_VERSIONS).unwrap().starts_with("HTTP/1.1 200 "));
    std::fs::copy(certificates().join("server.pem"), folder.path().join("server.pem")).unwrap();
    while !front.log().contains("a new certificate") {
        assert!(start.elapsed().as_secs() < 240, "{}", front.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ask(&front.http, rustls::ALL_VERSIONS).unwrap().starts_with("HTTP/1.1 200 "));
}

/// Several requests at once, whose replies are larger than what the kernel takes, and a client that is slow at first.
#[test]
fn plain_reads_are_whole_however_slowly_they_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let sets = encrypted(folder.path(), 0o600);
    let front = Front::start(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let mut stream = connect(&front.http, rustls::ALL_VERSIONS);
    let body = crate::serve_client::bytes(7, 3 << 20);
    let head = |method: &str, path: &str, length: usize| {
        format!(
            "{method} /objects/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let plain = |method: &str, path: &str| {
        format!("{method} /objects/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    };
    stream.write_all(head("PUT", "large", body.len()).as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    stream.write_all((head("PUT", "small", 1) + "s").as_bytes()).unwrap();
    let mut many = String::new();
    for _ in 0..3 {
        many += &(plain("GET", "large") + &plain("HEAD", "large") + &plain("GET", "small"));
    }
    stream.write_all(many.as_bytes()).unwrap();
    stream.flush().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut reader = std::io::BufReader::new(stream);
    let mut reply = |has_body: bool| {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let start = head.len();
            assert!(std::io::BufRead::read_line(&mut reader, &mut head).unwrap() > 0, "{head}");
            if let Some(value) = head[start..].strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut body = vec![0; if has_body { length } else { 0 }];
        reader.read_exact(&mut body).unwrap();
        body
    };
    reply(true);
    reply(true);
    for _ in 0..3 {
        assert!(reply(true) == body && reply(false).is_empty());
        assert_eq!(reply(true), b"s");
    }
}

#[test]
fn boto3_finds_nothing_to_object_to_over_tls() {
    const TEST: &str = "serve_s3::tls::boto3_finds_nothing_to_object_to_over_tls";
    let Some(python) = python(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let sets = encrypted(folder.path(), 0o600);
    let front = Front::start(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let ca = certificates().join("ca.pem");
    for name in ["s3.py", "s3_parts.py"] {
        let mut command = client(python.clone(), ADMIN, front.folder.path());
        command.env("AWS_CA_BUNDLE", &ca).env("SSL_CERT_FILE", &ca);
        let output = command.arg(script(name)).arg(format!("https://{}", front.address)).output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{}{}{}",
            text(&output.stdout),
            text(&output.stderr),
            front.log()
        );
    }
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sets = encrypted(folder.path(), 0o644);
    let mut sets: Vec<String> = sets;
    sets.extend(crate::serve_client::overrides(folder.path(), &[]));
    let config = configuration::Config::load(None, &sets).unwrap();
    let error = serve::Server::start(config, None).err().expect("is refused");
    let error = format!("{error:#}");
    assert!(error.contains("chmod 600"), "{error}");
}

/// Connections that never begin TLS do not hold the places that are kept for health.
#[test]
fn silent_connections_do_not_keep_health_from_being_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut sets = encrypted(folder.path(), 0o600);
    sets.push("serve.connections_max=2".to_owned());
    let front = Front::start(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(&front.http).unwrap()).collect();
    let start = Instant::now();
    let health = || ask(&front.http, rustls::ALL_VERSIONS).unwrap_or_default();
    while !health().starts_with("HTTP/1.1 200 ") {
        assert!(
            start.elapsed().as_secs() < 120,
            "silent connections are kept for longer than a second"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
}
