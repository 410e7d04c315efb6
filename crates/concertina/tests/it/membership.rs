//! Nodes that join, drain, leave and die while a gateway serves, with the list of members in a real etcd.
//! A checker holds every read against the acknowledged writes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use configuration::Config;
use serde_json::Value;
use serve::Server;

use crate::left_out::left_out;
use crate::serve_client::{Client, Process, free, overrides, spawn_of, until, until_or};

/// A real etcd.
pub struct Etcd {
    child: Option<Child>,
    folder: PathBuf,
    pub client: SocketAddr,
    peer: SocketAddr,
}

impl Etcd {
    pub fn start(folder: &Path) -> Option<Etcd> {
        let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            left_out("membership", "etcd is not installed (apt install etcd-server)");
            return None;
        }
        let mut etcd =
            Etcd { child: None, folder: folder.join("etcd"), client: free(), peer: free() };
        etcd.run();
        Some(etcd)
    }

    pub fn run(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let child = Command::new("etcd")
            .args(["--name", "e", "--log-level", "error", "--unsafe-no-fsync"])
            .arg("--data-dir")
            .arg(&self.folder)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("e={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Removes what it holds; it is not running.
    pub fn forget(&self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

pub struct World {
    pub folder: tempfile::TempDir,
    pub etcd: Etcd,
    pub addresses: HashMap<&'static str, SocketAddr>,
    /// More of each process's configuration.
    pub more: &'static [&'static str],
    /// The version of nodes.
    pub binary: PathBuf,
}

impl World {
    /// A cluster without processes, of this version.
    pub fn new(folder: tempfile::TempDir, etcd: Etcd, more: &'static [&'static str]) -> World {
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_concertina"));
        World { folder, etcd, addresses: HashMap::new(), more, binary }
    }

    /// The configuration that all processes have.
    pub fn common(&self) -> Vec<String> {
        [
            "membership.kind=etcd".to_owned(),
            format!("membership.endpoints=[\"http://{}\"]", self.etcd.client),
            "cluster.replicas=2".to_owned(),
            "cluster.lease_s=0.3".to_owned(),
            "serve.threads=1".to_owned(),
            "serve.drain_s=0.5".to_owned(),
            "gateway.deadline_s=5".to_owned(),
        ]
        .into_iter()
        .chain(self.more.iter().map(|more| (*more).to_owned()))
        .collect()
    }

    /// The configuration of a node.
    pub fn of_node(&self, name: &str, address: SocketAddr) -> Vec<String> {
        let mut set = self.common();
        set.extend([
            "serve.role=node".to_owned(),
            format!("cluster.name={name}"),
            format!("membership.address={address}"),
            format!("device.0.path={}/device-{name}", self.folder.path().display()),
        ]);
        set
    }

    pub fn node(&mut self, name: &'static str) -> Process {
        self.node_with(name, &[])
    }

    pub fn node_with(&mut self, name: &'static str, more: &[&str]) -> Process {
        let address = *self.addresses.entry(name).or_insert_with(free);
        let set = self.of_node(name, address);
        let set: Vec<&str> = set.iter().map(String::as_str).chain(more.iter().copied()).collect();
        spawn_of(&self.binary, self.folder.path(), &set, "")
    }

    /// Whether a process has a part of the origin's folder locked.
    fn holds_a_turn(&self, process: &Process) -> bool {
        let turns = std::fs::read_dir(self.folder.path().join("origin/turns")).unwrap();
        let turns: Vec<u64> = turns.map(|entry| entry.unwrap().metadata().unwrap().ino()).collect();
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let pid = process.child.id().to_string();
        // "12: FLOCK  ADVISORY  WRITE PID MAJOR:MINOR:INODE 0 EOF"
        locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|lock| {
            let inode = lock.get(5).and_then(|at| at.rsplit(':').next()?.parse().ok());
            lock.get(4) == Some(&pid.as_str()) && inode.is_some_and(|inode| turns.contains(&inode))
        })
    }

    pub fn gateway(&self) -> Server {
        let set = self.common();
        let mut set: Vec<&str> = set.iter().map(String::as_str).collect();
        set.extend(["serve.role=gateway", "serve.listen=127.0.0.1:0"]);
        let config = Config::load(None, &overrides(self.folder.path(), &set));
        Server::start(config.unwrap_or_else(|error| panic!("{error}")), None).unwrap()
    }
}

