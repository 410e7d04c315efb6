//! How requests begin, wait for a worker, and end: replies used, refusals, deadlines and timeouts.

use std::cmp::Reverse;

use ground::window::{Finished, Nanos, Operation as Recorded, Outcome};

use super::event::{Action, AttemptId, KeyHash, Keys, Operation, Refusal, RequestId};
use super::state::{Phase, Pools, Request, Role, Warmth, bit};

/// Former requests whose memory is kept.
const SPARE_MAX: usize = 1024;

/// [`Event::Request`](super::Event::Request), without its name.
pub(super) struct Arrival {
    pub client: u64,
    pub operation: Operation,
    pub recorded: Recorded,
    pub keys: Keys,
    pub deadline: Nanos,
}

impl Pools {
    pub(super) fn request(&mut self, id: RequestId, arrival: Arrival, actions: &mut Vec<Action>) {
        if self.requests.contains_key(&id) {
            return self.invariants.broken();
        }
        let pool = arrival.keys.as_slice().first().and_then(|key| self.pool_of(key));
        let Some(pool) = pool else {
            actions.push(Action::Refuse { request: id, why: Refusal::NoServer });
            actions.push(Action::Forget { request: id });
            return;
        };
        let state = &mut self.pools[pool];
        state.recorder.arrive(self.now);
        state.further.earn_retry();
        if arrival.operation.is_read() {
            state.further.earn_hedge();
        }
        let (workers, waiting_max) = (state.settings.workers, state.settings.waiting_max);
        let mut request = self.admit(pool, arrival);
        let state = &mut self.pools[pool];
        if workers > 0 && state.in_service >= workers {
            if state.waiting.len() >= waiting_max as usize {
                self.refuse(id, &mut request, Refusal::Busy, actions);
            } else {
                state.waiting.push_back(id);
            }
        } else {
            self.begin(id, &mut request, actions);
        }
        self.settle(id, request, actions);
        self.begin_waiting(pool, actions);
    }

    /// The state of a request that came, in the memory of a former one if there is any.
    fn admit(&mut self, pool: usize, arrival: Arrival) -> Box<Request> {
        let Arrival { client, operation, recorded, keys, deadline } = arrival;
        let came = self.order.arrive(client, operation, &keys);
        let mut spare = self.spare.pop();
        let vectors = |spare: &mut Box<Request>| {
            (std::mem::take(&mut spare.parts), std::mem::take(&mut spare.live))
        };
        let (parts, live) = spare.as_mut().map(vectors).unwrap_or_default();
        let request = Request {
            pool,
            client,
            came,
            operation,
            recorded,
            keys,
            received: self.now,
            started: 0,
            deadline,
            phase: Phase::Waiting,
            parts,
            live,
            reply: None,
            failed: 0,
            error: None,
            works: false,
            holds_key: false,
            passed: 0,
            holds_back: false,
            warmth: Warmth::Cold,
            bytes: 0,
            hits: 0,
            timer: Nanos::MAX,
        };
        match spare {
            Some(mut place) => {
                *place = request;
                place
            }
            None => Box::new(request),
        }
    }

    pub(super) fn pool_of(&self, key: &KeyHash) -> Option<usize> {
        let route = self.settings.routes.get(usize::from(key.route))?;
        (route.pool < self.pools.len()).then_some(route.pool)
    }

    /// Begins a request's service.
    fn begin(&mut self, id: RequestId, request: &mut Request, actions: &mut Vec<Action>) {
        request.works = true;
        request.started = self.now;
        let pool = &mut self.pools[request.pool];
        pool.in_service += 1;
        pool.recorder.start(self.now);
        self.copy(id, request, actions);
        match request.operation {
            Operation::Read | Operation::ReadFirst | Operation::ReadMarked => {
                if !self.waits_for_update(id, request) {
                    self.begin_read(id, request, actions);
                }
            }
            Operation::Write | Operation::Update | Operation::Invalidate => {
                self.lock_key(id, request, actions);
            }
        }
    }

    /// Gives free workers to the requests that wait.
    pub(super) fn begin_waiting(&mut self, pool: usize, actions: &mut Vec<Action>) {
        loop {
            let state = &mut self.pools[pool];
            let workers = state.settings.workers;
            if state.waiting.is_empty() || (workers > 0 && state.in_service >= workers) {
                return;
            }
            let Some(id) = state.waiting.pop_front() else { return };
            let Some(mut request) = self.requests.remove(&id) else { continue };
            if request.phase == Phase::Waiting {
                self.begin(id, &mut request, actions);
            }
            self.settle(id, request, actions);
        }
    }

    /// The replies of a request's attempts are not needed any more. Writes stay under way: their
    /// servers may still carry them out.
    pub(super) fn drop_attempts(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let ordered = self.is_ordered(request);
        let live = std::mem::take(&mut request.live);
        for attempt in live {
            let Some(state) = self.attempts.get_mut(&attempt) else { continue };
            if matches!(state.role, Role::Write | Role::Update | Role::Fill | Role::Drop) {
                state.late = true;
                let (server, sent) = (state.server, state.sent.at);
                let dropped = state.role == Role::Drop;
                self.servers[server].late += 1;
                if ordered || dropped {
                    // It may be carried out after a later write of the key.
                    self.misses(server);
                    let health = self.settings.health.clone();
                    self.servers[server].fail(self.now, sent, &health);
                    self.servers_due = self.now;
                }
                request.live.push(attempt);
                continue;
            }
            self.end(attempt, Outcome::Unknown, 0);
            actions.push(Action::Cancel { request: id, attempt });
        }
    }

