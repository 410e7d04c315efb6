//! A driver in virtual time: clients, an origin and devices, all from one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use engine::node::*;
use engine::tier::Location;
use engine::{Key, Payload, Size};
use model::window::{Nanos, Outcome, SECOND};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};

use crate::checker::{Checker, Seen};

/// What may go wrong, and how often.
#[derive(Clone, Copy)]
pub struct Faults {
    /// Share of device reads and writes that fail.
    pub device: f64,
    /// Share of origin calls that fail; a failed write may have happened all the same.
    pub origin: f64,
    /// Restarts each second: memory is lost, devices stay.
    pub restarts_per_s: f64,
    /// Tell the node that a write ended only so long after the client was told: wrong on purpose.
    pub late_write_end: Option<Nanos>,
}

/// What the clients do.
#[derive(Clone, Copy)]
pub struct Load {
    pub rate: f64,
    pub keys: u32,
    pub write_share: f64,
    pub size_max: u64,
}

enum Happening {
    Arrival,
    Event(u64, Event<Size>),
    /// The origin carries out a write now, and answers a little later.
    OriginWrite {
        request: RequestId,
        key: u32,
        delete: bool,
    },
    WriteDone {
        request: RequestId,
        key: u32,
        version: Option<u64>,
        size: u64,
        delete: bool,
    },
    Restart,
}

struct Scheduled {
    at: Nanos,
    order: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Records of a segment by offset.
type Segment = BTreeMap<u64, (Location, Key, Size)>;

/// A line of the event log.
pub type Logged = (Nanos, Event<Size>, Vec<Action<Size>>);

pub struct World {
    pub now: Nanos,
    pub node: Node<Size>,
    pub settings: Settings,
    pub checker: Checker,
    pub violations: Vec<String>,
    /// Everything since the last restart, for a replay.
    pub log: Vec<Logged>,
    pub refused: u64,
    pub failed: u64,
    pub by_outcome: BTreeMap<Outcome, u64>,
    pub responses: Vec<(Outcome, Nanos)>,
    heap: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    rng: StdRng,
    faults: Faults,
    load: Load,
    origin: HashMap<u32, Size>,
    /// Segments of each device.
    disks: Vec<BTreeMap<u64, Segment>>,
    reads: HashMap<RequestId, (u32, Nanos)>,
    writes: HashMap<RequestId, (u32, bool)>,
    /// Writes that the origin has, until they are acknowledged.
    written: HashMap<RequestId, (u32, u64)>,
    /// Jobs of the node that lives now; answers to an earlier one's are dropped.
    generation: u64,
    next_request: RequestId,
    service: HashMap<usize, Exp<f64>>,
    in_service: HashMap<JobId, usize>,
}

pub fn key_name(key: u32) -> Key {
    key.to_be_bytes()[..].into()
}

fn key_number(key: &Key) -> u32 {
    u32::from_be_bytes(key[..].try_into().expect("keys of the simulation have four bytes"))
}

impl World {
    pub fn new(seed: u64, settings: Settings, load: Load, faults: Faults, mean_s: f64) -> World {
        let devices = settings.devices.len();
        let mut world = World {
            now: 0,
            node: Node::new(settings.clone(), 0),
            checker: Checker::default(),
            violations: Vec::new(),
            log: Vec::new(),
            refused: 0,
            failed: 0,
            by_outcome: BTreeMap::new(),
            responses: Vec::new(),
            heap: BinaryHeap::new(),
            order: 0,
            rng: StdRng::seed_from_u64(seed),
            faults,
            load,
            origin: HashMap::new(),
            disks: vec![BTreeMap::new(); devices],
            reads: HashMap::new(),
            writes: HashMap::new(),
            written: HashMap::new(),
            generation: 0,
            next_request: 0,
            service: (0..devices).map(|d| (d, Exp::new(1.0 / mean_s).unwrap())).collect(),
            in_service: HashMap::new(),
            settings,
        };
        world.schedule(0, Happening::Arrival);
        if faults.restarts_per_s > 0.0 {
            let first = world.exponential(1.0 / faults.restarts_per_s);
            world.schedule(first, Happening::Restart);
        }
        world
    }

    /// Puts an object into the origin and onto a device, as if it had always been there.
    pub fn preload(&mut self, key: u32, bytes: u64) {
        let version = self.checker.written(key, false);
        let payload = size_of(version, bytes);
        self.origin.insert(key, payload.clone());
        let request = self.request();
        self.tell(Event::WriteBegin { request, key: key_name(key) });
        self.tell(Event::WriteEnd { request, key: key_name(key), payload: Some(payload) });
        self.checker.acknowledged(key, version, self.now);
    }