/// What clients wrote and read.
#[derive(Default)]
pub struct History {
    pub stop: AtomicBool,
    /// By key the newest acknowledged value.
    pub acknowledged: Mutex<HashMap<u64, u64>>,
    writes: AtomicU64,
    reads: AtomicU64,
    /// By key the latest refusal of a write.
    refused: Mutex<HashMap<u64, String>>,
    pub failed_reads: Mutex<Vec<String>>,
    pub stale: Mutex<Vec<String>>,
}

impl History {
    /// Waits until a newer value of each key is acknowledged: all keys can be written.
    pub fn all_written(&self, what: &str, at: SocketAddr) {
        let before = self.acknowledged.lock().unwrap().clone();
        self.refused.lock().unwrap().clear();
        let missing = || {
            let now = self.acknowledged.lock().unwrap();
            (0..8).filter(|key| now.get(key) <= before.get(key)).collect::<Vec<u64>>()
        };
        let told = || {
            let refused = self.refused.lock().unwrap().clone();
            format!("no write of {:?}; {refused:?}; {}", missing(), json(at, "/admin/status"))
        };
        until_or(what, told, || missing().is_empty());
    }

    fn reads_go_on(&self, what: &str) {
        let reads = self.reads.load(Ordering::Relaxed);
        until(what, || self.reads.load(Ordering::Relaxed) > reads + 20);
    }

    /// Fails if a read failed, or returned a value older than what was acknowledged.
    pub fn is_right(&self) {
        let (stale, failed) = (self.stale.lock().unwrap(), self.failed_reads.lock().unwrap());
        assert!(stale.is_empty(), "{stale:?}");
        assert!(failed.is_empty(), "{} reads failed: {:?}", failed.len(), failed.first());
    }
}

