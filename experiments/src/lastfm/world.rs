//! A node with its devices in virtual time: the engine that serves, driven by events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use engine::node::{
    Action, Asker, Choice, DeviceSettings, Event, Fetched, Node, OriginSettings, Reply, RequestId,
    Settings, TierSettings, Tiers,
};
use engine::tier::Eviction;
use engine::{Key, Size};
use model::window::{self, Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// A device: an exponential time to position, and then its bytes.
#[derive(Clone, Copy)]
pub struct Disk {
    pub hot: bool,
    pub position_s: f64,
    pub bytes_per_s: f64,
    pub bytes_max: u64,
}

/// A read that was answered.
#[derive(Clone, Copy)]
pub struct Answered {
    pub sent: Nanos,
    pub response: Nanos,
    pub outcome: Outcome,
}

pub struct World {
    node: Node<Size>,
    disks: Vec<Disk>,
    now: Nanos,
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: HashMap<u64, Event<Size>>,
    next: u64,
    /// Bytes of the object of each key.
    sizes: HashMap<Key, u64>,
    waiting: HashMap<RequestId, Nanos>,
    pub answered: Vec<Answered>,
    random: SmallRng,
}

impl World {
    pub fn new(disks: Vec<Disk>, tiers: TierSettings, seed: u64) -> World {
        let device = |(index, disk): (usize, &Disk)| DeviceSettings {
            name: format!("device/{index}"),
            outcome: if disk.hot { Outcome::HotDevice } else { Outcome::BulkDevice },
            servers: 1,
            queue_length_max: 1 << 20,
            bytes_max: disk.bytes_max,
            segment_bytes: (disk.bytes_max / 64).max(1 << 16),
        };
        let windows = window::Settings { window_ns: Nanos::MAX / 4, ..Default::default() };
        let settings = Settings {
            memory_bytes_max: 0,
            eviction: Eviction::Lru,
            object_bytes_max: 1 << 30,
            revalidate: None,
            stale_if_error: 0,
            devices: disks.iter().enumerate().map(device).collect(),
            tiers,
            origin: OriginSettings { servers: 1 << 16, queue_length_max: 1 << 20 },
            appends_bytes_max: 1 << 40,
            writes_waiting_max: 1,
            cluster: None,
            windows,
        };
        World {
            node: Node::new(settings, 0),
            disks,
            now: 0,
            ends: BinaryHeap::new(),
            events: HashMap::new(),
            next: 0,
            sizes: HashMap::new(),
            waiting: HashMap::new(),
            answered: Vec::new(),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// A read of an object of `bytes` bytes at a time that is not before the last one.
    pub fn read(&mut self, at: Nanos, key: &Key, bytes: u64) {
        self.run_to(at);
        self.sizes.entry(key.clone()).or_insert(bytes);
        self.next += 1;
        let request = self.next;
        self.waiting.insert(request, at);
        let asker = Asker::Client { avoid: None };
        self.handle(at, Event::Get { request, key: key.clone(), asker, deadline: None });
    }

    pub fn run_to(&mut self, now: Nanos) {
        while let Some(&Reverse((at, id))) = self.ends.peek() {
            if at > now {
                break;
            }
            self.ends.pop();
            self.now = self.now.max(at);
            if let Some(event) = self.events.remove(&id) {
                self.handle(at, event);
            }
        }
        self.now = self.now.max(now);
    }

    pub fn tiers(&mut self) -> Tiers {
        self.node.tiers(self.now)
    }

    fn handle(&mut self, now: Nanos, event: Event<Size>) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            self.node.handle(now, event, &mut actions);
            for action in actions {
                match action {
                    Action::Reply { request, reply, .. } => {
                        let sent = self.waiting.remove(&request).unwrap_or(now);
                        let outcome = match reply {
                            Reply::Found { outcome, .. } => outcome,
                            _ => Outcome::Error,
                        };
                        let response = now.saturating_sub(sent);
                        self.answered.push(Answered { sent, response, outcome });
                    }
                    Action::Read { device, key, job, start, .. } => {
                        let payload = self.object(&key);
                        let disk = self.disks[device];
                        let drawn: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
                        let seconds =
                            -drawn.ln() * disk.position_s + payload.bytes as f64 / disk.bytes_per_s;
                        self.next += 1;
                        let end = start + (seconds * SECOND as f64) as Nanos;
                        self.events.insert(self.next, Event::Read { job, result: Ok(payload) });
                        self.ends.push(Reverse((end, self.next)));
                    }
                    Action::Append { job, .. } => {
                        events.push(Event::Appended { job, written: true });
                    }
                    Action::Fetch { key, job } => {
                        let result = Fetched::Found(self.object(&key));
                        events.push(Event::Fetched { job, result });
                    }
                    _ => {}
                }
            }
        }
    }

    fn object(&self, key: &Key) -> Size {
        let bytes = self.sizes.get(key).copied().unwrap_or(0);
        Size { bytes, stored_bytes: bytes, etag: "1".into() }
    }
}

/// What the hot class keeps, with the defaults of the rest.
pub fn tiers(popularity_s: f64, counters: usize, mb_per_s: f64, choice: Choice) -> TierSettings {
    TierSettings {
        memory: (popularity_s * SECOND as f64) as Nanos,
        counters,
        promote_bytes_per_s: (mb_per_s * 1e6) as u64,
        choice,
        ..TierSettings::default()
    }
}
