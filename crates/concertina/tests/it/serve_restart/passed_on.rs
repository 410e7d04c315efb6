//! Live connections are passed on to the next process. The clients here have one connection each, never repeat a
//! request and never connect again: HTTP's and S3's before a node and a gateway, memcached's before a node and a proxy.

use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::serve_client::{Client, free, overrides, until};
use crate::serve_s3::{ADMIN, presigned, write_keys};

/// What systemd does for a service: it keeps listening sockets, and what the process sends it to be kept.
struct Keeper {
    listeners: Vec<TcpListener>,
    folder: tempfile::TempDir,
    kept: Arc<Mutex<Vec<OwnedFd>>>,
    stored: Arc<AtomicU64>,
}

impl Keeper {
    fn new(sockets: usize) -> Keeper {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let stored = Arc::new(AtomicU64::new(0));
        let (of_thread, count) = (kept.clone(), stored.clone());
        std::thread::spawn(move || {
            while let Some((text, mut sent)) = receive(&socket) {
                let mut kept = of_thread.lock().unwrap_or_else(PoisonError::into_inner);
                match text.lines().next().unwrap() {
                    "FDSTORE=1" => {
                        assert_eq!(
                            (text.as_str(), sent.len()),
                            ("FDSTORE=1\nFDNAME=connection", 1)
                        );
                        count.fetch_add(1, Ordering::Relaxed);
                        kept.append(&mut sent);
                    }
                    "FDSTOREREMOVE=1" => kept.clear(),
                    "BARRIER=1" => assert_eq!(sent.len(), 1),
                    "end" => return,
                    other => panic!("{other}"),
                }
            }
        });
        let listeners = (0..sockets).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        Keeper { listeners, folder, kept, stored }
    }

    fn address(&self, at: usize) -> SocketAddr {
        self.listeners[at].local_addr().unwrap()
    }

    /// Starts a process with the listening sockets and what is kept, from file descriptor 3 on.
    fn start(&self, sets: &[String]) -> Started {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.listeners.iter().map(AsFd::as_fd).chain(kept.iter().map(AsFd::as_fd));
        let high = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 1000).unwrap();
        let given: Vec<OwnedFd> = all.map(high).collect();
        let mut command = Command::new("sh");
        let script = "LISTEN_PID=$$; export LISTEN_PID; exec \"$0\" \"$@\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_concertina"), "serve", "--json"]);
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        command.env("LISTEN_FDS", given.len().to_string()).env("FDSTORE", "1000");
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.log()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        #[expect(unsafe_code, reason = "file descriptors of given numbers have no other way in")]
        // SAFETY: only duplicates file descriptors, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for (at, fd) in given.iter().enumerate() {
                    let mut target = OwnedFd::from_raw_fd(3 + at as i32);
                    rustix::io::dup2(fd, &mut target)?;
                    std::mem::forget(target);
                }
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(
            line.contains("address"),
            "{line:?} {}",
            std::fs::read_to_string(self.log()).unwrap()
        );
        Started(child)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let socket = UnixDatagram::unbound().unwrap();
        let _ = socket.send_to(b"end", self.folder.path().join("notify"));
    }
}

/// A message and the file descriptors with it.
fn receive(socket: &UnixDatagram) -> Option<(String, Vec<OwnedFd>)> {
    let mut text = [0; 200];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = recvmsg(socket, &mut parts, &mut control, flags).ok()?.bytes;
    let mut sent = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            sent.extend(descriptors);
        }
    }
    Some((String::from_utf8(text[..length].to_vec()).unwrap(), sent))
}

struct Started(Child);

