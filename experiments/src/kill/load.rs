//! The load: readers and writers on threads of their own, through all gateways, every operation
//! recorded.
//!
//! Each gateway has readers that read random keys, hot ones more often. Each key belongs to one
//! writer, which puts and deletes numbered versions through any gateway, one at a time. After every
//! second write it reads the key at once through another gateway: a read whose result is known.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ground::window::Nanos;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;

use super::body;
use super::fault::Target;
use super::history::{Action, Content, Operation, Place, Read, ReadResult, Written};
use super::wire::{Ask, Client};
use record::clock::now;

/// `[load]` of `config.toml`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Number of keys.
    pub keys: u32,
    /// Readers of each gateway.
    pub readers: u32,
    /// Mean time between a reader's reply and its next request.
    pub read_pause_ms: f64,
    /// Number of writers, over all gateways.
    pub writers: u32,
    /// Mean time between a writer's reply and its next request.
    pub write_pause_ms: f64,
    /// Share of writes that delete.
    pub delete_share: f64,
    /// Share of writes that go to a key that is written once and never again.
    pub once_share: f64,
    /// The most such keys.
    pub once_keys: u32,
    /// The deadline that a write asks for.
    pub write_deadline_ms: u64,
}

/// What all clients share.
struct Shared {
    settings: Settings,
    gateways: Vec<SocketAddr>,
    token: String,
    /// The primary of each key.
    primaries: Vec<usize>,
    stopping: AtomicBool,
    filled: AtomicU32,
    /// For each gateway and node in turn, when the last acknowledged write began that went through
    /// the one to the other.
    acknowledged: Vec<AtomicU64>,
    nodes: usize,
}

/// The record of one client.
#[derive(Default)]
pub struct Log {
    /// Operations, in the order of their ends.
    pub operations: Vec<Operation>,
    /// Replies of failed requests with their times; the first few.
    pub notes: Vec<(Nanos, String)>,
}

/// Largest number of notes of one client.
const NOTES_MAX: usize = 100;

/// The running load.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Log>>,
}

impl Load {
    /// Starts all clients, which first write every key once.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(
        settings: &Settings,
        gateways: &[SocketAddr],
        token: &str,
        primaries: Vec<usize>,
        nodes: usize,
    ) -> anyhow::Result<Load> {
        let pairs = gateways.len() * nodes;
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            gateways: gateways.to_vec(),
            token: token.to_owned(),
            primaries,
            stopping: AtomicBool::new(false),
            filled: AtomicU32::new(0),
            acknowledged: (0..pairs).map(|_| AtomicU64::new(0)).collect(),
            nodes,
        });
        let mut load = Load { shared, clients: Vec::new() };
        for writer in 0..settings.writers {
            let shared = Arc::clone(&load.shared);
            load.spawn(format!("writer-{writer}"), move || write(&shared, writer))?;
        }
        for reader in 0..settings.readers * gateways.len() as u32 {
            let shared = Arc::clone(&load.shared);
            load.spawn(format!("reader-{reader}"), move || read(&shared, reader))?;
        }
        Ok(load)
    }

    fn spawn(
        &mut self,
        name: String,
        work: impl FnOnce() -> Log + Send + 'static,
    ) -> anyhow::Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(work);
        self.clients.push(thread.context("cannot start a client")?);
        Ok(())
    }

    /// Whether every key was written once.
    pub fn is_filled(&self) -> bool {
        self.shared.filled.load(Ordering::Relaxed) == self.shared.settings.writers
    }

    /// Whether writes that began after `since` were acknowledged through every gateway to every node
    /// that the target concerns.
    pub fn writes_work(&self, target: Target, since: Nanos) -> bool {
        self.shared.acknowledged.iter().enumerate().all(|(pair, last)| {
            let (gateway, node) = (pair / self.shared.nodes, pair % self.shared.nodes);
            let concerned = match target {
                Target::Node(struck) => node == struck,
                Target::Gateway(struck) => gateway == struck,
                Target::Origin | Target::Machine => true,
            };
            !concerned || last.load(Ordering::Relaxed) > since
        })
    }

    /// Ends all clients and returns their records.
    ///
    /// # Errors
    /// If one panicked.
    pub fn stop(mut self) -> anyhow::Result<Log> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let mut all = Log::default();
        for client in self.clients.drain(..) {
            let log = client.join().map_err(|_| anyhow!("a client of the experiment panicked"))?;
            all.operations.extend(log.operations);
            all.notes.extend(log.notes);
        }
        all.operations.sort_by_key(|operation| operation.ended);
        all.notes.sort();
        Ok(all)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

fn pause(random: &mut Xoshiro256PlusPlus, mean_ms: f64) {
    std::thread::sleep(Duration::from_secs_f64(random.random::<f64>() * 2.0 * mean_ms / 1e3));
}

fn read(shared: &Shared, reader: u32) -> Log {
    let settings = &shared.settings;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(reader));
    let mut clients = Clients::new(&shared.gateways, &shared.token);
    let gateway = reader as usize % shared.gateways.len().max(1);
    while !shared.stopping.load(Ordering::Relaxed) {
        // Half of the requests go to an eighth of the keys.
        let key = (random.random::<f64>().powi(3) * f64::from(settings.keys)) as u32;
        if shared.filled.load(Ordering::Relaxed) == settings.writers {
            clients.read(gateway, key);
        }
        pause(&mut random, settings.read_pause_ms);
    }
    clients.log
}

