//! Pools in virtual time: servers that answer in order, crash, are cut off and stall; one proxy.
//!
//! Every value names the write that it comes from, larger ones are later; so does a delete. A read may return a miss,
//! or what the last write that was acknowledged before it began has left, or something later. A read
//! that came after an update, acknowledged by the time of the read's reply, sees it too. No read returns
//! what its own client wrote later; clients do not wait for replies. A compare-and-swap that succeeds replaces the value that
//! was read with its number; one that fails met another value. What an invalidation has left is found, with its mark, by
//! every marked read until the next write. No value outlives a flush that was acknowledged after it, nor does what
//! was made of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::super::copies::COPIES_MAX;
use super::*;
use ground::window::Nanos;
use server::{Item, Job, Memcached, Sent, Value};

mod checks;
mod flushes;
mod reloads;
mod server;

const KEYS: u64 = 6;
const US: Nanos = 1000;
/// The servers of the pool; those of the former pool, and then that of copies, follow.
const OWN: usize = 3;
const REQUESTS: u64 = 400;
/// Clients, each with its connection.
const CLIENTS: u64 = 4;

/// What a run is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) routing: Routing,
    pub(super) faults: bool,
    /// Whether another pool had the keys before.
    pub(super) warm: bool,
    /// Whether requests are copied to a further pool.
    pub(super) copies: bool,
    /// Where the keys of servers that cannot be read are.
    pub(super) moves: Moves,
    /// Whether other settings take the place of those in use, again and again.
    pub(super) reloads: bool,
}

/// Where the keys of servers that cannot be read are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    /// Nowhere.
    Not,
    /// At servers that follow on the ring.
    Ring,
    /// In a gutter, which is the pool that had the keys before in other plans.
    Gutter,
}

impl Plan {
    /// The plan of a seed, with faults.
    pub(super) fn from_seed(seed: u64, routing: Routing) -> Plan {
        let (warm, copies) = (seed % 4 >= 2, seed % 5 >= 3);
        let (moves, reloads) = (Moves::Not, false);
        Plan { seed, routing, faults: true, warm, copies, moves, reloads }
    }

    /// The plan of a seed in which keys move.
    pub(super) fn moving(seed: u64) -> Plan {
        let moves = if seed.is_multiple_of(2) { Moves::Ring } else { Moves::Gutter };
        let routing = if seed % 8 >= 6 { Routing::HashReplicas(2) } else { Routing::Hash };
        Plan { warm: false, moves, ..Plan::from_seed(seed, routing) }
    }