impl Started {
    fn end(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What clients do.
trait Speaks: Sized {
    fn connect(at: SocketAddr) -> Self;
    /// Writes a value.
    ///
    /// # Errors
    ///
    /// What came instead of an acknowledgement.
    fn put(&mut self, key: &str, value: &str) -> Result<(), String>;
    /// Reads it.
    fn get(&mut self, key: &str) -> Result<String, String>;
}

impl Speaks for Client {
    fn connect(at: SocketAddr) -> Client {
        Client::connect(at)
    }
    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        let reply = self.send("PUT", &format!("/objects/{key}"), &[], Some(value.as_bytes()));
        let reply = reply.map_err(|error| error.to_string())?;
        let stays = reply.header("connection") != Some("close");
        if reply.status == 200 && stays { Ok(()) } else { Err(format!("{reply:?}")) }
    }
    fn get(&mut self, key: &str) -> Result<String, String> {
        let reply = self.send("GET", &format!("/objects/{key}"), &[], None);
        let reply = reply.map_err(|error| error.to_string())?;
        let stays = reply.header("connection") != Some("close");
        if reply.status == 200 && stays { Ok(reply.text()) } else { Err(format!("{reply:?}")) }
    }
}

/// A client of memcached's protocol.
struct Cache(BufReader<TcpStream>);

impl Cache {
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(1..) => Ok(line.trim_end().to_owned()),
            other => Err(format!("{other:?}")),
        }
    }
}

impl Speaks for Cache {
    fn connect(at: SocketAddr) -> Cache {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Cache(BufReader::new(stream))
    }
    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        let command = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        self.0.get_mut().write_all(command.as_bytes()).map_err(|error| error.to_string())?;
        let line = self.line()?;
        if line == "STORED" { Ok(()) } else { Err(line) }
    }
    fn get(&mut self, key: &str) -> Result<String, String> {
        let command = format!("get {key}\r\n");
        self.0.get_mut().write_all(command.as_bytes()).map_err(|error| error.to_string())?;
        let line = self.line()?;
        if !line.starts_with("VALUE ") {
            return Err(line);
        }
        let value = self.line()?;
        let end = self.line()?;
        if end == "END" { Ok(value) } else { Err(end) }
    }
}

/// A client of S3's protocol, whose requests are signed in their addresses.
struct Signed {
    client: Client,
    at: SocketAddr,
}

impl Signed {
    fn send(&mut self, method: &str, key: &str, body: Option<&[u8]>) -> Result<String, String> {
        let path = presigned(self.at, method, key);
        let reply =
            self.client.send(method, &path, &[], body).map_err(|error| error.to_string())?;
        let stays = reply.header("connection") != Some("close");
        if reply.status == 200 && stays { Ok(reply.text()) } else { Err(format!("{reply:?}")) }
    }
}

impl Speaks for Signed {
    fn connect(at: SocketAddr) -> Signed {
        Signed { client: Client::connect(at), at }
    }
    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        self.send("PUT", key, Some(value.as_bytes())).map(drop)
    }
    fn get(&mut self, key: &str) -> Result<String, String> {
        self.send("GET", key, None)
    }
}

/// What clients met.
#[derive(Default)]
struct Met {
    stop: AtomicBool,
    served: AtomicU64,
    failed: Mutex<Vec<String>>,
}

impl Met {
    /// Waits until forty requests were served, or one has failed.
    fn until_served(&self) {
        let before = self.served.load(Ordering::Relaxed);
        until("clients are served", || {
            let failed = !self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            failed || self.served.load(Ordering::Relaxed) >= before + 40
        });
    }

    fn note(&self, what: &str, result: Result<(), String>) {
        match result {
            Ok(()) => drop(self.served.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                self.failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(format!("{what}: {error}"));
            }
        }
    }
}

/// Writes and reads without a pause on one connection, until it fails or is told to stop.
fn busy<C: Speaks>(met: &Met, at: SocketAddr, number: u64) {
    let mut client = C::connect(at);
    let key = format!("key-{number}");
    for value in 0u64.. {
        if met.stop.load(Ordering::Relaxed) {
            return;
        }
        let text = value.to_string();
        let mut result = client.put(&key, &text);
        met.note("put", result.clone());
        for _ in 0..3 {
            if result.is_ok() {
                result = match client.get(&key) {
                    Ok(found) if found == text => Ok(()),
                    other => Err(format!("{other:?}, not {text}")),
                };
                met.note("get", result.clone());
            }
        }
        if result.is_err() {
            return;
        }
    }
}

