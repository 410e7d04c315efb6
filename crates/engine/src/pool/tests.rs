use super::*;
use crate::route::{Policy, health};
use model::window::SECOND;

/// One pool of some servers, and one route to it.
pub(super) fn settings(servers: usize, routing: Routing) -> Settings {
    let servers: Vec<Server> =
        (0..servers).map(|i| Server { name: format!("s{i}:1"), weight: 1 }).collect();
    let ring = Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers).unwrap();
    let pool = PoolSettings {
        name: "p".to_owned(),
        servers: (0..servers.len()).collect(),
        ring,
        routing,
        policy: Policy::default(),
        multi_get: MultiGet::default(),
        hedge: None,
        workers: 0,
        waiting_max: 0,
        on_failure: OnFailure::Error,
        flush_on_return: true,
        timeout: SECOND,
        retry_share: 0.1,
    };
    Settings {
        servers,
        pools: vec![pool],
        routes: vec![Route::new("", 0)],
        ping_interval: SECOND / 10,
        ping_timeout: SECOND / 4,
        health: health::Settings::default(),
        seed: 1,
        windows: model::window::Settings::default(),
    }
}

#[test]
fn settings_that_fit_pass() {
    assert_eq!(settings(3, Routing::Replicated).check(), Ok(()));
}

/// A pool in virtual time: servers that answer in order, crash, and stall; one proxy.
mod simulated {
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;
    use model::window::{Nanos, Operation as Recorded};

    const KEYS: u64 = 6;
    const US: Nanos = 1000;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Job {
        Read,
        Set(u64),
        /// Adds one to what is there.
        Update,
        ReadBack,
        Copy(Option<u64>),
        Delete,
    }

    #[derive(Clone, Copy, Debug)]
    struct Sent {
        attempt: AttemptId,
        key: u64,
        job: Job,
    }

    #[derive(Default)]
    struct Memcached {
        values: BTreeMap<u64, u64>,
        queue: VecDeque<Sent>,
        stalled_until: Nanos,
        down_until: Nanos,
        /// Replies of an earlier connection do not come.
        connection: u32,
        busy: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Happening {
        Arrive,
        Served(usize, u32),
        Pong(usize, u32),
        Flushed(usize, u32),
        Fault,
    }

    struct Client {
        operation: Operation,
        key: u64,
        began: Nanos,
        /// The least value that a read may return: that of the last acknowledged write at its start.
        least: u64,
        answered: bool,
    }

    struct World {
        pools: Pools,
        servers: Vec<Memcached>,
        schedule: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
        serial: u64,
        random: SmallRng,
        clients: HashMap<RequestId, Client>,
        replies: HashMap<AttemptId, (Answer, Option<u64>)>,
        /// By key, the largest value acknowledged.
        acknowledged: BTreeMap<u64, u64>,
        finished: u64,
        refused: u64,
        hits: u64,
        flushed: u64,
    }

    impl World {
        fn new(seed: u64, routing: Routing, faults: bool) -> World {
            let mut settings = settings(3, routing);
            settings.seed = seed;
            let pool = &mut settings.pools[0];
            pool.timeout = 20_000 * US;
            pool.waiting_max = 100;
            pool.workers = if seed.is_multiple_of(3) { 4 } else { 0 };
            pool.hedge = Some(crate::route::Hedge {
                after_min: 100 * US,
                burst: 50,
                ..crate::route::Hedge::default()
            });
            settings.ping_interval = 5000 * US;
            settings.ping_timeout = 10_000 * US;
            let mut world = World {
                pools: Pools::new(settings, 0),
                servers: (0..3).map(|_| Memcached::default()).collect(),
                schedule: BinaryHeap::new(),
                serial: 0,
                random: SmallRng::seed_from_u64(seed),
                clients: HashMap::new(),
                replies: HashMap::new(),
                acknowledged: BTreeMap::new(),
                finished: 0,
                refused: 0,
                hits: 0,
                flushed: 0,
            };
            let mut at = 0;
            for _ in 0..400 {
                at += world.random.random_range(0..400 * US);
                world.plan(at, Happening::Arrive);
            }
            if faults {
                for _ in 0..5 {
                    let when = world.random.random_range(0..at);
                    world.plan(when, Happening::Fault);
                }
            }
            world
        }

        fn plan(&mut self, at: Nanos, what: Happening) {
            self.serial += 1;
            self.schedule.push(Reverse((at, self.serial, what)));
        }

        fn run(&mut self) {
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
            assert_eq!(self.pools.invariants().count(), 0);
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
            }
        }

        fn arrive(&mut self, now: Nanos) {
            self.serial += 1;
            let (request, key) = (self.serial, self.random.random_range(0..KEYS));
            let operation = match self.random.random_range(0..10) {
                0..3 => Operation::Write,
                3 => Operation::Update,
                _ => Operation::Read,
            };
            let least = self.acknowledged.get(&key).copied().unwrap_or(0);
            let client = Client { operation, key, began: now, least, answered: false };
            self.clients.insert(request, client);
            let hash = KeyHash { route: 0, ring: (key as u32).wrapping_mul(0x9e37_79b9), id: key };
            let recorded = Recorded::Get;
            let deadline = now + 60_000 * US;
            let keys = Keys::One(hash);
            let bytes = 0;
            self.tell(now, Event::Request { request, operation, recorded, keys, bytes, deadline });
        }

