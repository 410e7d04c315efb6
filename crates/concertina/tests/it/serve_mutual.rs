//! Certificates between the processes of a cluster, and towards etcd: who has none that is trusted is refused.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use configuration::Config;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serve::Server;

use crate::left_out::left_out;
use crate::serve_client::{Client, bytes, free};

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls")
}

/// Puts a certificate, its key and who is trusted into a folder, in place of what is there.
fn issue(folder: &Path, own: &str, trusted: &str) {
    std::fs::create_dir_all(folder).unwrap();
    for (from, to) in [
        (format!("{own}.pem"), "own.pem"),
        (format!("{own}.key"), "own.key"),
        (format!("{trusted}-ca.pem"), "ca.pem"),
    ] {
        let new = folder.join("new");
        std::fs::copy(certificates().join(from), &new).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&new, folder.join(to)).unwrap();
    }
}

/// The settings of certificates in a folder.
fn using(section: &str, folder: &Path) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    format!(
        "[{section}]\ntls_ca = \"{}\"\ntls_certificate = \"{}\"\ntls_key = \"{}\"\n",
        file("ca.pem"),
        file("own.pem"),
        file("own.key")
    )
}

fn server(text: &str, set: &[String]) -> anyhow::Result<Server> {
    Server::start(Config::parse(text, "test", set).unwrap(), None)
}

/// What a node answers to somebody who speaks TLS; `None`: it ends the connection.
fn ask(node: SocketAddr, own: Option<&str>, path: &str) -> Option<String> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(certificates().join("processes-ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let file = |end: &str| certificates().join(format!("{own}.{end}"));
            let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = "127.0.0.1".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(node).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut stream = rustls::StreamOwned::new(session, stream);
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    Some(String::from_utf8_lossy(&reply).into_owned()).filter(|reply| !reply.is_empty())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_processes_of_a_cluster_show_each_other_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let members = [free(), free()];
    let mut common = format!("[origin]\npath = \"{}/origin\"\n", folder.path().display());
    for (name, address) in ["a", "b"].iter().zip(&members) {
        common += &format!("[[member]]\nname = \"{name}\"\naddress = \"{address}\"\n");
    }
    let of = |who: &str| format!("{common}{}", using("cluster", &folder.path().join(who)));
    issue(&folder.path().join("node"), "process", "processes");
    issue(&folder.path().join("gateway"), "stranger", "processes");
    let set = |more: &[String]| {
        let mut all = vec!["cluster.replicas=2".to_owned(), "serve.drain_s=0.5".to_owned()];
        all.extend_from_slice(more);
        all
    };
    let nodes = ["a", "b"].map(|name| {
        let device = format!("device.0.path={}/device-{name}", folder.path().display());
        let more = ["serve.role=node".to_owned(), format!("cluster.name={name}"), device];
        server(&of("node"), &set(&more)).unwrap()
    });
    // Somebody without a certificate, with one of others, in the clear.
    let health = |own| ask(members[0], own, "/healthz");
    assert_eq!((health(None), health(Some("stranger"))), (None, None));
    assert!(health(Some("process")).unwrap().starts_with("HTTP/1.1 200 "));
    let mut plain = TcpStream::connect(members[0]).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply);
    assert!(!String::from_utf8_lossy(&reply).contains("HTTP/"), "{reply:?}");
    // A gateway whose certificate is of others gets nothing done, until it gets another.
    let more = ["serve.role=gateway", "serve.listen=127.0.0.1:0", "gateway.deadline_s=1"];
    let gateway = server(&of("gateway"), &set(&more.map(str::to_owned))).unwrap();
    let mut client = Client::connect(gateway.address());
    let refused = client.put("/objects/early", b"x");
    assert!(matches!(refused.status, 503 | 504), "{}: {}", refused.status, refused.text());
    issue(&folder.path().join("gateway"), "process", "processes");
    until("the gateway takes its new certificate", || {
        // Keys of both nodes, which are asked again a while after they failed.
        (0..16).all(|n| client.put(&format!("/objects/later-{n}"), b"x").status == 200)
    });
    // All ways of bodies, and kept connections.
    for round in 0..3 {
        for size in [0, 10, 80_000, 3_000_000] {
            let (path, body) = (format!("/objects/{size}"), bytes(size as u64 + round, size));
            let put = client.put(&path, &body);
            assert_eq!(put.status, 200, "{size}: {}", put.text());
            for _ in 0..4 {
                let get = client.get(&path);
                assert_eq!((get.status, get.body == body), (200, true), "{size}");
            }
            let range = client.send("GET", &path, &[("range", "bytes=5-9")], None).unwrap();
            let expected = if size == 0 { 416 } else { 206 };
            assert_eq!(range.status, expected, "{size}: {}", range.text());
        }
    }
    until("the nodes lease to each other", || {
        let status = ask(members[0], Some("process"), "/admin/status").unwrap();
        status.contains("\"leased\":true") || status.contains("\"leased\": true")
    });
    gateway.stop();
    nodes.into_iter().for_each(Server::stop);
}

struct Etcd(Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn etcd_is_shown_a_certificate() {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return left_out(
            "etcd_is_shown_a_certificate",
            "etcd is not installed (apt install etcd-server)",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    issue(&folder.path().join("etcd-tls"), "process", "processes");
    issue(&folder.path().join("good"), "process", "processes");
    issue(&folder.path().join("bad"), "stranger", "processes");
    let (client, peer) = (format!("https://{}", free()), format!("http://{}", free()));
    let child = Command::new("etcd")
        .args(["--name", "e", "--log-level", "error", "--unsafe-no-fsync", "--client-cert-auth"])
        .args(["--data-dir", &path("etcd"), "--trusted-ca-file", &path("etcd-tls/ca.pem")])
        .args(["--cert-file", &path("etcd-tls/own.pem"), "--key-file", &path("etcd-tls/own.key")])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("e={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _etcd = Etcd(child);
    let start = |who: &str, role: &str, start_s: &str| {
        let mut text = format!("[origin]\npath = \"{}\"\n", path("origin"));
        text += &using("membership", &folder.path().join(who));
        text += &format!("kind = \"etcd\"\nendpoints = [\"{client}\"]\nstart_s = {start_s}\n");
        text += &using("cluster", &folder.path().join("good"));
        text += "replicas = 1\n";
        let set = match role {
            "gateway" => {
                vec!["serve.role=gateway".to_owned(), "serve.listen=127.0.0.1:0".to_owned()]
            }
            _ => vec![
                "serve.role=node".to_owned(),
                format!("cluster.name={role}"),
                format!("membership.address={}", free()),
                format!("device.0.path={}", path(role)),
            ],
        };
        server(&text, &set)
    };
    let node = start("good", "a", "60").unwrap();
    let refused = start("bad", "b", "1").err().expect("etcd refuses it");
    assert!(format!("{refused:#}").contains("no membership in etcd"), "{refused:#}");
    let gateway = start("good", "gateway", "60").unwrap();
    let mut client = Client::connect(gateway.address());
    until("the node serves", || client.put("/objects/a", b"x").status == 200);
    assert_eq!(client.get("/objects/a").body, b"x");
    gateway.stop();
    node.stop();
}