/// Connects for each request.
fn visitor<C: Speaks>(met: &Met, at: SocketAddr) {
    while !met.stop.load(Ordering::Relaxed) {
        let mut client = C::connect(at);
        met.note("visit", client.put("visitor", "here"));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Restarts a process: it ends, and then the next one starts.
fn restarts<C: Speaks>(times: u32, keeper: &Keeper, at: SocketAddr, start: impl Fn() -> Started) {
    let met = Met::default();
    let mut running = start();
    // They send nothing but one request after each restart.
    let mut idle: Vec<C> = (0..8).map(|_| C::connect(at)).collect();
    idle.iter_mut().for_each(|client| client.put("idle", "0").unwrap());
    let last = std::thread::scope(|scope| {
        for number in 0..4 {
            let met = &met;
            scope.spawn(move || busy::<C>(met, at, number));
        }
        scope.spawn(|| visitor::<C>(&met, at));
        for time in 0..times {
            met.until_served();
            running.end();
            running = start();
            for client in &mut idle {
                met.note("idle", client.put("idle", &time.to_string()));
            }
        }
        met.stop.store(true, Ordering::Relaxed);
        running
    });
    last.end();
    let failed = met.failed.into_inner().unwrap();
    let log = std::fs::read_to_string(keeper.log()).unwrap();
    let log: Vec<&str> = log.lines().rev().take(20).collect();
    assert!(
        failed.is_empty(),
        "{} of {:?}: {:?}\n{log:#?}",
        failed.len(),
        met.served,
        failed.first()
    );
    // Idle connections at the least.
    let stored = keeper.stored.load(Ordering::Relaxed);
    assert!(stored >= u64::from(times) * 8, "{stored} connections were passed on");
}

fn node(times: u32) {
    let (keeper, folder) = (Keeper::new(1), tempfile::tempdir().unwrap());
    let at = keeper.address(0);
    let sets = overrides(folder.path(), &[&format!("serve.listen={at}"), "serve.threads=2"]);
    restarts::<Client>(times, &keeper, at, || keeper.start(&sets));
}

/// The overrides of a process with an S3 front that has both sockets.
fn with_s3(keeper: &Keeper, folder: &Path) -> Vec<String> {
    let keys = write_keys(folder, &[ADMIN]);
    vec![
        format!("serve.listen={}", keeper.address(0)),
        format!("s3.listen={}", keeper.address(1)),
        format!("s3.keys={}", keys.display()),
        "s3.buckets=[\"objects\"]".to_owned(),
        "serve.threads=2".to_owned(),
    ]
}

fn node_with_s3(times: u32) {
    let (keeper, folder) = (Keeper::new(2), tempfile::tempdir().unwrap());
    let mut sets = overrides(folder.path(), &[]);
    sets.extend(with_s3(&keeper, folder.path()));
    restarts::<Signed>(times, &keeper, keeper.address(1), || keeper.start(&sets));
}

fn gateway(times: u32) {
    let (keeper, folder) = (Keeper::new(1), tempfile::tempdir().unwrap());
    let at = keeper.address(0);
    before_a_node(
        folder.path(),
        &[format!("serve.listen={at}"), "serve.threads=2".to_owned()],
        |sets| {
            restarts::<Client>(times, &keeper, at, || keeper.start(sets));
        },
    );
}

fn gateway_with_s3(times: u32) {
    let (keeper, folder) = (Keeper::new(2), tempfile::tempdir().unwrap());
    before_a_node(folder.path(), &with_s3(&keeper, folder.path()), |sets| {
        restarts::<Signed>(times, &keeper, keeper.address(1), || keeper.start(sets));
    });
}

/// Runs something with the overrides of a gateway before a node.
fn before_a_node(folder: &Path, more: &[String], run: impl FnOnce(&[String])) {
    let member = format!("member.0={{name=\"a\",address=\"{}\"}}", free());
    let of = |more: &[&str]| overrides(folder, &[&[&*member, "cluster.replicas=1"], more].concat());
    let mut sets = of(&["serve.role=node", "cluster.name=a"]);
    sets.retain(|set| !set.starts_with("serve.listen"));
    let node =
        serve::Server::start(configuration::Config::load(None, &sets).unwrap(), None).unwrap();
    let mut sets = of(&["serve.role=gateway"]);
    sets.extend_from_slice(more);
    run(&sets);
    node.stop();
}

fn node_of_memcached(folder: &Path, listen: &str) -> Vec<String> {
    overrides(folder, &[&format!("memcached.node_listen={listen}"), "serve.threads=2"])
}

fn text(times: u32) {
    let (keeper, folder) = (Keeper::new(2), tempfile::tempdir().unwrap());
    let (http, at) = (keeper.address(0), keeper.address(1));
    let mut sets = node_of_memcached(folder.path(), &at.to_string());
    sets.push(format!("serve.listen={http}"));
    restarts::<Cache>(times, &keeper, at, || keeper.start(&sets));
}

fn proxy(times: u32) {
    let (keeper, folder) = (Keeper::new(2), tempfile::tempdir().unwrap());
    let (http, at) = (keeper.address(0), keeper.address(1));
    let sets = node_of_memcached(folder.path(), "127.0.0.1:0");
    let node =
        serve::Server::start(configuration::Config::load(None, &sets).unwrap(), None).unwrap();
    let sets = [
        "serve.role=proxy".to_owned(),
        "memcached.threads=2".to_owned(),
        format!("serve.listen={http}"),
        format!("memcached.listen={at}"),
        format!("pool.0.servers=[{:?}]", node.memcached().unwrap()),
        // The node has a write when its folder has it, which takes seconds while other tests write.
        "pool.0.timeout_s=30".to_owned(),
        "memcached.deadline_s=60".to_owned(),
    ];
    restarts::<Cache>(times, &keeper, at, || keeper.start(&sets));
    node.stop();
}

#[test]
fn a_nodes_connections_outlive_it() {
    node(5);
}

#[test]
fn a_gateways_connections_outlive_it() {
    gateway(5);
}

#[test]
fn s3s_connections_to_a_node_outlive_it() {
    node_with_s3(3);
}

#[test]
fn s3s_connections_to_a_gateway_outlive_it() {
    gateway_with_s3(3);
}

#[test]
fn memcacheds_connections_to_a_node_outlive_it() {
    text(5);
}

#[test]
fn a_proxys_connections_outlive_it() {
    proxy(5);
}

/// The first half of a request before the end of a process, the second after it: the process waits.
#[test]
fn half_a_request_is_answered_by_the_process_that_has_it() {
    let (keeper, folder) = (Keeper::new(1), tempfile::tempdir().unwrap());
    let at = keeper.address(0);
    let sets = overrides(folder.path(), &[&format!("serve.listen={at}"), "serve.threads=1"]);
    let running = keeper.start(&sets);
    let mut stream = TcpStream::connect(at).unwrap();
    let mut whole = Client::connect(at);
    assert_eq!(Client::put(&mut whole, "/objects/a", b"x").status, 200);
    stream.write_all(b"GET /objects/a HTTP/1.1\r\nhost: local").unwrap();
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| running.end());
        until("the whole one is passed on", || keeper.stored.load(Ordering::Relaxed) == 1);
        assert!(!ending.is_finished());
        stream.write_all(b"host\r\n\r\n").unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        until("the other one is passed on", || keeper.stored.load(Ordering::Relaxed) == 2);
    });
    let running = keeper.start(&sets);
    assert_eq!(Client::get(&mut whole, "/objects/a").text(), "x");
    running.end();
}

#[test]
#[ignore = "two minutes; the tests above do the same five times"]
fn twenty_restarts_with_live_connections() {
    node(20);
    gateway(20);
    node_with_s3(20);
    gateway_with_s3(20);
    text(20);
    proxy(20);
}
