//! Values moved from the pool that had a route's keys before.
//!
//! A read that finds nothing in its pool, and an update before it runs, take the key as a write does
//! and read it from its former server. What is there is added to the key's servers with its flags and
//! its time to live, then used. Every write deletes the former server's value before it is
//! acknowledged, so that no later read finds an old value there. If a former server cannot be
//! reached, it counts as one that has missed a write: it is emptied before it is read again.

use super::event::{Action, Answer, AttemptId, Command, KeyHash, RequestId, ServerId};
use super::state::{Attempt, Pools, Request, Role, Warmth, bit};
use crate::mutant::{self, Mutant};
use ground::window::Outcome;

impl Pools {
    /// The pool that had a request's key before.
    pub(super) fn warm_pool(&self, request: &Request) -> Option<usize> {
        let key = request.keys.as_slice().first()?;
        self.settings.routes.get(usize::from(key.route))?.warm_from
    }

    /// Whether a request's key may be at a former server. Only for requests of one key.
    pub(super) fn may_warm(&self, request: &Request) -> bool {
        request.keys.as_slice().len() == 1
            && request.warmth == Warmth::Cold
            && self.warm_pool(request).is_some()
    }

    /// The former servers of a key.
    fn former(&self, pool: usize, key: &KeyHash) -> Vec<ServerId> {
        let Some(pool) = self.pools.get(pool) else { return Vec::new() };
        let settings = &pool.settings;
        let replicas = settings.routing.replicas(settings.servers.len());
        let of = |local: usize| settings.servers.get(local).copied();
        settings.ring.replicas(key.ring, replicas).iter().filter_map(of).collect()
    }

    /// A read found nothing: `miss` is the reply that says so.
    pub(super) fn warm_read(
        &mut self,
        id: RequestId,
        request: &mut Request,
        miss: AttemptId,
        actions: &mut Vec<Action>,
    ) {
        request.warmth = Warmth::Moving(Some(miss));
        if mutant::is(Mutant::PoolMovesDuringWrite) || self.takes_key(id, request) {
            self.begin_warm(id, request, actions);
        }
    }

    /// Looks for the key at its former server. The request holds the key.
    pub(super) fn begin_warm(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        // An update has waited before, as it took its key.
        if request.operation.is_read() && self.waits_for_flush(id, request) {
            return;
        }
        if request.warmth == Warmth::Cold {
            request.warmth = Warmth::Moving(None);
        }
        let key = request.keys.as_slice().first().copied();
        let servers = match (self.warm_pool(request), key) {
            (Some(pool), Some(key)) => self.former(pool, &key),
            _ => Vec::new(),
        };
        match servers.into_iter().find(|server| self.is_readable(*server, false)) {
            Some(server) => {
                self.send(id, request, 0, server, Role::Warm, Command::ReadBack, actions);
            }
            None => self.warm_ended(id, request, None, actions),
        }
    }

    /// A former server answered, or a server to which the value was copied.
    pub(super) fn warm_answered(
        &mut self,
        name: AttemptId,
        attempt: &Attempt,
        request: &mut Request,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        let id = attempt.request;
        if attempt.role == Role::Fill {
            if answer == Answer::Error {
                request.failed |= bit(attempt.server);
            }
            return self.fill_ended(id, request, actions);
        }
        let key = request.keys.as_slice().first().copied();
        let (Answer::Hit, Some(key)) = (answer, key) else {
            return self.warm_ended(id, request, None, actions);
        };
        request.reply = Some((name, answer));
        let command = Command::Add { from: name };
        for server in self.targets(&key) {
            self.send(id, request, 0, server, Role::Fill, command, actions);
        }
        self.fill_ended(id, request, actions);
    }

    /// A former server failed: the request goes on without its value. Or one to which the value was
    /// copied failed: a read goes on, an update is refused.
    pub(super) fn warm_failed(
        &mut self,
        attempt: &Attempt,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let id = attempt.request;
        if attempt.role == Role::Warm {
            return self.warm_ended(id, request, None, actions);
        }
        // Whether it has the value is not known, nor whether it will: an older one than a later
        // write's, for all it knows.
        self.misses(attempt.server);
        if !request.operation.is_read() {
            return self.refuse_failed(id, request, actions);
        }
        self.fill_ended(id, request, actions);
    }

    /// Goes on once no server has still to answer, or can still answer in time.
    fn fill_ended(&mut self, id: RequestId, request: &mut Request, actions: &mut Vec<Action>) {
        if self.may_answer(request) {
            return;
        }
        self.pools[request.pool].counts.warmed += 1;
        let found = request.reply.take().map(|(attempt, _)| attempt);
        self.warm_ended(id, request, found, actions);
    }

    /// The key's move is over: `found` has its value.
    fn warm_ended(
        &mut self,
        id: RequestId,
        request: &mut Request,
        found: Option<AttemptId>,
        actions: &mut Vec<Action>,
    ) {
        let Warmth::Moving(miss) = std::mem::replace(&mut request.warmth, Warmth::Warm) else {
            return self.invariants.broken();
        };
        if !request.operation.is_read() {
            request.failed = 0;
            return self.begin_write(id, request, actions);
        }
        // Copies that did not end in time go on by themselves.
        self.drop_attempts(id, request, actions);
        let Some(attempt) = found.or(miss) else { return self.invariants.broken() };
        request.hits += u32::from(found.is_some());
        actions.push(Action::Use { request: id, part: 0, attempt });
        let outcome = if found.is_some() { Outcome::Replica } else { Outcome::Miss };
        self.done(id, request, outcome, actions);
    }

    /// Deletes what the key's former servers have, as a part of a write.
    pub(super) fn drop_former(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let (Some(pool), Some(key)) = (self.warm_pool(request), request.keys.as_slice().first())
        else {
            return;
        };
        if mutant::is(Mutant::PoolFormerValueKept) {
            return;
        }
        for server in self.former(pool, key) {
            let state = &self.servers[server];
            if state.is_up(self.now, &self.settings.health) || state.health.answers() {
                self.send(id, request, 0, server, Role::Drop, Command::Delete, actions);
            } else {
                self.misses(server);
            }
        }
    }
}