    pub fn run_to(&mut self, end: Nanos) {
        while let Some(Reverse(next)) = self.heap.pop() {
            if next.at > end {
                self.heap.push(Reverse(next));
                break;
            }
            self.now = next.at;
            self.happen(next.what);
        }
        self.now = end;
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrival => self.arrival(),
            Happening::Event(generation, event) => {
                if generation == self.generation {
                    self.tell(event);
                }
            }
            Happening::OriginWrite { request, key, delete } => {
                self.origin_write(request, key, delete);
            }
            Happening::WriteDone { request, key, version, size, delete } => {
                let payload = version.filter(|_| !delete).map(|v| size_of(v, size));
                let end = Event::WriteEnd { request, key: key_name(key), payload };
                if let Some(version) = version {
                    self.written.insert(request, (key, version));
                }
                match self.faults.late_write_end {
                    Some(late) => {
                        let generation = self.generation;
                        self.acknowledge(request);
                        self.schedule(self.now + late, Happening::Event(generation, end));
                    }
                    None if self.writes.contains_key(&request) => self.tell(end),
                    None => (),
                }
            }
            Happening::Restart => self.restart(),
        }
    }

    fn arrival(&mut self) {
        let gap = self.exponential(1.0 / self.load.rate);
        self.schedule(self.now + gap, Happening::Arrival);
        let key = self.rng.random_range(0..self.load.keys);
        let request = self.request();
        if self.rng.random_bool(self.load.write_share) {
            self.writes.insert(request, (key, self.rng.random_bool(0.2)));
            self.tell(Event::WriteBegin { request, key: key_name(key) });
        } else {
            self.reads.insert(request, (key, self.now));
            let asker = Asker::Client { avoid: None };
            let key = key_name(key);
            self.tell(Event::Get { request, key, asker, deadline: None });
        }
    }

    /// The client is told that its write is done.
    fn acknowledge(&mut self, request: RequestId) {
        if self.writes.remove(&request).is_some()
            && let Some((key, version)) = self.written.remove(&request)
        {
            self.checker.acknowledged(key, version, self.now);
        }
    }

    fn origin_write(&mut self, request: RequestId, key: u32, delete: bool) {
        let fails = self.rng.random_bool(self.faults.origin);
        let happens = !fails || self.rng.random_bool(0.5);
        let size = self.rng.random_range(1..=self.load.size_max);
        let mut version = None;
        if happens {
            let written = self.checker.written(key, delete);
            if delete {
                self.origin.remove(&key);
            } else {
                self.origin.insert(key, size_of(written, size));
            }
            version = (!fails).then_some(written);
        }
        let after = self.exponential(0.002);
        let done = Happening::WriteDone { request, key, version, size, delete };
        self.schedule(self.now + after, done);
    }

    fn restart(&mut self) {
        self.generation += 1;
        self.reads.clear();
        self.writes.clear();
        self.written.clear();
        self.in_service.clear();
        self.log.clear();
        self.node = Node::new(self.settings.clone(), self.now);
        for (device, segments) in self.disks.iter().enumerate() {
            for (&segment, records) in segments {
                let records = records.values().map(|(location, key, size)| Restored {
                    key: key.clone(),
                    etag: size.etag(),
                    location: *location,
                });
                self.node.restore(device, segment, records.collect());
            }
        }
        let next = self.exponential(1.0 / self.faults.restarts_per_s);
        self.schedule(self.now + next, Happening::Restart);
    }

