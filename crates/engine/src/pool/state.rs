//! The state of pools: their requests and attempts, their servers, and what waits for what. It changes in the files
//! beside it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use ground::window::{self, Nanos, Operation as Recorded, QueueName, Recorder};
use serde::{Deserialize, Serialize};

use super::event::{Answer, AttemptId, KeyHash, Keys, Operation, Refusal, RequestId, ServerId};
use super::former::FormerRing;
use super::multi::Costs;
use super::settings::{PoolSettings, Settings};
use crate::attempts::{AttemptCounts, Balancer, Endpoint, FurtherAttempts, Sent};
use crate::gateway::IntegerHash;
use crate::invariant::Invariants;
use crate::route::Health;
use crate::route::health::{self, State};

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A part of a read.
    Read,
    /// A write, or the copy of an update's value.
    Write,
    /// An update at the key's first server.
    Update,
    /// The read of what an update has left.
    ReadBack,
    /// A read of the key's former server.
    Warm,
    /// The copy of what was read there.
    Fill,
    /// The delete of the former server's value.
    Drop,
    /// A copy of a request, which nobody waits for.
    Copied,
}

/// An attempt under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) request: RequestId,
    /// Index of the part.
    pub(super) part: usize,
    pub(super) server: ServerId,
    pub(super) role: Role,
    pub(super) sent: Sent,
    pub(super) keys: u32,
    /// Whether its request has ended without it, so that the server may carry it out at any time.
    pub(super) late: bool,
}

/// A part of a read.
#[derive(Clone, Debug)]
pub(super) struct PartState {
    /// Its keys' places; `None` for all keys.
    pub(super) places: Option<Box<[u16]>>,
    pub(super) keys: u32,
    /// Whether its attempt is under way.
    pub(super) live: Option<AttemptId>,
    /// Its reply: the attempt, and the keys found.
    pub(super) answer: Option<(AttemptId, Answer, u32)>,
    /// The part beside which it was sent.
    pub(super) beside: Option<usize>,
    /// When it is sent to others too; `MAX` if it is not.
    pub(super) hedge_at: Nanos,
    /// Whether it is settled: its reply is used, or others took its place.
    pub(super) over: bool,
    /// Where it was sent.
    pub(super) server: ServerId,
    /// Servers that were tried for its keys before. Empty, so without memory, unless one failed.
    pub(super) before: Vec<ServerId>,
}

impl PartState {
    /// Servers that were tried for its keys.
    pub(super) fn tried(&self) -> Vec<ServerId> {
        self.before.iter().copied().chain([self.server]).collect()
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for a worker.
    Waiting,
    /// It waits for another write of its key.
    Locked,
    /// It has attempts.
    Serving,
    /// The client has its reply, or has left; attempts are still under way.
    Over,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) pool: usize,
    /// The connection that it came by, and its place in the order of all requests.
    pub(super) client: u64,
    pub(super) came: u64,
    pub(super) operation: Operation,
    pub(super) recorded: Recorded,
    pub(super) keys: Keys,
    pub(super) received: Nanos,
    pub(super) started: Nanos,
    pub(super) deadline: Nanos,
    pub(super) phase: Phase,
    pub(super) parts: Vec<PartState>,
    pub(super) live: Vec<AttemptId>,
    /// The reply that a write or an update uses.
    pub(super) reply: Option<(AttemptId, Answer)>,
    /// Servers that failed, as bits.
    pub(super) failed: u64,
    /// The reply of a server that could not write, if one of them said so.
    pub(super) error: Option<AttemptId>,
    /// Whether it holds a place among the pool's workers.
    pub(super) works: bool,
    /// Whether it holds its key.
    pub(super) holds_key: bool,
    /// Its keys before this place wait for nothing any more.
    pub(super) passed: u16,
    /// Whether later writes of its client wait for it, in [`Order`].
    pub(super) holds_back: bool,
    /// How far its key is with moving from the former servers.
    pub(super) warmth: Warmth,
    pub(super) bytes: u64,
    pub(super) hits: u32,
    pub(super) timer: Nanos,
}

/// A pool.
pub(super) struct PoolState {
    pub(super) settings: PoolSettings,
    pub(super) recorder: Recorder,
    pub(super) in_service: u32,
    pub(super) waiting: VecDeque<RequestId>,
    pub(super) further: FurtherAttempts,
    /// The time after which a read is hedged: the median over its servers of the quantile of their
    /// recent responses. Not that of the server itself: a second attempt takes what another server
    /// takes, and one that stalls again and again would be waited for ever longer. `MAX` while
    /// unknown.
    pub(super) hedge_after: Nanos,
    pub(super) costs: Costs,
    pub(super) counts: Counts,
    /// It was written to as a gutter.
    pub(super) used: bool,
    /// Where its keys were by earlier configurations.
    pub(super) former: Vec<FormerRing>,
}

