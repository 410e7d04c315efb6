//! Drawn faults of a store behind a real process: gone, emptied, replaced, slow, silent, cut, lying, refusing for good, and
//! successes of strangers. Nothing wrong is served or cached, no acknowledged write is lost, and the log has the beginning and the
//! end of each outage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::serve_client::{Client, Process, spawn, until, until_or};

/// What the relay does with a request and its reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Passes both on.
    None,
    /// Closes the connection.
    Gone,
    /// Never replies.
    Silent,
    /// Replies late, but in time.
    Slow,
    /// Passes on half of the reply and closes the connection.
    Cut,
    /// Changes a byte of the reply's body.
    Lying,
    /// Replies with this status, without asking the store.
    Status(u16),
    /// A page of somebody else's, with a success.
    Stranger,
    /// The request is carried out, and its reply is lost.
    LostReply,
    /// The bucket is moved away.
    BucketGone,
    /// An empty bucket is in its place.
    BucketEmptied,
}

const FAULTS: [Fault; 13] = [
    Fault::Gone,
    Fault::Silent,
    Fault::Slow,
    Fault::Cut,
    Fault::Lying,
    Fault::Status(403),
    Fault::Status(400),
    Fault::Status(500),
    Fault::Status(503),
    Fault::Stranger,
    Fault::LostReply,
    Fault::BucketGone,
    Fault::BucketEmptied,
];

/// A relay in front of a store.
pub struct Relay {
    pub address: String,
    fault: Arc<Mutex<Fault>>,
}

impl Relay {
    pub fn start(store: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fault = Arc::new(Mutex::new(Fault::None));
        let (shared, store) = (fault.clone(), store.to_owned());
        // They end with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (shared, store) = (shared.clone(), store.clone());
                std::thread::spawn(move || relay(client, &store, &shared));
            }
        });
        Relay { address, fault }
    }

    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

/// The end of a head in `bytes`.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// One request with its body: what comes until the client waits. `None` if it leaves.
fn request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut piece, mut told) = (Vec::new(), [0; 1 << 16], false);
    loop {
        if let Some(end) = head_end(&bytes) {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.map_or(0, |text| text.trim().parse::<usize>().unwrap());
            if bytes.len() >= end + length {
                return Some(bytes);
            }
            if head.contains("expect: 100-continue") && !std::mem::replace(&mut told, true) {
                client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
            }
        }
        match client.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// Answers one request, and closes the connection, so that each has the fault of its time.
fn relay(mut client: TcpStream, store: &str, fault: &Mutex<Fault>) {
    let Some(bytes) = request(&mut client) else { return };
    let fault = *fault.lock().unwrap();
    match fault {
        Fault::Gone => return,
        Fault::Silent => return std::thread::sleep(Duration::from_secs(5)),
        Fault::Slow => std::thread::sleep(Duration::from_millis(200)),
        Fault::Status(status) => {
            let body = "<Error><Code>Odd</Code><Message>as the test asked</Message></Error>";
            let reply = answer(&format!("{status} Odd"), "content-type: application/xml\r\n", body);
            return drop(client.write_all(reply.as_bytes()));
        }
        Fault::Stranger => {
            let reply = answer("200 OK", "content-type: text/html\r\n", "<html>maintenance</html>");
            return drop(client.write_all(reply.as_bytes()));
        }
        _ => {}
    }
    let end = head_end(&bytes).unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]);
    let lines = head.lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !line.starts_with("expect:") && !line.starts_with("connection:") && !line.is_empty()
    });
    let head: String = lines.map(|line| format!("{line}\r\n")).collect();
    let Ok(mut upstream) = TcpStream::connect(store) else { return };
    let sent = upstream
        .write_all(format!("{head}connection: close\r\n\r\n").as_bytes())
        .and_then(|()| upstream.write_all(&bytes[end..]));
    let mut reply = Vec::new();
    if sent.is_err() || upstream.read_to_end(&mut reply).is_err() {
        return;
    }
    let body = head_end(&reply).unwrap_or(reply.len());
    match fault {
        Fault::LostReply => return,
        Fault::Cut => reply.truncate(body + (reply.len() - body) / 2),
        Fault::Lying if body < reply.len() => reply[body] ^= 1,
        _ => {}
    }
    let _ = client.write_all(&reply);
}

