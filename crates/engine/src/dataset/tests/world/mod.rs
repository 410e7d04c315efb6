//! Changes of a dataset in virtual time: processes that append, read and seal, that crash between any two actions, and a store that
//! fails, replies late, loses replies, repeats requests whose reply was lost and carries out requests that were given up; and a checker of every read.

mod check;
mod drive;
mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ground::window::{Nanos, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Action, Dataset, Event, Room, Settings, Tail, Token};
use crate::sim::schedule::Schedule;
use store::{Listed, Name, Record, Request, Store, empty};

const MS: Nanos = SECOND / 1000;
/// When faults and clients end, and when everything must have ended.
const CALM: Nanos = 6 * SECOND;
const END: Nanos = 30 * SECOND;
/// Bytes of a record.
const RECORD_BYTES: u64 = 100;
/// Memory for appends of a process.
const ROOM_BYTES: usize = 3000;

fn settings(plan: &Plan) -> Settings {
    Settings {
        // With few, changes are refused because others come first.
        tries: if plan.seed % 5 == 1 { 2 } else { 10 },
        pause: 10 * MS,
        chunk_bytes_max: 1000,
        seal_bytes: 3000,
        seal_chunks: 40,
        shard_tries: 1000,
        removed_at_once: 3,
    }
}

/// What a seed stands for.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    processes: usize,
    /// Share of requests to the store that go wrong.
    faults: f64,
    crashes: usize,
    /// Whether another dataset takes the name.
    replaced: bool,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        Plan {
            seed,
            processes: 1 + (seed % 4) as usize,
            faults: [0.0, 0.02, 0.1, 0.25][(seed / 4 % 4) as usize],
            crashes: [0, 3, 8][(seed / 16 % 3) as usize],
            replaced: seed % 7 == 3,
        }
    }
}

/// What a process holds of the dataset.
#[derive(Clone, Debug)]
struct View {
    listed: Listed,
    log: Vec<Record>,
    last_chunk: u64,
}

impl View {
    fn from_listed(listed: Listed) -> View {
        let last_chunk = listed.head.sealed_chunks;
        View { listed, log: Vec::new(), last_chunk }
    }

    fn tail(&self) -> Tail {
        Tail {
            last_chunk: self.last_chunk,
            end_id: self.listed.end_id() + self.log.len() as u64,
            log_bytes: self.log.len() as u64 * RECORD_BYTES,
        }
    }

    fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let shards = self.listed.shards.iter().flat_map(|(_, records)| records.iter().copied());
        shards.chain(self.log.iter().copied())
    }
}

/// A process, from a start to a crash.
struct Process {
    machine: Dataset<()>,
    epoch: u64,
    up: bool,
    view: Option<View>,
    draft: Option<View>,
    /// The manifest that was read.
    read: Option<Listed>,
    /// The view whose log is sealed, and the shard built from it.
    sealing: Option<(View, Arc<[Record]>)>,
    /// Copies of shards on its disk, which outlive a crash, and whether each is damaged.
    copies: BTreeMap<Name, bool>,
    room: Room,
}

impl Process {
    fn start(&mut self, settings: Settings) {
        self.machine = Dataset::new(settings);
        (self.up, self.view, self.draft, self.read, self.sealing) = (true, None, None, None, None);
        self.room = Room::new(ROOM_BYTES);
    }
}

/// A change whose end the checker waits for.
struct Appending {
    process: usize,
    id: Arc<str>,
    records: Vec<Record>,
}

/// A read: a view that is not older than what was acknowledged when it began.
struct Reading {
    process: usize,
    acknowledged: usize,
}

/// How a request to the store goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Fine,
    /// It has no effect.
    Fails,
    /// It has an effect; the reply is lost.
    Lost,
    /// It is given up, and has an effect later.
    Late,
    /// It has an effect, the reply is lost, and the client sends it again.
    Again,
}