/// Ends the clients when a check fails, so that this is what the test reports.
pub struct Stopped(pub Arc<History>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Starts a client of each of eight keys.
pub fn clients(history: &Arc<History>, at: SocketAddr) -> Vec<std::thread::JoinHandle<()>> {
    let start = |key| {
        let history = history.clone();
        std::thread::spawn(move || client(&history, at, key))
    };
    (0..8).map(start).collect()
}

/// One client of each of eight keys: writes ascending numbers, and reads what it wrote.
pub fn client(history: &History, at: SocketAddr, key: u64) {
    let mut client = Client::connect(at);
    let path = format!("/objects/key-{key}");
    let mut value = 0;
    while !history.stop.load(Ordering::Relaxed) {
        value += 1;
        match client.send("PUT", &path, &[], Some(value.to_string().as_bytes())) {
            Ok(reply) if reply.status == 200 => {
                history.acknowledged.lock().unwrap().insert(key, value);
                history.writes.fetch_add(1, Ordering::Relaxed);
            }
            Ok(reply) => {
                let why = format!("{}: {}", reply.status, reply.text());
                history.refused.lock().unwrap().insert(key, why);
            }
            Err(error) => {
                history.refused.lock().unwrap().insert(key, error.to_string());
                client = Client::connect(at);
            }
        }
        for _ in 0..3 {
            let least = history.acknowledged.lock().unwrap().get(&key).copied();
            let Some(least) = least else { continue };
            match client.send("GET", &path, &[], None) {
                Ok(reply) if reply.status == 200 => {
                    history.reads.fetch_add(1, Ordering::Relaxed);
                    let read: u64 = reply.text().parse().unwrap();
                    if read < least || read > value {
                        let what = format!("key {key}: read {read}, {least} was acknowledged");
                        history.stale.lock().unwrap().push(what);
                    }
                }
                Ok(reply) => {
                    let what = format!("{}: {}", reply.status, reply.text());
                    history.failed_reads.lock().unwrap().push(what);
                }
                Err(error) => {
                    history.failed_reads.lock().unwrap().push(error.to_string());
                    client = Client::connect(at);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn json(at: SocketAddr, path: &str) -> Value {
    serde_json::from_slice(&Client::connect(at).get(path).body).unwrap()
}

/// The members as the gateway's status shows them: name, state, live.
pub fn members(at: SocketAddr) -> Vec<(String, String, bool)> {
    let status = json(at, "/admin/status");
    let member = |it: &Value| {
        let text = |key: &str| it[key].as_str().unwrap().to_owned();
        (text("name"), text("state"), it["live"] == true)
    };
    status["members"].as_array().unwrap().iter().map(member).collect()
}

#[test]
fn members_come_and_go_while_clients_write_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let mut world = World::new(folder, etcd, &[]);
    let (a, b) = (world.node("a"), world.node("b"));
    let gateway = world.gateway();
    let at = gateway.address();
    let live = |names: &[&str]| {
        let there = members(at).into_iter().filter(|(_, _, live)| *live);
        there.map(|(name, ..)| name).collect::<Vec<_>>() == names
    };
    until("two members", || live(&["a", "b"]));
    let history = Arc::new(History::default());
    let _stopped = Stopped(history.clone());
    let clients = clients(&history, at);
    let all_written = |what: &str| history.all_written(what, at);
    all_written("the first writes");

    let c = world.node("c");
    until("a third member", || live(&["a", "b", "c"]));
    all_written("writes after a join");

    // A node is killed: others take its keys, long before etcd's lease ends.
    drop(b);
    until("the loss to be noticed", || live(&["a", "c"]));
    all_written("writes after a loss");
    let b = world.node("b");
    until("the lost member", || live(&["a", "b", "c"]));
    all_written("writes after a return");

    // A node that stands still is lost too, and comes back by itself. One that stops in the middle of a
    // rename keeps the others from writing to that part of the folder: another test's subject.
    c.signal("-STOP");
    while world.holds_a_turn(&c) {
        c.signal("-CONT");
        std::thread::sleep(Duration::from_millis(3));
        c.signal("-STOP");
    }
    until("the pause to be noticed", || live(&["a", "b"]));
    all_written("writes while a member stands still");
    c.signal("-CONT");
    until("the member that stood still", || live(&["a", "b", "c"]));

    etcd_is_lost_for_a_while(&mut world.etcd, &history, at);

    // Drained, then stopped: it has left.
    let told = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["drain", "a", "--server", &format!("http://{at}")])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("a takes no keys from epoch"), "{told}");
    until("the drain", || members(at)[0] == ("a".to_owned(), "draining".to_owned(), true));
    all_written("writes after a drain");
    a.signal("-TERM");
    until("the member to leave", || members(at).len() == 2 && live(&["b", "c"]));
    all_written("writes after a leave");

    nodes_take_orders(world.addresses["b"], world.addresses["c"], at);
    all_written("writes after orders to nodes");

    a_hostile_list_is_refused(world.etcd.client, &history, at);

    history.stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    history.is_right();
    drop((b, c));
    gateway.stop();
}

/// Without etcd reads go on, and the processes say what is wrong.
fn etcd_is_lost_for_a_while(etcd: &mut Etcd, history: &History, at: SocketAddr) {
    etcd.kill();
    until("the loss of etcd to be said", || {
        let text = json(at, "/readyz")["degraded"].to_string();
        text.contains("etcd has not confirmed") && Client::connect(at).get("/readyz").status == 200
    });
    history.reads_go_on("reads without etcd");
    etcd.run();
    history.all_written("writes after etcd is back", at);
    until("etcd to confirm again", || json(at, "/readyz")["degraded"].is_null());
}

/// A node's own port takes the operator's orders as a gateway does, and shows what the processes share.
fn nodes_take_orders(of_b: SocketAddr, of_c: SocketAddr, at: SocketAddr) {
    let order = |more: &[&str], at: SocketAddr| {
        let server = format!("http://{at}");
        let run = Command::new(env!("CARGO_BIN_EXE_concertina"))
            .args(more)
            .args(["--server", &server])
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{more:?} at {at}: {out}{err}");
        out.into_owned()
    };
    assert!(order(&["drain", "b"], of_c).contains("b takes no keys from epoch"));
    until("the drain by a node", || members(at)[0].1 == "draining");
    assert!(order(&["drain", "b", "--resume"], of_b).contains("b takes keys again from epoch"));
    until("the end of the drain", || members(at)[0].1 == "in");
    assert!(order(&["cluster", "get", "--json"], of_c).contains("version"));
}

/// A hostile list is refused by name, and changes nothing.
fn a_hostile_list_is_refused(etcd: SocketAddr, history: &History, at: SocketAddr) {
    let hostile = r#"{"key":"L2NvbmNlcnRpbmEvdmlldw==","value":"WyJub3QgYSBsaXN0Il0="}"#;
    let put = Client::connect(etcd).send("POST", "/v3/kv/put", &[], Some(hostile.as_bytes()));
    assert_eq!(put.unwrap().status, 200);
    until("the refusal to be said", || {
        let text = json(at, "/readyz")["degraded"].to_string();
        text.contains("/concertina/view") && text.contains("refused")
    });
    history.reads_go_on("reads with a hostile list");
}