    /// The plan of a seed in which keys move, for failures and since the ring becomes another.
    pub(super) fn reloading(seed: u64) -> Plan {
        Plan { reloads: true, ..Plan::moving(seed) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive,
    Served(usize, u32),
    Pong(usize, u32),
    Flushed(usize, u32),
    Fault,
    Reload,
}

struct Client {
    name: u64,
    operation: Operation,
    /// Whether its write is a delete.
    deletes: bool,
    /// What its compare-and-swap is compared with: the number, and the value that was read with it.
    compares: Option<(u64, Value)>,
    keys: Vec<u64>,
    began: Nanos,
    /// By key, the least value that a read may return.
    least: BTreeMap<u64, u64>,
    /// By key, the last set that a flush has removed, as of its beginning.
    floors: BTreeMap<u64, u64>,
    answered: bool,
}

type Reply = (Answer, Vec<Item>);

pub(super) struct World {
    plan: Plan,
    settings: Settings,
    pools: Pools,
    /// Whether requests wait for other settings.
    reloading: bool,
    pub(super) reloads: u32,
    servers: Vec<Memcached>,
    schedule: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    serial: u64,
    random: SmallRng,
    clients: HashMap<RequestId, Client>,
    replies: HashMap<AttemptId, Reply>,
    /// By key, what was acknowledged: the request and the value it left.
    acknowledged: BTreeMap<u64, Vec<(RequestId, u64)>>,
    /// Which client each write is of.
    writers: HashMap<RequestId, u64>,
    /// By client and key, the number and the value that it read last.
    numbers: HashMap<(u64, u64), (u64, Value)>,
    /// By key, the last write of any kind that came.
    last_writes: BTreeMap<u64, RequestId>,
    /// By key, the invalidation that was its last write, and the last request before its acknowledgement.
    marks: BTreeMap<u64, (RequestId, RequestId)>,
    flushes: flushes::Flushes,
    pub(super) finished: u64,
    pub(super) refused: u64,
    pub(super) hits: u64,
    pub(super) flushed: u64,
}

/// A pool of further servers, added to some settings.
fn add_pool(settings: &mut Settings, name: &str, count: usize) -> usize {
    let first = settings.servers.len();
    let server = |i: usize| Server { name: format!("{name}{i}:1"), weight: 1 };
    let servers: Vec<Server> = (0..count).map(server).collect();
    let ring = Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers).unwrap();
    settings.servers.extend(servers);
    let pool = PoolSettings {
        name: name.to_owned(),
        servers: (first..first + count).collect(),
        ring,
        routing: Routing::Hash,
        hedge: None,
        ..settings.pools[0].clone()
    };
    settings.pools.push(pool);
    settings.pools.len() - 1
}

impl World {
    pub(super) fn new(plan: Plan) -> World {
        let mut settings = settings(OWN, plan.routing);
        settings.seed = plan.seed;
        let pool = &mut settings.pools[0];
        pool.timeout = 20_000 * US;
        pool.waiting_max = 100;
        pool.workers = if plan.seed.is_multiple_of(3) { 4 } else { 0 };
        pool.hedge = Some(crate::route::Hedge {
            after_min: 100 * US,
            burst: 50,
            ..crate::route::Hedge::default()
        });
        settings.ping_interval = 5000 * US;
        settings.ping_timeout = 10_000 * US;
        let former = add_pool(&mut settings, "former", 2);
        let copies = add_pool(&mut settings, "copies", 1);
        settings.routes[0].warm_from = plan.warm.then_some(former);
        settings.routes[0].copy_to = plan.copies.then_some(copies);
        match plan.moves {
            Moves::Not => {}
            Moves::Ring => settings.pools[0].on_failure = OnFailure::Move,
            Moves::Gutter => settings.routes[0].gutter = Some(former),
        }
        settings.check().unwrap();
        let mut world = World {
            plan,
            servers: (0..settings.servers.len())
                .map(|at| Memcached::new(at, plan.faults))
                .collect(),
            pools: Pools::new(settings.clone(), 0),
            settings,
            reloading: false,
            reloads: 0,
            schedule: BinaryHeap::new(),
            serial: 0,
            random: SmallRng::seed_from_u64(plan.seed),
            clients: HashMap::new(),
            replies: HashMap::new(),
            acknowledged: BTreeMap::new(),
            writers: HashMap::new(),
            numbers: HashMap::new(),
            last_writes: BTreeMap::new(),
            marks: BTreeMap::new(),
            flushes: flushes::Flushes::default(),
            finished: 0,
            refused: 0,
            hits: 0,
            flushed: 0,
        };
        world.schedule_plan();
        world
    }

    /// Stores what the former pool has, and schedules what happens.
    fn schedule_plan(&mut self) {
        let plan = self.plan;
        if plan.warm {
            for key in 0..KEYS {
                // On both former servers, whichever the ring chooses.
                let value = Value { order: 1, writer: 0 };
                self.servers[OWN].store(key, value);
                self.servers[OWN + 1].store(key, value);
            }
        }
        let mut at = 0;
        for _ in 0..REQUESTS {
            at += self.random.random_range(0..400 * US);
            self.schedule_at(at, Happening::Arrive);
        }
        if plan.faults {
            // Keys move, come back, and move again.
            let count = if plan.moves == Moves::Not { 5 } else { 12 };
            for _ in 0..count {
                let when = self.random.random_range(0..at);
                self.schedule_at(when, Happening::Fault);
            }
        }
        if plan.reloads {
            for _ in 0..6 {
                let when = self.random.random_range(0..at);
                self.schedule_at(when, Happening::Reload);
            }
        }
    }

    fn schedule_at(&mut self, at: Nanos, what: Happening) {
        self.serial += 1;
        self.schedule.push(Reverse((at, self.serial, what)));
    }