enum What {
    Append(usize),
    Read(usize),
    Seal(usize),
    Refresh(usize),
    Start(usize),
    Replaced,
    /// A write reaches the store.
    Effect {
        process: usize,
        epoch: u64,
        request: Box<Request>,
        fate: Fate,
        of: Option<u64>,
    },
    /// It reaches the store again.
    Again {
        process: usize,
        epoch: u64,
        request: Box<Request>,
        write: u64,
    },
    /// The client asks the store whether the object is its own.
    Settle {
        process: usize,
        epoch: u64,
        request: Box<Request>,
        write: u64,
    },
    /// A read of the store is carried out.
    Look {
        process: usize,
        epoch: u64,
        action: Box<Action<()>>,
    },
    Tell {
        process: usize,
        epoch: u64,
        event: Box<Event<()>>,
    },
    ChunkGone {
        process: usize,
        epoch: u64,
        failed: bool,
    },
}

pub struct World {
    plan: Plan,
    random: SmallRng,
    now: Nanos,
    schedule: Schedule<What>,
    store: Store,
    processes: Vec<Process>,
    /// Chunks of a removal that are still to be removed, and whether all others were, by process.
    removals: Vec<(usize, Result<(), ()>)>,
    writes: u64,
    tokens: Token,
    records: Record,
    appending: BTreeMap<Token, Appending>,
    reading: BTreeMap<Token, Reading>,
    sealing: BTreeMap<Token, usize>,
    /// Acknowledged appends, in the order of their acknowledgement.
    acknowledged: Vec<(Arc<str>, u64, Vec<Record>)>,
    refused: BTreeSet<Record>,
    /// Where each record was read, and what was read there.
    places: HashMap<Record, (Arc<str>, u64)>,
    truth: HashMap<Arc<str>, Vec<Record>>,
    actions: u64,
    /// Numbers of actions before or after which the process crashes.
    crashes: BTreeMap<u64, bool>,
    /// What happened, for the test that asserts that a search reaches what it is for.
    pub counts: Counts,
}

/// How often what is rare happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
    pub replaced: usize,
    pub sealed: usize,
    pub lost: usize,
    pub reads: usize,
    pub crashes: usize,
    pub overloaded: usize,
}

impl Counts {
    pub fn all(&mut self) -> [&mut usize; 9] {
        [
            &mut self.acknowledged,
            &mut self.refused,
            &mut self.unknown,
            &mut self.replaced,
            &mut self.sealed,
            &mut self.lost,
            &mut self.reads,
            &mut self.crashes,
            &mut self.overloaded,
        ]
    }
}

impl World {
    pub fn new(plan: Plan) -> World {
        let mut random = SmallRng::seed_from_u64(plan.seed);
        let process = |_| Process {
            machine: Dataset::new(settings(&plan)),
            epoch: 0,
            up: false,
            view: None,
            draft: None,
            read: None,
            sealing: None,
            copies: BTreeMap::new(),
            room: Room::new(ROOM_BYTES),
        };
        let crashes = (0..plan.crashes).map(|_| (random.random_range(0..1500), random.random()));
        let crashes = crashes.collect();
        let mut world = World {
            plan,
            now: 0,
            schedule: Schedule::default(),
            store: Store::new("a"),
            processes: (0..plan.processes).map(process).collect(),
            removals: vec![(0, Ok(())); plan.processes],
            writes: 0,
            tokens: 0,
            records: 0,
            appending: BTreeMap::new(),
            reading: BTreeMap::new(),
            sealing: BTreeMap::new(),
            acknowledged: Vec::new(),
            refused: BTreeSet::new(),
            places: HashMap::new(),
            truth: HashMap::new(),
            actions: 0,
            crashes,
            counts: Counts::default(),
            random,
        };
        for process in 0..plan.processes {
            world.enqueue(0, What::Start(process));
            for number in 0..60 {
                let at = world.random.random_range(0..CALM);
                world.enqueue(at, What::Append(process));
                if number % 2 == 0 {
                    let at = world.random.random_range(0..CALM);
                    world.enqueue(at, What::Read(process));
                }
                if number % 12 == 0 {
                    let at = world.random.random_range(0..CALM);
                    world.enqueue(at, What::Seal(process));
                    world.enqueue(number * CALM / 60, What::Refresh(process));
                }
            }
        }
        if plan.replaced {
            let at = world.random.random_range(0..CALM);
            world.enqueue(at, What::Replaced);
        }
        // When all is calm, each process is told to seal, and then reads everything.
        for process in 0..plan.processes {
            let later = process as u64 * SECOND / 2;
            world.enqueue(CALM + 8 * SECOND + later, What::Append(process));
            world.enqueue(CALM + 12 * SECOND + later, What::Seal(process));
            world.enqueue(CALM + 18 * SECOND + later, What::Read(process));
        }
        world
    }