/// What a key may hold: what was acknowledged last, and what was written since with an unknown result. `None` is no object.
type PossibleValues = BTreeSet<Option<Vec<u8>>>;

/// A process before a relay before a store, and what its clients know.
struct World {
    process: Process,
    folder: tempfile::TempDir,
    store: Store,
    relay: Relay,
    keys: BTreeMap<String, PossibleValues>,
    rng: StdRng,
    written: u64,
    client: Option<Client>,
}

impl World {
    fn start(store: Store, seed: u64) -> World {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(&store.address);
        let sets = [
            "origin.kind=s3".to_owned(),
            format!("origin.endpoint=http://{}", relay.address),
            "origin.bucket=objects".to_owned(),
            "origin.allow_http=true".to_owned(),
            format!("origin.access_key_id={ACCESS}"),
            format!("origin.secret_access_key={SECRET}"),
            "origin.timeout_s=1".to_owned(),
            "node.revalidate_s=0.2".to_owned(),
            // Half of the objects are read from the store.
            "node.memory_bytes=64KiB".to_owned(),
            "device.0.bytes=3MiB".to_owned(),
        ];
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let process = spawn(folder.path(), &sets, "");
        let rng = StdRng::seed_from_u64(seed);
        let keys =
            (0..8).map(|n| (format!("/objects/{n}"), PossibleValues::from([None]))).collect();
        World { process, folder, store, relay, keys, rng, written: 0, client: None }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("servers.log")).unwrap_or_default()
    }

    /// Sends a request; `None` if its connection breaks off.
    fn send(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> Option<(u16, Vec<u8>)> {
        let address = self.process.address;
        let client = self.client.get_or_insert_with(|| Client::connect(address));
        match client.send(method, path, &[], body) {
            Ok(reply) => Some((reply.status, reply.body)),
            Err(_) => {
                self.client = None;
                None
            }
        }
    }

    /// Writes, removes or reads a key, and compares.
    fn step(&mut self, fault: Fault) {
        let at = self.rng.random_range(0..8);
        let path = format!("/objects/{at}");
        match self.rng.random_range(0..10) {
            0..4 => {
                self.written += 1;
                let length = self.rng.random_range(1..40_000);
                let body = bytes(self.written, length);
                let status = self.send("PUT", &path, Some(&body)).map(|(status, _)| status);
                self.wrote(&path, Some(body), status, 200);
            }
            4 => {
                let status = self.send("DELETE", &path, None).map(|(status, _)| status);
                self.wrote(&path, None, status, 204);
            }
            _ => self.read(&path, fault),
        }
    }

    fn wrote(&mut self, path: &str, body: Option<Vec<u8>>, status: Option<u16>, done: u16) {
        let known = self.keys.get_mut(path).unwrap();
        match status {
            Some(status) if status == done => *known = PossibleValues::from([body]),
            // Refused, or with an unknown result.
            _ => _ = known.insert(body),
        }
    }

    fn read(&mut self, path: &str, fault: Fault) {
        let read = self.send("GET", path, None);
        let known = &self.keys[path];
        let found = match read {
            Some((200, body)) => Some(body),
            Some((404, _)) => None,
            Some((status, _)) => {
                assert!((500..600).contains(&status), "{status} of {path} under {fault:?}");
                return;
            }
            None => return,
        };
        let shown = found.as_ref().map(|body| (body.len(), body.get(..9).map(<[u8]>::to_vec)));
        assert!(
            known.contains(&found),
            "{path} is {shown:?} under {fault:?}, {} values are possible\n{}",
            known.len(),
            self.log()
        );
    }

    /// A listing that succeeds has what was acknowledged, and nothing that was removed.
    fn list(&mut self, fault: Fault) {
        let Some((200, body)) = self.send("GET", "/objects?limit=100", None) else { return };
        let text = String::from_utf8_lossy(&body);
        for (path, known) in &self.keys {
            let key = path.rsplit('/').next().unwrap();
            let listed = text.contains(&format!("\"{key}\""));
            let may_be_there = known.iter().any(Option::is_some);
            let must_be_there = known.iter().all(Option::is_some);
            assert!(!listed || may_be_there, "{key} is listed under {fault:?}: {text}");
            assert!(listed || !must_be_there, "{key} is not listed under {fault:?}: {text}");
        }
    }

    fn set(&mut self, fault: Fault) {
        let (bucket, away) = (self.store.bucket(), self.store.bucket().with_file_name("away"));
        if matches!(fault, Fault::BucketGone | Fault::BucketEmptied) {
            fs::rename(&bucket, &away).unwrap();
        }
        if fault == Fault::BucketEmptied {
            fs::create_dir(&bucket).unwrap();
        }
        if fault == Fault::None && away.exists() {
            let _ = fs::remove_dir_all(&bucket);
            fs::rename(&away, &bucket).unwrap();
        }
        self.relay.set(fault);
    }

    /// One fault, with requests before, under and after it.
    fn sequence(&mut self) {
        let fault = FAULTS[self.rng.random_range(0..FAULTS.len())];
        for _ in 0..6 {
            self.step(Fault::None);
        }
        self.set(fault);
        for _ in 0..self.rng.random_range(2..7) {
            self.step(fault);
        }
        self.list(fault);
        self.set(Fault::None);
        // It is well again without a restart: reads and writes succeed.
        until_or(
            "the store to be used again",
            || format!("{fault:?}"),
            || {
                self.written += 1;
                let body = bytes(self.written, 100);
                let status = self.send("PUT", "/objects/0", Some(&body)).map(|(status, _)| status);
                self.wrote("/objects/0", Some(body), status, 200);
                status == Some(200)
            },
        );
        for at in 0..8 {
            let path = format!("/objects/{at}");
            until("a read", || {
                let read = self.send("GET", &path, None);
                matches!(read, Some((200 | 404, _)))
            });
            self.read(&path, Fault::None);
        }
        self.list(Fault::None);
    }

    /// Each outage that the log tells of has one beginning and one end.
    fn check_log(&self) {
        let ends = |log: &str| log.matches("INFO the origin answers again after ").count();
        let starts = ["failed: ", "timed out: ", "is not there: ", "denies access: "];
        let begins = |log: &str| -> usize {
            starts
                .iter()
                .map(|start| log.matches(&format!("WARN the origin {start}")).count())
                .sum()
        };
        until_or(
            "the end of the last outage",
            || self.log(),
            || {
                let log = self.log();
                begins(&log) == ends(&log)
            },
        );
        let log = self.log();
        let mut open = false;
        for line in log.lines() {
            let (begin, end) = (begins(line), ends(line));
            assert!(begin == 0 || !open, "an outage begins twice: {line}\n{log}");
            assert!(end == 0 || open, "an outage ends twice: {line}\n{log}");
            open = (open || begin > 0) && end == 0;
        }
    }
}

fn run_sequences(test: &str, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let Some(store) = Store::start(test) else { return };
        let mut world = World::start(store, seed);
        for _ in 0..5 {
            world.sequence();
        }
        world.check_log();
    }
}

#[test]
fn drawn_faults_of_a_store_lose_nothing_and_serve_nothing_wrong() {
    run_sequences(
        "origin_s3::drawn::drawn_faults_of_a_store_lose_nothing_and_serve_nothing_wrong",
        0..2,
    );
}

#[test]
#[ignore = "a hundred sequences take minutes"]
fn a_hundred_drawn_faults() {
    run_sequences("origin_s3::drawn::a_hundred_drawn_faults", 100..120);
}