fn write(shared: &Shared, writer: u32) -> Log {
    let settings = &shared.settings;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1_000_000 + u64::from(writer));
    let mut clients = Clients::new(&shared.gateways, &shared.token);
    let keys: Vec<u32> = (writer..settings.keys).step_by(settings.writers as usize).collect();
    let mut versions = vec![0; keys.len()];
    let (mut filled, mut once) = (0, writer);
    let gateways = shared.gateways.len();
    while !shared.stopping.load(Ordering::Relaxed) && !keys.is_empty() {
        let filling = filled < keys.len();
        let which = if filling { filled } else { random.random_range(0..keys.len()) };
        let gateway = random.random_range(0..gateways);
        let fresh = settings.keys + once;
        let is_once =
            !filling && once < settings.once_keys && random.random::<f64>() < settings.once_share;
        let write = if is_once {
            once += settings.writers;
            Write { key: fresh, version: 1, delete: false }
        } else {
            versions[which] += 1;
            let delete = !filling && random.random::<f64>() < settings.delete_share;
            Write { key: keys[which], version: versions[which], delete }
        };
        let key = write.key;
        let began = now();
        let acknowledged = clients.write(gateway, &write, settings.write_deadline_ms);
        if acknowledged {
            let pair = gateway * shared.nodes + shared.primaries[key as usize];
            shared.acknowledged[pair].fetch_max(began, Ordering::Relaxed);
            if filling {
                filled += 1;
                if filled == keys.len() {
                    shared.filled.fetch_add(1, Ordering::Relaxed);
                }
                continue;
            }
        }
        // What was acknowledged is read back at once, through another gateway: the first that answers.
        // Of the others every second is.
        if acknowledged || write.version.is_multiple_of(2) {
            for next in 1..=gateways {
                let read = clients.read((gateway + next) % gateways, key);
                if !acknowledged || matches!(read, Read::Saw(_) | Read::Wrong) {
                    break;
                }
            }
        }
        pause(&mut random, settings.write_pause_ms);
    }
    clients.log
}

/// A version to write.
struct Write {
    key: u32,
    version: u32,
    delete: bool,
}

/// One client: its connections to all gateways, and its record.
pub struct Clients {
    gateways: Vec<Client>,
    body: Vec<u8>,
    /// The client's record.
    pub log: Log,
}

impl Clients {
    /// Creates a client of these gateways.
    pub fn new(gateways: &[SocketAddr], token: &str) -> Clients {
        let gateways = gateways.iter().map(|address| Client::new(*address, token)).collect();
        Clients { gateways, body: Vec::new(), log: Log::default() }
    }

    /// Reads a key through a gateway and records the result.
    pub fn read(&mut self, gateway: usize, key: u32) -> Read {
        let client = &mut self.gateways[gateway];
        let path = format!("/objects/{}", body::name(key));
        let began = now();
        let status = client.ask(Ask::get(&path));
        let ended = now();
        let (read, note) = match status {
            Ok(200) => match body::read(key, &client.body, &mut self.body) {
                Ok(seen) => (Read::Saw(seen), None),
                Err(what) => (Read::Wrong, Some(what)),
            },
            Ok(404) => (Read::Saw(ReadResult::Nothing), None),
            Ok(status) => (Read::Refused(status), Some(status_text(status, &client.body))),
            Err(error) => (Read::Failed, Some(error.to_string())),
        };
        let place = Place::Gateway(gateway as u8);
        self.record(Operation { began, ended, key, place, action: Action::Read(read) }, note);
        read
    }

    /// Writes a version, records the outcome, and returns whether it was acknowledged.
    fn write(&mut self, gateway: usize, write: &Write, deadline_ms: u64) -> bool {
        let &Write { key, version, delete } = write;
        let client = &mut self.gateways[gateway];
        let path = format!("/objects/{}", body::name(key));
        let (method, content) = if delete {
            self.body.clear();
            ("DELETE", Content::Deleted)
        } else {
            body::write(key, version, &mut self.body);
            ("PUT", if self.body.is_empty() { Content::Empty } else { Content::Bytes })
        };
        let upload = self.body.as_slice();
        let began = now();
        let status =
            client.ask(Ask { method, path: &path, upload, deadline_ms: Some(deadline_ms) });
        let ended = now();
        let (written, note) = match status {
            Ok(200..=299) => (Written::Acknowledged, None),
            // The object did not exist, so the deletion has its effect.
            Ok(404) if delete => (Written::Acknowledged, None),
            Ok(status) => (Written::Refused(status), Some(status_text(status, &client.body))),
            Err(error) => (Written::Unknown, Some(error.to_string())),
        };
        let action = Action::Write(version, content, written);
        let place = Place::Gateway(gateway as u8);
        self.record(Operation { began, ended, key, place, action }, note);
        written == Written::Acknowledged
    }

    fn record(&mut self, operation: Operation, note: Option<String>) {
        if let Some(note) = note.filter(|_| self.log.notes.len() < NOTES_MAX) {
            let what = if operation.is_read() { "GET" } else { "write" };
            let text = format!("{what} of key {} at {:?}: {note}", operation.key, operation.place);
            self.log.notes.push((operation.ended, text));
        }
        self.log.operations.push(operation);
    }
}

/// A status with the beginning of the reply's body.
fn status_text(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..300).unwrap_or(body)).into_owned();
    format!("{status} {}", text.trim())
}
