//! Servers that may open few files, and clients that hold connections and ask nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::measure::Running;
use crate::serve_client::{Client, bytes, free, until, until_or};

/// Clients that connect and are silent.
const IDLE: usize = 60;

/// A process that may open few files.
struct Limited {
    process: Running,
    told: serde_json::Value,
    log: std::path::PathBuf,
}

impl Limited {
    fn start(folder: &Path, name: &str, files: u64, sets: &[String]) -> Limited {
        let log = folder.join(format!("{name}.log"));
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""));
        command.arg(env!("CARGO_BIN_EXE_concertina")).args(["serve", "--json"]);
        command.args(["--set", "serve.threads=2", "--set", "serve.listen=127.0.0.1:0"]);
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(std::fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{}", std::fs::read_to_string(&log).unwrap()));
        Limited { process: Running(child), told, log }
    }

    fn address(&self, of: &str) -> SocketAddr {
        self.told[of].as_str().unwrap().parse().unwrap()
    }

    fn warnings(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
    }

    /// The log tells of the limit once, and of nothing that each connection repeats.
    fn has_a_short_log(&self) {
        let warnings = self.warnings();
        assert!(warnings.len() < 10, "{warnings:#?}");
        let told = warnings.iter().filter(|line| line.contains("raise the limit (`ulimit -n`"));
        assert_eq!(told.count(), 1, "{warnings:#?}");
    }

    fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.0.id())).unwrap().count()
    }
}

fn idle_connections(address: SocketAddr) -> Vec<TcpStream> {
    (0..IDLE).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// One GET on a connection of its own; `None` if it is refused or closed.
fn status_of(address: SocketAddr, path: &str) -> Option<u16> {
    let mut client = Client::connect(address);
    client.send("GET", path, &[], None).ok().map(|reply| reply.status)
}

/// Health and administration are answered.
fn answers(address: SocketAddr) {
    for path in ["/healthz", "/readyz", "/admin/status", "/metrics"] {
        until(&format!("{path} of {address}"), || status_of(address, path) == Some(200));
    }
}

/// Objects are taken and come back, from the origin (`large`: more than is kept) and from what is kept.
fn serves(address: SocketAddr) {
    let large = bytes(1, 400_000);
    let small: Vec<Vec<u8>> = (0..20).map(|seed| bytes(seed, 60_000)).collect();
    let put = |path: &str, body: &[u8]| {
        until(path, || {
            Client::connect(address)
                .send("PUT", path, &[], Some(body))
                .is_ok_and(|reply| reply.status == 200)
        });
    };
    put("/objects/large", &large);
    small.iter().enumerate().for_each(|(i, body)| put(&format!("/objects/{i}"), body));
    let mut client = Client::connect(address);
    for _ in 0..2 {
        assert!(client.get("/objects/large").body == large);
        for (i, body) in small.iter().enumerate() {
            let reply = client.get(&format!("/objects/{i}"));
            assert!(reply.body == *body, "{i}: {}", reply.status);
        }
    }
}

/// Settings of a node whose objects do not fit in memory: they are on its device, or in the origin alone.
fn sets(folder: &Path, more: &[&str]) -> Vec<String> {
    let mut sets: Vec<String> = more.iter().map(|&set| set.to_owned()).collect();
    sets.push(format!("origin.path={}/origin", folder.display()));
    sets.push(format!("device.0.path={}/device", folder.display()));
    sets.extend(["node.memory_bytes=200kB", "node.object_bytes_max=100kB"].map(str::to_owned));
    sets.push("device.0.bytes=16MiB".to_owned());
    sets
}

#[test]
fn idle_connections_leave_files_for_health_devices_and_the_origin() {
    for files in [64, 128, 256] {
        let folder = tempfile::tempdir().unwrap();
        let node = Limited::start(folder.path(), "node", files, &sets(folder.path(), &[]));
        let address = node.address("address");
        let _held = idle_connections(address);
        answers(address);
        let _more = idle_connections(address);
        serves(address);
        answers(address);
        assert!(node.files() < files as usize, "{} of {files}", node.files());
        node.has_a_short_log();
        let status = Client::connect(address).get("/admin/status");
        let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
        let max = status["connections_max"].as_u64().unwrap();
        assert!(max >= 2 && max < files, "{max}");
        let metrics = Client::connect(address).get("/metrics").text();
        assert!(metrics.contains(&format!("concertina_connections_max {max}")), "{metrics}");
    }
}

#[test]
fn a_limit_of_files_that_does_not_suffice_ends_the_start_with_what_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let sets = sets(folder.path(), &["serve.listen=127.0.0.1:0", "serve.threads=8"]);
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -n 48; exec \"$0\" serve \"$@\"");
    command.arg(env!("CARGO_BIN_EXE_concertina")).args(sets.iter().flat_map(|set| ["--set", set]));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("may open 48 files, and needs at least"), "{said}");
    assert!(!folder.path().join("origin").exists(), "it began all the same");
}

