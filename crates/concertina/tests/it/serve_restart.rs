//! Restarts under load without a failed request: the listening socket is kept by who starts the processes, as
//! systemd keeps it, and so are live connections in [`passed_on`].

mod passed_on;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::serve_client::{Client, ServerLog, free, overrides};

struct Started {
    child: Child,
    log: ServerLog,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Started {
    /// Starts a process that gets the socket as its file descriptor 3, as systemd would.
    fn with(listener: &TcpListener, folder: &Path, file: &Path, more: &[String]) -> Started {
        let given = OwnedFd::from(listener.try_clone().unwrap());
        let mut command = Command::new("sh");
        command.arg("-c").arg(
            "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID; exec \"$0\" \"$@\"",
        );
        command.arg(env!("CARGO_BIN_EXE_concertina")).args(["serve", "--json"]);
        command.arg("--config").arg(file);
        let listen = format!("serve.listen={}", listener.local_addr().unwrap());
        let mut sets = overrides(folder, &[&listen]);
        sets.extend_from_slice(more);
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        command.stdin(Stdio::from(given)).stdout(Stdio::piped());
        let log = ServerLog::in_folder(folder);
        let child = command.stderr(log.end()).spawn().unwrap();
        Started { child, log }
    }

    /// Waits until it serves.
    fn ready(mut self) -> Started {
        self.log.first_line(&mut self.child);
        self
    }

    /// Ends it in order.
    fn end(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

/// What clients met.
#[derive(Default)]
struct Met {
    stop: AtomicBool,
    served: AtomicU64,
    moved: AtomicU64,
    failed: Mutex<Vec<String>>,
}

/// Writes and reads on one connection until it is told to take another.
fn client(met: &Met, at: SocketAddr, number: u64) {
    let mut client = Client::connect(at);
    client.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let path = format!("/objects/key-{number}");
    for value in 0u64.. {
        if met.stop.load(Ordering::Relaxed) {
            return;
        }
        let text = value.to_string();
        for put in [true, false, false, false] {
            let method = if put { "PUT" } else { "GET" };
            let body = put.then_some(text.as_bytes());
            match client.send(method, &path, &[], body) {
                Ok(reply) if reply.status == 200 && (put || reply.text() == text) => {
                    met.served.fetch_add(1, Ordering::Relaxed);
                    if reply.header("connection") == Some("close") {
                        met.moved.fetch_add(1, Ordering::Relaxed);
                        client = Client::connect(at);
                    }
                }
                other => {
                    let what = format!("{method} {text}: {other:?}");
                    met.failed.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                    client = Client::connect(at);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Restarts under load: `restart` puts another process in the place of one. Returns how often clients were told
/// to connect anew.
fn restarts(times: u32, start: impl Fn(&TcpListener) -> Started, overlap: bool) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let met = Met::default();
    let first = start(&listener).ready();
    let last = std::thread::scope(|scope| {
        let mut running = first;
        let threads: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn({
                    let met = &met;
                    move || client(met, at, number)
                })
            })
            .collect();
        for _ in 0..times {
            let before = met.served.load(Ordering::Relaxed);
            while met.served.load(Ordering::Relaxed) < before + 40 {
                std::thread::sleep(Duration::from_millis(2));
                assert!(threads.iter().all(|thread| !thread.is_finished()));
            }
            running = if overlap {
                let next = start(&listener).ready();
                running.end();
                next
            } else {
                running.end();
                start(&listener).ready()
            };
        }
        let before = met.served.load(Ordering::Relaxed);
        while met.served.load(Ordering::Relaxed) < before + 40 {
            std::thread::sleep(Duration::from_millis(2));
        }
        met.stop.store(true, Ordering::Relaxed);
        running
    });
    last.end();
    let failed = met.failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} of {:?} failed: {:?}",
        failed.len(),
        met.served,
        &failed[..failed.len().min(5)]
    );
    met.moved.into_inner()
}

/// A node alone, whose devices its successor needs: clients wait until that is there.
fn node(times: u32) {
    let folder = tempfile::tempdir().unwrap();
    let (file, set) = (folder.path().join("empty.toml"), ["serve.threads=2".to_owned()]);
    std::fs::write(&file, "").unwrap();
    let start = |listener: &TcpListener| Started::with(listener, folder.path(), &file, &set);
    assert!(restarts(times, start, false) >= u64::from(times));
}

/// A gateway, whose successor serves before it ends.
fn gateway(times: u32) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("members.toml");
    std::fs::write(&file, format!("[[member]]\nname = \"a\"\naddress = \"{}\"\n", free())).unwrap();
    let config = std::fs::read_to_string(&file).unwrap();
    let mut set =
        overrides(folder.path(), &["serve.role=node", "cluster.name=a", "cluster.replicas=1"]);
    set.retain(|one| !one.starts_with("serve.listen"));
    let config = configuration::Config::parse(&config, "test", &set).unwrap();
    let node = serve::Server::start(config, None).unwrap();
    let set = [
        "serve.threads=1".to_owned(),
        "serve.role=gateway".to_owned(),
        "cluster.replicas=1".to_owned(),
    ];
    let start = |listener: &TcpListener| Started::with(listener, folder.path(), &file, &set);
    restarts(times, start, true);
    node.stop();
}

#[test]
fn a_node_is_restarted_without_a_failed_request() {
    node(3);
}

#[test]
fn a_gateway_is_restarted_without_a_failed_request() {
    gateway(3);
}

#[test]
#[ignore = "half a minute; the tests above do the same three times"]
fn twenty_restarts_of_each() {
    node(20);
    gateway(20);
}