/// The state of all pools behind one front. See the module.
///
/// [`Pools::handle`] costs some hundred nanoseconds for a request of one key and for its reply.
pub struct Pools {
    pub(super) settings: Settings,
    pub(super) servers: Vec<ServerState>,
    pub(super) servers_due: Nanos,
    /// Whether a key was ever elsewhere than at its own servers.
    pub(super) moved: bool,
    /// Names of the servers that earlier configurations had.
    pub(super) retired: BTreeSet<String>,
    pub(super) pools: Vec<PoolState>,
    /// In boxes, as a request is taken out and put back by every event that concerns it.
    pub(super) requests: HashMap<RequestId, Box<Request>, IntegerHash>,
    /// Those of former requests, for the memory of their boxes and vectors.
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    pub(super) spare: Vec<Box<Request>>,
    pub(super) attempts: HashMap<AttemptId, Attempt, IntegerHash>,
    /// Keys with a write under way, and the requests that wait for it.
    pub(super) keys: HashMap<u64, KeyQueue, IntegerHash>,
    pub(super) order: Order,
    pub(super) flushes: Flushes,
    pub(super) timers: BinaryHeap<Reverse<(Nanos, RequestId)>>,
    pub(super) serial: u64,
    pub(super) balancer: Balancer,
    pub(super) invariants: Invariants,
    pub(super) now: Nanos,
}

/// A server.
pub(super) struct ServerState {
    pub(super) name: String,
    /// Index of its pool.
    pub(super) pool: Option<usize>,
    pub(super) health: Health,
    pub(super) endpoint: Endpoint,
    /// Whether it may have missed writes, so that it is emptied before it is read.
    pub(super) stale: bool,
    /// The time of the last write that it may have missed.
    pub(super) missed_at: Nanos,
    /// How many steps behind its own place on the ring its keys were while it could not be read; 0: they were not.
    pub(super) moved: u8,
    /// Writes that were given up and that it may still carry out.
    pub(super) late: u32,
    /// Copies of requests under way.
    pub(super) copies: u32,
    /// When the ping under way was sent.
    pub(super) pinged: Option<Nanos>,
    pub(super) ping_at: Nanos,
    /// Whether a ping has shown how it is. Until then it gets requests, and one ping.
    pub(super) is_known: bool,
    pub(super) flushing: bool,
    pub(super) flushes: u64,
    /// How often it was suspected.
    pub(super) failures: u64,
}

impl ServerState {
    pub(super) fn new(name: &str, now: Nanos) -> ServerState {
        ServerState {
            name: name.to_owned(),
            pool: None,
            health: Health::new(now),
            endpoint: Endpoint::new(None, now),
            stale: false,
            missed_at: 0,
            moved: 0,
            late: 0,
            copies: 0,
            pinged: None,
            ping_at: now,
            is_known: false,
            flushing: false,
            flushes: 0,
            failures: 0,
        }
    }

    /// Makes it a server of a pool.
    pub(super) fn join(&mut self, at: usize, pool: &str, windows: &window::Settings, now: Nanos) {
        let queue = QueueName::PoolServer { pool, server: &self.name }.to_string();
        self.pool = Some(at);
        self.endpoint.recorder = Some(Recorder::new(&queue, 0, windows.clone(), now));
    }

    /// Records that an attempt or a ping failed.
    pub(super) fn fail(&mut self, now: Nanos, sent: Nanos, settings: &health::Settings) {
        let before = self.health.state(now, settings);
        self.health.fail(now, sent, settings);
        if before != State::Suspect {
            self.failures += 1;
            // At once: it may only have lost a connection.
            self.ping_at = now;
        }
    }

    /// Whether it gets requests.
    pub(super) fn is_up(&self, now: Nanos, settings: &health::Settings) -> bool {
        self.health.state(now, settings) != State::Suspect
    }

    pub(super) fn wants_ping(&self, now: Nanos, settings: &health::Settings) -> bool {
        !self.is_known || !self.is_up(now, settings) || (self.stale && !self.flushing)
    }
}

/// A key with a write, or with a move from its former servers, under way.
pub(super) struct KeyQueue {
    /// Whether the write is an update, which its servers carry out one after another.
    pub(super) update: bool,
    /// The number of the request that holds the key.
    pub(super) came: u64,
    /// Those that wait, with their numbers.
    pub(super) waiting: VecDeque<(u64, RequestId)>,
}

