//! The decisions of a proxy in front of pools of memcached servers: which server gets a request,
//! when a read is sent to a second one, and what a server that failed means.
//!
//! - A **read** goes to one of a key's servers, chosen by the pool's [`crate::route::Policy`]. A get
//!   of several keys is grouped by server: one *part* for each. If a server fails, its part is sent
//!   to others; if it is slow, it is sent to others beside it. The first reply that found every key
//!   counts: a miss is used only where no other attempt can still hit.
//! - A **write** goes to all of a key's servers and is done when all of them have answered.
//! - An **update** (an effect that depends on what is stored) runs at the key's first server; its
//!   value is then read back and copied to the others.
//! - Writes and updates of one key that has several servers are carried out one after another. A
//!   read of that key alone waits for an update, and for writes that wait, so that a client that
//!   does not wait for replies reads what it wrote.
//! - A read whose reply has a compare-and-swap number goes to the server where updates of the key run. An item
//!   that is marked stale or won is nowhere else; a read that may say so asks there before it is a miss.
//! - A flush of all servers waits for updates, and updates for it (`flush`).
//! - A read that finds nothing looks in the pool that had the keys before, if the route names one,
//!   and moves the value (`warm`). A route may have its requests copied to another pool, whose
//!   replies nobody waits for (`copies`).
//! - A client that does not wait for replies reads nothing that it wrote later (`order`): behind a
//!   write of the same client, a read is not sent to further servers.
//! - A server that may have missed a write is emptied before it is read again.
//!
//! A real memcached says nothing of its queue, so what is outstanding at a server and how long its
//! replies take is the estimate ([`crate::route::Load`]).

mod copies;
mod event;
mod flush;
mod former;
mod hash;
mod inherit;
mod ketama;
mod lifecycle;
mod moved;
mod multi;
mod order;
mod reads;
mod routes;
mod servers;
mod settings;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod warm;
mod writes;

pub use crate::attempts::AttemptCounts;
pub use crate::route::Outage;
pub use event::{
    Action, Answer, AttemptId, Command, Event, Failed, KeyHash, Keys, Operation, Part, Refusal,
    RequestId, RouteId, ServerId,
};
pub use hash::Hash;
pub use ketama::{Distribution, Ketama, KetamaError, Server};
pub use routes::Routes;
pub use settings::{
    MultiGet, OnFailure, PoolSettings, Route, Routing, Settings, SettingsError, TIMEOUT,
};
pub use state::{Counts, Pools};
pub use status::{PoolStatus, ServerStatus, Status};

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use ground::window::{Nanos, Operation as Recorded, Outcome, QueueName, Recorder, Window};

use crate::attempts::{Balancer, End, FurtherAttempts};
use crate::invariant::Invariants;
use lifecycle::Arrival;
use multi::Costs;
use state::{Attempt, Flushes, Order, Phase, PoolState, Request, Role, ServerState, bit};

/// Retries in a burst after a quiet time.
const RETRY_BURST: u32 = 1000;

impl Pools {
    /// The pools of some settings, which [`Settings::check`] accepts.
    pub fn new(settings: Settings, now: Nanos) -> Pools {
        let mut servers: Vec<ServerState> =
            settings.servers.iter().map(|server| ServerState::new(&server.name, now)).collect();
        for (at, pool) in settings.pools.iter().enumerate() {
            for server in &pool.servers {
                if let Some(server) = servers.get_mut(*server) {
                    server.join(at, &pool.name, &settings.windows, now);
                }
            }
        }
        let pool = |pool: &PoolSettings| PoolState {
            recorder: Recorder::new(
                &QueueName::Pool(&pool.name).to_string(),
                pool.workers,
                settings.windows.clone(),
                now,
            ),
            in_service: 0,
            waiting: VecDeque::new(),
            further: FurtherAttempts::new(pool.retry_share, RETRY_BURST, pool.hedge.as_ref()),
            hedge_after: Nanos::MAX,
            costs: Costs::default(),
            counts: Counts::default(),
            used: false,
            former: Vec::new(),
            settings: pool.clone(),
        };
        Pools {
            pools: settings.pools.iter().map(pool).collect(),
            servers,
            servers_due: now,
            moved: false,
            retired: BTreeSet::new(),
            requests: HashMap::default(),
            spare: Vec::new(),
            attempts: HashMap::default(),
            keys: HashMap::default(),
            order: Order::default(),
            flushes: Flushes::default(),
            timers: BinaryHeap::new(),
            serial: 0,
            balancer: Balancer::new(settings.seed),
            invariants: Invariants::default(),
            now,
            settings,
        }
    }

