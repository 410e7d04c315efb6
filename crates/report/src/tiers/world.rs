//! A node with its devices in virtual time: the engine that serves, driven by events.
//!
//! Nothing is read or written, and no clock is looked at: a read of a device ends when the emulated
//! device says so, an append at once, the origin answers at once. So the answers are a function of
//! the requests and the seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use engine::Size;
use engine::node::{
    Action, Asker, DeviceSettings, Event, Fetched, Node, OriginSettings, Reply, RequestId,
    Settings, Take, TierSettings, Tiers,
};
use engine::tier::Eviction;
use ground::Key;
use ground::window::{self, Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// A device: an exponential time to position, and then its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Whether it holds second copies.
    pub hot: bool,
    /// Reads that it serves at once.
    pub servers: u32,
    /// Mean time to position, seconds.
    pub position_s: f64,
    /// Bytes per second after that.
    pub bytes_per_s: f64,
    /// Byte budget.
    pub bytes_max: u64,
    /// Bytes of a segment; 0: [`segment_bytes`] of the budget.
    pub segment_bytes: u64,
}

/// The bytes of a segment of a device: a 64th of it, but enough for an object of `largest` bytes.
pub fn segment_bytes(bytes_max: u64, largest: u64) -> u64 {
    (bytes_max / 64).max(1 << 16).max(largest + 4096)
}

/// The memory tier.
#[derive(Clone, Copy, Debug)]
pub struct MemoryTier {
    /// Byte budget, overhead included.
    pub bytes_max: u64,
    /// Which objects leave first.
    pub eviction: Eviction,
}

/// A read that was answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRead {
    /// The request's place among the requests, from 0.
    pub request: usize,
    /// When the read came.
    pub sent: Nanos,
    /// How long it took.
    pub response: Nanos,
    /// Which tier answered.
    pub outcome: Outcome,
}

/// A node with its devices. Cost: some microseconds a read.
pub struct World {
    node: Node<Size>,
    disks: Vec<Disk>,
    now: Nanos,
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: HashMap<u64, Event<Size>>,
    next: u64,
    /// Bytes of the object of each key.
    sizes: HashMap<Key, u64>,
    /// Keys of the records of each segment.
    keys: HashMap<(usize, u64), Vec<Key>>,
    waiting: HashMap<RequestId, (usize, Nanos)>,
    asked: usize,
    /// The answered reads, in the order of the answers.
    pub answered: Vec<AnsweredRead>,
    random: SmallRng,
}

impl World {
    /// Nothing is held. No object has more than `largest` bytes.
    pub fn new(
        memory: MemoryTier,
        disks: Vec<Disk>,
        tiers: TierSettings,
        largest: u64,
        seed: u64,
    ) -> World {
        let device = |(index, disk): (usize, &Disk)| DeviceSettings {
            name: format!("device/{index}"),
            outcome: if disk.hot { Outcome::HotDevice } else { Outcome::BulkDevice },
            servers: disk.servers,
            queue_length_max: 1 << 20,
            bytes_max: disk.bytes_max,
            segment_bytes: match disk.segment_bytes {
                0 => segment_bytes(disk.bytes_max, largest),
                bytes => bytes,
            },
            segments_max: 0,
            piece_bytes: 0,
            servers_max: 0,
        };
        let windows = window::Settings { window_ns: Nanos::MAX / 4, ..Default::default() };
        let settings = Settings {
            memory_bytes_max: memory.bytes_max,
            eviction: memory.eviction,
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
            keys: HashMap::new(),
            now: 0,
            ends: BinaryHeap::new(),
            events: HashMap::new(),
            next: 0,
            sizes: HashMap::new(),
            waiting: HashMap::new(),
            asked: 0,
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
        self.waiting.insert(request, (self.asked, at));
        self.asked += 1;
        let asker = Asker::Client { avoid: None };
        self.handle(
            at,
            Event::Get { request, key: key.clone(), asker, deadline: None, take: Take::Whole },
        );
    }

    /// Lets the time pass until `now`.
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

    /// What the node says of its tiers.
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
                        let asked = self.waiting.remove(&request);
                        let (request, sent) = asked.unwrap_or((usize::MAX, now));
                        let outcome = match reply {
                            Reply::Found { outcome, .. } => outcome,
                            _ => Outcome::Error,
                        };
                        let response = now.saturating_sub(sent);
                        self.answered.push(AnsweredRead { request, sent, response, outcome });
                    }
                    Action::Read { device, key, job, start, .. } => {
                        let payload = self.object(&key);
                        let disk = self.disks[device];
                        let drawn: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
                        let seconds =
                            -drawn.ln() * disk.position_s + payload.bytes as f64 / disk.bytes_per_s;
                        self.next += 1;
                        let end = start + (seconds * SECOND as f64) as Nanos;
                        self.events
                            .insert(self.next, Event::Read { job, result: Ok(payload), left: 0 });
                        self.ends.push(Reverse((end, self.next)));
                    }
                    Action::Append { device, location, key, job, .. } => {
                        let segment = (device, location.segment());
                        self.keys.entry(segment).or_default().push(key);
                        events.push(Event::Appended { job, written: true, full: false });
                    }
                    Action::DropSegment { device, segment } => {
                        self.keys.remove(&(device, segment));
                    }
                    Action::List { device, segment } => {
                        let keys = self.keys.get(&(device, segment)).cloned().unwrap_or_default();
                        events.push(Event::Listed { device, segment, keys });
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