        fn served(&mut self, now: Nanos, at: usize, connection: u32) {
            let server = &mut self.servers[at];
            if server.connection != connection {
                return;
            }
            if server.stalled_until > now {
                let until = server.stalled_until;
                return self.plan(until, Happening::Served(at, connection));
            }
            server.busy = false;
            let Some(sent) = server.queue.pop_front() else { return };
            let held = server.values.get(&sent.key).copied();
            let (answer, value) = match sent.job {
                Job::Read | Job::ReadBack => match held {
                    Some(value) => (Answer::Hit, Some(value)),
                    None => (Answer::Miss, None),
                },
                Job::Set(value) => {
                    server.values.insert(sent.key, value);
                    (Answer::Done, Some(value))
                }
                Job::Update => match held {
                    Some(value) => {
                        server.values.insert(sent.key, value + 1);
                        (Answer::Done, Some(value + 1))
                    }
                    None => (Answer::Unchanged, None),
                },
                Job::Copy(Some(value)) => {
                    server.values.insert(sent.key, value);
                    (Answer::Done, Some(value))
                }
                Job::Copy(None) | Job::Delete => {
                    server.values.remove(&sent.key);
                    (Answer::Done, None)
                }
            };
            self.replies.insert(sent.attempt, (answer, value));
            let hits = u32::from(answer == Answer::Hit);
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
            let service = self.random.random_range(10 * US..300 * US);
            self.plan(now + service, Happening::Served(at, connection));
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
                self.tell(now, Event::Failed { attempt: sent.attempt, why: Failed::Broken });
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

        fn act(&mut self, now: Nanos, action: Action, events: &mut VecDeque<Event>) {
            match action {
                Action::Send { request, attempt, server, command, .. } => {
                    let client = &self.clients[&request];
                    let (key, operation) = (client.key, client.operation);
                    let job = match (command, operation) {
                        (Command::Original, Operation::Read) => Job::Read,
                        (Command::Original, Operation::Update) => Job::Update,
                        (Command::Original, Operation::Write) => {
                            // The same value at every server of the request.
                            Job::Set(request << 8)
                        }
                        (Command::ReadBack, _) => Job::ReadBack,
                        (Command::Copy { from }, _) => Job::Copy(self.replies[&from].1),
                        (Command::Delete, _) => Job::Delete,
                    };
                    if self.servers[server].down_until > now {
                        events.push_back(Event::Failed { attempt, why: Failed::Connect });
                        return;
                    }
                    self.servers[server].queue.push_back(Sent { attempt, key, job });
                    self.work(now, server);
                }
                Action::Use { request, attempt, .. } => {
                    let client = &self.clients[&request];
                    assert!(!client.answered);
                    let (answer, value) = self.replies[&attempt];
                    match (client.operation, answer, value) {
                        (Operation::Read, Answer::Hit, Some(value)) => {
                            self.hits += 1;
                            assert!(
                                value >= client.least,
                                "key {}: read {value} since {}, but {} was acknowledged before",
                                client.key,
                                client.began,
                                client.least
                            );
                        }
                        (Operation::Write | Operation::Update, Answer::Done, Some(value)) => {
                            let last = self.acknowledged.entry(client.key).or_default();
                            // Writes of a key are ordered by the proxy, not by their names.
                            *last = (*last).max(value);
                        }
                        _ => {}
                    }
                }
                Action::Done { request } => {
                    let client = self.clients.get_mut(&request).unwrap();
                    assert!(!std::mem::replace(&mut client.answered, true), "answered twice");
                    self.finished += 1;
                }
                Action::Refuse { request, .. } => {
                    let client = self.clients.get_mut(&request).unwrap();
                    assert!(!std::mem::replace(&mut client.answered, true), "answered twice");
                    self.refused += 1;
                }
                Action::Forget { request } => {
                    let client = self.clients.remove(&request).expect("forgotten once");
                    assert!(client.answered, "forgotten without an answer");
                }
                Action::Cancel { attempt, .. } => {
                    for server in &mut self.servers {
                        // It is carried out all the same; its reply is dropped.
                        for sent in &mut server.queue {
                            if sent.attempt == attempt {
                                assert!(matches!(sent.job, Job::Read | Job::ReadBack));
                            }
                        }
                    }
                }
                Action::Ping { server } => {
                    let connection = self.servers[server].connection;
                    let wait =
                        self.servers[server].stalled_until.saturating_sub(now).min(8000 * US);
                    self.plan(now + wait + 50 * US, Happening::Pong(server, connection));
                }
                Action::Flush { server } => {
                    let connection = self.servers[server].connection;
                    self.plan(now + 80 * US, Happening::Flushed(server, connection));
                }
            }
        }
    }

    #[test]
    fn without_faults_everything_is_answered() {
        for seed in 0..20 {
            for routing in [Routing::Hash, Routing::Replicated, Routing::HashReplicas(2)] {
                let mut world = World::new(seed, routing, false);
                world.run();
                assert_eq!((world.finished, world.refused), (400, 0), "seed {seed}, {routing:?}");
                assert!(world.hits > 50, "{}", world.hits);
            }
        }
    }

    /// `SIM_SEEDS=10000 cargo test --release -p engine pool::` runs more.
    #[test]
    fn with_faults_no_read_is_older_than_what_was_acknowledged() {
        #[expect(
            clippy::disallowed_methods,
            reason = "a test, which is run with more seeds by hand"
        )]
        let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok());
        let (mut refused, mut flushed) = (0, 0);
        for seed in 0..seeds.unwrap_or(100) {
            for routing in [Routing::Hash, Routing::Replicated, Routing::HashReplicas(2)] {
                let mut world = World::new(seed, routing, true);
                world.run();
                assert_eq!(world.finished + world.refused, 400, "seed {seed}, {routing:?}");
                (refused, flushed) = (refused + world.refused, flushed + world.flushed);
            }
        }
        assert!(refused > 0 && flushed > 0, "{refused} refused, {flushed} emptied");
    }
}