#[test]
fn a_gateway_and_its_node_serve_beside_idle_connections() {
    let folder = tempfile::tempdir().unwrap();
    let member = free();
    let members = |more: &[&str]| {
        let mut sets = sets(folder.path(), more);
        sets.extend(["member.0.name=a".to_owned(), format!("member.0.address={member}")]);
        sets.push("cluster.token=t".to_owned());
        sets
    };
    let node = members(&["serve.role=node", "cluster.name=a"]);
    let node = Limited::start(folder.path(), "node", 416, &node);
    let gateway = members(&["serve.role=gateway"]);
    let gateway = Limited::start(folder.path(), "gateway", 384, &gateway);
    let address = gateway.address("address");
    let _held = (idle_connections(address), idle_connections(member));
    answers(address);
    answers(member);
    serves(address);
    answers(address);
    assert!(gateway.files() < 384 && node.files() < 416);
    gateway.has_a_short_log();
    node.has_a_short_log();
}

#[test]
fn a_gateway_and_a_node_in_one_process_share_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let member = free();
    let mut sets = sets(folder.path(), &["cluster.name=a", "member.0.name=a", "cluster.token=t"]);
    sets.push(format!("member.0.address={member}"));
    let both = Limited::start(folder.path(), "both", 480, &sets);
    let address = both.address("address");
    let _held = (idle_connections(address), idle_connections(member));
    answers(address);
    serves(address);
    let _more = (idle_connections(member), idle_connections(address));
    answers(address);
    answers(member);
    assert!(both.files() < 480, "{}", both.files());
    both.has_a_short_log();
}

#[test]
fn files_that_run_out_all_the_same_close_idle_connections_and_no_door() {
    let folder = tempfile::tempdir().unwrap();
    let node = Limited::start(folder.path(), "node", 256, &sets(folder.path(), &[]));
    let address = node.address("address");
    serves(address);
    let _held = idle_connections(address);
    until("all are taken", || node.files() > IDLE);
    // No file is left from here on.
    let pid = Pid::from_child(&node.process.0);
    let files = node.files() as u64;
    let limit = Rlimit { current: Some(files), maximum: Some(256) };
    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    let start = Instant::now();
    let mut more = Vec::new();
    while start.elapsed() < Duration::from_secs(3) {
        more.push(TcpStream::connect(address).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(more);
    answers(address);
    let warnings = node.warnings();
    let out = warnings.iter().filter(|line| line.contains("Too many open files")).count();
    assert!((1..10).contains(&out), "{warnings:#?}");
}

#[test]
fn the_fronts_of_s3_and_memcached_share_the_files_of_their_node() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let text = "[[key]]\nid = \"AKIDEXAMPLE\"\nsecret = \"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\"\nscopes = [\"*:admin\"]\n";
    std::fs::write(&keys, text).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&keys, private).unwrap();
    let keys = format!("s3.keys={}", keys.display());
    let more = ["s3.listen=127.0.0.1:0", "s3.buckets=[\"objects\"]", &keys];
    let more = [&more[..], &["memcached.node_listen=127.0.0.1:0"]].concat();
    let node = Limited::start(folder.path(), "node", 128, &sets(folder.path(), &more));
    let (http, s3) = (node.address("address"), node.address("s3"));
    let memcached = node.address("memcached");
    let _held = (idle_connections(s3), idle_connections(memcached), idle_connections(http));
    answers(http);
    // Without a signature: 403.
    until("S3 answers", || status_of(s3, "/objects/a") == Some(403));
    set_and_get(memcached);
    serves(http);
    let _more = (idle_connections(s3), idle_connections(memcached));
    answers(http);
    assert!(node.files() < 128, "{}", node.files());
    node.has_a_short_log();
}

/// Stores and reads a value by memcached's protocol.
fn set_and_get(address: SocketAddr) {
    let mut said = String::new();
    let attempt = |said: &mut String| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        stream.write_all(b"set k 0 0 2\r\nhi\r\nget k\r\nquit\r\n").ok()?;
        said.clear();
        stream.read_to_string(said).ok()
    };
    until_or("memcached answers", String::new, || {
        attempt(&mut said);
        said == "STORED\r\nVALUE k 0 2\r\nhi\r\nEND\r\n"
    });
}

#[test]
fn a_proxy_serves_beside_idle_connections() {
    let folder = tempfile::tempdir().unwrap();
    let sets_of_node = sets(folder.path(), &["memcached.node_listen=127.0.0.1:0"]);
    let node = Limited::start(folder.path(), "node", 1024, &sets_of_node);
    let servers = format!("pool.0.servers=[\"{}\"]", node.address("memcached"));
    let of_proxy = ["serve.role=proxy", "memcached.listen=127.0.0.1:0", "memcached.threads=2"];
    let of_proxy: Vec<String> =
        of_proxy.iter().map(|&set| set.to_owned()).chain([servers]).collect();
    let proxy = Limited::start(folder.path(), "proxy", 64, &of_proxy);
    let (http, memcached) = (proxy.address("address"), proxy.address("memcached"));
    let _held = (idle_connections(memcached), idle_connections(http));
    answers(http);
    set_and_get(memcached);
    let _more = idle_connections(memcached);
    set_and_get(memcached);
    answers(http);
    assert!(proxy.files() < 64, "{}", proxy.files());
    proxy.has_a_short_log();
}