impl KeyQueue {
    /// Puts a request among those that wait: before all that came later than it, so that no two
    /// requests wait for each other by way of two keys.
    pub(super) fn insert(&mut self, came: u64, id: RequestId) {
        let later = self.waiting.iter().rev().take_while(|(other, _)| *other > came).count();
        self.waiting.insert(self.waiting.len() - later, (came, id));
    }

    /// Whether a read that came as the request with this number has to wait for an update.
    pub(super) fn delays(&self, came: u64) -> bool {
        let front = self.waiting.front();
        (self.update && self.came < came) || front.is_some_and(|(other, _)| *other < came)
    }
}

/// The flushes that wait or run, and the requests that wait for them.
#[derive(Default)]
pub(super) struct Flushes {
    /// In their order, each with its number among requests; the first runs if `running`.
    pub(super) queue: VecDeque<(u64, RequestId)>,
    pub(super) running: bool,
    /// Requests that hold their keys and begin after the first flush.
    pub(super) held: Vec<RequestId>,
}

/// How far a request is with moving its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warmth {
    /// Nothing was moved.
    Cold,
    /// The key is looked for at its former server. A read has the reply of a miss to use if it is
    /// not there either.
    Moving(Option<AttemptId>),
    /// What was to be moved is there.
    Warm,
}

/// Places of [`Order::writes`]. Two keys of clients that share one cost a hedge or a retry, no more.
const PLACES: usize = 1 << 14;

/// What is known of the order of requests.
#[derive(Default)]
pub(super) struct Order {
    /// Requests that came.
    pub(super) came: u64,
    /// The last write of a client and a key, by a hash of both, as its number among all requests.
    /// Empty until there is a write.
    pub(super) writes: Vec<u64>,
    /// The last invalidation of a key since it was written, likewise, by a hash of the key alone. Two keys that share a place cost
    /// a choice of servers. Empty until there is one.
    pub(super) invalidations: Vec<u64>,
    /// Reads of several keys that wait, as their numbers, by client and key.
    pub(super) waiting: HashMap<(u64, u64), Vec<u64>, IntegerHash>,
    /// The key for which each of them waits now.
    pub(super) at: HashMap<u64, u64, IntegerHash>,
}

pub(super) fn place(client: u64, key: &KeyHash) -> usize {
    let mixed = (client ^ key.id.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - PLACES.trailing_zeros())) as usize
}

impl Order {
    /// The number of what comes now.
    pub(super) fn next(&mut self) -> u64 {
        self.came += 1;
        self.came
    }

    /// A request came; returns its number.
    pub(super) fn arrive(&mut self, client: u64, operation: Operation, keys: &Keys) -> u64 {
        self.came += 1;
        if !operation.is_read() {
            self.writes.resize(PLACES, 0);
            for key in keys.as_slice() {
                self.writes[place(client, key)] = self.came;
            }
            self.note_mark(operation, keys);
        }
        self.came
    }

    /// Notes an invalidation, or the write that ends it.
    fn note_mark(&mut self, operation: Operation, keys: &Keys) {
        match operation {
            Operation::Invalidate => self.invalidations.resize(PLACES, 0),
            Operation::Write if !self.invalidations.is_empty() => {}
            _ => return,
        }
        let mark = if operation == Operation::Invalidate { self.came } else { 0 };
        for key in keys.as_slice() {
            self.invalidations[place(0, key)] = mark;
        }
    }
}

/// Counters of a pool since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Attempts after a request's first.
    #[serde(flatten)]
    pub attempts: AttemptCounts,
    /// Copies of requests that were sent to another pool.
    pub copies: u64,
    /// Copies that were not sent, since the server has too many under way or cannot be reached.
    pub copies_left_out: u64,
    /// Values that were moved from a former pool.
    pub warmed: u64,
    /// Requests refused because too many waited.
    pub refused_busy: u64,
    /// Requests whose deadline passed.
    pub refused_too_late: u64,
    /// Requests refused because servers failed.
    pub refused_failed: u64,
    /// Requests refused because none of the key's servers could be reached.
    pub refused_no_server: u64,
}

impl Counts {
    pub(super) fn refuse(&mut self, why: Refusal) {
        *match why {
            Refusal::Busy => &mut self.refused_busy,
            Refusal::TooLate { .. } => &mut self.refused_too_late,
            Refusal::Failed { .. } => &mut self.refused_failed,
            Refusal::NoServer => &mut self.refused_no_server,
        } += 1;
    }
}

/// A server as a bit; 0 for servers from the 64th on.
pub(super) fn bit(server: ServerId) -> u64 {
    if server < 64 { 1 << server } else { 0 }
}