    pub(super) fn run(&mut self) {
        println!("{:?}", self.plan);
        let mut now = 0;
        self.tell(0, Event::Tick);
        for _ in 0..200_000 {
            let wake = self.pools.next_wake().unwrap_or(Nanos::MAX);
            let next = self.schedule.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
            if wake.min(next) == Nanos::MAX || (next == Nanos::MAX && self.clients.is_empty()) {
                break;
            }
            if wake < next {
                now = now.max(wake);
                self.tell(now, Event::Tick);
                continue;
            }
            let Some(Reverse((at, _, what))) = self.schedule.pop() else { break };
            now = now.max(at);
            self.happen(now, what);
        }
        assert!(self.clients.is_empty(), "{} requests were not forgotten", self.clients.len());
        assert!(self.pools.attempts.is_empty() && self.pools.requests.is_empty());
        assert!(self.pools.keys.is_empty() && self.pools.pools[0].in_service == 0);
        assert!(self.pools.servers.iter().all(|server| server.copies == 0));
        assert_eq!(self.pools.invariants().count(), 0);
        assert_eq!(self.finished + self.refused, REQUESTS);
    }

    /// Values that were moved from the former pool, and copies sent.
    pub(super) fn counts(&self) -> (u64, u64) {
        let counts = &self.pools.pools[0].counts;
        (counts.warmed, counts.copies)
    }

    fn happen(&mut self, now: Nanos, what: Happening) {
        match what {
            Happening::Arrive => self.arrive(now),
            Happening::Served(server, connection) => self.served(now, server, connection),
            Happening::Pong(server, connection) => {
                let state = &self.servers[server];
                let up = state.connection == connection && state.down_until <= now;
                self.tell(
                    now,
                    if up { Event::Ponged { server } } else { Event::PingFailed { server } },
                );
            }
            Happening::Flushed(server, connection) => {
                let state = &mut self.servers[server];
                let done = state.connection == connection && state.down_until <= now;
                if done {
                    state.values.clear();
                    self.flushed += 1;
                }
                self.tell(now, Event::Flushed { server, done });
            }
            Happening::Fault => self.fault(now),
            Happening::Reload => self.reload(now),
        }
    }

    fn arrive(&mut self, now: Nanos) {
        if self.reloading {
            return self.schedule_at(now + 500 * US, Happening::Arrive);
        }
        self.serial += 1;
        let request = self.serial;
        let name = self.random.random_range(0..CLIENTS);
        let first = self.random.random_range(0..KEYS);
        let kind = self.random.random_range(0..100);
        let deletes = (20..30).contains(&kind);
        let operation = match kind {
            0..30 => Operation::Write,
            30..38 => Operation::Update,
            38..42 => Operation::Invalidate,
            42 => return self.flush(now, request),
            // A value that is moved here gets its number here: a driver asks for it by an update.
            43..58 if !self.plan.warm => Operation::ReadFirst,
            58..68 => Operation::ReadMarked,
            _ => Operation::Read,
        };
        let recorded = if operation.is_read() { Recorded::Get } else { Recorded::Put };
        // Half of the updates are compare-and-swaps, if there is a number.
        let compares = match kind {
            30..34 => self.numbers.remove(&(name, first)),
            _ => None,
        };
        // Where values are moved, a driver asks key by key: a read of several keys could wait for a write that waits for it.
        let may = operation.is_read() && operation != Operation::ReadMarked && !self.plan.warm;
        let several = may && self.random.random_range(0..4) == 0;
        let keys =
            if several { vec![first, (first + 1) % KEYS, (first + 3) % KEYS] } else { vec![first] };
        let least = keys.iter().map(|key| (*key, self.latest(*key, RequestId::MAX))).collect();
        let (began, answered, floors) = (now, false, self.flushes.floors.clone());
        let client = Client {
            name,
            operation,
            deletes,
            compares,
            keys: keys.clone(),
            began,
            least,
            floors,
            answered,
        };
        self.clients.insert(request, client);
        if !operation.is_read() {
            self.writers.insert(request, name);
            self.last_writes.insert(first, request);
            self.marks.remove(&first);
        }
        let hash = |key: &u64| {
            let ring = (*key as u32).wrapping_mul(0x9e37_79b9);
            KeyHash { route: 0, ring, id: *key }
        };
        let keys = match &*keys {
            [key] => Keys::One(hash(key)),
            keys => Keys::Many(keys.iter().map(hash).collect()),
        };
        let (deadline, bytes) = (now + 60_000 * US, 0);
        let client = name;
        let event = Event::Request { request, client, operation, recorded, keys, bytes, deadline };
        self.tell(now, event);
    }