    /// Ends a request with a refusal.
    pub(super) fn refuse(
        &mut self,
        id: RequestId,
        request: &mut Request,
        why: Refusal,
        actions: &mut Vec<Action>,
    ) {
        self.drop_attempts(id, request, actions);
        actions.push(Action::Refuse { request: id, why });
        self.pools[request.pool].counts.refuse(why);
        self.release(request, Outcome::Error, actions);
    }

    /// Ends a request because its servers failed.
    pub(super) fn refuse_failed(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let servers = request.failed;
        self.refuse(id, request, Refusal::Failed { servers }, actions);
    }

    /// Whether an attempt of a request can still be answered in time.
    pub(super) fn may_answer(&self, request: &Request) -> bool {
        let mut live = request.live.iter().filter_map(|live| self.attempts.get(live));
        live.any(|attempt| attempt.sent.until > self.now)
    }

    /// Ends a request whose replies are used.
    pub(super) fn done(
        &mut self,
        id: RequestId,
        request: &mut Request,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        actions.push(Action::Done { request: id });
        self.release(request, outcome, actions);
    }

    /// Gives back what a request holds, and records its end.
    pub(super) fn release(
        &mut self,
        request: &mut Request,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        if request.phase == Phase::Over {
            return self.invariants.broken();
        }
        request.phase = Phase::Over;
        let now = self.now;
        let pool = &mut self.pools[request.pool];
        if request.works {
            pool.in_service = pool.in_service.saturating_sub(1);
            request.works = false;
            let waiting = request.started.saturating_sub(request.received);
            let response = now.saturating_sub(request.received);
            pool.recorder.finish(
                now,
                &Finished {
                    operation: request.recorded,
                    outcome,
                    waiting,
                    service: response.saturating_sub(waiting),
                    response,
                    bytes: request.bytes,
                },
            );
        } else {
            pool.recorder.abandon(now);
        }
        self.holds_back_no_more(request);
        if std::mem::take(&mut request.holds_key)
            && let Some(key) = request.keys.as_slice().first()
        {
            self.unlock_key(key.id, actions);
        }
    }

    /// Puts a request back, or forgets it if it is over; sets its timer.
    pub(super) fn settle(
        &mut self,
        id: RequestId,
        mut request: Box<Request>,
        actions: &mut Vec<Action>,
    ) {
        if request.phase == Phase::Over && request.live.is_empty() {
            actions.push(Action::Forget { request: id });
            if self.spare.len() < SPARE_MAX {
                request.parts.clear();
                self.spare.push(request);
            }
            return;
        }
        let mut timer = match request.phase {
            Phase::Over => Nanos::MAX,
            _ => request.deadline,
        };
        if request.phase == Phase::Serving {
            let until = |id: &AttemptId| self.attempts.get(id).map(|attempt| attempt.sent.until);
            let first = request.live.iter().filter_map(until).min().unwrap_or(Nanos::MAX);
            let open = request.parts.iter().filter(|part| !part.over);
            let hedge = open.map(|part| part.hedge_at).min().unwrap_or(Nanos::MAX);
            timer = timer.min(first).min(hedge);
        }
        if timer != request.timer {
            request.timer = timer;
            if timer < Nanos::MAX {
                self.timers.push(Reverse((timer, id)));
            }
        }
        self.requests.insert(id, request);
        // Timers that were set anew leave their entries behind.
        if self.timers.len() > 64 + 4 * self.requests.len() {
            let all = self.requests.iter().filter(|(_, request)| request.timer < Nanos::MAX);
            self.timers = all.map(|(id, request)| Reverse((request.timer, *id))).collect();
        }
    }

    /// A request's timer fired.
    pub(super) fn due(&mut self, id: RequestId, actions: &mut Vec<Action>) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        let (now, pool) = (self.now, request.pool);
        if request.deadline <= now {
            let servers = request.live.iter().filter_map(|id| self.attempts.get(id));
            let servers = servers.fold(0, |bits, attempt| bits | bit(attempt.server));
            self.refuse(id, &mut request, Refusal::TooLate { servers }, actions);
        } else {
            let late: Vec<AttemptId> = request
                .live
                .iter()
                .filter(|id| self.attempts.get(id).is_some_and(|attempt| attempt.sent.until <= now))
                .copied()
                .collect();
            for attempt in late {
                // The one before may have ended the request.
                if request.phase == Phase::Serving {
                    self.timed_out(id, attempt, &mut request, actions);
                }
            }
            if request.phase == Phase::Serving {
                self.hedge(id, &mut request, actions);
            }
        }
        self.settle(id, request, actions);
        self.begin_waiting(pool, actions);
    }

    /// An attempt took longer than the pool's timeout.
    pub(super) fn timed_out(
        &mut self,
        id: RequestId,
        name: AttemptId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let Some(attempt) = self.attempts.get(&name).copied() else { return };
        let health = self.settings.health.clone();
        self.servers[attempt.server].fail(self.now, attempt.sent.at, &health);
        self.servers_due = self.now;
        request.failed |= bit(attempt.server);
        match attempt.role {
            Role::Read | Role::ReadBack | Role::Warm => {
                request.live.retain(|live| *live != name);
                self.end(name, Outcome::Unknown, 0);
                actions.push(Action::Cancel { request: id, attempt: name });
                match attempt.role {
                    Role::Read => self.read_failed(&attempt, request, actions),
                    Role::Warm => self.warm_failed(&attempt, request, actions),
                    _ => self.write_failed(&attempt, request, actions),
                }
            }
            Role::Fill => self.warm_failed(&attempt, request, actions),
            Role::Write | Role::Update | Role::Drop => {
                self.write_failed(&attempt, request, actions);
            }
            // Not among a request's attempts.
            Role::Copied => self.invariants.broken(),
        }
    }
}