    fn enqueue(&mut self, at: Nanos, what: What) {
        self.schedule.push(at, what);
    }

    /// Runs to the end. The error says which rule was broken.
    pub fn run(mut self) -> Result<Counts, String> {
        while let Some((at, what)) = self.schedule.pop(Nanos::MAX) {
            if at > END {
                return Err("it does not come to rest".to_owned());
            }
            self.now = at;
            self.happen(what).map_err(|why| format!("at {} ms: {why}", at / MS))?;
        }
        self.end()?;
        Ok(self.counts)
    }

    /// What must be true at the end, when nothing has failed for long.
    fn end(&self) -> Result<(), String> {
        let left = [self.appending.len(), self.reading.len(), self.sealing.len()];
        if left != [0; 3] {
            return Err(format!("{left:?} appends, reads and seals did not end"));
        }
        let current = &self.store.listed.0;
        for (number, process) in self.processes.iter().enumerate() {
            if !process.machine.is_idle() || !process.room.clone().take(ROOM_BYTES) {
                return Err(format!("process {number} has something left to do"));
            }
            let Some(view) = &process.view else {
                return Err(format!("process {number} has no view"));
            };
            if view.listed.head != current.head || !view.log.is_empty() {
                return Err(format!("the view of process {number} is not the sealed dataset"));
            }
        }
        // But those that were put after their number had been sealed, by a process that crashed then.
        let is_left = |name: &&Name| name.0 == current.head.id && !self.store.late.contains(*name);
        if let Some(left) = self.store.chunks.keys().find(is_left) {
            return Err(format!("chunk {} is left", left.1));
        }
        Ok(())
    }

    fn happen(&mut self, what: What) -> Result<(), String> {
        match what {
            What::Start(process) => {
                self.processes[process].start(settings(&self.plan));
                let token = self.token();
                self.tell(process, Event::First { token })
            }
            What::Append(process) => self.append(process),
            What::Read(process) | What::Refresh(process) if !self.processes[process].up => Ok(()),
            What::Read(process) => {
                let token = self.token();
                let reading = Reading { process, acknowledged: self.acknowledged.len() };
                self.reading.insert(token, reading);
                self.tell(process, Event::Refresh { token })
            }
            What::Refresh(process) => {
                let token = self.token();
                self.tell(process, Event::Refresh { token })
            }
            What::Seal(process) if !self.processes[process].up => Ok(()),
            What::Seal(process) => {
                let token = self.token();
                self.sealing.insert(token, process);
                self.tell(process, Event::Seal { token })
            }
            What::Replaced => {
                self.writes += 1;
                self.store.listed = (empty("b"), self.writes);
                Ok(())
            }
            What::Effect { process, epoch, request, fate, of } => {
                self.effect(process, epoch, request, fate, of)
            }
            What::Again { process, epoch, request, write } => {
                let soon = self.now + self.random.random_range(0..100) * MS;
                if self.store.apply(&request, write, Some(write))? {
                    self.reply(process, epoch, &request, Ok(true));
                } else {
                    self.enqueue(soon, What::Settle { process, epoch, request, write });
                }
                Ok(())
            }
            What::Settle { process, epoch, request, write } => {
                let is_ours = self.store.write_of(&request) == Some(write);
                self.reply(process, epoch, &request, Ok(is_ours));
                Ok(())
            }
            What::Look { process, epoch, action } => {
                if self.is_there(process, epoch) {
                    let event = self.look(process, *action)?;
                    self.tell_soon(process, event);
                }
                Ok(())
            }
            What::Tell { process, epoch, event } if self.is_there(process, epoch) => {
                self.tell(process, *event)
            }
            What::ChunkGone { process, epoch, failed } if self.is_there(process, epoch) => {
                self.chunk_gone(process, failed)
            }
            What::Tell { .. } | What::ChunkGone { .. } => Ok(()),
        }
    }