    fn served(&mut self, now: Nanos, at: usize, connection: u32) {
        let server = &mut self.servers[at];
        if server.connection != connection {
            return;
        }
        if server.stalled_until > now {
            let until = server.stalled_until;
            return self.schedule_at(until, Happening::Served(at, connection));
        }
        server.busy = false;
        let Some(sent) = server.queue.pop_front() else { return };
        if let Some(flush) = sent.flush {
            self.work(now, at);
            return self.flush_reached(now, flush, at, true);
        }
        let (answer, values) = server.carry_out(&sent);
        let hits = if answer == Answer::Hit { values.len() as u32 } else { 0 };
        self.replies.insert(sent.attempt, (answer, values));
        self.work(now, at);
        self.tell(now, Event::Answered { attempt: sent.attempt, answer, hits, bytes: 1 });
    }

    fn work(&mut self, now: Nanos, at: usize) {
        let server = &mut self.servers[at];
        if server.busy || server.queue.is_empty() {
            return;
        }
        server.busy = true;
        let connection = server.connection;
        // The server of copies is too slow for them.
        let slower = if at == OWN + 2 { 20 } else { 1 };
        let service = self.random.random_range(10 * US..300 * US) * slower;
        self.schedule_at(now + service, Happening::Served(at, connection));
    }

    /// A server crashes and is empty when it is back, is cut off and keeps what it has, or stalls.
    fn fault(&mut self, now: Nanos) {
        let at = self.random.random_range(0..self.servers.len());
        let kind = self.random.random_range(0..3);
        let time = self.random.random_range(1000 * US..60_000 * US);
        let server = &mut self.servers[at];
        if kind == 2 {
            server.stalled_until = now + time;
            return;
        }
        if kind == 0 {
            server.values.clear();
        }
        server.connection += 1;
        server.busy = false;
        server.down_until = now + time;
        let lost: Vec<Sent> = server.queue.drain(..).collect();
        for sent in lost {
            match sent.flush {
                Some(flush) => self.flush_reached(now, flush, at, false),
                None => {
                    self.tell(now, Event::Failed { attempt: sent.attempt, why: Failed::Broken });
                }
            }
        }
    }

    fn tell(&mut self, now: Nanos, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut actions = Vec::new();
            self.pools.handle(now, event, &mut actions);
            for action in actions {
                self.act(now, action, &mut events);
            }
        }
    }

    fn send(&mut self, now: Nanos, action: Action, events: &mut VecDeque<Event>) {
        let Action::Send { request, attempt, server, command, keys, .. } = action else { return };
        let client = &self.clients[&request];
        let keys = match keys {
            Part::Whole => client.keys.clone(),
            Part::Places(places) => {
                places.iter().map(|place| client.keys[usize::from(*place)]).collect()
            }
        };
        // What is marked cannot be copied.
        let read = |from| self.replies[&from].1.first().filter(|item| !item.stale);
        let read = |from| read(from).map(|item| item.value);
        let job = match (command, client.operation) {
            (Command::Original, Operation::Read | Operation::ReadFirst) => Job::Read,
            (Command::Original, Operation::ReadMarked) => Job::ReadMarked,
            (Command::Original, Operation::Invalidate) => Job::Invalidate,
            (Command::Original, Operation::Update) => match client.compares {
                Some((number, read)) => Job::Compare { number, read, writer: request },
                None => Job::Update(request),
            },
            (Command::Original, Operation::Write) if client.deletes => Job::Delete,
            // The same value at every server of the request.
            (Command::Original, Operation::Write) => {
                Job::Set(Value { order: request << 8, writer: request })
            }
            (Command::ReadBack, _) => Job::ReadBack,
            (Command::Copy { from }, _) => Job::Copy(read(from)),
            (Command::Add { from }, _) => Job::Add(read(from)),
            (Command::Delete, _) => Job::Delete,
        };
        if self.servers[server].down_until > now {
            events.push_back(Event::Failed { attempt, why: Failed::Connect });
            return;
        }
        self.servers[server].queue.push_back(Sent { attempt, keys, job, flush: None });
        if server == OWN + 2 {
            assert!(self.servers[server].queue.len() <= COPIES_MAX as usize);
        }
        self.work(now, server);
    }