    /// Handles an event that happened at `now` and appends the resulting actions. A time before
    /// that of an earlier event counts as that event's time.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Vec<Action>) {
        let now = self.now.max(now);
        self.now = now;
        match event {
            Event::Request { request, client, operation, recorded, keys, bytes: _, deadline } => {
                let arrival = Arrival { client, operation, recorded, keys, deadline };
                self.request(request, arrival, actions);
            }
            Event::Answered { attempt, answer, hits, bytes } => {
                self.attempt_answered(attempt, answer, hits, bytes, actions);
            }
            Event::Failed { attempt, why } => self.attempt_failed(attempt, why, actions),
            Event::Over { request } => self.client_left(request, actions),
            Event::FlushAll { request } => self.flush_all(request),
            Event::FlushEnded { request, failed } => self.flush_ended(request, &failed, actions),
            Event::Ponged { server } => self.ponged(server, actions),
            Event::PingFailed { server } => self.ping_failed(server),
            Event::Moved { server } => self.distrust(server),
            Event::Flushed { server, done } => self.flushed(server, done),
            Event::Tick => {}
        }
        while let Some(&Reverse((due, request))) = self.timers.peek() {
            let current = self.requests.get(&request).map(|request| request.timer);
            if current == Some(due) && due > now {
                break;
            }
            self.timers.pop();
            if current == Some(due) {
                self.due(request, actions);
            }
        }
        self.run_flushes(actions);
        self.run_servers(actions);
    }

    /// When to send [`Event::Tick`] if no other event comes first.
    pub fn next_wake(&self) -> Option<Nanos> {
        let timer = self.timers.peek().map_or(Nanos::MAX, |&Reverse((due, _))| due);
        let due = timer.min(self.servers_due);
        (due < Nanos::MAX).then_some(due)
    }

    /// The windows that ended by `now`: for each pool `pool/NAME` (waiting: for a worker; service:
    /// until the reply) and for each server `pool/NAME/SERVER`.
    pub fn windows(&mut self, now: Nanos) -> Vec<Window> {
        let pools = self.pools.iter_mut().flat_map(|pool| pool.recorder.roll(now));
        let mut windows: Vec<Window> = pools.collect();
        windows.extend(self.servers.iter_mut().flat_map(|server| server.endpoint.windows(now)));
        windows
    }

    /// The windows that ended by `now`, and the open ones.
    pub fn flush_windows(&mut self, now: Nanos) -> Vec<Window> {
        let pools = self.pools.iter_mut().flat_map(|pool| pool.recorder.flush(now));
        let mut windows: Vec<Window> = pools.collect();
        windows
            .extend(self.servers.iter_mut().flat_map(|server| server.endpoint.flush_windows(now)));
        windows
    }

    /// Invariants that broke since the start: states that cannot occur, counted instead of a crash.
    pub fn invariants(&self) -> Invariants {
        self.invariants.clone()
    }

    /// Sends a command and notes the attempt.
    #[expect(clippy::too_many_arguments, reason = "the fields of an attempt")]
    fn send(
        &mut self,
        id: RequestId,
        request: &mut Request,
        part: usize,
        server: ServerId,
        role: Role,
        command: Command,
        actions: &mut Vec<Action>,
    ) -> AttemptId {
        self.serial += 1;
        let (attempt, now) = (self.serial, self.now);
        let timeout = self.pools[request.pool].settings.timeout;
        let state = &mut self.servers[server];
        let sent = state.endpoint.send(now, timeout);
        let part_state = request.parts.get(part);
        let keys = part_state.map_or(1, |part| part.keys);
        self.attempts
            .insert(attempt, Attempt { request: id, part, server, role, sent, keys, late: false });
        request.live.push(attempt);
        request.phase = Phase::Serving;
        let keys = match part_state.and_then(|part| part.places.clone()) {
            Some(places) => Part::Places(places),
            None => Part::Whole,
        };
        actions.push(Action::Send {
            request: id,
            attempt,
            server,
            part: part as u16,
            keys,
            command,
        });
        attempt
    }

    /// Takes an attempt out of the tables; `outcome` is what its server's record says.
    fn end(&mut self, id: AttemptId, outcome: Outcome, bytes: u64) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        let recorded = self.requests.get(&attempt.request).map(|request| request.recorded);
        let recorded = recorded.unwrap_or(match attempt.role {
            Role::Read | Role::ReadBack | Role::Warm | Role::Copied => Recorded::Get,
            Role::Write | Role::Update | Role::Fill | Role::Drop => Recorded::Put,
        });
        let end = match outcome {
            Outcome::Error => End::Failed,
            Outcome::Unknown => End::Dropped,
            outcome => End::Answered(outcome),
        };
        let (now, read) = (self.now, attempt.role == Role::Read);
        let server = &mut self.servers[attempt.server];
        let response = server.endpoint.end(now, &attempt.sent, recorded, end, bytes);
        let Some(response) = response else { return Some(attempt) };
        self.balancer.learn(&attempt.sent, response);
        let pool = server.pool.filter(|_| read);
        if let Some(pool) = pool {
            let before = server.endpoint.hedge_after;
            let hedge = self.pools[pool].settings.hedge.as_ref();
            server.endpoint.learn(now, &attempt.sent, response, hedge);
            let changed = server.endpoint.hedge_after != before;
            self.pools[pool].costs.record(response, attempt.keys);
            if changed {
                self.update_hedge_after(pool);
            }
        }
        Some(attempt)
    }

    fn attempt_answered(
        &mut self,
        id: AttemptId,
        answer: Answer,
        hits: u32,
        bytes: u32,
        actions: &mut Vec<Action>,
    ) {
        let outcome = match answer {
            Answer::Miss => Outcome::Miss,
            Answer::Error => Outcome::Error,
            _ => Outcome::Memory,
        };
        let Some(attempt) = self.end(id, outcome, u64::from(bytes)) else { return };
        let server = &mut self.servers[attempt.server];
        if attempt.late {
            server.late = server.late.saturating_sub(1);
        }
        if attempt.role == Role::Copied {
            return self.copy_ended(&attempt);
        }
        let Some(mut request) = self.requests.remove(&attempt.request) else {
            return self.invariants.broken();
        };
        request.live.retain(|live| *live != id);
        request.bytes += u64::from(bytes);
        let pool = request.pool;
        if request.phase == Phase::Serving {
            match attempt.role {
                Role::Read => self.read_answered(id, &attempt, &mut request, answer, hits, actions),
                Role::Warm | Role::Fill => {
                    self.warm_answered(id, &attempt, &mut request, answer, actions);
                }
                _ => self.write_answered(id, &attempt, &mut request, answer, actions),
            }
        }
        self.settle(attempt.request, request, actions);
        self.begin_waiting(pool, actions);
    }

    fn attempt_failed(&mut self, id: AttemptId, _why: Failed, actions: &mut Vec<Action>) {
        let Some(attempt) = self.end(id, Outcome::Error, 0) else { return };
        let health = self.settings.health.clone();
        let server = &mut self.servers[attempt.server];
        server.fail(self.now, attempt.sent.at, &health);
        if attempt.late {
            server.late = server.late.saturating_sub(1);
        }
        self.servers_due = self.now;
        if attempt.role == Role::Copied {
            return self.copy_ended(&attempt);
        }
        let Some(mut request) = self.requests.remove(&attempt.request) else {
            return self.invariants.broken();
        };
        request.live.retain(|live| *live != id);
        let pool = request.pool;
        if request.phase == Phase::Serving {
            request.failed |= bit(attempt.server);
            match attempt.role {
                Role::Read => self.read_failed(&attempt, &mut request, actions),
                Role::Warm | Role::Fill => self.warm_failed(&attempt, &mut request, actions),
                _ => self.write_failed(&attempt, &mut request, actions),
            }
        }
        self.settle(attempt.request, request, actions);
        self.begin_waiting(pool, actions);
    }

    fn client_left(&mut self, id: RequestId, actions: &mut Vec<Action>) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        let pool = request.pool;
        let waits = matches!(request.phase, Phase::Waiting | Phase::Locked);
        if request.operation.is_read() || waits {
            self.drop_attempts(id, &mut request, actions);
            self.release(&mut request, Outcome::Error, actions);
        }
        // A write goes on, and is forgotten at its end.
        self.settle(id, request, actions);
        self.begin_waiting(pool, actions);
    }
}