    /// One of the chunks that a process removes together is gone, or could not be removed.
    fn chunk_gone(&mut self, process: usize, failed: bool) -> Result<(), String> {
        let (left, removed) = &mut self.removals[process];
        *left -= 1;
        if failed {
            *removed = Err(());
        }
        match (*left, *removed) {
            (0, removed) => self.tell(process, Event::ChunksRemoved(removed)),
            _ => Ok(()),
        }
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        self.tokens
    }

    fn is_there(&self, process: usize, epoch: u64) -> bool {
        self.processes[process].up && self.processes[process].epoch == epoch
    }

    fn append(&mut self, process: usize) -> Result<(), String> {
        let at = &mut self.processes[process];
        // Without a view, a client is told that there is no dataset.
        let Some(view) = at.view.as_ref().filter(|_| at.up) else { return Ok(()) };
        let id = view.listed.head.id.clone();
        let count = self.random.random_range(1..6);
        let bytes = count as usize * RECORD_BYTES as usize;
        if !at.room.take(bytes) {
            self.counts.overloaded += 1;
            return Ok(());
        }
        let records: Vec<Record> = (self.records..self.records + count).collect();
        self.records += count;
        let token = self.token();
        self.appending.insert(token, Appending { process, id: id.clone(), records });
        self.tell(process, Event::Change { token, id, bytes, records: count, appended: count })
    }

    /// Tells a process an event, and does what it decides.
    fn tell(&mut self, process: usize, event: Event<()>) -> Result<(), String> {
        let mut actions = Vec::new();
        self.processes[process].machine.handle(self.now, event, &mut actions);
        for action in actions {
            self.actions += 1;
            let crash = self.crashes.remove(&self.actions).filter(|_| self.now < CALM);
            if crash != Some(false) {
                self.carry_out(process, action)?;
            }
            if crash.is_some() {
                self.crash(process);
                return Ok(());
            }
        }
        let at = &self.processes[process];
        let log_bytes = at.machine.view().map_or(0, |view| view.tail.log_bytes);
        let shown = at.view.as_ref().map(View::tail);
        if at.machine.view().map(|view| view.tail) != shown {
            return Err(format!("{shown:?} is the view, and the engine takes it for another"));
        }
        let calm = self.plan.faults == 0.0 && self.plan.crashes == 0;
        if calm && self.plan.processes == 1 && log_bytes > 3 * settings(&self.plan).seal_bytes {
            return Err(format!("{log_bytes} bytes are in the log"));
        }
        Ok(())
    }

    fn crash(&mut self, process: usize) {
        self.counts.crashes += 1;
        let at = &mut self.processes[process];
        at.epoch += 1;
        at.up = false;
        self.removals[process] = (0, Ok(()));
        self.appending.retain(|_, it| it.process != process);
        self.reading.retain(|_, it| it.process != process);
        self.sealing.retain(|_, it| *it != process);
        let at = self.now + self.random.random_range(1..400) * MS;
        self.enqueue(at, What::Start(process));
    }
}