    fn note_answer(&mut self, request: RequestId) {
        let client = self.clients.get_mut(&request).unwrap();
        assert!(!std::mem::replace(&mut client.answered, true), "answered twice");
    }

    fn act(&mut self, now: Nanos, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Send { .. } => self.send(now, action, events),
            Action::Use { request, attempt, .. } => self.uses(request, attempt),
            Action::Done { request } => {
                self.note_answer(request);
                self.finished += 1;
            }
            Action::Refuse { request, .. } => {
                self.note_answer(request);
                self.refused += 1;
            }
            Action::Forget { request } => {
                let client = self.clients.remove(&request).expect("forgotten once");
                assert!(client.answered, "forgotten without an answer");
            }
            Action::Cancel { attempt, .. } => {
                let all = self.servers.iter().flat_map(|server| &server.queue);
                for sent in all.filter(|sent| sent.attempt == attempt) {
                    // It is carried out all the same; its reply is dropped.
                    assert!(matches!(sent.job, Job::Read | Job::ReadMarked | Job::ReadBack));
                }
            }
            Action::Ping { server } => {
                let connection = self.servers[server].connection;
                let wait = self.servers[server].stalled_until.saturating_sub(now).min(8000 * US);
                self.schedule_at(now + wait + 50 * US, Happening::Pong(server, connection));
            }
            Action::Broadcast { request, awaited } => {
                self.broadcast(now, request, awaited, events);
            }
            Action::Flush { server } => {
                let connection = self.servers[server].connection;
                self.schedule_at(now + 80 * US, Happening::Flushed(server, connection));
            }
        }
    }
}

pub(super) const ROUTINGS: [Routing; 3] =
    [Routing::Hash, Routing::Replicated, Routing::HashReplicas(2)];

#[test]
fn without_faults_everything_is_answered() {
    let mut all_warmed = 0;
    for seed in 0..40 {
        for routing in ROUTINGS {
            let plan = Plan { faults: false, ..Plan::from_seed(seed, routing) };
            let mut world = World::new(plan);
            world.run();
            assert_eq!(world.refused, 0, "{plan:?}");
            assert!(world.hits > 50, "{}", world.hits);
            let (warmed, copies) = world.counts();
            assert!(plan.warm || warmed == 0, "{plan:?}");
            // A flush is not copied.
            assert_eq!(copies >= REQUESTS - 20, plan.copies, "{plan:?}");
            all_warmed += warmed;
        }
    }
    assert!(all_warmed > 0);
}

/// `SIM_SEEDS=10000 cargo test --release -p engine pool::` runs more.
#[test]
fn with_faults_no_read_is_older_than_what_was_acknowledged() {
    #[expect(clippy::disallowed_methods, reason = "a test, which is run with more seeds by hand")]
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut refused, mut flushed, mut warmed) = (0, 0, 0);
    for seed in 0..seeds.unwrap_or(100) {
        for routing in ROUTINGS {
            let mut world = World::new(Plan::from_seed(seed, routing));
            world.run();
            (refused, flushed) = (refused + world.refused, flushed + world.flushed);
            warmed += world.counts().0;
        }
    }
    assert!(refused > 0 && flushed > 0 && warmed > 0, "{refused} {flushed} {warmed}");
}

/// Keys that move while their servers cannot be read, and come back: a read used to find what was left where its key had been
/// before, or went there while writes went to a server that was about to be emptied.
#[test]
fn keys_that_move_leave_nothing_that_is_read_later() {
    #[expect(clippy::disallowed_methods, reason = "a test, which is run with more seeds by hand")]
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut refused, mut hits, mut moved) = (0, 0, 0);
    for seed in 0..seeds.unwrap_or(900) {
        let mut world = World::new(Plan::moving(seed));
        world.run();
        (refused, hits) = (refused + world.refused, hits + world.hits);
        moved += u32::from(world.pools.moved);
    }
    assert!(refused > 0 && hits > 1000 && moved > 100, "{refused} {hits} {moved}");
}
