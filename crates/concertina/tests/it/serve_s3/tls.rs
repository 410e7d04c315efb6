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

/// The reply to a request, all of it; `None` if the server does not speak TLS so.
fn ask(address: &str, versions: &[&'static rustls::SupportedProtocolVersion]) -> Option<String> {
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
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = rustls::StreamOwned::new(session, stream);
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
        // The hello of a client of TLS 1.0: nothing but an alert, or the end.
        let mut old = TcpStream::connect(address).unwrap();
        let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
        old.write_all(&hello).unwrap();
        let mut reply = Vec::new();
        let _ = old.read_to_end(&mut reply);
        assert!(reply.is_empty() || reply[0] == 21, "{reply:?}");
    }
    // A file that is not a certificate leaves the one that there is.
    std::fs::write(folder.path().join("server.pem"), "rubbish").unwrap();
    let start = Instant::now();
    while !front.log().contains("the certificate stays as it was") {
        assert!(start.elapsed().as_secs() < 20, "{}", front.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ask(&front.http, rustls::ALL_VERSIONS).unwrap().starts_with("HTTP/1.1 200 "));
    std::fs::copy(certificates().join("server.pem"), folder.path().join("server.pem")).unwrap();
    while !front.log().contains("a new certificate") {
        assert!(start.elapsed().as_secs() < 40, "{}", front.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ask(&front.http, rustls::ALL_VERSIONS).unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn boto3_finds_nothing_to_object_to_over_tls() {
    const TEST: &str = "serve_s3::tls::boto3_finds_nothing_to_object_to_over_tls";
    let Some(python) = python(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let sets = encrypted(folder.path(), 0o600);
    let front = Front::start(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let ca = certificates().join("ca.pem");
    let mut command = client(python, ADMIN, front.folder.path());
    command.env("AWS_CA_BUNDLE", &ca).env("SSL_CERT_FILE", &ca);
    let output = command.arg(script("s3.py")).arg(format!("https://{}", front.address)).output();
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

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sets = encrypted(folder.path(), 0o644);
    let mut sets: Vec<String> = sets;
    sets.extend(crate::serve_client::overrides(folder.path(), &[]));
    let config = serve::config::Config::load(None, &sets).unwrap();
    let error = serve::Server::start(config, None).err().expect("is refused").to_string();
    assert!(error.contains("chmod 600"), "{error}");
}