    fn tell(&mut self, event: Event<Size>) {
        if let Event::Read { job, .. } = &event {
            self.in_service.remove(job);
        }
        let mut actions = Vec::new();
        self.node.handle(self.now, event.clone(), &mut actions);
        self.log.push((self.now, event, actions.clone()));
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action<Size>) {
        match action {
            Action::Reply { request, reply, stages } => self.replied(request, reply, stages),
            Action::WriteTurn { request } => {
                if let Some(&(key, delete)) = self.writes.get(&request) {
                    let after = self.exponential(0.002);
                    let write = Happening::OriginWrite { request, key, delete };
                    self.schedule(self.now + after, write);
                }
            }
            Action::Read { device, location, key, job, start } => {
                self.read(device, location, &key, job, start);
            }
            Action::Append { device, location, key, payload, job } => {
                let written = !self.rng.random_bool(self.faults.device);
                if written {
                    let segment = self.disks[device].entry(location.segment()).or_default();
                    segment.insert(location.offset(), (location, key, payload));
                }
                let after = self.exponential(0.001);
                self.later(after, Event::Appended { job, written });
            }
            Action::SealSegment { .. } => {}
            Action::WriteDone { request, certain } => {
                assert!(certain, "a node alone is never in doubt");
                self.acknowledge(request);
            }
            Action::Ask { .. }
            | Action::AskLease { .. }
            | Action::Grant { .. }
            | Action::Invalidate { .. }
            | Action::Offer { .. } => unreachable!("a node alone has no peers"),
            Action::DropSegment { device, segment } => {
                self.disks[device].remove(&segment);
            }
            Action::Fetch { key, job } => {
                let result = if self.rng.random_bool(self.faults.origin) {
                    Fetched::Unavailable(Failure { reason: "simulated".into() })
                } else {
                    match self.origin.get(&key_number(&key)) {
                        Some(size) => Fetched::Found(size.clone()),
                        None => Fetched::NotFound,
                    }
                };
                let after = self.exponential(0.005);
                self.later(after, Event::Fetched { job, result });
            }
            Action::Check { key, etag, job } => {
                let result = if self.rng.random_bool(self.faults.origin) {
                    Checked::Unavailable(Failure { reason: "simulated".into() })
                } else if self.origin.get(&key_number(&key)).is_some_and(|s| s.etag() == etag) {
                    Checked::Current
                } else {
                    Checked::Changed
                };
                let after = self.exponential(0.002);
                self.later(after, Event::Checked { job, result });
            }
        }
    }

    fn read(&mut self, device: usize, location: Location, key: &Key, job: JobId, start: Nanos) {
        self.in_service.insert(job, device);
        let servers = self.settings.devices[device].servers as usize;
        assert!(self.in_service.values().filter(|&&d| d == device).count() <= servers);
        let segment = self.disks[device].get(&location.segment());
        let record = segment.and_then(|records| records.get(&location.offset()));
        let fails = self.rng.random_bool(self.faults.device);
        let result = match record {
            Some((_, there, size)) if there == key && !fails => Ok(size.clone()),
            _ => Err(Failure { reason: "simulated".into() }),
        };
        let service = (self.service[&device].sample(&mut self.rng) * SECOND as f64) as Nanos;
        let at = (start + service).max(self.now);
        let generation = self.generation;
        self.schedule(at, Happening::Event(generation, Event::Read { job, result }));
    }

    fn replied(&mut self, request: RequestId, reply: Reply<Size>, stages: Stages) {
        if self.writes.remove(&request).is_some() {
            assert!(matches!(reply, Reply::Busy { .. }));
            self.refused += 1;
            return;
        }
        let (key, began) = self.reads.remove(&request).expect("one answer to each read");
        assert!(stages.received <= stages.queued && stages.queued <= stages.started);
        assert!(stages.started <= stages.served);
        let seen = match reply {
            Reply::Found { payload, outcome, .. } => {
                *self.by_outcome.entry(outcome).or_default() += 1;
                self.responses.push((outcome, stages.served - stages.received));
                Seen::Version(payload.etag.parse().expect("a version"))
            }
            Reply::NotFound => Seen::Nothing,
            Reply::Stream => unreachable!("nothing is too large here"),
            Reply::Busy { .. } => {
                self.refused += 1;
                return;
            }
            Reply::Unavailable(_) => {
                self.failed += 1;
                return;
            }
            Reply::NotHere | Reply::NotMine | Reply::NotPrimary | Reply::TooLate => {
                unreachable!("a node alone has every key, and its clients wait")
            }
        };
        if let Err(violation) = self.checker.read(key, began, seen) {
            self.violations.push(violation);
        }
    }

    fn later(&mut self, after: Nanos, event: Event<Size>) {
        let generation = self.generation;
        self.schedule(self.now + after, Happening::Event(generation, event));
    }

    fn schedule(&mut self, at: Nanos, what: Happening) {
        self.order += 1;
        self.heap.push(Reverse(Scheduled { at, order: self.order, what }));
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        self.next_request
    }

    fn exponential(&mut self, mean_s: f64) -> Nanos {
        (Exp::new(1.0 / mean_s).unwrap().sample(&mut self.rng) * SECOND as f64) as Nanos
    }
}

fn size_of(version: u64, bytes: u64) -> Size {
    Size { bytes, stored_bytes: bytes + 40, etag: version.to_string().into() }
}
